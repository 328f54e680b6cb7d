//! Managed directories whose producers and consumers run on several hosts: which host fetches from which. The hosts find
//! each other's addresses in the catalog of the run's site.

use std::collections::BTreeMap;
use std::time::Duration;

use crossdock_files::{Exchange, RemoteHosts, Service};
use crossdock_gateway::CatalogAddress;
use crossdock_link::{Choice, Transports};

use super::site::Protection;
use crate::file::{Directory, Places, Workflow};

/// This host as a node of the run's site, and how other hosts reach it.
#[derive(Clone, Debug)]
pub struct OwnHost {
    /// The name of the site.
    pub site: String,
    /// The address of the site's catalog.
    pub catalog: CatalogAddress,
    /// The name of this host's node in the site.
    pub node: String,
    /// The address at which other hosts reach this host; the system chooses the port.
    pub address: String,
    /// What protects the connections to the other hosts.
    pub protection: Protection,
    /// The choice of transports that carry bytes between the hosts.
    pub transport: Choice,
}

/// What one host of the run knows about the other hosts and the managed directories.
#[derive(Clone, Debug)]
pub struct OtherHosts {
    own: OwnHost,
    /// The name of the workflow.
    workflow: String,
    /// For each managed directory: its name, and what this host knows about it.
    directories: BTreeMap<String, DirectoryHosts>,
}

/// What a host knows about one managed directory.
#[derive(Clone, Debug)]
struct DirectoryHosts {
    across: RemoteHosts,
    /// The names of the producers with their hosts, in the form that messages show.
    producers: String,
}

/// Tells whether files of any directory must go from one host to another.
pub fn needed(workflow: &Workflow, places: &Places) -> bool {
    workflow.directories.iter().any(|directory| {
        let (from, to) = ends(directory, workflow, places);
        from.iter().any(|from| to.iter().any(|to| to != from))
    })
}

/// Gives the hosts of the producers, and the hosts of the consumers.
fn ends(directory: &Directory, workflow: &Workflow, places: &Places) -> (Vec<usize>, Vec<usize>) {
    (places.hosts_of(workflow, &directory.produce), places.hosts_of(workflow, &directory.consume))
}

impl OtherHosts {
    /// Collects what the host with this number needs to know. `nodes` has two names for each host: its name in
    /// messages, and the name of its node.
    pub fn of(
        (workflow, places): (&Workflow, &Places),
        nodes: &[(String, String)],
        number: usize,
        own: OwnHost,
    ) -> Self {
        let mut directories = BTreeMap::new();
        for directory in &workflow.directories {
            let (from, to) = ends(directory, workflow, places);
            let others = |hosts: &[usize], here: bool| -> Vec<String> {
                let others = hosts.iter().filter(|host| here && **host != number);
                others.map(|host| nodes[*host].1.clone()).collect()
            };
            let (produces, consumes) = (from.contains(&number), to.contains(&number));
            let across = RemoteHosts {
                produces,
                consumes,
                readers: others(&to, produces),
                origins: others(&from, consumes),
                wait: Duration::from_secs(directory.wait_s.into()),
                path: directory.path.clone(),
            };
            let with_hosts = |task: &String| {
                let hosts = places.hosts_of(workflow, std::slice::from_ref(task));
                let hosts: Vec<&str> = hosts.into_iter().map(|host| nodes[host].0.as_str()).collect();
                format!("{task} on {}", hosts.join(" and "))
            };
            let producers: Vec<String> = directory.produce.iter().map(with_hosts).collect();
            directories.insert(directory.name.clone(), DirectoryHosts { across, producers: producers.join(", ") });
        }
        Self { own, workflow: workflow.name.clone(), directories }
    }

    /// Gives the names of a directory's producers with their hosts, in the form that messages show.
    pub fn producers(&self, directory: &str) -> Option<&str> {
        self.directories.get(directory).map(|of| of.producers.as_str())
    }

    /// Starts the exchange, which listens to the hosts that fetch from this host, and announces this host in the
    /// catalog.
    pub fn exchange(&self, directories: &[(Directory, Service)]) -> Result<Exchange, String> {
        let OwnHost { site, catalog, node, address, protection, transport } = &self.own;
        let transports = Transports::new(&protection.trust()?, *transport).map_err(|e| e.to_string())?;
        let site = protection.site_of_files((site, catalog, node), &self.workflow, &transports)?;
        let alone = RemoteHosts { produces: true, ..RemoteHosts::default() };
        let all = directories.iter().map(|(directory, service)| {
            let across = self.directories.get(&directory.name).map_or(&alone, |of| &of.across);
            (directory.name.as_str(), service, across)
        });
        let all: Vec<(&str, &Service, &RemoteHosts)> = all.collect();
        let started = Exchange::start(&transports, node, &format!("{address}:0"), &site, &all);
        started.map_err(|e| format!("managed directories cannot be shared with other hosts: {e}"))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::file::parse_on;

    fn neighbours(tasks: &str, number: usize) -> Option<(RemoteHosts, String)> {
        let text = format!("workflow: w\nfiles: {{f: {{path: /f, produce: [a], consume: [b, c]}}}}\ntasks:\n{tasks}");
        let hosts = ["n1", "n2", "n3"].map(str::to_owned);
        let (workflow, places) = parse_on(Path::new("w.yaml"), &text, &hosts, None).unwrap();
        let nodes = hosts.map(|host| (host.clone(), format!("node-{host}")));
        let own = OwnHost {
            site: "s".to_owned(),
            catalog: "embedded:x@127.0.0.1:1".parse().unwrap(),
            node: "x".to_owned(),
            address: "127.0.0.1".to_owned(),
            protection: Protection::TrustedNetwork,
            transport: Choice::Auto,
        };
        let of = OtherHosts::of((&workflow, &places), &nodes, number, own).directories.remove("f")?;
        needed(&workflow, &places).then_some((of.across, of.producers))
    }

    #[test]
    fn each_host_knows_from_which_it_fetches_and_which_fetch_from_it() {
        let tasks = "  a: {command: [x], ranks: 2, spread: true}\n  b: {command: [x], node: n2}\n  c: {command: [x], node: n3}\n";
        let wait = Duration::from_secs(300);
        let across = |produces, readers: &[&str], origins: &[&str]| RemoteHosts {
            produces,
            consumes: !origins.is_empty(),
            readers: readers.iter().map(|n| (*n).to_owned()).collect(),
            origins: origins.iter().map(|n| (*n).to_owned()).collect(),
            wait,
            path: "/f".to_owned(),
        };
        let text = "a on n1 and n2".to_owned();
        for (number, wanted) in [
            (0, across(true, &["node-n2", "node-n3"], &[])),
            (1, across(true, &["node-n3"], &["node-n1"])),
            (2, across(false, &[], &["node-n1", "node-n2"])),
        ] {
            assert_eq!(neighbours(tasks, number), Some((wanted, text.clone())), "host {number}");
        }
    }

    #[test]
    fn a_directory_of_one_host_needs_no_exchange() {
        let tasks = "  a: {command: [x], node: n2}\n  b: {command: [x], with: a}\n  c: {command: [x], with: a}\n";
        assert_eq!(neighbours(tasks, 1), None);
    }
}

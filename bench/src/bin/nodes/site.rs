//! Two sites of two nodes each: one site without TLS, one with TLS.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crossdock_bench::{Daemon, free_port};
use crossdock_link::{Authority, Certificates, Choice, NodeCredentials, Transports, Trust};
use serde::{Deserialize, Serialize};

use crate::Place;
use crate::rows::SITES;
use crate::send::Senders;

/// A site of the nodes `a` and `b`. The daemon of `b` keeps the catalog.
pub struct Site {
    pub name: &'static str,
    pub catalog: String,
    pub a: Daemon,
    pub b: Daemon,
    /// The address of node `a`.
    pub own: String,
    /// The folder that contains, for each node, a folder with its certificates. `None` without TLS.
    pub papers: Option<PathBuf>,
}

/// The data about one site that the receiver needs.
#[derive(Serialize, Deserialize)]
pub struct SiteSetting {
    pub name: String,
    pub socket: PathBuf,
    pub papers: Option<PathBuf>,
    /// Where node `a` serves the files of its managed directory.
    pub files: String,
}

/// What the sending process tells the receiving process about the sites. The receiving process gets this value as an
/// argument, in JSON.
#[derive(Serialize, Deserialize)]
pub struct Setting {
    pub address: String,
    /// The size in bytes of the object that the receiver's raw TCP server serves.
    pub raw: usize,
    pub sites: Vec<SiteSetting>,
}

pub struct Sites<'a> {
    pub all: Vec<Site>,
    folder: PathBuf,
    place: &'a Place<'a>,
}

impl<'a> Sites<'a> {
    /// Starts the sites with these names (of [`SITES`]).
    pub fn start(place: &'a Place<'a>, names: &[&'static str]) -> Self {
        let Place { command, before, own, other } = place;
        let folder = std::env::temp_dir().join(format!("crossdock-nodes-{}", std::process::id()));
        let authority = Authority::make("bench", Duration::from_secs(3600)).expect("an authority");
        for node in ["a", "b"] {
            std::fs::create_dir_all(folder.join(node)).expect("a folder for certificates");
            authority.issue(node).and_then(|papers| papers.save(&folder.join(node))).expect("papers");
        }
        let site = |&name: &&'static str| {
            let papers = (name != SITES[0]).then(|| folder.clone());
            let catalog = format!("{other}:{}", free_port());
            let daemon = |before: &[String], node, catalog: &str| {
                let folder = papers.as_ref().map(|papers| papers.join(node));
                let trust = match &folder {
                    Some(folder) => vec!["--certificates", folder.to_str().expect("plain letters")],
                    None => vec!["--trusted-network"],
                };
                let options = ["--site", "bench", "--node", node, "--catalog", catalog];
                Daemon::start_with(before, command, &[&options[..], &trust].concat())
            };
            let b = daemon(before, "b", &format!("keep:{catalog}"));
            let named = if papers.is_some() { "b@" } else { "" };
            let a = daemon(&[], "a", &format!("embedded:{named}{catalog}"));
            Site { name, catalog, a, b, own: (*own).to_owned(), papers }
        };
        let all: Vec<Site> = names.iter().map(site).collect();
        for site in &all {
            site.a.await_joined(1);
            site.b.await_joined(1);
        }
        Self { all, folder, place }
    }

    /// Makes the data that the receiver needs. `raw` is the size of the object that the receiver's raw TCP server
    /// serves.
    pub fn setting(&self, senders: &[Senders], raw: usize) -> Setting {
        let site = |(site, senders): (&Site, &Senders)| SiteSetting {
            name: site.name.to_owned(),
            socket: site.b.socket(),
            papers: site.papers.clone(),
            files: senders.files_address().to_owned(),
        };
        let sites = self.all.iter().zip(senders).map(site).collect();
        Setting { address: self.place.other.to_owned(), raw, sites }
    }
}

impl Drop for Sites<'_> {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Makes the transports between the managed directories of the two nodes.
pub fn transports(papers: Option<&Path>, node: &str) -> Transports {
    let trust = match papers {
        Some(folder) => {
            let papers = NodeCredentials::load(&folder.join(node)).expect("papers");
            Trust::Certificates(Arc::new(Certificates::new(&papers).expect("certificates")))
        }
        None => Trust::Network,
    };
    Transports::new(&trust, Choice::Auto).expect("transports")
}

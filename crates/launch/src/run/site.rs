//! The site of a run on several hosts: its name, its certificates and its catalog. The certificates are made for this
//! run only; a run with `--trusted-network` has no certificates. The daemon on the supervisor's host keeps the catalog.
//! If the run needs no daemon, the supervisor itself keeps the catalog.

use std::ffi::OsString;
use std::net::{Ipv4Addr, ToSocketAddrs, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crossdock_files as files;
use crossdock_gateway::{CatalogAddress, CatalogOptions, SiteCatalog};
use crossdock_link::{Authority, Certificates, NodeCredentials, Transports, Trust};
use crossdock_os::tcp;

use super::daemon::Site;
use super::folder::RunFolder;
use super::hosts::Hosts;
use super::messages::{OrderedProtection, SiteOrder};

/// How long the certificates are valid, which is longer than any run.
const LASTING: Duration = Duration::from_secs(366 * 86_400);

/// What protects the connections between the hosts of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Protection {
    /// Mutual TLS, with the certificates in this folder, protects the connections.
    Certificates(PathBuf),
    /// Nothing protects the connections: the user has allowed plain text with `--trusted-network`.
    TrustedNetwork,
}

impl Protection {
    /// Gives the options that `crossdock serve` takes for this protection.
    pub fn options(&self) -> Vec<OsString> {
        match self {
            Self::Certificates(folder) => vec!["--certificates".into(), folder.into()],
            Self::TrustedNetwork => vec!["--trusted-network".into()],
        }
    }

    /// Gives this protection in the form that connections of this process use.
    pub fn trust(&self) -> Result<Trust, String> {
        match self {
            Self::Certificates(folder) => {
                let credentials = NodeCredentials::load(folder).and_then(|credentials| Certificates::new(&credentials));
                Ok(Trust::Certificates(Arc::new(credentials.map_err(|e| e.to_string())?)))
            }
            Self::TrustedNetwork => Ok(Trust::Network),
        }
    }

    /// Gives the site with this name and catalog in the form that managed directories use, on the node `node`.
    pub fn site_of_files(
        &self,
        (name, at, node): (&str, &CatalogAddress, &str),
        workflow: &str,
        transports: &Transports,
    ) -> Result<files::Site, String> {
        // This process does not keep the catalog, so the catalog needs no folder here.
        let catalog = self.catalog((at, node), (Path::new(""), None), transports)?.client();
        Ok(files::Site { catalog, name: name.to_owned(), workflow: workflow.to_owned(), lease: files::Site::LEASE })
    }

    /// Opens the catalog at `at` for this process on the node `node`. This process becomes a client of the catalog, or
    /// keeps the catalog itself, with a journal in `folder` and the listening socket `socket`.
    fn catalog(
        &self,
        (at, node): (&CatalogAddress, &str),
        (folder, socket): (&Path, Option<BorrowedFd<'_>>),
        transports: &Transports,
    ) -> Result<SiteCatalog, String> {
        let (certificates, trusted_network) = match self {
            Self::Certificates(folder) => (Some(folder.as_path()), false),
            Self::TrustedNetwork => (None, true),
        };
        SiteCatalog::open(&CatalogOptions { at, node, certificates, trusted_network, folder, socket }, transports)
    }
}

/// The site of a run.
pub struct RunSite {
    name: String,
    /// Signs the certificates of the nodes. A run with `--trusted-network` has no authority.
    authority: Option<Authority>,
    hosts: Hosts,
    protection: Protection,
    /// The socket at which the daemon of this host keeps the catalog. This process holds the socket until the daemon
    /// has it, so that no other program can take the port.
    socket: Arc<OwnedFd>,
    port: u16,
}

impl RunSite {
    /// Makes the certificate authority, and writes this node's certificate into the run's folder. On a trusted network
    /// no certificate is made.
    pub fn make(hosts: &Hosts, folder: &RunFolder) -> Result<Self, String> {
        let (authority, protection) = if hosts.trusted_network {
            (None, Protection::TrustedNetwork)
        } else {
            let text = |e: crossdock_link::Error| e.to_string();
            let authority = Authority::make(&folder.id, LASTING).map_err(text)?;
            authority.issue(&hosts.own_node()).and_then(|credentials| credentials.save(&folder.path)).map_err(text)?;
            (Some(authority), Protection::Certificates(folder.path.clone()))
        };
        Self::with(&folder.id, hosts, authority, protection)
    }

    /// Makes the site with this name, and the socket of its catalog.
    fn with(name: &str, hosts: &Hosts, authority: Option<Authority>, protection: Protection) -> Result<Self, String> {
        let no_port = |e| format!("no port for the catalog: {e}");
        let socket = tcp::listen((Ipv4Addr::UNSPECIFIED, 0).into()).map_err(no_port)?;
        let port = tcp::local_address(&socket).map_err(no_port)?.port();
        let (name, hosts, socket) = (name.to_owned(), hosts.clone(), Arc::new(socket));
        Ok(Self { name, authority, hosts, protection, socket, port })
    }

    /// Gives the options for the daemon of this host.
    pub fn own(&self) -> Site {
        Site {
            name: self.name.clone(),
            node: self.hosts.own_node(),
            catalog: format!("keep:0.0.0.0:{}", self.port),
            catalog_socket: Some(Arc::clone(&self.socket)),
            listen: self.address().map(|host| format!("{host}:0")),
            protection: self.protection.clone(),
            transport: self.hosts.transport,
        }
    }

    /// The name of the site.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Keeps the site's catalog in this process, until the returned value is dropped.
    pub fn keep(&self, folder: &RunFolder) -> Result<SiteCatalog, String> {
        let at = CatalogAddress::Keep(format!("0.0.0.0:{}", self.port));
        self.protection.catalog(
            (&at, &self.hosts.own_node()),
            (&folder.path.join("catalog"), Some(self.socket.as_fd())),
            &self.transports()?,
        )
    }

    /// Gives the site in the form that managed directories use, with a client of the catalog for this process.
    pub fn of_files(&self, workflow: &str) -> Result<files::Site, String> {
        self.protection.site_of_files(
            (&self.name, &self.catalog(), &self.hosts.own_node()),
            workflow,
            &self.transports()?,
        )
    }

    fn transports(&self) -> Result<Transports, String> {
        Transports::new(&self.protection.trust()?, self.hosts.transport).map_err(|e| e.to_string())
    }

    /// Gives the address by which processes of this host reach the catalog.
    pub fn catalog(&self) -> CatalogAddress {
        CatalogAddress::Embedded { node: self.hosts.own_node(), address: format!("127.0.0.1:{}", self.port) }
    }

    /// Gives this host's address on the route to the first other host.
    pub fn address(&self) -> Option<String> {
        if let Some(address) = &self.hosts.address {
            return Some(address.clone());
        }
        let other = (0..self.hosts.names.len()).find(|number| self.hosts.here != Some(*number))?;
        let name = self.hosts.names[other].rsplit('@').next()?;
        own_address(name)
    }

    /// What protects the connections of this host to the other hosts.
    pub fn protection(&self) -> &Protection {
        &self.protection
    }

    /// Gives what the part on the host with this number needs to know to become a node of the site.
    pub fn order(&self, number: usize) -> Result<SiteOrder, String> {
        let node = self.hosts.node(number);
        let protection = match &self.authority {
            Some(authority) => {
                let NodeCredentials { authority, certificate, key } =
                    authority.issue(&node).map_err(|e| e.to_string())?;
                OrderedProtection::Certificates { authority, certificate, key }
            }
            None => OrderedProtection::TrustedNetwork,
        };
        let (keeper, address) = (self.hosts.own_node(), self.hosts.address.clone());
        let (name, transport) = (self.name.clone(), self.hosts.transport);
        Ok(SiteOrder { name, node, keeper, address, port: self.port, protection, transport })
    }
}

/// Finds this host's address on the route to `host`.
pub fn own_address(host: &str) -> Option<String> {
    let to = (host, 22).to_socket_addrs().ok()?.next()?;
    // Connecting a UDP socket sends no packet. The kernel only chooses the route to the other host, and with it the
    // address of this host that the socket gets.
    let socket = UdpSocket::bind(if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }).ok()?;
    socket.connect(to).ok()?;
    let own = socket.local_addr().ok()?.ip();
    Some(if own.is_ipv6() { format!("[{own}]") } else { own.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::hosts::HostOptions;

    #[test]
    fn the_catalogs_port_belongs_to_the_run_until_its_daemon_has_it() {
        let wanted =
            HostOptions { hosts: Some("localhost,n2.invalid".into()), trusted_network: true, ..HostOptions::default() };
        let hosts = wanted.find().unwrap().unwrap();
        let site = RunSite::with("run", &hosts, None, Protection::TrustedNetwork).unwrap();
        let port = site.order(1).unwrap().port;
        assert_eq!(site.own().catalog, format!("keep:0.0.0.0:{port}"));
        let bind = || std::net::TcpListener::bind((Ipv4Addr::UNSPECIFIED, port));
        assert!(bind().is_err());
        let own = site.own();
        drop(site);
        assert!(bind().is_err());
        drop(own);
        drop(bind().unwrap());
    }
}

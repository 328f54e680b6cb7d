//! The site of a run on several hosts: its name, its certificates and its catalog. The certificates are made for this
//! run only. The daemon on the supervisor's host keeps the catalog.

use std::net::{TcpListener, ToSocketAddrs, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crossdock_link::{Authority, Papers};

use super::daemon::Site;
use super::folder::RunFolder;
use super::hosts::Hosts;
use super::words::SiteOrder;

/// How long the certificates are valid, which is longer than any run.
const LASTING: Duration = Duration::from_secs(366 * 86_400);

/// The site of a run.
pub struct RunSite {
    name: String,
    authority: Authority,
    hosts: Hosts,
    certificates: PathBuf,
    port: u16,
}

impl RunSite {
    /// Makes the certificate authority, and writes this node's certificate into the run's folder.
    pub fn make(hosts: &Hosts, folder: &RunFolder) -> Result<Self, String> {
        let text = |e: crossdock_link::Error| e.to_string();
        let authority = Authority::make(&folder.id, LASTING).map_err(text)?;
        authority.issue(&hosts.own_node()).and_then(|papers| papers.save(&folder.path)).map_err(text)?;
        let certificates = folder.path.clone();
        Ok(Self { name: folder.id.clone(), authority, hosts: hosts.clone(), certificates, port: free_port()? })
    }

    /// Gives the options for the daemon of this host.
    pub fn own(&self) -> Site {
        Site {
            name: self.name.clone(),
            node: self.hosts.own_node(),
            catalog: format!("keep:0.0.0.0:{}", self.port),
            listen: self.address().map(|host| format!("{host}:0")),
            certificates: self.certificates.clone(),
            transport: self.hosts.transport,
        }
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

    /// The folder with this node's certificate.
    pub fn certificates(&self) -> &Path {
        &self.certificates
    }

    /// Gives the order for the part on the host with this number.
    pub fn order(&self, number: usize) -> Result<SiteOrder, String> {
        let node = self.hosts.node(number);
        let Papers { authority, certificate, key } = self.authority.issue(&node).map_err(|e| e.to_string())?;
        let (keeper, address) = (self.hosts.own_node(), self.hosts.address.clone());
        let (name, transport) = (self.name.clone(), self.hosts.transport);
        Ok(SiteOrder { name, node, keeper, address, port: self.port, authority, certificate, key, transport })
    }
}

/// Finds this host's address on the route to the host `host`.
pub fn own_address(host: &str) -> Option<String> {
    let to = (host, 22).to_socket_addrs().ok()?.next()?;
    // No packet is sent. The kernel chooses the route, and with it the address of this host.
    let socket = UdpSocket::bind(if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }).ok()?;
    socket.connect(to).ok()?;
    let own = socket.local_addr().ok()?.ip();
    Some(if own.is_ipv6() { format!("[{own}]") } else { own.to_string() })
}

/// Finds a port on which no program listens now. The kernel chooses it at random, so two runs rarely get the same port.
fn free_port() -> Result<u16, String> {
    let listener = TcpListener::bind(("0.0.0.0", 0)).and_then(|listener| listener.local_addr());
    listener.map(|address| address.port()).map_err(|e| format!("no port to listen on: {e}"))
}

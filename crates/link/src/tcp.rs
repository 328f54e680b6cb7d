//! TCP, in plain text or inside TLS: the transport that works on every machine.

use crate::connection::{Connection, Plain, TCP};
use crate::listener::{self, Accepts};
use crate::tls::{self, Protocol};
use crate::{Accept, Error, Result, Stream, Transport, Trust};
use crossdock_layout::Status;
use crossdock_os::{Deadline, OsError, tcp};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;

/// Makes TCP connections. Cloning this value is cheap.
#[derive(Clone, Debug, Default)]
pub struct Tcp {
    trust: Trust,
}

const NO_TRUST: &str = "without certificates a node talks to loopback addresses only; \
    give both nodes certificates, or allow plain text explicitly with --trusted-network";

impl Tcp {
    /// Makes a TCP transport whose connections are protected as `trust` says.
    #[must_use]
    pub const fn new(trust: Trust) -> Self {
        Self { trust }
    }
}

/// Gives the addresses that the text `address` names. Looking up a host name has no deadline. A caller that needs a
/// deadline gives a numeric address.
pub fn resolve(trust: &Trust, tried: &str, address: &str) -> Result<Vec<SocketAddr>> {
    let wrong = |reason: String| {
        Error::new(Status::Invalid, tried, reason)
            .at(address)
            .hint("an address is host:port, as in 10.0.0.2:7700, node2:7700 or [::1]:7700")
    };
    let found: Vec<_> = address.to_socket_addrs().map_err(|error| wrong(error.to_string()))?.collect();
    if found.is_empty() {
        return Err(wrong("the name has no address".to_owned()));
    }
    if matches!(trust, Trust::Loopback) && !found.iter().all(|one| is_loopback(one.ip())) {
        let reason = "the address is not a loopback address, and nothing protects the connection";
        return Err(Error::new(Status::Denied, tried, reason).at(address).hint(NO_TRUST));
    }
    Ok(found)
}

/// Connects to the node `node` at `address`. Inside TLS, the peer must prove its name and speak `protocol`.
pub fn connect(trust: &Trust, node: &str, address: &str, protocol: Protocol, by: Deadline) -> Result<Connection> {
    let tried = "connect";
    let mut last = None;
    for one in resolve(trust, tried, address)? {
        match tcp::connect(one, by) {
            Ok(socket) => {
                let plain = Plain::new(socket, address.to_owned());
                let Trust::Certificates(certificates) = trust else { return Ok(Connection::Plain(plain)) };
                let tls = tls::connect(plain, certificates, node, protocol, by);
                return tls.map(|tls| Connection::Tls(Box::new(tls))).map_err(|error| error.with(node, address));
            }
            Err(error) => last = Some(error),
        }
    }
    let error = last.expect("resolve gives at least one address");
    Err(failed(tried, address, &error).with(node, address).hint("is its daemon running, and may this node reach it?"))
}

fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

impl Transport for Tcp {
    fn name(&self) -> &'static str {
        TCP[usize::from(self.trust.is_protected())]
    }

    fn why_not_better(&self) -> &'static str {
        ""
    }

    fn dial(&self, node: &str, address: &str, deadline: Deadline) -> Result<Arc<dyn Stream>> {
        Ok(connect(&self.trust, node, address, Protocol::Messages, deadline)?.into_stream())
    }

    fn listen(&self, address: &str) -> Result<Box<dyn Accept>> {
        listener::listen(&self.trust, address, Accepts::tcp())
    }
}

/// The error for a failed system call of a connection.
pub fn failed(tried: &str, address: &str, error: &OsError) -> Error {
    use std::io::ErrorKind as Kind;
    let status = match error.reason().kind() {
        Kind::TimedOut | Kind::WouldBlock => Status::TimedOut,
        Kind::ConnectionRefused
        | Kind::ConnectionReset
        | Kind::ConnectionAborted
        | Kind::BrokenPipe
        | Kind::NotConnected
        | Kind::HostUnreachable
        | Kind::NetworkUnreachable
        | Kind::NetworkDown => Status::Disconnected,
        _ => Status::System,
    };
    Error::new(status, tried, error.reason().to_string()).at(address)
}

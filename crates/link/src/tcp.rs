//! TCP, in plain text or inside TLS: the transport that works on every machine.

use crate::certificates::Certificates;
use crate::{Accept, Arriving, Error, Result, Stream, Transport, Trust, tls};
use crossdock_layout::Status;
use crossdock_os::{Deadline, OsError, event, tcp};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Makes TCP connections. Cloning this value is cheap.
#[derive(Clone, Debug, Default)]
pub struct Tcp {
    trust: Trust,
}

const PLAIN: &str = "tcp";
const TLS: &str = "tcp+tls";

const NO_TRUST: &str = "without certificates a node talks to loopback addresses only; \
    give both nodes certificates, or allow plain text explicitly with --trusted-network";

impl Tcp {
    /// A TCP transport whose connections are protected as `trust` says.
    #[must_use]
    pub const fn new(trust: Trust) -> Self {
        Self { trust }
    }

    /// The addresses that the text `address` names. Looking up a host name has no deadline. Where that matters, give a
    /// numeric address.
    fn resolve(&self, tried: &str, address: &str) -> Result<Vec<SocketAddr>> {
        let wrong = |reason: String| {
            Error::new(Status::Invalid, tried, reason)
                .at(address)
                .hint("an address is host:port, as in 10.0.0.2:7700, node2:7700 or [::1]:7700")
        };
        let found: Vec<_> = address.to_socket_addrs().map_err(|error| wrong(error.to_string()))?.collect();
        if found.is_empty() {
            return Err(wrong("the name has no address".to_owned()));
        }
        if matches!(self.trust, Trust::Loopback) && !found.iter().all(|one| is_loopback(one.ip())) {
            let reason = "the address is not a loopback address, and nothing protects the connection";
            return Err(Error::new(Status::Denied, tried, reason).at(address).hint(NO_TRUST));
        }
        Ok(found)
    }
}

fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

impl Transport for Tcp {
    fn name(&self) -> &'static str {
        if matches!(self.trust, Trust::Certificates(_)) { TLS } else { PLAIN }
    }

    fn why_not_better(&self) -> &'static str {
        "this build has no UCX"
    }

    fn dial(&self, node: &str, address: &str, deadline: Deadline) -> Result<Arc<dyn Stream>> {
        let tried = "connect";
        let mut last = None;
        for one in self.resolve(tried, address)? {
            match tcp::connect(one, deadline) {
                Ok(socket) => {
                    let plain = Plain { socket, address: address.to_owned() };
                    return match &self.trust {
                        Trust::Certificates(certificates) => {
                            tls::connect(plain, certificates, node, deadline).map_err(|error| error.with(node, address))
                        }
                        Trust::Loopback | Trust::Network => Ok(Arc::new(plain)),
                    };
                }
                Err(error) => last = Some(error),
            }
        }
        let error = last.expect("resolve gives at least one address");
        Err(failed(tried, address, &error)
            .with(node, address)
            .hint("is its daemon running, and may this node reach it?"))
    }

    fn listen(&self, address: &str) -> Result<Box<dyn Accept>> {
        let tried = "listen";
        let one = self.resolve(tried, address)?[0];
        let listener = tcp::listen(one).map_err(|error| failed(tried, address, &error))?;
        let local = tcp::local_address(&listener).map_err(|error| failed(tried, address, &error))?;
        let certificates = match &self.trust {
            Trust::Certificates(certificates) => Some(certificates.clone()),
            Trust::Loopback | Trust::Network => None,
        };
        Ok(Box::new(Listener { listener, address: local.to_string(), certificates }))
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

struct Listener {
    listener: OwnedFd,
    address: String,
    certificates: Option<Arc<Certificates>>,
}

impl Accept for Listener {
    fn accept(&self, deadline: Deadline) -> Result<Option<Box<dyn Arriving>>> {
        let arrived = tcp::accept(&self.listener, deadline).map_err(|error| failed("accept", &self.address, &error))?;
        Ok(arrived.map(|(socket, from)| -> Box<dyn Arriving> {
            let plain = Plain { socket, address: from.to_string() };
            Box::new(Arrived { plain, certificates: self.certificates.clone() })
        }))
    }

    fn address(&self) -> String {
        self.address.clone()
    }

    fn transport(&self) -> &'static str {
        if self.certificates.is_some() { TLS } else { PLAIN }
    }
}

struct Arrived {
    plain: Plain,
    certificates: Option<Arc<Certificates>>,
}

impl Arriving for Arrived {
    fn address(&self) -> &str {
        &self.plain.address
    }

    fn establish(self: Box<Self>, deadline: Deadline) -> Result<Arc<dyn Stream>> {
        match &self.certificates {
            Some(certificates) => tls::accept(self.plain, certificates, deadline),
            None => Ok(Arc::new(self.plain)),
        }
    }
}

/// A TCP connection in plain text.
#[derive(Debug)]
pub struct Plain {
    pub socket: OwnedFd,
    pub address: String,
}

impl Plain {
    fn late(&self, tried: &str) -> Error {
        Error::new(Status::TimedOut, tried, "the deadline passed").at(&self.address)
    }

    /// Reads the bytes that have arrived; `None` if none have.
    pub fn take(&self, buffer: &mut [u8]) -> Result<Option<usize>> {
        tcp::try_receive(&self.socket, buffer).map_err(|error| failed("read", &self.address, &error))
    }

    /// Waits until bytes arrive.
    pub fn wait(&self, deadline: Deadline) -> Result<()> {
        match event::wait_readable(&self.socket, deadline) {
            Ok(true) => Ok(()),
            Ok(false) => Err(self.late("read")),
            Err(error) => Err(failed("read", &self.address, &error)),
        }
    }
}

impl Stream for Plain {
    fn read(&self, buffer: &mut [u8], deadline: Deadline) -> Result<usize> {
        match tcp::receive(&self.socket, buffer, deadline) {
            Ok(Some(read)) => Ok(read),
            Ok(None) => Err(self.late("read")),
            Err(error) => Err(failed("read", &self.address, &error)),
        }
    }

    fn write(&self, parts: &[&[u8]], deadline: Deadline) -> Result<()> {
        assert!(parts.len() <= tcp::MAX_PARTS, "at most {} parts", tcp::MAX_PARTS);
        let mut left = [&[][..]; tcp::MAX_PARTS];
        left[..parts.len()].copy_from_slice(parts);
        let mut left = &mut left[..parts.len()];
        loop {
            while left.first().is_some_and(|part| part.is_empty()) {
                left = &mut left[1..];
            }
            if left.is_empty() {
                return Ok(());
            }
            let sent =
                tcp::send(&self.socket, left, deadline).map_err(|error| failed("write", &self.address, &error))?;
            let Some(mut sent) = sent else {
                // Some of the bytes may have been sent. So the peer could not find the beginning of the next message,
                // and the connection is closed.
                self.close();
                return Err(self.late("write"));
            };
            for part in left.iter_mut() {
                let taken = sent.min(part.len());
                *part = &part[taken..];
                sent -= taken;
            }
        }
    }

    fn close(&self) {
        tcp::shut_down(&self.socket);
    }

    fn address(&self) -> &str {
        &self.address
    }

    fn is_protected(&self) -> bool {
        false
    }

    fn may_be(&self, _node: &str) -> bool {
        true
    }
}

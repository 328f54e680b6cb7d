//! The listening socket of a node. All transports of the node share its port, because a firewall then has one port to
//! open, and a node announces one address.
//!
//! The first bytes of a connection say which transport the peer uses. Inside TLS, a peer that uses gRPC has asked for
//! the protocol `h2` in the TLS handshake. In plain text, a connection of gRPC begins with the first bytes of HTTP/2,
//! and a connection that asks for UCX begins with the preamble of UCX. No message between nodes begins with the first
//! bytes of HTTP/2 or with this preamble.

use crate::certificates::Certificates;
use crate::connection::{Connection, Plain};
#[cfg(feature = "grpc")]
use crate::grpc::{Grpc, IncomingCalls};
use crate::tcp::{failed, resolve};
use crate::{Accept, Arriving, Error, Result, Stream, Trust, tls, ucx};
use crossdock_layout::Status;
use crossdock_os::ucx::Fabric;
use crossdock_os::{Deadline, tcp};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// The first two bytes of an HTTP/2 connection. Two bytes are enough to recognise HTTP/2: without gRPC and UCX, a
/// connection begins with the length of a Hello message, and the second byte of this length is 0 or 1.
const HTTP2: [u8; 2] = *b"PR";

/// The pause before the first bytes of a connection are read again, if only one byte has come.
const PAUSE: Duration = Duration::from_millis(1);

/// The transports by which a listener accepts connections.
#[derive(Clone, Default)]
pub struct Accepts {
    /// True if the listener accepts connections that carry the messages without gRPC or UCX.
    pub tcp: bool,
    /// What the listener needs to accept calls of gRPC; `None` if it accepts no such calls.
    #[cfg(feature = "grpc")]
    pub grpc: Option<Grpc>,
    /// What the listener needs for connections over UCX, which are always in plain text; `None` if it accepts no such
    /// connections.
    pub ucx: Option<Arc<Fabric>>,
}

impl Accepts {
    /// Accepts connections of the transport TCP, and none of gRPC or UCX.
    pub fn tcp() -> Self {
        Self { tcp: true, ..Self::default() }
    }
}

/// Listens at `address`. The connections are protected as `trust` says.
pub fn listen(trust: &Trust, address: &str, accepts: Accepts) -> Result<Box<dyn Accept>> {
    let tried = "listen";
    let one = resolve(trust, tried, address)?[0];
    let listener = tcp::listen(one).map_err(|error| failed(tried, address, &error))?;
    listen_on(trust, listener, accepts)
}

/// Accepts connections from a socket that listens already. The connections are protected as `trust` says.
pub fn listen_on(trust: &Trust, listener: OwnedFd, accepts: Accepts) -> Result<Box<dyn Accept>> {
    let tried = "listen";
    let local = tcp::local_address(&listener).map_err(|error| failed(tried, "a socket that was passed", &error))?;
    resolve(trust, tried, &local.to_string())?;
    let certificates = match trust {
        Trust::Certificates(certificates) => Some(certificates.clone()),
        Trust::Loopback | Trust::Network => None,
    };
    let transports = AcceptedTransports {
        tcp: accepts.tcp,
        #[cfg(feature = "grpc")]
        calls: accepts.grpc.map(|grpc| grpc.calls().map(Arc::new)).transpose()?,
        ucx: accepts.ucx,
    };
    Ok(Box::new(Listener { listener, address: local.to_string(), certificates, transports }))
}

struct Listener {
    listener: OwnedFd,
    address: String,
    certificates: Option<Arc<Certificates>>,
    transports: AcceptedTransports,
}

/// The transports by which a listener accepts connections, with what each of them needs.
#[derive(Clone)]
struct AcceptedTransports {
    tcp: bool,
    #[cfg(feature = "grpc")]
    calls: Option<Arc<IncomingCalls>>,
    ucx: Option<Arc<Fabric>>,
}

impl Accept for Listener {
    fn accept(&self, deadline: Deadline) -> Result<Option<Box<dyn Arriving>>> {
        let wrong = |error| failed("accept", &self.address, &error);
        #[cfg(feature = "grpc")]
        if let Some(calls) = &self.transports.calls {
            use std::os::fd::AsFd;
            crossdock_os::event::wait_any(&[self.listener.as_fd(), calls.bell()], Some(deadline)).map_err(wrong)?;
            if let Some(call) = calls.next() {
                return Ok(Some(call));
            }
        }
        let arrived = tcp::accept(&self.listener, self.patience(deadline)).map_err(wrong)?;
        Ok(arrived.map(|(socket, from)| -> Box<dyn Arriving> {
            let plain = Plain::new(socket, from.to_string());
            Box::new(ArrivedConnection {
                plain,
                certificates: self.certificates.clone(),
                transports: self.transports.clone(),
            })
        }))
    }

    fn address(&self) -> String {
        self.address.clone()
    }
}

impl Listener {
    /// Gives the deadline of the wait for a connection. If the listener also accepts calls of gRPC, its `accept` has
    /// already waited for a connection or a call. In that case the wait must end immediately, so the deadline is the
    /// present moment.
    fn patience(&self, deadline: Deadline) -> Deadline {
        #[cfg(feature = "grpc")]
        if self.transports.calls.is_some() {
            return Deadline::after(Duration::ZERO);
        }
        deadline
    }
}

struct ArrivedConnection {
    plain: Plain,
    certificates: Option<Arc<Certificates>>,
    transports: AcceptedTransports,
}

impl Arriving for ArrivedConnection {
    fn address(&self) -> &str {
        &self.plain.address
    }

    fn establish(self: Box<Self>, deadline: Deadline) -> Result<Arc<dyn Stream>> {
        let Self { plain, certificates, transports } = *self;
        let (connection, is_http2) = match certificates {
            Some(certificates) => {
                let tls = tls::accept(plain, &certificates, deadline)?;
                let is_http2 = tls.is_http2();
                (Connection::Tls(Box::new(tls)), is_http2)
            }
            None => {
                let looks = transports.has_grpc() || transports.ucx.is_some();
                let first = if looks { first_bytes(&plain, deadline)? } else { [0; 2] };
                if let Some(fabric) = transports.ucx.as_ref().filter(|_| ucx::PREAMBLE.starts_with(&first)) {
                    return ucx::accept(plain, fabric, deadline);
                }
                (Connection::Plain(plain), transports.has_grpc() && first == HTTP2)
            }
        };
        transports.take(connection, is_http2, deadline)
    }
}

impl AcceptedTransports {
    fn has_grpc(&self) -> bool {
        #[cfg(feature = "grpc")]
        return self.calls.is_some();
        #[cfg(not(feature = "grpc"))]
        false
    }

    /// Makes a stream of a connection whose peer has been greeted.
    fn take(&self, connection: Connection, is_http2: bool, deadline: Deadline) -> Result<Arc<dyn Stream>> {
        #[cfg(not(feature = "grpc"))]
        let _ = deadline;
        let refused = |what| Err(Error::new(Status::Denied, "accept", what).at(connection.address()).hint(HINT));
        #[cfg(feature = "grpc")]
        if let Some(calls) = self.calls.as_ref().filter(|_| is_http2) {
            return calls.first(connection, deadline);
        }
        match (is_http2, self.tcp) {
            (true, _) => refused("the peer uses gRPC, which this node does not accept"),
            (false, true) => Ok(connection.into_stream()),
            (false, false) => refused("the peer uses TCP, and this node accepts only gRPC"),
        }
    }
}

const HINT: &str = "the option --transport says which transports a node uses";

/// Looks at the first bytes of a connection, without taking them out of the socket.
fn first_bytes(plain: &Plain, deadline: Deadline) -> Result<[u8; 2]> {
    let mut first = [0; 2];
    loop {
        let seen = tcp::peek(&plain.socket, &mut first, deadline);
        match seen.map_err(|error| failed("accept", &plain.address, &error))? {
            Some(1) if [HTTP2[0], ucx::PREAMBLE[0]].contains(&first[0]) && !deadline.passed() => {
                std::thread::sleep(PAUSE);
            }
            Some(_) => return Ok(first),
            None => {
                let reason = "the peer sent nothing by the deadline";
                return Err(Error::new(Status::TimedOut, "accept", reason).at(&plain.address));
            }
        }
    }
}

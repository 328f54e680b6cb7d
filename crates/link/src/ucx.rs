//! Data connections over UCX, for machines that share a fabric which is faster than TCP.
//!
//! The dialing node opens a TCP connection to the usual address, and sends [`PREAMBLE`] instead of a message. Each node
//! then tells the other the address of its UCX worker, and a token: a number that every UCX message to this node must
//! have in its header. The TCP connection stays open beside UCX: when a node's process ends, its kernel closes the TCP
//! connection, so the other node notices the loss immediately.
//!
//! UCX has neither TLS nor authentication, and a program that reaches the ports of UCX can write to the daemon's
//! memory. So a node uses UCX only if its operator asks for UCX on a trusted network, and never together with
//! certificates.

use crate::connection::{Connection, Plain, TURN};
use crate::listener::{self, Accepts};
use crate::tcp::{self as dialing, failed};
use crate::tls::Protocol;
use crate::{Accept, Error, Result, Stream, Transport, Trust};
use crossdock_layout::Status;
use crossdock_os::ucx::{Fabric, Library, Received, Wire, WireError};
use crossdock_os::{Deadline, child, tcp};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The first bytes of a TCP connection that asks for UCX. No message of the node protocol begins with them.
pub const PREAMBLE: [u8; 8] = *b"XDOCKUCX";
/// The version of the exchange of addresses and tokens by which two nodes begin to use UCX.
const VERSION: u32 = 1;
/// The maximum size, in bytes, of a UCX worker's address, or of the text of a refusal.
const MOST: usize = 64 << 10;
const NAME: &str = "ucx";

/// Makes connections over UCX.
#[derive(Clone, Debug)]
pub struct Ucx {
    fabric: Arc<Fabric>,
}

impl Ucx {
    /// Loads UCX.
    ///
    /// # Errors
    /// The reason why this node does not use UCX, as text for people.
    pub fn load(trust: &Trust) -> std::result::Result<Self, String> {
        match trust {
            Trust::Network => {}
            Trust::Certificates(_) => return Err("UCX has no TLS, and this node has certificates".to_owned()),
            Trust::Loopback => return Err("UCX has no TLS, so it needs --trusted-network".to_owned()),
        }
        Ok(Self { fabric: Arc::new(Fabric::open(Library::load()?)?) })
    }

    /// Gives what a listener needs to accept connections over UCX.
    pub(crate) fn fabric(&self) -> Arc<Fabric> {
        self.fabric.clone()
    }
}

impl Transport for Ucx {
    fn name(&self) -> &'static str {
        NAME
    }

    fn why_not_better(&self) -> &'static str {
        ""
    }

    fn dial(&self, node: &str, address: &str, deadline: Deadline) -> Result<Arc<dyn Stream>> {
        match dialing::connect(&Trust::Network, node, address, Protocol::Messages, deadline)? {
            Connection::Plain(plain) => greet(plain, &self.fabric, deadline).map_err(|error| error.with(node, address)),
            Connection::Tls(_) => unreachable!("a trusted network has no TLS"),
        }
    }

    fn listen(&self, address: &str) -> Result<Box<dyn Accept>> {
        let accepts = Accepts { ucx: Some(self.fabric()), ..Accepts::tcp() };
        listener::listen(&Trust::Network, address, accepts)
    }
}

fn unusable(reason: String) -> Error {
    Error::new(Status::Incompatible, "connect over UCX", reason)
}

/// What one node tells the other: the address of its UCX worker, and the token that messages to this worker must have.
struct PeerWorker {
    token: u64,
    address: Vec<u8>,
}

fn tell(wire: &Wire, token: u64) -> Result<Vec<u8>> {
    let address = wire.address().map_err(unusable)?;
    let mut bytes = VERSION.to_le_bytes().to_vec();
    bytes.extend(token.to_le_bytes());
    bytes.extend((address.len() as u32).to_le_bytes());
    bytes.extend(address);
    Ok(bytes)
}

/// Reads the token and address that the other node sends. A node that refuses sends 0 in place of its version, and the
/// reason in place of an address.
fn hear(socket: &OwnedFd, deadline: Deadline) -> Result<PeerWorker> {
    let mut head = [0; 16];
    take(socket, &mut head, deadline)?;
    let word = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four bytes"));
    let (version, length) = (word(0), word(12) as usize);
    if length > MOST {
        return Err(unusable(format!("the peer tells an address of {length} bytes")));
    }
    let mut address = vec![0; length];
    take(socket, &mut address, deadline)?;
    match version {
        VERSION => Ok(PeerWorker { token: u64::from_le_bytes(head[4..12].try_into().expect("eight bytes")), address }),
        0 => Err(unusable(format!("the other node refuses: {}", String::from_utf8_lossy(&address)))),
        other => Err(unusable(format!("the peer speaks version {other} of this greeting, this node {VERSION}"))),
    }
}

fn take(socket: &OwnedFd, buffer: &mut [u8], deadline: Deadline) -> Result<()> {
    let mut filled = 0;
    while filled < buffer.len() {
        match tcp::receive(socket, &mut buffer[filled..], deadline) {
            Ok(Some(0)) => {
                let reason = "the other node closed the connection; is it without UCX?";
                return Err(Error::new(Status::Disconnected, "connect over UCX", reason));
            }
            Ok(Some(read)) => filled += read,
            Ok(None) => return Err(Error::new(Status::TimedOut, "connect over UCX", "the deadline passed")),
            Err(error) => return Err(failed("connect over UCX", "", &error)),
        }
    }
    Ok(())
}

fn token() -> Result<u64> {
    let random = child::random().map_err(|error| Error::new(Status::System, "connect over UCX", error.to_string()))?;
    let random: [u8; 16] = random;
    Ok(u64::from_le_bytes(random[..8].try_into().expect("eight bytes")))
}

/// Makes a connection over UCX from a TCP connection, on the side that dialed.
fn greet(plain: Plain, fabric: &Arc<Fabric>, deadline: Deadline) -> Result<Arc<dyn Stream>> {
    let Plain { socket, address, .. } = plain;
    let token = token()?;
    let wire = Wire::open(fabric, socket, token).map_err(unusable)?;
    let greeting = [&PREAMBLE[..], &tell(&wire, token)?].concat();
    say(&wire, &greeting, deadline)?;
    let peer = hear(wire.life(), deadline)?;
    wire.connect(&peer.address, peer.token).map_err(unusable)?;
    meet(&wire, deadline)?;
    Ok(Arc::new(UcxConnection { wire, address }))
}

/// Makes a connection over UCX from a TCP connection, on the side that accepted. The peer has sent [`PREAMBLE`], which
/// was not read yet.
///
/// # Errors
/// The peer's bytes are not valid, or UCX cannot connect the two nodes. In the second case, this node tells the peer
/// the reason.
pub fn accept(plain: Plain, fabric: &Arc<Fabric>, deadline: Deadline) -> Result<Arc<dyn Stream>> {
    let Plain { socket, address, .. } = plain;
    let mut first = [0; PREAMBLE.len()];
    take(&socket, &mut first, deadline)?;
    if first != PREAMBLE {
        return Err(Error::new(Status::Corrupt, "accept", "its first bytes are those of no transport").at(&address));
    }
    let peer = hear(&socket, deadline)?;
    let token = token()?;
    let wire = Wire::open(fabric, socket, token).map_err(unusable)?;
    if let Err(why) = wire.connect(&peer.address, peer.token) {
        let mut refusal = [0; 12].to_vec();
        refusal.extend((why.len() as u32).to_le_bytes());
        refusal.extend(why.as_bytes());
        let _ = say(&wire, &refusal, deadline);
        return Err(unusable(why).at(&address));
    }
    let greeting = tell(&wire, token)?;
    say(&wire, &greeting, deadline)?;
    meet(&wire, deadline).map_err(|error| error.at(&address))?;
    Ok(Arc::new(UcxConnection { wire, address }))
}

fn meet(wire: &Wire, deadline: Deadline) -> Result<()> {
    wire.meet(deadline).map_err(|ended| {
        let (status, reason) = explained(ended);
        Error::new(status, "connect over UCX", format!("UCX does not reach the other node: {reason}"))
    })
}

fn say(wire: &Wire, bytes: &[u8], deadline: Deadline) -> Result<()> {
    let mut left = bytes;
    while !left.is_empty() {
        match tcp::send(wire.life(), &[left], deadline) {
            Ok(Some(sent)) => left = &left[sent..],
            Ok(None) => return Err(Error::new(Status::TimedOut, "connect over UCX", "the deadline passed")),
            Err(error) => return Err(failed("connect over UCX", "", &error)),
        }
    }
    Ok(())
}

/// A connection over UCX.
#[derive(Debug)]
struct UcxConnection {
    wire: Wire,
    address: String,
}

fn explained(ended: WireError) -> (Status, String) {
    match ended {
        WireError::Late => (Status::TimedOut, "the deadline passed".to_owned()),
        WireError::Cut => (Status::TimedOut, "the deadline passed in the middle of a message".to_owned()),
        WireError::Lost(why) => (Status::Disconnected, why),
    }
}

impl UcxConnection {
    fn error(&self, tried: &str, ended: WireError) -> Error {
        let (status, reason) = explained(ended);
        Error::new(status, tried, reason).at(&self.address)
    }
}

impl Stream for UcxConnection {
    fn read(&self, buffer: &mut [u8], deadline: Deadline) -> Result<usize> {
        match self.wire.read(buffer, deadline) {
            Ok(Received::Bytes(read)) => Ok(read),
            Ok(Received::End) => Ok(0),
            Err(ended) => Err(self.error("read", ended)),
        }
    }

    fn write(&self, parts: &[&[u8]], deadline: Deadline) -> Result<()> {
        self.wire.write(parts, deadline).map_err(|ended| match ended {
            WireError::Late => Error::new(Status::Busy, "write", TURN).at(&self.address),
            ended => self.error("write", ended),
        })
    }

    fn close(&self) {
        self.wire.close();
    }

    fn address(&self) -> &str {
        &self.address
    }

    fn transport(&self) -> &'static str {
        NAME
    }

    fn is_protected(&self) -> bool {
        false
    }

    fn may_be(&self, _node: &str) -> bool {
        true
    }
}

//! The greeting of two nodes, on the side that dials. The dialing side sends the message Hello, and the other side
//! answers with the message Welcome.

use crate::frame::{Frames, send};
use crate::{Error, LinkOptions, Node, Result, Transport};
use crossdock_layout::Status;
use crossdock_layout::link::{LINK_VERSION, MAGIC, NodeMessage, Purpose};
use crossdock_os::Deadline;

/// How to reach the peer: the transport, both nodes and the address.
pub struct Route<'a> {
    pub transport: &'a dyn Transport,
    pub own: &'a Node,
    pub peer: &'a str,
    pub address: &'a str,
    pub options: &'a LinkOptions,
}

/// A connection after its greeting: its messages, the incarnation of the other daemon (the number of its start), and
/// the identifier of the control connection.
pub type GreetedConnection = (Frames, u64, [u8; 16]);

/// Connects to the peer, and exchanges the greeting.
pub fn greet(route: &Route<'_>, purpose: Purpose, session: [u8; 16], by: Deadline) -> Result<GreetedConnection> {
    let stream = route.transport.dial(route.peer, route.address, by)?;
    let greeted = greet_on(route, Frames::new(stream.clone()), purpose, session, by);
    if greeted.is_err() {
        stream.close();
    }
    greeted.map_err(|error| error.with(route.peer, route.address))
}

/// Turns the error of a greeting into the error of a call. The status `NotFound` becomes `Disconnected`: in a greeting,
/// `NotFound` means that another node listens at the peer's address, but in a call it would mean that the peer does not
/// have the wanted object.
pub fn not_reached(error: Error) -> Error {
    let status = if error.status == Status::NotFound { Status::Disconnected } else { error.status };
    Error { status, ..error }
}

fn greet_on(
    route: &Route<'_>,
    mut frames: Frames,
    purpose: Purpose,
    session: [u8; 16],
    by: Deadline,
) -> Result<GreetedConnection> {
    let hello = NodeMessage::Hello {
        magic: MAGIC,
        version: LINK_VERSION,
        purpose,
        incarnation: route.own.incarnation,
        session,
        pulse_ms: route.options.pulse_ms(),
        away_ms: route.options.away_ms(),
        node: route.own.name.clone(),
        to: route.peer.to_owned(),
    };
    send(&**frames.stream(), &hello, 0, by)?;
    match frames.next(by)? {
        Some((_, NodeMessage::Welcome { incarnation, session, node, .. })) if node == route.peer => {
            Ok((frames, incarnation, session))
        }
        Some((_, NodeMessage::Welcome { node, .. })) => {
            Err(Error::new(Status::Corrupt, "greet", format!("it welcomes as node '{node}', which was not asked for")))
        }
        Some((_, NodeMessage::Failed { status, text })) => Err(Error::new(status, "greet", text)),
        Some(_) => Err(Error::new(Status::Corrupt, "greet", "it answers Hello with neither Welcome nor Failed")),
        None => Err(Error::new(Status::Disconnected, "greet", "it closed the connection without an answer")
            .hint("does it have certificates while this node has none, or is it no node daemon?")),
    }
}

//! gRPC: the transport for networks that pass only HTTP/2. A stream between two nodes is one bidirectional call, whose
//! messages are pieces of the stream. The call travels on a TCP connection, in plain text or inside the same mutual TLS
//! as the transport TCP.
//!
//! The event loop of HTTP/2 has a thread of its own. The threads that read and write a stream do not run the event
//! loop: two pipes connect these threads with the tasks of the call.

mod call;
mod client;
mod codec;
mod event_loop;
mod pipe;
mod server;
mod socket;

use crate::connection::Connection;
use crate::listener::{self, Accepts};
use crate::tls::Protocol;
use crate::{Accept, Error, Result, Stream, Transport, Trust, tcp};
use client::Caller;
use crossdock_layout::Status;
use crossdock_os::Deadline;
use event_loop::EventLoop;
use std::sync::Arc;

pub(crate) use server::IncomingCalls;

/// The number of bytes of a call that a peer may send before this node has taken them. For all calls of a connection
/// together, the limit is twice as high.
const WINDOW: u32 = 4 << 20;
/// The largest HTTP/2 frame that this node accepts, in bytes.
const FRAME: u32 = 256 << 10;
/// How many bytes of one call may wait until the socket takes them.
const SEND: usize = 1 << 20;

/// Carries streams in calls of gRPC. Cloning this value is cheap; the clones share a thread.
#[derive(Clone)]
pub struct Grpc {
    trust: Trust,
    event_loop: Arc<EventLoop>,
}

impl std::fmt::Debug for Grpc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Grpc").field("trust", &self.trust).finish_non_exhaustive()
    }
}

impl Grpc {
    /// Makes a transport whose connections are protected as `trust` says.
    ///
    /// # Errors
    /// The transport's thread cannot be started.
    pub fn new(trust: Trust) -> Result<Self> {
        Ok(Self { trust, event_loop: Arc::new(EventLoop::start()?) })
    }

    /// Makes the value that accepts calls for one listener.
    pub(crate) fn calls(&self) -> Result<IncomingCalls> {
        IncomingCalls::new(self.event_loop.clone())
    }
}

impl Transport for Grpc {
    fn name(&self) -> &'static str {
        call::GRPC[usize::from(self.trust.is_protected())]
    }

    fn why_not_better(&self) -> &'static str {
        "--transport grpc was chosen"
    }

    fn dial(&self, node: &str, address: &str, deadline: Deadline) -> Result<Arc<dyn Stream>> {
        let connection = tcp::connect(&self.trust, node, address, Protocol::Http2, deadline)?;
        if matches!(&connection, Connection::Tls(tls) if !tls.is_http2()) {
            return Err(Error::new(Status::Disconnected, "connect", "the peer accepts no HTTP/2").with(node, address));
        }
        let caller = Caller::open(&self.event_loop, connection, deadline);
        caller.and_then(|caller| caller.call(deadline)).map_err(|error| error.with(node, address))
    }

    fn listen(&self, address: &str) -> Result<Box<dyn Accept>> {
        listener::listen(&self.trust, address, Accepts { grpc: Some(self.clone()), ..Accepts::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn soon() -> Deadline {
        Deadline::after(Duration::from_secs(60))
    }

    /// Several calls come on one connection, as from a proxy that serves several clients.
    #[test]
    fn several_calls_on_one_connection_are_several_streams() {
        let grpc = Grpc::new(Trust::Loopback).unwrap();
        let listener = grpc.listen("127.0.0.1:0").unwrap();
        let connection = tcp::connect(&Trust::Loopback, "b", &listener.address(), Protocol::Http2, soon()).unwrap();
        let caller = Caller::open(&grpc.event_loop, connection, soon());
        let mut streams = Vec::new();
        std::thread::scope(|scope| {
            let accepted = scope.spawn(|| {
                let next = || listener.accept(soon()).unwrap().unwrap().establish(soon()).unwrap();
                [next(), next(), next()]
            });
            let caller = caller.unwrap();
            let calls = [(); 3].map(|()| caller.call(soon()).unwrap());
            streams.extend(calls.into_iter().zip(accepted.join().unwrap()));
        });
        for (number, (one, other)) in streams.iter().enumerate() {
            let mut got = [0; 3];
            one.write(&[&[number as u8; 3]], soon()).unwrap();
            other.read_all(&mut got, soon()).unwrap();
            assert_eq!(got, [number as u8; 3]);
            other.write(&[b"back"], soon()).unwrap();
            one.read_all(&mut [0; 4], soon()).unwrap();
        }
        // The end of one call does not end the others.
        let (one, other) = streams.remove(0);
        one.close();
        assert_eq!(other.read(&mut [0; 1], soon()).unwrap(), 0);
        streams[0].0.write(&[b"on"], soon()).unwrap();
        streams[0].1.read_all(&mut [0; 2], soon()).unwrap();
    }

    #[test]
    fn the_thread_ends_with_the_last_use_of_the_transport() {
        let grpc = Grpc::new(Trust::Loopback).unwrap();
        let listener = grpc.listen("127.0.0.1:0").unwrap();
        let thread = Arc::downgrade(&grpc.event_loop);
        drop(grpc);
        assert!(thread.upgrade().is_some());
        assert!(listener.accept(Deadline::after(Duration::from_millis(1))).unwrap().is_none());
        drop(listener);
        assert!(thread.upgrade().is_none());
    }
}

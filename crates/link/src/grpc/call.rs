//! A call of gRPC that carries the stream between two nodes. Threads read and write the stream. Two pipes connect these
//! threads with the tasks of the event loop.

use super::codec::PIECE;
use super::event_loop::EventLoop;
use super::pipe::{End, Pipe};
use super::socket::Broken;
use crate::connection::Connection;
use crate::{Error, Result, Stream};
use bytes::{Bytes, BytesMut};
use crossdock_layout::Status;
use crossdock_os::Deadline;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tonic::Streaming;

/// The two names of the transport gRPC: for connections in plain text, and for connections inside TLS.
pub const GRPC: [&str; 2] = ["grpc", "grpc+tls"];

/// After this node has closed a call, it waits at most this long until the peer has ended the call too.
const LINGER: Duration = Duration::from_secs(2);

/// The two directions of a call.
#[derive(Clone, Default)]
pub struct Pipes {
    pub incoming: Arc<Pipe>,
    pub outgoing: Arc<Pipe>,
}

/// A call that carries a stream. Dropping it closes the stream.
pub struct Call {
    pipes: Pipes,
    connection: Arc<Connection>,
    /// Keeps the thread of the event loop alive.
    _event_loop: Arc<EventLoop>,
}

impl std::fmt::Debug for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Call").field("address", &self.address()).finish_non_exhaustive()
    }
}

impl Call {
    pub fn new(pipes: Pipes, connection: Arc<Connection>, event_loop: Arc<EventLoop>) -> Self {
        Self { pipes, connection, _event_loop: event_loop }
    }

    fn late(&self, tried: &str) -> Error {
        Error::new(Status::TimedOut, tried, "the deadline passed").at(self.address())
    }

    fn put(&self, piece: Bytes, deadline: Deadline) -> Result<()> {
        match self.pipes.outgoing.put(piece, deadline) {
            Ok(Some(())) => Ok(()),
            Ok(None) => {
                // A part of the message may have been sent. The peer could not find the beginning of a later message,
                // so the stream is closed.
                self.close();
                Err(self.late("write"))
            }
            Err(error) => Err(error.at(self.address())),
        }
    }
}

impl Stream for Call {
    fn read(&self, buffer: &mut [u8], deadline: Deadline) -> Result<usize> {
        assert!(!buffer.is_empty(), "a read into nothing cannot be told from the end");
        match self.pipes.incoming.take(buffer, deadline) {
            Ok(Some(read)) => Ok(read),
            Ok(None) => Err(self.late("read")),
            Err(error) => Err(error.at(self.address())),
        }
    }

    fn write(&self, parts: &[&[u8]], deadline: Deadline) -> Result<()> {
        let mut left = parts.iter().map(|part| part.len()).sum::<usize>();
        let mut piece = BytesMut::with_capacity(left.min(PIECE));
        for part in parts {
            let mut part = *part;
            while !part.is_empty() {
                let (now, rest) = part.split_at(part.len().min(PIECE - piece.len()));
                piece.extend_from_slice(now);
                part = rest;
                left -= now.len();
                if piece.len() == PIECE || left == 0 {
                    let full = std::mem::replace(&mut piece, BytesMut::with_capacity(left.min(PIECE)));
                    self.put(full.freeze(), deadline)?;
                }
            }
        }
        Ok(())
    }

    fn close(&self) {
        self.pipes.outgoing.end(End::InOrder);
        self.pipes.incoming.abandon(End::InOrder);
    }

    fn address(&self) -> &str {
        self.connection.address()
    }

    fn transport(&self) -> &'static str {
        GRPC[usize::from(self.is_protected())]
    }

    fn is_protected(&self) -> bool {
        self.connection.is_protected()
    }

    fn may_be(&self, node: &str) -> bool {
        self.connection.may_be(node)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.close();
    }
}

/// The pieces that this node sends, as the body of a request or an answer. The library tonic drops the body when the
/// peer takes no more bytes, and later writes then fail.
pub struct Outgoing(pub Arc<Pipe>);

impl Drop for Outgoing {
    fn drop(&mut self) {
        let reason = "the peer takes no more bytes";
        self.0.abandon(End::Broken(Error::new(Status::Disconnected, "write", reason)));
    }
}

impl tokio_stream::Stream for Outgoing {
    type Item = Bytes;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        self.0.poll_take(context)
    }
}

/// The pieces that this node sends, as the body of an answer. The type of the body also allows refusals between the
/// pieces, but this node sends no refusals.
pub struct Answer(pub Outgoing);

impl tokio_stream::Stream for Answer {
    type Item = std::result::Result<Bytes, tonic::Status>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.0.poll_take(context).map(|piece| piece.map(Ok))
    }
}

/// Receives the peer's pieces and puts them into the pipe `incoming`, until the call ends. After this node has closed
/// the stream, further pieces are dropped.
pub async fn receive(mut from: Streaming<Bytes>, incoming: Arc<Pipe>, broken: Broken) {
    let bring = async {
        loop {
            match from.message().await {
                Ok(Some(piece)) => incoming.put_async(piece).await,
                Ok(None) => return incoming.end(End::InOrder),
                Err(status) => return incoming.end(End::Broken(broken.error("read", &status))),
            }
        }
    };
    let closed = async {
        incoming.ended().await;
        tokio::time::sleep(LINGER).await;
    };
    tokio::select! {
        () = bring => {}
        () = closed => {}
    }
}

//! A TCP connection, in plain text or inside TLS, before it is known which transport uses it. The transport TCP uses
//! the connection as a stream. The event loop of gRPC uses the calls that never wait.

use crate::tcp::failed;
use crate::tls::Tls;
use crate::{Error, Result, Stream};
use crossdock_layout::Status;
use crossdock_os::turns::Turns;
use crossdock_os::{Deadline, event, tcp};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// If a write has sent nothing because other threads were still writing at the deadline, its error has this reason.
pub const TURN: &str = "other messages of this node were still being sent at the deadline, so nothing was sent";

/// The two names of the transport TCP: for connections in plain text, and for connections inside TLS.
pub const TCP: [&str; 2] = ["tcp", "tcp+tls"];

/// A TCP connection whose peer has been greeted.
#[derive(Debug)]
pub enum Connection {
    /// A connection whose bytes are not encrypted.
    Plain(Plain),
    /// A connection whose bytes are encrypted by TLS.
    Tls(Box<Tls>),
}

impl Connection {
    /// Gives the stream that carries bytes directly on this connection.
    pub fn into_stream(self) -> Arc<dyn Stream> {
        match self {
            Self::Plain(plain) => Arc::new(plain),
            Self::Tls(tls) => Arc::new(*tls),
        }
    }

    pub fn address(&self) -> &str {
        match self {
            Self::Plain(plain) => &plain.address,
            Self::Tls(tls) => tls.address(),
        }
    }
}

/// The calls that the event loop of gRPC makes on a connection. None of these calls waits.
#[cfg(feature = "grpc")]
impl Connection {
    /// Reads bytes that have arrived; `None` if none have, 0 if the peer ended the connection properly.
    pub fn read_now(&self, buffer: &mut [u8]) -> Result<Option<usize>> {
        match self {
            Self::Plain(plain) => plain.take(buffer),
            Self::Tls(tls) => tls.take(buffer),
        }
    }

    /// Takes some of the bytes of `parts`, and sends what the socket has room for. Gives the number of bytes taken;
    /// `None` if no byte can be taken now.
    pub fn write_now(&self, parts: &[&[u8]]) -> Result<Option<usize>> {
        match self {
            Self::Plain(plain) => plain.give(parts),
            Self::Tls(tls) => tls.give(parts),
        }
    }

    /// Tries to send the bytes that [`Self::write_now`] has taken. Tells whether all of these bytes have gone to the
    /// socket.
    pub fn flush_now(&self) -> Result<bool> {
        match self {
            Self::Plain(_) => Ok(true),
            Self::Tls(tls) => tls.flush_now(),
        }
    }

    /// Tells the peer that no more bytes follow, and ends the connection.
    pub fn close(&self) {
        match self {
            Self::Plain(plain) => plain.close(),
            Self::Tls(tls) => tls.close(),
        }
    }

    /// Ends the connection without telling the peer that no more bytes follow.
    pub fn cut(&self) {
        tcp::shut_down(self.socket());
    }

    pub fn socket(&self) -> &OwnedFd {
        match self {
            Self::Plain(plain) => &plain.socket,
            Self::Tls(tls) => tls.socket(),
        }
    }

    pub fn is_protected(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    pub fn may_be(&self, node: &str) -> bool {
        match self {
            Self::Plain(_) => true,
            Self::Tls(tls) => tls.may_be(node),
        }
    }
}

/// A TCP connection in plain text.
#[derive(Debug)]
pub struct Plain {
    pub socket: OwnedFd,
    pub address: String,
    /// Lets one thread write at a time. The socket may take a message in several parts, and the parts of two threads'
    /// messages must not mix.
    writers: Turns,
}

impl Plain {
    pub fn new(socket: OwnedFd, address: String) -> Self {
        Self { socket, address, writers: Turns::default() }
    }

    /// The error of a write that could not begin by the deadline, because other threads were still writing.
    pub fn busy(&self) -> Error {
        Error::new(Status::Busy, "write", TURN).at(&self.address)
    }

    fn late(&self, tried: &str) -> Error {
        Error::new(Status::TimedOut, tried, "the deadline passed").at(&self.address)
    }

    /// Reads the bytes that have arrived; `None` if none have.
    pub fn take(&self, buffer: &mut [u8]) -> Result<Option<usize>> {
        tcp::try_receive(&self.socket, buffer).map_err(|error| failed("read", &self.address, &error))
    }

    /// Sends what the socket has room for; `None` if the socket has no room.
    #[cfg(feature = "grpc")]
    pub fn give(&self, parts: &[&[u8]]) -> Result<Option<usize>> {
        let now = Deadline::after(std::time::Duration::ZERO);
        tcp::send(&self.socket, parts, now).map_err(|error| failed("write", &self.address, &error))
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
        let Some(_turn) = self.writers.take(deadline) else { return Err(self.busy()) };
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

    fn transport(&self) -> &'static str {
        TCP[0]
    }

    fn is_protected(&self) -> bool {
        false
    }

    fn may_be(&self, _node: &str) -> bool {
        true
    }
}

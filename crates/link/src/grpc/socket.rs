//! A connection as the event loop uses it: the event loop reads and writes without waiting, and is woken when the
//! socket is ready.

use crate::connection::Connection;
use crate::{Error, Result};
use crossdock_layout::Status;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

/// The largest number of byte slices that one system call sends.
const PARTS: usize = crossdock_os::tcp::MAX_PARTS;

/// The reason why a connection broke. It becomes the error of the streams that the connection carried.
#[derive(Clone, Default)]
pub struct Broken(Arc<Mutex<Option<Error>>>);

impl Broken {
    fn note(&self, error: Error) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }

    /// Gives the error of a call that failed with `status`. If the connection of the call broke, the connection's error
    /// is given.
    pub fn error(&self, tried: &str, status: &tonic::Status) -> Error {
        if let Some(error) = &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            return error.clone().trying(tried);
        }
        let kind = match status.code() {
            tonic::Code::ResourceExhausted => Status::Busy,
            tonic::Code::InvalidArgument | tonic::Code::OutOfRange => Status::Corrupt,
            _ => Status::Disconnected,
        };
        // The innermost error says more than the errors around it.
        let mut reason = status.message().to_owned();
        let mut source = std::error::Error::source(status);
        while let Some(inner) = source {
            reason = inner.to_string();
            source = inner.source();
        }
        Error::new(kind, tried, format!("gRPC: {reason}"))
    }
}

/// A connection in the event loop. Dropping it ends the connection.
pub struct Socket {
    connection: Arc<Connection>,
    /// A second descriptor of the connection's socket. It tells the event loop when the socket is ready.
    ready: TcpStream,
    broken: Broken,
}

impl Socket {
    /// Registers the connection with the event loop. The call works only in an asynchronous task.
    ///
    /// # Errors
    /// The system refuses.
    pub fn new(connection: Arc<Connection>, broken: Broken) -> io::Result<Self> {
        let ready = TcpStream::from_std(connection.socket().try_clone()?.into())?;
        Ok(Self { connection, ready, broken })
    }

    fn failed(&self, error: Error) -> io::Error {
        self.broken.note(error.clone());
        io::Error::new(io::ErrorKind::ConnectionAborted, error)
    }

    /// Tries `step` each time that the socket may have become ready. Ends when a call of `step` has done something.
    fn poll<T>(
        &self,
        ready: impl Fn(&Self, &mut Context<'_>) -> Poll<io::Result<()>>,
        context: &mut Context<'_>,
        mut step: impl FnMut(&Connection) -> Result<Option<T>>,
    ) -> Poll<io::Result<T>> {
        loop {
            // The step is tried before the wait, because the TLS state may hold bytes although the socket has none.
            match step(&self.connection) {
                Ok(Some(done)) => return Poll::Ready(Ok(done)),
                Ok(None) => ready!(ready(self, context))?,
                Err(error) => return Poll::Ready(Err(self.failed(error))),
            }
        }
    }

    fn readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.ready.poll_read_ready(context))?;
        self.was_not_ready(Interest::READABLE)
    }

    fn writable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.ready.poll_write_ready(context))?;
        self.was_not_ready(Interest::WRITABLE)
    }

    /// Tells tokio that the last attempt found the socket not ready, so that the next wait ends only with a new event.
    /// If such an event has come since that attempt, the next wait ends immediately.
    fn was_not_ready(&self, interest: Interest) -> Poll<io::Result<()>> {
        let _ = self.ready.try_io(interest, || Err::<(), _>(io::ErrorKind::WouldBlock.into()));
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if buffer.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let read = self.poll(Self::readable, context, |connection| connection.read_now(buffer.initialize_unfilled()));
        let read = ready!(read)?;
        if read == 0 {
            let reason = "the connection ended before the call";
            self.broken.note(Error::new(Status::Disconnected, "read", reason).at(self.connection.address()));
        }
        buffer.advance(read);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll(Self::writable, context, |connection| connection.write_now(&[bytes]))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut parts = [&[][..]; PARTS];
        let count = slices.len().min(PARTS);
        for (part, slice) in parts.iter_mut().zip(slices) {
            *part = slice;
        }
        self.poll(Self::writable, context, |connection| connection.write_now(&parts[..count]))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll(Self::writable, context, |connection| Ok(connection.flush_now()?.then_some(())))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.as_mut().poll_flush(context))?;
        self.connection.close();
        Poll::Ready(Ok(()))
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.connection.cut();
    }
}

//! The streams of the catalog's connections. They use the best of the transports that are allowed for links between
//! nodes.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;
use std::time::Duration;

use crossdock_catalog::embedded;
use crossdock_layout::Status;
use crossdock_link::{Stream, Transport};
use crossdock_os::Deadline;

/// A link's stream, wrapped for the catalog's interface.
pub(crate) struct LinkStream {
    pub stream: Arc<dyn Stream>,
    pub timeout: Duration,
}

fn failed(error: crossdock_link::Error) -> io::Error {
    let kind = if error.status == Status::TimedOut { ErrorKind::TimedOut } else { ErrorKind::ConnectionAborted };
    io::Error::new(kind, error.to_string())
}

impl Read for LinkStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.read(buffer, Deadline::after(self.timeout)).map_err(failed)
    }
}

impl Write for LinkStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // `write` either sends all bytes or fails. So if it succeeds, all bytes were sent.
        self.stream.write(&[bytes], Deadline::after(self.timeout)).map_err(failed)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl embedded::Stream for LinkStream {
    fn set_timeout(&mut self, time: Duration) -> io::Result<()> {
        self.timeout = time;
        Ok(())
    }
}

impl Drop for LinkStream {
    fn drop(&mut self) {
        self.stream.close();
    }
}

/// Connects to the daemon that keeps the catalog.
pub(crate) struct Dial {
    pub transport: Arc<dyn Transport>,
    /// The name of the node whose daemon keeps the catalog. Under TLS, that node's certificate must carry this name.
    pub node: String,
    pub address: String,
}

impl embedded::Dial for Dial {
    fn dial(&self, by: Deadline) -> io::Result<Box<dyn embedded::Stream>> {
        // If the daemon that keeps the catalog does not answer, the attempt to connect must not use up the whole time
        // of a call.
        let by = by.at_most(Duration::from_secs(3));
        let stream = self.transport.dial(&self.node, &self.address, by).map_err(failed)?;
        Ok(Box::new(LinkStream { stream, timeout: Duration::from_secs(3) }))
    }
}

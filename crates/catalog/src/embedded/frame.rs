//! Sends and receives messages on a stream of bytes. A message is a length, followed by that many bytes.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crossdock_os::Deadline;

/// The maximum size of a message, in bytes. The largest possible commit takes a third of this size.
pub(super) const FRAME_MAX: usize = 1 << 20;
/// How long writing one message may take.
const WRITE: Duration = Duration::from_secs(10);

/// The stream that carries messages. If a read times out, it must not lose any bytes.
pub trait Stream: Read + Write + Send {
    /// Sets the time after which a read or a write fails. The time is never zero.
    ///
    /// # Errors
    /// If the stream is broken.
    fn set_timeout(&mut self, time: Duration) -> io::Result<()>;
}

impl Stream for TcpStream {
    fn set_timeout(&mut self, time: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(time))?;
        self.set_write_timeout(Some(time))
    }
}

/// A stream, and the bytes of the next message that have arrived so far.
pub(super) struct Framed {
    stream: Box<dyn Stream>,
    came: Vec<u8>,
}

impl Framed {
    pub fn new(stream: Box<dyn Stream>) -> Self {
        Self { stream, came: Vec::new() }
    }

    pub fn send(&mut self, body: &[u8]) -> io::Result<()> {
        if body.len() > FRAME_MAX {
            return Err(io::Error::new(ErrorKind::InvalidInput, format!("a message of {} bytes", body.len())));
        }
        self.stream.set_timeout(WRITE)?;
        let mut whole = Vec::with_capacity(body.len() + 4);
        whole.extend_from_slice(&(body.len() as u32).to_le_bytes());
        whole.extend_from_slice(body);
        self.stream.write_all(&whole)?;
        self.stream.flush()
    }

    /// Waits for the next message; gives `None` if the message has not arrived completely by the deadline. The part
    /// that has arrived is kept for the next call.
    pub fn receive(&mut self, by: Deadline) -> io::Result<Option<Vec<u8>>> {
        let mut chunk = [0; 16 << 10];
        loop {
            if let Some(body) = self.whole()? {
                return Ok(Some(body));
            }
            // The timeout is at least 1 ms, because a socket takes a timeout of zero for "no timeout".
            self.stream.set_timeout(by.left().max(Duration::from_millis(1)))?;
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(length) => self.came.extend_from_slice(&chunk[..length]),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if by.passed() && self.whole_length()?.is_none() {
                return Ok(None);
            }
        }
    }

    /// Tells whether a part of the next message has arrived.
    pub fn has_part(&self) -> bool {
        !self.came.is_empty()
    }

    fn whole_length(&self) -> io::Result<Option<usize>> {
        let Some(head) = self.came.first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_le_bytes(*head) as usize;
        if length > FRAME_MAX {
            return Err(io::Error::new(ErrorKind::InvalidData, format!("a message of {length} bytes is announced")));
        }
        Ok((self.came.len() >= 4 + length).then_some(length))
    }

    fn whole(&mut self) -> io::Result<Option<Vec<u8>>> {
        let Some(length) = self.whole_length()? else { return Ok(None) };
        let rest = self.came.split_off(4 + length);
        let mut body = std::mem::replace(&mut self.came, rest);
        body.drain(..4);
        Ok(Some(body))
    }
}

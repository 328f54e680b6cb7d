//! Messages on a stream. Each message is read whole and checked. After a bad message the stream is closed.

use crate::{Error, Result, Stream};
use crossdock_layout::Status;
use crossdock_layout::link::{FRAME_HEADER, FrameHeader, LINK_VERSION, MAX_FRAME, NodeMessage};
use crossdock_layout::wire::Malformed;
use crossdock_os::Deadline;
use std::sync::Arc;
use std::time::Duration;

/// The time for the rest of a message after its first byte has come.
const WHOLE_WITHIN: Duration = Duration::from_secs(10);

/// Sends one message.
pub fn send(stream: &dyn Stream, message: &NodeMessage, number: u64, deadline: Deadline) -> Result<()> {
    stream.write(&[&message.encode(number)], deadline)
}

/// Reads messages from a stream. It never reads beyond the end of a message. The message that announces a chunk of an
/// object is followed by the chunk's bytes, and the caller reads these bytes directly into other memory.
#[derive(Debug)]
pub struct Frames {
    stream: Arc<dyn Stream>,
    buffer: Vec<u8>,
    filled: usize,
    whole_by: Deadline,
}

impl Frames {
    pub fn new(stream: Arc<dyn Stream>) -> Self {
        Self { stream, buffer: vec![0; FRAME_HEADER], filled: 0, whole_by: Deadline::after(Duration::ZERO) }
    }

    fn wrong(&self, reason: impl std::fmt::Display) -> Error {
        Error::new(Status::Corrupt, "read a message", format!("the peer sent what no node sends: {reason}"))
            .at(self.stream.address())
            .hint("is it a node daemon of the same version?")
    }

    /// Waits for the next message, and returns it with its number. `None` if the peer ended the stream between two
    /// messages.
    ///
    /// # Errors
    /// `TimedOut` if no whole message came by the deadline; call again, because nothing is lost. `Corrupt` if the bytes
    /// are no message or come too slowly. `Incompatible` for the greeting of another version. Otherwise the stream's
    /// errors.
    pub fn next(&mut self, deadline: Deadline) -> Result<Option<(u64, NodeMessage)>> {
        loop {
            let mut wanted = FRAME_HEADER;
            let mut header = None;
            if self.filled >= FRAME_HEADER {
                let first = self.buffer.first_chunk().expect("the buffer has room for a header");
                let decoded = FrameHeader::decode(first).map_err(|malformed| self.wrong(malformed))?;
                wanted = decoded.length;
                header = Some(decoded);
            }
            debug_assert!(wanted <= MAX_FRAME, "the header was checked");
            if let Some(header) = header.filter(|_| self.filled == wanted) {
                self.filled = 0;
                let body = &self.buffer[FRAME_HEADER..wanted];
                let decoded = NodeMessage::decode(header, body);
                if let Some(version) = NodeMessage::version(header, body).filter(|version| *version != LINK_VERSION) {
                    let reason = format!("it speaks version {version} of the node protocol, this node {LINK_VERSION}");
                    return Err(Error::new(Status::Incompatible, "greet", reason)
                        .at(self.stream.address())
                        .hint("run the same version of crossdock on all nodes of a site"));
                }
                return match decoded {
                    Ok(message) => Ok(Some((header.number, message))),
                    Err(malformed @ Malformed::Opcode(_)) => Err(self.wrong(malformed)),
                    Err(malformed) => Err(self.wrong(format!("message {}: {malformed}", header.opcode))),
                };
            }
            if self.buffer.len() < wanted {
                self.buffer.resize(wanted, 0);
            }
            let by = if self.filled == 0 { deadline } else { deadline.min(self.whole_by) };
            match self.stream.read(&mut self.buffer[self.filled..wanted], by) {
                Ok(0) if self.filled == 0 => return Ok(None),
                Ok(0) => {
                    let reason = format!("the stream ended after {} bytes of a message", self.filled);
                    return Err(Error::new(Status::Disconnected, "read a message", reason).at(self.stream.address()));
                }
                Ok(read) => {
                    if self.filled == 0 {
                        self.whole_by = Deadline::after(WHOLE_WITHIN);
                    }
                    self.filled += read;
                }
                Err(error) if error.status == Status::TimedOut && self.filled > 0 && self.whole_by.passed() => {
                    return Err(self.wrong("a message that does not end"));
                }
                Err(error) => return Err(error),
            }
        }
    }

    pub fn stream(&self) -> &Arc<dyn Stream> {
        &self.stream
    }
}

//! Pulls bytes of an object on another node directly into memory of this node.
//!
//! A pull asks for a range through one data connection, or for parts of the range through several data connections. On
//! each connection the bytes arrive from the first to the last, as chunks with a header each. Each chunk is read
//! directly into `memory`. Its checksum is compared, unless TLS protects the bytes. If a connection breaks, another
//! connection continues after the last good chunk, until the deadline passes. A link may have a second transport for
//! pulls alone. If the second transport does not connect or breaks, the pull continues by the usual transport. A failed
//! pull leaves undefined bytes in the memory, so no other code may see the memory before the pull has succeeded.

use crate::frame::{Frames, send};
use crate::greeting::{Route, greet, not_reached};
use crate::link::{ControlConnection, Shared};
use crate::pull_transport::{PullTransport, TRIAL};
use crate::{Error, Link, Result, SourceId, Stream};
use crossdock_layout::Status;
use crossdock_layout::link::{NodeMessage, Purpose};
use crossdock_os::Deadline;
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use twox_hash::XxHash3_64;

/// The largest number of data connections that a link keeps for its next pull.
const KEPT: usize = 8;
/// How often a chunk with a wrong checksum is asked for again. If the checksum is wrong after all these attempts, the
/// error names two possible causes: the object changes during the pull, or a network device damages data.
const WRONG_MOST: u32 = 2;
/// The first pause before a broken data connection is replaced. Each further pause is twice as long, up to
/// [`PAUSE_MOST`].
const PAUSE: Duration = Duration::from_millis(10);
const PAUSE_MOST: Duration = Duration::from_secs(1);

/// How many connections one pull used, and how often it replaced a connection or repeated a chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pulled {
    /// The number of data connections that the pull used at the same time.
    pub streams: usize,
    /// How often the pull replaced a broken data connection.
    pub resumed: u32,
    /// How many chunks arrived with a wrong checksum and were asked for again.
    pub wrong: u32,
}

impl Link {
    /// Reads the bytes of an object from `offset` on, until `memory` is full. No other thread may use the memory
    /// meanwhile.
    ///
    /// # Errors
    /// The other node's refusal (`NotFound`, `Denied` …). `Corrupt` if bytes arrive wrong again and again. `Closed` if
    /// the other daemon was started anew meanwhile. `TimedOut` if the deadline passes; the reason then names the last
    /// failure. After an error the contents of `memory` are undefined.
    pub fn pull(&self, source_id: &SourceId, offset: u64, memory: &mut [u8], deadline: Deadline) -> Result<Pulled> {
        let shared = &*self.shared;
        let length = memory.len();
        let tried = || format!("pull {length} bytes from {offset} of {source_id}");
        if memory.is_empty() {
            return Ok(Pulled::default());
        }
        let control = shared.control_connection(deadline).map_err(|error| error.trying(tried()))?;
        let options = &shared.options;
        let streams = (length / options.share.max(1)).clamp(1, options.streams.max(1));
        let (transport, begun) = (shared.pull_transports.choose(length), Instant::now());
        let measure = |pulled: &Pulled| {
            if pulled.resumed == 0 && pulled.wrong == 0 {
                shared.pull_transports.note(transport, length, begun.elapsed());
            }
        };
        // Each part has whole pages, so that two threads never write to one page.
        let part = length.div_ceil(streams).next_multiple_of(4096);
        let one = |at: usize, memory: &mut [u8]| {
            let whole = PulledPart { shared, source_id, control, transport, offset: offset + at as u64, deadline };
            whole.pull(memory).map_err(|error| error.trying(tried()))
        };
        if streams == 1 {
            return one(0, memory).inspect(measure);
        }
        let parts = memory.chunks_mut(part).enumerate().map(|(n, memory)| (n * part, memory));
        let parts: Mutex<VecDeque<_>> = Mutex::new(parts.collect());
        let next = || parts.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let work = || {
            let mut all = Pulled::default();
            while let Some((at, memory)) = next() {
                all.add(one(at, memory)?);
            }
            Ok(all)
        };
        std::thread::scope(|scope| {
            // If a thread cannot be started, the calling thread and the threads that were started before pull all
            // parts.
            let start = |_| std::thread::Builder::new().name("crossdock-pull".into()).spawn_scoped(scope, work).ok();
            let others: Vec<_> = (1..streams).map_while(start).collect();
            let mut pulled = work();
            for other in others {
                match (&mut pulled, other.join().expect("a pull does not panic")) {
                    (Ok(all), Ok(more)) => all.add(more),
                    (Ok(_), failed) => pulled = failed,
                    (Err(_), _) => {}
                }
            }
            pulled.inspect(measure)
        })
    }
}

impl Pulled {
    fn add(&mut self, more: Self) {
        self.streams += more.streams;
        self.resumed += more.resumed;
        self.wrong += more.wrong;
    }
}

/// A part of the pulled range. One data connection at a time brings its bytes.
struct PulledPart<'a> {
    shared: &'a Shared,
    source_id: &'a SourceId,
    control: ControlConnection,
    transport: PullTransport,
    offset: u64,
    deadline: Deadline,
}

/// A data connection that a pull uses.
struct DataConnection {
    session: [u8; 16],
    transport: PullTransport,
    frames: Frames,
    /// True if this pull has made the connection. A connection that was kept from an earlier pull may have been closed
    /// by the peer, because it was idle.
    is_fresh: bool,
}

/// Why a data connection brings no more bytes.
enum TransferEnd {
    /// The connection cannot be used any more. Another connection may continue.
    Broken(Error),
    /// The other node refuses, or its bytes are wrong again and again. Another connection would not help.
    Refused(Error),
}

impl PulledPart<'_> {
    fn pull(&self, memory: &mut [u8]) -> Result<Pulled> {
        let mut pulled = Pulled { streams: 1, ..Pulled::default() };
        let (mut done, mut pause) = (0, PAUSE);
        loop {
            let before = done;
            let error = match self.connection() {
                Ok(mut taken) => match self.bring(&mut taken.frames, memory, &mut done, &mut pulled) {
                    Ok(()) => {
                        self.keep(taken);
                        return Ok(pulled);
                    }
                    Err(TransferEnd::Refused(error)) => {
                        taken.frames.stream().close();
                        return Err(self.shared.name(error));
                    }
                    Err(TransferEnd::Broken(error)) => {
                        taken.frames.stream().close();
                        if taken.transport == PullTransport::Other && (taken.is_fresh || done > before) {
                            self.shared.pull_transports.failed(&error.reason);
                        }
                        error
                    }
                },
                Err(error) if is_final(&error) || self.shared.is_closed() => return Err(error),
                Err(error) => error,
            };
            if self.deadline.left() <= pause {
                let reason =
                    format!("{done} of {} bytes had arrived by the deadline; last: {}", memory.len(), error.reason);
                return Err(self.shared.name(Error::new(Status::TimedOut, "pull", reason)));
            }
            // After an attempt that brought bytes, the pauses begin with the shortest pause again.
            pause = if done > before { PAUSE } else { (pause * 2).min(PAUSE_MOST) };
            std::thread::sleep(pause);
            pulled.resumed += 1;
        }
    }

    /// Takes a kept data connection that belongs to the present control connection, or makes a new one.
    fn connection(&self) -> Result<DataConnection> {
        let control = self.shared.control_connection(self.deadline)?;
        if control.incarnation != self.control.incarnation {
            let reason = "its daemon was started anew meanwhile, and what was wanted belongs to its former start";
            return Err(self.shared.name(Error::new(Status::Closed, "pull", reason)));
        }
        let other = self.shared.pull_transports.other().filter(|_| self.transport == PullTransport::Other);
        let transport = if other.is_some() { PullTransport::Other } else { PullTransport::Usual };
        if let Some(kept) = self.kept(&control, transport) {
            return Ok(kept);
        }
        let by = self.deadline.at_most(self.shared.options.give_up());
        let by_other = other.and_then(|other| {
            let route = Route { transport: &**other, ..self.shared.route(control.index) };
            let greeted = greet(&route, Purpose::Data, control.session, by.at_most(TRIAL));
            greeted.inspect_err(|error| self.shared.pull_transports.failed(&error.reason)).ok()
        });
        let (transport, (frames, incarnation, _)) = match by_other {
            Some(greeted) => (PullTransport::Other, greeted),
            None => {
                if transport == PullTransport::Other
                    && let Some(kept) = self.kept(&control, PullTransport::Usual)
                {
                    return Ok(kept);
                }
                let route = self.shared.route(control.index);
                let greeted = greet(&route, Purpose::Data, control.session, by);
                (PullTransport::Usual, greeted.map_err(not_reached)?)
            }
        };
        if incarnation != control.incarnation {
            frames.stream().close();
            let reason = "its daemon was started anew meanwhile, and what was wanted belongs to its former start";
            return Err(self.shared.name(Error::new(Status::Closed, "pull", reason)));
        }
        Ok(DataConnection { session: control.session, transport, frames, is_fresh: true })
    }

    /// Takes a kept data connection by `transport` that belongs to the present control connection; `None` if there is
    /// none.
    fn kept(&self, control: &ControlConnection, transport: PullTransport) -> Option<DataConnection> {
        let mut idle = self.shared.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|(session, ..)| *session == control.session);
        let at = idle.iter().rposition(|(_, of, _)| *of == transport)?;
        let (session, transport, frames) = idle.remove(at);
        Some(DataConnection { session, transport, frames, is_fresh: false })
    }

    fn keep(&self, DataConnection { session, transport, frames, .. }: DataConnection) {
        let mut idle = self.shared.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < KEPT {
            idle.push((session, transport, frames));
        } else {
            frames.stream().close();
        }
    }

    /// Asks the peer for the missing bytes through this connection, and reads them.
    fn bring(
        &self,
        frames: &mut Frames,
        memory: &mut [u8],
        done: &mut usize,
        pulled: &mut Pulled,
    ) -> std::result::Result<(), TransferEnd> {
        /// The message number of every Fetch. A connection has one Fetch at a time, so all of them can have the same
        /// number. A connection is kept only after all of its chunks have come, so no chunk of an earlier pull can
        /// arrive in a later one.
        const NUMBER: u64 = 1;
        let checked = !frames.stream().is_protected();
        let fetch = NodeMessage::Fetch {
            kind: self.source_id.kind,
            checked,
            object: self.source_id.object,
            epoch: self.source_id.epoch,
            offset: self.offset + *done as u64,
            length: (memory.len() - *done) as u64,
        };
        send(&**frames.stream(), &fetch, NUMBER, self.soon()).map_err(TransferEnd::Broken)?;
        while *done < memory.len() {
            let (length, sum) = self.header(frames, (self.offset + *done as u64, memory.len() - *done), NUMBER)?;
            let place = &mut memory[*done..*done + length];
            let from = *done;
            self.fill(&**frames.stream(), place, |read| *done += if checked { 0 } else { read })?;
            if !checked {
                continue;
            }
            if XxHash3_64::oneshot(place) != sum {
                pulled.wrong += 1;
                return Err(self.wrong(from, pulled.wrong));
            }
            *done += length;
        }
        Ok(())
    }

    /// Reads the header of the next chunk; returns the chunk's length and checksum. The chunk must begin at offset
    /// `at.0` and have at most `at.1` bytes.
    fn header(
        &self,
        frames: &mut Frames,
        at: (u64, usize),
        number: u64,
    ) -> std::result::Result<(usize, u64), TransferEnd> {
        let strange = |reason: String| TransferEnd::Broken(Error::new(Status::Corrupt, "pull", reason));
        match frames.next(self.soon()).map_err(TransferEnd::Broken)? {
            Some((of, NodeMessage::Chunk { offset, length, sum })) if of == number => {
                if offset == at.0 && length <= at.1 as u64 {
                    return Ok((length as usize, sum));
                }
                Err(strange(format!("{length} bytes at {offset} instead of up to {} at {}", at.1, at.0)))
            }
            Some((of, NodeMessage::Failed { status, text })) if of == number => {
                Err(TransferEnd::Refused(Error::new(status, "pull", text)))
            }
            Some((_, other)) => Err(strange(format!("a message that does not belong here: number {}", other.number()))),
            None => {
                Err(TransferEnd::Broken(Error::new(Status::Disconnected, "pull", "the peer closed the connection")))
            }
        }
    }

    /// Reads a chunk's bytes into `place`. After each read this function calls `right` with the number of bytes that
    /// were read. Under TLS these bytes are checked already, so the caller notes that they need not be asked for again.
    fn fill(
        &self,
        stream: &dyn Stream,
        place: &mut [u8],
        mut right: impl FnMut(usize),
    ) -> std::result::Result<(), TransferEnd> {
        let mut filled = 0;
        while filled < place.len() {
            match stream.read(&mut place[filled..], self.soon()).map_err(TransferEnd::Broken)? {
                0 => {
                    let reason = "the connection ended in the middle of a chunk";
                    return Err(TransferEnd::Broken(Error::new(Status::Disconnected, "pull", reason)));
                }
                read => {
                    filled += read;
                    right(read);
                }
            }
        }
        Ok(())
    }

    /// Decides what follows after a chunk with a wrong checksum. The connection that brought the chunk is not used any
    /// more. The result is `Broken` if another connection is to ask for the chunk again, and `Refused` if the chunk was
    /// wrong too often.
    fn wrong(&self, from: usize, times: u32) -> TransferEnd {
        let reason = format!("bytes at {} arrived with a wrong checksum", self.offset + from as u64);
        let error = Error::new(Status::Corrupt, "pull", reason)
            .hint("the object changes while it is read, or a network device damages data");
        if times > WRONG_MOST { TransferEnd::Refused(error) } else { TransferEnd::Broken(error) }
    }

    /// Gives the deadline for one read or write on a data connection. If this deadline passes, the connection counts as
    /// broken.
    fn soon(&self) -> Deadline {
        self.deadline.at_most(self.shared.options.give_up())
    }
}

/// Tells whether a further attempt after this error would be useless.
fn is_final(error: &Error) -> bool {
    !matches!(error.status, Status::Disconnected | Status::TimedOut | Status::Corrupt | Status::Busy)
}

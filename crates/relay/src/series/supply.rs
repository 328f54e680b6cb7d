//! A supply: it observes a series of this node for a mirror on another node.
//!
//! The supply is one observer of the series. It offers one version after another to the mirror, each only after the
//! mirror has taken or skipped the version before. It holds the version that the mirror took last. A chunk that has
//! changed since that version lies in another slot than in that version, so the supply knows which chunks to send. A
//! slow supply misses versions, as any slow observer does. The publisher never waits for the supply or the link.

use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use crossdock_client::{Observer, Session, Status, Version};
use crossdock_core::series::{ChunkRun, VersionHead, pieces};
use crossdock_link::{Buffer, Refusal, Source};

use super::messages::{Load, Offered, SERIES_ENDED, SeriesEnded, VERSION, VersionAck, fit};
use crate::messages::{BodyField, ChannelKey, EndReason};
use crate::reports::{ReportOutcome, Reporter, tell};
use crate::{Peers, lock};

/// The longest time for which the thread of a supply sleeps before it looks at the supply's state again. Events wake
/// the thread earlier.
const SLICE: Duration = Duration::from_millis(200);
/// If the changes of a version have more bytes than this, the offer does not contain them, and the mirror pulls them.
const SMALL: u64 = 16 << 10;

#[derive(Default)]
struct Progress {
    /// The mirror's answer to the version that was offered last.
    ack: Option<VersionAck>,
    over: bool,
}

/// Supplies a mirror on another node with the versions of a series.
pub struct Supply {
    pub key: ChannelKey,
    /// The node that has the mirror.
    pub peer: String,
    /// The id of the series' segment.
    pub segment: u64,
    /// The answer to the request for this supply. A repeated request gets the same answer.
    pub answer: Load,
    _session: Session,
    progress: Mutex<Progress>,
    changed: Condvar,
}

impl Reporter for Supply {
    fn stopped(&self) -> Option<ReportOutcome> {
        self.is_over().then_some(ReportOutcome::Ended)
    }

    fn pause(&self, time: Duration) {
        let progress = lock(&self.progress);
        if !progress.over {
            drop(self.changed.wait_timeout(progress, time));
        }
    }
}

impl Supply {
    pub fn new(key: ChannelKey, peer: &str, segment: u64, session: Session, answer: Load) -> Arc<Self> {
        let (progress, changed) = (Mutex::default(), Condvar::new());
        Arc::new(Self { key, peer: peer.to_owned(), segment, answer, _session: session, progress, changed })
    }

    pub fn is_over(&self) -> bool {
        lock(&self.progress).over
    }

    /// Ends the supply, because the mirror is gone.
    pub fn finish(&self) {
        lock(&self.progress).over = true;
        self.changed.notify_all();
    }

    /// Notes that the mirror has taken or skipped a version. The network may bring this message again later, when a
    /// newer version is already offered.
    pub fn acknowledged(&self, ack: VersionAck) {
        let mut progress = lock(&self.progress);
        if progress.ack.as_ref().is_none_or(|known| known.sequence < ack.sequence) {
            progress.ack = Some(ack);
        }
        drop(progress);
        self.changed.notify_all();
    }

    /// Runs the thread of a supply. `has` is the number of the newest version that the mirror has already.
    pub fn run(&self, peers: &dyn Peers, mut observer: Observer, has: u64) {
        // Versions with a number up to `kept` exist only because observers of this node hold them. The supply does not
        // offer them.
        let kept = observer.newest().saturating_sub(u64::from(observer.original().keep) + 1);
        let mut former: Option<Arc<Version>> = None;
        // Whether the mirror could not show the last version that was offered.
        let mut was_skipped = false;
        while !self.is_over() {
            let version = match observer.each(SLICE) {
                Ok(version) if version.sequence() <= has.max(kept) => {
                    former = (version.sequence() == has).then(|| Arc::new(version));
                    continue;
                }
                Ok(version) => Arc::new(version),
                Err(error) => {
                    let how = match error.status {
                        Status::NotYet | Status::TimedOut => continue,
                        Status::Closed if was_skipped => {
                            let text = "the mirror could not take the last version";
                            peers.log(&format!("the supply of node {}: {text}; {error}", self.peer));
                            // The mirror's observers must not take the versions that they saw for all of the series.
                            EndReason::Died
                        }
                        Status::Closed => EndReason::Closed,
                        Status::PeerDied => EndReason::Died,
                        _ => {
                            peers.log(&format!("the supply of node {}: {error}", self.peer));
                            EndReason::Died
                        }
                    };
                    drop(former);
                    if tell(self, peers, &self.peer, SERIES_ENDED, &SeriesEnded { key: self.key, how }.encode())
                        == ReportOutcome::Yes
                    {
                        self.wait_ended();
                    }
                    return self.finish();
                }
            };
            let head = VersionHead::of(&version, observer.withheld());
            match self.offer(peers, head, former.as_deref(), &version) {
                Some(true) => (former, was_skipped) = (Some(version), false),
                Some(false) => was_skipped = true,
                None => break,
            }
        }
        self.finish();
    }

    /// Offers a version, and repeats the offer until the mirror has answered. Returns whether the mirror shows the
    /// version; `None` if the supply has ended.
    fn offer(
        &self,
        peers: &dyn Peers,
        head: VersionHead,
        former: Option<&Version>,
        version: &Arc<Version>,
    ) -> Option<bool> {
        // If the publisher has taken the version back meanwhile, the version is skipped.
        let Ok(pieces) = pieces(former, version) else { return Some(false) };
        let pieces = fit(pieces);
        let bytes = Changed::new(version, &pieces);
        let (length, sequence) = (bytes.length, head.sequence);
        let load = if length <= SMALL {
            match bytes.bytes(0, length, &mut Buffer::default()) {
                Ok(bytes) => Load::Here(bytes.to_vec()),
                Err(_) => return Some(false),
            }
        } else {
            Load::Pull(peers.offer(Arc::new(bytes)), length)
        };
        let ticket = if let Load::Pull(ticket, _) = load { Some(ticket) } else { None };
        let body = Offered { key: self.key, head, pieces, load }.encode();
        let outcome = tell(self, peers, &self.peer, VERSION, &body);
        let shown = if outcome == ReportOutcome::Yes { self.wait_acknowledged(sequence) } else { None };
        if let Some(ticket) = ticket {
            peers.withdraw(ticket);
        }
        shown
    }

    /// Waits until the mirror has reported that it is gone. Until then the supply keeps its session. The session is a
    /// member of the workflow, so the workflow's run continues on this node.
    fn wait_ended(&self) {
        let waits = |progress: &mut Progress| !progress.over;
        drop(self.changed.wait_while(lock(&self.progress), waits));
    }

    fn wait_acknowledged(&self, sequence: u64) -> Option<bool> {
        let waits = |progress: &mut Progress| {
            !progress.over && progress.ack.as_ref().is_none_or(|ack| ack.sequence != sequence)
        };
        let progress = self.changed.wait_while(lock(&self.progress), waits);
        let progress = progress.unwrap_or_else(std::sync::PoisonError::into_inner);
        if progress.over { None } else { progress.ack.as_ref().map(|ack| ack.shown) }
    }
}

/// The changed bytes of a version, which the mirror can pull: all pieces, one after another.
struct Changed {
    version: Arc<Version>,
    /// For each piece: the position of its first byte among the bytes of all pieces, the name of its variable, and its
    /// range of bytes in the variable.
    parts: Vec<(u64, String, Range<u64>)>,
    length: u64,
}

impl Changed {
    fn new(version: &Arc<Version>, pieces: &[ChunkRun]) -> Self {
        let (mut parts, mut length) = (Vec::with_capacity(pieces.len()), 0);
        let description = version.description();
        for piece in pieces {
            let range = piece.range(description.chunk, version.bytes_length(piece.variable as usize));
            let more = range.end - range.start;
            parts.push((length, description.variables[piece.variable as usize].name.clone(), range));
            length += more;
        }
        Self { version: version.clone(), parts, length }
    }
}

impl Source for Changed {
    fn length(&self) -> u64 {
        self.length
    }

    fn bytes<'a>(&'a self, offset: u64, length: u64, buffer: &'a mut Buffer) -> std::result::Result<&'a [u8], Refusal> {
        let end = offset.checked_add(length).filter(|end| *end <= self.length).ok_or_else(Refusal::shorter)?;
        let bytes = buffer.room(length)?;
        let mut at = offset;
        let mut part = self.parts.partition_point(|(start, ..)| *start <= offset).saturating_sub(1);
        while at < end {
            let (start, variable, range) = &self.parts[part];
            let from = range.start + (at - start);
            let more = (range.end - from).min(end - at);
            let to = &mut bytes[(at - offset) as usize..][..more as usize];
            // `copy_out` fails if the publisher has taken the version back meanwhile.
            self.version.copy_out(variable, from, to).map_err(|_| Refusal::shorter())?;
            at += more;
            part += 1;
        }
        Ok(bytes)
    }
}

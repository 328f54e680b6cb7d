//! An observer: attaching to a series, asking for versions, and waiting for a version.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crossdock_layout::series::state::{Latest, Phase, State};
use crossdock_layout::series::{Counts, PAGE, PAGE_SLOTS};
use crossdock_layout::wire::SegmentKind;
use crossdock_layout::{MemberId, SegmentId, Status};
use crossdock_os::{Access, Deadline, Mapping, fork, futex, memfd};

use super::attached::Attached;
use super::describe::{self, Description};
use super::pool::Pool;
use super::publisher::failed;
use super::spec::FullPolicy;
use super::version::Version;
use crate::Host;
use crate::liveness::{LOOK, epoch_word};
use crate::{Error, Result};

/// How often an observer asks again if the version that it wanted was gone before it was pinned. No publisher is that
/// fast many times in a row; only a table that another process scribbled over goes on like that.
pub(super) const OVERTAKEN: u32 = 64;

/// The parts of an observer.
pub struct AttachParts {
    /// The series' name, for error messages.
    pub name: String,
    /// The segment's id.
    pub segment: SegmentId,
    /// The pool's descriptor, for reading.
    pub pool: OwnedFd,
    /// The pool's size, as the daemon says.
    pub size: u64,
    /// The pin page. One zeroed slot of it belongs to this observer alone.
    pub pin_page: OwnedFd,
    /// Which slot.
    pub slot: u32,
    /// The publisher, as the daemon says.
    pub publisher: MemberId,
    /// Whom to ask.
    pub host: Arc<dyn Host>,
}

pub use crossdock_layout::series::PublisherState;

/// An observer of a series. Its versions are independent of it: a program may hold several, also longer than the
/// observer.
pub struct Observer {
    attached: Arc<Attached>,
    /// The highest sequence that was given out.
    given: u64,
}

impl Observer {
    /// Maps a series' pool for reading and checks its description.
    ///
    /// # Errors
    /// `CORRUPT` or `INCOMPATIBLE` if the memory is no series of this build, `SYSTEM`.
    pub fn attach(parts: AttachParts) -> Result<Self> {
        let system = |e: crossdock_os::OsError| failed(&parts.name, &e);
        memfd::check(&parts.pool, parts.size).map_err(system)?;
        memfd::check(&parts.pin_page, PAGE).map_err(system)?;
        if parts.slot as usize >= PAGE_SLOTS {
            return Err(Error::new(
                Status::Invalid,
                format!("series '{}': slot {} of a pin page", parts.name, parts.slot),
            ));
        }
        let mapping = Mapping::new(&parts.pool, parts.size as usize, Access::Read).map_err(system)?;
        let pins = Mapping::new(&parts.pin_page, PAGE as usize, Access::ReadWrite).map_err(system)?;
        let named = |e: Error| e.about(SegmentKind::Series, &parts.name);
        let pool = Pool::open(mapping, parts.size).map_err(named)?;
        let (description, spans) = describe::read(&pool).map_err(named)?;
        let attached = Attached {
            name: parts.name,
            pool,
            descriptor: parts.pool,
            spans,
            segment: parts.segment,
            publisher: parts.publisher,
            takes_back: description.full == FullPolicy::TakeBack,
            description,
            pins,
            slot: parts.slot,
            in_use: Mutex::new(0),
            host: parts.host,
            origin: fork::Origin::here(),
        };
        Ok(Self { attached: Arc::new(attached), given: 0 })
    }

    /// The name that was given when the observer attached.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.attached.name
    }

    /// The segment's id; a restarted publisher's series has another, greater one.
    #[must_use]
    pub fn id(&self) -> SegmentId {
        self.attached.segment
    }

    /// The publishing member.
    #[must_use]
    pub fn publisher(&self) -> MemberId {
        self.attached.publisher
    }

    /// Variables (shapes at their largest), attributes, constants.
    #[must_use]
    pub fn description(&self) -> &Description {
        &self.attached.description
    }

    /// The numbers that the pool's geometry follows from.
    pub(super) fn counts(&self) -> Counts {
        self.attached.pool.geometry().counts
    }

    /// The state of the publisher.
    #[must_use]
    pub fn state(&self) -> PublisherState {
        self.attached.state()
    }

    /// The newest version's number; 0 before the first.
    #[must_use]
    pub fn newest(&self) -> u64 {
        self.attached.newest().sequence()
    }

    /// The number of versions that the publisher withheld for lack of room since the series began. The publisher wrote
    /// it, and it is not checked.
    #[must_use]
    pub fn withheld(&self) -> u64 {
        self.attached.pool.header().report.withheld.load(Relaxed)
    }

    /// The newest version, also after the publisher ended or died.
    ///
    /// # Errors
    /// `NOT_YET` if nothing has been published, `BUSY` if this observer holds 15 versions, `CORRUPT`. If the publisher
    /// is gone and had published nothing: `CLOSED` or `PEER_DIED`.
    pub fn latest(&mut self) -> Result<Version> {
        for _ in 0..OVERTAKEN {
            let newest = self.attached.newest();
            if newest.sequence() == 0 {
                return Err(self.attached.over().unwrap_or_else(|| {
                    self.attached.error(Status::NotYet, "nothing was published so far; wait for the next version")
                }));
            }
            // By the time the version is pinned, another may be the newest and this one gone.
            if let Some(version) = self.take(newest)? {
                return Ok(version);
            }
        }
        Err(self.attached.corrupt("its newest version cannot be taken"))
    }

    /// The newest version, if it is newer than every version given so far; otherwise this waits for one. Versions in
    /// between are passed over; [`Self::each`] gives them as well, as far as they still exist.
    ///
    /// # Errors
    /// `TIMED_OUT`, or `NOT_YET` if the timeout is zero. `CLOSED` if the publisher ended and all versions were given,
    /// `PEER_DIED` if it died. Otherwise as [`Self::latest`].
    pub fn next(&mut self, timeout: Duration) -> Result<Version> {
        self.wait_beyond(self.given, timeout)?;
        self.latest()
    }

    /// The version after the one given last, in order; waits for it. A version that is gone is passed over and counted
    /// in [`Version::missed`] of the version that is given. The first version given is the oldest that exists. If the
    /// publisher keeps some versions (`keep`), an observer that reads every version may lag by that many.
    ///
    /// # Errors
    /// As [`Self::next`].
    pub fn each(&mut self, timeout: Duration) -> Result<Version> {
        let deadline = Deadline::after(timeout);
        let given = self.given;
        for _ in 0..OVERTAKEN {
            self.wait_beyond(given, deadline.left())?;
            let there = super::report::versions(&self.attached.pool);
            let Some((sequence, _)) = there.into_iter().find(|(sequence, _)| *sequence > given) else { continue };
            if let Some(mut version) = self.find(sequence)? {
                // An observer does not count versions before its first one as missed.
                version.missed = if given == 0 { 0 } else { sequence - given - 1 };
                return Ok(version);
            }
        }
        Err(self.attached.corrupt(format!("none of its versions after {given} can be taken")))
    }

    /// Waits until the newest version is beyond this sequence.
    fn wait_beyond(&self, sequence: u64, timeout: Duration) -> Result<()> {
        let deadline = Deadline::after(timeout);
        let attached = &self.attached;
        let header = attached.pool.header();
        let news = &header.news;
        loop {
            // The order matters: first the words are read, then everything whose change would change them.
            let epoch = attached.host.liveness().epoch();
            let expected = news.published.load(Acquire);
            let over = attached.is_known_over();
            if attached.newest().sequence() > sequence {
                return Ok(());
            }
            if let Some(why) = attached.over() {
                if over || attached.newest().sequence() <= sequence {
                    return Err(why);
                }
                continue;
            }
            if deadline.passed() {
                let status = if timeout.is_zero() { Status::NotYet } else { Status::TimedOut };
                let who = attached.host.describe(attached.publisher);
                let mut text = "its publisher lives".to_owned();
                let withheld = header.report.withheld_now.load(Relaxed);
                if withheld > 0 {
                    let held = attached.in_use.lock().expect("no holder panics").count_ones();
                    text += &format!(
                        ". Its pool is full: it withheld {withheld} versions since then; this observer holds {held}, \
                         observers have to release some"
                    );
                }
                let waited = format!("a version after {sequence} from {who}");
                return Err(attached.error(status, text).waited(waited, timeout));
            }
            let deaths = epoch_word(attached.host.liveness());
            futex::wait_either((&news.published, expected), (deaths, epoch), deadline.at_most(LOOK));
        }
    }

    /// The version with this sequence; waits until it is published.
    ///
    /// # Errors
    /// `NOT_FOUND` if the version was recycled; the text says which versions exist. `NOT_YET` if the timeout is zero
    /// and the version is still to come. `TIMED_OUT`, `CLOSED` and `PEER_DIED` as [`Self::next`]. `BUSY`, `CORRUPT`.
    pub fn at(&mut self, sequence: u64, timeout: Duration) -> Result<Version> {
        if sequence > self.newest() {
            self.wait_beyond(sequence - 1, timeout)?;
        }
        let version = self.find(sequence)?;
        version.ok_or_else(|| {
            let there = super::report::versions(&self.attached.pool);
            let there = match (there.first(), there.last()) {
                (Some(first), Some(last)) => format!("{} are there, from {} to {}", there.len(), first.0, last.0),
                _ => "none is there".to_owned(),
            };
            let text = format!("version {sequence} was recycled; {there}. Let the publisher keep more");
            self.attached.error(Status::NotFound, text)
        })
    }

    /// The version with this sequence, if it exists.
    fn find(&mut self, sequence: u64) -> Result<Option<Version>> {
        let attached = &self.attached;
        let records = attached.pool.geometry().counts.records;
        let holds = |record: &u32| {
            let state = State(attached.pool.record(*record).state.load(Acquire));
            state.sequence() == sequence && matches!(state.phase(), Phase::Live | Phase::Retiring)
        };
        match (0..records).find(holds) {
            Some(record) if sequence > 0 => self.take(Latest::new(sequence, record as u16)),
            _ => Ok(None),
        }
    }

    /// Pins a version and reads its record; `None` if the version is gone.
    fn take(&mut self, which: Latest) -> Result<Option<Version>> {
        let version = Version::take(&self.attached, which)?;
        if let Some(version) = &version {
            self.given = self.given.max(version.sequence());
        }
        Ok(version)
    }
}

impl std::fmt::Debug for Observer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Observer")
            .field("name", &self.attached.name)
            .field("given", &self.given)
            .finish_non_exhaustive()
    }
}

//! An observer: attaching to a series, asking for versions, and waiting for a version.

use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crossdock_layout::series::state::{Latest, Phase, State};
use crossdock_layout::series::{Counts, PAGE, PAGE_SLOTS};
use crossdock_layout::wire::SegmentKind;
use crossdock_layout::{MemberId, SegmentId, Status};
use crossdock_os::{Access, Deadline, Mapping, OwnFile, fork, futex, memfd};

use super::attached::Attached;
use super::describe::{self, Description};
use super::pool::Pool;
use super::publisher::failed;
use super::spec::FullPolicy;
use super::version::Version;
use crate::Host;
use crate::error::Reason;
use crate::liveness::{LOOK, epoch_word};
use crate::{Error, Result};

/// How many times an observer tries again because the newest version was recycled before it was pinned. Only a few
/// instructions lie between the load of the newest version's number and the pin, and a publisher cannot recycle the
/// version so fast this many times in a row. So after this many attempts the version table must be damaged.
pub(super) const OVERTAKEN: u32 = 64;
/// How many times an observer searches the version table for the next version. After that, the observer takes the
/// newest version instead. A search is in vain if the publisher recycles the found version before the observer has
/// pinned that version.
const SEARCHES: u32 = 8;
/// How long an observer sleeps before it checks again whether the publisher has decided to recycle or to keep a
/// version.
const DECISION: Duration = Duration::from_millis(1);

/// The result of looking for a version.
pub(super) enum Found<T> {
    There(T),
    /// The version was recycled, or never existed.
    Gone,
    /// The publisher has marked the version as one that it may recycle, and has not decided yet.
    Undecided,
}

/// The values that a program passes to [`Observer::attach`].
pub struct AttachParts {
    /// The series' name, for error messages.
    pub name: String,
    /// The id of the series' segment.
    pub segment: SegmentId,
    /// The pool's descriptor, which allows reading only.
    pub pool: OwnFile,
    /// The pool's size in bytes, as the daemon has reported it.
    pub size: u64,
    /// The page in which observers note the versions that they use. One slot of this page is zeroed and belongs to this
    /// observer alone.
    pub pin_page: OwnFile,
    /// The index of the observer's slot.
    pub slot: u32,
    /// The member that publishes the series, as the daemon has reported it.
    pub publisher: MemberId,
    /// The session of this process with the daemon, through the interface that `core` uses. For example, it tells which
    /// members are dead.
    pub host: Arc<dyn Host>,
}

pub use crossdock_layout::series::PublisherState;

/// An observer of a series. A program may hold several versions from one observer at the same time, and may keep them
/// after it has dropped the observer.
pub struct Observer {
    attached: Arc<Attached>,
    /// The highest sequence number of the versions that this observer gave to the program.
    given: u64,
}

impl Observer {
    /// Maps a series' pool for reading and checks its description.
    ///
    /// # Errors
    /// `CORRUPT` or `INCOMPATIBLE` if the memory does not hold a series that this build understands, `SYSTEM` if the
    /// kernel refuses the mapping.
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
            sleep: Mutex::new(()),
            host: parts.host,
            process: fork::ProcessToken::current(),
        };
        Ok(Self { attached: Arc::new(attached), given: 0 })
    }

    /// The name of the series, as it was given to [`Self::attach`].
    #[must_use]
    pub fn name(&self) -> &str {
        &self.attached.name
    }

    /// The segment's id. If the publisher is restarted, its new series has another, greater id.
    #[must_use]
    pub fn id(&self) -> SegmentId {
        self.attached.segment
    }

    /// The member that publishes the series.
    #[must_use]
    pub fn publisher(&self) -> MemberId {
        self.attached.publisher
    }

    /// The description of the series: variables with their largest shapes, attributes and constants.
    #[must_use]
    pub fn description(&self) -> &Description {
        &self.attached.description
    }

    /// The numbers of chunks, records, slots and other parts of the pool. The positions of these parts can be computed
    /// from the numbers.
    pub(super) fn counts(&self) -> Counts {
        self.attached.pool.geometry().counts
    }

    /// Whether the publisher is alive, has ended the series, or has died.
    #[must_use]
    pub fn state(&self) -> PublisherState {
        self.attached.state()
    }

    /// The newest version's number; 0 before the first version.
    #[must_use]
    pub fn newest(&self) -> u64 {
        self.attached.newest().sequence()
    }

    /// How many versions the publisher has withheld since the series began, because the pool had no room. The number
    /// comes unchecked from the publisher's memory.
    #[must_use]
    pub fn withheld(&self) -> u64 {
        self.attached.pool.header().report.withheld.load(Relaxed)
    }

    /// Gives the newest version, even after the publisher has ended or died.
    ///
    /// # Errors
    /// `NOT_YET` if nothing has been published, `BUSY` if this observer holds 15 versions, `CORRUPT` if the pool
    /// holds what no correct publisher writes. If the publisher ended or died before its first version: `CLOSED` or
    /// `PEER_DIED`.
    pub fn latest(&mut self) -> Result<Version> {
        for _ in 0..OVERTAKEN {
            let newest = self.attached.newest();
            if newest.sequence() == 0 {
                return Err(self.attached.over().unwrap_or_else(|| {
                    self.attached.error(Status::NotYet, "nothing was published so far; wait for the next version")
                }));
            }
            // While the observer pins this version, the publisher may publish a newer one and recycle this one. In this
            // case the loop tries again, with the newer one.
            if let Found::There(version) = self.take(newest)? {
                return Ok(version);
            }
        }
        Err(self.attached.corrupt("its newest version cannot be taken"))
    }

    /// Gives the newest version, if this observer has not given it yet; otherwise waits for a newer one. If several
    /// versions were published since the last call, only the newest of them is given. [`Self::each`] gives all of them
    /// that still exist.
    ///
    /// # Errors
    /// `TIMED_OUT` if no newer version comes before the timeout; `NOT_YET` if there is none and the timeout is zero. If
    /// there is no newer version: `CLOSED` if the publisher has ended, `PEER_DIED` if it died. Otherwise the errors of
    /// [`Self::latest`].
    pub fn next(&mut self, timeout: Duration) -> Result<Version> {
        self.wait_beyond(self.given, timeout)?;
        self.latest()
    }

    /// Gives the next version after the last one that this observer gave; if necessary, waits until it is published. If
    /// the versions directly after the last one no longer exist, the result is the oldest later version that exists,
    /// and [`Version::missed`] says how many were missed. The first call gives the oldest version that exists. If the
    /// publisher keeps `keep` old versions, the observer can lag behind by `keep` versions and still miss none. If the
    /// publisher recycles versions faster than the observer finds them, the result is the newest version.
    ///
    /// # Errors
    /// The errors of [`Self::next`].
    pub fn each(&mut self, timeout: Duration) -> Result<Version> {
        let deadline = Deadline::after(timeout);
        let given = self.given;
        let mut overtaken = 0;
        while overtaken < SEARCHES + OVERTAKEN {
            self.wait_beyond(given, deadline.left())?;
            let wanted = match overtaken < SEARCHES {
                true => super::report::oldest(&self.attached.pool, given),
                false => Some(self.attached.newest()).filter(|newest| newest.sequence() > given),
            };
            match wanted.map_or(Ok(Found::Gone), |wanted| self.take(wanted))? {
                Found::There(mut version) => {
                    // Versions before the first one that an observer gets are not counted as missed.
                    version.missed = if given == 0 { 0 } else { version.sequence() - given - 1 };
                    return Ok(version);
                }
                Found::Gone => overtaken += 1,
                Found::Undecided => self.wait_decided(deadline, timeout)?,
            }
        }
        Err(self.attached.corrupt(format!("none of its versions after {given} can be taken")))
    }

    /// Waits a moment, because the publisher is about to decide whether it recycles a version. A publisher that has
    /// lost its CPU or is stopped decides later.
    fn wait_decided(&self, deadline: Deadline, timeout: Duration) -> Result<()> {
        if deadline.passed() {
            let status = if timeout.is_zero() { Status::NotYet } else { Status::TimedOut };
            let text = "its publisher was about to recycle an old version, and has not decided since then";
            return Err(self.attached.error(status, text));
        }
        std::thread::sleep(DECISION.min(deadline.left()));
        Ok(())
    }

    /// Waits until the newest version's number is greater than `sequence`.
    fn wait_beyond(&self, sequence: u64, timeout: Duration) -> Result<()> {
        wait_beyond(&self.attached, sequence, timeout)
    }

    /// Makes a value with which a thread can wait for a version that is newer than version `sequence`. If `sequence` is
    /// `None`, the thread waits for a version that is newer than every version that this observer gave.
    #[must_use]
    pub fn waiter(&self, sequence: Option<u64>) -> Waiter {
        Waiter { attached: self.attached.clone(), beyond: sequence.unwrap_or(self.given) }
    }

    /// Gives the version with this sequence number. If the version is still to come, waits until it is published.
    ///
    /// # Errors
    /// `NOT_FOUND` if the version was recycled; the text says which versions exist. `NOT_YET` if the timeout is zero
    /// and the version is still to come. `TIMED_OUT`, `CLOSED` and `PEER_DIED` as for [`Self::next`]. `BUSY` and
    /// `CORRUPT` as for [`Self::latest`].
    pub fn at(&mut self, sequence: u64, timeout: Duration) -> Result<Version> {
        let deadline = Deadline::after(timeout);
        if sequence > self.newest() {
            self.wait_beyond(sequence - 1, timeout)?;
        }
        let version = loop {
            match self.find(sequence)? {
                Found::There(version) => break Some(version),
                Found::Gone => break None,
                Found::Undecided => self.wait_decided(deadline, timeout)?,
            }
        };
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

    /// Looks for the version with this sequence number.
    fn find(&mut self, sequence: u64) -> Result<Found<Version>> {
        let attached = &self.attached;
        let records = attached.pool.geometry().counts.records;
        let holds = |record: &u32| {
            let state = State(attached.pool.record(*record).state.load(Acquire));
            state.sequence() == sequence && matches!(state.phase(), Phase::Live | Phase::Retiring)
        };
        match (0..records).find(holds) {
            Some(record) if sequence > 0 => self.take(Latest::new(sequence, record as u16)),
            _ => Ok(Found::Gone),
        }
    }

    /// Pins a version and reads its record.
    fn take(&mut self, which: Latest) -> Result<Found<Version>> {
        let found = Version::take(&self.attached, which)?;
        if let Found::There(version) = &found {
            self.given = self.given.max(version.sequence());
        }
        Ok(found)
    }
}

/// A wait for a version. It gives no version, and does not use the observer, so other threads can use the observer
/// during the wait.
pub struct Waiter {
    attached: Arc<Attached>,
    beyond: u64,
}

impl Waiter {
    /// Waits until the version is published.
    ///
    /// # Errors
    /// `TIMED_OUT`, `NOT_YET`, `CLOSED` and `PEER_DIED` as for [`Observer::next`]. `DISCONNECTED` in a forked child that
    /// would have to wait.
    pub fn wait(&self, timeout: Duration) -> Result<()> {
        wait_beyond(&self.attached, self.beyond, timeout)
    }
}

/// Waits until the newest version's number is greater than `sequence`.
fn wait_beyond(attached: &Attached, sequence: u64, timeout: Duration) -> Result<()> {
    let deadline = Deadline::after(timeout);
    let header = attached.pool.header();
    let version_words = &header.version_words;
    loop {
        // The order matters: the count of deaths and the count of publishes are read before the publisher's state. If
        // the state changes after it was read, one of the counts changes too, so the wait ends immediately.
        let epoch = attached.host.liveness().epoch();
        let expected = version_words.published.load(Acquire);
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
            if timeout.is_zero() {
                // A program may poll often, so this error has no text for which the daemon would have to be asked.
                let nothing = Error::because(Status::NotYet, Reason::NothingYet);
                return Err(nothing.about(SegmentKind::Series, &attached.name));
            }
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
            return Err(attached.error(Status::TimedOut, text).waited(waited, timeout));
        }
        if !attached.note_sleep(expected)? {
            continue;
        }
        let deaths = epoch_word(attached.host.liveness());
        futex::wait_either((&version_words.published, expected), (deaths, epoch), deadline.at_most(LOOK));
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

#[cfg(test)]
mod tests {
    use super::super::{FullPolicy, Identity, Publisher, Spec, Variable, protocol};
    use super::*;
    use crate::host::StandaloneHost;
    use crossdock_os::memfd;
    use std::sync::atomic::Ordering::SeqCst;
    use std::time::Instant;

    #[test]
    fn an_observer_waits_for_a_publisher_that_has_stopped_before_it_decided() {
        let spec = Spec { keep: 2, full: FullPolicy::Withhold, ..Spec::of(vec![Variable::new("a", "u64", &[1000])]) };
        let host = || Arc::new(StandaloneHost::default());
        let (mut publisher, offer) = Publisher::create(Identity::alone("s"), &spec, host()).unwrap();
        let parts = AttachParts {
            name: "s".into(),
            segment: Default::default(),
            pool: offer.pool.clone(),
            size: offer.size,
            pin_page: memfd::create("pins", 4096).unwrap().into(),
            slot: 0,
            publisher: StandaloneHost::MEMBER,
            host: host(),
        };
        let mut observer = Observer::attach(parts).unwrap();
        publisher.publish(&[]).unwrap();
        publisher.publish(&[]).unwrap();
        let record = publisher.records.iter().position(|sequence| *sequence == 1).unwrap() as u32;
        let state = || &publisher.pool.record(record).state;
        protocol::mark(state(), 1);
        let short = Duration::from_millis(200);
        assert_eq!(observer.each(short).unwrap_err().status, Status::TimedOut);
        assert_eq!(observer.at(1, short).unwrap_err().status, Status::TimedOut);
        assert_eq!(observer.at(1, Duration::ZERO).unwrap_err().status, Status::NotYet);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| observer.each(Duration::from_secs(20)).unwrap().sequence());
            std::thread::sleep(short);
            protocol::settle(state(), 1, true);
            assert_eq!(waits.join().unwrap(), 1);
        });
        // The test makes version 2 visible only after a while. From then on, the version's state says that the
        // publisher is deciding whether to recycle the version, and no decision comes. So `at` first waits for the
        // version, and then for the decision. One timeout must limit the sum of both waits.
        let timeout = Duration::from_secs(8);
        let record = publisher.records.iter().position(|sequence| *sequence == 2).unwrap() as u32;
        let version_words = &publisher.pool.header().version_words;
        let newest = version_words.latest.swap(0, SeqCst);
        protocol::mark(&publisher.pool.record(record).state, 2);
        let began = Instant::now();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| observer.at(2, timeout).unwrap_err().status);
            std::thread::sleep(timeout * 7 / 8);
            version_words.latest.store(newest, SeqCst);
            assert_eq!(waits.join().unwrap(), Status::TimedOut);
        });
        assert!(began.elapsed() < timeout * 3 / 2, "it waited for {:?}", began.elapsed());
    }
}

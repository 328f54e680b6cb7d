//! The state that all versions of one observer share: the mapped pool, the page in which the observer notes the
//! versions that it uses (its pins), and the list of pins in use.

use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::{Arc, Mutex};

use crossdock_layout::series::state::Latest;
use crossdock_layout::series::{AtomicU64, PINS, PinSlot, STATE_ENDED};
use crossdock_layout::wire::SegmentKind;
use crossdock_layout::{MemberId, SegmentId, Status};
use crossdock_os::{Mapping, OwnFile, fork};

use super::describe::Description;
use super::observer::{Found, PublisherState};
use super::pins;
use super::plan::Span;
use super::pool::Pool;
use super::protocol::{self, PinResult};
use super::spec::no_variable;
use crate::Host;
use crate::error::Reason;
use crate::{Error, Result, fault_point};

/// How often an observer tries to pin a version while the publisher decides whether to retire that version.
/// After that the observer gives up.
const PATIENCE: u32 = 1000;
/// The number of attempts to pin a version after which the observer asks the kernel whether the publisher is dead.
const QUICK: u32 = 10;

/// The mapped pool, the pin page and the pins in use of one observer. The observer and its versions share this value.
pub(super) struct Attached {
    pub name: String,
    pub pool: Pool,
    pub descriptor: OwnFile,
    pub spans: Vec<Span>,
    pub segment: SegmentId,
    pub publisher: MemberId,
    pub description: Description,
    /// True if the publisher may take versions back from observers that hold them. In this case an observer copies
    /// all data before it reads them.
    pub takes_back: bool,
    /// The mapped pin page. This observer's slot in it has the index `slot`.
    pub pins: Mapping,
    pub slot: u32,
    /// The pins of this observer that are in use, one bit for each pin.
    pub in_use: Mutex<u32>,
    /// Held by a thread of this observer while it stores the observer's `sleeps_at`, so that no thread overwrites the
    /// value with an older one.
    pub sleep: Mutex<()>,
    pub host: Arc<dyn Host>,
    pub process: fork::ProcessToken,
}

impl Attached {
    pub fn newest(&self) -> Latest {
        Latest(self.pool.header().version_words.latest.load(Acquire))
    }

    pub fn state(&self) -> PublisherState {
        if self.pool.header().version_words.state.load(Acquire) == STATE_ENDED {
            return PublisherState::Ended;
        }
        let dead = self.host.liveness().is_dead(self.publisher);
        if dead { PublisherState::Died } else { PublisherState::Live }
    }

    /// Tells whether the liveness table says that the publisher is dead. The table may be out of date, so a publisher
    /// may be dead although the answer is `false`.
    fn is_known_dead(&self) -> bool {
        self.host.liveness().table().says_dead(self.publisher)
    }

    /// Tells whether this process can know, without a system call, that the publisher will publish no further version.
    /// Unlike [`Self::over`], this function does not ask the kernel whether the publisher is alive.
    pub fn is_known_over(&self) -> bool {
        self.pool.header().version_words.state.load(Acquire) == STATE_ENDED || self.is_known_dead()
    }

    /// Gives the error that says why no further version will come; `None` while the publisher is alive.
    pub fn over(&self) -> Option<Error> {
        match self.state() {
            PublisherState::Live => None,
            PublisherState::Ended => {
                let mut text = format!("its publisher ended in order after version {}", self.newest().sequence());
                let withheld = self.pool.header().report.withheld_now.load(Relaxed);
                if withheld > 0 {
                    text += &format!(
                        "; {withheld} later version(s) were withheld for lack of room or of an answer of the daemon"
                    );
                }
                Some(self.error(Status::Closed, text))
            }
            PublisherState::Died => {
                let who = self.host.describe(self.publisher);
                let text = format!("its publisher, {who}, died after version {}", self.newest().sequence());
                Some(self.error(Status::PeerDied, format!("{text}; attach again to its successor's")))
            }
        }
    }

    /// Gives the state word of a version's record. The caller has pinned the version.
    pub fn state_of(&self, record: u32) -> &AtomicU64 {
        &self.pool.record(record).state
    }

    fn slot(&self) -> &PinSlot {
        pins::slot(&self.pins, self.slot)
    }

    /// A thread calls this function before it sleeps until the word `published` changes from `expected`. After that the
    /// publisher wakes the thread when it changes the word. Returns `false` if the word has changed already.
    ///
    /// # Errors
    /// `DISCONNECTED` in a forked child.
    pub fn note_sleep(&self, expected: u32) -> Result<bool> {
        // In a forked child the lock may be held forever.
        self.check_process()?;
        let _only_one = self.sleep.lock().expect("no holder panics");
        let published = &self.pool.header().version_words.published;
        Ok(protocol::note_sleep(published, &self.slot().sleeps_at, expected))
    }

    /// Gives the pin with this number in the observer's slot.
    fn pin_word(&self, pin: usize) -> &AtomicU64 {
        &self.slot().pins[pin]
    }

    /// Checks that this process opened the observer itself, rather than inherited it by fork.
    pub fn check_process(&self) -> Result<()> {
        if self.process.is_current() {
            return Ok(());
        }
        Err(Error::because(Status::Disconnected, Reason::Forked).about(SegmentKind::Series, &self.name))
    }

    /// Pins a version, and gives the number of the pin.
    pub fn pin(&self, which: Latest) -> Result<Found<usize>> {
        self.check_process()?;
        let record = u32::from(which.record());
        if record >= self.pool.geometry().counts.records {
            return Err(self.corrupt("its newest version lies outside its table"));
        }
        let pin = {
            let mut in_use = self.in_use.lock().expect("no holder panics");
            let free = in_use.trailing_ones() as usize;
            if free >= PINS {
                let text = format!("this observer holds {PINS} versions; release one first");
                return Err(self.error(Status::Busy, text));
            }
            *in_use |= 1 << free;
            free
        };
        // The observer raises the count of pins before it stores the pin, and does both before the fence in
        // `protocol::pin`. So a publisher that sees the pin also sees a count that includes the pin.
        self.slot().count.for_stores().fetch_max(pin as u32 + 1, Relaxed);
        for turn in 0..PATIENCE {
            // The kernel is asked only if the publisher seems to have died while it was retiring the version.
            let dead = self.is_known_dead() || turn > QUICK && self.state() == PublisherState::Died;
            match protocol::pin(self.pin_word(pin), self.state_of(record), which.sequence(), dead) {
                PinResult::Held => {
                    fault_point!("series.pin.held");
                    return Ok(Found::There(pin));
                }
                PinResult::AskAgain => std::thread::yield_now(),
                PinResult::Gone => {
                    self.give_back(pin);
                    return Ok(Found::Gone);
                }
            }
        }
        self.give_back(pin);
        Ok(Found::Undecided)
    }

    /// Unpins a version. A forked child does nothing here, because the pins belong to its parent.
    pub fn unpin(&self, pin: usize) {
        if self.process.is_current() {
            protocol::unpin(self.pin_word(pin));
            self.give_back(pin);
        }
    }

    fn give_back(&self, pin: usize) {
        *self.in_use.lock().expect("no holder panics") &= !(1 << pin);
    }

    /// Gives the index, in the description, of the variable with this name.
    pub fn index(&self, variable: &str) -> Result<usize> {
        let found = self.description.variables.iter().position(|known| known.name == variable);
        found.ok_or_else(|| no_variable(variable).about(SegmentKind::Series, &self.name))
    }

    /// Makes an error that names this series.
    #[cold]
    pub fn error(&self, status: Status, text: impl std::fmt::Display) -> Error {
        Error::new(status, text.to_string()).about(SegmentKind::Series, &self.name)
    }

    /// Makes the error for shared memory with contents that no correct publisher writes.
    #[cold]
    pub fn corrupt(&self, what: impl std::fmt::Display) -> Error {
        Error::because(Status::Corrupt, Reason::Damaged(what.to_string())).about(SegmentKind::Series, &self.name)
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        // Each version that the program holds keeps this value alive, so no pin of the observer should be in use now.
        // All pins are set to zero anyway, because a forgotten pin would keep a version's memory in the pool.
        if self.process.is_current() {
            (0..PINS).for_each(|pin| self.pin_word(pin).store(0, Relaxed));
        }
    }
}

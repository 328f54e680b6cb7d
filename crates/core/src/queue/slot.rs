//! The only code that loads and stores the words of a port's end slots. All of them are in shared memory, and any
//! member can overwrite them. The words are compared, counted and shown; none becomes an address, a length or an
//! index.

use crossdock_layout::MemberId;
use crossdock_layout::queue::{AtomicU64, EndSlot, HEALING, NAME_BYTES};
use crossdock_os::clock;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::time::Duration;

use crate::liveness::LivenessSource;

/// The words of an end slot that contain the name of the task that has the end.
pub(super) type NameWords = [AtomicU64; NAME_BYTES / 8];

/// An end slot of a port that this process has mapped.
#[derive(Clone, Copy)]
pub(super) struct SlotRef<'a>(&'a EndSlot);

/// The owner word of an end slot: which member holds the end, or heals it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Owner(u64);

impl Owner {
    pub(super) const NONE: Self = Self(0);

    pub(super) fn healing(me: MemberId) -> Self {
        Self(HEALING | me.0)
    }

    pub(super) fn is_none(self) -> bool {
        self == Self::NONE
    }

    pub(super) fn is_healing(self) -> bool {
        self.0 & HEALING != 0
    }

    /// The member that holds the end; `None` if the end is free or is being healed.
    pub(super) fn member(self) -> Option<MemberId> {
        (!self.is_none() && !self.is_healing()).then_some(MemberId(self.0))
    }

    /// Tells whether the member that holds or heals the end is dead.
    pub(super) fn is_gone(self, alive: &dyn LivenessSource) -> bool {
        alive.is_dead(MemberId(self.0 & !HEALING))
    }

    /// Tells whether a living member holds the end.
    pub(super) fn lives(self, alive: &dyn LivenessSource) -> bool {
        self.member().is_some_and(|member| !alive.is_dead(member))
    }
}

impl From<MemberId> for Owner {
    fn from(member: MemberId) -> Self {
        Self(member.0)
    }
}

impl<'a> SlotRef<'a> {
    #[inline]
    pub(super) fn new(slot: &'a EndSlot) -> Self {
        Self(slot)
    }

    #[inline]
    pub(super) fn owner(self) -> Owner {
        Owner(self.0.holder.owner.load(Acquire))
    }

    /// Replaces the owner `from` by `to`, unless another member was faster. Gives `true` if the owner was replaced.
    pub(super) fn change_owner(self, from: impl Into<Owner>, to: impl Into<Owner>) -> bool {
        self.0.holder.owner.compare_exchange(from.into().0, to.into().0, AcqRel, Relaxed).is_ok()
    }

    /// Frees the end. Only its owner or the member that heals it may do this.
    pub(super) fn free(self) {
        self.0.holder.owner.store(0, Release);
    }

    /// Tells whether the member of this end slot is at the port. A member that is just joining or leaving does not
    /// count.
    pub(super) fn is_here(self) -> bool {
        self.0.holder.here.load(Acquire) == 1
    }

    /// Stores whether the member is at the port: `true` after it has joined, `false` before it leaves.
    pub(super) fn set_here(self, here: bool) {
        self.0.holder.here.store(u32::from(here), Release);
    }

    /// The id of the member that has the end, or had it before another member began to heal the end.
    pub(super) fn member(self) -> MemberId {
        MemberId(self.0.holder.member.load(Relaxed))
    }

    /// The words of the end slot that contain the task's name.
    pub(super) fn name(self) -> &'a NameWords {
        &self.0.holder.name
    }

    /// Notes which member and which task now have the end.
    pub(super) fn begin(self, me: MemberId, name: &str) {
        self.0.holder.member.store(me.0, Relaxed);
        store_name(&self.0.holder.name, name);
        self.set_waiting(false);
        self.0.counters.tenancy.fetch_add(1, Relaxed);
        self.see();
    }

    /// The position in the ring at which this end works next.
    pub(super) fn cursor(self) -> u64 {
        self.0.counters.cursor.load(Relaxed)
    }

    #[inline]
    pub(super) fn set_cursor(self, position: u64) {
        self.0.counters.cursor.store(position, Relaxed);
    }

    /// Counts one more message. Plain stores are enough, because only the end's owner writes the counters.
    #[inline]
    pub(super) fn count_message(self, bytes: u64) {
        let counters = &self.0.counters;
        let messages = counters.messages.load(Relaxed).wrapping_add(1);
        counters.messages.store(messages, Relaxed);
        if bytes > 0 {
            counters.bytes.store(counters.bytes.load(Relaxed).wrapping_add(bytes), Relaxed);
        }
        // Reading the clock, even the coarse one, takes a quarter of the time that a message takes. So the clock is
        // read only at every sixteenth message. If messages are rare, the member sleeps between them, and the clock is
        // read at each sleep and wake.
        if messages % 16 == 1 {
            self.see();
        }
    }

    pub(super) fn count_copied(self, bytes: u64) {
        self.0.counters.copied.fetch_add(bytes, Relaxed);
    }

    #[inline]
    pub(super) fn count_wait(self, ns: u64) {
        self.0.counters.wait_ns.fetch_add(ns, Relaxed);
    }

    pub(super) fn count_sleep(self) {
        self.0.counters.sleeps.fetch_add(1, Relaxed);
    }

    pub(super) fn count_wake(self) {
        self.0.counters.wakes.fetch_add(1, Relaxed);
    }

    #[inline]
    pub(super) fn set_waiting(self, waiting: bool) {
        self.0.counters.waiting.store(u32::from(waiting), Relaxed);
    }

    /// Tells whether the end waits for a message or a free cell.
    pub(super) fn is_waiting(self) -> bool {
        self.0.counters.waiting.load(Acquire) != 0
    }

    /// Stores the present time as the time at which the end last did something.
    #[inline]
    pub(super) fn see(self) {
        self.see_at(clock::coarse_ns());
    }

    /// Stores `ns` as the time at which the end last did something, in nanoseconds of the monotonic clock.
    #[inline]
    pub(super) fn see_at(self, ns: u64) {
        self.0.counters.last_seen.store(ns, Relaxed);
    }

    /// The time when the end last did something, in nanoseconds of the monotonic clock.
    pub(super) fn last_seen(self) -> u64 {
        self.0.counters.last_seen.load(Relaxed)
    }

    /// The counters of the slot's present owner and its former owners together. Members write these numbers, and no
    /// code checks them.
    pub(super) fn totals(self) -> Totals {
        let counters = &self.0.counters;
        Totals {
            messages: counters.messages.load(Relaxed),
            wait_ns: counters.wait_ns.load(Relaxed),
            bytes: counters.bytes.load(Relaxed),
            copied: counters.copied.load(Relaxed),
            sleeps: counters.sleeps.load(Relaxed).into(),
            wakes: counters.wakes.load(Relaxed).into(),
        }
    }
}

/// The counters of an end slot.
pub(super) struct Totals {
    pub(super) messages: u64,
    pub(super) wait_ns: u64,
    pub(super) bytes: u64,
    pub(super) copied: u64,
    pub(super) sleeps: u64,
    pub(super) wakes: u64,
}

fn store_name(words: &NameWords, name: &str) {
    let mut bytes = [0; NAME_BYTES];
    let length = name.len().min(NAME_BYTES);
    bytes[..length].copy_from_slice(&name.as_bytes()[..length]);
    for (word, bytes) in words.iter().zip(bytes.chunks_exact(8)) {
        word.store(u64::from_le_bytes(bytes.try_into().expect("chunks of eight")), Relaxed);
    }
}

/// Reads the name of a task. Any member may have written it, so everything but printable ASCII is shown as `?`.
pub(super) fn load_name(words: &NameWords) -> String {
    let bytes = words.iter().flat_map(|word| word.load(Relaxed).to_le_bytes());
    bytes.take_while(|&b| b != 0).map(|b| if b.is_ascii_graphic() { b as char } else { '?' }).collect()
}

/// The time that has passed since `ns`, a time of the monotonic clock in nanoseconds.
pub(super) fn since(ns: u64) -> Duration {
    Duration::from_nanos(clock::now_ns().saturating_sub(ns))
}

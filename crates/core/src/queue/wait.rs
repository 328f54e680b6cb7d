//! Waiting: an end spins as long as that pays. Then it sleeps on two futex words: the word of its side of the port, and
//! the liveness table's word that changes with each death.
//!
//! A wait ends when its deadline passes or when the awaited change comes. It also ends when no member is left that
//! could make this change: the last one that this end has met has died or left (`ends.rs` defines "met").

use crossdock_layout::queue::AtomicU64;
use crossdock_layout::queue::state::Phase;
use crossdock_layout::{MemberId, Status};
#[cfg(not(loom))]
use crossdock_os::futex;
use crossdock_os::{Deadline, clock, process};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use super::end::End;
use super::ends::{Joined, PeersGone};
use super::error::{Attempt, Error};
use super::ring::Ring;
use super::signal;
use super::spin::{IDLE_YIELD, TOO_LONG, TURNS, spin_while};
use super::{Pattern, Side};
use crate::Host;
use crate::error::Reason;
use crate::liveness::{LOOK, epoch_word};

/// The shortest time in nanoseconds after which an end asks the kernel again which members are dead. A sleep usually
/// lasts longer than this time.
const ASK_EVERY: u64 = 20_000_000;
/// The longest wait: a year. A limit is needed, because sums of times must not overflow.
const FOR_EVER: Duration = Duration::from_secs(365 * 86_400);

/// The state of a wait that spins until its deadline. The wait adds its time to the statistics after each attempt that
/// found nothing, so that this work does not delay the program when the message has come.
pub(super) struct SpinWait {
    /// The time when the wait began. Like all times in this struct, it is in nanoseconds of the monotonic clock.
    began: u64,
    /// The time up to which the wait has been added to the end's counter `wait_ns`.
    counted: u64,
    /// The time when the end last looked for dead members.
    looked: u64,
}

/// The time in nanoseconds after which an end that spins until its deadline looks for dead members again.
const LOOKS_UP: u64 = 1_000_000;

impl End {
    /// Waits until `attempt` succeeds. The caller has made the first attempt already. `what` says in error messages
    /// what the end waits for.
    #[cold]
    pub(super) fn wait<T>(
        &self,
        timeout: Duration,
        what: &'static str,
        attempt: &mut dyn FnMut() -> Attempt<T>,
    ) -> Result<T, Error> {
        self.wait_until(timeout, what, attempt, true)
    }

    /// Waits as `wait` does. If the end has already spun in this call, `spin_wait` has the state of that spin, and the
    /// time of the spin is subtracted from the timeout.
    #[cold]
    pub(super) fn wait_on<T>(
        &self,
        spin_wait: Option<SpinWait>,
        timeout: Duration,
        what: &'static str,
        attempt: &mut dyn FnMut() -> Attempt<T>,
    ) -> Result<T, Error> {
        let Some(spin_wait) = spin_wait else { return self.wait(timeout, what, attempt) };
        let slept = Instant::now();
        let left = timeout.saturating_sub(Duration::from_nanos(spin_wait.counted - spin_wait.began));
        let ended = self.sleep_until(slept + left.min(FOR_EVER), timeout, what, attempt, true);
        self.waited(slept.elapsed());
        ended
    }

    /// Decides how an end goes on after a few attempts that found nothing. The answer is `true` if the end is to go on
    /// spinning; the caller then tries again. The answer is `false` if the caller must sleep or give up, for one of
    /// four reasons: this end is not one that spins up to its deadline; the deadline has passed; this call has healed a
    /// dead member's end; or no peer is left.
    #[inline]
    pub(super) fn keep_vigil(&self, spin_wait: &mut Option<SpinWait>, timeout: Duration) -> bool {
        if timeout.is_zero() || !self.spinner.spins_for_good() {
            return false;
        }
        let (now, slot) = (clock::now_ns(), self.slot());
        let Some(spin_wait) = spin_wait else {
            slot.set_waiting(true);
            *spin_wait = Some(SpinWait { began: now, counted: now, looked: now });
            return true;
        };
        slot.count_wait(now - spin_wait.counted);
        slot.see_at(now);
        spin_wait.counted = now;
        if u128::from(now - spin_wait.began) >= timeout.as_nanos() {
            return false;
        }
        if now - spin_wait.looked < LOOKS_UP {
            return true;
        }
        spin_wait.looked = now;
        !self.look_after() && self.over().is_none()
    }

    /// Waits until the other side gets a member. Unlike `wait`, this function goes on waiting while the other side has
    /// no member.
    pub(super) fn wait_for_company(
        &self,
        timeout: Duration,
        attempt: &mut dyn FnMut() -> Attempt<()>,
    ) -> Result<(), Error> {
        self.wait_until(timeout, "a task at the other end", attempt, false)
    }

    fn wait_until<T>(
        &self,
        timeout: Duration,
        what: &'static str,
        attempt: &mut dyn FnMut() -> Attempt<T>,
        needs_peer: bool,
    ) -> Result<T, Error> {
        if timeout.is_zero() {
            return self.poll(attempt, needs_peer);
        }
        let timeout = timeout.min(FOR_EVER);
        let started = Instant::now();
        let slot = self.slot();
        slot.set_waiting(true);
        // The last reading of the clock. If the attempt succeeds during the spin, this reading counts as the end of the
        // wait. A new reading of the clock would delay the message.
        let mut clock = started;
        let ended = match self.spin(started, &mut clock, timeout, attempt).transpose() {
            Some(ended) => ended,
            None => {
                let ended = match self.give_way(attempt).transpose() {
                    Some(ended) => ended,
                    None => self.sleep_until(started + timeout, timeout, what, attempt, needs_peer),
                };
                clock = Instant::now();
                ended
            }
        };
        if clock == started {
            slot.set_waiting(false);
        } else {
            self.waited(clock.duration_since(started));
        }
        ended
    }

    /// Adds the time of a wait that has ended to the statistics of this end.
    fn waited(&self, time: Duration) {
        let slot = self.slot();
        slot.set_waiting(false);
        slot.count_wait(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        slot.see();
    }

    fn sleep_until<T>(
        &self,
        until: Instant,
        timeout: Duration,
        what: &'static str,
        attempt: &mut dyn FnMut() -> Attempt<T>,
        needs_peer: bool,
    ) -> Result<T, Error> {
        let deadline = Deadline::after(until.saturating_duration_since(Instant::now()));
        let alive = self.host.liveness();
        let word = self.ring.signal(self.side);
        loop {
            // The order matters: the count of deaths and the futex word of this side of the port are read before the
            // attempt. If a message, a free cell or a death comes after the attempt, one of these two values has
            // changed, and the sleep ends immediately.
            let epoch = alive.epoch();
            let expected = signal::announce(word);
            crate::fault_point!("queue.wait.announced");
            if let Some(done) = attempt()? {
                return Ok(done);
            }
            let healed = self.look_after();
            if let Some(over) = needs_peer.then(|| self.over()).flatten() {
                // The last peer is gone, so everything that it did is visible now. One more attempt finds, for example,
                // its last message.
                return attempt()?.ok_or(over);
            }
            if deadline.passed() {
                return attempt()?.ok_or_else(|| self.timed_out(what, timeout));
            }
            if !healed {
                self.slot().count_sleep();
                self.ring.sleep(self.side, expected, (epoch_word(alive), epoch), deadline.at_most(LOOK));
                self.slot().see();
                if let Some(done) = attempt()? {
                    return Ok(done);
                }
            }
        }
    }

    /// Sleeps at most `timeout`, until a message, a free cell or a death comes. A thread that watches the end for an
    /// event loop calls this function. Returns `true` if a call with timeout zero may now give anything but `NOT_YET`.
    pub fn wait_for_event(&self, timeout: Duration) -> bool {
        let alive = self.host.liveness();
        let epoch = alive.epoch();
        let expected = signal::announce(self.ring.signal(self.side));
        if self.has_event() {
            return true;
        }
        self.ring.sleep(self.side, expected, (epoch_word(alive), epoch), Deadline::after(timeout));
        self.has_event()
    }

    /// Ends a call with timeout zero that found nothing. Returns the error "not yet", or the error that says why the
    /// awaited change will never come.
    fn poll<T>(&self, attempt: &mut dyn FnMut() -> Attempt<T>, needs_peer: bool) -> Result<T, Error> {
        self.look_after();
        let over = if needs_peer { self.over() } else { None };
        attempt()?.ok_or_else(|| over.unwrap_or_else(|| Error::because(Status::NotYet, Reason::NothingYet)))
    }

    fn spin<T>(
        &self,
        started: Instant,
        clock: &mut Instant,
        timeout: Duration,
        attempt: &mut dyn FnMut() -> Attempt<T>,
    ) -> Attempt<T> {
        let allowance = self.spinner.allowance(process::processors());
        if allowance.is_some_and(|allowance| allowance.is_zero()) {
            return Ok(None);
        }
        // An end that spins until its deadline looks for dead members a thousand times per second.
        let slice = allowance.unwrap_or(Duration::from_millis(1));
        loop {
            let until = *clock + slice.min(timeout.saturating_sub(*clock - started));
            loop {
                let word = self.watched();
                let seen = word.load(Relaxed);
                if let Some(done) = attempt()? {
                    self.spinner.learn(true);
                    return Ok(Some(done));
                }
                if !spin_while(until, clock, || word.load(Relaxed) == seen) {
                    break;
                }
                if let Some(done) = attempt()? {
                    self.spinner.learn(true);
                    return Ok(Some(done));
                }
            }
            let goes_on = allowance.is_none() && *clock - started < timeout;
            if !goes_on || self.look_after() || self.over().is_some() {
                self.spinner.learn(false);
                return Ok(None);
            }
        }
    }

    /// Yields the CPU to other threads a few times and tries the action after each yield, if yielding pays. `spin.rs`
    /// explains when it pays.
    fn give_way<T>(&self, attempt: &mut dyn FnMut() -> Attempt<T>) -> Attempt<T> {
        if !self.spinner.gives_way() {
            return Ok(None);
        }
        let started = Instant::now();
        let mut before = started;
        for _ in 0..TURNS {
            std::thread::yield_now();
            let now = Instant::now();
            if let Some(done) = attempt()? {
                self.spinner.learn_way(now - started < TOO_LONG);
                return Ok(Some(done));
            }
            if now - before < IDLE_YIELD || now - started > TOO_LONG {
                break;
            }
            before = now;
        }
        self.spinner.learn_way(false);
        Ok(None)
    }

    /// This end waits for a message or for a free cell. The result is the word in shared memory that changes when the
    /// message or the free cell comes.
    #[inline]
    pub(super) fn watched(&self) -> &AtomicU64 {
        let position = match (self.side, self.shape().pattern) {
            (Side::Producer, Pattern::FanIn | Pattern::WorkQueue) => self.ring.header().sending.head.load(Relaxed),
            (Side::Consumer, Pattern::FanIn | Pattern::WorkQueue) => self.ring.header().taking.tail.load(Relaxed),
            _ => self.next(),
        };
        self.ring.cell(position).watched()
    }

    /// Heals what dead members left at this port. If anything was healed, wakes all members and returns `true`; the
    /// caller then tries again.
    pub(super) fn look_after(&self) -> bool {
        // The kernel is asked at most once in the time `ASK_EVERY`. So an end that polls or spins does not ask the
        // kernel after each attempt.
        let alive = if self.may_ask() { self.host.liveness() } else { self.host.liveness().table() };
        let mut healed = self.ring.look_after_all(self.me, alive);
        if self.side == Side::Producer && self.shape().pattern == Pattern::FanOut {
            healed |= self.ring.look_after_strays(self.next(), self.me, alive);
        }
        if healed {
            self.call(Side::Producer);
            self.call(Side::Consumer);
        }
        healed
    }

    /// Tells whether it is time to ask the kernel which members are dead.
    fn may_ask(&self) -> bool {
        let now = clock::coarse_ns();
        let last = self.asked.load(Relaxed);
        let due = now.saturating_sub(last) >= ASK_EVERY;
        if due {
            self.asked.store(now, Relaxed);
        }
        due
    }

    /// Returns the error that ends a wait when all members that this end has met are gone. If this end has met no
    /// member, the result is `None`, so the end waits until its deadline.
    pub(super) fn over(&self) -> Option<Error> {
        let other = self.side.other();
        // The caller has called `look_after` before, which has freed the ends of the members that it found dead. An end
        // that is not free belongs to a living member, or to a dead one whose death is not recorded yet: another member
        // is healing the end at this moment, or the death became known only after `look_after`. How the members of the
        // other side went is known only when all of these ends are free.
        if self.ring.has_members(other) || !self.ring.has_met(self.side, &self.met) {
            return None;
        }
        if self.side == Side::Consumer && self.ring.others_still_work(self.slot) {
            return None;
        }
        let (status, reason) = match self.ring.how_they_went(self.side, &self.met) {
            PeersGone::Left => (Status::Closed, Reason::PeersLeft(other)),
            PeersGone::Died => {
                self.note_deaths(other);
                (Status::PeerDied, Reason::PeersDied(other))
            }
            PeersGone::Unsettled => return None,
        };
        Some(Error::because(status, reason).with_peer(self.ring.who_left(other)))
    }

    #[cold]
    fn timed_out(&self, what: &'static str, timeout: Duration) -> Error {
        let other = self.side.other();
        let held = if self.side == Side::Consumer { self.ring.held(self.slot, self.next()) } else { 0 };
        let alone = || self.ring.living(other, self.host.liveness()) == 0 && !self.ring.has_met(self.side, &self.met);
        let (reason, peer) = if held == self.ring.shape().capacity as usize {
            (Reason::HoldsAll(held), None)
        } else if alone() {
            (Reason::NoPeer(other), self.ring.who_was_here(other))
        } else {
            (Reason::PeersIdle, Some(self.ring.who_is_at(other, self.host.liveness())))
        };
        let error = Error::because(Status::TimedOut, reason).waited(what, timeout);
        match peer {
            Some(peer) => error.with_peer(peer),
            None => error,
        }
    }
}

/// How long a joining member waits for another member that is healing an end. Healing takes microseconds, unless the
/// healing member is stopped.
const HEALING_TIME: Duration = Duration::from_millis(50);

impl Ring {
    /// Takes an end slot of a side. If all slots are taken, waits until one becomes free.
    pub(super) fn join_within(
        &self,
        side: Side,
        me: MemberId,
        name: &str,
        host: &dyn Host,
        timeout: Duration,
    ) -> Result<Joined, Error> {
        let alive = host.liveness();
        let patience = Deadline::after(HEALING_TIME);
        let deadline = Deadline::after(timeout);
        loop {
            if host.is_closing() {
                return Err(Error::new(Status::Closed, "the session was closed while this call waited for an end"));
            }
            // A member that leaves or heals wakes both sides, so it is enough to sleep on the futex word of this side.
            let epoch = alive.epoch();
            let expected = signal::announce(self.signal(side));
            let until = match self.join(side, me, name, alive, !patience.passed()) {
                Err(not_yet) if not_yet.status == Status::NotYet => patience,
                Err(busy) if busy.status == Status::Busy && !deadline.passed() => deadline,
                other => return other,
            };
            self.sleep(side, expected, (epoch_word(alive), epoch), until.at_most(Duration::from_millis(20)));
        }
    }

    /// Work queue: tells whether another consumer has a message that it has not released. If that consumer dies, this
    /// message comes to one of the waiting consumers. A consumer that is itself waiting does not count, because
    /// otherwise two consumers that each hold a message would wait for each other. An end counts while its consumer is
    /// leaving it or another member is healing it, because its messages may be ready again although the counter
    /// `returned` has not changed yet.
    pub(super) fn others_still_work(&self, own: u8) -> bool {
        if self.shape.pattern != Pattern::WorkQueue {
            return false;
        }
        let works = |index: u8| self.slots(Side::Consumer).nth(index.into()).is_some_and(|slot| !slot.is_waiting());
        let taken = self.cells().any(|cell| {
            let seen = cell.state();
            seen.phase() == Some(Phase::Taken) && seen.end() != own && works(seen.end())
        });
        // The order matters: the cells are read before the owners. Suppose that a message became ready again before its
        // cell was read, because its consumer left or died. Then this line sees that the consumer's end is being left
        // or healed, or the end is free already. If the end is free, the counter `returned` has changed, and the
        // caller's next attempt finds the message.
        taken || self.slots(Side::Consumer).any(|slot| slot.owner().is_healing())
    }

    fn sleep(&self, side: Side, expected: u32, deaths: (&std::sync::atomic::AtomicU32, u32), deadline: Deadline) {
        #[cfg(not(loom))]
        futex::wait_either((&self.signal(side).word, expected), deaths, deadline);
        #[cfg(loom)]
        let _ = (side, expected, deaths, deadline);
    }

    pub(super) fn wake_sleepers(&self, side: Side) {
        #[cfg(not(loom))]
        futex::wake_all(&self.signal(side).word);
        #[cfg(loom)]
        let _ = side;
    }
}

//! One end of a port, as the client library uses it. An end tries an action (a send or a receive) under a lock of
//! this process. It waits without the lock.

use crossdock_layout::queue::state::Phase;
use crossdock_layout::{Handle, MemberId, Status};
use crossdock_os::fork;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::time::Duration;

use super::Side;
use super::Waiting;
use super::ends::MetPeers;
use super::error::{Attempt, Error};
use super::message::Message;
use super::postponed_healing;
use super::produce::CellAvailability;
use super::release::not_yours;
use super::report::PortStatistics;
use super::ring::{Ring, Shape};
use super::signal;
use super::slot::SlotRef;
use super::spin::Spinner;
use super::spin_lock::{SpinLock, SpinLockGuard};
use crate::Host;
use crate::error::Reason;
use crate::liveness::count_shown;
use crate::region::heal_all;

/// What a producer waits for, as error messages name it.
const ROOM: &str = "room in the port";

/// The number of times that a short spin looks at a word before a longer wait begins. Such a spin takes one to three
/// microseconds.
const BRIEF: u32 = 50;

/// One end of a port. The threads of one process may share it. Dropping the value closes the end, as [`End::close`]
/// does.
pub struct End {
    pub(super) ring: Ring,
    pub(super) side: Side,
    pub(super) slot: u8,
    /// The index of `slot` among all end slots of the port.
    slot_index: u8,
    pub(super) me: MemberId,
    pub(super) host: Arc<dyn Host>,
    pub(super) spinner: Spinner,
    pub(super) met: MetPeers,
    /// For each side: the number that `Ring::deaths` gave when this end last healed the session's regions.
    deaths: [AtomicU32; 2],
    local: SpinLock<LocalState>,
    /// A copy of `local.next`, which can be read without the lock.
    next: AtomicU64,
    closed: AtomicBool,
    /// The time at which this end last asked the kernel which members are dead.
    pub(super) asked: AtomicU64,
    process: fork::ProcessToken,
}

struct LocalState {
    /// For a single producer: the position of its next message. For a consumer with its own cursor: the position that
    /// it reads next.
    next: u64,
    /// Messages that this end has taken from the ring and not given to the program yet: one that `has_event` found,
    /// and those that the program put back. The next calls of `receive` return them, the oldest first. The oldest one
    /// is the last in this list.
    found: Vec<Message>,
}

impl LocalState {
    #[cold]
    fn take_found(&mut self, out: &mut Message) -> Option<u64> {
        *out = self.found.pop()?;
        Some(out.position)
    }

    #[cold]
    fn keep_found(&mut self, message: Message) {
        let place = self.found.partition_point(|later| later.position > message.position);
        self.found.insert(place, message);
    }
}

/// An action that an end tries until it succeeds. Its result is a message's position. The action is a trait, so that
/// the compiler inlines the attempt into the loop that spins. A closure would become a separate function, because the
/// code of longer waits would call the closure as well.
trait Operation {
    fn attempt(&mut self, end: &End) -> Attempt<u64>;
}

struct SendOperation<'a> {
    message: &'a Message,
    bytes: u64,
}

impl Operation for SendOperation<'_> {
    #[inline(always)]
    fn attempt(&mut self, end: &End) -> Attempt<u64> {
        end.try_send(self.message, self.bytes)
    }
}

struct ReceiveOperation<'a> {
    out: &'a mut Message,
}

impl Operation for ReceiveOperation<'_> {
    #[inline(always)]
    fn attempt(&mut self, end: &End) -> Attempt<u64> {
        end.try_receive(self.out)
    }
}

impl End {
    /// Takes an end slot of a port. `name` is the task's name, for the error messages of other members. If all slots of
    /// the side have living members, the call waits up to `timeout`.
    ///
    /// # Errors
    /// `BUSY` if the timeout passes; the error names the members that have the slots. `CLOSED` if another thread closes
    /// the session meanwhile. `CORRUPT` if the port's memory holds what no correct member writes.
    pub fn open(
        ring: Ring,
        side: Side,
        me: MemberId,
        name: &str,
        host: Arc<dyn Host>,
        timeout: Duration,
    ) -> Result<Self, Error> {
        let joined = ring.join_within(side, me, name, &*host, timeout)?;
        let end = Self {
            slot_index: ring.slot_index(side, joined.slot),
            ring,
            side,
            slot: joined.slot,
            me,
            host,
            spinner: Spinner::new(),
            met: joined.met,
            deaths: Default::default(),
            local: SpinLock::new(LocalState { next: joined.next, found: Vec::new() }),
            next: AtomicU64::new(joined.next),
            closed: AtomicBool::new(false),
            asked: AtomicU64::new(0),
            process: fork::ProcessToken::current(),
        };
        // A member that had this end slot before may have died, and this end may get messages that the dead member
        // left. So the regions are healed first.
        end.heal();
        end.call(Side::Producer);
        end.call(Side::Consumer);
        Ok(end)
    }

    /// Sends a message, and waits up to `timeout` for a free cell. Gives the message's position.
    ///
    /// # Errors
    /// `TIMED_OUT` if no cell is free before the timeout; `NOT_YET` if no cell is free and the timeout is zero.
    /// `CLOSED` if all consumers that this end has met have left, `PEER_DIED` if one of them died, and `CLOSED` after
    /// [`End::close`]. `INVALID` if this end is no producer. `CORRUPT` if the port's memory holds what no correct
    /// member writes. `DISCONNECTED` in a forked child, or if the daemon has declared this member dead. In each case
    /// nothing was sent.
    #[inline]
    pub fn send(&self, message: &Message, bytes: u64, timeout: Duration) -> Result<u64, Error> {
        self.check(Side::Producer)?;
        match self.try_send(message, bytes) {
            Ok(Some(position)) => Ok(position),
            Ok(None) => self.send_after_waiting(message, bytes, timeout),
            Err(error) => Err(error),
        }
    }

    /// Waits for a free cell and then sends. This is a function of its own, so that a send that need not wait does not
    /// have to save the registers that a wait needs.
    #[cold]
    #[inline(never)]
    fn send_after_waiting(&self, message: &Message, bytes: u64, timeout: Duration) -> Result<u64, Error> {
        self.attempt(timeout, ROOM, &mut SendOperation { message, bytes })
    }

    #[inline(always)]
    fn try_send(&self, message: &Message, bytes: u64) -> Attempt<u64> {
        let mut local = self.open_local()?;
        let Some(position) = self.ring.try_send(&mut local.next, self.slot, message)? else { return Ok(None) };
        self.next.store(local.next, Relaxed);
        self.call(Side::Consumer);
        self.count_message(&local, bytes.wrapping_add(u64::from(message.inline.len() as u32)));
        drop(local);
        // The cell may be free because a consumer died before it released the cell's former message, and another member
        // healed the dead consumer's end. The dead consumer may have left objects in regions half changed. So the
        // regions are healed before the program goes on.
        self.note_deaths(Side::Consumer);
        Ok(Some(position))
    }

    /// Waits up to `timeout` for a free cell, but sends nothing. If consumers have released messages with handles,
    /// gives the oldest of these handles to the producer, which can then use the memory of the handle's object again.
    ///
    /// # Errors
    /// The errors of [`End::send`].
    pub fn reclaim(&self, timeout: Duration) -> Result<Option<Handle>, Error> {
        self.check(Side::Producer)?;
        let mut attempt = || {
            let local = self.open_local()?;
            let credit = self.ring.try_reclaim(local.next)?;
            drop(local);
            self.note_deaths(Side::Consumer);
            Ok(credit)
        };
        match attempt()? {
            Some(credit) => Ok(credit),
            None => self.wait(timeout, ROOM, &mut attempt),
        }
    }

    /// Receives a message into `out`, and waits up to `timeout` for one. Gives the message's position, which `release`
    /// needs.
    ///
    /// # Errors
    /// `TIMED_OUT` if no message comes before the timeout; `NOT_YET` if there is none and the timeout is zero. `CLOSED`
    /// if all producers that this end has met have left, `PEER_DIED` if one of them died, and `CLOSED` after
    /// [`End::close`]. `INVALID` if this end is no consumer. `CORRUPT` if the port's memory holds what no correct
    /// member writes. `DISCONNECTED` in a forked child.
    #[inline]
    pub fn receive_into(&self, out: &mut Message, timeout: Duration) -> Result<u64, Error> {
        self.check(Side::Consumer)?;
        match self.try_receive(out) {
            Ok(Some(position)) => Ok(position),
            Ok(None) => self.receive_after_waiting(out, timeout),
            Err(error) => Err(error),
        }
    }

    #[cold]
    #[inline(never)]
    fn receive_after_waiting(&self, out: &mut Message, timeout: Duration) -> Result<u64, Error> {
        self.attempt(timeout, "a message", &mut ReceiveOperation { out })
    }

    /// Receives as `receive_into` does, but gives the message as a value.
    ///
    /// # Errors
    /// The errors of `receive_into`.
    pub fn receive(&self, timeout: Duration) -> Result<(u64, Message), Error> {
        let mut message = Message::default();
        let position = self.receive_into(&mut message, timeout)?;
        Ok((position, message))
    }

    /// Repeats an action whose first attempt found nothing, and waits between attempts if necessary. `what` says in
    /// error messages what the end waits for.
    ///
    /// If an end spins for a long time, this loop runs the same code for each attempt. So the code is in the CPU's
    /// caches when the message comes. A separate loop would jump to code that has not run for a long time, which takes
    /// 2 to 5 µs.
    #[inline(always)]
    fn attempt(&self, timeout: Duration, what: &'static str, act: &mut impl Operation) -> Result<u64, Error> {
        let mut spin_wait = None;
        loop {
            let tried = self.attempt_briefly(timeout, act);
            if let Some(ended) = tried.transpose() {
                if spin_wait.is_some() {
                    self.slot().set_waiting(false);
                }
                return ended;
            }
            if !self.keep_vigil(&mut spin_wait, timeout) {
                return self.wait_on(spin_wait, timeout, what, &mut || act.attempt(self));
            }
        }
    }

    /// Repeats an action a few more times after its first attempt found nothing, if a short spin may pay. The longer
    /// wait, which reads clocks and counts its time, begins only after this function.
    #[inline(always)]
    fn attempt_briefly(&self, timeout: Duration, act: &mut impl Operation) -> Attempt<u64> {
        if timeout.is_zero() || !self.spinner.pays() {
            return Ok(None);
        }
        // The word to watch is chosen after the attempt, because an attempt may skip cells, and each cell has its own
        // word. If the word changed before this line, the next attempt notices the change.
        let word = self.watched();
        let (mut seen, mut left) = (word.load(Relaxed), BRIEF);
        loop {
            if let Some(done) = act.attempt(self)? {
                return Ok(Some(done));
            }
            // The inner loop waits until the word changes. After that the end tries again. That attempt may find
            // nothing, because the word changes already when a producer claims the cell, or because another consumer
            // has taken the message. In this case the end watches the word again.
            loop {
                if left == 0 {
                    return Ok(None);
                }
                left -= 1;
                std::hint::spin_loop();
                let now = word.load(Relaxed);
                if now != seen {
                    seen = now;
                    break;
                }
            }
        }
    }

    #[inline(always)]
    fn try_receive(&self, out: &mut Message) -> Attempt<u64> {
        let mut local = self.open_local()?;
        if !local.found.is_empty() {
            return Ok(local.take_found(out));
        }
        let Some(position) = self.ring.try_receive(&mut local.next, self.slot, out)? else { return Ok(None) };
        crate::fault_point!("queue.receive.read");
        out.position = position;
        self.next.store(local.next, Relaxed);
        self.slot().set_cursor(position.wrapping_add(1));
        drop(local);
        if self.shape().pattern.many_produce() {
            // Another consumer may have taken this message earlier, and then died. So the regions are healed before the
            // program gets the message.
            self.note_deaths(Side::Consumer);
        }
        Ok(Some(position))
    }

    /// Releases a message that this end received. This call never waits.
    ///
    /// # Errors
    /// `INVALID` if this end did not receive the message, or released it already.
    #[inline]
    pub fn release(&self, position: u64) -> Result<(), Error> {
        self.check(Side::Consumer)?;
        let mut local = self.open_local()?;
        let freed = self.ring.release(position, local.next, self.slot)?;
        if !local.found.is_empty() {
            local.found.retain(|message| message.position != position);
        }
        self.count_message(&local, 0);
        drop(local);
        if freed {
            self.call(Side::Producer);
            if self.ring.shape().pattern == super::Pattern::WorkQueue {
                // When the producers of a work queue have left, its consumers keep waiting as long as any of them holds
                // a message: if that consumer dies, another consumer gets the message. This message is released now, so
                // the waiting consumers are woken to check again.
                self.call(Side::Consumer);
            }
        }
        Ok(())
    }

    /// Puts back a message that this end received and has not released. The next `receive` of this end gives it again.
    /// This call is for a program that cannot use the message now. It never waits.
    ///
    /// # Errors
    /// `INVALID` if this end did not receive the message, has released it, or has put it back already. `CORRUPT` if the
    /// port's memory holds what no correct member writes.
    pub fn put_back(&self, position: u64) -> Result<(), Error> {
        self.check(Side::Consumer)?;
        let mut local = self.open_local()?;
        if local.found.iter().any(|message| message.position == position) {
            return Err(not_yours(position));
        }
        let mut message = Message::default();
        self.ring.read_again(position, local.next, self.slot, &mut message)?;
        message.position = position;
        local.keep_found(message);
        drop(local);
        // Another thread of this process may be waiting for a message, so it is woken.
        self.call(Side::Consumer);
        Ok(())
    }

    /// Waits up to `timeout` until the other side has a living member. Sends and receives also wait for a member of the
    /// other side. This call is for a program that wants to know that a member is there before it prepares the data.
    ///
    /// # Errors
    /// `TIMED_OUT` if no member comes before the timeout; `NOT_YET` if there is none and the timeout is zero.
    pub fn wait_peer(&self, timeout: Duration) -> Result<(), Error> {
        self.check(self.side)?;
        let mut attempt = || {
            let living = self.ring.living(self.side.other(), self.host.liveness());
            Ok((living > 0).then_some(()))
        };
        match attempt()? {
            Some(()) => Ok(()),
            None => self.wait_for_company(timeout, &mut attempt),
        }
    }

    /// Tells whether a call with timeout zero would give anything but "not yet". A wrong `true` is possible, a wrong
    /// `false` is not. In a forked child the answer is `true`, because each call gives `DISCONNECTED` there.
    pub fn has_event(&self) -> bool {
        // In a forked child the end's lock may be held for ever, because another thread of the parent held it during
        // the fork. So the child gets `true` before a later step takes the lock.
        self.check_process().is_err() || self.look_after() || self.something_to_do() || self.over().is_some()
    }

    /// Tells whether this process closed this end.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Acquire)
    }

    fn something_to_do(&self) -> bool {
        match self.side {
            Side::Producer if self.shape().pattern.many_produce() => !matches!(self.ring.free_position(), Ok(None)),
            Side::Producer => {
                let next = self.local().next;
                !matches!(self.ring.room(self.ring.cell(next), self.ring.lap(next)), Ok(CellAvailability::Full))
            }
            Side::Consumer => {
                let Ok(mut local) = self.open_local() else { return true };
                if !local.found.is_empty() {
                    return true;
                }
                if self.shape().pattern.many_produce() {
                    drop(local);
                    return self.ring.anything_ready();
                }
                let mut message = Message::default();
                let Ok(position) = self.ring.try_receive(&mut local.next, self.slot, &mut message) else {
                    return true;
                };
                self.next.store(local.next, Relaxed);
                if let Some(position) = position {
                    message.position = position;
                    local.found.push(message);
                }
                position.is_some()
            }
        }
    }

    /// The shape of the port: its pattern and capacity.
    pub fn shape(&self) -> Shape {
        self.ring.shape()
    }

    /// Counters of the whole port. They are in shared memory, so a faulty member can falsify them.
    pub fn statistics(&self) -> PortStatistics {
        self.ring.statistics()
    }

    /// The port's ring of cells, for reports.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Tells whether this end is a producer or a consumer of the port.
    pub fn side(&self) -> Side {
        self.side
    }

    /// Sets how this end waits from now on: spinning, sleeping or adaptive.
    pub fn set_waiting(&self, waiting: Waiting) {
        self.spinner.set(waiting);
    }

    /// Adds `bytes` to the number of bytes that this end had to copy, for the port's statistics.
    pub fn note_copied(&self, bytes: u64) {
        self.slot().count_copied(bytes);
    }

    /// Leaves the port, so that the other side knows that this end is closed and its member has not died. Later calls
    /// on this end give `CLOSED`. Messages that this end has received and not released go to the next consumer in this
    /// slot or to another consumer.
    pub fn close(&self) {
        // A forked child must not touch its parent's end.
        if self.check_process().is_err() {
            return;
        }
        let local = self.local();
        if self.closed.swap(true, AcqRel) {
            return;
        }
        self.ring.leave(self.side, self.slot, self.me);
        drop(local);
        self.call(Side::Producer);
        self.call(Side::Consumer);
    }

    /// Gives this end up as if the process had died. The slot and its messages stay as they are until the member is
    /// dead and other members heal them. Later calls on this end give `CLOSED`. Only a process that acts for members
    /// of other nodes (a daemon's relay) calls this function.
    pub fn abandon(&self) {
        let local = self.local();
        self.closed.store(true, Relaxed);
        drop(local);
        self.call(Side::Producer);
        self.call(Side::Consumer);
    }

    /// For a producer: tells whether all consumers of the message at `position` have released it.
    pub fn is_released(&self, position: u64) -> bool {
        self.ring.cell(position).state().lap() > self.ring.lap(position)
    }

    /// For a consumer of a work queue: tells whether the message at `position` still waits for a consumer.
    pub fn is_untaken(&self, position: u64) -> bool {
        let state = self.ring.cell(position).state();
        state.lap() == self.ring.lap(position) && state.phase() == Some(Phase::Ready)
    }

    /// For a producer: waits up to `timeout` until `found` gives `true`. `found` is called whenever a consumer may have
    /// released a message.
    ///
    /// # Errors
    /// `TIMED_OUT` if the timeout passes first. If all consumers that this end has met are gone: `CLOSED` if they left,
    /// `PEER_DIED` if one of them died.
    pub fn wait_for_releases(&self, timeout: Duration, found: &mut dyn FnMut() -> bool) -> Result<(), Error> {
        self.check(Side::Producer)?;
        let mut attempt = || {
            drop(self.open_local()?);
            Ok(found().then_some(()))
        };
        match attempt()? {
            Some(()) => Ok(()),
            None => self.wait(timeout, "a release", &mut attempt),
        }
    }

    #[inline]
    fn check(&self, side: Side) -> Result<(), Error> {
        if side != self.side {
            return Err(Error::new(
                Status::Invalid,
                format!("this is a {}'s end; open the {}'s for that", self.side.word(), side.word()),
            ));
        }
        self.check_process()
    }

    /// Fails in a forked child of the process that opened this end.
    ///
    /// # Errors
    /// `DISCONNECTED` in such a child.
    #[inline]
    pub fn check_process(&self) -> Result<(), Error> {
        if !self.process.is_current() {
            return Err(Error::because(Status::Disconnected, Reason::Forked));
        }
        Ok(())
    }

    /// Wakes the sleeping members of a side. The caller has changed something that they may wait for.
    #[inline]
    pub(super) fn call(&self, side: Side) {
        if signal::call(self.ring.signal(side)) {
            self.wake(side);
        }
    }

    #[cold]
    fn wake(&self, side: Side) {
        self.ring.wake_sleepers(side);
        self.slot().count_wake();
        self.slot().see();
    }

    #[inline]
    pub(super) fn slot(&self) -> SlotRef<'_> {
        self.ring.slot(self.slot_index)
    }

    /// Heals the session's regions if a member at one side of the port has died since this end last healed them. The
    /// end calls this function before the program gets anything that the dead member left. The caller does not hold the
    /// end's lock.
    #[inline]
    pub(super) fn note_deaths(&self, side: Side) {
        let deaths = self.ring.deaths(side);
        if deaths != self.deaths[side as usize].load(Acquire) {
            self.learn_deaths(side, deaths);
        }
    }

    /// Heals the session's regions, if a member of the port has died since this end last healed them. A caller of
    /// [`postpone_healing`](super::postpone_healing) calls this function afterwards.
    pub fn heal(&self) {
        self.note_deaths(Side::Producer);
        self.note_deaths(Side::Consumer);
    }

    /// Heals the session's regions after a death at one side of the port. First adds the death to this process's own
    /// count of deaths, because another process may have proved the death, and this process has learned of it only from
    /// the port.
    #[cold]
    fn learn_deaths(&self, side: Side, deaths: u32) {
        if postponed_healing::is_postponed() {
            return;
        }
        count_shown();
        // If the end is closed, the regions are not healed: the program gets nothing from the end any more, and the
        // end's session may have left.
        if !self.is_closed() {
            heal_all(self.host.liveness());
        }
        // The order matters: another thread of this process that sees this number finds the regions healed.
        self.deaths[side as usize].store(deaths, Release);
    }

    /// Adds one message to this end's counters. The caller holds the end's lock.
    #[inline]
    fn count_message(&self, _locked: &SpinLockGuard<'_, LocalState>, bytes: u64) {
        self.slot().count_message(bytes);
    }

    #[inline]
    pub(super) fn next(&self) -> u64 {
        self.next.load(Relaxed)
    }

    /// Takes this end's lock, or fails if the end is closed. `close` holds the lock while it gives up the end slot.
    /// So no thread works in a slot that was given up.
    #[inline]
    fn open_local(&self) -> Result<SpinLockGuard<'_, LocalState>, Error> {
        let local = self.local();
        if self.closed.load(Relaxed) {
            return Err(Error::closed_here());
        }
        Ok(local)
    }

    #[inline]
    fn local(&self) -> SpinLockGuard<'_, LocalState> {
        self.local.lock()
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.close();
    }
}

impl std::fmt::Debug for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "End({} {} of {})", self.side.word(), self.slot, self.shape())
    }
}

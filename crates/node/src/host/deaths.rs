//! The detection of deaths. A member counts as dead when the kernel proves it, and not before.
//!
//! One of three facts proves a death: the member's pidfd is readable; or the process with the member's process id was
//! started at another time, or does not exist; or no process locks the member's byte of the roll, while the roll shows
//! the keeper's own lock. A death that was proved once stays proved. The end of a connection proves nothing: the member
//! is then *away*, and may come back. The host asks the kernel soon afterwards whether the member is dead, and asks
//! again after pauses that become longer.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use crossdock_layout::MemberId;
use crossdock_os::process;

use super::{Host, PROCESS};
use crate::broker::{Event, Peer};
use crate::table;

/// The pause before the kernel is first asked whether a member without connection is dead. Later pauses are longer, up
/// to `PAUSE`.
const FIRST: Duration = Duration::from_millis(1);
const PAUSE: Duration = Duration::from_millis(50);
/// The longest pause between two checks of the members without connection, if this process has a pidfd for each of
/// them. The pidfds report deaths without delay. The roll is then needed only for a member whose process has begun to
/// execute another program.
const PAUSE_WATCHED: Duration = Duration::from_millis(500);

/// The time at which the kernel is next asked whether members without connection are dead, and the pause after that.
#[derive(Default)]
pub(super) struct DeathChecks {
    due: Option<Instant>,
    pause: Duration,
}

impl DeathChecks {
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }
}

impl Host<'_> {
    /// Asks the kernel soon about the members without connection, because one more member has lost its connection.
    pub(super) fn look_soon(&mut self) {
        self.looks = DeathChecks { due: Some(Instant::now() + FIRST), pause: FIRST };
    }

    /// If the pause since the last check is over, asks the kernel whether members without connection are dead.
    pub(super) fn look_for_deaths(&mut self) {
        if self.looks.due.is_none_or(|due| Instant::now() < due) {
            return;
        }
        let unproved: Vec<_> = self.broker.unproved().collect();
        for member in unproved {
            if self.is_proved_dead(member) {
                self.feed(Event::ProcessDied { member });
            }
        }
        let mut left = self.broker.unproved().peekable();
        if left.peek().is_none() {
            self.looks.due = None;
            return;
        }
        let watched = left.all(|member| self.processes.get(&number(member)).is_some_and(|(m, _)| *m == member));
        let longest = if watched { PAUSE_WATCHED } else { PAUSE };
        self.looks.pause = (self.looks.pause * 2).clamp(FIRST, longest);
        self.looks.due = Some(Instant::now() + self.looks.pause);
    }

    pub(super) fn is_proved_dead(&self, member: MemberId) -> bool {
        let pidfd = self.processes.get(&number(member)).filter(|(of, _)| *of == member);
        table::says_dead(&self.words, member)
            || pidfd.is_some_and(|(_, pidfd)| process::is_dead(pidfd))
            || self.roll.reader.has_left(member.0)
    }

    pub(super) fn process_died(&mut self, number: u64) {
        let Some((member, pidfd)) = self.processes.get(&number) else { return };
        if process::is_dead(pidfd) {
            let member = *member;
            self.feed(Event::ProcessDied { member });
        }
    }

    /// Watches the process behind a connection. When the process ends, its member is dead.
    pub(super) fn watch(&mut self, member: MemberId, connection: u64, peer: Peer) {
        if self.processes.get(&number(member)).is_some_and(|(of, _)| *of == member) {
            return;
        }
        let Some(link) = self.links.get(&connection) else { return };
        let pidfd = match crossdock_os::socket::peer_pidfd(&link.socket) {
            Ok(Some(pidfd)) => Some(pidfd),
            // Older kernels give no pidfd for a socket. Then the pidfd is opened by the process id, if this process id
            // still belongs to the same process.
            Ok(None) => process::open_pidfd(peer.pid as i32)
                .ok()
                .flatten()
                .filter(|_| process::start_time(peer.pid as i32) == Some(peer.started)),
            // The process is dead already. When its connection ends, the host finds the member's lock on the roll
            // released, which proves the death.
            Err(_) => None,
        };
        if let Some(pidfd) = pidfd {
            self.watch_pidfd(member, pidfd);
        }
    }

    pub(super) fn watch_pidfd(&mut self, member: MemberId, pidfd: OwnedFd) {
        if self.epoll.add(&pidfd, PROCESS | number(member), false).is_ok() {
            self.processes.insert(number(member), (member, pidfd));
        }
    }

    pub(super) fn unwatch(&mut self, member: MemberId) {
        if self.processes.get(&number(member)).is_some_and(|(of, _)| *of == member) {
            self.processes.remove(&number(member));
        }
    }

    /// Reports the members of the journal that died while no broker ran, and watches the other members again.
    pub(super) fn watch_survivors(&mut self) {
        let lasting = self.broker.lasting();
        let members = lasting.members.iter().map(|(id, m)| (*id, m.peer));
        let all: Vec<_> = members.chain(lasting.ghosts.iter().map(|(id, ghost)| (*id, ghost.peer))).collect();
        table::begin(&self.words, lasting.next_member, |slot| lasting.slot_holder(slot));
        for (member, peer) in all {
            match survivor(peer) {
                Survivor::Dead => self.feed(Event::ProcessDied { member }),
                Survivor::Watched(pidfd) => self.watch_pidfd(member, pidfd),
                Survivor::Unknown => {}
            }
        }
        self.look_soon();
        self.looks.due = Some(Instant::now());
        self.look_for_deaths();
    }
}

/// Gives the number of a member in the epoll set. The number is the member's slot of the liveness table, which no other
/// watched member has.
fn number(member: MemberId) -> u64 {
    member.slot() as u64
}

enum Survivor {
    Dead,
    Watched(OwnedFd),
    Unknown,
}

fn survivor(peer: Peer) -> Survivor {
    if peer.started == 0 {
        return Survivor::Unknown;
    }
    let pid = peer.pid as i32;
    match process::open_pidfd(pid) {
        // The process id may belong to another process by now. The start time shows this, if it can be read.
        Ok(Some(pidfd)) => match process::start_time(pid) {
            _ if process::is_dead(&pidfd) => Survivor::Dead,
            Some(started) if started == peer.started => Survivor::Watched(pidfd),
            Some(_) => Survivor::Dead,
            None => Survivor::Unknown,
        },
        Ok(None) => Survivor::Dead,
        Err(_) => Survivor::Unknown,
    }
}

//! The detection of deaths. A member counts as dead when the kernel proves it, and not before.
//!
//! One of three facts proves a death: the member's pidfd is readable; or the process with the member's process id has
//! another birth, or does not exist; or no process locks the member's byte of the roll, while the roll shows
//! the keeper's own lock. A death that was proved once stays proved. The end of a connection proves nothing: the member
//! is then *away*, and may come back. The host asks the kernel soon afterwards whether the member is dead, and asks
//! again after pauses that become longer.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use crossdock_layout::MemberId;
use crossdock_os::{process, socket};

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

    /// Watches the process behind a connection. When the process ends, its member is dead. If the process has ended
    /// already, it cannot be watched; when its connection ends, the host finds the member's lock on the roll released,
    /// which proves the death.
    pub(super) fn watch(&mut self, member: MemberId, connection: u64) {
        if self.processes.get(&number(member)).is_some_and(|(of, _)| *of == member) {
            return;
        }
        let (Some(link), Some(known)) = (self.links.get(&connection), self.broker.lasting().members.get(&member))
        else {
            return;
        };
        let (peer, pid) = (known.peer, known.peer.pid as i32);
        let pidfd = match self.newcomer.take_if(|(of, _)| *of == connection) {
            Some((_, pidfd)) => Some(pidfd),
            // On kernels before 6.5, the process id may belong to another process by now.
            None => pidfd_behind(&link.socket, pid)
                .filter(|pidfd| peer.birth == 0 || peer.is_daemon() || process::birth(pid, pidfd) == Some(peer.birth)),
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

/// Opens a pidfd of the process at the other end of a connection. `pid` is the process's id. `None` if the process has
/// ended, or if this process has no descriptor left.
pub(super) fn pidfd_behind(connection: &OwnedFd, pid: i32) -> Option<OwnedFd> {
    match socket::peer_pidfd(connection) {
        Ok(Some(pidfd)) => Some(pidfd),
        // Kernels before 6.5 give no pidfd for a socket.
        Ok(None) => process::open_pidfd(pid).ok().flatten(),
        Err(_) => None,
    }
}

enum Survivor {
    Dead,
    Watched(OwnedFd),
    Unknown,
}

fn survivor(peer: Peer) -> Survivor {
    if peer.birth == 0 {
        return Survivor::Unknown;
    }
    let pid = peer.pid as i32;
    match process::open_pidfd(pid) {
        // The process id may belong to another process by now. The birth shows this, if it is known.
        Ok(Some(pidfd)) => match process::birth(pid, &pidfd) {
            _ if process::is_dead(&pidfd) => Survivor::Dead,
            Some(birth) if birth == peer.birth => Survivor::Watched(pidfd),
            Some(_) => Survivor::Dead,
            None => Survivor::Unknown,
        },
        Ok(None) => Survivor::Dead,
        Err(_) => Survivor::Unknown,
    }
}

//! A series of another node, as the tasks of this node observe it.
//!
//! A mirror is a series of this node (`crossdock_core::series::Replica`) whose publisher is the daemon. All observers of
//! the node share it, so each version comes once. If the daemon of the other node is started anew, the mirror asks it for
//! a new supply and continues behind the version that it has. It ends as the series does: in order, or as a death if the
//! publisher died or its node is lost. What it has shown stays for observers.

use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock};
use std::time::Duration;

use crossdock_client::{InUse, SegmentId, SegmentKind, Session, Status};
use crossdock_core::series::{Fresh, Replica};

use super::words::{LEFT, Load, Offered, Over, TAKEN, Taken};
use crate::tell::{AGAIN, Side, Told, may_pass, tell};
use crate::words::{How, Key, Word};
use crate::{Peers, lock};

/// How long one pull may take before it is tried again.
const PULL: Duration = Duration::from_secs(60);
/// Parts of so many bytes are pulled to their place; smaller ones come together ..
const LARGE: usize = 1 << 20;
/// .. at most this many bytes at a time, and are copied.
const TOGETHER: usize = 4 << 20;

/// How a mirror has ended, if it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// As the series itself: its newest version is the last one.
    Series(How),
    /// The other node is lost, or does not have the series any more.
    Lost,
}

struct State {
    key: Key,
    /// A version that was offered.
    offered: Option<Offered>,
    /// The newest version that was offered.
    accepted: u64,
    /// The newest version that observers see.
    shown: u64,
    end: Option<End>,
    /// The other daemon does not know this mirror.
    unknown: bool,
    /// No task of this node observes it any more.
    left: bool,
    /// Observers of this node hold old versions, and there is no room for the next one.
    is_full: bool,
}

/// A series of another node.
pub struct Mirror {
    /// The node that has the series.
    pub peer: String,
    pub workflow: String,
    pub series: String,
    /// The segment of the series on its node.
    pub origin: u64,
    /// It was opened for observers that may be of another run.
    pub former: bool,
    /// The segment here.
    pub id: SegmentId,
    name: String,
    session: Session,
    state: Mutex<State>,
    changed: Condvar,
    /// Is the member that publishes it alive? Work on the pool holds this for reading.
    alive: RwLock<bool>,
}

/// Opens a supply anew for a mirror that has versions up to this one.
pub type Reopen<'a> = &'a dyn Fn(&Mirror, u64) -> crossdock_client::Result<()>;

impl Side for Mirror {
    fn stopped(&self) -> Option<Told> {
        let state = lock(&self.state);
        if state.left || state.end == Some(End::Lost) { Some(Told::Over) } else { None }
    }

    fn pause(&self, time: Duration) {
        let state = lock(&self.state);
        if !state.left && state.end != Some(End::Lost) {
            drop(self.changed.wait_timeout(state, time));
        }
    }
}

/// Why a version is not shown.
enum Failed {
    /// Its bytes are gone; the next version comes whole.
    Skip,
    /// The mirror has ended.
    Over,
}

impl Mirror {
    #[allow(clippy::too_many_arguments, reason = "the parts of a mirror, each of another type or meaning")]
    pub fn new(
        key: Key,
        peer: &str,
        (workflow, series): (&str, &str),
        (origin, former): (u64, bool),
        id: SegmentId,
        name: String,
        session: Session,
    ) -> Arc<Self> {
        let state =
            State { key, offered: None, accepted: 0, shown: 0, end: None, unknown: false, left: false, is_full: false };
        Arc::new(Self {
            peer: peer.to_owned(),
            workflow: workflow.to_owned(),
            series: series.to_owned(),
            origin,
            former,
            id,
            name,
            session,
            state: Mutex::new(state),
            changed: Condvar::new(),
            alive: RwLock::new(true),
        })
    }

    pub fn key(&self) -> Key {
        lock(&self.state).key
    }

    /// May other observers get it?
    pub fn is_usable(&self) -> bool {
        let state = lock(&self.state);
        !state.left && state.end != Some(End::Lost)
    }

    /// Does it need its supply?
    pub fn is_supplied(&self) -> bool {
        let state = lock(&self.state);
        !state.left && state.end.is_none() && !state.unknown
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut lock(&self.state));
        self.changed.notify_all();
    }

    /// A version was offered. One that was offered before is the same.
    pub fn offer(&self, offered: Offered) {
        self.change(|state| {
            if offered.head.sequence > state.accepted && state.end.is_none() {
                state.accepted = offered.head.sequence;
                state.offered = Some(offered);
            }
        });
    }

    /// The series has ended, behind all versions that were offered.
    pub fn over(&self, over: &Over) {
        self.change(|state| {
            state.end.get_or_insert(End::Series(over.how));
        });
    }

    /// The other daemon knows it by this key now.
    pub fn known_as(&self, key: Key) {
        self.change(|state| {
            state.key = key;
            state.unknown = false;
        });
    }

    /// The other daemon does not know this mirror.
    pub fn unknown(&self) {
        self.change(|state| state.unknown = true);
    }

    /// No task of this node observes it any more.
    pub fn left(&self) {
        self.change(|state| state.left = true);
    }

    /// The other node's lease has ended.
    pub fn gone(&self) {
        let is_over = matches!(lock(&self.state).end, Some(End::Series(_)));
        if !is_over {
            self.change(|state| state.end = Some(End::Lost));
            self.die();
        }
    }

    /// The daemon ends.
    pub fn drop_now(&self) {
        self.left();
        self.die();
    }

    fn die(&self) {
        let mut alive = self.alive.write().unwrap_or_else(PoisonError::into_inner);
        if std::mem::replace(&mut *alive, false) {
            self.session.abandon();
        }
    }

    /// Waits until observers see this version, or no further one comes for now.
    pub fn wait_shown(&self, sequence: u64, time: Duration) {
        let waits = |state: &mut State| {
            state.shown < sequence && state.end.is_none() && !state.left && !(state.is_full && state.shown > 0)
        };
        drop(self.changed.wait_timeout_while(lock(&self.state), time, waits));
    }

    /// The thread of a mirror.
    pub fn run(&self, peers: &dyn Peers, mut replica: Replica, reopen: Reopen<'_>) {
        enum Step {
            Take(Box<Offered>),
            End(How),
            Reopen,
            Leave,
        }
        let mut ended = false;
        loop {
            let step = {
                let mut state = lock(&self.state);
                loop {
                    if state.left {
                        break Step::Leave;
                    }
                    if !ended {
                        if let Some(offered) = state.offered.take() {
                            break Step::Take(Box::new(offered));
                        }
                        match state.end {
                            Some(End::Series(how)) => break Step::End(how),
                            Some(End::Lost) => ended = true,
                            None if state.unknown => break Step::Reopen,
                            None => {}
                        }
                    }
                    state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
            };
            match step {
                Step::Take(offered) => self.take(peers, &mut replica, *offered),
                Step::End(how) => {
                    ended = true;
                    match how {
                        // The daemon is asked by the name's removal again.
                        How::Closed => drop(replica.end()),
                        How::Died => self.die(),
                    }
                }
                Step::Reopen => self.reopen(&replica, reopen),
                Step::Leave => return self.leave(peers, replica),
            }
        }
    }

    /// Nothing of the mirror stays, besides what observers have.
    fn leave(&self, peers: &dyn Peers, mut replica: Replica) {
        let is_alive = *self.alive.read().unwrap_or_else(PoisonError::into_inner);
        if is_alive {
            let _ = replica.end();
            // What cannot be removed now goes with the daemon's next start.
            let _ = self.session.remove(SegmentKind::Series, &self.name, InUse::Keep);
        } else {
            peers.remove(&self.workflow, vec![(SegmentKind::Series, self.name.clone())]);
        }
        // If it is not heard, the daemons' comparison of what they know comes to the same.
        let body = self.key().encode();
        let _ = peers.ask(&self.peer, LEFT, &body, AGAIN);
    }

    fn reopen(&self, replica: &Replica, reopen: Reopen<'_>) {
        let has = replica.sequence();
        self.change(|state| {
            state.offered = None;
            state.accepted = has;
        });
        while self.stopped().is_none() {
            match reopen(self, has) {
                Ok(()) => return,
                Err(error) if may_pass(error.status) => self.pause(AGAIN * 4),
                Err(_) => return self.gone(),
            }
        }
    }

    fn take(&self, peers: &dyn Peers, replica: &mut Replica, offered: Offered) {
        let sequence = offered.head.sequence;
        let shown = match self.fetch(peers, replica, offered) {
            Ok(fresh) => {
                let alive = self.alive.read().unwrap_or_else(PoisonError::into_inner);
                if !*alive {
                    return;
                }
                replica.publish(fresh);
                true
            }
            Err(Failed::Skip) => false,
            Err(Failed::Over) => return,
        };
        if shown {
            self.change(|state| state.shown = sequence);
        }
        let body = Taken { key: self.key(), sequence, shown }.encode();
        if tell(self, peers, &self.peer, TAKEN, &body) == Told::Unknown {
            self.unknown();
        }
    }

    fn fetch(&self, peers: &dyn Peers, replica: &mut Replica, offered: Offered) -> Result<Fresh, Failed> {
        let Offered { head, pieces, load, .. } = offered;
        let mut fresh = loop {
            let alive = self.alive.read().unwrap_or_else(PoisonError::into_inner);
            if !*alive || self.stopped().is_some() {
                return Err(Failed::Over);
            }
            let prepared = replica.prepare(head.clone(), &pieces);
            let is_full = prepared.as_ref().is_err_and(|error| error.status == Status::NoSpace);
            self.change(|state| state.is_full = is_full);
            match prepared {
                Ok(fresh) => break fresh,
                Err(_) if is_full => {
                    drop(alive);
                    // The other node's publisher goes on meanwhile.
                    self.pause(AGAIN);
                }
                Err(error) => {
                    drop(alive);
                    peers.log(&format!("series '{}' of node {}: {error}", self.series, self.peer));
                    self.gone();
                    return Err(Failed::Over);
                }
            }
        };
        match self.fill(peers, &mut fresh, &load) {
            Ok(()) => Ok(fresh),
            Err(failed) => {
                replica.abandon(fresh);
                Err(failed)
            }
        }
    }

    fn fill(&self, peers: &dyn Peers, fresh: &mut Fresh, load: &Load) -> Result<(), Failed> {
        let mut parts = fresh.parts();
        let length: usize = parts.iter().map(|part| part.len()).sum();
        let ticket = match load {
            Load::Here(bytes) if bytes.len() == length => {
                spread(&mut parts, bytes);
                return Ok(());
            }
            Load::Pull(ticket, bytes) if *bytes == length as u64 => *ticket,
            _ => return Err(Failed::Skip),
        };
        let (mut at, mut part) = (0, 0);
        let mut together = Vec::new();
        while part < parts.len() {
            if parts[part].len() >= LARGE {
                self.pull(peers, ticket, at, parts[part])?;
                at += parts[part].len() as u64;
                part += 1;
                continue;
            }
            let (first, mut bytes) = (part, 0);
            while part < parts.len() && parts[part].len() < LARGE && bytes + parts[part].len() <= TOGETHER {
                bytes += parts[part].len();
                part += 1;
            }
            together.resize(bytes, 0);
            self.pull(peers, ticket, at, &mut together)?;
            spread(&mut parts[first..part], &together);
            at += bytes as u64;
        }
        Ok(())
    }

    /// Pulls bytes of a version. While the link is cut, it is tried again.
    fn pull(&self, peers: &dyn Peers, ticket: u64, offset: u64, to: &mut [u8]) -> Result<(), Failed> {
        loop {
            let Err(error) = peers.pull_into(&self.peer, ticket, offset, to, PULL) else { return Ok(()) };
            if self.stopped().is_some() {
                return Err(Failed::Over);
            }
            if !may_pass(error.status) {
                return Err(Failed::Skip);
            }
            self.pause(AGAIN);
        }
    }
}

/// Copies bytes to parts that together are as long.
fn spread(parts: &mut [&mut [u8]], mut bytes: &[u8]) {
    for part in parts {
        let (own, rest) = bytes.split_at(part.len());
        part.copy_from_slice(own);
        bytes = rest;
    }
}

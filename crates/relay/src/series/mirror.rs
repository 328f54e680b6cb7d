//! A mirror: a series of another node, as the tasks of this node observe it.
//!
//! A mirror is a series of this node (`crossdock_core::series::Replica`) whose publisher is the daemon. All observers
//! of this node share the mirror, so each version comes to the node only one time. If the other node's daemon restarts,
//! the mirror asks that daemon for a new supply, and continues after the newest version that the mirror has. If the
//! publisher has ended the series, the mirror ends in the same way. If the publisher died or its node is lost, the
//! mirror ends as after a death. Observers can still read the last versions.

use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock};
use std::time::Duration;

use crossdock_client::{InUse, SegmentId, SegmentKind, Session, Status};
use crossdock_core::series::{Fresh, Replica};

use super::messages::{Load, MIRROR_GONE, Offered, SeriesEnded, VERSION_ACK, VersionAck};
use crate::messages::{BodyField, ChannelKey, EndReason};
use crate::reports::{AGAIN, ReportOutcome, Reporter, may_pass, tell};
use crate::{Peers, lock};

/// The deadline of one pull. If it passes, the pull is repeated.
const PULL: Duration = Duration::from_secs(60);
/// A part of a version with at least this many bytes is pulled directly to its place in the pool.
const LARGE: usize = 1 << 20;
/// Parts of fewer than [`LARGE`] bytes are pulled together, with up to this many bytes in one pull, and then copied to
/// their places.
const TOGETHER: usize = 4 << 20;

/// How a mirror has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The series has ended, so it has no further version.
    Series(EndReason),
    /// The other node is lost, or does not have the series any more.
    Lost,
}

struct State {
    key: ChannelKey,
    /// The version that the publisher's node has offered and the mirror has not taken yet.
    offered: Option<Offered>,
    /// The number of the newest version that was offered.
    accepted: u64,
    /// The number of the newest version that observers can see.
    shown: u64,
    end: Option<End>,
    /// Whether the other daemon has said that it does not know this mirror.
    unknown: bool,
    /// Whether all tasks of this node have stopped observing the mirror.
    left: bool,
    /// Whether the mirror has no room for the next version, because observers of this node hold old ones.
    is_full: bool,
}

/// A mirror of a series of another node.
pub struct Mirror {
    /// The name of the node that has the series.
    pub peer: String,
    pub workflow: String,
    pub series: String,
    /// The id that the series has on its own node.
    pub origin: u64,
    /// Whether observers from another run than the run of the series are allowed.
    pub former: bool,
    /// The mirror's id on this node.
    pub id: SegmentId,
    name: String,
    session: Session,
    state: Mutex<State>,
    changed: Condvar,
    /// Whether the member that publishes the mirror is alive. Every access to the pool holds this lock for reading.
    alive: RwLock<bool>,
}

/// A function that asks the other node for a new supply. Its second parameter is the number of the newest version that
/// the mirror has.
pub type Reopen<'a> = &'a dyn Fn(&Mirror, u64) -> crossdock_client::Result<()>;

impl Reporter for Mirror {
    fn stopped(&self) -> Option<ReportOutcome> {
        let state = lock(&self.state);
        if state.left || state.end == Some(End::Lost) { Some(ReportOutcome::Ended) } else { None }
    }

    fn pause(&self, time: Duration) {
        let state = lock(&self.state);
        if !state.left && state.end != Some(End::Lost) {
            drop(self.changed.wait_timeout(state, time));
        }
    }
}

/// Why the mirror could not take a version.
enum Failed {
    /// The version's bytes are gone. The next version will include the changes of this version.
    Skip,
    /// The mirror has ended.
    Ended,
}

impl Mirror {
    #[allow(clippy::too_many_arguments, reason = "the parts of a mirror, each of another type or meaning")]
    pub fn new(
        key: ChannelKey,
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

    pub fn key(&self) -> ChannelKey {
        lock(&self.state).key
    }

    /// Tells whether further observers may use this mirror.
    pub fn is_usable(&self) -> bool {
        let state = lock(&self.state);
        !state.left && state.end != Some(End::Lost)
    }

    /// Tells whether the supply on the other node must still send versions to this mirror.
    pub fn is_supplied(&self) -> bool {
        let state = lock(&self.state);
        !state.left && state.end.is_none() && !state.unknown
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut lock(&self.state));
        self.changed.notify_all();
    }

    /// Notes an offered version. A repeated offer is ignored.
    pub fn offer(&self, offered: Offered) {
        self.change(|state| {
            if offered.head.sequence > state.accepted && state.end.is_none() {
                state.accepted = offered.head.sequence;
                state.offered = Some(offered);
            }
        });
    }

    /// Notes that the series has ended. The other node has offered all of its versions before.
    pub fn series_ended(&self, report: &SeriesEnded) {
        self.change(|state| {
            state.end.get_or_insert(End::Series(report.how));
        });
    }

    /// Notes the key under which the other daemon knows the mirror from now on.
    pub fn known_as(&self, key: ChannelKey) {
        self.change(|state| {
            state.key = key;
            state.unknown = false;
        });
    }

    /// Notes that the other daemon does not know this mirror.
    pub fn unknown(&self) {
        self.change(|state| state.unknown = true);
    }

    /// Notes that no task of this node observes the mirror any more.
    pub fn left(&self) {
        self.change(|state| state.left = true);
    }

    /// Notes that the lease of the other node has ended, so no further version will come.
    pub fn gone(&self) {
        let is_over = matches!(lock(&self.state).end, Some(End::Series(_)));
        if !is_over {
            self.change(|state| state.end = Some(End::Lost));
            self.die();
        }
    }

    /// Ends the mirror, because the daemon ends.
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

    /// Waits until observers see version `sequence`. Returns earlier if no further version can come at present, or if
    /// `time` is over.
    pub fn wait_shown(&self, sequence: u64, time: Duration) {
        let waits = |state: &mut State| {
            state.shown < sequence && state.end.is_none() && !state.left && !(state.is_full && state.shown > 0)
        };
        drop(self.changed.wait_timeout_while(lock(&self.state), time, waits));
    }

    /// Runs the thread of a mirror, which takes versions until the mirror ends.
    pub fn run(&self, peers: &dyn Peers, mut replica: Replica, reopen: Reopen<'_>) {
        enum Step {
            Take(Box<Offered>),
            End(EndReason),
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
                        // An error of `end` is ignored, because `leave` reports the end to the daemon once more.
                        EndReason::Closed => drop(replica.end()),
                        EndReason::Died => self.die(),
                    }
                }
                Step::Reopen => self.reopen(&replica, reopen),
                Step::Leave => return self.leave(peers, replica),
            }
        }
    }

    /// Removes the mirror. Observers keep the versions that they have.
    fn leave(&self, peers: &dyn Peers, mut replica: Replica) {
        let is_alive = *self.alive.read().unwrap_or_else(PoisonError::into_inner);
        if is_alive {
            let _ = replica.end();
            // If the name cannot be removed now, the daemon removes it at its next start.
            let _ = self.session.remove(SegmentKind::Series, &self.name, InUse::Force);
        } else {
            peers.remove(&self.workflow, vec![(SegmentKind::Series, self.name.clone())]);
        }
        // If this report does not reach the other daemon, that daemon learns that the mirror is gone when the two
        // daemons compare which mirrors they know.
        let body = self.key().encode();
        let _ = peers.ask(&self.peer, MIRROR_GONE, &body, AGAIN);
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
            Err(Failed::Ended) => return,
        };
        if shown {
            self.change(|state| state.shown = sequence);
        }
        let body = VersionAck { key: self.key(), sequence, shown }.encode();
        if tell(self, peers, &self.peer, VERSION_ACK, &body) == ReportOutcome::Unknown {
            self.unknown();
        }
    }

    fn fetch(&self, peers: &dyn Peers, replica: &mut Replica, offered: Offered) -> Result<Fresh, Failed> {
        let Offered { head, pieces, load, .. } = offered;
        let mut fresh = loop {
            let alive = self.alive.read().unwrap_or_else(PoisonError::into_inner);
            if !*alive || self.stopped().is_some() {
                return Err(Failed::Ended);
            }
            let prepared = replica.prepare(head.clone(), &pieces);
            let is_full = prepared.as_ref().is_err_and(|error| error.status == Status::NoSpace);
            self.change(|state| state.is_full = is_full);
            match prepared {
                Ok(fresh) => break fresh,
                Err(_) if is_full => {
                    drop(alive);
                    // This pause delays only the mirror. The publisher on the other node continues.
                    self.pause(AGAIN);
                }
                Err(error) => {
                    drop(alive);
                    peers.log(&format!("series '{}' of node {}: {error}", self.series, self.peer));
                    self.gone();
                    return Err(Failed::Ended);
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

    /// Pulls bytes of a version into `to`. While the link is cut, repeats the pull.
    fn pull(&self, peers: &dyn Peers, ticket: u64, offset: u64, to: &mut [u8]) -> Result<(), Failed> {
        loop {
            let Err(error) = peers.pull_into(&self.peer, ticket, offset, to, PULL) else { return Ok(()) };
            if self.stopped().is_some() {
                return Err(Failed::Ended);
            }
            if !may_pass(error.status) {
                return Err(Failed::Skip);
            }
            self.pause(AGAIN);
        }
    }
}

/// Copies `bytes` to the parts, one after another. Together the parts are as long as `bytes`.
pub fn spread(parts: &mut [&mut [u8]], mut bytes: &[u8]) {
    for part in parts {
        let (own, rest) = bytes.split_at(part.len());
        part.copy_from_slice(own);
        bytes = rest;
    }
}

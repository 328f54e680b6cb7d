//! A node's client of the catalog of a simulated site. Some commits reach the catalog long after their caller has given
//! up. The catalog may lose its leader, as etcd does: then no call succeeds until there is a new leader, and the caller
//! of the commit that was in flight does not learn whether the commit was made.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crossdock_catalog::{
    Catalog, CatalogError, CatalogResult, Commit, Committed, Entry, Expect, Faults, LeaseId, Listing, Memory, Revision,
    Watch,
};
use crossdock_gateway::simulated::SimulatedGateway;
use crossdock_gateway::{CatalogAddress, GatewayOptions};
use crossdock_os::Deadline;

/// Defects that are planted on purpose.
#[derive(Clone, Copy)]
pub struct Defects {
    /// Tells whether the catalog ignores this condition of a commit.
    pub unfenced: fn(&Expect) -> bool,
    /// The catalog answers a client that its lease is renewed, although the lease has ended.
    pub lost_lease_ignored: bool,
    /// The catalog answers that a commit was made, although it lost its leader while the commit was in flight.
    pub unknown_is_done: bool,
}

/// How long the catalog may have no leader, in milliseconds.
pub const LEADERLESS_MS: [u64; 4] = [500, 3000, 8000, 20_000];

/// Whether the catalog has a leader, with counts of what happened to calls while it had no leader.
#[derive(Default)]
pub struct Leader {
    is_lost: AtomicBool,
    pub losses: AtomicU64,
    /// How many commits were made although their callers got no answer, because the catalog lost its leader.
    pub made: AtomicU64,
    /// How many commits were neither made nor answered, because the catalog lost its leader.
    pub dropped: AtomicU64,
    /// How many calls failed because there was no leader.
    pub refused: AtomicU64,
}

impl Leader {
    pub fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Relaxed)
    }

    pub fn set_lost(&self, is_lost: bool) {
        self.is_lost.store(is_lost, Ordering::Relaxed);
        self.losses.fetch_add(u64::from(is_lost), Ordering::Relaxed);
    }

    /// Fails if the catalog has no leader.
    fn answers(&self) -> CatalogResult<()> {
        if self.is_lost() {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return Err(CatalogError::Unreachable("the catalog has no leader".into()));
        }
        Ok(())
    }
}

pub struct Handle {
    memory: Arc<Memory>,
    defects: Defects,
    leader: Arc<Leader>,
    /// Set when the leader is lost. The next commit then counts as the commit that was in flight at that moment; the
    /// value says whether it is made.
    in_flight: Mutex<Option<bool>>,
    /// True if the next commit reaches the catalog late. The caller of this commit gets an error at once.
    pub delay: Mutex<bool>,
    pub late: Mutex<Vec<Commit>>,
}

impl Handle {
    pub fn new(memory: Arc<Memory>, leader: &Arc<Leader>, defects: Defects) -> Self {
        let leader = Arc::clone(leader);
        Self { memory, defects, leader, in_flight: Mutex::default(), delay: Mutex::default(), late: Mutex::default() }
    }

    /// Notes that the leader is lost. The client's next commit counts as in flight at that moment; `is_made` says
    /// whether that commit is made.
    pub fn leader_is_lost(&self, is_made: bool) {
        *self.in_flight.lock().unwrap() = Some(is_made);
        self.memory.set_faults(Faults { hold: true, ..Faults::default() });
    }

    /// Notes that there is a leader again.
    pub fn leader_is_back(&self) {
        *self.in_flight.lock().unwrap() = None;
        self.memory.set_faults(Faults::default());
    }

    fn commit_in_flight(&self, commit: &Commit, is_made: bool, by: Deadline) -> CatalogResult<Committed> {
        let count = if is_made { &self.leader.made } else { &self.leader.dropped };
        count.fetch_add(1, Ordering::Relaxed);
        if is_made {
            self.memory.client().commit(commit, by).ok();
        }
        if self.defects.unknown_is_done {
            return Ok(Committed { done: true, revision: 0, found: Vec::new() });
        }
        Err(CatalogError::Unknown("the catalog lost its leader".into()))
    }
}

impl Catalog for Handle {
    fn commit(&self, commit: &Commit, by: Deadline) -> CatalogResult<Committed> {
        let mut commit = commit.clone();
        commit.expect.retain(|expect| !(self.defects.unfenced)(expect));
        if self.leader.is_lost() {
            if let Some(is_made) = self.in_flight.lock().unwrap().take() {
                return self.commit_in_flight(&commit, is_made, by);
            }
        }
        self.leader.answers()?;
        if std::mem::take(&mut *self.delay.lock().unwrap()) {
            self.late.lock().unwrap().push(commit);
            return Err(CatalogError::Unknown("it is late".into()));
        }
        self.memory.commit(&commit, by)
    }

    fn get(&self, key: &str, by: Deadline) -> CatalogResult<Option<Entry>> {
        self.leader.answers()?;
        self.memory.get(key, by)
    }

    fn list(&self, prefix: &str, by: Deadline) -> CatalogResult<Listing> {
        self.leader.answers()?;
        self.memory.list(prefix, by)
    }

    fn grant(&self, time: Duration, by: Deadline) -> CatalogResult<LeaseId> {
        self.leader.answers()?;
        self.memory.grant(time, by)
    }

    fn keep_alive(&self, lease: LeaseId, by: Deadline) -> CatalogResult<()> {
        self.leader.answers()?;
        match self.memory.keep_alive(lease, by) {
            Err(CatalogError::NoLease) if self.defects.lost_lease_ignored => Ok(()),
            kept => kept,
        }
    }

    fn revoke(&self, lease: LeaseId, by: Deadline) -> CatalogResult<()> {
        self.leader.answers()?;
        self.memory.revoke(lease, by)
    }

    fn watch(&self, prefix: &str, from: Revision) -> CatalogResult<Box<dyn Watch>> {
        self.leader.answers()?;
        self.memory.watch(prefix, from)
    }
}

/// Makes the gateway of a broker of a node's daemon. `token` distinguishes the daemon from all other daemons. `number`
/// is the number that the catalog has given the node, or 0 if it has given none yet.
pub fn gateway(handle: &Arc<Handle>, clock: &Arc<AtomicU64>, node: &str, token: u64, number: u64) -> SimulatedGateway {
    let at = CatalogAddress::Keep(String::new());
    let options = GatewayOptions { number, token, ..GatewayOptions::new("s", node, at, "/".into()) };
    let clock = Arc::clone(clock);
    SimulatedGateway::new(&options, Arc::clone(handle) as Arc<dyn Catalog>, move || clock.load(Ordering::Relaxed))
}

//! Regions that are copied or moved to another node.
//!
//! ```text
//! node a: has the region                 node b: a task wants it
//!                     <- FREEZE          a member of the daemon opens the region alone ("freezes" it)
//!   size, extents, ticket ->
//!                     <- pulls the extents' bytes into a segment that no task can see
//!                                        for a move, the catalog gives the name to node b
//!                     <- STILL_FROZEN    node a still keeps the region closed (move)
//!                                        the segment gets its name
//!                     <- COPY_ENDED      node a removes the region (move), or lets other members open it again
//! ```
//!
//! If COPY_ENDED is lost, or the daemon of node b dies, node a asks node b for the state of the copy (COPY_STATE). Node
//! b finds the answer in its region with the name of the copy, because that region records the segment from which it
//! was copied. So after a move, exactly one of the two regions remains.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crossdock_client::{Error, InUse, Mode, Region, Result, SegmentId, SegmentKind, Session, Status};
use crossdock_core::shared_access;
use crossdock_link::{Buffer, Refusal, Source};
use crossdock_os::Deadline;

use crate::channel::reached;
use crate::messages::{BodyField, ChannelKey, spell};
use crate::reports::AGAIN;
use crate::{Peers, Shared, lock, mirror_name};

/// Asks the node of a region to freeze the region and to offer its bytes. The body is a [`FreezeRequest`], the answer
/// is [`FrozenExtents`].
const FREEZE: u32 = 30;
/// Tells the daemon of the original region whether the copy has got its name. The body is a [`CopyEnded`], the answer
/// is empty.
const COPY_ENDED: u32 = 31;
/// Asks for the state of a copy. The body is a [`CopyStateRequest`], the answer is a number of [`CopyState`].
const COPY_STATE: u32 = 32;

/// Asks whether a region is still frozen. If it is, the answer is empty. If not, the request is refused with `Closed`.
const STILL_FROZEN: u32 = 33;

/// The numbers of the services that are about regions.
pub const SERVICES: std::ops::RangeInclusive<u32> = FREEZE..=STILL_FROZEN;

/// The maximum number of bytes in one pull. On a slow network a pull brings less, but at least `SMALL_PART`.
const PART: u64 = 64 << 20;
const SMALL_PART: u64 = 1 << 20;
/// How many bytes are copied at a time if the region is on this node.
const PIECE: usize = 256 << 10;
/// How long one pull may take before the region's node is asked whether it still has the bytes.
const PULL: Duration = Duration::from_secs(3);
/// How long one request to another node waits for its answer.
const ANSWER: Duration = Duration::from_secs(5);
/// The minimum time for freezing a region. It lets the answer, which says why a region is refused, arrive in time.
const LEAST: Duration = Duration::from_secs(1);
/// How often the daemon of the original region asks for the state of the copy.
const ASK: Duration = Duration::from_secs(1);
/// If the copying node does not answer for this time, the original region is opened again. This is done only for a
/// copy, not for a move.
const SILENT: Duration = Duration::from_secs(30);

/// The request of a task of this node to copy or move a region to this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedRegion {
    /// The number that the broker gave to this request.
    pub order: u64,
    /// The node that has the region; `None` if this node has it.
    pub node: Option<String>,
    /// The name of the region's workflow.
    pub workflow: String,
    /// The name of the region.
    pub name: String,
    /// The name of the copy.
    pub copy: String,
    /// Whether the region is moved, so that its name belongs to this node afterwards. If not, the region is copied.
    pub moves: bool,
    /// The maximum time for the whole copy.
    pub wait: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FreezeRequest {
    pub key: ChannelKey,
    pub workflow: String,
    pub name: String,
    pub copy: String,
    pub moves: bool,
}

/// The answer to a [`FreezeRequest`]: the size of the frozen region, and which parts of it have memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrozenExtents {
    pub segment: u64,
    pub capacity: u64,
    /// How many bytes of the region count against the quota.
    pub counted: u64,
    /// The number (ticket) under which the other node can pull the bytes.
    pub ticket: u64,
    /// The parts of the region that have memory, as pairs of offset and length.
    pub extents: Vec<(u64, u64)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyEnded {
    pub key: ChannelKey,
    pub named: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyStateRequest {
    pub key: ChannelKey,
    pub workflow: String,
    pub copy: String,
    pub segment: u64,
}

spell! {
    FreezeRequest { key, workflow, name, copy, moves }
    FrozenExtents { segment, capacity, counted, ticket, extents }
    CopyEnded { key, named }
    CopyStateRequest { key, workflow, copy, segment }
}

/// The state of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CopyState {
    /// The copy does not exist, and is not being made.
    Missing = 0,
    /// The copy is being made, or its state is not known yet.
    Making = 1,
    /// The copy has its name.
    Named = 2,
}

/// The bytes of a frozen region, which another node can pull.
struct Bytes(Region);

impl Source for Bytes {
    fn length(&self) -> u64 {
        self.0.capacity()
    }

    fn bytes<'a>(&'a self, offset: u64, length: u64, buffer: &'a mut Buffer) -> std::result::Result<&'a [u8], Refusal> {
        // The bytes are copied, because the freeze may end while a late pull still reads them.
        let bytes = buffer.room(length)?;
        shared_access::copy_out(self.0.mapping(), offset, bytes).ok_or_else(Refusal::shorter)?;
        Ok(bytes)
    }
}

/// A region of this node that is frozen for another node.
struct Frozen {
    peer: String,
    request: FreezeRequest,
    offer: FrozenExtents,
    session: Session,
    region: Mutex<Option<Region>>,
    /// Whether the copy has its name; `None` until this is known.
    outcome: Mutex<Option<bool>>,
    ended: Condvar,
}

impl Frozen {
    fn end(&self, named: bool) {
        lock(&self.outcome).get_or_insert(named);
        self.ended.notify_all();
    }
}

/// All regions that this daemon freezes or copies.
#[derive(Default)]
pub struct RegionTransfers {
    frozen: Mutex<BTreeMap<ChannelKey, Arc<Frozen>>>,
    /// The copies that are being made here.
    making: Mutex<BTreeSet<ChannelKey>>,
}

impl RegionTransfers {
    /// Notes that the lease of a node has ended. The copies that the node was making count as failed.
    pub fn gone(&self, node: &str) {
        lock(&self.frozen).values().filter(|frozen| frozen.peer == node).for_each(|frozen| frozen.end(false));
    }

    /// Unfreezes all regions, because the daemon ends.
    pub fn drop_now(&self) {
        lock(&self.frozen).values().for_each(|frozen| frozen.end(false));
    }
}

impl Shared {
    /// Makes a copy of a region for a task of this node, and gives the copy its name. Returns the id of the copy.
    pub(crate) fn copy_region(self: &Arc<Self>, want: &WantedRegion) -> Result<SegmentId> {
        let by = Deadline::after(want.wait);
        let WantedRegion { node, workflow, name, copy, moves, .. } = want;
        let key = self.new_key();
        lock(&self.regions.making).insert(key);
        let request =
            FreezeRequest { key, workflow: workflow.clone(), name: name.clone(), copy: copy.clone(), moves: *moves };
        let made = self.freeze_at(node.as_deref(), &request, by).and_then(|offer| self.fill(want, &offer, key, by));
        lock(&self.regions.making).remove(&key);
        // If this report is lost, the node of the original region asks for the state of the copy.
        let report = CopyEnded { key, named: made.is_ok() };
        match node {
            // The task that waits for the error must get it in time, even if the other node is lost.
            Some(node) => drop(self.ask(node, COPY_ENDED, &report.encode(), if report.named { ANSWER } else { LEAST })),
            None => self.copy_ended("", &report),
        }
        made
    }

    /// Sends a request about a region to another node. If the node refuses, the error's text is the node's reason,
    /// without the name and address of the node.
    fn ask_for_region(&self, node: &str, service: u32, body: &[u8], wait: Duration) -> Result<Vec<u8>> {
        self.nodes.ask(node, service, body, Deadline::after(wait)).map_err(|error| match error.status {
            Status::Disconnected | Status::TimedOut => reached(&error),
            status => Error::new(status, error.reason),
        })
    }

    /// Freezes a region on the node that has the region. If `node` is `None`, that is this node.
    fn freeze_at(self: &Arc<Self>, node: Option<&str>, request: &FreezeRequest, by: Deadline) -> Result<FrozenExtents> {
        let Some(node) = node else { return self.freeze("", request) };
        loop {
            match self.ask_for_region(node, FREEZE, &request.encode(), by.left().clamp(LEAST, ANSWER)) {
                Ok(body) => {
                    return FrozenExtents::decode(&body).map_err(|refusal| Error::new(refusal.status, refusal.text));
                }
                Err(error) if error.status == Status::Disconnected && !by.passed() => thread::sleep(AGAIN),
                Err(error) => return Err(error),
            }
        }
    }

    /// Brings the bytes of a frozen region into a new segment, and gives this segment its name.
    fn fill(
        self: &Arc<Self>,
        want: &WantedRegion,
        offer: &FrozenExtents,
        key: ChannelKey,
        by: Deadline,
    ) -> Result<SegmentId> {
        let WantedRegion { order, node, workflow, copy, .. } = want;
        let from = node.as_deref().unwrap_or("here");
        let session = self.session(workflow, &format!("copies.on.{from}"), 0, true)?;
        let mirror = mirror_name(key, 0, copy)?;
        let mut incoming = session.incoming_region(&mirror, offer.capacity)?;
        let id = incoming.id();
        let filled = (|| {
            incoming.count(offer.counted.min(offer.capacity))?;
            let mut part = PART;
            for (offset, length) in &offer.extents {
                let mut at = *offset;
                let end = offset.saturating_add(*length);
                while at < end {
                    let more = (end - at).min(part);
                    if self.bring((node.as_deref(), key), offer.ticket, at, incoming.part(at, more)?, by)? {
                        at += more;
                    } else {
                        part = (part / 2).max(SMALL_PART);
                    }
                }
            }
            let region = incoming.finish(SegmentId(offer.segment))?;
            let wait = || by.left().max(ANSWER);
            if let Some(node) = node.as_deref().filter(|_| want.moves) {
                // The other daemon may have restarted since the freeze, and may have opened the region to its tasks. If
                // it confirms now that the region is still frozen, it will learn from the catalog that the name belongs
                // to this node.
                session.adopt_region(*order, &region, false, wait())?;
                self.ask_for_region(node, STILL_FROZEN, &key.encode(), ANSWER)?;
            }
            session.adopt_region(*order, &region, true, wait())
        })();
        filled.map(|()| id).or_else(|error| {
            self.remove(workflow, vec![(SegmentKind::Region, mirror)]);
            // If only the answer to the last request was lost, the region has its name already. In this case the copy
            // has succeeded.
            let named = self.region_named(workflow, copy);
            named.ok().filter(|region| region.id() == id).map(|_| id).ok_or(error)
        })
    }

    /// Pulls bytes of the region that `node` has frozen under `key`. Returns `false` if not all bytes have come yet,
    /// and the region is still frozen.
    fn bring(
        &self,
        (node, key): (Option<&str>, ChannelKey),
        ticket: u64,
        at: u64,
        memory: &mut [u8],
        by: Deadline,
    ) -> Result<bool> {
        if by.passed() {
            let from = node.map_or(String::new(), |node| format!(" from node {node}"));
            return Err(Error::new(
                Status::TimedOut,
                format!("the bytes of the region have not all come{from} in time"),
            ));
        }
        let Some(node) = node else {
            let source = lock(&self.offered).get(&ticket).cloned();
            let over = || Error::new(Status::Closed, "the region is not frozen any more");
            let (source, mut buffer) = (source.ok_or_else(over)?, Buffer::default());
            for (at, piece) in (at..).step_by(PIECE).zip(memory.chunks_mut(PIECE)) {
                piece.copy_from_slice(source.bytes(at, piece.len() as u64, &mut buffer).map_err(|_| over())?);
            }
            return Ok(true);
        };
        match self.pull_into(node, ticket, at, memory, by.left().min(PULL)) {
            Ok(()) => Ok(true),
            Err(error) if matches!(error.status, Status::TimedOut | Status::Disconnected) => {
                // The node's daemon may have restarted at another address. In this case the region is not frozen any
                // more.
                match self.ask_for_region(node, STILL_FROZEN, &key.encode(), by.left().clamp(LEAST, ANSWER)) {
                    Err(refused) if !matches!(refused.status, Status::TimedOut | Status::Disconnected) => Err(refused),
                    _ => Ok(false),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Opens a region of this node by its name.
    fn region_named(&self, workflow: &str, name: &str) -> Result<Region> {
        self.session(workflow, "copies", 0, true)?.region(name, Mode::OpenOnly, 0, None)
    }

    /// Returns the state of the copy `question.copy` on this node.
    fn own_copy_state(&self, question: &CopyStateRequest) -> CopyState {
        if lock(&self.regions.making).contains(&question.key) {
            return CopyState::Making;
        }
        match self.region_named(&question.workflow, &question.copy) {
            Ok(region) if region.is_copied_from(SegmentId(question.segment)) => CopyState::Named,
            // The region may be moving on to a third node, or the daemon is busy. The state is not known yet, so the
            // other node asks again.
            Err(error) if error.status != Status::NotFound => CopyState::Making,
            _ => CopyState::Missing,
        }
    }

    /// Freezes a region of this node for the node `peer`, and offers its bytes. A repeated request gets the same
    /// answer.
    fn freeze(self: &Arc<Self>, peer: &str, request: &FreezeRequest) -> Result<FrozenExtents> {
        let key = request.key;
        if let Some(frozen) = lock(&self.regions.frozen).get(&key).filter(|frozen| frozen.peer == peer) {
            return Ok(frozen.offer.clone());
        }
        self.open_once(key, "this region is being frozen, or has been", || self.freeze_first(peer, request))
    }

    fn freeze_first(self: &Arc<Self>, peer: &str, request: &FreezeRequest) -> Result<FrozenExtents> {
        let FreezeRequest { key, workflow, name, moves, .. } = request;
        let to = if peer.is_empty() { "here" } else { peer };
        let session = self.session(workflow, &format!("copies.on.{to}"), 0, true)?;
        let region = session.freeze_region(name, *moves)?;
        let ticket = self.offer(Arc::new(Bytes(region.clone())));
        let (segment, capacity, counted) = (region.id().0, region.capacity(), region.counted());
        let offer = FrozenExtents { segment, capacity, counted, ticket, extents: region.extents() };
        let frozen = Arc::new(Frozen {
            peer: peer.to_owned(),
            request: request.clone(),
            offer: offer.clone(),
            session,
            region: Mutex::new(Some(region)),
            outcome: Mutex::default(),
            ended: Condvar::new(),
        });
        lock(&self.regions.frozen).insert(*key, Arc::clone(&frozen));
        let own = Arc::clone(self);
        let started = thread::Builder::new().name("region-frozen".into()).spawn(move || own.look_after(&frozen));
        if let Err(error) = started {
            lock(&self.regions.frozen).remove(key);
            self.withdraw(ticket);
            return Err(Error::system("starting a thread for a region", &error));
        }
        Ok(offer)
    }

    /// Waits until the outcome of the copy is known. If the region has moved, removes it from this node. If not, lets
    /// other members open it again.
    fn look_after(&self, frozen: &Frozen) {
        let mut heard = Instant::now();
        let named = loop {
            let outcome = lock(&frozen.outcome);
            let waited = frozen.ended.wait_timeout_while(outcome, ASK, |outcome| outcome.is_none());
            if let Some(named) = *waited.unwrap_or_else(PoisonError::into_inner).0 {
                break named;
            }
            if frozen.peer.is_empty() {
                continue;
            }
            match self.remote_copy_state(frozen) {
                Some(CopyState::Making) => heard = Instant::now(),
                Some(state) => break state == CopyState::Named,
                // The other node may have given the copy its name. So a region that moves stays frozen until the
                // outcome is known.
                None if !frozen.request.moves && heard.elapsed() > SILENT => break false,
                None => {}
            }
        };
        self.withdraw(frozen.offer.ticket);
        if named && frozen.request.moves {
            let name = &frozen.request.name;
            // `Force` is needed because this daemon's own member has the region open.
            if let Err(error) = frozen.session.remove(SegmentKind::Region, name, InUse::Force) {
                self.log(&format!("region '{name}' has moved to node {}, and stays here, too: {error}", frozen.peer));
            }
        }
        drop(lock(&frozen.region).take());
        lock(&self.regions.frozen).remove(&frozen.request.key);
    }

    /// Finds out whether a region has moved to `node`, to which the catalog has given the region's name. Asks that node
    /// until the answer is known. If the region has moved, removes it from this node.
    pub(crate) fn region_left(&self, node: &str, workflow: &str, name: &str, segment: SegmentId) {
        let (key, copy) = (ChannelKey { by: 0, number: 0 }, name.to_owned());
        let question = CopyStateRequest { key, workflow: workflow.to_owned(), copy, segment: segment.0 }.encode();
        while !self.stop.load(Ordering::Acquire) {
            let state = self.ask(node, COPY_STATE, &question, ANSWER).ok().and_then(|body| u64::decode(&body).ok());
            if state == Some(CopyState::Named as u64) {
                return self.remove(workflow, vec![(SegmentKind::Region, name.to_owned())]);
            }
            // The other node may have given up the name, or its lease may have ended. Then the name belongs to this
            // node again.
            if self.region_named(workflow, name).is_ok_and(|region| region.id() == segment) {
                return;
            }
            thread::sleep(ASK);
        }
    }

    /// Asks the other node for the state of the copy. Returns `None` if it does not answer.
    fn remote_copy_state(&self, frozen: &Frozen) -> Option<CopyState> {
        let FreezeRequest { key, workflow, copy, .. } = frozen.request.clone();
        let question = CopyStateRequest { key, workflow, copy, segment: frozen.offer.segment };
        let body = self.ask(&frozen.peer, COPY_STATE, &question.encode(), ANSWER).ok()?;
        match u64::decode(&body).ok()? {
            1 => Some(CopyState::Making),
            2 => Some(CopyState::Named),
            _ => Some(CopyState::Missing),
        }
    }

    fn copy_ended(&self, peer: &str, report: &CopyEnded) {
        let frozen = lock(&self.regions.frozen).get(&report.key).filter(|frozen| frozen.peer == peer).cloned();
        if let Some(frozen) = frozen {
            frozen.end(report.named);
        }
    }

    /// Answers a request of another node to one of [`SERVICES`].
    pub(crate) fn answer_region(
        self: &Arc<Self>,
        node: &str,
        service: u32,
        body: &[u8],
    ) -> std::result::Result<Vec<u8>, Refusal> {
        match service {
            FREEZE => {
                let offer = self.freeze(node, &FreezeRequest::decode(body)?);
                offer.map(|offer| offer.encode()).map_err(|error| Refusal::new(error.status, error.to_string()))
            }
            COPY_ENDED => {
                self.copy_ended(node, &CopyEnded::decode(body)?);
                Ok(Vec::new())
            }
            COPY_STATE => {
                let state = self.own_copy_state(&CopyStateRequest::decode(body)?);
                Ok((state as u64).encode())
            }
            STILL_FROZEN => {
                let key = ChannelKey::decode(body)?;
                let frozen = lock(&self.regions.frozen).get(&key).filter(|frozen| frozen.peer == node).cloned();
                match frozen.filter(|frozen| lock(&frozen.outcome).is_none()) {
                    Some(_) => Ok(Vec::new()),
                    None => {
                        Err(Refusal::new(Status::Closed, "the region is not kept for this node any more; try again"))
                    }
                }
            }
            other => Err(Refusal::new(Status::Incompatible, format!("regions have no service {other}"))),
        }
    }
}

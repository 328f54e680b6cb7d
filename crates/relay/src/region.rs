//! Regions that are copied or moved to another node.
//!
//! ```text
//! node a: has the region                 node b: a task wants it
//!                     <- FREEZE          a member of the daemon opens the region alone ("freezes" it)
//!   size, extents, ticket ->
//!                     <- pulls the extents' bytes into a segment that no task can see
//! ```
//!
//! If the region is copied, the new segment on node b then gets the name of the copy. Node b sends COPY_ENDED, and node
//! a, which has the region, lets other members open the region again. A copy changes nothing on node a. So node a also
//! ends the freeze if node b says that it does not make the copy any more (COPY_STATE), or if node b is silent for
//! [`SILENT`].
//!
//! A move continues with the brokers of both nodes:
//!
//! ```text
//! node a                                 node b
//!                                        its broker notes the move; the catalog gives the name to node b
//!                     <- HAND_OVER       "the region becomes this segment"
//!   its broker notes that the move's outcome belongs to node b, and keeps the region closed
//!   done ->
//!                                        the segment gets its name: now the region has moved
//! ```
//!
//! Until HAND_OVER, node a may end the move alone: then it refuses HAND_OVER, and node b gives up. After HAND_OVER,
//! only node b's broker knows the outcome. The two brokers exchange the outcome, also after restarts: see `regions` in
//! the broker.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crossdock_client::{Error, Mode, Region, Result, SegmentId, SegmentKind, Session, Status};
use crossdock_core::shared_access;
use crossdock_link::{Buffer, Refusal, Source};
use crossdock_os::Deadline;

use crate::channel::reached;
use crate::messages::{BodyField, ChannelKey, spell};
use crate::reports::AGAIN;
use crate::{Peers, Shared, find_or_opening, lock, mirror_name};

/// Asks the node of a region to freeze the region and to offer its bytes. The body is a [`FreezeRequest`], the answer
/// is [`FrozenExtents`].
const FREEZE: u32 = 30;
/// Tells the daemon of the original region that the other node does not make the copy any more. The body is the copy's
/// key, the answer is empty.
const COPY_ENDED: u32 = 31;
/// Asks whether a copy is being made. The body is the copy's key, the answer is 1 (it is being made) or 0.
const COPY_STATE: u32 = 32;

/// Asks whether a region is still frozen. If it is, the answer is empty. If not, the request is refused with `Closed`.
const STILL_FROZEN: u32 = 33;
/// Hands the outcome of a move over to the node that asks. The body is a [`HandOver`], the answer is empty. If the region
/// is not frozen any more, the request is refused with `Closed`.
const HAND_OVER: u32 = 34;

/// The numbers of the services that are about regions.
pub const SERVICES: std::ops::RangeInclusive<u32> = FREEZE..=HAND_OVER;

/// The maximum number of bytes in one pull. On a slow network a pull asks for fewer bytes, but for at least
/// `SMALL_PART`.
const PART: u64 = 64 << 20;
const SMALL_PART: u64 = 1 << 20;
/// How many bytes are copied at a time if the region is on this node.
const PIECE: usize = 256 << 10;
/// How long one pull may take before the region's node is asked whether it still has the bytes.
const PULL: Duration = Duration::from_secs(3);
/// How long one request to another node waits for its answer.
const ANSWER: Duration = Duration::from_secs(5);
/// A request to another node waits at least this long for its answer, even if the task's time ends earlier. Otherwise
/// an answer that says why the region is refused could come too late.
const LEAST: Duration = Duration::from_secs(1);
/// How often the daemon of the original region asks for the state of the copy.
const ASK: Duration = Duration::from_secs(1);
/// If the node that makes the copy does not answer for this time, the freeze ends. A move whose outcome was handed over
/// to that node does not end with this: the freeze has ended before, and the broker keeps the region closed.
const SILENT: Duration = Duration::from_secs(30);
/// The text of the refusal if a node still pulls a region, or wants it handed over, after the freeze of the region has
/// ended.
const NOT_KEPT: &str = "the region is not kept for this node any more; try again";

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
pub struct HandOver {
    pub key: ChannelKey,
    /// The id that the region gets on the asking node.
    pub becomes: u64,
}

spell! {
    FreezeRequest { key, workflow, name, copy, moves }
    FrozenExtents { segment, capacity, counted, ticket, extents }
    HandOver { key, becomes }
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
pub struct Frozen {
    peer: String,
    request: FreezeRequest,
    offer: FrozenExtents,
    session: Session,
    region: Mutex<Option<Region>>,
    /// Whether the freeze has ended. It ends when the copy is not made any more, or when the move was handed over.
    ended: Mutex<bool>,
    end: Condvar,
}

impl Frozen {
    pub fn end(&self) {
        *lock(&self.ended) = true;
        self.end.notify_all();
    }
}

/// All regions that this daemon freezes or copies.
#[derive(Default)]
pub struct RegionTransfers {
    frozen: Mutex<BTreeMap<ChannelKey, Arc<Frozen>>>,
    /// The copies that this daemon is making.
    making: Mutex<BTreeSet<ChannelKey>>,
}

impl RegionTransfers {
    /// Gives the regions that are frozen for a node.
    pub fn of_node(&self, node: &str) -> Vec<Arc<Frozen>> {
        lock(&self.frozen).values().filter(|frozen| frozen.peer == node).cloned().collect()
    }

    /// Unfreezes all regions, because the daemon ends.
    pub fn drop_now(&self) {
        lock(&self.frozen).values().for_each(|frozen| frozen.end());
    }
}

impl Shared {
    /// Makes a copy of a region for a task of this node, and gives the copy its name. Returns the id of the copy.
    pub(crate) fn copy_region(self: &Arc<Self>, want: &WantedRegion) -> Result<SegmentId> {
        let by = Deadline::after(want.wait);
        let WantedRegion { node, workflow, name, copy, moves, .. } = want;
        let (key, made) = loop {
            let key = self.new_key();
            lock(&self.regions.making).insert(key);
            let (workflow, name, copy) = (workflow.clone(), name.clone(), copy.clone());
            let request = FreezeRequest { key, workflow, name, copy, moves: *moves };
            match self.freeze_at(node.as_deref(), &request, by) {
                Ok(Some(offer)) => break (key, self.fill(want, &offer, key, by)),
                Ok(None) if !by.passed() => drop(lock(&self.regions.making).remove(&key)),
                Ok(None) => break (key, Err(Error::new(Status::Disconnected, NOT_KEPT))),
                Err(error) => break (key, Err(error)),
            }
        };
        lock(&self.regions.making).remove(&key);
        // This report tells the node of the original region that the copy has ended. If this report is lost, that node
        // asks for the state of the copy. A successful move needs no report: that node has handed the outcome of the
        // move over to this node, and the freeze has ended with that.
        match node {
            Some(_) if *moves && made.is_ok() => {}
            // The task that waits for the error must get it in time, even if the other node is lost. So after an error,
            // this report waits only [`LEAST`] for its answer.
            Some(node) => drop(self.ask(node, COPY_ENDED, &key.encode(), if made.is_ok() { ANSWER } else { LEAST })),
            None => self.copy_ended("", key),
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

    /// Freezes a region on the node that has the region. If `node` is `None`, this node has the region. A request that
    /// is repeated has the same key, and freezes the region only once. Returns `None` if the answer to an earlier
    /// request was lost, that request has frozen the region, and this freeze has ended since then. The caller then
    /// freezes the region with a new key.
    fn freeze_at(
        self: &Arc<Self>,
        node: Option<&str>,
        request: &FreezeRequest,
        by: Deadline,
    ) -> Result<Option<FrozenExtents>> {
        let Some(node) = node else { return self.freeze("", request).map(Some) };
        let mut is_answer_lost = false;
        loop {
            match self.ask_for_region(node, FREEZE, &request.encode(), by.left().clamp(LEAST, ANSWER)) {
                Ok(body) => {
                    let offer = FrozenExtents::decode(&body);
                    return offer.map(Some).map_err(|refusal| Error::new(refusal.status, refusal.text));
                }
                Err(error) if is_answer_lost && error.status == Status::Closed => return Ok(None),
                Err(error) if error.status == Status::Disconnected && !by.passed() => {
                    is_answer_lost = true;
                    thread::sleep(AGAIN);
                }
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
            let former = SegmentId(offer.segment);
            let region = incoming.finish(former)?;
            let wait = || by.left().max(ANSWER);
            if let Some(node) = node.as_deref().filter(|_| want.moves) {
                session.adopt_region(*order, &region, former, false, wait())?;
                // The other daemon may have restarted since the freeze, and may have opened the region to its tasks. In
                // this case it refuses to hand the region over.
                let hand_over = HandOver { key, becomes: region.id().0 };
                self.ask_for_region(node, HAND_OVER, &hand_over.encode(), ANSWER)?;
            }
            session.adopt_region(*order, &region, former, true, wait())
        })();
        filled.map(|()| id).or_else(|error| {
            self.remove(workflow, vec![(SegmentKind::Region, mirror)]);
            // If only the answer to the last request was lost, the region has its name already. In this case the copy
            // has succeeded.
            let named = self.region_named(workflow, copy);
            named.ok().filter(|region| region.id() == id).map(|_| id).ok_or(error)
        })
    }

    /// Pulls bytes of the region that `node` has frozen under `key`. Returns `true` if all bytes have come. Returns
    /// `false` if bytes are missing but may still come, because the region is still frozen.
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
                // The pull may have failed because the daemon of the region's node has restarted at another address. A
                // restarted daemon does not keep the region frozen. So this node asks whether the region is still
                // frozen. If the answer is no, the copy ends. In every other case the pull is repeated.
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

    /// Freezes a region of this node for the node `peer`, and offers its bytes. A repeated request gets the same
    /// answer; if the freeze has ended, the call fails with `Closed`.
    fn freeze(self: &Arc<Self>, peer: &str, request: &FreezeRequest) -> Result<FrozenExtents> {
        let key = request.key;
        let is_seen = || lock(&self.seen).contains(&key);
        // This function reads `seen` before and after it reads `serving` and the frozen regions; `open_for` explains
        // why.
        let was_seen = is_seen();
        match find_or_opening(&self.serving, key, || self.frozen_for(peer, key)) {
            Ok(frozen) if !*lock(&frozen.ended) => return Ok(frozen.offer.clone()),
            Ok(_) | Err(false) if was_seen && is_seen() => return Err(Error::new(Status::Closed, NOT_KEPT)),
            Ok(_) | Err(_) => {}
        }
        self.open_once(key, "this region is being frozen", || self.freeze_first(peer, request))
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
            ended: Mutex::default(),
            end: Condvar::new(),
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

    /// Waits until the freeze has ended, and closes the region. Then other members can open the region again, unless
    /// the outcome of the region's move was handed over to the other node. In that case the broker keeps the region
    /// closed.
    fn look_after(&self, frozen: &Frozen) {
        let mut heard = Instant::now();
        loop {
            let ended = lock(&frozen.ended);
            let waited = frozen.end.wait_timeout_while(ended, ASK, |ended| !*ended);
            if *waited.unwrap_or_else(PoisonError::into_inner).0 {
                break;
            }
            if frozen.peer.is_empty() {
                continue;
            }
            match self.is_being_made(frozen) {
                Some(true) => heard = Instant::now(),
                Some(false) => break,
                None if heard.elapsed() > SILENT => break,
                None => {}
            }
        }
        // From now on, `hand_over` refuses to hand the outcome of the move over to the other node.
        frozen.end();
        self.withdraw(frozen.offer.ticket);
        drop(lock(&frozen.region).take());
        lock(&self.regions.frozen).remove(&frozen.request.key);
    }

    /// Asks the other node whether it still makes the copy. Returns `None` if the other node does not answer.
    fn is_being_made(&self, frozen: &Frozen) -> Option<bool> {
        let body = self.ask(&frozen.peer, COPY_STATE, &frozen.request.key.encode(), ANSWER).ok()?;
        Some(u64::decode(&body).ok()? != 0)
    }

    fn frozen_for(&self, peer: &str, key: ChannelKey) -> Option<Arc<Frozen>> {
        lock(&self.regions.frozen).get(&key).filter(|frozen| frozen.peer == peer).cloned()
    }

    fn copy_ended(&self, peer: &str, key: ChannelKey) {
        self.frozen_for(peer, key).inspect(|frozen| frozen.end());
    }

    /// Hands the outcome of a move over to the node `peer`: from now on, only that node's broker knows whether the region
    /// has moved.
    fn hand_over(&self, peer: &str, question: &HandOver) -> Result<()> {
        let over = || Error::new(Status::Closed, NOT_KEPT);
        let frozen = self.frozen_for(peer, question.key).filter(|frozen| frozen.request.moves).ok_or_else(over)?;
        // The lock is held until the broker has answered, so the freeze does not end meanwhile.
        let mut ended = lock(&frozen.ended);
        if *ended {
            return Err(over());
        }
        let segment = SegmentId(frozen.offer.segment);
        frozen.session.hand_over_region(segment, SegmentId(question.becomes), peer)?;
        *ended = true;
        frozen.end.notify_all();
        Ok(())
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
                self.copy_ended(node, ChannelKey::decode(body)?);
                Ok(Vec::new())
            }
            COPY_STATE => {
                let is_being_made = lock(&self.regions.making).contains(&ChannelKey::decode(body)?);
                Ok(u64::from(is_being_made).encode())
            }
            HAND_OVER => {
                let handed_over = self.hand_over(node, &HandOver::decode(body)?);
                handed_over.map(|()| Vec::new()).map_err(|error| Refusal::new(error.status, error.to_string()))
            }
            STILL_FROZEN => {
                match self.frozen_for(node, ChannelKey::decode(body)?).filter(|frozen| !*lock(&frozen.ended)) {
                    Some(_) => Ok(Vec::new()),
                    None => Err(Refusal::new(Status::Closed, NOT_KEPT)),
                }
            }
            other => Err(Refusal::new(Status::Incompatible, format!("regions have no service {other}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use crossdock_link::SourceId;

    use super::*;
    use crate::{Relay, RelayNetwork};

    /// Plays the node of a region in a test. The node's answer to the first request to freeze the region is lost, and
    /// the freeze ends before the request comes again.
    #[derive(Default)]
    struct LosesAnAnswer(Mutex<Vec<ChannelKey>>);

    impl RelayNetwork for LosesAnAnswer {
        fn ask(&self, _: &str, service: u32, body: &[u8], _: Deadline) -> crossdock_link::Result<Vec<u8>> {
            let failed = |status| Err(crossdock_link::Error::new(status, "ask", "refused"));
            if service != FREEZE {
                return Ok(Vec::new());
            }
            let mut asked = lock(&self.0);
            asked.push(FreezeRequest::decode(body).unwrap().key);
            match asked.len() {
                1 => failed(Status::Disconnected),
                2 => failed(Status::Closed),
                _ => failed(Status::NotFound),
            }
        }

        fn pull(&self, _: &str, _: &SourceId, _: u64, _: &mut [u8], _: Deadline) -> crossdock_link::Result<()> {
            Err(crossdock_link::Error::new(Status::NotFound, "pull", "there is nothing"))
        }
    }

    #[test]
    fn a_freeze_that_ended_before_it_was_confirmed_is_repeated_with_another_key() {
        let nodes = Arc::new(LosesAnAnswer::default());
        let network = Arc::clone(&nodes) as Arc<dyn RelayNetwork>;
        let relay = Relay::new(1, network, PathBuf::from("/nowhere"), |_| {}).unwrap();
        let want = WantedRegion {
            order: 1,
            node: Some("b".into()),
            workflow: "w".into(),
            name: "x".into(),
            copy: "y".into(),
            moves: false,
            wait: Duration::from_secs(600),
        };
        assert_eq!(relay.copy_region(&want).map_err(|(status, _)| status), Err(Status::NotFound));
        let asked = std::mem::take(&mut *lock(&nodes.0));
        assert_eq!(asked.len(), 3);
        assert!(asked[0] == asked[1] && asked[1] != asked[2], "{asked:?}");
        assert!(lock(&relay.shared.regions.making).is_empty());
    }

    #[test]
    fn a_request_for_a_freeze_that_has_ended_is_refused_for_good() {
        let relay = Relay::new(1, Arc::new(LosesAnAnswer::default()), PathBuf::from("/nowhere"), |_| {}).unwrap();
        let key = ChannelKey { by: 2, number: 3 };
        let (workflow, name, copy) = ("w".into(), "x".into(), "y".into());
        let request = FreezeRequest { key, workflow, name, copy, moves: false };
        let freeze = || relay.shared.freeze("b", &request).map(drop).map_err(|error| error.status);
        lock(&relay.shared.seen).push_back(key);
        assert_eq!(freeze(), Err(Status::Closed));
        lock(&relay.shared.serving).insert(key);
        assert_eq!(freeze(), Err(Status::Disconnected), "the node asks again while the region is being frozen");
    }
}

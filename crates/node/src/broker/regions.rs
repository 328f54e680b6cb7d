//! Regions that are copied or moved from node to node.
//!
//! A member asks for a region of another node ([`Request::CopyRegion`]). The broker asks its host to copy the region
//! ([`NodeOrder::CopyRegion`]), and the request waits for [`NodeEvent::RegionCopied`]. The host does the work
//! (`crossdock_relay`): its members make a new region under a name of the daemon's own, and fill it with the bytes of
//! the wanted region. Then they ask the broker to give the new region the wanted name ([`Request::Adopt`]). The change
//! of the name is one record, so a copy exists as a whole or not at all. For a move, one commit of the catalog first
//! gives the name from the other node to this one.
//!
//! On the region's node, a member of the host *freezes* the region ([`Request::Freeze`]): this member alone has the
//! region open, and no other member can open the region until this member closes it.
//!
//! The name of a region that moves may go to the other node while this node still has the region. Then the name counts
//! as contested here until the region is removed, or until the catalog has given the name to this node again. A record
//! says which regions are about to move ([`Record::Moving`]). So a broker that starts lets no member open such a region
//! before the catalog has said to which node the region's name belongs. `moves` says how the two nodes agree whether the
//! region has moved.

use std::collections::{BTreeMap, BTreeSet};

use crossdock_layout::wire::{Answer, Request, SegmentKind};
use crossdock_layout::{MemberId, Rights, SegmentId, Status};

use super::mirrors::is_mirror;
use super::{
    Broker, Cause, Connection, Effect, NodeFailure, NodeOrder, Outcome, Record, Requester, Segment, SiteName, SiteOrder,
};

/// A member's request that waits until a region is copied or moved to this node.
struct AwaitedRegion {
    waits: (Connection, u64),
    endpoint: u64,
    member: MemberId,
    opcode: u16,
    workflow: u64,
    copy: String,
    /// For a move: the node from which the region's name is taken.
    taken_from: Option<String>,
    /// True if the wanted name was claimed for the region, but the region does not have that name yet.
    is_claimed: bool,
}

/// A region that is frozen, so that only the member `member` can open it. This member is a session of the daemon itself
/// with its broker.
struct Frozen {
    member: MemberId,
    /// True if the region cannot be handed over any more, because the other node has given up the region's name.
    is_over: bool,
    /// The segments of other nodes to which the region must not be handed over, because its moves to these segments
    /// have ended.
    ended_moves: BTreeSet<SegmentId>,
}

/// The regions that come to this node or leave it.
#[derive(Default)]
pub(super) struct Regions {
    coming: BTreeMap<u64, AwaitedRegion>,
    frozen: BTreeMap<SegmentId, Frozen>,
    /// Names that belong to another node in the catalog although their regions are still on this node. They are
    /// contested.
    pub leaving: BTreeSet<SiteName>,
    /// Regions that were about to move when the node lost its lease, or before this broker started. The catalog has not
    /// said yet which node has their names.
    unsure: BTreeMap<SiteName, SegmentId>,
}

const KIND: SegmentKind = SegmentKind::Region;

impl Regions {
    /// Counts the regions that come to this node for members of this endpoint.
    pub fn coming_to(&self, endpoint: u64) -> usize {
        self.coming.values().filter(|coming| coming.endpoint == endpoint).count()
    }
}

impl Broker {
    /// Handles a member's request to copy or move a region to this node.
    pub(super) fn copy_region(&mut self, asker: Requester, request: Request) {
        let Request::CopyRegion { wait_ms, moves, name, copy } = request else { return };
        let Some((endpoint, workflow)) = self.place(asker) else { return };
        if let Err((status, text)) = self.may_copy(endpoint, (&name, &copy), moves) {
            return self.fail(asker, status, text);
        }
        let key = (workflow, KIND, name);
        let is_elsewhere = self.owner_elsewhere(workflow, KIND, &key.2);
        if let Some(segment) = self.lasting.names.get(&key).copied().filter(|_| is_elsewhere.is_none()) {
            let frozen = self.frozen_by_another(segment, asker.member);
            let leaves = || self.elsewhere(workflow, KIND, &key.2).map(|_| is_frozen(&key.2));
            match frozen.or_else(leaves) {
                Some(text) => return self.fail(asker, Status::Busy, text),
                None if moves => return self.answer(asker, &Answer::Done { value: segment.0 }),
                None => {}
            }
            if self.site.is_none() {
                let text = format!(
                    "region '{}' is on this node, and this daemon is in no site; open the region instead of a copy",
                    key.2
                );
                return self.fail(asker, Status::Invalid, text);
            }
        } else if is_elsewhere.is_none() {
            let text = format!("no node has a region '{}'; make it first, or give a longer timeout", key.2);
            return self.fail(asker, Status::NotFound, text);
        }
        if !moves {
            if let Some(text) = self.name_is_taken(workflow, &copy) {
                return self.fail(asker, Status::Exists, text);
            }
        }
        let own = self.regions.coming.values().filter(|coming| coming.waits.0 == asker.connection).count();
        if !self.journal_works(asker) || !self.may_open_elsewhere(asker, own) {
            return;
        }
        let Some(of) = self.lasting.workflow_name(workflow) else { return };
        let id = self.node_order_id();
        let taken_from = is_elsewhere.clone().filter(|_| moves);
        let waits = (asker.connection, asker.number);
        let coming = AwaitedRegion {
            waits,
            endpoint,
            member: asker.member,
            opcode: asker.opcode,
            workflow,
            copy: copy.clone(),
            taken_from,
            is_claimed: false,
        };
        self.regions.coming.insert(id, coming);
        let order = NodeOrder::CopyRegion { id, node: is_elsewhere, workflow: of, name: key.2, copy, moves, wait_ms };
        self.effects.push(Effect::Nodes(order));
    }

    /// Tells whether the rights of this endpoint allow to copy or move the region `names.0` to the name `names.1`.
    fn may_copy(&self, endpoint: u64, names: (&str, &str), moves: bool) -> Result<(), (Status, String)> {
        let (name, copy) = names;
        if is_mirror(name) || is_mirror(copy) {
            return Err((Status::Denied, "names that begin with '.mirror/' are the daemon's own".into()));
        }
        if moves != (name == copy) {
            let text = format!("region '{name}' cannot be copied to its own name: a name exists once in a site");
            return Err((Status::Invalid, text));
        }
        let verb = if moves { "move" } else { "copy" };
        let from = if moves { Rights::READ.with(Rights::WRITE).with(Rights::REMOVE) } else { Rights::READ };
        for (which, needed) in [(name, from), (copy, Rights::CREATE.with(Rights::READ))] {
            let has = self.lasting.rights(endpoint, KIND, which);
            let has = if has.contains(Rights::WRITE) { has.with(Rights::READ) } else { has };
            if !has.contains(needed) {
                let text = format!(
                    "this task may not {verb} region '{name}': it takes {} for '{which}', the grant says {}",
                    needed.words(),
                    has.words()
                );
                return Err((Status::Denied, text));
            }
        }
        Ok(())
    }

    fn name_is_taken(&self, workflow: u64, copy: &str) -> Option<String> {
        if self.lasting.names.contains_key(&(workflow, KIND, copy.to_owned())) {
            return Some(format!("region '{copy}' is there already; take another name for the copy"));
        }
        self.elsewhere(workflow, KIND, copy)
    }

    /// Handles the host's report about copying or moving a region to this node: the copy is complete, or the copying
    /// has failed.
    pub(super) fn region_copied(&mut self, id: u64, outcome: Result<SegmentId, NodeFailure>) {
        let Some(AwaitedRegion { waits, member, opcode, .. }) = self.regions.coming.remove(&id) else { return };
        if !self.has_member(waits.0, member) {
            return;
        }
        let asker = Requester { connection: waits.0, member, number: waits.1, opcode };
        match outcome {
            Ok(segment) => self.answer(asker, &Answer::Done { value: segment.0 }),
            Err(NodeFailure { status, text }) => self.fail(asker, status, text),
        }
    }

    /// Claims the name of a complete copy in the site, and gives the copy this name if `named` is set. The request
    /// comes from a member of the daemon itself.
    pub(super) fn adopt(&mut self, asker: Requester, order: u64, segments: (SegmentId, SegmentId), named: bool) {
        let (segment, former) = segments;
        let is_daemon = self.is_admin(asker.connection) && self.open_segments.has(segment, asker.member);
        let found = self.lasting.segments.get(&segment).filter(|found| found.removed.is_none() && found.kind == KIND);
        let Some(name) = found.map(|found| found.name.clone()).filter(|name| is_daemon && is_mirror(name)) else {
            return self.fail(asker, Status::Denied, format!("{segment} is no copy that this program has made"));
        };
        let asks = |coming: &&AwaitedRegion| self.has_member(coming.waits.0, coming.member);
        let Some(coming) = self.regions.coming.get(&order).filter(asks) else {
            let text = format!("the task that asked for the region has ended; its copy '{name}' is not needed");
            return self.fail(asker, Status::Closed, text);
        };
        let (workflow, copy, from) = (coming.workflow, coming.copy.clone(), coming.taken_from.clone());
        let cause = Cause { member: coming.member, request: coming.waits.1 };
        if self.lasting.names.contains_key(&(workflow, KIND, copy.clone())) {
            let text = format!("region '{copy}' was made meanwhile; take another name for the copy");
            return self.fail(asker, Status::Exists, text);
        }
        if let Some(node) = from.clone().filter(|_| !named && !self.lasting.arrivals.contains_key(&segment)) {
            if !self.journal_works(asker) {
                return;
            }
            // This record comes before the request to the catalog to take the name. So if this broker is killed, the
            // next one gives the name back.
            let Some(workflow) = self.lasting.workflow_name(workflow) else { return };
            self.commit(Record::Arriving { segment, former, node, workflow, name: copy.clone(), named: false });
        }
        let again = Request::Adopt { order, named, segment, former };
        let is_ours = match &from {
            Some(from) => self.has_taken_name(asker, workflow, &copy, from, again),
            None => self.has_name(asker, workflow, KIND, &copy, || again),
        };
        if !is_ours || !self.journal_works(asker) {
            return;
        }
        if named && from.is_some() {
            let name = self.site_name(workflow, KIND, &copy);
            let is_lost = name.is_some_and(|name| self.is_contested_by_another(&name, ""));
            if is_lost || !self.lasting.arrivals.contains_key(&segment) {
                let text = format!("the name of region '{copy}' was not claimed, or became another node's; try again");
                return self.fail(asker, Status::Closed, text);
            }
        }
        if named {
            self.commit(Record::Renamed { segment, name: copy, cause });
            self.wake_waiting(segment);
        } else if let Some(coming) = self.regions.coming.get_mut(&order) {
            coming.is_claimed = true;
        }
        self.answer(asker, &Answer::Done { value: 0 });
    }

    /// Tells whether this name was claimed for a region that is about to get it.
    pub(super) fn is_claimed_for_region(&self, name: &SiteName) -> bool {
        let fits = |coming: &AwaitedRegion| {
            coming.is_claimed && self.site_name(coming.workflow, KIND, &coming.copy).as_ref() == Some(name)
        };
        self.regions.coming.values().any(fits)
    }

    /// Freezes a region for the asking member, which is a member of the daemon itself: no other member can open the
    /// region from now on.
    pub(super) fn freeze(&mut self, asker: Requester, segment: SegmentId, moves: bool) {
        let found = self.lasting.segments.get(&segment).filter(|found| found.removed.is_none() && found.kind == KIND);
        let is_daemon = self.is_admin(asker.connection) && self.open_segments.has(segment, asker.member);
        let Some((name, workflow)) = found.map(|found| (found.name.clone(), found.workflow)).filter(|_| is_daemon)
        else {
            return self.fail(asker, Status::Denied, format!("this program does not have region {segment} open"));
        };
        if self.frozen_by_another(segment, asker.member).is_some() {
            return self.fail(asker, Status::Busy, is_frozen(&name));
        }
        // Members whose connections are lost may still have the region open.
        let away = self.away(workflow).into_iter();
        let mut users: Vec<_> = self.open_segments.of(segment).map(|(member, _)| member).chain(away).collect();
        users.retain(|member| *member != asker.member);
        users.sort_unstable();
        users.dedup();
        if let Some(first) = users.first() {
            let more = if users.len() > 1 { format!(" and {} more", users.len() - 1) } else { String::new() };
            let text = format!(
                "region '{name}' is open in {}{more}: a region is copied or moved while no task has it open. Let them \
                 close it, or give a longer timeout",
                self.who(*first)
            );
            return self.fail(asker, Status::Busy, text);
        }
        if moves {
            if !self.journal_works(asker) {
                return;
            }
            self.commit(Record::Moving { segment, moves });
        }
        let frozen = Frozen { member: asker.member, is_over: false, ended_moves: BTreeSet::new() };
        self.regions.frozen.insert(segment, frozen);
        self.answer(asker, &Answer::Done { value: 0 });
    }

    /// Gives the error if another member keeps `member` from opening the region, or if the region may belong to another
    /// node by now.
    pub(super) fn frozen_by_another(&self, segment: SegmentId, member: MemberId) -> Option<String> {
        let found = self.lasting.segments.get(&segment)?;
        let frozen = self.regions.frozen.get(&segment).is_some_and(|frozen| frozen.member != member);
        let unsure = found.moving && self.regions.unsure.values().any(|unsure| *unsure == segment);
        self.decided_elsewhere(segment).or_else(|| (frozen || unsure).then(|| is_frozen(&found.name)))
    }

    /// Tells whether this member has frozen the region, and may hand it over to the segment `becomes` of another node.
    pub(super) fn is_frozen_for(&self, segment: SegmentId, member: MemberId, becomes: SegmentId) -> bool {
        let frozen = self.regions.frozen.get(&segment);
        frozen
            .is_some_and(|frozen| frozen.member == member && !frozen.is_over && !frozen.ended_moves.contains(&becomes))
    }

    /// Notes that a frozen region is not to be handed over to the segment `becomes` any more.
    pub(super) fn refuse_hand_over(&mut self, segment: SegmentId, becomes: SegmentId) {
        if let Some(frozen) = self.regions.frozen.get_mut(&segment) {
            frozen.ended_moves.insert(becomes);
        }
    }

    /// Notes that the region of this name, which may be frozen, is not to be handed over any more.
    pub(super) fn end_freeze(&mut self, name: &SiteName) {
        let segment = self.moving(name);
        if let Some(frozen) = segment.and_then(|segment| self.regions.frozen.get_mut(&segment)) {
            frozen.is_over = true;
        }
    }

    /// Gives the segment of this name's region, if the region is about to move to another node.
    fn moving(&self, name: &SiteName) -> Option<SegmentId> {
        let segment = self.local_key(name).and_then(|key| self.lasting.names.get(&key).copied())?;
        self.lasting.segments.get(&segment)?.moving.then_some(segment)
    }

    /// After the broker's start, and when the node has a new lease: notes the names of the regions that were about to
    /// move. The catalog must say which node has each of these names.
    pub(super) fn look_for_moving(&mut self) {
        let moving = self.lasting.moving_segments().filter(|(_, found)| found.moving && found.handed_over.is_none());
        let unsure = moving
            .filter_map(|(segment, found)| Some((self.site_name(found.workflow, found.kind, &found.name)?, segment)));
        self.regions.unsure = unsure.collect();
    }

    /// Asks the catalog which nodes have the names of the regions that were about to move.
    pub(super) fn ask_for_moving(&mut self) {
        let names: Vec<_> = self.regions.unsure.keys().cloned().collect();
        self.effects.extend(names.into_iter().map(|name| Effect::Site(SiteOrder::Find(name))));
    }

    /// Notes that the catalog has said to which node the name of a region belongs: `to`, or this node if `to` is
    /// `None`.
    pub(super) fn moving_is_at(&mut self, name: &SiteName, to: Option<&str>) {
        self.regions.unsure.remove(name);
        if to.is_some() && self.moving(name).is_some() {
            self.regions.leaving.insert(name.clone());
        }
    }

    /// Ends the freeze of each region that the freezing member has closed. If a region that was about to move stays on
    /// this node after all, records this.
    pub(super) fn settle_regions(&mut self) {
        self.regions.frozen.retain(|segment, frozen| self.open_segments.has(*segment, frozen.member));
        if !self.regions.leaving.is_empty() {
            let mut leaving = std::mem::take(&mut self.regions.leaving);
            leaving.retain(|name| self.is_here(name) && self.is_contested_by_another(name, ""));
            self.regions.leaving = leaving;
        }
        let moving = self.lasting.moving_segments().filter(|(_, found)| found.moving && found.handed_over.is_none());
        let stays = |segment: &SegmentId, found: &Segment| {
            let name = self.site_name(found.workflow, found.kind, &found.name);
            let leaves = name
                .is_some_and(|name| self.regions.leaving.contains(&name) || self.regions.unsure.contains_key(&name));
            !leaves && !self.regions.frozen.contains_key(segment)
        };
        let stay: Vec<_> = moving.filter(|(segment, found)| stays(segment, found)).map(|(id, _)| id).collect();
        for segment in stay {
            self.commit(Record::Moving { segment, moves: false });
        }
    }

    /// Answers a repeated request to copy a region, whose first answer was lost with the former broker.
    pub(super) fn copied_before(&mut self, asker: Requester, outcome: Outcome) {
        let (Outcome::Made(SegmentId(value)) | Outcome::Done(value)) = outcome;
        self.answer(asker, &Answer::Done { value });
    }
}

fn is_frozen(name: &str) -> String {
    format!("region '{name}' is being copied or moved to another node; try again, or give a timeout")
}

//! An item that comes from another node: the catalog's entry arrives first. The item's bytes follow when a task of this
//! node wants them.

use crossdock_layout::wire::SegmentKind;
use crossdock_layout::{SegmentId, Status};

use super::queue::For;
use super::residence::{About, Source};
use super::{ItemRecord, Phase, memory_of};
use crate::broker::site::ItemPlace;
use crate::broker::{Broker, Cause, Effect, NodeFailure, NodeOrder, Record, SiteOrder};

/// How long pulling an item's bytes may take, in addition to the time that the slowest link needs for them.
const PULL_MS: u64 = 30_000;
/// The speed of the slowest link, in bytes per millisecond.
const SLOWEST: u64 = 1_000;

impl Broker {
    /// Handles an entry of the catalog by which an item belongs to this node. `file` has the item's bytes if they are
    /// on this node; otherwise it is 0.
    pub(super) fn item_came(&mut self, place: &ItemPlace, file: SegmentId) {
        let ItemPlace { item, epoch, .. } = *place;
        let about = About::decode(&place.about);
        let workflow = about.as_ref().and_then(|about| self.lasting.workflow_names.get(&about.workflow)).copied();
        let why = match (&about, workflow) {
            (None, _) => "its entry in the catalog cannot be read".to_owned(),
            // The entry names a former daemon of this node, which may have changed the item's bytes since.
            _ if place.daemon != self.limits.incarnation => "it was in a former daemon of this node".to_owned(),
            (Some(about), None) => format!("workflow '{}' has ended on this node", about.workflow),
            (Some(about), Some(_)) if about.source.is_empty() => "its bytes were lost with this daemon".to_owned(),
            (Some(about), Some(_)) if Some(&*about.source) == self.own_node() && !self.is_file(file) => {
                "its bytes were lost with this daemon".to_owned()
            }
            (Some(about), Some(workflow)) => return self.begin_item(item, epoch, about, workflow, file),
        };
        let key = about.map_or_else(String::new, |about| format!(" '{}' of workflow '{}'", about.key, about.workflow));
        self.effects.push(Effect::Log { line: format!("item {}{key} came to this node and is lost: {why}", item.0) });
        self.commit(Record::Item(ItemRecord::Ended { item, epoch }));
        self.drop_left_file(file);
        self.forget_entry(item);
    }

    fn is_file(&self, file: SegmentId) -> bool {
        self.lasting.segments.get(&file).is_some_and(|found| found.removed.is_none())
    }

    fn begin_item(&mut self, item: SegmentId, epoch: u64, about: &About, workflow: u64, file: SegmentId) {
        let mut state = about.item(workflow);
        state.file = file;
        let away = about.source().filter(|_| file.0 == 0);
        let (source, left) = away.clone().map_or((String::new(), 0), |source| (source.node, source.left));
        let here = Record::Item(ItemRecord::Here { item, epoch, source, left });
        let made = Record::Item(ItemRecord::Made { item, state, cause: Cause::NONE });
        // The broker may be killed between the two records. If this node still has a file with the item's bytes, the
        // first record must already name that file, so that the next broker keeps it.
        let (first, second) = if file.0 == 0 { (here, made) } else { (made, here) };
        self.commit(first);
        self.commit(second);
        self.items.handovers.begin(item, self.now);
        // A file that was left here was proved before, and no member of this node has opened it since.
        let phase = if away.is_some() { Phase::Away } else { Phase::Proved };
        self.items.handovers.enter(item, phase);
        if let Some(name) = self.site_name(workflow, SegmentKind::Item, &about.key) {
            if self.site.as_mut().is_some_and(|site| !site.take_name(&name)) {
                // The catalog had given the name to a former lease of this node, so the node claims it again.
                self.effects.push(Effect::Site(SiteOrder::Claim(name)));
            }
        }
        self.tell_bytes_are_here(item);
        self.serve_waiting(item);
    }

    /// Pulls the bytes of an item from another node, because a task of this node wants the item.
    pub(super) fn fetch_item(&mut self, item: SegmentId) {
        let Some(found) = self.lasting.items.all.get(&item).cloned() else { return };
        let Some(Source { node, left }) = self.lasting.items.source(item).cloned() else { return };
        let what = format!("item '{}' from node {node}", found.key);
        let memory = memory_of(found.size);
        let room = self.fits(found.workflow, memory, &what).and_then(|()| self.room(found.workflow, memory, &what));
        let room = room.and_then(|()| self.descriptors(found.workflow, 1, &what));
        let room = room.and_then(|()| self.journal.clone().map_err(|why| format!("the journal is full ({why})")));
        if let Err(why) = room {
            return self.cannot_fetch(item, Status::NoSpace, &why);
        }
        let to = SegmentId(self.lasting.next_segment);
        self.file_record(to, found.workflow, &found.key, found.size, Cause::NONE);
        self.items.handovers.enter(item, Phase::Fetching { to });
        let id = self.node_order_id();
        self.items.pulls.insert(id, (item, to));
        let pull = NodeOrder::Pull {
            id,
            node,
            kind: SegmentKind::Item,
            object: item.0,
            epoch: left,
            into: to,
            size: memory,
            wait_ms: PULL_MS + memory / SLOWEST,
        };
        self.effects.push(Effect::FetchItem { to, size: memory, pull });
    }

    /// Handles the end of a pull: the item's bytes have come, or the pull failed.
    pub(in crate::broker) fn item_pulled(&mut self, id: u64, outcome: Result<(), NodeFailure>) {
        if self.copy_pulled(id, &outcome) {
            return;
        }
        let Some((item, to)) = self.items.pulls.remove(&id) else { return };
        match self.items.handovers.phase(item) {
            Phase::Fetching { to: target } if *target == to => {}
            _ => return,
        }
        let Some(found) = self.lasting.items.all.get(&item) else { return };
        match outcome {
            Ok(()) => {
                let (size, epoch) = (found.size, self.lasting.items.epoch(item));
                self.commit(Record::Item(ItemRecord::Memory {
                    item,
                    file: to,
                    size,
                    clung: false,
                    cause: Cause::NONE,
                }));
                self.commit(Record::Item(ItemRecord::Here { item, epoch, source: String::new(), left: 0 }));
                self.items.handovers.enter(item, Phase::Proved);
                self.tell_bytes_are_here(item);
                self.serve_waiting(item);
            }
            Err(NodeFailure { status: Status::NotFound, text }) => {
                let why = format!("its bytes are lost: {text}");
                let line = format!("item '{}' is lost: {why}", found.key);
                self.effects.push(Effect::Log { line });
                self.end_item(item, &why, Cause::NONE);
            }
            Err(NodeFailure { status, text }) => {
                self.drop_file(to, None);
                let status = if status == Status::NoSpace { status } else { Status::Disconnected };
                self.cannot_fetch(item, status, &text);
            }
        }
    }

    /// Notes that the item's bytes could not be fetched. The request that waits longest fails; the next request tries
    /// again.
    fn cannot_fetch(&mut self, item: SegmentId, status: Status, why: &str) {
        self.items.handovers.enter(item, Phase::Away);
        let Some(found) = self.lasting.items.all.get(&item) else { return };
        let text = format!("item '{}' is this node's, and its bytes did not come: {why}", found.key);
        if let Some(wait) = self.first_waiting(item, For::Owning).and_then(|id| self.unqueue(id)) {
            self.fail(wait.asker, status, text);
        }
    }
}

//! Passes an item to another node. First the kernel proves that no process has the item's file open, and then one
//! commit of the catalog moves the item. The file stays on this node until the item's catalog entry says that the bytes
//! are elsewhere, or, if there is no entry, until the item's node says so ([`super::unlisted`]).

use crossdock_layout::wire::SegmentKind;
use crossdock_layout::{SegmentId, Status};

use super::residence::ItemSummary;
use super::{ItemRecord, Phase, Residence};
use crate::broker::site::SiteItem;
use crate::broker::{Broker, Effect, NodeFailure, NodeOrder, Record, SiteOrder};

impl Broker {
    /// Begins to pass an item to the node `to`. The caller knows that no process of this node has the item's bytes
    /// open.
    pub(super) fn pass_item(&mut self, item: SegmentId, to: &str) {
        // Without a lease, this node cannot change the item's entry in the catalog, so the item stays for now. The next
        // owner's node repeats its request for the item.
        if !self.site.as_ref().is_some_and(|site| site.is_in() && site.is_there(to)) || self.journal.is_err() {
            return;
        }
        let epoch = self.lasting.items.epoch(item) + 1;
        let stamp = self.stamp_for(item);
        self.commit(Record::Item(ItemRecord::Leaving { item, epoch, to: to.to_owned() }));
        if let Phase::Fetching { to } = self.items.handovers.enter(item, Phase::Leaving { stamp }) {
            self.drop_file(to, None);
        }
        self.order_pass(item);
        if stamp != 0 {
            self.send_ahead(item, to, epoch, stamp);
        }
    }

    /// Asks the catalog to give a leaving item to its next node. Repeating this request does no harm.
    fn order_pass(&mut self, item: SegmentId) {
        let Some(Residence::Leaving { epoch, to, .. }) = self.lasting.items.residences.get(&item).cloned() else {
            return;
        };
        let Some(about) = self.about(item) else { return };
        let Some(found) = self.lasting.items.all.get(&item) else { return };
        let Some(name) = self.site_name(found.workflow, SegmentKind::Item, &found.key) else { return };
        let to = SiteItem { item, epoch, node: to, daemon: 0, about: about.encode() };
        *self.items.passes.entry(item).or_default() += 1;
        self.effects.push(Effect::Site(SiteOrder::Pass { name, to }));
    }

    /// Gives the description of an item for its catalog entry. For a leaving item, this is the description that will be
    /// true on the next node.
    fn about(&self, item: SegmentId) -> Option<ItemSummary> {
        let found = self.lasting.items.all.get(&item)?;
        let workflow = self.lasting.workflow_name(found.workflow)?;
        let (source, left) = match (self.lasting.items.source(item), self.lasting.items.residences.get(&item)?) {
            (Some(source), _) => (source.node.clone(), source.left),
            (None, Residence::Leaving { epoch, .. }) => (self.site.as_ref()?.node().to_owned(), *epoch),
            (None, _) => (String::new(), 0),
        };
        let stamp = match self.items.handovers.phase(item) {
            Phase::Leaving { stamp } => *stamp,
            _ => 0,
        };
        Some(ItemSummary {
            version: ItemSummary::VERSION,
            workflow,
            key: found.key.clone(),
            size: found.size,
            level: found.level,
            on_death: found.on_death,
            creator: found.creator.clone(),
            owner: found.owner.clone(),
            transfers: found.transfers,
            copies: found.copies,
            source,
            left,
            stamp,
        })
    }

    /// If the bytes of an item are on this node, tells this to the catalog, so that the former node drops its file.
    pub(super) fn tell_bytes_are_here(&mut self, item: SegmentId) {
        let Some(Residence::Here { epoch, bytes: None }) = self.lasting.items.residences.get(&item) else { return };
        let (epoch, node) = (*epoch, self.site.as_ref().map(|site| site.node().to_owned()));
        if let (Some(node), Some(about), true) = (node, self.about(item), epoch > 0) {
            let place = SiteItem { item, epoch, node, daemon: 0, about: about.encode() };
            self.effects.push(Effect::Site(SiteOrder::Describe(place)));
        }
    }

    /// Handles the catalog's answer to the request to pass an item on.
    pub(in crate::broker) fn passed(&mut self, item: SegmentId, epoch: u64, outcome: Result<(), String>) {
        let Some(Residence::Leaving { epoch: of, to, bytes }) = self.lasting.items.residences.get(&item).cloned()
        else {
            return;
        };
        if of != epoch {
            return;
        }
        let open = self.items.passes.remove(&item).unwrap_or(1) - 1;
        let Err(why) = outcome else { return self.item_left(item, &to) };
        if open > 0 {
            // Another request to pass this item on is not answered yet, and may succeed.
            self.items.passes.insert(item, open);
            return;
        }
        let (source, left) = bytes.map_or((String::new(), 0), |source| (source.node, source.left));
        let away = !source.is_empty();
        self.commit(Record::Item(ItemRecord::Here { item, epoch: epoch - 1, source, left }));
        self.items.handovers.enter(item, if away { Phase::Away } else { Phase::Open });
        self.items.remote_waiters.drop_node(&to);
        self.open_again(item);
        self.effects.push(Effect::Log { line: format!("item {} stays on this node: {why}", item.0) });
        self.end_nameless(item);
        self.serve_waiting(item);
    }

    /// Notes that the item belongs to another node now. If the item's bytes are on this node, the broker keeps them
    /// until that node has pulled them.
    fn item_left(&mut self, item: SegmentId, to: &str) {
        let epoch = self.lasting.items.epoch(item);
        let Some(found) = self.lasting.items.all.get(&item).cloned() else { return };
        let name = self.site_name(found.workflow, SegmentKind::Item, &found.key);
        let (file, workflow) = (found.file, found.workflow);
        self.commit(Record::Item(ItemRecord::Left { item, epoch, to: to.to_owned(), file, workflow }));
        self.items.handovers.end(item);
        // The owner may have closed the item while it was shared, so other nodes may still be noted as readers. These
        // notes end here.
        self.items.readers.end(item);
        self.items.readers.forget_wanted(workflow, &found.key);
        self.items.passes.remove(&item);
        self.open_again(item);
        if let (Some(site), Some(name)) = (&mut self.site, name) {
            site.give_name(name.clone(), to);
            self.item_is_elsewhere(&name);
        }
    }

    /// Handles a report of the catalog. `place` is the catalog's entry of an item.
    pub(in crate::broker) fn item_place(&mut self, place: &SiteItem) {
        let SiteItem { item, epoch, .. } = *place;
        let Some(site) = &self.site else { return };
        let is_own = place.node == site.node();
        let Some(known) = self.lasting.items.residences.get(&item).cloned() else {
            // If an item is on this node and has never been on another one, the broker keeps no note of the node that
            // the item is on. A report that such an item comes to this node is wrong.
            if is_own && !self.lasting.items.all.contains_key(&item) {
                self.item_came(place, SegmentId(0));
            }
            return;
        };
        // A report of an earlier epoch is older than what this node knows, or the catalog was put back to an older
        // state. In either case the report is not applied.
        if epoch < known.epoch() {
            return self.ask_for_place(item, true);
        }
        match known {
            Residence::Here { .. } => {}
            Residence::Leaving { to, .. } => {
                self.item_left(item, &to);
                self.item_place(place);
            }
            Residence::Left { epoch: left, to, file, workflow } => {
                self.items.unlisted.is_listed(item);
                let about = ItemSummary::decode(&place.about);
                let source = about.as_ref().and_then(ItemSummary::source);
                let is_needed =
                    source.as_ref().is_some_and(|from| from.left == left && Some(&*from.node) == self.own_node());
                if is_own && is_needed {
                    return self.item_came(place, file);
                }
                let is_kept = source.is_some_and(|from| self.keeps_left(&from.node, from.left, left, file));
                if is_own || !is_kept {
                    self.settle_left(item, file);
                } else if place.node != to {
                    let to = place.node.clone();
                    self.commit(Record::Item(ItemRecord::Left { item, epoch: left, to, file, workflow }));
                }
                if is_own {
                    self.item_came(place, SegmentId(0));
                }
            }
            Residence::Ended { epoch: ended } => {
                if is_own && epoch == ended {
                    self.forget_entry(item);
                } else {
                    self.commit(Record::Item(ItemRecord::Settled { item }));
                    if is_own {
                        self.item_came(place, SegmentId(0));
                    }
                }
            }
        }
    }

    pub(in crate::broker) fn own_node(&self) -> Option<&str> {
        self.site.as_ref().map(|site| site.node())
    }

    /// Handles the report that the catalog has no entry of an item any more: the item has ended, on whichever node it
    /// was last, or the catalog has lost its entries.
    pub(in crate::broker) fn item_unknown(&mut self, item: SegmentId) {
        match self.lasting.items.residences.get(&item) {
            Some(Residence::Left { .. }) => self.ask_for_place(item, false),
            Some(Residence::Ended { .. }) => self.commit(Record::Item(ItemRecord::Settled { item })),
            _ => {}
        }
    }

    /// Drops the file of an item that left this node, because no node needs it any more.
    pub(super) fn drop_left_file(&mut self, file: SegmentId) {
        if self.lasting.segments.get(&file).is_some_and(|found| found.removed.is_none()) {
            self.drop_file(file, None);
        }
    }

    /// If the item ended on this node, asks the catalog to remove the item's entry.
    pub(super) fn forget_entry(&mut self, item: SegmentId) {
        if let Some(Residence::Ended { epoch }) = self.lasting.items.residences.get(&item) {
            let epoch = *epoch;
            self.effects.push(Effect::Site(SiteOrder::Forget { item, epoch }));
        }
    }

    /// Asks the catalog to remove the entries of all items that ended on this node.
    pub(in crate::broker) fn forget_entries(&mut self) {
        for item in self.lasting.items.residences.keys().copied().collect::<Vec<_>>() {
            self.forget_entry(item);
        }
    }

    /// Asks the catalog about items whose bytes this node keeps for another node. The reason is that the catalog may
    /// not report a change of an item's entry if the change was undone soon after it was made.
    pub(in crate::broker) fn look_after_left_items(&mut self) {
        for (item, at) in &self.lasting.items.residences {
            if matches!(at, Residence::Left { .. }) {
                self.effects.push(Effect::Site(SiteOrder::Look { item: *item }));
            }
        }
    }

    /// This node has a lease now: repeats all its unanswered requests to the catalog about items.
    pub(in crate::broker) fn items_joined(&mut self) {
        for (item, at) in self.lasting.items.residences.clone() {
            match at {
                Residence::Here { .. } => self.tell_bytes_are_here(item),
                Residence::Leaving { .. } => self.order_pass(item),
                Residence::Left { .. } => self.effects.push(Effect::Site(SiteOrder::Look { item })),
                Residence::Ended { .. } => self.forget_entry(item),
            }
        }
        // While this node had no lease, it could not pass items to other nodes. So the requests that wait for this
        // node's items are served now.
        for item in self.lasting.items.all.keys().copied().collect::<Vec<_>>() {
            self.serve_waiting(item);
        }
    }

    /// Handles another node's request for the bytes of an item that left this node with this epoch.
    pub(in crate::broker) fn open_item_left(&mut self, id: u64, item: SegmentId, epoch: u64) {
        let outcome = match self.lasting.items.residences.get(&item) {
            Some(Residence::Left { epoch: left, file, .. }) if *left == epoch && self.has_memory(*file) => Ok(*file),
            // The other node already knows that the item has left this node, and the catalog will soon report this
            // here. So the answer waits for the report.
            Some(Residence::Leaving { epoch: left, .. }) if *left == epoch => {
                return self.items.openings.entry(item).or_default().push((id, epoch));
            }
            _ => {
                let text = format!("item {} has no bytes here by epoch {epoch}", item.0);
                Err(NodeFailure { status: Status::NotFound, text })
            }
        };
        self.effects.push(Effect::Nodes(NodeOrder::Opened { id, outcome }));
    }

    /// Tells whether the daemon has the memory of this segment. If the memory was lost with the keeper, the daemon does
    /// not have it.
    fn has_memory(&self, segment: SegmentId) -> bool {
        let found = self.lasting.segments.get(&segment);
        found.is_some_and(|found| found.removed.is_none()) && !self.lost.contains(segment)
    }

    /// Answers the requests of other nodes for an item's bytes. These requests waited until the catalog said whether
    /// the item has left this node.
    fn open_again(&mut self, item: SegmentId) {
        for (id, epoch) in self.items.openings.remove(&item).unwrap_or_default() {
            self.open_item_left(id, item, epoch);
        }
    }

    /// After the broker's start: restores the phases of items that are between nodes, and completes unfinished changes.
    pub(super) fn recover_residences(&mut self) {
        for (item, at) in self.lasting.items.residences.clone() {
            let is_here = self.lasting.items.all.contains_key(&item);
            match at {
                // The former broker was killed before it had recorded that the item is on this node. The catalog will
                // report the item again.
                Residence::Here { .. } | Residence::Leaving { .. } if !is_here => {
                    self.commit(Record::Item(ItemRecord::Settled { item }));
                }
                Residence::Left { epoch, to, file, workflow } if is_here => {
                    // The former broker was killed after it had restored the item, but before it wrote the item's new
                    // epoch. So the item counts as left again. The catalog will report it again.
                    self.commit(Record::Item(ItemRecord::Left { item, epoch, to, file, workflow }));
                    self.items.handovers.end(item);
                }
                Residence::Here { epoch, bytes: Some(_) } if self.lasting.items.all[&item].file.0 != 0 => {
                    // The former broker was killed just after the item's bytes had arrived. So this broker records that
                    // they are here.
                    self.commit(Record::Item(ItemRecord::Here { item, epoch, source: String::new(), left: 0 }));
                }
                Residence::Here { bytes: Some(_), .. } => drop(self.items.handovers.enter(item, Phase::Away)),
                Residence::Leaving { .. } => drop(self.items.handovers.enter(item, Phase::Leaving { stamp: 0 })),
                Residence::Here { .. } | Residence::Left { .. } | Residence::Ended { .. } => {}
            }
        }
    }
}

//! An item goes to another node: proved first, then passed by one commit of the catalog. Its file stays until the entry says
//! that its bytes are elsewhere.

use crossdock_layout::wire::SegmentKind;
use crossdock_layout::{SegmentId, Status};

use super::residence::About;
use super::{ItemRecord, Phase, Residence};
use crate::broker::site::ItemPlace;
use crate::broker::{Broker, Effect, NodeFailure, NodeOrder, Record, SiteOrder};

impl Broker {
    /// Begins to pass an item, of which no process has the bytes open, to another node.
    pub(super) fn pass_item(&mut self, item: SegmentId, to: &str) {
        // Without a lease, the node would have to wait for one. The next owner asks again.
        if !self.site.as_ref().is_some_and(|site| site.is_in() && site.is_there(to)) || self.journal.is_err() {
            return;
        }
        let epoch = self.lasting.items.epoch(item) + 1;
        self.commit(Record::Item(ItemRecord::Leaving { item, epoch, to: to.to_owned() }));
        if let Phase::Fetching { to } = self.items.handovers.enter(item, Phase::Leaving) {
            self.drop_file(to, None);
        }
        self.order_pass(item);
    }

    /// The catalog is asked to make an item that is leaving the other node's. Asking again does no harm.
    fn order_pass(&mut self, item: SegmentId) {
        let Some(Residence::Leaving { epoch, to, .. }) = self.lasting.items.residences.get(&item).cloned() else {
            return;
        };
        let Some(about) = self.about(item) else { return };
        let Some(found) = self.lasting.items.all.get(&item) else { return };
        let Some(name) = self.site_name(found.workflow, SegmentKind::Item, &found.key) else { return };
        let to = ItemPlace { item, epoch, node: to, daemon: 0, about: about.encode() };
        *self.items.passes.entry(item).or_default() += 1;
        self.effects.push(Effect::Site(SiteOrder::Pass { name, to }));
    }

    /// What the entry of an item says of it: as it is now, and, if it is leaving, as it will be there.
    fn about(&self, item: SegmentId) -> Option<About> {
        let found = self.lasting.items.all.get(&item)?;
        let workflow = self.lasting.workflow_name(found.workflow)?;
        let (source, left) = match (self.lasting.items.source(item), self.lasting.items.residences.get(&item)?) {
            (Some(source), _) => (source.node.clone(), source.left),
            (None, Residence::Leaving { epoch, .. }) => (self.site.as_ref()?.node().to_owned(), *epoch),
            (None, _) => (String::new(), 0),
        };
        Some(About {
            version: About::VERSION,
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
        })
    }

    /// The bytes of an item that is here have come: the catalog is to say so, and the former node drops its own.
    pub(super) fn tell_bytes_are_here(&mut self, item: SegmentId) {
        let Some(Residence::Here { epoch, bytes: None }) = self.lasting.items.residences.get(&item) else { return };
        let (epoch, node) = (*epoch, self.site.as_ref().map(|site| site.node().to_owned()));
        if let (Some(node), Some(about), true) = (node, self.about(item), epoch > 0) {
            let place = ItemPlace { item, epoch, node, daemon: 0, about: about.encode() };
            self.effects.push(Effect::Site(SiteOrder::Describe(place)));
        }
    }

    /// What the catalog has made of passing an item on.
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
            // A later order, given with another lease, may still succeed.
            self.items.passes.insert(item, open);
            return;
        }
        let (source, left) = bytes.map_or((String::new(), 0), |source| (source.node, source.left));
        let away = !source.is_empty();
        self.commit(Record::Item(ItemRecord::Here { item, epoch: epoch - 1, source, left }));
        self.items.handovers.enter(item, if away { Phase::Away } else { Phase::Open });
        self.items.wants.drop_node(&to);
        self.open_again(item);
        self.effects.push(Effect::Log { line: format!("item {} stays on this node: {why}", item.0) });
        self.serve_waiting(item);
    }

    /// The item is another node's. Its bytes wait here to be pulled, if they are here.
    fn item_left(&mut self, item: SegmentId, to: &str) {
        let epoch = self.lasting.items.epoch(item);
        let Some(found) = self.lasting.items.all.get(&item).cloned() else { return };
        let name = self.site_name(found.workflow, SegmentKind::Item, &found.key);
        let (file, workflow) = (found.file, found.workflow);
        self.commit(Record::Item(ItemRecord::Left { item, epoch, to: to.to_owned(), file, workflow }));
        self.items.handovers.end(item);
        // Its owner may have closed it while it was shared.
        self.items.readers.end(item);
        self.items.passes.remove(&item);
        self.open_again(item);
        if let (Some(site), Some(name)) = (&mut self.site, name) {
            site.give_name(name.clone(), to);
            self.item_is_elsewhere(&name);
        }
    }

    /// What the catalog says of an item.
    pub(in crate::broker) fn item_place(&mut self, place: &ItemPlace) {
        let ItemPlace { item, epoch, .. } = *place;
        let Some(site) = &self.site else { return };
        let is_own = place.node == site.node();
        let Some(known) = self.lasting.items.residences.get(&item).cloned() else {
            if is_own {
                self.item_came(place, SegmentId(0));
            }
            return;
        };
        // What is told of an earlier epoch was true before what this node knows.
        if epoch < known.epoch() {
            return;
        }
        match known {
            Residence::Here { .. } => {}
            Residence::Leaving { to, .. } => {
                self.item_left(item, &to);
                self.item_place(place);
            }
            Residence::Left { epoch: left, file, .. } => {
                let about = About::decode(&place.about);
                let source = about.as_ref().and_then(About::source);
                let is_needed = source.is_some_and(|from| from.left == left && Some(&*from.node) == self.own_node());
                if is_own && is_needed {
                    return self.item_came(place, file);
                }
                if !is_needed {
                    self.commit(Record::Item(ItemRecord::Settled { item }));
                    self.drop_left_file(file);
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

    /// The catalog says nothing of an item any more: it has ended, on whichever node it was last.
    pub(in crate::broker) fn item_unknown(&mut self, item: SegmentId) {
        match self.lasting.items.residences.get(&item) {
            Some(Residence::Left { file, .. }) => {
                let file = *file;
                self.commit(Record::Item(ItemRecord::Settled { item }));
                self.drop_left_file(file);
            }
            Some(Residence::Ended { .. }) => self.commit(Record::Item(ItemRecord::Settled { item })),
            _ => {}
        }
    }

    /// The file of an item that left is of no use any more.
    pub(super) fn drop_left_file(&mut self, file: SegmentId) {
        if self.lasting.segments.get(&file).is_some_and(|found| found.removed.is_none()) {
            self.drop_file(file, None);
        }
    }

    /// The catalog is to forget an item that ended here.
    pub(super) fn forget_entry(&mut self, item: SegmentId) {
        if let Some(Residence::Ended { epoch }) = self.lasting.items.residences.get(&item) {
            let epoch = *epoch;
            self.effects.push(Effect::Site(SiteOrder::Forget { item, epoch }));
        }
    }

    /// The same of all items that ended here.
    pub(in crate::broker) fn forget_entries(&mut self) {
        for item in self.lasting.items.residences.keys().copied().collect::<Vec<_>>() {
            self.forget_entry(item);
        }
    }

    /// A change that was undone before this node heard of it is not told: the catalog is asked about items whose bytes wait.
    pub(in crate::broker) fn look_after_left_items(&mut self) {
        for (item, at) in &self.lasting.items.residences {
            if matches!(at, Residence::Left { .. }) {
                self.effects.push(Effect::Site(SiteOrder::Look { item: *item }));
            }
        }
    }

    /// This node has a lease: what was left open with the catalog is asked again.
    pub(in crate::broker) fn items_joined(&mut self) {
        for (item, at) in self.lasting.items.residences.clone() {
            match at {
                Residence::Here { .. } => self.tell_bytes_are_here(item),
                Residence::Leaving { .. } => self.order_pass(item),
                Residence::Left { .. } => self.effects.push(Effect::Site(SiteOrder::Look { item })),
                Residence::Ended { .. } => self.forget_entry(item),
            }
        }
        // What could not be passed on without a lease.
        for item in self.lasting.items.all.keys().copied().collect::<Vec<_>>() {
            self.serve_waiting(item);
        }
    }

    /// Another node wants the bytes of an item that left this node by that epoch.
    pub(in crate::broker) fn open_item_left(&mut self, id: u64, item: SegmentId, epoch: u64) {
        let outcome = match self.lasting.items.residences.get(&item) {
            Some(Residence::Left { epoch: left, file, .. }) if *left == epoch && file.0 != 0 => Ok(*file),
            // The commit is done, and this node hears of it soon.
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

    /// It is known now whether the item has left.
    fn open_again(&mut self, item: SegmentId) {
        for (id, epoch) in self.items.openings.remove(&item).unwrap_or_default() {
            self.open_item_left(id, item, epoch);
        }
    }

    /// After a start: phases of items that are between nodes, and entries that were not finished.
    pub(super) fn recover_residences(&mut self) {
        for (item, at) in self.lasting.items.residences.clone() {
            let is_here = self.lasting.items.all.contains_key(&item);
            match at {
                // The broker was killed before the item began, and hears of it again.
                Residence::Here { .. } | Residence::Leaving { .. } if !is_here => {
                    self.commit(Record::Item(ItemRecord::Settled { item }));
                }
                Residence::Left { epoch, to, file, workflow } if is_here => {
                    // The broker was killed before the item, which has come back, had its new epoch. It hears of it again.
                    self.commit(Record::Item(ItemRecord::Left { item, epoch, to, file, workflow }));
                    self.items.handovers.end(item);
                }
                Residence::Here { epoch, bytes: Some(_) } if self.lasting.items.all[&item].file.0 != 0 => {
                    // The broker was killed when the bytes had come.
                    self.commit(Record::Item(ItemRecord::Here { item, epoch, source: String::new(), left: 0 }));
                }
                Residence::Here { bytes: Some(_), .. } => drop(self.items.handovers.enter(item, Phase::Away)),
                Residence::Leaving { .. } => drop(self.items.handovers.enter(item, Phase::Leaving)),
                Residence::Here { .. } | Residence::Left { .. } | Residence::Ended { .. } => {}
            }
        }
    }
}

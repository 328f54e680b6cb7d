//! The invariants of items, which hold between any two events.

use crossdock_layout::MemberId;
use crossdock_layout::wire::{ItemLevel, SegmentKind};

use super::Phase;
use super::handover::Purpose;
use super::memory_of;
use super::queue::WaitPurpose;
use crate::broker::{Broker, Due};

impl Broker {
    pub(in crate::broker) fn check_items(&self) {
        assert!(self.items.after_proofs.is_empty(), "effects were left over");
        self.items.waits.check();
        self.check_handovers();
        self.check_item_waits();
        self.check_item_files();
        self.check_readers();
        self.check_copies();
        for member in self.items.resuming.keys() {
            assert!(self.lasting.members.contains_key(member), "{member} is gone and is resuming");
        }
    }

    /// Panics if the host has not yet reported the kernel's answer about an item's file. The host reports this answer
    /// before any other event.
    pub(in crate::broker) fn check_items_at_rest(&self) {
        for (item, phase) in self.items.handovers.iter() {
            assert!(!matches!(phase, Phase::Proving { .. }), "the proof of item {item} was never answered");
        }
        assert!(self.items.making.is_none(), "an item's memory was asked for and never made");
    }

    fn check_handovers(&self) {
        assert!(self.items.handovers.asked(), "a proof was left to be asked for");
        assert!(
            self.items.handovers.iter().map(|(item, _)| item).eq(self.lasting.items.all.keys().copied()),
            "the items and their hand-overs differ"
        );
        for (item, phase) in self.items.handovers.iter() {
            let found = &self.lasting.items.all[&item];
            if found.level == ItemLevel::Cooperative {
                assert!(matches!(phase, Phase::Open), "cooperative item {item} is {phase:?}");
                assert_eq!(found.holder, MemberId::NONE, "cooperative item {item} has a holder");
            }
            let leaves = self.lasting.items.is_leaving(item);
            assert_eq!(
                leaves,
                matches!(phase, Phase::Leaving { .. }),
                "item {item} is {phase:?}; does it leave: {leaves}"
            );
            let away = self.lasting.items.source(item).is_some();
            let unread = matches!(phase, Phase::Away | Phase::Fetching { .. } | Phase::Leaving { .. });
            assert!(!away || unread, "item {item} is {phase:?} and its bytes are elsewhere");
            if let Some(asker) = phase.pending() {
                assert_eq!(found.holder, asker.member, "item {item} is {phase:?} and its owner did not ask for that");
                let link = self.links.get(&asker.connection);
                assert!(
                    link.is_some_and(|l| l.member == Some(asker.member)),
                    "item {item} is {phase:?} for a lost asker"
                );
                assert_eq!(found.shared, phase.ends_sharing(), "item {item} is {phase:?}");
            }
            match phase {
                Phase::Open | Phase::Proving { purpose: Purpose::Share(_) | Purpose::Unshare(_) } => {}
                Phase::Away => {
                    assert!(self.lasting.items.source(item).is_some(), "the bytes of item {item} are nowhere");
                    assert_eq!(found.holder, MemberId::NONE, "item {item} is open and its bytes are elsewhere");
                    assert_eq!(found.file.0, 0, "item {item} has a file and its bytes are elsewhere");
                }
                Phase::Fetching { to } => {
                    assert!(self.lasting.items.source(item).is_some(), "item {item} is pulled from nowhere");
                    assert_eq!(found.holder, MemberId::NONE, "item {item} is open and its bytes are elsewhere");
                    let target = self.lasting.segments.get(to).filter(|s| s.kind == SegmentKind::Item);
                    assert!(target.is_some_and(|s| s.size == memory_of(found.size)), "item {item} is pulled nowhere");
                }
                Phase::Leaving { .. } => {
                    assert_eq!(found.holder, MemberId::NONE, "item {item} is leaving and open");
                }
                Phase::Draining { asker } => {
                    let wait = self.items.waits.get((asker.connection, asker.number));
                    assert!(
                        wait.is_some_and(|w| w.what == WaitPurpose::Readers(item)),
                        "item {item} drains with no deadline"
                    );
                    assert!(self.is_read(item, found.file), "item {item} has no reader");
                }
                Phase::Proving { purpose: Purpose::NextOwner } | Phase::Proved => {
                    assert_eq!(found.holder, MemberId::NONE, "item {item} is {phase:?} and open");
                }
                Phase::Copying { to, purpose, .. } => {
                    let target = self.lasting.segments.get(to).filter(|s| s.kind == SegmentKind::Item);
                    let target = target.filter(|s| s.removed.is_none() && s.size == memory_of(found.size));
                    assert!(target.is_some(), "item {item} is copied to a file that does not fit");
                    assert!(!self.lasting.items.files.contains_key(to), "item {item} is copied over another one");
                    if matches!(purpose, Purpose::NextOwner) {
                        assert_eq!(found.holder, MemberId::NONE, "item {item} is {phase:?} and open");
                    }
                }
            }
        }
    }

    fn check_item_waits(&self) {
        for wait in self.items.waits.iter() {
            let (connection, number) = (wait.asker.connection, wait.asker.number);
            let due = Due::Item(connection, number);
            assert!(self.waits.expects(wait.deadline, due), "a wait has no deadline");
            assert!(self.links.contains_key(&connection), "a wait outlives its connection");
            match wait.what {
                WaitPurpose::Readers(item) => {
                    let phase = self.items.handovers.phase(item);
                    let its = matches!(phase, Phase::Draining { asker } if asker.number == number);
                    assert!(its, "request {number} waits for readers of item {item}, which is {phase:?}");
                }
                // If an item can be read, no request waits to read it, because the broker answers such a request at
                // once.
                WaitPurpose::Reading => {
                    let keys = wait.keys.iter().filter(|key| !self.is_contested(wait.workflow, key));
                    let mut items = keys.filter_map(|key| self.lasting.items.of_key(wait.workflow, key));
                    let ready = items.find(|item| self.could_have(*item, WaitPurpose::Reading, wait.asker.member));
                    assert_eq!(ready, None, "request {number} waits for an item that it could read");
                }
                // A cooperative item is given to every task that asks for it, unless its memory was lost.
                WaitPurpose::Owning => {
                    let mut items = wait.keys.iter().filter_map(|key| self.key(wait.workflow, key));
                    let ready = items.find(|item| self.has_at_once(*item, wait.asker.member));
                    assert_eq!(ready, None, "request {number} waits for a cooperative item that it could have");
                }
            }
        }
    }

    /// Panics if a file belongs to no item and is not being filled for one.
    fn check_item_files(&self) {
        let copies = self.items.handovers.iter().filter_map(|(_, phase)| match phase {
            Phase::Copying { to, .. } | Phase::Fetching { to } => Some(*to),
            _ => None,
        });
        let copies: Vec<_> = copies.chain(self.items.copies.files()).collect();
        let files = self.lasting.segments.iter().filter(|(_, s)| s.kind == SegmentKind::Item && s.removed.is_none());
        for (file, _) in files {
            let is_kept = self.lasting.items.is_left_behind(*file);
            let is_used = self.lasting.items.files.contains_key(file) || copies.contains(file);
            assert!(is_used != is_kept, "file {file} is no item's, or that of an item that left");
        }
    }
}

//! What a session knows about cooperative items, so that it need not ask the daemon: the items' memory, which stays
//! mapped, and the numbers that stand for parties in the owner word.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crossdock_core::item::{ItemMemory, PartyNumbers};
use crossdock_layout::SegmentId;
use crossdock_layout::wire::{ItemGiven, Party};

use crate::segment::SegmentOpening;

/// A cooperative item, mapped as long as the session lives or until the item is destroyed.
#[derive(Debug)]
pub(super) struct MappedItem {
    pub memory: ItemMemory,
    pub given: Arc<ItemGiven>,
    /// If the item's owner word is one of these numbers, the item belongs to this rank or to any rank of this task.
    pub own: PartyNumbers,
    pub _opening: SegmentOpening,
}

/// The cooperative items that one session knows.
#[derive(Debug, Default)]
pub(crate) struct CooperativeItems(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    known: BTreeMap<String, Arc<MappedItem>>,
    words: BTreeMap<Party, u32>,
    /// The numbers that this session has registered. Other tasks can transfer items to these numbers, for example to
    /// `#7`.
    registered: BTreeSet<u64>,
}

impl CooperativeItems {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn find(&self, key: &str) -> Option<Arc<MappedItem>> {
        self.state().known.get(key).cloned()
    }

    pub(super) fn learn(&self, known: &Arc<MappedItem>) {
        self.state().known.insert(known.given.key.clone(), known.clone());
    }

    /// Forgets an item that was destroyed, so that its memory can be unmapped.
    pub(super) fn forget(&self, key: &str, item: SegmentId) {
        let mut state = self.state();
        if state.known.get(key).is_some_and(|k| k.given.item == item) {
            state.known.remove(key);
        }
    }

    pub(super) fn word(&self, party: &Party) -> Option<u32> {
        self.state().words.get(party).copied()
    }

    pub(super) fn learn_word(&self, party: Party, word: u32) {
        self.state().words.insert(party, word);
    }

    pub(super) fn register(&self, number: u64) {
        self.state().registered.insert(number);
    }

    pub(super) fn registered(&self) -> Vec<u64> {
        self.state().registered.iter().copied().collect()
    }
}

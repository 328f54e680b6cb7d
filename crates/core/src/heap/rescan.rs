//! Searches the region for the slices that a heap slot owns, and for those of them that have free blocks. A member does
//! this when it takes a vacant slot. It also does this after another member's death, because the dead member may have
//! freed a block in the slot's slices without notifying the slot.

use std::ops::Range;
use std::sync::atomic::{Ordering, fence};

use crossdock_layout::region::{Available, CLASSES, HeapSlot, SliceWord};

use super::local::LocalSlot;
use crate::region::Region;

impl Region {
    /// Forgets all hints and searches all slices of the slot.
    ///
    /// A queued slice is in one of three situations: it is on the slot's stack, another member is just putting it
    /// there, or it is lost. It is lost if the member that freed a block died before it put the slice on the stack, or
    /// if the slot's former holder died while it emptied the stack. This function ignores slices that another member is
    /// just putting on the stack. All other slices that are still marked as queued after the stack was emptied are
    /// lost, and this function adds them to the list of slices with free blocks.
    pub(super) fn rescan(&self, local: &mut LocalSlot) {
        local.shared(self).rescan.store(0, Ordering::SeqCst);
        for class in &mut local.classes {
            class.forget();
            class.partial.clear();
        }
        let owner = local.index;
        let found = self.find_slices(0..self.memory.committed(), |of| of == owner);
        self.collect(local);
        for (slice, class, word) in found {
            match word.available() {
                Available::Queued | Available::Orphan => self.admit(local, slice, class, word),
                Available::Active | Available::Full if self.memory.next_free(slice, 0, class).is_some() => {
                    self.admit(local, slice, class, word);
                }
                Available::Full => {}
                Available::Active => {
                    // The search found no free block in this slice, so the slice is marked as full. Another member may
                    // free a block after the search and before it can see the mark; it then does not put the slice on
                    // the stack. So the slice is searched once more, as in `leave_slice`.
                    let full = word.with(Available::Full, 0);
                    let turned = self.turn(slice, word, full);
                    fence(Ordering::SeqCst);
                    if turned && self.memory.next_free(slice, 0, class).is_some() {
                        self.admit(local, slice, class, full);
                    }
                }
            }
        }
    }

    /// Finds the slices of small blocks in a range. Returns those slices whose owner passes the test `owns`, each with
    /// its class and head word. Slices that another member is just putting on their owner's stack are left out.
    pub(super) fn find_slices(&self, range: Range<u64>, owns: impl Fn(u16) -> bool) -> Vec<(u64, usize, SliceWord)> {
        let mut found = Vec::new();
        for slice in range {
            let Some((word, class)) = self.small_slice(slice).filter(|(word, _)| owns(word.owner())) else { continue };
            let on_its_way = word.available() == Available::Queued && self.is_pushing(word.by(), slice);
            if !on_its_way {
                found.push((slice, class, word));
            }
        }
        found
    }

    /// Adds a slice to the thread's list of slices with free blocks, if the slice's head is still `seen`. If the head
    /// has changed, the slice is in the list already, or another member is putting it on the slot's stack.
    fn admit(&self, local: &mut LocalSlot, slice: u64, class: usize, seen: SliceWord) {
        if self.turn(slice, seen, seen.with(Available::Active, 0)) {
            local.classes[class].partial.push(slice as u32);
        }
    }

    /// Changes a slice's head word from `from` to `to`, and returns `true`; returns `false` if the word is not `from`
    /// any more.
    pub(super) fn turn(&self, slice: u64, from: SliceWord, to: SliceWord) -> bool {
        let exchange = |head: &crossdock_layout::region::SliceHead| {
            head.word.compare_exchange(from.0, to.0, Ordering::SeqCst, Ordering::Relaxed).is_ok()
        };
        self.memory.head(slice).is_some_and(exchange)
    }

    /// Returns to the pool of free slices all slices of this slot in which no block is in use. Gives their number.
    pub(super) fn trim(&self, local: &mut LocalSlot) -> u64 {
        let mut released = 0;
        for class in 0..CLASSES.len() {
            let known = &mut local.classes[class];
            if known.slice != super::hints::NONE {
                // The current slice has the state `Active`, as the slices in `partial` have. So this function examines
                // the current slice together with those slices.
                known.partial.push(known.slice);
            }
            known.forget();
            let mut kept = std::mem::take(&mut known.partial);
            kept.retain(|&slice| {
                let slice = u64::from(slice);
                let gone = self.memory.is_empty(slice, class) && self.release_slice(local.index, slice, class);
                released += u64::from(gone);
                !gone
            });
            local.classes[class].partial = kept;
        }
        released
    }

    /// Gives the head word and the class of a slice, if `owner` owns it.
    pub(super) fn own_slice(&self, owner: u16, slice: u64) -> Option<(SliceWord, usize)> {
        self.small_slice(slice).filter(|(word, _)| word.owner() == owner)
    }

    fn small_slice(&self, slice: u64) -> Option<(SliceWord, usize)> {
        let word = SliceWord(self.memory.head(slice)?.word.load(Ordering::SeqCst));
        (word.is_small() && word.class() < CLASSES.len()).then(|| (word, word.class()))
    }

    fn is_pushing(&self, by: u16, slice: u64) -> bool {
        let pushing = |slot: &HeapSlot| slot.pushing.load(Ordering::SeqCst) == slice + 1;
        self.memory.slot(by.into()).is_some_and(pushing)
    }
}

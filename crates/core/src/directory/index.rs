//! The two indexes of the directory, and the code that reads the directory without a lock.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering, fence};

use crossdock_layout::region::{ENTRY_CONSTRUCTING, ENTRY_FREE, ENTRY_READY, Entry};
use crossdock_layout::{Status, WildWord};
use crossdock_os::Deadline;

use super::entry;
use crate::heap::LockGuard;
use crate::region::{PATIENCE, Region};
use crate::{Result, fault_point};

const BY_NAME: u64 = 0;
const BY_OFFSET: u64 = 1;

/// Computes the hash FNV-1a of a name.
pub(super) fn hash(name: &str) -> u32 {
    name.bytes().fold(0x811c_9dc5, |h, b| (h ^ u32::from(b)).wrapping_mul(0x0100_0193))
}

fn hash_of_offset(offset: u64) -> u32 {
    ((offset >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u32
}

/// Reads a text field of an entry as bytes.
pub(super) fn read_field<const N: usize>(field: &[AtomicU8; N]) -> [u8; N] {
    std::array::from_fn(|i| field[i].load(Ordering::Relaxed))
}

/// Fills a text field with the text and zeros behind it. The text must be shorter than the field.
pub(super) fn write_field(field: &[AtomicU8], text: &str) {
    let bytes = text.bytes().chain(std::iter::repeat(0));
    for (to, byte) in field.iter().zip(bytes) {
        to.store(byte, Ordering::Relaxed);
    }
}

fn has_name(entry: &Entry, name: &str) -> bool {
    let bytes = name.bytes().chain(std::iter::once(0));
    entry.name.iter().zip(bytes).all(|(have, want)| have.load(Ordering::Relaxed) == want)
}

fn next_of(entry: &Entry, which: u64) -> &WildWord<AtomicU32> {
    if which == BY_NAME { &entry.next_by_name } else { &entry.next_by_offset }
}

impl Region {
    /// Runs `look` without the lock. If a member changes the directory while `look` runs, `look` is called again.
    pub(super) fn read_directory<R>(&self, look: impl Fn() -> R) -> Result<R> {
        let version = &self.memory.header().directory_version;
        let deadline = Deadline::after(PATIENCE);
        for turn in 0u32.. {
            let before = version.load(Ordering::Acquire);
            if before & 1 == 0 {
                let seen = look();
                fence(Ordering::Acquire);
                if version.load(Ordering::Relaxed) == before {
                    return Ok(seen);
                }
            }
            if turn < 100 {
                std::hint::spin_loop();
                continue;
            }
            // Another member is changing the directory, or died while it changed it. If this member has write access,
            // it takes the lock and reads under the lock. `lock` waits if the other member lives, and heals the
            // directory if that member is dead.
            if self.writable && self.is_own() {
                let _guard = self.lock()?;
                return Ok(look());
            }
            if deadline.passed() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        Err(self.error(Status::Busy, "its directory has been changing for 10 s; a task with write access heals it"))
    }

    /// Finds the directory entry that has this name. The object may still be under construction.
    pub(super) fn search(&self, name: &str) -> Option<(u64, &Entry)> {
        let hash = hash(name);
        let named = |e: &Entry| e.hash.load(Ordering::Relaxed) == hash && has_name(e, name);
        self.chain(BY_NAME, hash)
            .find(|(_, e)| matches!(e.state.load(Ordering::Acquire), ENTRY_CONSTRUCTING | ENTRY_READY) && named(e))
    }

    /// Finds the directory entry in state READY whose block is at `offset`.
    pub(super) fn search_offset(&self, offset: u64) -> Option<(u64, &Entry)> {
        self.chain(BY_OFFSET, hash_of_offset(offset))
            .find(|(_, e)| e.state.load(Ordering::Acquire) == ENTRY_READY && entry::is_at(e, offset))
    }

    /// The entries of a chain. The iteration ends even if damaged links form a circle.
    fn chain(&self, which: u64, hash: u32) -> impl Iterator<Item = (u64, &Entry)> {
        let mut next = self.memory.bucket(which, hash).load(Ordering::Acquire);
        let mut left = self.memory.entries();
        std::iter::from_fn(move || {
            let index = next.linked(self.memory.entries())?;
            left = left.checked_sub(1)?;
            let entry = self.memory.entry(index)?;
            next = next_of(entry, which).load(Ordering::Acquire);
            Some((index, entry))
        })
    }

    /// Runs `change`, which changes entries and chains of the directory. Members that read the directory during the
    /// change read it again. If this member dies within the change, the next holder of the lock rebuilds the indexes.
    pub(super) fn change_directory(&self, _guard: &LockGuard<'_>, change: impl FnOnce()) {
        let version = &self.memory.header().directory_version;
        let odd = version.load(Ordering::Relaxed) | 1;
        version.store(odd, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        change();
        fault_point!("directory.changed");
        version.store(odd.wrapping_add(1), Ordering::Release);
    }

    pub(super) fn link_name(&self, index: u64, entry: &Entry) {
        let bucket = self.memory.bucket(BY_NAME, entry.hash.load(Ordering::Relaxed));
        entry.next_by_name.store_wild(bucket.load(Ordering::Relaxed), Ordering::Relaxed);
        bucket.store(index as u32 + 1, Ordering::Release);
    }

    pub(super) fn link_offset(&self, index: u64, entry: &Entry) {
        let bucket = self.bucket_by_offset(entry);
        entry.next_by_offset.store_wild(bucket.load(Ordering::Relaxed), Ordering::Relaxed);
        bucket.store(index as u32 + 1, Ordering::Release);
    }

    pub(super) fn unlink_name(&self, index: u64, entry: &Entry) {
        self.unlink(BY_NAME, self.memory.bucket(BY_NAME, entry.hash.load(Ordering::Relaxed)), index, entry);
    }

    pub(super) fn unlink_offset(&self, index: u64, entry: &Entry) {
        self.unlink(BY_OFFSET, self.bucket_by_offset(entry), index, entry);
    }

    /// Gives the head of the entry's chain in the index of offsets.
    fn bucket_by_offset(&self, entry: &Entry) -> &WildWord<AtomicU32> {
        self.memory.bucket(BY_OFFSET, entry::hash_by_offset(entry, hash_of_offset))
    }

    fn unlink(&self, which: u64, bucket: &WildWord<AtomicU32>, index: u64, entry: &Entry) {
        let after = next_of(entry, which).load(Ordering::Relaxed);
        let mut link = bucket;
        for _ in 0..=self.memory.entries() {
            let next = link.load(Ordering::Relaxed);
            if next.is(index as u32 + 1) {
                link.store_wild(after, Ordering::Release);
                return;
            }
            let further = next.linked(self.memory.entries()).and_then(|index| self.memory.entry(index));
            let Some(further) = further else { return };
            link = next_of(further, which);
        }
    }

    /// Puts an entry on the list of free entries. The caller is within `change_directory`.
    pub(super) fn free_entry(&self, index: u64, entry: &Entry) {
        let list = &self.memory.header().free_entry;
        entry.next_by_name.store_wild(list.load(Ordering::Relaxed), Ordering::Relaxed);
        entry.state.store(ENTRY_FREE, Ordering::Release);
        list.store(index as u32 + 1, Ordering::Relaxed);
    }

    /// Rebuilds both indexes and the list of free entries from the entries' states.
    pub(crate) fn rebuild_directory(&self, guard: &LockGuard<'_>) {
        self.change_directory(guard, || {
            for bucket in 0..self.memory.geometry().buckets as u32 {
                self.memory.bucket(BY_NAME, bucket).store(0, Ordering::Relaxed);
                self.memory.bucket(BY_OFFSET, bucket).store(0, Ordering::Relaxed);
            }
            self.memory.header().free_entry.store(0, Ordering::Relaxed);
            for index in 0..self.memory.entries() {
                let Some(entry) = self.memory.entry(index) else { break };
                match entry.state.load(Ordering::Acquire) {
                    ENTRY_FREE => self.free_entry(index, entry),
                    ENTRY_CONSTRUCTING => self.link_name(index, entry),
                    ENTRY_READY => {
                        self.link_name(index, entry);
                        self.link_offset(index, entry);
                    }
                    _ => {}
                }
            }
        });
    }
}

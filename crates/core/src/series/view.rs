//! A variable of a version as one contiguous range that cannot be written.
//!
//! It is made of mappings of the version's own pages, as few as there are runs of slots that follow each other. A process
//! has 65530 mappings; one that runs out of them gets a copy instead, which is read and refreshed in the same way.
//!
//! A series whose publisher takes versions back is shown by copies only: the pages may be another version's at any time.
//! Whether a copy is of the version is known when it is complete. So [`View::copy_of`] and [`View::prepare`] read, the
//! caller then asks whether the version was there all the time, and shows what was read or forgets it.

use std::os::fd::AsFd;

use crossdock_layout::series::NO_SLOT;
use crossdock_os::OsResult;
use crossdock_os::copy::copy_racing;
use crossdock_os::place::Place;

use super::field::slot_runs;
use super::pool::Pool;
use crate::fault_point;

/// Chunks of another version, read and not yet shown.
pub(super) struct Prepared {
    slots: Vec<u32>,
    indices: Vec<usize>,
    bytes: Vec<u8>,
}

pub(super) struct View {
    place: Place,
    /// The slots that are shown, a chunk each; fewer than the place has room for where the variable can grow.
    slots: Vec<u32>,
    /// Shown by a copy.
    copied: bool,
}

impl View {
    /// Takes addresses for `room` chunks and shows these slots there, checked by the caller.
    pub fn new(room: u32, slots: &[u32], pool: &Pool, descriptor: impl AsFd) -> OsResult<Self> {
        let place = Place::reserve(room as usize * pool.chunk())?;
        let mut view = Self { place, slots: Vec::new(), copied: false };
        view.show(slots, pool, descriptor)?;
        Ok(view)
    }

    /// A copy of these slots, which may be written meanwhile.
    pub fn copy_of(room: u32, slots: &[u32], pool: &Pool) -> OsResult<Self> {
        let place = Place::reserve(room as usize * pool.chunk())?;
        place.put_memory(0, place.length())?;
        for (index, slot) in slots.iter().enumerate() {
            // SAFETY: the place has room for all chunks, and was made just now.
            unsafe { copy_racing(place.start().as_ptr().add(index * pool.chunk()), pool.slot(*slot), pool.chunk()) };
        }
        place.set_writable(0, place.length(), false)?;
        Ok(Self { place, slots: slots.to_vec(), copied: true })
    }

    /// Reads what [`View::show_prepared`] is to show: the chunks that differ, or all of them.
    pub fn prepare(&self, slots: &[u32], all: bool, pool: &Pool) -> Prepared {
        let chunk = pool.chunk();
        let differing = (0..slots.len()).filter(|index| all || self.slots.get(*index) != slots.get(*index));
        let indices: Vec<usize> = differing.collect();
        let mut bytes = vec![0; indices.len() * chunk];
        for (piece, index) in bytes.chunks_exact_mut(chunk).zip(&indices) {
            // SAFETY: a whole slot of the mapped pool, to as many bytes of this function's own.
            unsafe { copy_racing(piece.as_mut_ptr(), pool.slot(slots[*index]), chunk) };
        }
        Prepared { slots: slots.to_vec(), indices, bytes }
    }

    /// Shows what was read, and gives the number of chunks. After an error nothing has changed.
    pub fn show_prepared(&mut self, prepared: Prepared, pool: &Pool) -> OsResult<u64> {
        let chunk = pool.chunk();
        self.place.set_writable(0, self.place.length(), true)?;
        for (piece, index) in prepared.bytes.chunks_exact(chunk).zip(&prepared.indices) {
            assert!((index + 1) * chunk <= self.place.length());
            // SAFETY: within this view's own memory, which is writable now.
            unsafe {
                let to = self.place.start().as_ptr().add(index * chunk);
                std::ptr::copy_nonoverlapping(piece.as_ptr(), to, chunk);
            }
        }
        // Those that stay writable harm only this process.
        let _ = self.place.set_writable(0, self.place.length(), false);
        self.slots = prepared.slots;
        Ok(prepared.indices.len() as u64)
    }

    pub fn start(&self) -> *const u8 {
        self.place.start().as_ptr()
    }

    /// Is what it shows a copy?
    pub fn is_copy(&self) -> bool {
        self.copied
    }

    /// Shows other slots, and gives the number of chunks that were mapped or copied anew: only where they differ. After an
    /// error some chunks may show the one, some the other: the view is to be dropped.
    pub fn show(&mut self, slots: &[u32], pool: &Pool, descriptor: impl AsFd) -> OsResult<u64> {
        let changed = if self.copied { self.copy_differing(slots, pool)? } else { self.map(slots, pool, descriptor)? };
        self.slots = slots.to_vec();
        Ok(changed)
    }

    fn map(&mut self, slots: &[u32], pool: &Pool, descriptor: impl AsFd) -> OsResult<u64> {
        let chunk = pool.chunk();
        let mut changed = 0;
        let runs: Vec<_> = slot_runs(0..slots.len() as u32, |index| self.differing(slots, index)).collect();
        for (first, run) in runs {
            let from = pool.geometry().slot(run.first);
            if self.place.put_readable(first as usize * chunk, run.count as usize * chunk, &descriptor, from).is_err() {
                return self.copy_all(slots, pool);
            }
            changed += u64::from(run.count);
            fault_point!("series.view.half");
        }
        // Chunks that the variable has no more.
        if slots.len() < self.slots.len() {
            self.place.clear(slots.len() * chunk, (self.slots.len() - slots.len()) * chunk)?;
        }
        Ok(changed)
    }

    /// The slot of a chunk, if it is another than the one that is shown.
    fn differing(&self, slots: &[u32], index: u32) -> u32 {
        match (slots[index as usize], self.slots.get(index as usize)) {
            (new, Some(old)) if new == *old => NO_SLOT,
            (new, _) => new,
        }
    }

    fn copy_all(&mut self, slots: &[u32], pool: &Pool) -> OsResult<u64> {
        // One mapping in place of many: this is what makes room again.
        self.place.start_afresh()?;
        self.copied = true;
        for (index, slot) in slots.iter().enumerate() {
            self.copy(index, *slot, pool);
        }
        self.place.set_writable(0, self.place.length(), false)?;
        Ok(slots.len() as u64)
    }

    fn copy_differing(&mut self, slots: &[u32], pool: &Pool) -> OsResult<u64> {
        self.place.set_writable(0, self.place.length(), true)?;
        let mut changed = 0;
        for index in 0..slots.len() as u32 {
            let slot = self.differing(slots, index);
            if slot != NO_SLOT {
                self.copy(index as usize, slot, pool);
                changed += 1;
            }
        }
        self.place.set_writable(0, self.place.length(), false)?;
        Ok(changed)
    }

    fn copy(&self, index: usize, slot: u32, pool: &Pool) {
        let chunk = pool.chunk();
        assert!((index + 1) * chunk <= self.place.length());
        // SAFETY: a whole slot of the mapped pool, to a chunk of this view's own memory, which is writable now.
        unsafe {
            std::ptr::copy_nonoverlapping(pool.slot(slot), self.place.start().as_ptr().add(index * chunk), chunk)
        };
    }
}

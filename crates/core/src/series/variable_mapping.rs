//! One variable of a version, as a contiguous range of addresses that cannot be written.
//!
//! The range consists of mappings of the version's own pages, one for each run of slots that follow each other. A
//! process may have 65530 mappings. If none is left, the variable is copied instead. Callers read and refresh such a
//! copy as they do a mapping.
//!
//! If a small variable is refreshed several times, it is copied from then on: to map other pages at addresses that the
//! program has read takes 8 µs, and to copy 64 KiB takes 2 to 5 µs. The copy is in memory that is mapped twice. At the
//! addresses that the program knows, this memory can only be read. This process writes it through the second mapping.
//!
//! If the publisher takes versions back, it may overwrite the pages at any time. So the program sees only copies, never
//! the pages. Only after a copy is complete can the caller find out whether it is right. So the caller first calls
//! [`VariableMapping::copy_of`] or [`VariableMapping::prepare`], which copy the bytes. Then it asks whether the version
//! still exists. If so, it shows the copy to the program; otherwise it drops the copy.

use std::os::fd::AsFd;

use crossdock_layout::series::NO_SLOT;
use crossdock_os::copy::copy_racing;
use crossdock_os::reservation::Reservation;
use crossdock_os::{Mapping, OsResult, memfd};

use super::field::slot_runs;
use super::pool::Pool;
use crate::fault_point;

/// A variable with room for at most this number of bytes is small.
const SMALL: usize = 64 << 10;
/// How many refreshes of a small variable change the mapping. The next refresh makes the memory for copies, which takes
/// several times as long as a change of the mapping.
const MAPPED_REFRESHES: u32 = 3;

/// Copies of chunks of another version, which the `VariableMapping` does not show yet.
pub(super) struct PreparedChunks {
    slots: Vec<u32>,
    indices: Vec<usize>,
    bytes: Vec<u8>,
}

pub(super) struct VariableMapping {
    reservation: Reservation,
    /// The slots whose contents the program sees now, one for each chunk. The address range has room for more chunks if
    /// the variable can grow.
    slots: Vec<u32>,
    contents: Contents,
    /// The number of calls of [`VariableMapping::show`]: one for the first version, and one for each refresh.
    shown: u32,
}

/// The memory that is mapped at the variable's addresses.
enum Contents {
    /// The slots themselves.
    Slots,
    /// A copy of the slots in private memory, which is writable only while a call changes it.
    Private,
    /// A copy of the slots in memory that this process writes through this second mapping.
    Twice(Mapping),
}

impl VariableMapping {
    /// Reserves addresses for `room` chunks and maps these slots there. The caller has checked the slots.
    pub fn new(room: u32, slots: &[u32], pool: &Pool, descriptor: impl AsFd) -> OsResult<Self> {
        let reservation = Reservation::reserve(room as usize * pool.chunk())?;
        let mut view = Self { reservation, slots: Vec::new(), contents: Contents::Slots, shown: 0 };
        view.show(slots, pool, descriptor)?;
        Ok(view)
    }

    /// Makes a `VariableMapping` with a copy of these slots. The publisher may be overwriting them during the copy.
    pub fn copy_of(room: u32, slots: &[u32], pool: &Pool) -> OsResult<Self> {
        let reservation = Reservation::reserve(room as usize * pool.chunk())?;
        reservation.put_memory(0, reservation.length())?;
        for (index, slot) in slots.iter().enumerate() {
            // SAFETY: the reservation has room for all chunks. It was made just now, so no other code uses it.
            unsafe {
                copy_racing(reservation.start().as_ptr().add(index * pool.chunk()), pool.slot(*slot), pool.chunk())
            };
        }
        reservation.set_writable(0, reservation.length(), false)?;
        Ok(Self { reservation, slots: slots.to_vec(), contents: Contents::Private, shown: 0 })
    }

    /// Copies the chunks that [`VariableMapping::show_prepared`] will show. If `all` is false, copies only the chunks
    /// whose slots differ from the slots that are shown now.
    pub fn prepare(&self, slots: &[u32], all: bool, pool: &Pool) -> PreparedChunks {
        let chunk = pool.chunk();
        let differing = (0..slots.len()).filter(|index| all || self.slots.get(*index) != slots.get(*index));
        let indices: Vec<usize> = differing.collect();
        let mut bytes = vec![0; indices.len() * chunk];
        for (piece, index) in bytes.chunks_exact_mut(chunk).zip(&indices) {
            // SAFETY: the call copies a whole slot of the mapped pool to `piece`, which is as long as a slot, and to
            // which no other code has a reference.
            unsafe { copy_racing(piece.as_mut_ptr(), pool.slot(slots[*index]), chunk) };
        }
        PreparedChunks { slots: slots.to_vec(), indices, bytes }
    }

    /// Makes this process's copy writable, or read-only again. The caller makes it writable before it calls
    /// [`VariableMapping::show_prepared`].
    pub fn set_writable(&self, writable: bool) -> OsResult<()> {
        self.reservation.set_writable(0, self.reservation.length(), writable)
    }

    /// Shows the chunks that `prepare` copied, and returns their number. The caller has made the copy writable. This
    /// function makes it read-only again.
    pub fn show_prepared(&mut self, prepared: PreparedChunks, pool: &Pool) -> u64 {
        let chunk = pool.chunk();
        for (piece, index) in prepared.bytes.chunks_exact(chunk).zip(&prepared.indices) {
            assert!((index + 1) * chunk <= self.reservation.length());
            // SAFETY: the chunk lies within this value's own memory, which is writable now.
            unsafe {
                let to = self.reservation.start().as_ptr().add(index * chunk);
                std::ptr::copy_nonoverlapping(piece.as_ptr(), to, chunk);
            }
        }
        // If this call fails, some pages stay writable, which can harm only this process.
        let _ = self.set_writable(false);
        self.slots = prepared.slots;
        prepared.indices.len() as u64
    }

    pub fn start(&self) -> *const u8 {
        self.reservation.start().as_ptr()
    }

    /// Tells whether this memory is a copy of the slots. If not, the slots themselves are mapped here.
    pub fn is_copy(&self) -> bool {
        !matches!(self.contents, Contents::Slots)
    }

    /// Shows the slots of another version. Maps or copies only the chunks whose slots differ from those that are shown
    /// now, and returns their number. After an error the memory may show a mixture of old and new slots, so the caller
    /// must drop this value.
    pub fn show(&mut self, slots: &[u32], pool: &Pool, descriptor: impl AsFd) -> OsResult<u64> {
        if self.shown > MAPPED_REFRESHES && !self.is_copy() && self.reservation.length() <= SMALL {
            // If there is no memory for the copy, the variable stays mapped.
            let _ = self.begin_copying();
        }
        self.shown = self.shown.saturating_add(1);
        let changed = match &self.contents {
            Contents::Slots => self.map(slots, pool, descriptor)?,
            Contents::Private => self.copy_differing(slots, pool)?,
            Contents::Twice(memory) => self.copy_to(memory.start().as_ptr(), slots, pool),
        };
        self.slots = slots.to_vec();
        Ok(changed)
    }

    /// Replaces the mapped slots by memory of this process that is mapped twice. The caller then copies all slots.
    fn begin_copying(&mut self) -> OsResult<()> {
        let length = self.reservation.length();
        let (memory, writable) = memfd::create_for_own_writing("crossdock-copy", length as u64)?;
        self.reservation.put_readable(0, length, memory, 0)?;
        self.contents = Contents::Twice(writable);
        self.slots.clear();
        Ok(())
    }

    /// Copies the slots that differ from those that are shown now to the memory at `to`. This memory is as long as the
    /// reservation. Returns the number of slots that were copied.
    fn copy_to(&self, to: *mut u8, slots: &[u32], pool: &Pool) -> u64 {
        let chunk = pool.chunk();
        assert!(slots.len() * chunk <= self.reservation.length());
        let mut changed = 0;
        for index in 0..slots.len() as u32 {
            let slot = self.differing(slots, index);
            if slot != NO_SLOT {
                // SAFETY: the call copies a whole slot of the mapped pool to a chunk of memory that only this process
                // writes, and only with `self` borrowed mutably.
                unsafe { std::ptr::copy_nonoverlapping(pool.slot(slot), to.add(index as usize * chunk), chunk) };
                changed += 1;
            }
        }
        changed
    }

    fn map(&mut self, slots: &[u32], pool: &Pool, descriptor: impl AsFd) -> OsResult<u64> {
        let chunk = pool.chunk();
        let mut changed = 0;
        let runs: Vec<_> = slot_runs(0..slots.len() as u32, |index| self.differing(slots, index)).collect();
        for (first, run) in runs {
            let from = pool.geometry().slot(run.first);
            if self
                .reservation
                .put_readable(first as usize * chunk, run.count as usize * chunk, &descriptor, from)
                .is_err()
            {
                return self.copy_all(slots, pool);
            }
            changed += u64::from(run.count);
            fault_point!("series.view.half");
        }
        // The variable has become shorter, so its last chunks are removed.
        if slots.len() < self.slots.len() {
            self.reservation.clear(slots.len() * chunk, (self.slots.len() - slots.len()) * chunk)?;
        }
        Ok(changed)
    }

    /// Returns the slot that the chunk will have, if it is another slot than the one that is shown now. Otherwise
    /// returns `NO_SLOT`.
    fn differing(&self, slots: &[u32], index: u32) -> u32 {
        match (slots[index as usize], self.slots.get(index as usize)) {
            (new, Some(old)) if new == *old => NO_SLOT,
            (new, _) => new,
        }
    }

    fn copy_all(&mut self, slots: &[u32], pool: &Pool) -> OsResult<u64> {
        // One new mapping replaces the many mappings of the slots. So the process can make further mappings again.
        self.reservation.start_afresh()?;
        self.contents = Contents::Private;
        self.slots.clear();
        let copied = self.copy_to(self.reservation.start().as_ptr(), slots, pool);
        self.set_writable(false)?;
        Ok(copied)
    }

    fn copy_differing(&mut self, slots: &[u32], pool: &Pool) -> OsResult<u64> {
        self.set_writable(true)?;
        let copied = self.copy_to(self.reservation.start().as_ptr(), slots, pool);
        self.set_writable(false)?;
        Ok(copied)
    }
}

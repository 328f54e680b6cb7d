//! A variable in the publisher's own memory: its addresses, which never change, and the kind of memory at them.
//!
//! The memory at a chunk's addresses is ordinary memory of this process, or a private mapping of the chunk's slot in
//! the newest version (`backing.rs`). In such a mapping, the pages that the program never wrote are the version's own
//! pages, so they take no memory besides the version. When a chunk of the version gets another slot, the chunk's
//! addresses must be mapped to the new slot immediately, because the old slot may be overwritten as soon as it is free.

use crossdock_layout::series::NO_SLOT;
use crossdock_os::OsResult;
use crossdock_os::reservation::Reservation;
use std::os::fd::AsFd;

use super::plan::Span;
use super::pool::Pool;
use super::slots::SlotRun;
use crate::containers::Order;

/// Where one variable's chunks of the next version lie, from `begin` to `publish` or `abandon`.
pub(super) enum Begun {
    /// The chunks lie in slots that follow each other. So the program writes to them through the pool's own mapping.
    /// The number is the first slot.
    Contiguous(u32),
    /// The chunks lie in several runs of slots. A second mapping shows these runs side by side, in the order of the
    /// chunks.
    Assembled(Reservation),
    /// The chunks lie in ordinary memory of this process, because the pool has no room.
    Aside(Reservation),
}

pub(super) struct Field {
    pub name: String,
    /// The type of the elements.
    pub ty: String,
    pub order: Order,
    pub span: Span,
    pub shape: Vec<u64>,
    pub max_shape: Vec<u64>,
    /// The present size in bytes.
    pub bytes: u64,
    /// The present number of chunks.
    pub chunks: u32,
    /// The number of chunks that have got memory so far. It stays the same when the variable shrinks.
    pub mapped: u32,
    /// The range of addresses reserved for this variable. It has room for the variable's largest shape.
    pub reservation: Reservation,
    pub begun: Option<Begun>,
}

impl Field {
    /// The range of slot table entries for the variable's present chunks.
    pub fn table(&self) -> std::ops::Range<u32> {
        self.span.first..self.span.first + self.chunks
    }

    /// The range of slot table entries for the variable at its largest shape.
    pub fn whole_table(&self) -> std::ops::Range<u32> {
        self.span.first..self.span.first + self.span.chunks
    }

    /// The address of a chunk in the variable's usual range of addresses, also while a version is begun.
    pub fn address(&self, index: u32, chunk: usize) -> *mut u8 {
        assert!(index < self.span.chunks);
        // SAFETY: the chunk lies within the reservation, which has room for all chunks of the variable.
        unsafe { self.reservation.start().as_ptr().add(index as usize * chunk) }
    }

    /// The address at which the program writes the variable at present. If a version is begun, this is an address in
    /// the begun version; otherwise it is the variable's usual address.
    pub fn memory(&self, pool: &Pool) -> *mut u8 {
        match &self.begun {
            None => self.reservation.start().as_ptr(),
            Some(Begun::Contiguous(slot)) => pool.slot(*slot),
            Some(Begun::Assembled(reservation) | Begun::Aside(reservation)) => reservation.start().as_ptr(),
        }
    }

    /// The variable's present contents, at its usual address.
    ///
    /// # Safety
    /// No version is begun, and no thread writes the variable while the result exists.
    pub unsafe fn contents(&self) -> &[u8] {
        // SAFETY: the present bytes lie within the chunks that are mapped, and the caller promises the rest.
        unsafe { std::slice::from_raw_parts(self.reservation.start().as_ptr(), self.bytes as usize) }
    }

    /// Maps ordinary zeroed memory for these chunks.
    pub fn put_memory(&self, chunks: std::ops::Range<u32>, chunk: usize) -> OsResult<()> {
        if chunks.is_empty() {
            return Ok(());
        }
        self.reservation.put_memory(chunks.start as usize * chunk, chunks.len() * chunk)
    }

    /// Maps slots of the newest version privately at the variable's addresses, for those chunks in `chunks` that have a
    /// slot. `table` is the whole slot table.
    pub fn put_slots(
        &self,
        chunks: std::ops::Range<u32>,
        table: &[u32],
        pool: &Pool,
        descriptor: impl AsFd,
    ) -> OsResult<u32> {
        let chunk = pool.chunk();
        let mut mapped = 0;
        for (first, run) in slot_runs(chunks, |index| table[(self.span.first + index) as usize]) {
            let from = pool.geometry().slot(run.first);
            self.reservation.put_private(first as usize * chunk, run.count as usize * chunk, &descriptor, from)?;
            mapped += 1;
        }
        Ok(mapped)
    }

    /// Replaces the variable's memory by ordinary memory with the same contents at the same addresses.
    pub fn turn_into_memory(&self, chunk: usize) -> OsResult<()> {
        let length = self.chunks as usize * chunk;
        if length == 0 {
            return Ok(());
        }
        let other = Reservation::reserve(length)?;
        other.put_memory(0, length)?;
        // SAFETY: both ranges are mapped for `length` bytes, and only this function uses the target.
        unsafe {
            std::ptr::copy_nonoverlapping(
                self.reservation.start().as_ptr().cast_const(),
                other.start().as_ptr(),
                length,
            );
        }
        self.reservation.take_from(&other, length)
    }
}

/// Splits a range of chunks into runs whose slots follow each other, and gives each run's first chunk and slots.
pub(super) fn slot_runs(
    chunks: std::ops::Range<u32>,
    slot_of: impl Fn(u32) -> u32,
) -> impl Iterator<Item = (u32, SlotRun)> {
    let mut at = chunks.start;
    std::iter::from_fn(move || {
        while at < chunks.end && slot_of(at) == NO_SLOT {
            at += 1;
        }
        if at >= chunks.end {
            return None;
        }
        let (first, slot) = (at, slot_of(at));
        at += 1;
        while at < chunks.end && slot_of(at) != NO_SLOT && slot_of(at) == slot + (at - first) {
            at += 1;
        }
        Some((first, SlotRun { first: slot, count: at - first }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_that_follow_each_other_are_one_run() {
        let table = [5, 6, 7, NO_SLOT, 9, 3, 4, NO_SLOT];
        let runs: Vec<_> = slot_runs(0..8, |n| table[n as usize]).map(|(c, r)| (c, r.first, r.count)).collect();
        assert_eq!(runs, [(0, 5, 3), (4, 9, 1), (5, 3, 2)]);
        assert_eq!(slot_runs(3..4, |n| table[n as usize]).count(), 0);
    }
}

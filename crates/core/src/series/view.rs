//! A variable of a version as one contiguous range that cannot be written.

use std::os::fd::AsFd;

use crossdock_layout::series::NO_SLOT;
use crossdock_os::OsResult;
use crossdock_os::place::Place;

use super::field::slot_runs;
use super::pool::Pool;
use crate::fault_point;

pub(super) struct View {
    place: Place,
    /// The slots that are mapped, a chunk each; shorter than the place where the variable can grow.
    slots: Vec<u32>,
}

impl View {
    /// Takes addresses for `room` chunks and maps these slots there, checked by the caller.
    pub fn new(room: u32, slots: &[u32], pool: &Pool, descriptor: impl AsFd) -> OsResult<Self> {
        let place = Place::reserve(room as usize * pool.chunk())?;
        let mut view = Self { place, slots: Vec::new() };
        view.show(slots, pool, descriptor)?;
        Ok(view)
    }

    pub fn start(&self) -> *const u8 {
        self.place.start().as_ptr()
    }

    /// Maps other slots: only where they differ, as few mappings as there are runs. Gives the number of chunks that were
    /// mapped anew. After an error some chunks may show the one, some the other: the view is to be dropped.
    pub fn show(&mut self, slots: &[u32], pool: &Pool, descriptor: impl AsFd) -> OsResult<u64> {
        let chunk = pool.chunk();
        let differs = |index: u32| match (slots[index as usize], self.slots.get(index as usize)) {
            (new, Some(old)) if new == *old => NO_SLOT,
            (new, _) => new,
        };
        let mut mapped = 0;
        for (first, run) in slot_runs(0..slots.len() as u32, differs) {
            let from = pool.geometry().slot(run.first);
            self.place.put_readable(first as usize * chunk, run.count as usize * chunk, &descriptor, from)?;
            mapped += u64::from(run.count);
            fault_point!("series.view.half");
        }
        // Chunks that the variable has no more.
        if slots.len() < self.slots.len() {
            let (from, gone) = (slots.len() * chunk, (self.slots.len() - slots.len()) * chunk);
            self.place.clear(from, gone)?;
        }
        self.slots = slots.to_vec();
        Ok(mapped)
    }
}

//! Writing straight into the next version, for programs that write all data in every step anyway. Publishing then
//! copies nothing.

use crossdock_layout::Status;
use crossdock_layout::series::NO_SLOT;
use crossdock_os::reservation::Reservation;

use super::copy::FreshSlots;
use super::field::Begun;
use super::publish::Stamp;
use super::publisher::{Publisher, failed};
use super::slots::SlotRun;
use super::spec::{FullPolicy, Method};
use super::value::Value;
use crate::{Result, fault_point};

impl Publisher {
    /// Moves every variable's memory into fresh slots of the pool. The initial contents of the slots are undefined, and
    /// the program writes all of each variable. After that, `publish` makes these slots the next version without
    /// copying, or `abandon` frees them.
    ///
    /// After `publish` the variables are at their usual addresses again and hold the published data. **But the pages
    /// at these addresses are different ones.** If a variable's memory was registered (RDMA, io_uring, CUDA, a
    /// pending `MPI_Irecv`), the program must register it again, or must not call `begin`. Between `begin` and
    /// `publish`, data that a device writes to the old pages are lost.
    ///
    /// If the pool has no room, the program writes to ordinary memory instead. `publish` then copies the data to the
    /// pool, or withholds the version as it does without `begin`.
    ///
    /// # Errors
    /// `BUSY` if a version is begun already, `NO_SPACE` if the pool is full and the policy is `fail`, `SYSTEM` if the
    /// kernel refuses memory or a mapping.
    pub fn begin(&mut self) -> Result<()> {
        self.check_use()?;
        if self.begun {
            return Err(self.error(Status::Busy, "a version was begun already; publish or abandon it first"));
        }
        let room = self.make_room(self.chunks());
        // If no slot was mapped, `make_room` may have closed the watch that tells of forked children. The program is
        // about to write into slots, so the next line opens a watch if none is open.
        self.watch_children().map_err(|error| failed(&self.name, &error))?;
        match room {
            Err(error) if error.status == Status::NoSpace && self.full == FullPolicy::Withhold => {
                return self.begin_aside();
            }
            other => other?,
        }
        let taken = self.take_all_slots();
        fault_point!("series.begin.taken");
        match self.assemble(&taken) {
            Ok(reservations) => {
                for (field, begun) in self.fields.iter_mut().zip(reservations) {
                    field.begun = begun;
                }
                fault_point!("series.begin.placed");
                self.begun = true;
                self.begun_slots = taken;
                Ok(())
            }
            Err(error) => {
                taken.iter().for_each(|taken| self.slots.put_back(taken.run));
                Err(failed(&self.name, &error))
            }
        }
    }

    /// Takes fresh slots for every chunk. The caller has made sure that enough slots are free.
    fn take_all_slots(&mut self) -> Vec<FreshSlots> {
        let mut taken = Vec::new();
        for (index, field) in self.fields.iter().enumerate() {
            let (mut chunk, mut left) = (0, field.chunks);
            while left > 0 {
                let run = self.slots.take(left, chunk).expect("room was made for all of them");
                taken.push(FreshSlots { field: index, chunk, run });
                chunk += run.count;
                left -= run.count;
            }
        }
        taken
    }

    /// Begins a version in ordinary memory of this process. The caller found that the pool has no room at present.
    fn begin_aside(&mut self) -> Result<()> {
        let chunk = self.pool.chunk();
        let mut reservations = Vec::new();
        for field in &self.fields {
            let length = field.chunks as usize * chunk;
            let reservation = Reservation::reserve(length).and_then(|reservation| {
                if length > 0 {
                    reservation.put_memory(0, length)?;
                }
                Ok(reservation)
            });
            reservations.push(reservation.map_err(|error| failed(&self.name, &error))?);
        }
        for (field, reservation) in self.fields.iter_mut().zip(reservations) {
            field.begun = Some(Begun::Aside(reservation));
        }
        fault_point!("series.begin.aside");
        self.begun = true;
        Ok(())
    }

    /// Tells whether a version was begun in ordinary memory of this process.
    fn begun_aside(&self) -> bool {
        self.fields.iter().any(|field| matches!(field.begun, Some(Begun::Aside(_))))
    }

    /// If a version was begun in ordinary memory and the pool has room by now, copies the version to slots of the pool.
    fn take_in_aside(&mut self) -> Result<()> {
        if !self.begun_aside() || !self.begun_slots.is_empty() {
            return Ok(());
        }
        self.make_room(self.chunks())?;
        let taken = self.take_all_slots();
        let chunk = self.pool.chunk();
        for FreshSlots { field, chunk: first, run } in &taken {
            let from = self.fields[*field].memory(&self.pool).wrapping_add(*first as usize * chunk);
            // SAFETY: the memory that `begin` gave is as long as all chunks of the variable. The slots were taken just
            // now, so no version uses them.
            unsafe { std::ptr::copy_nonoverlapping(from, self.pool.slot(run.first), run.count as usize * chunk) };
        }
        // The ordinary memory into which the program wrote the begun version is kept until the version is published. If
        // no record is free for the version, `publish` withholds the version, and copies the data from there to the
        // memory that the variables had before `begin`.
        self.begun_slots = taken;
        Ok(())
    }

    /// The begun version is withheld, so this function copies its data to the variables' own memory, that is, the
    /// memory that they had before `begin`. All of its chunks are noted as changed, so the next version contains them.
    pub(super) fn write_back_begun(&mut self) {
        let chunk = self.pool.chunk();
        for field in &self.fields {
            let (from, to) = (field.memory(&self.pool), field.reservation.start().as_ptr());
            let length = field.chunks as usize * chunk;
            if length > 0 && from != to {
                // SAFETY: the begun memory and the variable's own memory both have room for all of the variable's
                // chunks, and do not overlap.
                unsafe { std::ptr::copy_nonoverlapping(from.cast_const(), to, length) };
            }
            self.pending.insert_range(field.table());
        }
        self.give_up_begun();
    }

    /// Maps each variable's fresh slots as one array.
    fn assemble(&self, taken: &[FreshSlots]) -> crossdock_os::OsResult<Vec<Option<Begun>>> {
        let chunk = self.pool.chunk();
        let mut reservations = Vec::new();
        for (index, field) in self.fields.iter().enumerate() {
            let own: Vec<&FreshSlots> = taken.iter().filter(|taken| taken.field == index).collect();
            reservations.push(match own.as_slice() {
                [] => None,
                [FreshSlots { run: SlotRun { first, .. }, .. }] => Some(Begun::Contiguous(*first)),
                several => {
                    let reservation = Reservation::reserve(field.chunks as usize * chunk)?;
                    for FreshSlots { chunk: at, run, .. } in several {
                        let from = self.pool.geometry().slot(run.first);
                        let length = run.count as usize * chunk;
                        reservation.put_again(*at as usize * chunk, length, self.pool.mapping(), from)?;
                    }
                    Some(Begun::Assembled(reservation))
                }
            });
        }
        Ok(reservations)
    }

    /// Gives up the version that `begin` started. After this call the variables are at their usual addresses again and
    /// hold what they held before `begin`.
    ///
    /// # Errors
    /// `INVALID` if no version is begun.
    pub fn abandon(&mut self) -> Result<()> {
        self.check_use()?;
        if !self.begun {
            return Err(self.error(Status::Invalid, "no version was begun that could be abandoned"));
        }
        self.give_up_begun();
        Ok(())
    }

    /// Gives up the begun version without publishing it. This frees its slots, except slots that a forked child may
    /// have mapped.
    fn give_up_begun(&mut self) {
        let taken = std::mem::take(&mut self.begun_slots);
        if self.begun_aside() {
            taken.iter().for_each(|taken| self.slots.put_back(taken.run));
        } else {
            taken.iter().for_each(|taken| self.give_up_begun_run(taken.run));
        }
        self.end_begun();
        self.free_kept_slots();
    }

    fn end_begun(&mut self) {
        self.begun = false;
        // Hints that the program gave since `begin` are about the begun version, so the next version must not use them.
        self.hinted = false;
        self.fields.iter_mut().for_each(|field| field.begun = None);
    }

    pub(super) fn publish_begun(&mut self, columns: &[u32], attributes: &[(&str, Value)]) -> Result<u64> {
        self.take_in_aside()?;
        let record = self.room_for_version(0)?;
        let taken = std::mem::take(&mut self.begun_slots);
        for field in &self.fields {
            let table = field.whole_table();
            self.current[table.start as usize..table.end as usize].fill(NO_SLOT);
        }
        for FreshSlots { field, chunk, run } in &taken {
            let first = (self.fields[*field].span.first + chunk) as usize;
            (0..run.count).for_each(|n| self.current[first + n as usize] = run.first + n);
        }
        let stamp = Stamp::now(self.sequence + 1, self.chunks(), Method::InPlace);
        self.finish(record, &stamp, columns, attributes);
        self.count_chunks(stamp.copied);
        // The variables' own memory does not hold the published data. So the lines below map the newest version
        // privately at the variables' addresses.
        self.end_begun();
        self.pending.clear();
        self.unsearched = false;
        if self.detector.method != Method::Hints && self.detector.may_use(Method::PrivateCopies) {
            self.detector.method = Method::PrivateCopies;
        }
        self.settled = false;
        match self.put_pool_behind() {
            Ok(mapped) => self.children.mapped_over = mapped > 0,
            Err(error) => {
                let text = format!("its variables could not be mapped ({error}); end it");
                self.broken = Some(self.error(Status::System, text));
            }
        }
        self.retire(self.keep);
        self.children.mapped_over = false;
        Ok(self.sequence)
    }
}

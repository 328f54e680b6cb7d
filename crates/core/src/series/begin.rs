//! Writing straight into the next version: for programs that write everything anyway. Publishing is then a store.

use crossdock_layout::Status;
use crossdock_layout::series::NO_SLOT;
use crossdock_os::place::Place;

use super::copy::Taken;
use super::field::Begun;
use super::publisher::{Publisher, failed};
use super::slots::Run;
use super::spec::Method;
use super::value::Value;
use crate::{Result, fault_point};

impl Publisher {
    /// Moves every variable's memory into fresh slots of the pool, where the program then writes all of it; `publish`
    /// makes that the next version without copying, `abandon` takes it back. What lies there first is anything.
    ///
    /// After `publish` the variables are back at their own addresses and hold what was published.
    ///
    /// # Errors
    /// `BUSY`: begun already. `NO_SPACE`: as with `publish`. `SYSTEM`.
    pub fn begin(&mut self) -> Result<()> {
        self.check_use()?;
        if self.begun {
            return Err(self.error(Status::Busy, "a version was begun already; publish or abandon it first"));
        }
        self.make_room(self.chunks())?;
        let mut taken = Vec::new();
        for (index, field) in self.fields.iter().enumerate() {
            let (mut chunk, mut left) = (0, field.chunks);
            while left > 0 {
                let run = self.slots.take(left, chunk).expect("room was made for all of them");
                taken.push(Taken { field: index, chunk, run });
                chunk += run.count;
                left -= run.count;
            }
        }
        fault_point!("series.begin.taken");
        match self.assemble(&taken) {
            Ok(places) => {
                for (field, begun) in self.fields.iter_mut().zip(places) {
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

    /// Each variable's fresh slots as one array.
    fn assemble(&self, taken: &[Taken]) -> crossdock_os::OsResult<Vec<Option<Begun>>> {
        let chunk = self.pool.chunk();
        let mut places = Vec::new();
        for (index, field) in self.fields.iter().enumerate() {
            let own: Vec<&Taken> = taken.iter().filter(|taken| taken.field == index).collect();
            places.push(match own.as_slice() {
                [] => None,
                [Taken { run: Run { first, .. }, .. }] => Some(Begun::Contiguous(*first)),
                several => {
                    let place = Place::reserve(field.chunks as usize * chunk)?;
                    for Taken { chunk: at, run, .. } in several {
                        let from = self.pool.geometry().slot(run.first);
                        let length = run.count as usize * chunk;
                        place.put_again(*at as usize * chunk, length, self.pool.mapping(), from)?;
                    }
                    Some(Begun::Assembled(place))
                }
            });
        }
        Ok(places)
    }

    /// Takes a begun version back. The variables are at their own addresses again and hold what they held before.
    ///
    /// # Errors
    /// `INVALID`: none was begun.
    pub fn abandon(&mut self) -> Result<()> {
        self.check_use()?;
        if !self.begun {
            return Err(self.error(Status::Invalid, "no version was begun that could be abandoned"));
        }
        for taken in std::mem::take(&mut self.begun_slots) {
            self.slots.put_back(taken.run);
        }
        self.end_begun();
        Ok(())
    }

    fn end_begun(&mut self) {
        self.begun = false;
        self.fields.iter_mut().for_each(|field| field.begun = None);
    }

    pub(super) fn publish_begun(&mut self, columns: &[u32], attributes: &[(&str, Value)]) -> Result<u64> {
        let record = self.free_record()?;
        let taken = std::mem::take(&mut self.begun_slots);
        for field in &self.fields {
            let table = field.whole_table();
            self.current[table.start as usize..table.end as usize].fill(NO_SLOT);
        }
        for Taken { field, chunk, run } in &taken {
            let first = (self.fields[*field].span.first + chunk) as usize;
            (0..run.count).for_each(|n| self.current[first + n as usize] = run.first + n);
        }
        self.finish(record, self.chunks(), Method::InPlace, columns, attributes);
        // What the variables' own memory held is no longer what was published; a private view of it is.
        self.end_begun();
        self.pending.clear();
        self.hinted = false;
        if self.finder.method != Method::Hints {
            let tracked = self.finder.has(Method::PrivateCopies);
            self.finder.method = if tracked { Method::PrivateCopies } else { Method::CopyAll };
        }
        self.settled = false;
        if let Err(error) = self.put_pool_behind() {
            self.broken =
                Some(self.error(Status::System, format!("its variables could not be mapped ({error}); end it")));
        }
        self.retire(self.keep);
        Ok(self.sequence)
    }
}

//! What follows a publish: the variables' memory is made ready for the next step, and another way of finding changes is
//! taken where it pays. The program does not write while this goes on, and its addresses stay.

use crossdock_layout::Status;
use crossdock_os::{OsError, OsResult};

use super::copy::Taken;
use super::publisher::Publisher;
use super::spec::Method;
use crate::fault_point;

impl Publisher {
    /// With the pool behind the variables, chunks that got fresh slots show those from now on: the old ones may be
    /// written to as soon as no version has them.
    pub(super) fn follow_up(&mut self, taken: &[Taken]) {
        if !self.pool_backed {
            return;
        }
        let chunk = self.pool.chunk();
        // Neighbours whose slots follow each other are one mapping.
        let mut runs: Vec<Taken> = Vec::new();
        for next in taken {
            match runs.last_mut() {
                Some(last)
                    if last.field == next.field
                        && last.chunk + last.run.count == next.chunk
                        && last.run.first + last.run.count == next.run.first =>
                {
                    last.run.count += next.run.count;
                }
                _ => runs.push(*next),
            }
        }
        let started = std::time::Instant::now();
        let count = runs.len();
        for (n, Taken { field, chunk: first, run }) in runs.into_iter().enumerate() {
            let (at, length) = (first as usize * chunk, run.count as usize * chunk);
            let from = self.pool.geometry().slot(run.first);
            if let Err(error) = self.fields[field].place.put_private(at, length, &self.descriptor, from) {
                self.leave_pool(&error);
                return;
            }
            if n == count / 2 {
                fault_point!("series.publish.tracked");
            }
        }
        if count >= 16 {
            let cost = started.elapsed().as_nanos() as f64 / count as f64;
            super::costs::learn(&mut self.finder.costs.map_run, cost);
        }
    }

    /// The kernel does not map any more (a process has 65530 mappings): ordinary memory from here on. The old slots are
    /// still whole, since nothing was retired yet.
    fn leave_pool(&mut self, error: &OsError) {
        self.finder.give_up(Method::PrivateCopies, error.to_string());
        if let Err(error) = self.turn_into_memory() {
            let text = format!("its variables' memory could not be kept apart from the pool ({error}); end the series");
            self.broken = Some(self.error(Status::System, text));
        }
    }

    /// Another way, if it pays by now.
    pub(super) fn choose_method(&mut self) {
        let Some(method) = self.finder.choose(self.chunks(), self.version_bytes()) else { return };
        match self.switch_to(method) {
            Ok(()) => {
                self.finder.method = method;
                self.finder.switches += 1;
            }
            Err(error) => {
                self.finder.give_up(method, error.to_string());
                if self.finder.method == Method::WriteProtect && self.pool_backed {
                    self.finder.method = Method::CopyAll;
                }
            }
        }
    }

    /// Nothing is pending: the variables hold what the newest version holds.
    fn switch_to(&mut self, method: Method) -> OsResult<()> {
        let chunk = self.pool.chunk();
        if self.finder.method == Method::WriteProtect && !self.pool_backed {
            for field in self.fields.iter().filter(|field| field.chunks > 0) {
                let addresses = field.addresses(chunk);
                if let Some(notes) = self.finder.notes() {
                    notes.leave(addresses.start, addresses.len())?;
                }
            }
        }
        match method {
            Method::PrivateCopies => self.put_pool_behind(),
            Method::CopyAll | Method::WriteProtect => {
                self.turn_into_memory()?;
                if method == Method::WriteProtect {
                    (0..self.fields.len()).try_for_each(|field| self.try_watch(field))?;
                }
                Ok(())
            }
            Method::Hints | Method::InPlace => Ok(()),
        }
    }

    /// Private mappings of the newest version's slots, in place of whatever lay there.
    pub(super) fn put_pool_behind(&mut self) -> OsResult<()> {
        // From here on some chunks may be mapped, so all must be kept up.
        self.pool_backed = true;
        for field in &self.fields {
            field.put_slots(0..field.chunks, &self.current, &self.pool, &self.descriptor)?;
        }
        Ok(())
    }

    fn turn_into_memory(&mut self) -> OsResult<()> {
        if self.pool_backed {
            let chunk = self.pool.chunk();
            self.fields.iter().try_for_each(|field| field.turn_into_memory(chunk))?;
            self.pool_backed = false;
        }
        Ok(())
    }

    fn try_watch(&self, variable: usize) -> OsResult<()> {
        let field = &self.fields[variable];
        let addresses = field.addresses(self.pool.chunk());
        let Some(notes) = self.finder.notes() else { return Err(OsError::last("userfaultfd", "none is open")) };
        if !addresses.is_empty() {
            notes.watch(addresses.start, addresses.len())?;
            notes.begin(addresses.start, addresses.len())?;
        }
        Ok(())
    }

    /// After a resize: memory that came new is watched, too.
    pub(super) fn watch_more(&mut self, variable: usize, chunks: std::ops::Range<u32>) {
        if self.finder.method != Method::WriteProtect || self.pool_backed {
            return;
        }
        let chunk = self.pool.chunk();
        let start = self.fields[variable].address(chunks.start, chunk) as usize;
        let length = chunks.len() * chunk;
        let watched = self.finder.notes().map_or(Ok(()), |notes| {
            notes.watch(start, length)?;
            notes.begin(start, length)
        });
        if let Err(error) = watched {
            self.finder.give_up(Method::WriteProtect, error.to_string());
            self.finder.method = Method::CopyAll;
        }
    }
}

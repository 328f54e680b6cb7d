//! The variables in place: where they are, how large, what the program says of them.

use crossdock_layout::Status;
use crossdock_layout::series::NO_SLOT;
use crossdock_os::OsResult;

use super::backing::Backing;
use super::publisher::{Publisher, failed};
use super::spec::{self, AttributeSpec};
use crate::Result;

impl Publisher {
    /// The variable of this name.
    pub fn variable(&self, name: &str) -> Option<usize> {
        self.fields.iter().position(|field| field.name == name)
    }

    /// Where the variable's elements are: an array that the program reads and writes in place. Aligned to 2 MiB, or to a
    /// chunk between `begin` and `publish`. The address stays while the publisher lives, but for the time from `begin` to
    /// `publish` or `abandon`: then the variable's memory is elsewhere and holds anything, and all of it must be written.
    ///
    /// The pages stay, too, so the memory can be registered (RDMA, io_uring, CUDA, a pending `MPI_Irecv`): unless the series
    /// was made with [`super::Pages::MayMove`], and until the program calls `begin`.
    ///
    /// The library reads this memory during `publish` only; no thread may write it then.
    pub fn memory(&self, variable: usize) -> *mut u8 {
        self.fields[variable].memory(&self.pool)
    }

    /// Bytes of a variable now.
    pub fn bytes(&self, variable: usize) -> u64 {
        self.fields[variable].bytes
    }

    /// Lengths of a variable now.
    pub fn shape(&self, variable: usize) -> &[u64] {
        &self.fields[variable].shape
    }

    /// How many variables it has.
    pub fn variables(&self) -> usize {
        self.fields.len()
    }

    /// Names of the attributes known so far.
    pub fn attributes(&self) -> &[AttributeSpec] {
        &self.attributes
    }

    /// Chunks of all variables now.
    pub(super) fn chunks(&self) -> u32 {
        self.fields.iter().map(|field| field.chunks).sum()
    }

    /// Bytes that a version takes now.
    pub(super) fn version_bytes(&self) -> u64 {
        u64::from(self.chunks()) * self.pool.chunk() as u64
    }

    /// Gives a variable another shape, within its largest. Bytes stay where they are; those that come new are zero. Memory
    /// that a variable had at its largest so far stays taken.
    ///
    /// # Errors
    /// `INVALID` beyond the largest shape, `BUSY` between `begin` and `publish`, `SYSTEM`.
    pub fn resize(&mut self, variable: usize, shape: &[u64]) -> Result<()> {
        self.check_use()?;
        if self.begun {
            return Err(self.error(Status::Busy, "a version was begun; publish or abandon it before a resize"));
        }
        let chunk = self.pool.chunk();
        let field = &self.fields[variable];
        let fits =
            shape.len() == field.max_shape.len() && shape.iter().zip(&field.max_shape).all(|(n, most)| n <= most);
        if !fits {
            let text =
                format!("variable '{}': shape {shape:?} is beyond the largest, {:?}", field.name, field.max_shape);
            return Err(self.error(Status::Invalid, text));
        }
        let bytes = spec::bytes(field.span.extents.element, shape).expect("smaller than the largest, which has a size");
        let (old_bytes, old) = (field.bytes, field.chunks);
        let new = bytes.div_ceil(chunk as u64) as u32;
        if new != old {
            let range = old.min(new)..old.max(new);
            self.change_memory(variable, old, new).map_err(|e| failed(&self.name, &e))?;
            let first = self.fields[variable].span.first;
            let table = first + range.start..first + range.end;
            self.current[table.start as usize..table.end as usize].fill(NO_SLOT);
            self.pending.remove_range(table);
            self.settled = false;
        }
        if bytes > old_bytes && old > 0 {
            let end = bytes.min(u64::from(old) * chunk as u64);
            // SAFETY: within the memory of the chunks that the variable had and has.
            unsafe {
                self.fields[variable]
                    .place
                    .start()
                    .as_ptr()
                    .add(old_bytes as usize)
                    .write_bytes(0, (end - old_bytes) as usize)
            };
            self.pending.insert(self.fields[variable].span.first + old - 1);
        }
        let field = &mut self.fields[variable];
        field.shape = shape.to_vec();
        field.bytes = bytes;
        field.chunks = new;
        Ok(())
    }

    /// Memory for `new` chunks in place of `old`, of which those that come new are zero. Pages that a variable had stay
    /// when it shrinks, for what is registered there, and are zeroed when it grows again. Slots are given up.
    fn change_memory(&mut self, variable: usize, old: u32, new: u32) -> OsResult<()> {
        let chunk = self.pool.chunk();
        let field = &mut self.fields[variable];
        for index in new..old {
            let backing = &mut self.backing[(field.span.first + index) as usize];
            if *backing == Backing::Slot {
                field.put_memory(index..index + 1, chunk)?;
                *backing = Backing::Memory;
            }
        }
        if old < new.min(field.mapped) {
            let again = new.min(field.mapped) - old;
            // SAFETY: memory of this process, which the variable had before and has again.
            unsafe { field.address(old, chunk).write_bytes(0, again as usize * chunk) };
        }
        if new > field.mapped {
            field.put_memory(field.mapped..new, chunk)?;
            field.mapped = new;
        }
        Ok(())
    }

    /// Says that these bytes of a variable were, or will be, written before the next publish. With `Detect::Hints`, and
    /// with `Detect::Auto` from the first such call of a step on, what was not named counts as unchanged.
    ///
    /// # Errors
    /// `INVALID` beyond the variable's end.
    pub fn touched(&mut self, variable: usize, bytes: std::ops::Range<u64>) -> Result<()> {
        self.check_use()?;
        let field = &self.fields[variable];
        if bytes.end > field.bytes || bytes.start > bytes.end {
            let text = format!("variable '{}' of {} bytes: touched {bytes:?}", field.name, field.bytes);
            return Err(self.error(Status::Invalid, text));
        }
        self.hinted = true;
        if !bytes.is_empty() {
            let chunk = self.pool.chunk() as u64;
            let (from, to) = ((bytes.start / chunk) as u32, bytes.end.div_ceil(chunk) as u32);
            let first = field.span.first;
            self.pending.insert_range(first + from..first + to);
        }
        Ok(())
    }
}

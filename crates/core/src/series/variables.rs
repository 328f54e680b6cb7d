//! The publisher's variables: their addresses and sizes, and the program's hints about what it wrote.

use crossdock_layout::Status;
use crossdock_layout::series::NO_SLOT;
use crossdock_layout::wire::SegmentKind;
use crossdock_os::OsResult;

use super::backing::Backing;
use super::publisher::{Publisher, failed};
use super::spec::{self, AttributeSpec, no_variable};
use crate::Result;

impl Publisher {
    /// Gives the index, in `fields`, of the variable with this name.
    pub(super) fn index(&self, variable: &str) -> Result<usize> {
        let found = self.fields.iter().position(|field| field.name == variable);
        found.ok_or_else(|| no_variable(variable).about(SegmentKind::Series, &self.name))
    }

    /// The address of the variable's elements: an array that the program reads and writes in place. The address is a
    /// multiple of 2 MiB, and stays the same as long as the publisher lives, with one exception. From `begin` to
    /// `publish` or `abandon` the variable's memory is elsewhere, at a multiple of the chunk size. During that time its
    /// contents are undefined at first, and the program must write all of it.
    ///
    /// The pages at this address stay the same, unless the series was made with [`super::Pages::MayMove`] or the
    /// program calls `begin`. As long as the pages stay the same, the memory can be registered (RDMA, io_uring, CUDA, a
    /// pending `MPI_Irecv`).
    ///
    /// The library reads this memory only during `publish`. No thread may write to it during that call.
    ///
    /// # Errors
    /// `NOT_FOUND` if there is no such variable.
    pub fn memory(&self, variable: &str) -> Result<*mut u8> {
        Ok(self.fields[self.index(variable)?].memory(&self.pool))
    }

    /// The present size of a variable in bytes.
    ///
    /// # Errors
    /// `NOT_FOUND` if there is no such variable.
    pub fn bytes(&self, variable: &str) -> Result<u64> {
        Ok(self.fields[self.index(variable)?].bytes)
    }

    /// The present length of each dimension of a variable.
    ///
    /// # Errors
    /// `NOT_FOUND` if there is no such variable.
    pub fn shape(&self, variable: &str) -> Result<&[u64]> {
        Ok(&self.fields[self.index(variable)?].shape)
    }

    /// The type of a variable's elements, as it was declared.
    ///
    /// # Errors
    /// `NOT_FOUND` if there is no such variable.
    pub fn type_name(&self, variable: &str) -> Result<&str> {
        Ok(&self.fields[self.index(variable)?].ty)
    }

    /// Converts a shape from the variable's order of elements to C order, or from C order to the variable's order.
    /// Both conversions are the same calculation.
    ///
    /// # Errors
    /// `NOT_FOUND` if there is no such variable.
    pub fn c_shape(&self, variable: &str, shape: &[u64]) -> Result<Vec<u64>> {
        Ok(spec::c_shape(self.fields[self.index(variable)?].order, shape))
    }

    /// The attributes that versions of this series carry: those in the spec, and those that a publish has added by now.
    #[must_use]
    pub fn attributes(&self) -> &[AttributeSpec] {
        &self.attributes
    }

    /// The present number of chunks of all variables.
    pub(super) fn chunks(&self) -> u32 {
        self.fields.iter().map(|field| field.chunks).sum()
    }

    /// The number of bytes of all chunks of one version, at the variables' present sizes.
    pub(super) fn version_bytes(&self) -> u64 {
        u64::from(self.chunks()) * self.pool.chunk() as u64
    }

    /// Gives a variable another shape, up to its largest one. Existing bytes stay where they are, and new bytes are
    /// zero. When a variable shrinks, its memory stays reserved.
    ///
    /// # Errors
    /// `NOT_FOUND` if there is no such variable, `INVALID` beyond the largest shape, `BUSY` between `begin` and
    /// `publish`, `SYSTEM` if the kernel refuses memory.
    pub fn resize(&mut self, variable: &str, shape: &[u64]) -> Result<()> {
        let variable = self.index(variable)?;
        self.check_use()?;
        self.check_resize(variable, shape)?;
        let chunk = self.pool.chunk();
        let field = &self.fields[variable];
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
            // SAFETY: the range lies within the memory of chunks that the variable had before and still has.
            unsafe {
                self.fields[variable]
                    .reservation
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

    /// Checks that a variable has this shape already, or that [`Self::resize`] can give it this shape. After a
    /// successful check, `resize` fails only if the kernel refuses memory.
    pub fn check_shape(&self, variable: &str, shape: &[u64]) -> Result<()> {
        let variable = self.index(variable)?;
        self.check_use()?;
        if self.fields[variable].shape == shape { Ok(()) } else { self.check_resize(variable, shape) }
    }

    fn check_resize(&self, variable: usize, shape: &[u64]) -> Result<()> {
        if self.begun {
            return Err(self.error(Status::Busy, "a version was begun; publish or abandon it before a resize"));
        }
        let field = &self.fields[variable];
        let fits =
            shape.len() == field.max_shape.len() && shape.iter().zip(&field.max_shape).all(|(n, most)| n <= most);
        if !fits {
            let text =
                format!("variable '{}': shape {shape:?} is beyond the largest, {:?}", field.name, field.max_shape);
            return Err(self.error(Status::Invalid, text));
        }
        Ok(())
    }

    /// Changes a variable's memory from `old` to `new` chunks. Added chunks are filled with zeros. When a variable
    /// shrinks, the pages of the removed chunks stay mapped, because they may be registered with a device; these pages
    /// are zeroed when the variable grows again. The memory of a removed chunk can be a mapping of a slot only if the
    /// program has allowed pages to move. In this case all removed chunks are replaced by ordinary memory. After an
    /// error, the variable's present chunks are unchanged.
    fn change_memory(&mut self, variable: usize, old: u32, new: u32) -> OsResult<()> {
        let chunk = self.pool.chunk();
        let field = &mut self.fields[variable];
        if new < old {
            let removed = &mut self.backing[(field.span.first + new) as usize..(field.span.first + old) as usize];
            if removed.contains(&Backing::Slot) {
                // One call replaces all of the chunks or, if it fails, none of them.
                field.put_memory(new..old, chunk)?;
                removed.fill(Backing::Memory);
            }
        }
        if old < new.min(field.mapped) {
            let again = new.min(field.mapped) - old;
            // SAFETY: the range is the memory of chunks that the variable had before and gets again now, so it is
            // mapped in this process.
            unsafe { field.address(old, chunk).write_bytes(0, again as usize * chunk) };
        }
        if new > field.mapped {
            field.put_memory(field.mapped..new, chunk)?;
            field.mapped = new;
        }
        Ok(())
    }

    /// Says that the program wrote these bytes of a variable, or will write them before the next publish. With
    /// `Detect::Hints` all other bytes count as unchanged. With `Detect::Auto` the same is true in each step in which
    /// the program calls this function. Each call of `publish` ends a step, even if the call fails; `abandon` revokes
    /// the hints.
    ///
    /// # Errors
    /// `NOT_FOUND` if there is no such variable, `INVALID` if the range goes beyond the variable's end.
    pub fn touched(&mut self, variable: &str, bytes: std::ops::Range<u64>) -> Result<()> {
        let variable = self.index(variable)?;
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

//! Typed access to a publisher's variables and to a version's contents.

use crossdock_layout::Status;

use super::publisher::Publisher;
use super::version::Version;
use crate::Result;
use crate::view::Plain;

impl Publisher {
    /// A variable's elements, in place. Call this again after `begin`, after the `publish` of a begun version, after
    /// `abandon` and after `resize`.
    ///
    /// # Errors
    /// `WRONG_TYPE` if the variable's elements are not as long as a T.
    pub fn elements<T: Plain>(&mut self, variable: usize) -> Result<&mut [T]> {
        let (start, bytes) = (self.memory(variable), self.bytes(variable));
        let size = size_of::<T>() as u64;
        let field = &self.fields[variable];
        if field.span.extents.element != size || !start.cast::<T>().is_aligned() {
            let text =
                format!("variable '{}' has elements of {} bytes, not {size}", field.name, field.span.extents.element);
            return Err(self.error(Status::WrongType, text));
        }
        let count = (bytes / size.max(1)) as usize;
        // SAFETY: the variable's own memory, mapped for as long as `self` and not moved while it is borrowed; so many
        // elements, aligned, and every bit pattern is a T. No other code has a reference: `self` is borrowed mutably, and
        // the pool's readers copy or map pages, never through references of this process.
        Ok(unsafe { std::slice::from_raw_parts_mut(start.cast(), count) })
    }
}

impl Version {
    /// A variable's elements.
    ///
    /// # Errors
    /// As `bytes`. `WRONG_TYPE` if the bytes are no whole number of Ts.
    pub fn elements<T: Plain>(&self, variable: usize) -> Result<&[T]> {
        let bytes = self.bytes(variable)?;
        let start = bytes.as_ptr().cast::<T>();
        if size_of::<T>() == 0 || bytes.len() % size_of::<T>() != 0 || (!bytes.is_empty() && !start.is_aligned()) {
            let text =
                format!("variable {variable} of {} bytes is not made of elements of {}", bytes.len(), size_of::<T>());
            return Err(crate::Error::new(Status::WrongType, text));
        }
        if bytes.is_empty() {
            return Ok(&[]);
        }
        // SAFETY: the same bytes, borrowed from `self`; aligned, a whole number of elements, and every bit pattern is a T.
        Ok(unsafe { std::slice::from_raw_parts(start, bytes.len() / size_of::<T>()) })
    }
}

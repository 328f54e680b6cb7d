//! Typed access to a publisher's variables and to a version's contents.

use crossdock_layout::Status;
use crossdock_layout::wire::SegmentKind;

use super::publisher::Publisher;
use super::version::Version;
use crate::error::Reason;
use crate::shared_access::Plain;
use crate::{Error, Result};

/// Checks that the variable was declared with the element type `T`.
fn check<T: Plain>(variable: &str, declared: &str) -> Result<()> {
    let want = T::type_name();
    if declared == want {
        return Ok(());
    }
    let reason = Reason::WrongType { what: format!("variable '{variable}'"), have: declared.to_owned(), want };
    Err(Error::because(Status::WrongType, reason))
}

impl Publisher {
    /// Gives a variable's elements in the memory where the program changes them. The address may change in `begin`, in
    /// the `publish` of a begun version, in `abandon` and in `resize`; call this function again after each of them.
    ///
    /// # Errors
    /// `NOT_FOUND` if there is no such variable, `WRONG_TYPE` if it was declared with another type.
    pub fn elements<T: Plain>(&mut self, variable: &str) -> Result<&mut [T]> {
        let field = &self.fields[self.index(variable)?];
        let start = field.memory(&self.pool);
        check::<T>(variable, &field.ty).map_err(|error| error.about(SegmentKind::Series, &self.name))?;
        assert!(start.cast::<T>().is_aligned(), "chunks are aligned for every plain type");
        let count = (field.bytes / size_of::<T>().max(1) as u64) as usize;
        // SAFETY: the range is the variable's own memory. It stays mapped as long as `self` exists, and does not move
        // while `self` is borrowed. The range is aligned and has `count` elements, and every bit pattern is a valid
        // `T`. No other reference to this memory exists: `self` is borrowed mutably, and the pool's readers copy or map
        // its pages without making references to them.
        Ok(unsafe { std::slice::from_raw_parts_mut(start.cast(), count) })
    }
}

impl Version {
    /// The elements of a variable in this version.
    ///
    /// # Errors
    /// The errors of [`Version::bytes`], and `WRONG_TYPE` if the variable was declared with another type.
    pub fn elements<T: Plain>(&self, variable: &str) -> Result<&[T]> {
        let declared = &self.description().variables[self.index(variable)?].ty;
        check::<T>(variable, declared).map_err(|error| error.about(SegmentKind::Series, self.name()))?;
        let bytes = self.bytes(variable)?;
        if bytes.is_empty() {
            return Ok(&[]);
        }
        let start = bytes.as_ptr().cast::<T>();
        assert!(start.is_aligned() && bytes.len() % size_of::<T>() == 0, "an array of the declared type");
        // SAFETY: the new slice covers the same bytes as `bytes`, which is borrowed from `self`. The bytes are aligned
        // for `T` and are a whole number of elements, and every bit pattern is a valid `T`.
        Ok(unsafe { std::slice::from_raw_parts(start, bytes.len() / size_of::<T>()) })
    }
}

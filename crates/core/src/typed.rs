//! Typed objects of a region for Rust programs: scalars, vectors, strings, n-dimensional arrays.
//!
//! C++ sees the same objects as `crossdock::vector<double>`, Python as a NumPy array and Fortran as an array pointer.
//! Elements are copied in and out (`get`, `set`, `copy_to`, `copy_from`): other tasks may write them at any time, and a
//! Rust reference promises that no thread does.

mod header;
mod ndarray;
mod raw;
mod simple;
mod text;
mod vector;

pub use crate::view::Plain;
pub use ndarray::NdArray;
pub use raw::Raw;
pub use simple::Simple;
pub use text::Text;
pub use vector::Vector;

use std::sync::Arc;
use std::time::Duration;

use crossdock_layout::type_name::Type;
use crossdock_layout::{Handle, Status};

use crate::directory::{ObjectMode, TypeRef};
use crate::region::Region;
use crate::{Error, Result};

/// The reference of a type whose name says its size and alignment.
pub(crate) fn type_ref(name: String) -> Result<TypeRef> {
    let parsed = Type::parse(&name).map_err(|bad| Error::new(Status::Invalid, bad.to_string()))?;
    let (size, align) = parsed
        .size_and_align()
        .ok_or_else(|| Error::new(Status::Invalid, format!("the size of '{name}' does not follow from its name")))?;
    Ok(TypeRef { name, size, align })
}

/// Opens an object, and commits it if it was made just now. Nothing has to be constructed, because zeroed memory is a
/// value of every plain type and an empty container.
fn open(region: &Arc<Region>, name: &str, ty: &TypeRef, mode: ObjectMode, timeout: Option<Duration>) -> Result<u64> {
    let claim = region.claim(name, ty, mode, timeout)?;
    if claim.created {
        region.commit(claim.offset)?;
    }
    Ok(claim.offset)
}

impl Region {
    /// An object of any type by name, to be accessed field by field; zero when it is new.
    ///
    /// # Errors
    /// As [`Region::claim`].
    pub fn raw(self: &Arc<Self>, name: &str, ty: &TypeRef, mode: ObjectMode, timeout: Option<Duration>) -> Result<Raw> {
        Ok(Raw::at(self, open(self, name, ty, mode, timeout)?, ty.size))
    }

    /// Refuses to write, with the reason, if this task may only read.
    pub(crate) fn require_writable(&self) -> Result<()> {
        if self.writable() {
            return Ok(());
        }
        let text = format!("region '{}' is open for reading only; the task needs a grant to write to it", self.name());
        Err(Error::new(Status::Denied, text))
    }

    /// A scalar, or a fixed array of them, by name; zero when it is new.
    ///
    /// # Errors
    /// As [`Region::claim`].
    pub fn simple<T: Plain>(
        self: &Arc<Self>,
        name: &str,
        mode: ObjectMode,
        timeout: Option<Duration>,
    ) -> Result<Simple<T>> {
        let ty = type_ref(T::type_name())?;
        Ok(Simple::at(self, open(self, name, &ty, mode, timeout)?))
    }

    /// A vector by name; empty when it is new.
    ///
    /// # Errors
    /// As [`Region::claim`].
    pub fn vector<T: Plain>(
        self: &Arc<Self>,
        name: &str,
        mode: ObjectMode,
        timeout: Option<Duration>,
    ) -> Result<Vector<T>> {
        let ty = Vector::<T>::type_ref()?;
        Ok(Vector::at(self, open(self, name, &ty, mode, timeout)?))
    }

    /// A string by name; empty when it is new.
    ///
    /// # Errors
    /// As [`Region::claim`].
    pub fn text(self: &Arc<Self>, name: &str, mode: ObjectMode, timeout: Option<Duration>) -> Result<Text> {
        let ty = type_ref("string".into())?;
        Ok(Text::at(self, open(self, name, &ty, mode, timeout)?))
    }

    /// An n-dimensional array by name; of rank 0 and without elements when it is new.
    ///
    /// # Errors
    /// As [`Region::claim`].
    pub fn ndarray<T: Plain>(
        self: &Arc<Self>,
        name: &str,
        mode: ObjectMode,
        timeout: Option<Duration>,
    ) -> Result<NdArray<T>> {
        let ty = NdArray::<T>::type_ref()?;
        Ok(NdArray::at(self, open(self, name, &ty, mode, timeout)?))
    }

    /// The scalar or fixed array that a handle names.
    ///
    /// # Errors
    /// As [`Region::load`].
    pub fn load_simple<T: Plain>(self: &Arc<Self>, handle: Handle) -> Result<Simple<T>> {
        let loaded = self.load(handle, Some(&type_ref(T::type_name())?))?;
        Ok(Simple::at(self, loaded.offset))
    }

    /// The vector that a handle names.
    ///
    /// # Errors
    /// As [`Region::load`].
    pub fn load_vector<T: Plain>(self: &Arc<Self>, handle: Handle) -> Result<Vector<T>> {
        Ok(Vector::at(self, self.load(handle, Some(&Vector::<T>::type_ref()?))?.offset))
    }

    /// The string that a handle names.
    ///
    /// # Errors
    /// As [`Region::load`].
    pub fn load_text(self: &Arc<Self>, handle: Handle) -> Result<Text> {
        Ok(Text::at(self, self.load(handle, Some(&type_ref("string".into())?))?.offset))
    }

    /// The n-dimensional array that a handle names.
    ///
    /// # Errors
    /// As [`Region::load`].
    pub fn load_ndarray<T: Plain>(self: &Arc<Self>, handle: Handle) -> Result<NdArray<T>> {
        Ok(NdArray::at(self, self.load(handle, Some(&NdArray::<T>::type_ref()?))?.offset))
    }
}

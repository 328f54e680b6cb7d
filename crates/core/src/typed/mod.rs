//! Typed objects of a region for Rust programs: scalars, vectors, strings, n-dimensional arrays.
//!
//! C++ sees the same objects as `crossdock::vector<double>`, Python as a NumPy array and Fortran as an array pointer.
//! Elements are copied in and out (`get`, `set`, `to_vec`, `copy_from`). There are no references to them, because
//! other tasks may write them at any time, which Rust does not allow behind a reference.

mod header;
mod ndarray;
mod raw;
mod simple;
mod text;
mod vector;

pub use crate::shared_access::Plain;
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

/// Makes the type of an object from a name that determines size and alignment.
pub(crate) fn type_ref(name: String) -> Result<TypeRef> {
    let parsed = Type::parse(&name).map_err(|bad| Error::new(Status::Invalid, bad.to_string()))?;
    let (size, align) = parsed
        .size_and_align()
        .ok_or_else(|| Error::new(Status::Invalid, format!("the size of '{name}' does not follow from its name")))?;
    Ok(TypeRef { name, size, align })
}

/// Opens a named object. If this call made the object, commits it, so that other tasks can open it. Nothing has to be
/// constructed, because zeroed memory is a valid value of every plain type and an empty container.
fn open(region: &Arc<Region>, name: &str, ty: &TypeRef, mode: ObjectMode, timeout: Option<Duration>) -> Result<u64> {
    let claim = region.claim(name, ty, mode, timeout)?;
    if claim.created {
        region.commit_or_abandon(claim.offset)?;
    }
    Ok(claim.offset)
}

impl Region {
    /// Opens an object of any type by name, for access field by field. A new object is zero.
    ///
    /// # Errors
    /// The errors of [`Region::claim`].
    pub fn raw(self: &Arc<Self>, name: &str, ty: &TypeRef, mode: ObjectMode, timeout: Option<Duration>) -> Result<Raw> {
        Ok(Raw::at(self, open(self, name, ty, mode, timeout)?, ty.size))
    }

    /// Fails if this task may only read the region. The error says why.
    pub(crate) fn require_writable(&self) -> Result<()> {
        if self.writable() {
            return Ok(());
        }
        let text = format!("region '{}' is open for reading only; the task needs a grant to write to it", self.name());
        Err(Error::new(Status::Denied, text))
    }

    /// Opens a scalar, or a fixed array of scalars, by name. A new one is zero.
    ///
    /// # Errors
    /// The errors of [`Region::claim`].
    pub fn simple<T: Plain>(
        self: &Arc<Self>,
        name: &str,
        mode: ObjectMode,
        timeout: Option<Duration>,
    ) -> Result<Simple<T>> {
        let ty = type_ref(T::type_name())?;
        Ok(Simple::at(self, open(self, name, &ty, mode, timeout)?))
    }

    /// Opens a vector by name. A new one is empty.
    ///
    /// # Errors
    /// The errors of [`Region::claim`].
    pub fn vector<T: Plain>(
        self: &Arc<Self>,
        name: &str,
        mode: ObjectMode,
        timeout: Option<Duration>,
    ) -> Result<Vector<T>> {
        let ty = Vector::<T>::type_ref()?;
        Ok(Vector::at(self, open(self, name, &ty, mode, timeout)?))
    }

    /// Opens a string by name. A new one is empty.
    ///
    /// # Errors
    /// The errors of [`Region::claim`].
    pub fn text(self: &Arc<Self>, name: &str, mode: ObjectMode, timeout: Option<Duration>) -> Result<Text> {
        let ty = type_ref("string".into())?;
        Ok(Text::at(self, open(self, name, &ty, mode, timeout)?))
    }

    /// Opens an n-dimensional array by name. A new one has rank 0 and no elements.
    ///
    /// # Errors
    /// The errors of [`Region::claim`].
    pub fn ndarray<T: Plain>(
        self: &Arc<Self>,
        name: &str,
        mode: ObjectMode,
        timeout: Option<Duration>,
    ) -> Result<NdArray<T>> {
        let ty = NdArray::<T>::type_ref()?;
        Ok(NdArray::at(self, open(self, name, &ty, mode, timeout)?))
    }

    /// Gives the scalar or fixed array that a handle names.
    ///
    /// # Errors
    /// The errors of [`Region::load`].
    pub fn load_simple<T: Plain>(self: &Arc<Self>, handle: Handle) -> Result<Simple<T>> {
        let loaded = self.load(handle, Some(&type_ref(T::type_name())?))?;
        Ok(Simple::at(self, loaded.offset))
    }

    /// Gives the vector that a handle names.
    ///
    /// # Errors
    /// The errors of [`Region::load`].
    pub fn load_vector<T: Plain>(self: &Arc<Self>, handle: Handle) -> Result<Vector<T>> {
        Ok(Vector::at(self, self.load(handle, Some(&Vector::<T>::type_ref()?))?.offset))
    }

    /// Gives the string that a handle names.
    ///
    /// # Errors
    /// The errors of [`Region::load`].
    pub fn load_text(self: &Arc<Self>, handle: Handle) -> Result<Text> {
        Ok(Text::at(self, self.load(handle, Some(&type_ref("string".into())?))?.offset))
    }

    /// Gives the n-dimensional array that a handle names.
    ///
    /// # Errors
    /// The errors of [`Region::load`].
    pub fn load_ndarray<T: Plain>(self: &Arc<Self>, handle: Handle) -> Result<NdArray<T>> {
        Ok(NdArray::at(self, self.load(handle, Some(&NdArray::<T>::type_ref()?))?.offset))
    }
}

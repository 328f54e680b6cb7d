//! An object of any type, accessed by its bytes. It is meant for structs (types `{…}`), whose fields lie where a C
//! compiler puts them.

use std::sync::Arc;

use crate::shared_access::{self, Plain};
use crossdock_layout::{Handle, Status};

use super::header::ObjectLocation;
use crate::region::Region;
use crate::{Error, Result};

/// An object in a region whose fields are read and written one at a time. The region stays mapped as long as this value
/// exists.
#[derive(Clone, Debug)]
pub struct Raw {
    location: ObjectLocation,
    size: u64,
}

impl Raw {
    pub(super) fn at(region: &Arc<Region>, offset: u64, size: u64) -> Self {
        Self { location: ObjectLocation::new(region, offset), size }
    }

    /// Reads the field that lies `at` bytes from the object's start.
    ///
    /// # Errors
    /// `INVALID` if the field does not lie within the object or is not aligned.
    pub fn get<T: Plain>(&self, at: u64) -> Result<T> {
        let offset = self.field::<T>(at)?;
        shared_access::load(self.location.region.mapping(), offset)
            .ok_or_else(|| self.location.corrupt("it lies outside"))
    }

    /// Writes the field that lies `at` bytes from the object's start.
    ///
    /// # Errors
    /// The errors of [`Raw::get`], and `DENIED` if the region is mapped for reading only.
    pub fn set<T: Plain>(&self, at: u64, value: T) -> Result<()> {
        self.location.region.require_writable()?;
        let offset = self.field::<T>(at)?;
        shared_access::store(self.location.region.mapping(), offset, value)
            .ok_or_else(|| self.location.corrupt("it lies outside"))
    }

    /// The object's handle, to be sent to another task.
    ///
    /// # Errors
    /// `BAD_HANDLE` if the object was removed.
    pub fn save(&self) -> Result<Handle> {
        self.location.region.save(self.location.offset)
    }

    fn field<T: Plain>(&self, at: u64) -> Result<u64> {
        let end = at.checked_add(size_of::<T>() as u64);
        if end.is_none_or(|end| end > self.size) || at % align_of::<T>() as u64 != 0 {
            let text = format!("a {} at byte {at} does not lie in an object of {} bytes", T::type_name(), self.size);
            return Err(Error::new(Status::Invalid, text));
        }
        Ok(self.location.offset + at)
    }
}

//! A scalar or a fixed array of scalars in a region. The idea is from the Dhmem paper, listing 3 (`docs/papers.md`).

use std::marker::PhantomData;
use std::sync::Arc;

use crate::shared_access::{self, Plain};
use crossdock_layout::Handle;

use super::header::ObjectLocation;
use crate::Result;
use crate::region::Region;

/// A value in a region. The region stays mapped as long as this Rust value exists.
#[derive(Clone, Debug)]
pub struct Simple<T> {
    location: ObjectLocation,
    marker: PhantomData<T>,
}

impl<T: Plain> Simple<T> {
    pub(super) fn at(region: &Arc<Region>, offset: u64) -> Self {
        Self { location: ObjectLocation::new(region, offset), marker: PhantomData }
    }

    /// Reads the value.
    ///
    /// # Errors
    /// `CORRUPT` if the value does not lie within the region.
    pub fn get(&self) -> Result<T> {
        shared_access::load(self.location.region.mapping(), self.location.offset)
            .ok_or_else(|| self.location.corrupt("it lies outside"))
    }

    /// Stores a new value.
    ///
    /// # Errors
    /// `CORRUPT` if the value does not lie within the region, `DENIED` if the region is mapped for reading only.
    pub fn set(&self, value: T) -> Result<()> {
        self.location.region.require_writable()?;
        shared_access::store(self.location.region.mapping(), self.location.offset, value)
            .ok_or_else(|| self.location.corrupt("it lies outside"))
    }

    /// The value's handle, to be sent to another task.
    ///
    /// # Errors
    /// `BAD_HANDLE` if the value was removed.
    pub fn save(&self) -> Result<Handle> {
        self.location.region.save(self.location.offset)
    }
}

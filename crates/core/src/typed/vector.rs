//! A vector in a region, which C++ sees as `crossdock::vector<T>`. The idea is from the Dhmem paper, listing 4
//! (`docs/papers.md`).

use std::marker::PhantomData;
use std::sync::Arc;

use crate::shared_access::{self, Plain};
use crossdock_layout::Handle;

use super::header::{ObjectLocation, out_of_range};
use super::type_ref;
use crate::Result;
use crate::directory::TypeRef;
use crate::region::Region;

/// A vector in a region. The region stays mapped as long as this value exists. No lock guards it against other tasks:
/// if one task resizes it while another task reads it, the reader gets wrong elements. So tasks should hand vectors
/// over through ports.
#[derive(Clone, Debug)]
pub struct Vector<T> {
    location: ObjectLocation,
    marker: PhantomData<T>,
}

impl<T: Plain> Vector<T> {
    pub(super) fn at(region: &Arc<Region>, offset: u64) -> Self {
        Self { location: ObjectLocation::new(region, offset), marker: PhantomData }
    }

    pub(super) fn type_ref() -> Result<TypeRef> {
        type_ref(format!("vector<{}>", T::type_name()))
    }

    /// The offset and the number of the elements. Both are checked at each call, because other tasks may resize the
    /// vector.
    fn data(&self) -> Result<(u64, u64)> {
        let found = self.location.region.vector_at(self.location.offset, size_of::<T>() as u64)?;
        Ok((found.data.unwrap_or(0), found.size))
    }

    /// The number of elements in the vector.
    ///
    /// # Errors
    /// `CORRUPT` if the vector's header is damaged.
    pub fn len(&self) -> Result<u64> {
        Ok(self.data()?.1)
    }

    /// Tells whether the vector has no elements.
    ///
    /// # Errors
    /// The errors of [`Vector::len`].
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Gives the element at this index, which counts from 0.
    ///
    /// # Errors
    /// `INVALID` for an index beyond the end, `CORRUPT` if the vector's header is damaged.
    pub fn get(&self, index: u64) -> Result<T> {
        let (data, length) = self.data()?;
        if index >= length {
            return Err(out_of_range(&self.location, index, length));
        }
        shared_access::load(self.location.region.mapping(), data + index * size_of::<T>() as u64)
            .ok_or_else(|| self.location.corrupt("its elements lie outside"))
    }

    /// Stores the element at this index, which counts from 0.
    ///
    /// # Errors
    /// `INVALID` for an index beyond the end, `DENIED` if the region is mapped for reading only, `CORRUPT` if the
    /// vector's header is damaged.
    pub fn set(&self, index: u64, value: T) -> Result<()> {
        self.location.region.require_writable()?;
        let (data, length) = self.data()?;
        if index >= length {
            return Err(out_of_range(&self.location, index, length));
        }
        shared_access::store(self.location.region.mapping(), data + index * size_of::<T>() as u64, value)
            .ok_or_else(|| self.location.corrupt("its elements lie outside"))
    }

    /// Changes the number of elements; new elements are zero. If this process is killed during the call, the vector
    /// has either the old elements or the new ones.
    ///
    /// # Errors
    /// `NO_SPACE` if the region cannot grow; the vector is then unchanged.
    pub fn resize(&self, length: u64) -> Result<()> {
        self.location.region.vector_resize(self.location.offset, size_of::<T>() as u64, length)
    }

    /// Makes the vector hold exactly these elements.
    ///
    /// # Errors
    /// `NO_SPACE` if the region cannot grow; the vector is then unchanged.
    pub fn assign(&self, elements: &[T]) -> Result<()> {
        self.resize(elements.len() as u64)?;
        let (data, _) = self.data()?;
        shared_access::copy_in(self.location.region.mapping(), data, elements)
            .ok_or_else(|| self.location.corrupt("its elements lie outside"))
    }

    /// A copy of all elements.
    ///
    /// # Errors
    /// `CORRUPT` if the vector's header is damaged.
    pub fn to_vec(&self) -> Result<Vec<T>> {
        let (data, length) = self.data()?;
        if length == 0 {
            return Ok(Vec::new());
        }
        // The length was checked against the region's size, so a damaged length cannot make this function ask for
        // more memory than the region has.
        let first: T = self.get(0)?;
        let mut elements = vec![first; length as usize];
        shared_access::copy_out(self.location.region.mapping(), data, &mut elements)
            .ok_or_else(|| self.location.corrupt("its elements lie outside"))?;
        Ok(elements)
    }

    /// The vector's handle, to be sent to another task.
    ///
    /// # Errors
    /// `BAD_HANDLE` if the vector was removed.
    pub fn save(&self) -> Result<Handle> {
        self.location.region.save(self.location.offset)
    }
}

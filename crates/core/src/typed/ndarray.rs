//! An n-dimensional array in a region: a NumPy array in Python, an array pointer in Fortran.

use std::marker::PhantomData;
use std::sync::Arc;

use crate::shared_access::{self, Plain};
use crossdock_layout::Handle;

use super::header::{ObjectLocation, out_of_range};
use super::type_ref;
use crate::Result;
use crate::containers::Order;
use crate::directory::TypeRef;
use crate::headers::NdarrayData;
use crate::region::Region;

/// An n-dimensional array in a region, without gaps between its elements. The region stays mapped as long as this value
/// exists.
#[derive(Clone, Debug)]
pub struct NdArray<T> {
    location: ObjectLocation,
    marker: PhantomData<T>,
}

impl<T: Plain> NdArray<T> {
    pub(super) fn at(region: &Arc<Region>, offset: u64) -> Self {
        Self { location: ObjectLocation::new(region, offset), marker: PhantomData }
    }

    pub(super) fn type_ref() -> Result<TypeRef> {
        type_ref(format!("ndarray<{}>", T::type_name()))
    }

    /// The length of each dimension, the outermost first.
    ///
    /// # Errors
    /// `CORRUPT` if the array's header is damaged.
    pub fn shape(&self) -> Result<Vec<u64>> {
        Ok(self.header()?.shape().to_vec())
    }

    /// Tells whether the last index varies fastest (C), or the first (Fortran).
    ///
    /// # Errors
    /// `CORRUPT` if the array's header is damaged.
    pub fn order(&self) -> Result<Order> {
        Ok(self.header()?.order)
    }

    fn header(&self) -> Result<NdarrayData> {
        self.location.region.ndarray_at(self.location.offset, size_of::<T>() as u64)
    }

    /// The offset of the elements, and their number.
    fn data(&self) -> Result<(u64, u64)> {
        let found = self.header()?;
        Ok((found.data.unwrap_or(0), found.bytes / size_of::<T>() as u64))
    }

    /// The number of elements in the array.
    ///
    /// # Errors
    /// `CORRUPT` if the array's header is damaged.
    pub fn len(&self) -> Result<u64> {
        Ok(self.data()?.1)
    }

    /// Tells whether the array has no elements.
    ///
    /// # Errors
    /// The errors of [`NdArray::len`].
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Changes the shape. The bytes that the array has stay as they are, in the order of memory; added bytes are zero.
    ///
    /// # Errors
    /// `NO_SPACE` if the region cannot grow (the array then stays as it was), `INVALID` for a rank above 8.
    pub fn reshape(&self, order: Order, shape: &[u64]) -> Result<()> {
        self.location.region.ndarray_reshape(self.location.offset, size_of::<T>() as u64, order, shape)
    }

    /// Gives the element at these indices, which count from 0.
    ///
    /// # Errors
    /// `INVALID` if the indices do not fit the array's shape, `CORRUPT` if its header is damaged.
    pub fn get(&self, indices: &[u64]) -> Result<T> {
        let at = self.element(indices)?;
        shared_access::load(self.location.region.mapping(), at)
            .ok_or_else(|| self.location.corrupt("its elements lie outside"))
    }

    /// Stores the element at these indices.
    ///
    /// # Errors
    /// The errors of [`NdArray::get`], and `DENIED` if the region is mapped for reading only.
    pub fn set(&self, indices: &[u64], value: T) -> Result<()> {
        self.location.region.require_writable()?;
        let at = self.element(indices)?;
        shared_access::store(self.location.region.mapping(), at, value)
            .ok_or_else(|| self.location.corrupt("its elements lie outside"))
    }

    /// A copy of all elements, in the order in which they lie in memory.
    ///
    /// # Errors
    /// `CORRUPT` if the array's header is damaged.
    pub fn to_vec(&self) -> Result<Vec<T>> {
        let (data, count) = self.data()?;
        if count == 0 {
            return Ok(Vec::new());
        }
        let outside = || self.location.corrupt("its elements lie outside");
        let first: T = shared_access::load(self.location.region.mapping(), data).ok_or_else(outside)?;
        let mut elements = vec![first; count as usize];
        shared_access::copy_out(self.location.region.mapping(), data, &mut elements).ok_or_else(outside)?;
        Ok(elements)
    }

    /// Copies all elements in, in the order in which they lie in memory.
    ///
    /// # Errors
    /// `INVALID` if `elements` has another number of elements than the array, `DENIED` if the region is mapped for
    /// reading only, `CORRUPT` if the array's header is damaged.
    pub fn copy_from(&self, elements: &[T]) -> Result<()> {
        self.location.region.require_writable()?;
        let (data, count) = self.data()?;
        if elements.len() as u64 != count {
            return Err(out_of_range(&self.location, elements.len() as u64, count));
        }
        if count == 0 {
            return Ok(());
        }
        shared_access::copy_in(self.location.region.mapping(), data, elements)
            .ok_or_else(|| self.location.corrupt("its elements lie outside"))
    }

    /// The array's handle, to be sent to another task.
    ///
    /// # Errors
    /// `BAD_HANDLE` if the array was removed.
    pub fn save(&self) -> Result<Handle> {
        self.location.region.save(self.location.offset)
    }

    /// The offset of an element in the region.
    fn element(&self, indices: &[u64]) -> Result<u64> {
        let found = self.header()?;
        let (shape, data) = (found.shape(), found.data.unwrap_or(0));
        if indices.len() != shape.len()
            || found.bytes == 0
            || indices.iter().zip(shape).any(|(index, extent)| index >= extent)
        {
            let count = found.bytes / size_of::<T>() as u64;
            return Err(out_of_range(&self.location, indices.first().copied().unwrap_or(0), count));
        }
        let step = |at: u64, (index, extent): (&u64, &u64)| at * extent + index;
        let at = match found.order {
            Order::C => indices.iter().zip(shape).fold(0, step),
            Order::Fortran => indices.iter().zip(shape).rev().fold(0, step),
        };
        Ok(data + at * size_of::<T>() as u64)
    }
}

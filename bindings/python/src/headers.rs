//! Writes the headers of vectors, strings and ndarrays in shared memory. `Region::vector_at` and `ndarray_at` of the
//! library read them.

use crossdock_client::{Region, Result, VectorData};

/// Stores the distance to the region's start in the header of a new container, so that the container can grow.
pub fn tie(region: &Region, header: u64) {
    // SAFETY: the caller has just claimed the object at `header`. It has at least 32 bytes, is aligned to 8, and no
    // other thread sees it yet.
    unsafe { region.base().add(header as usize).cast::<u64>().write_volatile(0u64.wrapping_sub(header)) };
}

/// A copy of the bytes of the string at `header`.
pub fn bytes(region: &Region, header: u64) -> Result<Vec<u8>> {
    let VectorData { data, size, .. } = region.vector_at(header, 1)?;
    let mut copy = vec![0; size as usize];
    if let Some(data) = data {
        // SAFETY: `vector_at` has checked that the `size` bytes from `data` on lie in the mapping. `copy` has as many
        // bytes, and a Vec never lies in a region.
        unsafe { region.base().add(data as usize).copy_to_nonoverlapping(copy.as_mut_ptr(), copy.len()) };
    }
    Ok(copy)
}

/// Replaces the bytes of the string at `header`.
pub fn set_bytes(region: &Region, header: u64, from: &[u8]) -> Result<()> {
    region.vector_resize(header, 1, from.len() as u64)?;
    let VectorData { data, size, .. } = region.vector_at(header, 1)?;
    if let Some(data) = data {
        // SAFETY: `vector_at` has checked that the `size` bytes from `data` on lie in the mapping. The mapping is
        // writable, because the string could be resized. `from` is memory of Python, outside of the mapping.
        unsafe {
            region.base().add(data as usize).copy_from_nonoverlapping(from.as_ptr(), from.len().min(size as usize))
        };
    }
    Ok(())
}

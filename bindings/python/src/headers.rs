//! Headers of vectors, strings and ndarrays as they lie in shared memory. Read word by word: another task may write them
//! at any time, so what they say is checked before an address is made of it (`views::array`).

use crossdock_client::{Region, Status};
use pyo3::prelude::*;

use crate::errors::error;

/// What a vector's header says.
#[derive(Clone, Copy)]
pub struct VectorHeader {
    /// Offset of the elements in the region; 0 if there have never been any.
    pub data: u64,
    /// Elements.
    pub size: u64,
    /// Elements that there is room for.
    pub capacity: u64,
}

/// What an ndarray's header says.
pub struct NdarrayHeader {
    /// Offset of the elements in the region; 0 if there have never been any.
    pub data: u64,
    /// First index fastest.
    pub fortran: bool,
    /// Elements in each dimension.
    pub shape: Vec<u64>,
}

const WORD: u64 = 8;

fn word(region: &Region, offset: u64) -> u64 {
    // SAFETY: the callers pass offsets in a header that `claim` or `load` has found to lie in the region, aligned to 8;
    // the region is borrowed, so it is mapped. Volatile, because another process may write it.
    unsafe { region.base().add(offset as usize).cast::<u64>().read_volatile() }
}

/// Self-relative: the word's own offset plus what it says; 0 is nothing. A lying word gives an offset that the check of
/// the array's extent refuses.
fn pointed(region: &Region, offset: u64) -> u64 {
    match word(region, offset) {
        0 => 0,
        relative => offset.wrapping_add(relative),
    }
}

/// Makes the header of a new container find its region, from which it grows.
pub fn tie(region: &Region, header: u64) {
    // SAFETY: `header` was just claimed by the caller, at least 32 bytes, aligned to 8, and nobody else sees it yet.
    unsafe { region.base().add(header as usize).cast::<u64>().write_volatile(0u64.wrapping_sub(header)) };
}

/// Reads the header of a vector or string.
pub fn vector(region: &Region, header: u64) -> VectorHeader {
    VectorHeader {
        data: pointed(region, header + WORD),
        size: word(region, header + 2 * WORD),
        capacity: word(region, header + 3 * WORD),
    }
}

/// Reads the header of an ndarray.
pub fn ndarray(py: Python<'_>, region: &Region, header: u64) -> PyResult<NdarrayHeader> {
    let both = word(region, header + 3 * WORD);
    let (rank, order) = (both & 0xffff_ffff, both >> 32);
    if rank > 8 || order > 1 {
        return Err(error(
            py,
            Status::Corrupt,
            format!(
                "the ndarray at {header:#x} of region '{}' says rank {rank} (at most 8), order {order} (0 or 1)",
                region.name()
            ),
        ));
    }
    Ok(NdarrayHeader {
        data: pointed(region, header + WORD),
        fortran: order == 1,
        shape: (0..rank).map(|n| word(region, header + (4 + n) * WORD)).collect(),
    })
}

/// Copies bytes of a string out; `None` if they do not lie in the region.
pub fn bytes(region: &Region, header: VectorHeader) -> Option<Vec<u8>> {
    if header.size == 0 {
        return Some(Vec::new());
    }
    if header.data == 0 || header.data.checked_add(header.size)? > region.capacity() {
        return None;
    }
    let mut copy = vec![0; usize::try_from(header.size).ok()?];
    // SAFETY: the bytes lie in the mapping (checked above), `copy` is as long, and no bytes of a Vec lie in a region.
    unsafe { region.base().add(header.data as usize).copy_to_nonoverlapping(copy.as_mut_ptr(), copy.len()) };
    Some(copy)
}

/// Copies bytes into a string that has room for them; `None` if it does not.
pub fn set_bytes(region: &Region, header: VectorHeader, from: &[u8]) -> Option<()> {
    let length = from.len() as u64;
    if from.is_empty() {
        return Some(());
    }
    if header.data == 0 || header.size < length || header.data.checked_add(length)? > region.capacity() {
        return None;
    }
    // SAFETY: the destination lies in the mapping (checked above), which is writable because the string could be
    // resized; `from` is Python's memory.
    unsafe { region.base().add(header.data as usize).copy_from_nonoverlapping(from.as_ptr(), from.len()) };
    Some(())
}

//! Vectors, strings and ndarrays: the containers that all languages share.

use std::ffi::{c_char, c_void};

use crossdock_client::{Order, Region, Result};

use crate::arguments::{choice, out, text};
use crate::error::{call, invalid};
use crate::object::open;
use crate::plain::{Ndarray, Vector};
use crate::region::{address_of, mode, offset_of, region};

const RANK_MAX: usize = 8;

/// Gives the offset of a container's header in the region. Fails unless the header is aligned and lies in the region.
fn header<T>(region: &Region, header: *const T) -> Result<u64> {
    if !header.is_aligned() {
        return Err(invalid(format!("{header:p} is not aligned to 8 bytes")));
    }
    offset_of(region, header.cast(), size_of::<T>() as u64)
}

/// Checks the size of an element. The header of a container does not contain this size, so the caller gives it. It must
/// not be 0.
fn element(size: u64) -> Result<u64> {
    if size == 0 { Err(invalid("the element size is 0")) } else { Ok(size) }
}

/// The address of the elements in this process; NULL if the container never had any.
fn address(region: &Region, data: Option<u64>) -> *mut c_void {
    data.map_or(std::ptr::null_mut(), |offset| address_of(region, offset))
}

pub(crate) fn order(number: u32) -> Result<Order> {
    choice(number, "order", "crossdock_order")
}

/// Reads the shape that the caller gave.
///
/// # Safety
/// `shape`, if not NULL, must have `rank` readable numbers.
pub(crate) unsafe fn shape_in<'a>(rank: u32, shape: *const u64) -> Result<&'a [u64]> {
    if rank as usize > RANK_MAX {
        return Err(invalid(format!("rank is {rank}; at most {RANK_MAX} is possible")));
    }
    if rank == 0 {
        return Ok(&[]);
    }
    if shape.is_null() || !shape.is_aligned() {
        return Err(invalid(format!("the shape at {shape:p} cannot be read")));
    }
    // SAFETY: the lines above check that `shape` is aligned and not NULL. The caller promises that `rank` numbers are
    // readable there.
    Ok(unsafe { std::slice::from_raw_parts(shape, rank as usize) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_vector_open(
    region: u64,
    name: *const c_char,
    element_type: *const c_char,
    mode: u32,
    timeout_ms: i64,
    vector: *mut *mut Vector,
) -> i32 {
    call(|| {
        let place = out(vector, "vector")?;
        // SAFETY: `crossdock.h` requires zero-terminated texts.
        let (name, element) = unsafe { (text(name, "object's name")?, text(element_type, "element type")?) };
        let region = self::region(&region)?;
        let (claim, _) = open(region, name, &format!("vector<{element}>"), self::mode(mode)?, timeout_ms)?;
        // SAFETY: `crossdock.h` requires writable memory.
        unsafe { place.set(address_of(region, claim.offset).cast()) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn crossdock_vector_resize(region: u64, vector: *mut Vector, element_size: u64, elements: u64) -> i32 {
    call(|| {
        let region = self::region(&region)?;
        region.vector_resize(header(region, vector)?, element(element_size)?, elements)
    })
}

#[unsafe(no_mangle)]
extern "C" fn crossdock_vector_reserve(region: u64, vector: *mut Vector, element_size: u64, elements: u64) -> i32 {
    call(|| {
        let region = self::region(&region)?;
        region.vector_reserve(header(region, vector)?, element(element_size)?, elements)
    })
}

/// Gives the address and the number of the elements of a vector. Fails unless the elements lie in the region.
fn vector_view(region: &Region, vector: *const Vector, element_size: u64) -> Result<(*mut c_void, u64)> {
    let found = region.vector_at(header(region, vector)?, element(element_size)?)?;
    Ok((address(region, found.data), found.size))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_vector_view(
    region: u64,
    vector: *const Vector,
    element_size: u64,
    data: *mut *mut c_void,
    elements: *mut u64,
) -> i32 {
    call(|| {
        let (data, elements) = (out(data, "data")?, out(elements, "number of elements")?);
        let view = vector_view(self::region(&region)?, vector, element_size)?;
        // SAFETY: `crossdock.h` requires writable places.
        unsafe {
            data.set(view.0);
            elements.set(view.1);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_string_open(
    region: u64,
    name: *const c_char,
    mode: u32,
    timeout_ms: i64,
    string: *mut *mut Vector,
) -> i32 {
    call(|| {
        let place = out(string, "string")?;
        // SAFETY: `crossdock.h` requires zero-terminated text.
        let name = unsafe { text(name, "object's name")? };
        let region = self::region(&region)?;
        let (claim, _) = open(region, name, "string", self::mode(mode)?, timeout_ms)?;
        // SAFETY: `crossdock.h` requires writable memory.
        unsafe { place.set(address_of(region, claim.offset).cast()) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_string_assign(
    region: u64,
    string: *mut Vector,
    bytes: *const c_char,
    length: u64,
) -> i32 {
    call(|| {
        if bytes.is_null() && length > 0 {
            return Err(invalid("the bytes are NULL"));
        }
        let region = self::region(&region)?;
        region.vector_resize(header(region, string)?, 1, length)?;
        let (data, size) = vector_view(region, string, 1)?;
        if length > 0 {
            // SAFETY: the view was checked against the region and has room for `size` bytes, of which no more than
            // `length` are written; `crossdock.h` requires `length` readable bytes that do not lie in the string.
            unsafe { std::ptr::copy_nonoverlapping(bytes, data.cast(), size.min(length) as usize) };
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_ndarray_open(
    region: u64,
    name: *const c_char,
    element_type: *const c_char,
    order: u32,
    rank: u32,
    shape: *const u64,
    mode: u32,
    timeout_ms: i64,
    array: *mut *mut Ndarray,
) -> i32 {
    call(|| {
        let place = out(array, "ndarray")?;
        // SAFETY: `crossdock.h` requires that each text ends with a zero byte, and that `shape` points to `rank`
        // lengths.
        let (name, element, shape) =
            unsafe { (text(name, "object's name")?, text(element_type, "element type")?, shape_in(rank, shape)?) };
        let (order, mode) = (self::order(order)?, self::mode(mode)?);
        let region = self::region(&region)?;
        let offset = open_shaped(region, name, element, order, shape, mode, timeout_ms)?;
        // SAFETY: `crossdock.h` requires writable memory.
        unsafe { place.set(address_of(region, offset).cast()) };
        Ok(())
    })
}

/// Opens a shared ndarray, or makes it. A new ndarray gets its shape before other members can see it.
fn open_shaped(
    region: &Region,
    name: &str,
    element: &str,
    order: Order,
    shape: &[u64],
    mode: crossdock_client::Mode,
    timeout_ms: i64,
) -> Result<u64> {
    let (_, element_type) = crate::object::type_of(element)?;
    let (_, ty) = crate::object::type_of(&format!("ndarray<{element}>"))?;
    let bytes = shape.iter().try_fold(element_type.size, |bytes, n| bytes.checked_mul(*n)).unwrap_or(u64::MAX);
    let claim = crate::object::claim(region, name, &ty, bytes, mode, timeout_ms)?;
    if claim.created {
        // SAFETY: no other member sees the object yet, because it was claimed just now. It has the size and alignment
        // of its type.
        unsafe { address_of(region, claim.offset).cast::<i64>().write(-(claim.offset as i64)) };
        let made = region
            .ndarray_reshape(claim.offset, element_type.size, order, shape)
            .and_then(|()| region.commit(claim.offset));
        if let Err(error) = made {
            // The caller needs the error of the first failure, so an error of `abandon` is ignored.
            let _ = region.abandon(claim.offset);
            return Err(error);
        }
    }
    Ok(claim.offset)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_ndarray_reshape(
    region: u64,
    array: *mut Ndarray,
    element_size: u64,
    order: u32,
    rank: u32,
    shape: *const u64,
) -> i32 {
    call(|| {
        // SAFETY: `crossdock.h` requires `rank` lengths at `shape`.
        let shape = unsafe { shape_in(rank, shape)? };
        let region = self::region(&region)?;
        region.ndarray_reshape(header(region, array)?, element(element_size)?, self::order(order)?, shape)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_ndarray_view(
    region: u64,
    array: *const Ndarray,
    element_size: u64,
    data: *mut *mut c_void,
    order: *mut u32,
    rank: *mut u32,
    shape: *mut u64,
) -> i32 {
    call(|| {
        let (place, element_size) = (out(data, "data")?, element(element_size)?);
        let region = self::region(&region)?;
        let found = region.ndarray_at(header(region, array)?, element_size)?;
        // SAFETY: `crossdock.h` requires NULL or writable places, and room for 8 numbers in `shape`.
        unsafe {
            place.set(address(region, found.data));
            if !order.is_null() {
                out(order, "order")?.set(found.order as u32);
            }
            if !rank.is_null() {
                out(rank, "rank")?.set(found.shape().len() as u32);
            }
            if !shape.is_null() {
                let mut known = [0; RANK_MAX];
                known[..found.shape().len()].copy_from_slice(found.shape());
                out(shape.cast::<[u64; RANK_MAX]>(), "shape")?.set(known);
            }
        }
        Ok(())
    })
}

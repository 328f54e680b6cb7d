//! Access to elements of shared memory that other processes write at the same time.
//!
//! This module never makes a reference to shared bytes. Elements are copied in and out through checked addresses, by
//! volatile or plain copies. If two tasks write one element at the same time, the element gets one of the two values.
//! An element longer than eight bytes may become a mixture of both. Tasks that hand objects over through ports avoid
//! this.

use crossdock_os::Mapping;

/// A type whose values contain no addresses, and for which every bit pattern is a valid value. So bytes from another
/// process can be read as a value of this type.
///
/// # Safety
/// Every bit pattern of the type's size must be a valid value. The type must contain no pointer. If it has padding, the
/// bytes of the padding must have no meaning.
pub unsafe trait Plain: Copy + Send + Sync + 'static {
    /// The type's name in the grammar of `layout::type_name`.
    fn type_name() -> String;
}

macro_rules! plain {
    ($($rust:ty => $name:literal),* $(,)?) => {$(
        // SAFETY: the type is a primitive number, for which every bit pattern is a valid value.
        unsafe impl Plain for $rust {
            fn type_name() -> String {
                $name.into()
            }
        }
    )*};
}
plain! {
    i8 => "i8", i16 => "i16", i32 => "i32", i64 => "i64", u8 => "u8", u16 => "u16", u32 => "u32", u64 => "u64",
    f32 => "f32", f64 => "f64",
}

// SAFETY: an array of plain elements has no padding between them, and every bit pattern of the array is a valid value.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {
    fn type_name() -> String {
        // In a type name the outer length comes first, as in C: `f32[4][8]` is four arrays of eight.
        let inner = T::type_name();
        match inner.find('[') {
            Some(at) => format!("{}[{N}]{}", &inner[..at], &inner[at..]),
            None => format!("{inner}[{N}]"),
        }
    }
}

fn address<T: Plain>(mapping: &Mapping, offset: u64, count: u64) -> Option<*mut T> {
    let bytes = count.checked_mul(size_of::<T>() as u64)?;
    let address = mapping.at(offset, bytes)?.as_ptr().cast::<T>();
    address.is_aligned().then_some(address)
}

/// The element at `offset`; `None` if it does not lie within the mapping or is not aligned.
pub fn load<T: Plain>(mapping: &Mapping, offset: u64) -> Option<T> {
    let address = address::<T>(mapping, offset, 1)?;
    // SAFETY: the address is within a live mapping and aligned, and every bit pattern is a T. The read is volatile,
    // because another process may write the element at any time.
    Some(unsafe { address.read_volatile() })
}

/// Stores an element at `offset`. Gives `None`, and stores nothing, if the element does not lie within the mapping or
/// is not aligned.
pub fn store<T: Plain>(mapping: &Mapping, offset: u64, value: T) -> Option<()> {
    let address = address::<T>(mapping, offset, 1)?;
    // SAFETY: the address is within a live writable mapping and aligned. The write is volatile, because another
    // process may read the element at any time.
    unsafe { address.write_volatile(value) };
    Some(())
}

/// Copies elements out of the mapping; `None` if not all of them lie within it.
pub fn copy_out<T: Plain>(mapping: &Mapping, offset: u64, to: &mut [T]) -> Option<()> {
    let from = address::<T>(mapping, offset, to.len() as u64)?;
    // SAFETY: both ranges are in bounds and aligned; `to` is memory of this process alone, so they do not overlap.
    unsafe { std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), to.len()) };
    Some(())
}

/// Copies elements into the mapping. Gives `None`, and copies nothing, if not all of them would lie within it.
pub fn copy_in<T: Plain>(mapping: &Mapping, offset: u64, from: &[T]) -> Option<()> {
    let to = address::<T>(mapping, offset, from.len() as u64)?;
    // SAFETY: both ranges are in bounds and aligned; `from` is memory of this process alone, so they do not overlap.
    unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) };
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossdock_os::{Access, memfd};

    fn mapping() -> Mapping {
        let fd = memfd::create("crossdock-test", 4096).unwrap();
        Mapping::new(&fd, 4096, Access::ReadWrite).unwrap()
    }

    #[test]
    fn what_is_stored_is_loaded() {
        let mapping = mapping();
        store(&mapping, 64, [1.5f64, -2.0]).unwrap();
        assert_eq!(load::<f64>(&mapping, 72), Some(-2.0));
        copy_in(&mapping, 128, &[1i32, 2, 3]).unwrap();
        let mut out = [0i32; 3];
        copy_out(&mapping, 128, &mut out).unwrap();
        assert_eq!(out, [1, 2, 3]);
    }

    #[test]
    fn what_lies_outside_or_across_is_refused() {
        let mapping = mapping();
        assert_eq!(load::<u64>(&mapping, 4096), None);
        assert_eq!(load::<u64>(&mapping, 4092), None);
        assert_eq!(load::<u64>(&mapping, 4), None, "not aligned");
        assert_eq!(copy_out(&mapping, 4088, &mut [0u64; 2]), None);
        assert_eq!(store(&mapping, u64::MAX - 3, 1u64), None);
    }

    #[test]
    fn arrays_are_named_from_the_outside_in() {
        assert_eq!(<[[f32; 8]; 4]>::type_name(), "f32[4][8]");
        assert_eq!(<[u8; 3]>::type_name(), "u8[3]");
    }
}

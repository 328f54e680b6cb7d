//! Checks arguments that come from C before they are used.

use std::ffi::{CStr, c_char};
use std::time::Duration;

use crossdock_client::{DEFAULT_WAIT, Error, Result, Status};

use crossdock_layout::set::ClosedSet;

use crate::error::invalid;

/// The longest text that is accepted. Names, paths and types are never longer.
const TEXT_MAX: usize = 4096;

/// Reads a zero-terminated text that the caller gave.
///
/// # Safety
/// A `pointer` that is not NULL must be readable up to its terminating zero or for `TEXT_MAX` bytes.
pub(crate) unsafe fn text<'a>(pointer: *const c_char, what: &str) -> Result<&'a str> {
    if pointer.is_null() {
        return Err(invalid(format!("the {what} is NULL")));
    }
    // The bytes are read one by one, because no byte behind the terminating zero may be read.
    // SAFETY: the caller promises that the text is readable; the loop stops at its terminating zero.
    let length = (0..TEXT_MAX).find(|n| unsafe { *pointer.add(*n) } == 0);
    let Some(length) = length else {
        return Err(invalid(format!("the {what} does not end within {TEXT_MAX} bytes")));
    };
    // SAFETY: the loop above has read `length` + 1 bytes, and only the last of them is zero.
    let text = unsafe { CStr::from_bytes_with_nul_unchecked(std::slice::from_raw_parts(pointer.cast(), length + 1)) };
    text.to_str().map_err(|_| invalid(format!("the {what} is not UTF-8")))
}

/// Reads a zero-terminated text as `text` does. NULL means that no text was given.
///
/// # Safety
/// As [`text`].
pub(crate) unsafe fn optional_text<'a>(pointer: *const c_char, what: &str) -> Result<Option<&'a str>> {
    // SAFETY: `text` has the same `# Safety` section as this function, and the caller of this function keeps that
    // promise.
    if pointer.is_null() { Ok(None) } else { unsafe { text(pointer, what) }.map(Some) }
}

/// Reads a value through a pointer that the caller gave.
///
/// # Safety
/// A `pointer` that is neither NULL nor misaligned must point to a readable T that no thread writes meanwhile.
pub(crate) unsafe fn read<T: Copy>(pointer: *const T, what: &str) -> Result<T> {
    if pointer.is_null() || !pointer.is_aligned() {
        return Err(invalid(format!("the {what} is {}", if pointer.is_null() { "NULL" } else { "misaligned" })));
    }
    // SAFETY: the lines above check that the pointer is aligned and not NULL. The caller promises that it then points
    // to a readable T.
    Ok(unsafe { pointer.read() })
}

/// Converts a number from the C header to the value of an enumeration.
pub(crate) fn choice<T: ClosedSet>(number: u32, what: &str, set: &str) -> Result<T> {
    counted(number, 0, what, set)
}

/// Works like `choice`, for an enumeration whose numbers begin at 0 in the header and at 1 in the library.
pub(crate) fn choice_from_0<T: ClosedSet>(number: u32, what: &str, set: &str) -> Result<T> {
    counted(number, 1, what, set)
}

fn counted<T: ClosedSet>(number: u32, first: u32, what: &str, set: &str) -> Result<T> {
    T::from_number(number.wrapping_add(first)).ok_or_else(|| {
        let known: Vec<_> = T::SET.members.iter().map(|m| format!("{} ({})", m.number - first, m.word)).collect();
        invalid(format!("{number} is no {what}; {set} has {}", known.join(", ")))
    })
}

/// A place in the caller's memory for a result. The pointer is checked before the work is done, so that a call with a
/// bad pointer has no effect.
pub(crate) struct OutPointer<T>(*mut T);

/// Checks a pointer for a result: it must be aligned and not NULL.
pub(crate) fn out<T>(pointer: *mut T, what: &str) -> Result<OutPointer<T>> {
    if pointer.is_null() || !pointer.is_aligned() {
        return Err(invalid(format!(
            "the place for the {what} is {}",
            if pointer.is_null() { "NULL" } else { "misaligned" }
        )));
    }
    Ok(OutPointer(pointer))
}

impl<T> OutPointer<T> {
    /// Writes the result to the caller's memory.
    ///
    /// # Safety
    /// The pointer from which this value was made must point to a writable T.
    pub(crate) unsafe fn set(self, value: T) {
        // SAFETY: the caller promises that the pointer points to a writable T.
        unsafe { self.0.write(value) }
    }
}

/// Copies a text with its terminating zero into a buffer that the caller gave.
///
/// # Safety
/// `buffer`, if not NULL, must have `size` writable bytes.
pub(crate) unsafe fn copy_text(text: &str, buffer: *mut c_char, size: usize) -> Result<()> {
    if buffer.is_null() {
        return Err(invalid("the buffer is NULL"));
    }
    if size <= text.len() {
        return Err(Error::new(
            Status::NoSpace,
            format!("the buffer has {size} bytes, '{text}' needs {}", text.len() + 1),
        ));
    }
    // SAFETY: the check above shows that the buffer has room for the text and a zero.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), buffer, text.len());
        *buffer.add(text.len()) = 0;
    }
    Ok(())
}

/// Converts a `timeout_ms` argument: 0 means that the call does not wait, and −1 means the default time.
pub(crate) fn wait(timeout_ms: i64) -> Result<Duration> {
    match timeout_ms {
        -1 => Ok(DEFAULT_WAIT),
        n => u64::try_from(n).map(Duration::from_millis).map_err(|_| {
            invalid(format!(
                "timeout_ms is {n}; it is 0 (do not wait), a number of milliseconds, or -1 (the default, 60 s)"
            ))
        }),
    }
}

/// Converts a `timeout_ms` argument. The result is `None` if the argument is 0, which means that the call does not
/// wait.
pub(crate) fn optional_wait(timeout_ms: i64) -> Result<Option<Duration>> {
    wait(timeout_ms).map(|d| (!d.is_zero()).then_some(d))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_refused_when_it_is_null_endless_or_no_utf8() {
        let endless = [b'x'; TEXT_MAX];
        // SAFETY: each pointer is NULL, or readable up to a zero or TEXT_MAX bytes.
        unsafe {
            assert_eq!(text(c"frames".as_ptr(), "name").unwrap(), "frames");
            assert!(text(std::ptr::null(), "name").unwrap_err().to_string().contains("the name is NULL"));
            assert!(text(endless.as_ptr().cast(), "name").unwrap_err().to_string().contains("end"));
            assert!(text(c"\xff".as_ptr(), "name").unwrap_err().to_string().contains("UTF-8"));
            assert_eq!(optional_text(std::ptr::null(), "task").unwrap(), None);
        }
    }

    #[test]
    fn text_is_read_no_further_than_its_end() {
        let exact = Box::new(*b"ab\0");
        // SAFETY: the text ends with a zero. AddressSanitizer and Miri would report a read behind this zero.
        assert_eq!(unsafe { text(exact.as_ptr().cast(), "name") }.unwrap(), "ab");
    }

    #[test]
    fn copies_fit_with_their_zero_or_not_at_all() {
        let mut buffer = [1 as c_char; 8];
        // SAFETY: the buffer has as many bytes as the last argument says.
        unsafe {
            copy_text("melt", buffer.as_mut_ptr(), 5).unwrap();
            assert_eq!(CStr::from_ptr(buffer.as_ptr()), c"melt");
            assert_eq!(buffer[5], 1);
            assert_eq!(copy_text("melt", buffer.as_mut_ptr(), 4).unwrap_err().status, Status::NoSpace);
            assert_eq!(copy_text("melt", std::ptr::null_mut(), 4).unwrap_err().status, Status::Invalid);
        }
    }

    #[test]
    fn timeouts_are_zero_positive_or_the_default() {
        assert_eq!(wait(0).unwrap(), Duration::ZERO);
        assert_eq!(wait(1500).unwrap(), Duration::from_millis(1500));
        assert_eq!(wait(-1).unwrap(), DEFAULT_WAIT);
        assert!(wait(-2).is_err() && wait(i64::MIN).is_err());
        assert_eq!((optional_wait(0).unwrap(), optional_wait(1).unwrap()), (None, Some(Duration::from_millis(1))));
    }
}

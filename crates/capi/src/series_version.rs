//! The C functions for versions of series.

use std::ffi::{c_char, c_int, c_void};
use std::sync::{RwLock, RwLockReadGuard};

use crossdock_client::{Error, Result, Status, Version, diff};

use crate::arguments::{out, text};
use crate::error::{call, invalid};
use crate::guarded::Guarded;
use crate::references::Table;
use crate::series_plain as plain;
use crate::values;

/// The versions to which the program has references. Only `refresh` locks a version for writing; all other calls lock
/// it for reading.
static VERSIONS: Table<Guarded<RwLock<Version>>> = Table::new(7, "version", Status::Closed);

/// Stores a version and makes the first reference to it.
pub(crate) fn keep(version: Version) -> Result<u64> {
    VERSIONS.insert(Guarded::shared(version, "version"))
}

fn slot(reference: &u64) -> Result<&Guarded<RwLock<Version>>> {
    // SAFETY: `crossdock.h` requires that a reference lasts as long as the call to which it is given. No function of
    // this file keeps the value after its call.
    unsafe { VERSIONS.peek(*reference) }
}

fn version(reference: &u64) -> Result<RwLockReadGuard<'_, Version>> {
    slot(reference)?.read()
}

/// Applies `ask` to a version and writes the result to `place`.
///
/// # Safety
/// If `place` is neither NULL nor misaligned, it must be writable.
unsafe fn write_answer<T>(reference: u64, place: *mut T, what: &str, ask: impl FnOnce(&Version) -> Result<T>) -> i32 {
    call(|| {
        let place = out(place, what)?;
        let answer = ask(&*version(&reference)?)?;
        // SAFETY: the caller promises that `place` is writable.
        unsafe { place.set(answer) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn crossdock_series_version_ref(version: u64) -> i32 {
    call(|| VERSIONS.add(version))
}

#[unsafe(no_mangle)]
extern "C" fn crossdock_series_version_unref(version: u64) -> i32 {
    call(|| VERSIONS.remove(version))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_series_version_sequence(version: u64, sequence: *mut u64) -> i32 {
    // SAFETY: `crossdock.h` requires writable memory.
    unsafe { write_answer(version, sequence, "sequence", |v| Ok(v.sequence())) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_series_version_time(version: u64, time_ns: *mut u64) -> i32 {
    // SAFETY: `crossdock.h` requires writable memory.
    unsafe { write_answer(version, time_ns, "time", |v| Ok(v.time())) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_series_version_missed(version: u64, missed: *mut u64) -> i32 {
    // SAFETY: `crossdock.h` requires writable memory.
    unsafe { write_answer(version, missed, "count", |v| Ok(v.missed())) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_series_version_valid(version: u64, valid: *mut c_int) -> i32 {
    // SAFETY: `crossdock.h` requires writable memory.
    unsafe { write_answer(version, valid, "answer", |v| Ok(c_int::from(v.is_valid()))) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_series_version_data(
    version: u64,
    variable: *const c_char,
    data: *mut *const c_void,
    bytes: *mut u64,
) -> i32 {
    call(|| {
        let data = out(data, "address")?;
        let bytes = if bytes.is_null() { None } else { Some(out(bytes, "length")?) };
        // SAFETY: `crossdock.h` requires zero-terminated text.
        let variable = unsafe { text(variable, "variable's name")? };
        let version = self::version(&version)?;
        let elements = version.bytes(variable)?;
        // SAFETY: `crossdock.h` requires writable places.
        unsafe {
            data.set(elements.as_ptr().cast());
            if let Some(bytes) = bytes {
                bytes.set(elements.len() as u64);
            }
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_series_version_variable(
    version: u64,
    variable: *const c_char,
    info: *mut plain::VariableInfo,
) -> i32 {
    let look = |v: &Version| {
        // SAFETY: `crossdock.h` requires zero-terminated text.
        let name = unsafe { text(variable, "variable's name")? };
        v.shape(name)?;
        let found = v.description().variables.iter().find(|v| v.name == name);
        found.map(values::variable_out).ok_or_else(|| Error::lacks("variable", name))
    };
    // SAFETY: `crossdock.h` requires writable memory.
    unsafe { write_answer(version, info, "variable", look) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_series_version_shape(
    version: u64,
    variable: *const c_char,
    dimensions: *mut u32,
    shape: *mut u64,
) -> i32 {
    call(|| {
        let place = values::ShapePlace::new(dimensions, shape)?;
        // SAFETY: `crossdock.h` requires zero-terminated text.
        let variable = unsafe { text(variable, "variable's name")? };
        let version = self::version(&version)?;
        let found = version.shape(variable)?;
        // SAFETY: `crossdock.h` requires that `dimensions` and `shape` point to writable memory, and that `shape` has
        // room for eight lengths.
        unsafe { place.set(found) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_series_version_attribute_count(version: u64, count: *mut u32) -> i32 {
    // SAFETY: `crossdock.h` requires writable memory.
    unsafe { write_answer(version, count, "count", |v| Ok(v.attributes().len() as u32)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_series_version_attribute_at(
    version: u64,
    index: u32,
    name: *mut c_char,
    value: *mut plain::Value,
) -> i32 {
    let look = |v: &Version| {
        let found = v.attributes().get(index as usize);
        let (known, value) = found.ok_or_else(|| {
            Error::new(Status::NotFound, format!("version {} has no attribute {index}", v.sequence()))
        })?;
        // SAFETY: `crossdock.h` requires NULL or a buffer of that size.
        unsafe { values::name_out(known, name)? };
        Ok(values::value_out(value))
    };
    // SAFETY: `crossdock.h` requires writable memory.
    unsafe { write_answer(version, value, "value", look) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_series_version_attribute(
    version: u64,
    name: *const c_char,
    value: *mut plain::Value,
) -> i32 {
    // SAFETY: `crossdock.h` requires zero-terminated text.
    let look = |v: &Version| Ok(values::value_out(v.attribute(unsafe { text(name, "attribute's name")? })?));
    // SAFETY: `crossdock.h` requires writable memory.
    unsafe { write_answer(version, value, "value", look) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_series_version_refresh(version: u64, remapped: *mut u64) -> i32 {
    call(|| {
        let remapped = if remapped.is_null() { None } else { Some(out(remapped, "number of chunks")?) };
        let chunks = slot(&version)?.write()?.refresh()?;
        if let Some(remapped) = remapped {
            // SAFETY: `crossdock.h` requires writable memory.
            unsafe { remapped.set(chunks) };
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_series_version_diff(
    before: u64,
    after: u64,
    changes: *mut plain::Change,
    room: usize,
    count: *mut usize,
) -> i32 {
    call(|| {
        let count = out(count, "count")?;
        if room > 0 && (changes.is_null() || !changes.is_aligned()) {
            return Err(invalid("the place for the changes is NULL or misaligned"));
        }
        // Two locks are taken in the order of their references, because otherwise two calls of this function could wait
        // for each other for ever. If both references are the same, the lock is taken only once: a second attempt of
        // this thread would wait for ever if a call of `refresh` already waits for the lock.
        let (low, high) = (before.min(after), before.max(after));
        let first = version(&low)?;
        let second = if low == high { None } else { Some(version(&high)?) };
        let second = second.as_deref().unwrap_or(&first);
        let (before, after) = if before <= after { (&*first, second) } else { (second, &*first) };
        let found = diff(before, after)?;
        let variables = &before.description().variables;
        for (at, (variable, range)) in found.iter().enumerate().take(room) {
            let index = variables.iter().position(|v| v.name == *variable).unwrap_or(0);
            let change = plain::Change {
                variable: index as u32,
                reserved: 0,
                from: range.start,
                bytes: range.end - range.start,
            };
            // SAFETY: `crossdock.h` requires room for `room` structs.
            unsafe { changes.add(at).write(change) };
        }
        // SAFETY: `crossdock.h` requires writable memory.
        unsafe { count.set(found.len()) };
        Ok(())
    })
}

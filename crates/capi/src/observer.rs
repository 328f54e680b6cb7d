//! The C functions for observers of series.

use std::ffi::c_char;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crossdock_client::{Error, Observer, Result, Status, Version};

use crate::arguments::{OutPointer, out, text, wait};
use crate::error::call;
use crate::guarded::Guarded;
use crate::references::Table;
use crate::series_plain as plain;
use crate::series_version::keep;
use crate::session::session;
use crate::values;

static OBSERVERS: Table<Guarded<Mutex<Observer>>> = Table::new(6, "observer", Status::Closed);

/// How long a call holds the observer's lock while it waits for the publisher to decide whether to recycle a version.
const DECISION: Duration = Duration::from_millis(1);

/// Locks the observer that a reference refers to, for use in one call. No call holds this lock while it waits for a
/// version, so other threads can use the observer during the wait.
fn observer(reference: &u64) -> Result<MutexGuard<'_, Observer>> {
    // SAFETY: `crossdock.h` requires that a reference lasts as long as the call to which it is given. No function of
    // this file keeps the value after its call.
    unsafe { OBSERVERS.peek(*reference) }?.lock()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_observer_open(
    session: u64,
    name: *const c_char,
    timeout_ms: i64,
    observer: *mut u64,
) -> i32 {
    call(|| {
        let observer = out(observer, "observer")?;
        // SAFETY: `crossdock.h` requires zero-terminated text.
        let name = unsafe { text(name, "series' name")? };
        let opened = self::session(session)?.observe(name, wait(timeout_ms)?)?;
        let reference = OBSERVERS.insert(Guarded::new(opened, "observer"))?;
        // SAFETY: `crossdock.h` requires writable memory.
        unsafe { observer.set(reference) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_observer_open_former(
    session: u64,
    name: *const c_char,
    timeout_ms: i64,
    observer: *mut u64,
) -> i32 {
    call(|| {
        let observer = out(observer, "observer")?;
        // SAFETY: `crossdock.h` requires zero-terminated text.
        let name = unsafe { text(name, "series' name")? };
        let opened = self::session(session)?.observe_former(name, wait(timeout_ms)?)?;
        let reference = OBSERVERS.insert(Guarded::new(opened, "observer"))?;
        // SAFETY: `crossdock.h` requires writable memory.
        unsafe { observer.set(reference) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn crossdock_observer_ref(observer: u64) -> i32 {
    call(|| OBSERVERS.add(observer))
}

#[unsafe(no_mangle)]
extern "C" fn crossdock_observer_unref(observer: u64) -> i32 {
    call(|| OBSERVERS.remove(observer))
}

/// Applies `ask` to an observer and writes the result to `place`.
///
/// # Safety
/// If `place` is neither NULL nor misaligned, it must be writable.
unsafe fn write_answer<T>(reference: u64, place: *mut T, what: &str, ask: impl FnOnce(&Observer) -> Result<T>) -> i32 {
    call(|| {
        let place = out(place, what)?;
        let answer = ask(&*observer(&reference)?)?;
        // SAFETY: the caller promises that `place` is writable.
        unsafe { place.set(answer) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_observer_id(observer: u64, id: *mut u64) -> i32 {
    // SAFETY: `crossdock.h` requires writable memory.
    unsafe { write_answer(observer, id, "id", |o| Ok(o.id().0)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_observer_state(observer: u64, state: *mut u32) -> i32 {
    // SAFETY: `crossdock.h` requires writable memory.
    unsafe { write_answer(observer, state, "state", |o| Ok(o.state() as u32)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_observer_variable_count(observer: u64, count: *mut u32) -> i32 {
    // SAFETY: `crossdock.h` requires writable memory.
    unsafe { write_answer(observer, count, "count", |o| Ok(o.description().variables.len() as u32)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_observer_variable(observer: u64, index: u32, variable: *mut plain::VariableInfo) -> i32 {
    let look = |o: &Observer| {
        let found = o.description().variables.get(index as usize);
        let v = found
            .ok_or_else(|| Error::new(Status::NotFound, format!("series '{}' has no variable {index}", o.name())))?;
        Ok(values::variable_out(v))
    };
    // SAFETY: `crossdock.h` requires writable memory.
    unsafe { write_answer(observer, variable, "variable", look) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_observer_constant(
    observer: u64,
    variable: *const c_char,
    name: *const c_char,
    value: *mut plain::Value,
) -> i32 {
    let look = |o: &Observer| {
        // SAFETY: `crossdock.h` requires zero-terminated texts.
        let (variable, name) = unsafe { (text(variable, "variable's name")?, text(name, "constant's name")?) };
        let of = o.description().variables.iter().find(|v| v.name == variable);
        let found = of.and_then(|v| v.constants.iter().find(|(n, _)| n == name));
        found.map(|(_, value)| values::value_out(value)).ok_or_else(|| {
            let text = format!("variable '{variable}' of series '{}' has no constant '{name}'", o.name());
            Error::new(Status::NotFound, text)
        })
    };
    // SAFETY: `crossdock.h` requires writable memory.
    unsafe { write_answer(observer, value, "value", look) }
}

/// Applies `ask` to an observer and writes a reference to the resulting version to `place`.
///
/// # Safety
/// If `place` is neither NULL nor misaligned, it must be writable.
unsafe fn taken(reference: u64, place: *mut u64, ask: impl FnOnce(&mut Observer) -> Result<Version>) -> i32 {
    call(|| {
        let place: OutPointer<u64> = out(place, "version")?;
        let version = ask(&mut *observer(&reference)?)?;
        let kept = keep(version)?;
        // SAFETY: the caller promises that `place` is writable.
        unsafe { place.set(kept) };
        Ok(())
    })
}

/// Waits until `ask` gives a version, and writes a reference to the version to `place`. It waits for a version with a
/// higher number than `beyond`; if `beyond` is `None`, for a version that the observer has not given yet.
///
/// # Safety
/// If `place` is neither NULL nor misaligned, it must be writable.
unsafe fn awaited(
    reference: u64,
    timeout_ms: i64,
    place: *mut u64,
    beyond: Option<u64>,
    ask: impl Fn(&mut Observer, Duration) -> Result<Version>,
) -> i32 {
    call(|| {
        let place: OutPointer<u64> = out(place, "version")?;
        let total = wait(timeout_ms)?;
        let end = Instant::now() + total;
        let mut patience = Duration::ZERO;
        let version = loop {
            let left = end.saturating_duration_since(Instant::now());
            let waiter = {
                let mut observer = observer(&reference)?;
                match ask(&mut observer, patience.min(left)) {
                    Err(e) if !matches!(e.status, Status::NotYet | Status::TimedOut) || total.is_zero() => {
                        return Err(e);
                    }
                    Err(e) if left.is_zero() => return Err(e.waited_in_all(total).with_status(Status::TimedOut)),
                    Err(_) => observer.waiter(beyond),
                    Ok(version) => break version,
                }
            };
            match waiter.wait(left) {
                Err(e) if e.status != Status::TimedOut => return Err(e),
                _ => patience = DECISION,
            }
        };
        let kept = keep(version)?;
        // SAFETY: the caller promises that `place` is writable.
        unsafe { place.set(kept) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_observer_latest(observer: u64, version: *mut u64) -> i32 {
    // SAFETY: `crossdock.h` requires writable memory.
    unsafe { taken(observer, version, Observer::latest) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_observer_next(observer: u64, timeout_ms: i64, version: *mut u64) -> i32 {
    // SAFETY: `crossdock.h` requires writable memory.
    unsafe { awaited(observer, timeout_ms, version, None, Observer::next) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_observer_each(observer: u64, timeout_ms: i64, version: *mut u64) -> i32 {
    // SAFETY: `crossdock.h` requires writable memory.
    unsafe { awaited(observer, timeout_ms, version, None, Observer::each) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_observer_at(observer: u64, sequence: u64, timeout_ms: i64, version: *mut u64) -> i32 {
    // SAFETY: `crossdock.h` requires writable memory.
    unsafe {
        awaited(observer, timeout_ms, version, Some(sequence.saturating_sub(1)), |o, slice| o.at(sequence, slice))
    }
}

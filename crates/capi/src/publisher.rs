//! The C functions for publishers of series.

use std::ffi::{c_char, c_void};
use std::sync::{Mutex, MutexGuard};

use crossdock_client::{Publisher, Result, SeriesOptions, Status};

use crate::arguments::{choice, out, read, text};
use crate::error::{call, invalid};
use crate::guarded::Guarded;
use crate::references::Table;
use crate::series_plain as plain;
use crate::session::session;
use crate::values;

static PUBLISHERS: Table<Guarded<Mutex<Publisher>>> = Table::new(5, "publisher", Status::Closed);

/// Gives the publisher that a reference refers to, for use in one call. Calls of other threads wait until that call has
/// ended.
pub(crate) fn publisher(reference: &u64) -> Result<MutexGuard<'_, Publisher>> {
    // SAFETY: `crossdock.h` requires that a reference lasts as long as the call to which it is given. No function of
    // this file keeps the value after its call.
    unsafe { PUBLISHERS.peek(*reference) }?.lock()
}

/// Reads the options of a series. NULL means the default options.
///
/// # Safety
/// `given` must be NULL or readable.
unsafe fn options(given: *const plain::SeriesOptions) -> Result<SeriesOptions> {
    let mut options = SeriesOptions::default();
    if given.is_null() {
        return Ok(options);
    }
    // SAFETY: the caller promises that `given`, which is not NULL here, is readable.
    let given = unsafe { read(given, "options")? };
    options.capacity = Some(given.capacity).filter(|n| *n != 0);
    options.chunk = Some(given.chunk).filter(|n| *n != 0);
    options.keep = given.keep;
    options.max_observers = given.max_observers;
    options.full = choice(given.full, "policy for a full pool", "crossdock_full")?;
    options.detect = choice(given.detect, "way of finding changes", "crossdock_detect")?;
    options.pages = choice(given.pages, "statement about pages", "crossdock_pages")?;
    Ok(options)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_publisher_open(
    session: u64,
    name: *const c_char,
    variables: *const plain::Variable,
    variable_count: usize,
    attributes: *const plain::Attribute,
    attribute_count: usize,
    options: *const plain::SeriesOptions,
    publisher: *mut u64,
) -> i32 {
    call(|| {
        let publisher = out(publisher, "publisher")?;
        // SAFETY: `crossdock.h` requires zero-terminated text, and for lists and options that are NULL or valid.
        let (name, mut options) = unsafe { (text(name, "series' name")?, self::options(options)?) };
        // SAFETY: `crossdock.h` requires lists that are NULL or valid.
        unsafe {
            options.variables = values::variables(variables, variable_count)?;
            options.attributes = values::declared(attributes, attribute_count)?;
        }
        let opened = self::session(session)?.publisher(name, &options)?;
        let reference = PUBLISHERS.insert(Guarded::new(opened, "publisher"))?;
        // SAFETY: `crossdock.h` requires writable memory.
        unsafe { publisher.set(reference) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn crossdock_publisher_ref(publisher: u64) -> i32 {
    call(|| PUBLISHERS.add(publisher))
}

#[unsafe(no_mangle)]
extern "C" fn crossdock_publisher_unref(publisher: u64) -> i32 {
    call(|| PUBLISHERS.remove(publisher))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_publisher_memory(
    publisher: u64,
    variable: *const c_char,
    data: *mut *mut c_void,
    bytes: *mut u64,
) -> i32 {
    call(|| {
        let data = out(data, "address")?;
        let bytes = if bytes.is_null() { None } else { Some(out(bytes, "length")?) };
        // SAFETY: `crossdock.h` requires zero-terminated text.
        let variable = unsafe { text(variable, "variable's name")? };
        let publisher = self::publisher(&publisher)?;
        let (address, length) = (publisher.memory(variable)?, publisher.bytes(variable)?);
        // SAFETY: `crossdock.h` requires writable places.
        unsafe {
            data.set(address.cast());
            if let Some(bytes) = bytes {
                bytes.set(length);
            }
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_publisher_shape(
    publisher: u64,
    variable: *const c_char,
    dimensions: *mut u32,
    shape: *mut u64,
) -> i32 {
    call(|| {
        let place = values::ShapePlace::new(dimensions, shape)?;
        // SAFETY: `crossdock.h` requires zero-terminated text.
        let variable = unsafe { text(variable, "variable's name")? };
        let publisher = self::publisher(&publisher)?;
        let found = publisher.shape(variable)?;
        // SAFETY: `crossdock.h` requires that `dimensions` and `shape` point to writable memory, and that `shape` has
        // room for eight lengths.
        unsafe { place.set(found) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_publisher_resize(
    publisher: u64,
    variable: *const c_char,
    shape: *const u64,
    dimensions: u32,
) -> i32 {
    call(|| {
        // SAFETY: `crossdock.h` requires zero-terminated text.
        let variable = unsafe { text(variable, "variable's name")? };
        let mut lengths = [0; plain::DIMENSIONS];
        let lengths = lengths.get_mut(..dimensions as usize);
        let lengths = lengths.ok_or_else(|| invalid(format!("{dimensions} dimensions; at most 8 are allowed")))?;
        for (at, length) in lengths.iter_mut().enumerate() {
            // SAFETY: `crossdock.h` requires a shape with one length for each dimension.
            *length = unsafe { read(shape.wrapping_add(at), "shape")? };
        }
        self::publisher(&publisher)?.resize(variable, lengths)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_publisher_touched(
    publisher: u64,
    variable: *const c_char,
    from: u64,
    bytes: u64,
) -> i32 {
    call(|| {
        // SAFETY: `crossdock.h` requires zero-terminated text.
        let variable = unsafe { text(variable, "variable's name")? };
        self::publisher(&publisher)?.touched(variable, from..from.saturating_add(bytes))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_publisher_publish(
    publisher: u64,
    attributes: *const plain::Attribute,
    attribute_count: usize,
    sequence: *mut u64,
) -> i32 {
    call(|| {
        let sequence = if sequence.is_null() { None } else { Some(out(sequence, "sequence")?) };
        let mut publisher = self::publisher(&publisher)?;
        // SAFETY: `crossdock.h` requires a valid list.
        let attributes = unsafe { values::attributes(attributes, attribute_count) };
        let attributes = attributes.inspect_err(|_| publisher.give_up_step())?;
        let number = publisher.publish(&attributes)?;
        if let Some(sequence) = sequence {
            // SAFETY: `crossdock.h` requires writable memory.
            unsafe { sequence.set(number) };
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn crossdock_publisher_begin(publisher: u64) -> i32 {
    call(|| self::publisher(&publisher)?.begin())
}

#[unsafe(no_mangle)]
extern "C" fn crossdock_publisher_abandon(publisher: u64) -> i32 {
    call(|| self::publisher(&publisher)?.abandon())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_publisher_statistics_get(
    publisher: u64,
    statistics: *mut plain::PublisherStatistics,
) -> i32 {
    call(|| {
        let statistics = out(statistics, "statistics")?;
        let publisher = self::publisher(&publisher)?;
        let s = publisher.statistics();
        let copy = plain::PublisherStatistics {
            versions: s.published,
            chunk: s.chunk.into(),
            withheld: s.withheld,
            slots_used: s.slots.0.into(),
            slots_reserved: s.slots.1.into(),
            copied: s.copied,
            shared: s.shared,
            last_ns: u64::try_from(s.last.as_nanos()).unwrap_or(u64::MAX),
            longest_ns: u64::try_from(s.longest.as_nanos()).unwrap_or(u64::MAX),
            no_space: s.no_space,
            taken_back: s.taken_back,
            method: s.method as u64,
        };
        // SAFETY: `crossdock.h` requires writable memory.
        unsafe { statistics.set(copy) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn crossdock_publisher_end(publisher: u64) -> i32 {
    call(|| self::publisher(&publisher)?.end_mut())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_series_remove(session: u64, name: *const c_char) -> i32 {
    // SAFETY: `crossdock.h` requires zero-terminated text.
    call(|| self::session(session)?.remove_series(unsafe { text(name, "series' name")? }))
}

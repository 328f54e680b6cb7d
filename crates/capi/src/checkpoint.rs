//! The C functions for checkpoints, and for names to which a rank is appended.

use std::ffi::{c_char, c_void};
use std::path::Path;

use crossdock_checkpoint::{Checkpoint, Restart, Stored, Value, base_of, restart};
use crossdock_client::{Error, Publisher, Result, Status};

use crate::arguments::{copy_text, optional_text, out, text};
use crate::error::{call, invalid};
use crate::references::{ReferenceGuard, Table};

/// An open checkpoint. Calls that name no series use `series`: the series of the publisher that was restarted from the
/// checkpoint, or "" for the checkpoint's only series.
struct Opened {
    found: Restart,
    series: String,
}

static CHECKPOINTS: Table<Opened> = Table::new(15, "checkpoint", Status::Closed);

fn checkpoint(reference: u64) -> Result<ReferenceGuard<'static, Opened>> {
    CHECKPOINTS.hold(reference)
}

impl Opened {
    fn meant<'a>(&'a self, series: &'a str) -> &'a str {
        if series.is_empty() { &self.series } else { series }
    }
}

/// The C struct `crossdock_checkpoint_variable`.
#[repr(C)]
struct VariableInfo {
    type_name: [u8; 192],
    bytes: u64,
    shape: [u64; 8],
    rank: u32,
    reserved: u32,
}

const _: () = assert!(size_of::<VariableInfo>() == 272);

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_checkpoint_restart(folder: *const c_char, name: *const c_char, place: *mut u64) -> i32 {
    call(|| {
        let place = out(place, "checkpoint")?;
        // SAFETY: `crossdock.h` requires zero-terminated texts, and NULL for no name.
        let (folder, name) = unsafe { (text(folder, "folder")?, optional_text(name, "name")?) };
        let found = restart(Path::new(folder), name.unwrap_or(""))?;
        let opened = Opened { found, series: String::new() };
        // SAFETY: `crossdock.h` requires writable memory.
        unsafe { place.set(CHECKPOINTS.insert(opened)?) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_checkpoint_open(path: *const c_char, place: *mut u64) -> i32 {
    call(|| {
        let place = out(place, "checkpoint")?;
        // SAFETY: `crossdock.h` requires a zero-terminated text.
        let path = unsafe { text(path, "path")? };
        let checkpoint = Checkpoint::open(Path::new(path))?;
        checkpoint.verify()?;
        let opened = Opened { found: Restart { checkpoint, skipped: Vec::new() }, series: String::new() };
        // SAFETY: `crossdock.h` requires writable memory.
        unsafe { place.set(CHECKPOINTS.insert(opened)?) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn crossdock_checkpoint_ref(reference: u64) -> i32 {
    call(|| CHECKPOINTS.add(reference))
}

#[unsafe(no_mangle)]
extern "C" fn crossdock_checkpoint_unref(reference: u64) -> i32 {
    call(|| CHECKPOINTS.remove(reference))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_checkpoint_path(reference: u64, buffer: *mut c_char, size: usize) -> i32 {
    // SAFETY: `crossdock.h` requires a buffer of that size.
    call(|| unsafe { copy_text(&checkpoint(reference)?.found.checkpoint.path().to_string_lossy(), buffer, size) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_checkpoint_skipped(
    reference: u64,
    count: *mut u32,
    buffer: *mut c_char,
    size: usize,
) -> i32 {
    call(|| {
        let count = out(count, "count")?;
        let found = &checkpoint(reference)?.found;
        if !buffer.is_null() {
            let mut lines: String = found.skipped.iter().map(|(_, why)| format!("{why}\n")).collect();
            // Lines are cut off at the end of the text until the remaining lines fit into the buffer.
            while !lines.is_empty() && lines.len() >= size {
                lines.pop();
            }
            // SAFETY: `crossdock.h` requires a buffer of that size.
            unsafe { copy_text(lines.trim_end(), buffer, size)? };
        }
        // SAFETY: `crossdock.h` requires writable memory.
        unsafe { count.set(found.skipped.len() as u32) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_checkpoint_sequence(reference: u64, series: *const c_char, sequence: *mut u64) -> i32 {
    call(|| {
        let sequence = out(sequence, "sequence")?;
        // SAFETY: `crossdock.h` requires a zero-terminated text or NULL.
        let series = unsafe { optional_text(series, "series")? }.unwrap_or("");
        let opened = checkpoint(reference)?;
        let value = opened.found.checkpoint.sequence(opened.meant(series))?;
        // SAFETY: `crossdock.h` requires writable memory.
        unsafe { sequence.set(value) };
        Ok(())
    })
}

/// Gets an attribute of a series in the checkpoint, with the name of the attribute.
///
/// # Safety
/// `series` and `name` must be zero-terminated; `series` may be NULL.
unsafe fn attribute(reference: u64, series: *const c_char, name: *const c_char) -> Result<(Value, String)> {
    // SAFETY: the caller promises that `series` and `name` are zero-terminated, and that only `series` may be NULL.
    let (series, name) = unsafe { (optional_text(series, "series")?.unwrap_or(""), text(name, "attribute")?) };
    let opened = checkpoint(reference)?;
    Ok((opened.found.checkpoint.attribute(opened.meant(series), name)?, name.to_owned()))
}

fn wrong(name: &str, value: &Value, wanted: &str) -> Error {
    Error::new(Status::WrongType, format!("attribute {name} is {value:?}, not {wanted}"))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_checkpoint_integer(
    reference: u64,
    series: *const c_char,
    name: *const c_char,
    value: *mut i64,
) -> i32 {
    call(|| {
        let place = out(value, "value")?;
        // SAFETY: `crossdock.h` requires zero-terminated texts.
        let (value, name) = unsafe { attribute(reference, series, name)? };
        let number = match value {
            Value::I64(n) => Some(n),
            Value::U64(n) => i64::try_from(n).ok(),
            Value::F64(_) | Value::Text(_) => None,
        };
        // SAFETY: `crossdock.h` requires writable memory.
        unsafe { place.set(number.ok_or_else(|| wrong(&name, &value, "a whole number of 64 bits"))?) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_checkpoint_real(
    reference: u64,
    series: *const c_char,
    name: *const c_char,
    value: *mut f64,
) -> i32 {
    call(|| {
        let place = out(value, "value")?;
        // SAFETY: `crossdock.h` requires zero-terminated texts.
        let (value, name) = unsafe { attribute(reference, series, name)? };
        let number = match value {
            Value::F64(x) => x,
            Value::I64(n) => n as f64,
            Value::U64(n) => n as f64,
            Value::Text(_) => return Err(wrong(&name, &value, "a number")),
        };
        // SAFETY: `crossdock.h` requires writable memory.
        unsafe { place.set(number) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_checkpoint_text(
    reference: u64,
    series: *const c_char,
    name: *const c_char,
    buffer: *mut c_char,
    size: usize,
) -> i32 {
    call(|| {
        // SAFETY: `crossdock.h` requires zero-terminated texts.
        let (value, _) = unsafe { attribute(reference, series, name)? };
        // SAFETY: `crossdock.h` requires a buffer of that size.
        unsafe { copy_text(&value.to_string(), buffer, size) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_checkpoint_variable_info(
    reference: u64,
    series: *const c_char,
    name: *const c_char,
    info: *mut c_void,
) -> i32 {
    call(|| {
        let place = out(info.cast::<VariableInfo>(), "variable")?;
        // SAFETY: `crossdock.h` requires that each text ends with a zero byte. `series` may be NULL, which stands for
        // the only series of the checkpoint.
        let (series, name) = unsafe { (optional_text(series, "series")?.unwrap_or(""), text(name, "variable")?) };
        let opened = checkpoint(reference)?;
        let stored = opened.found.checkpoint.variable(opened.meant(series), name)?;
        let mut info = VariableInfo { type_name: [0; 192], bytes: stored.bytes, shape: [0; 8], rank: 0, reserved: 0 };
        let (text, rank) = (stored.type_name.as_bytes(), stored.shape.len());
        if text.len() > 191 || rank > 8 {
            return Err(invalid(format!("{name} has {rank} dimensions; 8 is the most here")));
        }
        info.type_name[..text.len()].copy_from_slice(text);
        info.shape[..rank].copy_from_slice(&stored.shape);
        info.rank = rank as u32;
        // SAFETY: `crossdock.h` requires a writable struct.
        unsafe { place.set(info) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_checkpoint_read(
    reference: u64,
    series: *const c_char,
    name: *const c_char,
    into: *mut c_void,
    bytes: usize,
) -> i32 {
    call(|| {
        // SAFETY: `crossdock.h` requires that each text ends with a zero byte. `series` may be NULL, which stands for
        // the only series of the checkpoint.
        let (series, name) = unsafe { (optional_text(series, "series")?.unwrap_or(""), text(name, "variable")?) };
        if into.is_null() && bytes > 0 {
            return Err(invalid("the memory to read into is NULL"));
        }
        let into = if bytes == 0 { std::ptr::NonNull::<u8>::dangling().as_ptr() } else { into.cast() };
        // SAFETY: `crossdock.h` requires memory of so many bytes that no other thread uses during the call.
        let into = unsafe { std::slice::from_raw_parts_mut(into, bytes) };
        let opened = checkpoint(reference)?;
        opened.found.checkpoint.read(opened.meant(series), name, into)
    })
}

/// Checks that the publisher has the stored variable with the same type, and that its array can get the stored shape.
fn fits(publisher: &Publisher, stored: &Stored) -> Result<()> {
    // The status must not be NOT_FOUND, because NOT_FOUND tells the program that it starts for the first time.
    let declared = publisher.type_name(&stored.name).map_err(|e| invalid(e.to_string()))?;
    if declared != stored.type_name {
        let text = format!("variable '{}' is {declared}, and the checkpoint holds {}", stored.name, stored.type_name);
        return Err(Error::new(Status::WrongType, text));
    }
    publisher.check_shape(&stored.name, &publisher.c_shape(&stored.name, &stored.shape)?)
}

/// The bytes of a variable.
fn contents<'a>(publisher: &'a mut Publisher, variable: &str) -> Result<&'a mut [u8]> {
    let (start, bytes) = (publisher.memory(variable)?, publisher.bytes(variable)?);
    // SAFETY: the variable has this number of bytes. The caller has the only reference to the publisher, because it
    // holds the lock that other calls of the library need, and `crossdock.h` forbids the program to use the arrays
    // during the call.
    Ok(unsafe { std::slice::from_raw_parts_mut(start, bytes as usize) })
}

/// Gives the arrays of a publisher their stored shapes, or none of them if the kernel refuses memory for one.
///
/// Arrays that grow come first, because an array that has grown gets its former shape back without a loss, and because
/// the kernel refuses to make an array smaller only if its pages may move. If it refuses that for a second array, the
/// elements that the first one lost are zero afterwards.
fn resize(publisher: &mut Publisher, stored: &[Stored]) -> Result<()> {
    let mut former = Vec::new();
    let mut resize_those_that = |grow: bool| {
        for stored in stored {
            let (name, shape) = (&stored.name, publisher.c_shape(&stored.name, &stored.shape)?);
            let before = publisher.shape(name)?.to_vec();
            if before != shape && (stored.bytes > publisher.bytes(name)?) == grow {
                publisher.resize(name, &shape)?;
                former.push((name, before));
            }
        }
        Ok(())
    };
    let resized = resize_those_that(true).and_then(|()| resize_those_that(false));
    if resized.is_err() {
        for (name, shape) in former {
            // The variable has had memory for this shape before, so the kernel is not asked for any.
            let _ = publisher.resize(name, &shape);
        }
    }
    resized
}

/// Fills the arrays of a publisher from the newest undamaged checkpoint of its series.
fn fill(publisher: &mut Publisher, series: &str, folder: &Path) -> Result<Restart> {
    let found = restart(folder, &base_of(series))?;
    if !found.checkpoint.series().any(|name| name == series) {
        let held: Vec<&str> = found.checkpoint.series().collect();
        let (path, held) = (found.checkpoint.path().display(), held.join(", "));
        return Err(invalid(format!("{path} holds {held}, not {series}: is it of another number of ranks?")));
    }
    let stored = found.checkpoint.variables(series)?;
    // Nothing is changed before all arrays are known to fit, and no array is filled before all have room.
    stored.iter().try_for_each(|stored| fits(publisher, stored))?;
    resize(publisher, stored)?;
    for stored in stored {
        let into = contents(publisher, &stored.name)?;
        found.checkpoint.read(series, &stored.name, into)?;
        publisher.touched(&stored.name, 0..stored.bytes)?;
    }
    Ok(found)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_publisher_restart(publisher: u64, folder: *const c_char, place: *mut u64) -> i32 {
    call(|| {
        let place = if place.is_null() { None } else { Some(out(place, "checkpoint")?) };
        // SAFETY: `crossdock.h` requires a zero-terminated text.
        let folder = unsafe { text(folder, "folder")? };
        let mut publisher = crate::publisher::publisher(&publisher)?;
        let series = publisher.name().to_owned();
        let found = fill(&mut publisher, &series, Path::new(folder))?;
        if let Some(place) = place {
            // SAFETY: `crossdock.h` requires NULL or writable memory.
            unsafe { place.set(CHECKPOINTS.insert(Opened { found, series })?) };
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_ranked_name(base: *const c_char, rank: i64, buffer: *mut c_char, size: usize) -> i32 {
    call(|| {
        // SAFETY: `crossdock.h` requires a zero-terminated text.
        let base = unsafe { text(base, "name")? };
        let rank = match rank {
            -1 => None,
            n => Some(u32::try_from(n).map_err(|_| invalid(format!("rank is {n}; it is -1 or 0 to 2^32 - 1")))?),
        };
        // SAFETY: `crossdock.h` requires a buffer of that size.
        unsafe { copy_text(&crossdock_client::ranked(base, rank)?, buffer, size) }
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crossdock_checkpoint::{Contents, Folder, Series, Variable as Saved};
    use crossdock_client::{SeriesOptions, Variable};
    use crossdock_core::host::StandaloneHost;
    use crossdock_core::series::Identity;

    use super::*;

    fn publisher(variables: Vec<Variable>) -> Publisher {
        let spec = SeriesOptions { variables, chunk: Some(4096), ..SeriesOptions::default() };
        Publisher::create(Identity::alone("field"), &spec, Arc::new(StandaloneHost::default())).unwrap().0
    }

    /// Saves a checkpoint of the series `field`. Each variable is given by its name, type and shape. Every byte of
    /// every variable is 7.
    fn saved(variables: &[(&str, &str, &[u64])]) -> tempfile::TempDir {
        let (folder, bytes) = (tempfile::tempdir().unwrap(), [7; 1 << 16]);
        let variable = |(name, ty, shape): &(&str, &str, &[u64])| {
            let (element, _) = crossdock_layout::type_name::Type::parse(ty).unwrap().size_and_align().unwrap();
            let bytes = &bytes[..(shape.iter().product::<u64>() * element) as usize];
            Saved { name: (*name).into(), type_name: (*ty).into(), shape: shape.to_vec(), constants: vec![], bytes }
        };
        let variables = variables.iter().map(variable).collect();
        let series = Series { name: "field".into(), sequence: 1, time_ns: 1, attributes: vec![], variables };
        let mut checkpoints = Folder::open(folder.path(), "field", &mut |_| {}).unwrap();
        checkpoints.save(&Contents { attributes: vec![], series: vec![series] }, &|| true).unwrap();
        folder
    }

    fn bytes<'a>(publisher: &'a Publisher, variable: &str) -> &'a [u8] {
        let (start, length) = (publisher.memory(variable).unwrap(), publisher.bytes(variable).unwrap());
        // SAFETY: the variable has this number of bytes, and nothing changes them while the publisher is borrowed.
        unsafe { std::slice::from_raw_parts(start, length as usize) }
    }

    #[test]
    fn a_restart_fills_and_resizes_all_stored_arrays() {
        let folder = saved(&[("u", "f64", &[3, 2]), ("pair", "{i32,f32}", &[4])]);
        let growing = Variable { max_shape: vec![5, 2], ..Variable::new("u", "f64", &[2, 2]) };
        let mut field = publisher(vec![growing, Variable::new("pair", "{i32,f32}", &[4])]);
        fill(&mut field, "field", folder.path()).unwrap();
        assert_eq!((field.shape("u").unwrap(), bytes(&field, "u")), ([3, 2].as_slice(), [7; 48].as_slice()));
        assert_eq!(bytes(&field, "pair"), [7; 32]);
    }

    #[test]
    fn a_variable_in_fortran_order_is_filled_from_its_reversed_extents() {
        let folder = saved(&[("u", "f64", &[3, 2])]);
        let order = crossdock_client::Order::Fortran;
        let growing = Variable { order, max_shape: vec![3, 3], ..Variable::new("u", "f64", &[2, 2]) };
        let mut field = publisher(vec![growing]);
        fill(&mut field, "field", folder.path()).unwrap();
        assert_eq!((field.shape("u").unwrap(), bytes(&field, "u")), ([2, 3].as_slice(), [7; 48].as_slice()));
    }

    #[test]
    fn a_restart_that_does_not_fit_changes_nothing() {
        let mut field = publisher(vec![
            Variable { max_shape: vec![20], ..Variable::new("a", "f64", &[10]) },
            Variable::new("mask", "i32", &[10]),
        ]);
        for (mask, shape, status) in [
            ("f32", [10].as_slice(), Status::WrongType),
            ("i32", &[11], Status::Invalid),
            ("i32", &[5, 2], Status::Invalid),
        ] {
            let folder = saved(&[("a", "f64", &[12]), ("mask", mask, shape)]);
            let error = fill(&mut field, "field", folder.path()).unwrap_err();
            assert_eq!(error.status, status, "{error}");
            assert!(error.to_string().contains("mask"), "{error}");
            assert_eq!((field.shape("a").unwrap(), bytes(&field, "a")), ([10].as_slice(), [0; 80].as_slice()));
            assert_eq!(bytes(&field, "mask"), [0; 40]);
        }
        let folder = saved(&[("a", "f64", &[12]), ("zeta", "f64", &[1])]);
        assert_eq!(fill(&mut field, "field", folder.path()).unwrap_err().status, Status::Invalid);
        assert_eq!(bytes(&field, "a"), [0; 80]);
    }

    #[cfg(feature = "faults")]
    #[test]
    fn a_restart_that_fails_for_want_of_memory_changes_no_array() {
        let folder = saved(&[("a", "f64", &[2000]), ("b", "f64", &[10]), ("c", "f64", &[3000])]);
        let variable = |name: &str, shape| Variable { max_shape: vec![3000], ..Variable::new(name, "f64", &[shape]) };
        let mut refused = 0;
        crossdock_os::faults::each_call_fails(|attempt| {
            let mut field = publisher(vec![variable("a", 1000), variable("b", 600), variable("c", 1000)]);
            for name in ["a", "b", "c"] {
                contents(&mut field, name).unwrap().fill(1);
            }
            attempt.arm();
            let filled = fill(&mut field, "field", folder.path());
            let failed = attempt.disarm();
            if matches!(failed, Some(("mmap", _))) {
                assert_eq!(filled.map(drop).unwrap_err().status, Status::NoSpace);
                for (name, length) in [("a", 1000), ("b", 600), ("c", 1000)] {
                    assert_eq!(field.shape(name).unwrap(), [length]);
                    assert!(bytes(&field, name).iter().all(|byte| *byte == 1), "{name}");
                }
                refused += 1;
            }
        });
        assert_eq!(refused, 2, "a and c need memory");
    }
}

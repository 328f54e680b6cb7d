//! The C functions for regions, raw allocation and handles.

use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crossdock_client::{Error, Handle, Mode, Region, Result, Status, at_base, with_base};

use crate::arguments::{choice_from_0, copy_text, optional_wait, out, text, wait};
use crate::error::{call, invalid};
use crate::plain;
use crate::references::Table;
use crate::session::session;

static REGIONS: Table<Region> = Table::new(2, "region", Status::Closed);

/// Gives the region that a reference refers to. The region is borrowed from the argument of the call, so it cannot be
/// used after the call.
#[inline]
pub(crate) fn region(reference: &u64) -> Result<&Region> {
    // SAFETY: `crossdock.h` requires that a reference lasts as long as the call to which it is given. No function of
    // this file keeps the value after its call. No code calls `close` on this table: a region cannot be closed, and a
    // program can only give up its references.
    unsafe { REGIONS.peek(*reference) }
}

/// Makes a new reference to a region. Each mapping has one slot in the table, however often the region is opened.
pub(crate) fn refer(region: Region) -> Result<u64> {
    let known = region.tag().load(Ordering::Acquire);
    // The table's slot may belong to another region by now, so the region in the slot is compared with this one.
    let same = known != 0 && REGIONS.hold(known).is_ok_and(|held| Arc::ptr_eq(&held, &region));
    if same && REGIONS.add(known).is_ok() {
        return Ok(known);
    }
    let mapped = region.clone();
    let reference = REGIONS.insert(region)?;
    mapped.tag().store(reference, Ordering::Release);
    Ok(reference)
}

/// Runs `work` on the region that is mapped at `base`. The thread remembers the region of its last call, so a further
/// call with the same `base` is faster.
fn at<R>(base: *const c_void, work: impl FnOnce(&Region) -> Result<R>) -> Result<R> {
    with_base(base.cast(), work).unwrap_or_else(|| Err(nothing_mapped(base)))
}

/// Converts the number that a mode has in the C header to the mode.
pub(crate) fn mode(number: u32) -> Result<Mode> {
    choice_from_0(number, "mode", "crossdock_mode")
}

/// Converts an address to an offset from the start of the region. Fails unless all `bytes` bytes at the address lie in
/// the region.
pub(crate) fn offset_of(region: &Region, address: *const c_void, bytes: u64) -> Result<u64> {
    let offset = (address as u64).wrapping_sub(region.base() as u64);
    // Offset 0 is the header of the region, where no object can be.
    if address.is_null() || offset == 0 || offset.checked_add(bytes).is_none_or(|end| end > region.capacity()) {
        return Err(invalid(format!("{address:p} is not in region '{}'", region.name())));
    }
    Ok(offset)
}

/// Converts an offset in the region to an address in this process.
pub(crate) fn address_of(region: &Region, offset: u64) -> *mut c_void {
    region.base().wrapping_add(offset as usize).cast()
}

fn nothing_mapped(base: *const c_void) -> Error {
    Error::new(Status::NotFound, format!("no region of this process is mapped at {base:p}"))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_region_open(
    session: u64,
    name: *const c_char,
    mode: u32,
    size: u64,
    timeout_ms: i64,
    region: *mut u64,
) -> i32 {
    call(|| {
        let region = out(region, "region")?;
        // SAFETY: `crossdock.h` requires zero-terminated text.
        let name = unsafe { text(name, "region's name")? };
        let opened = self::session(session)?.region(name, self::mode(mode)?, size, optional_wait(timeout_ms)?)?;
        let reference = refer(opened)?;
        // SAFETY: `crossdock.h` requires writable memory.
        unsafe { region.set(reference) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_region_copy(
    session: u64,
    name: *const c_char,
    copy: *const c_char,
    timeout_ms: i64,
    region: *mut u64,
) -> i32 {
    call(|| {
        let region = out(region, "region")?;
        // SAFETY: `crossdock.h` requires zero-terminated text.
        let (name, copy) = unsafe { (text(name, "region's name")?, text(copy, "name of the copy")?) };
        let reference = refer(self::session(session)?.copy_region(name, copy, wait(timeout_ms)?)?)?;
        // SAFETY: `crossdock.h` requires writable memory.
        unsafe { region.set(reference) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_region_move(
    session: u64,
    name: *const c_char,
    timeout_ms: i64,
    region: *mut u64,
) -> i32 {
    call(|| {
        let region = out(region, "region")?;
        // SAFETY: `crossdock.h` requires zero-terminated text.
        let name = unsafe { text(name, "region's name")? };
        let reference = refer(self::session(session)?.move_region(name, wait(timeout_ms)?)?)?;
        // SAFETY: `crossdock.h` requires writable memory.
        unsafe { region.set(reference) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_region_of(session: u64, handle: Handle, region: *mut u64) -> i32 {
    call(|| {
        let region = out(region, "region")?;
        let reference = refer(self::session(session)?.region_of(handle)?)?;
        // SAFETY: `crossdock.h` requires writable memory.
        unsafe { region.set(reference) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_region_at(base: *const c_void, region: *mut u64) -> i32 {
    call(|| {
        let region = out(region, "region")?;
        let reference = refer(at_base(base.cast()).ok_or_else(|| nothing_mapped(base))?)?;
        // SAFETY: `crossdock.h` requires writable memory.
        unsafe { region.set(reference) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn crossdock_region_ref(region: u64) -> i32 {
    call(|| REGIONS.add(region))
}

#[unsafe(no_mangle)]
extern "C" fn crossdock_region_unref(region: u64) -> i32 {
    call(|| REGIONS.remove(region))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_region_remove(session: u64, name: *const c_char) -> i32 {
    // SAFETY: `crossdock.h` requires zero-terminated text.
    call(|| self::session(session)?.remove_region(unsafe { text(name, "region's name")? }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_region_name(region: u64, buffer: *mut c_char, buffer_size: usize) -> i32 {
    // SAFETY: `crossdock.h` requires a buffer of that size.
    call(|| unsafe { copy_text(self::region(&region)?.name(), buffer, buffer_size) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_region_id(region: u64, segment: *mut u64) -> i32 {
    call(|| {
        let segment = out(segment, "segment id")?;
        // SAFETY: `crossdock.h` requires writable memory.
        unsafe { segment.set(self::region(&region)?.id().0) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_region_base(region: u64, base: *mut *mut c_void, capacity: *mut u64) -> i32 {
    call(|| {
        let (base, capacity) = (out(base, "base")?, out(capacity, "capacity")?);
        let region = self::region(&region)?;
        // SAFETY: `crossdock.h` requires writable places.
        unsafe {
            base.set(region.base().cast());
            capacity.set(region.capacity());
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_region_writable(region: u64, writable: *mut c_int) -> i32 {
    call(|| {
        let writable = out(writable, "answer")?;
        // SAFETY: `crossdock.h` requires writable memory.
        unsafe { writable.set(c_int::from(self::region(&region)?.writable())) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_region_statistics_get(region: u64, statistics: *mut plain::RegionStatistics) -> i32 {
    call(|| {
        let statistics = out(statistics, "statistics")?;
        let s = self::region(&region)?.statistics();
        let copy = plain::RegionStatistics {
            capacity: s.capacity,
            reserved: s.reserved,
            used: s.used,
            blocks: s.blocks,
            objects: s.objects,
            slots: s.slots,
            largest_free: s.largest_free,
            unused: 0,
        };
        // SAFETY: `crossdock.h` requires writable memory.
        unsafe { statistics.set(copy) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_region_heal(region: u64, report: *mut plain::HealReport) -> i32 {
    call(|| {
        let place = if report.is_null() { None } else { Some(out(report, "report")?) };
        let r = self::region(&region)?.heal()?;
        if let Some(place) = place {
            // SAFETY: `crossdock.h` requires NULL or writable memory.
            unsafe { place.set(plain::HealReport { slots: r.slots, operations: r.operations, objects: r.objects }) };
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_allocate(region: u64, size: u64, align: u64, address: *mut *mut c_void) -> i32 {
    call(|| {
        let address = out(address, "address")?;
        let region = self::region(&region)?;
        let offset = region.allocate(size, align)?;
        // SAFETY: `crossdock.h` requires writable memory.
        unsafe { address.set(address_of(region, offset)) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_prepare(region: u64, size: u64, align: u64, address: *mut *mut c_void) -> i32 {
    call(|| {
        let address = out(address, "address")?;
        let region = self::region(&region)?;
        let offset = region.prepare(size, align)?;
        // SAFETY: `crossdock.h` requires writable memory.
        unsafe { address.set(address_of(region, offset)) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn crossdock_keep(region: u64, address: *mut c_void) -> i32 {
    call(|| {
        let region = self::region(&region)?;
        region.keep(offset_of(region, address, 1)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn crossdock_deallocate(region: u64, address: *mut c_void) -> i32 {
    call(|| {
        let region = self::region(&region)?;
        if address.is_null() { Ok(()) } else { region.deallocate(offset_of(region, address, 1)?) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_allocate_at(
    base: *const c_void,
    size: u64,
    align: u64,
    address: *mut *mut c_void,
) -> i32 {
    // Containers such as lists and maps call this function for each element that they add, so it must be fast. The code
    // up to the first `return` need not run inside `call`, because nothing in it fails or panics.
    if !address.is_null() && address.is_aligned() {
        if let Some(found) = crossdock_client::allocate_at(base.cast(), size, align) {
            // SAFETY: `crossdock.h` requires writable memory; the pointer was checked for NULL and alignment.
            unsafe { address.write(found.cast()) };
            return Status::Ok as i32;
        }
    }
    allocate_at_slowly(base, size, align, address)
}

#[cold]
#[inline(never)]
fn allocate_at_slowly(base: *const c_void, size: u64, align: u64, address: *mut *mut c_void) -> i32 {
    call(|| {
        let address = out(address, "address")?;
        let found = at(base, |region| region.allocate(size, align).map(|offset| address_of(region, offset)))?;
        // SAFETY: `crossdock.h` requires writable memory.
        unsafe { address.set(found) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn crossdock_deallocate_at(base: *const c_void, address: *mut c_void) -> i32 {
    if crossdock_client::deallocate_at(base.cast(), address.cast()) {
        return Status::Ok as i32;
    }
    deallocate_at_slowly(base, address)
}

#[cold]
#[inline(never)]
fn deallocate_at_slowly(base: *const c_void, address: *mut c_void) -> i32 {
    call(|| {
        if address.is_null() {
            return Ok(());
        }
        at(base, |region| region.deallocate(offset_of(region, address, 1)?))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_replace(
    region: u64,
    header: *mut c_void,
    words: *const u64,
    word_count: u32,
    new_block: *mut c_void,
    old_block: *mut c_void,
) -> i32 {
    call(|| {
        if words.is_null() || !words.is_aligned() || !(1..=16).contains(&word_count) {
            return Err(invalid(format!("{word_count} words at {words:p}; 1 to 16 are needed")));
        }
        let region = self::region(&region)?;
        let header = offset_of(region, header, u64::from(word_count) * 8)?;
        let block = |b: *mut c_void| if b.is_null() { Ok(0) } else { offset_of(region, b, 1) };
        // SAFETY: the pointer was checked for NULL and alignment; `crossdock.h` requires `word_count` readable words.
        let words = unsafe { std::slice::from_raw_parts(words, word_count as usize) };
        region.replace(header, words, block(new_block)?, block(old_block)?)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_handle_save(region: u64, address: *const c_void, handle: *mut Handle) -> i32 {
    call(|| {
        let handle = out(handle, "handle")?;
        let region = self::region(&region)?;
        let saved = region.save(offset_of(region, address, 1)?)?;
        // SAFETY: `crossdock.h` requires writable memory.
        unsafe { handle.set(saved) };
        Ok(())
    })
}

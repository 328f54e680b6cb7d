//! The C functions for named objects, and for objects that handles refer to.

use std::ffi::c_char;

use crossdock_client::{Claim, Error, Handle, Mode, ObjectInfo, ObjectMode, Region, Result, Status, TypeRef};
use crossdock_layout::type_name;

use crate::arguments::{optional_wait, out, read, text};
use crate::error::{call, call_in_use, invalid};
use crate::plain;
use crate::region::{address_of, mode, offset_of, refer, region};
use crate::session::session;

/// Parses the name of a type. Its size and alignment follow from the name.
pub(crate) fn type_of(name: &str) -> Result<(type_name::Type, TypeRef)> {
    let parsed = type_name::Type::parse(name).map_err(|e| invalid(e.to_string()))?;
    let (size, align) = parsed.size_and_align().ok_or_else(|| {
        invalid(format!("the size of type '{name}' does not follow from its name; say it (crossdock_type)"))
    })?;
    Ok((parsed, TypeRef { name: name.into(), size, align }))
}

/// Reads the type that the caller gave. NULL gives an error.
///
/// # Safety
/// `ty` must be NULL or point to a type whose name is NULL or zero-terminated.
unsafe fn type_in(ty: *const plain::Type) -> Result<TypeRef> {
    // SAFETY: the caller promises that `ty` is NULL or a type whose name is NULL or zero-terminated.
    let given = unsafe { read(ty, "type")? };
    // SAFETY: the caller promises that the texts in the struct are zero-terminated.
    let name = unsafe { text(given.name, "type's name")? };
    if given.size == 0 {
        return type_of(name).map(|(_, ty)| ty);
    }
    let parsed = type_name::Type::parse(name).map_err(|e| invalid(e.to_string()))?;
    if !given.align.is_power_of_two() {
        return Err(invalid(format!("the alignment of type '{name}' is {}, which is no power of two", given.align)));
    }
    match parsed.size_and_align() {
        Some(known) if known != (given.size, given.align) => Err(invalid(format!(
            "type '{name}' has {} bytes aligned to {}, not {} aligned to {}",
            known.0, known.1, given.size, given.align
        ))),
        _ => Ok(TypeRef { name: name.into(), size: given.size, align: given.align }),
    }
}

/// Finds or makes an object. `Recreate` removes the old object and makes a new one, to which the caller will give
/// `contents` bytes of elements. If another task makes an object of this name in between, the call tries again.
pub(crate) fn claim(
    region: &Region,
    name: &str,
    ty: &TypeRef,
    contents: u64,
    how: Mode,
    timeout_ms: i64,
) -> Result<Claim> {
    let timeout = optional_wait(timeout_ms)?;
    let how = match how {
        Mode::CreateOnly => ObjectMode::CreateOnly,
        // Without a timeout, a call that only opens an object waits neither for the object to be made nor for its
        // constructor to end.
        Mode::OpenOnly => return region.claim(name, ty, ObjectMode::OpenOnly, Some(timeout.unwrap_or_default())),
        Mode::OpenOrCreate => ObjectMode::OpenOrCreate,
        Mode::Recreate => {
            region.check_new(name, ty, contents)?;
            for _ in 0..100 {
                match region.remove(name) {
                    Err(e) if e.status != Status::NotFound => return Err(e),
                    _ => {}
                }
                match region.claim(name, ty, ObjectMode::CreateOnly, timeout) {
                    Err(e) if e.status == Status::Exists => {}
                    other => return other,
                }
            }
            return Err(Error::new(
                Status::Busy,
                format!("object '{name}' of region '{}': others make it anew all the time", region.name()),
            ));
        }
    };
    region.claim(name, ty, how, timeout)
}

/// Tells whether a value of this type contains a vector, a string or an ndarray.
fn grows(ty: &type_name::Type) -> bool {
    match ty {
        type_name::Type::Vector(_) | type_name::Type::String | type_name::Type::Ndarray(_) => true,
        type_name::Type::Array(of, _) => grows(of),
        type_name::Type::Struct(fields) => fields.iter().any(grows),
        type_name::Type::Scalar(..) | type_name::Type::Opaque(_) => false,
    }
}

/// Calls `found` with the offset of the header of each vector, string and ndarray in an object of this type. Offsets
/// count from the start of the object.
fn headers(ty: &type_name::Type, at: u64, found: &mut dyn FnMut(u64)) {
    match ty {
        type_name::Type::Vector(_) | type_name::Type::String | type_name::Type::Ndarray(_) => found(at),
        type_name::Type::Array(of, n) => {
            // If the elements contain no containers, the array is skipped. It may have millions of numbers.
            if let (true, Some((size, _))) = (grows(of), of.size_and_align()) {
                (0..*n).for_each(|i| headers(of, at + i * size, found));
            }
        }
        type_name::Type::Struct(fields) => {
            type_name::with_offsets(fields).for_each(|(offset, field)| headers(field, at + offset, found));
        }
        type_name::Type::Scalar(..) | type_name::Type::Opaque(_) => {}
    }
}

/// Finds or makes an object that is ready to use: its containers point to their region.
pub(crate) fn open(
    region: &Region,
    name: &str,
    type_name: &str,
    how: Mode,
    timeout_ms: i64,
) -> Result<(Claim, TypeRef)> {
    let (parsed, ty) = type_of(type_name)?;
    let claim = claim(region, name, &ty, 0, how, timeout_ms)?;
    if claim.created {
        headers(&parsed, claim.offset, &mut |at| {
            // The header of a vector, a string or an ndarray begins with the self-relative pointer to the start of the
            // region. SAFETY: the field lies in an object that was claimed just now, so no other member sees the field
            // yet. The object's type aligns it to 8 bytes.
            unsafe { address_of(region, at).cast::<i64>().write(-(at as i64)) }
        });
        region.commit_or_abandon(claim.offset)?;
    }
    Ok((claim, ty))
}

fn object(region: &Region, offset: u64, size: u64, created: bool) -> plain::Object {
    plain::Object {
        address: address_of(region, offset),
        handle: Handle::new(region.id(), offset),
        size,
        created: u32::from(created),
        reserved: 0,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_type_layout(name: *const c_char, size: *mut u64, align: *mut u32) -> i32 {
    call(|| {
        let (size, align) = (out(size, "size")?, out(align, "alignment")?);
        // SAFETY: `crossdock.h` requires zero-terminated text.
        let (_, ty) = type_of(unsafe { text(name, "type's name")? })?;
        // SAFETY: `crossdock.h` requires writable places.
        unsafe {
            size.set(ty.size);
            align.set(ty.align);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_object_open(
    region: u64,
    name: *const c_char,
    type_name: *const c_char,
    mode: u32,
    timeout_ms: i64,
    object: *mut plain::Object,
) -> i32 {
    call(|| {
        let place = out(object, "object")?;
        // SAFETY: `crossdock.h` requires zero-terminated texts.
        let (name, type_name) = unsafe { (text(name, "object's name")?, text(type_name, "type's name")?) };
        let region = self::region(&region)?;
        let (claim, ty) = open(region, name, type_name, self::mode(mode)?, timeout_ms)?;
        // SAFETY: `crossdock.h` requires writable memory.
        unsafe { place.set(self::object(region, claim.offset, ty.size, claim.created)) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_object_claim(
    region: u64,
    name: *const c_char,
    ty: *const plain::Type,
    mode: u32,
    timeout_ms: i64,
    object: *mut plain::Object,
) -> i32 {
    call(|| {
        let place = out(object, "object")?;
        // SAFETY: `crossdock.h` requires zero-terminated text and a valid type.
        let (name, ty) = unsafe { (text(name, "object's name")?, type_in(ty)?) };
        let region = self::region(&region)?;
        let claim = claim(region, name, &ty, 0, self::mode(mode)?, timeout_ms)?;
        // SAFETY: `crossdock.h` requires writable memory.
        unsafe { place.set(self::object(region, claim.offset, ty.size, claim.created)) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_object_commit(region: u64, object: *const plain::Object) -> i32 {
    call(|| {
        let region = self::region(&region)?;
        // SAFETY: `crossdock.h` requires a readable object.
        let object = unsafe { read(object, "object")? };
        region.commit(offset_of(region, object.address, object.size)?)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_object_abandon(region: u64, object: *const plain::Object) -> i32 {
    call(|| {
        let region = self::region(&region)?;
        // SAFETY: `crossdock.h` requires a readable object.
        let object = unsafe { read(object, "object")? };
        region.abandon(offset_of(region, object.address, object.size)?)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_object_remove(region: u64, name: *const c_char) -> i32 {
    // SAFETY: `crossdock.h` requires zero-terminated text.
    call(|| self::region(&region)?.remove(unsafe { text(name, "object's name")? }).map(drop))
}

fn info(region: &Region, object: &ObjectInfo) -> plain::ObjectInfo {
    let mut result = plain::ObjectInfo {
        name: [0; 128],
        type_name: [0; 192],
        handle: Handle::new(region.id(), object.offset),
        size: object.ty.size,
        align: object.ty.align,
        reserved: 0,
    };
    // The text in each of the two fields `name` and `type_name` ends with a zero, even if the text in the directory is
    // as long as its field.
    let (name, ty) = (object.name.as_bytes(), object.ty.name.as_bytes());
    result.name[..name.len().min(127)].copy_from_slice(&name[..name.len().min(127)]);
    result.type_name[..ty.len().min(191)].copy_from_slice(&ty[..ty.len().min(191)]);
    result
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_object_find(region: u64, name: *const c_char, info: *mut plain::ObjectInfo) -> i32 {
    call(|| {
        let place = out(info, "information")?;
        let region = self::region(&region)?;
        // SAFETY: `crossdock.h` requires zero-terminated text and writable memory.
        unsafe { place.set(self::info(region, &region.find(text(name, "object's name")?)?)) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_object_list(
    region: u64,
    infos: *mut plain::ObjectInfo,
    capacity: usize,
    count: *mut usize,
) -> i32 {
    call(|| {
        let count = out(count, "count")?;
        if capacity > 0 {
            out(infos, "list")?;
        }
        let region = self::region(&region)?;
        let objects = region.objects()?;
        for (i, object) in objects.iter().take(capacity).enumerate() {
            // SAFETY: `crossdock.h` requires room for `capacity` structs; the pointer was checked for NULL and
            // alignment above.
            unsafe { infos.add(i).write(info(region, object)) };
        }
        // SAFETY: `crossdock.h` requires writable memory.
        unsafe { count.set(objects.len()) };
        Ok(())
    })
}

/// Finds the object that a handle names. If `ty` is not NULL, the object must have this type.
///
/// # Safety
/// `ty` must be NULL or point to a type whose name is NULL or zero-terminated.
#[inline(always)]
unsafe fn load(region: &Region, handle: Handle, ty: *const plain::Type) -> Result<plain::Object> {
    // SAFETY: the caller promises that `ty` is NULL or a type whose name is NULL or zero-terminated.
    let ty = if ty.is_null() { None } else { Some(unsafe { type_in(ty)? }) };
    let loaded = region.load(handle, ty.as_ref())?;
    Ok(object(region, loaded.offset, loaded.size, false))
}

#[unsafe(no_mangle)]
#[unsafe(link_section = "crossdock_in_use")]
unsafe extern "C" fn crossdock_handle_load(
    region: u64,
    handle: Handle,
    ty: *const plain::Type,
    object: *mut plain::Object,
) -> i32 {
    call_in_use(|| {
        let place = out(object, "object")?;
        // SAFETY: `crossdock.h` requires NULL or a valid type, and writable memory.
        unsafe { place.set(load(self::region(&region)?, handle, ty)?) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_session_load(
    session: u64,
    handle: Handle,
    ty: *const plain::Type,
    region: *mut u64,
    object: *mut plain::Object,
) -> i32 {
    call(|| {
        let (region, place) = (out(region, "region")?, out(object, "object")?);
        let found = self::session(session)?.region_of(handle)?;
        // SAFETY: `crossdock.h` requires NULL or a valid type.
        let object = unsafe { load(&found, handle, ty)? };
        let reference = refer(found)?;
        // SAFETY: `crossdock.h` requires writable places.
        unsafe {
            region.set(reference);
            place.set(object);
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_found_wherever_a_type_holds_them() {
        let found = |name: &str| {
            let mut found = Vec::new();
            headers(&type_name::Type::parse(name).unwrap(), 64, &mut |at| found.push(at));
            found
        };
        assert_eq!(found("f64[1000000][1000000]"), []);
        assert_eq!(found("vector<vector<f64>>"), [64], "inner vectors come to be with their outer one's elements");
        assert_eq!(found("{i32,string,u8,ndarray<f32>}"), [72, 112]);
        assert_eq!(found("{u8,vector<u8>}[3]"), [72, 112, 152]);
    }
}

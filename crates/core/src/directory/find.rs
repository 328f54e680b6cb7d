//! The calls that read the directory and find the objects that handles name. They need no lock, so tasks that may only
//! read can use them.

use std::sync::atomic::Ordering;

use crossdock_layout::region::{ENTRY_READY, Entry};
use crossdock_layout::type_name::{Type, VECTOR_SIZE};
use crossdock_layout::wire::SegmentKind;
use crossdock_layout::{Handle, Status, name};

use super::index::read_field;
use super::walk::owns_memory;
use super::{Incarnation, Loaded, ObjectInfo, TypeRef, entry};
use crate::error::Reason;
use crate::region::Region;
use crate::{Error, Result};

impl Region {
    /// Gives the offset, the type and other facts that the directory has about a named object.
    pub fn find(&self, name: &str) -> Result<ObjectInfo> {
        self.check_name(name)?;
        let found = self.read_directory(|| {
            let (_, entry) = self.search(name)?;
            (entry.state.load(Ordering::Acquire) == ENTRY_READY).then(|| self.info(entry))
        })?;
        match found {
            Some(Some(info)) => Ok(info),
            Some(None) => Err(self.corrupt(format!("the entry of object '{name}' makes no sense"))),
            None => Err(self.no_object(name)),
        }
    }

    /// Lists all named objects, sorted by name.
    pub fn objects(&self) -> Result<Vec<ObjectInfo>> {
        let mut all = self.read_directory(|| {
            let entries = (0..self.memory.entries()).filter_map(|i| self.memory.entry(i));
            let ready = entries.filter(|e| e.state.load(Ordering::Acquire) == ENTRY_READY);
            ready.filter_map(|e| self.info(e)).collect::<Vec<_>>()
        })?;
        all.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(all)
    }

    /// Checks an entry, and gives what it says about its object; `None` if no correct member writes such an entry.
    pub(super) fn info(&self, entry: &Entry) -> Option<ObjectInfo> {
        let ty = self.type_of(entry)?;
        let field = read_field(&entry.name);
        let name = name::from_field(&field)?;
        let holds =
            |offset| self.memory.block_at(offset).is_some_and(|block| self.is_named(block) && ty.size <= block.size());
        let offset = entry::block_of(entry, holds)?;
        Some(ObjectInfo { name: name.to_owned(), offset, ty })
    }

    pub(super) fn type_of(&self, entry: &Entry) -> Option<TypeRef> {
        let field = read_field(&entry.type_name);
        let length = field.iter().position(|&b| b == 0)?;
        let name = std::str::from_utf8(&field[..length]).ok()?.to_owned();
        let size = entry::size_within(entry, self.capacity())?;
        let align = entry.align.load(Ordering::Relaxed);
        Some(TypeRef { name, size, align })
    }

    /// Makes a handle of the block that starts at `offset`.
    pub fn save(&self, offset: u64) -> Result<Handle> {
        self.block_size(offset)?;
        Ok(Handle::new(self.segment, offset))
    }

    /// Finds the object that a handle names. If `ty` is given, a named object must have this type, and a block without
    /// a name must be large enough.
    ///
    /// A consumer calls this for the handle in each message, mostly with cold caches. So this function is kept short:
    /// for a block without a name, in a region where no member died, it touches one cache line in each of four pages.
    /// These lines hold this process's `Region`, the count of deaths, the head of the block's slice and the block's
    /// state byte.
    ///
    /// # Errors
    /// `BAD_HANDLE` if the handle names another segment, or if no block in use starts at its offset. `WRONG_TYPE` if a
    /// named object has another type, or if a block without a name is too small for the type.
    #[inline]
    pub fn load(&self, handle: Handle, ty: Option<&TypeRef>) -> Result<Loaded> {
        let offset = handle.offset;
        self.memory.fetch_place(offset);
        if handle.segment == self.segment.0 && (!self.writable || (self.is_own() && self.is_healed())) {
            if let Some(block) = self.memory.block_at(offset).filter(|&block| self.is_plain(block)) {
                if ty.is_none_or(|ty| ty.size <= block.size()) {
                    return Ok(Loaded { offset, size: block.size(), ty: None, incarnation: None });
                }
            }
        }
        self.load_slowly(handle, ty)
    }

    /// Tells whether the object at `offset` is still the one that `load` found there. The call reads one cache line of
    /// the directory and compares no names. The answer `false` means that the object is gone, or that the caller must
    /// call `load` again because a member died since this process last healed the region.
    #[inline]
    pub fn is_still(&self, offset: u64, incarnation: Incarnation) -> bool {
        let sound = !self.writable || (self.is_own() && self.is_healed());
        sound
            && self.memory.entry(incarnation.entry).is_some_and(|entry| {
                entry.state.load(Ordering::Acquire) == ENTRY_READY
                    && entry.incarnation.load(Ordering::Acquire) == incarnation.count
                    && entry::is_at(entry, offset)
            })
    }

    /// The slow part of `load`: heals the region, reads the directory, and in case of an error says what is wrong
    /// with the handle.
    #[cold]
    fn load_slowly(&self, handle: Handle, ty: Option<&TypeRef>) -> Result<Loaded> {
        if !self.is_named_by(handle.segment) {
            let text = format!("{handle} is of another segment (this one is {})", self.segment.0);
            return Err(self.error(Status::BadHandle, text));
        }
        if self.writable {
            // A dead member may have left the object half changed. This call finishes the change. A task without
            // write access cannot make this call.
            self.check_succession()?;
        }
        let offset = handle.offset;
        let block = self.memory.block_at(offset).filter(|&block| self.is_used(block));
        let Some(block) = block else { return Err(self.not_a_block(offset)) };
        if !self.is_named(block) {
            if let Some(ty) = ty.filter(|ty| ty.size > block.size()) {
                let text = format!("the block at {offset:#x} has {} bytes, too few for {ty}", block.size());
                return Err(self.error(Status::WrongType, text));
            }
            return Ok(Loaded { offset, size: block.size(), ty: None, incarnation: None });
        }
        let Some((info, incarnation)) = self.object_at(offset)? else {
            let text = format!("the object at {offset:#x} is still being constructed, or has just been removed");
            return Err(self.error(Status::BadHandle, text));
        };
        if let Some(ty) = ty {
            self.check_type(&info.name, &info.ty, ty)?;
        }
        Ok(Loaded { offset, size: info.ty.size, ty: Some(info.ty), incarnation: Some(incarnation) })
    }

    /// Gives the directory's facts about the named object whose block starts at `offset`; `None` if no such object
    /// has that block.
    pub(super) fn object_at(&self, offset: u64) -> Result<Option<(ObjectInfo, Incarnation)>> {
        self.read_directory(|| {
            let (index, entry) = self.search_offset(offset)?;
            let count = entry.incarnation.load(Ordering::Acquire);
            Some((self.info(entry)?, Incarnation { entry: index, count }))
        })
    }

    pub(super) fn check_type(&self, name: &str, have: &TypeRef, want: &TypeRef) -> Result<()> {
        if have == want {
            return Ok(());
        }
        let (what, have, want) = (format!("object '{name}'"), have.to_string(), want.to_string());
        Err(self.failed(Status::WrongType, Reason::WrongType { what, have, want }))
    }

    /// Checks that there may be a container of this kind, with elements of `elem_size` bytes, at `header`. The check is
    /// possible only if the types in the directory tell which container is there. The header itself does not contain
    /// the element size. A call with a wrong element size would treat the block as having room for more elements than
    /// it has.
    pub(crate) fn check_element_size(&self, header: u64, elem_size: u64, is_ndarray: bool) -> Result<()> {
        self.element_type(header, elem_size, is_ndarray, false).map(drop)
    }

    /// Gives the type of the elements of the container at `header`, if they can own blocks of the heap. The result is
    /// `None` if they cannot, or if the types in the directory do not tell which container is at `header`. The errors
    /// are those of `check_element_size`.
    pub(crate) fn owning_elements(&self, header: u64, elem_size: u64, is_ndarray: bool) -> Result<Option<Type>> {
        // An element that is smaller than a header has no container.
        if elem_size < VECTOR_SIZE {
            return Ok(None);
        }
        Ok(self.element_type(header, elem_size, is_ndarray, true)?.filter(owns_memory))
    }

    fn element_type(&self, header: u64, elem_size: u64, is_ndarray: bool, thorough: bool) -> Result<Option<Type>> {
        let Some((info, container)) = self.container_at(header, thorough)? else { return Ok(None) };
        let element = container.element();
        let size = element.as_ref().and_then(Type::size_and_align).map(|layout| layout.0);
        // `size` is `None` if an element would have more than 2^64 bytes. No correct container has such elements.
        if matches!(container, Type::Ndarray(_)) == is_ndarray && size == Some(elem_size) {
            return Ok(element);
        }
        let given = if is_ndarray { "an ndarray" } else { "a vector or string" };
        let want = format!("{given} with elements of {elem_size} bytes");
        let what = format!("object '{}'", info.name);
        Err(self.failed(Status::WrongType, Reason::WrongType { what, have: info.ty.to_string(), want }))
    }

    #[cold]
    pub(super) fn no_object(&self, name: &str) -> Error {
        Error::lacks("object", name).about(SegmentKind::Region, &self.name)
    }

    pub(super) fn check_name(&self, name: &str) -> Result<()> {
        name::check(name).map_err(|bad| Error::bad_name("object", name, bad).about(SegmentKind::Region, &self.name))
    }
}

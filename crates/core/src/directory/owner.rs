//! Finds the type of a container from the position of its header.
//!
//! A header lies in a named object, or in a block that another container owns. A block does not say which container
//! owns it. So the search begins at the named objects whose types have containers inside of containers, and follows
//! their pointers.

use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

use crossdock_layout::region::{ENTRY_READY, SLICE};
use crossdock_layout::type_name::{Type, with_offsets};

use super::ObjectInfo;
use super::walk::owns_memory;
use crate::Result;
use crate::region::Region;

/// The number of containers that one search looks at, unless it is thorough. Damaged pointers may form a circle, so
/// each search needs a limit.
const HEADERS: u64 = 4096;

/// What the last searches in a region found. These values are only hints, so threads load and store them without memory
/// ordering.
#[derive(Debug)]
pub(crate) struct OwnerSearch {
    /// The index of the directory entry whose object had the container that was found last.
    last_entry: AtomicU64,
    /// For each of two kinds of search: the last version of the directory for which a search found that no object has
    /// to be searched (see `owner_at`). As long as the directory has this version, further searches of this kind look
    /// at no object of the directory. The first value is for searches for any container. The second value is for
    /// searches for containers whose elements can themselves own blocks of the heap.
    flat_versions: [AtomicU64; 2],
}

impl Default for OwnerSearch {
    fn default() -> Self {
        Self { last_entry: AtomicU64::new(0), flat_versions: [const { AtomicU64::new(u64::MAX) }; 2] }
    }
}

struct Search {
    header: u64,
    /// The number of containers that the search may still look at.
    budget: u64,
    /// True if the search is only for containers whose elements can themselves own blocks of the heap. Such a search
    /// follows only the pointers that can lead to such a container, so it looks at far fewer objects and containers
    /// than a search for any container.
    is_deep: bool,
}

impl Search {
    /// Tells whether a value of this type can contain a container of the kind that is searched for.
    fn may_have(&self, ty: &Type) -> bool {
        if self.is_deep { is_nested(ty) } else { owns_memory(ty) }
    }

    /// Tells whether a value of this type has containers whose elements can contain a container of the kind that is
    /// searched for.
    fn may_lead_to(&self, ty: &Type) -> bool {
        has_container_of(ty, &|of| self.may_have(of))
    }
}

impl Region {
    /// Finds the container whose header is at `header`, and the named object that it belongs to.
    ///
    /// Gives `None` if the types in the directory do not tell which container is at `header`. This is so if the header
    /// lies in a block that the program allocated, in an object of an opaque type, or in an object that another member
    /// is constructing. A header in the first slice of a named object is found directly. For any other header, this
    /// function searches the named objects. If `thorough` is `false`, the search gives up after 4096 containers. If
    /// `thorough` is `true`, the search may look at many more containers (the limit grows with the region's capacity),
    /// but it finds the container only if the container's elements can own blocks.
    pub(super) fn container_at(&self, header: u64, thorough: bool) -> Result<Option<(ObjectInfo, Type)>> {
        if let Some(start) = self.memory.block_around(header) {
            if self.memory.block_at(start).is_some_and(|block| self.is_named(block)) {
                let known = self.object_at(start)?.map(|(info, _)| info);
                let Some(info) = known.or_else(|| self.claimed_objects().find(|info| info.offset == start)) else {
                    return Ok(None);
                };
                let Ok(ty) = Type::parse(&info.ty.name) else { return Ok(None) };
                let found = ty.container_at(header - start).cloned();
                return Ok(found.map(|container| (info, container)));
            }
        }
        let budget = if thorough { self.capacity() / 16 } else { HEADERS };
        self.read_directory(|| self.search_containers(&mut Search { header, budget, is_deep: thorough }))
    }

    /// The objects that this process is constructing.
    fn claimed_objects(&self) -> impl Iterator<Item = ObjectInfo> {
        let claims = self.claims.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let entry = |(offset, index): (u64, u32)| self.memory.entry(index.into()).filter(|_| offset != 0);
        claims.into_iter().filter_map(entry).filter_map(|entry| self.info(entry))
    }

    fn search_containers(&self, search: &mut Search) -> Option<(ObjectInfo, Type)> {
        for info in self.claimed_objects() {
            let Ok(ty) = Type::parse(&info.ty.name) else { continue };
            if let Some(container) = self.container_within(&ty, info.offset, info.ty.size, search) {
                return Some((info, container));
            }
        }
        // Most regions have no object that must be searched for container headers (see `owner_at`). If a search finds
        // no such object in the directory, the search stores the directory's version. As long as the directory has this
        // version, later calls search nothing.
        let version = self.memory.header().directory_version.load(Ordering::Acquire);
        let flat_version = &self.owners.flat_versions[usize::from(search.is_deep)];
        if flat_version.load(Ordering::Relaxed) == version {
            return None;
        }
        let mut is_flat = true;
        // Often one object's containers grow one after another. So the search begins at the object in which the last
        // search found a container.
        let last = self.owners.last_entry.load(Ordering::Relaxed);
        for index in std::iter::once(last).chain((0..self.memory.entries()).filter(|index| *index != last)) {
            let Some((info, ty)) = self.owner_at(index, search) else { continue };
            is_flat = false;
            if let Some(container) = self.container_within(&ty, info.offset, info.ty.size, search) {
                self.owners.last_entry.store(index, Ordering::Relaxed);
                return Some((info, container));
            }
        }
        if is_flat {
            flat_version.store(version, Ordering::Relaxed);
        }
        None
    }

    /// Gives the object of this directory entry, if the object has to be searched. An object has to be searched if it
    /// can have container headers that `block_around` cannot assign to it: headers in the blocks of its containers, or
    /// headers after the first slice of a large object.
    fn owner_at(&self, index: u64, search: &Search) -> Option<(ObjectInfo, Type)> {
        let entry = self.memory.entry(index).filter(|entry| entry.state.load(Ordering::Acquire) == ENTRY_READY)?;
        let of = self.type_of(entry)?;
        let ty = Type::parse(&of.name).ok()?;
        (search.may_lead_to(&ty) || of.size > SLICE && search.may_have(&ty)).then_some((self.info(entry)?, ty))
    }

    /// Searches for the container whose header is at `search.header`: in a value of type `ty`, which takes `size` bytes
    /// from `at` on, and in the blocks that the value's containers own.
    fn container_within(&self, ty: &Type, at: u64, size: u64, search: &mut Search) -> Option<Type> {
        match search.header.checked_sub(at) {
            Some(offset) if offset < size => ty.container_at(offset).cloned(),
            _ => self.container_behind(ty, at, search),
        }
    }

    fn container_behind(&self, ty: &Type, at: u64, search: &mut Search) -> Option<Type> {
        match ty {
            Type::Array(of, n) => self.container_behind_elements(of, at, *n, search),
            Type::Struct(fields) => with_offsets(fields)
                .find_map(|(offset, field)| self.container_behind(field, at.checked_add(offset)?, search)),
            Type::Vector(of) | Type::Ndarray(of) if search.may_have(of) => {
                search.budget = search.budget.checked_sub(1)?;
                let data = self.owned_block(at)?;
                let bytes = self.memory.block_at(data)?.size();
                let (each, _) = of.size_and_align().filter(|layout| layout.0 > 0)?;
                match search.header.checked_sub(data) {
                    Some(offset) if offset < bytes => of.container_at(offset % each).cloned(),
                    _ => self.container_behind_elements(of, data, self.owned_elements(ty, at, each, bytes), search),
                }
            }
            Type::Vector(_) | Type::String | Type::Ndarray(_) | Type::Scalar(..) | Type::Opaque(_) => None,
        }
    }

    fn container_behind_elements(&self, of: &Type, at: u64, n: u64, search: &mut Search) -> Option<Type> {
        let (size, _) = of.size_and_align().filter(|_| search.may_lead_to(of))?;
        (0..n.min(search.budget)).find_map(|i| {
            let element = at.checked_add(i.checked_mul(size)?)?;
            (search.budget > 0).then(|| self.container_behind(of, element, search))?
        })
    }
}

/// Tells whether a value of this type has containers whose elements can themselves own blocks of the heap.
fn is_nested(ty: &Type) -> bool {
    has_container_of(ty, &owns_memory)
}

/// Tells whether a value of this type has a container for whose element type `which` returns `true`.
fn has_container_of(ty: &Type, which: &dyn Fn(&Type) -> bool) -> bool {
    match ty {
        Type::Array(of, _) => has_container_of(of, which),
        Type::Struct(fields) => fields.iter().any(|field| has_container_of(field, which)),
        Type::Vector(of) | Type::Ndarray(of) => which(of),
        Type::String | Type::Scalar(..) | Type::Opaque(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ObjectMode, TypeRef};
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_search_for_a_container_of_containers_looks_at_few_containers() {
        const SIZE: u64 = 4 << 20;
        const ROWS: u64 = 1000;
        let region = Region::alone(SIZE);
        let make = |name: &str, of: &str| {
            let ty = TypeRef::new(of).unwrap();
            let claim = region.claim(name, &ty, ObjectMode::CreateOnly, Some(Duration::ZERO)).unwrap();
            region.commit(claim.offset).unwrap();
            region.vector_resize(claim.offset, 32, ROWS).unwrap();
            region.owned_block(claim.offset).unwrap()
        };
        let find = |header, is_deep| {
            let mut search = Search { header, budget: SIZE, is_deep };
            let found = region.search_containers(&mut search).map(|(info, container)| (info.name, container));
            (found, SIZE - search.budget)
        };
        let plain = region.allocate(64, 16).unwrap();
        let rows = make("rows", "vector<vector<f64>>");
        assert_eq!(find(plain, true), (None, 0));
        assert_eq!(find(plain, false), (None, 1), "only the block of all rows can have a container's header");
        assert_eq!(find(rows, false).0.unwrap().1, Type::parse("vector<f64>").unwrap());
        let layers = make("layers", "vector<vector<vector<f64>>>");
        assert_eq!(find(plain, true), (None, 1));
        assert_eq!(find(plain, false), (None, 2 + ROWS));
        let found = find(layers + 32 * (ROWS - 1), true);
        assert_eq!(found, (Some(("layers".into(), Type::parse("vector<vector<f64>>").unwrap())), 1));
    }
}

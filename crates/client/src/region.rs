//! Regions: a segment with a heap in it, and named objects that tasks share read-write (Dhmem, section III).
//!
//! Offsets count from the region's first byte and are the same in every process; addresses are not. Everything that
//! changes the region heals by itself when a member is killed in the middle of it.

mod registry;
mod session;

use std::sync::Arc;
use std::time::Duration;

use crossdock_core::region as core;
use crossdock_layout::{Handle, SegmentId};

pub use crossdock_core::containers::Order;
pub use crossdock_core::directory::{Claim, Loaded, ObjectInfo, ObjectMode, Removed, TypeRef};
pub use crossdock_core::headers::{NdarrayData, VectorData};
pub use crossdock_core::heap::{HealReport, Statistics};

use crate::{Error, Result, Session};

/// How to open a region by name.
pub use crossdock_layout::wire::OpenMode as Mode;

/// A region, mapped in this process. Clones are the same mapping, which goes with the last of them; threads may share it.
#[derive(Clone, Debug)]
pub struct Region {
    shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    region: Arc<core::Region>,
    session: Session,
}

impl From<Box<crossdock_core::Error>> for Error {
    #[cold]
    fn from(error: Box<crossdock_core::Error>) -> Self {
        (*error).into()
    }
}

impl From<crossdock_core::Error> for Error {
    fn from(error: crossdock_core::Error) -> Self {
        Self { status: error.status, message: error.message }
    }
}

impl Region {
    /// The name that it was opened by.
    #[must_use]
    pub fn name(&self) -> &str {
        self.shared.region.name()
    }

    /// The segment's id, the same in all processes.
    #[must_use]
    #[inline]
    pub fn id(&self) -> SegmentId {
        self.shared.region.segment()
    }

    /// Where its first byte lies in this process.
    #[must_use]
    #[inline]
    pub fn base(&self) -> *mut u8 {
        self.shared.region.base()
    }

    /// The bytes themselves, for `view`.
    pub(crate) fn mapping(&self) -> &crossdock_os::Mapping {
        self.shared.region.mapping()
    }

    /// Its size in bytes. Virtual: memory is taken as it is used.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.shared.region.capacity()
    }

    /// The session that it was opened by.
    #[must_use]
    pub fn session(&self) -> &Session {
        &self.shared.session
    }

    /// Whether this task may write to it.
    #[must_use]
    pub fn writable(&self) -> bool {
        self.shared.region.writable()
    }

    /// A block of at least `size` bytes at a multiple of `align` (a power of two, at most 4096). Not zeroed.
    ///
    /// # Errors
    /// `NO_SPACE` when region, quota or node is full; `INVALID` for a size of 0 or a bad alignment.
    pub fn allocate(&self, size: u64, align: u64) -> Result<u64> {
        Ok(self.shared.region.allocate(size, align)?)
    }

    /// Like `allocate`, but the block is given back by itself if this member dies before it hands the block to
    /// `replace` (or says `keep`). For containers that grow: no instruction at which a kill leaks.
    /// A thread may have four such blocks at a time; further ones are ordinary.
    pub fn prepare(&self, size: u64, align: u64) -> Result<u64> {
        Ok(self.shared.region.prepare(size, align)?)
    }

    /// Makes a prepared block an ordinary one. `deallocate` after `keep` is how to change one's mind.
    pub fn keep(&self, offset: u64) -> Result<()> {
        Ok(self.shared.region.keep(offset)?)
    }

    /// Gives a block back, whichever member allocated it.
    ///
    /// # Errors
    /// `BAD_HANDLE` for what is not the start of a block in use (a double free, too), `BUSY` for a named object's block.
    pub fn deallocate(&self, offset: u64) -> Result<()> {
        Ok(self.shared.region.deallocate(offset)?)
    }

    /// A handle of the block that starts at `offset`.
    #[inline]
    pub fn save(&self, offset: u64) -> Result<Handle> {
        Ok(self.shared.region.save(offset)?)
    }

    /// What a handle names: checks segment, bounds, that the block is in use, that the offset is its start, and its type
    /// if `ty` says one. A block without a name has no type; then only its size is checked.
    #[inline]
    pub fn load(&self, handle: Handle, ty: Option<&TypeRef>) -> Result<Loaded> {
        Ok(self.shared.region.load(handle, ty)?)
    }

    /// Finds or makes a named object. `created` means: zeroed memory, seen by nobody until `commit` (or given back by
    /// `abandon`, or by this member's death).
    ///
    /// `timeout`: how long to wait for an object that another member is constructing, and with `OpenOnly` for one that
    /// is not there. `None` waits for a constructor up to 60 s and not at all for what is not there.
    pub fn claim(&self, name: &str, ty: &TypeRef, mode: ObjectMode, timeout: Option<Duration>) -> Result<Claim> {
        Ok(self.shared.region.claim(name, ty, mode, timeout)?)
    }

    /// Makes a claimed object visible.
    pub fn commit(&self, offset: u64) -> Result<()> {
        Ok(self.shared.region.commit(offset)?)
    }

    /// Gives a claimed object back unseen.
    pub fn abandon(&self, offset: u64) -> Result<()> {
        Ok(self.shared.region.abandon(offset)?)
    }

    /// Takes a named object away, with the memory of its vectors, strings and ndarrays. What an opaque type owns beyond
    /// its block is its language's to free before.
    pub fn remove(&self, name: &str) -> Result<Removed> {
        Ok(self.shared.region.remove(name)?)
    }

    /// What is known of a named object.
    pub fn find(&self, name: &str) -> Result<ObjectInfo> {
        Ok(self.shared.region.find(name)?)
    }

    /// All named objects, by name.
    pub fn objects(&self) -> Result<Vec<ObjectInfo>> {
        Ok(self.shared.region.objects()?)
    }

    /// What the header of the vector (or string: `element` 1) at `header` says, checked.
    ///
    /// # Errors
    /// `BAD_HANDLE` where no header can lie, `CORRUPT`.
    pub fn vector_at(&self, header: u64, element: u64) -> Result<VectorData> {
        Ok(self.shared.region.vector_at(header, element)?)
    }

    /// What the header of the ndarray at `header` says, checked.
    ///
    /// # Errors
    /// As [`Region::vector_at`].
    pub fn ndarray_at(&self, header: u64, element: u64) -> Result<NdarrayData> {
        Ok(self.shared.region.ndarray_at(header, element)?)
    }

    /// Gives the vector (or string: `elem_size` 1) whose header lies at `header` `n` elements; new ones are zero.
    /// A kill leaves the old vector or the new one.
    pub fn vector_resize(&self, header: u64, elem_size: u64, n: u64) -> Result<()> {
        Ok(self.shared.region.vector_resize(header, elem_size, n)?)
    }

    /// Makes room for `n` elements without changing the size.
    pub fn vector_reserve(&self, header: u64, elem_size: u64, n: u64) -> Result<()> {
        Ok(self.shared.region.vector_reserve(header, elem_size, n)?)
    }

    /// Gives the ndarray at `header` this shape (rank ≤ 8). Its bytes stay as they are; what is beyond them is zero.
    pub fn ndarray_reshape(&self, header: u64, elem_size: u64, order: Order, shape: &[u64]) -> Result<()> {
        Ok(self.shared.region.ndarray_reshape(header, elem_size, order, shape)?)
    }

    /// Crash-consistent exchange: writes `words` (at most 16) at `header`, which thereby points to `new_block`, and frees
    /// `old_block` (0 = none). A kill leaves all of it done or none; in the latter case a `prepare`d new block is freed.
    pub fn replace(&self, header: u64, words: &[u64], new_block: u64, old_block: u64) -> Result<()> {
        Ok(self.shared.region.replace(header, words, new_block, old_block)?)
    }

    /// What is in use, counted now.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.shared.region.statistics()
    }

    /// Finishes or takes back what dead members left half done. Runs by itself where a dead member is in the way.
    pub fn heal(&self) -> Result<HealReport> {
        Ok(self.shared.region.heal()?)
    }

    /// A region that lies in an item.
    pub(crate) fn enter_item(region: Arc<core::Region>, session: Session) -> Self {
        registry::enter(Arc::new(Shared { region, session }))
    }

    /// Does anything but this handle keep it mapped?
    pub(crate) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.shared) > 1
    }

    /// The region that is mapped at `base` in this process, if any.
    #[must_use]
    pub fn at_base(base: *const u8) -> Option<Region> {
        registry::at_base(base)
    }

    /// `allocate` in the region mapped at `base`, as an address, if this thread used it lately (see `keep_near`) and has
    /// such a block at hand. `None` says nothing: then the region itself is to be asked.
    #[inline]
    #[must_use]
    pub fn allocate_at(base: *const u8, size: u64, align: u64) -> Option<*mut u8> {
        crossdock_core::heap::allocate_at(base, size, align)
    }

    /// `deallocate` of the block at `address` in the same way. `false`: nothing was done.
    #[inline]
    #[must_use]
    pub fn deallocate_at(base: *const u8, address: *const u8) -> bool {
        crossdock_core::heap::deallocate_at(base, address)
    }

    /// Lets `allocate_at` and `deallocate_at` of this thread find this region by its base, as long as it is mapped. That
    /// does not keep it mapped.
    pub fn keep_near(&self) {
        self.shared.region.keep_near();
    }

    /// Runs `f` on the region mapped at `base`, if any; for allocators.
    pub fn with_base<R>(base: *const u8, f: impl FnOnce(&Region) -> R) -> Option<R> {
        registry::at_base(base).map(|region| f(&region))
    }
}

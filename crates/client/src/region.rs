//! Regions: a segment with a heap in it, and named objects that tasks share read-write (Dhmem, section III).
//!
//! Offsets count from the region's first byte and are the same in every process; addresses are not. Everything that
//! changes the region heals by itself when a member is killed in the middle of it.

mod object;
mod session;

use std::sync::Arc;
use std::time::Duration;

use crossdock_layout::{Handle, SegmentId};

use crate::Result;
pub use object::{Claim, HealReport, Loaded, Mode, ObjectInfo, ObjectMode, Order, Removed, Statistics, TypeRef};

/// A region, mapped in this process. Clones are the same mapping, which goes with the last of them; threads may share it.
#[derive(Clone, Debug)]
pub struct Region {
    shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {}

impl Region {
    /// The name that it was opened by.
    #[must_use]
    pub fn name(&self) -> &str {
        todo!()
    }

    /// The segment's id, the same in all processes.
    #[must_use]
    pub fn id(&self) -> SegmentId {
        todo!()
    }

    /// Where its first byte lies in this process.
    #[must_use]
    pub fn base(&self) -> *mut u8 {
        todo!()
    }

    /// Its size in bytes. Virtual: memory is taken as it is used.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        todo!()
    }

    /// Whether this task may write to it.
    #[must_use]
    pub fn writable(&self) -> bool {
        todo!()
    }

    /// A block of at least `size` bytes at a multiple of `align` (a power of two, at most 4096). Not zeroed.
    ///
    /// # Errors
    /// `NO_SPACE` when region, quota or node is full; `INVALID` for a size of 0 or a bad alignment.
    pub fn allocate(&self, _size: u64, _align: u64) -> Result<u64> {
        todo!()
    }

    /// Like `allocate`, but the block is given back by itself if this member dies before it hands the block to
    /// `replace` (or says `keep`). For containers that grow: no instruction at which a kill leaks.
    /// A thread may have four such blocks at a time; further ones are ordinary.
    pub fn prepare(&self, _size: u64, _align: u64) -> Result<u64> {
        todo!()
    }

    /// Makes a prepared block an ordinary one. `deallocate` after `keep` is how to change one's mind.
    pub fn keep(&self, _offset: u64) -> Result<()> {
        todo!()
    }

    /// Gives a block back, whichever member allocated it.
    ///
    /// # Errors
    /// `BAD_HANDLE` for what is not the start of a block in use (a double free, too), `BUSY` for a named object's block.
    pub fn deallocate(&self, _offset: u64) -> Result<()> {
        todo!()
    }

    /// A handle of the block that starts at `offset`.
    pub fn save(&self, _offset: u64) -> Result<Handle> {
        todo!()
    }

    /// What a handle names: checks segment, bounds, that the block is in use, that the offset is its start, and its type
    /// if `ty` says one. A block without a name has no type; then only its size is checked.
    pub fn load(&self, _handle: Handle, _ty: Option<&TypeRef>) -> Result<Loaded> {
        todo!()
    }

    /// Finds or makes a named object. `created` means: zeroed memory, seen by nobody until `commit` (or given back by
    /// `abandon`, or by this member's death).
    ///
    /// `timeout`: how long to wait for an object that another member is constructing, and with `OpenOnly` for one that
    /// is not there. `None` waits for a constructor up to 60 s and not at all for what is not there.
    pub fn claim(&self, _name: &str, _ty: &TypeRef, _mode: ObjectMode, _timeout: Option<Duration>) -> Result<Claim> {
        todo!()
    }

    /// Makes a claimed object visible.
    pub fn commit(&self, _offset: u64) -> Result<()> {
        todo!()
    }

    /// Gives a claimed object back unseen.
    pub fn abandon(&self, _offset: u64) -> Result<()> {
        todo!()
    }

    /// Takes a named object away, with the memory of its vectors, strings and ndarrays. What an opaque type owns beyond
    /// its block is its language's to free before.
    pub fn remove(&self, _name: &str) -> Result<Removed> {
        todo!()
    }

    /// What is known of a named object.
    pub fn find(&self, _name: &str) -> Result<ObjectInfo> {
        todo!()
    }

    /// All named objects, by name.
    pub fn objects(&self) -> Result<Vec<ObjectInfo>> {
        todo!()
    }

    /// Gives the vector (or string: `elem_size` 1) whose header lies at `header` `n` elements; new ones are zero.
    /// A kill leaves the old vector or the new one.
    pub fn vector_resize(&self, _header: u64, _elem_size: u64, _n: u64) -> Result<()> {
        todo!()
    }

    /// Makes room for `n` elements without changing the size.
    pub fn vector_reserve(&self, _header: u64, _elem_size: u64, _n: u64) -> Result<()> {
        todo!()
    }

    /// Gives the ndarray at `header` this shape (rank ≤ 8). Elements are zeroed when the shape, order or size changes.
    pub fn ndarray_reshape(&self, _header: u64, _elem_size: u64, _order: Order, _shape: &[u64]) -> Result<()> {
        todo!()
    }

    /// Crash-consistent exchange: writes `words` (at most 16) at `header`, which thereby points to `new_block`, and frees
    /// `old_block` (0 = none). A kill leaves all of it done or none; in the latter case a `prepare`d new block is freed.
    pub fn replace(&self, _header: u64, _words: &[u64], _new_block: u64, _old_block: u64) -> Result<()> {
        todo!()
    }

    /// What is in use, counted now.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        todo!()
    }

    /// Finishes or takes back what dead members left half done. Runs by itself where a dead member is in the way.
    pub fn heal(&self) -> Result<HealReport> {
        todo!()
    }

    /// The region that is mapped at `base` in this process, if any.
    #[must_use]
    pub fn at_base(_base: *const u8) -> Option<Region> {
        todo!()
    }

    /// Runs `f` on the region mapped at `base`; cheaper than `at_base`, for allocators.
    pub fn with_base<R>(_base: *const u8, _f: impl FnOnce(&Region) -> R) -> Option<R> {
        todo!()
    }
}

//! The heaps that are compared. All of them are called through one trait, so that each call of each heap costs one
//! virtual call.

use std::alloc::{GlobalAlloc, Layout};
use std::sync::Arc;

use crossdock_core::region::Region;

/// A heap that allocates and frees blocks.
pub trait Heap {
    /// Allocates a block and gives its offset or its address.
    fn allocate(&mut self, size: u64) -> u64;
    /// Frees a block.
    fn free(&mut self, block: u64);
    /// Writes the first byte of the block.
    fn touch(&mut self, block: u64);
}

/// The heap of a crossdock region.
pub struct Crossdock(pub Arc<Region>);

impl Heap for Crossdock {
    #[inline]
    fn allocate(&mut self, size: u64) -> u64 {
        self.0.allocate(size, 16).expect("the region is large enough")
    }

    #[inline]
    fn free(&mut self, block: u64) {
        self.0.deallocate(block).expect("a block that was allocated");
    }

    #[inline]
    fn touch(&mut self, block: u64) {
        // SAFETY: the byte belongs to a block that this program allocated in the region, and no other code uses the
        // block.
        unsafe { self.0.base().add(block as usize).write(1) };
    }
}

/// mimalloc, called in the way in which a program calls its global allocator.
pub struct Mimalloc;

impl Heap for Mimalloc {
    #[inline]
    fn allocate(&mut self, size: u64) -> u64 {
        // SAFETY: the layout is valid: no caller passes the size 0, and the alignment 16 is a power of two.
        unsafe { mimalloc::MiMalloc.alloc(Layout::from_size_align_unchecked(size as usize, 16)) as u64 }
    }

    #[inline]
    fn free(&mut self, block: u64) {
        // SAFETY: `allocate` gave this block. The layout has another size than the block, but mimalloc ignores it.
        unsafe { mimalloc::MiMalloc.dealloc(block as *mut u8, Layout::from_size_align_unchecked(1, 16)) }
    }

    #[inline]
    fn touch(&mut self, block: u64) {
        // SAFETY: the byte belongs to a block that this program allocated, and no other code uses the block.
        unsafe { (block as *mut u8).write(1) };
    }
}

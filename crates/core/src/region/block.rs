//! A new block of a region, whose bytes can be written directly.

use std::sync::Arc;

use crossdock_layout::Status;

use super::Region;
use crate::directory::{ObjectMode, TypeRef};
use crate::{Error, Result};

/// A block that no other member knows of yet. If this value is dropped, the block stays allocated.
#[derive(Debug)]
pub struct NewBlock {
    region: Arc<Region>,
    offset: u64,
    size: u64,
}

impl NewBlock {
    /// Allocates a block as [`Region::prepare`] does, so healing frees the block if this member dies before it passes
    /// the block to `replace` or `keep`.
    ///
    /// # Errors
    /// `NO_SPACE` if the region cannot grow by enough memory, `INVALID` if the size is 0 or the alignment is not
    /// allowed.
    pub fn prepare(region: &Arc<Region>, size: u64, align: u64) -> Result<Self> {
        Ok(Self { region: Arc::clone(region), offset: region.prepare(size, align)?, size })
    }

    /// Claims a new named object as [`Region::claim`] does with `CreateOnly`.
    ///
    /// # Errors
    /// `EXISTS` if the name is taken, `NO_SPACE` if the region cannot grow by enough memory, `INVALID` if the name or
    /// the type is not allowed.
    pub fn claim(region: &Arc<Region>, name: &str, ty: &TypeRef) -> Result<Self> {
        let claim = region.claim(name, ty, ObjectMode::CreateOnly, None)?;
        Ok(Self { region: Arc::clone(region), offset: claim.offset, size: ty.size })
    }

    /// The block's offset in the region.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The bytes of the block.
    ///
    /// If another member writes to the block against the rules, it can change what is read here. It can do nothing
    /// worse, because no caller computes an address from these bytes.
    ///
    /// # Errors
    /// `CORRUPT`: the block does not lie within the region, because another member damaged the region's tables.
    pub fn bytes(&mut self) -> Result<&mut [u8]> {
        let start = self.region.mapping().at(self.offset, self.size).filter(|_| self.region.writable());
        let start = start.ok_or_else(|| Error::new(Status::Corrupt, "the heap gave a block outside of the region"))?;
        // SAFETY: `at` checked that the range lies within the mapping, which lasts as long as the region held here. The
        // block is new and `self` is borrowed exclusively, so no other code of this process uses it. Members that write
        // to the block against the rules change plain bytes, for which every value is valid.
        Ok(unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), self.size as usize) })
    }
}

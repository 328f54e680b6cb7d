//! Reading the header words of containers, which other members can write: wild until checked.

use crossdock_core::view::{self, Plain};
use crossdock_layout::{Status, Wild};

use crate::{Error, Region, Result};

/// What every object of this module stands on: a region, and where the object lies in it.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub region: Region,
    pub offset: u64,
}

impl Place {
    pub fn new(region: &Region, offset: u64) -> Self {
        Self { region: region.clone(), offset }
    }

    /// A word of the header.
    pub fn word<T: Plain>(&self, at: u64) -> Result<T> {
        view::load(self.region.mapping(), self.offset + at).ok_or_else(|| self.corrupt("its header lies outside"))
    }

    /// Where `bytes` bytes begin that the self-relative pointer at `at` points to; `None` for a null pointer.
    pub fn target(&self, at: u64, bytes: u64, align: u64) -> Result<Option<u64>> {
        let relative: i64 = self.word(at)?;
        if relative == 0 {
            return Ok(None);
        }
        let target = Wild::new((self.offset + at).wrapping_add_signed(relative));
        let checked = target.offset_of(bytes, align, self.region.capacity());
        checked.map(Some).ok_or_else(|| self.corrupt("it points outside of the region"))
    }

    pub fn corrupt(&self, why: &str) -> Error {
        let text = format!(
            "object at {:#x} of region '{}' is damaged: {why}; a member wrote over it, remove it and make it anew",
            self.offset,
            self.region.name()
        );
        Error::new(Status::Corrupt, text)
    }
}

/// An index beyond the end, said as what it is.
pub(super) fn out_of_range(place: &Place, index: u64, length: u64) -> Error {
    let text = format!(
        "element {index} of the object at {:#x} of region '{}': it has {length}",
        place.offset,
        place.region.name()
    );
    Error::new(Status::Invalid, text)
}

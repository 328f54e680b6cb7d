//! An item's memory: its description and its data, and for cooperative items the protocol of the owner word.
//!
//! While this process has a verified or strict item mapped for writing, no other process can reach the item's memory;
//! the daemon has proved this. So a Rust slice of the item's bytes is sound. A former owner may have left a wrong
//! description in the header, so the description is checked before it is used. A former owner may also have truncated
//! the file or punched holes into it. In this case [`ItemMemory::open`] reserves the missing memory before anything is
//! read.

mod cooperative;
mod describe;
mod header;

use std::os::fd::AsFd;
use std::sync::atomic::AtomicU32;

use crossdock_layout::Status;
use crossdock_layout::item::ITEM_DATA;
use crossdock_os::{Access, Mapping, file, memfd};

pub use cooperative::{HolderToken, ItemWaitOutcome, PartyNumbers};
pub use describe::{Contents, MAX_RANK};

use crate::{Error, Result};
use header::HeaderRef;

/// The names of all fault points of this module, at which a test build can kill its own process. The kill tests kill a
/// process at each of them.
pub const FAULT_POINTS: &[&str] = &[
    "item.begin",
    "item.counted",
    "item.given-back",
    "item.handed-over",
    "item.heal",
    "item.held",
    "item.sleep",
    "item.taken",
];

/// The mapped memory of an item.
#[derive(Debug)]
pub struct ItemMemory {
    mapping: Mapping,
    size: u64,
    access: Access,
    /// The value of the item's count of dead holders when this process last healed its regions because of that count.
    deaths_seen: AtomicU32,
}

/// The kind of memory that an item is mapped from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Backing {
    /// A file that only this process has open, and that perhaps lacks memory. [`ItemMemory::open`] gives it its size and
    /// the missing memory.
    Own,
    /// Like `Own`, for a file that has had another owner, who may have changed its size or punched holes into it. If each
    /// page of the item has data, the file stays as it is, even if it is longer.
    HandedOver,
    /// A file that no process can write, because the owner lets other tasks read the item.
    Shared,
    /// Sealed memory that is open in all tasks that may own the item.
    Cooperative,
}

impl ItemMemory {
    /// Maps an item. `size` is the number of bytes of data that the item has, as the daemon has said.
    ///
    /// # Errors
    /// `NO_SPACE` if a part of the item has no memory and the node has none left, `CORRUPT` if a shared item has less
    /// data than the daemon has said.
    pub fn open(descriptor: impl AsFd, size: u64, backing: Backing) -> Result<Self> {
        let memory = size.next_multiple_of(4096) + ITEM_DATA;
        let system = |e| Error::os(&e).during("an item's memory");
        let full = |e| Error::new(Status::NoSpace, format!("the node has no memory left for the item: {e}"));
        match backing {
            Backing::HandedOver if file::is_filled(&descriptor, memory) => {}
            Backing::Own | Backing::HandedOver => file::make_whole(&descriptor, memory).map_err(full)?,
            Backing::Shared => {
                let (length, taken) = file::sizes(&descriptor).map_err(system)?;
                if length < memory || taken < memory {
                    let text = format!("the item was shared with {length} of its {memory} bytes; it is not opened");
                    return Err(Error::new(Status::Corrupt, text));
                }
            }
            Backing::Cooperative => {
                let (_, taken) = file::sizes(&descriptor).map_err(system)?;
                memfd::check(&descriptor, memory).map_err(|e| Error::os(&e).with_status(Status::Corrupt))?;
                if taken < memory {
                    memfd::reserve(&descriptor, 0, memory).map_err(full)?;
                }
            }
        }
        let access = if backing == Backing::Shared { Access::Read } else { Access::ReadWrite };
        let mapping = Mapping::for_huge_pages(&descriptor, memory as usize, access).map_err(system)?;
        if backing == Backing::Cooperative {
            // The kernel gives huge pages here only on request. The item works without them, so an error is ignored.
            mapping.collapse(0, memory);
        }
        Ok(Self { mapping, size, access, deaths_seen: AtomicU32::new(0) })
    }

    /// The number of bytes of data.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Tells whether this process may write the data.
    #[must_use]
    pub fn writable(&self) -> bool {
        self.access == Access::ReadWrite
    }

    /// The address of the data.
    #[must_use]
    pub fn base(&self) -> *mut u8 {
        self.mapping.at(ITEM_DATA, self.size).expect("the mapping was made for as much").as_ptr()
    }

    /// The item's data, for reading.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the data lie within the mapping, which lives as long as `self`. No other process writes them: the
        // daemon has proved that no other process has the file open for writing. For a cooperative item, the tasks have
        // agreed which member writes.
        unsafe { std::slice::from_raw_parts(self.base(), self.size as usize) }
    }

    /// The item's data, which the caller may change. The slice is empty if the item may only be read.
    #[must_use]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        if !self.writable() {
            return &mut [];
        }
        // SAFETY: the data lie within the mapping, and no other process writes them, for the reasons that `bytes`
        // gives. This process has one mapping of the data, which is borrowed mutably here.
        unsafe { std::slice::from_raw_parts_mut(self.base(), self.size as usize) }
    }

    /// Fills the bytes between the end of the data and the end of the last page with zeros. These bytes may be left
    /// from a larger former size, or from an earlier owner.
    pub fn clear_behind(&mut self) {
        if !self.writable() {
            return;
        }
        let behind = self.size.next_multiple_of(4096) - self.size;
        let end = self.mapping.at(ITEM_DATA + self.size, behind).expect("the mapping has whole pages");
        // SAFETY: these bytes lie within the mapping, and no slice of the data covers them.
        unsafe { end.as_ptr().write_bytes(0, behind as usize) };
    }

    /// Maps the item's data a second time, for a region that lies in the item.
    ///
    /// # Errors
    /// `SYSTEM` if the kernel refuses the mapping.
    pub fn data_again(&self) -> Result<Mapping> {
        let again = self.mapping.again(ITEM_DATA, self.size.next_multiple_of(4096));
        again.map_err(|e| Error::os(&e).during("an item's memory"))
    }

    fn header(&self) -> HeaderRef<'_> {
        // SAFETY: the mapping begins with a page that holds the header. The header consists of atomics, for which every
        // bit pattern is a valid value. If the mapping is read-only, this module stores nothing through it.
        HeaderRef::new(unsafe { self.mapping.start().cast().as_ref() })
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_list_has_every_fault_point_of_the_sources() {
        let source = concat!(include_str!("cooperative.rs"), include_str!("header.rs"));
        let mut found: Vec<_> =
            source.split("fault_point!(\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        found.sort_unstable();
        assert_eq!(found, super::FAULT_POINTS);
    }
}

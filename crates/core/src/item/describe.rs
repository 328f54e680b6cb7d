//! The description of an item's contents, which its owner wrote into the item's first page.

use crossdock_layout::Status;
use crossdock_layout::item::ITEM_RANK;
use crossdock_layout::type_name::Type;

use super::ItemMemory;
use crate::containers::Order;
use crate::{Error, Result};

/// The largest number of dimensions of an array.
pub const MAX_RANK: usize = ITEM_RANK;

/// The kind of data that an item contains.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Contents {
    /// Bytes without a description.
    #[default]
    Bytes,
    /// An array without gaps between its elements. It begins at the first byte.
    Array {
        /// The type of the elements, written as a type name of crossdock: `f64`, `u8[3]`.
        ty: String,
        /// The length of each dimension, the outermost first.
        shape: Vec<u64>,
        /// The order of the elements: which index varies fastest.
        order: Order,
    },
    /// A region with a heap, in which there are named objects and containers.
    Heap,
}

impl Contents {
    /// Checks that the contents fit into this number of bytes.
    ///
    /// # Errors
    /// `INVALID` if there is no such type, if there are too many dimensions, or if the contents do not fit.
    pub fn check(&self, size: u64) -> Result<()> {
        let invalid = |text: String| Err(Error::new(Status::Invalid, text));
        match self {
            Self::Bytes => Ok(()),
            Self::Heap if size < crossdock_layout::region::MIN_CAPACITY => {
                let least = crossdock_layout::region::MIN_CAPACITY;
                invalid(format!("an item with a heap has at least {least} bytes, not {size}"))
            }
            Self::Heap => Ok(()),
            Self::Array { ty, shape, .. } => {
                let parsed = Type::parse(ty).map_err(|e| Error::new(Status::Invalid, e.to_string()))?;
                let Some((element, _)) = parsed.size_and_align() else {
                    return invalid(format!("an array in an item cannot have elements of type '{ty}'"));
                };
                if shape.len() > MAX_RANK {
                    return invalid(format!("an array has at most {MAX_RANK} extents, not {}", shape.len()));
                }
                let bytes = shape.iter().try_fold(element, |bytes, extent| bytes.checked_mul(*extent));
                match bytes {
                    Some(bytes) if bytes <= size => Ok(()),
                    _ => invalid(format!("an array '{ty}' of shape {shape:?} does not fit into {size} bytes")),
                }
            }
        }
    }
}

impl ItemMemory {
    /// Replaces the description of the contents. Only the item's owner can call this function.
    ///
    /// # Errors
    /// `INVALID` if the contents do not fit, `DENIED` if the item may only be read.
    pub fn describe(&mut self, contents: &Contents) -> Result<()> {
        self.describe_held(contents)
    }

    /// Replaces the description of the contents of a cooperative item. The caller is the member that has the item.
    ///
    /// # Errors
    /// The errors of `describe`.
    pub fn describe_held(&self, contents: &Contents) -> Result<()> {
        contents.check(self.size)?;
        if !self.writable() {
            return Err(Error::read_only());
        }
        self.header().describe(contents);
        Ok(())
    }

    /// Reads the description of the contents and checks it against the item's size.
    ///
    /// # Errors
    /// `CORRUPT` or `INCOMPATIBLE` if a former owner left no valid description. The bytes can still be read.
    pub fn contents(&self) -> Result<Contents> {
        self.header().contents(self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Backing;
    use super::*;
    use crossdock_os::tmpfs::Folder;
    use std::sync::atomic::Ordering;

    fn memory(size: u64) -> ItemMemory {
        let folder = Folder::shared_memory().unwrap();
        let file = folder.create("test", size.next_multiple_of(4096) + 4096).unwrap();
        ItemMemory::open(&file, size, Backing::Own).unwrap()
    }

    fn array(ty: &str, shape: &[u64]) -> Contents {
        Contents::Array { ty: ty.into(), shape: shape.to_vec(), order: Order::Fortran }
    }

    #[test]
    fn what_is_described_is_found_and_fresh_memory_is_bytes() {
        let mut memory = memory(4096);
        assert_eq!(memory.contents().unwrap(), Contents::Bytes);
        for contents in [array("f64", &[8, 64]), array("u8[3]", &[]), Contents::Bytes] {
            memory.describe(&contents).unwrap();
            assert_eq!(memory.contents().unwrap(), contents);
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let mut memory = memory(4096);
        let long = [1; 9];
        for bad in [array("f64", &[513]), array("f64", &[u64::MAX, 2]), array("nothing", &[1]), array("u8", &long)] {
            assert_eq!(memory.describe(&bad).unwrap_err().status, Status::Invalid, "{bad:?}");
        }
        assert_eq!(memory.describe(&Contents::Heap).unwrap_err().status, Status::Invalid);
        assert_eq!(memory.contents().unwrap(), Contents::Bytes);
    }

    #[test]
    fn rubbish_that_a_former_owner_left_is_reported_and_harms_no_member() {
        let mut memory = memory(4096);
        memory.describe(&array("f64", &[512])).unwrap();
        memory.header().raw().shape[0].store(u64::MAX, Ordering::Relaxed);
        assert_eq!(memory.contents().unwrap_err().status, Status::Corrupt);
        memory.describe(&array("f64", &[512])).unwrap();
        memory.header().raw().rank.store(9, Ordering::Relaxed);
        assert_eq!(memory.contents().unwrap_err().status, Status::Corrupt);
        memory.describe(&array("f64", &[512])).unwrap();
        memory.header().raw().type_name.iter().for_each(|w| w.store(u64::MAX, Ordering::Relaxed));
        assert_eq!(memory.contents().unwrap_err().status, Status::Corrupt);
        memory.header().raw().contents.store(77, Ordering::Relaxed);
        assert_eq!(memory.contents().unwrap_err().status, Status::Corrupt);
        memory.header().raw().version.store(77, Ordering::Relaxed);
        assert_eq!(memory.contents().unwrap_err().status, Status::Incompatible);
        assert_eq!(memory.bytes().len(), 4096);
    }

    #[test]
    fn a_file_that_its_former_owner_cut_or_punched_is_made_whole() {
        let folder = Folder::shared_memory().unwrap();
        // The kernel is asked in another way about a small file than about a large one.
        for size in [8192, 1 << 20] {
            let file = folder.create("test", size + 4096).unwrap();
            drop(ItemMemory::open(&file, size, Backing::Own).unwrap());
            crossdock_os::file::set_size(&file, 100).unwrap();
            assert_eq!(ItemMemory::open(&file, size, Backing::Shared).unwrap_err().status, Status::Corrupt);
            let mut memory = ItemMemory::open(&file, size, Backing::HandedOver).unwrap();
            memory.bytes_mut().fill(7);
            crossdock_os::memfd::give_back(&file, 4096, 4096).unwrap();
            drop(memory);
            assert_eq!(ItemMemory::open(&file, size, Backing::Shared).unwrap_err().status, Status::Corrupt);
            let mut memory = ItemMemory::open(&file, size, Backing::HandedOver).unwrap();
            assert_eq!((memory.bytes()[0], memory.bytes()[size as usize - 1]), (0, 7));
            memory.bytes_mut().fill(8);
            drop(memory);
            let memory = ItemMemory::open(&file, size, Backing::HandedOver).unwrap();
            assert!(memory.bytes().iter().all(|byte| *byte == 8), "nothing was missing");
        }
    }
}

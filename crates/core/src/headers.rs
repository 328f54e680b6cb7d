//! The only reader of the headers of vectors, strings and ndarrays. Any member can overwrite a header at any time. So
//! each word is read once, and it is used as an offset or a length only after all checks.

use std::sync::atomic::Ordering;

use crossdock_layout::region::{MAX_RANK, NdarrayHeader, Order, VectorHeader};
use crossdock_layout::type_name::Type;
use crossdock_layout::{Status, Wild};

use crate::Result;
use crate::region::Region;

/// The alignment of elements in bytes. Elements begin at a cache line, which also suits vector instructions.
pub(crate) const DATA_ALIGN: u64 = 64;

/// The checked contents of a vector's or string's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VectorData {
    /// The offset of the elements in the region. From there, `capacity` elements fit into the region; this was
    /// checked. `None` if the vector never had elements.
    pub data: Option<u64>,
    /// The number of elements.
    pub size: u64,
    /// The number of elements for which there is room.
    pub capacity: u64,
}

/// The checked contents of an ndarray's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NdarrayData {
    /// The offset of the elements in the region. From there, the elements fit into the region; this was checked.
    /// `None` if the ndarray never had elements.
    pub data: Option<u64>,
    /// The number of bytes that the elements take.
    pub bytes: u64,
    /// The number of bytes for which there is room.
    pub capacity: u64,
    /// The order of the elements: which index varies fastest.
    pub order: Order,
    rank: usize,
    extents: [u64; MAX_RANK],
}

impl NdarrayData {
    /// The number of elements in each dimension.
    #[must_use]
    pub fn shape(&self) -> &[u64] {
        &self.extents[..self.rank]
    }
}

impl Region {
    /// Reads the header of the vector at `header`, whose elements have `element` bytes; 1 for a string.
    ///
    /// # Errors
    /// `BAD_HANDLE` if no header can lie at this offset, `CORRUPT` if the header is damaged.
    pub fn vector_at(&self, header: u64, element: u64) -> Result<VectorData> {
        self.check_container(header, size_of::<VectorHeader>() as u64)?;
        let (size, capacity) = (Wild::new(self.get(header + 16)), self.get(header + 24));
        let data = capacity.checked_mul(element).filter(|_| element > 0).and_then(|bytes| self.elements(header, bytes));
        match (size.at_most(capacity), data) {
            (Some(size), Some(data)) => Ok(VectorData { data, size, capacity }),
            _ => {
                let (size, pointer) = (size.unchecked_for_display(), self.get(header + 8));
                let text = format!(
                    "the vector at {header:#x}: size {size} and capacity {capacity} of {element} bytes, data {pointer:#x}"
                );
                Err(self.corrupt(text))
            }
        }
    }

    /// Reads the header of the ndarray at `header`, whose elements have `element` bytes.
    ///
    /// # Errors
    /// `BAD_HANDLE` if no header can lie at this offset, `CORRUPT` if the header is damaged.
    pub fn ndarray_at(&self, header: u64, element: u64) -> Result<NdarrayData> {
        self.check_container(header, size_of::<NdarrayHeader>() as u64)?;
        let (capacity, both) = (self.get(header + 16), self.get(header + 24));
        let rank = Wild::new(both & 0xffff_ffff).at_most(MAX_RANK as u64);
        let order = Order::from_number((both >> 32) as u32);
        let mut extents = [0; MAX_RANK];
        let rank = rank.unwrap_or(u64::MAX) as usize;
        for (axis, extent) in extents.iter_mut().enumerate().take(rank.min(MAX_RANK)) {
            *extent = self.get(header + 32 + 8 * axis as u64);
        }
        let untouched = rank == 0 && self.get(header + 8) == 0;
        let shape = extents.get(..rank);
        let bytes = shape.and_then(|shape| shape.iter().try_fold(element, |bytes, n| bytes.checked_mul(*n)));
        let bytes = if untouched { Some(0) } else { bytes.filter(|bytes| element > 0 && *bytes <= capacity) };
        let data = bytes.and_then(|bytes| self.elements(header, bytes).map(|data| (data, bytes)));
        match (order, data) {
            (Some(order), Some((data, bytes))) => Ok(NdarrayData { data, bytes, capacity, order, rank, extents }),
            _ => {
                let order = both >> 32;
                let text = format!(
                    "the ndarray at {header:#x}: rank {}, order {order}, {capacity} bytes for shape {:?} of {element} bytes",
                    both & 0xffff_ffff,
                    &extents[..rank.min(MAX_RANK)]
                );
                Err(self.corrupt(text))
            }
        }
    }

    /// Gives the offset of the elements to which a header's data word points. The result is `Some(None)` if the word
    /// is null and `bytes` is 0. The whole result is `None` if no elements can lie at that offset.
    fn elements(&self, header: u64, bytes: u64) -> Option<Option<u64>> {
        match self.get(header + 8) {
            0 => (bytes == 0).then_some(None),
            word => {
                let target = Wild::new((header + 8).wrapping_add(word));
                let within = target.offset_of(bytes, DATA_ALIGN, self.capacity())?;
                (within > 0).then_some(Some(within))
            }
        }
    }

    /// Finds the block that has the elements of the container at `header`, so that it can be freed when the container's
    /// object is removed. `None` if the container owns no block.
    pub(crate) fn owned_block(&self, header: u64) -> Option<u64> {
        let field = header.checked_add(8)?;
        let pointer = self.memory.word(field)?.load(Ordering::Acquire);
        let data = field.wrapping_add(pointer);
        (pointer != 0 && self.is_plain_block(data)).then_some(data)
    }

    /// The number of elements of the container of type `ty` at `header`, but at most as many as fit into the
    /// container's block of `bytes` bytes. An element has `each` bytes.
    pub(crate) fn owned_elements(&self, ty: &Type, header: u64, each: u64, bytes: u64) -> u64 {
        let most = bytes.checked_div(each).unwrap_or(0);
        if matches!(ty, Type::Ndarray(_)) {
            return self.ndarray_at(header, each).map_or(0, |array| (array.bytes / each).min(most));
        }
        let size = header.checked_add(16).and_then(|field| self.memory.word(field));
        size.map_or(0, |size| size.load(Ordering::Acquire).min(most))
    }

    /// Checks that a header lies in the data area and is aligned to 8 bytes.
    pub(crate) fn check_container(&self, header: u64, length: u64) -> Result<()> {
        if header % 8 == 0 && self.memory.data(header, length).is_some() {
            return Ok(());
        }
        Err(self.error(Status::BadHandle, format!("no container can lie at {header:#x}")))
    }
}

/// Tells what to write into a container's header to empty the container: the offset of three words, and zeros for them.
/// In a vector's header these words are the pointer to the elements, the size and the capacity. In an ndarray's header
/// they are the pointer, the capacity, and the rank with the order.
pub(crate) fn emptied(header: u64) -> (u64, [u64; 3]) {
    (header + 8, [0; 3])
}

//! How vectors, strings and ndarrays grow. These are the containers that all languages share.
//!
//! A container changes its block by `replace`. If the task dies during the change, the container has either its old
//! contents or the new ones, and no block leaks. The elements of a container may have containers themselves. The
//! pointers in the headers of such inner containers are distances from the pointer's own position, so they have to
//! change when the elements move. The types in the directory tell where the elements have such headers.
//!
//! Two tasks must not change one container at the same time, just as two threads must not change one container of C++
//! at the same time. If they do, the container's contents may be wrong, but the heap stays valid.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crossdock_layout::Status;
use crossdock_layout::region::MAX_RANK;
use crossdock_layout::type_name::{Type, with_offsets};

use crate::Result;
use crate::directory::owns_memory;
use crate::headers::{DATA_ALIGN, NdarrayData, VectorData};
use crate::region::Region;

pub use crossdock_layout::region::Order;

impl Region {
    /// Changes the number of elements of the vector at `header` to `n`; added elements are zero. `elem_size` is the
    /// size of an element in bytes, 1 for a string. The elements may have containers themselves. If the elements move
    /// to another block, these inner containers keep their contents. If elements are removed, the blocks that they own
    /// are freed. If the task dies during this work, some of the elements that were to be removed are empty. If the
    /// elements have containers, the directory must contain the type of the vector. The directory does not contain the
    /// type if the header lies in a block that the program allocated, or in an object of an opaque type. Elements of
    /// such a vector must not have containers.
    ///
    /// # Errors
    /// `WRONG_TYPE` if the directory says that the vector's elements have another size. The directory knows the element
    /// size of a vector that is a named object, a part of a named object, or an element of a container in a named
    /// object. If the vector's header lies in a block that the program allocated, the element size is not checked. If
    /// the search for the header has to pass more than 4096 nested containers, this first check is left out. A second
    /// search is made before elements of at least 32 bytes (the size of a vector's header) are moved or removed, but it
    /// finds and checks the vector only if the elements own blocks. `NO_SPACE` if the region cannot grow, `BAD_HANDLE`
    /// if no header can lie at this offset, `CORRUPT` if the header is damaged, `BUSY` if a stopped member holds the
    /// region's lock. After an error the vector has its old size; after `BUSY` or `CORRUPT`, some of the elements that
    /// were to be removed may be empty.
    pub fn vector_resize(self: &Arc<Self>, header: u64, elem_size: u64, n: u64) -> Result<()> {
        self.vector_change(header, elem_size, n, true)
    }

    /// Makes room for `n` elements, but leaves the vector's size as it is.
    pub fn vector_reserve(self: &Arc<Self>, header: u64, elem_size: u64, n: u64) -> Result<()> {
        self.vector_change(header, elem_size, n, false)
    }

    fn vector_change(self: &Arc<Self>, header: u64, elem_size: u64, n: u64, resize: bool) -> Result<()> {
        self.check_succession()?;
        self.check_element_size(header, elem_size, false)?;
        let VectorData { data, size, capacity } = self.vector_at(header, elem_size)?;
        let data = self.block_of(header, data, capacity * elem_size)?;
        let new_size = if resize { n } else { size };
        if n <= capacity {
            match data.filter(|_| resize) {
                Some(at) if n > size => self.zero(at + size * elem_size, (n - size) * elem_size),
                Some(at) if n < size => self.empty(header, elem_size, false, (at + n * elem_size, size - n))?,
                _ => {}
            }
            self.put(header + 16, new_size);
            return Ok(());
        }
        let of = if size > 0 { self.owning_elements(header, elem_size, false)? } else { None };
        // The capacity grows by half, so that appending one element costs a constant time on average.
        let wish = if resize && size > 0 { n.max(capacity + capacity / 2) } else { n };
        let block = match self.prepare_elements(wish, elem_size) {
            Err(error) if error.status == Status::NoSpace && wish > n => self.prepare_elements(n, elem_size)?,
            other => other?,
        };
        let bytes = self.block_size(block)?;
        let old = size * elem_size;
        if let Some(from) = data {
            self.move_elements(from, block, size, elem_size, of.as_ref());
        }
        self.zero(block + old, new_size.max(size) * elem_size - old);
        let words = [self.region_word(header), pointer(header + 8, block), new_size, bytes / elem_size];
        self.replace_prepared(header, &words, block, data.unwrap_or(0))
    }

    /// Changes the ndarray at `header` to this shape. The bytes that the ndarray already has stay as they are, and
    /// added bytes are zero.
    pub fn ndarray_reshape(self: &Arc<Self>, header: u64, elem_size: u64, order: Order, shape: &[u64]) -> Result<()> {
        self.check_succession()?;
        let count = shape.iter().try_fold(1u64, |all, n| all.checked_mul(*n));
        let Some(bytes) = count.and_then(|n| n.checked_mul(elem_size)) else {
            return Err(self.error(Status::Invalid, format!("an ndarray of shape {shape:?} has more than 2^64 bytes")));
        };
        if shape.len() > MAX_RANK || elem_size == 0 {
            let text =
                format!("an ndarray of rank {} and elements of {elem_size} bytes: rank ≤ {MAX_RANK}", shape.len());
            return Err(self.error(Status::Invalid, text));
        }
        self.check_element_size(header, elem_size, true)?;
        let NdarrayData { data, bytes: used, capacity, .. } = self.ndarray_at(header, elem_size)?;
        let data = self.block_of(header, data, capacity)?;
        let mut words = [0u64; 12];
        words[0] = self.region_word(header);
        words[3] = shape.len() as u64 | u64::from(order as u32) << 32;
        words[4..4 + shape.len()].copy_from_slice(shape);
        if bytes <= capacity {
            match data {
                Some(at) if bytes > used => self.zero(at + used, bytes - used),
                Some(at) if bytes < used => {
                    self.empty(header, elem_size, true, (at + bytes, (used - bytes) / elem_size))?;
                }
                _ => {}
            }
            words[1] = self.get(header + 8);
            words[2] = capacity;
            return self.replace(header, &words, 0, 0);
        }
        let of = if used > 0 { self.owning_elements(header, elem_size, true)? } else { None };
        let block = self.prepare(bytes, DATA_ALIGN)?;
        if let Some(from) = data {
            self.move_elements(from, block, used / elem_size, elem_size, of.as_ref());
        }
        self.zero(block + used, bytes - used);
        words[1] = pointer(header + 8, block);
        words[2] = self.block_size(block)?;
        self.replace_prepared(header, &words, block, data.unwrap_or(0))
    }

    fn prepare_elements(self: &Arc<Self>, n: u64, elem_size: u64) -> Result<u64> {
        let Some(bytes) = n.checked_mul(elem_size) else {
            let text = format!("{n} elements of {elem_size} bytes are more than 2^64 bytes");
            return Err(self.error(Status::NoSpace, text));
        };
        self.prepare(bytes, DATA_ALIGN)
    }

    fn replace_prepared(self: &Arc<Self>, header: u64, words: &[u64], new: u64, old: u64) -> Result<()> {
        let replaced = self.replace(header, words, new, old);
        if replaced.is_err() {
            let _ = self.keep(new).map(|()| self.deallocate(new));
        }
        replaced
    }

    /// Checks that a container's elements lie in a block with room for `bytes` bytes, and gives the elements' offset.
    fn block_of(&self, header: u64, data: Option<u64>, bytes: u64) -> Result<Option<u64>> {
        match data {
            Some(data) if !self.is_plain_block(data) => {
                Err(self.corrupt(format!("the container at {header:#x} points to {data:#x}, where no block starts")))
            }
            Some(data) if self.block_size(data)? < bytes => {
                Err(self.corrupt(format!("the container at {header:#x} says {bytes} bytes, its block has fewer")))
            }
            None if bytes > 0 => Err(self.corrupt(format!("the container at {header:#x} has {bytes} bytes nowhere"))),
            data => Ok(data),
        }
    }

    /// A container's header stores in its word `region` the distance from the header back to the region's first byte.
    /// This function computes that word for the header at offset `header`.
    fn region_word(&self, header: u64) -> u64 {
        header.wrapping_neg()
    }

    pub(crate) fn get(&self, at: u64) -> u64 {
        self.memory.word(at).map_or(0, |word| word.load(Ordering::Acquire))
    }

    fn put(&self, at: u64, value: u64) {
        if let Some(word) = self.memory.word(at) {
            word.store(value, Ordering::Release);
        }
    }

    fn zero(&self, at: u64, length: u64) {
        if let Some(to) = self.memory.data(at, length) {
            // SAFETY: the range lies within the mapping, as `data` checked. The bytes there are elements, which tasks
            // may write.
            unsafe { to.write_bytes(0, length as usize) };
        }
    }

    /// Frees the blocks that some elements of the container at `header` own, because these elements are to be removed.
    /// `going` is the offset of the first of these elements, and the number of these elements.
    fn empty(self: &Arc<Self>, header: u64, elem_size: u64, is_ndarray: bool, going: (u64, u64)) -> Result<()> {
        match self.owning_elements(header, elem_size, is_ndarray)? {
            Some(of) => self.empty_elements(&of, going.0, going.1),
            None => Ok(()),
        }
    }

    /// Copies `n` elements to a new block. If the elements can own blocks, `of` is their type. After the copy, the
    /// containers in the new elements point to the same blocks as the containers in the old elements.
    fn move_elements(&self, from: u64, to: u64, n: u64, elem_size: u64, of: Option<&Type>) {
        self.copy(from, to, n * elem_size);
        if let Some(of) = of {
            (0..n).for_each(|i| self.relocate(of, to + i * elem_size, from.wrapping_sub(to)));
        }
    }

    /// Corrects the self-relative pointers in a value of type `ty` that was moved: adds `distance` (the old position
    /// minus the new one) to each of them.
    fn relocate(&self, ty: &Type, at: u64, distance: u64) {
        match ty {
            Type::Scalar(..) | Type::Opaque(_) => {}
            Type::Array(of, _) if !owns_memory(of) => {}
            Type::Array(of, n) => {
                let Some((size, _)) = of.size_and_align() else { return };
                for i in 0..*n {
                    let Some(element) = i.checked_mul(size).and_then(|o| at.checked_add(o)) else { return };
                    self.relocate(of, element, distance);
                }
            }
            Type::Struct(fields) => {
                for (offset, field) in with_offsets(fields) {
                    self.relocate(field, at.saturating_add(offset), distance);
                }
            }
            Type::Vector(_) | Type::String | Type::Ndarray(_) => {
                for word in [at, at + 8] {
                    let pointer = self.get(word);
                    if pointer != 0 {
                        self.put(word, pointer.wrapping_add(distance));
                    }
                }
            }
        }
    }

    fn copy(&self, from: u64, to: u64, length: u64) {
        if let (Some(from), Some(to)) = (self.memory.data(from, length), self.memory.data(to, length)) {
            // SAFETY: both ranges lie within the mapping, as `data` checked. If damaged numbers make the two ranges
            // overlap, `copy` allows that.
            unsafe { std::ptr::copy(from, to, length as usize) };
        }
    }
}

/// The self-relative pointer that is stored at `field` and points to `target`: the distance from `field` to `target`.
fn pointer(field: u64, target: u64) -> u64 {
    target.wrapping_sub(field)
}

//! Growth of the containers that all languages share: vector, string, ndarray.
//!
//! A container changes its block by `replace`, so that a death leaves the old contents or the new ones and no leak. Two
//! tasks that change one container at once are a mistake of theirs, as two threads would be; the heap stays whole.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crossdock_layout::Status;
use crossdock_layout::region::{MAX_RANK, NdarrayHeader, VectorHeader};

use crate::Result;
use crate::region::Region;

/// Elements begin at a cache line, which is also what vector instructions like best.
const DATA_ALIGN: u64 = 64;

pub use crossdock_layout::region::Order;

impl Region {
    /// Gives the vector at `header` `n` elements; new ones are zero. `elem_size` is 1 for a string.
    pub fn vector_resize(self: &Arc<Self>, header: u64, elem_size: u64, n: u64) -> Result<()> {
        self.vector_change(header, elem_size, n, true)
    }

    /// Makes room for `n` elements without changing the size.
    pub fn vector_reserve(self: &Arc<Self>, header: u64, elem_size: u64, n: u64) -> Result<()> {
        self.vector_change(header, elem_size, n, false)
    }

    fn vector_change(self: &Arc<Self>, header: u64, elem_size: u64, n: u64, resize: bool) -> Result<()> {
        self.check_succession()?;
        self.check_within_block(header, size_of::<VectorHeader>() as u64)?;
        let data = self.container_data(header, "vector")?;
        let (size, capacity) = (self.get(header + 16), self.get(header + 24));
        let bytes = capacity.checked_mul(elem_size);
        let sound = elem_size > 0 && size <= capacity && bytes.is_some_and(|bytes| bytes <= data.map_or(0, |d| d.1));
        if !sound {
            let text = format!("the vector at {header:#x}: size {size} and capacity {capacity} of {elem_size} bytes");
            return Err(self.corrupt(text));
        }
        let new_size = if resize { n } else { size };
        if n <= capacity {
            if resize && n > size {
                if let Some((at, _)) = data {
                    self.zero(at + size * elem_size, (n - size) * elem_size);
                }
            }
            self.put(header + 16, new_size);
            return Ok(());
        }
        // Half as much again, so that growing element by element costs a constant each.
        let wish = if resize && size > 0 { n.max(capacity + capacity / 2) } else { n };
        let block = match self.prepare_elements(wish, elem_size) {
            Err(error) if error.status == Status::NoSpace && wish > n => self.prepare_elements(n, elem_size)?,
            other => other?,
        };
        let bytes = self.block_size(block)?;
        let old = size * elem_size;
        if let Some((from, _)) = data {
            self.copy(from, block, old);
        }
        self.zero(block + old, new_size.max(size) * elem_size - old);
        let words = [self.region_word(header), pointer(header + 8, block), new_size, bytes / elem_size];
        self.replace_prepared(header, &words, block, data.map_or(0, |d| d.0))
    }

    /// Gives the ndarray at `header` this shape. Its bytes stay as they are; what is beyond them is zero.
    pub fn ndarray_reshape(self: &Arc<Self>, header: u64, elem_size: u64, order: Order, shape: &[u64]) -> Result<()> {
        self.check_succession()?;
        self.check_within_block(header, size_of::<NdarrayHeader>() as u64)?;
        let count = shape.iter().try_fold(1u64, |all, n| all.checked_mul(*n));
        let Some(bytes) = count.and_then(|n| n.checked_mul(elem_size)) else {
            return Err(self.error(Status::Invalid, format!("an ndarray of shape {shape:?} has more than 2^64 bytes")));
        };
        if shape.len() > MAX_RANK || elem_size == 0 {
            let text =
                format!("an ndarray of rank {} and elements of {elem_size} bytes: rank ≤ {MAX_RANK}", shape.len());
            return Err(self.error(Status::Invalid, text));
        }
        let data = self.container_data(header, "ndarray")?;
        let capacity = self.get(header + 16);
        if data.map_or(0, |d| d.1) < capacity {
            return Err(self.corrupt(format!("the ndarray at {header:#x}: capacity of {capacity} bytes")));
        }
        let used = self.ndarray_bytes(header, elem_size).min(capacity);
        let mut words = [0u64; 12];
        words[0] = self.region_word(header);
        words[3] = shape.len() as u64 | u64::from(order as u32) << 32;
        words[4..4 + shape.len()].copy_from_slice(shape);
        if bytes <= capacity {
            if let Some((at, _)) = data.filter(|_| bytes > used) {
                self.zero(at + used, bytes - used);
            }
            words[1] = self.get(header + 8);
            words[2] = capacity;
            return self.replace(header, &words, 0, 0);
        }
        let block = self.prepare(bytes, DATA_ALIGN)?;
        if let Some((from, _)) = data {
            self.copy(from, block, used);
        }
        self.zero(block + used, bytes - used);
        words[1] = pointer(header + 8, block);
        words[2] = self.block_size(block)?;
        self.replace_prepared(header, &words, block, data.map_or(0, |d| d.0))
    }

    /// Bytes that the elements of an ndarray take by its shape; 0 for a shape that makes no sense.
    fn ndarray_bytes(&self, header: u64, elem_size: u64) -> u64 {
        let rank = (self.get(header + 24) & 0xffff_ffff) as usize;
        if self.get(header + 8) == 0 || rank > MAX_RANK {
            return 0;
        }
        let lengths = (0..rank as u64).map(|i| self.get(header + 32 + 8 * i));
        lengths.fold(elem_size, u64::saturating_mul)
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

    /// The data block of a container: offset and bytes. `None` when it has none.
    fn container_data(&self, header: u64, what: &str) -> Result<Option<(u64, u64)>> {
        let value = self.get(header + 8);
        let data = (header + 8).wrapping_add(value);
        if value == 0 {
            return Ok(None);
        }
        if !self.is_plain_block(data) {
            return Err(self.corrupt(format!("the {what} at {header:#x} points to {data:#x}, where no block starts")));
        }
        Ok(Some((data, self.block_size(data)?)))
    }

    /// A header lies in the data area, aligned to 8.
    fn check_within_block(&self, header: u64, length: u64) -> Result<()> {
        if header % 8 == 0 && self.memory.data(header, length).is_some() {
            return Ok(());
        }
        Err(self.error(Status::BadHandle, format!("no container can lie at {header:#x}")))
    }

    /// What a header's `region` word is: the region's first byte, self-relative.
    fn region_word(&self, header: u64) -> u64 {
        header.wrapping_neg()
    }

    fn get(&self, at: u64) -> u64 {
        self.memory.word(at).map_or(0, |word| word.load(Ordering::Acquire))
    }

    fn put(&self, at: u64, value: u64) {
        if let Some(word) = self.memory.word(at) {
            word.store(value, Ordering::Release);
        }
    }

    fn zero(&self, at: u64, length: u64) {
        if let Some(to) = self.memory.data(at, length) {
            // SAFETY: within the mapping, as `data` checked; what lies there are elements, which tasks may write.
            unsafe { to.write_bytes(0, length as usize) };
        }
    }

    fn copy(&self, from: u64, to: u64, length: u64) {
        if let (Some(from), Some(to)) = (self.memory.data(from, length), self.memory.data(to, length)) {
            // SAFETY: both within the mapping, as `data` checked; `copy` allows them to overlap, should wild numbers
            // make them.
            unsafe { std::ptr::copy(from, to, length as usize) };
        }
    }
}

/// The self-relative pointer at `field` to `target`.
fn pointer(field: u64, target: u64) -> u64 {
    target.wrapping_sub(field)
}

//! The object of a message, as bytes from which another node makes an equal object.
//!
//! An object moves by value if the other node can make an equal object from a copy of the object's bytes. Numbers,
//! structs of numbers and blocks of bytes move by value, and so do vectors, strings and ndarrays of them. A container
//! whose elements are containers does not move by value. The type of a named object is known. A block without a name
//! has no known type, but a container in it can be recognised: the header of each container begins with a self-relative
//! pointer to the region's first byte. So a word at the offset x of the region begins a container if the word has the
//! value -x. If the first word of a block begins a container, the block is a container. If a word in the object's data
//! begins a container, the object contains another container, and does not move by value.
//!
//! The bytes of a large object do not pass through a copy of the object. The node of the original serves them from the
//! region of the original ([`Original`]), and the other node reads them into their place in its own region
//! ([`Making`]).

use crossdock_client::{Handle, Region, Status, TypeRef};
use crossdock_core::region::NewBlock;
use crossdock_core::{Error, Result, shared_access};
use crossdock_layout::region::{MAX_RANK, Order};
use crossdock_layout::type_name::Type;
use crossdock_link::{Buffer, Refusal, Source};

/// The number of 8-byte words in the header of a vector (`VECTOR`) and of an ndarray (`NDARRAY`).
const VECTOR: usize = 4;
const NDARRAY: usize = 12;
/// The elements of a copied container begin at a cache line.
const ALIGN: u64 = 64;

/// The kind of an object, with the size of its contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Plain bytes.
    Plain,
    /// A vector or a string, with its number of elements.
    Vector(u64),
    /// An ndarray, with the words of its header from the fourth word on. The first of these words holds the number of
    /// dimensions and the storage order (C or Fortran). The others hold the extents.
    Ndarray([u64; NDARRAY - 3]),
}

/// A description of an object, independent of any region. If the object is large, its bytes are left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    pub shape: Shape,
    /// The type's name, if the object has a name.
    pub ty: Option<String>,
    /// The bytes of a plain object, or the elements of a container.
    pub bytes: Vec<u8>,
}

/// An object that was made in a region of this node, with the data that are needed to free it.
#[derive(Clone, Debug)]
pub struct Made {
    region: Region,
    offset: u64,
    name: Option<String>,
    data: u64,
}

fn not_by_value(region: &Region, what: &str) -> Error {
    let text = format!(
        "the object of this message, in region '{}', {what}: it does not move to another node by value; send an item with a \
         heap instead, which arrives with all handles valid",
        region.name()
    );
    Error::new(Status::Invalid, text)
}

/// The position of an object's bytes in the region on the node from which the message comes. The bytes stay unchanged
/// while that node's relay holds the message.
#[derive(Clone, Debug)]
pub struct Original {
    region: Region,
    offset: u64,
    length: u64,
    /// Whether the type of the object is known. If it is not, the bytes may hold containers.
    has_type: bool,
}

impl Original {
    /// Copies bytes of the region into `to`, from the offset `from` of the region on. If the object's type is not
    /// known, checks that the bytes hold no container.
    fn copy_out(&self, from: u64, to: &mut [u8]) -> Result<()> {
        let length = to.len();
        let outside = || Error::new(Status::Corrupt, format!("{length} bytes at {from:#x} are not in the region"));
        shared_access::copy_out(self.region.mapping(), from, to).ok_or_else(outside)?;
        if !self.has_type && holds_container(to, from) {
            return Err(not_by_value(&self.region, "holds containers"));
        }
        Ok(())
    }

    /// Copies all bytes of the object.
    ///
    /// # Errors
    /// `INVALID` if the bytes hold a container.
    pub fn bytes(&self) -> Result<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(self.length).unwrap_or(usize::MAX)];
        self.copy_out(self.offset, &mut bytes)?;
        Ok(bytes)
    }
}

impl Source for Original {
    fn length(&self) -> u64 {
        self.length
    }

    fn bytes<'a>(&'a self, offset: u64, length: u64, buffer: &'a mut Buffer) -> std::result::Result<&'a [u8], Refusal> {
        offset.checked_add(length).filter(|end| *end <= self.length).ok_or_else(Refusal::shorter)?;
        // A task could change the object while a checksum is computed, although this is against the rules. So the bytes
        // are copied before the checksum is computed. If the wanted bytes begin or end in the middle of a word, the
        // whole word is copied, because `copy_out` can recognise a container only by a whole word.
        let begin = self.offset + offset;
        let first = (begin / 8 * 8).max(self.offset);
        let end = (begin + length).next_multiple_of(8).min(self.offset + self.length);
        let bytes = buffer.room(end - first)?;
        self.copy_out(first, bytes).map_err(|error| Refusal::new(error.status, error.to_string()))?;
        Ok(&bytes[(begin - first) as usize..][..length as usize])
    }
}

fn word(region: &Region, offset: u64) -> Result<u64> {
    shared_access::load(region.mapping(), offset)
        .ok_or_else(|| Error::new(Status::Corrupt, format!("the word at {offset:#x} is not in the region")))
}

/// Tells whether `bytes` contain the first word of a container at a multiple of eight bytes. `offset` is the position
/// of the bytes in the region, a multiple of eight.
fn holds_container(bytes: &[u8], offset: u64) -> bool {
    /// How many bytes make a group. The words of a group are tested only if a fast comparison finds something.
    const GROUP: usize = 4096;
    let number = |half: &[u8]| u32::from_le_bytes(half.try_into().expect("four bytes"));
    bytes.chunks(GROUP).zip((offset..).step_by(GROUP)).any(|(group, from)| {
        // The first word of a container is the negative of the container's offset. So all containers that begin in the
        // same 4 GiB of a region have the same upper half in their first words. Each group is first searched for this
        // upper half, and the compiler uses vector instructions for this search. Few groups contain the upper half.
        // Only these groups are searched a second time, for the whole word.
        let upper = |at: u64| (at.wrapping_neg() >> 32) as u32;
        let (first, last) = (upper(from), upper(from + group.len() as u64));
        let may = group.chunks_exact(4).fold(false, |may, half| may | (number(half) == first) | (number(half) == last));
        let is_header = |(word, at): (&[u8], u64)| {
            u64::from(number(&word[..4])) | u64::from(number(&word[4..])) << 32 == at.wrapping_neg()
        };
        may && group.chunks_exact(8).zip((from..).step_by(8)).any(is_header)
    })
}

impl Object {
    /// Reads the kind and the size of the object that a handle names. Returns the object without its bytes, and the
    /// position of the bytes.
    ///
    /// # Errors
    /// `BAD_HANDLE` if the handle names no object; `INVALID` if the other node cannot make an equal object from a copy
    /// of the object's bytes.
    pub fn find(region: &Region, handle: Handle) -> Result<(Self, Original)> {
        let loaded = region.load(handle, None)?;
        let Some(ty) = loaded.ty else { return Self::find_unnamed(region, loaded.offset, loaded.size) };
        let parsed = Type::parse(&ty.name).map_err(|bad| Error::new(Status::Corrupt, bad.to_string()))?;
        let element = |inner: &Type| is_plain(inner).then(|| inner.size_and_align()).flatten().map(|(size, _)| size);
        let offset = loaded.offset;
        let (shape, (at, length)) = match &parsed {
            plain if is_plain(plain) => (Shape::Plain, (offset, ty.size)),
            Type::String => Self::vector(region, offset, 1)?,
            Type::Vector(inner) if element(inner).is_some() => {
                Self::vector(region, offset, element(inner).unwrap_or(1))?
            }
            Type::Ndarray(inner) if element(inner).is_some() => {
                let found = region.ndarray_at(offset, element(inner).unwrap_or(1))?;
                let mut words = [0; NDARRAY - 3];
                words[0] = found.shape().len() as u64 | (found.order as u64) << 32;
                words[1..=found.shape().len()].copy_from_slice(found.shape());
                (Shape::Ndarray(words), found.data.map_or((0, 0), |data| (data, found.bytes)))
            }
            _ => return Err(not_by_value(region, &format!("is a {}", ty.name))),
        };
        let original = Original { region: region.clone(), offset: at, length, has_type: true };
        Ok((Self { shape, ty: Some(ty.name), bytes: Vec::new() }, original))
    }

    fn vector(region: &Region, offset: u64, element: u64) -> Result<(Shape, (u64, u64))> {
        let found = region.vector_at(offset, element)?;
        Ok((Shape::Vector(found.size), found.data.map_or((0, 0), |data| (data, found.size * element))))
    }

    fn find_unnamed(region: &Region, offset: u64, size: u64) -> Result<(Self, Original)> {
        let is_container = size >= 8 * VECTOR as u64 && word(region, offset)? == offset.wrapping_neg();
        let (shape, at, length) = if !is_container {
            (Shape::Plain, offset, size)
        } else {
            let to = word(region, offset + 8)?;
            let data = (offset + 8).wrapping_add(to);
            let room = if to == 0 { 0 } else { region.block_size(data)? };
            let both = if size >= 8 * NDARRAY as u64 { word(region, offset + 24)? } else { u64::MAX };
            let rank = both & 0xffff_ffff;
            if rank <= MAX_RANK as u64 && Order::from_number((both >> 32) as u32).is_some() {
                let mut words = [0; NDARRAY - 3];
                for (n, word_of) in words.iter_mut().enumerate() {
                    *word_of = word(region, offset + 24 + 8 * n as u64)?;
                }
                (Shape::Ndarray(words), data, room.min(word(region, offset + 16)?))
            } else {
                // The element size is the size of the data block divided by `capacity`, because the block has room for
                // exactly `capacity` elements.
                let (count, capacity) = (word(region, offset + 16)?, word(region, offset + 24)?);
                let element = room.checked_div(capacity).unwrap_or(0);
                let used = count.checked_mul(element).filter(|used| *used <= room).ok_or_else(|| {
                    Error::new(Status::Corrupt, format!("the vector at {offset:#x} has {count} elements of {capacity}"))
                })?;
                (Shape::Vector(count), data, used)
            }
        };
        let original = Original { region: region.clone(), offset: at, length, has_type: false };
        Ok((Self { shape, ty: None, bytes: Vec::new() }, original))
    }

    /// Makes the object in a region, from its bytes. If the original had a name, the copy gets the name `name`.
    ///
    /// # Errors
    /// `NO_SPACE` if the region is full; `INVALID` for a type that cannot be used here.
    pub fn make(&self, region: &Region, name: &str) -> Result<(Handle, Made)> {
        let mut making = Making::begin(self, region, name, self.bytes.len() as u64)?;
        match making.bytes() {
            Ok(place) => place.copy_from_slice(&self.bytes),
            Err(error) => {
                making.give_up();
                return Err(error);
            }
        }
        making.finish()
    }
}

/// An object that is being made in a region. No other member sees it yet.
#[derive(Debug)]
pub struct Making<'a> {
    region: &'a Region,
    name: Option<&'a str>,
    shape: &'a Shape,
    /// The block that becomes the object.
    object: NewBlock,
    /// The block of a container's elements.
    elements: Option<NewBlock>,
    length: u64,
}

impl<'a> Making<'a> {
    /// Takes memory for a copy of `object` with `length` bytes. If the original had a name, the copy gets the name
    /// `name`.
    ///
    /// # Errors
    /// `NO_SPACE` if the region is full; `INVALID` for a type that cannot be used here.
    pub fn begin(object: &'a Object, region: &'a Region, name: &'a str, length: u64) -> Result<Self> {
        let header = match object.shape {
            Shape::Plain => length,
            Shape::Vector(_) => 8 * VECTOR as u64,
            Shape::Ndarray(_) => 8 * NDARRAY as u64,
        };
        let (block, name) = match &object.ty {
            Some(ty) => {
                let ty = TypeRef::new(ty).map_err(|why| Error::new(Status::Invalid, why))?;
                let is_whole = if object.shape == Shape::Plain { ty.size == length } else { ty.size >= header };
                if !is_whole {
                    return Err(Error::new(Status::Corrupt, format!("{header} bytes of a {}", ty.name)));
                }
                (NewBlock::claim(region, name, &ty)?, Some(name))
            }
            None => (NewBlock::prepare(region, header.max(1), ALIGN)?, None),
        };
        let mut making = Self { region, name, shape: &object.shape, object: block, elements: None, length };
        if length > 0 && object.shape != Shape::Plain {
            match NewBlock::prepare(region, length, ALIGN) {
                Ok(block) => making.elements = Some(block),
                Err(error) => {
                    making.give_up();
                    return Err(error);
                }
            }
        }
        Ok(making)
    }

    /// The memory for the bytes of the object.
    ///
    /// # Errors
    /// `CORRUPT` if another member has damaged the region.
    pub fn bytes(&mut self) -> Result<&mut [u8]> {
        let block = self.elements.as_mut().unwrap_or(&mut self.object);
        Ok(if self.length == 0 { &mut [] } else { &mut block.bytes()?[..self.length as usize] })
    }

    /// Makes the object visible to other members. The caller has written all of its bytes.
    ///
    /// # Errors
    /// `CORRUPT` if another member has damaged the region.
    pub fn finish(self) -> Result<(Handle, Made)> {
        match self.complete() {
            Ok(done) => Ok(done),
            Err(error) => {
                self.give_up();
                Err(error)
            }
        }
    }

    fn complete(&self) -> Result<(Handle, Made)> {
        let (region, offset) = (self.region, self.object.offset());
        let data = self.elements.as_ref().map_or(0, NewBlock::offset);
        if *self.shape != Shape::Plain {
            let pointer = if data == 0 { 0 } else { data.wrapping_sub(offset + 8) };
            let mut words = vec![offset.wrapping_neg(), pointer];
            match self.shape {
                Shape::Vector(count) => words.extend([*count, *count]),
                Shape::Ndarray(rest) => {
                    words.push(self.length);
                    words.extend(rest);
                }
                Shape::Plain => {}
            }
            region.replace(offset, &words, data, 0)?;
        }
        if self.name.is_some() {
            region.commit(offset)?
        } else {
            region.keep(offset)?
        }
        let made = Made { region: region.clone(), offset, name: self.name.map(str::to_owned), data };
        Ok((region.save(offset)?, made))
    }

    /// Frees the memory of an object that was not finished.
    pub fn give_up(self) {
        // If another member has damaged the region, the blocks are not freed. The region itself is removed together
        // with the port's mirror.
        for block in self.elements.iter().chain(self.name.is_none().then_some(&self.object)) {
            let _ = self.region.keep(block.offset());
            let _ = self.region.deallocate(block.offset());
        }
        if self.name.is_some() {
            let _ = self.region.abandon(self.object.offset());
        }
    }
}

fn is_plain(ty: &Type) -> bool {
    match ty {
        Type::Scalar(..) => true,
        Type::Array(inner, _) => is_plain(inner),
        Type::Struct(parts) => parts.iter().all(is_plain),
        _ => false,
    }
}

impl Made {
    /// Frees the object's memory.
    pub fn free(self) {
        // If another member has damaged the region, the block is not freed. The region itself is removed together with
        // the port's mirror.
        if let Some(name) = &self.name {
            let _ = self.region.remove(name);
            return;
        }
        if self.data != 0 {
            let _ = self.region.deallocate(self.data);
        }
        let _ = self.region.deallocate(self.offset);
    }
}

#[cfg(test)]
mod tests {
    use super::holds_container;

    #[test]
    fn a_container_is_found_at_every_place() {
        // The offsets of the bytes in their region: the lowest possible one, one just below 4 GiB, and one in the
        // middle of a heap.
        for from in [8, (4 << 30) - 4096, 123_456] {
            let mut bytes: Vec<u8> = (0..9003u32).map(|n| (n % 251) as u8).collect();
            assert!(!holds_container(&bytes, from));
            for at in (0..9000).step_by(8) {
                let word: [u8; 8] = bytes[at..at + 8].try_into().unwrap();
                bytes[at..at + 8].copy_from_slice(&(from + at as u64).wrapping_neg().to_le_bytes());
                assert!(holds_container(&bytes, from), "{at} from {from}");
                bytes[at..at + 8].copy_from_slice(&word);
            }
            // The word at offset 96 of the bytes gets the value that the first word of a container at offset 104 would
            // have. At offset 96 this value is wrong, so no container begins there.
            bytes[96..104].copy_from_slice(&(from + 104).wrapping_neg().to_le_bytes());
            assert!(!holds_container(&bytes, from));
        }
    }
}

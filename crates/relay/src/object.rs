//! The object of a message, as bytes from which another node makes an equal object.
//!
//! These objects move by value: numbers and structs of numbers, blocks of bytes, and vectors, strings and ndarrays of
//! them. The type of a named object is known. A block without a name shows by its first word whether it is a container:
//! the header of each container begins with a self-relative pointer to the region's first byte, which is the negative
//! of the header's own offset. If the data of an object hold such a word, they hold a container, and the object does
//! not move by value.

use crossdock_client::{Handle, ObjectMode, Region, Status, TypeRef};
use crossdock_core::{Error, Result, shared_access};
use crossdock_layout::region::{MAX_RANK, Order};
use crossdock_layout::type_name::Type;

/// The number of 8-byte words in the header of a vector, and of an ndarray.
const VECTOR: usize = 4;
const NDARRAY: usize = 12;
/// The elements of a copied container begin at a cache line.
const ALIGN: u64 = 64;

/// The kind and the size of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Plain bytes.
    Plain,
    /// A vector or a string, with its number of elements.
    Vector(u64),
    /// An ndarray: the word that holds rank and order, then the extents.
    Ndarray([u64; NDARRAY - 3]),
}

/// A copy of an object, outside of any region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    pub shape: Shape,
    /// The type's name, if the object has a name.
    pub ty: Option<String>,
    /// The bytes of a plain object, or the elements of a container.
    pub bytes: Vec<u8>,
}

/// An object that was made in a region, with all that is needed to free it.
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

fn bytes_of(region: &Region, offset: u64, length: u64) -> Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
    shared_access::copy_out(region.mapping(), offset, &mut bytes)
        .ok_or_else(|| Error::new(Status::Corrupt, format!("{length} bytes at {offset:#x} are not in the region")))?;
    Ok(bytes)
}

fn word(region: &Region, offset: u64) -> Result<u64> {
    shared_access::load(region.mapping(), offset)
        .ok_or_else(|| Error::new(Status::Corrupt, format!("the word at {offset:#x} is not in the region")))
}

/// Tells whether a word at a multiple of eight bytes is the first word of a container.
fn holds_container(bytes: &[u8], offset: u64) -> bool {
    bytes
        .chunks_exact(8)
        .zip((offset..).step_by(8))
        .any(|(word, at)| u64::from_le_bytes(word.try_into().expect("eight bytes")) == at.wrapping_neg())
}

impl Object {
    /// Copies the object that a handle names.
    ///
    /// # Errors
    /// `BAD_HANDLE`, or `INVALID` if the object does not move by value.
    pub fn read(region: &Region, handle: Handle) -> Result<Self> {
        let loaded = region.load(handle, None)?;
        let Some(ty) = loaded.ty else { return Self::read_unnamed(region, loaded.offset, loaded.size) };
        let parsed = Type::parse(&ty.name).map_err(|bad| Error::new(Status::Corrupt, bad.to_string()))?;
        let element = |inner: &Type| is_plain(inner).then(|| inner.size_and_align()).flatten().map(|(size, _)| size);
        let offset = loaded.offset;
        let (shape, bytes) = match &parsed {
            plain if is_plain(plain) => (Shape::Plain, bytes_of(region, offset, ty.size)?),
            Type::String => Self::vector(region, offset, 1)?,
            Type::Vector(inner) if element(inner).is_some() => {
                Self::vector(region, offset, element(inner).unwrap_or(1))?
            }
            Type::Ndarray(inner) if element(inner).is_some() => {
                let found = region.ndarray_at(offset, element(inner).unwrap_or(1))?;
                let mut words = [0; NDARRAY - 3];
                words[0] = found.shape().len() as u64 | (found.order as u64) << 32;
                words[1..=found.shape().len()].copy_from_slice(found.shape());
                (Shape::Ndarray(words), found.data.map_or(Ok(Vec::new()), |data| bytes_of(region, data, found.bytes))?)
            }
            _ => return Err(not_by_value(region, &format!("is a {}", ty.name))),
        };
        Ok(Self { shape, ty: Some(ty.name), bytes })
    }

    fn vector(region: &Region, offset: u64, element: u64) -> Result<(Shape, Vec<u8>)> {
        let found = region.vector_at(offset, element)?;
        let bytes = found.data.map_or(Ok(Vec::new()), |data| bytes_of(region, data, found.size * element))?;
        Ok((Shape::Vector(found.size), bytes))
    }

    fn read_unnamed(region: &Region, offset: u64, size: u64) -> Result<Self> {
        let is_container = size >= 8 * VECTOR as u64 && word(region, offset)? == offset.wrapping_neg();
        let (shape, bytes, at) = if !is_container {
            (Shape::Plain, bytes_of(region, offset, size)?, offset)
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
                (Shape::Ndarray(words), bytes_of(region, data, room.min(word(region, offset + 16)?))?, data)
            } else {
                // The element size is the size of the data block divided by `capacity`, because the block has room for
                // exactly `capacity` elements.
                let (count, capacity) = (word(region, offset + 16)?, word(region, offset + 24)?);
                let element = room.checked_div(capacity).unwrap_or(0);
                let used = count.checked_mul(element).filter(|used| *used <= room).ok_or_else(|| {
                    Error::new(Status::Corrupt, format!("the vector at {offset:#x} has {count} elements of {capacity}"))
                })?;
                (Shape::Vector(count), if used == 0 { Vec::new() } else { bytes_of(region, data, used)? }, data)
            }
        };
        if holds_container(&bytes, at) {
            return Err(not_by_value(region, "holds containers"));
        }
        Ok(Self { shape, ty: None, bytes })
    }

    /// Makes the object in a region. If the original had a name, the copy gets the name `name`.
    ///
    /// # Errors
    /// `NO_SPACE`, or `INVALID` for a type that cannot be used here.
    pub fn make(&self, region: &Region, name: &str) -> Result<(Handle, Made)> {
        let length = self.bytes.len() as u64;
        let header = match self.shape {
            Shape::Plain => length,
            Shape::Vector(_) => 8 * VECTOR as u64,
            Shape::Ndarray(_) => 8 * NDARRAY as u64,
        };
        let claimed = match &self.ty {
            Some(ty) => {
                let ty = TypeRef::new(ty).map_err(|why| Error::new(Status::Invalid, why))?;
                Some(region.claim(name, &ty, ObjectMode::CreateOnly, None)?.offset)
            }
            None => None,
        };
        let offset = claimed.map_or_else(|| region.allocate(header.max(1), ALIGN), Ok)?;
        let filled = self.fill(region, offset);
        match (claimed, &filled) {
            (Some(_), Ok(_)) => region.commit(offset)?,
            (Some(_), Err(_)) => drop(region.abandon(offset)),
            (None, Ok(_)) => {}
            (None, Err(_)) => drop(region.deallocate(offset)),
        }
        let made = Made { region: region.clone(), offset, name: claimed.map(|_| name.to_owned()), data: filled? };
        Ok((region.save(offset)?, made))
    }

    /// Writes the object's bytes at `offset`. For a container it writes the header there and the elements into another
    /// block, and returns that block's offset; otherwise 0.
    fn fill(&self, region: &Region, offset: u64) -> Result<u64> {
        let outside = || Error::new(Status::Corrupt, "the heap gave a block outside of the region");
        if self.shape == Shape::Plain {
            shared_access::copy_in(region.mapping(), offset, &self.bytes).ok_or_else(outside)?;
            return Ok(0);
        }
        let length = self.bytes.len() as u64;
        let data = if length == 0 { 0 } else { region.prepare(length, ALIGN)? };
        if data != 0 {
            shared_access::copy_in(region.mapping(), data, &self.bytes).ok_or_else(outside)?;
        }
        let pointer = if data == 0 { 0 } else { data.wrapping_sub(offset + 8) };
        let mut words = vec![offset.wrapping_neg(), pointer];
        match &self.shape {
            Shape::Vector(count) => words.extend([*count, *count]),
            Shape::Ndarray(rest) => {
                words.push(length);
                words.extend(rest);
            }
            Shape::Plain => {}
        }
        region.replace(offset, &words, data, 0)?;
        Ok(data)
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
        // If another member has damaged the region, the block is not freed. The region itself is removed with the port.
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

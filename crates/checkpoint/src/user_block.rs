//! The user block: the first 512 bytes of a file, which HDF5 leaves to its users. The user block holds a text with the
//! length of the file and the checksum of the headers. The headers hold the checksums of the data, so the checksum in
//! the user block protects the whole file. The user block is written last; a file without it is no checkpoint.

use std::fmt::Write;

/// The size of the user block in bytes. The HDF5 part begins after it.
pub const USER_BLOCK: u64 = 512;

/// The contents of the user block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserBlock {
    /// The length of the whole file in bytes.
    pub length: u64,
    /// The number of bytes of the superblock and the object headers, which follow the user block.
    pub described: u64,
    /// The CRC-32 of the superblock and the object headers, as zlib computes it.
    pub crc32: u32,
}

impl UserBlock {
    /// Gives the bytes of the user block, with which the file begins.
    pub fn bytes(&self) -> Vec<u8> {
        let mut text = String::from("crossdock checkpoint 1\n");
        let _ = write!(
            text,
            "length {}\nheaders 512 {} crc32 {:08x}\ndata crc32 in the attribute crossdock.crc32 of each dataset\nHDF5 from byte 512: h5dump and h5py read it as it is\n",
            self.length, self.described, self.crc32
        );
        let mut bytes = text.into_bytes();
        bytes.resize(USER_BLOCK as usize, 0);
        bytes
    }

    /// Reads a user block. It is valid only if its bytes are exactly those that [`UserBlock::bytes`] would write.
    pub fn read(bytes: &[u8]) -> Result<Self, &'static str> {
        let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
        let text = std::str::from_utf8(&bytes[..end]).map_err(|_| "its first bytes are no text")?;
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        if words.get(..2) != Some(&["crossdock", "checkpoint"]) {
            return Err("it does not begin as a checkpoint of crossdock does");
        }
        if words.get(2) != Some(&"1") {
            return Err("it is of another version of the format");
        }
        let number = |i: usize| words.get(i).and_then(|w| w.parse::<u64>().ok());
        let crc32 = words.get(9).and_then(|w| u32::from_str_radix(w, 16).ok());
        let (Some(length), Some(described), Some(crc32)) = (number(4), number(7), crc32) else {
            return Err("its first lines are not what is written there");
        };
        let user_block = Self { length, described, crc32 };
        if user_block.bytes() == bytes { Ok(user_block) } else { Err("its first lines are not what is written there") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cover_is_read_as_it_was_written() {
        let user_block = UserBlock { length: 123_456, described: 789, crc32: 0x0012_abcd };
        assert_eq!(UserBlock::read(&user_block.bytes()), Ok(user_block));
    }

    #[test]
    fn every_changed_byte_of_it_is_noticed() {
        let user_block = UserBlock { length: 123_456, described: 789, crc32: 0x0012_abcd };
        let good = user_block.bytes();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            assert_ne!(UserBlock::read(&bad), Ok(user_block), "byte {at}");
        }
    }
}

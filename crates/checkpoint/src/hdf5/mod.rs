//! The small part of the HDF5 format that checkpoints use.

pub mod datatype;
pub mod decode;
pub mod header;
pub mod lookup3;
pub mod message;

/// The value of an address that is not set.
pub const UNDEFINED: u64 = u64::MAX;
/// The bytes with which the superblock of every HDF5 file begins.
pub const SIGNATURE: [u8; 8] = *b"\x89HDF\r\n\x1a\n";
/// The size of a superblock of version 2, in bytes.
pub const SUPERBLOCK: u64 = 48;

/// Writes the superblock. The addresses in the file are counted from `base`, but `end` is counted from the first byte
/// of the file.
pub fn superblock(base: u64, end: u64, root: u64) -> Vec<u8> {
    let mut bytes = SIGNATURE.to_vec();
    bytes.extend([2, 8, 8, 0]); // version 2; an offset has 8 bytes, a length has 8 bytes; no flags
    for word in [base, UNDEFINED, end, root] {
        bytes.extend(word.to_le_bytes());
    }
    let sum = lookup3::sum(&bytes);
    bytes.extend(sum.to_le_bytes());
    bytes
}

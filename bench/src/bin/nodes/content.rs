//! The bytes of an object. Each word contains the number of the transfer.

const PAGE: usize = 4096;

pub fn write(memory: &mut [u8], number: u64) {
    for word in memory.chunks_exact_mut(8) {
        word.copy_from_slice(&number.to_ne_bytes());
    }
}

/// Gives the number of the transfer, which the first word contains.
pub fn number(memory: &[u8]) -> u64 {
    u64::from_ne_bytes(memory[..8].try_into().expect("eight bytes"))
}

/// Checks the first word of each page, and the last word.
///
/// # Panics
/// Panics if one of these words has another number.
pub fn check(memory: &[u8], expected: u64) {
    for page in memory.chunks(PAGE) {
        assert_eq!(number(page), expected, "a page is wrong");
    }
    assert_eq!(number(&memory[memory.len() - 8..]), expected, "the last word is wrong");
}

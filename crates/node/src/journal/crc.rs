//! CRC-32C, computed with a table. A journal is short, so special CPU instructions are not needed.

const TABLE: [u32; 256] = {
    let mut table = [0u32; 256];
    let mut i = 0;
    while i < 256 {
        let mut value = i as u32;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 != 0 { value >> 1 ^ 0x82f6_3b78 } else { value >> 1 };
            bit += 1;
        }
        table[i] = value;
        i += 1;
    }
    table
};

/// Computes the checksum of these bytes.
pub(super) fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| TABLE[usize::from(crc as u8 ^ byte)] ^ crc >> 8)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_standards_test_vector_comes_out() {
        assert_eq!(super::crc32c(b"123456789"), 0xe306_9283);
    }
}

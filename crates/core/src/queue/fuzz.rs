pub fn fuzz_entry(_data: &[u8]) {}

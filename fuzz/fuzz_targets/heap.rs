//! Fuzzes heap and directory as readers of wild memory.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| crossdock_core::heap::fuzz_entry(data));

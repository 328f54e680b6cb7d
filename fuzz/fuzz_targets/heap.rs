//! Fuzzes the heap and the directory, which read memory that another process may have damaged.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| crossdock_core::heap::fuzz_entry(data));

//! Fuzzes series as readers of wild memory.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| crossdock_core::series::fuzz_entry(data));

//! Fuzzes the queue as reader of wild memory.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| crossdock_core::queue::fuzz_entry(data));

//! Fuzzes the queue, which reads memory that another process may have damaged.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| crossdock_core::queue::fuzz_entry(data));

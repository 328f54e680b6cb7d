//! Fuzzes the reading side of series, which reads memory that another process may have damaged.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| crossdock_core::series::fuzz_entry(data));

//! Fuzzes a mirror of another node's series, with changed messages of that node.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| crossdock_relay::fuzz_mirror(data));

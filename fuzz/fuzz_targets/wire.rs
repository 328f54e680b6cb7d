//! Fuzzes the decoder of every message of the daemon's protocol.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| crossdock_layout::wire::fuzz_decode(data));

//! Fuzzes the decoder of every message between node daemons.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| crossdock_layout::link::fuzz_decode(data));

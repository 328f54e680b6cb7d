//! Fuzzes the decoders of what the relays of two nodes say to each other.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| crossdock_relay::fuzz_decode(data));

//! Fuzzes the decoders of the messages between the relays of two nodes.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| crossdock_relay::fuzz_decode(data));

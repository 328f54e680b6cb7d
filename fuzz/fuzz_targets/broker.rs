//! Fuzzes the broker's state machine with arbitrary events.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| crossdock_node::broker::fuzz(data));

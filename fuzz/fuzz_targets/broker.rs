//! Fuzzes the broker's state machine, fed with any events.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| crossdock_node::broker::fuzz(data));

//! Fuzzes the broker of a node of a site, which other nodes question and lie to.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| crossdock_node::broker::fuzz_in_site(data));

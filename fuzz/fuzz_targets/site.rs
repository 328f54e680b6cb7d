//! Fuzzes the broker of a node in a site. Other nodes send it requests and false answers.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| crossdock_node::broker::fuzz_in_site(data));

//! Fuzzes the web server's requests, and the pictures of arrays.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| crossdock_web::fuzz_request(data));

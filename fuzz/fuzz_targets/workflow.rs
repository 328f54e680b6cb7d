//! Fuzzes the workflow file's reader and checks.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| crossdock_launch::fuzz_workflow(data));

//! Fuzzes the reader and the checks of workflow files.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| crossdock_launch::fuzz_workflow(data));

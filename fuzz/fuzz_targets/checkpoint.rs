//! Fuzzes the reader of checkpoints, which other programs may have written, and the writer of this library.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| crossdock_checkpoint::fuzz_file(data));

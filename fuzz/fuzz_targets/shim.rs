//! Fuzzes the decoders of the shim: messages of an MPI job, command lines of ssh, lists of CPUs, programs' files.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| crossdock_shim::fuzz_shim(data));

//! Fuzzes the input that an MPI job reads outside of its containers: launchers' command lines, messages in frames,
//! messages as lines of text (marks), descriptions of jobs, lists of hosts.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| crossdock_launch::mpi::fuzz_mpi(data));

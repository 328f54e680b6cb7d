//! Fuzzes the input that an MPI job reads outside of its containers: launchers' command lines, frames of messages,
//! marks in their text, descriptions of jobs, lists of hosts.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| crossdock_launch::mpi::fuzz_mpi(data));

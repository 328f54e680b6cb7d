//! Fuzzes the keeper of an MPI job: sequences of messages of the job's programs and of other hosts.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| crossdock_launch::mpi::fuzz_keeper(data));

//! Fuzzes the embedded catalog's messages and journal, and the readers of entries that other nodes wrote.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| match data.split_first() {
    Some((which, entry)) if which % 4 == 3 => crossdock_gateway::fuzz_entry(entry),
    Some((which, entry)) if which % 4 == 2 => crossdock_files::fuzz_entry(entry),
    _ => crossdock_catalog::embedded::fuzz_decode(data),
});

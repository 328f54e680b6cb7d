//! Counts skipped tests: a test calls this if the machine lacks something that the test needs.

use std::io::Write;

/// Reports that the calling test was skipped because this kernel or machine lacks a feature. `scripts/test` counts
/// these lines, and fails unless `tests/skips` lists the feature with a reason.
pub fn skip(feature: &str) {
    let thread = std::thread::current();
    let line = format!("\nSKIP {feature}: {}\n", thread.name().unwrap_or("a test"));
    // No macro such as `eprintln!` is used, because the test runner would capture its output.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

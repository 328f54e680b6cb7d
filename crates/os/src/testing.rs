//! For tests: if a machine cannot do something, that is a skip that is counted.

use std::io::Write;

/// Says that the calling test was skipped because this kernel or machine lacks a feature. `scripts/test` counts the line,
/// and fails unless `tests/skips` lists the feature with its reason.
pub fn skip(feature: &str) {
    let thread = std::thread::current();
    let line = format!("\nSKIP {feature}: {}\n", thread.name().unwrap_or("a test"));
    // No macro is used for this, because the test runner would capture its output.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

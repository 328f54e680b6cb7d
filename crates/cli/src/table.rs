//! Printing: columns, JSON, and a closed pipe that does no harm.

use std::io::Write;

/// Prints a line (or more); a reader that is gone is no failure.
pub fn say(text: &str) {
    let _ = writeln!(std::io::stdout(), "{}", text.trim_end());
}

/// Prints an error.
pub fn complain(text: &str) {
    let _ = writeln!(std::io::stderr(), "crossdock: {text}");
}

/// Columns as wide as their widest field, under their heads.
pub fn columns(head: &[&str], rows: &[Vec<String>]) -> String {
    let width = |i: usize| rows.iter().map(|r| r[i].chars().count()).chain([head[i].len()]).max().unwrap_or(0);
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |fields: Vec<&str>| {
        let padded: Vec<String> = fields.iter().zip(&widths).map(|(f, w)| format!("{f:w$}")).collect();
        padded.join("  ").trim_end().to_owned()
    };
    let mut lines = vec![line(head.to_vec())];
    lines.extend(rows.iter().map(|r| line(r.iter().map(String::as_str).collect())));
    lines.join("\n")
}

/// Prints as JSON.
pub fn json(value: &impl serde::Serialize) {
    match serde_json::to_string_pretty(value) {
        Ok(text) => say(&text),
        Err(e) => complain(&format!("cannot print as JSON: {e}")),
    }
}

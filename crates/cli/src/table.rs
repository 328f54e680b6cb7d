//! Prints columns and JSON, and handles a standard output that its reader has closed.

use std::io::Write;

/// Prints one or more lines. It is no failure if the reader has closed the pipe.
pub fn say(text: &str) {
    let _ = writeln!(std::io::stdout(), "{}", text.trim_end());
}

/// Prints an error.
pub fn complain(text: &str) {
    let _ = writeln!(std::io::stderr(), "crossdock: {text}");
}

/// Writes columns under their heads, each as wide as its widest field.
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

/// Prints a value as JSON.
pub fn json(value: &impl serde::Serialize) {
    match serde_json::to_string_pretty(value) {
        Ok(text) => say(&text),
        Err(e) => complain(&format!("cannot print as JSON: {e}")),
    }
}

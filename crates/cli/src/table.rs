//! Prints columns and JSON, and handles a standard output that its reader has closed.

use std::io::Write;

/// Prints one or more lines. Control characters other than tabs and line ends are made visible. If the reader of
/// standard output has closed the pipe, the error is ignored.
pub fn say(text: &str) {
    let _ = say_if_read(text);
}

/// Prints one or more lines, as [`say`] does. Returns false if the reader of standard output has closed the pipe, so
/// that a command that prints again and again can end.
pub fn say_if_read(text: &str) -> bool {
    is_read(&writeln!(std::io::stdout(), "{}", visible_lines(text.trim_end())))
}

/// Tells from the result of a write whether standard output still has a reader.
pub fn is_read(written: &std::io::Result<()>) -> bool {
    !written.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

/// Prints an error of one or more lines. Control characters other than tabs and line ends are made visible.
pub fn complain(text: &str) {
    let _ = writeln!(std::io::stderr(), "crossdock: {}", visible_lines(text));
}

/// Replaces control characters by their escapes, such as `\n` and `\u{1b}`. Names come from tasks. A task may put
/// control characters into a name, to move the cursor of the user's terminal or to fake a line of output.
pub fn visible(text: &str) -> String {
    let shown = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(shown).collect()
}

/// Makes the control characters of each line visible, except tabs.
pub fn visible_lines(text: &str) -> String {
    let of_line = |line: &str| line.split('\t').map(visible).collect::<Vec<_>>().join("\t");
    text.split('\n').map(of_line).collect::<Vec<_>>().join("\n")
}

/// Writes columns under their heads, each as wide as its widest field. Control characters are made visible.
pub fn columns(head: &[&str], rows: &[Vec<String>]) -> String {
    let rows: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(|field| visible(field)).collect()).collect();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_controls_the_terminal() {
        assert_eq!(visible_lines("a\u{1b}[2J\rb\n\tc"), "a\\u{1b}[2J\\rb\n\tc");
    }

    #[test]
    fn no_field_of_a_table_controls_the_terminal_or_begins_a_line() {
        let rows = [vec!["a\u{1b}[2J".to_owned(), "b\nc".to_owned()], vec!["ü".to_owned(), "d".to_owned()]];
        let table = columns(&["X", "Y"], &rows);
        assert_eq!(table, "X           Y\na\\u{1b}[2J  b\\nc\nü           d");
    }
}

//! The options that all listing commands share: `-o wide|json|yaml` for the format, and `-w` to print again and again.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::Value;

use crate::series::StopSignal;
use crate::series::durations;
use crate::table::{complain, is_read, say_if_read, visible_lines};

/// The formats in which a command prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A table with more columns
    Wide,
    /// JSON; with -w one object on each line
    Json,
    /// YAML
    Yaml,
}

/// Options of every command that prints a listing.
#[derive(Args, Clone, Debug)]
pub struct Output {
    /// The format [default: a table]
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    pub output: Option<Format>,
    /// Print JSON, as with `-o json`
    #[arg(long, conflicts_with = "output")]
    pub json: bool,
    /// Follow: print again and again, until Ctrl-C
    #[arg(short, long)]
    pub watch: bool,
    /// With -w: the time between two prints
    #[arg(long, value_name = "TIME", default_value = "2 s", value_parser = durations::time)]
    pub every: Duration,
    /// Print again and again, and end after N prints
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub times: Option<u64>,
}

impl Output {
    /// The format; `None` is the plain table.
    pub fn format(&self) -> Option<Format> {
        if self.json { Some(Format::Json) } else { self.output }
    }

    pub fn wide(&self) -> bool {
        self.format() == Some(Format::Wide)
    }

    /// Prints the result of `look` once, or again and again. `look` returns a value for programs and a text for people.
    pub fn show(&self, mut look: impl FnMut() -> Result<(Value, String), (u8, String)>) -> u8 {
        let stop = match StopSignal::on_signals() {
            Ok(stop) => stop,
            Err(why) => {
                complain(&why);
                return crossdock_launch::run::code::SYSTEM;
            }
        };
        let mut count = 0;
        loop {
            let (value, text) = match look() {
                Ok(found) => found,
                Err((code, why)) => {
                    complain(&why);
                    return code;
                }
            };
            if !self.print(&value, &text) {
                return 0;
            }
            count += 1;
            if !(self.watch || self.times.is_some()) || self.times.is_some_and(|n| count >= n) {
                return 0;
            }
            if wait(self.every, &stop) {
                return 0;
            }
        }
    }

    /// Returns false if the reader of the output has closed the pipe.
    fn print(&self, value: &Value, text: &str) -> bool {
        match self.format() {
            Some(Format::Json) if self.watch => say_if_read(&value.to_string()),
            Some(Format::Json) => {
                crate::table::json(value);
                true
            }
            Some(Format::Yaml) if self.watch => say_if_read(&format!("---\n{}", yaml(value))),
            Some(Format::Yaml) => say_if_read(&yaml(value)),
            _ if self.watch && std::io::stdout().is_terminal() => {
                // Each print begins at the top of the screen and clears every line to its end, so that no text of the
                // previous print remains.
                let text = visible_lines(text.trim_end()).replace('\n', "\x1b[K\n");
                let mut out = std::io::stdout();
                is_read(&write!(out, "\x1b[H{text}\x1b[K\n\x1b[J").and_then(|()| out.flush()))
            }
            _ if self.watch => say_if_read(&format!("{}\n", text.trim_end())),
            _ => say_if_read(text),
        }
    }
}

/// Waits for `time`. Returns true if a signal asked the command to end.
pub fn wait(time: Duration, stop: &StopSignal) -> bool {
    let end = std::time::Instant::now() + time;
    while std::time::Instant::now() < end {
        if stop.asked().is_some() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20).min(end.saturating_duration_since(std::time::Instant::now())));
    }
    stop.asked().is_some()
}

/// Writes JSON as YAML with one key on each line. Texts keep JSON's quotes, which YAML allows.
pub fn yaml(value: &Value) -> String {
    let mut text = String::new();
    block(value, 0, &mut text);
    text
}

fn block(value: &Value, depth: usize, text: &mut String) {
    let indent = "  ".repeat(depth);
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (key, value) in map {
                *text += &format!("{indent}{}:", plain(key));
                below(value, depth + 1, text);
            }
        }
        Value::Array(list) if !list.is_empty() => {
            for value in list {
                let mut inner = String::new();
                block(value, depth + 1, &mut inner);
                *text += &format!("{indent}- {}\n", inner.trim());
            }
        }
        other => *text += &format!("{indent}{other}\n"),
    }
}

fn below(value: &Value, depth: usize, text: &mut String) {
    let is_long = value.as_object().is_some_and(|m| !m.is_empty()) || value.as_array().is_some_and(|l| !l.is_empty());
    if is_long {
        text.push('\n');
        block(value, depth, text);
    } else {
        *text += &format!(" {value}\n");
    }
}

fn plain(key: &str) -> String {
    let good = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if good { key.to_owned() } else { Value::from(key).to_string() }
}

/// Writes an age in words: `3 s`, `5 min`, `2 h`, `4 days`.
pub fn age(seconds: f64) -> String {
    match seconds {
        s if s < 0.0 => "0 s".into(),
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s if s < 172_800.0 => format!("{:.1} h", s / 3600.0),
        s => format!("{:.1} days", s / 86400.0),
    }
}

/// Writes a progress as `30 of 120 (25 %)`; `-` for a task that reports none.
pub fn progress(reported: Option<(u64, u64)>) -> String {
    match reported {
        Some((done, of)) => format!("{done} of {of} ({:.0} %)", 100.0 * done as f64 / of.max(1) as f64),
        None => "-".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn yaml_has_one_key_a_line_and_quotes_what_could_mean_something_else() {
        let value = json!({ "runs": [{ "id": "a: b", "ranks": [1, 2], "none": null }, { "id": "yes" }], "empty": [] });
        let want =
            "empty: []\nruns:\n  - id: \"a: b\"\n    none: null\n    ranks:\n      - 1\n      - 2\n  - id: \"yes\"\n";
        assert_eq!(yaml(&value), want);
    }

    #[test]
    fn ages_have_two_digits_and_a_unit() {
        let shown = [-1.0, 3.4, 119.0, 300.0, 8000.0, 200_000.0].map(age);
        assert_eq!(shown, ["0 s", "3 s", "119 s", "5 min", "2.2 h", "2.3 days"]);
    }
}

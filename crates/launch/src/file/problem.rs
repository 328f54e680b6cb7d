//! A problem in a workflow file: what, where, and how to correct it.

use std::fmt;
use std::path::Path;

/// A place in the file; both numbers count from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Line, from 1. Zero means "the file as a whole".
    pub line: usize,
    /// Column, from 1, in characters.
    pub column: usize,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where.
    pub position: Position,
    /// Which key, as a path: `tasks.analyse.command`. Empty for the file as a whole.
    pub key: String,
    /// What is wrong.
    pub what: String,
    /// What the user can do about it.
    pub hint: String,
}

/// All that is wrong with one file, in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems {
    file: String,
    lines: Vec<String>,
    list: Vec<Problem>,
}

/// A report stays readable: more problems than this are counted, not printed.
const SHOWN: usize = 25;
/// A line of the file is quoted up to this many characters.
const QUOTED: usize = 160;

impl Problems {
    /// Binds problems to the file that they were found in.
    pub fn new(file: &Path, text: &str, mut list: Vec<Problem>) -> Self {
        list.sort_by_key(|p| p.position);
        list.dedup();
        Self { file: file.display().to_string(), lines: text.lines().map(|l| l.trim_end().to_owned()).collect(), list }
    }

    /// The problems, in the order of the file.
    pub fn list(&self) -> &[Problem] {
        &self.list
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, p: &Problem) -> fmt::Result {
        let Position { line, column } = p.position;
        write!(f, "{}", self.file)?;
        if line > 0 {
            write!(f, ":{line}:{column}")?;
        }
        if !p.key.is_empty() {
            write!(f, ": {}", p.key)?;
        }
        writeln!(f, ": {}", p.what)?;
        if let Some(text) = line.checked_sub(1).and_then(|i| self.lines.get(i)) {
            let quoted: String = text.chars().take(QUOTED).collect();
            writeln!(f, "  {line:>4} | {quoted}")?;
            if (1..=QUOTED).contains(&column) {
                writeln!(f, "       | {:>column$}", "^")?;
            }
        }
        writeln!(f, "       hint: {}", p.hint)
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for p in self.list.iter().take(SHOWN) {
            self.write(f, p)?;
        }
        if self.list.len() > SHOWN {
            writeln!(f, "… and {} more", self.list.len() - SHOWN)?;
        }
        let n = self.list.len();
        write!(f, "{n} problem{} in {}", if n == 1 { "" } else { "s" }, self.file)
    }
}

impl std::error::Error for Problems {}

//! A problem in a workflow file: what, where, and how to correct it.

use std::fmt;
use std::path::Path;

/// A position in the workflow file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The line, from 1. Zero stands for the file as a whole.
    pub line: usize,
    /// The column, from 1, in characters.
    pub column: usize,
}

/// One problem in a workflow file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The position of the problem in the file.
    pub position: Position,
    /// The key with the problem, as a path: `tasks.analyse.command`. It is empty for the file as a whole.
    pub key: String,
    /// What is wrong, as a sentence.
    pub what: String,
    /// What the user can do about the problem.
    pub hint: String,
}

/// All problems of one workflow file, in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems {
    file: String,
    lines: Vec<String>,
    list: Vec<Problem>,
}

/// The most problems that are printed. Further problems are only counted, so that the report stays readable.
const SHOWN: usize = 25;
/// The most characters of a line of the file that a message quotes.
const QUOTED: usize = 160;

impl Problems {
    /// Makes the list of the problems that were found in the file.
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

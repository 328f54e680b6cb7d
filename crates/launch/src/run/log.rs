//! A task's log: a file with a bounded size. The last lines are also kept in memory for messages.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};

use crossdock_os::fs::{self, File, OpenOptions};

/// How many lines are kept for the message about a failure.
const LAST: usize = 15;
/// The longest line in messages and on the user's terminal, in characters. The log file gets the whole line.
const LINE_MAX: usize = 400;

/// The log of one rank.
#[derive(Debug)]
pub struct Log {
    /// The path of the file. An older part of the log may lie beside it as `….1`.
    pub path: PathBuf,
    file: File,
    written: u64,
    limit: u64,
    partial: Vec<u8>,
    last: VecDeque<String>,
}

impl Log {
    /// Begins a new log file. `limit` is the most bytes that the log takes on disk.
    pub fn make(path: &Path, limit: u64) -> io::Result<Self> {
        let _ = fs::remove_file(older(path));
        let file = create(path)?;
        Ok(Self { path: path.to_owned(), file, written: 0, limit, partial: Vec::new(), last: VecDeque::new() })
    }

    /// Adds bytes that the task wrote; gives the lines that are now complete.
    pub fn add(&mut self, bytes: &[u8]) -> Vec<String> {
        // If the disk is full, the run goes on without the log file: the terminal and the messages still show the
        // lines.
        for part in bytes.chunks((self.limit / 2).max(1) as usize) {
            let _ = self.write(part);
        }
        let mut lines = Vec::new();
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|b| *b == b'\n') {
            self.keep(&rest[..end]);
            lines.push(self.line());
            rest = &rest[end + 1..];
        }
        self.keep(rest);
        lines
    }

    /// Gives the last line if it has no line end.
    pub fn finish(&mut self) -> Option<String> {
        (!self.partial.is_empty()).then(|| self.line())
    }

    /// Gives the last lines of the log.
    pub fn last(&self) -> impl Iterator<Item = &str> {
        self.last.iter().map(String::as_str)
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = (4 * LINE_MAX).saturating_sub(self.partial.len());
        self.partial.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    fn line(&mut self) -> String {
        let text = String::from_utf8_lossy(&self.partial);
        // A progress bar overwrites its line, so only the text after the last carriage return is kept.
        let text = text.trim_end_matches('\r').rsplit('\r').next().unwrap_or_default();
        let line: String = text.chars().filter(|c| *c == '\t' || !c.is_control()).take(LINE_MAX).collect();
        self.partial.clear();
        if self.last.len() == LAST {
            self.last.pop_front();
        }
        self.last.push_back(line.clone());
        line
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.written + bytes.len() as u64 > self.limit / 2 && self.written > 0 {
            // If no new file can be begun, this call writes to the present file, and the next call tries again to begin
            // a new one.
            let _ = self.begin_anew();
        }
        self.written += bytes.len() as u64;
        fs::write_all(&self.file, bytes)
    }

    fn begin_anew(&mut self) -> io::Result<()> {
        let fresh = with_ending(&self.path, ".new");
        let file = create(&fresh)?;
        match fs::rename(&self.path, older(&self.path)) {
            // There is nothing to rename if an earlier attempt renamed the file and failed after that.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            renamed => renamed?,
        }
        fs::rename(&fresh, &self.path)?;
        (self.file, self.written) = (file, 0);
        Ok(())
    }
}

fn create(path: &Path) -> io::Result<File> {
    fs::open(OpenOptions::new().write(true).create(true).truncate(true), path)
}

fn older(path: &Path) -> PathBuf {
    with_ending(path, ".1")
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_whole_however_they_come() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = Log::make(&dir.path().join("a.log"), 1000).unwrap();
        assert!(log.add(b"ab").is_empty());
        assert_eq!(log.add(b"c\nd\ne"), ["abc", "d"]);
        assert_eq!(log.add(b"10 %\r100 %\r\n\x1b[0m\n"), ["e10 %\r100 %".rsplit('\r').next().unwrap(), "[0m"]);
        assert_eq!(log.add(&[0xff, b'\n']), ["\u{fffd}"]);
        assert_eq!(log.finish(), None);
        log.add(b"end");
        assert_eq!(log.finish().as_deref(), Some("end"));
        assert_eq!(log.last().last(), Some("end"));
    }

    #[test]
    fn the_files_stay_within_the_limit_and_keep_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.log");
        let mut log = Log::make(&path, 1000).unwrap();
        for i in 0..1000 {
            log.add(format!("line {i}\n").as_bytes());
        }
        let now = fs::read_to_string(&path).unwrap();
        let before = fs::read_to_string(older(&path)).unwrap();
        assert!(now.len() + before.len() <= 1000);
        assert!(now.ends_with("line 999\n"));
        assert_eq!(log.last().count(), LAST);
    }

    #[test]
    fn a_line_without_end_costs_no_memory() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = Log::make(&dir.path().join("a.log"), 1 << 20).unwrap();
        for _ in 0..1000 {
            log.add(&[b'x'; 1000]);
        }
        assert!(log.partial.len() <= 4 * LINE_MAX);
        assert_eq!(log.add(b"\n")[0].len(), LINE_MAX);
    }
}

#[cfg(all(test, feature = "faults"))]
mod failing_calls {
    use super::*;
    use crossdock_os::faults;

    #[test]
    fn a_log_loses_at_most_the_line_whose_call_failed() {
        let seen = faults::each_call_fails(|attempt| {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("a.log");
            let mut log = Log::make(&path, 200).unwrap();
            attempt.arm();
            for i in 100..115 {
                log.add(format!("line {i}\n").as_bytes());
            }
            let hit = attempt.disarm();
            for i in 115..121 {
                log.add(format!("line {i}\n").as_bytes());
            }
            let text = [older(&path), path].map(|path| std::fs::read_to_string(path).unwrap()).concat();
            let missing = (110..121).filter(|i| !text.contains(&format!("line {i}\n"))).count();
            assert!(missing <= 1, "{hit:?}: {text}");
        });
        assert!(["open", "rename", "write_file"].iter().all(|call| seen.contains(call)), "{seen:?}");
    }
}

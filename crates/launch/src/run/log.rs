//! A task's log: a file with a bounded size. The last lines are also kept in memory for messages.
//!
//! A task may be able to write to the folder of its log. So the log's files are made anew below the descriptor of the
//! folder, and no link or pipe that has the name of a file is opened.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crossdock_os::fs::{self, File};

/// How many lines are kept for the message about a failure.
const LAST: usize = 15;
/// The longest line in messages and on the user's terminal, in characters. The log file gets the whole line.
const LINE_MAX: usize = 400;

/// The log of one rank.
#[derive(Debug)]
pub struct Log {
    /// The path of the file. An older part of the log may lie beside it as `….1`.
    pub path: PathBuf,
    /// The open folder of the file, and the file's name in it.
    folder: Arc<File>,
    name: PathBuf,
    file: File,
    written: u64,
    limit: u64,
    partial: Vec<u8>,
    last: VecDeque<String>,
}

impl Log {
    /// Begins a new log file with the path `path`. `folder` is the open folder of this path. `limit` is the most bytes
    /// that the log takes on disk.
    pub fn make(folder: &Arc<File>, path: PathBuf, limit: u64) -> io::Result<Self> {
        let name = PathBuf::from(path.file_name().ok_or(io::ErrorKind::InvalidInput)?);
        let _ = fs::remove_file_in(folder, &older(&name));
        let file = create(folder, &name)?;
        let folder = folder.clone();
        Ok(Self { path, folder, name, file, written: 0, limit, partial: Vec::new(), last: VecDeque::new() })
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
        let fresh = with_ending(&self.name, ".new");
        let file = create(&self.folder, &fresh)?;
        match fs::rename_in(&self.folder, &self.name, &older(&self.name)) {
            // There is nothing to rename if an earlier attempt renamed the file and failed after that.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            renamed => renamed?,
        }
        fs::rename_in(&self.folder, &fresh, &self.name)?;
        (self.file, self.written) = (file, 0);
        Ok(())
    }
}

/// Makes an empty file in the folder. A former file, link or pipe of this name is removed.
fn create(folder: &File, name: &Path) -> io::Result<File> {
    match fs::remove_file_in(folder, name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        removed => removed?,
    }
    fs::make_in(folder, name)
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
fn begin(path: &Path, limit: u64) -> io::Result<Log> {
    let folder = Arc::new(File::open(path.parent().unwrap())?);
    Log::make(&folder, path.to_owned(), limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_whole_however_they_come() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = begin(&dir.path().join("a.log"), 1000).unwrap();
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
        let mut log = begin(&path, 1000).unwrap();
        for i in 0..1000 {
            log.add(format!("line {i}\n").as_bytes());
        }
        let now = fs::read_to_string(&path).unwrap();
        let before = fs::read_to_string(older(&path)).unwrap();
        assert!(now.len() + before.len() <= 1000);
        assert!(now.ends_with("line 999\n"));
        assert_eq!(log.last().count(), LAST);
    }

    /// Makes a named pipe.
    fn pipe(path: &Path) {
        assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
    }

    #[test]
    fn a_link_in_place_of_a_log_leads_to_no_other_file() {
        let dir = tempfile::tempdir().unwrap();
        let (victim, path) = (dir.path().join("victim"), dir.path().join("a.log"));
        fs::write(&victim, "untouched").unwrap();
        fs::symlink(&victim, &path).unwrap();
        let mut log = begin(&path, 100).unwrap();
        log.add(b"first\n");
        assert!(fs::symlink_metadata(&path).unwrap().is_file());
        fs::symlink(&victim, with_ending(&path, ".new")).unwrap();
        fs::symlink(&victim, older(&path)).unwrap();
        for i in 0..100 {
            log.add(format!("line {i}\n").as_bytes());
        }
        assert_eq!(fs::read_to_string(&victim).unwrap(), "untouched");
        assert!(fs::read_to_string(&path).unwrap().ends_with("line 99\n"));
    }

    #[test]
    fn a_pipe_in_place_of_a_log_stops_no_writer() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.log");
        pipe(&path);
        let (done, ended) = std::sync::mpsc::channel();
        // The thread is not joined, because it would sleep for ever if it waited for the reader of a pipe.
        std::thread::spawn({
            let path = path.clone();
            move || {
                let mut log = begin(&path, 100).unwrap();
                pipe(&with_ending(&path, ".new"));
                for i in 0..100 {
                    log.add(format!("line {i}\n").as_bytes());
                }
                done.send(()).unwrap();
            }
        });
        ended.recv_timeout(std::time::Duration::from_secs(60)).expect("the log waits for the reader of a pipe");
        assert!(fs::read_to_string(&path).unwrap().ends_with("line 99\n"));
    }

    #[test]
    fn a_log_stays_in_its_folder_if_a_link_takes_the_folders_place() {
        let dir = tempfile::tempdir().unwrap();
        let (logs, moved, other) = (dir.path().join("logs"), dir.path().join("moved"), dir.path().join("other"));
        fs::create_dir(&logs).unwrap();
        fs::create_dir(&other).unwrap();
        let mut log = begin(&logs.join("a.log"), 100).unwrap();
        fs::rename(&logs, &moved).unwrap();
        fs::symlink(&other, &logs).unwrap();
        for i in 0..100 {
            log.add(format!("line {i}\n").as_bytes());
        }
        assert_eq!(fs::read_dir(&other).unwrap().count(), 0);
        assert!(fs::read_to_string(moved.join("a.log")).unwrap().ends_with("line 99\n"));
    }

    #[test]
    fn a_line_without_end_costs_no_memory() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = begin(&dir.path().join("a.log"), 1 << 20).unwrap();
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
            let mut log = begin(&path, 200).unwrap();
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
        assert!(["open", "unlink", "rename", "write_file"].iter().all(|call| seen.contains(call)), "{seen:?}");
    }
}

//! Runs an engine's helper command with a deadline and bounded output.

use std::io::{ErrorKind, Read};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crossdock_os::spawn;

use super::Cleanup;

/// The result of a helper command.
#[derive(Debug)]
pub struct Outcome {
    /// True if the command ended with exit code 0.
    pub good: bool,
    /// Standard output, without white space at its beginning and end.
    pub output: String,
    /// Standard error, without white space at its beginning and end.
    pub words: String,
    /// Why the command did not run to its end; `None` if it ended by itself.
    pub trouble: Option<HelperFailure>,
}

/// Why a helper command did not run to its end.
#[derive(Debug)]
pub enum HelperFailure {
    /// No program of this name is on PATH.
    Missing(String),
    /// The kernel refused to start the program.
    Refused(String, std::io::Error),
    /// The program did not end within this time.
    NoAnswer(String, Duration),
}

impl std::fmt::Display for HelperFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Missing(name) => write!(f, "there is no program `{name}` on PATH"),
            Self::Refused(name, error) => write!(f, "`{name}` cannot be started: {error}"),
            Self::NoAnswer(name, time) => write!(f, "`{name}` gave no answer within {} s", time.as_secs()),
        }
    }
}

impl Outcome {
    /// The reason of a failure: why the command did not run to its end, or the last line that it wrote.
    pub fn reason(&self) -> String {
        match &self.trouble {
            Some(trouble) => trouble.to_string(),
            None => last_line(&self.words).to_owned(),
        }
    }
}

const OUTPUT_MAX: u64 = 1 << 20;
/// The least time for reading the output of a command, even if the command ended just before the deadline.
const LAST_READ: Duration = Duration::from_millis(100);

fn failed(trouble: HelperFailure) -> Outcome {
    Outcome { good: false, output: String::new(), words: String::new(), trouble: Some(trouble) }
}

/// A thread that reads a pipe.
struct Reader {
    /// The bytes that were read so far.
    text: Arc<Mutex<Vec<u8>>>,
    /// Is closed when the thread has read everything.
    ended: Receiver<()>,
}

impl Reader {
    fn start(pipe: Option<impl Read + Send + 'static>) -> std::io::Result<Self> {
        let (sender, ended) = channel();
        let text = Arc::new(Mutex::new(Vec::new()));
        let into = Arc::clone(&text);
        crossdock_os::thread::start(move || {
            let _reads = sender;
            let Some(mut pipe) = pipe.map(|pipe| pipe.take(OUTPUT_MAX)) else { return };
            let mut buffer = [0; 4096];
            loop {
                match pipe.read(&mut buffer) {
                    Err(e) if e.kind() == ErrorKind::Interrupted => {}
                    // Everything that could be read is useful, so an error ends the reading in the same way as the end
                    // of the pipe.
                    Ok(0) | Err(_) => return,
                    Ok(length) => {
                        into.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&buffer[..length]);
                    }
                }
            }
        })?;
        Ok(Self { text, ended })
    }

    /// Waits until the pipe is closed, and gives what was written to it, without white space at its beginning and end.
    /// A process that the command has left behind may keep the pipe open, so the wait ends at `end`. If less than
    /// `LAST_READ` is left until `end`, the wait ends after `LAST_READ`.
    fn text(self, end: Instant) -> String {
        let _ = self.ended.recv_timeout(end.saturating_duration_since(Instant::now()).max(LAST_READ));
        String::from_utf8_lossy(&self.text.lock().unwrap_or_else(PoisonError::into_inner)).trim().to_owned()
    }
}

/// Removes everything that the command `list` names, by the command `remove`, which gets all the names. Nothing is left if
/// `list` then names nothing more, or if the program of `list` is not installed. An engine that does not answer holds
/// the caller up for `deadline` and half a second for each name, but not for `deadline` at each name.
pub fn remove_listed(list: &[&str], remove: &[&str], deadline: Duration) -> Cleanup {
    let found = run(list, deadline);
    match found.trouble {
        None if !found.good => return Cleanup::Refused,
        Some(HelperFailure::Missing(_)) => return Cleanup::NothingLeft,
        Some(_) => return Cleanup::MayBeLeft,
        None => {}
    }
    let names: Vec<&str> = found.output.split_whitespace().collect();
    if names.is_empty() {
        return Cleanup::NothingLeft;
    }
    let removed = run(&[remove, &names].concat(), deadline + Duration::from_millis(500) * names.len() as u32);
    // If the engine was killed at the deadline, it would not answer the next question either.
    if matches!(removed.trouble, Some(HelperFailure::NoAnswer(..))) {
        return Cleanup::MayBeLeft;
    }
    let left = run(list, deadline);
    if left.good && left.output.is_empty() { Cleanup::NothingLeft } else { Cleanup::MayBeLeft }
}

/// Runs a program with arguments and kills it at the deadline.
pub fn run(words: &[&str], deadline: Duration) -> Outcome {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    finish(command, deadline)
}

/// Runs a prepared command. Its standard input is empty unless the caller has set it.
pub fn finish(mut command: Command, deadline: Duration) -> Outcome {
    let name = command.get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = match spawn::start(&mut command) {
        Ok(child) => child,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return failed(HelperFailure::Missing(name)),
        Err(e) => return failed(HelperFailure::Refused(name, e)),
    };
    let (output, errors) = match (Reader::start(child.stdout.take()), Reader::start(child.stderr.take())) {
        (Ok(output), Ok(errors)) => (output, errors),
        (Err(e), _) | (_, Err(e)) => {
            let _ = child.kill().and_then(|()| child.wait());
            return failed(HelperFailure::Refused(name, e));
        }
    };
    let end = Instant::now() + deadline;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Some(status),
            Ok(None) if Instant::now() < end => thread::sleep(Duration::from_millis(4)),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                break None;
            }
        }
    };
    match status {
        Some(status) => {
            Outcome { good: status.success(), output: output.text(end), words: errors.text(end), trouble: None }
        }
        None => failed(HelperFailure::NoAnswer(name, deadline)),
    }
}

/// Gives the line in which another program tells the reason of a failure. If there is no such line, gives words that
/// say so.
pub fn last_line(words: &str) -> &str {
    reason_in(words).unwrap_or("no reason given")
}

/// Finds the line in which another program tells the reason of a failure: the last line that is not empty. After the
/// reason, docker writes a line that points to its help. This line is skipped.
pub fn reason_in(words: &str) -> Option<&str> {
    let is_reason = |line: &&str| !line.is_empty() && !line.contains("docker run --help");
    words.lines().rev().map(str::trim).find(is_reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_leaves_a_process_behind_ends_by_its_deadline_with_its_output() {
        let started = Instant::now();
        let outcome = run(&["sh", "-c", "echo out; echo words >&2; sleep 60 & exit 0"], Duration::from_secs(2));
        assert!(started.elapsed() < Duration::from_secs(40), "it took {:?}", started.elapsed());
        assert!(outcome.good, "{outcome:?}");
        assert_eq!((&*outcome.output, &*outcome.words), ("out", "words"));
    }

    #[test]
    fn what_could_not_be_removed_or_listed_counts_as_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap();
        std::fs::write(folder.path().join("one"), "").unwrap();
        let deadline = Duration::from_secs(20);
        let remove = ["sh", "-c", "for name; do rm \"$0/$name\"; done", path];
        assert_eq!(remove_listed(&["ls", path], &["true"], deadline), Cleanup::MayBeLeft, "nothing removes it");
        std::fs::write(folder.path().join("two"), "").unwrap();
        let listed = |list: &[&str], remove: &[&str]| remove_listed(list, remove, deadline);
        assert_eq!(listed(&["ls", path], &remove), Cleanup::NothingLeft);
        assert_eq!(listed(&["ls", path], &["false"]), Cleanup::NothingLeft, "there is nothing");
        assert_eq!(listed(&["ls", "/no/such/folder"], &["true"]), Cleanup::Refused, "it cannot be listed");
        assert_eq!(listed(&["no-such-program-as-this"], &["true"]), Cleanup::NothingLeft, "the program is gone");
    }

    #[test]
    fn a_program_that_removes_nothing_and_does_not_answer_is_waited_for_once() {
        let names = vec!["name"; 30].join(" ");
        let started = Instant::now();
        let list = ["echo", &names];
        let removed = remove_listed(&list, &["sh", "-c", "sleep 60"], Duration::from_millis(100));
        assert_eq!(removed, Cleanup::MayBeLeft);
        assert!(started.elapsed() < Duration::from_secs(40), "{:?} for 30 names", started.elapsed());
    }
}

#[cfg(all(test, feature = "faults"))]
mod failing_calls {
    use super::*;
    use crossdock_os::faults;

    #[test]
    fn a_program_that_cannot_be_started_for_lack_of_room_is_an_error_and_can_be_started_again() {
        for which in 0..3 {
            faults::arm_thread(1, which);
            let outcome = run(&["true"], Duration::from_secs(20));
            assert_eq!(faults::disarm_thread().unwrap().0, "spawn");
            assert!(!outcome.good && matches!(outcome.trouble, Some(HelperFailure::Refused(..))));
            assert!(run(&["true"], Duration::from_secs(20)).good);
        }
    }
}

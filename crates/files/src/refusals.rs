//! Refusals: the calls by which tasks tried in vain to change files of managed directories, for `crossdock ls --files`.
//!
//! A task's door sends a message for each refusal to a datagram socket in the folder of the task's endpoint. Only this
//! task reaches this folder, so the socket tells which task has sent the message. The message cannot name another task.
//! It contains the path, which must lie in a directory of this task, and the number of refused calls.
//!
//! A task can send any messages, in any number. Three limits keep them harmless. There is only one record for each task
//! and directory, which has the number of refusals and the last path. The kernel limits the number of messages that
//! wait in a socket. The thread of this module reads a limited number of messages per second. The records of a
//! directory lie in a small file beside its store, which only the service writes. `crossdock ls --files` reads this
//! file, also when the service is dead.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossdock_core::files::normalise;
use crossdock_layout::refusal::{self, MESSAGE_BYTES, SOCKET};
use crossdock_os::event::{self, Epoll};
use crossdock_os::{Deadline, clock, datagram, fs};
use serde::{Deserialize, Serialize};

/// The most messages of one task that are read before the messages of other tasks are read.
const ROUND: usize = 64;
/// The thread makes this pause after it has read up to [`ROUND`] messages of each task. So a task that sends messages
/// without end costs little CPU time.
const PAUSE: Duration = Duration::from_millis(2);
/// The shortest time between two writes of changed records to their files.
const SAVE: Duration = Duration::from_millis(100);
/// The most bytes of a path that a record keeps.
const NAME_BYTES: usize = 1024;

const STOP: u64 = u64::MAX;

/// Whether a task writes the files of a managed directory or only reads them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum RefusedRole {
    /// The task only reads the directory's files; its calls fail with EROFS.
    Consumer,
    /// The task writes the directory's files; an open of a published file for writing fails with EACCES.
    Producer,
}

/// The refusals of one task in one managed directory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Refused {
    /// The name of the task.
    pub task: String,
    /// Whether the task writes the directory's files or only reads them.
    pub role: RefusedRole,
    /// How many calls failed, as far as the task's door could report them.
    pub times: u64,
    /// The path that the last refused call named, relative to the directory. Control characters are replaced.
    pub last: String,
    /// The time since the last refused call, in seconds.
    pub seconds_ago: u64,
}

impl Refused {
    /// The name of the error that the task got.
    #[must_use]
    pub fn errno(&self) -> &'static str {
        match self.role {
            RefusedRole::Consumer => "EROFS",
            RefusedRole::Producer => "EACCES",
        }
    }

    /// Says why the calls failed, and what to do.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self.role {
            RefusedRole::Consumer => "it only reads these files",
            RefusedRole::Producer => "a published file is final; write a new name, or rename a file into place",
        }
    }
}

/// A managed directory whose refusals are recorded.
#[derive(Clone, Debug)]
pub struct GuardedDirectory {
    /// The path at which the tasks see the directory.
    pub path: String,
    /// The file for the records; see [`crate::Layout::refusals`].
    pub file: PathBuf,
    /// The names of the tasks that write files of the directory. All other tasks only read these files.
    pub producers: Vec<String>,
}

/// The thread that receives the reports of refusals from the tasks' doors, and the records of these refusals. Dropping
/// this value ends the thread.
#[derive(Debug)]
pub struct Refusals {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    epoll: Epoll,
    /// A descriptor that is readable when the thread must end.
    stop: OwnedFd,
}

#[derive(Debug, Default)]
struct State {
    directories: Vec<GuardedDirectory>,
    /// For each directory: a map from the name of a task to the record of its refusals.
    records: Vec<BTreeMap<String, RefusalCount>>,
    /// For each directory: whether its records have changed since they were last written to the file.
    changed: Vec<bool>,
    /// The sockets to which the tasks' doors report. Each has the name of its task and the indexes of the task's
    /// directories.
    doors: Vec<Arc<ReportSocket>>,
}

#[derive(Debug)]
struct ReportSocket {
    socket: OwnedFd,
    path: PathBuf,
    task: String,
    directories: Vec<usize>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct RefusalCount {
    times: u64,
    last_ns: u64,
    last: String,
}

impl Refusals {
    /// Starts the thread that records the refusals in these directories.
    ///
    /// # Errors
    /// The system has no descriptor or thread left.
    pub fn start(directories: Vec<GuardedDirectory>) -> io::Result<Self> {
        let (epoll, stop) = (Epoll::new()?, event::eventfd()?);
        epoll.add(&stop, STOP, false)?;
        let records = vec![BTreeMap::new(); directories.len()];
        let changed = vec![false; directories.len()];
        let state = Mutex::new(State { directories, records, changed, doors: Vec::new() });
        let shared = Arc::new(Shared { state, epoll, stop });
        let for_thread = shared.clone();
        let takes = move || for_thread.run();
        let thread = thread::Builder::new().name("crossdock-refused".into()).spawn(takes)?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Makes the socket to which the door of `task` reports, in the folder of the task's endpoint. `directories` has the
    /// indexes of the task's directories. If the socket exists already, this call does nothing.
    ///
    /// # Errors
    /// The socket cannot be made.
    pub fn listen(&self, task: &str, directories: &[usize], endpoint: &Path) -> io::Result<()> {
        let path = endpoint.join(SOCKET);
        let mut state = self.shared.state();
        if state.doors.iter().any(|door| door.path == path) {
            return Ok(());
        }
        let socket = datagram::receiver(endpoint, SOCKET)?;
        let token = state.doors.len() as u64;
        self.shared.epoll.add(&socket, token, false)?;
        let gate = ReportSocket { socket, path, task: task.to_owned(), directories: directories.to_vec() };
        state.doors.push(Arc::new(gate));
        Ok(())
    }
}

impl Drop for Refusals {
    fn drop(&mut self) {
        event::signal(&self.shared.stop);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut next_save = Instant::now();
        loop {
            let is_changed = self.state().changed.contains(&true);
            let longest = if is_changed { SAVE } else { Duration::from_secs(3600) };
            let Ok(ready) = self.epoll.wait(Deadline::after(longest)) else { return };
            let is_over = ready.iter().any(|ready| ready.token == STOP);
            for ready in ready.iter().filter(|ready| ready.token != STOP) {
                self.take_from(ready.token);
            }
            if is_over || Instant::now() >= next_save {
                self.state().save();
                next_save = Instant::now() + SAVE;
            }
            if is_over {
                return;
            }
            if !ready.is_empty() {
                thread::sleep(PAUSE);
            }
        }
    }

    /// Takes the messages in the socket of one task's door, at most `ROUND` of them.
    fn take_from(&self, token: u64) {
        let mut buffer = [0; MESSAGE_BYTES];
        let mut state = self.state();
        let gate = usize::try_from(token).ok().and_then(|index| state.doors.get(index).cloned());
        let Some(gate) = gate else { return };
        for _ in 0..ROUND {
            let Ok(Some(length)) = datagram::receive(&gate.socket, &mut buffer) else { return };
            // A message that does not fit into the buffer does not come from a door, because doors send shorter
            // messages.
            if let Some(message) = buffer.get(..length) {
                state.note(&gate, message);
            }
        }
    }
}

impl State {
    /// Records the refused calls that a message reports, if the reported path is in one of the task's directories.
    fn note(&mut self, gate: &ReportSocket, message: &[u8]) {
        let Some((count, path)) = refusal::read(message) else { return };
        let path = normalise(path);
        let below = |index: &usize| {
            let rest = path.strip_prefix(self.directories[*index].path.trim_end_matches('/').as_bytes())?;
            Some((*index, rest.strip_prefix(b"/").filter(|rest| !rest.is_empty())?))
        };
        let Some((index, rest)) = gate.directories.iter().find_map(below) else { return };
        let last = shown(rest);
        let record = self.records[index].entry(gate.task.clone());
        let record = record.or_insert(RefusalCount { times: 0, last_ns: 0, last: String::new() });
        // The task can report any number of refusals. A false number changes only the task's own record.
        record.times = record.times.saturating_add(count.clamped(u64::from(u32::MAX)).max(1));
        record.last_ns = clock::now_ns();
        record.last = last;
        self.changed[index] = true;
    }

    /// Writes the records that changed. Each file is replaced as a whole.
    fn save(&mut self) {
        for (index, changed) in self.changed.iter_mut().enumerate().filter(|(_, changed)| **changed) {
            *changed = false;
            let GuardedDirectory { file, producers, .. } = &self.directories[index];
            let line = |(task, record): (&String, &RefusalCount)| {
                let role = if producers.contains(task) { "producer" } else { "consumer" };
                format!("{role}\t{task}\t{}\t{}\t{}\n", record.times, record.last_ns, record.last)
            };
            let text: String = self.records[index].iter().map(line).collect();
            // If there is no room to write the file with these records, `crossdock ls` shows the records that were
            // written before. The task's log names all refused calls in any case.
            let _ = fs::replace(file, text.as_bytes());
        }
    }
}

/// Returns a path as text on one line. The text contains at most the first [`NAME_BYTES`] bytes of the path.
fn shown(path: &[u8]) -> String {
    let text = String::from_utf8_lossy(&path[..path.len().min(NAME_BYTES)]);
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// Reads the records in this file, which the service writes.
pub(crate) fn read(file: &Path) -> Vec<Refused> {
    let now = clock::now_ns();
    let line = |line: &str| {
        let mut fields = line.splitn(5, '\t');
        let role = match fields.next()? {
            "producer" => RefusedRole::Producer,
            "consumer" => RefusedRole::Consumer,
            _ => return None,
        };
        let task = fields.next()?.to_owned();
        let times = fields.next()?.parse().ok()?;
        let last_ns: u64 = fields.next()?.parse().ok()?;
        let seconds_ago = Duration::from_nanos(now.saturating_sub(last_ns)).as_secs();
        Some(Refused { task, role, times, last: fields.next()?.to_owned(), seconds_ago })
    };
    fs::read_to_string(file).unwrap_or_default().lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixture {
        folder: tempfile::TempDir,
        refusals: Refusals,
    }

    impl Fixture {
        /// Two directories: `simulate` writes both, `analyse` reads the first one.
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let directory = |path: &str, name: &str| GuardedDirectory {
                path: path.into(),
                file: folder.path().join(name),
                producers: vec!["simulate".into()],
            };
            let refusals =
                Refusals::start(vec![directory("/data/f", "0.refusals"), directory("/data/g", "1.refusals")]);
            let fixture = Self { refusals: refusals.unwrap(), folder };
            for (task, directories) in [("simulate", &[0, 1][..]), ("analyse", &[0])] {
                fs::create_dir(fixture.folder.path().join(task)).unwrap();
                for _ in 0..2 {
                    let endpoint = fixture.folder.path().join(task);
                    fixture.refusals.listen(task, directories, &endpoint).unwrap();
                }
            }
            fixture
        }

        fn send(&self, task: &str, bytes: &[u8]) -> bool {
            datagram::send(&self.folder.path().join(task).join(SOCKET), bytes).unwrap()
        }

        fn report(&self, task: &str, path: &str) {
            while !self.send(task, &refusal::write(1, path.as_bytes()).unwrap()) {
                thread::sleep(Duration::from_millis(1));
            }
        }

        /// Waits until `is_there` accepts the records of a directory, and gives these records.
        fn records(&self, number: usize, is_there: impl Fn(&[Refused]) -> bool) -> Vec<Refused> {
            let end = Instant::now() + Duration::from_secs(60);
            loop {
                let found = read(&self.folder.path().join(format!("{number}.refusals")));
                if is_there(&found) {
                    return found;
                }
                assert!(Instant::now() < end, "{found:?}");
                thread::sleep(Duration::from_millis(5));
            }
        }
    }

    #[test]
    fn each_task_has_one_record_with_the_number_and_the_last_path() {
        let fixture = Fixture::new();
        fixture.report("analyse", "/data/f/1.txt");
        fixture.report("analyse", "/data/f/./a//2.txt");
        fixture.report("simulate", "/data/f/3.txt");
        fixture.report("simulate", "/data/g/4.txt");
        let found = fixture.records(0, |found| found.iter().map(|refused| refused.times).sum::<u64>() == 3);
        let of = |refused: &Refused| (refused.task.clone(), refused.errno(), refused.times, refused.last.clone());
        let wanted =
            [("analyse".into(), "EROFS", 2, "a/2.txt".into()), ("simulate".into(), "EACCES", 1, "3.txt".into())];
        assert_eq!(found.iter().map(of).collect::<Vec<_>>(), wanted);
        assert!(found.iter().all(|refused| refused.seconds_ago < 60));
        assert_eq!(fixture.records(1, |found| found.len() == 1)[0].last, "4.txt");
    }

    #[test]
    fn a_task_cannot_speak_for_other_tasks_or_other_directories() {
        let fixture = Fixture::new();
        for path in ["/data/g/x", "/data/f/../g/x", "/data/f", "/data/f/", "/data/ff/x", "/etc/passwd"] {
            fixture.report("analyse", path);
        }
        for bad in [&b""[..], b"short", &[0xff; 100], &[b'/'; MESSAGE_BYTES + 100]] {
            fixture.send("analyse", bad);
        }
        // A path with the characters that separate the fields of a record, and a false number.
        let evil = b"/data/f/a\nproducer\tsimulate\t9\t9\tx";
        fixture.send("analyse", &refusal::write(u64::MAX, evil).unwrap());
        let found = fixture.records(0, |found| !found.is_empty());
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].task.as_str(), found[0].role), ("analyse", RefusedRole::Consumer));
        assert_eq!(found[0].last, "a?producer?simulate?9?9?x");
        assert_eq!(found[0].times, u64::from(u32::MAX));
        assert!(read(&fixture.folder.path().join("1.refusals")).is_empty());
    }

    #[test]
    fn a_flood_of_one_task_is_bounded_and_keeps_no_other_task_out() {
        let fixture = Fixture::new();
        let is_over = std::sync::atomic::AtomicBool::new(false);
        thread::scope(|scope| {
            let flood = scope.spawn(|| {
                let mut sent = 0u64;
                let mut number = 0u64;
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    number += 1;
                    let path = format!("/data/f/{}{number}", "x".repeat(3000));
                    sent += u64::from(fixture.send("analyse", &refusal::write(1, path.as_bytes()).unwrap()));
                }
                sent
            });
            thread::sleep(Duration::from_millis(300));
            fixture.report("simulate", "/data/f/own");
            let found = fixture.records(0, |found| found.iter().any(|refused| refused.task == "simulate"));
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
            let sent = flood.join().unwrap();
            assert_eq!(found.len(), 2);
            assert!(found.iter().all(|refused| refused.last.len() <= NAME_BYTES));
            let size = fs::metadata(fixture.folder.path().join("0.refusals")).unwrap().len();
            assert!(size < 3 * NAME_BYTES as u64, "{size}");
            let all = fixture.records(0, |found| found[0].times == sent);
            assert_eq!(all[1].times, 1);
        });
    }
}

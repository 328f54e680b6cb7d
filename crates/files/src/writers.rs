//! Finds out which processes write the files of a managed directory. The service needs this because a file whose writer
//! is killed must stay unpublished.
//!
//! If the daemon's user is root, the kernel reports every open of a producer before it happens. Otherwise no writer is
//! known, and a file counts as finished when its last writer has closed it or has died; docs/files.md says so.
//!
//! Before each open in a watched folder, also before an open by the service, the kernel asks the service and waits for
//! an answer. A thread of its own answers. It never waits for a lock that another thread holds while that thread opens
//! a file.
//!
//! For each event, the kernel makes a descriptor in the table of the thread that reads the event. If the table is full,
//! the kernel drops the event: a close is lost, and an open fails with EPERM. So the thread has a table of its own, in
//! which the descriptors of other threads take no place. The thread alone has the descriptors of the watch and of the
//! processes. `Rc` keeps them in the thread, and what other threads share with it ([`Notes`], [`Request`]) contains no
//! descriptor. When the thread ends, the kernel closes the watch and lets every open pass.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use crossdock_os::fanotify::{OpenEvent, OpenWatch};
use crossdock_os::process::{self, Limit, ProcessState};
use crossdock_os::{Deadline, OsError, OsResult, event, thread};

/// If fewer processes than this are known, the service does not look for dead processes among them.
const MANY: usize = 32;
/// How many events the thread takes from the kernel at most before it looks for requests. Each answer lets a program go
/// on, and the program can make the next event at once.
const ROUND: usize = 256;
/// How many descriptors of its table the thread keeps for other things than known processes: 0 to 2, the watch, the
/// bell, the file and the process of an event, and a file of `/proc`, with some to spare.
const OTHERS: usize = 16;
/// How long the service waits at most for an answer of the thread. Meanwhile the service publishes nothing.
const PATIENCE: Duration = Duration::from_secs(5);
/// How soon a thread rings the bell again if it gets no answer.
const AGAIN: Duration = Duration::from_millis(100);

/// Learns which processes opened files, and how the files' writers closed them.
#[derive(Debug)]
pub(crate) struct Writers {
    notes: Arc<Notes>,
    /// The thread that answers the kernel; `None` if this process may not know which processes write files.
    answers: Option<Answers>,
}

/// The thread that answers the kernel, as other threads see it.
#[derive(Debug)]
struct Answers {
    requests: Sender<Request>,
    /// Readable if there is a request.
    bell: OwnedFd,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What other threads ask of the thread that answers the kernel.
#[derive(Debug)]
enum Request {
    /// Note all events that wait now.
    TakeIn(Sender<()>),
    /// Watch one more folder.
    Watch(PathBuf, Sender<OsResult<()>>),
    Stop,
}

/// What the thread that answers the kernel has found out.
#[derive(Debug, Default)]
struct Notes(Mutex<Noted>);

#[derive(Debug, Default)]
struct Noted {
    watch: WatchState,
    /// For each inode number of a file that was closed after writing: how the file was closed.
    closed: HashMap<u64, Close>,
    /// What went wrong, a line for each problem, as far as it was not reported yet.
    troubles: Vec<String>,
}

/// Tells whether the kernel reports opens and closes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum WatchState {
    /// The kernel reports opens and closes.
    Works,
    /// This process may not watch, or the watch was given up: writers are not known.
    #[default]
    None,
    /// The thread that answers the kernel has ended.
    Ended,
}

/// What is known about the closes of one file.
#[derive(Debug)]
struct Close {
    how: Closed,
    /// When the close was noted.
    noted: SystemTime,
    /// How many closes are not counted in `how`, because it is not known how the process ended.
    unsure: usize,
}

/// How a file was closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Closed {
    /// Since the last call of [`Writers::is_torn`] for the file, each writer closed the file itself.
    Well,
    /// Since the last call of [`Writers::is_torn`] for the file, a writer was killed while it had the file open.
    Killed,
    /// A writer was killed before the last call of [`Writers::is_torn`] for the file, and no writer has closed the file
    /// since that call. If another event about the killed writer's close comes, the event must not publish the file.
    Torn,
}

impl Close {
    fn new() -> Self {
        Self { how: Closed::Well, noted: SystemTime::now(), unsure: 0 }
    }

    fn count(&mut self, is_killed: bool) {
        if is_killed {
            (self.how, self.noted) = (Closed::Killed, SystemTime::now());
        } else if self.how == Closed::Torn {
            self.how = Closed::Well;
        }
    }
}

impl Noted {
    fn trouble(&mut self, line: String) {
        if !self.troubles.contains(&line) {
            self.troubles.push(line);
        }
    }
}

impl Notes {
    fn lock(&self) -> MutexGuard<'_, Noted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells, from the events that were taken in so far, what [`Writers::is_torn`] tells.
    fn is_torn(&self, inode: u64, made: Option<SystemTime>) -> io::Result<bool> {
        let mut noted = self.lock();
        let Some(close) = noted.closed.get_mut(&inode) else { return Ok(false) };
        // If the file was made after the close, the killed writer had an older file open, which had the same inode
        // number and was removed.
        let is_older = made.is_some_and(|made| made > close.noted);
        if close.unsure > 0 && !is_older {
            return Err(io::Error::other("it is not known yet whether the file's writer was killed"));
        }
        if close.how == Closed::Well || is_older {
            noted.closed.remove(&inode);
            return Ok(false);
        }
        close.how = Closed::Torn;
        Ok(true)
    }
}

impl Writers {
    /// Starts to answer the kernel, if this process may do so.
    ///
    /// # Errors
    /// A call failed for lack of a resource.
    pub(crate) fn new() -> io::Result<Self> {
        let notes = Arc::<Notes>::default();
        let watch = match OpenWatch::new() {
            Ok(watch) => watch,
            Err(error) if error.is_refused() => return Ok(Self { notes, answers: None }),
            Err(error) => return Err(error.into()),
        };
        let bell = event::eventfd()?;
        let (requests, received) = channel();
        let (descriptors, input) = ([watch.as_fd(), bell.as_fd()], (received, notes.clone()));
        notes.lock().watch = WatchState::Works;
        let thread = thread::start_with_own_descriptors("crossdock-opens", &descriptors, input, answer)?;
        // Here this process's other table loses the watch. So the kernel asks only as long as the thread runs.
        drop(watch);
        Ok(Self { notes, answers: Some(Answers { requests, bell, thread: Mutex::new(Some(thread)) }) })
    }

    /// Tells whether the kernel reports writers.
    pub(crate) fn are_known(&self) -> bool {
        self.notes.lock().watch == WatchState::Works
    }

    /// Watches one more folder. If the kernel refuses for good, the service no longer knows which processes write files,
    /// in any folder. A folder that was removed meanwhile needs no watch.
    ///
    /// # Errors
    /// The folder cannot be watched now, for example because memory is short.
    pub(crate) fn watch(&self, folder: &Path) -> io::Result<()> {
        match &self.answers {
            Some(answers) if self.are_known() => {
                Ok(answers.ask(|answer| Request::Watch(folder.to_owned(), answer), PATIENCE)??)
            }
            _ => Ok(()),
        }
    }

    /// Tells, after the last writer has closed the file, whether a writer was killed while it had the file open. `made`
    /// is the time at which the file was made, if the file system keeps this time.
    ///
    /// # Errors
    /// It cannot be found out now.
    pub(crate) fn is_torn(&self, inode: u64, made: Option<SystemTime>) -> io::Result<bool> {
        let state = self.notes.lock().watch;
        if let Some(answers) = self.answers.as_ref().filter(|_| state != WatchState::None) {
            answers.ask(Request::TakeIn, PATIENCE)?;
        }
        self.notes.is_torn(inode, made)
    }

    /// Gives the lines about problems that were not given yet.
    pub(crate) fn take_troubles(&self) -> Vec<String> {
        std::mem::take(&mut self.notes.lock().troubles)
    }

    /// Ends the thread that answers the kernel. Afterwards the kernel lets every open pass.
    pub(crate) fn stop(&self) {
        let Some(answers) = &self.answers else { return };
        let thread = answers.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(thread) = thread else { return };
        let _ = answers.requests.send(Request::Stop);
        while !thread.is_finished() {
            event::signal(&answers.bell);
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = thread.join();
    }
}

impl Drop for Writers {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Answers {
    /// Sends a request to the thread, and waits for the answer for the time `patience` at most.
    fn ask<T>(&self, request: impl FnOnce(Sender<T>) -> Request, patience: Duration) -> io::Result<T> {
        let fails = |how| Err(io::Error::other(format!("the thread that learns which processes write files {how}")));
        let (sender, answer) = channel();
        if self.requests.send(request(sender)).is_err() {
            return fails("has ended");
        }
        let began = Instant::now();
        loop {
            event::signal(&self.bell);
            match answer.recv_timeout(AGAIN) {
                Ok(answer) => return Ok(answer),
                Err(RecvTimeoutError::Disconnected) => return fails("has ended"),
                Err(RecvTimeoutError::Timeout) if began.elapsed() >= patience => return fails("does not answer"),
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }
}

/// The work of the thread that answers the kernel. `descriptors` are the watch and the bell.
fn answer(descriptors: Vec<OwnedFd>, (requests, notes): (Receiver<Request>, Arc<Notes>)) {
    /// Notes the end of the thread, also if it panics.
    struct Ending(Arc<Notes>);
    impl Drop for Ending {
        fn drop(&mut self) {
            let mut noted = self.0.lock();
            if noted.watch == WatchState::Works {
                noted.watch = WatchState::Ended;
            }
        }
    }
    // This value is dropped last. When the end is noted, the watch is closed.
    let _ending = Ending(notes.clone());
    let Ok([watch, bell]) = <[OwnedFd; 2]>::try_from(descriptors) else { return };
    let mut learned = Learned::new(watch.into(), notes);
    loop {
        let soon = Deadline::after(Duration::from_secs(3600));
        if event::wait_any(&[learned.watch.as_fd(), bell.as_fd()], Some(soon)).is_err() {
            // The cause passes, for example a lack of memory. This thread must go on, because processes wait for it.
            std::thread::sleep(Duration::from_millis(10));
        }
        event::clear(&bell);
        learned.take_in();
        loop {
            match requests.try_recv() {
                Ok(Request::TakeIn(answer)) => {
                    learned.take_in_waiting();
                    learned.look_again();
                    let _ = answer.send(());
                }
                Ok(Request::Watch(folder, answer)) => {
                    let _ = answer.send(learned.add(&folder));
                    if learned.processes.notes.lock().watch == WatchState::None {
                        return;
                    }
                }
                Ok(Request::Stop) | Err(TryRecvError::Disconnected) => return,
                Err(TryRecvError::Empty) => break,
            }
        }
    }
}

/// What the thread that answers the kernel works with.
#[derive(Debug)]
struct Learned {
    watch: OpenWatch,
    has_folder: bool,
    processes: Processes,
}

/// The processes that opened files.
#[derive(Debug)]
struct Processes {
    /// Maps the id of each process that has opened files to a descriptor of the process. A process has one descriptor
    /// here, however many files it opens.
    open: HashMap<i32, Rc<OwnedFd>>,
    /// The ids of processes that have opened files and of which no descriptor could be opened or kept.
    without_descriptor: HashSet<i32>,
    /// As soon as this many processes are known, the service removes the dead ones from `open`.
    many: usize,
    /// The processes that are to be removed from `open`, if there are such processes.
    leaving: Option<Leaving>,
    /// The closes of which it is not known how the process ended.
    unsure: Vec<Unsure>,
    notes: Arc<Notes>,
    own: i32,
}

/// Dead processes whose last events may still wait in the kernel's queue.
#[derive(Debug)]
struct Leaving {
    dead: HashSet<i32>,
    /// How many events of the queue can still be events of these processes.
    events: usize,
}

/// A close by a process whose state could not be found out.
#[derive(Debug)]
struct Unsure {
    inode: u64,
    pid: i32,
    /// A descriptor of the process; `None` if there was none. Then the close stays unsure.
    process: Option<Rc<OwnedFd>>,
}

impl Learned {
    fn new(watch: OpenWatch, notes: Arc<Notes>) -> Self {
        let own = i32::try_from(std::process::id()).unwrap_or(0);
        let processes = Processes {
            open: HashMap::new(),
            without_descriptor: HashSet::new(),
            many: MANY,
            leaving: None,
            unsure: Vec::new(),
            notes,
            own,
        };
        Self { watch, has_folder: false, processes }
    }

    /// Watches one more folder. Gives the watch up if the kernel refuses for good.
    fn add(&mut self, folder: &Path) -> OsResult<()> {
        match self.watch.add(folder) {
            Err(error) if error.is_absent() => {}
            Err(error) if error.is_out_of_room() => return Err(error),
            Err(error) => {
                // The closes that wait still count.
                self.take_in_waiting();
                let mut noted = self.processes.notes.lock();
                noted.watch = WatchState::None;
                // Without any watched folder, writers were never known, and the report says so.
                if self.has_folder {
                    noted.trouble(format!(
                        "from now on, a file is also published if its writer is killed, because a folder cannot be \
                         watched: {error}"
                    ));
                }
            }
            Ok(()) => self.has_folder = true,
        }
        Ok(())
    }

    /// Notes the oldest opens and closes that the kernel reports, and lets the waiting opens continue. Gives the number
    /// of events that it has taken from the kernel. It takes only a part of a long queue, so that it ends although
    /// programs go on opening files; the descriptor stays readable.
    ///
    /// When a writer closes a file, this function looks at the writer's process immediately, and not at the
    /// publication, which may come much later. A process that is killed only after its close has finished the file, so
    /// such a file must not count as the file of a killed writer.
    fn take_in(&mut self) -> usize {
        let Self { watch, processes, .. } = self;
        processes.look_for_dead(watch);
        let mut taken = 0;
        while taken < ROUND {
            let noted = match watch.next_event() {
                Ok(None) => break,
                Ok(Some(event)) => processes.note(event),
                Err(error) => Err(error),
            };
            taken += 1;
            if let Err(error) = noted {
                processes.notes.lock().trouble(format!(
                    "the kernel has dropped an open or a close of a file: the open has failed, or a file whose writer \
                     was killed may be published: {error}"
                ));
            }
        }
        processes.forget_dead(watch, taken);
        taken
    }

    /// Does the same as [`Learned::take_in`] for all events that wait at the call.
    fn take_in_waiting(&mut self) {
        let mut waiting = self.watch.waiting();
        while waiting > 0 {
            match self.take_in() {
                0 => return,
                taken => waiting = waiting.saturating_sub(taken),
            }
        }
    }

    /// Asks again how the processes ended whose closes are unsure.
    fn look_again(&mut self) {
        let Processes { unsure, notes, .. } = &mut self.processes;
        unsure.retain(|unsure| {
            let Some(process) = &unsure.process else { return true };
            let state = process::state(process, unsure.pid);
            // If the process was reaped meanwhile, older kernels do not tell how it ended.
            let Some(state) = state.ok().filter(|state| *state != ProcessState::Unknown) else { return true };
            // If the entry is gone, the file with this inode number is another one.
            if let Some(close) = notes.lock().closed.get_mut(&unsure.inode).filter(|close| close.unsure > 0) {
                close.unsure -= 1;
                close.count(state == ProcessState::Killed);
            }
            false
        });
    }
}

impl Processes {
    /// If many processes are known, lists those that have ended.
    fn look_for_dead(&mut self, watch: &OpenWatch) {
        let many = self.many.min(Self::most());
        if self.leaving.is_none() && self.open.len() >= many {
            // The events of a process come before its end. So the last event of each process that is dead now is in the
            // queue now, or was read before.
            let dead = self.open.iter().filter(|(_, pidfd)| process::is_dead(pidfd)).map(|(pid, _)| *pid).collect();
            self.leaving = Some(Leaving { dead, events: watch.waiting() });
        }
    }

    /// Forgets the dead processes if none of their events waits any more. `taken` events were taken from the queue.
    fn forget_dead(&mut self, watch: &OpenWatch, taken: usize) {
        let Some(leaving) = &mut self.leaving else { return };
        // The kernel takes the event of a process that was killed inside `open` out of the queue. So fewer events than
        // were counted may come.
        leaving.events = leaving.events.saturating_sub(taken).min(watch.waiting());
        if leaving.events == 0 {
            self.open.retain(|pid, _| !leaving.dead.contains(pid));
            self.many = MANY.max(2 * self.open.len());
            self.leaving = None;
        }
    }

    /// The largest number of processes for which this thread keeps descriptors.
    fn most() -> usize {
        let limit = process::limit(Limit::Descriptors).0.unwrap_or(u64::MAX);
        usize::try_from(limit).unwrap_or(usize::MAX).saturating_sub(OTHERS)
    }

    /// Tells whether this thread can keep one more descriptor of a process, and still has descriptors for events.
    fn can_keep(&self) -> bool {
        self.open.len() + self.unsure.len() < Self::most()
    }

    fn note(&mut self, event: OpenEvent<'_>) -> OsResult<()> {
        let pid = event.pid;
        if event.closed {
            let inode = event.inode()?;
            drop(event);
            self.note_close(pid, inode);
        } else if pid != self.own {
            // The service opens files only for reading, so it is never a writer.
            self.note_open(pid);
        }
        Ok(())
    }

    /// Notes an open. The process waits for the answer, so it is alive.
    fn note_open(&mut self, pid: i32) {
        let now = Deadline::after(Duration::ZERO);
        if self.open.get(&pid).is_some_and(|pidfd| matches!(event::wait_readable(pidfd, now), Ok(false))) {
            return;
        }
        // If there is an entry, it may be that of a dead process which had the same number. So it is replaced.
        self.open.remove(&pid);
        if let Some(leaving) = &mut self.leaving {
            leaving.dead.remove(&pid);
        }
        match self.can_keep().then(|| process::open_pidfd(pid)) {
            Some(Ok(pidfd)) => {
                self.without_descriptor.remove(&pid);
                self.open.extend(pidfd.map(|pidfd| (pid, Rc::new(pidfd))));
            }
            None | Some(Err(_)) => drop(self.without_descriptor.insert(pid)),
        }
    }

    fn note_close(&mut self, pid: i32, inode: u64) {
        let known = self.open.get(&pid).cloned();
        // Even if this thread cannot keep the descriptor, it asks how the process ended.
        let process = known.map_or_else(|| Ok(process::open_pidfd(pid)?.map(Rc::new)), |pidfd| Ok(Some(pidfd)));
        let process = process.unwrap_or_else(|_: OsError| {
            self.without_descriptor.insert(pid);
            None
        });
        let kept = process.clone().filter(|_| self.can_keep());
        self.open.extend(kept.clone().map(|pidfd| (pid, pidfd)));
        let state = match &process {
            Some(pidfd) => process::state(pidfd, pid).ok(),
            None if self.without_descriptor.contains(&pid) => None,
            // The process opened the file before its folder was watched, and is gone.
            None => return,
        };
        let mut noted = self.notes.lock();
        let close = noted.closed.entry(inode).or_insert_with(Close::new);
        match state {
            Some(state) => close.count(state == ProcessState::Killed),
            None => {
                (close.unsure, close.noted) = (close.unsure + 1, SystemTime::now());
                self.unsure.push(Unsure { inode, pid, process: kept });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossdock_os::testing::until;
    use std::fs::File;
    use std::io::{BufRead, BufReader};
    use std::os::unix::fs::MetadataExt;
    use std::process::{Child, Command, Stdio};

    /// A watched folder. The test's own thread takes the events in.
    struct Watched {
        learned: Learned,
        folder: tempfile::TempDir,
    }

    impl Watched {
        /// Watches a new folder; `None` if this process may not.
        fn new() -> Option<Self> {
            let mut learned = Learned::new(OpenWatch::new().ok()?, Arc::default());
            learned.processes.notes.lock().watch = WatchState::Works;
            let folder = tempfile::tempdir().unwrap();
            learned.add(folder.path()).unwrap();
            Some(Self { learned, folder })
        }

        /// Starts a process that has the file `torn` open for writing. Gives the process and the file's inode number.
        fn writer(&mut self) -> (Child, u64) {
            let mut writer = Command::new("sh");
            let mut writer = writer
                .args(["-c", "exec 3>torn; echo; exec sleep 600"])
                .current_dir(&self.folder)
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let output = writer.stdout.take().unwrap();
            // The open waits for its answer.
            until("the open", || {
                self.learned.take_in();
                event::wait_readable(&output, Deadline::after(Duration::ZERO)).unwrap()
            });
            BufReader::new(output).read_line(&mut String::new()).unwrap();
            (writer, std::fs::metadata(self.folder.path().join("torn")).unwrap().ino())
        }

        fn is_torn(&mut self, inode: u64) -> io::Result<bool> {
            self.learned.take_in_waiting();
            self.learned.look_again();
            self.learned.processes.notes.is_torn(inode, None)
        }
    }

    #[test]
    fn a_killed_writers_close_counts_although_many_events_wait_before_it() {
        let Some(mut watched) = Watched::new() else { return crossdock_os::testing::skip("known-writers") };
        let (mut writer, inode) = watched.writer();
        let other = tempfile::tempdir().unwrap();
        let files: Vec<File> = (0..300).map(|n| File::create(other.path().join(n.to_string())).unwrap()).collect();
        watched.learned.add(other.path()).unwrap();
        drop(files);
        until("all closes wait", || watched.learned.watch.waiting() >= 300);
        writer.kill().unwrap();
        until("the close of the killed writer waits", || watched.learned.watch.waiting() > 300);
        assert!(watched.is_torn(inode).unwrap());
        writer.wait().unwrap();
    }

    #[test]
    fn a_process_for_which_there_was_no_descriptor_counts_as_unsure_if_it_is_gone() {
        let Some(mut watched) = Watched::new() else { return crossdock_os::testing::skip("known-writers") };
        let (mut writer, inode) = watched.writer();
        let pid = writer.id() as i32;
        watched.learned.processes.open.clear();
        watched.learned.processes.without_descriptor.insert(pid);
        writer.kill().unwrap();
        writer.wait().unwrap();
        assert!(watched.is_torn(inode).is_err());
        assert!(watched.is_torn(inode).is_err(), "the second look knows no more");
        let later = Some(SystemTime::now() + Duration::from_secs(60));
        assert!(!watched.learned.processes.notes.is_torn(inode, later).unwrap(), "the file is another one");
    }

    #[test]
    fn a_question_that_the_thread_does_not_answer_gives_an_error() {
        let (requests, received) = channel();
        let answers = Answers { requests, bell: event::eventfd().unwrap(), thread: Mutex::new(None) };
        let notes = Arc::<Notes>::default();
        notes.lock().watch = WatchState::Works;
        let writers = Writers { notes, answers: Some(answers) };
        assert!(writers.is_torn(1, None).is_err(), "the thread answers nothing");
        drop(received);
        assert!(writers.is_torn(1, None).is_err(), "the thread has ended");
        writers.notes.lock().watch = WatchState::Ended;
        assert!(writers.is_torn(1, None).is_err());
        writers.notes.lock().watch = WatchState::None;
        assert!(!writers.is_torn(1, None).unwrap(), "the watch was given up");
    }

    #[test]
    fn a_watch_that_is_given_up_during_a_run_is_reported() {
        let writers = Writers::new().unwrap();
        if !writers.are_known() {
            return crossdock_os::testing::skip("known-writers");
        }
        let folder = tempfile::tempdir().unwrap();
        writers.watch(folder.path()).unwrap();
        // The folder was removed before it could be watched. This is no reason to give up.
        writers.watch(&folder.path().join("gone")).unwrap();
        assert!(writers.are_known() && writers.take_troubles().is_empty());
        // The kernel watches no files of this file system.
        writers.watch(Path::new("/proc")).unwrap();
        assert!(!writers.are_known());
        let troubles = writers.take_troubles();
        assert!(matches!(&troubles[..], [line] if line.starts_with("from now on")), "{troubles:?}");
        // No thread answers any more, so the kernel must not ask.
        std::fs::write(folder.path().join("a"), "x").unwrap();
        assert!(!writers.is_torn(1, None).unwrap());
    }

    #[cfg(feature = "faults")]
    #[test]
    fn a_folder_whose_watch_fails_for_lack_of_memory_is_no_reason_to_give_up() {
        if Watched::new().is_none() {
            return crossdock_os::testing::skip("known-writers");
        }
        let seen = crossdock_os::faults::each_call_fails(|attempt| {
            let mut watched = Watched::new().unwrap();
            let other = tempfile::tempdir().unwrap();
            attempt.arm();
            let added = watched.learned.add(other.path());
            let hit = attempt.disarm();
            assert_eq!(added.is_err(), hit.is_some(), "{hit:?}");
            let noted = watched.learned.processes.notes.lock();
            assert!(noted.watch == WatchState::Works && noted.troubles.is_empty(), "{hit:?}");
        });
        assert!(seen.contains("fanotify_mark"), "{seen:?}");
    }

    #[cfg(feature = "faults")]
    #[test]
    fn a_killed_writers_file_never_counts_as_finished_although_a_call_failed() {
        let mut unsure = 0;
        if Watched::new().is_none() {
            return crossdock_os::testing::skip("known-writers");
        }
        let seen = crossdock_os::faults::each_call_fails(|attempt| {
            let mut watched = Watched::new().unwrap();
            let (mut writer, inode) = watched.writer();
            writer.kill().unwrap();
            until("the close of the killed writer waits", || watched.learned.watch.waiting() > 0);
            attempt.arm();
            watched.learned.take_in();
            let hit = attempt.disarm();
            if !watched.learned.processes.unsure.is_empty() {
                unsure += 1;
            }
            assert!(watched.is_torn(inode).unwrap(), "{hit:?}");
            let troubles = &watched.learned.processes.notes.lock().troubles;
            assert_eq!(troubles.len(), usize::from(hit.is_some_and(|(call, _)| call == "fanotify_read")), "{hit:?}");
            writer.wait().unwrap();
        });
        assert!(unsure > 0 && ["fanotify_read", "open", "poll"].iter().all(|call| seen.contains(call)), "{seen:?}");
    }
}

//! Finds out which processes write the files of a managed directory. The service needs this because a file whose writer
//! is killed must stay unpublished.
//!
//! If the daemon's user is root, the kernel reports every open of a producer before it happens. Otherwise no writer is
//! known, and a file counts as finished when its last writer has closed it or has died; docs/files.md says so.

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::SystemTime;

use crossdock_os::fanotify::OpenWatch;
use crossdock_os::process::{self, ProcessState};

/// If fewer processes than this are known, the service does not look for dead processes among them.
const MANY: usize = 32;

/// The processes that opened files, and how the files' writers closed them.
#[derive(Debug)]
pub(crate) struct Writers {
    openers: Option<OpenWatch>,
    /// Maps the id of each process that has opened files to a descriptor of the process. A process has one descriptor
    /// here, however many files it opens.
    processes: HashMap<i32, OwnedFd>,
    /// As soon as this many processes are known, the service removes the dead ones from `processes`.
    many: usize,
    /// For each inode number of a file that was closed after writing: how the file was closed, and when the close was
    /// noted.
    closed: HashMap<u64, (Closed, SystemTime)>,
    own: i32,
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

impl Writers {
    pub(crate) fn new() -> Self {
        let own = i32::try_from(std::process::id()).unwrap_or(0);
        let openers = OpenWatch::new().ok();
        Self { openers, processes: HashMap::new(), many: MANY, closed: HashMap::new(), own }
    }

    /// Tells whether the kernel reports writers.
    pub(crate) fn are_known(&self) -> bool {
        self.openers.is_some()
    }

    /// Watches one more folder. If the kernel refuses, the service no longer knows which processes write files, in any
    /// folder. A folder that was removed meanwhile needs no watch.
    pub(crate) fn watch(&mut self, folder: &Path) {
        let added = self.openers.as_ref().map(|openers| openers.add(folder));
        if added.is_some_and(|added| added.is_err_and(|error| !error.is_absent())) {
            self.give_up();
        }
    }

    /// Closes this struct's descriptor, through which the kernel asks before each open. The thread that answers the
    /// kernel has a copy of the descriptor. Until that thread has closed the copy too, the kernel still asks, and
    /// processes wait for the answer. That thread checks [`Writers::are_known`] after each event.
    pub(crate) fn give_up(&mut self) {
        self.openers = None;
        self.processes.clear();
    }

    /// Gives a copy of the descriptor that is readable when the kernel has reported an open or a close; `None` if the
    /// kernel does not report opens and closes.
    pub(crate) fn descriptor(&self) -> Option<OwnedFd> {
        self.openers.as_ref()?.as_fd().try_clone_to_owned().ok()
    }

    /// Notes the opens and closes that the kernel reports, and lets the waiting opens continue.
    ///
    /// When a writer closes a file, this function looks at the writer's process immediately, and not at the
    /// publication, which may come much later. A process that is killed only after its close has finished the file, so
    /// such a file must not count as the file of a killed writer.
    pub(crate) fn take_in(&mut self) {
        let Some(openers) = &self.openers else { return };
        // The events of a process come before its end. So this read returns the last events of each process that is
        // dead now.
        let is_many = self.processes.len() >= self.many;
        let dead = if is_many { self.dead() } else { HashSet::new() };
        for event in openers.read() {
            // The service opens files only for reading, so it is never a writer.
            if event.pid == self.own && !event.closed {
                continue;
            }
            if let Some((pid, pidfd)) = event.process {
                if event.closed {
                    self.processes.entry(pid).or_insert(pidfd);
                } else {
                    // This process waits for the answer to its open, so it is alive. An older entry under `pid` may be
                    // that of a dead process, so it is replaced.
                    self.processes.insert(pid, pidfd);
                }
            }
            if let Some(pidfd) = self.processes.get(&event.pid).filter(|_| event.closed) {
                let is_killed = process::state(pidfd, event.pid) == ProcessState::Killed;
                let closed = self.closed.entry(event.inode).or_insert((Closed::Well, SystemTime::now()));
                if is_killed {
                    *closed = (Closed::Killed, SystemTime::now());
                } else if closed.0 == Closed::Torn {
                    closed.0 = Closed::Well;
                }
            }
        }
        if is_many {
            // A new process may have the number of a dead one by now. So an entry is removed only if its own process is
            // dead.
            self.processes.retain(|pid, pidfd| !(dead.contains(pid) && process::is_dead(pidfd)));
            self.many = MANY.max(2 * self.processes.len());
        }
    }

    /// Lists the processes that have ended.
    fn dead(&self) -> HashSet<i32> {
        self.processes.iter().filter(|(_, pidfd)| process::is_dead(pidfd)).map(|(pid, _)| *pid).collect()
    }

    /// Tells, after the last writer has closed the file, whether a writer was killed while it had the file open. `made`
    /// is the time at which the file was made, if the file system keeps this time.
    pub(crate) fn is_torn(&mut self, inode: u64, made: Option<SystemTime>) -> bool {
        self.take_in();
        match self.closed.remove(&inode) {
            None | Some((Closed::Well, _)) => false,
            // The killed writer had an older file open, which had the same inode number and was removed.
            Some((_, noted)) if made.is_some_and(|made| made > noted) => false,
            Some((_, noted)) => {
                self.closed.insert(inode, (Closed::Torn, noted));
                true
            }
        }
    }
}

//! Which processes write the files of a managed directory, so that a file whose writer is killed stays unpublished.
//!
//! If the daemon's user is root, the kernel reports every open of a producer before it happens. Otherwise no writer is
//! known, and a file counts as finished when its last writer has closed it or has died; docs/files.md says so.

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use crossdock_os::fanotify::OpenWatch;
use crossdock_os::process::{self, ProcessState};

/// The processes that opened files, by the files' inode numbers.
#[derive(Debug)]
pub(crate) struct Writers {
    openers: Option<OpenWatch>,
    known: HashMap<u64, HashMap<i32, Opener>>,
    /// Files whose last writer was killed. A second event about the same close must not publish them.
    torn: HashSet<u64>,
    own: i32,
}

#[derive(Debug)]
struct Opener {
    pidfd: OwnedFd,
    /// True if the process closed the file after writing. Processes that only read the file are not looked at.
    wrote: bool,
}

impl Writers {
    pub(crate) fn new() -> Self {
        let own = i32::try_from(std::process::id()).unwrap_or(0);
        Self { openers: OpenWatch::new().ok(), known: HashMap::new(), torn: HashSet::new(), own }
    }

    /// Tells whether the kernel reports writers.
    pub(crate) fn are_known(&self) -> bool {
        self.openers.is_some()
    }

    /// Watches one more folder. If the kernel refuses, writers are not known from now on. A folder that was removed
    /// meanwhile needs no watch.
    pub(crate) fn watch(&mut self, folder: &Path) {
        let added = self.openers.as_ref().map(|openers| openers.add(folder));
        if added.is_some_and(|added| added.is_err_and(|error| !error.is_absent())) {
            self.give_up();
        }
    }

    /// Ends the watch of this struct. The kernel still asks before each open, and processes wait for the answer, until
    /// the thread that answers has closed its copy of the descriptor too. That thread checks [`Writers::are_known`]
    /// after each event.
    pub(crate) fn give_up(&mut self) {
        self.openers = None;
        self.known.clear();
    }

    /// Gives a copy of the descriptor that is readable when the kernel has reported an open or a close; `None` if the
    /// kernel reports none.
    pub(crate) fn descriptor(&self) -> Option<OwnedFd> {
        self.openers.as_ref()?.as_fd().try_clone_to_owned().ok()
    }

    /// Notes the opens and closes that the kernel reports, and lets the waiting opens continue.
    pub(crate) fn take_in(&mut self) {
        let Some(openers) = &self.openers else { return };
        for event in openers.read() {
            // The service opens files only for reading, so it is never a writer.
            if event.pid == self.own && !event.closed {
                continue;
            }
            let of_file = self.known.entry(event.inode).or_default();
            if let Some((pid, pidfd)) = event.process {
                of_file.entry(pid).or_insert(Opener { pidfd, wrote: false });
            }
            if let Some(opener) = of_file.get_mut(&event.pid).filter(|_| event.closed) {
                opener.wrote = true;
            }
        }
    }

    /// Tells, after the last writer has closed the file, whether a writer was killed while it had the file open.
    pub(crate) fn is_torn(&mut self, inode: u64) -> bool {
        self.take_in();
        let mut writers = self.known.remove(&inode).into_iter().flatten().filter(|(_, opener)| opener.wrote).peekable();
        if writers.peek().is_some() {
            if writers.any(|(pid, opener)| process::state(&opener.pidfd, pid) == ProcessState::Killed) {
                self.torn.insert(inode);
            } else {
                self.torn.remove(&inode);
            }
        }
        self.torn.contains(&inode)
    }
}

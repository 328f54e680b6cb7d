//! Which processes write the files of a managed directory, so that a file whose writer is killed stays unpublished.
//!
//! Where the daemon's user may ask the kernel (root), every open of a producer is seen before it happens. Elsewhere no writer
//! is known, and a file counts as finished when its last writer is gone, for whatever reason; docs/files.md says so.

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use crossdock_os::openers::Openers;
use crossdock_os::process::{self, Fate};

/// Processes by the inode numbers of the files that they opened.
#[derive(Debug)]
pub(crate) struct Writers {
    openers: Option<Openers>,
    known: HashMap<u64, HashMap<i32, Opener>>,
    /// Files whose last writer was killed: a second event about the same close must not find them whole.
    torn: HashSet<u64>,
    own: i32,
}

#[derive(Debug)]
struct Opener {
    pidfd: OwnedFd,
    /// It closed the file after writing. Processes that only read the file are not asked for.
    wrote: bool,
}

impl Writers {
    pub(crate) fn new() -> Self {
        let own = i32::try_from(std::process::id()).unwrap_or(0);
        Self { openers: Openers::new().ok(), known: HashMap::new(), torn: HashSet::new(), own }
    }

    /// Are writers known at all?
    pub(crate) fn are_known(&self) -> bool {
        self.openers.is_some()
    }

    /// Watches one more folder. Where the kernel refuses that, writers are not known any more. A folder that is gone again
    /// needs no watch.
    pub(crate) fn watch(&mut self, folder: &Path) {
        let added = self.openers.as_ref().map(|openers| openers.add(folder));
        if added.is_some_and(|added| added.is_err_and(|error| !error.is_absent())) {
            self.give_up();
        }
    }

    /// Watches no longer. The kernel asks on, and processes wait, until the thread that answers has closed its copy of the
    /// descriptor, too: it looks at [`Writers::are_known`] after each event.
    pub(crate) fn give_up(&mut self) {
        self.openers = None;
        self.known.clear();
    }

    /// A copy of the descriptor that is readable when [`Writers::take_in`] has something to do.
    pub(crate) fn descriptor(&self) -> Option<OwnedFd> {
        self.openers.as_ref()?.as_fd().try_clone_to_owned().ok()
    }

    /// Takes in what the kernel tells. Processes that wait for their open go on.
    pub(crate) fn take_in(&mut self) {
        let Some(openers) = &self.openers else { return };
        for event in openers.read() {
            // The service opens files, but for reading only.
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

    /// The file's last writer has closed it: was a writer killed while it had the file open?
    pub(crate) fn is_torn(&mut self, inode: u64) -> bool {
        self.take_in();
        let mut writers = self.known.remove(&inode).into_iter().flatten().filter(|(_, opener)| opener.wrote).peekable();
        if writers.peek().is_some() {
            if writers.any(|(pid, opener)| process::fate(&opener.pidfd, pid) == Fate::Killed) {
                self.torn.insert(inode);
            } else {
                self.torn.remove(&inode);
            }
        }
        self.torn.contains(&inode)
    }
}

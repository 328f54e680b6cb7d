//! Reaps the orphans that this process has adopted, and no child that a part of this process waits for.
//!
//! A process that adopts orphans ([`child::adopt_orphans`]) becomes the parent of every descendant whose parent
//! ends, and the kernel keeps an ended child until its parent has waited for it. So this module notes which children
//! this process has started itself. Those are left to the code that started them; all other children are orphans.

use std::collections::BTreeSet;
use std::io;
use std::process::Child;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::fork::PerProcess;
use crate::{child, sys};

/// The time between two looks of a [`Reaper`].
const EVERY: Duration = Duration::from_secs(1);

/// The process ids of the children that this process has started and that it has perhaps not waited for yet. There is
/// no such list in a process that does not note its children.
static STARTED: PerProcess<Mutex<BTreeSet<i32>>> = PerProcess::new();

fn started() -> Option<MutexGuard<'static, BTreeSet<i32>>> {
    STARTED.get().map(|started| started.lock().unwrap_or_else(PoisonError::into_inner))
}

/// From now on, this process notes the children that it starts by [`crate::spawn::start`]. The process must not have
/// started any child yet, and must start all children by this function.
pub fn note_children() {
    STARTED.get_or_make(|| Some(Mutex::default()));
}

/// Calls `spawn`, and notes the child. The lock is held meanwhile, so that [`reap`] does not take a child that ends at
/// once for an orphan.
pub(crate) fn noting(spawn: impl FnOnce() -> io::Result<Child>) -> io::Result<Child> {
    let mut started = started();
    let child = spawn()?;
    if let Some(started) = &mut started {
        started.insert(child.id() as i32);
    }
    Ok(child)
}

/// Reaps orphans from time to time. Otherwise a task that leaves many processes would use up the process ids of the
/// node.
#[derive(Debug)]
pub struct Reaper {
    looked: Instant,
}

impl Default for Reaper {
    fn default() -> Self {
        Self::new()
    }
}

impl Reaper {
    /// Makes a reaper, which reaps nothing for the first second.
    #[must_use]
    pub fn new() -> Self {
        Self { looked: Instant::now() }
    }

    /// Calls [`reap`] if the last call is at least a second ago.
    pub fn look(&mut self) {
        if self.looked.elapsed() >= EVERY {
            reap();
            self.looked = Instant::now();
        }
    }
}

/// Reaps all orphans that have ended. It does not wait. It does nothing in a process that does not note its children,
/// and with a kernel that does not list the children of a process.
pub fn reap() {
    let Some(mut started) = started() else { return };
    // A child that its owner has waited for is a child no more.
    started.retain(|pid| child::has_ended(*pid).is_ok());
    for pid in children().difference(&started) {
        let _ = child::ended(*pid, false);
    }
}

/// Lists the children of all threads of this process, also those that have ended and were not waited for. The kernel
/// may leave some out, for example if another child is reaped at this moment.
fn children() -> BTreeSet<i32> {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let texts = threads.filter_map(|thread| sys::read_text(thread.path().join("children")).ok());
    texts
        .flat_map(|text| text.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect()
}

//! Starts threads. If the user may have no more processes, the result is an error, and the program goes on.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

use crate::sys;

/// Starts a thread as [`std::thread::spawn`] does.
///
/// # Errors
/// The kernel starts no thread, for example because the user has too many processes. In this case `work` is dropped.
pub fn start<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<JoinHandle<T>> {
    sys::plan("clone")?;
    Builder::new().spawn(work)
}

/// Runs `work` in a thread, and gives its handle. If no thread can be started, runs `work` before this function
/// returns.
pub fn start_or_run(work: impl FnOnce() + Send + 'static) -> Option<JoinHandle<()>> {
    let work = Arc::new(Mutex::new(Some(work)));
    let own = work.clone();
    match start(move || run(&own)) {
        Ok(thread) => Some(thread),
        Err(_) => {
            run(&work);
            None
        }
    }
}

fn run(work: &Mutex<Option<impl FnOnce()>>) {
    let taken = work.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(work) = taken {
        work();
    }
}

#[cfg(all(test, feature = "faults"))]
mod tests {
    use super::*;
    use crate::faults;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn work_is_done_once_although_no_thread_can_be_started() {
        let seen = faults::each_call_fails(|attempt| {
            let done = Arc::new(AtomicU32::new(0));
            let work = done.clone();
            attempt.arm();
            let started = start_or_run(move || _ = work.fetch_add(1, Ordering::Relaxed));
            let hit = attempt.disarm();
            assert_eq!(started.is_none(), hit.is_some());
            started.into_iter().for_each(|thread| thread.join().unwrap());
            assert_eq!(done.load(Ordering::Relaxed), 1, "{hit:?}");
        });
        assert!(seen.contains("clone"), "{seen:?}");
    }
}

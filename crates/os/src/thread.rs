//! Starts threads. If the user may have no more processes, the result is an error, and the program goes on.

use std::io;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use rustix::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use crate::error::{OsError, OsResult};
use crate::sys;

/// How long a thread may take at most to make its own table of descriptors.
const TABLE: Duration = Duration::from_secs(60);

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

/// Starts a thread that has a table of descriptors of its own. So the thread can open descriptors although other threads
/// have used up the process's limit. The table has only copies of 0, 1, 2 and of `descriptors`. When this function
/// returns, the copies exist, and the caller can close its own descriptors.
///
/// A descriptor is valid only in the table in which it was made. So `work` is a function without captured values, and
/// `input` must contain no descriptor. `work` must not give a descriptor to another thread. The kernel closes all
/// descriptors of the table when the thread ends.
///
/// # Errors
/// The kernel starts no thread, or makes no table. Then `work` does not run.
pub fn start_with_own_descriptors<I: Send + 'static>(
    name: &str,
    descriptors: &[BorrowedFd<'_>],
    input: I,
    work: fn(Vec<OwnedFd>, I),
) -> io::Result<JoinHandle<()>> {
    sys::plan("clone")?;
    sys::plan("close_range")?;
    let numbers: Vec<RawFd> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
    // The channel keeps no message. So the thread goes on only if this function has received the message.
    let (ready, is_ready) = sync_channel(0);
    let thread = Builder::new().name(name.to_owned()).spawn(move || {
        let made = keep_only(&numbers);
        let is_made = made.is_ok();
        if ready.send(made).is_ok() && is_made {
            // SAFETY: these descriptors are open in the table of this thread, and no other value owns them there.
            let own = numbers.iter().map(|number| unsafe { OwnedFd::from_raw_fd(*number) }).collect();
            work(own, input);
        }
    })?;
    match is_ready.recv_timeout(TABLE) {
        Ok(made) => made?,
        Err(_) => {
            return Err(io::Error::new(io::ErrorKind::TimedOut, format!("the thread {name} did not start in time")));
        }
    }
    Ok(thread)
}

/// Gives this thread a table of descriptors of its own, with copies of 0, 1, 2 and of `kept` under the same numbers.
fn keep_only(kept: &[RawFd]) -> OsResult<()> {
    let mut kept: Vec<u32> = kept.iter().filter_map(|number| u32::try_from(*number).ok()).chain(0..3).collect();
    kept.sort_unstable();
    kept.dedup();
    // The first call makes the table. It comes with the largest numbers, so that the kernel copies as few descriptors as
    // possible: a copy can hold up other processes, for example those that wait for the end of a pipe.
    let mut flags = libc::CLOSE_RANGE_UNSHARE;
    let mut last = u32::MAX;
    for number in kept.into_iter().rev() {
        if number < last {
            // SAFETY: the first call gives this thread a table of its own, and every call closes descriptors only in
            // this table. This thread owns no descriptor yet.
            if unsafe { libc::syscall(libc::SYS_close_range, number + 1, last, flags) } != 0 {
                return Err(OsError::last("close_range", "a thread's own descriptors"));
            }
            flags = 0;
        }
        last = number.saturating_sub(1);
    }
    Ok(())
}

fn run(work: &Mutex<Option<impl FnOnce()>>) {
    let taken = work.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(work) = taken {
        work();
    }
}

#[cfg(test)]
mod own_descriptors {
    use super::*;
    use rustix::fd::AsFd;
    use rustix::pipe::{PipeFlags, pipe_with};
    use std::sync::mpsc::{Sender, channel};

    #[test]
    fn a_thread_with_its_own_descriptors_has_only_those_that_it_was_given() {
        let pipe = || pipe_with(PipeFlags::CLOEXEC).unwrap();
        let ((reader, writer), (other, other_writer)) = (pipe(), pipe());
        fn work(mut own: Vec<OwnedFd>, (numbers, go_on): (Sender<Vec<RawFd>>, std::sync::mpsc::Receiver<()>)) {
            let open = std::fs::read_dir("/proc/thread-self/fd").unwrap();
            let open = open.map(|entry| entry.unwrap().file_name().to_str().unwrap().parse().unwrap()).collect();
            numbers.send(open).unwrap();
            go_on.recv().unwrap();
            rustix::io::write(own.remove(0), b"x").unwrap();
            go_on.recv().unwrap();
        }
        let ((sender, numbers), (go_on, waits)) = (channel(), channel());
        let number = writer.as_raw_fd();
        let thread = start_with_own_descriptors("apart", &[writer.as_fd()], (sender, waits), work).unwrap();
        let open: Vec<RawFd> = numbers.recv().unwrap();
        // The list of the folder is itself a descriptor.
        let extra: Vec<_> = open.iter().filter(|n| **n > 2 && **n != number).collect();
        assert!(open.contains(&number) && extra.len() == 1, "{open:?}");
        // The thread has no copy of the other pipe.
        drop(other_writer);
        assert_eq!(rustix::io::read(&other, &mut [0; 1]).unwrap(), 0);
        // The thread's copy is open although this table's descriptor is closed, and the thread closes only its copy.
        drop(writer);
        let again = std::iter::repeat_with(|| crate::event::eventfd().unwrap());
        let taken: Vec<OwnedFd> = again.take(16).collect();
        go_on.send(()).unwrap();
        let mut byte = [0; 1];
        assert_eq!((rustix::io::read(&reader, &mut byte).unwrap(), byte), (1, *b"x"));
        assert_eq!(rustix::io::read(&reader, &mut byte).unwrap(), 0);
        taken.iter().for_each(|fd| assert!(rustix::io::fcntl_getfd(fd).is_ok()));
        go_on.send(()).unwrap();
        thread.join().unwrap();
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

//! Waiting without holding up other Python threads, and so that Ctrl-C ends it.

use std::sync::OnceLock;
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use crossdock_client::{Error, Result, Status};
use pyo3::prelude::*;

use crate::errors::{error, raise};
use crate::views::lock;

/// Python looks at its signals this often during a wait.
const SLICE: Duration = Duration::from_millis(100);
/// The library's own default for ports: no wait is without a deadline.
const DEFAULT: Duration = Duration::from_secs(60);
/// A year: above it, a deadline is a mistake (or infinity).
const LONGEST_S: f64 = 365.0 * 86400.0;

/// Seconds as Python gives them. `None` stands for the default deadline of ports.
pub fn deadline(py: Python<'_>, seconds: Option<f64>) -> PyResult<Duration> {
    let Some(seconds) = seconds else { return Ok(DEFAULT) };
    if !(0.0..=LONGEST_S).contains(&seconds) {
        return Err(error(
            py,
            Status::Invalid,
            format!("timeout={seconds} is not a number of seconds from 0 to a year; every wait has a deadline"),
        ));
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// The thread that ends the interpreter, once it does.
static ENDING: OnceLock<ThreadId> = OnceLock::new();

/// The interpreter ends, in this thread: only daemon threads are left beside it.
#[pyfunction]
pub fn _ending() {
    let _ = ENDING.set(thread::current().id());
}

/// A daemon thread that waits while the interpreter ends is not told that its port was closed by that: it would print
/// an exception that no code caused. It just does not come back, as Python's own locks do it.
fn park_if_ending(py: Python<'_>) {
    if ENDING.get().is_some_and(|ending| *ending != thread::current().id()) {
        py.detach(|| {
            loop {
                thread::park();
            }
        });
    }
}

/// Runs `step` with slices of the time until it gives something else than "not yet" or "busy", and looks at Python's
/// signals in between. A deadline of 0 is one poll.
pub fn wait<T: Send>(
    py: Python<'_>,
    total: Duration,
    mut step: impl FnMut(Duration) -> Result<T> + Send,
) -> PyResult<T> {
    let end = Instant::now() + total;
    let mut left = total;
    loop {
        let slice = left.min(SLICE);
        let failed = match py.detach(|| step(slice)) {
            Ok(value) => return Ok(value),
            Err(e) => e,
        };
        if failed.status == Status::Closed {
            park_if_ending(py);
        }
        if !matches!(failed.status, Status::NotYet | Status::TimedOut | Status::Busy) {
            return Err(raise(py, &failed));
        }
        park_if_ending(py);
        left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(raise(py, &ended(failed, total)));
        }
        py.check_signals()?;
    }
}

/// Runs a wait as a whole, in a thread of its own, and looks at Python's signals meanwhile: for waits whose place in a queue
/// would be lost by asking again and again. `poll` is tried first. After Ctrl-C the wait goes on by itself;
/// what it gets is let go of.
pub fn wait_in_line<T: Send + 'static>(
    py: Python<'_>,
    total: Duration,
    step: impl Fn(Option<Duration>) -> Result<T> + Send + Sync + 'static,
) -> PyResult<T> {
    match py.detach(|| step(None)) {
        Err(e) if !total.is_zero() && matches!(e.status, Status::NotYet | Status::NotFound) => {}
        other => return other.map_err(|e| raise(py, &e)),
    }
    let (sender, receiver) = std::sync::mpsc::sync_channel(1);
    // A receiver that is gone drops what comes too late.
    let thread =
        thread::Builder::new().name("crossdock-wait".into()).spawn(move || drop(sender.send(step(Some(total)))));
    if let Err(e) = thread {
        return Err(error(py, Status::System, format!("no thread to wait in: {e}")));
    }
    // Never contended; it makes what `detach` borrows fit for other threads.
    let receiver = std::sync::Mutex::new(receiver);
    loop {
        match py.detach(|| lock(&receiver).recv_timeout(SLICE)) {
            Ok(done) => return done.map_err(|e| raise(py, &e)),
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {
                park_if_ending(py);
                py.check_signals()?;
            }
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => {
                return Err(error(
                    py,
                    Status::System,
                    "a fault in crossdock itself, please report it: a wait broke off",
                ));
            }
        }
    }
}

/// The error of the last slice, with the time that the caller really waited.
fn ended(last: Error, total: Duration) -> Error {
    if total.is_zero() {
        return last;
    }
    let status = if last.status == Status::Busy { Status::Busy } else { Status::TimedOut };
    last.waited_in_all(total).with_status(status)
}

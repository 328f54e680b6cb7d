//! Waits during which other Python threads run, and which Ctrl-C ends.

use std::cell::RefCell;
use std::sync::OnceLock;
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use crossdock_client::{Error, Result, Status};
use pyo3::prelude::*;

use crate::errors::{error, raise};
use crate::views::lock;

/// The time between two checks for Python's signals during a wait.
const SLICE: Duration = Duration::from_millis(100);
/// How long `wait_in_line` waits in the calling thread before it starts a thread for the rest of the wait.
const FIRST: Duration = Duration::from_millis(1);
/// The timeout for `None`, equal to the library's default for ports. Every wait has a deadline.
const DEFAULT: Duration = Duration::from_secs(60);
/// The longest timeout, a year in seconds. A longer timeout, such as infinity, is refused, because every wait has a
/// deadline.
const LONGEST_S: f64 = 365.0 * 86400.0;

/// Converts a timeout in seconds to a duration. `None` stands for the default of ports, 60 s.
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

/// The thread that ends the interpreter. This variable is set when the interpreter begins to end.
static ENDING: OnceLock<ThreadId> = OnceLock::new();

/// Records that the interpreter ends in this thread. Every other Python thread that still runs is a daemon thread.
/// Python calls this before the interpreter ends.
#[pyfunction]
pub fn _ending() {
    let _ = ENDING.set(thread::current().id());
}

/// Tells whether the interpreter ends.
pub fn is_ending() -> bool {
    ENDING.get().is_some()
}

/// Stops a daemon thread when the interpreter ends. If its call ended now, it would raise an exception, and Python
/// would print it although the program made no mistake. So the thread never returns from its call, as with Python's own
/// locks.
pub fn park_if_ending(py: Python<'_>) {
    if ENDING.get().is_some_and(|ending| *ending != thread::current().id()) {
        py.detach(|| {
            loop {
                thread::park();
            }
        });
    }
}

/// Waits in slices: calls `step` with a short time again and again, until it succeeds or fails with a status other than
/// `NotYet`, `TimedOut` and `Busy`. Between two slices it checks Python's signals. If `total` is 0, it calls `step`
/// once.
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

/// Makes one long wait in a thread of its own, and checks Python's signals meanwhile. This function is for requests
/// that wait in a queue of the daemon, because a caller that repeats its request would lose its place in the queue.
/// First the function calls `step` with a short time in the calling thread, because most answers of the daemon come
/// faster than a thread can be started. After Ctrl-C, the thread continues to wait and drops its result.
pub fn wait_in_line<T: Send + 'static>(
    py: Python<'_>,
    total: Duration,
    step: impl Fn(Option<Duration>) -> Result<T> + Send + Sync + 'static,
) -> PyResult<T> {
    let end = Instant::now() + total;
    // The first attempt waits at most `FIRST`. If `total` is 0, `step` gets `None` as its time: it does not wait for
    // the item's owner, but it still waits for the answer of a daemon that has to copy the item.
    let first = (!total.is_zero()).then(|| total.min(FIRST));
    match interruptible(py, || step(first))? {
        Err(e) if first.is_some() && matches!(e.status, Status::NotYet | Status::NotFound | Status::TimedOut) => {}
        other => return other.map_err(|e| raise(py, &e)),
    }
    in_thread(py, move || step(Some(end.saturating_duration_since(Instant::now()).max(FIRST))))
}

thread_local! {
    /// The exception that a handler of a signal has raised during this thread's present call of the library.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// Runs a call of the library while other Python threads run, and checks Python's signals while the call waits for the
/// daemon. If a handler raises an exception, the call ends with this exception.
fn interruptible<T: Send>(py: Python<'_>, call: impl FnOnce() -> Result<T> + Send) -> PyResult<Result<T>> {
    let done = py.detach(|| crossdock_client::interruptible(has_raised, call));
    RAISED.take().map_or(Ok(done), Err)
}

/// Checks Python's signals. Tells whether a handler has raised an exception since the call began.
fn has_raised() -> bool {
    let raised = |py: Python<'_>| py.check_signals().map_err(|e| RAISED.set(Some(e))).is_err();
    RAISED.with_borrow(Option::is_some) || Python::try_attach(raised).unwrap_or(false)
}

/// Makes a wait in a thread of its own, and checks Python's signals meanwhile. After Ctrl-C, the thread continues to
/// wait and drops its result.
pub fn in_thread<T: Send + 'static>(py: Python<'_>, work: impl FnOnce() -> Result<T> + Send + 'static) -> PyResult<T> {
    let (sender, receiver) = std::sync::mpsc::sync_channel(1);
    // If the caller has given up after Ctrl-C, the channel is closed and the late result is dropped.
    let thread = thread::Builder::new().name("crossdock-wait".into()).spawn(move || drop(sender.send(work())));
    if let Err(e) = thread {
        return Err(error(py, Status::System, format!("no thread to wait in: {e}")));
    }
    // Only this thread uses the receiver. The mutex is needed because `detach` accepts only values that are safe to use
    // from several threads.
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

/// Makes the error for the whole wait from the error of its last slice, with the whole waiting time in the text.
fn ended(last: Error, total: Duration) -> Error {
    if total.is_zero() {
        return last;
    }
    let status = if last.status == Status::Busy { Status::Busy } else { Status::TimedOut };
    last.waited_in_all(total).with_status(status)
}

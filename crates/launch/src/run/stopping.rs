//! Lets a process that is not part of a run stop this run: first SIGTERM to its tasks, then SIGKILL to its tasks, then
//! SIGKILL to the run's own processes.

use std::time::{Duration, Instant};

use crossdock_client::runs::LivingRun;
use crossdock_os::process::Signal;

use super::folder;
use super::processes;
use super::state::{Process, State};

/// How a run was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// After SIGTERM, the run ended its tasks and itself in time.
    InOrder,
    /// The run got a second signal, because its tasks did not end in time, and killed its tasks.
    Killed,
    /// The run's own processes were killed, and what they left was cleaned up.
    Forced,
}

/// How long the supervisor may take to kill the tasks and clean up after a second signal.
const FOR_KILLING: Duration = Duration::from_secs(20);

/// Stops a run. First its tasks get SIGTERM. After `patience` they get SIGKILL. If the run still does not end, its own
/// processes get SIGKILL.
///
/// # Errors
/// The run has no state to read, or cannot be ended.
pub fn stop(run: &LivingRun, patience: Duration) -> Result<Stopped, String> {
    let state = State::read(&run.folder).ok_or_else(|| format!("run `{}` has just begun or just ended", run.id))?;
    for (attempt, patience) in [(Stopped::InOrder, patience), (Stopped::Killed, FOR_KILLING)] {
        // The front passes the signal on to the supervisor. If the front is dead, the supervisor has noticed its death
        // and is stopping the run already.
        send(state.front, Signal::TERM);
        if gone(&state, patience) {
            return Ok(attempt);
        }
    }
    send(state.supervisor, Signal::KILL);
    if !gone(&state, FOR_KILLING) {
        // The front has not cleaned up after the supervisor's death, so the front is killed too.
        send(state.front, Signal::KILL);
    }
    if !gone(&state, FOR_KILLING) {
        return Err(format!("run `{}` cannot be ended: process {} stays", run.id, state.front.pid));
    }
    folder::clean_dead();
    Ok(Stopped::Forced)
}

fn send(process: Process, signal: Signal) {
    if process.lives() {
        processes::signal(process.pid as i32, signal);
    }
}

fn gone(state: &State, patience: Duration) -> bool {
    let end = Instant::now() + patience;
    loop {
        if !state.front.lives() && !state.supervisor.lives() {
            return true;
        }
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

//! Stopping a run from elsewhere: in order, then at once, then whole.

use std::time::{Duration, Instant};

use crossdock_client::runs::LivingRun;
use crossdock_os::process::Signal;

use super::folder;
use super::processes;
use super::state::{Process, State};

/// How a run was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// It ended its tasks and itself.
    InOrder,
    /// It was asked twice: its tasks were killed.
    Killed,
    /// Its own processes were killed, and what they left was cleaned up.
    Forced,
}

/// After a second signal the supervisor kills, which takes no time, and cleans up.
const FOR_KILLING: Duration = Duration::from_secs(20);

/// Stops a run: SIGTERM to its tasks; after `patience` SIGKILL to them; if that does not end it either, to the run itself.
///
/// # Errors
/// It says nothing of itself, or cannot be ended.
pub fn stop(run: &LivingRun, patience: Duration) -> Result<Stopped, String> {
    let state = State::read(&run.folder).ok_or_else(|| format!("run `{}` has just begun or just ended", run.id))?;
    for (attempt, patience) in [(Stopped::InOrder, patience), (Stopped::Killed, FOR_KILLING)] {
        // The front passes it on; without a front the supervisor has begun to stop already.
        send(state.front, Signal::TERM);
        if gone(&state, patience) {
            return Ok(attempt);
        }
    }
    send(state.supervisor, Signal::KILL);
    if !gone(&state, FOR_KILLING) {
        // It was to clean up after its supervisor.
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

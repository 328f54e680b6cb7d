//! The front: the process that the user started. It checks the workflow, passes signals on, and outlives the supervisor
//! to clean up.

use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::time::Duration;

use crossdock_os::process::{Signal, open_pidfd};
use crossdock_os::{child, event, pipe, spawn};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::folder;
use super::{Order, RunOptions, code, processes};
use crate::file;

/// Runs a workflow and returns the exit code. `supervise` is the program with the arguments that make it call
/// [`super::supervisor`].
///
/// Problems are printed on standard error. The calling process must not wait for children of its own, because this
/// function reaps all children.
pub fn front(options: &RunOptions, supervise: (&Path, &[&str])) -> u8 {
    let read = file::text(&options.file).and_then(|text| Ok((super::supervisor::read(options, &text)?.0, text)));
    let (workflow, text) = match read {
        Ok(read) => read,
        Err(problems) => {
            crossdock_os::file::complain(&format!("{problems}\n"));
            return code::FILE;
        }
    };
    for dead in folder::clean_dead() {
        folder::complain(&format!("cleaned up after run {dead}, which had been killed"));
    }
    let id = folder::fresh_id(&workflow.name);
    let result = run(options, supervise, &id, text);
    // Processes that a killed supervisor left have become children of this process, the front. The front kills them
    // here. The front writes no message before everything is cleaned up: the write could block or fail.
    let are_killed = processes::kill_descendants(&[], Duration::from_secs(10));
    if folder::is_left(&id) {
        folder::clean_up_after(&id);
        processes::kill_descendants(&[], Duration::from_secs(5));
    }
    if !are_killed {
        folder::complain(&format!("some processes of run {id} cannot be killed"));
    }
    match result.map(|status| (status.code(), status.signal())) {
        Ok((Some(code), _)) => u8::try_from(code).unwrap_or(code::SYSTEM),
        Ok((None, signal)) => {
            let signal = signal.unwrap_or(0);
            folder::complain(&format!("the supervisor was killed by signal {signal}; all tasks were stopped"));
            128 + signal as u8
        }
        Err(e) => {
            folder::complain(&e);
            code::SYSTEM
        }
    }
}

fn run(
    options: &RunOptions,
    (program, arguments): (&Path, &[&str]),
    id: &str,
    text: String,
) -> Result<ExitStatus, String> {
    let trouble = |what: &str, e: &dyn std::fmt::Display| format!("{what}: {e}");
    child::adopt_orphans().map_err(|e| trouble("cannot become the reaper of the run's processes", &e))?;
    let signals = signals().map_err(|e| trouble("cannot take signals", &e))?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped());
    // The terminal's Ctrl-C and hang-up reach only the front, which passes the signal on.
    spawn::own_session(&mut command);
    let mut child =
        spawn::start(&mut command).map_err(|e| trouble(&format!("cannot start {}", program.display()), &e))?;
    let mut pipe = child.stdin.take().ok_or("the supervisor has no standard input")?;
    let front = std::process::id();
    let order = Order { id: id.to_owned(), front, options: options.clone(), text_bytes: text.len() };
    let line = serde_json::to_string(&order).map_err(|e| trouble("cannot pass the options on", &e))?;
    // If the supervisor is already dead, its exit status shows that later, so an error of this write is ignored.
    let _ = pipe.write_all(format!("{line}\n{text}").as_bytes());
    watch(&mut child, &mut pipe, &signals)
}

/// Gives a descriptor from which one byte can be read for each signal. Signals that this process was started with
/// ignored, for example by `nohup`, stay ignored.
fn signals() -> std::io::Result<OwnedFd> {
    let (read, write) = pipe::pipe().map_err(|e| e.reason())?;
    // A thread writes each signal's number into a pipe, so that `poll` can wait for signals and for the child at the
    // same time.
    let mut signals = signal_hook::iterator::Signals::new(child::not_ignored(&[SIGINT, SIGTERM, SIGHUP]))?;
    crossdock_os::thread::start(move || {
        for signal in signals.forever() {
            let _ = pipe::write(&write, &[signal as u8]);
        }
    })?;
    Ok(read)
}

fn watch(child: &mut Child, pipe: &mut ChildStdin, signals: &OwnedFd) -> Result<ExitStatus, String> {
    let pid = child.id() as i32;
    let ended = open_pidfd(pid).map_err(|e| format!("cannot watch the supervisor: {e}"))?;
    // The kernel keeps the id of an ended process until its parent has waited for it. The front has not waited for the
    // supervisor yet, so no other process can have the supervisor's id.
    let ended = ended.ok_or("cannot watch the supervisor: it is not there")?;
    let mut asked = 0;
    loop {
        let ready = event::wait_any(&[ended.as_fd(), signals.as_fd()], None)
            .map_err(|e| format!("cannot wait for the supervisor: {e}"))?;
        if ready[0] {
            return child.wait().map_err(|e| format!("cannot wait for the supervisor: {e}"));
        }
        let mut byte = [0];
        if ready[1] && matches!(pipe::read(signals, &mut byte), Ok(Some(1))) {
            asked += 1;
            if asked > 2 {
                // At the third signal, the front kills the supervisor, and then cleans up.
                processes::signal(pid, Signal::KILL);
            }
            let _ = pipe.write_all(format!("signal {}\n", byte[0]).as_bytes());
        }
    }
}

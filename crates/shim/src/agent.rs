//! The shim's role as `ssh`, which MPI launchers in the container call.
//!
//! The shim parses a command line of ssh. It asks the keeper, which is outside the container, to run the command in the
//! job's container on the named host, through the real ssh. The shim passes output, signals and the exit code on. It
//! does not pass standard input on, because launchers give none.

use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use crossdock_os::{Deadline, event};

use crate::arguments::{self, Arguments};
use crate::message::{End, Message, ReceiveResult, connect, receive, send};
use crate::{FAILED, place};

/// The numbers of the signals that the agent passes on, through the keeper, to the command on the other host.
const PASSED: [i32; 8] = [1, 2, 3, 10, 12, 15, 18, 20];

/// Handles a command line of ssh, given without the program's name. Returns the exit code.
pub fn run(words: &[String]) -> i32 {
    if words.iter().any(|w| w == "-V") {
        eprintln!("OpenSSH_9.2 (crossdock, for MPI launchers)");
        return 0;
    }
    let arguments = match arguments::parse(words) {
        Ok(arguments) => arguments,
        Err(what) => return complain(&format!("{what}, in the command line: ssh {}", words.join(" "))),
    };
    if arguments.command.is_empty() {
        return complain(&format!("a launcher's ssh needs a command for host {}", arguments.host));
    }
    match ask(&arguments, words) {
        Ok(code) => code,
        Err(what) => complain(&format!("host {}: {what}", arguments.host)),
    }
}

fn complain(what: &str) -> i32 {
    // Standard error may be closed by now, and the exit code reports the failure too, so an error of writing is
    // ignored.
    let _ = writeln!(std::io::stderr(), "crossdock mpirun: {what}");
    FAILED
}

fn ask(arguments: &Arguments, words: &[String]) -> Result<i32, String> {
    // The signals are blocked before the request, so that none is lost between the request and the first wait.
    let signals = event::signalfd(&PASSED).map_err(|e| e.to_string())?;
    let keeper = connect(&place()).map_err(|e| {
        format!("the job's keeper does not answer ({e}); the job has ended, or this program runs outside a job")
    })?;
    let (out, err) = (std::io::stdout(), std::io::stderr());
    send(&keeper, &Message::Remote(words.to_vec()), &[out.as_fd(), err.as_fd()])?;
    let epoll = event::Epoll::new().map_err(|e| e.to_string())?;
    epoll.add(&keeper, 0, false).map_err(|e| e.to_string())?;
    epoll.add(&signals, 1, false).map_err(|e| e.to_string())?;
    loop {
        let ready = epoll.wait(Deadline::after(Duration::from_secs(3600))).map_err(|e| e.to_string())?;
        while let Some(signal) = event::next_signal(&signals) {
            let _ = send(&keeper, &Message::Signal(0, signal), &[]);
        }
        if ready.is_empty() {
            continue;
        }
        match receive(&keeper) {
            ReceiveResult::Message(Message::Ended(_, end), _) => return Ok(passed_on(end)),
            ReceiveResult::Message(Message::Local, _) => return Err(here(arguments)),
            ReceiveResult::Message(Message::Failed(_, what, hint), _) => return Err(format!("{what} (hint: {hint})")),
            ReceiveResult::Message(..) | ReceiveResult::Nothing => {}
            // The keeper is gone, so the job has ended. This agent ends with an error, so that the launcher, which
            // waits for the agent, ends too.
            ReceiveResult::End => return Ok(FAILED),
        }
    }
}

/// Gives the exit code of the command. If a signal ended the command, the code is 255, as with ssh itself.
fn passed_on(end: End) -> i32 {
    if end.signal == 0 { end.code } else { FAILED }
}

/// Replaces this program by the requested command, on this host. Returns an error text if that fails.
fn here(arguments: &Arguments) -> String {
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(&arguments.command).stdin(Stdio::null());
    crossdock_os::spawn::default_signals(&mut command);
    format!("cannot start /bin/sh: {}", command.exec())
}

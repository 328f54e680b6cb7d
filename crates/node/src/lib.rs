//! The node daemon: keeper, broker, failure detector, journal.

pub mod broker;
mod host;
pub mod journal;
mod keeper;
mod options;
mod table;

use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use crossdock_os::fs::File;
use crossdock_os::{Deadline, child, clock, event, process, socket};
use keeper::Ended;

pub use crossdock_gateway::{CatalogAddress, GatewayOptions};
pub use crossdock_link::Choice;
pub use options::{ServeError, ServeOptions, SiteOptions, default_socket};

/// Runs the daemon until it is told to end (SIGTERM, SIGINT, SIGHUP). A private daemon also ends when no member uses
/// it. With `detach`, the call returns as soon as the daemon serves, and the daemon continues in a process of its own.
///
/// The call forks, so the calling process must have only one thread. The call also blocks, in the calling thread, the
/// signals that end the daemon.
///
/// # Errors
/// The socket's folder belongs to another user or cannot be made; or another daemon serves the socket; or the kernel
/// lacks something that the daemon needs.
pub fn serve(mut options: ServeOptions) -> Result<(), ServeError> {
    let passed = socket::passed_listener().map_err(|error| ServeError(error.to_string()))?;
    if let Some((listener, path)) = passed {
        return run_passed(&mut options, listener, path);
    }
    let socket = options.socket.take().unwrap_or_else(default_socket);
    let ready = options.ready.take();
    if options.detach { detach(&options, socket) } else { run(&options, socket, ready) }
}

fn run(options: &ServeOptions, socket: PathBuf, ready: Option<OwnedFd>) -> Result<(), ServeError> {
    serve_at(options, keeper::DaemonFiles::take(socket)?, ready)
}

/// Serves a socket that the service manager made. The socket's file stays when the daemon ends.
fn run_passed(options: &mut ServeOptions, listener: OwnedFd, path: PathBuf) -> Result<(), ServeError> {
    if options.socket.take().is_some_and(|socket| socket != path) {
        return Err(ServeError(format!("the service manager passed {}; leave --socket out", path.display())));
    }
    if options.detach {
        return Err(ServeError("the service manager started this daemon; leave --detach out".into()));
    }
    let ready = options.ready.take();
    serve_at(options, keeper::DaemonFiles::take(path)?.with_listener(listener), ready)
}

fn serve_at(options: &ServeOptions, place: keeper::DaemonFiles, ready: Option<OwnedFd>) -> Result<(), ServeError> {
    if child::threads() != Some(1) {
        place.give_up(options.private);
        return Err(ServeError("the daemon has to be started from a process with one thread".into()));
    }
    let ended = keeper::run(options, &place, ready);
    match ended {
        Ok(Ended::Served) => place.leave(options.private),
        Ok(Ended::BeforeItServed) | Err(_) => place.give_up(options.private),
    }
    ended.map(drop)
}

/// How long a daemon in the background may take until it serves clients. A node of a site gets more time.
const START: Duration = Duration::from_secs(10);

/// How long a daemon in the background that cannot start may take to print its reason and to end.
const END: Duration = Duration::from_secs(2);

fn detach(options: &ServeOptions, path: PathBuf) -> Result<(), ServeError> {
    let text = |error: crossdock_os::OsError| ServeError(error.to_string());
    let (ours, theirs) = socket::pair().map_err(text)?;
    let mut theirs = Some(theirs);
    let pid = child::fork(|| {
        child::leave_session();
        // The error stream stays open for now, so that the caller sees errors at the start.
        child::leave_stream(0);
        child::leave_stream(1);
        match run(options, path, theirs.take()) {
            Ok(()) => 0,
            Err(error) => {
                eprintln!("crossdock serve: {error}");
                1
            }
        }
    })
    .map_err(text)?;
    drop(theirs);
    // The daemon sends a byte when it serves. If it cannot start, its end of the socket is closed without a byte.
    let limit = START + options.site.as_ref().map_or(Duration::ZERO, |site| host::JOIN + site.lease);
    let mut byte = [0];
    if !event::wait_readable(&ours, Deadline::after(limit)).map_err(text)? {
        child::signal(pid, child::Signal::TERM).map_err(text)?;
        let seconds = limit.as_secs();
        return Err(ServeError(format!(
            "the daemon in the background did not serve within {seconds} s; it was told to end"
        )));
    }
    if matches!(File::from(ours).read(&mut byte), Ok(1)) {
        return Ok(());
    }
    // If a daemon cannot start, it closes the socket before it prints the reason. When its process has ended, the
    // reason is certainly printed. So this function waits for the end of the process.
    if let Some(pidfd) = process::open_pidfd(pid).map_err(text)? {
        event::wait_readable(&pidfd, Deadline::after(END)).map_err(text)?;
    }
    Err(ServeError("the daemon in the background did not start; its reason is above".into()))
}

/// Gives a number above every id that an earlier daemon of this boot can have given out, even if that daemon left no
/// journal. Earlier daemons began with such a number, too, and no daemon gives out a million ids a second for long. The
/// wall clock would not do: after it was set back, a new daemon would give out the ids of an earlier one again, and an
/// old handle could name a new object.
fn id_base() -> u64 {
    // The time since the beginning of 2026, in microseconds.
    let since = Duration::from_nanos(clock::steady_since_1970_ns());
    since.saturating_sub(Duration::from_secs(1_767_225_600)).as_micros() as u64
}

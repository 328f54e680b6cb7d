//! Finds the node daemon, or starts a private daemon, so that a first program works without any set-up.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crossdock_layout::Status;
use crossdock_os::{Deadline, child, file, spawn};

use crate::handshake::{self, ClientIdentity, HelloFailure, Welcome};
use crate::{ConnectOptions, Error, Result, interrupt};

/// The path at which a process in a container finds its task's endpoint.
const IN_CONTAINER: &str = "/run/crossdock/endpoint.sock";

/// The longest wait for a daemon that was just started. If no daemon listens after this time, the program makes another
/// attempt to start a daemon. If a daemon listens and has not answered yet, the program says hello again, and waits
/// twice as long.
const RETRY: Duration = Duration::from_millis(100);

/// A daemon that answered a hello, and its answer.
#[derive(Debug)]
pub(crate) struct FoundDaemon {
    pub path: PathBuf,
    /// True if the daemon was started on demand for this user, so that this library may start it again.
    pub private: bool,
    pub welcome: Welcome,
}

/// Looks for a daemon at each possible path, one after the other. If no daemon listens and the options allow it, starts
/// a private daemon.
pub(crate) fn find(options: &ConnectOptions, who: &ClientIdentity, deadline: Deadline) -> Result<FoundDaemon> {
    let named = options.socket.clone().or_else(|| variable("CROSSDOCK_SOCKET").map(PathBuf::from));
    if let Some(path) = named {
        let welcome = greet_until(&path, who, deadline, false)?;
        return Ok(FoundDaemon { path, private: false, welcome });
    }
    let path = PathBuf::from(IN_CONTAINER);
    match greet_restarting(&path, who, deadline) {
        Ok(welcome) => return Ok(FoundDaemon { path, private: false, welcome }),
        // If no daemon listens at the endpoint of a task, the task must not silently use another daemon.
        Err(failure) if variable("CROSSDOCK_TASK").is_some() => return Err(in_task(failure)),
        // No daemon listens at this path, or the daemon there does not serve this user. The loop continues with the
        // next path, where the user's own daemon listens.
        Err(HelloFailure::NotListening(_)) => {}
        Err(HelloFailure::Final(error)) if error.status == Status::Denied => {}
        Err(failure) => return Err(failure.into_error()),
    }
    let folder = user_folder();
    let path = folder.join("endpoint.sock");
    if !options.private_daemon && !path.exists() {
        let text = format!(
            "there is no node daemon: CROSSDOCK_SOCKET is not set, and {IN_CONTAINER} and {} are not there; \
             start one with `crossdock serve`",
            path.display()
        );
        return Err(Error::new(Status::NotFound, text));
    }
    file::private_folder(&folder).map_err(|error| {
        Error::new(Status::Denied, format!("the folder for a private daemon cannot be used: {error}"))
    })?;
    let greeted = match options.private_daemon {
        true => handshake::greet(&path, who, deadline),
        false => greet_restarting(&path, who, deadline),
    };
    let welcome = match greeted {
        Err(HelloFailure::NotListening(_) | HelloFailure::Ended(_)) if options.private_daemon => {
            let mut patience = RETRY;
            start(&path, deadline)?;
            loop {
                match greet_until(&path, who, deadline.at_most(patience), true) {
                    Ok(welcome) => break welcome,
                    Err(error) if deadline.passed() => return Err(error),
                    Err(error) if error.status == Status::TimedOut => patience *= 2,
                    // An old daemon that was just ending may have kept the new daemon from starting. Then no daemon
                    // runs, so the loop tries again.
                    Err(error) if matches!(error.status, Status::NotFound | Status::Disconnected) => {
                        start(&path, deadline)?;
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        other => other.map_err(HelloFailure::into_error)?,
    };
    handshake::check_server(&welcome.socket, &path)?;
    Ok(FoundDaemon { path, private: true, welcome })
}

/// Says hello to a daemon. If the daemon ends the connection without an answer, it may be restarting, so the call tries
/// again until the deadline.
fn greet_restarting(
    path: &Path,
    who: &ClientIdentity,
    deadline: Deadline,
) -> std::result::Result<Welcome, HelloFailure> {
    greet_again(path, who, deadline, |failure| matches!(failure, HelloFailure::Ended(_)))
}

/// Says hello to a daemon that may be starting or ending at this moment, and tries again until the deadline.
pub(crate) fn greet_until(path: &Path, who: &ClientIdentity, deadline: Deadline, starting: bool) -> Result<Welcome> {
    let passes = |failure: &HelloFailure| match failure {
        HelloFailure::NotListening(_) => starting,
        HelloFailure::Ended(_) => true,
        HelloFailure::Foreign(_) | HelloFailure::NoRoom(_) | HelloFailure::Final(_) => false,
    };
    greet_again(path, who, deadline, passes).map_err(HelloFailure::into_error)
}

/// Says hello to a daemon. After a failure that `passes` accepts, tries again until the deadline.
fn greet_again(
    path: &Path,
    who: &ClientIdentity,
    deadline: Deadline,
    passes: impl Fn(&HelloFailure) -> bool,
) -> std::result::Result<Welcome, HelloFailure> {
    let mut pause = Duration::from_micros(200);
    loop {
        match handshake::greet(path, who, deadline) {
            Err(failure) if passes(&failure) && !deadline.passed() => {}
            other => return other,
        }
        std::thread::sleep(pause.min(deadline.left()));
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// Starts a private daemon that listens at `path`. If two programs start a daemon at the same time, a lock lets only
/// one of the two daemons run.
pub(crate) fn start(path: &Path, deadline: Deadline) -> Result<()> {
    let mut starter = Command::new(command());
    starter.args(["serve", "--private", "--detach", "--socket"]).arg(path);
    starter.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).current_dir("/");
    run(starter, deadline)
}

/// Runs a command that starts a daemon, and waits for the end of the command.
fn run(mut starter: Command, deadline: Deadline) -> Result<()> {
    let started = spawn::start(&mut starter);
    let failed = |why: String| {
        let text = format!(
            "no node daemon is running and none could be started with '{}': {why}; install the crossdock command, or \
             set CROSSDOCK_COMMAND to it",
            starter.get_program().to_string_lossy()
        );
        Error::new(Status::NotFound, text)
    };
    let mut started = started.map_err(|error| failed(error.to_string()))?;
    // The command ends when the daemon serves or has failed to start; a daemon that serves continues in the background.
    // The outcome of the command is not checked: the daemon may have failed only because another program has started a
    // daemon first. The caller connects in any case, and so finds out whether a daemon runs.
    let mut pause = Duration::from_micros(200);
    // In a program that ignores SIGCHLD, or that reaps all of its children, `try_wait` fails with ECHILD after the
    // command has ended. So an error counts as an end.
    while matches!(started.try_wait(), Ok(None)) {
        let interrupted = interrupt::is_interrupted();
        if deadline.passed() || interrupted {
            let _ = started.kill();
            let _ = started.wait();
            let why = if interrupted { "the program's call was interrupted" } else { "it did not come up in time" };
            return Err(failed(why.into()));
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(5));
    }
    Ok(())
}

/// The folder in which the user's own daemon has its socket.
fn user_folder() -> PathBuf {
    match file::runtime_folder() {
        Some(folder) => folder.join("crossdock"),
        None => PathBuf::from(format!("/tmp/crossdock-{}", child::user())),
    }
}

/// Makes the error for a task of a workflow that finds no daemon.
fn in_task(failure: HelloFailure) -> Error {
    let error = failure.into_error();
    if error.status != Status::NotFound {
        return error;
    }
    let task = variable("CROSSDOCK_TASK").unwrap_or_default();
    let text = format!(
        "task '{task}' has no endpoint: no task of its workflow is granted anything; grant it what it uses in the workflow \
         file, such as `ports: {{q: produce}}`"
    );
    Error::new(Status::Denied, text)
}

/// Finds the path of the `crossdock` command. It is the path in the variable `CROSSDOCK_COMMAND`, or else that of a
/// command near this library or program, or else that of a command in the PATH.
fn command() -> PathBuf {
    if let Some(path) = variable("CROSSDOCK_COMMAND") {
        return PathBuf::from(path);
    }
    let beside = [own_file(), std::env::current_exe().ok()];
    let folders = beside.into_iter().flatten().filter_map(|file| file.parent().map(Path::to_owned));
    for folder in folders {
        for way in [
            "crossdock",
            "bin/crossdock",
            "../crossdock",
            "../bin/crossdock",
            "../../bin/crossdock",
            "../../../../bin/crossdock",
        ] {
            let candidate = folder.join(way);
            if is_program(&candidate) {
                return candidate;
            }
        }
    }
    PathBuf::from("crossdock")
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

/// Finds the file that this code was loaded from: the library, or the program that contains it.
fn own_file() -> Option<PathBuf> {
    let here = own_file as fn() -> Option<PathBuf> as usize as u64;
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines().find_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (from, to) = range.split_once('-')?;
        let within = u64::from_str_radix(from, 16).ok()? <= here && here < u64::from_str_radix(to, 16).ok()?;
        within.then(|| rest.find('/').map(|at| PathBuf::from(&rest[at..])))?
    })
}

/// The value of an environment variable; `None` if it is not set or empty.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use crossdock_layout::MemberId;
    use crossdock_os::{event, socket};

    use super::*;

    #[test]
    fn a_daemon_that_ends_the_connection_without_an_answer_is_asked_again() {
        let path = std::env::temp_dir().join(format!("crossdock-discovery-{}.sock", std::process::id()));
        let listener = socket::listen(&path).unwrap();
        let deadline = Deadline::after(Duration::from_secs(60));
        // The listener ends the first connection without an answer, and is then closed. So the first attempt fails, and
        // the second attempt finds no listener.
        let first = std::thread::spawn(move || {
            while socket::accept(&listener).unwrap().is_none() {
                event::wait_readable(&listener, deadline).unwrap();
            }
        });
        let greeted = greet_restarting(&path, &stranger(), deadline);
        first.join().unwrap();
        std::fs::remove_file(&path).ok();
        assert!(matches!(greeted, Err(HelloFailure::NotListening(_))), "{greeted:?}");
    }

    #[test]
    fn an_interrupt_ends_the_wait_for_a_command_that_starts_a_daemon() {
        let (mut command, deadline) = (Command::new("sleep"), Deadline::after(Duration::from_secs(60)));
        command.arg("60");
        let error = interrupt::interruptible(|| true, || run(command, deadline)).unwrap_err();
        assert!(!deadline.passed(), "the call waited for the command");
        assert!(error.to_string().contains("interrupted"), "{error}");
    }

    #[test]
    fn an_interrupt_ends_the_wait_for_the_answer_to_a_hello() {
        let path = std::env::temp_dir().join(format!("crossdock-silent-{}.sock", std::process::id()));
        let _listener = socket::listen(&path).unwrap();
        let deadline = Deadline::after(Duration::from_secs(60));
        let greeted = interrupt::interruptible(|| true, || handshake::greet(&path, &stranger(), deadline));
        std::fs::remove_file(&path).unwrap();
        assert!(!deadline.passed(), "the call waited for the answer");
        let Err(HelloFailure::Final(error)) = greeted else { panic!("{greeted:?}") };
        assert_eq!(error.status, Status::TimedOut);
    }

    fn stranger() -> ClientIdentity {
        let (task, workflow, member) = (None, None, MemberId::NONE);
        ClientIdentity { token: [1; 16], member, rank: 0, task, workflow, visitor: false, server: None }
    }

    #[test]
    fn the_file_of_this_code_is_found() {
        assert_eq!(super::own_file(), std::env::current_exe().ok());
    }
}

//! One rank of a task: starts it, watches it, asks it to end, and kills it.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossdock_os::process::{Signal, open_pidfd};
use crossdock_os::thread::start_or_run;
use crossdock_os::{Deadline, OsError, child, event, pipe, spawn};
use serde::{Deserialize, Serialize};

use super::processes::ProcessIdentity;
use super::{cpu_placement, processes};
use crate::engine::{self, CommandLine, Engine};

/// How a rank ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// The rank ended with this exit code.
    Exit(i32),
    /// The rank was ended by this signal.
    Signal(i32),
    /// The rank has ended, and nothing tells how.
    Unknown,
    /// The rank could not be started: the exit code, and the reason.
    NotStarted(u8, String),
    /// The run ended before the rank could start.
    Skipped,
    /// The connection to the host with this name was lost while the rank ran.
    Lost(String),
}

impl End {
    /// Tells whether the rank ended without an error.
    pub fn good(&self) -> bool {
        *self == Self::Exit(0)
    }

    /// Gives the end as an exit code. As in shells, an end by signal N gives 128 + N.
    pub fn code(&self) -> u8 {
        match self {
            Self::Exit(code) => u8::try_from(*code).unwrap_or(255),
            Self::Signal(signal) => 128u8.saturating_add(*signal as u8),
            Self::Unknown => super::code::SYSTEM,
            Self::NotStarted(code, _) => *code,
            Self::Skipped => 0,
            Self::Lost(_) => super::code::UNAVAILABLE,
        }
    }

    /// Describes the end in words.
    pub fn words(&self, in_container: bool) -> String {
        match self {
            Self::Exit(0) => "ended well".into(),
            Self::Exit(125) if in_container => "was not started by the engine, or lost by it (exit code 125)".into(),
            Self::Exit(126) => "has a program that may not be executed (exit code 126)".into(),
            Self::Exit(127) => "has a program that was not found in its file system (exit code 127)".into(),
            Self::Exit(code) if *code > 128 && *code < 128 + 65 => {
                format!("ended by signal {} ({}), exit code {code}", code - 128, signal_name(code - 128))
            }
            Self::Exit(code) => format!("ended with exit code {code}"),
            Self::Signal(signal) => format!("was killed by signal {signal} ({})", signal_name(*signal)),
            Self::Unknown => "ended, and its exit code is not known, because crossdock could not wait for it".into(),
            Self::NotStarted(_, why) => format!("could not be started: {why}"),
            Self::Skipped => "was not started".into(),
            Self::Lost(host) => format!("was lost with its host {host}"),
        }
    }
}

/// The name of a signal, such as `SIGKILL` for 9.
pub fn signal_name(signal: i32) -> &'static str {
    signal_hook::low_level::signal_name(signal).unwrap_or("unknown signal")
}

/// How long to wait, after a program was killed, until the processes that it started have ended. The wait is for
/// programs that end their own descendants, such as `crossdock mpirun`.
const OWN_END: Duration = Duration::from_secs(8);

/// A rank that was started.
pub struct Running {
    child: Child,
    /// A descriptor that is readable when the process has ended.
    pub pidfd: OwnedFd,
    /// Identifies the process for signals that other threads send. Such a thread may send its signal after the process
    /// was reaped.
    process: ProcessIdentity,
    /// The output of the rank; `None` after its end.
    pub output: Option<OwnedFd>,
    container: Option<String>,
    ends_its_own: bool,
    /// When the rank was started.
    pub since: Instant,
}

/// Starts a rank. Standard output and standard error go into one pipe, so that their order is kept.
pub fn start(
    mut line: CommandLine,
    processors: Option<&[u32]>,
    memory: Option<u64>,
    engine: &dyn Engine,
) -> Result<Running, End> {
    let system = |what: &str, e: io::Error| End::NotStarted(super::code::SYSTEM, format!("{what}: {e}"));
    if let (true, Some(bytes)) = (line.limits_by_launcher, memory) {
        // The memory limit must hold before the engine's program first forks. A shell sets the limit, because a call
        // between fork and exec would need unsafe code.
        let script = format!("ulimit -d {} && exec \"$@\"", bytes.div_ceil(1024));
        line.words.splice(0..0, ["/bin/sh".to_owned(), "-c".to_owned(), script, "sh".to_owned()]);
    }
    let (read, write) = pipe::pipe().map_err(|e| system("cannot make a pipe", e.reason()))?;
    let errors = write.try_clone().map_err(|e| system("cannot copy a descriptor", e))?;
    let mut command = engine::command(&line);
    command.stdin(Stdio::null()).stdout(write).stderr(errors).process_group(0);
    let own = processors.filter(|_| line.limits_by_launcher);
    let child = cpu_placement::with(own, || spawn::start(&mut command)).map_err(|e| {
        let (program, folder) = (&line.words[0], line.workdir.as_deref());
        let code = if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) {
            super::code::NO_PROGRAM
        } else {
            super::code::SYSTEM
        };
        match folder.filter(|f| !f.is_dir()) {
            Some(folder) => End::NotStarted(code, format!("its workdir {} is not there", folder.display())),
            None => End::NotStarted(code, format!("`{program}`: {e}")),
        }
    })?;
    // The kernel keeps the id of an ended process until its parent has waited for it. This process has not waited for
    // the child yet, so no other process can have the child's id.
    let opened = open_pidfd(child.id() as i32).and_then(|fd| fd.ok_or_else(|| OsError::last("pidfd_open", "a child")));
    let pidfd = match opened {
        Ok(pidfd) => pidfd,
        Err(e) => {
            undo(child, (read, command), line.container.as_deref(), engine);
            return Err(system("cannot watch the process", e.reason()));
        }
    };
    let process = ProcessIdentity::of(child.id() as i32);
    Ok(Running {
        child,
        process,
        pidfd,
        output: Some(read),
        container: line.container,
        ends_its_own: line.ends_its_own,
        since: Instant::now(),
    })
}

/// Kills a rank that was started just now and cannot be watched. `pipe` holds the ends of the pipe for the rank's
/// output.
fn undo(mut child: Child, pipe: impl Sized, container: Option<&str>, engine: &dyn Engine) {
    // Closing the pipe frees descriptors. The engine needs free descriptors to kill the container, and this process may
    // have no others.
    drop(pipe);
    let pid = child.id() as i32;
    let below = processes::descendants(pid);
    processes::signal_group(pid, Signal::KILL);
    below.iter().for_each(|d| processes::signal(d.pid, Signal::KILL));
    let _ = child.wait();
    // The engine's command, such as `docker run`, has ended, so it cannot make the container after `kill` has removed
    // the container.
    if let Some(container) = container {
        engine.kill(container);
    }
}

impl Running {
    /// The id of the process that was started on the host.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Passes on what the rank has written, and tells whether the rank has ended. Everything that the rank wrote before
    /// its end is passed on first.
    pub fn look(&mut self, mut output: impl FnMut(&[u8])) -> Option<End> {
        // Whether the rank has ended is checked before its output is read. So if it has ended, everything that it wrote
        // is read after the check.
        let end = self.ended();
        let mut more = self.read(&mut output);
        if end.is_some() {
            for _ in 0..64 {
                // The loop has at most 64 rounds, because a process that the task left behind may hold the pipe and
                // write for ever.
                if !more || !self.readable() {
                    break;
                }
                more = self.read(&mut output);
            }
        }
        end
    }

    fn readable(&self) -> bool {
        let Some(output) = &self.output else { return false };
        event::wait_readable(output, Deadline::after(Duration::from_millis(20))).unwrap_or(false)
    }

    /// Reads the output that is in the pipe. Returns false when the output has ended.
    fn read(&mut self, mut take: impl FnMut(&[u8])) -> bool {
        let Some(output) = &self.output else { return false };
        let mut buffer = [0u8; 64 << 10];
        // The number of reads is bounded, so that a task that writes without end does not keep the supervisor from
        // reading the output of other tasks.
        for _ in 0..4 {
            match pipe::read(output, &mut buffer) {
                Ok(Some(0)) => {
                    self.output = None;
                    return false;
                }
                Ok(Some(n)) => take(&buffer[..n]),
                Ok(None) => return true,
                Err(_) => {
                    self.output = None;
                    return false;
                }
            }
        }
        true
    }

    /// Tells whether the rank's process has ended. If it has, the rank's remaining children are killed, and the caller
    /// does not wait for their output.
    fn ended(&mut self) -> Option<End> {
        let pid = self.pid() as i32;
        match child::has_ended(pid) {
            Ok(false) => return None,
            // The process is not reaped yet, so no other process or group can have its id.
            Ok(true) => processes::signal_group(pid, Signal::KILL),
            // Another part of this process has reaped the rank's process.
            Err(_) => return Some(End::Unknown),
        }
        match self.child.try_wait() {
            Ok(status) => status.map(|status| match status.code() {
                Some(code) => End::Exit(code),
                None => End::Signal(status.signal().unwrap_or(0)),
            }),
            Err(_) => Some(End::Unknown),
        }
    }

    /// Asks the rank to end. A container that cannot be asked is killed. Slow steps are done in a thread, whose handle
    /// is returned, or before this call returns if no thread can be started.
    pub fn ask(&self, engine: &Arc<dyn Engine>) -> Option<JoinHandle<()>> {
        let pid = self.pid() as i32;
        if self.ends_its_own {
            processes::signal(pid, Signal::TERM);
            return None;
        }
        if let Some(container) = self.container.clone() {
            let (engine, process) = (engine.clone(), self.process);
            let ask = move || process.signal(Signal::TERM);
            return start_or_run(move || match engine.first_process(&container) {
                // The engine's command, such as `docker run`, passes the signal on to the container.
                Some(first) if processes::catches(first, Signal::TERM) => ask(),
                Some(_) => engine.kill(&container),
                None => ask(),
            });
        }
        if let Some(depth) = engine.task_depth() {
            let inner: Vec<_> = processes::descendants(pid).into_iter().filter(|d| d.depth == depth).collect();
            if !inner.is_empty() {
                inner.iter().for_each(|d| processes::signal(d.pid, Signal::TERM));
                return None;
            }
        }
        processes::signal_group(pid, Signal::TERM);
        None
    }

    /// Kills the rank. Slow steps are done in a thread, whose handle is returned, or before this call returns if no
    /// thread can be started.
    pub fn kill(&self, engine: &Arc<dyn Engine>) -> Option<JoinHandle<()>> {
        let process = self.process;
        let below: Vec<_> = processes::descendants(self.pid() as i32).into_iter().map(|d| d.process).collect();
        let known = below.clone();
        // Seconds may pass before this closure runs. Meanwhile, processes may end and their ids may be reused, so the
        // closure signals each process by its identity.
        let group = move || {
            process.signal_group(Signal::KILL);
            known.iter().for_each(|process| process.signal(Signal::KILL));
        };
        if self.ends_its_own {
            let deadline = Instant::now() + OWN_END;
            return start_or_run(move || {
                process.signal(Signal::KILL);
                while Instant::now() < deadline && below.iter().any(|process| process.runs()) {
                    thread::sleep(Duration::from_millis(10));
                }
                group();
            });
        }
        match self.container.clone() {
            None => {
                group();
                None
            }
            Some(container) => {
                let engine = engine.clone();
                start_or_run(move || {
                    engine.kill(&container);
                    // The engine's command, such as `docker run`, ends by itself when its container has ended. The
                    // command gets a moment to write its last output before it is killed.
                    thread::sleep(Duration::from_millis(200));
                    group();
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Isolation, Prepared, Request, RunContext, Unavailable};
    use crate::file::Task;
    use crossdock_os::testing::until;
    use std::os::fd::AsRawFd;
    use std::sync::Mutex;

    /// An engine that lists the open files of this process when it kills a container.
    struct Lists(Mutex<Option<Vec<String>>>);

    impl Engine for Lists {
        fn name(&self) -> &'static str {
            "lists"
        }

        fn isolation(&self) -> Isolation {
            Isolation::NONE
        }

        fn version(&self) -> Result<String, Unavailable> {
            unimplemented!()
        }

        fn accepts(&self, _task: &Task) -> Result<(), Unavailable> {
            unimplemented!()
        }

        fn prepare(&self, _run: &RunContext, _task: &Task) -> Result<Prepared, Unavailable> {
            unimplemented!()
        }

        fn command(&self, _request: &Request<'_>) -> CommandLine {
            unimplemented!()
        }

        fn kill(&self, _container: &str) {
            let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
            let open = open.filter_map(|entry| Some(std::fs::read_link(entry.path()).ok()?.display().to_string()));
            *self.0.lock().unwrap() = Some(open.collect());
        }
    }

    #[test]
    fn the_pipe_of_a_rank_that_cannot_be_watched_is_closed_before_its_container_is_killed() {
        let (read, write) = pipe::pipe().unwrap();
        let name = std::fs::read_link(format!("/proc/self/fd/{}", read.as_raw_fd())).unwrap().display().to_string();
        let errors = write.try_clone().unwrap();
        let mut command = std::process::Command::new("sleep");
        command.arg("600").stdout(write).stderr(errors).process_group(0);
        let child = spawn::start(&mut command).unwrap();
        let engine = Lists(Mutex::new(None));
        undo(child, (read, command), Some("container"), &engine);
        let open = engine.0.into_inner().unwrap().expect("the engine is asked to kill the container");
        assert!(!open.contains(&name), "{name} is open: {open:?}");
    }

    fn started(words: &[&str]) -> Running {
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        start(CommandLine { words, ..CommandLine::default() }, None, None, &*engine::no_container()).unwrap()
    }

    #[test]
    fn a_rank_that_another_part_of_the_process_has_reaped_has_ended_with_an_error() {
        let mut reaped = started(&["true"]);
        child::ended(reaped.pid() as i32, true).unwrap();
        let end = reaped.look(|_| ()).expect("the rank has ended");
        assert!(end == End::Unknown && !end.good() && end.code() != 0);
    }

    #[test]
    fn what_a_rank_leaves_in_its_group_is_killed_at_its_end() {
        let mut rank = started(&["sh", "-c", "sleep 600 & echo $!; exit 3"]);
        let (mut said, mut end) = (Vec::new(), None);
        until("the end of the rank", || {
            end = rank.look(|bytes| said.extend_from_slice(bytes));
            end.is_some()
        });
        assert_eq!(end, Some(End::Exit(3)));
        let left = String::from_utf8(said).unwrap().trim().parse().unwrap();
        let left = crossdock_os::process::open_pidfd(left).unwrap();
        until("the end of the process that is left", || left.as_ref().is_none_or(crossdock_os::process::is_dead));
    }
}

#[cfg(all(test, feature = "faults"))]
mod failing_calls {
    use super::*;
    use crossdock_os::faults;
    use crossdock_os::testing::until;

    /// Tells whether a process with this word in its command line is running.
    fn runs(word: &str) -> bool {
        let lines = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
            let line = std::fs::read(entry.ok()?.path().join("cmdline")).ok()?;
            Some(String::from_utf8_lossy(&line).into_owned())
        });
        lines.into_iter().any(|line| line.contains(word))
    }

    #[test]
    fn a_rank_that_cannot_be_watched_does_not_run() {
        let (engine, mut step) = (engine::no_container(), 0);
        let seen = faults::each_call_fails(|attempt| {
            step += 1;
            let word = format!("unwatched-{}-{step}", std::process::id());
            let words = ["sh", "-c", "sleep 600 & wait", &word].map(str::to_owned).to_vec();
            let line = CommandLine { words, ..CommandLine::default() };
            attempt.arm();
            let started = start(line, None, None, &*engine);
            let hit = attempt.disarm();
            match started {
                Ok(running) => undo(running.child, running.output, None, &*engine),
                // A killed process takes a moment to end, so the test waits.
                Err(end) => until(&format!("the end of the rank, because {hit:?}: {end:?}"), || !runs(&word)),
            }
        });
        assert!(["spawn", "pidfd_open"].iter().all(|call| seen.contains(call)), "{seen:?}");
    }
}

//! The supervisor of a run: starts the tasks, watches them, ends them, and reports about them.

mod early_signal;
mod elsewhere;
mod ending;
mod prepare;
mod rates;

pub(super) use prepare::read;

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossdock_gateway::SiteCatalog;
use crossdock_os::orphans::{self, Reaper};
use crossdock_os::{Deadline, child, event, pipe};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use self::early_signal::{EarlyListener, next_signal};
use self::rates::Rates;
use super::directory_reports::Questions;
use super::folder::{self, RunFolder};
use super::log::Log;
use super::messages::ToPart;
use super::part::{Hint, Part, PartRefusal};
use super::rank::{self, End, Running};
use super::remote_part::{Events, RemotePart};
use super::state::{Phase, State, now_ms};
use super::view::View;
use super::{Order, RunOptions, code, processes};
use crate::file::Workflow;

/// Why a run is being stopped.
#[derive(Clone, Debug)]
struct Stop {
    result: &'static str,
    code: u8,
    /// The reason, as one sentence.
    reason: String,
    /// The last lines of the failed task's log; empty if no task failed.
    last_lines: Vec<String>,
    /// What the user can do about the reason of the stop; empty if there is no hint.
    hint: String,
}

impl Stop {
    fn new(result: &'static str, code: u8, reason: String) -> Self {
        Self { result, code, reason, last_lines: Vec::new(), hint: String::new() }
    }

    fn failed(code: u8, reason: impl Into<String>) -> Self {
        Self::new("failed", code, reason.into())
    }
}

impl std::fmt::Display for Stop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.reason)?;
        if !self.last_lines.is_empty() {
            write!(f, "; its last lines:\n    {}", self.last_lines.join("\n    "))?;
        }
        write!(f, "{}", Hint(&self.hint))
    }
}

impl From<PartRefusal> for Stop {
    fn from(refused: PartRefusal) -> Self {
        Self { hint: refused.hint, ..Self::failed(refused.code, refused.reason) }
    }
}

/// Where the process of a rank runs.
enum RankProcess {
    /// The rank's process is a child of this process.
    Here(Running),
    /// The rank's process is on another host. The field is the time when the process was started.
    There(Instant),
}

impl RankProcess {
    fn here(&self) -> Option<&Running> {
        match self {
            Self::Here(running) => Some(running),
            Self::There(_) => None,
        }
    }
}

struct Rank {
    task: usize,
    rank: u32,
    name: String,
    /// The number of the rank's host.
    host: usize,
    running: Option<RankProcess>,
    end: Option<End>,
    log: Log,
    wall: Duration,
}

/// Runs the supervisor of a run and returns the exit code. Its standard input is a pipe from the front. The front has
/// started it in a session of its own, so it gets no signal from the terminal and obeys only the front's messages.
pub fn supervisor() -> u8 {
    child::raise_own_descriptor_limit();
    orphans::note_children();
    let _ = child::adopt_orphans();
    // Slurm sends signals to every process of a job. The supervisor must not end by such a signal, because it obeys
    // only the front and must clean up at the end.
    let _ = outlive_signals(&Arc::default());
    let line = first_line();
    if line.is_empty() {
        // The front was killed before it sent its first message. Nothing is made yet, so nothing must be removed.
        return code::SYSTEM;
    }
    let order: Order = match serde_json::from_slice(&line) {
        Ok(order) => order,
        Err(e) => {
            folder::complain(&format!("the front's order cannot be read: {e}; this command is not for people"));
            return code::USAGE;
        }
    };
    let Some(text) = text(order.text_bytes) else {
        // The front was killed while it sent the workflow's text. Nothing is made yet, so nothing must be removed.
        return code::SYSTEM;
    };
    let folder = match RunFolder::make(&order.id) {
        Ok(folder) => folder,
        Err(e) => {
            folder::complain(&e);
            return code::SYSTEM;
        }
    };
    // The lock is held until the folder is removed, so that a run that starts meanwhile does not take this one for dead.
    let (path, _lock) = (folder.path.clone(), folder.lock());
    let listener = EarlyListener::start();
    let prepared = Run::prepare(&order, &text, folder);
    let heard = listener.map(EarlyListener::end).unwrap_or_default();
    let code = match prepared {
        Ok(run) => Run { heard, ..run }.go(),
        Err(stop) => {
            folder::clean(&order.id, &path);
            folder::complain(&stop.to_string());
            stop.code
        }
    };
    processes::kill_descendants(&[], Duration::from_secs(5));
    code
}

struct Run {
    options: RunOptions,
    /// The whole workflow, for all hosts.
    workflow: Workflow,
    /// The part of the workflow that runs on this host.
    part: Part,
    /// The number of this host; `None` if no task may run on it.
    here: Option<usize>,
    /// For each host, in the order of the hosts' numbers: the part on that host; `None` for this host. The list is
    /// empty in a run on one host.
    remote_parts: Vec<Option<RemotePart>>,
    events: Option<Events>,
    /// Answers `crossdock ls --files`, in a run on several hosts with managed directories.
    questions: Option<Questions>,
    /// The catalog of the run's site, if this process keeps the catalog. This process keeps the catalog in a run that
    /// has several hosts, exchanges files between them, and needs no daemon.
    kept: Option<SiteCatalog>,
    logs: PathBuf,
    _logs_lock: Arc<File>,
    ranks: Vec<Rank>,
    view: View,
    /// The state of the run that other programs can read.
    state: State,
    begin: Instant,
    stop: Option<Stop>,
    rates: Rates,
    /// Bytes from the front that are not a whole line yet.
    heard: Vec<u8>,
    kill_at: Option<Instant>,
    killed: bool,
    helpers: Vec<JoinHandle<()>>,
}

impl Run {
    fn go(mut self) -> u8 {
        let stdin = std::io::stdin();
        let mut front = Some(stdin.as_fd());
        let mut reaper = Reaper::new();
        self.view.begin();
        while self.ranks.iter().any(|r| r.end.is_none()) {
            self.start_ready();
            self.wait(&mut front);
            self.hear_hosts();
            self.answer_looks();
            self.look();
            self.show_figures();
            self.tell_of_files();
            if let (Some(seconds), None) = (self.options.deadline_s, &self.stop) {
                if self.begin.elapsed() > Duration::from_secs(seconds) {
                    let reason =
                        format!("the deadline of {seconds} s has passed; still running: {}", self.still_running());
                    self.begin_stop(Stop::new("deadline", code::DEADLINE, reason));
                }
            }
            self.kill_when_due();
            reaper.look();
        }
        self.finish()
    }

    /// Writes problems with files into the logs of the tasks that produce the files.
    fn tell_of_files(&mut self) {
        for (tasks, line) in self.part.files.news() {
            for (index, rank) in self.ranks.iter_mut().enumerate() {
                if tasks.contains(&self.workflow.tasks[rank.task].name) {
                    for line in rank.log.add(format!("crossdock: {line}\n").as_bytes()) {
                        self.view.line(index, &rank.name, &line);
                    }
                }
            }
        }
    }

    fn still_running(&self) -> String {
        let names: Vec<&str> = self.ranks.iter().filter(|r| r.running.is_some()).map(|r| r.name.as_str()).collect();
        names.join(", ")
    }

    /// Starts every rank whose predecessors have ended with success, once all hosts are ready.
    fn start_ready(&mut self) {
        if !self.hosts_are_ready() {
            return;
        }
        for index in 0..self.ranks.len() {
            let rank = &self.ranks[index];
            if rank.running.is_some() || rank.end.is_some() || self.stop.is_some() {
                continue;
            }
            let task = &self.workflow.tasks[rank.task];
            let ended = |name: &String| {
                let mut of_task = self.ranks.iter().filter(|r| self.workflow.tasks[r.task].name == *name);
                of_task.all(|r| r.end.as_ref().is_some_and(End::good))
            };
            if task.after.iter().all(ended) {
                self.start(index);
            }
        }
    }

    fn start(&mut self, index: usize) {
        let rank = &self.ranks[index];
        let (task, number) = (self.workflow.tasks[rank.task].name.clone(), rank.rank);
        let job = self.job_hosts(&task);
        if let Some(Some(remote)) = self.remote_parts.get(rank.host) {
            remote.say(&ToPart::Start { index, task, rank: number, job: job.map(Box::new) });
            self.ranks[index].running = Some(RankProcess::There(Instant::now()));
            return;
        }
        match self.part.start(&task, number, job.as_ref()) {
            Ok(begun) => {
                let pid = begun.running.pid();
                self.ranks[index].running = Some(RankProcess::Here(begun.running));
                self.begun(index, pid, &begun.words, begun.note.as_deref());
            }
            Err(end) => self.ended(index, end),
        }
    }

    fn begun(&mut self, index: usize, pid: u32, words: &str, note: Option<&str>) {
        let rank = &self.ranks[index];
        if let Some(note) = note {
            self.view.note(note);
        }
        let on = self.host_name(rank.host).map(|host| format!(" on {host}")).unwrap_or_default();
        self.view.begun(index, &rank.name, &format!("started{on}, {words}"));
        let task = &self.workflow.tasks[rank.task];
        if task.is_over_hosts() {
            // The ranks of an MPI task are also on hosts on which the run itself starts no process of the task. The
            // supervisor tells the parts on those hosts that the task has begun.
            self.say_to_hosts(&ToPart::JobBegan(task.name.clone()));
            self.part.began(&task.name);
        }
        self.state.ranks[index].phase = Phase::Runs { pid, since_ms: now_ms() };
        self.state.write(&self.part.folder.path);
    }

    /// Waits for output, for the end of a rank, for a message of the front, or for a deadline.
    fn wait(&mut self, front: &mut Option<BorrowedFd<'_>>) {
        let mut fds: Vec<BorrowedFd<'_>> = Vec::new();
        for running in self.ranks.iter().filter_map(|r| r.running.as_ref()?.here()) {
            fds.push(running.pidfd.as_fd());
            if let Some(output) = &running.output {
                fds.push(output.as_fd());
            }
        }
        fds.extend(self.events.iter().map(|events| events.bell.as_fd()));
        fds.extend(self.questions.iter().map(Questions::descriptor));
        fds.extend(front.iter());
        let ready = event::wait_any(&fds, Some(Deadline::after(Duration::from_millis(100)))).unwrap_or_default();
        if front.is_some() && ready.last() == Some(&true) {
            self.hear(front);
        }
    }

    /// Reads messages of the front: `signal N`. The end of the pipe means that the front is dead.
    fn hear(&mut self, front: &mut Option<BorrowedFd<'_>>) {
        let Some(fd) = *front else { return };
        let mut buffer = [0u8; 256];
        let n = pipe::read(fd, &mut buffer).ok().flatten().unwrap_or(0);
        if n == 0 {
            *front = None;
            if self.stop.is_some() {
                // The front is dead, so it cannot pass on a second signal that asks for a faster end. The tasks are
                // killed at once.
                self.kill_at = Some(Instant::now());
                return;
            }
            let reason = "the launcher was killed".to_owned();
            self.begin_stop(Stop::new("interrupted", 137, reason));
            return;
        }
        self.heard.extend_from_slice(&buffer[..n]);
        while let Some(signal) = next_signal(&mut self.heard) {
            if self.stop.is_some() {
                // After a second signal, the tasks are killed at once.
                self.kill_at = Some(Instant::now());
                continue;
            }
            let reason = format!("stopped by {}", rank::signal_name(signal));
            self.begin_stop(Stop::new("interrupted", 128 + signal as u8, reason));
        }
    }

    /// Reads the output of ranks on this host, and notices their ends.
    fn look(&mut self) {
        for index in 0..self.ranks.len() {
            let rank = &mut self.ranks[index];
            let Some(RankProcess::Here(running)) = &mut rank.running else { continue };
            let (view, log, name) = (&self.view, &mut rank.log, &rank.name);
            let end = running.look(|bytes| log.add(bytes).iter().for_each(|line| view.line(index, name, line)));
            if let Some(end) = end {
                rank.wall = running.since.elapsed();
                self.ended(index, end);
            }
        }
    }

    fn ended(&mut self, index: usize, end: End) {
        let in_container = self.engine(self.ranks[index].host).is_some_and(|engine| engine.in_container());
        let rank = &mut self.ranks[index];
        rank.running = None;
        if let Some(line) = rank.log.finish() {
            self.view.line(index, &rank.name, &line);
        }
        let words = end.words(in_container);
        self.view.ended(index, &rank.name, &words, end.good());
        rank.end = Some(end.clone());
        let since_ms = self.state.ranks[index].phase.since_ms();
        self.state.ranks[index].phase =
            Phase::Ended { since_ms, ended_ms: now_ms(), code: end.code(), how: words.clone() };
        self.state.write(&self.part.folder.path);
        let (task, host) = (&self.workflow.tasks[rank.task], rank.host);
        let (name, is_over_hosts) = (task.name.clone(), task.is_over_hosts());
        if is_over_hosts {
            self.say_to_hosts(&ToPart::JobEnded(name.clone(), end.good()));
        }
        if self.is_here(host) || is_over_hosts {
            self.part.ended(&name, end.good());
        }
        let rank = &self.ranks[index];
        if end.good() || end == End::Skipped || self.stop.is_some() {
            return;
        }
        let on = self.host_name(host).map(|host| format!(" on {host}")).unwrap_or_default();
        let mut stop = Stop::failed(end.code().max(1), format!("task `{}`{on} {words}", rank.name));
        stop.last_lines = rank.log.last().map(str::to_owned).collect();
        if in_container && end == End::Exit(125) {
            let engine = self.engine(host);
            stop.hint = engine.map(|engine| engine.hint(&stop.last_lines.join("\n"))).unwrap_or_default();
        }
        self.begin_stop(stop);
    }
}

/// From now on, a signal that asks this process to end sets `flag`, and does not end the process. Tasks do not inherit
/// this setting.
pub(super) fn outlive_signals(flag: &Arc<AtomicBool>) -> std::io::Result<()> {
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        signal_hook::flag::register(signal, flag.clone())?;
    }
    Ok(())
}

/// Reads the front's first line byte by byte, because the bytes after it must stay in the pipe for `hear`.
fn first_line() -> Vec<u8> {
    let stdin = std::io::stdin();
    let mut line = Vec::new();
    let mut byte = [0];
    while line.len() < 1 << 20 {
        match pipe::read(stdin.as_fd(), &mut byte) {
            Ok(Some(1)) if byte[0] != b'\n' => line.push(byte[0]),
            _ => break,
        }
    }
    line
}

/// Reads the text that follows the front's first line; `None` if it is not complete.
fn text(bytes: usize) -> Option<String> {
    let stdin = std::io::stdin();
    let mut text = vec![0; bytes];
    let mut read = 0;
    while read < bytes {
        match pipe::read(stdin.as_fd(), &mut text[read..]) {
            Ok(Some(more)) if more > 0 => read += more,
            _ => return None,
        }
    }
    String::from_utf8(text).ok()
}

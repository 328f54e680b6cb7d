//! Starts the tasks, watches them, ends them, tells about them.

use std::fs::{self, File};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, set_child_subreaper};

use super::daemon::{self, Hosted};
use super::folder::{self, RunFolder};
use super::log::Log;
use super::place::Placement;
use super::rank::{self, End, Running};
use super::summary::{Summary, TaskLine};
use super::view::View;
use super::{Order, RunOptions, code, processes};
use crate::engine::{self, Engine, Prepared, Request, RunContext, Trial};
use crate::file::{self, Workflow};

/// After SIGKILL a process is gone at once; an engine needs a moment to say so.
const AFTER_KILL: Duration = Duration::from_secs(15);

/// Why a run is being stopped.
#[derive(Clone, Debug)]
struct Stop {
    result: &'static str,
    code: u8,
    reason: String,
}

impl Stop {
    fn failed(code: u8, reason: impl Into<String>) -> Self {
        Self { result: "failed", code, reason: reason.into() }
    }
}

struct Rank {
    task: usize,
    rank: u32,
    name: String,
    running: Option<Running>,
    end: Option<End>,
    log: Log,
    wall: Duration,
}

/// The other half of a run; its standard input is the front's pipe. Gives the exit code.
pub fn supervisor() -> u8 {
    // A session of its own: no signal of the terminal, no hang-up, only what the front says.
    let _ = rustix::process::setsid();
    let _ = set_child_subreaper(Pid::from_raw(1));
    let order: Order = match serde_json::from_slice(&first_line()) {
        Ok(order) => order,
        Err(e) => {
            eprintln!("crossdock: the front's order cannot be read: {e}; this command is not for people");
            return code::USAGE;
        }
    };
    let folder = match RunFolder::join(&order.id) {
        Ok(folder) => folder,
        Err(e) => {
            eprintln!("crossdock: {e}");
            return code::SYSTEM;
        }
    };
    let path = folder.path.clone();
    let code = match Run::prepare(&order.options, folder) {
        Ok(run) => run.go(),
        Err(stop) => {
            eprintln!("crossdock: {}", stop.reason);
            folder::clean(&order.id, &path);
            stop.code
        }
    };
    processes::kill_descendants(&[], Duration::from_secs(5));
    code
}

struct Run {
    options: RunOptions,
    workflow: Workflow,
    folder: RunFolder,
    engine: Arc<dyn Engine>,
    version: String,
    context: RunContext,
    prepared: Vec<Prepared>,
    logs: PathBuf,
    _logs_lock: File,
    ranks: Vec<Rank>,
    placement: Placement,
    hosted: Option<Hosted>,
    view: View,
    begin: Instant,
    stop: Option<Stop>,
    /// From the front, not yet a whole line.
    heard: Vec<u8>,
    kill_at: Option<Instant>,
    killed: bool,
    helpers: Vec<JoinHandle<()>>,
}

impl Run {
    fn prepare(options: &RunOptions, folder: RunFolder) -> Result<Self, Stop> {
        let workflow = file::read(&options.file).map_err(|e| Stop::failed(code::FILE, e.to_string()))?;
        let wanted = options.engine.as_deref().or(workflow.engine).unwrap_or("auto");
        let system = |e: String| Stop::failed(code::SYSTEM, e);
        let (logs, lock) = logs_folder(options, &workflow, &folder.id).map_err(system)?;
        let limit = if options.log_limit == 0 { 64 << 20 } else { options.log_limit };
        let mut ranks = Vec::new();
        for (index, task) in workflow.tasks.iter().enumerate() {
            for rank in 0..task.ranks {
                let name = task.rank_name(rank);
                let path = logs.join(format!("{name}.log"));
                let log = Log::make(&path, limit)
                    .map_err(|e| system(format!("cannot make the log {}: {e}", path.display())))?;
                ranks.push(Rank { task: index, rank, name, running: None, end: None, log, wall: Duration::ZERO });
            }
        }
        let names: Vec<String> = ranks.iter().map(|r| r.name.clone()).collect();
        let view = View::new(options.show, &names);
        let (engine, version) = pick(wanted, &workflow, &folder, &view)?;
        if let Some(shared) = engine.isolation().shared() {
            view.note(&format!("note: with the engine {} tasks share the host's {shared}", engine.name()));
        }
        let context = RunContext {
            id: folder.id.clone(),
            folder: folder.path.clone(),
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
        };
        // Processors first: a mistake there costs nothing yet.
        let mut trial = Placement::new();
        for rank in &ranks {
            trial.take(&workflow.tasks[rank.task]).map_err(|e| Stop::failed(code::FILE, e))?;
        }
        daemon::make_folders(&folder, workflow.tasks.len()).map_err(system)?;
        let mut prepared = Vec::new();
        for task in &workflow.tasks {
            prepared.push(engine.prepare(&context, task).map_err(|e| {
                Stop::failed(code::UNAVAILABLE, format!("task `{}`: {}\n       mend: {}", task.name, e.why, e.mend))
            })?);
        }
        let hosted = match daemon::needed(&workflow) {
            true => {
                let hosted = Hosted::make(&workflow, &folder, options.daemon.as_deref());
                Some(hosted.map_err(|e| Stop::failed(code::UNAVAILABLE, e))?)
            }
            false => None,
        };
        if let Some(hosted) = &hosted {
            view.note(&format!("workflow {} in {}", workflow.name, hosted.how));
        }
        Ok(Self {
            options: options.clone(),
            workflow,
            folder,
            engine,
            version,
            context,
            prepared,
            logs,
            _logs_lock: lock,
            ranks,
            placement: Placement::new(),
            hosted,
            view,
            begin: Instant::now(),
            stop: None,
            heard: Vec::new(),
            kill_at: None,
            killed: false,
            helpers: Vec::new(),
        })
    }

    fn go(mut self) -> u8 {
        let stdin = std::io::stdin();
        let mut front = Some(stdin.as_fd());
        while self.ranks.iter().any(|r| r.end.is_none()) {
            self.start_ready();
            self.wait(&mut front);
            self.look();
            if let (Some(seconds), None) = (self.options.deadline_s, &self.stop) {
                if self.begin.elapsed() > Duration::from_secs(seconds) {
                    let reason =
                        format!("the deadline of {seconds} s has passed; still running: {}", self.still_running());
                    self.begin_stop(Stop { result: "deadline", code: code::DEADLINE, reason });
                }
            }
            self.kill_when_due();
        }
        self.finish()
    }

    fn still_running(&self) -> String {
        let names: Vec<&str> = self.ranks.iter().filter(|r| r.running.is_some()).map(|r| r.name.as_str()).collect();
        names.join(", ")
    }

    /// Starts every rank whose predecessors have ended well.
    fn start_ready(&mut self) {
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
        let task = &self.workflow.tasks[rank.task];
        let endpoint = daemon::endpoint(&self.folder, rank.task);
        let processors = self.placement.take(task).unwrap_or(None);
        let request = Request {
            run: &self.context,
            task,
            rank: rank.rank,
            endpoint: &endpoint,
            processors: processors.as_deref(),
            prepared: &self.prepared[rank.task],
            environment: environment(&self.workflow, rank, self.hosted.is_some(), self.engine.name(), &self.folder.id),
        };
        let line = self.engine.command(&request);
        match rank::start(self.engine.as_ref(), line, processors.as_deref(), task.memory) {
            Ok(running) => {
                let on = processors.map(|p| format!(", processors {}", engine::processor_list(&p))).unwrap_or_default();
                self.view.begun(index, &rank.name, &format!("started, process {}{on}", running.pid()));
                self.ranks[index].running = Some(running);
            }
            Err(end) => self.ended(index, end),
        }
    }

    /// Waits for output, an end, the front, or time.
    fn wait(&mut self, front: &mut Option<BorrowedFd<'_>>) {
        let mut fds: Vec<PollFd<'_>> = Vec::new();
        for running in self.ranks.iter().filter_map(|r| r.running.as_ref()) {
            fds.push(PollFd::new(&running.pidfd, PollFlags::IN));
            if let Some(output) = &running.output {
                fds.push(PollFd::new(output, PollFlags::IN));
            }
        }
        if let Some(front) = front {
            fds.push(PollFd::from_borrowed_fd(*front, PollFlags::IN));
        }
        let patience = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        let ready = poll(&mut fds, Some(&patience));
        let from_front =
            front.is_some() && matches!(ready, Ok(1..)) && fds.last().is_some_and(|f| !f.revents().is_empty());
        drop(fds);
        if from_front {
            self.hear(front);
        }
    }

    /// What the front says: `signal N`, or, by end of file, that it is dead.
    fn hear(&mut self, front: &mut Option<BorrowedFd<'_>>) {
        let Some(fd) = *front else { return };
        let mut buffer = [0u8; 256];
        let n = rustix::io::read(fd, &mut buffer).unwrap_or(0);
        if n == 0 {
            *front = None;
            if self.stop.is_some() {
                // Nobody is left who could ask for more haste.
                self.kill_at = Some(Instant::now());
                return;
            }
            let reason = "the launcher was killed".to_owned();
            self.begin_stop(Stop { result: "interrupted", code: 137, reason });
            return;
        }
        self.heard.extend_from_slice(&buffer[..n]);
        // A pipe may give half a line: only whole ones are taken.
        while let Some(end) = self.heard.iter().position(|b| *b == b'\n') {
            let line: Vec<u8> = self.heard.drain(..=end).collect();
            let word = String::from_utf8_lossy(&line);
            let Some(signal) = word.strip_prefix("signal ").and_then(|n| n.trim().parse::<i32>().ok()) else {
                continue;
            };
            if self.stop.is_some() {
                // Asked twice: no more grace.
                self.kill_at = Some(Instant::now());
                continue;
            }
            let reason = format!("stopped by {}", rank::signal_name(signal));
            self.begin_stop(Stop { result: "interrupted", code: 128 + signal as u8, reason });
        }
    }

    /// Reads outputs and notices ends.
    fn look(&mut self) {
        for index in 0..self.ranks.len() {
            let rank = &mut self.ranks[index];
            let Some(running) = &mut rank.running else { continue };
            // The end is asked for first: what was written before it is then read after it.
            let end = running.ended();
            let view = &self.view;
            let mut more = running.read(&mut rank.log, |line| view.line(index, &rank.name, line));
            if let Some(end) = end {
                for _ in 0..64 {
                    // Not longer: whoever still holds the pipe is none of the task's own any more.
                    if !more || !readable(running) {
                        break;
                    }
                    more = running.read(&mut rank.log, |line| view.line(index, &rank.name, line));
                }
                if let Some(line) = rank.log.finish() {
                    view.line(index, &rank.name, &line);
                }
                rank.wall = running.since.elapsed();
                rank.running = None;
                self.ended(index, end);
            }
        }
    }

    fn ended(&mut self, index: usize, end: End) {
        let rank = &mut self.ranks[index];
        let in_container = self.engine.name() != "process";
        let words = end.words(in_container);
        self.view.ended(index, &rank.name, &words);
        rank.end = Some(end.clone());
        if end.good() || end == End::Skipped || self.stop.is_some() {
            return;
        }
        let mut reason = format!("task `{}` {words}", rank.name);
        let last: Vec<&str> = rank.log.last().collect();
        if !last.is_empty() {
            reason += &format!("; its last lines:\n    {}", last.join("\n    "));
        }
        if in_container && end == End::Exit(125) {
            reason += &format!("\n    mend: {}", self.engine.mend(&last.join("\n")));
        }
        self.begin_stop(Stop::failed(end.code().max(1), reason));
    }

    fn begin_stop(&mut self, stop: Stop) {
        if self.stop.is_some() {
            return;
        }
        let others = self.still_running();
        let first = stop.reason.lines().next().unwrap_or_default().trim_end_matches("; its last lines:").to_owned();
        self.stop = Some(stop);
        self.kill_at = Some(Instant::now() + Duration::from_secs(u64::from(self.workflow.grace_s)));
        if !others.is_empty() {
            self.view.note(&format!("{first}; stopping {others}"));
        }
        for rank in &mut self.ranks {
            match &rank.running {
                Some(running) => self.helpers.extend(running.ask(&self.engine)),
                None => {
                    rank.end.get_or_insert(End::Skipped);
                }
            }
        }
    }

    fn kill_when_due(&mut self) {
        let Some(at) = self.kill_at else { return };
        if self.killed || Instant::now() < at {
            if self.killed && Instant::now() > at + AFTER_KILL {
                // The engine lost sight of it. What is left is killed with the run's last descendants.
                for rank in self.ranks.iter_mut().filter(|r| r.running.is_some()) {
                    rank.running = None;
                    rank.end = Some(End::Signal(9));
                }
            }
            return;
        }
        self.killed = true;
        for running in self.ranks.iter().filter_map(|r| r.running.as_ref()) {
            self.helpers.extend(running.kill(&self.engine));
        }
    }

    /// Reports, takes everything down, and says how it went.
    fn finish(mut self) -> u8 {
        self.view.finish();
        let seconds = self.begin.elapsed().as_secs_f64();
        let keep: Vec<i32> = self.hosted.as_ref().and_then(Hosted::pid).into_iter().collect();
        for helper in self.helpers.drain(..) {
            let _ = helper.join();
        }
        // Orphans of tasks, before the report: nobody changes the counters any more.
        processes::kill_descendants(&keep, Duration::from_secs(5));
        let mut summary = self.summary(seconds);
        if let Some(hosted) = self.hosted.take() {
            match hosted.report(&self.workflow) {
                Ok((ports, regions)) => (summary.ports, summary.regions) = (ports, regions),
                Err(e) => self.view.alarm(&format!("crossdock: no figures of ports and regions: {e}")),
            }
            if let Err(e) = hosted.end() {
                self.view.alarm(&format!("crossdock: the workflow did not end in order: {e}"));
            }
        }
        folder::clean(&self.folder.id, &self.folder.path);
        if self.options.json {
            say(&summary.json());
        } else if summary.reason.is_some() || self.options.show != super::Show::Quiet {
            say(summary.text().trim_end());
        }
        summary.code
    }

    fn summary(&self, seconds: f64) -> Summary {
        let in_container = self.engine.name() != "process";
        let tasks = self.ranks.iter().map(|r| {
            let end = r.end.clone().unwrap_or(End::Skipped);
            TaskLine {
                task: self.workflow.tasks[r.task].name.clone(),
                rank: r.rank,
                ended: end.words(in_container),
                code: end.code(),
                seconds: r.wall.as_secs_f64(),
                log: r.log.path.clone(),
            }
        });
        Summary {
            workflow: self.workflow.name.clone(),
            run: self.folder.id.clone(),
            engine: self.engine.name().to_owned(),
            engine_version: self.version.clone(),
            shared_with_host: self.engine.isolation().shared(),
            result: self.stop.as_ref().map_or("ok", |s| s.result).to_owned(),
            code: self.stop.as_ref().map_or(code::OK, |s| s.code),
            reason: self.stop.as_ref().map(|s| s.reason.clone()),
            seconds,
            tasks: tasks.collect(),
            logs: self.logs.clone(),
            ..Summary::default()
        }
    }
}

/// The front's first line, byte by byte: what comes after it must stay in the pipe for `hear`.
fn first_line() -> Vec<u8> {
    let stdin = std::io::stdin();
    let mut line = Vec::new();
    let mut byte = [0];
    while line.len() < 1 << 20 {
        match rustix::io::read(stdin.as_fd(), &mut byte) {
            Ok(1) if byte[0] != b'\n' => line.push(byte[0]),
            Err(rustix::io::Errno::INTR) => {}
            _ => break,
        }
    }
    line
}

/// A closed pipe must not end the clean-up.
fn say(text: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stdout(), "{text}");
}

fn readable(running: &Running) -> bool {
    let Some(output) = &running.output else { return false };
    let mut fds = [PollFd::new(output, PollFlags::IN)];
    let brief = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
    matches!(poll(&mut fds, Some(&brief)), Ok(1..))
}

/// The engine, and a word on why it and not another.
fn pick(wanted: &str, workflow: &Workflow, folder: &RunFolder, view: &View) -> Result<(Arc<dyn Engine>, String), Stop> {
    let refusals = |trials: &[Trial]| {
        let lines = trials.iter().filter_map(|t| {
            t.result.as_ref().err().map(|e| format!("{}: {}\n       mend: {}", t.engine, e.why, e.mend))
        });
        lines.collect::<Vec<_>>().join("\n  ")
    };
    match engine::choose(wanted, workflow, (&folder.id, &folder.path), &|name| folder.note_engine(name)) {
        Ok((engine, trials)) => {
            let version = trials.last().and_then(|t| t.result.clone().ok()).unwrap_or_default();
            if wanted == "auto" {
                let others = refusals(&trials);
                let why = if others.is_empty() {
                    "the first that is tried".to_owned()
                } else {
                    format!("the first that works; not\n  {others}")
                };
                view.note(&format!("engine {} {version} ({why})", engine.name()));
            }
            Ok((Arc::from(engine), version))
        }
        Err(trials) => {
            Err(Stop::failed(code::UNAVAILABLE, format!("no engine can run this workflow:\n  {}", refusals(&trials))))
        }
    }
}

/// Everything that the task finds in its environment.
fn environment(workflow: &Workflow, rank: &Rank, hosted: bool, engine: &str, run: &str) -> Vec<(String, String)> {
    let task = &workflow.tasks[rank.task];
    let mut all: Vec<(String, String)> = Vec::new();
    if engine != "process" {
        all.extend([("PATH", engine::PATH), ("HOME", "/tmp")].map(|(n, v)| (n.to_owned(), v.to_owned())));
        if let Ok(lang) = std::env::var("LANG") {
            all.push(("LANG".into(), lang));
        }
    }
    for (name, value) in &task.environment {
        all.retain(|(n, _)| n != name);
        all.push((name.clone(), value.clone()));
    }
    if hosted {
        all.push(("CROSSDOCK_SOCKET".into(), format!("{}/endpoint.sock", engine::ENDPOINT_FOLDER)));
    }
    all.push((processes::MARK.into(), run.to_owned()));
    all.push(("CROSSDOCK_WORKFLOW".into(), workflow.name.clone()));
    all.push(("CROSSDOCK_TASK".into(), task.name.clone()));
    all.push(("CROSSDOCK_RANK".into(), rank.rank.to_string()));
    all.push(("CROSSDOCK_RANKS".into(), task.ranks.to_string()));
    all
}

/// The folder for logs, locked: a second run of the same workflow at the same time takes one of its own.
fn logs_folder(options: &RunOptions, workflow: &Workflow, id: &str) -> Result<(PathBuf, File), String> {
    let wanted = match &options.logs {
        Some(folder) => folder.clone(),
        None => Path::new("build").join("logs").join(workflow.name.replace('/', "-")),
    };
    let open = |folder: &Path| -> Result<File, String> {
        let trouble = |e: std::io::Error| {
            format!("cannot write logs to {}: {e}; choose another folder with --logs", folder.display())
        };
        fs::create_dir_all(folder).map_err(trouble)?;
        File::open(folder).map_err(trouble)
    };
    let lock = open(&wanted)?;
    if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
        return Ok((wanted, lock));
    }
    let mut other = wanted.into_os_string();
    other.push(format!("-{id}"));
    let other = PathBuf::from(other);
    let lock = open(&other)?;
    let _ = flock(&lock, FlockOperation::NonBlockingLockExclusive);
    Ok((other, lock))
}

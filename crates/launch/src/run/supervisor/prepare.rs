//! Everything that is made ready before the first task starts; a mistake found here has started nothing.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossdock_os::file::try_lock;

use super::{Rank, Run, Stop};
use crate::engine::{self, Engine, RunContext, Trial};
use crate::file::{self, Workflow};
use crate::run::daemon::{self, Hosted};
use crate::run::files::Managed;
use crate::run::folder::RunFolder;
use crate::run::log::Log;
use crate::run::place::Placement;
use crate::run::state::{Phase, Process, RankState, State, links, now_ms};
use crate::run::view::View;
use crate::run::{Order, RunOptions, code};

impl Run {
    pub(super) fn prepare(order: &Order, text: &str, folder: RunFolder) -> Result<Self, Stop> {
        let options = &order.options;
        let mut workflow = file::parse(&options.file, text).map_err(|e| Stop::failed(code::FILE, e.to_string()))?;
        let wanted = options.engine.as_deref().or(workflow.engine).unwrap_or("auto");
        let system = |e: String| Stop::failed(code::SYSTEM, e);
        let (logs, lock) = logs_folder(options, &workflow, &folder.id).map_err(system)?;
        let limit = if options.log_limit == 0 { 64 << 20 } else { options.log_limit };
        let mut ranks = Vec::new();
        for (index, task) in workflow.tasks.iter().enumerate() {
            for rank in 0..task.processes() {
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
            uid: crossdock_os::child::user(),
            gid: crossdock_os::child::group(),
        };
        // Processors first: a mistake there costs nothing yet.
        let mut trial = Placement::new();
        for rank in &ranks {
            trial.take(&workflow.tasks[rank.task]).map_err(|e| Stop::failed(code::FILE, e))?;
        }
        if !engine.in_container() && !workflow.directories.is_empty() {
            let text = "managed directories (`files:`) need a container engine, which gives each task its own view of them\n       \
                        hint: choose bubblewrap, podman, docker or charliecloud with --engine";
            return Err(Stop::failed(code::UNAVAILABLE, text));
        }
        let files = Managed::make(&workflow, &folder).map_err(system)?;
        for task in &mut workflow.tasks {
            task.mounts.extend(files.mounts(task));
        }
        daemon::make_folders(&folder, workflow.tasks.len()).map_err(system)?;
        let mut prepared = Vec::new();
        for task in &workflow.tasks {
            prepared.push(engine.prepare(&context, task).map_err(|e| {
                Stop::failed(code::UNAVAILABLE, format!("task `{}`: {}\n       hint: {}", task.name, e.why, e.hint))
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
        let state = State {
            id: folder.id.clone(),
            workflow: workflow.name.clone(),
            file: workflow.file.canonicalize().unwrap_or_else(|_| workflow.file.clone()),
            engine: engine.name().to_owned(),
            engine_version: version.clone(),
            since_ms: now_ms(),
            logs: logs.canonicalize().unwrap_or_else(|_| logs.clone()),
            grace_s: workflow.grace_s,
            stopping: None,
            front: Process::living(order.front),
            supervisor: Process::living(std::process::id()),
            ranks: ranks.iter().map(|r| rank_state(&workflow, r)).collect(),
            links: workflow.tasks.iter().flat_map(links).collect(),
        };
        state.write(&folder.path);
        Ok(Self {
            options: options.clone(),
            state,
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
            files,
            view,
            begin: Instant::now(),
            stop: None,
            rates: super::rates::Rates::default(),
            heard: Vec::new(),
            kill_at: None,
            killed: false,
            helpers: Vec::new(),
        })
    }
}

fn rank_state(workflow: &Workflow, rank: &Rank) -> RankState {
    RankState {
        name: rank.name.clone(),
        task: workflow.tasks[rank.task].name.clone(),
        rank: rank.rank,
        log: rank.log.path.canonicalize().unwrap_or_else(|_| rank.log.path.clone()),
        phase: Phase::Waits,
    }
}

/// The engine, and a word on why it and not another.
fn pick(wanted: &str, workflow: &Workflow, folder: &RunFolder, view: &View) -> Result<(Arc<dyn Engine>, String), Stop> {
    let refusals = |trials: &[Trial]| {
        let lines = trials.iter().filter_map(|t| {
            t.result.as_ref().err().map(|e| format!("{}: {}\n       hint: {}", t.engine, e.why, e.hint))
        });
        lines.collect::<Vec<_>>().join("\n  ")
    };
    match engine::choose(wanted, workflow, (&folder.id, &folder.path), &|name| folder.note_engine(name)) {
        Ok(engine::Choice { engine, trials }) => {
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

/// The folder for logs, locked: a second run of the same workflow at the same time takes one of its own.
fn logs_folder(options: &RunOptions, workflow: &Workflow, id: &str) -> Result<(PathBuf, File), String> {
    let wanted = match &options.logs {
        Some(folder) => folder.clone(),
        None => Path::new("crossdock-logs").join(workflow.name.replace('/', "-")),
    };
    let open = |folder: &Path| -> Result<File, String> {
        let trouble = |e: std::io::Error| {
            format!("cannot write logs to {}: {e}; choose another folder with --logs", folder.display())
        };
        fs::create_dir_all(folder).map_err(trouble)?;
        File::open(folder).map_err(trouble)
    };
    let lock = open(&wanted)?;
    if try_lock(&lock).unwrap_or(false) {
        return Ok((wanted, lock));
    }
    let mut other = wanted.into_os_string();
    other.push(format!("-{id}"));
    let other = PathBuf::from(other);
    let lock = open(&other)?;
    let _ = try_lock(&lock);
    Ok((other, lock))
}

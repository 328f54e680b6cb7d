//! The part of a run that runs on one host: an engine, a daemon, managed directories, and the tasks of this host.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::cpu_placement::CpuPlacement;
use super::daemon::{self, DaemonChoice, HostedWorkflow};
use super::files::ManagedDirectories;
use super::folder::RunFolder;
use super::host_exchange::OtherHosts;
use super::rank::{self, End, Running};
use super::ranked::JobHosts;
use super::summary::Figures;
use super::{code, environment, ranked};
use crate::engine::{self, Engine, EngineTrial, Prepared, Request, RunContext};
use crate::file::{Count, Task, Workflow};

/// Why a part could not be prepared: the exit code, and a message.
#[derive(Clone, Debug)]
pub struct PartRefusal {
    /// The run's exit code.
    pub code: u8,
    /// The problem, as a sentence.
    pub reason: String,
    /// What the user can do about the problem; empty if there is no hint.
    pub hint: String,
}

/// Prints a hint as the last line of a message. An empty hint prints nothing.
pub struct Hint<'a>(pub &'a str);

impl std::fmt::Display for Hint<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, "\n       hint: {}", self.0) }
    }
}

impl PartRefusal {
    /// Makes a refusal without a hint.
    pub fn new(code: u8, reason: impl Into<String>) -> Self {
        Self { code, reason: reason.into(), hint: String::new() }
    }

    /// Makes a refusal because the engine cannot run this task.
    fn of_task(task: &str, unavailable: engine::Unavailable) -> Self {
        let engine::Unavailable { why, hint } = unavailable;
        Self { hint, ..Self::new(code::UNAVAILABLE, format!("task `{task}`: {why}")) }
    }
}

/// How a part reaches the daemon and the other hosts.
#[derive(Clone, Copy)]
pub struct PartConnections<'a> {
    /// The daemon that the run uses on this host; `None` if the workflow needs no daemon.
    pub which: Option<&'a DaemonChoice>,
    /// The hosts with which files are exchanged; `None` if there are none.
    pub neighbours: Option<&'a OtherHosts>,
}

/// The part of a run on one host.
pub struct Part {
    /// The part of the workflow that runs on this host.
    pub workflow: Workflow,
    /// The run's folder on this host.
    pub folder: RunFolder,
    /// The engine of the tasks on this host.
    pub engine: Arc<dyn Engine>,
    /// The version of the engine.
    pub version: String,
    /// The run's daemon on this host; `None` if the workflow needs no daemon.
    pub hosted: Option<HostedWorkflow>,
    /// The managed directories on this host.
    pub files: ManagedDirectories,
    context: RunContext,
    prepared: Vec<Prepared>,
    placement: CpuPlacement,
    /// For each task, how many of its ranks on this host have not ended, and whether all its ranks that have ended did
    /// so without an error.
    left: Vec<(u32, bool)>,
    /// For each task, its ranks on this host in the order of their first starts.
    begun: Vec<Vec<u32>>,
}

/// A rank that was started, with its process and command.
pub struct StartedRank {
    /// The process of the rank.
    pub running: Running,
    /// The rank's process and its processors, in words for the user.
    pub words: String,
    /// A note about the task for the user.
    pub note: Option<String>,
}

impl Part {
    /// Prepares everything before the first task starts, so that a mistake is found before any task runs. `counts` says
    /// for each task how many of its processes and ranks are on this host. Notes for the user go to `note`.
    pub fn prepare(
        mut workflow: Workflow,
        counts: &[Count],
        wanted: &str,
        folder: RunFolder,
        reach: PartConnections<'_>,
        note: &dyn Fn(&str),
    ) -> Result<Self, PartRefusal> {
        let system = |e: String| PartRefusal::new(code::SYSTEM, e);
        let (engine, version) = pick(wanted, &workflow, &folder, note)?;
        if let Some(shared) = engine.isolation().shared().filter(|_| !workflow.tasks.is_empty()) {
            note(&format!("note: with the engine {} tasks share the host's {shared}", engine.name()));
        }
        let context = RunContext {
            id: folder.id.clone(),
            folder: folder.path.clone(),
            uid: crossdock_os::child::user(),
            gid: crossdock_os::child::group(),
        };
        // CPUs are chosen here on trial, so that a mistake in the workflow file's lists of CPUs is found before any
        // process is started.
        let mut trial = CpuPlacement::new();
        for (task, count) in workflow.tasks.iter().zip(counts) {
            for _ in 0..count.processes {
                trial.take(task).map_err(|e| PartRefusal::new(code::FILE, e))?;
            }
        }
        if !engine.in_container() && !workflow.directories.is_empty() {
            let why =
                "managed directories (`files:`) need a container engine, which gives each task its own view of them";
            let hint = "choose bubblewrap, podman, docker or charliecloud with --engine".to_owned();
            return Err(PartRefusal { hint, ..PartRefusal::new(code::UNAVAILABLE, why) });
        }
        let files = ManagedDirectories::make(&workflow, counts, &folder, reach.neighbours).map_err(system)?;
        for task in &mut workflow.tasks {
            task.mounts.extend(files.mounts(task, 0));
        }
        daemon::make_folders(&folder, workflow.tasks.len()).map_err(system)?;
        for (index, task) in workflow.tasks.iter().enumerate().filter(|(_, task)| task.is_over_hosts()) {
            // The run does not itself start the ranks of an MPI job on hosts other than the launcher's. So the files in
            // the endpoint folders of these ranks are written now, and not when a rank starts.
            let endpoint = daemon::endpoint(&folder, index);
            link_folders(task, &endpoint).map_err(system)?;
            files.door(task, &endpoint).map_err(|e| PartRefusal::of_task(&task.name, e))?;
        }
        let mut prepared = Vec::new();
        for task in &workflow.tasks {
            prepared.push(engine.prepare(&context, task).map_err(|e| PartRefusal::of_task(&task.name, e))?);
        }
        let hosted = match reach.which {
            Some(which) => {
                let hosted = HostedWorkflow::make(&workflow, &folder, which);
                Some(hosted.map_err(|e| PartRefusal::new(code::UNAVAILABLE, e))?)
            }
            None => None,
        };
        if let Some(hosted) = &hosted {
            note(&format!("workflow {} in {}", workflow.name, hosted.how));
        }
        Ok(Self {
            left: counts.iter().map(|count| (count.processes, true)).collect(),
            begun: vec![Vec::new(); counts.len()],
            placement: CpuPlacement::new(),
            workflow,
            folder,
            engine,
            version,
            hosted,
            files,
            context,
            prepared,
        })
    }

    /// The MPI tasks with ranks on several hosts, each with the folder of its endpoint on this host.
    pub fn endpoints_of_jobs(&self) -> Vec<(String, PathBuf)> {
        let tasks = self.workflow.tasks.iter().enumerate().filter(|(_, task)| task.is_over_hosts());
        tasks.map(|(index, task)| (task.name.clone(), daemon::endpoint(&self.folder, index))).collect()
    }

    /// Starts a rank of a task of this host. `job` has the hosts of an MPI task with ranks on several hosts.
    pub fn start(&mut self, name: &str, rank: u32, job: Option<&JobHosts>) -> Result<StartedRank, End> {
        let unavailable = |e: engine::Unavailable| End::NotStarted(code::UNAVAILABLE, format!("{}; {}", e.why, e.hint));
        let Some(index) = self.workflow.tasks.iter().position(|task| task.name == name) else {
            return Err(End::NotStarted(code::SYSTEM, format!("there is no task `{name}` on this host")));
        };
        let mut task = self.workflow.tasks[index].clone();
        let begun = &mut self.begun[index];
        let process = begun.iter().position(|begun| *begun == rank).unwrap_or(begun.len());
        if process == begun.len() {
            begun.push(rank);
        }
        for mount in self.files.mounts(&task, process) {
            // `task.mounts` has the folders that the first process of the task sees. The process that is started now
            // may see a managed directory through another folder. In this case, the other folder replaces the one in
            // `task.mounts`.
            task.mounts.iter_mut().filter(|of_task| of_task.task == mount.task).for_each(|of_task| {
                of_task.host.clone_from(&mount.host);
            });
        }
        let endpoint = daemon::endpoint(&self.folder, index);
        let processors = self.placement.take(&task).unwrap_or(None);
        let mut environment =
            environment::of(&self.workflow.name, &task, rank, self.hosted.as_ref(), &*self.engine, &self.folder.id);
        let way = self.files.door(&task, &endpoint).map_err(unavailable)?;
        environment.retain(|(name, _)| way.environment.iter().all(|(other, _)| other != name));
        environment.extend(way.environment);
        task.command.splice(0..0, way.before);
        let note = way.note.filter(|_| rank == 0).map(|note| format!("note: task `{}` {note}", task.name));
        let request = Request {
            run: &self.context,
            task: &task,
            rank,
            endpoint: &endpoint,
            processors: processors.as_deref(),
            prepared: &self.prepared[index],
            environment,
        };
        let line = match task.mpi {
            None => self.engine.command(&request),
            Some(_) => ranked::command(&request, &*self.engine, job).map_err(unavailable)?,
        };
        let running = rank::start(line, processors.as_deref(), task.memory, &*self.engine)?;
        self.files.started(&task.name);
        let on = processors.map(|p| format!(", processors {}", engine::processor_list(&p))).unwrap_or_default();
        let words = format!("process {}{on}", running.pid());
        Ok(StartedRank { running, words, note })
    }

    /// The processes that must live until the end of the part: the daemon, and those that remove the mounts of views if
    /// this process is killed.
    pub fn helpers(&self) -> Vec<i32> {
        self.hosted.as_ref().and_then(HostedWorkflow::pid).into_iter().chain(self.files.guards()).collect()
    }

    /// Notes that an MPI task with ranks on this host has begun. The task's launcher may be on another host.
    pub fn began(&self, task: &str) {
        self.files.started(task);
    }

    /// Notes that one rank of a task on this host has ended, or that an MPI task with ranks on this host has ended.
    pub fn ended(&mut self, name: &str, well: bool) {
        let Some(index) = self.workflow.tasks.iter().position(|task| task.name == name) else { return };
        let left = &mut self.left[index];
        *left = (left.0.saturating_sub(1), left.1 && well);
        if let (0, well) = *left {
            self.files.ended(name, well);
        }
    }

    /// Collects the final figures of ports, series, items, regions and directories. Then ends the exchange of files
    /// with other hosts, and stops the daemon. Problems go to `alarm`.
    pub fn end(&mut self, alarm: &dyn Fn(&str)) -> Figures {
        let files = self.files.report();
        // The daemon may be the keeper of the catalog, from which the exchange must remove its entries. So the exchange
        // ends before the daemon.
        self.files.leave();
        let mut figures = Figures::default();
        if let Some(mut hosted) = self.hosted.take() {
            let report = match hosted.dead() {
                true => Err("the run's daemon has died".to_owned()),
                false => hosted.report(&self.workflow),
            };
            match report {
                Ok(of_tasks) => figures = of_tasks,
                Err(e) => alarm(&format!("crossdock: no figures of what passed between the tasks: {e}")),
            }
            if let Err(e) = hosted.end() {
                alarm(&format!("crossdock: the workflow did not end in order: {e}"));
            }
        }
        // For each view there is a process that removes the view's mount if this process is killed. The cleanup of the
        // run kills these processes, too. So the mounts are removed before the cleanup.
        self.files.unmount();
        figures.files = files;
        figures
    }
}

/// Makes the links in an endpoint folder that lead to the task's managed directories on this host.
fn link_folders(task: &Task, endpoint: &Path) -> Result<(), String> {
    let linked = task.mounts.iter().filter_map(|mount| Some((mount, endpoint.join(mount.link.as_ref()?))));
    for (mount, link) in linked {
        symlink(&mount.host, &link).map_err(|e| format!("cannot make the link {}: {e}", link.display()))?;
    }
    Ok(())
}

/// Chooses the engine, and says why it was chosen.
fn pick(
    wanted: &str,
    workflow: &Workflow,
    folder: &RunFolder,
    note: &dyn Fn(&str),
) -> Result<(Arc<dyn Engine>, String), PartRefusal> {
    if workflow.tasks.is_empty() {
        // No task runs on this host, so the run needs no engine here.
        return Ok((Arc::from(engine::no_container()), String::new()));
    }
    let refusals = |trials: &[EngineTrial]| {
        let lines = trials
            .iter()
            .filter_map(|t| t.result.as_ref().err().map(|e| format!("{}: {}{}", t.engine, e.why, Hint(&e.hint))));
        lines.collect::<Vec<_>>().join("\n  ")
    };
    match engine::choose(wanted, workflow, (&folder.id, &folder.path), &|names| folder.note_engines(names)) {
        Ok(engine::ChosenEngine { engine, trials }) => {
            let version = trials.last().and_then(|t| t.result.clone().ok()).unwrap_or_default();
            if wanted == "auto" {
                let others = refusals(&trials);
                let why = if others.is_empty() {
                    "the first that is tried".to_owned()
                } else {
                    format!("the first that works; not\n  {others}")
                };
                note(&format!("engine {} {version} ({why})", engine.name()));
            }
            Ok((Arc::from(engine), version))
        }
        Err(trials) => Err(PartRefusal::new(
            code::UNAVAILABLE,
            format!("no engine can run this workflow:\n  {}", refusals(&trials)),
        )),
    }
}

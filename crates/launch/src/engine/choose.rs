//! Tries whether engines work: for `--engine auto`, which takes the first engine that works, and for the report of
//! `crossdock doctor`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::apptainer::Apptainer;
use super::bubblewrap::Bubblewrap;
use super::charliecloud::Charliecloud;
use super::docker::Docker;
use super::podman::Podman;
use super::process::Process;
use super::{Cleanup, CommandLine, Engine, Request, RunContext, Unavailable, tool};
use crate::file::{Task, Workflow};
use crate::run::folder::{self, RunFolder};

/// The result of trying an engine.
#[derive(Clone, Debug)]
pub struct EngineTrial {
    /// The name of the engine that was tried.
    pub engine: &'static str,
    /// The engine's version, or why it cannot be used.
    pub result: Result<String, Unavailable>,
    /// How long a container that does nothing took to start and end.
    pub start: Option<Duration>,
}

impl EngineTrial {
    fn refused(engine: &dyn Engine, why: Unavailable) -> Self {
        Self { engine: engine.name(), result: Err(why), start: None }
    }
}

/// All engines in the order of `auto`: engines that isolate fully and start fastest come first, and the engine without
/// containers comes last.
pub fn all() -> Vec<Box<dyn Engine>> {
    vec![
        Box::new(Bubblewrap),
        Box::new(Podman::default()),
        Box::new(Docker),
        Box::new(Charliecloud),
        Box::new(Apptainer),
        Box::new(Process),
    ]
}

/// Gives the engine that starts tasks without containers.
pub fn no_container() -> Box<dyn Engine> {
    Box::new(Process)
}

/// Finds the engine with this name.
pub fn by_name(name: &str) -> Option<Box<dyn Engine>> {
    all().into_iter().find(|e| e.name() == name)
}

/// Starts `/bin/true` with the host's system folders, because only a start shows whether an engine works on this
/// machine. The trial has a run's folder of its own, which is private to the user. If this process is killed, the next
/// run removes what the trial left.
pub fn trial(engine: &dyn Engine) -> EngineTrial {
    let version = match engine.version() {
        Ok(version) => version,
        Err(why) => return EngineTrial::refused(engine, why),
    };
    let id = folder::fresh_id("trial");
    let tried = RunFolder::make(&id).and_then(|folder| {
        let tried = folder.note_engines(&[engine.name()]).map(|()| {
            let (trial, may_be_left) = trial_at(engine, version, &id, &folder.path.join("trial"));
            if !may_be_left {
                // If this write fails, the cleanup asks the engine again.
                let _ = folder.note_engines(&[]);
            }
            trial
        });
        folder::clean(&id, &folder.path);
        tried
    });
    tried.unwrap_or_else(|why| {
        EngineTrial::refused(engine, Unavailable::new(why, "set CROSSDOCK_RUNS to a folder of your own with space"))
    })
}

/// Makes a trial with the run id `id` in `folder`, which is removed afterwards. Also tells whether the engine may have
/// left something.
fn trial_at(engine: &dyn Engine, version: String, id: &str, folder: &Path) -> (EngineTrial, bool) {
    let started = start(engine, id, folder);
    let may_be_left = match engine.clean(id) {
        Cleanup::NothingLeft => false,
        // An engine that has refused both the start and the question has made nothing.
        Cleanup::Refused => started.is_ok(),
        Cleanup::MayBeLeft => true,
    };
    let _ = std::fs::remove_dir_all(folder);
    let trial = match started {
        Ok(took) => EngineTrial { engine: engine.name(), result: Ok(version), start: Some(took) },
        Err(why) => EngineTrial::refused(engine, why),
    };
    (trial, may_be_left)
}

fn start(engine: &dyn Engine, id: &str, folder: &Path) -> Result<Duration, Unavailable> {
    let endpoint = folder.join("endpoint");
    std::fs::create_dir_all(&endpoint).map_err(|e| {
        Unavailable::new(format!("cannot make {}: {e}", endpoint.display()), "make room in the folder of runs")
    })?;
    let run = RunContext {
        id: id.to_owned(),
        folder: folder.to_owned(),
        uid: crossdock_os::child::user(),
        gid: crossdock_os::child::group(),
    };
    let task = Task::example(vec!["/bin/true".into()]);
    let prepared = engine.prepare(&run, &task)?;
    let environment = vec![("PATH".to_owned(), super::PATH.to_owned())];
    let request = Request {
        run: &run,
        task: &task,
        rank: 0,
        endpoint: &endpoint,
        processors: None,
        prepared: &prepared,
        environment,
    };
    let begin = Instant::now();
    let outcome = tool::finish(command(&engine.command(&request)), Duration::from_secs(20));
    if outcome.good {
        return Ok(begin.elapsed());
    }
    let words = format!("a container cannot be started: {}", outcome.reason());
    Err(Unavailable::new(words, engine.hint(&outcome.words)))
}

/// Makes a [`Command`] from the command line. The command is not started yet, and has no redirections.
pub(crate) fn command(line: &CommandLine) -> Command {
    let mut command = Command::new(&line.words[0]);
    if line.clean_environment {
        // The engine's own program is searched for on the launcher's PATH, and never on the task's PATH.
        command = Command::new(on_path(&line.words[0]));
    }
    command.args(&line.words[1..]);
    if line.clean_environment {
        command.env_clear();
        if let Some(path) = std::env::var_os("PATH") {
            command.env("PATH", path);
        }
    }
    command.envs(line.environment.iter().map(|(n, v)| (n, v)));
    if let Some(folder) = &line.workdir {
        command.current_dir(folder);
    }
    command
}

/// The engine that was chosen for a run.
pub struct ChosenEngine {
    /// The engine that was chosen.
    pub engine: Box<dyn Engine>,
    /// All engines that were tried; the chosen engine is the last.
    pub trials: Vec<EngineTrial>,
}

/// Chooses the engine for a workflow: the engine that was asked for, or the first engine that works and accepts all
/// tasks.
///
/// Returns the engine and, for `auto`, why each earlier engine was not chosen. If the user named an engine, this
/// function only searches for the engine's program; if the engine does not work, the start of its first container fails
/// with the reason. Trials are made in the run's folder with the run's id. Before an engine is tried, `note` gets its name
/// and the names of the earlier engines whose trials may have left something, so that a cleanup after the run finds it.
pub fn choose(
    wanted: &str,
    workflow: &Workflow,
    (id, folder): (&str, &Path),
    note: &dyn Fn(&[&str]) -> Result<(), String>,
) -> Result<ChosenEngine, Vec<EngineTrial>> {
    let (mut trials, mut to_clean) = (Vec::new(), Vec::new());
    let candidates = if wanted == "auto" { all() } else { by_name(wanted).into_iter().collect() };
    for engine in candidates {
        let name = engine.name();
        let tried = version_for(engine.as_ref(), workflow).and_then(|version| {
            note(&[&to_clean[..], &[name]].concat())
                .map_err(|why| Unavailable::new(why, "make room in the folder of runs"))?;
            Ok(version)
        });
        let trial = match tried {
            Err(why) => EngineTrial::refused(engine.as_ref(), why),
            Ok(version) if wanted != "auto" => EngineTrial { engine: name, result: Ok(version), start: None },
            Ok(version) => {
                let (trial, may_be_left) = trial_at(engine.as_ref(), version, id, &folder.join("trial"));
                to_clean.extend(may_be_left.then_some(name));
                trial
            }
        };
        let works = trial.result.is_ok();
        trials.push(trial);
        if works {
            return Ok(ChosenEngine { engine, trials });
        }
    }
    // If this write fails, the cleanup also asks an engine that has left nothing.
    let _ = note(&to_clean);
    Err(trials)
}

/// Gives the engine's version if the engine accepts all tasks of the workflow.
fn version_for(engine: &dyn Engine, workflow: &Workflow) -> Result<String, Unavailable> {
    for task in &workflow.tasks {
        engine.accepts(task).map_err(|e| Unavailable::new(format!("task `{}`: {}", task.name, e.why), e.hint))?;
    }
    engine.version()
}

/// Finds a program on this process's PATH. Gives the bare name of the program if the PATH does not have it.
fn on_path(program: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places = std::env::split_paths(&path).map(|folder| folder.join(program));
    places.find(|p| !program.contains('/') && p.is_file()).unwrap_or_else(|| program.into())
}

//! Trying engines out: which one `auto` takes, and what `doctor` prints.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::apptainer::Apptainer;
use super::bubblewrap::Bubblewrap;
use super::charliecloud::Charliecloud;
use super::docker::Docker;
use super::podman::Podman;
use super::process::Process;
use super::{CommandLine, Engine, Request, RunContext, Unavailable, tool};
use crate::file::{Task, Workflow};

/// What came of trying an engine.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The engine.
    pub engine: &'static str,
    /// Its version, or why it cannot be used.
    pub result: Result<String, Unavailable>,
    /// How long a container took that does nothing.
    pub start: Option<Duration>,
}

/// All engines, in the order of `auto`: those that isolate fully and start fastest first, no container last.
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

/// One engine.
pub fn by_name(name: &str) -> Option<Box<dyn Engine>> {
    all().into_iter().find(|e| e.name() == name)
}

/// Starts `/bin/true` with the host's system folders; only that tells whether an engine works here.
pub fn trial(engine: &dyn Engine) -> Trial {
    let name = engine.name();
    let version = match engine.version() {
        Ok(version) => version,
        Err(e) => return Trial { engine: name, result: Err(e), start: None },
    };
    match start(engine) {
        Ok(took) => Trial { engine: name, result: Ok(version), start: Some(took) },
        Err(e) => Trial { engine: name, result: Err(e), start: None },
    }
}

static TRIALS: AtomicU32 = AtomicU32::new(0);

fn start(engine: &dyn Engine) -> Result<Duration, Unavailable> {
    let id = format!("trial{}-{}", std::process::id(), TRIALS.fetch_add(1, Ordering::Relaxed));
    let folder = std::env::temp_dir().join(format!("crossdock-{id}"));
    let result = start_in(engine, &id, &folder);
    engine.clean(&id);
    let _ = std::fs::remove_dir_all(&folder);
    result
}

fn start_in(engine: &dyn Engine, id: &str, folder: &Path) -> Result<Duration, Unavailable> {
    let endpoint = folder.join("endpoint");
    std::fs::create_dir_all(&endpoint).map_err(|e| {
        Unavailable::new(format!("cannot make {}: {e}", endpoint.display()), "set TMPDIR to a folder with space")
    })?;
    let run = RunContext {
        id: id.to_owned(),
        folder: folder.to_owned(),
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
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
    let words = format!("a container cannot be started: {}", tool::last_line(&outcome.words));
    Err(Unavailable::new(words, engine.mend(&outcome.words)))
}

/// The command line as something to start, without redirections.
pub(crate) fn command(line: &CommandLine) -> Command {
    let mut command = Command::new(&line.words[0]);
    command.args(&line.words[1..]);
    if line.clean_environment {
        command.env_clear();
        // The engine's own program is looked for on the launcher's PATH.
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

/// The engine for a workflow: the one that was asked for, or the first that works and takes all tasks.
///
/// Gives the engine, and for `auto` why each one before it was not taken.
pub fn choose(wanted: &str, workflow: &Workflow) -> Result<(Box<dyn Engine>, Vec<Trial>), Vec<Trial>> {
    let mut refused = Vec::new();
    let candidates = if wanted == "auto" { all() } else { by_name(wanted).into_iter().collect() };
    for engine in candidates {
        let unfit = workflow.tasks.iter().find_map(|t| engine.accepts(t).err().map(|e| (t, e)));
        let trial = match unfit {
            Some((task, e)) => {
                let why = format!("task `{}`: {}", task.name, e.why);
                Trial { engine: engine.name(), result: Err(Unavailable::new(why, e.mend)), start: None }
            }
            None => trial(engine.as_ref()),
        };
        let works = trial.result.is_ok();
        refused.push(trial);
        if works {
            return Ok((engine, refused));
        }
    }
    Err(refused)
}

//! Runs of `crossdock run`: where their folders are, which of them are alive, and how another program of the same user
//! takes part in a run.
//!
//! Each run has a private folder. While a process holds the lock in this folder, the run is alive. The file `attach` in
//! the folder names the daemon's socket and the workflow.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crossdock_layout::Status;
use crossdock_os::{child, file::try_lock};

use crate::{Error, Result};

/// The name of a file in a run's folder. The file has two lines: the path of the daemon's socket, and the name of the
/// workflow.
const ATTACH: &str = "attach";
/// The first character of the name of a run's folder as long as the run does not hold the lock in the folder yet.
pub const MAKING: char = '.';

/// A run that has not ended: a process still holds the lock in its folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LivingRun {
    /// The id of the run, as `crossdock ps` prints it.
    pub id: String,
    /// The run's own folder in [`base`], with its lock.
    pub folder: PathBuf,
    /// The daemon's socket and the workflow's name. `None` until they exist, and for a run that needs no daemon.
    pub attach: Option<(PathBuf, String)>,
}

/// The folder of the user's runs: `$CROSSDOCK_RUNS`, else `$XDG_RUNTIME_DIR/crossdock/runs` if this is a folder of the
/// user, else `crossdock-UID/runs` in `$TMPDIR` or `/tmp`.
#[must_use]
pub fn base() -> PathBuf {
    if let Some(folder) = std::env::var_os("CROSSDOCK_RUNS").map(PathBuf::from).filter(|f| f.is_absolute()) {
        return folder.join("crossdock").join("runs");
    }
    let uid = child::user();
    match crossdock_os::file::runtime_folder() {
        Some(folder) => folder.join("crossdock").join("runs"),
        None => std::env::temp_dir().join(format!("crossdock-{uid}")).join("runs"),
    }
}

/// All living runs of the user, sorted by id.
#[must_use]
pub fn living() -> Vec<LivingRun> {
    living_in(&base())
}

fn living_in(base: &Path) -> Vec<LivingRun> {
    // If another user made this folder, its contents cannot be trusted.
    if !fs::symlink_metadata(base).is_ok_and(|m| m.is_dir() && m.uid() == child::user()) {
        return Vec::new();
    }
    let entries = fs::read_dir(base).into_iter().flatten().flatten();
    let held = |path: &Path| File::open(path.join("lock")).is_ok_and(|lock| !try_lock(&lock).unwrap_or(false));
    let mut found: Vec<LivingRun> = entries
        .filter_map(|e| Some((e.file_name().into_string().ok()?, e.path())))
        .filter(|(id, folder)| !id.starts_with(MAKING) && held(folder))
        .map(|(id, folder)| LivingRun { id, attach: attach(&folder), folder })
        .collect();
    found.sort_by(|a, b| a.id.cmp(&b.id));
    found
}

fn attach(folder: &Path) -> Option<(PathBuf, String)> {
    let text = fs::read_to_string(folder.join(ATTACH)).ok()?;
    let (socket, workflow) = text.strip_suffix('\n')?.split_once('\n')?;
    Some((PathBuf::from(socket), workflow.to_owned()))
}

/// Writes into a run's folder how a program takes part in the run. The launcher calls it.
///
/// # Errors
/// The error of the file system if the file cannot be written.
pub fn note_attach(folder: &Path, socket: &Path, workflow: &str) -> std::io::Result<()> {
    let new = folder.join("attach.new");
    fs::write(&new, format!("{}\n{workflow}\n", socket.display()))?;
    fs::rename(new, folder.join(ATTACH))
}

/// Finds a living run by its id, by the beginning of its id, or by the name of its workflow.
///
/// # Errors
/// `NOT_FOUND` if no living run has this name (the text lists the living runs). `INVALID` if several runs have this
/// name.
pub fn find(name: &str) -> Result<LivingRun> {
    choose(name, living())
}

fn choose(name: &str, runs: Vec<LivingRun>) -> Result<LivingRun> {
    let ids = |runs: &[LivingRun]| runs.iter().map(|r| r.id.as_str()).collect::<Vec<_>>().join(", ");
    let of_workflow = |run: &LivingRun| run.attach.as_ref().is_some_and(|(_, workflow)| workflow == name);
    if let Some(exact) = runs.iter().find(|r| r.id == name) {
        return Ok(exact.clone());
    }
    let mut called: Vec<LivingRun> = runs.iter().filter(|r| of_workflow(r)).cloned().collect();
    if called.is_empty() {
        called = runs.iter().filter(|r| !name.is_empty() && r.id.starts_with(name)).cloned().collect();
    }
    match &called[..] {
        [one] => Ok(one.clone()),
        [] if runs.is_empty() => {
            let text = format!("there is no run '{name}', nor any other of yours; `crossdock run FILE` starts one");
            Err(Error::new(Status::NotFound, text))
        }
        [] => {
            let text = format!("there is no run '{name}'; there are: {} (`crossdock ps`)", ids(&runs));
            Err(Error::new(Status::NotFound, text))
        }
        several => {
            let text = format!("'{name}' may be any of several runs: {}; name one of them", ids(several));
            Err(Error::new(Status::Invalid, text))
        }
    }
}

impl LivingRun {
    /// Gives the daemon's socket and the workflow's name, by which a program takes part in this run.
    ///
    /// # Errors
    /// `NOT_YET` while the run starts, and always for a run whose tasks need no daemon.
    pub fn place(&self) -> Result<(PathBuf, String)> {
        self.attach.clone().ok_or_else(|| {
            let text = format!(
                "run '{}' has no daemon (yet): either it has just begun, or its workflow file names no region, port, \
                 series or item",
                self.id
            );
            Error::new(Status::NotYet, text)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(id: &str, workflow: &str) -> LivingRun {
        let attach = Some((PathBuf::from("/s"), workflow.to_owned()));
        LivingRun { id: id.into(), folder: PathBuf::from("/r").join(id), attach }
    }

    #[test]
    fn a_run_is_found_by_its_id_by_its_beginning_and_by_its_workflow() {
        let runs = || vec![run("heat-11", "heat"), run("waves-22", "waves"), run("waves-33", "waves")];
        let id = |name| choose(name, runs()).map(|r| r.id);
        assert_eq!(id("heat"), Ok("heat-11".into()));
        assert_eq!(id("waves-22"), Ok("waves-22".into()));
        assert_eq!(id("waves-3"), Ok("waves-33".into()));
        assert!(id("waves").unwrap_err().to_string().contains("waves-22, waves-33"));
        assert!(id("x").unwrap_err().to_string().contains("there are: heat-11"));
        assert!(choose("x", Vec::new()).unwrap_err().to_string().contains("nor any other"));
        assert!(id("").is_err());
    }

    #[test]
    fn a_run_without_its_lock_held_does_not_live() {
        let base = std::env::temp_dir().join(format!("crossdock-runs-test-{}", std::process::id()));
        fs::create_dir_all(base.join("dead-1")).unwrap();
        fs::write(base.join("dead-1/lock"), "").unwrap();
        note_attach(&base.join("dead-1"), Path::new("/s"), "dead").unwrap();
        assert_eq!(living_in(&base), []);
        let lock = File::open(base.join("dead-1/lock")).unwrap();
        assert!(try_lock(&lock).unwrap());
        let living = living_in(&base);
        assert_eq!(living[0].attach, Some((PathBuf::from("/s"), "dead".to_owned())));
        drop(lock);
        assert_eq!(living_in(&base), []);
        fs::remove_dir_all(&base).unwrap();
    }
}

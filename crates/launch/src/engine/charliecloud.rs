//! The engine Charliecloud. A task has user and mount namespaces of its own, and shares the host's IPC, process ids and
//! network.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{
    CommandLine, ENDPOINT_FOLDER, Engine, Isolation, Prepared, Request, RunContext, Skeleton, Unavailable, tool,
};
use crate::file::{Files, Task, User};
use crate::root::Root;

pub struct Charliecloud;

impl Engine for Charliecloud {
    fn name(&self) -> &'static str {
        "charliecloud"
    }

    fn isolation(&self) -> Isolation {
        Isolation { files: true, ..Isolation::NONE }
    }

    fn version(&self) -> Result<String, Unavailable> {
        // Old versions of ch-run need the variable USER even for printing their version, so the variable is set.
        let outcome = tool::run(&["env", "USER=me", "ch-run", "--version"], Duration::from_secs(5));
        if !outcome.good {
            let hint = "install Charliecloud (Debian: `apt-get install charliecloud`)";
            return Err(Unavailable::new(outcome.reason(), hint));
        }
        let version = format!("{}{}", outcome.output, outcome.words);
        Ok(if version.is_empty() { "unknown version".into() } else { version })
    }

    fn accepts(&self, task: &Task) -> Result<(), Unavailable> {
        match task.files {
            Files::Image(_) => Err(Unavailable::new(
                "charliecloud runs root folders, not images",
                "unpack the image with `ch-image` or `ch-convert` and give it as `root:`",
            )),
            _ => Ok(()),
        }
    }

    fn prepare(&self, run: &RunContext, task: &Task) -> Result<Prepared, Unavailable> {
        let place = own_run(run, task).join("crossdock");
        std::fs::create_dir_all(&place).map_err(|e| {
            Unavailable::new(
                format!("cannot make the folder {}: {e}", place.display()),
                "check space and permissions there",
            )
        })?;
        if let Files::Root(root) = &task.files {
            // ch-run mounts its image read-only, but the folders that it binds stay writable. So the task's root folder
            // itself is used as the image if it has all mount points already. In that case no skeleton (a small copy of
            // the root's top level) is made.
            let points = task.mounts.iter().map(|m| m.task.as_str()).chain([ENDPOINT_FOLDER]);
            let inside = Root(Some(root.as_path()));
            let has = |point: &str| {
                let real = inside.real(Path::new(point));
                real.is_ok_and(|real| root.join(real.strip_prefix("/").unwrap_or(&real)).symlink_metadata().is_ok())
            };
            if points.into_iter().all(has) {
                let skeleton = Skeleton { folder: root.clone(), ..Skeleton::default() };
                return Ok(Prepared { skeleton: Some(skeleton), image: None });
            }
        }
        let folder = run.folder.join("roots").join(&task.name);
        Ok(Prepared { skeleton: Some(Skeleton::make(task, &folder, false)?), image: None })
    }

    fn command(&self, r: &Request<'_>) -> CommandLine {
        let mut doors = Doors::new(r);
        // ch-run itself runs outside of the container, and cannot load libraries that only the container has. So the
        // task's LD_PRELOAD is set only inside the container, by an option of ch-run.
        let (inside, mut environment): (Vec<_>, Vec<_>) =
            r.environment.iter().cloned().partition(|(name, _)| name == "LD_PRELOAD");
        let mut binds: Vec<(String, String)> = Vec::new();
        if let Some(skeleton) = &r.prepared.skeleton {
            binds.extend(skeleton.binds.iter().map(|(from, to)| (doors.read_only(from), to.clone())));
        }
        // The task has its own `/run`. ch-run cannot make a tmpfs for `/run`, so a folder of the run takes its place.
        // All ranks of the task share this folder.
        binds.push((own_run(r.run, r.task).to_string_lossy().into_owned(), "/run".into()));
        binds.push((r.endpoint.to_string_lossy().into_owned(), ENDPOINT_FOLDER.into()));
        let mut mounts: Vec<_> = r.task.mounts.iter().collect();
        mounts.sort_by_key(|m| m.task.len());
        for m in mounts {
            let from = if m.write { m.host.to_string_lossy().into_owned() } else { doors.read_only(&m.host) };
            binds.push((from, m.task.clone()));
        }
        let mut words = doors.opening();
        words.extend(["ch-run", "--no-passwd", "--private-tmp"].map(str::to_owned));
        if let User::Ids(uid, gid) = r.task.user {
            words.extend([format!("--uid={uid}"), format!("--gid={gid}")]);
        }
        words.extend(binds.into_iter().flat_map(|(from, to)| ["-b".to_owned(), format!("{from}:{to}")]));
        words.extend(inside.into_iter().map(|(name, value)| format!("--set-env={name}={value}")));
        words.extend(["--cd".to_owned(), r.task.workdir.clone().unwrap_or_else(|| "/".into())]);
        if let Some(skeleton) = &r.prepared.skeleton {
            words.push(skeleton.folder.to_string_lossy().into_owned());
        }
        words.push("--".into());
        words.extend(r.task.command.iter().cloned());
        environment.push(("USER".into(), std::env::var("USER").unwrap_or_else(|_| "me".into())));
        CommandLine { words, environment, clean_environment: true, limits_by_launcher: true, ..CommandLine::default() }
    }

    fn hint(&self, _words: &str) -> String {
        "let users make namespaces (`sysctl kernel.unprivileged_userns_clone=1`), and see that `ch-run` works by itself"
            .into()
    }
}

/// The paths by which ch-run reaches files and folders of the host, and through which no task can write. ch-run cannot
/// bind a file or folder read-only, and always binds the host's `/etc/hosts` and `/etc/resolv.conf`. So a task that
/// root started could write everything that is bound. For root, ch-run is therefore started in a mount namespace in
/// which everything that ch-run binds is mounted read-only. An ordinary user cannot make such mounts, but may not write
/// the host's files anyway.
struct Doors {
    /// The folder in which the read-only mounts are made; `None` for an ordinary user.
    folder: Option<PathBuf>,
    /// For each read-only mount: the host's file, and the path at which it is mounted.
    made: Vec<(String, String)>,
}

impl Doors {
    fn new(r: &Request<'_>) -> Self {
        let folder = (r.run.uid == 0).then(|| r.run.folder.join("doors").join(&r.task.name));
        let own = ["/etc/hosts", "/etc/resolv.conf"].into_iter().filter(|p| folder.is_some() && Path::new(p).is_file());
        // ch-run always binds the host's `/etc/hosts` and `/etc/resolv.conf` by these two paths. So each of these files
        // is mounted read-only over itself.
        let made = own.map(|path| (path.to_owned(), path.to_owned())).collect();
        Self { folder, made }
    }

    /// Gives a path to this file for ch-run, through which no task can write the file.
    fn read_only(&mut self, path: &Path) -> String {
        let from = path.to_string_lossy().into_owned();
        let Some(folder) = &self.folder else { return from };
        let door = folder.join(self.made.len().to_string()).to_string_lossy().into_owned();
        self.made.push((from, door.clone()));
        door
    }

    /// Gives the words of a command line that make the read-only mounts and then run ch-run.
    fn opening(self) -> Vec<String> {
        const SCRIPT: &str = r#"while [ "$1" != -- ]; do
            if [ -d "$1" ]; then mkdir -p "$2"; else mkdir -p "${2%/*}"; [ -e "$2" ] || : > "$2"; fi &&
                mount --bind "$1" "$2" && mount -o remount,bind,ro "$2" || exit 71
            shift 2
        done; shift; exec "$@""#;
        if self.folder.is_none() {
            return Vec::new();
        }
        let mut words =
            ["unshare", "--mount", "--propagation", "private", "sh", "-c", SCRIPT, "sh"].map(str::to_owned).to_vec();
        words.extend(self.made.into_iter().flat_map(|(from, to)| [from, to]));
        words.push("--".into());
        words
    }
}

fn own_run(run: &RunContext, task: &Task) -> PathBuf {
    run.folder.join("run").join(&task.name)
}

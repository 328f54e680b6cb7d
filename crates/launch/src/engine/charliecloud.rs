//! Charliecloud: user and mount namespaces only; tasks share the host's IPC, process ids and network.

use std::time::Duration;

use super::{
    CommandLine, ENDPOINT_FOLDER, Engine, Isolation, Prepared, Request, RunContext, Skeleton, Unavailable, tool,
};
use crate::file::{Files, Task, User};

pub struct Charliecloud;

impl Engine for Charliecloud {
    fn name(&self) -> &'static str {
        "charliecloud"
    }

    fn isolation(&self) -> Isolation {
        Isolation { files: true, ..Isolation::NONE }
    }

    fn version(&self) -> Result<String, Unavailable> {
        // Old versions want USER even for this.
        let outcome = tool::run(&["env", "USER=me", "ch-run", "--version"], Duration::from_secs(5));
        if !outcome.good {
            let mend = "install Charliecloud (Debian: `apt-get install charliecloud`)";
            return Err(Unavailable::new(tool::last_line(&outcome.words), mend));
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
            // ch-run mounts its image read-only, but not what it binds: a root that has all mount points is used as it is.
            let points = task.mounts.iter().map(|m| m.task.as_str()).chain([ENDPOINT_FOLDER]);
            if points.into_iter().all(|p| root.join(&p[1..]).exists()) {
                let skeleton = Skeleton { folder: root.clone(), ..Skeleton::default() };
                return Ok(Prepared { skeleton: Some(skeleton), image: None });
            }
        }
        let folder = run.folder.join("roots").join(&task.name);
        Ok(Prepared { skeleton: Some(Skeleton::make(task, &folder, false)?), image: None })
    }

    fn command(&self, r: &Request<'_>) -> CommandLine {
        let mut words: Vec<String> = ["ch-run", "--no-passwd", "--private-tmp"].map(str::to_owned).to_vec();
        if let User::Ids(uid, gid) = r.task.user {
            words.extend([format!("--uid={uid}"), format!("--gid={gid}")]);
        }
        let mut bind = |from: &str, to: &str| words.extend(["-b".to_owned(), format!("{from}:{to}")]);
        if let Some(skeleton) = &r.prepared.skeleton {
            for (from, to) in &skeleton.binds {
                bind(&from.to_string_lossy(), to);
            }
        }
        // `/run` of its own: ch-run has no tmpfs for it, so a folder of the run does it, shared by the task's ranks.
        bind(&own_run(r.run, r.task).to_string_lossy(), "/run");
        bind(&r.endpoint.to_string_lossy(), ENDPOINT_FOLDER);
        let mut mounts: Vec<_> = r.task.mounts.iter().collect();
        mounts.sort_by_key(|m| m.task.len());
        for m in mounts {
            bind(&m.host.to_string_lossy(), &m.task);
        }
        words.extend(["--cd".to_owned(), r.task.workdir.clone().unwrap_or_else(|| "/".into())]);
        if let Some(skeleton) = &r.prepared.skeleton {
            words.push(skeleton.folder.to_string_lossy().into_owned());
        }
        words.push("--".into());
        words.extend(r.task.command.iter().cloned());
        let mut environment = r.environment.clone();
        environment.push(("USER".into(), std::env::var("USER").unwrap_or_else(|_| "me".into())));
        CommandLine { words, environment, clean_environment: true, limits_by_launcher: true, ..CommandLine::default() }
    }

    fn mend(&self, _words: &str) -> String {
        "let users make namespaces (`sysctl kernel.unprivileged_userns_clone=1`), and see that `ch-run` works by itself"
            .into()
    }
}

fn own_run(run: &RunContext, task: &Task) -> std::path::PathBuf {
    run.folder.join("run").join(&task.name)
}

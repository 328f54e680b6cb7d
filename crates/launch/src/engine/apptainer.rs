//! The engine Apptainer, formerly Singularity: runs `apptainer exec` on an image or a sandbox folder.

use std::time::Duration;

use super::{
    CommandLine, ENDPOINT_FOLDER, Engine, Isolation, Prepared, Request, RunContext, Skeleton, Unavailable, tool,
};
use crate::file::{Files, Task, User};

pub struct Apptainer;

impl Engine for Apptainer {
    fn name(&self) -> &'static str {
        "apptainer"
    }

    fn isolation(&self) -> Isolation {
        Isolation::FULL
    }

    fn version(&self) -> Result<String, Unavailable> {
        let outcome = tool::run(&["apptainer", "--version"], Duration::from_secs(5));
        if outcome.good {
            return Ok(outcome.output.replace("apptainer version ", ""));
        }
        Err(Unavailable::new(outcome.reason(), "install Apptainer (its project has packages for Debian and Red Hat)"))
    }

    fn accepts(&self, task: &Task) -> Result<(), Unavailable> {
        match task.user {
            User::Ids(uid, _) if uid != 0 => Err(Unavailable::new(
                "apptainer runs tasks as who started the run, or as root",
                "leave `user:` out, or write `root`",
            )),
            _ => Ok(()),
        }
    }

    fn prepare(&self, run: &RunContext, task: &Task) -> Result<Prepared, Unavailable> {
        if let Files::Image(image) = &task.files {
            return Ok(Prepared { skeleton: None, image: Some(image.clone()) });
        }
        let folder = run.folder.join("roots").join(&task.name);
        Ok(Prepared { skeleton: Some(Skeleton::make(task, &folder, false)?), image: None })
    }

    fn command(&self, r: &Request<'_>) -> CommandLine {
        let mut words: Vec<String> = Vec::new();
        let mut add = |list: &[&str]| words.extend(list.iter().map(|w| (*w).to_owned()));
        add(&["apptainer", "--quiet", "exec", "--containall", "--cleanenv", "--no-home", "--no-eval"]);
        if !r.task.host_network {
            add(&["--net", "--network", "none"]);
        }
        if matches!(r.task.user, User::Ids(0, _)) {
            add(&["--fakeroot"]);
        }
        let bind = |from: &str, to: &str, write: bool| {
            // In a bind option, a colon or a comma ends a field. So a backslash is put before each colon, comma and
            // backslash of a path.
            let plain = |text: &str| text.replace('\\', "\\\\").replace(':', "\\:").replace(',', "\\,");
            format!("{}:{}:{}", plain(from), plain(to), if write { "rw" } else { "ro" })
        };
        if let Some(skeleton) = &r.prepared.skeleton {
            for (from, to) in &skeleton.binds {
                add(&["--bind", &bind(&from.to_string_lossy(), to, false)]);
            }
        }
        add(&["--bind", &bind(&r.endpoint.to_string_lossy(), ENDPOINT_FOLDER, false)]);
        let mut mounts: Vec<_> = r.task.mounts.iter().collect();
        mounts.sort_by_key(|m| m.task.len());
        for m in mounts {
            add(&["--bind", &bind(&m.host.to_string_lossy(), &m.task, m.write)]);
        }
        add(&["--pwd", r.task.workdir.as_deref().unwrap_or("/")]);
        // Variables are passed through apptainer's own environment, because its option `--env` splits values at commas.
        let environment = r.environment.iter().map(|(n, v)| (format!("APPTAINERENV_{n}"), v.clone())).collect();
        match (&r.prepared.skeleton, &r.prepared.image) {
            (Some(skeleton), _) => add(&[&skeleton.folder.to_string_lossy()]),
            // A name with `://` or with the ending `.sif` is passed on as it is. Any other name is taken as the name of
            // an image of docker.
            (None, Some(image)) if image.contains("://") || image.ends_with(".sif") => add(&[image]),
            (None, image) => add(&[&format!("docker-daemon://{}", image.clone().unwrap_or_default())]),
        }
        words.extend(r.task.command.iter().cloned());
        CommandLine { words, environment, limits_by_launcher: true, ..CommandLine::default() }
    }
}

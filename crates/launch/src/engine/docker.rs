//! The engine docker: a service starts the containers, and the command only sends requests to it.

use std::process::{Command, Stdio};
use std::time::Duration;

use super::container::{Flavour, arguments};
use super::{CommandLine, Engine, Isolation, Prepared, Request, RunContext, Skeleton, Unavailable, tool};
use crate::file::{Files, Task};

pub struct Docker;

const DEADLINE: Duration = Duration::from_secs(30);

/// Gives the repository part of the names of a run's images.
fn repository(run: &str) -> String {
    format!("crossdock-{}", run.to_lowercase())
}

impl Engine for Docker {
    fn name(&self) -> &'static str {
        "docker"
    }

    fn isolation(&self) -> Isolation {
        Isolation::FULL
    }

    fn version(&self) -> Result<String, Unavailable> {
        let outcome = tool::run(&["docker", "version", "--format", "{{.Server.Version}}"], Duration::from_secs(10));
        if outcome.good && !outcome.output.is_empty() {
            return Ok(outcome.output);
        }
        if outcome.missing {
            return Err(Unavailable::new(outcome.words, "install docker (Debian: `apt-get install docker.io`)"));
        }
        Err(Unavailable::new(tool::last_line(&outcome.words), self.hint(&outcome.words)))
    }

    fn accepts(&self, _task: &Task) -> Result<(), Unavailable> {
        Ok(())
    }

    fn prepare(&self, run: &RunContext, task: &Task) -> Result<Prepared, Unavailable> {
        if let Files::Image(image) = &task.files {
            let outcome = tool::run(&["docker", "image", "inspect", "--format", "x", image], DEADLINE);
            if !outcome.good {
                return Err(Unavailable::new(
                    format!("docker has no image `{image}`: {}", tool::last_line(&outcome.words)),
                    format!("`docker pull {image}`, or `tar -C ROOT -c . | docker import - {image}`"),
                ));
            }
            return Ok(Prepared { skeleton: None, image: Some(image.clone()) });
        }
        let folder = run.folder.join("roots").join(&task.name);
        let skeleton = Skeleton::make(task, &folder, false)?;
        let tag: String = task.name.chars().map(|c| if c == '+' { '_' } else { c }).take(120).collect();
        // The tag begins with the letter `t`, because a tag may not begin with a dot or a dash and a task's name may.
        let image = format!("{}:t{tag}", repository(&run.id));
        import(&folder, &image)?;
        Ok(Prepared { skeleton: Some(skeleton), image: Some(image) })
    }

    fn command(&self, r: &Request<'_>) -> CommandLine {
        let flavour = Flavour {
            program: vec!["docker".into()],
            log_driver: "none",
            ulimits: Vec::new(),
            root_is_me: false,
            cpuset: true,
        };
        let mut words = arguments(&flavour, r);
        words.push(r.prepared.image.clone().unwrap_or_default());
        words.extend(r.task.command.iter().skip(1).cloned());
        CommandLine { words, container: Some(r.container()), ..CommandLine::default() }
    }

    fn first_process(&self, container: &str) -> Option<u32> {
        let outcome =
            tool::run(&["docker", "inspect", "--format", "{{.State.Pid}}", container], Duration::from_secs(5));
        outcome.output.parse().ok().filter(|pid| outcome.good && *pid > 0)
    }

    fn kill(&self, container: &str) {
        tool::run(&["docker", "rm", "--force", container], DEADLINE);
    }

    fn clean(&self, run: &str) {
        let filter = format!("label=crossdock.run={run}");
        let found = tool::run(&["docker", "ps", "--all", "--quiet", "--filter", &filter], DEADLINE);
        for container in found.output.split_whitespace() {
            self.kill(container);
        }
        let format = "{{.Repository}}:{{.Tag}}";
        let images = tool::run(&["docker", "images", "--format", format, &repository(run)], DEADLINE);
        for image in images.output.split_whitespace() {
            tool::run(&["docker", "rmi", "--force", image], DEADLINE);
        }
    }

    fn hint(&self, words: &str) -> String {
        if words.contains("ermission denied") {
            return "be a member of the group `docker`, or use podman, which needs no service".into();
        }
        "start the docker engine, or set DOCKER_HOST to where it listens".into()
    }
}

/// Makes an image of the skeleton folder: `tar | docker import`.
fn import(folder: &std::path::Path, image: &str) -> Result<(), Unavailable> {
    let failed = |what: String| Unavailable::new(what, "see that `tar` is there and the docker engine has space");
    let archive = folder.with_extension("tar");
    let tar = Command::new("tar")
        .args(["--numeric-owner", "--owner=0", "--group=0", "-cf"])
        .arg(&archive)
        .arg("-C")
        .arg(folder)
        .arg(".")
        .stdin(Stdio::null())
        .output()
        .map_err(|e| failed(format!("`tar` cannot be started: {e}")))?;
    if !tar.status.success() {
        return Err(failed(format!("`tar` failed: {}", tool::last_line(&String::from_utf8_lossy(&tar.stderr)))));
    }
    let outcome = tool::run(&["docker", "import", &archive.to_string_lossy(), image], DEADLINE);
    let _ = std::fs::remove_file(&archive);
    if outcome.good {
        return Ok(());
    }
    Err(failed(format!("`docker import` failed: {}", tool::last_line(&outcome.words))))
}

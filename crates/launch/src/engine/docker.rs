//! The engine docker: a service starts the containers, and the command only sends requests to it.

use std::path::Path;
use std::time::Duration;

use super::container::{Flavour, arguments};
use super::{Cleanup, CommandLine, Engine, Isolation, Prepared, Request, RunContext, Skeleton, Unavailable, tool};
use crate::file::{Files, Task};

pub struct Docker;

const DEADLINE: Duration = Duration::from_secs(30);
/// The time limit for each of the two commands that make an image of a folder, `tar` and `docker import`.
const IMPORT: Duration = Duration::from_secs(60);

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
        if let Some(trouble @ tool::HelperFailure::Missing(_)) = &outcome.trouble {
            return Err(Unavailable::new(trouble.to_string(), "install docker (Debian: `apt-get install docker.io`)"));
        }
        Err(Unavailable::new(outcome.reason(), self.hint(&outcome.words)))
    }

    fn accepts(&self, _task: &Task) -> Result<(), Unavailable> {
        Ok(())
    }

    fn prepare(&self, run: &RunContext, task: &Task) -> Result<Prepared, Unavailable> {
        if let Files::Image(image) = &task.files {
            let outcome = tool::run(&["docker", "image", "inspect", "--format", "x", image], DEADLINE);
            if !outcome.good {
                return Err(Unavailable::new(
                    format!("docker has no image `{image}`: {}", outcome.reason()),
                    format!("`docker pull {image}`, or `tar -C ROOT -c . | docker import - {image}`"),
                ));
            }
            return Ok(Prepared { skeleton: None, image: Some(image.clone()) });
        }
        let folder = run.folder.join("roots").join(&task.name);
        let skeleton = Skeleton::make(task, &folder, false)?;
        let tag: String = task.name.chars().map(|c| if c == '+' { '_' } else { c }).take(120).collect();
        // A task's name may begin with a dot or a dash, but a tag may not. So the tag begins with the letter `t`.
        let image = format!("{}:t{tag}", repository(&run.id));
        let hint = "see that `tar` is there and the docker engine has space";
        import(&folder, &image).map_err(|why| Unavailable::new(why, hint))?;
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

    fn clean(&self, run: &str) -> Cleanup {
        let filter = format!("label=crossdock.run={run}");
        let list = ["docker", "ps", "--all", "--quiet", "--filter", &filter];
        let format = "{{.Repository}}:{{.Tag}}";
        let images = ["docker", "images", "--format", format, &repository(run)];
        let removed = match tool::remove_listed(&list, &["docker", "rm", "--force"], DEADLINE) {
            Cleanup::NothingLeft => tool::remove_listed(&images, &["docker", "rmi", "--force"], DEADLINE),
            left => left,
        };
        // The service has told its version before it got a request. If it has stopped since, it may have made something.
        if removed == Cleanup::Refused { Cleanup::MayBeLeft } else { removed }
    }

    fn hint(&self, words: &str) -> String {
        if words.contains("ermission denied") {
            return "be a member of the group `docker`, or use podman, which needs no service".into();
        }
        "start the docker engine, or set DOCKER_HOST to where it listens".into()
    }
}

/// Makes an image of a folder, by `tar` and `docker import`.
fn import(folder: &Path, image: &str) -> Result<(), String> {
    let archive = folder.with_extension("tar");
    let (file, folder) = (archive.to_string_lossy(), folder.to_string_lossy());
    let tar = ["tar", "--numeric-owner", "--owner=0", "--group=0", "-cf", &file, "-C", &folder, "."];
    let run = |what: &str, words: &[&str]| {
        let outcome = tool::run(words, IMPORT);
        if outcome.good { Ok(()) } else { Err(format!("`{what}` failed: {}", outcome.reason())) }
    };
    let done = run("tar", &tar).and_then(|()| run("docker import", &["docker", "import", &file, image]));
    let _ = std::fs::remove_file(&archive);
    done
}

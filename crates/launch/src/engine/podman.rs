//! The engine podman, for root and for ordinary users, with an image or a root folder.

use std::sync::OnceLock;
use std::time::Duration;

use crossdock_os::process::{self, Limit};

use super::container::{Flavour, arguments};
use super::{Cleanup, CommandLine, Engine, Isolation, Prepared, Request, RunContext, Skeleton, Unavailable, tool};
use crate::file::{Files, Task};

/// The engine podman. The field is the value of podman's option `--runtime`.
#[derive(Default)]
pub struct Podman {
    runtime: OnceLock<Option<&'static str>>,
}

const DEADLINE: Duration = Duration::from_secs(20);

impl Podman {
    fn program(&self) -> Vec<String> {
        let mut words = vec!["podman".to_owned()];
        if let Some(Some(runtime)) = self.runtime.get() {
            words.extend(["--runtime".to_owned(), (*runtime).to_owned()]);
        }
        words
    }

    fn rootless() -> bool {
        crossdock_os::child::user() != 0
    }
}

impl Engine for Podman {
    fn name(&self) -> &'static str {
        "podman"
    }

    fn isolation(&self) -> Isolation {
        Isolation::FULL
    }

    fn version(&self) -> Result<String, Unavailable> {
        let outcome = tool::run(&["podman", "--version"], DEADLINE);
        if !outcome.good {
            return Err(Unavailable::new(
                outcome.reason(),
                "install podman (Debian: `apt-get install podman runc uidmap`)",
            ));
        }
        // On a host with a hybrid cgroup mount, the runtime crun fails, so podman gets the runtime runc if it is
        // installed.
        self.runtime.get_or_init(|| {
            let runc = ["/usr/sbin/runc", "/usr/bin/runc", "/usr/local/bin/runc"]
                .iter()
                .any(|p| std::path::Path::new(p).exists());
            let hybrid = std::path::Path::new("/sys/fs/cgroup/unified").exists();
            (runc && hybrid).then_some("runc")
        });
        let how = if Self::rootless() { ", rootless" } else { "" };
        Ok(format!("{}{how}", outcome.output.replace("podman version ", "")))
    }

    fn accepts(&self, _task: &Task) -> Result<(), Unavailable> {
        Ok(())
    }

    fn prepare(&self, run: &RunContext, task: &Task) -> Result<Prepared, Unavailable> {
        if let Files::Image(image) = &task.files {
            let outcome = tool::run(&["podman", "image", "exists", image], DEADLINE);
            if !outcome.good {
                return Err(Unavailable::new(
                    match &outcome.trouble {
                        Some(trouble) => format!("podman has no image `{image}`: {trouble}"),
                        None => format!("podman has no image `{image}`"),
                    },
                    format!("`podman pull {image}`, or `tar -C ROOT -c . | podman import - {image}`"),
                ));
            }
            return Ok(Prepared { skeleton: None, image: Some(image.clone()) });
        }
        let folder = run.folder.join("roots").join(&task.name);
        Ok(Prepared { skeleton: Some(Skeleton::make(task, &folder, false)?), image: None })
    }

    fn command(&self, r: &Request<'_>) -> CommandLine {
        // An engine's default limits may be above the limits of this process, and raising a limit needs
        // CAP_SYS_RESOURCE. So the container's limits are at most those of this process.
        let limit = |name: &str, of: Limit, most: u64| {
            let hard = process::limit(of).1.unwrap_or(most).min(most);
            format!("{name}={hard}:{hard}")
        };
        let ulimits = if Self::rootless() {
            Vec::new()
        } else {
            vec![limit("nofile", Limit::Descriptors, 1 << 20), limit("nproc", Limit::Processes, 32_768)]
        };
        let flavour = Flavour {
            program: self.program(),
            log_driver: "passthrough",
            ulimits,
            root_is_me: Self::rootless(),
            cpuset: !Self::rootless(),
        };
        let mut words = arguments(&flavour, r);
        match (&r.prepared.skeleton, &r.prepared.image) {
            (Some(skeleton), _) => {
                words.extend(["--rootfs".to_owned(), skeleton.folder.to_string_lossy().into_owned()])
            }
            (None, image) => words.extend(["--pull".into(), "never".into(), image.clone().unwrap_or_default()]),
        }
        words.extend(r.task.command.iter().skip(1).cloned());
        CommandLine {
            words,
            container: Some(r.container()),
            limits_by_launcher: Self::rootless(),
            ..CommandLine::default()
        }
    }

    fn first_process(&self, container: &str) -> Option<u32> {
        let outcome =
            tool::run(&["podman", "inspect", "--format", "{{.State.Pid}}", container], Duration::from_secs(5));
        outcome.output.parse().ok().filter(|pid| outcome.good && *pid > 0)
    }

    fn kill(&self, container: &str) {
        tool::run(&["podman", "rm", "--force", "--time", "0", container], DEADLINE);
    }

    fn clean(&self, run: &str) -> Cleanup {
        let filter = format!("label=crossdock.run={run}");
        let list = ["podman", "ps", "--all", "--quiet", "--filter", &filter];
        tool::remove_listed(&list, &["podman", "rm", "--force", "--time", "0"], DEADLINE)
    }

    fn hint(&self, words: &str) -> String {
        if words.contains("subuid") || words.contains("newuidmap") {
            return "give the user ids: `apt-get install uidmap`, and a line in /etc/subuid and /etc/subgid".into();
        }
        if words.contains("cgroup") {
            return "install runc, which takes this machine's cgroup mounts: `apt-get install runc`".into();
        }
        "see that `podman run` works by itself".into()
    }
}

//! The engine bubblewrap: starts a task in namespaces that need no privileges. The kernel removes the namespaces with
//! their last process, so no container can be left behind.

use std::time::Duration;

use super::{
    CommandLine, ENDPOINT_FOLDER, Engine, Isolation, Prepared, Request, RunContext, Skeleton, Unavailable, tool,
};
use crate::file::{Files, Task, User};

pub struct Bubblewrap;

impl Engine for Bubblewrap {
    fn name(&self) -> &'static str {
        "bubblewrap"
    }

    fn isolation(&self) -> Isolation {
        Isolation::FULL
    }

    /// Gives 2 levels, because the task is two levels below bwrap in the process tree: bwrap starts its reaper, and the
    /// reaper starts the task.
    fn task_depth(&self) -> Option<u32> {
        Some(2)
    }

    fn version(&self) -> Result<String, Unavailable> {
        let outcome = tool::run(&["bwrap", "--version"], Duration::from_secs(5));
        if outcome.good {
            return Ok(outcome.output.replace("bubblewrap ", ""));
        }
        Err(Unavailable::new(outcome.reason(), "install bubblewrap (Debian: `apt-get install bubblewrap`)"))
    }

    fn accepts(&self, task: &Task) -> Result<(), Unavailable> {
        match task.files {
            Files::Image(_) => Err(Unavailable::new(
                "bubblewrap runs root folders, not images",
                "choose podman or docker, or unpack the image and give it as `root:`",
            )),
            _ => Ok(()),
        }
    }

    fn prepare(&self, run: &RunContext, task: &Task) -> Result<Prepared, Unavailable> {
        let folder = run.folder.join("roots").join(&task.name);
        // The argument `true` means that `etc` is bound and not copied. Binding is enough here, because bubblewrap
        // writes nothing into `etc`.
        Ok(Prepared { skeleton: Some(Skeleton::make(task, &folder, true)?), image: None })
    }

    fn command(&self, r: &Request<'_>) -> CommandLine {
        let mut words: Vec<String> = Vec::new();
        let mut add = |list: &[&str]| words.extend(list.iter().map(|w| (*w).to_owned()));
        // bwrap itself is started with PATH as its only variable, and does not pass PATH on to the task. (The option
        // `--clearenv` would remove all variables, but needs bubblewrap 0.5.) The task gets its own PATH from
        // `--setenv`, or has none.
        add(&["bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--unsetenv", "PATH"]);
        if r.task.host_network {
            add(&["--share-net"]);
        }
        if let User::Ids(uid, gid) = r.task.user {
            add(&["--unshare-user", "--uid", &uid.to_string(), "--gid", &gid.to_string()]);
        }
        // A task that root starts would have all capabilities in its namespaces. It could then mount the read-only
        // folders (the host's system folders and published files) anew for writing, and write files regardless of their
        // modes. So the capabilities are dropped here. For ordinary users, bwrap drops them by default.
        if r.run.uid == 0 {
            add(&["--cap-drop", "ALL"]);
        }
        add(&["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", "/run"]);
        if let Some(skeleton) = &r.prepared.skeleton {
            for (name, target) in &skeleton.links {
                add(&["--symlink", target, &format!("/{name}")]);
            }
            for (from, to) in &skeleton.binds {
                add(&["--ro-bind", &from.to_string_lossy(), to]);
            }
        }
        add(&["--ro-bind", &r.endpoint.to_string_lossy(), ENDPOINT_FOLDER]);
        let mut mounts: Vec<_> = r.task.mounts.iter().collect();
        mounts.sort_by_key(|m| m.task.len());
        for m in mounts {
            add(&[if m.write { "--bind" } else { "--ro-bind" }, &m.host.to_string_lossy(), &m.task]);
        }
        add(&["--remount-ro", "/", "--chdir", r.task.workdir.as_deref().unwrap_or("/")]);
        for (name, value) in &r.environment {
            add(&["--setenv", name, value]);
        }
        add(&["--"]);
        words.extend(r.task.command.iter().cloned());
        CommandLine { words, clean_environment: true, limits_by_launcher: true, ..CommandLine::default() }
    }

    fn hint(&self, words: &str) -> String {
        if words.contains("ermission") || words.contains("not permitted") || words.contains("namespace") {
            return "let users make namespaces: `sysctl kernel.unprivileged_userns_clone=1` (Debian), \
                    `sysctl kernel.apparmor_restrict_unprivileged_userns=0` (Ubuntu)"
                .into();
        }
        "see that `bwrap --unshare-all --ro-bind / / true` works".into()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::engine::choose;

    /// Starts `env` in a container that is given these variables, and returns the variables that `env` prints.
    fn variables_in_container(given: &[(&str, &str)]) -> BTreeMap<String, String> {
        let folder = tempfile::tempdir().unwrap();
        let run = RunContext {
            id: "environment".into(),
            folder: folder.path().into(),
            uid: crossdock_os::child::user(),
            gid: crossdock_os::child::group(),
        };
        let task = Task::example(vec!["/usr/bin/env".into()]);
        let prepared = Bubblewrap.prepare(&run, &task).unwrap();
        let line = Bubblewrap.command(&Request {
            run: &run,
            task: &task,
            rank: 0,
            endpoint: folder.path(),
            processors: None,
            prepared: &prepared,
            environment: given.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        });
        let outcome = tool::finish(choose::command(&line), Duration::from_secs(30));
        assert!(outcome.good, "{}", outcome.words);
        let variables = outcome.output.lines().map(|line| line.split_once('=').unwrap());
        variables.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    #[test]
    fn a_container_has_the_variables_of_its_task_and_no_other() {
        if choose::trial(&Bubblewrap).result.is_err() {
            crossdock_os::testing::skip("bubblewrap");
            return;
        }
        assert!(std::env::vars_os().count() > 2, "this process has variables that could reach the container");
        // bubblewrap itself sets PWD in the container, so the test expects PWD in each list.
        for given in [&[("PWD", "/"), ("GREETING", "a, b")][..], &[("PWD", "/"), ("PATH", "/usr/bin"), ("EMPTY", "")]] {
            let wanted = given.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            assert_eq!(variables_in_container(given), wanted);
        }
    }
}

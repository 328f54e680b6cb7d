//! The arguments of `run` that podman and docker share.

use super::{ENDPOINT_FOLDER, Request, processor_list};
use crate::file::{Files, User};

/// The settings in which podman and docker differ.
pub struct Flavour {
    /// The first words of the command line: the engine's program, and the engine's options that stand before `run`.
    pub program: Vec<String>,
    /// The value of the option `--log-driver`.
    pub log_driver: &'static str,
    /// The values of `--ulimit` options that only this engine needs.
    pub ulimits: Vec<String>,
    /// True if the container's root is the user who started the run (rootless podman).
    pub root_is_me: bool,
    /// True if the option `--cpuset-cpus` works.
    pub cpuset: bool,
}

/// Gives the first words of the command line: `PROGRAM run` and its options. The words for the image or the root folder
/// come after them, and are not included.
pub fn arguments(f: &Flavour, r: &Request<'_>) -> Vec<String> {
    let mut words = f.program.clone();
    let mut add = |list: &[&str]| words.extend(list.iter().map(|w| (*w).to_owned()));
    add(&["run", "--rm", "--name", &r.container(), "--label", &format!("crossdock.run={}", r.run.id)]);
    add(&["--network", if r.task.host_network { "host" } else { "none" }, "--ipc", "private"]);
    add(&["--read-only", "--tmpfs", "/tmp:exec,mode=1777", "--tmpfs", "/run:exec,mode=755"]);
    add(&["--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--log-driver", f.log_driver]);
    match r.task.user {
        User::Me if f.root_is_me => {}
        User::Me => add(&["--user", &format!("{}:{}", r.run.uid, r.run.gid)]),
        User::Ids(uid, gid) => add(&["--user", &format!("{uid}:{gid}")]),
    }
    for limit in &f.ulimits {
        add(&["--ulimit", limit]);
    }
    if let Some(bytes) = r.task.memory {
        // The task's memory limit is set as the ulimit `data`, which counts private memory only. The engine's memory
        // cgroup would also count shared regions: a region counts for the container that touches it first.
        add(&["--ulimit", &format!("data={bytes}:{bytes}")]);
    }
    if let Some(list) = r.processors.filter(|_| f.cpuset) {
        add(&["--cpuset-cpus", &processor_list(list)]);
    }
    if let Some(skeleton) = &r.prepared.skeleton {
        for (from, to) in &skeleton.binds {
            add(&["--mount", &mount(&from.to_string_lossy(), to, false)]);
        }
    }
    add(&["--mount", &mount(&r.endpoint.to_string_lossy(), ENDPOINT_FOLDER, false)]);
    let mut mounts: Vec<_> = r.task.mounts.iter().collect();
    mounts.sort_by_key(|m| m.task.len());
    for m in mounts {
        add(&["--mount", &mount(&m.host.to_string_lossy(), &m.task, m.write)]);
    }
    if let Some(folder) = &r.task.workdir {
        add(&["--workdir", folder]);
    }
    for (name, value) in &r.environment {
        // An image has a PATH of its own, which is kept unless the task sets PATH.
        if name == "PATH"
            && matches!(r.task.files, Files::Image(_))
            && !r.task.environment.iter().any(|(n, _)| n == name)
        {
            continue;
        }
        add(&["--env", &format!("{name}={value}")]);
    }
    // The task gives the whole command, so no entrypoint of the image may come before it.
    add(&["--entrypoint", &r.task.command[0]]);
    words
}

/// Writes one value of the option `--mount`. Its fields are separated by commas. A field with a comma or a quote is
/// quoted as in CSV.
fn mount(from: &str, to: &str, write: bool) -> String {
    let field = |name: &str, value: &str| {
        let text = format!("{name}={value}");
        if text.contains([',', '"']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
    };
    let access = if write { "" } else { ",readonly" };
    format!("type=bind,{},{}{access}", field("source", from), field("target", to))
}

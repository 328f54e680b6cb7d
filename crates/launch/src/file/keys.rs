//! The one table of the workflow file's keys. The reader of the file takes its "unknown key" hints from this table,
//! `schema` writes the editors' JSON schema from it, and a test compares the committed schema with it.

use crossdock_layout::queue::Pattern;

use super::grants::{ITEM_RIGHTS, PORT_RIGHTS, REGION_RIGHTS, SERIES_RIGHTS, Words};

/// The form of a key's value.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// A name that `crossdock_layout::name` allows.
    Name,
    /// Any text. Numbers and booleans are read as text.
    Text,
    /// A list of words, or one text for the shell.
    Command,
    /// A size with a unit.
    Size,
    /// A whole number in a range.
    Count(u32, u32),
    /// A count, or a list of processor numbers.
    Processors,
    /// `true` or `false`.
    Flag,
    /// One of the listed words.
    Word(&'static [&'static str]),
    /// One name or a list of names of tasks.
    Names,
    /// A mapping from texts to texts.
    Texts,
    /// A mapping. Each key is a name, and each value is one of the listed words or a list of them.
    Rights(&'static Words),
    /// A mapping with the listed keys.
    Section(&'static [Key]),
    /// A mapping from names to mappings with the listed keys.
    Sections(&'static [Key]),
    /// A list of mappings with the listed keys.
    List(&'static [Key]),
}

/// One key of a mapping in the workflow file.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// The key as it is written in the file.
    pub name: &'static str,
    /// The form of the key's value.
    pub kind: Kind,
    /// True if the key must be given.
    pub required: bool,
    /// A sentence about the key, which the editor shows.
    pub doc: &'static str,
}

const fn key(name: &'static str, kind: Kind, doc: &'static str) -> Key {
    Key { name, kind, required: false, doc }
}

const fn required(name: &'static str, kind: Kind, doc: &'static str) -> Key {
    Key { name, kind, required: true, doc }
}

/// The names of the engines, for the workflow file and `--engine`.
pub const ENGINES: &[&str] = &["auto", "process", "bubblewrap", "podman", "docker", "charliecloud", "apptainer"];
/// The words that say how a port distributes its messages.
pub const PATTERNS: &[&str] = Pattern::WORDS;
/// The words that say when a file of a managed directory counts as finished.
pub const PUBLISH: &[&str] = &["close", "rename", "marker", "end"];
/// The words that say how a task's opens wait for files of managed directories.
pub const DOORS: &[&str] = &["auto", "preload", "notification", "view", "none"];
/// The words that say which network a task sees.
pub const NETWORKS: &[&str] = &["none", "host"];

/// The keys at the top of the file.
pub const TOP: &[Key] = &[
    required("workflow", Kind::Name, "The workflow's name; its regions and ports live under it."),
    key(
        "memory",
        Kind::Size,
        "Most memory that the workflow's regions and ports may take together. Default: what the node has.",
    ),
    key(
        "engine",
        Kind::Word(ENGINES),
        "Container engine, unless `--engine` says otherwise. Default: auto, the first that works.",
    ),
    key("grace", Kind::Count(0, 600), "Seconds between SIGTERM and SIGKILL when tasks are stopped. Default: 5."),
    required("tasks", Kind::Sections(TASK), "The tasks, by name."),
    key("ports", Kind::Sections(PORT), "Settings of ports that differ from the defaults."),
    key("regions", Kind::Sections(REGION), "Settings of regions."),
    key("files", Kind::Sections(FILES), "Managed directories: consumers wait for files that producers write."),
];

/// The keys of a task.
pub const TASK: &[Key] = &[
    key(
        "root",
        Kind::Text,
        "Folder that is the task's file system, read-only; relative to this file. Neither root nor image: the host's files.",
    ),
    key("image", Kind::Text, "Image of podman, docker or apptainer, as `name:tag`."),
    required(
        "command",
        Kind::Command,
        "Program and arguments as a list (no shell, nothing to quote); one text is run by `/bin/sh -c`.",
    ),
    key("mounts", Kind::List(MOUNT), "Folders or files of the host that the task sees."),
    key(
        "workdir",
        Kind::Text,
        "Folder in the task's file system that the command starts in. Default: `/`, or this file's folder with the process engine.",
    ),
    key(
        "environment",
        Kind::Texts,
        "Environment variables. Nothing else of the launcher's environment is handed on to containers.",
    ),
    key(
        "ranks",
        Kind::Count(1, 1024),
        "How many copies to start; each finds its number in CROSSDOCK_RANK. Default: 1.",
    ),
    key(
        "mpi",
        Kind::Text,
        "The ranks are one MPI job, started as `crossdock mpirun` does: `auto`, `openmpi`, `mpich`, `intel`, `mvapich`, or the \
         path of its mpirun. The ranks of a host share one container.",
    ),
    key("processors", Kind::Processors, "How many processors the task gets, or a list of their numbers."),
    key("memory", Kind::Size, "Most private memory that one rank of the task may use."),
    key("user", Kind::Text, "`me` (default: who started the run), `root`, or `uid` or `uid:gid`, in the container."),
    key("network", Kind::Word(NETWORKS), "`none` (default: only loopback) or `host`."),
    key(
        "node",
        Kind::Text,
        "The host that the task runs on, when the run has several: its name, or its number in the list of hosts, from 0.",
    ),
    key(
        "with",
        Kind::Text,
        "A task on whose host this one runs. If that task is spread, each rank of this one is with its rank of the same number.",
    ),
    key(
        "spread",
        Kind::Flag,
        "Deal the ranks to all hosts in turn; of an MPI task, in blocks. Default: false, all ranks of a task on one host.",
    ),
    key("after", Kind::Names, "Tasks that must have ended well before this one starts."),
    key(
        "regions",
        Kind::Rights(REGION_RIGHTS),
        "What the task may do with which regions: create, write or read. A name may end in `*`.",
    ),
    key("ports", Kind::Rights(PORT_RIGHTS), "Which ports the task produces or consumes."),
    key("series", Kind::Rights(SERIES_RIGHTS), "Which series the task publishes or observes. A name may end in `*`."),
    key(
        "items",
        Kind::Rights(ITEM_RIGHTS),
        "Which items the task may own (make, use, hand on), or read while they are shared. A key may end in `*`.",
    ),
    key(
        "door",
        Kind::Word(DOORS),
        "How the task waits for files that it consumes: `auto` (default: by its program's kind), `preload` (a library in \
         front of the C library), `notification` (the kernel stops its calls; for static programs), `view` (a file system of \
         its own, for all programs; root only), `none`.",
    ),
    key("process", Kind::Section(PROCESS), "What is different when the engine is `process` (no container)."),
];

/// The keys of a mount.
pub const MOUNT: &[Key] = &[
    required("host", Kind::Text, "Folder or file of the host; relative to this file."),
    required("task", Kind::Text, "Where the task sees it; absolute."),
    key("write", Kind::Flag, "May the task write there? Default: false."),
];

/// The keys that a task has only when it runs without a container.
pub const PROCESS: &[Key] = &[
    key("command", Kind::Command, "Replaces the task's command."),
    key("workdir", Kind::Text, "Replaces the task's workdir; relative to this file."),
    key("environment", Kind::Texts, "Added to the task's environment."),
];

/// The keys of a port's settings.
pub const PORT: &[Key] = &[
    key("pattern", Kind::Word(PATTERNS), "How messages are shared out. Default: one-to-one."),
    key("capacity", Kind::Count(1, 4096), "Messages in flight at most; a power of two. Default: 8."),
];

/// The keys of a managed directory.
pub const FILES: &[Key] = &[
    required("path", Kind::Text, "Where producers and consumers see the directory; absolute."),
    required("produce", Kind::Names, "Tasks that write files there."),
    required("consume", Kind::Names, "Tasks that read the published files, and wait for those that are not there yet."),
    key(
        "publish",
        Kind::Word(PUBLISH),
        "When a file is finished: `close` (default; its last writer closes it, or it is renamed into place), `rename` (only \
         then), `marker` (a file with the same name and the ending `.done` is closed), `end` (the producers have ended well).",
    ),
    key(
        "await",
        Kind::Names,
        "Names that consumers wait for, with `*` and `?`. Default: all that do not begin with a dot.",
    ),
    key("wait", Kind::Count(1, 604_800), "Seconds that an open waits at most. Default: 300."),
    key(
        "keep",
        Kind::Text,
        "How long a published file stays: `all` (default; until the run ends), `consumed` (until each rank of each consumer has \
         read it), or a number (the newest ones, so many).",
    ),
    key(
        "quota",
        Kind::Size,
        "Most memory that the files may take; writing more fails with ENOSPC. It needs a run that root starts.",
    ),
    key("store", Kind::Text, "`memory` (default), or a folder of the host for the files; relative to this file."),
    key(
        "spill",
        Kind::Text,
        "A folder of a disk of the host, relative to this file: the oldest published files move there when three quarters of \
         `quota` are used. It needs a run that root starts.",
    ),
    key(
        "host",
        Kind::Text,
        "A folder of the host, empty or not there yet, at which tools and shells see the published files, and wait for those \
         that are not there. It needs a run that root starts.",
    ),
];

/// The keys of a region's settings.
pub const REGION: &[Key] =
    &[key("size", Kind::Size, "Capacity. A region that no task creates is made by the launcher with this size.")];

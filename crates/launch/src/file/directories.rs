//! Managed directories in the workflow file: which tasks write files there, and which wait for them.

use std::path::{Path, PathBuf};

use super::keys::{FILES, PUBLISH};
use super::problem::Position;
use super::reader::{Item, Notes, clip, list};
use super::sections::good_name;
use super::suggest::nearest;
use super::task::{RESERVED, absolute, names};
use super::workflow::Workflow;

/// How long an open waits for a file at most, in seconds, if the workflow file does not set this time.
const WAIT_S: u32 = 300;

/// A managed directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directory {
    /// The name of the directory.
    pub name: String,
    /// The number of the directory among the directories of the workflow file, from 0. All hosts of a run use the same
    /// numbers.
    pub number: usize,
    /// The absolute path at which the tasks see the directory, without a slash at its end.
    pub path: String,
    /// Names of the tasks that write files.
    pub produce: Vec<String>,
    /// Names of the tasks that read files.
    pub consume: Vec<String>,
    /// When a file counts as finished: one of the words of `keys::PUBLISH`.
    pub publish: &'static str,
    /// Patterns of the file names that opens wait for; an empty list stands for all names.
    pub awaits: Vec<String>,
    /// How long an open waits for a file at most, in seconds.
    pub wait_s: u32,
    /// How long a published file stays.
    pub keep: KeepKey,
    /// The most bytes of memory that the directory's files may take.
    pub quota: Option<u64>,
    /// A folder of the host for the files; `None` keeps them in memory.
    pub store: Option<PathBuf>,
    /// A folder of a disk, to which files are moved when memory runs short.
    pub spill: Option<PathBuf>,
    /// The path at which programs of the host that belong to no task see the published files.
    pub host: Option<PathBuf>,
    /// The position of the directory in the file, for messages.
    pub position: Position,
}

impl Directory {
    /// Tells whether this task is a producer or a consumer of the directory.
    pub fn names(&self, task: &str) -> bool {
        self.produce.iter().chain(&self.consume).any(|name| name == task)
    }
}

/// How long a published file stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepKey {
    /// Files stay until the run ends.
    All,
    /// A file stays until each rank of each consumer has read it.
    Consumed,
    /// Only this number of newest files stays.
    Newest(u32),
}

impl std::fmt::Display for KeepKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Consumed => f.write_str("consumed"),
            Self::Newest(files) => files.fmt(f),
        }
    }
}

impl KeepKey {
    fn read(item: &Item<'_>) -> Option<Self> {
        match item.text()?.as_str() {
            "all" => Some(Self::All),
            "consumed" => Some(Self::Consumed),
            number => match number.parse() {
                Ok(number @ 1..=1_000_000) => Some(Self::Newest(number)),
                _ => {
                    let what = format!("`{}` is no rule for how long files stay", clip(number));
                    item.wrong(what, "write `all`, `consumed`, or how many files are kept, from 1 to 1000000");
                    None
                }
            },
        }
    }
}

pub(super) fn directories(item: &Item<'_>, folder: &Path) -> Vec<Directory> {
    let mut found: Vec<Directory> = Vec::new();
    for (name, item) in item.entries() {
        found.extend(directory(name, found.len(), &item, folder));
    }
    found
}

fn directory(name: String, number: usize, item: &Item<'_>, folder: &Path) -> Option<Directory> {
    let good = good_name(item, &name);
    let s = item.section(FILES)?;
    let path = s.get("path").and_then(|i| {
        let text = absolute(&i)?.trim_end_matches('/').to_owned();
        if RESERVED.contains(&text.as_str()) || text.contains(['\t', '\n']) {
            i.wrong(
                format!("`{}/` cannot be a managed directory", clip(&text)),
                "choose another place, such as `/data`",
            );
            return None;
        }
        Some(text)
    });
    let read = |key| s.get(key).map(|i| names(&i)).unwrap_or_default();
    let awaits: Vec<String> = read("await");
    // Folders are checked only on hosts that run a producer or a consumer of this directory. If no task uses the
    // directory, the folders are checked only in a run on one host.
    let tasks = [read("produce"), read("consume")].concat();
    let is_here =
        if tasks.is_empty() { item.notes.is_here("") } else { tasks.iter().any(|task| item.notes.is_here(task)) };
    if let Some(bad) = awaits.iter().find(|p| p.is_empty() || p.contains(['/', ' ', '\t', '\n'])) {
        item.wrong(
            format!("`{}` is not a pattern of a name", clip(bad)),
            "a name with `*` and `?`, without folders and spaces",
        );
    }
    let store = s.get("store").and_then(|i| Some((i.text()?, i))).filter(|(text, _)| text != "memory");
    let disk = |text: &str, item: &Item<'_>, hint: &str| {
        let path = folder.join(text);
        if is_here && !path.is_dir() {
            item.wrong(format!("the folder {} is not there", path.display()), hint);
        }
        path
    };
    let store = store.map(|(text, item)| disk(&text, &item, "make it first, or write `memory`"));
    let quota = s.get("quota");
    let spill = s.get("spill").and_then(|i| {
        if quota.is_none() {
            i.wrong("without a quota the memory is never full", "add `quota`, or remove `spill`");
        }
        Some(disk(&i.text()?, &i, "make it first"))
    });
    let host = s.get("host").and_then(|i| Some(folder.join(i.text()?)));
    if let (Some(item), Some(_)) = (&quota, &store) {
        item.wrong("a quota limits memory, and this directory's files lie in a folder", "remove `quota` or `store`");
    }
    let directory = Directory {
        path: path?,
        produce: read("produce"),
        consume: read("consume"),
        publish: s.get("publish").and_then(|i| i.word(PUBLISH)).unwrap_or(PUBLISH[0]),
        awaits,
        wait_s: s.get("wait").and_then(|i| i.count(1, 604_800)).unwrap_or(WAIT_S),
        keep: s.get("keep").and_then(|i| KeepKey::read(&i)).unwrap_or(KeepKey::All),
        quota: quota.and_then(|i| i.size()),
        store,
        spill,
        host,
        position: item.position(),
        name,
        number,
    };
    good.then_some(directory)
}

/// Checks that every named task exists and is either a producer or a consumer, and that no two mounts or directories
/// have the same path in a task.
pub(super) fn check(w: &Workflow, notes: &Notes) {
    for d in &w.directories {
        let path = |key: &str| format!("files.{}.{key}", clip(&d.name));
        for (key, tasks) in [("produce", &d.produce), ("consume", &d.consume)] {
            if tasks.is_empty() {
                notes.add(d.position, &path(key), "no task is named", "name at least one task of this file");
            }
            for task in tasks {
                if w.tasks.iter().any(|t| t.name == *task) {
                    continue;
                }
                let known = || w.tasks.iter().map(|t| t.name.as_str());
                let hint = match nearest(task, known()) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("tasks of this file: {}", list(known())),
                };
                notes.add(d.position, &path(key), format!("there is no task `{}`", clip(task)), hint);
            }
        }
        if let Some(both) = d.produce.iter().find(|t| d.consume.contains(t)) {
            let what = format!("task `{}` would wait for its own files", clip(both));
            notes.add(d.position, &path("consume"), what, "name it on one side; a producer sees its own files anyway");
        }
        for task in w.tasks.iter().filter(|t| d.produce.contains(&t.name) || d.consume.contains(&t.name)) {
            let other = w.directories.iter().find(|o| {
                o.name != d.name
                    && o.path == d.path
                    && (o.produce.contains(&task.name) || o.consume.contains(&task.name))
            });
            if other.is_some() || task.mounts.iter().any(|m| m.task == d.path) {
                let what = format!("task `{}` has something else at {}", clip(&task.name), d.path);
                notes.add(d.position, &path("path"), what, "give each its own place");
            }
        }
    }
}

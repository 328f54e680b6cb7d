//! The views of a run's managed directories: one at the directory's `host` path, and one for each reader that reads
//! through a view. A reader is a consumer, or one rank of it if each rank has a folder of its own.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crossdock_files::{MovedFiles, Service, View, ViewCallbacks, ViewOptions};

use crate::file::{Directory, DoorKey, Workflow};

/// The most lines about one view that are written to logs.
const LINES: usize = 100;

/// The reasons why waits of one view ended without a file, until they are written to a log.
#[derive(Default)]
struct WaitReports {
    /// How many waits of the view ended without a file so far. `waiting` has only the reasons that are not yet in a
    /// log.
    count: usize,
    waiting: Vec<String>,
}

/// The mounted views of one managed directory.
pub struct MountedViews {
    /// For each reader, the path of its view; `None` if the reader sees the folder itself and no view.
    readers: Vec<Option<PathBuf>>,
    /// For each view: the number of the consumer that uses the view, and the reports of its waits. The number is `None`
    /// for the view that is used by programs outside of the tasks, on the host.
    stories: Vec<(Option<usize>, Arc<Mutex<WaitReports>>)>,
    /// The views, which are unmounted when this struct is dropped.
    views: Vec<View>,
}

impl MountedViews {
    /// Mounts the views of a directory whose store is the folder `store`. `readers` says for each consumer which reader
    /// numbers belong to the consumer.
    pub fn mount(
        directory: &Directory,
        workflow: &Workflow,
        readers: &[Range<usize>],
        store: &Path,
        notice: &Path,
        service: &Service,
        moved: &MovedFiles,
    ) -> Result<Self, String> {
        let layout = service.layout();
        let mut stories = Vec::new();
        let mut mount = |at: &Path, face: &Path, user: Option<(usize, usize)>| {
            let read: Box<dyn Fn(&Path) + Send + Sync> = match user {
                Some((_, reader)) => Box::new(service.reads_by_view(reader)),
                None => Box::new(|_| ()),
            };
            let consumer = user.map(|(consumer, _)| consumer);
            // A task knows the directory by the directory's own path. A program outside of the tasks knows it by the
            // path of the view.
            let seen_at = if consumer.is_some() { Path::new(&directory.path) } else { at };
            let reports = Arc::new(Mutex::new(WaitReports::default()));
            stories.push((consumer, reports.clone()));
            let story = move |thread, story| {
                let story = match consumer {
                    Some(_) => story,
                    None => format!("{} waited in vain: {story}", asker(thread)),
                };
                let mut reports = reports.lock().unwrap_or_else(PoisonError::into_inner);
                reports.count += 1;
                if reports.count <= LINES {
                    reports.waiting.push(story);
                }
            };
            let mut faces = vec![face.to_owned()];
            faces.extend(directory.spill.is_some().then(|| layout.spilled.clone()));
            let wait = Duration::from_secs(directory.wait_s.into());
            let awaits = directory.awaits.clone();
            let seen_at = seen_at.to_owned();
            let show = ViewOptions { faces, seen_at, notice: notice.to_owned(), wait, awaits, moved: moved.clone() };
            View::mount(at, show, ViewCallbacks { read, story: Box::new(story) }).map_err(|e| {
                let hint = match crossdock_os::child::user() {
                    0 => "",
                    _ => "; hint: only root may mount a view; start the run as root, or remove `host`, `spill` and `door: view`",
                };
                format!("managed directory `{}`: {e}{hint}", directory.name)
            })
        };
        let mut views = Vec::new();
        if let Some(host) = &directory.host {
            views.push(mount(host, &layout.published, None)?);
        }
        let mut of_readers = Vec::new();
        for (consumer, (name, readers)) in directory.consume.iter().zip(readers).enumerate() {
            let by_door = workflow.tasks.iter().any(|t| t.name == *name && t.door == DoorKey::View);
            for reader in readers.clone() {
                if directory.spill.is_none() && !by_door {
                    of_readers.push(None);
                    continue;
                }
                let at = PathBuf::from(format!("{}.view.{reader}", store.display()));
                views.push(mount(&at, layout.for_consumer(reader), Some((consumer, reader)))?);
                of_readers.push(Some(at));
            }
        }
        Ok(Self { readers: of_readers, stories, views })
    }

    /// The ids of the processes that remove the mounts if this process is killed.
    pub fn guards(&self) -> impl Iterator<Item = i32> {
        self.views.iter().map(View::guard)
    }

    /// Takes the reports of all waits that have ended without a file since the last call. Each report has the reason,
    /// and the number of the consumer that waited. The number is `None` if the process that waited belongs to no task
    /// of the run.
    pub fn stories(&self) -> Vec<(Option<usize>, String)> {
        let take = |(consumer, stories): &(Option<usize>, Arc<Mutex<WaitReports>>)| {
            let waiting = std::mem::take(&mut stories.lock().unwrap_or_else(PoisonError::into_inner).waiting);
            waiting.into_iter().map(|story| (*consumer, story)).collect::<Vec<_>>()
        };
        self.stories.iter().flat_map(take).collect()
    }

    /// Gives the path of the view for the reader with this number.
    pub fn of_reader(&self, number: usize) -> Option<&Path> {
        self.readers.get(number)?.as_deref()
    }
}

/// Gives the name and the id of the process to which a thread of the host belongs, for messages.
fn asker(thread: u32) -> String {
    let status = crossdock_os::fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
    let process = status.lines().find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok()).unwrap_or(thread);
    let name = crossdock_os::fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
    let name: String = name.trim().chars().filter(|c| !c.is_control()).collect();
    format!("{} (process {process})", if name.is_empty() { "a program" } else { &name })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_named_by_its_process() {
        std::thread::spawn(move || {
            let own = std::fs::read_link("/proc/thread-self").unwrap();
            let own: u32 = own.file_name().unwrap().to_str().unwrap().parse().unwrap();
            assert_ne!(own, std::process::id());
            assert_eq!(asker(own), asker(std::process::id()));
        })
        .join()
        .unwrap();
        assert!(asker(std::process::id()).ends_with(&format!("(process {})", std::process::id())));
    }
}

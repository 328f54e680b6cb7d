//! The views of a run's managed directories: one at the directory's `host` path, and one for each consumer that reads
//! through a view.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crossdock_files::{Moved, Service, Show, Told, View};

use crate::file::{Directory, DoorKey, Workflow};

/// The mounted views of one managed directory.
pub struct Shown {
    /// For each consumer the path of its view; `None` if the consumer sees the folder itself.
    consumers: Vec<Option<PathBuf>>,
    /// The views, which are unmounted when this struct is dropped.
    _views: Vec<View>,
}

impl Shown {
    /// Mounts the views of a directory whose store is the folder `store`.
    pub fn mount(
        directory: &Directory,
        workflow: &Workflow,
        store: &Path,
        notice: &Path,
        service: &Service,
        moved: &Moved,
    ) -> Result<Self, String> {
        let layout = service.layout();
        let mount = |at: &Path, face: &Path, read: Box<dyn Fn(&Path) + Send + Sync>| {
            let mut faces = vec![face.to_owned()];
            faces.extend(directory.spill.is_some().then(|| layout.spilled.clone()));
            let wait = Duration::from_secs(directory.wait_s.into());
            let awaits = directory.awaits.clone();
            let show = Show { faces, notice: notice.to_owned(), wait, awaits, moved: moved.clone() };
            View::mount(at, show, Told { read, story: Box::new(service.tells()) }).map_err(|e| {
                let hint = match crossdock_os::child::user() {
                    0 => "",
                    _ => "; hint: only root may mount a view; start the run as root, or remove `host`, `spill` and `door: view`",
                };
                format!("managed directory `{}`: {e}{hint}", directory.name)
            })
        };
        let mut views = Vec::new();
        if let Some(host) = &directory.host {
            views.push(mount(host, &layout.published, Box::new(|_| ()))?);
        }
        let mut consumers = Vec::new();
        for (number, name) in directory.consume.iter().enumerate() {
            let by_door = workflow.tasks.iter().any(|t| t.name == *name && t.door == DoorKey::View);
            if directory.spill.is_none() && !by_door {
                consumers.push(None);
                continue;
            }
            let at = PathBuf::from(format!("{}.view.{number}", store.display()));
            views.push(mount(&at, layout.for_consumer(number), Box::new(service.reads_by_view(number)))?);
            consumers.push(Some(at));
        }
        Ok(Self { consumers, _views: views })
    }

    /// Gives the path of the view for the consumer with this number.
    pub fn of_consumer(&self, number: usize) -> Option<&Path> {
        self.consumers.get(number)?.as_deref()
    }
}

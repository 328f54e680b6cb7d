//! Makes the skeleton of a task's root folder.
//!
//! Engines treat a root folder differently: podman makes mount points in it, docker needs an image, charliecloud makes
//! nothing in it. So engines get a skeleton instead of the root. The skeleton is a small folder of the run, and a list
//! of folders of the root that are bound over it read-only. The small folder has the root's top-level links, empty
//! folders and mount points, and a copy of the root's `etc`, because engines write `hosts` and `resolv.conf` there.
//! Nothing large is copied, and the root is not changed. On the host, links of the root can lead to any place. So
//! nothing is made in the small folder through a link. Only charliecloud gets the root itself, if the root has all
//! mount points already.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use super::{ENDPOINT_FOLDER, Unavailable};
use crate::file::{Files, Mount, Task};
use crate::root::{OWN, Root};
use crossdock_os::{file, fs};

/// The largest size of a root's `etc` that is copied, in bytes. A larger `etc` is bound.
const ETC_MAX: u64 = 4 << 20;

/// A small folder with the top-level links, the empty folders and the mount points of a task's root, and the list of
/// the folders that are bound over the small folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Skeleton {
    /// The path of the small folder over which the folders of the task's root are mounted.
    pub folder: PathBuf,
    /// Pairs of a path on the host and an absolute path in the task's file system. The paths of the host are bound
    /// read-only, in the order of this list.
    pub binds: Vec<(PathBuf, String)>,
    /// Links at the top of the root, each with its name and its target. An engine that uses no skeleton folder makes
    /// these links in the container.
    pub links: Vec<(String, String)>,
}

fn trouble(what: &str, path: &Path, e: &std::io::Error) -> Unavailable {
    Unavailable::new(format!("{what} {}: {e}", path.display()), "check space and permissions there")
}

/// Makes the folder `inside` in `folder`, and the folders above it.
fn make_folder(folder: &Path, inside: &Path) -> Result<(), Unavailable> {
    file::make_folder_below(folder, inside, 0o755)
        .map(drop)
        .map_err(|e| trouble("cannot make the folder", &folder.join(inside), &e.reason()))
}

/// Makes the file `inside` in `folder`, and the folders above it, unless the name exists.
fn make_file(folder: &Path, inside: &Path) -> Result<(), Unavailable> {
    file::make_file_below(folder, inside, 0o755)
        .map_err(|e| trouble("cannot make the file", &folder.join(inside), &e.reason()))
}

impl Skeleton {
    /// Makes the skeleton for a task in `folder`. With `bind_etc`, `etc` is bound instead of copied.
    pub fn make(task: &Task, folder: &Path, bind_etc: bool) -> Result<Self, Unavailable> {
        let root = Root(match &task.files {
            Files::Root(root) => Some(root.as_path()),
            _ => None,
        });
        let top = root.0.unwrap_or(Path::new("/"));
        fs::create_dir_all(folder).map_err(|e| trouble("cannot make the folder", folder, &e))?;
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755))
            .map_err(|e| trouble("cannot set the mode of", folder, &e))?;
        let mut skeleton = Self { folder: folder.to_owned(), ..Self::default() };
        for name in OWN.iter().chain(&["etc", "home", "mnt"]) {
            make_folder(folder, Path::new(name))?;
        }
        make_folder(folder, Path::new(&ENDPOINT_FOLDER[1..]))?;
        let entries = fs::read_dir(top).map_err(|e| trouble("cannot read the root folder", top, &e))?;
        let mut names: Vec<String> = entries.flatten().filter_map(|e| e.file_name().into_string().ok()).collect();
        names.sort();
        for name in names {
            if let Some(from) = root.on_host(Path::new(&name)) {
                skeleton.entry(from, &name, bind_etc || root.0.is_none())?;
            }
        }
        // If `etc` is a link, an engine finds these files or makes them where the link leads in the container.
        if !folder.join("etc").is_symlink() {
            for name in ["hosts", "resolv.conf", "hostname", "group", "passwd"] {
                make_file(folder, &Path::new("etc").join(name))?;
            }
        }
        for mount in &task.mounts {
            skeleton.mount_point(root, mount)?;
        }
        Ok(skeleton)
    }

    fn entry(&mut self, from: PathBuf, name: &str, bind_etc: bool) -> Result<(), Unavailable> {
        let to = self.folder.join(name);
        let kind = from.symlink_metadata().map_err(|e| trouble("cannot look at", &from, &e))?;
        if kind.is_symlink() {
            let target = fs::read_link(&from).map_err(|e| trouble("cannot read the link", &from, &e))?;
            if to.is_dir() {
                let _ = fs::remove_dir_all(&to);
            }
            symlink(&target, &to).map_err(|e| trouble("cannot make the link", &to, &e))?;
            self.links.push((name.to_owned(), target.to_string_lossy().into_owned()));
        } else if kind.is_dir() {
            make_folder(&self.folder, Path::new(name))?;
            let empty = fs::read_dir(&from).is_ok_and(|mut d| d.next().is_none());
            if name == "etc" && !bind_etc && copy(&from, &to, &mut ETC_MAX.clone()) {
                return Ok(());
            }
            // An empty folder of the root is not bound. The skeleton's own empty folder takes its place, so that mount
            // points can be made in it.
            if !empty {
                self.binds.push((from, format!("/{name}")));
            }
        } else if kind.is_file() {
            make_file(&self.folder, Path::new(name))?;
            self.binds.push((from, format!("/{name}")));
        }
        Ok(())
    }

    /// Makes the mount point for a mount, or says why it cannot be made.
    fn mount_point(&self, root: Root<'_>, mount: &Mount) -> Result<(), Unavailable> {
        let real = root.real(Path::new(&mount.task)).map_err(|why| {
            Unavailable::new(
                format!("the mount point {} cannot be made: {why}", mount.task),
                "choose a place that is not behind this link, such as /data",
            )
        })?;
        let inside = real.strip_prefix("/").unwrap_or(&real);
        let bound = self.binds.iter().find(|(_, at)| real.starts_with(at) && real != Path::new(at));
        if let Some((_, at)) = bound {
            if root.has(&real) {
                return Ok(());
            }
            return Err(Unavailable::new(
                format!("the mount point {} is in {at}, which is read-only and does not have it", mount.task),
                format!("make {} in the root folder, or choose a place of its own, such as /data", real.display()),
            ));
        }
        if mount.host.is_dir() { make_folder(&self.folder, inside) } else { make_file(&self.folder, inside) }
    }
}

/// Copies a small folder. Returns false if the folder is larger than `left` bytes or cannot be read; in that case a
/// part of the folder may have been copied.
fn copy(from: &Path, to: &Path, left: &mut u64) -> bool {
    let Ok(entries) = fs::read_dir(from) else { return false };
    for entry in entries.flatten() {
        let target = to.join(entry.file_name());
        let Ok(kind) = entry.file_type() else { return false };
        if kind.is_symlink() {
            let Ok(link) = fs::read_link(entry.path()) else { return false };
            let _ = fs::remove_file(&target);
            if symlink(link, &target).is_err() {
                return false;
            }
        } else if kind.is_dir() {
            if make_folder(to, Path::new(&entry.file_name())).is_err() || !copy(&entry.path(), &target, left) {
                return false;
            }
        } else if kind.is_file() {
            let size = entry.metadata().map_or(u64::MAX, |m| m.len());
            let Some(rest) = left.checked_sub(size) else { return false };
            *left = rest;
            // The copy may fail because only root may read the file. Such a file would be of no use to the task, so the
            // error is ignored.
            let _ = fs::copy(entry.path(), &target);
        }
    }
    true
}

//! Makes the skeleton of a task's root folder.
//!
//! Engines treat a root folder differently: podman makes mount points in it, docker needs an image, charliecloud makes
//! nothing in it. So engines get a skeleton instead of the root. The skeleton is a small folder of the run, and a list
//! of folders of the root that are bound over it read-only. The small folder has the root's top-level links, empty
//! folders and mount points, and a copy of the root's `etc`, because engines write `hosts` and `resolv.conf` there.
//! Nothing large is copied, and the root is not changed. Only charliecloud gets the root itself, if the root has all
//! mount points already.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use super::{ENDPOINT_FOLDER, Unavailable};
use crate::file::{Files, Mount, Task};
use crossdock_os::fs;

/// Top-level folders that are never taken from a root, because each container has its own.
const OWN: [&str; 5] = ["dev", "proc", "run", "sys", "tmp"];
/// The host's folders that a task without root and image sees.
const HOST: [&str; 9] = ["bin", "etc", "lib", "lib32", "lib64", "libx32", "opt", "sbin", "usr"];
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

fn make_folder(path: &Path) -> Result<(), Unavailable> {
    fs::create_dir_all(path).map_err(|e| trouble("cannot make the folder", path, &e))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
        .map_err(|e| trouble("cannot set the mode of", path, &e))
}

fn make_file(path: &Path) -> Result<(), Unavailable> {
    if path.symlink_metadata().is_ok() {
        return Ok(());
    }
    fs::write(path, "").map_err(|e| trouble("cannot make the file", path, &e))
}

impl Skeleton {
    /// Makes the skeleton for a task in `folder`. With `bind_etc`, `etc` is bound instead of copied.
    pub fn make(task: &Task, folder: &Path, bind_etc: bool) -> Result<Self, Unavailable> {
        let (root, host) = match &task.files {
            Files::Root(root) => (root.as_path(), false),
            _ => (Path::new("/"), true),
        };
        make_folder(folder)?;
        let mut skeleton = Self { folder: folder.to_owned(), ..Self::default() };
        for name in OWN.iter().chain(&["etc", "home", "mnt"]) {
            make_folder(&folder.join(name))?;
        }
        make_folder(&folder.join(&ENDPOINT_FOLDER[1..]))?;
        let entries = fs::read_dir(root).map_err(|e| trouble("cannot read the root folder", root, &e))?;
        let mut names: Vec<String> = entries.flatten().filter_map(|e| e.file_name().into_string().ok()).collect();
        names.sort();
        for name in names {
            if OWN.contains(&name.as_str()) || host && !HOST.contains(&name.as_str()) {
                continue;
            }
            skeleton.entry(root, &name, bind_etc || host)?;
        }
        for name in ["hosts", "resolv.conf", "hostname", "group", "passwd"] {
            make_file(&folder.join("etc").join(name))?;
        }
        for mount in &task.mounts {
            skeleton.mount_point(root, mount)?;
        }
        Ok(skeleton)
    }

    fn entry(&mut self, root: &Path, name: &str, bind_etc: bool) -> Result<(), Unavailable> {
        let (from, to) = (root.join(name), self.folder.join(name));
        let kind = from.symlink_metadata().map_err(|e| trouble("cannot look at", &from, &e))?;
        if kind.is_symlink() {
            let target = fs::read_link(&from).map_err(|e| trouble("cannot read the link", &from, &e))?;
            if to.is_dir() {
                let _ = fs::remove_dir_all(&to);
            }
            symlink(&target, &to).map_err(|e| trouble("cannot make the link", &to, &e))?;
            self.links.push((name.to_owned(), target.to_string_lossy().into_owned()));
        } else if kind.is_dir() {
            make_folder(&to)?;
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
            make_file(&to)?;
            self.binds.push((from, format!("/{name}")));
        }
        Ok(())
    }

    /// Makes the mount point for a mount, or says why it cannot be made.
    fn mount_point(&self, root: &Path, mount: &Mount) -> Result<(), Unavailable> {
        let inside = mount.task.trim_start_matches('/');
        let bound = self.binds.iter().find(|(_, at)| mount.task.starts_with(&format!("{at}/")));
        if let Some((_, at)) = bound {
            let there = root.join(inside);
            if there.exists() {
                return Ok(());
            }
            return Err(Unavailable::new(
                format!("the mount point {} is in {at}, which is read-only and does not have it", mount.task),
                format!("make {} in the root folder, or choose a place of its own, such as /data", there.display()),
            ));
        }
        let place = self.folder.join(inside);
        if mount.host.is_dir() {
            make_folder(&place)
        } else {
            if let Some(parent) = place.parent() {
                make_folder(parent)?;
            }
            make_file(&place)
        }
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
            if make_folder(&target).is_err() || !copy(&entry.path(), &target, left) {
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

//! Finds the place of a mount point in the root folder of a container.
//!
//! A root folder has the files of an image, often of an image that another person has built. In the container, the
//! symbolic links of the root folder lead to places in the root folder. On the host, the same links can lead to any
//! place. So this process never follows a link of a root folder. It finds out where the link leads in the container,
//! and looks only at paths without links.

use crossdock_os::fs;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

/// Top-level folders that are never taken from a root, because each container has its own.
pub(crate) const OWN: [&str; 5] = ["dev", "proc", "run", "sys", "tmp"];
/// The host's folders that a task without root and image sees.
pub(crate) const HOST: [&str; 9] = ["bin", "etc", "lib", "lib32", "lib64", "libx32", "opt", "sbin", "usr"];
/// The largest number of links that a path may go through, as in Linux.
const LINKS_MAX: usize = 40;

/// A root folder, or the host's system folders as a root folder.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Root<'a>(pub(crate) Option<&'a Path>);

impl Root<'_> {
    /// The path on the host of what the root has at `inside`, which begins with `/`; `None` if the container has its
    /// own folder there.
    pub(crate) fn on_host(&self, inside: &Path) -> Option<PathBuf> {
        let inside = inside.strip_prefix("/").unwrap_or(inside);
        let top = inside.components().next()?.as_os_str().to_str().unwrap_or_default();
        let is_own = OWN.contains(&top) || self.0.is_none() && !HOST.contains(&top);
        (!is_own).then(|| self.0.unwrap_or(Path::new("/")).join(inside))
    }

    /// Tells whether the root has a file or folder at this path without links.
    pub(crate) fn has(&self, inside: &Path) -> bool {
        self.on_host(inside).is_some_and(|path| path.symlink_metadata().is_ok())
    }

    /// Gives the path without links at which the container has `inside`, which may not exist. A link is an error if it
    /// leads to something that the root does not have.
    pub(crate) fn real(&self, inside: &Path) -> Result<PathBuf, String> {
        let mut found = PathBuf::from("/");
        // What is left of the path, from its end. A part that comes from a link has the link with it.
        let mut left: Vec<(OsString, Option<String>)> = parts(inside).map(|part| (part, None)).collect();
        let mut links = 0;
        while let Some((part, from)) = left.pop() {
            if part == ".." {
                found.pop();
                continue;
            }
            let next = found.join(&part);
            // In the container's own folders, a link leads to what an engine or a mount makes there.
            let Some(path) = self.on_host(&next) else {
                found = next;
                continue;
            };
            match (path.symlink_metadata(), from) {
                (Ok(meta), _) if meta.is_symlink() => {
                    let failed = |e| format!("cannot read the link {}: {e}", path.display());
                    let target = fs::read_link(&path).map_err(failed)?;
                    let link = format!("the link {} of the root folder leads to {}", next.display(), target.display());
                    links += 1;
                    if links > LINKS_MAX {
                        return Err(format!("{link}, and so on through too many links"));
                    }
                    if target.is_absolute() {
                        found = PathBuf::from("/");
                    }
                    left.extend(parts(&target).map(|part| (part, Some(link.clone()))));
                }
                (Err(e), Some(link)) if e.kind() == ErrorKind::NotFound => {
                    return Err(format!("{link}, which the root folder does not have"));
                }
                _ => found = next,
            }
        }
        Ok(found)
    }
}

/// The parts of a path, the last one first.
fn parts(path: &Path) -> impl Iterator<Item = OsString> {
    path.components().rev().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_lead_to_places_in_the_root_folder_or_are_an_error_that_names_them() {
        let base = tempfile::tempdir().unwrap();
        // The container has its own `/tmp`, so the folder outside lies elsewhere.
        let outside = tempfile::tempdir_in("/var/tmp").unwrap();
        let (root, host) = (base.path().join("root"), outside.path());
        for folder in ["usr/bin", "usr/lib64", "var", "etc", "srv"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        let links = [
            ("usr/bin", "bin"),
            ("/usr/lib64", "lib64"),
            ("/run", "var/run"),
            ("../run/resolve/stub", "etc/resolv.conf"),
            ("../../../../srv", "up"),
            ("loop", "loop"),
            (host.to_str().unwrap(), "data"),
        ];
        for (target, link) in links {
            symlink(target, root.join(link)).unwrap();
        }
        let real = |path: &str| Root(Some(&root)).real(Path::new(path)).map(|p| p.to_str().unwrap().to_owned());
        for (path, expected) in [
            ("/bin/tool", "/usr/bin/tool"),
            ("/lib64/new", "/usr/lib64/new"),
            ("/var/run/x", "/run/x"),
            ("/etc/resolv.conf", "/run/resolve/stub"),
            ("/up/x", "/srv/x"),
            ("/new/folder", "/new/folder"),
        ] {
            assert_eq!(real(path).as_deref(), Ok(expected), "{path}");
        }
        for path in ["/data", "/data/new"] {
            let error = real(path).unwrap_err();
            assert!(error.contains("/data") && error.contains(host.to_str().unwrap()), "{error}");
        }
        assert!(real("/loop").unwrap_err().contains("/loop"));
    }
}

//! Makes the outline of a root folder for a job: a small folder with the root's links and empty folders, and the list
//! of folders to bind over it.
//!
//! A folder of the root may lack the entry for a mount point. Such a folder is bound entry by entry, and not as a
//! whole, so that the mount point can be made beside these entries. The root itself is never changed.

use crossdock_os::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// Top-level folders that are never taken from a root, because each container has its own.
const OWN: [&str; 5] = ["dev", "proc", "run", "sys", "tmp"];
/// The host's folders that a job without root and image sees.
const HOST: [&str; 9] = ["bin", "etc", "lib", "lib32", "lib64", "libx32", "opt", "sbin", "usr"];

/// The outline of a root folder. With the outline, a container sees the root with additional mount points.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outline {
    /// The path of the small folder over which the folders of the root are mounted.
    pub folder: PathBuf,
    /// Pairs of a path on the host and a path in the container. The paths of the host are bound read-only, in the order
    /// of this list: an outer folder comes before the folders in it.
    pub binds: Vec<(PathBuf, String)>,
    /// Links: the path in the container, and the target.
    pub links: Vec<(String, String)>,
}

impl Outline {
    /// Makes the outline of `root`: puts the links and the empty folders of `root`, and the mount points `points`, into
    /// the small folder `folder`, and lists the folders to bind over it. Without a root, the outline is that of the
    /// host's system folders. A mount point that ends with `/` is a folder; any other mount point is a file.
    pub fn make(root: Option<&Path>, folder: &Path, points: &[String]) -> Result<Self, String> {
        let mut outline = Self { folder: folder.to_owned(), ..Self::default() };
        let names: Vec<String> = match root {
            None => HOST.iter().map(|n| (*n).to_owned()).collect(),
            Some(root) => entries(root)?,
        };
        for name in OWN.iter().chain(&["etc", "home", "mnt"]) {
            make_folder(&folder.join(name))?;
        }
        // runc gives a tmpfs the mode of the folder on which it is mounted, whatever the mount options of the tmpfs
        // say. So this folder gets the mode that `/tmp` must have.
        let tmp = folder.join("tmp");
        fs::set_permissions(&tmp, fs::Permissions::from_mode(0o1777))
            .map_err(|e| format!("cannot open {} to all users: {e}", tmp.display()))?;
        for name in names.iter().filter(|n| !OWN.contains(&n.as_str())) {
            outline.entry(root.unwrap_or(Path::new("/")), &format!("/{name}"), points)?;
        }
        for point in points {
            outline.point(root, point)?;
        }
        Ok(outline)
    }

    fn entry(&mut self, root: &Path, inside: &str, points: &[String]) -> Result<(), String> {
        let (from, to) = (root.join(&inside[1..]), self.folder.join(&inside[1..]));
        let Ok(kind) = from.symlink_metadata() else { return Ok(()) };
        if kind.is_symlink() {
            let target = fs::read_link(&from).map_err(|e| format!("cannot read the link {}: {e}", from.display()))?;
            if to.is_dir() {
                let _ = fs::remove_dir(&to);
            }
            symlink(&target, &to).map_err(|e| format!("cannot make the link {}: {e}", to.display()))?;
            self.links.push((inside.to_owned(), target.to_string_lossy().into_owned()));
        } else if kind.is_dir() {
            make_folder(&to)?;
            let below = format!("{inside}/");
            let missing = |p: &&String| p.starts_with(&below) && **p != below && !root.join(&p[1..]).exists();
            let names = entries(&from)?;
            if points.iter().any(|p| missing(&p)) {
                for name in names {
                    self.entry(root, &format!("{inside}/{name}"), points)?;
                }
            } else if !names.is_empty() && !points.contains(&below) {
                self.binds.push((from, inside.to_owned()));
            }
        } else if kind.is_file() {
            make_file(&to)?;
            if !points.iter().any(|p| p == inside) {
                self.binds.push((from, inside.to_owned()));
            }
        }
        Ok(())
    }

    /// Makes one mount point, unless a folder that is bound into the outline already contains it.
    fn point(&self, root: Option<&Path>, point: &str) -> Result<(), String> {
        let bound = self.binds.iter().any(|(_, at)| point.starts_with(&format!("{at}/")));
        if bound {
            let there = root.unwrap_or(Path::new("/")).join(point.trim_start_matches('/'));
            return if there.exists() { Ok(()) } else { Err(format!("there is no place for the mount {point}")) };
        }
        let path = self.folder.join(point.trim_start_matches('/'));
        if point.ends_with('/') {
            return make_folder(&path);
        }
        if let Some(parent) = path.parent() {
            make_folder(parent)?;
        }
        make_file(&path)
    }

    /// Lists the empty folders of the outline, parents first, for engines that make their root themselves.
    pub fn folders(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut open = vec![self.folder.clone()];
        while let Some(folder) = open.pop() {
            for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
                if entry.file_type().is_ok_and(|t| t.is_dir()) {
                    let path = entry.path();
                    let inside = path.strip_prefix(&self.folder).unwrap_or(&path);
                    found.push(format!("/{}", inside.display()));
                    open.push(path);
                }
            }
        }
        found.sort();
        found
    }
}

fn entries(folder: &Path) -> Result<Vec<String>, String> {
    let list = fs::read_dir(folder).map_err(|e| format!("cannot read the folder {}: {e}", folder.display()))?;
    let mut names: Vec<String> = list.flatten().filter_map(|e| e.file_name().into_string().ok()).collect();
    names.sort();
    Ok(names)
}

fn make_folder(path: &Path) -> Result<(), String> {
    fs::create_dir_all(path).map_err(|e| format!("cannot make the folder {}: {e}", path.display()))
}

fn make_file(path: &Path) -> Result<(), String> {
    if path.symlink_metadata().is_ok() {
        return Ok(());
    }
    fs::write(path, "").map_err(|e| format!("cannot make the file {}: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_bound_whole_unless_a_mount_point_is_missing_in_it() {
        let base = tempfile::tempdir().unwrap();
        let root = base.path().join("root");
        for folder in ["usr/bin", "usr/share", "opt/x", "tmp/old", "home"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        fs::write(root.join("usr/bin/a"), "").unwrap();
        symlink("usr/bin", root.join("bin")).unwrap();
        let points = ["/usr/share/data/".to_owned(), "/home/alice/data/".to_owned()];
        let made = Outline::make(Some(&root), &base.path().join("out"), &points).unwrap();
        let bound: Vec<&str> = made.binds.iter().map(|(_, at)| at.as_str()).collect();
        assert_eq!(bound, ["/opt", "/usr/bin"]);
        assert_eq!(made.links, [("/bin".to_owned(), "usr/bin".to_owned())]);
        assert!(base.path().join("out/usr/share/data").is_dir() && base.path().join("out/home/alice/data").is_dir());
        assert!(!base.path().join("out/tmp/old").exists());
        assert_eq!(fs::metadata(base.path().join("out/tmp")).unwrap().permissions().mode() & 0o7777, 0o1777);
        assert!(made.folders().contains(&"/home/alice/data".to_owned()));
    }
}

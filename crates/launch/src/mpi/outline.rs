//! Makes the outline of a root folder for a job: a small folder with the root's links and empty folders, and the list
//! of folders to bind over it.
//!
//! A folder of the root may lack the entry for a mount point. Such a folder is bound entry by entry, and not as a
//! whole, so that the mount point can be made beside these entries. The root itself is never changed. Links of the root
//! lead to places on the host too, so nothing is made in the outline through a link.

use crate::root::{HOST, OWN, Root};
use crossdock_os::{file, fs};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

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
        let inside = Root(root);
        let points: Vec<String> = points.iter().map(|point| place(inside, point)).collect::<Result<_, _>>()?;
        fs::create_dir_all(folder).map_err(|e| format!("cannot make the folder {}: {e}", folder.display()))?;
        let names: Vec<String> = match root {
            None => HOST.iter().map(|n| (*n).to_owned()).collect(),
            Some(root) => entries(root)?,
        };
        for name in OWN.iter().chain(&["etc", "home", "mnt"]) {
            make_folder(folder, name)?;
        }
        // runc gives a tmpfs the mode of the folder on which it is mounted, whatever the mount options of the tmpfs
        // say. So this folder gets the mode that `/tmp` must have.
        let tmp = folder.join("tmp");
        fs::set_permissions(&tmp, fs::Permissions::from_mode(0o1777))
            .map_err(|e| format!("cannot open {} to all users: {e}", tmp.display()))?;
        for name in names {
            outline.entry(inside, &format!("/{name}"), &points)?;
        }
        for point in &points {
            outline.point(inside, point)?;
        }
        Ok(outline)
    }

    fn entry(&mut self, root: Root<'_>, inside: &str, points: &[String]) -> Result<(), String> {
        let Some(from) = root.on_host(Path::new(inside)) else { return Ok(()) };
        let to = self.folder.join(&inside[1..]);
        let Ok(kind) = from.symlink_metadata() else { return Ok(()) };
        if kind.is_symlink() {
            let target = fs::read_link(&from).map_err(|e| format!("cannot read the link {}: {e}", from.display()))?;
            if to.is_dir() {
                let _ = fs::remove_dir(&to);
            }
            symlink(&target, &to).map_err(|e| format!("cannot make the link {}: {e}", to.display()))?;
            self.links.push((inside.to_owned(), target.to_string_lossy().into_owned()));
        } else if kind.is_dir() {
            make_folder(&self.folder, &inside[1..])?;
            let below = format!("{inside}/");
            let missing = |p: &&String| p.starts_with(&below) && **p != below && !is_there(root, p);
            let names = entries(&from)?;
            if points.iter().any(|p| missing(&p)) {
                for name in names {
                    self.entry(root, &format!("{inside}/{name}"), points)?;
                }
            } else if !names.is_empty() && !points.contains(&below) {
                self.binds.push((from, inside.to_owned()));
            }
        } else if kind.is_file() {
            make_file(&self.folder, &inside[1..])?;
            if !points.iter().any(|p| p == inside) {
                self.binds.push((from, inside.to_owned()));
            }
        }
        Ok(())
    }

    /// Makes one mount point, unless a folder that is bound into the outline already contains it.
    fn point(&self, root: Root<'_>, point: &str) -> Result<(), String> {
        let bound = self.binds.iter().any(|(_, at)| point.starts_with(&format!("{at}/")));
        if bound {
            return if is_there(root, point) {
                Ok(())
            } else {
                Err(format!("there is no place for the mount {point}"))
            };
        }
        let inside = &point[1..];
        if point.ends_with('/') { make_folder(&self.folder, inside) } else { make_file(&self.folder, inside) }
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

/// Gives the mount point `point` as a path without links, except that a file may be a link itself: an engine decides
/// what it does with a link such as `/etc/resolv.conf`.
fn place(root: Root<'_>, point: &str) -> Result<String, String> {
    let real = |path: &Path| root.real(path).map_err(|why| format!("cannot make the mount point {point}: {why}"));
    let path = Path::new(point);
    match (point.ends_with('/'), path.parent(), path.file_name()) {
        (false, Some(parent), Some(name)) => Ok(real(parent)?.join(name).to_string_lossy().into_owned()),
        _ => Ok(format!("{}/", real(path)?.display())),
    }
}

/// Tells whether the root has this mount point, which [`place`] gave. A link counts if it leads to something in the
/// root. Without a root, the links are the host's own.
fn is_there(root: Root<'_>, point: &str) -> bool {
    let path = Path::new(point);
    if root.0.is_none() { path.exists() } else { root.real(path).is_ok_and(|real| root.has(&real)) }
}

fn make_folder(folder: &Path, inside: &str) -> Result<(), String> {
    file::make_folder_below(folder, Path::new(inside), 0o755)
        .map(drop)
        .map_err(|e| format!("cannot make the folder {}: {}", folder.join(inside).display(), e.reason()))
}

/// Makes the file `inside` in `folder`, and the folders above it, unless the name exists.
fn make_file(folder: &Path, inside: &str) -> Result<(), String> {
    file::make_file_below(folder, Path::new(inside), 0o755)
        .map_err(|e| format!("cannot make the file {}: {}", folder.join(inside).display(), e.reason()))
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

    #[test]
    fn no_mount_point_is_made_behind_a_link_that_leads_out_of_the_root() {
        let base = tempfile::tempdir().unwrap();
        // The container has its own `/tmp`, so the folder outside lies elsewhere.
        let outside = tempfile::tempdir_in("/var/tmp").unwrap();
        let (root, victim) = (base.path().join("root"), outside.path());
        for folder in ["usr/bin", "var", "etc", "home"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        fs::set_permissions(victim, fs::Permissions::from_mode(0o700)).unwrap();
        fs::write(root.join("etc/os-release"), "").unwrap();
        symlink(victim, root.join("out")).unwrap();
        symlink("/run", root.join("var/run")).unwrap();
        symlink("usr/bin", root.join("bin")).unwrap();
        symlink("../run/resolve/stub", root.join("etc/resolv.conf")).unwrap();
        let out = base.path().join("outline");
        for point in ["/out/", "/out/new/", "/out/new"] {
            let error = Outline::make(Some(&root), &base.path().join("failed"), &[point.to_owned()]).unwrap_err();
            assert!(error.contains("the link /out ") && error.contains(victim.to_str().unwrap()), "{error}");
            let _ = fs::remove_dir_all(base.path().join("failed"));
        }
        let points = ["/var/run/x/", "/bin/new", "/etc/resolv.conf", "/home/me/"].map(str::to_owned);
        let made = Outline::make(Some(&root), &out, &points).unwrap();
        assert!(out.join("run/x").is_dir() && out.join("usr/bin/new").is_file() && out.join("home/me").is_dir());
        assert_eq!(fs::read_link(out.join("etc/resolv.conf")).unwrap(), Path::new("../run/resolve/stub"));
        assert!(made.links.contains(&("/bin".to_owned(), "usr/bin".to_owned())));
        assert_eq!(fs::read_dir(victim).unwrap().count(), 0);
        assert_eq!(fs::metadata(victim).unwrap().permissions().mode() & 0o7777, 0o700);
    }
}

//! Calls on files and folders by their names, with the names and results of [`std::fs`]. Tests can make each call of
//! this module fail, which they cannot do with the calls of `std::fs`. So code that must survive a full disk or a lack
//! of descriptors calls these functions.
//!
//! The functions that write to a file are used instead of the methods of [`File`], and [`open`] instead of
//! `OpenOptions::open`.

pub use std::fs::{DirBuilder, DirEntry, File, FileTimes, FileType, Metadata, OpenOptions, Permissions, ReadDir};

use crate::sys;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Opens a file with these options.
pub fn open(how: &OpenOptions, path: impl AsRef<Path>) -> io::Result<File> {
    sys::plan("open")?;
    how.open(path)
}

/// Makes a new file in an open folder, for writing. The name must be free. If it belongs to a symbolic link, the error
/// is EEXIST.
pub fn make_in(folder: impl AsFd, name: &Path) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    Ok(sys::fs::openat(folder, name, flags, Mode::from_raw_mode(0o666))?.into())
}

/// Removes the name of a file in an open folder.
pub fn remove_file_in(folder: impl AsFd, name: &Path) -> io::Result<()> {
    sys::plan("unlink")?;
    Ok(rustix::fs::unlinkat(folder, name, AtFlags::empty())?)
}

/// Renames a file in an open folder. A file that has the new name is replaced.
pub fn rename_in(folder: impl AsFd, from: &Path, to: &Path) -> io::Result<()> {
    let folder = folder.as_fd();
    Ok(sys::fs::renameat(folder, from, folder, to)?)
}

/// Makes a folder with these options.
pub fn make_folder(how: &DirBuilder, path: impl AsRef<Path>) -> io::Result<()> {
    sys::plan("mkdir")?;
    how.create(path)
}

/// Makes a folder.
pub fn create_dir(path: impl AsRef<Path>) -> io::Result<()> {
    make_folder(&DirBuilder::new(), path)
}

/// Makes a folder, and the folders above it that do not exist.
pub fn create_dir_all(path: impl AsRef<Path>) -> io::Result<()> {
    sys::plan("mkdir")?;
    std::fs::create_dir_all(path)
}

/// Removes a file's name.
pub fn remove_file(path: impl AsRef<Path>) -> io::Result<()> {
    sys::plan("unlink")?;
    std::fs::remove_file(path)
}

/// Removes an empty folder.
pub fn remove_dir(path: impl AsRef<Path>) -> io::Result<()> {
    sys::plan("unlink")?;
    std::fs::remove_dir(path)
}

/// Removes a folder and everything in it. Folders of this user to which the user may not write are removed, too.
pub fn remove_dir_all(path: impl AsRef<Path>) -> io::Result<()> {
    sys::plan("unlink")?;
    match std::fs::remove_dir_all(&path) {
        // MFILE: the standard library has one descriptor open for each level of nested folders, and there are too few
        // descriptors for all levels. ACCESS: a folder has no permission to list it or to remove its files.
        Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::MFILE | Errno::ACCESS)) => {
            remove_nested(path.as_ref())
        }
        removed => removed,
    }
}

/// Removes everything in an open folder. Folders in it on which another file system is mounted stay: the error is
/// EXDEV. If something stays, everything else is removed all the same.
pub fn remove_content(folder: impl AsFd) -> io::Result<()> {
    permit(&folder);
    let device = rustix::fs::fstat(&folder)?.st_dev;
    let remove = |path: &Path| {
        let found = symlink_metadata(path)?;
        if found.dev() != device {
            Err(Errno::XDEV.into())
        } else if found.is_dir() {
            remove_dir_all(path)
        } else {
            remove_file(path)
        }
    };
    let mut outcome = Ok(());
    for entry in read_dir(path_of(&folder))? {
        outcome = outcome.and(entry.and_then(|entry| remove(&entry.path())));
    }
    outcome
}

/// A path of an open folder, for calls that take a path. The path is valid as long as the folder is open.
pub fn path_of(folder: &impl AsFd) -> PathBuf {
    Path::new("/proc/self/fd").join(folder.as_fd().as_raw_fd().to_string())
}

/// Gives the owner of a folder all permissions on it. If this fails, the call that needs them fails, too.
fn permit(folder: &impl AsFd) {
    if !rustix::fs::fstat(folder).is_ok_and(|stat| stat.st_mode & 0o700 == 0o700) {
        let _ = set_permissions(path_of(folder), Permissions::from_mode(0o700));
    }
}

/// Opens a folder for calls that name what is in it. If the last part of the path is a symbolic link, the link is not
/// followed, and the error is ENOTDIR.
pub fn open_folder(path: &Path) -> io::Result<File> {
    Ok(folder_in(CWD, path.as_os_str())?.into())
}

/// Opens a folder in an open folder. A symbolic link is not followed.
fn folder_in(folder: impl AsFd, name: &OsStr) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(sys::fs::openat(folder, name, flags, Mode::empty())?)
}

/// Removes a folder and everything in it, with few descriptors and whatever permissions its folders have. Each folder
/// that lies in a folder of `path` is moved into `path`, and its content is removed there.
fn remove_nested(path: &Path) -> io::Result<()> {
    // Folders are opened without following a link, because another process may have put a link in place of a folder.
    let folder = open_folder(path)?;
    permit(&folder);
    let top = path_of(&folder);
    let mut moved = 0_u64;
    loop {
        let names: Vec<_> =
            read_dir(&top)?.map(|entry| entry.map(|e| (e.file_name(), e.file_type()))).collect::<Result<_, _>>()?;
        if names.is_empty() {
            return remove_dir(path);
        }
        for (name, kind) in names {
            if !kind?.is_dir() {
                remove_file(top.join(name))?;
                continue;
            }
            let inner = folder_in(&folder, &name)?;
            permit(&inner);
            for entry in read_dir(path_of(&inner))? {
                let entry = entry?;
                if !entry.file_type()?.is_dir() {
                    remove_file(entry.path())?;
                    continue;
                }
                // Only a folder with permission to write to it can be moved into another folder.
                permit(&folder_in(&inner, &entry.file_name())?);
                let to = loop {
                    moved += 1;
                    let to = top.join(format!("crossdock-moved-{moved}"));
                    if symlink_metadata(&to).is_err() {
                        break to;
                    }
                };
                rename(entry.path(), to)?;
            }
            remove_dir(top.join(name))?;
        }
    }
}

/// Renames a file or folder. A file that has the new name is replaced.
pub fn rename(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
    sys::plan("rename")?;
    std::fs::rename(from, to)
}

/// Gives a file an additional name.
pub fn hard_link(file: impl AsRef<Path>, name: impl AsRef<Path>) -> io::Result<()> {
    sys::plan("link")?;
    std::fs::hard_link(file, name)
}

/// Makes a symbolic link with the path `link`, which leads to `to`.
pub fn symlink(to: impl AsRef<Path>, link: impl AsRef<Path>) -> io::Result<()> {
    sys::plan("link")?;
    std::os::unix::fs::symlink(to, link)
}

/// Reads where a symbolic link leads to.
pub fn read_link(path: impl AsRef<Path>) -> io::Result<PathBuf> {
    sys::plan("stat")?;
    std::fs::read_link(path)
}

/// The metadata of a file. A symbolic link is followed.
pub fn metadata(path: impl AsRef<Path>) -> io::Result<Metadata> {
    sys::plan("stat")?;
    std::fs::metadata(path)
}

/// The metadata of a file. A symbolic link is not followed.
pub fn symlink_metadata(path: impl AsRef<Path>) -> io::Result<Metadata> {
    sys::plan("stat")?;
    std::fs::symlink_metadata(path)
}

/// Sets the permissions of the file with this name.
pub fn set_permissions(path: impl AsRef<Path>, permissions: Permissions) -> io::Result<()> {
    sys::plan("chmod")?;
    std::fs::set_permissions(path, permissions)
}

/// Sets the permissions of an open file.
pub fn set_mode(file: &File, mode: u32) -> io::Result<()> {
    sys::plan("chmod")?;
    file.set_permissions(Permissions::from_mode(mode))
}

/// Lists a folder.
pub fn read_dir(path: impl AsRef<Path>) -> io::Result<ReadDir> {
    sys::plan("open")?;
    std::fs::read_dir(path)
}

/// Reads a whole file.
pub fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    sys::plan("open")?;
    sys::plan("read_file")?;
    std::fs::read(path)
}

/// Reads a whole file as text.
pub fn read_to_string(path: impl AsRef<Path>) -> io::Result<String> {
    sys::plan("open")?;
    sys::plan("read_file")?;
    std::fs::read_to_string(path)
}

/// Makes a file with these bytes, or replaces the bytes of an existing one. If the call fails, the file may contain
/// only some of the bytes; [`replace`] avoids this.
pub fn write(path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) -> io::Result<()> {
    let file = open(OpenOptions::new().write(true).create(true).truncate(true), path)?;
    write_all(&file, bytes.as_ref())
}

/// Makes a file with these bytes, or replaces an existing one as a whole: a reader sees either all old bytes or all new
/// bytes. The bytes are first written to a file with the same name and the additional ending `.new`. If the call fails,
/// the existing file stays as it was, and the file with the ending `.new` is removed.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let replaced = write(&beside, bytes).and_then(|()| rename(&beside, path));
    replaced.inspect_err(|_| drop(std::fs::remove_file(&beside)))
}

/// Adds a text to the end of a file. Makes the file if it does not exist. If the call fails, the file is as it was
/// before the call. Only one process may write to the file.
pub fn append(path: &Path, text: &str) -> io::Result<()> {
    let file = open(OpenOptions::new().append(true).create(true), path)?;
    let before = file.metadata()?.len();
    write_all(&file, text.as_bytes()).inspect_err(|_| drop(file.set_len(before)))
}

/// Writes all of these bytes at the file's position.
pub fn write_all(file: &File, bytes: &[u8]) -> io::Result<()> {
    write_by(bytes, |rest, _| sys::io::write_file(file, rest))
}

/// Writes all of these bytes at `offset`.
pub fn write_all_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    write_by(bytes, |rest, done| sys::io::pwrite_file(file, rest, offset + done))
}

fn write_by(bytes: &[u8], write: impl Fn(&[u8], u64) -> rustix::io::Result<usize>) -> io::Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        match write(&bytes[done..], done as u64) {
            Err(Errno::INTR) => {}
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            written => done += written?,
        }
    }
    Ok(())
}

/// Copies the bytes of the file `from`, from its present position to its end, into the file `to`. Gives the number of
/// copied bytes.
pub fn copy_rest(from: &mut File, to: &mut File) -> io::Result<u64> {
    sys::plan("copy_file_range")?;
    io::copy(from, to)
}

/// Copies a file with its permissions. Gives the number of copied bytes.
pub fn copy(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<u64> {
    sys::plan("open")?;
    sys::plan("copy_file_range")?;
    std::fs::copy(from, to)
}

/// The path without symbolic links, `.` and `..`.
pub fn canonicalize(path: impl AsRef<Path>) -> io::Result<PathBuf> {
    sys::plan("stat")?;
    std::fs::canonicalize(path)
}

/// Sets the length of a file.
pub fn set_len(file: &File, length: u64) -> io::Result<()> {
    sys::plan("ftruncate")?;
    file.set_len(length)
}

/// Waits until the bytes and the metadata of the file are on the disk.
pub fn sync_all(file: &File) -> io::Result<()> {
    crate::file::sync_whole(file).map_err(|error| error.reason())
}

#[cfg(all(test, feature = "faults"))]
mod tests {
    use super::*;
    use crate::faults;
    use std::collections::BTreeSet;

    /// Runs `body` again and again. In each run, one of its system calls fails with one of the errors that this call
    /// can have. Gives the names of the calls that failed.
    fn each_fails(body: impl Fn() -> io::Result<()>) -> BTreeSet<&'static str> {
        faults::each_call_fails(|attempt| {
            attempt.arm();
            let done = body();
            let Some((call, fault)) = attempt.disarm() else { return };
            let is_repeated = matches!(fault, faults::Fault::Short | faults::Fault::Error(Errno::INTR));
            assert_eq!(done.is_ok(), is_repeated && call != "open", "{call} {fault:?}");
        })
    }

    #[test]
    fn a_file_is_replaced_as_a_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        std::fs::write(&path, "former").unwrap();
        let seen = each_fails(|| {
            let done = replace(&path, b"the new bytes");
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing lies beside it");
            let bytes = std::fs::read(&path).unwrap();
            assert_eq!(bytes, if done.is_ok() { &b"the new bytes"[..] } else { b"former" });
            std::fs::write(&path, "former").unwrap();
            done
        });
        assert!(["open", "write_file", "rename"].iter().all(|call| seen.contains(call)), "{seen:?}");
    }

    #[test]
    fn a_line_is_added_as_a_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        std::fs::write(&path, "one\n").unwrap();
        let seen = each_fails(|| {
            let done = append(&path, "two\n");
            let text = std::fs::read_to_string(&path).unwrap();
            assert_eq!(text, if done.is_ok() { "one\ntwo\n" } else { "one\n" });
            std::fs::write(&path, "one\n").unwrap();
            done
        });
        assert!(["open", "write_file"].iter().all(|call| seen.contains(call)), "{seen:?}");
    }
}

#[cfg(test)]
mod nesting {
    use super::*;

    /// The environment variable that is set in the process that removes the nested folder. Its value is the folder's
    /// path.
    const NESTED: &str = "CROSSDOCK_TEST_NESTED";

    #[test]
    fn nested_folders_are_removed_with_few_descriptors() {
        if let Some(nested) = std::env::var_os(NESTED) {
            return remove_dir_all(nested).unwrap();
        }
        let top = std::env::temp_dir().join(format!("crossdock-nested-{}", std::process::id()));
        let kept = top.with_extension("kept");
        create_dir(&kept).unwrap();
        std::fs::write(kept.join("f"), "x").unwrap();
        let mut deepest = top.clone();
        create_dir(&deepest).unwrap();
        for _ in 0..300 {
            std::fs::write(deepest.join("f"), "x").unwrap();
            std::os::unix::fs::symlink(&kept, deepest.join("link")).unwrap();
            create_dir(deepest.join("other")).unwrap();
            deepest.push("a");
            create_dir(&deepest).unwrap();
        }
        let test = std::env::current_exe().unwrap();
        let words = ["--exact", "fs::nesting::nested_folders_are_removed_with_few_descriptors"];
        let mut command = std::process::Command::new("sh");
        command.args(["-c", "ulimit -n 64 && exec \"$0\" \"$@\""]).arg(test).args(words).env(NESTED, &top);
        assert!(command.status().unwrap().success());
        assert!(!top.exists() && kept.join("f").exists(), "a link is removed, and not what it leads to");
        std::fs::remove_dir_all(&kept).unwrap();
    }

    /// The environment variable that is set in the process that removes the closed folder. Its value is the folder's
    /// path.
    const CLOSED: &str = "CROSSDOCK_TEST_CLOSED";

    #[test]
    fn folders_without_permissions_are_removed_by_their_owner() {
        if let Some(closed) = std::env::var_os(CLOSED) {
            return remove_dir_all(closed).unwrap();
        }
        let above = tempfile::tempdir().unwrap();
        let (top, kept) = (above.path().join("top"), above.path().join("kept"));
        let mode = |path: &Path, mode| set_permissions(path, Permissions::from_mode(mode)).unwrap();
        create_dir_all(top.join("a/b/c")).unwrap();
        create_dir_all(top.join("none/x")).unwrap();
        create_dir(&kept).unwrap();
        for file in [top.join("f"), top.join("a/f"), top.join("a/b/c/f"), top.join("none/x/f"), kept.join("f")] {
            std::fs::write(file, "x").unwrap();
        }
        symlink(&kept, top.join("a/b/link")).unwrap();
        for (path, bits) in [("a/b/c", 0o555), ("a/b", 0o500), ("a", 0o555), ("none/x", 0), ("none", 0), ("", 0o555)] {
            mode(&top.join(path), bits);
        }
        mode(&kept, 0o555);
        let test = std::env::current_exe().unwrap();
        let mut command = std::process::Command::new("setpriv");
        if crate::child::user() == 0 {
            // Without these rights, the permissions of folders hold for root, too.
            command.args(["--inh-caps=-all", "--bounding-set=-dac_override,-dac_read_search"]);
        }
        command.arg(test).args(["--exact", "fs::nesting::folders_without_permissions_are_removed_by_their_owner"]);
        assert!(command.env(CLOSED, &top).status().unwrap().success());
        assert!(!top.exists() && kept.join("f").exists(), "a link is removed, and not what it leads to");
        assert_eq!(metadata(&kept).unwrap().permissions().mode() & 0o777, 0o555);
    }
}

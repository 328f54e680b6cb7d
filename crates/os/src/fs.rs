//! Calls on files and folders by their names, with the names and results of [`std::fs`]. Tests can make each call of
//! this module fail, which they cannot do with the calls of `std::fs`. So code that must survive a full disk or a lack
//! of descriptors calls these functions.
//!
//! The functions that write to a file are used instead of the methods of [`File`], and [`open`] instead of
//! `OpenOptions::open`.

pub use std::fs::{DirBuilder, DirEntry, File, FileTimes, FileType, Metadata, OpenOptions, Permissions, ReadDir};

use crate::sys;
use rustix::fs::{AtFlags, CWD, Dir, FileType as FileKind, Mode, OFlags, StatxAttributes, StatxFlags};
use rustix::io::Errno;
use rustix::path::Arg;
use std::ffi::{CStr, OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

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

/// Removes a folder and everything in it. Folders of this user to which the user may not write are removed, too. A
/// symbolic link in place of the folder is removed, and not what it leads to.
///
/// # Errors
/// Another file system is mounted on a folder inside: nothing of this file system is removed, and the error is EXDEV.
pub fn remove_dir_all(path: impl AsRef<Path>) -> io::Result<()> {
    let path = path.as_ref();
    let folder = match folder_in(CWD, path) {
        Err(error) if error.kind() == io::ErrorKind::NotADirectory && symlink_metadata(path)?.is_symlink() => {
            return remove_file(path);
        }
        folder => folder?,
    };
    let mut removal = Removal { top: &folder, moved: 0 };
    for _ in 0..PASSES {
        let before = removal.moved;
        removal.empty(&folder, 0)?;
        if removal.moved == before {
            // Another process may remove the same folder.
            return remove_dir(path).or_else(|error| if is_missing(&error) { Ok(()) } else { Err(error) });
        }
    }
    // Another process makes nested folders at the same time.
    Err(Errno::NOTEMPTY.into())
}

/// How many times the folders that were moved to the top are removed at most. So folders may be nested a million deep.
const PASSES: usize = 20_000;

/// The most nested folders that are open at the same time while a folder is removed.
const OPEN_FOLDERS: usize = 64;

/// The removal of a folder with everything in it. Nested folders are removed one in the other, but only so many of them
/// that neither descriptors nor the stack run out: a folder that lies deeper is first moved to the top.
struct Removal<'a> {
    top: &'a OwnedFd,
    /// How many folders were moved to the top.
    moved: u64,
}

impl Removal<'_> {
    /// Removes everything in an open folder that lies `depth` folders below the top, except for what it moves.
    fn empty(&mut self, folder: &OwnedFd, depth: usize) -> io::Result<()> {
        permit(folder);
        let mut folders = Vec::new();
        for entry in Dir::new(to_list(folder)?)? {
            let entry = entry?;
            let name = entry.file_name();
            let is_folder = match entry.file_type() {
                FileKind::Unknown => is_folder(folder, name)?,
                kind => kind == FileKind::Directory,
            };
            if !is_folder {
                if_there(rustix::fs::unlinkat(folder, name, AtFlags::empty()))?;
            } else if name != c"." && name != c".." {
                folders.push(name.to_owned());
            }
        }
        for name in folders {
            // The folder is opened without following a link, because another process may have put a link in its place.
            let inner = match folder_in(folder, &name) {
                Err(error) if is_missing(&error) => continue,
                // Another process has put a file or a link in the folder's place.
                Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                    if_there(rustix::fs::unlinkat(folder, &name, AtFlags::empty()))?;
                    continue;
                }
                inner => inner?,
            };
            if is_mount(&inner)? {
                return Err(Errno::XDEV.into());
            }
            if depth + 1 == OPEN_FOLDERS {
                permit(&inner);
                self.move_to_top(folder, &name)?;
                continue;
            }
            match self.empty(&inner, depth + 1) {
                // Too few descriptors are free for what lies in this folder.
                Err(error) if depth > 0 && is_lack_of_descriptors(&error) => self.move_to_top(folder, &name)?,
                emptied => {
                    emptied?;
                    if_there(rustix::fs::unlinkat(folder, &name, AtFlags::REMOVEDIR))?;
                }
            }
        }
        Ok(())
    }

    /// Moves a folder to the top. The kernel requires permission to write to a folder that is moved into another one.
    fn move_to_top(&mut self, from: &OwnedFd, name: &CStr) -> io::Result<()> {
        loop {
            self.moved += 1;
            let to = format!("crossdock-moved-{}", self.moved);
            if rustix::fs::statat(self.top, &to, AtFlags::SYMLINK_NOFOLLOW).is_err() {
                return Ok(if_there(sys::fs::renameat(from, name, self.top, &to))?);
            }
        }
    }
}

fn is_folder(folder: &OwnedFd, name: &CStr) -> io::Result<bool> {
    let found = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW);
    Ok(if_there(found.map(|stat| FileKind::from_raw_mode(stat.st_mode) == FileKind::Directory))?)
}

/// Turns the error that a file is not there into the default value.
fn if_there<T: Default>(done: rustix::io::Result<T>) -> rustix::io::Result<T> {
    done.or_else(|errno| if errno == Errno::NOENT { Ok(T::default()) } else { Err(errno) })
}

/// Tells whether an open folder is the root of a mount.
fn is_mount(folder: &OwnedFd) -> io::Result<bool> {
    let found = sys::fs::statx(folder, c"", AtFlags::EMPTY_PATH, StatxFlags::empty())?;
    Ok(found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

fn is_missing(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

/// Tells whether this process, or the machine, has no free descriptor.
fn is_lack_of_descriptors(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
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
    Ok(folder_in(CWD, path)?.into())
}

/// The most symbolic links that [`make_and_open_folder`] follows, as in the kernel.
const LINKS: usize = 40;

/// Opens a folder for listing it. Makes the folder, and the folders above it that do not exist. Symbolic links are
/// followed if this user or root owns them.
///
/// # Errors
/// Another user owns a link on the path: this user did not choose where the link leads.
pub fn make_and_open_folder(path: &Path) -> io::Result<File> {
    let mut folder = folder_in(CWD, if path.is_absolute() { c"/" } else { c"." })?;
    let mut links = 0;
    // The names of the path that are still to be opened, the next one last.
    let mut names: Vec<OsString> = Vec::new();
    let push = |folder: &mut OwnedFd, names: &mut Vec<OsString>, path: &Path| {
        if path.is_absolute() {
            *folder = folder_in(CWD, c"/")?;
        }
        let is_name = |part: &Component<'_>| matches!(part, Component::Normal(_) | Component::ParentDir);
        let parts: Vec<_> = path.components().filter(is_name).map(|part| part.as_os_str().to_owned()).collect();
        names.extend(parts.into_iter().rev());
        io::Result::Ok(())
    };
    push(&mut folder, &mut names, path)?;
    while let Some(name) = names.pop() {
        let mut found = folder_in(&folder, &name);
        if found.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            match sys::fs::mkdirat(&folder, &name, Mode::from_raw_mode(0o777)) {
                Err(Errno::EXIST) => {}
                made => made?,
            }
            found = folder_in(&folder, &name);
        }
        match found {
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                let link =
                    sys::fs::openat(&folder, &name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
                let stat = rustix::fs::fstat(&link)?;
                if FileKind::from_raw_mode(stat.st_mode) != FileKind::Symlink {
                    return Err(error);
                }
                if ![0, crate::child::user()].contains(&stat.st_uid) {
                    let name = Path::new(&name).display();
                    let why = format!("`{name}` is a symbolic link of user {}, which is not followed", stat.st_uid);
                    return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
                }
                links += 1;
                if links > LINKS {
                    return Err(Errno::LOOP.into());
                }
                let target = rustix::fs::readlinkat(&link, c"", Vec::new())?;
                push(&mut folder, &mut names, Path::new(OsStr::from_bytes(target.as_bytes())))?;
            }
            found => folder = found?,
        }
    }
    Ok(to_list(&folder)?.into())
}

/// Opens an open folder again, for listing it.
fn to_list(folder: &OwnedFd) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(sys::fs::openat(folder, c".", flags, Mode::empty())?)
}

/// Opens a folder in an open folder. A symbolic link is not followed.
fn folder_in(folder: impl AsFd, name: impl Arg) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(sys::fs::openat(folder, name, flags, Mode::empty())?)
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

/// Tells whether the open file is the file that has the name `path`.
///
/// # Errors
/// The kernel does not say, for example for lack of memory.
pub fn has_name(file: &File, path: impl AsRef<Path>) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let open = file.metadata()?;
    match metadata(path) {
        Ok(named) => Ok((named.dev(), named.ino()) == (open.dev(), open.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Gives the names of everything in a folder. If the kernel cannot read the whole folder, the call fails, so the list is
/// never short.
pub fn names_in(path: impl AsRef<Path>) -> io::Result<Vec<OsString>> {
    let name = |entry: io::Result<DirEntry>| {
        sys::plan("getdents")?;
        Ok(entry?.file_name())
    };
    read_dir(path)?.map(name).collect()
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

    /// The environment variable that is set in the process that removes deeply nested folders. Its value is the path of
    /// the outermost folder.
    const DEEP: &str = "CROSSDOCK_TEST_DEEP";

    #[test]
    fn deeply_nested_folders_are_removed_with_a_small_stack() {
        if let Some(deep) = std::env::var_os(DEEP) {
            let thread = std::thread::Builder::new().stack_size(128 << 10);
            return thread.spawn(|| remove_dir_all(deep)).unwrap().join().unwrap().unwrap();
        }
        let above = tempfile::tempdir().unwrap();
        let top = above.path().join("top");
        create_dir(&top).unwrap();
        let mut folder = folder_in(CWD, &top).unwrap();
        for _ in 0..1500 {
            rustix::fs::mkdirat(&folder, c"a", Mode::from_raw_mode(0o777)).unwrap();
            folder = folder_in(&folder, c"a").unwrap();
        }
        let words = ["--exact", "fs::nesting::deeply_nested_folders_are_removed_with_a_small_stack"];
        let mut command = std::process::Command::new("sh");
        command.args(["-c", "ulimit -n $(ulimit -Hn) && exec \"$0\" \"$@\""]).arg(std::env::current_exe().unwrap());
        command.args(words).env(DEEP, &top);
        assert!(command.status().unwrap().success());
        assert!(!top.exists());
    }

    #[test]
    fn a_folder_is_made_and_opened_through_links_of_this_user_and_of_root_only() {
        let above = tempfile::tempdir().unwrap();
        let at = |name: &str| above.path().join(name);
        let id = |file: &File| file.metadata().unwrap().ino();
        let made = make_and_open_folder(&at("a/b/../c/")).unwrap();
        assert_eq!(id(&made), metadata(at("a/c")).unwrap().ino());
        symlink("a", at("own")).unwrap();
        symlink(at("own/c"), at("absolute")).unwrap();
        symlink("loop", at("loop")).unwrap();
        std::fs::write(at("file"), "x").unwrap();
        assert_eq!(id(&make_and_open_folder(&at("absolute/../c")).unwrap()), id(&made));
        assert!(make_and_open_folder(Path::new("/proc/self/fd")).is_ok(), "a link of root");
        assert!(make_and_open_folder(&at("file")).is_err() && make_and_open_folder(&at("loop")).is_err());
        if crate::child::user() != 0 {
            return crate::testing::skip("a link of another user, which only root can make");
        }
        std::os::unix::fs::lchown(at("own"), Some(12345), None).unwrap();
        for path in ["own", "own/c", "own/new", "absolute"] {
            let error = make_and_open_folder(&at(path)).unwrap_err().to_string();
            assert!(error.contains("`own` is a symbolic link of user 12345"), "{path}: {error}");
        }
        assert!(!at("a/new").exists());
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

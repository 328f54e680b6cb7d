//! A folder of numbered checkpoints: `NAME-00000012.h5`. Each name has at most one writer at a time.
//!
//! A file is written as `.NAME-00000012.h5.new`, synced and renamed; then the folder is synced. If a writer dies before
//! the rename, it leaves a `.new` file, which readers ignore and the next writer removes.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crossdock_layout::Status;
use crossdock_os::file::{rename_to_free_name, sync_folder, try_lock};
use crossdock_os::fs::{self, File, OpenOptions};

use crate::contents::Contents;
use crate::error::{self, Error, Result};
use crate::read::Checkpoint;
use crate::write;

/// A folder in which one writer saves checkpoints.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    name: String,
    next: u64,
    /// The open lock file, which holds the writer's lock.
    _lock: File,
}

/// A checkpoint that was saved.
#[derive(Clone, Debug)]
pub struct Saved {
    /// The path of the checkpoint.
    pub path: PathBuf,
    /// The length of the file in bytes.
    pub length: u64,
    /// How long writing the checkpoint took.
    pub took: Duration,
}

impl Folder {
    /// Opens a folder, or makes it if it does not exist, and removes partly written files of a dead writer. If the
    /// newest checkpoint is damaged, it is renamed to `….damaged`, so that it is neither counted nor used. The function
    /// `said` gets a message about the damaged checkpoint.
    ///
    /// # Errors
    /// `BUSY` if another writer works on this name. `INVALID` if the name is not allowed, or if a checkpoint has the
    /// largest possible number, so that no number is left for the next one. If the folder cannot be made or read:
    /// `DENIED` if this user may not use it, `NO_SPACE` if the disk is full, otherwise `SYSTEM`.
    pub fn open(path: &Path, name: &str, said: &mut dyn FnMut(String)) -> Result<Self> {
        if name.is_empty() || name.starts_with('.') || name.contains(['/', '\0']) || name.len() > 200 {
            return Err(Error::new(Status::Invalid, format!("{name:?} cannot begin a file's name")));
        }
        fs::create_dir_all(path).map_err(|e| error::refused(path, "cannot make folder", &e))?;
        let lock = take_lock(path, name)?;
        let mut folder = Self { path: path.into(), name: name.into(), next: 1, _lock: lock };
        folder.sweep(said)?;
        let mut mine = folder.mine()?;
        folder.next = folder.after_all()?;
        while let Some((_, newest)) = mine.pop() {
            match Checkpoint::open(&newest).and_then(|c| c.verify()) {
                Ok(()) => break,
                Err(e) if e.status == Status::Corrupt => folder.set_aside(&newest, &e, said)?,
                Err(e) => return Err(e),
            }
        }
        Ok(folder)
    }

    fn sweep(&self, said: &mut dyn FnMut(String)) -> Result<()> {
        for name in names(&self.path)? {
            let of = name.strip_prefix('.').and_then(|n| n.strip_suffix(".h5.new")).and_then(parts);
            if of.is_some_and(|(name, _)| name == self.name) {
                let path = self.path.join(&name);
                fs::remove_file(&path).map_err(|e| error::refused(&path, "cannot remove", &e))?;
                said(format!("removed {}, which a writer that died had begun", path.display()));
            }
        }
        Ok(())
    }

    /// Gives the number of the next checkpoint of this name: the largest number that a checkpoint has, plus one.
    /// Damaged checkpoints that were renamed count too.
    fn after_all(&self) -> Result<u64> {
        let number = |file: &String| {
            let (name, number) = parts(file.strip_suffix(".damaged").unwrap_or(file).strip_suffix(".h5")?)?;
            (name == self.name).then_some(number)
        };
        let last = names(&self.path)?.iter().filter_map(number).max().unwrap_or(0);
        last.checked_add(1).ok_or_else(|| {
            let file = self.path.join(format!("{}-{last}.h5", self.name));
            Error::new(Status::Invalid, format!("{} leaves no number for the next checkpoint", file.display()))
        })
    }

    fn set_aside(&self, path: &Path, why: &Error, said: &mut dyn FnMut(String)) -> Result<()> {
        let aside = path.with_extension("h5.damaged");
        fs::rename(path, &aside).map_err(|e| error::refused(path, "cannot rename", &e))?;
        said(format!("{why}; set aside as {}", aside.display()));
        Ok(())
    }

    /// Opens the newest checkpoint; `None` if there is none.
    ///
    /// # Errors
    /// The same errors as [`Checkpoint::open`].
    pub fn newest(&self) -> Result<Option<Checkpoint>> {
        self.mine()?.pop().map(|(_, path)| Checkpoint::open(&path)).transpose()
    }

    /// Writes the next checkpoint. If `save` returns without an error, the file has its name and is on the disk. After
    /// an error nothing has changed. No existing file is replaced.
    ///
    /// `good` is called after everything is written. If it returns false, the contents are not valid any more (for
    /// example, because the publisher took the version back), and they are not saved.
    ///
    /// # Errors
    /// `INVALID` if HDF5 cannot hold the contents. `CLOSED` if `good` returned false. If the file cannot be written:
    /// `NO_SPACE` if the disk or a quota is full, `DENIED` if this user may not write there, `NOT_FOUND` if the folder
    /// is gone, otherwise `SYSTEM`.
    pub fn save(&mut self, contents: &Contents, good: &dyn Fn() -> bool) -> Result<Saved> {
        let begun = Instant::now();
        self.skip_used_numbers()?;
        let name = self.next_name();
        let (path, new) = (self.path.join(&name), self.path.join(format!(".{name}.new")));
        let written = Self::write_new(&new, contents).and_then(|written| {
            if !good() {
                let message =
                    "the version was taken back while it was written (the publisher's policy for a full pool)";
                return Err(Error::new(Status::Closed, message));
            }
            rename_to_free_name(&new, &path).map_err(|e| error::refused(&path, "cannot put in place", &e.reason()))?;
            // The sync has failed, so after a crash of the machine the new name might be lost. An error of `save` must
            // mean that nothing has changed, so the file is removed.
            sync_folder(&self.path).map_err(|e| {
                let _ = fs::remove_file(&path);
                error::refused(&self.path, "cannot sync", &e.reason())
            })?;
            Ok(written)
        });
        let written = written.inspect_err(|_| {
            let _ = fs::remove_file(&new);
        })?;
        self.next += 1;
        Ok(Saved { path, length: written.length, took: begun.elapsed() })
    }

    /// Takes another number if the next one is used: another program may have put a checkpoint into the folder, for
    /// example a copy from an archive. The rename in `save` finds this too, but not on every file system.
    fn skip_used_numbers(&mut self) -> Result<()> {
        let path = self.path.join(self.next_name());
        match fs::symlink_metadata(&path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            found => found.map_err(|e| error::refused(&path, "cannot look at", &e))?,
        };
        self.next = self.after_all()?;
        Ok(())
    }

    fn next_name(&self) -> String {
        format!("{}-{:08}.h5", self.name, self.next)
    }

    fn write_new(new: &Path, contents: &Contents) -> Result<write::Written> {
        let refused = |e: std::io::Error| error::refused(new, "cannot create", &e);
        let create = || fs::open(OpenOptions::new().write(true).create_new(true), new);
        let file = match create() {
            // An earlier call of this writer failed and could not remove its file, because the folder was read-only for
            // a while. So this call removes the file.
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
                fs::remove_file(new).map_err(|e| error::refused(new, "cannot remove", &e))?;
                create()
            }
            other => other,
        };
        let file = file.map_err(refused)?;
        write::write(&file, new, contents)
    }

    /// Removes all but the newest `keep` checkpoints. Returns how many it removed. If a checkpoint cannot be removed,
    /// the other old checkpoints are removed all the same.
    ///
    /// # Errors
    /// The error of the first file that cannot be removed: `DENIED` if this user may not remove it, otherwise `SYSTEM`.
    pub fn prune(&self, keep: usize) -> Result<usize> {
        let mine = self.mine()?;
        let many = mine.len().saturating_sub(keep.max(1));
        let (mut removed, mut failed) = (0, None);
        for (_, path) in &mine[..many] {
            match fs::remove_file(path) {
                Ok(()) => removed += 1,
                // Another program has removed the file since the folder was listed.
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
                Err(e) => failed = failed.or_else(|| Some(error::refused(path, "cannot remove", &e))),
            }
        }
        failed.map_or(Ok(removed), Err)
    }

    fn mine(&self) -> Result<Vec<(u64, PathBuf)>> {
        let all = numbered(&self.path)?;
        Ok(all.into_iter().filter(|(name, _, _)| *name == self.name).map(|(_, number, path)| (number, path)).collect())
    }
}

fn take_lock(path: &Path, name: &str) -> Result<File> {
    let place = path.join(format!(".{name}.lock"));
    let refused = |e: &std::io::Error| error::refused(&place, "cannot create", e);
    let lock = fs::open(OpenOptions::new().create(true).append(true), &place).map_err(|e| refused(&e))?;
    match try_lock(&lock) {
        Ok(true) => Ok(lock),
        Ok(false) => Err(Error::new(
            Status::Busy,
            format!(
                "another process writes checkpoints `{name}` into {}; give one of them another --name",
                path.display()
            ),
        )),
        Err(e) => Err(error::refused(&place, "cannot lock", &e.reason())),
    }
}

/// Gives the first part of the names of a series' checkpoint files: `field` for the series `field/0`, and `a.b` for
/// `a/b`.
#[must_use]
pub fn base_of(series: &str) -> String {
    let base = match series.rsplit_once('/') {
        Some((base, rank)) if rank.bytes().all(|b| b.is_ascii_digit()) => base,
        _ => series,
    };
    base.replace('/', ".")
}

/// Splits `field-00000012` into the name and the number. A name may contain `-`, too.
fn parts(file: &str) -> Option<(&str, u64)> {
    let (name, number) = file.rsplit_once('-')?;
    let plain = number.len() >= 8 && number.bytes().all(|b| b.is_ascii_digit()) && !name.starts_with('.');
    if plain { Some((name, number.parse().ok()?)) } else { None }
}

fn names(folder: &Path) -> Result<Vec<String>> {
    let refused = |e: std::io::Error| error::refused(folder, "cannot look into", &e);
    let names = fs::names_in(folder).map_err(refused)?;
    Ok(names.into_iter().filter_map(|name| name.into_string().ok()).collect())
}

/// Lists every checkpoint of a folder as (name, number, path). The list is sorted by name, and then by number.
pub(crate) fn numbered(folder: &Path) -> Result<Vec<(String, u64, PathBuf)>> {
    let mut found = Vec::new();
    for file in names(folder)? {
        if let Some((name, number)) = file.strip_suffix(".h5").and_then(parts) {
            found.push((name.to_owned(), number, folder.join(&file)));
        }
    }
    found.sort();
    Ok(found)
}

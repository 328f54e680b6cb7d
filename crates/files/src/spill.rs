//! Moves published files from memory to a disk. Moving begins when the memory is three quarters full, takes the oldest
//! files first, and stops when half is free.
//!
//! ```text
//! DISK/new/        a copy waits here for its rename, so that a file takes its name in one step
//! DISK/files/      what was moved; ROOT/spilled is a link to it
//! ```
//!
//! The copy of a file gets its name on the disk before the file's names in memory are removed. So for a moment the file
//! is in memory and on the disk, and at no moment is it missing from both. Consumers see files through a view
//! ([`crate::View`]), which looks for a file in memory and on the disk. A process that has the file open in memory
//! keeps it.
//!
//! What if the service dies? Before the copy has its name, the file is in memory, and the next service clears the
//! folder `new`. After the copy has got its name, the file is in memory and on the disk, and the next service removes
//! the file's names in memory.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{MutexGuard, PoisonError};

use crossdock_core::fault_point;
use crossdock_os::fs::{self, DirBuilder, FileTimes, OpenOptions};

use crate::store::{Layout, ordinary, same};
use crate::view::MovedFiles;

/// The points at which a checked build can kill the service while it moves a file.
#[cfg(feature = "fault-points")]
pub const SPILL_FAULT_POINTS: &[&str] =
    &["files.spill.copied", "files.spill.shown", "files.spill.unstaged", "files.spill.hidden", "files.spill.moved"];

/// The folder on a disk to which the service moves files of one managed directory, and the state of these moves.
#[derive(Debug)]
pub(crate) struct Spill {
    disk: PathBuf,
    /// Moving starts when more than `high` bytes of memory are in use, and stops at `low` bytes.
    high: u64,
    low: u64,
    is_moving: bool,
    copies: u64,
    /// Published files in memory, oldest first.
    pub order: VecDeque<PathBuf>,
    pub moved: MovedFiles,
    /// Names that this value has removed from the producers' folder. The service ignores the event of each such
    /// removal, and empties this list before it handles events.
    pub unstaged: Vec<PathBuf>,
}

/// A file that is being moved from memory to the disk.
#[derive(Debug)]
pub(crate) struct Copy {
    pub rest: PathBuf,
    from: PathBuf,
    to: PathBuf,
    /// The metadata that the file in memory had when the file was chosen.
    meta: fs::Metadata,
}

impl Spill {
    /// Makes the folders on the disk, and completes or undoes the moves that a killed service began.
    pub fn open(layout: &Layout, disk: &Path, quota: u64, moved: MovedFiles) -> io::Result<Self> {
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", disk.display()));
        for (name, mode) in [("", 0o711), ("new", 0o700), ("files", 0o755)] {
            match fs::make_folder(DirBuilder::new().mode(mode), disk.join(name)) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(named(error)),
                _ => fs::set_permissions(disk.join(name), fs::Permissions::from_mode(mode)).map_err(named)?,
            }
        }
        for left in fs::read_dir(disk.join("new")).map_err(named)? {
            fs::remove_file(left?.path()).map_err(named)?;
        }
        match fs::symlink(disk.join("files"), &layout.spilled) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(named(error)),
            _ => {}
        }
        let mut spill = Self {
            disk: disk.to_owned(),
            high: quota / 4 * 3,
            low: quota / 2,
            is_moving: false,
            copies: 0,
            order: VecDeque::new(),
            moved,
            unstaged: Vec::new(),
        };
        spill.take_over(layout, Path::new(""))?;
        Ok(spill)
    }

    /// Handles files that are both in memory and on the disk: either a move was not completed, or a newer file has the
    /// name of a file that had been moved.
    fn take_over(&mut self, layout: &Layout, rest: &Path) -> io::Result<()> {
        let mut found = Vec::new();
        for entry in fs::read_dir(layout.published.join(rest))? {
            let entry = entry?;
            let rest = rest.join(entry.file_name());
            let meta = entry.metadata()?;
            if meta.is_dir() {
                self.take_over(layout, &rest)?;
            } else if let Ok(copy) = fs::metadata(layout.spilled.join(&rest)) {
                if copy.len() == meta.len() && copy.modified()? == meta.modified()? {
                    self.note(&copy, &meta);
                    self.take_from_memory(layout, &rest, &meta)?;
                } else {
                    fs::remove_file(layout.spilled.join(&rest))?;
                }
            } else {
                found.push((meta.modified()?, rest));
            }
        }
        found.sort();
        self.order.extend(found.into_iter().map(|(_, rest)| rest));
        Ok(())
    }

    fn note(&self, copy: &fs::Metadata, meta: &fs::Metadata) {
        self.moved().insert((copy.dev(), copy.ino()), (meta.dev(), meta.ino()));
    }

    fn moved(&self) -> MutexGuard<'_, std::collections::HashMap<(u64, u64), (u64, u64)>> {
        self.moved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a file was published in memory. An older file of that name on the disk is removed.
    pub fn published(&mut self, layout: &Layout, rest: &Path) -> io::Result<()> {
        self.order.retain(|known| known != rest);
        self.order.push_back(rest.to_owned());
        match fs::remove_file(layout.spilled.join(rest)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Chooses the next file to move. Returns `None` if `used`, the number of bytes of memory in use, is small enough,
    /// or if no file is left. Also returns `None` if an error hides whether the chosen file exists; this file then goes
    /// to the end of the list of files to move.
    pub fn next(&mut self, layout: &Layout, used: u64) -> Option<Copy> {
        self.is_moving = used > if self.is_moving { self.low } else { self.high };
        while self.is_moving {
            let rest = self.order.pop_front()?;
            let from = layout.published.join(&rest);
            let meta = match fs::symlink_metadata(&from) {
                Ok(meta) if meta.is_file() => meta,
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    // The file may exist, so a later call looks at it again.
                    self.order.push_back(rest);
                    return None;
                }
                _ => continue,
            };
            self.copies += 1;
            let to = self.disk.join("new").join(self.copies.to_string());
            return Some(Copy { rest, from, to, meta });
        }
        None
    }

    /// Gives a copied file its name on the disk, and removes the original's names in memory. Returns false if the
    /// original was replaced or removed meanwhile.
    pub fn take(&mut self, layout: &Layout, copy: &Copy) -> io::Result<bool> {
        let done = self.show(layout, copy);
        if !matches!(done, Ok(true)) {
            let _ = fs::remove_file(&copy.to);
        }
        if let Ok(true) = done {
            self.take_from_memory(layout, &copy.rest, &copy.meta)?;
        }
        done
    }

    fn show(&self, layout: &Layout, copy: &Copy) -> io::Result<bool> {
        if !same(&copy.from, &copy.meta)? {
            return Ok(false);
        }
        let place = layout.spilled.join(&copy.rest);
        if let Some(folder) = place.parent() {
            fs::create_dir_all(folder)?;
        }
        // The copy is registered first, because a view may find the copy as soon as the copy has its name.
        self.note(&fs::symlink_metadata(&copy.to)?, &copy.meta);
        fs::rename(&copy.to, place)?;
        fault_point!("files.spill.shown");
        Ok(true)
    }

    /// Removes the names of a file in memory. The producers' name is removed first. A file without this name counts as
    /// published, so the next service does not publish it again.
    fn take_from_memory(&mut self, layout: &Layout, rest: &Path, meta: &fs::Metadata) -> io::Result<()> {
        // Tells whether this call has removed the name.
        let remove = |path: &Path| match same(path, meta)?.then(|| fs::remove_file(path)) {
            Some(Ok(())) => Ok(true),
            Some(Err(error)) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(false),
        };
        if layout.staged(rest)?.map_or(Ok(false), |place| remove(&place))? {
            self.unstaged.push(rest.to_owned());
        }
        fault_point!("files.spill.unstaged");
        for folder in layout.singles() {
            remove(&folder.join(rest))?;
        }
        fault_point!("files.spill.hidden");
        remove(&layout.published.join(rest))?;
        fault_point!("files.spill.moved");
        Ok(())
    }
}

impl Copy {
    /// Copies the bytes, the times and the mode of the file.
    pub fn make(&self) -> io::Result<()> {
        let Some(mut from) = ordinary(&self.from)? else { return Err(ErrorKind::NotFound.into()) };
        let mut to = fs::open(OpenOptions::new().read(true).write(true).create_new(true), &self.to)?;
        fs::copy_rest(&mut from, &mut to)?;
        to.set_times(FileTimes::new().set_modified(self.meta.modified()?))?;
        fs::set_mode(&to, self.meta.mode() & 0o7777)?;
        std::os::unix::fs::fchown(&to, Some(self.meta.uid()), Some(self.meta.gid()))?;
        fault_point!("files.spill.copied");
        Ok(())
    }

    /// Deletes the copy of a file that is not moved after all.
    pub fn drop_file(&self) {
        let _ = fs::remove_file(&self.to);
    }
}

//! Finds the newest good checkpoint of a folder, and tells which newer ones are damaged.

use std::path::{Path, PathBuf};

use crossdock_layout::Status;

use crate::error::{Error, Result};
use crate::folder::numbered;
use crate::read::Checkpoint;

/// How often the folder is listed at most. It is listed again if a checkpoint was removed before it could be opened.
const LISTINGS: usize = 100;

/// A checkpoint to restart from.
#[derive(Debug)]
pub struct Restart {
    /// The newest checkpoint whose checksums all hold.
    pub checkpoint: Checkpoint,
    /// The newer checkpoints that could not be used, each with the reason.
    pub skipped: Vec<(PathBuf, Error)>,
}

/// Finds the newest good checkpoint. `name` is the part of the file names before the number (`field`). If `name` is
/// empty, all checkpoints of the folder must have the same name, and this name is used.
///
/// The ranks of a program may get different answers if a writer saves a checkpoint between their calls. So one rank
/// should choose, and tell the others the path of its checkpoint: if `folder` is the path of a file, the call takes
/// this file and no other one. A path that ends in `.h5` counts as the path of a file even if nothing is there, and the
/// call then fails.
///
/// # Errors
/// `NOT_FOUND` if there is no checkpoint at all (a first start), `CORRUPT` if there are checkpoints but none is good,
/// `INVALID` if `name` is empty and several names exist, or if the given file does not exist, `DENIED` or `SYSTEM` if
/// the folder or a checkpoint cannot be read.
pub fn restart(folder: &Path, name: &str) -> Result<Restart> {
    if folder.is_file() || folder.extension().is_some_and(|e| e == "h5") && !folder.is_dir() {
        return one_file(folder);
    }
    for _ in 0..LISTINGS {
        if let Some(found) = newest_good(folder, name)? {
            return Ok(found);
        }
    }
    let text = format!("checkpoints in {} are removed faster than they can be opened", folder.display());
    Err(Error::new(Status::System, text))
}

/// Opens the checkpoint that another rank has chosen.
fn one_file(path: &Path) -> Result<Restart> {
    match Checkpoint::open(path).and_then(|c| c.verify().map(|()| c)) {
        Ok(checkpoint) => Ok(Restart { checkpoint, skipped: Vec::new() }),
        // The status must not be NOT_FOUND, because NOT_FOUND tells the program that it starts for the first time.
        Err(e) if e.status == Status::NotFound => Err(Error::new(Status::Invalid, e.to_string())),
        Err(e) => Err(e),
    }
}

/// Lists the folder one time, and opens the newest good checkpoint. Returns `None` if a listed checkpoint was removed
/// before this function could open it, as by a writer that keeps only the newest checkpoints. The caller then tries
/// again.
fn newest_good(folder: &Path, name: &str) -> Result<Option<Restart>> {
    let mut found = numbered(folder)?;
    found.retain(|(n, _, _)| name.is_empty() || n == name);
    let mut names: Vec<&str> = found.iter().map(|(n, _, _)| n.as_str()).collect();
    names.dedup();
    if names.len() > 1 {
        let message = format!("{} holds checkpoints of {}; say of which", folder.display(), names.join(", "));
        return Err(Error::new(Status::Invalid, message));
    }
    let mut skipped = Vec::new();
    for (_, _, path) in found.iter().rev() {
        match Checkpoint::open(path).and_then(|c| c.verify().map(|()| c)) {
            Ok(checkpoint) => return Ok(Some(Restart { checkpoint, skipped })),
            // The name is a link to a missing file, for example on a disk that is not mounted. If the caller tried
            // again, it would list the folder again and find the same link. So the call fails at once.
            Err(e) if e.status == Status::NotFound && path.is_symlink() && matches!(path.try_exists(), Ok(false)) => {
                return Err(Error::new(Status::System, format!("{} is a link to a missing file", path.display())));
            }
            Err(e) if e.status == Status::NotFound => return Ok(None),
            Err(e) if e.status == Status::Corrupt => skipped.push((path.clone(), e)),
            // The checkpoint may be good although it cannot be read now. So the call fails, instead of taking an older
            // checkpoint.
            Err(e) => return Err(e),
        }
    }
    match skipped.first() {
        None => Err(Error::new(Status::NotFound, format!("{} holds no checkpoint", folder.display()))),
        Some((_, first)) => Err(Error::new(
            Status::Corrupt,
            format!("none of the {} checkpoints in {} is good; the newest: {first}", skipped.len(), folder.display()),
        )),
    }
}

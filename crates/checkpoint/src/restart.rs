//! Finds the newest good checkpoint of a folder, and tells which newer ones are damaged.

use std::path::{Path, PathBuf};

use crossdock_layout::Status;

use crate::error::{Error, Result};
use crate::folder::numbered;
use crate::read::Checkpoint;

/// How often the folder is listed, if checkpoints are removed while they are being opened.
const LISTINGS: usize = 100;

/// A checkpoint to restart from.
#[derive(Debug)]
pub struct Restart {
    /// The newest checkpoint whose checksums all hold.
    pub checkpoint: Checkpoint,
    /// The newer checkpoints that could not be used, each with the reason.
    pub skipped: Vec<(PathBuf, Error)>,
}

/// Finds the newest good checkpoint. `name` is the part of the file names before the number (`field`). An empty `name`
/// takes the only name that exists.
///
/// In programs of several ranks each rank gets the same answer, because one file holds all ranks.
///
/// # Errors
/// `NOT_FOUND` if there is no checkpoint at all (a first start), `CORRUPT` if there are checkpoints but none is good,
/// `INVALID` if `name` is empty and several names exist, `DENIED` or `SYSTEM` if the folder or a checkpoint cannot be
/// read.
pub fn restart(folder: &Path, name: &str) -> Result<Restart> {
    for _ in 0..LISTINGS {
        if let Some(found) = newest_good(folder, name)? {
            return Ok(found);
        }
    }
    let text = format!("checkpoints in {} are removed faster than they can be opened", folder.display());
    Err(Error::new(Status::System, text))
}

/// Lists the folder once, and opens the newest good checkpoint; `None` if a listed one was removed before it could be
/// opened, by a writer that keeps only the newest ones.
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
            Err(e) if e.status == Status::NotFound => return Ok(None),
            Err(e) if e.status == Status::Corrupt => skipped.push((path.clone(), e)),
            // The checkpoint may be good, so no older one is taken for it.
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

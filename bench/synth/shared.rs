//! The named things of a run in /dev/shm: Boost's segments, and a folder for Open MPI's. Both outlive killed processes,
//! so the generator removes them itself.

use std::path::{Path, PathBuf};

const AT: &str = "/dev/shm";

/// The beginning of all names of a run. `run`: [`crate::run::id`].
fn prefix(run: &str) -> String {
    format!("crossdock-synth-{run}-")
}

/// Makes the folder for Open MPI's segments and session files. Without it a killed Open MPI leaves them in /dev/shm and
/// /tmp.
pub fn make_folder(run: &str) -> Result<PathBuf, String> {
    let folder = Path::new(AT).join(prefix(run) + "openmpi");
    std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    Ok(folder)
}

/// Removes everything that a run has there.
pub fn remove(run: &str) {
    let prefix = prefix(run);
    for entry in std::fs::read_dir(AT).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(&prefix) {
            let _ = match entry.file_type() {
                Ok(kind) if kind.is_dir() => std::fs::remove_dir_all(entry.path()),
                _ => std::fs::remove_file(entry.path()),
            };
        }
    }
}

//! What a run has in /dev/shm by a name: Boost's segments, and a folder for Open MPI's. Both outlive processes that were
//! killed, so the generator takes them away itself.

use std::path::{Path, PathBuf};

const AT: &str = "/dev/shm";

/// What the names of a run begin with. `run`: [`crate::run::id`].
fn prefix(run: &str) -> String {
    format!("crossdock-synth-{run}-")
}

/// Makes the folder for Open MPI's segments and session files, which it else leaves in /dev/shm and /tmp when it is killed.
pub fn make_folder(run: &str) -> Result<PathBuf, String> {
    let folder = Path::new(AT).join(prefix(run) + "openmpi");
    std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    Ok(folder)
}

/// Takes away whatever a run has there.
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

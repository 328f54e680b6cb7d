//! The named objects of a run in /dev/shm: Boost's segments, and a folder for Open MPI's segments. Both stay when their
//! processes are killed, so this program removes them.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const AT: &str = "/dev/shm";

/// Gives the beginning of all names of a run. `run` is the text that [`crate::run::id`] gives.
fn prefix(run: &str) -> String {
    format!("crossdock-synth-{run}-")
}

/// Makes a folder for the segments and session files of Open MPI. Without it, a killed Open MPI would leave them in
/// /dev/shm and /tmp.
pub fn make_folder(run: &str) -> Result<PathBuf, String> {
    let folder = Path::new(AT).join(prefix(run) + "openmpi");
    std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    Ok(folder)
}

/// Removes everything of this run from /dev/shm.
pub fn remove(run: &str) {
    let prefix = prefix(run);
    for entry in std::fs::read_dir(AT).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(&prefix) {
            let _ = match entry.file_type() {
                Ok(kind) if kind.is_dir() => remove_folder(&entry.path()),
                _ => std::fs::remove_file(entry.path()),
            };
        }
    }
}

/// Removes a folder with its contents. If a killed program still writes into the folder, the removal fails. So the
/// removal is tried again for at most two seconds.
pub fn remove_folder(folder: &Path) -> std::io::Result<()> {
    let until = Instant::now() + Duration::from_secs(2);
    loop {
        match std::fs::remove_dir_all(folder) {
            Err(_) if folder.exists() && Instant::now() < until => std::thread::sleep(Duration::from_millis(20)),
            end => return end,
        }
    }
}

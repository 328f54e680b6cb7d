//! The run's folder: private to the user, locked while the run lives, cleaned by the next run if the run died whole.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{FlockOperation, flock};

use super::processes;
use crate::engine;

/// A run's folder, with the lock that says that the run lives.
#[derive(Debug)]
pub struct RunFolder {
    /// Unique on this node.
    pub id: String,
    /// Where.
    pub path: PathBuf,
    /// Held by front and supervisor; the kernel lets go of it when both are gone.
    _lock: File,
}

/// Where the user's runs are: `$CROSSDOCK_RUNS`, else `$XDG_RUNTIME_DIR/crossdock/runs`, else `/tmp/crossdock-UID/runs`.
pub fn base() -> PathBuf {
    if let Some(folder) = std::env::var_os("CROSSDOCK_RUNS").map(PathBuf::from).filter(|f| f.is_absolute()) {
        return folder.join("crossdock").join("runs");
    }
    let uid = rustix::process::geteuid().as_raw();
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let owned = |p: &PathBuf| p.is_absolute() && fs::metadata(p).is_ok_and(|m| m.is_dir() && m.uid() == uid);
    match runtime.filter(owned) {
        Some(folder) => folder.join("crossdock").join("runs"),
        None => std::env::temp_dir().join(format!("crossdock-{uid}")).join("runs"),
    }
}

/// Makes the base with its parent, private to the user; refuses a folder that somebody else put there.
fn private_base() -> Result<PathBuf, String> {
    let base = base();
    let uid = rustix::process::geteuid().as_raw();
    for folder in [base.parent().unwrap_or(&base), &base] {
        match DirBuilder::new().mode(0o700).create(folder) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => {
                return Err(format!(
                    "cannot make the folder {}: {e}; set CROSSDOCK_RUNS to a folder of your own",
                    folder.display()
                ));
            }
        }
        let meta = fs::symlink_metadata(folder).map_err(|e| format!("cannot look at {}: {e}", folder.display()))?;
        if !meta.is_dir() || meta.uid() != uid {
            return Err(format!(
                "{} is not a folder of user {uid}; remove it, or set CROSSDOCK_RUNS to a folder of your own",
                folder.display()
            ));
        }
        if meta.mode() & 0o077 != 0 {
            fs::set_permissions(folder, fs::Permissions::from_mode(0o700))
                .map_err(|e| format!("cannot make {} private: {e}", folder.display()))?;
        }
    }
    Ok(base)
}

impl RunFolder {
    /// Makes one with a fresh id.
    pub fn make(workflow: &str) -> Result<Self, String> {
        let word: String = workflow
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' })
            .take(16)
            .collect();
        let word = word.trim_matches('-');
        for attempt in 0..100u32 {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64);
            let mixed = (now ^ u64::from(std::process::id()) << 40)
                .wrapping_add(u64::from(attempt))
                .wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let id = format!("{word}-{:08x}", mixed >> 32);
            let id = id.trim_start_matches('-').to_owned();
            // Asked for each time: another run that ends may take the empty folder away between the two steps.
            let base = private_base()?;
            let path = base.join(&id);
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Self::open(id, path),
                Err(e) if matches!(e.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::NotFound) => {}
                Err(e) => {
                    return Err(format!("cannot make the folder {}: {e}; is the file system full?", path.display()));
                }
            }
        }
        Err(format!("cannot find a free name for the run in {}", base().display()))
    }

    /// Joins one that the front made.
    pub fn join(id: &str) -> Result<Self, String> {
        Self::open(id.to_owned(), base().join(id))
    }

    fn open(id: String, path: PathBuf) -> Result<Self, String> {
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(path.join("lock"));
        let lock = lock.map_err(|e| format!("cannot make the lock in {}: {e}", path.display()))?;
        // Shared: front and supervisor both hold it. Who cleans up asks for it alone.
        flock(&lock, FlockOperation::NonBlockingLockShared)
            .map_err(|e| format!("cannot lock {}: {e}", path.display()))?;
        Ok(Self { id, path, _lock: lock })
    }

    /// Notes the engine, so that whoever cleans up knows whom to ask for containers.
    pub fn note_engine(&self, name: &str) -> Result<(), String> {
        fs::write(self.path.join("engine"), name).map_err(|e| format!("cannot write to {}: {e}", self.path.display()))
    }
}

/// Removes containers and folder of a run; nothing there is no trouble.
pub fn clean(id: &str, path: &Path) {
    if let Some(engine) = fs::read_to_string(path.join("engine")).ok().and_then(|n| engine::by_name(n.trim())) {
        engine.clean(id);
    }
    processes::kill_marked(id);
    remove(path);
    // The folders above go with the last run; while others are in them the kernel refuses.
    for above in path.ancestors().skip(1).take(2) {
        let _ = fs::remove_dir(above);
    }
}

/// Removes a folder; tried twice, because a dying daemon may still put a file there.
pub fn remove(path: &Path) {
    for _ in 0..2 {
        match fs::remove_dir_all(path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => std::thread::sleep(std::time::Duration::from_millis(50)),
            _ => return,
        }
    }
}

/// Cleans up after runs that died whole (both processes killed, or the machine reset). Gives their ids.
pub fn clean_dead() -> Vec<String> {
    let mut cleaned = Vec::new();
    for entry in fs::read_dir(base()).into_iter().flatten().flatten() {
        let (path, Ok(id)) = (entry.path(), entry.file_name().into_string()) else { continue };
        let Ok(lock) = File::open(path.join("lock")) else {
            // A run that is just being made has no lock yet.
            let age = entry.metadata().ok().and_then(|m| m.modified().ok()).and_then(|t| t.elapsed().ok());
            if age.is_some_and(|a| a.as_secs() > 60) {
                remove(&path);
            }
            continue;
        };
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            clean(&id, &path);
            cleaned.push(id);
        }
    }
    cleaned
}

/// The user's runs that live now, by id and folder.
pub fn living() -> Vec<(String, PathBuf)> {
    let entries = fs::read_dir(base()).into_iter().flatten().flatten();
    let held = |path: &Path| {
        File::open(path.join("lock")).is_ok_and(|lock| flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err())
    };
    entries.filter_map(|e| Some((e.file_name().into_string().ok()?, e.path()))).filter(|(_, path)| held(path)).collect()
}

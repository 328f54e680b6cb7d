//! The run's folder. The folder is private to the user and locked while the run lives. If all processes of a run were
//! killed, the next run removes the folder of the killed run.

use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use crossdock_client::runs::{MAKING, base};
use crossdock_os::file::{self, rename_to_free_name, try_lock, try_lock_shared};
use crossdock_os::fs::{self, DirBuilder, File, OpenOptions};

use super::processes;
use crate::engine::{self, Cleanup};
use crate::shared_memory;

/// The file in the run's folder that is made and locked when the run begins.
const LOCK: &str = "lock";

/// A run's folder, with the lock that says that the run lives.
#[derive(Debug)]
pub struct RunFolder {
    /// The run's id, unique on this node.
    pub id: String,
    /// The path of the run's folder.
    pub path: PathBuf,
    /// The lock that front and supervisor hold. The kernel releases it when both have ended.
    lock: Arc<File>,
}

/// Makes the base folder with its parent, private to the user. A folder of another user at this path is an error.
fn make_private(base: &Path) -> Result<(), String> {
    let uid = crossdock_os::child::user();
    for folder in [base.parent().unwrap_or(base), base] {
        match fs::make_folder(DirBuilder::new().mode(0o700), folder) {
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
    Ok(())
}

/// Gives a new id for a run of this workflow. The run's folder is not made yet.
pub fn fresh_id(workflow: &str) -> String {
    let word: String = workflow
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' })
        .take(16)
        .collect();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64);
    let mixed = (now ^ u64::from(std::process::id()) << 40).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let id = format!("{}-{:08x}", word.trim_matches('-'), mixed >> 32);
    id.trim_start_matches('-').to_owned()
}

impl RunFolder {
    /// Makes the folder of a run with this id. The supervisor calls this function while the front lives. Each of the
    /// two processes removes the folder if the other one is killed.
    pub fn make(id: &str) -> Result<Self, String> {
        Self::make_in(&base(), id)
    }

    fn make_in(base: &Path, id: &str) -> Result<Self, String> {
        for _ in 0..100 {
            // The base folder is made in each round, because another run that ends may remove it while it is empty.
            make_private(base)?;
            let (making, path) = (base.join(format!("{MAKING}{id}")), base.join(id));
            match fs::make_folder(DirBuilder::new().mode(0o700), &making) {
                Ok(()) => {}
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                Err(e) => {
                    return Err(format!("cannot make the folder {}: {e}; is the file system full?", making.display()));
                }
            }
            // The folder gets its final name only after its lock is held. Otherwise another run that starts now would
            // find the folder without a held lock, and remove it as the folder of a dead run. On some file systems, a
            // rename replaces an existing folder without an error. On these file systems, two runs get different
            // folders only because each name has 32 random bits.
            let named = lock_in(&making).and_then(|lock| match rename_to_free_name(&making, &path) {
                Ok(()) => Ok(Self { id: id.to_owned(), path: path.clone(), lock: Arc::new(lock) }),
                Err(e) => Err(e.to_string()),
            });
            return named.inspect_err(|_| drop(remove(&making)));
        }
        Err(format!("cannot make the folder of run {id} in {}: other runs keep removing it", base.display()))
    }

    /// Gives the lock. It is held until this struct and what this function gave are dropped.
    pub fn lock(&self) -> Arc<File> {
        self.lock.clone()
    }

    /// Writes the names of engines into the run's folder, so that a cleanup knows which engines to ask for containers.
    pub fn note_engines(&self, names: &[&str]) -> Result<(), String> {
        fs::replace(&self.path.join("engine"), names.join("\n").as_bytes())
            .map_err(|e| format!("cannot write to {}: {e}", self.path.display()))
    }
}

/// Makes the lock file in a run's folder if necessary, and locks it. The lock is shared, because front and supervisor
/// both hold it. A cleanup asks for an exclusive lock.
fn lock_in(path: &Path) -> Result<File, String> {
    let lock = fs::open(OpenOptions::new().create(true).truncate(false).write(true), path.join(LOCK));
    let lock = lock.map_err(|e| format!("cannot make the lock in {}: {e}", path.display()))?;
    match try_lock_shared(&lock) {
        Ok(true) => Ok(lock),
        Ok(false) => Err(format!("cannot lock {}: another run is cleaning it up", path.display())),
        Err(e) => Err(format!("cannot lock {}: {e}", path.display())),
    }
}

/// Tells whether the folder of the run with this id, or a part of the folder, still exists.
pub fn is_left(id: &str) -> bool {
    let base = base();
    base.join(id).exists() || base.join(format!("{MAKING}{id}")).exists()
}

/// Removes what is left of a run whose supervisor has ended. It is no error if nothing is left.
pub fn clean_up_after(id: &str) {
    let base = base();
    let _ = remove(&base.join(format!("{MAKING}{id}")));
    // The lock is held during the cleanup, so that a run that starts now does not clean up the same folder.
    let _lock = lock_in(&base.join(id));
    clean(id, &base.join(id));
}

/// Writes a line of `crossdock run` to standard error. If the write fails, the line is lost, and `crossdock run` goes on.
pub fn complain(line: &str) {
    file::complain(&format!("crossdock: {line}\n"));
}

/// Does what [`clean_saying`] does for a run that ends in order, and also says which stores are no longer at their
/// places. A cleanup after a killed run does not say this, because an earlier cleanup may have removed the stores.
pub fn clean_at_end(id: &str, path: &Path, say: &dyn Fn(&str)) {
    super::files::missing(path).iter().for_each(|line| say(line));
    clean_saying(id, path, say);
}

/// Does what [`clean_saying`] does. What is left is said on standard error.
pub fn clean(id: &str, path: &Path) {
    clean_saying(id, path, &complain);
}

/// Removes containers, stores and folder of a run, and what its MPI programs have left in `/dev/shm`. It is no error if
/// nothing is left. Tells whether nothing is left. Calls `say` with a line about everything that stays.
pub fn clean_saying(id: &str, path: &Path, say: &dyn Fn(&str)) -> bool {
    let are_containers_gone = match fs::read_to_string(path.join("engine")) {
        Ok(names) => {
            let engines = names.lines().filter_map(|name| engine::by_name(name.trim()));
            let mut are_gone = true;
            engines.for_each(|engine| are_gone &= engine.clean(id) == Cleanup::NothingLeft);
            are_gone
        }
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    };
    processes::kill_marked(id);
    shared_memory::remove_left(&path.join(LOCK));
    // The stores take memory, so they are removed even if the engine does not answer.
    let left = super::files::clean(path);
    left.iter().for_each(|line| say(line));
    if !are_containers_gone {
        say(&format!("containers of run {id} may be left, as their engine does not answer; the next run tries again"));
    }
    if !(are_containers_gone && left.is_empty()) {
        // The run's folder stays, with the engine's name and the list of stores in it, so that the next run on this
        // host removes what is left.
        return false;
    }
    let removed = remove(path);
    // The parent folders are removed with the last run. While other runs have folders in them, these calls fail.
    for above in path.ancestors().skip(1).take(2) {
        let _ = fs::remove_dir(above);
    }
    if let Err(error) = &removed {
        say(&format!("{} cannot be removed: {error}; the next run tries again", path.display()));
    }
    removed.is_ok()
}

/// Removes a folder. It is no error if the folder does not exist. The function tries twice, because a daemon that is
/// ending may still make a file in the folder.
fn remove(path: &Path) -> io::Result<()> {
    let try_once = || match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    };
    try_once().or_else(|_| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        try_once()
    })
}

/// Cleans up after runs whose two processes, front and supervisor, were killed, and after runs that a reset of the
/// machine ended. Gives the ids of the runs of which nothing is left. What is left of a run is said on standard error.
pub fn clean_dead() -> Vec<String> {
    clean_dead_in(&base(), &complain)
}

/// Does what [`clean_dead`] does. Calls `say` with a line about everything that is left.
pub fn clean_dead_saying(say: &dyn Fn(&str)) {
    clean_dead_in(&base(), say);
}

fn clean_dead_in(base: &Path, say: &dyn Fn(&str)) -> Vec<String> {
    let mut cleaned = Vec::new();
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        let (path, Ok(id)) = (entry.path(), entry.file_name().into_string()) else { continue };
        let lock = fs::open(OpenOptions::new().read(true), path.join(LOCK));
        // If this process has no free descriptors, it cannot open the lock of a living run. Such a failure must not
        // count as a missing lock, because the living run's folder would be removed.
        let has_none = lock.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        if id.starts_with(MAKING) || has_none {
            // The run has no lock yet: its folder is just being made, or its processes died while the folder was made
            // or removed. So the folder is removed only if it is older than a minute.
            let age = entry.metadata().ok().and_then(|m| m.modified().ok()).and_then(|t| t.elapsed().ok());
            if age.is_some_and(|a| a.as_secs() > 60) {
                let _ = remove(&path);
            }
            continue;
        }
        // A lock file that has no name any more belongs to a run that has ended normally and has removed its folder
        // since the folders were listed. Nothing is left of such a run, so it does not count as dead.
        let of_dead = |lock: File| try_lock(&lock).unwrap_or(false) && lock.metadata().is_ok_and(|m| m.nlink() > 0);
        if lock.is_ok_and(of_dead) && clean_saying(&id, &path, say) {
            cleaned.push(id);
        }
    }
    cleaned
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::files::make_store;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn a_run_that_is_being_made_is_not_taken_for_a_dead_one() {
        let above = std::env::temp_dir().join(format!("crossdock-folder-test-{}", std::process::id()));
        fs::create_dir_all(&above).unwrap();
        let base = above.join("crossdock/runs");
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let cleaning = scope.spawn(|| {
                let (mut cleaned, started) = (Vec::new(), std::time::Instant::now());
                while started.elapsed().as_secs() < 30 && !done.load(Ordering::Relaxed) {
                    cleaned.append(&mut clean_dead_in(&base, &complain));
                }
                cleaned
            });
            for n in 0..500 {
                let made = RunFolder::make_in(&base, &format!("w-{n}")).unwrap();
                assert!(made.path.join(LOCK).exists(), "run {n} has its folder");
                assert!(made.path.ends_with(&made.id));
                remove(&made.path).unwrap();
            }
            done.store(true, Ordering::Relaxed);
            assert_eq!(cleaning.join().unwrap(), Vec::<String>::new());
        });
        let left: Vec<_> = fs::read_dir(&base).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
        fs::remove_dir_all(&above).unwrap();
    }

    #[test]
    fn a_dead_runs_folder_goes_and_a_living_ones_stays() {
        let above = std::env::temp_dir().join(format!("crossdock-folder-dead-{}", std::process::id()));
        fs::create_dir_all(&above).unwrap();
        let base = above.join("crossdock/runs");
        let living = RunFolder::make_in(&base, &fresh_id("Some Workflow")).unwrap();
        let dead = RunFolder::make_in(&base, "dead").unwrap();
        let (id, path) = (dead.id.clone(), dead.path.clone());
        drop(dead);
        assert_eq!(clean_dead_in(&base, &complain), [id]);
        assert!(!path.exists() && living.path.join(LOCK).exists());
        drop(living);
        fs::remove_dir_all(&above).unwrap();
    }

    #[test]
    fn the_stores_of_a_dead_run_go_although_its_containers_may_be_left() {
        let above = std::env::temp_dir().join(format!("crossdock-folder-stores-{}", std::process::id()));
        fs::create_dir_all(&above).unwrap();
        let base = above.join("crossdock/runs");
        let dead = RunFolder::make_in(&base, "dead").unwrap();
        let (path, store) = (dead.path.clone(), above.join("crossdock-files-dead"));
        make_store(&path.join("stores"), &store).unwrap();
        // The engine's name cannot be read, so `clean` cannot ask the engine for containers.
        fs::create_dir(path.join("engine")).unwrap();
        drop(dead);
        assert_eq!(clean_dead_in(&base, &complain), Vec::<String>::new(), "the run has not been cleaned up");
        assert!(!store.exists(), "the store still takes memory");
        assert!(path.join(LOCK).exists(), "the next run cannot remove the containers");
        fs::remove_dir(path.join("engine")).unwrap();
        assert_eq!(clean_dead_in(&base, &complain), ["dead"]);
        assert!(!path.exists());
        fs::remove_dir_all(&above).unwrap();
    }
}

#[cfg(all(test, feature = "faults"))]
mod failing_calls {
    use super::*;
    use crate::run::files::make_store;
    use crossdock_os::faults;
    use std::time::Duration;

    #[test]
    fn a_cleanup_whose_calls_fail_removes_no_living_run_and_the_next_one_removes_the_dead() {
        let above = tempfile::tempdir().unwrap();
        let base = above.path().join("crossdock/runs");
        let seen = faults::each_call_fails(|attempt| {
            let living = RunFolder::make_in(&base, "living").unwrap();
            let long_ago = SystemTime::now() - Duration::from_secs(3600);
            File::open(&living.path).unwrap().set_modified(long_ago).unwrap();
            let dead = RunFolder::make_in(&base, "dead").unwrap();
            let (path, store) = (dead.path.clone(), above.path().join("crossdock-files-dead"));
            make_store(&path.join("stores"), &store).unwrap();
            std::fs::write(store.join("file"), "x").unwrap();
            dead.note_engines(&["process"]).unwrap();
            drop(dead);
            attempt.arm();
            clean_dead_in(&base, &complain);
            let hit = attempt.disarm();
            assert!(living.path.join(LOCK).exists(), "{hit:?}: the folder of a living run is gone");
            clean_dead_in(&base, &complain);
            assert!(!path.exists(), "{hit:?}: the dead run's folder is left");
            assert!(!store.exists(), "{hit:?}: the dead run's store is left");
            remove(&living.path).unwrap();
        });
        assert!(["open", "read_file", "unlink", "flock"].iter().all(|call| seen.contains(call)), "{seen:?}");
    }
}

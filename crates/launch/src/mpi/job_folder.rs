//! The private folder of a job on one host. The job's keeper holds a lock on the folder while the keeper lives, and
//! removes the folder at its own end. If the keeper was killed, the client that started it removes the folder; if the
//! clients were killed too, the next job removes the folder.

use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crossdock_os::fs::{self, DirBuilder, File, OpenOptions};
use crossdock_os::spawn;
use crossdock_shim::program::{self, Linkage};

use crate::shared_memory;

/// The beginning of the names of all job folders.
const NAME: &str = "mpi-";

/// The private folder that an MPI job has on each of its hosts, with the same path on all of them.
#[derive(Clone, Debug)]
pub struct JobFolder {
    /// The path of the job's folder.
    pub folder: PathBuf,
}

impl JobFolder {
    /// Gives the folder of a job. It has the same path on every host, because launchers send paths from host to host.
    pub fn of(id: &str) -> Self {
        Self { folder: base().join(format!("{NAME}{id}")) }
    }

    /// Makes the job's folder on this host, unless it exists. Only this user may write to it.
    pub fn make(&self) -> Result<(), String> {
        let uid = spawn::user_and_group().0;
        for folder in
            [self.folder.parent().unwrap_or(&self.folder), &self.folder, &self.inside(), &self.inside().join("bin")]
        {
            match fs::make_folder(DirBuilder::new().mode(0o700), folder) {
                Ok(()) => {}
                Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
                Err(e) => return Err(format!("cannot make the folder {}: {e}", folder.display())),
            }
            let meta = fs::symlink_metadata(folder).map_err(|e| format!("cannot look at {}: {e}", folder.display()))?;
            if !meta.is_dir() || meta.uid() != uid || meta.mode() & 0o022 != 0 {
                return Err(format!("{} is not a folder that only user {uid} can write; remove it", folder.display()));
            }
        }
        Ok(())
    }

    /// Gives the path, on the host, of the inner folder that the job's container sees.
    pub fn inside(&self) -> PathBuf {
        self.folder.join("in")
    }

    /// Gives the path of a link to the folder with the job's endpoint on this host. Ranks use the link if the job runs
    /// without a container.
    pub fn endpoint(&self) -> PathBuf {
        self.inside().join("endpoint")
    }

    /// Gives the path of the socket by which clients reach the keeper. This path is not visible in the container, so no
    /// rank can act as a client.
    pub fn client_socket(&self) -> PathBuf {
        self.folder.join("clients.sock")
    }

    /// Gives the path, on the host, of the socket by which the processes of the container reach the keeper.
    pub fn socket(&self) -> PathBuf {
        self.inside().join(crossdock_shim::SOCKET)
    }

    /// Takes the lock that shows that the folder's keeper lives. Returns `None` if another keeper has the lock.
    pub fn lock(&self) -> Result<Option<File>, String> {
        let path = self.lock_file();
        let trouble = |e: String| format!("cannot lock {}: {e}", path.display());
        let file = fs::open(OpenOptions::new().create(true).truncate(false).write(true), &path)
            .map_err(|e| trouble(e.to_string()))?;
        Ok(spawn::lock_file(&file).map_err(|e| trouble(e.to_string()))?.then_some(file))
    }

    /// Gives the path of the file that the first keeper makes and locks.
    fn lock_file(&self) -> PathBuf {
        self.folder.join("lock")
    }

    /// Copies the shim into the folder, under the names that it has in the container.
    pub fn put_shim(&self, any_image: bool) -> Result<(), String> {
        let from = shim()?;
        if any_image && !is_static(&from) {
            return Err(format!(
                "{} is not linked statically and would not run in an image; scripts/build-shim makes it",
                from.display()
            ));
        }
        let bin = self.inside().join("bin");
        let to = bin.join(crossdock_shim::PROGRAM);
        let trouble = |e: std::io::Error| format!("cannot copy {} to {}: {e}", from.display(), to.display());
        fs::copy(&from, &to).map_err(trouble)?;
        fs::set_permissions(&to, fs::Permissions::from_mode(0o755)).map_err(trouble)?;
        for name in ["ssh", "rsh"] {
            match fs::symlink(crossdock_shim::PROGRAM, bin.join(name)) {
                Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(trouble(e)),
                _ => {}
            }
        }
        Ok(())
    }

    /// Removes the job's folder from this host, and what the job's programs have left in `/dev/shm`.
    pub fn remove(&self) {
        shared_memory::remove_left(&self.lock_file());
        let _ = fs::remove_dir_all(&self.folder);
        let _ = fs::remove_dir_all(private_shm(&self.folder));
        // The parent folder is removed with the last job's folder. If another job has a folder in the parent folder,
        // the call fails and changes nothing.
        if let Some(base) = self.folder.parent() {
            let _ = fs::remove_dir(base);
        }
    }
}

/// The folder that a job uses as `/dev/shm` if the engine makes no `/dev/shm` for the job.
pub fn private_shm(folder: &Path) -> PathBuf {
    let uid = spawn::user_and_group().0;
    let name = folder.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    PathBuf::from(format!("/dev/shm/crossdock-{uid}-{name}"))
}

fn base() -> PathBuf {
    PathBuf::from(format!("/tmp/crossdock-mpi-{}", spawn::user_and_group().0))
}

/// Removes the folders of jobs of which all processes were killed: folders whose lock is free and that are older than a
/// minute.
pub fn sweep() {
    for entry in fs::read_dir(base()).into_iter().flatten().flatten() {
        let place = JobFolder { folder: entry.path() };
        let old = entry.metadata().and_then(|m| m.modified()).ok().and_then(|t| t.elapsed().ok());
        if old.is_some_and(|age| age.as_secs() > 60) && matches!(place.lock(), Ok(Some(_))) {
            place.remove();
        }
    }
}

/// Finds the shim's file: beside this program, or in `lib/crossdock` of the installation.
pub fn shim() -> Result<PathBuf, String> {
    if let Some(path) = std::env::var_os("CROSSDOCK_SHIM").map(PathBuf::from) {
        return Ok(path);
    }
    let program = std::env::current_exe().map_err(|e| format!("cannot find this program: {e}"))?;
    let folder = program.parent().unwrap_or(Path::new("/"));
    let places = ["", "../lib/crossdock", "../libexec/crossdock"].map(|p| folder.join(p).join(crossdock_shim::PROGRAM));
    let found = places.iter().find(|p| p.is_file()).cloned();
    found.ok_or_else(|| {
        format!("there is no {} beside {}; scripts/build-shim makes it", crossdock_shim::PROGRAM, program.display())
    })
}

/// Tells whether this program is linked statically, so that it runs on any system.
pub fn is_static(program: &Path) -> bool {
    program::look(Path::new("/"), "/", "", &program.to_string_lossy()).is_ok_and(|seen| seen.kind == Linkage::Static)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_killed_ranks_left_in_shared_memory_goes_with_the_jobs_folder() {
        let place = JobFolder::of(&format!("test-{}", std::process::id()));
        place.make().unwrap();
        let lock = place.lock().unwrap();
        let left = PathBuf::from(format!("/dev/shm/vader_segment.test.{}", std::process::id()));
        fs::write(&left, "x").unwrap();
        place.remove();
        assert!(!left.exists() && !place.folder.exists());
        drop(lock);
    }

    #[test]
    fn a_program_that_needs_a_loader_is_told_apart() {
        assert!(!is_static(Path::new("/bin/sh")));
        assert!(!is_static(Path::new("/etc/passwd")));
    }
}

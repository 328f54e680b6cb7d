//! Removes files that killed programs of MPI libraries have left in `/dev/shm`.
//!
//! MPI libraries and the transports under them make files in `/dev/shm`, map them, and remove their names: some as soon
//! as all ranks have the file open, some when the rank ends. If the rank is killed before, the file stays and takes
//! memory until the machine is restarted. A container's own `/dev/shm` ends with the container. But tasks of the engine
//! `process`, and MPI jobs without a container, use the machine's `/dev/shm`.
//!
//! The name of such a file does not say which run has made the file. So a file is removed only if all of this is true:
//!
//! - its name begins as one of these libraries begins the names of its files;
//! - it belongs to this user;
//! - it was written after the run began;
//! - the kernel proves by a lease that no process has it open or mapped, in no namespace. Each of these libraries keeps
//!   its file open or mapped from the file's creation on, so no running program needs such a file.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use crossdock_os::fs::{self, Metadata, OpenOptions};
use crossdock_os::lease::{self, Proof};

/// How the libraries begin the names of their files.
const BEGINNINGS: [&str; 15] = [
    // Open MPI
    "vader_segment.",
    "sm_segment.",
    "osc_rdma.",
    "osc_sm.",
    "open_mpi.",
    "sem.OMPIO_",
    // MPICH and libraries that are made from it
    "mpich_shm_",
    "mpich_vci_",
    "mpich_shar_tmp",
    "Intel_MPI_",
    // Transports
    "ucx_shm_posix_",
    "psm2_shm.",
    "psm3_shm.",
    "nccl-",
    "rccl-",
];
/// A killed process may take a moment to unmap its memory. So a file that is in use is looked at this often, with a
/// pause in between.
const LOOKS: u32 = 3;
const PAUSE: Duration = Duration::from_millis(20);

/// Removes what the programs of a run or job have left in `/dev/shm`. The caller has ended all of these programs.
/// `lock` is the file that was made when the run began. Files that cannot be removed stay, because the run has ended in
/// any case.
pub fn remove_left(lock: &Path) {
    if let Ok(began) = fs::symlink_metadata(lock).and_then(|of_lock| of_lock.modified()) {
        remove_left_in(Path::new("/dev/shm"), began);
    }
}

fn remove_left_in(folder: &Path, began: SystemTime) {
    let mut names = fs::names_in(folder).unwrap_or_default();
    names.retain(|name| BEGINNINGS.iter().any(|beginning| name.to_string_lossy().starts_with(beginning)));
    for look in 0..LOOKS {
        names.retain(|name| remove_if_left(&folder.join(name), began).is_ok_and(|was| was == Look::InUse));
        if names.is_empty() {
            return;
        }
        if look + 1 < LOOKS {
            std::thread::sleep(PAUSE);
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Look {
    Removed,
    /// A process has the file open or mapped.
    InUse,
    /// The run cannot have made the file.
    Foreign,
}

fn remove_if_left(path: &Path, began: SystemTime) -> io::Result<Look> {
    let uid = crossdock_os::child::user();
    let may_be_left =
        |of: &Metadata| of.is_file() && of.uid() == uid && of.modified().is_ok_and(|written| written >= began);
    if !may_be_left(&fs::symlink_metadata(path)?) {
        return Ok(Look::Foreign);
    }
    let file = fs::open(OpenOptions::new().read(true).write(true), path)?;
    if !may_be_left(&file.metadata()?) {
        return Ok(Look::Foreign);
    }
    let Some(held) = lease::hold(&file, Proof::Alone)? else { return Ok(Look::InUse) };
    // While this process holds the lease, an open in another process waits, and this process sees that it waits.
    if held.is_being_broken() || !fs::has_name(&file, path)? {
        return Ok(Look::InUse);
    }
    fs::remove_file(path)?;
    Ok(Look::Removed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossdock_os::{Access, Mapping};
    use std::fs::{File, FileTimes};
    use tempfile::TempDir;

    /// A folder of this test in `/dev/shm`, and the time at which a run began.
    fn folder() -> (TempDir, SystemTime) {
        let folder = tempfile::Builder::new().prefix("crossdock-left-").tempdir_in("/dev/shm").unwrap();
        (folder, SystemTime::now() - Duration::from_secs(10))
    }

    fn make(path: &Path) -> File {
        let file = File::options().read(true).write(true).create_new(true).open(path).unwrap();
        file.set_len(4096).unwrap();
        file
    }

    #[test]
    fn files_of_killed_ranks_go_and_all_others_stay() {
        let (place, began) = folder();
        let folder = place.path();
        let left = [
            "mpich_shm_13bd_0",
            "ucx_shm_posix_2e841ba5",
            "vader_segment.host.0.73dc0001.2",
            "nccl-Ab3dEf",
            "sem.OMPIO_u",
        ];
        for name in left {
            drop(make(&folder.join(name)));
        }
        drop(make(&folder.join("results.of.mine")));
        drop(make(&folder.join("sem.mine")));
        let older = make(&folder.join("ucx_shm_posix_1"));
        older.set_times(FileTimes::new().set_modified(began - Duration::from_secs(1))).unwrap();
        drop(older);
        std::fs::create_dir(folder.join("sm_segment.folder")).unwrap();
        std::os::unix::fs::symlink("results.of.mine", folder.join("psm2_shm.link")).unwrap();
        let open = make(&folder.join("mpich_vci_1_0"));
        let mapped = make(&folder.join("mpich_shm_1_0"));
        let mapping = Mapping::new(&mapped, 4096, Access::Read).unwrap();
        drop(mapped);
        remove_left_in(folder, began);
        let names = || {
            let mut names = fs::names_in(folder).unwrap();
            names.sort();
            names
        };
        let stay = ["psm2_shm.link", "results.of.mine", "sem.mine", "sm_segment.folder", "ucx_shm_posix_1"];
        let mut expected = [&["mpich_shm_1_0", "mpich_vci_1_0"], &stay[..]].concat();
        assert_eq!(names(), expected);
        drop((open, mapping));
        remove_left_in(folder, began);
        expected.retain(|name| stay.contains(name));
        assert_eq!(names(), expected);
    }

    #[test]
    fn a_file_that_a_dying_process_still_has_goes_at_the_next_look() {
        let (place, began) = folder();
        let folder = place.path();
        let file = make(&folder.join("osc_rdma.host.1"));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(PAUSE / 2);
                drop(file);
            });
            remove_left_in(folder, began);
        });
        assert_eq!(fs::names_in(folder).unwrap(), Vec::<std::ffi::OsString>::new());
    }
}

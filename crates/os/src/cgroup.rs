//! Tells how much more memory the memory cgroup of a process allows. The library checks this before it takes pages,
//! because the kernel does not refuse pages beyond the limit: it kills a process of the cgroup.
//!
//! Pages of shared memory are charged to the cgroup of the process that takes them, and stay charged to that cgroup.
//! The limit may be set for the process's own cgroup or for any cgroup above it. The cgroups may be those of version 1
//! (the controller `memory`) or those of version 2 (the unified hierarchy). In a namespace, a process sees only some of
//! the cgroups above its own. In version 1 the kernel still tells the smallest limit of the cgroups that the process
//! does not see. If no cgroup hierarchy is mounted (as under bubblewrap), the process sees no limit at all. Then the
//! daemon, which runs outside of the namespace, looks up the limits of the process.

use crate::sys;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::error::{OsError, OsResult};

/// When the list of limits is older than this, it is read again, because an administrator may have changed the limits.
const AGE: Duration = Duration::from_secs(1);
/// A single request for fewer bytes than this causes no check. When such requests add up to this many bytes, the memory
/// is checked for all of them together.
const SMALL: u64 = 1 << 20;
/// A limit of this size or more counts as no limit, because version 1 expresses "unlimited" by a large number.
const NO_LIMIT: u64 = 1 << 60;

/// The memory cgroup of a process, together with the cgroups above it. The value contains only those levels that this
/// process can see and that have a limit.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Cgroup(Vec<Level>);

#[derive(Clone, PartialEq, Eq, Debug)]
struct Level {
    folder: PathBuf,
    unified: bool,
    limit: u64,
}

/// The error when a cgroup has no room for the requested bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CgroupFull {
    /// The limit of the cgroup, in bytes.
    pub limit: u64,
    /// The bytes that the cgroup may still take.
    pub left: u64,
}

impl Cgroup {
    /// Finds the memory cgroup of this process.
    #[must_use]
    pub fn own() -> Self {
        Self::read("/proc/self/cgroup")
    }

    /// Finds the memory cgroup of another process, as far as this process sees the hierarchy. The result is empty if
    /// that process is dead.
    #[must_use]
    pub fn of(pid: u32) -> Self {
        Self::read(&format!("/proc/{pid}/cgroup"))
    }

    fn read(membership: &str) -> Self {
        let text = |path: &str| sys::read_text(path).unwrap_or_default();
        Self::find(&text(membership), &text("/proc/self/mountinfo"))
    }

    fn find(membership: &str, mounts: &str) -> Self {
        let Some((path, unified)) = member_of(membership) else { return Self::default() };
        let Some((root, point)) = mounted(mounts, unified) else { return Self::default() };
        // If the cgroup lies outside the part of the hierarchy that is mounted here, the top of that part is taken
        // instead.
        let below = Path::new(path).strip_prefix(root).unwrap_or(Path::new(""));
        let below = if below.components().any(|part| part.as_os_str() == "..") { Path::new("") } else { below };
        let own = Path::new(point).join(below);
        let folders = own.ancestors().take_while(|folder| folder.starts_with(point));
        let levels = folders.enumerate().filter_map(|(at, folder)| {
            let above = (at == 0 && !unified).then(|| limit_above(folder)).flatten();
            let limit = limit_of(folder, unified).into_iter().chain(above).min()?;
            Some(Level { folder: folder.to_owned(), unified, limit })
        });
        Self(levels.collect())
    }

    /// Tells whether this cgroup, or a cgroup above it, has a limit.
    #[must_use]
    pub fn is_limited(&self) -> bool {
        !self.0.is_empty()
    }

    /// The bytes that the processes of this cgroup may still take; `u64::MAX` if there is no limit.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.0.iter().map(|level| level.left(u64::MAX)).min().unwrap_or(u64::MAX)
    }

    /// Checks that the cgroup, and every cgroup above it, has room for this many more bytes.
    ///
    /// # Errors
    /// A cgroup has too little room. The error has this cgroup's limit and remaining bytes.
    pub fn has_room(&self, bytes: u64) -> Result<(), CgroupFull> {
        for level in &self.0 {
            let left = level.left(bytes);
            if left < bytes {
                return Err(CgroupFull { limit: level.limit, left });
            }
        }
        Ok(())
    }
}

impl Level {
    /// The bytes that this level may still take. The memory of the file cache, which the kernel can free, is counted as
    /// room only if the room without this memory is less than `wanted`.
    fn left(&self, wanted: u64) -> u64 {
        let name = if self.unified { "memory.current" } else { "memory.usage_in_bytes" };
        let Some(used) = number(&self.folder.join(name)) else { return u64::MAX };
        // A part of the limit is left free: for page tables, for stacks, and for what the kernel charges in advance for
        // each CPU.
        let spare = (self.limit / 64).clamp(2 * SMALL, 16 << 20);
        let left = self.limit.saturating_sub(used).saturating_sub(spare);
        if left >= wanted {
            return left;
        }
        let stat = sys::read_text(self.folder.join("memory.stat")).unwrap_or_default();
        let prefix = if self.unified { "" } else { "total_" };
        let cached = |kind: &str| {
            let key = format!("{prefix}{kind}_file ");
            stat.lines().find_map(|line| line.strip_prefix(&key)?.trim().parse::<u64>().ok()).unwrap_or(0)
        };
        let usable = (cached("inactive") + cached("active")).min(used);
        self.limit.saturating_sub(used - usable).saturating_sub(spare)
    }
}

/// Finds the path of a process's cgroup in the hierarchy that counts its memory. The second part of the result is true
/// if this is the unified hierarchy.
fn member_of(membership: &str) -> Option<(&str, bool)> {
    let lines = || membership.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
    let first = lines().find(|(controllers, _)| controllers.split(',').any(|c| c == "memory"));
    first.map(|(_, path)| (path, false)).or_else(|| lines().find(|(c, _)| c.is_empty()).map(|(_, path)| (path, true)))
}

/// Finds where the hierarchy that counts memory is mounted. Gives the path of the mounted part within the hierarchy,
/// and the mount point.
fn mounted(mounts: &str, unified: bool) -> Option<(&str, &str)> {
    mounts.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let mut kind = kind.split(' ');
        let fits = match kind.next()? {
            "cgroup2" => unified,
            "cgroup" => !unified && kind.nth(1)?.split(',').any(|option| option == "memory"),
            _ => false,
        };
        let mut fields = mount.split(' ').skip(3);
        fits.then_some((fields.next()?, fields.next()?))
    })
}

fn limit_of(folder: &Path, unified: bool) -> Option<u64> {
    let file = if unified { "memory.max" } else { "memory.limit_in_bytes" };
    number(&folder.join(file)).filter(|limit| *limit < NO_LIMIT)
}

/// For version 1: the smallest limit of this cgroup and of all cgroups above it. The kernel includes cgroups that
/// cannot be seen from here.
fn limit_above(folder: &Path) -> Option<u64> {
    let stat = sys::read_text(folder.join("memory.stat")).ok()?;
    let limit = stat.lines().find_map(|line| line.strip_prefix("hierarchical_memory_limit ")?.trim().parse().ok());
    limit.filter(|limit| *limit < NO_LIMIT)
}

fn number(path: &Path) -> Option<u64> {
    sys::read_text(path).ok()?.trim().parse().ok()
}

static OWN: Mutex<Option<(Instant, Arc<Cgroup>)>> = Mutex::new(None);
/// The bytes that this process has taken since the last check.
static UNSEEN: AtomicU64 = AtomicU64::new(0);

fn own_now() -> Arc<Cgroup> {
    // After a fork, the child may find the lock held by a thread of the parent, and no thread of the child releases
    // it. So this function never waits for the lock.
    let Ok(mut own) = OWN.try_lock() else { return Arc::new(Cgroup::own()) };
    match &*own {
        Some((since, cgroup)) if since.elapsed() < AGE => cgroup.clone(),
        _ => {
            let cgroup = Arc::new(Cgroup::own());
            *own = Some((Instant::now(), cgroup.clone()));
            cgroup
        }
    }
}

/// Checks that the memory cgroup of this process has room for this many more bytes. It is called each time before the
/// process takes shared memory.
pub fn check(bytes: u64) -> OsResult<()> {
    if bytes < SMALL && UNSEEN.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) < SMALL {
        return Ok(());
    }
    UNSEEN.store(0, Ordering::Relaxed);
    own_now().has_room(bytes).map_err(|CgroupFull { limit, left }| {
        let text = format!("{bytes} bytes, of which the memory cgroup of this process has {left} left (limit {limit})");
        OsError::new("fallocate", text, Errno::NOSPC)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hierarchy_that_counts_memory_is_found_in_every_arrangement() {
        let v1 = "5:devices:/x\n4:cpu,memory:/a/b\n0::/u\n";
        assert_eq!(member_of(v1), Some(("/a/b", false)));
        assert_eq!(member_of("4:cpu:/x\n0::/user.slice/x:y\n"), Some(("/user.slice/x:y", true)));
        assert_eq!(member_of(""), None);
        let mounts = "35 31 0:32 / /sys/fs/cgroup/memory rw shared:1 - cgroup cgroup rw,memory\n\
                      41 31 0:38 /kube/pod /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        assert_eq!(mounted(mounts, false), Some(("/", "/sys/fs/cgroup/memory")));
        assert_eq!(mounted(mounts, true), Some(("/kube/pod", "/sys/fs/cgroup")));
        assert_eq!(mounted("", true), None);
    }

    /// Makes a folder with these files, in the form in which the kernel shows a cgroup.
    fn shown(files: &[(&str, &str)]) -> temp_folder::TempFolder {
        let folder = temp_folder::TempFolder::new();
        for (path, text) in files {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        folder
    }

    mod temp_folder {
        /// A temporary folder, which is removed when the value is dropped.
        pub struct TempFolder(std::path::PathBuf);
        impl TempFolder {
            pub fn new() -> Self {
                use std::sync::atomic::{AtomicU32, Ordering};
                static NEXT: AtomicU32 = AtomicU32::new(0);
                let name = format!("crossdock-cgroup-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
                let path = std::env::temp_dir().join(name);
                std::fs::create_dir_all(&path).unwrap();
                Self(path)
            }
            pub fn path(&self) -> &std::path::Path {
                &self.0
            }
        }
        impl Drop for TempFolder {
            fn drop(&mut self) {
                let _ = std::fs::remove_dir_all(&self.0);
            }
        }
    }

    #[test]
    fn the_tightest_level_of_the_unified_hierarchy_counts_and_file_caches_do_not() {
        let folder = shown(&[
            ("job/memory.max", "268435456\n"),
            ("job/memory.current", "251658240\n"),
            ("job/memory.stat", "anon 1\ninactive_file 100663296\nactive_file 0\nshmem 1\n"),
            ("job/task/memory.max", "max\n"),
            ("job/task/memory.current", "1\n"),
        ]);
        let mounts = format!("41 31 0:38 /up {} rw - cgroup2 cgroup2 rw\n", folder.path().display());
        let cgroup = Cgroup::find("0::/up/job/task\n", &mounts);
        assert!(cgroup.is_limited());
        assert_eq!(cgroup.has_room(64 << 20), Ok(()), "16 MiB are free, and 96 MiB are caches");
        assert_eq!(cgroup.has_room(128 << 20).unwrap_err().limit, 256 << 20);
        assert!(!Cgroup::find("0::/elsewhere\n", &mounts).is_limited());
        assert!(!Cgroup::find("0::/../../up\n", &mounts).is_limited());
    }

    #[test]
    fn a_limit_above_what_is_mounted_is_known_in_version_1() {
        let folder = shown(&[
            ("memory.limit_in_bytes", "9223372036854771712\n"),
            ("memory.usage_in_bytes", "1048576\n"),
            ("memory.stat", "cache 0\nhierarchical_memory_limit 33554432\ntotal_inactive_file 0\n"),
        ]);
        let mounts = format!("35 31 0:32 /docker/x {} rw - cgroup cgroup rw,memory\n", folder.path().display());
        let cgroup = Cgroup::find("4:memory:/docker/x\n", &mounts);
        assert_eq!(cgroup.has_room(16 << 20), Ok(()));
        assert_eq!(cgroup.has_room(32 << 20).unwrap_err().limit, 32 << 20);
        assert!(cgroup.left() < 32 << 20);
    }
}

//! Segments of kernel memory: memfds that no process can shrink, grow or unseal.

use crate::error::{Context, OsError, OsResult};
use crate::sys;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::io::Errno;
use std::sync::atomic::{AtomicU64, Ordering};

/// The seals of every segment. A peer that maps a segment can rely on its size for good: no truncation causes a SIGBUS.
pub const SEGMENT_SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// Makes a sealed segment of `size` bytes. All of it is virtual: memory is taken when it is reserved or touched.
///
/// `name` appears as `/memfd:name` in `/proc/PID/maps`, by which `audit` finds the owner.
pub fn create(name: &str, size: u64) -> OsResult<OwnedFd> {
    let fd = sys::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
        .context("memfd_create", || name.into())?;
    sys::fs::ftruncate(&fd, size).context("ftruncate", || format!("{name} to {size} bytes"))?;
    rustix::fs::fcntl_add_seals(&fd, SEGMENT_SEALS).context("F_ADD_SEALS", || name.into())?;
    Ok(fd)
}

/// Makes memory that this process has mapped for writing and that no other process can ever write. This process's
/// writable mapping (and its children's) stays. Every other process that gets the descriptor can only read, also root.
pub fn create_for_own_writing(name: &str, size: u64) -> OsResult<(OwnedFd, crate::Mapping)> {
    create_published(name, size, size)
}

/// As above, with memory for the first `reserved` bytes only. The rest is virtual until [`reserve`] takes it.
pub fn create_published(name: &str, size: u64, reserved: u64) -> OsResult<(OwnedFd, crate::Mapping)> {
    let fd = sys::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
        .context("memfd_create", || name.into())?;
    sys::fs::ftruncate(&fd, size).context("ftruncate", || format!("{name} to {size} bytes"))?;
    reserve(&fd, 0, reserved)?;
    let mapping = crate::Mapping::for_huge_pages(&fd, size as usize, crate::Access::ReadWrite)?;
    rustix::fs::fcntl_add_seals(&fd, SEGMENT_SEALS | SealFlags::FUTURE_WRITE).context("F_ADD_SEALS", || name.into())?;
    Ok((fd, mapping))
}

/// The size of this descriptor's memory, if it has the [`SEGMENT_SEALS`].
pub fn sealed_size(fd: impl AsFd) -> Option<u64> {
    let seals = rustix::fs::fcntl_get_seals(&fd).ok()?;
    let stat = rustix::fs::fstat(&fd).ok()?;
    seals.contains(SEGMENT_SEALS).then(|| u64::try_from(stat.st_size).unwrap_or(0))
}

/// The size of this descriptor's memory, if it has the [`SEGMENT_SEALS`] and if no process can write it except through
/// a mapping that existed before: neither root nor its maker.
pub fn pool_size(fd: impl AsFd) -> Option<u64> {
    let seals = rustix::fs::fcntl_get_seals(&fd).ok()?;
    seals.contains(SealFlags::FUTURE_WRITE).then(|| sealed_size(fd)).flatten()
}

/// Is this memory that cannot be written through any descriptor, however it was opened?
pub fn is_sealed_for_writing(fd: impl AsFd) -> bool {
    rustix::fs::fcntl_get_seals(fd).is_ok_and(|s| s.intersects(SealFlags::FUTURE_WRITE | SealFlags::WRITE))
}

/// The number of this memory, which the kernel gives to no other memory as long as the kernel runs; 0 if this is no
/// memfd.
///
/// All memfds are in one file system of the kernel, whose 64-bit inode numbers only grow. Other files, and memfds of
/// huge pages, are in other file systems and could have any number.
pub fn number(fd: impl AsFd) -> u64 {
    match rustix::fs::fstat(fd) {
        Ok(stat) if Some(stat.st_dev) == device() => stat.st_ino,
        _ => 0,
    }
}

/// The file system of all memfds. If no memfd can be made for lack of descriptors, the next call asks again.
fn device() -> Option<u64> {
    // 0 if not known yet. This is no lock, because a forked child might meet a held one.
    static DEVICE: AtomicU64 = AtomicU64::new(0);
    match DEVICE.load(Ordering::Relaxed) {
        0 => {
            let own = sys::fs::memfd_create("crossdock:device", MemfdFlags::CLOEXEC).ok()?;
            let device = rustix::fs::fstat(own).ok()?.st_dev;
            DEVICE.store(device, Ordering::Relaxed);
            Some(device)
        }
        known => Some(known),
    }
}

/// Fills `size` bytes from `offset` on with zeros through the descriptor, for all processes that have them mapped.
pub fn clear(fd: impl AsFd, offset: u64, size: u64) -> OsResult<()> {
    let zeros = vec![0; usize::try_from(size).unwrap_or(0)];
    let mut done = 0;
    while done < zeros.len() {
        match sys::io::pwrite(&fd, &zeros[done..], offset + done as u64) {
            Ok(written) => done += written,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(OsError::new("pwrite", format!("{size} bytes of a segment"), errno)),
        }
    }
    Ok(())
}

/// Checks a descriptor that another process sent: is it a memfd of exactly this size with the [`SEGMENT_SEALS`]?
pub fn check(fd: impl AsFd, size: u64) -> OsResult<()> {
    let seals = rustix::fs::fcntl_get_seals(&fd).context("F_GET_SEALS", || "a received segment".into())?;
    let stat = rustix::fs::fstat(&fd).context("fstat", || "a received segment".into())?;
    if !seals.contains(SEGMENT_SEALS) || u64::try_from(stat.st_size) != Ok(size) {
        let found = format!(
            "a received segment of {} bytes, seals {seals:?}, where {size} bytes sealed against shrinking and growing were promised",
            stat.st_size
        );
        return Err(OsError::new("check", found, Errno::INVAL));
    }
    Ok(())
}

/// Takes memory for `length` bytes from `offset` on, so that touching them can never end in SIGBUS.
///
/// A full node answers `NOSPC` or `NOMEM`, and so does a memory cgroup without room ([`crate::cgroup`]). In both cases
/// nothing new is taken. The pages are charged to this process's cgroup.
pub fn reserve(fd: impl AsFd, offset: u64, length: u64) -> OsResult<()> {
    let (size, taken) = crate::file::sizes(&fd)?;
    let missing = length.min(size.max(offset.saturating_add(length)).saturating_sub(taken));
    if missing > 0 {
        crate::cgroup::check(missing)?;
    }
    loop {
        match sys::fs::fallocate(&fd, FallocateFlags::KEEP_SIZE, offset, length) {
            Err(Errno::INTR) => {}
            other => return other.context("fallocate", || format!("{length} bytes at {offset} of a segment")),
        }
    }
}

/// Gives the memory of a range back. The range then reads as zeros and must be reserved again before use.
pub fn give_back(fd: impl AsFd, offset: u64, length: u64) -> OsResult<()> {
    sys::fs::fallocate(&fd, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, length)
        .context("fallocate", || format!("punching {length} bytes at {offset} out of a segment"))
}

/// How many bytes of memory the segment holds now.
pub fn resident(fd: impl AsFd) -> OsResult<u64> {
    let stat = rustix::fs::fstat(&fd).context("fstat", || "a segment".into())?;
    Ok(u64::try_from(stat.st_blocks).unwrap_or(0) * 512)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_can_neither_shrink_nor_grow() {
        let fd = create("crossdock-test", 8192).unwrap();
        assert!(rustix::fs::ftruncate(&fd, 4096).is_err());
        assert!(rustix::fs::ftruncate(&fd, 16384).is_err());
        check(&fd, 8192).unwrap();
        assert!(check(&fd, 4096).is_err());
    }

    #[test]
    fn memory_for_own_writing_can_only_be_read_by_others() {
        let (fd, mapping) = create_for_own_writing("crossdock-test", 4096).unwrap();
        assert_eq!(pool_size(&fd), Some(4096));
        assert_eq!(pool_size(create("crossdock-test", 4096).unwrap()), None);
        assert!(crate::Mapping::new(&fd, 4096, crate::Access::ReadWrite).is_err());
        assert!(rustix::io::write(&fd, b"x").is_err());
        let reader = crate::Mapping::new(&fd, 4096, crate::Access::Read).unwrap();
        mapping.word64(8).unwrap().store(7, std::sync::atomic::Ordering::Release);
        assert_eq!(reader.word64(8).unwrap().load(std::sync::atomic::Ordering::Acquire), 7);
        assert!(mapping.word64(4092).is_none() && mapping.word64(4).is_none() && mapping.word32(2).is_none());
    }

    #[test]
    fn clearing_is_seen_through_every_mapping() {
        let fd = create("crossdock-test", 4096).unwrap();
        let mapping = crate::Mapping::new(&fd, 4096, crate::Access::ReadWrite).unwrap();
        mapping.word64(4088).unwrap().store(7, std::sync::atomic::Ordering::Release);
        mapping.word64(3960).unwrap().store(9, std::sync::atomic::Ordering::Release);
        clear(&fd, 3968, 128).unwrap();
        assert_eq!(mapping.word64(4088).unwrap().load(std::sync::atomic::Ordering::Acquire), 0);
        assert_eq!(mapping.word64(3960).unwrap().load(std::sync::atomic::Ordering::Acquire), 9, "nothing else is");
    }

    #[test]
    fn no_two_have_one_number_and_files_have_none() {
        let (one, other) = (create("crossdock-test", 4096).unwrap(), create("crossdock-test", 4096).unwrap());
        assert!(number(&one) != 0 && number(&one) != number(&other));
        assert_eq!(number(crate::file::reopen_read_only(&one).unwrap()), number(&one));
        assert_eq!(number(crate::file::spare().unwrap()), 0);
        let folder = crate::tmpfs::Folder::shared_memory().unwrap();
        assert_eq!(number(folder.create("test", 4096).unwrap()), 0);
    }

    #[test]
    fn an_unsealed_memfd_is_refused() {
        let fd = rustix::fs::memfd_create("crossdock-test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&fd, 4096).unwrap();
        assert!(check(&fd, 4096).is_err());
    }

    #[test]
    fn memory_is_taken_when_reserved_and_given_back_when_asked() {
        let fd = create("crossdock-test", 1 << 20).unwrap();
        assert_eq!(resident(&fd).unwrap(), 0);
        reserve(&fd, 0, 65536).unwrap();
        assert_eq!(resident(&fd).unwrap(), 65536);
        give_back(&fd, 0, 65536).unwrap();
        assert_eq!(resident(&fd).unwrap(), 0);
    }
}

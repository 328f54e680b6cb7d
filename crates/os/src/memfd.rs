//! Segments of kernel memory: memfds that no process can shrink, grow or unseal.

use crate::error::{Context, OsError, OsResult};
use crate::sys;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::io::Errno;

/// The seals of every segment. A peer that maps a segment can rely on its size for good: no truncation causes a SIGBUS.
pub const SEGMENT_SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// Makes a sealed segment of `size` bytes. The segment takes no memory until memory is reserved or a page is touched.
///
/// `name` appears as `/memfd:name` in `/proc/PID/maps`. `crossdock audit` finds the segment's owner by this name.
pub fn create(name: &str, size: u64) -> OsResult<OwnedFd> {
    let fd = sys::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
        .context("memfd_create", || name.into())?;
    sys::fs::ftruncate(&fd, size).context("ftruncate", || format!("{name} to {size} bytes"))?;
    rustix::fs::fcntl_add_seals(&fd, SEGMENT_SEALS).context("F_ADD_SEALS", || name.into())?;
    Ok(fd)
}

/// Makes memory that only this process can write, through the mapping that is returned. The children of this process
/// inherit the mapping. Every other process that gets the descriptor can only read, even a process of root.
pub fn create_for_own_writing(name: &str, size: u64) -> OsResult<(OwnedFd, crate::Mapping)> {
    create_published(name, size, size)
}

/// Works like `create_for_own_writing`, but takes memory only for the first `reserved` bytes. [`reserve`] takes memory
/// for the rest later.
pub fn create_published(name: &str, size: u64, reserved: u64) -> OsResult<(OwnedFd, crate::Mapping)> {
    let fd = sys::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
        .context("memfd_create", || name.into())?;
    sys::fs::ftruncate(&fd, size).context("ftruncate", || format!("{name} to {size} bytes"))?;
    reserve(&fd, 0, reserved)?;
    let mapping = crate::Mapping::for_huge_pages(&fd, size as usize, crate::Access::ReadWrite)?;
    rustix::fs::fcntl_add_seals(&fd, SEGMENT_SEALS | SealFlags::FUTURE_WRITE).context("F_ADD_SEALS", || name.into())?;
    Ok((fd, mapping))
}

/// The size of a segment; `None` if the descriptor is not memory with the [`SEGMENT_SEALS`].
pub fn sealed_size(fd: impl AsFd) -> Option<u64> {
    let seals = rustix::fs::fcntl_get_seals(&fd).ok()?;
    let stat = rustix::fs::fstat(&fd).ok()?;
    seals.contains(SEGMENT_SEALS).then(|| u64::try_from(stat.st_size).unwrap_or(0))
}

/// The size of a pool. `None` unless the memory has the [`SEGMENT_SEALS`] and is sealed against writing: it can then be
/// written only through a mapping that existed before the seal.
pub fn pool_size(fd: impl AsFd) -> Option<u64> {
    let seals = rustix::fs::fcntl_get_seals(&fd).ok()?;
    seals.contains(SealFlags::FUTURE_WRITE).then(|| sealed_size(fd)).flatten()
}

/// Tells whether this memory is sealed against writing through every descriptor, however the descriptor was opened.
pub fn is_sealed_for_writing(fd: impl AsFd) -> bool {
    rustix::fs::fcntl_get_seals(fd).is_ok_and(|s| s.intersects(SealFlags::FUTURE_WRITE | SealFlags::WRITE))
}

/// The inode number of this segment; 0 if the file is not a memfd with the [`SEGMENT_SEALS`]. The kernel gives the
/// number to no other memfd until the next boot. The call opens no descriptor, so it also works when this process has
/// no free descriptor left.
///
/// All memfds are in one file system of the kernel, a tmpfs that only the kernel mounts. Its inode numbers have 64 bits
/// and only grow. A file of another tmpfs could have the same number, but no such file can have these seals. A memfd of
/// huge pages can have these seals, but lies in a file system of another type. So the type of the file system is
/// checked too.
pub fn number(fd: impl AsFd) -> u64 {
    // 0x0102_1994 is the number of the file system type tmpfs.
    let is_of_kernels_tmpfs = || rustix::fs::fstatfs(&fd).is_ok_and(|system| system.f_type == 0x0102_1994);
    match rustix::fs::fcntl_get_seals(&fd) {
        Ok(seals) if seals.contains(SEGMENT_SEALS) && is_of_kernels_tmpfs() => {
            rustix::fs::fstat(&fd).map_or(0, |stat| stat.st_ino)
        }
        _ => 0,
    }
}

/// Fills `size` bytes from `offset` on with zeros, through the descriptor. Every process that has mapped these bytes
/// sees the zeros.
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

/// Checks that a descriptor from another process is a memfd of exactly this size with the [`SEGMENT_SEALS`].
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

/// The largest and the smallest part of a range that one system call reserves: 1 GiB and 2 MiB.
const PARTS: (u64, u64) = (1 << 30, crate::reservation::HUGE as u64);

/// Takes memory for `length` bytes from `offset` on, so that an access to them never ends in SIGBUS.
///
/// The error is `NOSPC` or `NOMEM` if the node or this process's memory cgroup has no room ([`crate::cgroup`]). After
/// such an error, a range of up to 1 GiB has no new memory, unless a signal interrupted the call. In a longer range,
/// the first GiBs may have new memory. The pages are charged to the cgroup of this process.
pub fn reserve(fd: impl AsFd, offset: u64, length: u64) -> OsResult<()> {
    let (size, taken) = crate::file::sizes(&fd)?;
    let missing = length.min(size.max(offset.saturating_add(length)).saturating_sub(taken));
    if missing > 0 {
        crate::cgroup::check(missing)?;
    }
    let reserved =
        in_parts(offset, length, |at, length| sys::fs::fallocate(&fd, FallocateFlags::KEEP_SIZE, at, length));
    reserved.context("fallocate", || format!("{length} bytes at {offset} of a segment"))
}

/// Calls `take` for each part of a range, one after the other from the range's start. Parts end at multiples of their
/// size.
///
/// When a signal comes, older kernels end the system call for a part, and free the memory that this part has got so
/// far. If signals come again and again, a large part would never be completed. So the parts become smaller each time
/// that a signal ends a call.
fn in_parts(offset: u64, length: u64, mut take: impl FnMut(u64, u64) -> Result<(), Errno>) -> Result<(), Errno> {
    let end = offset.checked_add(length).ok_or(Errno::FBIG)?;
    let (mut at, mut part) = (offset, PARTS.0);
    while at < end {
        let next = end.min((at / part + 1).saturating_mul(part));
        match take(at, next - at) {
            Ok(()) => at = next,
            Err(Errno::INTR) => part = (part / 2).max(PARTS.1),
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Gives the memory of a range back to the kernel. The range then reads as zeros, and must be reserved again before it
/// is written.
pub fn give_back(fd: impl AsFd, offset: u64, length: u64) -> OsResult<()> {
    sys::fs::fallocate(&fd, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, length)
        .context("fallocate", || format!("punching {length} bytes at {offset} out of a segment"))
}

/// The number of bytes of memory that the segment occupies now.
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
    fn a_signal_that_comes_again_and_again_does_not_stop_a_reservation() {
        const MIB: u64 = 1 << 20;
        let (offset, length) = (5 * MIB, 3000 * MIB + 4096);
        let mut taken = Vec::new();
        let mut interrupted = 0;
        // `take` stands for a kernel that can reserve 20 MiB between two signals.
        let take = |at: u64, length: u64| {
            if length > 20 * MIB {
                interrupted += 1;
                assert!(interrupted < 100, "it is tried for ever");
                return Err(Errno::INTR);
            }
            taken.push((at, length));
            Ok(())
        };
        in_parts(offset, length, take).unwrap();
        let end = taken.iter().fold(offset, |end, (at, length)| if *at == end { at + length } else { 0 });
        assert_eq!(end, offset + length, "the parts are not the range");
        assert!(taken[1..].iter().all(|(at, _)| at % (2 * MIB) == 0), "a part begins within a huge page");

        let mut parts = Vec::new();
        let take = |at: u64, length: u64| {
            parts.push((at, length));
            if at >= 2048 * MIB { Err(Errno::NOSPC) } else { Ok(()) }
        };
        assert_eq!(in_parts(offset, length, take), Err(Errno::NOSPC));
        assert_eq!(parts, [(5 * MIB, 1019 * MIB), (1024 * MIB, 1024 * MIB), (2048 * MIB, 957 * MIB + 4096)]);
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

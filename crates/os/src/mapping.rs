//! A shared mapping of a descriptor, unmapped when dropped.

use crate::error::{Context, OsResult};
use crate::memfd;
use crate::reservation::HUGE;
use crate::sys;
use rustix::fd::AsFd;
use rustix::mm::{MapFlags, ProtFlags};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

const PAGE: u64 = 4096;

/// The end of the place where a mapping for huge pages was last unmapped, rounded up to a huge page; 0 if there is no such
/// place. If enough addresses before it are still free, the next mapping is made there by one system call. To reserve
/// other addresses would take up to three more system calls.
///
/// The end is kept and not the start, because the kernel hands addresses out from the top: a short mapping at the end
/// of a long free place has other mappings near it, and shares a page of the page tables with them. A mapping that has
/// such a page for itself lets the kernel make the page and free it again each time. Then the kernel also interrupts
/// every CPU that still has this process's page tables.
static FREE_END: AtomicUsize = AtomicUsize::new(0);

/// What a process may do through a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// The memory can only be read. A write is a fault.
    Read,
    /// The memory can be read and written.
    ReadWrite,
}

impl Access {
    fn protection(self) -> ProtFlags {
        match self {
            Self::Read => ProtFlags::READ,
            Self::ReadWrite => ProtFlags::READ | ProtFlags::WRITE,
        }
    }
}

/// A mapping of memory that other processes see too. The mapping gives out only the address of the memory. Code that
/// makes references from the address must take care of races.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping is an address range that stays until drop, and any thread may drop it. Code that reads or writes
// through the address is `unsafe` itself, and must take care of races.
unsafe impl Send for Mapping {}
// SAFETY: the methods only read the two fields. Code that reads or writes through the address is `unsafe` itself, and
// must take care of races.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `length` bytes of `fd` as shared memory.
    pub fn new(fd: impl AsFd, length: usize, access: Access) -> OsResult<Self> {
        Self::near(0, fd, length, access)
    }

    /// Maps the file at the address `hint` if its range is free, otherwise at an address that the kernel chooses.
    fn near(hint: usize, fd: impl AsFd, length: usize, access: Access) -> OsResult<Self> {
        // SAFETY: the call makes a new mapping at an address that the kernel chooses, and touches no existing memory.
        let start = unsafe { sys::mm::mmap(hint as *mut _, length, access.protection(), MapFlags::SHARED, fd, 0) }
            .context("mmap", || format!("{length} bytes of a segment"))?;
        let start = NonNull::new(start.cast()).expect("mmap without MAP_FIXED never returns address 0");
        Ok(Self { start, length })
    }

    /// Maps like [`Self::new`], but at an address that is a multiple of the size of a huge page. Only at such an
    /// address can the kernel map huge pages of the file as huge pages.
    pub fn for_huge_pages(fd: impl AsFd, length: usize, access: Access) -> OsResult<Self> {
        if length < HUGE {
            return Self::new(fd, length, access);
        }
        if let Some(mapping) = Self::at_free_place(&fd, length, access)? {
            return Ok(mapping);
        }
        // At first `reservation` owns the reserved addresses. When the file is mapped at them, the mapping owns them.
        let reservation = crate::reservation::Reservation::reserve(length)?;
        let mapping = Self { start: reservation.start(), length };
        std::mem::forget(reservation);
        mapping.replace(fd, access)?;
        Ok(mapping)
    }

    /// Maps the file so that it ends where a mapping for huge pages was last unmapped. `None` if no such mapping was
    /// unmapped yet. Also `None` if something else is at these addresses now and the kernel chose an address that does
    /// not fit huge pages.
    fn at_free_place(fd: impl AsFd, length: usize, access: Access) -> OsResult<Option<Self>> {
        let start = FREE_END.swap(0, Ordering::Relaxed).saturating_sub(length) & !(HUGE - 1);
        if start == 0 {
            return Ok(None);
        }
        let mapping = Self::near(start, fd, length, access)?;
        Ok(Some(mapping).filter(Self::fits_huge_pages))
    }

    /// Tells whether the mapping begins at a multiple of a huge page and has room for one.
    fn fits_huge_pages(&self) -> bool {
        self.length >= HUGE && self.start.as_ptr() as usize % HUGE == 0
    }

    /// Maps a part of the same memory once more, at other addresses. It needs no descriptor. `offset` and `length` must
    /// be multiples of the page size.
    pub fn again(&self, offset: u64, length: u64) -> OsResult<Self> {
        let named = || format!("{length} bytes at {offset} of a mapping");
        let from = self.at(offset, length).ok_or(rustix::io::Errno::INVAL).context("mremap", named)?;
        // SAFETY: the range lies within this mapping. With an old size of 0, the call leaves this mapping as it is and
        // makes another one, at an address that the kernel chooses.
        let start =
            unsafe { sys::mm::mremap(from.as_ptr().cast(), 0, length as usize, rustix::mm::MremapFlags::MAYMOVE) }
                .context("mremap", named)?;
        let start = NonNull::new(start.cast()).expect("mremap never returns address 0");
        Ok(Self { start, length: length as usize })
    }

    /// The address of the first byte of the mapping.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// The number of bytes of the mapping.
    pub fn length(&self) -> usize {
        self.length
    }

    /// The address `offset` bytes behind the start; `None` unless all of the `size` bytes from there lie in the
    /// mapping.
    pub fn at(&self, offset: u64, size: u64) -> Option<NonNull<u8>> {
        let end = offset.checked_add(size)?;
        if end > self.length as u64 {
            return None;
        }
        // SAFETY: offset ≤ end ≤ length, so the address is within, or one past the end of, the mapping.
        Some(unsafe { self.start.add(offset as usize) })
    }

    /// The bytes of a new segment that this process has not given to any other process yet. The segment must be mapped
    /// for writing.
    ///
    /// If another process has the segment after all, that process can change what is read here. Nothing worse can
    /// happen, because no caller computes an address from these bytes.
    pub fn fresh_bytes(&mut self) -> &mut [u8] {
        // SAFETY: the range stays mapped as long as `self` exists, and `&mut self` makes the caller its only user in
        // this process. The caller states that other processes have no access. If a process has access all the same, it
        // changes only plain bytes, for which every value is valid.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }

    /// Bytes that no process changes any more: those of a published version, or of an item that its owner gave up.
    /// `None` if the range is not within the mapping.
    ///
    /// If a process changes these bytes all the same, the reader sees the change. Nothing worse can happen, because no
    /// caller computes an address from these bytes. A checksum of the bytes finds most such changes.
    pub fn settled_bytes(&self, offset: u64, size: u64) -> Option<&[u8]> {
        let start = self.at(offset, size)?;
        // SAFETY: the range lies within the mapping, which stays as long as `self`. The caller states that no process
        // writes the bytes. If a process writes them all the same, it changes only plain bytes, for which every value
        // is valid.
        Some(unsafe { std::slice::from_raw_parts(start.as_ptr(), size as usize) })
    }

    /// The 32-bit word at `offset`; `None` if it is not aligned or not within the mapping. Storing into a read-only
    /// mapping is a fault.
    pub fn word32(&self, offset: u64) -> Option<&AtomicU32> {
        let address = self.at(offset, 4)?.cast::<AtomicU32>();
        if !address.is_aligned() {
            return None;
        }
        // SAFETY: the word is aligned, and lies within the mapping as long as the mapping exists; other processes use
        // atomics on it too.
        Some(unsafe { address.as_ref() })
    }

    /// The 64-bit word at `offset`; `None` if it is not aligned or not within the mapping. Storing into a read-only
    /// mapping is a fault.
    pub fn word64(&self, offset: u64) -> Option<&AtomicU64> {
        let address = self.at(offset, 8)?.cast::<AtomicU64>();
        if !address.is_aligned() {
            return None;
        }
        // SAFETY: the word is aligned, and lies within the mapping as long as the mapping exists; other processes use
        // atomics on it too.
        Some(unsafe { address.as_ref() })
    }

    /// Maps another file at the addresses of this mapping in one step. A reader sees the old bytes or the new ones, and
    /// never a gap.
    pub fn replace(&self, fd: impl AsFd, access: Access) -> OsResult<()> {
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: the call replaces exactly the range that this mapping owns. The range holds shared memory, which any
        // process may change at any time, so no reference into it relies on its contents.
        unsafe { sys::mm::mmap(self.start.as_ptr().cast(), self.length, access.protection(), flags, fd, 0) }
            .context("mmap", || format!("{} bytes of a segment, in place of others", self.length))?;
        Ok(())
    }

    /// Enters the pages of the range into this process's page tables, so that the first access causes no page fault.
    /// The memory must have been reserved. Gives `false` if the kernel is too old for it (before 5.14); then nothing
    /// happens.
    pub fn populate(&self, offset: u64, size: u64, access: Access) -> bool {
        const MADV_POPULATE_READ: i32 = 22;
        const MADV_POPULATE_WRITE: i32 = 23;
        let Some(start) = self.at(offset, size) else { return false };
        let advice = if access == Access::Read { MADV_POPULATE_READ } else { MADV_POPULATE_WRITE };
        // SAFETY: the range lies within this mapping; populating changes no contents.
        sys::raw("MADV_POPULATE", || unsafe { libc::madvise(start.as_ptr().cast(), size as usize, advice) }) == 0
    }

    /// Takes memory for those parts of the range that have no memory yet, in huge pages if the kernel has them. `fd` is
    /// the file of this mapping. The function reserves only the first small page of each huge page, because a kernel
    /// with huge pages then takes memory for the whole huge page. Afterwards the caller takes the memory that is still
    /// missing with `memfd::reserve`.
    pub fn take_huge_pages(&self, fd: impl AsFd, offset: u64, size: u64) {
        const HUGE: u64 = crate::reservation::HUGE as u64;
        let (first, end) = (offset.next_multiple_of(HUGE), (offset + size) / HUGE * HUGE);
        if crate::cgroup::check(end.saturating_sub(first)).is_err() {
            return;
        }
        for block in (first..end).step_by(HUGE as usize) {
            if memfd::reserve(&fd, block, PAGE).is_err() {
                return;
            }
        }
        if first < end {
            self.populate(first, 1, Access::ReadWrite);
            self.collapse(first, end - first);
        }
    }

    /// Asks the kernel to replace the pages of a range by huge pages now. Only the parts of the range that are whole
    /// huge pages are replaced. Gives `false` if there is no such part, or if the kernel does not replace the pages.
    /// This works on memfds even if transparent huge pages are off for shared memory (kernel ≥ 6.1).
    pub fn collapse(&self, offset: u64, size: u64) -> bool {
        const MADV_COLLAPSE: i32 = 25;
        let Some(start) = self.at(offset, size) else { return false };
        let first = (start.as_ptr() as usize).next_multiple_of(HUGE);
        let end = (start.as_ptr() as usize + size as usize) & !(HUGE - 1);
        if first >= end {
            return false;
        }
        // SAFETY: the range lies within this mapping; collapsing changes the pages behind it, not their contents.
        sys::raw("madvise", || unsafe { libc::madvise(first as *mut _, end - first, MADV_COLLAPSE) }) == 0
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // The C library's function is called and not the system call, because UCX intercepts this function: UCX must
        // forget memory that it has registered with a device.
        // SAFETY: the call unmaps exactly the range that this mapping owns, and no reference into the range outlives
        // the mapping.
        let unmapped = unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
        debug_assert_eq!(unmapped, 0, "munmap of an own mapping cannot fail");
        if self.fits_huge_pages() {
            let end = self.start.as_ptr() as usize + self.length;
            FREE_END.store(end.next_multiple_of(HUGE), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn huge_pages_are_taken_and_mapped_as_such() {
        const LENGTH: usize = 3 * HUGE;
        let fd = memfd::create("crossdock-test", LENGTH as u64).unwrap();
        let mapping = Mapping::for_huge_pages(&fd, LENGTH, Access::ReadWrite).unwrap();
        assert_eq!(mapping.start().as_ptr() as usize % HUGE, 0);
        // The range has three huge pages, of which only the middle one is whole.
        mapping.take_huge_pages(&fd, PAGE, LENGTH as u64 - 2 * PAGE);
        let taken = memfd::resident(&fd).unwrap();
        if taken != HUGE as u64 {
            return crate::testing::skip("huge-pages");
        }
        // SAFETY: the address lies within the mapping.
        unsafe { mapping.start().as_ptr().add(HUGE + 5).write_volatile(7) };
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let start = format!("{:x}-", mapping.start().as_ptr() as usize);
        let huge =
            maps.lines().skip_while(|line| !line.starts_with(&start)).find(|line| line.starts_with("ShmemPmdMapped:"));
        assert_eq!(huge.unwrap().split_whitespace().nth(1), Some("2048"));
        let reader = Mapping::for_huge_pages(&fd, LENGTH, Access::Read).unwrap();
        // SAFETY: the address lies within the mapping.
        assert_eq!(unsafe { reader.start().as_ptr().add(HUGE + 5).read_volatile() }, 7);
    }

    #[test]
    fn mappings_for_huge_pages_fit_them_wherever_an_earlier_one_was() {
        const LENGTH: usize = 2 * HUGE;
        let fd = memfd::create("crossdock-test", 8 * LENGTH as u64).unwrap();
        let place = |length: usize| {
            let mapping = Mapping::for_huge_pages(&fd, length, Access::ReadWrite).unwrap();
            assert!(mapping.fits_huge_pages());
            mapping.start().as_ptr() as usize
        };
        // Other threads of this process may take the free addresses, so the test tries several times.
        assert!((0..100).any(|_| place(LENGTH) == place(LENGTH)), "no mapping is made where the former one was");
        // The lengths are no multiples of a huge page. Each mapping ends in the huge page where the longest one ended,
        // however often the lengths alternate.
        let (long, short) = (7 * LENGTH + 4096, LENGTH + 8192);
        let end = |length: usize| place(length) + length.next_multiple_of(HUGE);
        let ends_together = |_| {
            let longest = end(long);
            [short, long, short, long].into_iter().all(|length| end(length) == longest)
        };
        assert!((0..100).any(ends_together), "the mappings do not end at the same place");
        // Something else is in the middle of the free addresses.
        let other = Mapping::for_huge_pages(&fd, LENGTH, Access::Read).unwrap();
        FREE_END.store(other.start().as_ptr() as usize + HUGE, Ordering::Relaxed);
        let mapping = Mapping::for_huge_pages(&fd, LENGTH, Access::ReadWrite).unwrap();
        assert!(mapping.fits_huge_pages());
        mapping.word32(0).unwrap().store(7, Ordering::Relaxed);
        assert_eq!(other.word32(0).unwrap().load(Ordering::Relaxed), 7);
    }

    #[test]
    fn two_mappings_of_a_segment_show_the_same_bytes() {
        let fd = crate::memfd::create("crossdock-test", 4096).unwrap();
        let writer = Mapping::new(&fd, 4096, Access::ReadWrite).unwrap();
        let reader = Mapping::new(&fd, 4096, Access::Read).unwrap();
        // SAFETY: both addresses are within live mappings of this test alone.
        unsafe {
            writer.start().as_ptr().write_volatile(7);
            assert_eq!(reader.start().as_ptr().read_volatile(), 7);
        }
    }

    #[test]
    fn a_part_mapped_again_is_the_same_memory_and_outlives_the_first() {
        let fd = crate::memfd::create("crossdock-test", 16384).unwrap();
        let whole = Mapping::new(&fd, 16384, Access::ReadWrite).unwrap();
        let part = whole.again(4096, 8192).unwrap();
        whole.word64(4096).unwrap().store(7, std::sync::atomic::Ordering::Relaxed);
        drop(whole);
        assert_eq!(part.length(), 8192);
        assert_eq!(part.word64(0).unwrap().load(std::sync::atomic::Ordering::Relaxed), 7);
        assert!(part.again(4096, 8192).is_err());
    }

    #[test]
    fn fresh_bytes_are_written_and_settled_ones_read_within_bounds() {
        let fd = crate::memfd::create("crossdock-test", 4096).unwrap();
        let mut writer = Mapping::new(&fd, 4096, Access::ReadWrite).unwrap();
        writer.fresh_bytes()[4095] = 7;
        let reader = Mapping::new(&fd, 4096, Access::Read).unwrap();
        assert_eq!(reader.settled_bytes(4094, 2), Some(&[0, 7][..]));
        assert_eq!(reader.settled_bytes(4095, 2), None);
    }

    #[test]
    fn an_address_out_of_bounds_is_not_given() {
        let fd = crate::memfd::create("crossdock-test", 4096).unwrap();
        let mapping = Mapping::new(&fd, 4096, Access::Read).unwrap();
        assert!(mapping.at(4088, 8).is_some());
        assert!(mapping.at(4089, 8).is_none());
        assert!(mapping.at(u64::MAX, 2).is_none());
    }
}

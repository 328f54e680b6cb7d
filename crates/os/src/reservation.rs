//! Reserves ranges of addresses and maps memory into them. The addresses stay reserved until the [`Reservation`] is
//! dropped, whatever is mapped at them.

use crate::sys;
use std::ptr::NonNull;

use rustix::fd::AsFd;
use rustix::mm::{MapFlags, MprotectFlags, MremapFlags, ProtFlags};

use crate::error::{Context, OsResult};
use crate::{Mapping, OsError};

/// The size of a huge page. A `Reservation` begins at a multiple of this size, so that huge pages can be mapped in the
/// reservation.
pub const HUGE: usize = 2 << 20;

/// A reserved range of addresses in this process. No other mapping can take these addresses. It costs no memory while
/// nothing is mapped in it.
#[derive(Debug)]
pub struct Reservation {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the reservation is an address range that stays until drop, and any thread may drop it. Code that reads or
// writes through the addresses is `unsafe` itself, and must take care of races.
unsafe impl Send for Reservation {}
// SAFETY: the methods change only what is mapped in the range, and the kernel makes each such change in one step. Code
// that reads or writes through the addresses is `unsafe` itself, and must take care of races.
unsafe impl Sync for Reservation {}

impl Reservation {
    /// Reserves `length` bytes of addresses, rounded up to whole pages. Until something is mapped at these addresses,
    /// an access to them is a fault.
    pub fn reserve(length: usize) -> OsResult<Self> {
        let length = length.max(1).next_multiple_of(4096);
        let taken = length + HUGE;
        let named = || format!("{length} addresses");
        // SAFETY: the call makes a new mapping at an address that the kernel chooses, and touches no existing memory.
        let first = unsafe {
            sys::mm::mmap_anonymous(
                std::ptr::null_mut(),
                taken,
                ProtFlags::empty(),
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }
        .context("mmap", named)? as usize;
        let start = first.next_multiple_of(HUGE);
        for (from, to) in [(first, start), (start + length, first + taken)] {
            if from < to {
                // SAFETY: the call unmaps a part of the mapping that was made above. No other code knows the addresses
                // of this part.
                let trimmed = unsafe { sys::mm::munmap(from as *mut _, to - from) };
                if trimmed.is_err() {
                    // SAFETY: the call unmaps the mapping that was made above. Unmapping a part of it that is already
                    // unmapped does no harm.
                    let _ = unsafe { sys::mm::munmap_whole(first as *mut _, taken) };
                }
                trimmed.context("munmap", named)?;
            }
        }
        let start = NonNull::new(start as *mut u8).expect("mmap never returns address 0");
        Ok(Self { start, length })
    }

    /// The first address of the range. It is a multiple of [`HUGE`].
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// The length of the range in bytes.
    pub fn length(&self) -> usize {
        self.length
    }

    fn range(&self, offset: usize, length: usize, call: &'static str) -> OsResult<*mut std::ffi::c_void> {
        let end = offset.checked_add(length).filter(|end| *end <= self.length);
        if end.is_none() || length == 0 || offset % 4096 != 0 || length % 4096 != 0 {
            let what = format!("{length} bytes at {offset} of a reservation of {}", self.length);
            return Err(OsError::new(call, what, rustix::io::Errno::INVAL));
        }
        // SAFETY: the address lies within the range that this reservation owns.
        Ok(unsafe { self.start.as_ptr().add(offset) }.cast())
    }

    /// Maps new, zeroed memory of this process at `offset` and replaces what was mapped there. It uses huge pages where
    /// they fit.
    pub fn put_memory(&self, offset: usize, length: usize) -> OsResult<()> {
        let at = self.range(offset, length, "mmap")?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE;
        // SAFETY: the call replaces a range that this reservation owns. Code that made references into the range must
        // have ended them before.
        unsafe { sys::mm::mmap_anonymous(at, length, protection, flags) }
            .context("mmap", || format!("{length} bytes of memory"))?;
        if length >= HUGE {
            // SAFETY: the call gives advice about the mapping that was made just now. Without huge pages it changes
            // nothing.
            unsafe { libc::madvise(at, length, libc::MADV_HUGEPAGE) };
        }
        Ok(())
    }

    /// Removes all mappings of this range, however many there are, and maps new, zeroed memory. It works even in a
    /// process that has reached the kernel's limit of mappings, where the other functions fail. If it fails, the range
    /// cannot be used any more.
    pub fn start_afresh(&mut self) -> OsResult<()> {
        let length = std::mem::replace(&mut self.length, 0);
        let named = || format!("{length} bytes");
        // SAFETY: the call unmaps exactly the range that this reservation owns. Until the range is mapped again below,
        // this value does not count as the range's owner.
        unsafe { sys::mm::munmap(self.start.as_ptr().cast(), length) }.context("munmap", named)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
        // SAFETY: the call never replaces a mapping: if another thread took the addresses meanwhile, the call fails.
        let again = unsafe {
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            sys::mm::mmap_anonymous(self.start.as_ptr().cast(), length, protection, flags)
        }
        .context("mmap", named)?;
        if again != self.start.as_ptr().cast() {
            // A kernel before 4.17 may choose another address, because it takes the address only as a hint.
            // SAFETY: the call unmaps the mapping that was made just now at another address. No other code knows this
            // mapping.
            let _ = unsafe { sys::mm::munmap_whole(again, length) };
            return Err(OsError::new("mmap", named(), rustix::io::Errno::EXIST));
        }
        self.length = length;
        Ok(())
    }

    /// Maps `length` bytes of a file for reading only. The bytes begin at `from` in the file, and at `offset` in this
    /// range. The mapping also shows what other processes write to the file later.
    pub fn put_readable(&self, offset: usize, length: usize, fd: impl AsFd, from: u64) -> OsResult<()> {
        self.put_file(offset, length, fd, from, ProtFlags::READ, MapFlags::SHARED)
    }

    /// Maps `length` bytes of a file privately. The bytes begin at `from` in the file, and at `offset` in this range.
    /// When this process writes to a page, the process gets a private copy of the page, and the file does not change.
    pub fn put_private(&self, offset: usize, length: usize, fd: impl AsFd, from: u64) -> OsResult<()> {
        self.put_file(offset, length, fd, from, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
    }

    fn put_file(
        &self,
        offset: usize,
        length: usize,
        fd: impl AsFd,
        from: u64,
        protection: ProtFlags,
        flags: MapFlags,
    ) -> OsResult<()> {
        let at = self.range(offset, length, "mmap")?;
        let flags = flags | MapFlags::FIXED | MapFlags::NORESERVE;
        // SAFETY: the call replaces a range that this reservation owns. Code that made references into the range must
        // have ended them before.
        unsafe { sys::mm::mmap(at, length, protection, flags, fd, from) }
            .context("mmap", || format!("{length} bytes at {from} of a segment"))?;
        Ok(())
    }

    /// Moves the mappings of the first `length` bytes of `other` into this range, without copying. Afterwards nothing
    /// is mapped in that part of `other`.
    pub fn take_from(&self, other: &Reservation, length: usize) -> OsResult<()> {
        let to = self.range(0, length, "mremap")?;
        let from = other.range(0, length, "mremap")?;
        let flags = MremapFlags::MAYMOVE | MremapFlags::DONTUNMAP;
        // SAFETY: each range belongs to one of the two reservations. The call unmaps what was mapped at `to`. The
        // addresses at `from` stay reserved without contents, so that no other mapping gets them.
        unsafe { sys::mm::mremap_fixed(from, length, length, flags, to) }
            .context("mremap", || format!("{length} bytes"))?;
        Ok(())
    }

    /// Maps the memory of a shared writable mapping once more, at `offset`. Unlike a new mapping, this needs no
    /// descriptor. So it also works on memory that is sealed against further writable mappings.
    pub fn put_again(&self, offset: usize, length: usize, mapping: &Mapping, from: u64) -> OsResult<()> {
        let at = self.range(offset, length, "mremap")?;
        let Some(source) = mapping.at(from, length as u64) else {
            let what = format!("{length} bytes at {from} of a mapping of {}", mapping.length());
            return Err(OsError::new("mremap", what, rustix::io::Errno::INVAL));
        };
        // SAFETY: the target is a range that this reservation owns. With an old size of 0, the call leaves the source
        // as it is and maps its pages a second time.
        unsafe {
            sys::mm::mremap_fixed(source.as_ptr().cast(), 0, length, MremapFlags::MAYMOVE, at)
                .context("mremap", || format!("{length} bytes a second time"))?;
        }
        Ok(())
    }

    /// Makes each page of this range of a private mapping a private copy with the same contents, as if the page had
    /// been written. The copies take memory, but they do not split the mapping into several mappings.
    pub fn make_own(&self, offset: usize, length: usize) -> OsResult<()> {
        const MADV_POPULATE_WRITE: i32 = 23;
        let at = self.range(offset, length, "madvise")?;
        loop {
            // SAFETY: the range belongs to this reservation, and the call changes no contents.
            if sys::raw("MADV_POPULATE", || unsafe { libc::madvise(at, length, MADV_POPULATE_WRITE) }) == 0 {
                return Ok(());
            }
            let error = OsError::last("madvise", format!("{length} bytes to be own copies"));
            if error.errno != rustix::io::Errno::INTR {
                return Err(error);
            }
        }
    }

    /// Removes the mappings of a part of the range. After that, an access to this part is a fault again.
    pub fn clear(&self, offset: usize, length: usize) -> OsResult<()> {
        let at = self.range(offset, length, "mmap")?;
        let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE;
        // SAFETY: the call replaces a range that this reservation owns. Code that made references into the range must
        // have ended them before.
        unsafe { sys::mm::mmap_anonymous(at, length, ProtFlags::empty(), flags) }
            .context("mmap", || format!("{length} addresses"))?;
        Ok(())
    }

    /// Forbids writing to a part of the range, or allows it again.
    pub fn set_writable(&self, offset: usize, length: usize, writable: bool) -> OsResult<()> {
        let at = self.range(offset, length, "mprotect")?;
        let flags = if writable { MprotectFlags::READ | MprotectFlags::WRITE } else { MprotectFlags::READ };
        // SAFETY: the range belongs to this reservation, and the call changes no contents.
        unsafe { sys::mm::mprotect(at, length, flags) }.context("mprotect", || format!("{length} bytes"))
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.length == 0 {
            return;
        }
        // SAFETY: the call unmaps exactly the range that `reserve` took, and no reference into the range outlives this
        // owner.
        let unmapped = unsafe { sys::mm::munmap_whole(self.start.as_ptr().cast(), self.length) };
        debug_assert!(unmapped.is_ok(), "munmap of an own range cannot fail");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memfd;

    fn byte(reservation: &Reservation, offset: usize) -> *mut u8 {
        assert!(offset < reservation.length());
        // SAFETY: the address lies within the range of the reservation.
        unsafe { reservation.start().as_ptr().add(offset) }
    }

    #[test]
    fn a_private_page_is_the_files_until_it_is_written() {
        let fd = memfd::create("crossdock-test", 3 * 4096).unwrap();
        let file = Mapping::new(&fd, 3 * 4096, crate::Access::ReadWrite).unwrap();
        let reservation = Reservation::reserve(8192).unwrap();
        assert_eq!(reservation.start().as_ptr() as usize % HUGE, 0);
        reservation.put_private(0, 8192, &fd, 4096).unwrap();
        // SAFETY: the addresses lie in live mappings that only this test uses.
        unsafe {
            file.start().as_ptr().add(4096).write_volatile(3);
            assert_eq!(byte(&reservation, 0).read_volatile(), 3);
            byte(&reservation, 0).write_volatile(4);
            assert_eq!(file.start().as_ptr().add(4096).read_volatile(), 3);
            assert_eq!(byte(&reservation, 0).read_volatile(), 4);
        }
    }

    #[test]
    fn pages_that_were_made_own_are_the_files_no_more() {
        let fd = memfd::create("crossdock-test", 3 * 4096).unwrap();
        let file = Mapping::new(&fd, 3 * 4096, crate::Access::ReadWrite).unwrap();
        let reservation = Reservation::reserve(3 * 4096).unwrap();
        reservation.put_private(0, 3 * 4096, &fd, 0).unwrap();
        // SAFETY: the addresses lie in live mappings that only this test uses.
        unsafe {
            (0..3).for_each(|page| file.start().as_ptr().add(page * 4096).write_volatile(page as u8 + 1));
            byte(&reservation, 4096).write_volatile(9);
            reservation.make_own(0, 2 * 4096).unwrap();
            (0..3).for_each(|page| file.start().as_ptr().add(page * 4096).write_volatile(77));
            assert_eq!([0, 4096, 8192].map(|at| byte(&reservation, at).read_volatile()), [1, 9, 77]);
        }
    }

    #[test]
    fn memory_moves_to_another_place_with_its_contents() {
        let (reservation, other) = (Reservation::reserve(16384).unwrap(), Reservation::reserve(16384).unwrap());
        reservation.put_memory(0, 16384).unwrap();
        other.put_memory(0, 16384).unwrap();
        // SAFETY: the address lies in memory that only this test uses.
        unsafe {
            byte(&other, 5000).write_volatile(9);
            reservation.take_from(&other, 16384).unwrap();
            assert_eq!(byte(&reservation, 5000).read_volatile(), 9);
        }
    }

    #[test]
    fn memory_sealed_against_writers_can_be_mapped_again_by_its_own() {
        let (fd, mapping) = memfd::create_for_own_writing("crossdock-test", 4 * 4096).unwrap();
        let reservation = Reservation::reserve(8192).unwrap();
        reservation.put_again(4096, 4096, &mapping, 2 * 4096).unwrap();
        // SAFETY: the addresses lie in live mappings that only this test uses.
        unsafe {
            byte(&reservation, 4096).write_volatile(7);
            assert_eq!(mapping.start().as_ptr().add(2 * 4096).read_volatile(), 7);
        }
        assert!(Mapping::new(&fd, 4096, crate::Access::ReadWrite).is_err());
    }

    #[test]
    fn what_does_not_lie_within_is_refused() {
        let reservation = Reservation::reserve(8192).unwrap();
        assert!(reservation.put_memory(4096, 8192).is_err());
        assert!(reservation.put_memory(1, 4096).is_err());
        assert!(reservation.put_memory(usize::MAX - 4095, 4096).is_err());
        assert!(reservation.clear(0, 0).is_err());
    }
}

//! Asynchronous write protection: the kernel notes which pages of a range are written to, and no thread has to handle
//! the faults (`UFFD_FEATURE_WP_ASYNC`, kernel ≥ 6.7). [`crate::pagemap`] reads the notes.
//!
//! The default seccomp filters of docker and podman forbid the system call `userfaultfd`. In these containers the
//! callers must detect changes in another way.

use crate::sys;
use rustix::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use crate::OwnFile;
use crate::error::{OsError, OsResult};

/// Ranges of this process's memory in which the kernel notes writes, as long as this value exists.
#[derive(Debug)]
pub struct WriteTracker {
    fd: OwnFile,
}

const UFFD_USER_MODE_ONLY: i32 = 1;
const UFFD_API: u64 = 0xaa;
const UFFD_FEATURE_WP_UNPOPULATED: u64 = 1 << 13;
const UFFD_FEATURE_WP_ASYNC: u64 = 1 << 15;
const UFFDIO_REGISTER_MODE_WP: u64 = 2;
const UFFDIO_WRITEPROTECT_MODE_WP: u64 = 1;
/// The ioctl request `_IOWR(0xaa, 0x3f, struct uffdio_api)`.
const UFFDIO_API: libc::Ioctl = 0xc018_aa3f_u32 as libc::Ioctl;
/// The ioctl request `_IOWR(0xaa, 0x00, struct uffdio_register)`.
const UFFDIO_REGISTER: libc::Ioctl = 0xc020_aa00_u32 as libc::Ioctl;
/// The ioctl request `_IOR(0xaa, 0x01, struct uffdio_range)`.
const UFFDIO_UNREGISTER: libc::Ioctl = 0x8010_aa01_u32 as libc::Ioctl;
/// The ioctl request `_IOWR(0xaa, 0x06, struct uffdio_writeprotect)`.
const UFFDIO_WRITEPROTECT: libc::Ioctl = 0xc018_aa06_u32 as libc::Ioctl;

#[repr(C)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Range {
    start: u64,
    len: u64,
}

#[repr(C)]
struct Register {
    range: Range,
    mode: u64,
    ioctls: u64,
}

#[repr(C)]
struct WriteProtect {
    range: Range,
    mode: u64,
}

impl WriteTracker {
    /// Opens a userfaultfd. The error is `PERM` if a filter or a setting forbids it, and `NOSYS` or `INVAL` if the
    /// kernel is too old.
    pub fn open() -> OsResult<Self> {
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | UFFD_USER_MODE_ONLY;
        // SAFETY: the call makes a descriptor and touches no memory.
        let fd = sys::raw("userfaultfd", || unsafe { libc::syscall(libc::SYS_userfaultfd, flags) });
        if fd < 0 {
            return Err(OsError::last("userfaultfd", "USER_MODE_ONLY"));
        }
        // SAFETY: the kernel has made the descriptor `fd` just now, and no other value owns it.
        let notes = Self { fd: unsafe { OwnedFd::from_raw_fd(fd as i32) }.into() };
        let features = UFFD_FEATURE_WP_ASYNC | UFFD_FEATURE_WP_UNPOPULATED;
        let mut api = Api { api: UFFD_API, features, ioctls: 0 };
        notes.control(UFFDIO_API, &raw mut api, "UFFDIO_API", "asynchronous write protection")?;
        Ok(notes)
    }

    /// Registers a page-aligned range of private memory. The kernel notes writes to it from the next [`Self::begin`]
    /// on.
    pub fn watch(&self, start: usize, length: usize) -> OsResult<()> {
        let range = Range { start: start as u64, len: length as u64 };
        let mut register = Register { range, mode: UFFDIO_REGISTER_MODE_WP, ioctls: 0 };
        self.control(UFFDIO_REGISTER, &raw mut register, "UFFDIO_REGISTER", format!("{length} bytes"))
    }

    /// Forgets all writes to the range that were noted so far. Every page of the range counts as unwritten again.
    pub fn begin(&self, start: usize, length: usize) -> OsResult<()> {
        let range = Range { start: start as u64, len: length as u64 };
        let mut protect = WriteProtect { range, mode: UFFDIO_WRITEPROTECT_MODE_WP };
        self.control(UFFDIO_WRITEPROTECT, &raw mut protect, "UFFDIO_WRITEPROTECT", format!("{length} bytes"))
    }

    /// Stops noting writes to this range. The call is not needed if another mapping has replaced the range.
    pub fn leave(&self, start: usize, length: usize) -> OsResult<()> {
        let mut range = Range { start: start as u64, len: length as u64 };
        self.control(UFFDIO_UNREGISTER, &raw mut range, "UFFDIO_UNREGISTER", format!("{length} bytes"))
    }

    fn control<T>(
        &self,
        request: libc::Ioctl,
        argument: *mut T,
        name: &'static str,
        what: impl Into<String>,
    ) -> OsResult<()> {
        // SAFETY: the argument is the struct that the request takes; the kernel writes to nothing else. Protecting
        // pages changes no contents. The next write to a protected page takes a fault, which the kernel resolves by
        // itself.
        let answer = sys::raw("UFFDIO", || unsafe { libc::ioctl(self.fd.as_fd().as_raw_fd(), request, argument) });
        if answer < 0 { Err(OsError::last(name, what)) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pagemap::{PageFilter, PageMap};
    use crate::reservation::Reservation;

    /// Opens a `WriteTracker`; `None` if the kernel or a filter forbids it.
    fn notes() -> Option<WriteTracker> {
        WriteTracker::open().ok()
    }

    #[test]
    fn written_pages_are_noted_until_they_are_read_off() {
        let (Some(notes), Ok(map)) = (notes(), PageMap::open()) else {
            return crate::testing::skip("write-protection");
        };
        for pages in [64, 2048] {
            let reservation = Reservation::reserve(pages * 4096).unwrap();
            reservation.put_memory(0, pages * 4096).unwrap();
            let page = |n: usize| reservation.start().as_ptr() as usize + n * 4096;
            let write = |n: usize, value: u8| {
                // SAFETY: the address lies in memory that only this test uses.
                unsafe { (page(n) as *mut u8).add(100).write_volatile(value) };
            };
            (0..pages / 2).for_each(|n| write(n, 1));
            notes.watch(page(0), pages * 4096).unwrap();
            notes.begin(page(0), pages * 4096).unwrap();
            let mut found = Vec::new();
            let mut scan = || {
                map.scan(page(0)..page(pages), PageFilter::WrittenAndProtectAgain, &mut found).unwrap();
                found.clone()
            };
            assert_eq!(scan(), []);
            [3, 4, 20, pages - 1].into_iter().for_each(|n| write(n, 2));
            assert_eq!(scan(), [page(3)..page(5), page(20)..page(21), page(pages - 1)..page(pages)], "{pages} pages");
            write(4, 3);
            assert_eq!(scan(), vec![page(4)..page(5); 1]);
            assert_eq!(scan(), []);
            notes.leave(page(0), pages * 4096).unwrap();
        }
    }
}

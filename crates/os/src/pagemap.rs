//! Finds which pages of a range changed, by one system call for the whole range (`PAGEMAP_SCAN`, kernel ≥ 6.7).

use crate::sys;
use std::ops::Range;
use std::sync::Arc;

use crate::singleton::WeakSingleton;
use rustix::fd::{AsFd, AsRawFd};
use rustix::fs::{CWD, Mode, OFlags};

use crate::OwnFile;
use crate::error::{Context, OsError, OsResult};

/// The property by which pages are selected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PageFilter {
    /// Pages to which this process wrote, in a private mapping of a file. The kernel has made private copies of these
    /// pages.
    PrivateCopies,
    /// Pages that were written since they were last write-protected by an asynchronous userfaultfd. The scan that finds
    /// these pages also protects them again.
    WrittenAndProtectAgain,
}

/// The page map of this process.
#[derive(Debug)]
pub struct PageMap {
    fd: OwnFile,
}

const PAGE_IS_WRITTEN: u64 = 1 << 1;
const PAGE_IS_FILE: u64 = 1 << 2;
const PAGE_IS_PRESENT: u64 = 1 << 3;
const PAGE_IS_SWAPPED: u64 = 1 << 4;
const PM_SCAN_WP_MATCHING: u64 = 1;
const PM_SCAN_CHECK_WPASYNC: u64 = 1 << 1;
/// `_IOWR('f', 16, struct pm_scan_arg)`. The type of a request number is signed in musl and unsigned in glibc; the bits
/// are the same.
const PAGEMAP_SCAN: libc::Ioctl = 0xc060_6610_u32 as libc::Ioctl;

#[repr(C)]
#[derive(Default)]
struct ScanArgument {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct PageRegion {
    start: u64,
    end: u64,
    categories: u64,
}

impl PageMap {
    /// Returns the page map of this process. Normally all callers share one descriptor, which is closed after the last
    /// use. A forked child opens a descriptor of its own. So does a caller that comes while another thread is opening
    /// the page map.
    pub fn shared() -> OsResult<Arc<Self>> {
        static SHARED: WeakSingleton<PageMap> = WeakSingleton::new();
        SHARED.get(Self::open)
    }

    /// Opens the page map of this process. The default settings of all container runtimes allow this.
    pub fn open() -> OsResult<Self> {
        let path = "/proc/self/pagemap";
        let fd = sys::fs::openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .context("open", || path.into())?;
        Ok(Self { fd: fd.into() })
    }

    /// Finds the selected pages and stores their address ranges in `found`, in ascending order. Adjacent pages form one
    /// range. `addresses` must be page-aligned.
    pub fn scan(&self, addresses: Range<usize>, looking: PageFilter, found: &mut Vec<Range<usize>>) -> OsResult<()> {
        found.clear();
        let mut regions = [PageRegion::default(); 512];
        let mut argument = ScanArgument {
            size: size_of::<ScanArgument>() as u64,
            start: addresses.start as u64,
            end: addresses.end as u64,
            vec: regions.as_mut_ptr() as u64,
            vec_len: regions.len() as u64,
            ..ScanArgument::default()
        };
        match looking {
            PageFilter::PrivateCopies => {
                // A private copy is anonymous memory. So the scan looks for pages that are present or swapped out and
                // that do not belong to a file.
                argument.category_inverted = PAGE_IS_FILE;
                argument.category_mask = PAGE_IS_FILE;
                argument.category_anyof_mask = PAGE_IS_PRESENT | PAGE_IS_SWAPPED;
                argument.return_mask = PAGE_IS_PRESENT | PAGE_IS_SWAPPED;
            }
            PageFilter::WrittenAndProtectAgain => {
                argument.flags = PM_SCAN_WP_MATCHING | PM_SCAN_CHECK_WPASYNC;
                argument.category_mask = PAGE_IS_WRITTEN;
                argument.return_mask = PAGE_IS_WRITTEN;
            }
        }
        while argument.start < argument.end {
            // SAFETY: the argument has the size that its field `size` says, and its vector points to `vec_len` regions.
            // The kernel writes only to the argument and the regions, and both live through the call.
            let scan = || unsafe { libc::ioctl(self.fd.as_fd().as_raw_fd(), PAGEMAP_SCAN, &raw mut argument) };
            let count = sys::raw("PAGEMAP_SCAN", scan);
            if count < 0 {
                return Err(OsError::last("PAGEMAP_SCAN", format!("{} bytes", addresses.len())));
            }
            for region in &regions[..count as usize] {
                let range = region.start as usize..region.end as usize;
                match found.last_mut() {
                    Some(last) if last.end == range.start => last.end = range.end,
                    _ => found.push(range),
                }
            }
            argument.start = argument.walk_end;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::mm::{MapFlags, ProtFlags};

    #[test]
    fn written_pages_of_a_private_mapping_are_found_and_no_others() {
        const LENGTH: usize = 64 * 4096;
        let fd = crate::memfd::create("crossdock-test", LENGTH as u64).unwrap();
        crate::memfd::reserve(&fd, 0, LENGTH as u64).unwrap();
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the call makes a new mapping at an address that the kernel chooses. The test unmaps it at the end.
        let start =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), LENGTH, protection, MapFlags::PRIVATE, &fd, 0) }.unwrap();
        let page = |n: usize| start as usize + n * 4096;
        for n in [3, 4, 40] {
            // SAFETY: the address lies within the mapping that was made above.
            unsafe { (page(n) as *mut u8).write_volatile(1) };
        }
        // SAFETY: the address lies within the mapping that was made above. The kernel makes no private copy of a page
        // that is only read.
        unsafe { (page(20) as *const u8).read_volatile() };
        let mut found = Vec::new();
        let map = PageMap::open().unwrap();
        map.scan(page(0)..page(64), PageFilter::PrivateCopies, &mut found).unwrap();
        assert_eq!(found, [page(3)..page(5), page(40)..page(41)]);
        // SAFETY: the call unmaps the mapping that this test made, and the mapping is not used again.
        unsafe { rustix::mm::munmap(start, LENGTH) }.unwrap();
    }
}

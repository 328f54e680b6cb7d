//! Tells whether a device or the kernel may write to memory of this process without using the CPU's page tables.
//!
//! A program that registers memory (registered buffers of `io_uring`, RDMA) pins its pages. Asynchronous write
//! protection does not notice later writes to pinned pages. The kernel counts the pinned pages of a process as `VmPin`
//! in `/proc/self/status`. Some drivers (CUDA and VFIO) do not count the pages that they pin.

use std::sync::Arc;

use crate::singleton::WeakSingleton;
use crate::sys;

use rustix::fs::{CWD, Mode, OFlags};

use crate::OwnFile;
use crate::error::{Context, OsResult};

/// The counters of this process's memory in `/proc/self/status`.
#[derive(Debug)]
pub struct PinnedMemory {
    status: OwnFile,
}

impl PinnedMemory {
    /// Returns the counters of this process. Normally all callers share one open descriptor of `/proc/self/status`.
    pub fn shared() -> OsResult<Arc<Self>> {
        static SHARED: WeakSingleton<PinnedMemory> = WeakSingleton::new();
        SHARED.get(Self::open)
    }

    /// Opens the counters of this process.
    pub fn open() -> OsResult<Self> {
        let path = "/proc/self/status";
        let status = sys::fs::openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .context("open", || path.into())?;
        Ok(Self { status: status.into() })
    }

    /// Tells whether any memory of this process is pinned at present. The answer is also `true` if the kernel does not
    /// tell.
    #[must_use]
    pub fn any(&self) -> bool {
        let mut text = [0; 4096];
        let length = sys::io::pread(&self.status, &mut text, 0).unwrap_or(0);
        let text = String::from_utf8_lossy(&text[..length]);
        let kilobytes = text.lines().find_map(|line| line.strip_prefix("VmPin:")?.trim().strip_suffix("kB"));
        kilobytes.is_none_or(|number| number.trim() != "0")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_registered_nothing_has_nothing_pinned() {
        assert!(!PinnedMemory::open().unwrap().any());
    }
}

//! The peers in figure 2: a file that is written and renamed, and a queue of four slots in shared memory.

use std::fs;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crossdock_os::{Access, Deadline, Mapping, futex, memfd};

/// The number of slots in the queue.
const PLACES: usize = 4;
/// The size of the first page, which contains the queue's counters.
const HEAD: usize = 4096;

/// A queue in shared memory. Counters, which both processes use, are followed by the slots.
pub struct Queue {
    memory: Mapping,
    size: usize,
    fd: OwnedFd,
}

impl Queue {
    /// Makes a queue with slots of this size.
    pub fn new(size: usize) -> Self {
        let length = HEAD + PLACES * size;
        let fd = memfd::create("bench-queue", length as u64).expect("memory");
        memfd::reserve(&fd, 0, length as u64).expect("memory");
        Self::over(fd, size)
    }

    /// Opens the queue of another process, through the path of that process's descriptor.
    pub fn open(path: &str, size: usize) -> Self {
        let file = fs::File::options().read(true).write(true).open(path).expect("the parent's descriptor");
        Self::over(file.into(), size)
    }

    fn over(fd: OwnedFd, size: usize) -> Self {
        let memory = Mapping::new(fd.as_fd(), HEAD + PLACES * size, Access::ReadWrite).expect("a mapping");
        Self { memory, size, fd }
    }

    /// Gives the path by which a child process opens the queue.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.fd.as_raw_fd())
    }

    /// Gives one of the counters. Word 0 is the number of messages put in, word 1 the number taken out. Word 2 is not
    /// 0 if no more data will come. Each word has a cache line of its own.
    fn word(&self, n: u64) -> &AtomicU32 {
        self.memory.word32(n * 64).expect("within the first page")
    }

    fn place(&self, n: u32) -> *mut u8 {
        self.memory.at((HEAD + n as usize % PLACES * self.size) as u64, self.size as u64).expect("a place").as_ptr()
    }

    /// Copies data into the next slot. If all slots are full, waits for a free one.
    pub fn put(&self, data: &[u8]) {
        let put = self.word(0).load(Ordering::Relaxed);
        loop {
            let taken = self.word(1).load(Ordering::Acquire);
            if put.wrapping_sub(taken) < PLACES as u32 {
                break;
            }
            futex::wait(self.word(1), taken, Deadline::after(Duration::from_secs(10)));
        }
        // SAFETY: the slot is free, so the other process does not read it. The slot has `size` bytes, and at most as
        // many are copied.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), self.place(put), self.size.min(data.len())) };
        self.announce();
    }

    /// Adds 1 to the number of announced messages, and wakes the reader if it waits for a message.
    pub fn announce(&self) {
        self.word(0).fetch_add(1, Ordering::Release);
        futex::wake(self.word(0), 1);
    }

    /// Waits until more than `seen` messages were announced, and returns the number of announced messages. Returns
    /// `None` if no more will come.
    pub fn wait(&self, seen: u32) -> Option<u32> {
        loop {
            let now = self.word(0).load(Ordering::Acquire);
            if now != seen {
                return Some(now);
            }
            if self.word(2).load(Ordering::Acquire) != 0 {
                return None;
            }
            futex::wait(self.word(0), now, Deadline::after(Duration::from_millis(100)));
        }
    }

    /// Calls `look` with the data of slot `n`, and then frees the slot.
    pub fn take(&self, n: u32, look: impl FnOnce(&[u8])) {
        // SAFETY: the slot is full, and stays full until this function frees it after the call of `look`.
        look(unsafe { std::slice::from_raw_parts(self.place(n), self.size) });
        self.word(1).fetch_add(1, Ordering::Release);
        futex::wake(self.word(1), 1);
    }

    /// Announces that no more data will come.
    pub fn end(&self) {
        self.word(2).store(1, Ordering::Release);
        futex::wake_all(self.word(0));
    }
}

/// A file that is replaced by a rename, so that readers always find a complete state.
pub struct SharedFile {
    path: PathBuf,
    new: PathBuf,
}

impl SharedFile {
    /// Chooses the paths of two files in the folder `folder`: of the file that readers open, and of the second file,
    /// into which `put` writes the next state. Makes no file.
    pub fn new(folder: &Path) -> Self {
        Self { path: folder.join("state"), new: folder.join("state.new") }
    }

    /// Gives the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a new state into a second file, and then renames the second file to the name that readers open.
    pub fn put(&self, data: &[u8]) {
        fs::write(&self.new, data).and_then(|()| fs::rename(&self.new, &self.path)).expect("the file can be written");
    }
}

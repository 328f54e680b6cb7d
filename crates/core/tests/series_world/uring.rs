//! A small interface to io_uring by raw system calls: it registers one buffer and reads into this buffer.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

const REGISTER_BUFFERS: u32 = 0;
const UNREGISTER_BUFFERS: u32 = 1;
const READ_FIXED: u8 = 4;
const ENTER_GETEVENTS: u32 = 1;
const OFFSET_COMPLETIONS: i64 = 0x800_0000;
const OFFSET_ENTRIES: i64 = 0x1000_0000;

/// `struct io_uring_params` of the kernel: the sizes of both rings, and the positions of their parts.
#[repr(C)]
#[derive(Default)]
struct Parameters {
    submissions: u32,
    completions: u32,
    unused: [u32; 8],
    submission_at: [u32; 10],
    completion_at: [u32; 10],
}

#[repr(C)]
struct Entry {
    opcode: u8,
    flags: u8,
    priority: u16,
    descriptor: i32,
    offset: u64,
    address: u64,
    length: u32,
    rest: [u32; 9],
}

pub struct Ring {
    ring: OwnedFd,
    file: OwnedFd,
    parameters: Parameters,
    submissions: *mut u8,
    completions: *mut u8,
    entries: *mut Entry,
}

impl Ring {
    /// Makes an io_uring; `None` if the machine does not have io_uring.
    pub fn new() -> Option<Self> {
        let mut parameters = Parameters::default();
        // SAFETY: the call fills `parameters`, which has the size of the kernel's struct.
        let ring = unsafe { libc::syscall(libc::SYS_io_uring_setup, 4, &raw mut parameters) };
        if ring < 0 {
            return None;
        }
        // SAFETY: the kernel has just made this descriptor for this process.
        let ring = unsafe { OwnedFd::from_raw_fd(ring as i32) };
        let map = |offset: i64| {
            let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_POPULATE);
            // SAFETY: the call makes a new mapping of the ring at an address that the kernel chooses.
            let at = unsafe { libc::mmap(std::ptr::null_mut(), 4096, protection, flags, ring.as_raw_fd(), offset) };
            assert_ne!(at, libc::MAP_FAILED);
            at.cast::<u8>()
        };
        let (submissions, completions, entries) = (map(0), map(OFFSET_COMPLETIONS), map(OFFSET_ENTRIES).cast());
        // SAFETY: the name ends with a zero byte, and the kernel makes the descriptor for this process.
        let file = unsafe { OwnedFd::from_raw_fd(libc::memfd_create(c"read".as_ptr(), 0)) };
        Some(Self { ring, file, parameters, submissions, completions, entries })
    }

    /// Registers memory as the ring's buffer. From now on, the kernel uses the pages that the memory has now.
    pub fn register(&self, start: *mut u8, length: usize) {
        let buffer = libc::iovec { iov_base: start.cast(), iov_len: length };
        // SAFETY: the call registers one buffer, which stays mapped as long as it is registered.
        let done = unsafe {
            libc::syscall(libc::SYS_io_uring_register, self.ring.as_raw_fd(), REGISTER_BUFFERS, &raw const buffer, 1)
        };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    }

    pub fn forget(&self) {
        // SAFETY: the call changes no memory of this process.
        unsafe { libc::syscall(libc::SYS_io_uring_register, self.ring.as_raw_fd(), UNREGISTER_BUFFERS, 0usize, 0) };
    }

    /// Reads one page, in which each byte is `byte`, from a file into the registered memory.
    pub fn read_fixed(&self, to: *mut u8, byte: u8) {
        let page = [byte; 4096];
        rustix::io::pwrite(&self.file, &page, 0).unwrap();
        let entry = Entry {
            opcode: READ_FIXED,
            flags: 0,
            priority: 0,
            descriptor: self.file.as_raw_fd(),
            offset: 0,
            address: to as u64,
            length: 4096,
            rest: [0; 9],
        };
        let [_, tail, mask, ..] = self.parameters.submission_at;
        let array = self.parameters.submission_at[6];
        let [head, _, ring_mask, _, _, events, ..] = self.parameters.completion_at;
        // SAFETY: the kernel gave the offsets. They lie within its rings, which this process alone uses.
        unsafe {
            let word = |base: *mut u8, at: u32| &*base.add(at as usize).cast::<AtomicU32>();
            let at = word(self.submissions, tail).load(Ordering::Acquire);
            let index = at & word(self.submissions, mask).load(Ordering::Relaxed);
            self.entries.add(index as usize).write(entry);
            word(self.submissions, array + 4 * index).store(index, Ordering::Relaxed);
            word(self.submissions, tail).store(at + 1, Ordering::Release);
            let ring = self.ring.as_raw_fd();
            assert_eq!(libc::syscall(libc::SYS_io_uring_enter, ring, 1, 1, ENTER_GETEVENTS, 0usize, 0), 1);
            let first = word(self.completions, head).load(Ordering::Acquire);
            let index = first & word(self.completions, ring_mask).load(Ordering::Relaxed);
            let result = self.completions.add(events as usize + 16 * index as usize + 8).cast::<i32>().read();
            assert_eq!(result, 4096, "bytes that the kernel says it read");
            word(self.completions, head).store(first + 1, Ordering::Release);
        }
    }
}

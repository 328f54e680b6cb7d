//! A region without a daemon, and the processes that share it.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossdock_core::host::StandaloneHost;
use crossdock_core::region::{RegionParts, Region};
use crossdock_layout::{MemberId, SegmentId};
use crossdock_os::{Access, Mapping, memfd};

const WORDS: usize = 8192;

/// The segment of a region, and words in shared memory by which the processes synchronize.
pub struct World {
    segment: OwnedFd,
    size: u64,
    words: Mapping,
}

impl World {
    /// Makes a new segment with a region.
    pub fn new(size: u64) -> Arc<Self> {
        let words = memfd::create("bench-words", (WORDS * 8) as u64).expect("a memfd");
        let words = Mapping::new(&words, WORDS * 8, Access::ReadWrite).expect("a mapping");
        Arc::new(Self { segment: memfd::create("bench-region", size).expect("a memfd"), size, words })
    }

    /// The shared word with this index.
    pub fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < WORDS);
        // SAFETY: the address lies within the mapped words, and processes access these words only as atomics.
        unsafe { self.words.start().cast::<AtomicU64>().add(index).as_ref() }
    }

    /// Maps the region as the member with this number.
    pub fn attach(&self, counter: u64) -> Arc<Region> {
        Region::attach(RegionParts {
            name: "bench".into(),
            segment: SegmentId(1),
            descriptor: self.segment.as_fd().try_clone_to_owned().expect("a descriptor").into(),
            size: self.size,
            writable: true,
            member: MemberId::new(counter, counter as usize),
            host: Arc::new(StandaloneHost::default()),
        })
        .expect("a region")
    }

    /// Runs `work` in a new process.
    pub fn spawn(&self, counter: u64, work: impl FnOnce(Arc<Region>)) -> i32 {
        // SAFETY: the program has only one thread, so the child's memory is consistent. The child runs the closure and
        // ends.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            work(self.attach(counter));
            // SAFETY: the call ends the child process, and has no conditions.
            unsafe { libc::_exit(0) }
        }
        pid
    }

    /// Waits for the end of a child process.
    pub fn wait(&self, pid: i32) {
        let mut status = 0;
        // SAFETY: the call waits for a child of this process, and writes its status to `status`.
        unsafe { libc::waitpid(pid, &mut status, 0) };
        assert_eq!(status, 0, "the other process failed");
    }

    /// Waits until `count` processes have called this function with the same word.
    pub fn meet(&self, word: usize, count: u64) {
        self.word(word).fetch_add(1, Ordering::AcqRel);
        while self.word(word).load(Ordering::Acquire) < count {
            std::hint::spin_loop();
        }
    }
}

/// Pins this process to the CPU with this number, modulo the number of CPUs.
pub fn pin(processor: usize) {
    // SAFETY: a zeroed `cpu_set_t` is a valid, empty set; the last call only reads it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor % crossdock_os::process::processors().max(1), &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}

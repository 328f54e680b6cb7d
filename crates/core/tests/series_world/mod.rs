//! Lets tests use a series without a daemon: the test itself keeps the liveness table, the quota, the descriptors and
//! the pages in which observers note their versions (pin pages).
#![allow(dead_code)] // each test binary uses a part

pub mod pattern;

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crossdock_core::Host;
use crossdock_core::liveness::LivenessSource;
use crossdock_core::series::{AttachParts, Detect, Identity, Observer, Offer, Pages, Publisher};
use crossdock_core::series::{PinPageGiven, Spec, Variable};
use crossdock_core::{Error, Result};
use crossdock_layout::liveness::LivenessTable;
use crossdock_layout::series::{PAGE, PAGE_SLOTS, PinSlot};
use crossdock_layout::{MemberId, SegmentId, Status};
use crossdock_os::{Access, Mapping, file, memfd};

pub const LONG: Duration = Duration::from_secs(30);
pub const PUBLISHER: MemberId = MemberId::new(1, 1);

/// Memory that the test's processes share: the liveness table, the quota, and words of the test's own.
pub struct World {
    memory: Mapping,
    /// The pin pages of the last series that the test made.
    pages: Mutex<Vec<OwnedFd>>,
}

impl World {
    pub fn new() -> Arc<Self> {
        let length = size_of::<LivenessTable>() + 65536;
        let fd = memfd::create("crossdock-test-liveness", length as u64).unwrap();
        let memory = Mapping::new(&fd, length, Access::ReadWrite).unwrap();
        let world = Arc::new(Self { memory, pages: Mutex::default() });
        world.make_pages();
        world.table().format();
        world.table().set_alive(PUBLISHER);
        world.word(0).store(u64::MAX, Ordering::Relaxed);
        world
    }

    /// A word of memory that all processes of the test share. Word 0 is the quota. Word 5 is the number of requests for
    /// more memory that get no answer.
    pub fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < 8000);
        // SAFETY: the word lies within the memory behind the table, which is mapped and consists of atomics.
        unsafe { self.memory.start().add(size_of::<LivenessTable>() + 8 * index).cast().as_ref() }
    }

    pub fn set_quota(&self, bytes: u64) {
        self.word(0).store(bytes, Ordering::Relaxed);
    }

    /// Lets the next requests for more memory get no answer.
    pub fn lose_answers(&self, requests: u64) {
        self.word(5).store(requests, Ordering::Relaxed);
    }

    pub fn publisher(self: &Arc<Self>, spec: Spec) -> (Publisher, Series) {
        let pages = self.make_pages();
        let (publisher, offer) = self.try_publisher(spec).unwrap();
        (publisher, Series { world: self.clone(), offer, pages })
    }

    /// Makes new pin pages for the next series.
    fn make_pages(&self) -> Vec<OwnedFd> {
        let fresh = || memfd::create("crossdock-test-pins", PAGE).unwrap();
        let pages: Vec<_> = (0..2).map(|_| fresh()).collect();
        let copies = pages.iter().map(|page| page.try_clone().unwrap()).collect();
        *self.pages.lock().unwrap() = copies;
        pages
    }

    pub fn try_publisher(self: &Arc<Self>, spec: Spec) -> Result<(Publisher, Offer)> {
        let identity = Identity { name: "field".into(), workflow: "default".into(), member: PUBLISHER };
        Publisher::create(identity, &spec, self.clone())
    }

    /// Forks a child that runs `work` and exits with the code that `work` gives.
    pub fn fork(&self, work: impl FnOnce() -> i32) -> i32 {
        // SAFETY: the child runs only the closure and leaves by _exit.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0);
        if pid == 0 {
            // The call makes the kernel kill this child when the thread that forked it ends, for example because the
            // test failed. SAFETY: the call changes a setting of this process only.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            let code = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            // SAFETY: `_exit` ends the child process at once.
            unsafe { libc::_exit(code.unwrap_or(101)) }
        }
        pid
    }

    /// Starts a publisher in a child process: the child makes a series, waits until this process has the series'
    /// descriptors, and then runs `work`.
    pub fn publish_apart(self: &Arc<Self>, spec: Spec, work: impl FnOnce(&mut Publisher) -> i32) -> (i32, Series) {
        const OFFERED: usize = 1;
        const TAKEN: usize = 2;
        const SIZE: usize = 3;
        const POOL: usize = 4;
        let pages = self.make_pages();
        self.word(OFFERED).store(0, Ordering::SeqCst);
        self.word(TAKEN).store(0, Ordering::SeqCst);
        let wait_for = |word: usize| {
            let started = std::time::Instant::now();
            while self.word(word).load(Ordering::SeqCst) == 0 {
                assert!(started.elapsed() < LONG, "the other process does not come");
                std::thread::sleep(Duration::from_micros(200));
            }
        };
        let pid = self.fork(|| {
            let (mut publisher, offer) = self.try_publisher(spec).unwrap();
            self.word(SIZE).store(offer.size, Ordering::SeqCst);
            self.word(POOL).store(offer.pool.as_fd().as_raw_fd() as u64, Ordering::SeqCst);
            self.word(OFFERED).store(offer.reserved, Ordering::SeqCst);
            wait_for(TAKEN);
            let code = work(&mut publisher);
            std::mem::forget(publisher);
            code
        });
        wait_for(OFFERED);
        let open = |word: usize, flags| {
            let path = format!("/proc/{pid}/fd/{}", self.word(word).load(Ordering::SeqCst));
            rustix::fs::open(path, flags | rustix::fs::OFlags::CLOEXEC, rustix::fs::Mode::empty()).unwrap()
        };
        let offer = Offer {
            pool: open(POOL, rustix::fs::OFlags::RDONLY).into(),
            size: self.word(SIZE).load(Ordering::SeqCst),
            reserved: self.word(OFFERED).load(Ordering::SeqCst),
            observers: 0,
        };
        self.word(TAKEN).store(1, Ordering::SeqCst);
        (pid, Series { world: self.clone(), offer, pages })
    }

    /// Marks the publisher as dead.
    pub fn publisher_died(&self) {
        self.table().set_dead(PUBLISHER);
        crossdock_os::futex::wake_all(&self.table().epoch);
    }

    /// Waits for a child. Gives its exit code, or the negative number of the signal that killed it.
    pub fn wait(&self, pid: i32) -> i32 {
        let mut status = 0;
        // SAFETY: the call waits for a child of this process.
        assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
        if libc::WIFSIGNALED(status) { -libc::WTERMSIG(status) } else { libc::WEXITSTATUS(status) }
    }
}

impl LivenessSource for World {
    fn table(&self) -> &LivenessTable {
        // SAFETY: the mapping is at least as long as the table, and began as zeros. The table is all atomics.
        unsafe { self.memory.start().cast().as_ref() }
    }
}

impl Host for World {
    fn liveness(&self) -> &dyn LivenessSource {
        self
    }

    fn reserve(&self, total: u64) -> Result<()> {
        let lose = |requests: u64| requests.checked_sub(1);
        if self.word(5).fetch_update(Ordering::Relaxed, Ordering::Relaxed, lose).is_ok() {
            return Err(Error::new(Status::TimedOut, "the daemon did not answer"));
        }
        let quota = self.word(0).load(Ordering::Relaxed);
        if total <= quota {
            return Ok(());
        }
        Err(Error::new(Status::NoSpace, format!("{total} bytes are more than the quota of {quota}")))
    }

    fn describe(&self, member: MemberId) -> String {
        member.to_string()
    }

    fn pages_word(&self) -> u32 {
        1
    }

    fn pin_page(&self, from: u32) -> Result<Option<PinPageGiven>> {
        let pages = self.pages.lock().unwrap();
        let Some(page) = pages.get(from as usize) else { return Ok(None) };
        let page = page.try_clone().unwrap();
        Ok(Some(PinPageGiven { page: page.into(), next: from + 1, left: pages.len() as u32 - from - 1 }))
    }
}

/// The parts of a series that a daemon would hold: its pool and its pin pages.
pub struct Series {
    pub world: Arc<World>,
    pub offer: Offer,
    pages: Vec<OwnedFd>,
}

impl Series {
    pub fn parts(&self, index: usize) -> AttachParts {
        AttachParts {
            name: "field".into(),
            segment: SegmentId(7),
            pool: file::reopen_read_only(&self.offer.pool).unwrap().into(),
            size: self.offer.size,
            pin_page: self.pin_page(index).into(),
            slot: (index % PAGE_SLOTS) as u32,
            publisher: PUBLISHER,
            host: self.world.clone(),
        }
    }

    pub fn pin_page(&self, index: usize) -> OwnedFd {
        self.pages[index / PAGE_SLOTS].try_clone().unwrap()
    }

    /// Attaches an observer, which uses the slot `index` of the pin pages.
    pub fn observe(&self, index: usize) -> Observer {
        Observer::attach(self.parts(index)).unwrap()
    }

    /// Clears an observer's pins, as the daemon does when the observer is gone.
    pub fn clear_pins(&self, index: usize) {
        let slot = size_of::<PinSlot>();
        memfd::clear(self.pin_page(index), (index % PAGE_SLOTS * slot) as u64, slot as u64).unwrap();
    }

    /// The number of bytes of the pool that have memory.
    pub fn resident(&self) -> u64 {
        memfd::resident(&self.offer.pool).unwrap()
    }
}

/// The spec of a series with one variable of `count` numbers of type `u64`.
pub fn spec(count: u64) -> Spec {
    Spec::of(vec![Variable::new("u", "u64", &[count])])
}

/// Gives the setting for the pages of a variable that `detect` needs. Only private copies need the permission to move
/// pages.
pub fn pages(detect: Detect) -> Pages {
    if detect == Detect::PrivateCopies { Pages::MayMove } else { Pages::Stay }
}

/// A variable's memory as a slice of numbers.
pub fn numbers<'a>(publisher: &'a mut Publisher, variable: &str) -> &'a mut [u64] {
    let (start, bytes) = (publisher.memory(variable).unwrap(), publisher.bytes(variable).unwrap());
    // SAFETY: the slice is the variable's own memory. No other thread writes it, and the slice borrows the publisher,
    // so the publisher cannot change the memory meanwhile.
    unsafe { std::slice::from_raw_parts_mut(start.cast(), bytes as usize / 8) }
}

/// Gives the memory of a slice of bytes as a slice of numbers, without a copy.
pub fn as_numbers(bytes: &[u8]) -> &[u64] {
    assert_eq!(bytes.len() % 8, 0);
    // SAFETY: every bit pattern is a valid `u64`, and the bytes of a version's variable begin at a page, so they are
    // aligned for `u64`.
    unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len() / 8) }
}

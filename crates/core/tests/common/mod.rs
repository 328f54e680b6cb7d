//! Lets tests use a region without a daemon: the test itself makes the memfd and keeps the liveness table.
#![allow(dead_code)] // each test binary uses a part

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use crossdock_core::liveness::{LivenessSource, RollProofs};
use crossdock_core::region::{Region, RegionParts};
use crossdock_core::{Error, Host, Result};
use crossdock_layout::liveness::LivenessTable;
use crossdock_layout::region::{Lock, RegionHeader};
use crossdock_layout::{MemberId, SegmentId, Status};
use crossdock_os::{Access, Mapping, memfd};

/// Memory that the test's processes share: the liveness table, the quota, and words of the test's own.
pub struct World {
    this: Weak<World>,
    table: Mapping,
    segment: OwnedFd,
    pub size: u64,
}

/// The index of the word that holds a member's id. The roll proves this member's death.
const ROLL: usize = 7999;

/// The index of the word that [`World::held`] gives. The word names the member that held the region's lock when some
/// member asked its host a question. The word is 0 if the lock was free at each question.
const HELD: usize = 7998;

/// The index of the word that holds a limit in bytes. The daemon does not answer a request for more bytes than the
/// limit. If the word is 0, the daemon always answers.
const LOST: usize = 7997;

/// The index of the word that names a member. When the daemon does not answer a request, this member takes the region's
/// lock. If the word is 0, no member takes the lock.
const TAKER: usize = 7996;

/// The offset of the word that names the holder of the region's lock.
const HOLDER: u64 = (std::mem::offset_of!(RegionHeader, lock) + std::mem::offset_of!(Lock, holder)) as u64;

/// The `Host` of one member: it gives the member the liveness table and the quota of the test's world.
struct Window {
    world: Arc<World>,
    proofs: RollProofs,
}

impl World {
    pub fn new(size: u64) -> Arc<Self> {
        let length = size_of::<LivenessTable>() + 65536;
        let fd = memfd::create("crossdock-test-liveness", length as u64).unwrap();
        let table = Mapping::new(&fd, length, Access::ReadWrite).unwrap();
        let segment = memfd::create("crossdock-test-region", size).unwrap();
        let world = Arc::new_cyclic(|this| Self { this: this.clone(), table, segment, size });
        world.liveness().format();
        world.quota().store(u64::MAX, Ordering::Relaxed);
        world
    }

    /// Gives an `Arc` of this world to a caller that has only a reference.
    pub fn again(&self) -> Arc<Self> {
        self.this.upgrade().unwrap()
    }

    pub fn liveness(&self) -> &LivenessTable {
        // SAFETY: the mapping is at least as long as the table, and began as zeros. The table is all atomics.
        unsafe { self.table.start().cast().as_ref() }
    }

    /// The largest number of bytes that the region may reserve.
    pub fn quota(&self) -> &AtomicU64 {
        // SAFETY: the word lies in the page behind the table, which is mapped and consists of atomics.
        unsafe { self.table.start().add(size_of::<LivenessTable>()).cast().as_ref() }
    }

    /// If a member asks for more than this number of bytes, its connection to the daemon is lost; 0 means that the
    /// connection is never lost.
    pub fn lost_above(&self) -> &AtomicU64 {
        self.word(LOST)
    }

    /// The member that takes the region's lock, and never releases it, when the daemon does not answer; 0 if no member
    /// does.
    pub fn taker(&self) -> &AtomicU64 {
        self.word(TAKER)
    }

    /// A word of memory that all processes of the test share.
    pub fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < 8000);
        // SAFETY: the word lies within the memory behind the table, which is mapped and consists of atomics.
        unsafe { self.table.start().add(size_of::<LivenessTable>() + 8 + 8 * index).cast().as_ref() }
    }

    pub fn resident(&self) -> u64 {
        memfd::resident(&self.segment).unwrap()
    }

    /// Marks the member with this counter as alive in the liveness table, and attaches it to the region.
    pub fn attach(self: &Arc<Self>, counter: u64) -> Arc<Region> {
        self.try_attach(counter, true).unwrap()
    }

    pub fn try_attach(self: &Arc<Self>, counter: u64, writable: bool) -> Result<Arc<Region>> {
        let member = member(counter);
        self.liveness().set_alive(member);
        Region::attach(RegionParts {
            name: "test".into(),
            segment: SegmentId(7),
            descriptor: self.segment.as_fd().try_clone_to_owned().unwrap().into(),
            size: self.size,
            writable,
            member,
            host: Arc::new(self.window()),
        })
    }

    /// Runs `work` as member `counter` in a child process. The child exits with the number that `work` returns, without
    /// leaving the region. Gives the process id.
    pub fn spawn(self: &Arc<Self>, counter: u64, work: impl FnOnce(Arc<Region>) -> i32) -> i32 {
        self.spawn_bare(counter, || work(self.attach(counter)))
    }

    /// Runs `work` as member `counter` in a child process, like `spawn`, but does not attach the child to the region.
    pub fn spawn_bare(self: &Arc<Self>, counter: u64, work: impl FnOnce() -> i32) -> i32 {
        self.liveness().set_alive(member(counter));
        // SAFETY: the child runs only the closure and leaves by _exit.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0);
        if pid == 0 {
            // If a child hangs, SIGALRM kills it, and its test fails instead of waiting for ever.
            // SAFETY: the call sets this process's own timer.
            unsafe { libc::alarm(120) };
            let code = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            // SAFETY: `_exit` ends the child process at once.
            unsafe { libc::_exit(code.unwrap_or(101)) }
        }
        pid
    }

    fn window(self: &Arc<Self>) -> Window {
        Window { world: self.clone(), proofs: RollProofs::default() }
    }

    /// Waits for a child of `spawn` and marks its member as dead. Gives the exit code, or the negative number of the
    /// signal.
    pub fn wait(&self, counter: u64, pid: i32) -> i32 {
        let end = self.wait_unseen(pid);
        self.liveness().set_dead(member(counter));
        end
    }

    /// Waits for a child of `spawn`. The liveness table does not show the child's death, just as if no daemon ran.
    /// Gives the exit code, or the negative number of the signal.
    pub fn wait_unseen(&self, pid: i32) -> i32 {
        let mut status = 0;
        // SAFETY: the call waits for a child of this process.
        assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
        if libc::WIFSIGNALED(status) { -libc::WTERMSIG(status) } else { libc::WEXITSTATUS(status) }
    }
}

impl World {
    /// Releases the member's lock on the roll: from now on the roll proves that the member is dead, even if the
    /// liveness table does not show it.
    pub fn leave_roll(&self, counter: u64) {
        self.word(ROLL).store(member(counter).0, Ordering::Release);
    }

    /// The member that held the region's lock while any member asked its host about the quota or about another member;
    /// 0 if no member held it.
    pub fn held(&self) -> u64 {
        self.word(HELD).load(Ordering::Acquire)
    }

    fn note_lock(&self) {
        let mut holder = [0; 8];
        rustix::io::pread(&self.segment, &mut holder, HOLDER).unwrap();
        self.word(HELD).fetch_max(u64::from_le_bytes(holder), Ordering::AcqRel);
    }

    /// Runs `work` while another thread waits for the region's lock. Returns how often a member released the lock
    /// during `work`, as far as this thread noticed it.
    pub fn unlocks_during(&self, region: &Region, work: impl FnOnce()) -> u32 {
        let done = AtomicBool::new(false);
        // SAFETY: the header is at the region's beginning, and consists of atomics.
        let lock = unsafe { &(*region.base().cast::<RegionHeader>()).lock };
        let before = lock.gate.load(Ordering::Acquire);
        std::thread::scope(|scope| {
            // A member that releases the lock increments `gate` only if another member waits for the lock. This thread
            // acts as a member that always waits, so that `gate` counts the releases.
            scope.spawn(|| {
                while !done.load(Ordering::Acquire) {
                    lock.waiting.store(1, Ordering::SeqCst);
                    std::thread::yield_now();
                }
            });
            work();
            done.store(true, Ordering::Release);
        });
        lock.gate.load(Ordering::Acquire).wrapping_sub(before)
    }

    /// The host of one member of this world.
    pub fn host(self: &Arc<Self>) -> Arc<dyn Host> {
        Arc::new(self.window())
    }

    /// Tells whether this member is dead, by the check that a port makes while it waits for a member.
    pub fn is_dead(self: &Arc<Self>, counter: u64) -> bool {
        self.window().is_dead(member(counter))
    }
}

impl LivenessSource for Window {
    fn table(&self) -> &LivenessTable {
        self.world.liveness()
    }

    fn has_left(&self, member: MemberId) -> bool {
        if self.world.word(ROLL).load(Ordering::Acquire) == member.0 {
            self.proofs.note(member);
            return true;
        }
        // The test marks each dead member in the table, so the table alone tells whether a member is dead.
        self.world.liveness().members[member.slot()].load(Ordering::Acquire) != member.0
    }
}

impl Host for Window {
    fn liveness(&self) -> &dyn LivenessSource {
        self
    }

    fn describe(&self, member: MemberId) -> String {
        self.world.note_lock();
        member.to_string()
    }

    fn reserve(&self, total: u64) -> Result<()> {
        self.world.note_lock();
        let most = self.world.lost_above().load(Ordering::Relaxed);
        if most != 0 && total > most {
            let taker = self.world.taker().load(Ordering::Relaxed);
            if taker != 0 {
                rustix::io::pwrite(&self.world.segment, &taker.to_le_bytes(), HOLDER).unwrap();
            }
            return Err(Error::new(Status::Disconnected, "the daemon does not answer"));
        }
        let quota = self.world.quota().load(Ordering::Relaxed);
        if total <= quota {
            return Ok(());
        }
        Err(Error::new(Status::NoSpace, format!("{total} bytes are more than the quota of {quota}")))
    }
}

/// The id of the member with this counter.
pub fn member(counter: u64) -> MemberId {
    MemberId::new(counter, (counter % 4096) as usize)
}

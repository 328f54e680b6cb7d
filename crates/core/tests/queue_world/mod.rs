//! Lets tests use a port without a daemon: the test itself makes the port's memfd and the liveness table, and starts
//! the processes that are to die.
//!
//! A child is a process of this test's own binary. It runs the one ignored test `child`, with its role in the
//! environment, and opens the parent's memfds through `/proc`. The parent does the daemon's work: a thread waits for
//! each child, and marks its member as dead as soon as the child is gone.
#![allow(dead_code, reason = "each test binary uses its part")]

use crossdock_core::Error;
use crossdock_core::Host;
use crossdock_core::liveness::LivenessSource;
use crossdock_core::queue::{End, Inline, Message, Pattern, Ring, Shape, Side};
use crossdock_layout::liveness::LivenessTable;
use crossdock_layout::{Handle, MemberId};
use crossdock_os::{Access, Deadline, Mapping, futex, memfd};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

pub const LONG: Duration = Duration::from_secs(20);
pub const POLL: Duration = Duration::ZERO;
const TABLE_BYTES: usize = size_of::<LivenessTable>();
const BOARD_BYTES: usize = 4096;

/// The mapping of the liveness table.
pub struct Table(Mapping);

impl LivenessSource for Table {
    fn table(&self) -> &LivenessTable {
        // SAFETY: the mapping has the table's size and a page's alignment, and all fields are atomics and bytes.
        unsafe { self.0.start().cast().as_ref() }
    }

    /// The test marks each dead member in the table, so the table alone tells whether a member is dead.
    fn has_left(&self, member: MemberId) -> bool {
        self.table().members[member.slot()].load(std::sync::atomic::Ordering::Acquire) != member.0
    }
}

impl Host for Table {
    fn liveness(&self) -> &dyn LivenessSource {
        self
    }
}

/// A port, and everything else that a test of ports needs.
pub struct World {
    pub shape: Shape,
    port: OwnedFd,
    table: OwnedFd,
    board: OwnedFd,
    pub host: Arc<Table>,
    board_map: Mapping,
    next: AtomicU64,
}

impl World {
    pub fn new(pattern: Pattern, capacity: u32) -> Self {
        let shape = Shape { pattern, capacity };
        let port = memfd::create("crossdock-test-port", shape.size()).unwrap();
        let table = memfd::create("crossdock-test-table", TABLE_BYTES as u64).unwrap();
        let board = memfd::create("crossdock-test-board", BOARD_BYTES as u64).unwrap();
        let world = Self::over(shape, port, table, board);
        world.host.table().format();
        world
    }

    fn over(shape: Shape, port: OwnedFd, table: OwnedFd, board: OwnedFd) -> Self {
        let host = Arc::new(Table(Mapping::new(&table, TABLE_BYTES, Access::ReadWrite).unwrap()));
        let board_map = Mapping::new(&board, BOARD_BYTES, Access::ReadWrite).unwrap();
        Self { shape, port, table, board, host, board_map, next: AtomicU64::new(1) }
    }

    /// In a child process: opens the parent's port and liveness table, and returns them, the child's member id and its
    /// role. In a process that is not a child, returns `None`.
    pub fn of_parent() -> Option<(Self, MemberId, String)> {
        let text = std::env::var("CROSSDOCK_TEST_CHILD").ok()?;
        let words: Vec<_> = text.split(' ').collect();
        let number = |n: usize| words[n].parse::<u64>().unwrap();
        let open = |n: usize| {
            let path = format!("/proc/{}/fd/{}", words[0], words[n]);
            OwnedFd::from(std::fs::File::options().read(true).write(true).open(path).unwrap())
        };
        let shape = Shape { pattern: Pattern::from_number(number(4) as u32).unwrap(), capacity: number(5) as u32 };
        let world = Self::over(shape, open(1), open(2), open(3));
        Some((world, MemberId(number(6)), words[7].to_owned()))
    }

    /// Makes the id of a new member and marks it as alive in the liveness table.
    pub fn member(&self) -> MemberId {
        let n = self.next.fetch_add(1, SeqCst);
        let member = MemberId::new(n, n as usize);
        self.host.table().set_alive(member);
        member
    }

    /// Marks the member as dead, as the daemon does when the kernel reports the end of the member's process.
    pub fn bury(&self, member: MemberId) {
        bury(&self.host, member);
    }

    pub fn mapping(&self) -> Mapping {
        Mapping::new(&self.port, self.shape.size() as usize, Access::ReadWrite).unwrap()
    }

    pub fn ring(&self, me: MemberId) -> Result<Ring, Error> {
        Ring::open(self.mapping(), self.shape, me, self.host.liveness(), Deadline::after(LONG))
    }

    pub fn try_open(&self, side: Side, me: MemberId, name: &str) -> Result<End, Error> {
        End::open(self.ring(me)?, side, me, name, self.host.clone(), POLL)
    }

    pub fn open(&self, side: Side) -> End {
        self.try_open(side, self.member(), side.word()).unwrap()
    }

    /// Words of memory that all processes of this test share.
    pub fn board(&self) -> &[AtomicU64] {
        // SAFETY: the mapping has BOARD_BYTES bytes and a page's alignment, and only atomics live there.
        unsafe { std::slice::from_raw_parts(self.board_map.start().as_ptr().cast(), BOARD_BYTES / 8) }
    }

    /// Starts a child process with the role `part`. If `fault` is given, the child dies when it reaches that fault
    /// point.
    pub fn spawn(&self, part: &str, fault: Option<&str>) -> Child {
        let member = self.member();
        let (pid, fds) = (std::process::id(), [&self.port, &self.table, &self.board].map(AsRawFd::as_raw_fd));
        let text = format!(
            "{pid} {} {} {} {} {} {} {part}",
            fds[0], fds[1], fds[2], self.shape.pattern as u32, self.shape.capacity, member.0
        );
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "child", "--ignored", "--nocapture", "--test-threads=1"]);
        command.env("CROSSDOCK_TEST_CHILD", text).stdout(std::process::Stdio::null());
        match fault {
            Some(fault) => command.env("CROSSDOCK_FAULT", fault),
            None => command.env_remove("CROSSDOCK_FAULT"),
        };
        let mut process = command.spawn().unwrap();
        let id = process.id();
        let host = self.host.clone();
        let (tell, end) = mpsc::channel();
        let gone = Arc::new(AtomicBool::new(false));
        let set_gone = gone.clone();
        std::thread::spawn(move || {
            let status = process.wait().unwrap();
            let died = Instant::now();
            bury(&host, member);
            set_gone.store(true, SeqCst);
            let _ = tell.send((status, died));
        });
        Child { member, id, end, gone }
    }
}

fn bury(host: &Table, member: MemberId) {
    let table = host.table();
    if table.set_dead(member) {
        futex::wake_all(&table.epoch);
    }
}

/// A child process that acts as a member with a role.
pub struct Child {
    pub member: MemberId,
    pub id: u32,
    gone: Arc<AtomicBool>,
    end: mpsc::Receiver<(std::process::ExitStatus, Instant)>,
}

impl Child {
    /// Waits for the child's end. Returns whether a signal killed the child, and the time at which the child's member
    /// was marked as dead.
    pub fn wait(self) -> (bool, Instant) {
        use std::os::unix::process::ExitStatusExt;
        let (status, died) = self.end.recv_timeout(LONG).expect("the child ends in time");
        assert!(status.success() || status.signal() == Some(9), "the child failed: {status}");
        (status.signal() == Some(9), died)
    }

    /// Waits until the child has stored a value other than 0 in this word, or until the child has ended.
    pub fn until_stored(&self, word: &AtomicU64) {
        let start = Instant::now();
        while word.load(SeqCst) == 0 && !self.gone.load(SeqCst) {
            assert!(start.elapsed() < LONG, "the child never came so far");
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    pub fn kill(&self) {
        let pidfd = crossdock_os::process::open_pidfd(self.id as i32).unwrap();
        if let Some(pidfd) = pidfd {
            crossdock_os::process::send_signal(pidfd, rustix::process::Signal::KILL).unwrap();
        }
    }
}

pub fn message(tag: u64) -> Message {
    let inline = Inline::new(&tag.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()).unwrap();
    Message { inline, ..Message::new(Handle { segment: 7, offset: tag * 64 + 64 }, tag) }
}

/// Checks that all parts of the message are as they were sent.
pub fn assert_whole(got: &Message) {
    assert_eq!(*got, Message { position: got.position, ..message(got.tag) });
}

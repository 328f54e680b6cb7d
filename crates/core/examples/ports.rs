//! Benchmark of ports (P1 and P2 in `docs/benchmarks.md`): the time of a one-way message between two processes on two
//! CPUs. The same run also measures other ways to pass a message: a word in shared memory on which the receiver spins,
//! a futex, and a SOCK_SEQPACKET socket. The word and the futex are the fastest possible ways (the "floors"). The
//! rounds of all ways alternate, so that a busy machine slows all of them alike. The result for a port is the median of
//! its rounds, and the ratio of this median to the floor's median.
//!
//! `bench/ports/run` builds and runs this benchmark; with `--peer` it also runs the same benchmark for iceoryx2. To run
//! this benchmark alone: `cargo run --release -p crossdock-core --example ports [-- --json]`. `QUICK=1` makes a short
//! run.

use crossdock_core::Host;
use crossdock_core::liveness::LivenessSource;
use crossdock_core::queue::{End, Inline, Message, Pattern, Ring, Shape, Side, Waiting};
use crossdock_layout::MemberId;
use crossdock_layout::liveness::LivenessTable;
use crossdock_os::{Access, Deadline, Mapping, clock, futex, memfd};
use std::hint::{black_box, spin_loop};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(20);

fn inline(number: u64) -> Inline {
    Inline::new(&number.to_le_bytes()).unwrap_or_default()
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Spin,
    SpinPause,
    Futex,
    SeqPacket,
    PortSpin,
    PortSpinRelease,
    PortBlock,
    PortAdaptive,
}

use Kind::*;
const KINDS: [Kind; 8] = [Spin, SpinPause, Futex, SeqPacket, PortSpin, PortSpinRelease, PortBlock, PortAdaptive];

impl Kind {
    fn words(self) -> &'static str {
        match self {
            Spin => "floor: spinning word",
            SpinPause => "floor: spinning word, with pauses",
            Futex => "floor: futex",
            SeqPacket => "floor: SOCK_SEQPACKET",
            PortSpin => "port, spinning",
            PortSpinRelease => "port, spinning, released before the answer",
            PortBlock => "port, blocking",
            PortAdaptive => "port, adaptive",
        }
    }

    /// Tells whether the receiver of this kind of message sleeps while it waits.
    fn sleeps(self) -> bool {
        matches!(self, Futex | SeqPacket | PortBlock)
    }

    fn rounds_trips(self, quick: bool) -> u32 {
        let trips =
            if matches!(self, Spin | SpinPause | PortSpin | PortSpinRelease | PortAdaptive) { 4000 } else { 400 };
        if quick { trips / 4 } else { trips }
    }
}

struct Table(Mapping);

impl LivenessSource for Table {
    fn table(&self) -> &LivenessTable {
        // SAFETY: the mapping has the table's size, and all of it is atomics and bytes.
        unsafe { self.0.start().cast().as_ref() }
    }
}

impl Host for Table {
    fn liveness(&self) -> &dyn LivenessSource {
        self
    }
}

#[repr(align(128))]
struct Word(AtomicU32);

/// One of the two processes that send messages to each other.
struct Player {
    first: bool,
    words: Mapping,
    socket: OwnedFd,
    to: End,
    from: End,
}

impl Player {
    fn new(first: bool, fds: &[OwnedFd; 4], socket: OwnedFd) -> Self {
        let shape = Shape { pattern: Pattern::OneToOne, capacity: 8 };
        let map = |fd: &OwnedFd, size: usize| Mapping::new(fd, size, Access::ReadWrite).expect("a mapping");
        let host = Arc::new(Table(map(&fds[0], size_of::<LivenessTable>())));
        let me = MemberId::new(1 + u64::from(first), usize::from(first));
        let open = |fd: &OwnedFd, side| {
            let mapping = map(fd, shape.size() as usize);
            let ring = Ring::open(mapping, shape, me, host.liveness(), Deadline::after(LONG)).expect("a port");
            End::open(ring, side, me, "bench", host.clone(), LONG).expect("an end")
        };
        let (to, from) = if first { (&fds[1], &fds[2]) } else { (&fds[2], &fds[1]) };
        let (to, from) = (open(to, Side::Producer), open(from, Side::Consumer));
        to.wait_peer(LONG).expect("the other process");
        from.wait_peer(LONG).expect("the other process");
        Self { first, words: map(&fds[3], 4096), socket, to, from }
    }

    fn word(&self, index: usize) -> &AtomicU32 {
        let word = self.words.at(index as u64 * 128, 128).expect("within a page");
        // SAFETY: the word is in bounds and aligned, and all processes access it only as an atomic.
        unsafe { &word.cast::<Word>().as_ref().0 }
    }

    fn play(&self, kind: Kind, trips: u32) -> f64 {
        if kind.sleeps() { self.play_sleeping(kind, trips) } else { self.play_spinning(kind, trips) }
    }

    /// The two words of shared memory for messages of this kind: the word that this process writes, and the word that
    /// the other process writes.
    fn pair(&self, kind: Kind) -> (&AtomicU32, &AtomicU32) {
        let base = 2 * kind as usize;
        let (mine, theirs) = if self.first { (base, base + 1) } else { (base + 1, base) };
        (self.word(mine), self.word(theirs))
    }

    /// Makes round trips as fast as possible. Gives half of the time of a round trip in nanoseconds.
    fn play_spinning(&self, kind: Kind, trips: u32) -> f64 {
        self.wait_as(if kind == PortAdaptive { Waiting::Adaptive } else { Waiting::Spin });
        let (mine, theirs) = self.pair(kind);
        let mut seq = mine.load(Relaxed);
        let mut message = Message { inline: inline(0), ..Message::default() };
        let mut sent = 0u64;
        let mut position = None;
        let mut step = |send: bool| match (kind, send) {
            (Spin | SpinPause, true) => {
                seq = seq.wrapping_add(1);
                mine.store(seq, Release);
            }
            (Spin | SpinPause, false) => {
                // Each process stores the number of the message that it has sent last. The process that sends first
                // waits until the other process has stored the same number. The other process waits for the next
                // number.
                let due = if self.first { seq } else { seq.wrapping_add(1) };
                while theirs.load(Acquire) != due {
                    if kind == SpinPause {
                        spin_loop();
                    }
                }
            }
            (_, true) => {
                sent += 1;
                message.inline = inline(sent);
                self.to.send(&message, 8, LONG).expect("a send");
                if let Some(position) = position.take() {
                    self.from.release(position).expect("a release");
                }
            }
            (_, false) => {
                let got = self.from.receive_into(&mut message, LONG).expect("a message");
                black_box(&message);
                position = Some(got);
                if kind == PortSpinRelease {
                    self.from.release(got).expect("a release");
                    position = None;
                }
            }
        };
        let start = Instant::now();
        for _ in 0..trips {
            step(self.first);
            step(!self.first);
        }
        let time = start.elapsed().as_nanos() as f64 / f64::from(trips) / 2.0;
        // The process that received the last message sends no answer. So it releases that message here.
        if let Some(position) = position {
            self.from.release(position).expect("a release");
        }
        time
    }

    /// Measures the time of a message to a receiver that sleeps. Each message carries the time at which it was sent.
    /// The sender pauses before each message, so that the receiver falls asleep. Gives the median over the messages
    /// that this process received, in nanoseconds.
    fn play_sleeping(&self, kind: Kind, trips: u32) -> f64 {
        self.wait_as(Waiting::Block);
        let (mine, theirs) = self.pair(kind);
        let mut seq = mine.load(Relaxed);
        let mut times = Vec::with_capacity(trips as usize);
        let mut step = |send: bool| {
            if send {
                let ready = Instant::now() + Duration::from_micros(40);
                while Instant::now() < ready {
                    spin_loop();
                }
            }
            match (kind, send) {
                (Futex, true) => {
                    seq = seq.wrapping_add(1);
                    self.stamp(self.first).store(clock::now_ns(), Relaxed);
                    mine.store(seq, Release);
                    futex::wake(mine, 1);
                }
                (Futex, false) => {
                    let due = if self.first { seq } else { seq.wrapping_add(1) };
                    while theirs.load(Acquire) != due {
                        futex::wait(theirs, due.wrapping_sub(1), Deadline::after(LONG));
                    }
                    times.push(clock::now_ns() - self.stamp(!self.first).load(Relaxed));
                }
                (SeqPacket, true) => {
                    rustix::io::write(&self.socket, &clock::now_ns().to_le_bytes()).expect("a write");
                }
                (SeqPacket, false) => {
                    let mut stamp = [0; 8];
                    rustix::io::read(&self.socket, &mut stamp).expect("a read");
                    times.push(clock::now_ns() - u64::from_le_bytes(stamp));
                }
                (_, true) => {
                    let message = Message { tag: clock::now_ns(), inline: inline(0), ..Message::default() };
                    self.to.send(&message, 8, LONG).expect("a send");
                }
                (_, false) => {
                    let mut message = Message::default();
                    let position = self.from.receive_into(&mut message, LONG).expect("a message");
                    times.push(clock::now_ns() - message.tag);
                    self.from.release(position).expect("a release");
                }
            }
        };
        for _ in 0..trips {
            step(self.first);
            step(!self.first);
        }
        times.sort_unstable();
        times[times.len() / 2] as f64
    }

    fn wait_as(&self, waiting: Waiting) {
        self.to.set_waiting(waiting);
        self.from.set_waiting(waiting);
    }

    fn stamp(&self, first: bool) -> &AtomicU64 {
        let word = self.words.at(3840 + 128 * u64::from(first), 8).expect("within a page");
        // SAFETY: the word is in bounds and aligned, and all processes access it only as an atomic.
        unsafe { word.cast().as_ref() }
    }
}

fn pin(cpu: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    rustix::thread::sched_setaffinity(None, &set).expect("pinning");
}

fn main() {
    let quick = std::env::var_os("QUICK").is_some_and(|v| v != "0" && !v.is_empty());
    let rounds = if quick { 9 } else { 41 };
    if let Ok(text) = std::env::var("CROSSDOCK_BENCH_CHILD") {
        return second_process(&text, rounds, quick);
    }
    // `processors()` must see both CPUs before this process pins itself to one of them.
    if crossdock_os::process::processors() < 2 {
        eprintln!("two processors are needed");
        std::process::exit(2);
    }
    let size = Shape { pattern: Pattern::OneToOne, capacity: 8 }.size();
    let sizes = [size_of::<LivenessTable>() as u64, size, size, 4096];
    let fds = sizes.map(|size| memfd::create("crossdock-bench", size).expect("a memfd"));
    let table = Table(Mapping::new(&fds[0], sizes[0] as usize, Access::ReadWrite).expect("a mapping"));
    table.table().format();
    table.table().set_alive(MemberId::new(2, 1));
    table.table().set_alive(MemberId::new(1, 0));
    let (ours, its) = rustix::net::socketpair(
        rustix::net::AddressFamily::UNIX,
        rustix::net::SocketType::SEQPACKET,
        rustix::net::SocketFlags::empty(),
        None,
    )
    .expect("a socket pair");
    let numbers: Vec<_> = fds.iter().map(|fd| fd.as_raw_fd().to_string()).collect();
    let text = format!("{} {} {}", std::process::id(), numbers.join(" "), its.as_raw_fd());
    let mut child = std::process::Command::new(std::env::current_exe().expect("our name"))
        .env("CROSSDOCK_BENCH_CHILD", text)
        .spawn()
        .expect("the second process");
    pin(0);
    let player = Player::new(true, &fds, ours);
    let mut times = vec![Vec::new(); KINDS.len()];
    for round in 0..rounds + 1 {
        for (kind, times) in KINDS.into_iter().zip(&mut times) {
            let time = player.play(kind, kind.rounds_trips(quick));
            if round > 0 {
                times.push(time);
            }
        }
    }
    assert!(child.wait().expect("its end").success());
    report(&times);
}

fn second_process(text: &str, rounds: u32, quick: bool) {
    let words: Vec<_> = text.split(' ').collect();
    let open = |number: &str| {
        let path = format!("/proc/{}/fd/{number}", words[0]);
        OwnedFd::from(std::fs::File::options().read(true).write(true).open(path).expect("the parent's memfd"))
    };
    let fds = [1, 2, 3, 4].map(|n| open(words[n]));
    let number: i32 = words[5].parse().expect("a number");
    // SAFETY: the parent kept this descriptor open across the exec for this process alone, and passed the descriptor's
    // number.
    let socket = unsafe { <OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(number) };
    crossdock_os::process::processors();
    pin(1);
    let player = Player::new(false, &fds, socket);
    for _ in 0..rounds + 1 {
        for kind in KINDS {
            player.play(kind, kind.rounds_trips(quick));
        }
    }
}

fn median(times: &[f64]) -> f64 {
    let mut times = times.to_vec();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn report(times: &[Vec<f64>]) {
    let middle = |kind: Kind| median(&times[kind as usize]);
    let spin = middle(Spin).min(middle(SpinPause));
    let floor = |kind: Kind| if kind.sleeps() { middle(Futex) } else { spin };
    if !std::env::args().any(|argument| argument == "--json") {
        println!("{:<46} {:>8} {:>8} {:>8}  × floor", "one way, ns (rounds)", "least", "median", "most");
        for kind in KINDS {
            let times = &times[kind as usize];
            let (least, most) = times.iter().fold((f64::MAX, 0f64), |(l, m), t| (l.min(*t), m.max(*t)));
            let middle = middle(kind);
            println!("{:<46} {least:>8.0} {middle:>8.0} {most:>8.0}  {:.2}", kind.words(), middle / floor(kind));
        }
        println!("aims: P1 spinning ≤ 1.5 × the spin floor, P2 blocking ≤ 1.1 × the futex floor");
        return;
    }
    // These records have the form of `bench/src/lib.rs`. They are written by hand, because this crate does not depend
    // on serde.
    let record = |id: &str, kind: Kind, limit: f64| {
        let (value, floor) = (middle(kind), floor(kind));
        let ratio = value / floor / limit;
        let runs: Vec<_> = times[kind as usize].iter().map(|time| format!("{time:.1}")).collect();
        format!(
            "{{\"id\":\"{id}\",\"case\":\"{}\",\"value\":{value:.1},\"unit\":\"ns\",\"floor\":{floor:.1},\
             \"peers\":{{\"SOCK_SEQPACKET\":{:.1}}},\"aim\":\"<= {limit} x floor\",\"ratio\":{ratio:.3},\"met\":{},\"runs\":[{}]}}",
            kind.words(),
            middle(SeqPacket),
            ratio <= 1.0,
            runs.join(",")
        )
    };
    let records = [record("P1", PortSpin, 1.5), record("P1", PortSpinRelease, 1.5), record("P2", PortBlock, 1.1)];
    println!("[{}]", records.join(","));
}

//! The floors of a hand-over (the least times that this machine needs): a futex; a message with two hops through a
//! process that only relays it; and the mapping of a file.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crossdock_bench::median;
use crossdock_os::socket::{self, Received};
use crossdock_os::tmpfs::{self, Folder};
use crossdock_os::{Access, Deadline, Mapping, event, futex, memfd};

use crate::trips::{Side, Words};

const WAIT: Duration = Duration::from_secs(60);

/// A hand-over that only sends a signal by a futex. There is one word for each direction, which counts the trips.
pub struct Futex<'a> {
    there: &'a AtomicU32,
    back: &'a AtomicU32,
    /// The number of signals that this side received in this round.
    trip: u32,
    asks: bool,
}

impl<'a> Futex<'a> {
    const READY: u32 = u32::MAX;

    pub fn new(words: &'a Words, asks: bool) -> Self {
        let word = |at| words.0.word32(at).expect("within");
        let (there, back) = if asks { (word(0), word(64)) } else { (word(64), word(0)) };
        Self { there, back, trip: 0, asks }
    }

    fn wait_until(word: &AtomicU32, until: u32) {
        loop {
            let seen = word.load(Ordering::Acquire);
            if seen == until {
                return;
            }
            futex::wait(word, seen, Deadline::after(WAIT));
        }
    }
}

impl Side for Futex<'_> {
    fn start(&mut self, asks: bool) {
        self.trip = 0;
        if asks {
            Self::wait_until(self.back, Self::READY);
        } else {
            // `back` still has the value of the last round. It is reset, so that this value is not taken for a signal
            // of this round.
            self.back.store(0, Ordering::Release);
            self.there.store(Self::READY, Ordering::Release);
            futex::wake(self.there, 1);
        }
    }

    fn send(&mut self) {
        // The signal carries the number of the trip. `trip` counts the signals that this side has received. The asking
        // side sends first, before it has received the signal of this trip, so it adds 1.
        self.there.store(self.trip + u32::from(self.asks), Ordering::Release);
        futex::wake(self.there, 1);
    }

    fn take(&mut self) {
        self.trip += 1;
        Self::wait_until(self.back, self.trip);
    }
}

/// A hand-over that only sends a message to the other side, through the relaying process.
pub struct Messages<'a>(pub &'a OwnedFd);

impl Side for Messages<'_> {
    fn start(&mut self, _: bool) {}

    fn send(&mut self) {
        socket::send(self.0, &[0; 168], &[]).expect("sent");
    }

    fn take(&mut self) {
        assert!(receive(self.0), "the other is there");
    }
}

fn receive(socket: &OwnedFd) -> bool {
    let mut buffer = [0; 256];
    loop {
        match socket::receive(socket, &mut buffer) {
            Ok(Some(Received::Message(..))) => return true,
            Ok(Some(_)) | Err(_) => return false,
            Ok(None) => drop(event::wait_readable(socket, Deadline::after(WAIT))),
        }
    }
}

/// Passes each message on from one side to the other. It stands for a daemon that does no other work.
pub fn relay(one: &OwnedFd, other: &OwnedFd) -> i32 {
    loop {
        for (from, to) in [(one, other), (other, one)] {
            if !receive(from) || socket::send(to, &[0; 168], &[]).is_err() {
                return 0;
            }
        }
    }
}

/// Opens, maps, touches and unmaps a file of this size. All pages of the file exist already.
pub fn map(folder: &Folder, size: u64) -> f64 {
    let file = folder.create("map", size).expect("room for it");
    memfd::reserve(&file, 0, size).expect("room for it");
    let mut took = Vec::new();
    for _ in 0..20 {
        let began = Instant::now();
        let again = if folder.has_read_only_door() {
            folder.open_writer("map").expect("it is there")
        } else {
            tmpfs::open_anew(&file, Access::ReadWrite).expect("it is there")
        };
        let mapping = Mapping::new(&again, size as usize, Access::ReadWrite).expect("a mapping");
        drop(again);
        mapping.word64(0).expect("within").store(1, Ordering::Relaxed);
        drop(mapping);
        took.push(began.elapsed().as_secs_f64() * 1e6);
    }
    let _ = folder.remove("map");
    median(&took)
}

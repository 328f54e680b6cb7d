//! A bell: one thread sleeps until another thread rings it.
//!
//! Unlike an eventfd, the bell may stand in a program that closes descriptors which it does not know, as `closefrom`
//! does. The bell is a pair of connected sockets. If the end that rings is closed, the kernel wakes the thread that
//! waits at the other end, even if the waiting end was closed at the same time. And each end can prove that its number
//! does not belong to another file meanwhile, so the bell writes and reads nothing of the program.

use crate::error::OsResult;
use crate::socket::{self, OwnSocket, Received};
use rustix::fd::{AsFd, BorrowedFd};

/// A bell. One thread waits for it; all threads may ring it.
#[derive(Debug)]
pub struct Bell {
    waits: OwnSocket,
    rings: OwnSocket,
}

impl Bell {
    /// Makes a bell, which takes two descriptors.
    pub fn new() -> OsResult<Self> {
        let (waits, rings) = socket::pair()?;
        Ok(Self { waits: OwnSocket::new(waits), rings: OwnSocket::new(rings) })
    }

    /// Wakes the thread that waits. Does nothing if the program has closed the bell's end; this has woken the thread.
    pub fn ring(&self) {
        if self.rings.is_ours() {
            // If the socket is full, the bell rings already.
            let _ = socket::send(&self.rings, &[1], &[]);
        }
    }

    /// Makes the bell silent until it is rung again. Gives false if the program has closed one of the bell's ends. Then
    /// the bell is useless, and the caller needs another one.
    #[must_use]
    pub fn silence(&self) -> bool {
        if !self.waits.is_ours() || !self.rings.is_ours() {
            return false;
        }
        loop {
            match socket::receive(&self.waits, &mut [0]) {
                Ok(None) => return true,
                Ok(Some(Received::Message(..))) => {}
                _ => return false,
            }
        }
    }
}

impl AsFd for Bell {
    /// The descriptor that is readable while the bell rings.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waits.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustix::fd::AsRawFd;

    use super::*;
    use crate::{Deadline, event};

    #[test]
    fn a_bell_is_readable_from_ring_to_silence() {
        let bell = Bell::new().unwrap();
        let readable = || event::wait_readable(&bell, Deadline::after(Duration::ZERO)).unwrap();
        assert!(!readable());
        for _ in 0..10_000 {
            bell.ring();
        }
        assert!(readable());
        assert!(bell.silence());
        assert!(!readable());
    }

    #[test]
    fn a_bell_whose_descriptors_were_closed_wakes_the_waiting_thread_and_touches_no_other_file() {
        let bell = std::sync::Arc::new(Bell::new().unwrap());
        let (file, ends) = (crate::memfd::create("crossdock-test", 4096).unwrap(), [&bell.waits, &bell.rings]);
        let before = rustix::fs::fstat(&file).unwrap().st_size;
        let waits = std::thread::spawn({
            let bell = bell.clone();
            move || event::wait_for_ends(Some(&bell), &[], Deadline::after(Duration::from_secs(60)))
        });
        let started = std::time::Instant::now();
        for end in ends {
            // SAFETY: the call replaces what the number leads to; both descriptors are open.
            assert!(unsafe { libc::dup2(file.as_raw_fd(), end.as_fd().as_raw_fd()) } >= 0);
        }
        assert!(waits.join().unwrap().is_empty());
        assert!(started.elapsed() < Duration::from_secs(30), "the thread was not woken");
        bell.ring();
        assert!(!bell.silence());
        assert_eq!(rustix::fs::fstat(&file).unwrap().st_size, before);
        assert_eq!(
            rustix::fs::seek(&file, rustix::fs::SeekFrom::Current(0)).unwrap(),
            0,
            "nothing was written or read"
        );
        let numbers = ends.map(|end| end.as_fd().as_raw_fd());
        drop(bell);
        for number in numbers {
            // SAFETY: the number belongs to a copy of the file, which no other value owns.
            drop(unsafe { <rustix::fd::OwnedFd as rustix::fd::FromRawFd>::from_raw_fd(number) });
        }
    }
}

//! Messages from the broker to the keeper. Each message has sixteen bytes, and some messages also carry a descriptor.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use crossdock_os::event::wait_writable;
use crossdock_os::socket::{self, Received};
use crossdock_os::{Deadline, OsResult};

/// What the broker asks its keeper to do.
pub(crate) enum KeeperRequest {
    /// Keep the descriptor of this segment open.
    Segment(u64, OwnedFd),
    /// Keep this endpoint's listening socket open.
    Listener(u64, OwnedFd),
    /// Keep this file open. It is the journal from now on.
    Journal(OwnedFd),
    /// Keep this door to an item's file open.
    Door(u64, OwnedFd),
    /// The keeper had no descriptor left for a door to this item's file.
    LostDoor(u64),
    /// Close all doors to this item's file.
    NoDoors(u64),
    /// Close the descriptors of this segment and of the doors to its file.
    NoSegment(u64),
    /// Close this endpoint's listening socket.
    NoListener(u64),
    /// The broker serves clients now.
    Ready,
    /// The broker has ended: no further message will come.
    End,
}

/// How long the broker tries to send a message to the keeper while the kernel lacks memory or another resource for the
/// message.
const PATIENCE: Duration = Duration::from_secs(2);

/// The broker's end of the socket pair to its keeper.
pub(crate) struct KeeperSocket(OwnedFd);

impl KeeperSocket {
    pub(crate) fn new(socket: OwnedFd) -> Self {
        Self(socket)
    }

    pub(crate) fn hold_segment(&self, id: u64, fd: BorrowedFd<'_>) -> OsResult<()> {
        self.send(1, id, &[fd])
    }

    pub(crate) fn hold_listener(&self, id: u64, fd: BorrowedFd<'_>) -> OsResult<()> {
        self.send(2, id, &[fd])
    }

    pub(crate) fn hold_journal(&self, fd: BorrowedFd<'_>) -> OsResult<()> {
        self.send(3, 0, &[fd])
    }

    pub(crate) fn drop_segment(&self, id: u64) -> OsResult<()> {
        self.send(4, id, &[])
    }

    pub(crate) fn drop_listener(&self, id: u64) -> OsResult<()> {
        self.send(5, id, &[])
    }

    pub(crate) fn ready(&self) -> OsResult<()> {
        self.send(6, 0, &[])
    }

    pub(crate) fn hold_door(&self, file: u64, door: BorrowedFd<'_>) -> OsResult<()> {
        self.send(7, file, &[door])
    }

    pub(crate) fn drop_doors(&self, file: u64) -> OsResult<()> {
        self.send(8, file, &[])
    }

    /// Sends a message to the keeper. When this returns, the message is in the socket, and arrives even if the broker
    /// is killed right after.
    fn send(&self, kind: u64, id: u64, fds: &[BorrowedFd<'_>]) -> OsResult<()> {
        let mut letter = [0; 16];
        letter[..8].copy_from_slice(&kind.to_le_bytes());
        letter[8..].copy_from_slice(&id.to_le_bytes());
        let patience = Deadline::after(PATIENCE);
        loop {
            match socket::send(&self.0, &letter, fds) {
                Ok(true) => return Ok(()),
                Ok(false) => drop(wait_writable(self.0.as_fd(), Deadline::after(Duration::from_secs(1)))),
                // The kernel lacks a resource at the moment. The broker tries again, because a broker that cannot send
                // this message must end.
                Err(error) if !patience.passed() && (error.is_out_of_room() || error.is_too_many_in_flight()) => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// Reads the next message; `None` if no message is waiting.
pub(crate) fn read(socket: &OwnedFd) -> OsResult<Option<KeeperRequest>> {
    let mut buffer = [0; 32];
    Ok(match socket::receive(socket, &mut buffer)? {
        None => None,
        Some(received @ (Received::Message(16, _) | Received::Stripped(16))) => {
            let word = |at: usize| u64::from_le_bytes(buffer[at..at + 8].try_into().expect("eight bytes"));
            let fds = if let Received::Message(_, fds) = received { fds } else { Vec::new() };
            Some(match (word(0), fds.into_iter().next()) {
                (1, Some(fd)) => KeeperRequest::Segment(word(8), fd),
                (2, Some(fd)) => KeeperRequest::Listener(word(8), fd),
                (3, Some(fd)) => KeeperRequest::Journal(fd),
                (4, None) => KeeperRequest::NoSegment(word(8)),
                (5, None) => KeeperRequest::NoListener(word(8)),
                (6, None) => KeeperRequest::Ready,
                (7, Some(fd)) => KeeperRequest::Door(word(8), fd),
                (7, None) => KeeperRequest::LostDoor(word(8)),
                (8, None) => KeeperRequest::NoDoors(word(8)),
                // The message's descriptor is missing, because this process has reached its limit. When this broker
                // ends, the next one opens an item's file by its name, reads the journal that has the name, and asks
                // the members for all else.
                _ => return read(socket),
            })
        }
        Some(Received::Truncated | Received::Stripped(_)) => return read(socket),
        Some(_) => Some(KeeperRequest::End),
    })
}

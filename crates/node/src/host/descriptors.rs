//! Finds out the kind of a descriptor that came from another process.

use std::os::fd::BorrowedFd;

use crossdock_os::{memfd, socket};

use crate::broker::Descriptor;

/// Examines a descriptor that came with a message, before the host passes the message to the broker.
pub(super) fn kind(fd: BorrowedFd<'_>) -> Descriptor {
    if socket::is_listener(fd) {
        return Descriptor::Listener;
    }
    let number = memfd::number(fd);
    if let Some(size) = memfd::pool_size(fd) {
        return Descriptor::Pool { size, number };
    }
    match memfd::sealed_size(fd) {
        Some(size) => Descriptor::Memory { size, number },
        None => Descriptor::Other,
    }
}

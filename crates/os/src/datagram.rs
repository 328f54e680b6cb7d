//! Unix datagram sockets: short messages to a receiver that has a path. A sender needs no connection and never waits.

use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

use crate::error::{Context, OsError, OsResult};
use crate::sys;

const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

/// Makes a socket with the name `name` in `folder`, where no file of this name may exist. Every user that reaches the
/// folder may send to the socket. Reading from the socket does not block.
pub fn receiver(folder: &Path, name: &str) -> OsResult<OwnedFd> {
    let named = || folder.join(name).display().to_string();
    let plain =
        |error: std::io::Error| OsError::new("open", named(), Errno::from_io_error(&error).unwrap_or(Errno::IO));
    // The kernel takes at most 107 bytes as the path of a socket, and the path of the folder may be longer. So the
    // socket gets its name through the folder's descriptor.
    let opened = File::open(folder).map_err(plain)?;
    let short = format!("/proc/self/fd/{}/{name}", opened.as_raw_fd());
    let address = SocketAddrUnix::new(short.as_str()).context("bind", named)?;
    let socket = sys::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, FLAGS, None).context("socket", named)?;
    sys::net::bind(&socket, &address).context("bind", named)?;
    std::fs::set_permissions(folder.join(name), Permissions::from_mode(0o666)).map_err(plain)?;
    Ok(socket)
}

/// Sends a message to the receiver at `path`. Returns `false` if the receiver has no room for the message now.
pub fn send(path: &Path, bytes: &[u8]) -> OsResult<bool> {
    let named = || path.display().to_string();
    let address = SocketAddrUnix::new(path).context("sendto", named)?;
    let socket = sys::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, FLAGS, None).context("socket", named)?;
    match rustix::net::sendto(&socket, bytes, SendFlags::NOSIGNAL, &address) {
        Ok(_) => Ok(true),
        Err(Errno::AGAIN | Errno::NOBUFS) => Ok(false),
        Err(errno) => Err(OsError::new("sendto", named(), errno)),
    }
}

/// Receives a message and gives its length. Gives `None` if no message waits. If the message is longer than `buffer`,
/// the bytes that do not fit are lost, and the result is still the length of the whole message.
pub fn receive(socket: impl AsFd, buffer: &mut [u8]) -> OsResult<Option<usize>> {
    match rustix::net::recv(&socket, buffer, RecvFlags::TRUNC) {
        Ok((_, length)) => Ok(Some(length)),
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        Err(errno) => Err(OsError::new("recv", "a datagram socket", errno)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_keep_their_boundaries_and_a_full_receiver_makes_no_sender_wait() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("d".repeat(120));
        std::fs::create_dir(&deep).unwrap();
        receiver(&deep, "socket").unwrap();
        let socket = receiver(folder.path(), "socket").unwrap();
        let path = folder.path().join("socket");
        let mut buffer = [0; 4];
        assert_eq!(receive(&socket, &mut buffer).unwrap(), None);
        assert!(send(&path, b"abc").unwrap() && send(&path, b"longer").unwrap());
        assert_eq!(receive(&socket, &mut buffer).unwrap(), Some(3));
        assert_eq!(&buffer[..3], b"abc");
        assert_eq!(receive(&socket, &mut buffer).unwrap(), Some(6), "the length of the whole message");
        let sent = (0..100_000).take_while(|_| send(&path, b"x").unwrap()).count();
        assert!(sent < 100_000, "the queue has an end");
        drop(socket);
        assert_eq!(send(&path, b"x").unwrap_err().errno, Errno::CONNREFUSED);
        assert!(send(&folder.path().join("none"), b"x").unwrap_err().is_absent());
    }
}

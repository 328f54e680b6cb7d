//! TCP connections on which every wait has a deadline. The sockets are non-blocking: each function first tries, and
//! waits only if it must.

use crate::deadline::Deadline;
use crate::error::{Context, OsError, OsResult};
use crate::{event, sys};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::{Errno, IoSlice};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, SocketAddrAny, SocketFlags, SocketType, sockopt,
};
use std::net::SocketAddr;
use std::time::Duration;

const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

/// The largest number of parts (slices of bytes) that one call of [`send`] sends.
pub const MAX_PARTS: usize = 16;

fn socket(address: SocketAddr) -> OsResult<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    sys::net::socket_with(family, SocketType::STREAM, FLAGS, None).context("socket", || address.to_string())
}

/// Makes a listening socket. With port 0 the kernel chooses a free port; [`local_address`] gives it.
pub fn listen(address: SocketAddr) -> OsResult<OwnedFd> {
    let named = || address.to_string();
    let socket = socket(address)?;
    // With this option a restarted daemon can listen on its port again while connections of the former daemon still
    // time out.
    sockopt::set_socket_reuseaddr(&socket, true).context("SO_REUSEADDR", named)?;
    sys::net::bind(&socket, &address).context("bind", named)?;
    sys::net::listen(&socket, 1024).context("listen", named)?;
    Ok(socket)
}

/// The local address of a socket.
pub fn local_address(socket: impl AsFd) -> OsResult<SocketAddr> {
    let found = sys::net::getsockname(socket).context("getsockname", || "a socket".into())?;
    SocketAddr::try_from(found).context("getsockname", || "a socket that is not of TCP".into())
}

/// Waits for the next connection until the deadline. Gives the connection and the address that it came from, or `None`
/// if the deadline passed first.
pub fn accept(listener: impl AsFd, deadline: Deadline) -> OsResult<Option<(OwnedFd, SocketAddr)>> {
    loop {
        match sys::net::acceptfrom_with(&listener, FLAGS) {
            Ok((socket, from)) => {
                let from = from.and_then(|from: SocketAddrAny| SocketAddr::try_from(from).ok());
                let Some(from) = from else { continue };
                tune(&socket)?;
                return Ok(Some((socket, from)));
            }
            Err(Errno::AGAIN) => {
                if !event::wait_readable(&listener, deadline)? {
                    return Ok(None);
                }
            }
            // The connection ended before it was accepted, or the network reported an error for it. The next connection
            // may work.
            Err(
                Errno::INTR
                | Errno::CONNABORTED
                | Errno::PROTO
                | Errno::NETDOWN
                | Errno::HOSTDOWN
                | Errno::HOSTUNREACH
                | Errno::NETUNREACH,
            ) => {}
            Err(errno) => return Err(OsError::new("accept", "a listening TCP socket", errno)),
        }
    }
}

/// Connects to an address. If the deadline passes first, the error is `ETIMEDOUT`.
pub fn connect(address: SocketAddr, deadline: Deadline) -> OsResult<OwnedFd> {
    let named = || address.to_string();
    let socket = socket(address)?;
    match sys::net::connect(&socket, &address) {
        Ok(()) => {}
        Err(Errno::INPROGRESS | Errno::INTR) => {
            if !event::wait_writable(&socket, deadline)? {
                return Err(OsError::new("connect", named(), Errno::TIMEDOUT));
            }
            sockopt::socket_error(&socket).context("connect", named)?.context("connect", named)?;
        }
        Err(errno) => return Err(OsError::new("connect", named(), errno)),
    }
    tune(&socket)?;
    Ok(socket)
}

/// Sets the options of a connection. Small messages are sent without delay. The kernel's keep-alive probes find a peer
/// whose host is gone, even while this process sends nothing.
fn tune(socket: impl AsFd) -> OsResult<()> {
    let named = || "a TCP connection".to_owned();
    sockopt::set_tcp_nodelay(&socket, true).context("TCP_NODELAY", named)?;
    sockopt::set_socket_keepalive(&socket, true).context("SO_KEEPALIVE", named)?;
    sockopt::set_tcp_keepidle(&socket, Duration::from_secs(10)).context("TCP_KEEPIDLE", named)?;
    sockopt::set_tcp_keepintvl(&socket, Duration::from_secs(5)).context("TCP_KEEPINTVL", named)?;
    sockopt::set_tcp_keepcnt(&socket, 4).context("TCP_KEEPCNT", named)
}

/// Waits for bytes and reads at least one into `buffer`, which must not be empty. 0 means the end of the stream; `None`
/// means that the deadline passed.
pub fn receive(socket: impl AsFd, buffer: &mut [u8], deadline: Deadline) -> OsResult<Option<usize>> {
    loop {
        if let Some(read) = try_receive(&socket, buffer)? {
            return Ok(Some(read));
        }
        if !event::wait_readable(&socket, deadline)? {
            return Ok(None);
        }
    }
}

/// Reads the bytes that have arrived into `buffer`, which must not be empty. 0 means the end of the stream; `None`
/// means that no bytes have arrived.
pub fn try_receive(socket: impl AsFd, buffer: &mut [u8]) -> OsResult<Option<usize>> {
    assert!(!buffer.is_empty(), "a read into nothing cannot be told from the end");
    loop {
        match sys::net::recv(&socket, &mut *buffer, RecvFlags::DONTWAIT) {
            Ok((read, _)) => return Ok(Some(read)),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(None),
            Err(errno) => return Err(OsError::new("recv", "a TCP connection", errno)),
        }
    }
}

/// Waits for bytes and copies the first ones into `buffer`. They stay in the socket, so that a later read gets them
/// again. Gives the number of copied bytes; 0 means the end of the stream, and `None` that the deadline passed.
pub fn peek(socket: impl AsFd, buffer: &mut [u8], deadline: Deadline) -> OsResult<Option<usize>> {
    assert!(!buffer.is_empty(), "a look at nothing cannot be told from the end");
    loop {
        match sys::net::recv(&socket, &mut *buffer, RecvFlags::DONTWAIT | RecvFlags::PEEK) {
            Ok((read, _)) => return Ok(Some(read)),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                if !event::wait_readable(&socket, deadline)? {
                    return Ok(None);
                }
            }
            Err(errno) => return Err(OsError::new("recv", "a TCP connection", errno)),
        }
    }
}

/// Sends at least one byte of these parts, which must not all be empty. It uses at most [`MAX_PARTS`] parts. `None` if
/// the deadline passes before the peer accepts any byte.
pub fn send(socket: impl AsFd, parts: &[&[u8]], deadline: Deadline) -> OsResult<Option<usize>> {
    let mut slices = [IoSlice::new(&[]); MAX_PARTS];
    let count = parts.len().min(MAX_PARTS);
    for (slice, part) in slices.iter_mut().zip(parts) {
        *slice = IoSlice::new(part);
    }
    loop {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        match sys::net::sendmsg(&socket, &slices[..count], &mut SendAncillaryBuffer::default(), flags) {
            Ok(sent) => return Ok(Some(sent)),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                if !event::wait_writable(&socket, deadline)? {
                    return Ok(None);
                }
            }
            Err(errno) => return Err(OsError::new("sendmsg", "a TCP connection", errno)),
        }
    }
}

/// Ends a connection in both directions. Reads and writes of other threads on it end, too.
pub fn shut_down(socket: impl AsFd) {
    // An error means that the connection is gone already.
    let _ = sys::net::shutdown(socket, Shutdown::Both);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn soon() -> Deadline {
        Deadline::after(Duration::from_secs(20))
    }

    fn pair() -> (OwnedFd, OwnedFd) {
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = local_address(&listener).unwrap();
        let one = connect(address, soon()).unwrap();
        let (other, from) = accept(&listener, soon()).unwrap().unwrap();
        assert_eq!(from, local_address(&one).unwrap());
        (one, other)
    }

    #[test]
    fn bytes_of_several_parts_arrive_in_order_and_the_end_is_told() {
        let (one, other) = pair();
        assert_eq!(send(&one, &[b"ab", b"", b"cd"], soon()).unwrap(), Some(4));
        let mut buffer = [0; 8];
        assert_eq!(receive(&other, &mut buffer, soon()).unwrap(), Some(4));
        assert_eq!(&buffer[..4], b"abcd");
        drop(one);
        assert_eq!(receive(&other, &mut buffer, soon()).unwrap(), Some(0));
    }

    #[test]
    fn bytes_that_were_looked_at_are_still_read() {
        let (one, other) = pair();
        let mut buffer = [0; 2];
        assert_eq!(peek(&other, &mut buffer, Deadline::after(Duration::from_millis(5))).unwrap(), None);
        assert_eq!(send(&one, &[b"abc"], soon()).unwrap(), Some(3));
        assert_eq!(peek(&other, &mut buffer, soon()).unwrap(), Some(2));
        assert_eq!(&buffer, b"ab");
        let mut all = [0; 8];
        assert_eq!(receive(&other, &mut all, soon()).unwrap(), Some(3));
        drop(one);
        assert_eq!(peek(&other, &mut buffer, soon()).unwrap(), Some(0));
    }

    #[test]
    fn waits_end_at_their_deadline() {
        let (one, _other) = pair();
        let now = || Deadline::after(Duration::from_millis(5));
        assert_eq!(receive(&one, &mut [0; 8], now()).unwrap(), None);
        let block = vec![0u8; 1 << 20];
        let mut sent = 0;
        while let Some(n) = send(&one, &[&block], now()).unwrap() {
            sent += n;
            assert!(sent < 1 << 30, "no peer reads, so the buffers must become full");
        }
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        assert!(accept(&listener, now()).unwrap().is_none());
    }

    #[test]
    fn a_port_without_a_listener_refuses() {
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = local_address(&listener).unwrap();
        drop(listener);
        assert_eq!(connect(address, soon()).unwrap_err().errno, Errno::CONNREFUSED);
    }
}

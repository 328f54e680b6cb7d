//! Unix sockets that keep message boundaries and carry descriptors.

use crate::error::{Context, OsError, OsResult};
use crate::{file, sys};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// The largest number of descriptors that one message carries.
pub const MAX_DESCRIPTORS: usize = 4;

/// The result of receiving one message.
#[derive(Debug)]
pub enum Received {
    /// The number of bytes of the message, which are now in the buffer, and the descriptors that came with the message.
    Message(usize, Vec<OwnedFd>),
    /// The number of bytes of the message, which are now in the buffer. This process had no room for all descriptors of
    /// the message, so those that arrived were closed. The peer did nothing wrong.
    Stripped(usize),
    /// The message had more bytes or more descriptors than fit. The descriptors that arrived were closed. The caller
    /// must close the connection.
    Truncated,
    /// The peer is gone.
    End,
}

/// The process at the other end, as the kernel recorded it at `connect`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer {
    /// The process id in this process's PID namespace; 0 if the peer has no id in that namespace.
    pub pid: i32,
    /// The user id of the peer.
    pub uid: u32,
    /// The group id of the peer.
    pub gid: u32,
}

const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

/// Makes a listening socket at `path`, where no file may exist. The socket is non-blocking.
pub fn listen(path: &Path) -> OsResult<OwnedFd> {
    let named = || path.display().to_string();
    let address = SocketAddrUnix::new(path).context("bind", named)?;
    let socket =
        sys::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, FLAGS, None).context("socket", named)?;
    sys::net::bind(&socket, &address).context("bind", named)?;
    rustix::net::listen(&socket, 4096).context("listen", named)?;
    Ok(socket)
}

/// The listening socket that the service manager passed to this process, and the path of the socket; `None` if the
/// service manager passed no socket. This follows systemd's protocol: `LISTEN_PID` names this process, and the first
/// socket is descriptor 3. Only the first call of this function finds the socket.
///
/// # Errors
/// The passed descriptor is no listening SOCK_SEQPACKET socket with a path, or several descriptors were passed.
pub fn passed_listener() -> OsResult<Option<(OwnedFd, PathBuf)>> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    const FIRST: RawFd = 3;
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
    let count = number("LISTEN_FDS").unwrap_or(0);
    if number("LISTEN_PID") != Some(std::process::id()) || count == 0 || TAKEN.swap(true, Ordering::Relaxed) {
        return Ok(None);
    }
    // SAFETY: the environment variables say that the service manager gave descriptor 3 to this process, and TAKEN
    // ensures that the descriptor has only one owner here. If the variables are wrong, the checks below refuse the
    // descriptor, and it is closed. Nothing worse can happen.
    let socket = unsafe { OwnedFd::from_raw_fd(FIRST) };
    let what = || "descriptor 3, passed by the service manager".to_string();
    let wrong = |why: &str| OsError::new("check", format!("{} ({why})", what()), Errno::INVAL);
    if count > 1 {
        return Err(wrong("one socket is wanted"));
    }
    if !is_listener(&socket) {
        return Err(wrong("a listening Unix socket of type SOCK_SEQPACKET is wanted: ListenSequentialPacket="));
    }
    rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC).context("F_SETFD", what)?;
    set_nonblocking(&socket)?;
    let address = rustix::net::getsockname(&socket).context("getsockname", what)?;
    let address = SocketAddrUnix::try_from(address).context("getsockname", what)?;
    let path = address.path_bytes().ok_or_else(|| wrong("it has no path"))?;
    Ok(Some((socket, PathBuf::from(OsStr::from_bytes(path)))))
}

/// Connects to `path` without waiting. The connection is non-blocking. The error is `AGAIN` if the listener's backlog
/// is full.
pub fn connect(path: &Path) -> OsResult<OwnedFd> {
    let named = || path.display().to_string();
    let address = SocketAddrUnix::new(path).context("connect", named)?;
    let socket =
        sys::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, FLAGS, None).context("socket", named)?;
    sys::net::connect(&socket, &address).context("connect", named)?;
    Ok(socket)
}

/// Takes the next waiting connection of a listening socket; `None` if no connection waits. The connection is
/// non-blocking.
pub fn accept(listener: impl AsFd) -> OsResult<Option<OwnedFd>> {
    match sys::net::accept_with(listener, FLAGS) {
        Ok(socket) => Ok(Some(socket)),
        Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => Ok(None),
        Err(errno) => Err(OsError::new("accept", "the listening socket", errno)),
    }
}

/// Tells whether this socket was shut down, so that nothing more arrives through it.
pub fn is_shut_down(socket: impl AsFd) -> bool {
    let mut polled = [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::RDHUP)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    matches!(sys::event::poll(&mut polled, Some(&now)), Ok(1..))
        && polled[0].revents().intersects(PollFlags::RDHUP | PollFlags::HUP)
}

/// Tells whether this descriptor, which another process may have sent, is a listening Unix socket that keeps message
/// boundaries.
pub fn is_listener(socket: impl AsFd) -> bool {
    use rustix::net::sockopt;
    let unix = sockopt::socket_domain(&socket) == Ok(AddressFamily::UNIX);
    let kind = sockopt::socket_type(&socket) == Ok(SocketType::SEQPACKET);
    unix && kind && sockopt::socket_acceptconn(&socket) == Ok(true)
}

/// Makes a socket non-blocking. Another process has created the socket.
pub fn set_nonblocking(socket: impl AsFd) -> OsResult<()> {
    let flags = rustix::fs::fcntl_getfl(&socket).context("F_GETFL", || "a socket".into())?;
    rustix::fs::fcntl_setfl(&socket, flags | rustix::fs::OFlags::NONBLOCK).context("F_SETFL", || "a socket".into())
}

/// Makes two non-blocking sockets that are connected to each other.
pub fn pair() -> OsResult<(OwnedFd, OwnedFd)> {
    sys::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, FLAGS, None)
        .context("socketpair", || "a pair".into())
}

/// Ends a connection in both directions, also for all other copies of the descriptor.
pub fn shut_down(socket: impl AsFd) {
    // An error means that the connection is gone already.
    let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
}

/// A socket whose descriptor the program may close without our knowledge, for example by `closefrom`. The number of the
/// descriptor may then belong to another file of the program. The value remembers the cookie by which the kernel
/// identifies the socket. So it can prove that the descriptor still leads to the socket, before it shuts down or closes
/// what has this number.
#[derive(Debug)]
pub struct OwnSocket {
    fd: std::mem::ManuallyDrop<OwnedFd>,
    /// `None` if this kernel gives no cookies. Then nothing can be proved, and the descriptor counts as ours.
    cookie: Option<u64>,
}

impl OwnSocket {
    /// Takes over a socket that was made just now.
    #[must_use]
    pub fn new(fd: OwnedFd) -> Self {
        let cookie = rustix::net::sockopt::socket_cookie(&fd).ok();
        Self { fd: std::mem::ManuallyDrop::new(fd), cookie }
    }

    /// Gives another descriptor of this socket.
    pub fn duplicate(&self) -> OsResult<Self> {
        let fd = file::duplicate(self)?;
        Ok(Self { fd: std::mem::ManuallyDrop::new(fd), cookie: self.cookie })
    }

    /// Tells whether the descriptor still leads to this socket. The answer costs one system call.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        let is_ours = self.cookie.is_none() || rustix::net::sockopt::socket_cookie(&*self.fd).ok() == self.cookie;
        if !is_ours {
            crate::own_file::note_closed();
        }
        is_ours
    }

    /// Ends the connection as [`shut_down`] does, unless the descriptor leads to another file.
    pub fn shut_down(&self) {
        if self.is_ours() {
            shut_down(&*self.fd);
        }
    }
}

impl AsFd for OwnSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for OwnSocket {
    fn drop(&mut self) {
        if self.is_ours() {
            // SAFETY: the descriptor is dropped only here, and the value is not used afterwards.
            unsafe { std::mem::ManuallyDrop::drop(&mut self.fd) };
        }
    }
}

/// Asks the kernel which process is at the other end. The call also works if that process has no id in this process's
/// PID namespace, as the daemon has none in a container.
///
/// In a user namespace that does not map the peer's user, the kernel gives the overflow id (65534 by default) instead of
/// the user's id. Then the answer does not say to which user the peer belongs.
pub fn peer(socket: impl AsFd) -> OsResult<Peer> {
    // `rustix` takes the process id for a number other than 0, so this function asks the kernel itself.
    let mut found = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut size = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes one `ucred`, whose size is given.
    let answer = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut found).cast(),
            &raw mut size,
        )
    };
    if answer != 0 {
        return Err(OsError::last("SO_PEERCRED", "a connection"));
    }
    Ok(Peer { pid: found.pid, uid: found.uid, gid: found.gid })
}

/// Asks the kernel to which user the process at the other end belongs, as [`peer`] does.
pub fn peer_user(socket: impl AsFd) -> OsResult<u32> {
    peer(socket).map(|peer| peer.uid)
}

/// Opens a pidfd of the process at the other end. The pidfd refers to that process even if its process id is used
/// again. `None` if the kernel is older than 6.5.
pub fn peer_pidfd(socket: impl AsFd) -> OsResult<Option<OwnedFd>> {
    const SO_PEERPIDFD: i32 = 77;
    let (mut fd, mut size): (RawFd, libc::socklen_t) = (-1, size_of::<RawFd>() as libc::socklen_t);
    // SAFETY: the kernel writes one int to `fd`, whose size is given.
    let ask = || unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PEERPIDFD,
            (&raw mut fd).cast(),
            &raw mut size,
        )
    };
    let answer = sys::raw("SO_PEERPIDFD", ask);
    if answer == 0 && fd >= 0 {
        // SAFETY: the kernel has made the descriptor `fd` just now, and no other value owns it.
        return Ok(Some(unsafe { OwnedFd::from_raw_fd(fd) }));
    }
    let error = OsError::last("SO_PEERPIDFD", "a connection");
    // ENODATA and ESRCH mean that the peer was dead already; they are returned as errors. `None` is returned only if
    // the kernel lacks the option.
    if error.errno == Errno::NOPROTOOPT { Ok(None) } else { Err(error) }
}

/// Sends one message with up to [`MAX_DESCRIPTORS`] descriptors; `false` if the peer's buffer is full at present.
pub fn send(socket: impl AsFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> OsResult<bool> {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
    assert!(descriptors.len() <= MAX_DESCRIPTORS, "a message carries at most {MAX_DESCRIPTORS} descriptors");
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        let pushed = control.push(SendAncillaryMessage::ScmRights(descriptors));
        assert!(pushed, "the buffer was made for as many");
    }
    loop {
        let parts = [std::io::IoSlice::new(bytes)];
        return match sys::net::sendmsg(&socket, &parts, &mut control, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(_) => Ok(true),
            Err(Errno::AGAIN) => Ok(false),
            Err(Errno::INTR) => continue,
            Err(errno) => Err(OsError::new("sendmsg", format!("{} bytes", bytes.len()), errno)),
        };
    }
}

/// Takes one waiting message into `buffer`; `None` if no message waits. The received descriptors are close-on-exec.
///
/// A message without bytes looks like the end of the connection and counts as the end.
pub fn receive(socket: impl AsFd, buffer: &mut [u8]) -> OsResult<Option<Received>> {
    use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags};
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    loop {
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [std::io::IoSliceMut::new(buffer)];
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let message = match sys::net::recvmsg(&socket, &mut parts, &mut control, flags) {
            Ok(message) => message,
            Err(Errno::AGAIN) => return Ok(None),
            Err(Errno::INTR) => continue,
            Err(Errno::CONNRESET) => return Ok(Some(Received::End)),
            Err(errno) => return Err(OsError::new("recvmsg", "a connection", errno)),
        };
        // The loop below makes this process the owner of all descriptors that arrived, so that none leaks if the
        // message is refused.
        let mut descriptors = Vec::new();
        for part in control.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = part {
                descriptors.extend(received);
            }
        }
        // The control buffer has padding, so the kernel may pass one or two more descriptors than the maximum.
        let too_many = descriptors.len() > MAX_DESCRIPTORS;
        let cut = message.flags.contains(ReturnFlags::CTRUNC);
        if !descriptors.is_empty() && sys::strips() {
            return Ok(Some(Received::Stripped(message.bytes)));
        }
        if too_many || message.flags.contains(ReturnFlags::TRUNC) || cut && descriptors.len() >= MAX_DESCRIPTORS {
            return Ok(Some(Received::Truncated));
        }
        if cut {
            // The kernel has dropped descriptors of this message. The buffer had room for these descriptors, so the
            // reason is that the descriptor table of this process, or of the node, was full.
            return Ok(Some(Received::Stripped(message.bytes)));
        }
        if message.bytes == 0 {
            return Ok(Some(Received::End));
        }
        return Ok(Some(Received::Message(message.bytes, descriptors)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_arrives_whole_with_its_descriptors() {
        let (one, other) = pair().unwrap();
        let memory = crate::memfd::create("crossdock-test", 4096).unwrap();
        assert!(send(&one, b"hello", &[memory.as_fd(), memory.as_fd()]).unwrap());
        let mut buffer = [0; 64];
        let Some(Received::Message(5, descriptors)) = receive(&other, &mut buffer).unwrap() else { panic!() };
        assert_eq!(&buffer[..5], b"hello");
        assert_eq!(descriptors.len(), 2);
        for fd in descriptors {
            crate::memfd::check(&fd, 4096).unwrap();
            assert!(rustix::io::fcntl_getfd(&fd).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
        }
        assert!(receive(&other, &mut buffer).unwrap().is_none(), "nothing more is waiting");
    }

    #[test]
    fn a_message_longer_than_the_buffer_is_told_apart() {
        let (one, other) = pair().unwrap();
        send(&one, &[1; 100], &[]).unwrap();
        assert!(matches!(receive(&other, &mut [0; 64]).unwrap(), Some(Received::Truncated)));
    }

    #[test]
    fn too_many_descriptors_are_told_apart_and_none_is_kept() {
        let (one, other) = pair().unwrap();
        let link = |fd: &std::path::Path| std::fs::read_link(fd).ok();
        let own = link(std::path::Path::new(&format!("/proc/self/fd/{}", one.as_raw_fd()))).unwrap();
        // How many descriptors of this process are `one`. Other tests open and close other files at the same time.
        let copies = || {
            let all = std::fs::read_dir("/proc/self/fd").unwrap();
            all.filter(|fd| link(&fd.as_ref().unwrap().path()).as_ref() == Some(&own)).count()
        };
        let fds: Vec<RawFd> = vec![one.as_raw_fd(); MAX_DESCRIPTORS + 2];
        assert_eq!(copies(), 1);
        send_raw(&one, b"x", &fds);
        assert!(matches!(receive(&other, &mut [0; 64]).unwrap(), Some(Received::Truncated)));
        assert_eq!(copies(), 1);
    }

    #[test]
    fn the_end_of_the_peer_is_told() {
        let (one, other) = pair().unwrap();
        drop(one);
        assert!(matches!(receive(&other, &mut [0; 64]).unwrap(), Some(Received::End)));
        assert_eq!(send(&other, b"x", &[]).unwrap_err().errno, Errno::PIPE);
    }

    #[test]
    fn a_socket_knows_whether_its_descriptor_was_closed_and_leaves_the_file_that_has_the_number_now() {
        let (one, other) = pair().unwrap();
        let one = OwnSocket::new(one);
        assert!(one.is_ours());
        let (stranger, strangers_peer) = pair().unwrap();
        // The descriptor leads to another socket now, as if the program had closed it and opened its own socket.
        // SAFETY: the call replaces what the number leads to; both descriptors are open.
        assert!(unsafe { libc::dup2(stranger.as_raw_fd(), one.as_fd().as_raw_fd()) } >= 0);
        assert!(matches!(receive(&other, &mut [0; 64]).unwrap(), Some(Received::End)));
        assert!(!one.is_ours());
        one.shut_down();
        let number = one.as_fd().as_raw_fd();
        drop(one);
        assert!(!is_shut_down(&strangers_peer));
        drop(stranger);
        assert!(!is_shut_down(&strangers_peer), "the copy is still open");
        // SAFETY: the number belongs to the copy, which no other value owns.
        drop(unsafe { OwnedFd::from_raw_fd(number) });
        assert!(is_shut_down(&strangers_peer));
    }

    #[test]
    fn a_duplicate_leaves_the_file_that_has_its_number_now() {
        let (one, other) = pair().unwrap();
        let one = OwnSocket::new(one);
        drop(one.duplicate().unwrap());
        assert!(one.is_ours() && !is_shut_down(&other));
        let duplicate = one.duplicate().unwrap();
        let (stranger, strangers_peer) = pair().unwrap();
        let number = duplicate.as_fd().as_raw_fd();
        // SAFETY: the call replaces what the number leads to; both descriptors are open.
        assert!(unsafe { libc::dup2(stranger.as_raw_fd(), number) } >= 0);
        drop((duplicate, stranger));
        assert!(one.is_ours() && !is_shut_down(&strangers_peer));
        // SAFETY: the number belongs to the stranger's copy, which no other value owns.
        drop(unsafe { OwnedFd::from_raw_fd(number) });
    }

    #[test]
    fn the_kernel_names_the_peer() {
        let (one, _other) = pair().unwrap();
        assert_eq!(peer(&one).unwrap().pid, std::process::id() as i32);
    }

    #[test]
    fn a_peer_without_an_id_in_this_pid_namespace_has_the_process_id_zero() {
        const NO_NAMESPACES: i32 = 77;
        let in_fork = |body: &dyn Fn() -> i32| {
            let child = crate::child::fork_beside_threads(body).unwrap();
            match crate::child::ended(child, true).unwrap() {
                Some(crate::child::ExitStatus::Code(code)) => code,
                other => panic!("the child ended with {other:?}"),
            }
        };
        let (one, _other) = pair().unwrap();
        let code = in_fork(&|| {
            // SAFETY: the call touches no memory. It only moves this process and its next children into new namespaces.
            if unsafe { libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWPID) } != 0 {
                return NO_NAMESPACES;
            }
            in_fork(&|| i32::from(peer(&one).map(|peer| peer.pid) != Ok(0)))
        });
        if code == NO_NAMESPACES {
            return crate::testing::skip("pid-namespaces");
        }
        assert_eq!(code, 0, "the process id of the peer is not 0");
    }

    /// Sends a message with more descriptors than [`send`] allows.
    fn send_raw(socket: &OwnedFd, bytes: &[u8], fds: &[RawFd]) {
        let payload = size_of_val(fds);
        // SAFETY: the two macros only compute sizes; the buffers live through the call.
        unsafe {
            let mut space = vec![0u64; libc::CMSG_SPACE(payload as u32) as usize / 8 + 1];
            let mut part = libc::iovec { iov_base: bytes.as_ptr() as *mut _, iov_len: bytes.len() };
            let mut header: libc::msghdr = std::mem::zeroed();
            header.msg_iov = &raw mut part;
            header.msg_iovlen = 1;
            header.msg_control = space.as_mut_ptr().cast();
            header.msg_controllen = libc::CMSG_SPACE(payload as u32) as usize;
            let control = libc::CMSG_FIRSTHDR(&raw const header);
            (*control).cmsg_level = libc::SOL_SOCKET;
            (*control).cmsg_type = libc::SCM_RIGHTS;
            (*control).cmsg_len = libc::CMSG_LEN(payload as u32) as usize;
            std::ptr::copy_nonoverlapping(fds.as_ptr().cast(), libc::CMSG_DATA(control), payload);
            assert!(libc::sendmsg(socket.as_raw_fd(), &raw const header, 0) >= 0);
        }
    }
}

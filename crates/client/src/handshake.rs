//! Connects to the daemon and says hello, until the daemon has sent its welcome.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use crossdock_layout::wire::{Answer, FINGERPRINT, MAX_MESSAGE, PROTOCOL_VERSION, Request};
use crossdock_layout::{LAYOUT_VERSION, MemberId, Status};
use crossdock_os::socket::{self, Received};
use crossdock_os::{Deadline, OsError, event};
use std::io::ErrorKind;

use crossdock_core::liveness::LivenessDescriptors;

use crate::{Error, Result, interrupt};

/// While a call waits for the answer to a hello, it checks after each pause of this length whether it was interrupted.
const INTERRUPT: Duration = Duration::from_millis(100);

/// What a session says about itself in its hello: the secret token that proves which session it is, its member id,
/// rank, task and workflow.
#[derive(Clone, Debug)]
pub(crate) struct ClientIdentity {
    pub token: [u8; 16],
    pub member: MemberId,
    pub rank: u32,
    pub task: Option<String>,
    pub workflow: Option<String>,
    pub visitor: bool,
    /// The user of the daemon that gave this session its member id; `None` before the first welcome.
    pub server: Option<u32>,
}

/// The daemon's answer to a hello, and the socket of the connection.
#[derive(Debug)]
pub(crate) struct Welcome {
    pub socket: OwnedFd,
    pub descriptors: LivenessDescriptors,
    pub member: MemberId,
    pub admin: bool,
    pub incarnation: u64,
    pub run: u64,
    pub rank: u32,
    pub task: String,
    pub workflow: String,
}

/// The reason why the daemon gave no welcome.
#[derive(Debug)]
pub(crate) enum HelloFailure {
    /// No daemon listens at this path at present. Another attempt may succeed.
    NotListening(Error),
    /// A process of another user listens in the place of the daemon that gave this session its member id. Another
    /// attempt may succeed.
    Foreign(Error),
    /// The daemon ended the connection before it answered. It may be restarting.
    Ended(Error),
    /// This process or the daemon has no descriptor or memory left. Another attempt may succeed.
    NoRoom(Error),
    /// The attempt failed for a reason that will not change, so another attempt would fail in the same way.
    Final(Error),
}

impl HelloFailure {
    pub fn into_error(self) -> Error {
        match self {
            Self::NotListening(error)
            | Self::Foreign(error)
            | Self::Ended(error)
            | Self::NoRoom(error)
            | Self::Final(error) => error,
        }
    }
}

/// Connects to `path` and says hello.
pub(crate) fn greet(
    path: &Path,
    who: &ClientIdentity,
    deadline: Deadline,
) -> std::result::Result<Welcome, HelloFailure> {
    let socket = connect(path, deadline)?;
    if let Some(server) = who.server {
        check_same_server(&socket, path, server)?;
    }
    let hello = Request::Hello {
        protocol: PROTOCOL_VERSION,
        layout: LAYOUT_VERSION,
        fingerprint: FINGERPRINT,
        token: who.token,
        member: who.member,
        rank: who.rank,
        task: who.task.clone(),
        workflow: who.workflow.clone(),
        visitor: who.visitor,
    };
    let at = path.display();
    let ended = || Error::new(Status::Disconnected, format!("the node daemon at {at} hung up before it answered"));
    while let sent = socket::send(&socket, &hello.encode(1, 0), &[])
        && !matches!(sent, Ok(true))
    {
        match sent {
            Ok(_) if event::wait_writable(&socket, deadline).unwrap_or(false) => {}
            Ok(_) => return Err(HelloFailure::Final(late(path))),
            // Sending the hello failed, because the daemon has closed the connection. Before that it may have sent a
            // message that says why, so the code below reads this message.
            Err(error) if matches!(error.reason().kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => break,
            Err(error) => return Err(refusal(path, &error)),
        }
    }
    let mut buffer = [0; MAX_MESSAGE + 1];
    let mut ends = 0;
    let (length, fds) = loop {
        match socket::receive(&socket, &mut buffer) {
            Ok(Some(Received::Message(length, fds))) => break (length, fds),
            // If a daemon closes the socket before it has read the hello, the kernel first reports the reset and only
            // after that gives out what the daemon had sent. So this loop ignores the first `End` and reads again.
            Ok(Some(Received::End)) if ends == 0 => {
                ends = 1;
                continue;
            }
            Ok(Some(Received::Stripped(_))) => return Err(HelloFailure::NoRoom(no_descriptor())),
            Ok(Some(Received::Truncated)) => return Err(HelloFailure::Final(no_daemon(path, "it sent too much"))),
            Ok(Some(Received::End)) | Err(_) => return Err(HelloFailure::Ended(ended())),
            Ok(None) => {}
        }
        match event::wait_readable(&socket, deadline.at_most(INTERRUPT)) {
            Ok(true) => {}
            Ok(false) if !deadline.passed() && !interrupt::is_interrupted() => {}
            Ok(false) => return Err(HelloFailure::Final(late(path))),
            Err(error) => return Err(refusal(path, &error)),
        }
    };
    match Answer::decode(&buffer[..length], fds.len()) {
        Ok((1, Answer::Welcome { member, admin, incarnation, run, rank, task, workflow, .. })) => {
            let Ok([table, entry, roll]) = <[OwnedFd; 3]>::try_from(fds) else {
                return Err(HelloFailure::Final(no_daemon(path, "its welcome came without papers")));
            };
            let descriptors = LivenessDescriptors { table, entry, roll };
            Ok(Welcome { socket, descriptors, member, admin, incarnation, run, rank, task, workflow })
        }
        Ok((1, Answer::Failed { status, text })) => {
            let error = Error::new(status, format!("the node daemon at {at}: {text}"));
            // A session that already has a member id connects again here. If the daemon has no space at the moment, the
            // session does not end; it makes another attempt.
            let known = who.member != MemberId::NONE;
            Err(if known && status == Status::NoSpace {
                HelloFailure::NoRoom(error)
            } else {
                HelloFailure::Final(error)
            })
        }
        Ok(_) => Err(HelloFailure::Final(no_daemon(path, "it answered something else"))),
        Err(malformed) => Err(HelloFailure::Final(no_daemon(path, &malformed.to_string()))),
    }
}

fn late(path: &Path) -> Error {
    let text = format!("what listens at {} did not answer in time; is it a crossdock node daemon?", path.display());
    Error::new(Status::TimedOut, text)
}

/// Makes the error of a call that fails because this process has no free descriptor.
pub(crate) fn no_descriptor() -> Error {
    let limit = crossdock_os::child::descriptor_limit();
    let text = format!("this process has no file descriptor left (limit {limit}); close some or raise ulimit -n");
    Error::new(Status::NoSpace, text)
}

fn no_daemon(path: &Path, why: &str) -> Error {
    let text = format!("what listens at {} is no crossdock node daemon of this version ({why})", path.display());
    Error::new(Status::Incompatible, text)
}

fn connect(path: &Path, deadline: Deadline) -> std::result::Result<OwnedFd, HelloFailure> {
    let mut pause = Duration::from_micros(50);
    loop {
        match socket::connect(path) {
            Ok(socket) => return Ok(socket),
            // The daemon's queue is full, because many processes connect at once. The loop tries again.
            Err(error) if error.reason().kind() == ErrorKind::WouldBlock && !deadline.passed() => {
                std::thread::sleep(pause);
                pause = (pause * 2).min(Duration::from_millis(5));
            }
            Err(error) => return Err(refusal(path, &error)),
        }
    }
}

fn refusal(path: &Path, error: &OsError) -> HelloFailure {
    let at = path.display();
    match error.reason().kind() {
        ErrorKind::NotFound => {
            let text = format!("there is no node daemon at {at}; start one with `crossdock serve`");
            HelloFailure::NotListening(Error::new(Status::NotFound, text))
        }
        ErrorKind::ConnectionRefused => {
            let text = format!("no daemon listens at {at} any more; its daemon or workflow has ended");
            HelloFailure::NotListening(Error::new(Status::Disconnected, text))
        }
        ErrorKind::WouldBlock => {
            let text = format!("the node daemon at {at} took no connection in time; it has too many, or is stopped");
            HelloFailure::Final(Error::new(Status::TimedOut, text))
        }
        ErrorKind::PermissionDenied => {
            let text = format!("this user may not use {at}; its folder belongs to another");
            HelloFailure::Final(Error::new(Status::Denied, text))
        }
        _ if error.is_out_of_descriptors() => HelloFailure::NoRoom(no_descriptor()),
        _ if error.is_out_of_room() => HelloFailure::NoRoom(Error::new(
            Status::NoSpace,
            format!("the daemon at {at} cannot be reached now: {error}"),
        )),
        _ if error.is_wrong_kind_of_socket() => HelloFailure::Final(no_daemon(path, "it is a socket of another kind")),
        _ => HelloFailure::Final(Error::new(Status::System, format!("the node daemon at {at}: {error}"))),
    }
}

/// Checks that the process at the other end may be the daemon that gave this session its member id: it belongs to the
/// same user, to this process's user or to root. After the daemon's end, a process of another user may listen at the
/// path. Such a process must not get the session's token, its member id and its memory.
///
/// In a user namespace that does not map the daemon's user, this check is void: there the kernel gives the same overflow
/// id for the daemon's user and for every other user that the namespace does not map.
fn check_same_server(socket: impl AsFd, path: &Path, server: u32) -> std::result::Result<(), HelloFailure> {
    let user = socket::peer_user(socket).map_err(|error| refusal(path, &error))?;
    if [0, server, crossdock_os::child::user()].contains(&user) {
        return Ok(());
    }
    let at = path.display();
    let text = format!("a process of user {user} listens at {at} instead of user {server}'s daemon");
    Err(HelloFailure::Foreign(Error::new(Status::Disconnected, text)))
}

/// Checks that the daemon belongs to this user or to root. Callers skip this check if the path alone guarantees to whom
/// the daemon belongs. In a user namespace that maps neither this process's user nor the daemon's user, the check is
/// void, because the kernel then gives the overflow id for both.
pub(crate) fn check_server(socket: impl AsFd, path: &Path) -> Result<()> {
    let user = socket::peer_user(socket).map_err(|e| Error::new(Status::System, e.to_string()))?;
    if user != 0 && user != crossdock_os::child::user() {
        let text = format!("the daemon at {} is user {user}'s; name another socket", path.display());
        return Err(Error::new(Status::Denied, text));
    }
    Ok(())
}

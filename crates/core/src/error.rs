//! The error type of the library. Inside the library an error is structured data. Only its users turn it into text: a
//! function of the C interface, an exception, or the command line.
//!
//! Programs that react to an error use its `status` and `reason`. `Display` makes a sentence for people; no code reads
//! this sentence.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use crossdock_layout::queue::Side;
use crossdock_layout::wire::SegmentKind;
use crossdock_layout::{LAYOUT_VERSION, Status};
use crossdock_os::OsError;

/// A failure. It is one pointer wide, so that the results of fast calls stay in registers. Dereferencing gives its
/// data, a [`Failure`].
#[derive(Clone, PartialEq, Eq)]
pub struct Error(Box<Failure>);

/// The result of every operation of the library.
pub type Result<T> = std::result::Result<T, Error>;

/// The data of an error: what failed, with which object, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The kind of failure. It is one of a short closed list, with the same numbers in every language.
    pub status: Status,
    /// The object that the call was about.
    pub object: Option<Object>,
    /// The thing that the call waited for, and how long it waited.
    pub waited: Option<Waited>,
    /// The reason for the failure, with the data that belong to it.
    pub reason: Reason,
    /// A description of the peers that the call waited for or met: names, ranks, processes and the time of their last
    /// sign of life.
    pub peer: Option<String>,
}

/// The object that an error is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Object {
    /// The kind of object: region, port, series or item.
    pub kind: SegmentKind,
    /// The object's name within the workflow.
    pub name: String,
}

/// A wait that ended without success.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Waited {
    /// The name of the thing that the call waited for, for example "a message".
    pub what: Cow<'static, str>,
    /// How long the call waited.
    pub time: Duration,
}

/// The reason for a failure. A reason has a variant of its own if several places in the code report it, or if code
/// examines it. [`Reason::Words`] is for a reason that one place reports and that only people read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reason {
    /// A reason in words: a sentence that says what happened and what to do about it.
    Words(Cow<'static, str>),
    /// The daemon refused a request; this is the sentence that it sent.
    Daemon(String),
    /// The kernel refused a system call.
    System(OsError),
    /// The daemon's answer is of another kind than the request asks for.
    UnexpectedAnswer,
    /// This process has already closed or ended the object.
    ClosedHere,
    /// This task has the right to read the object, but not to write it.
    ReadOnly,
    /// The object exists with other options than the caller asked for.
    OtherOptions {
        /// The options that the object has.
        found: String,
        /// The options that the caller asked for.
        wanted: String,
    },
    /// A call that does not wait found nothing yet.
    NothingYet,
    /// A step of this call failed: the name of the step, and the step's own error.
    During(Cow<'static, str>, Error),
    /// Shared memory has contents that no correct member writes.
    Damaged(String),
    /// The calling process is a forked child of the process that opened the object, and may not use it.
    Forked,
    /// A signal interrupted the wait for the thing that the text names.
    Interrupted(String),
    /// The object was made by a build with another memory layout.
    Layout {
        /// The version of the object's layout.
        version: u32,
        /// The fingerprint of the object's layout.
        fingerprint: u32,
        /// The fingerprint of this build's layout.
        ours: u32,
    },
    /// The text is not allowed as a name.
    BadName {
        /// The kind of thing that was to get the name.
        what: Cow<'static, str>,
        /// The text that was given as a name.
        name: String,
        /// The reason why the text is not allowed.
        why: String,
    },
    /// An object or variable has another type than the caller asked for.
    WrongType {
        /// The name of the object or variable.
        what: String,
        /// The type that the object has.
        have: String,
        /// The type that the caller asked for.
        want: String,
    },
    /// The object has no part of this kind and name.
    Lacks {
        /// The kind of the missing part, for example "variable".
        what: &'static str,
        /// The name that the caller asked for.
        name: String,
    },
    /// The consumer holds all messages that fit into the port, so the producer cannot send another message.
    HoldsAll(usize),
    /// The end waited for peers on the side of the port that is named here, but none has come since the end was opened.
    NoPeer(Side),
    /// The peers of this end are alive, but did nothing during the wait.
    PeersIdle,
    /// The end waited for peers on the side of the port that is named here, but the last of them closed its end.
    PeersLeft(Side),
    /// The end waited for peers on the side of the port that is named here, but none is left, and at least one died.
    PeersDied(Side),
}

impl Error {
    /// Makes an error with this status, and with a reason in words.
    #[cold]
    #[inline(never)]
    pub fn new(status: Status, words: impl Into<Cow<'static, str>>) -> Self {
        Self::because(status, Reason::Words(words.into()))
    }

    /// Makes an error with this status and this reason.
    #[cold]
    #[inline(never)]
    pub fn because(status: Status, reason: Reason) -> Self {
        Self(Box::new(Failure { status, object: None, waited: None, reason, peer: None }))
    }

    /// Makes the error for a system call that the kernel refused.
    #[cold]
    #[inline(never)]
    pub fn os(error: &OsError) -> Self {
        Self::because(status_of(error), Reason::System(error.clone()))
    }

    /// Makes the error for an object that this process has already closed or ended.
    #[cold]
    #[inline(never)]
    pub fn closed_here() -> Self {
        Self::because(Status::Closed, Reason::ClosedHere)
    }

    /// Makes the error for a task that may only read the object.
    #[cold]
    #[inline(never)]
    pub fn read_only() -> Self {
        Self::because(Status::Denied, Reason::ReadOnly)
    }

    /// Makes the error for an object that has no part of this kind and name.
    #[cold]
    pub fn lacks(what: &'static str, name: &str) -> Self {
        Self::because(Status::NotFound, Reason::Lacks { what, name: name.to_owned() })
    }

    /// Makes the error for a call of the standard library that the kernel refused: what the caller tried, and the
    /// kernel's reason.
    #[cold]
    pub fn system(what: impl fmt::Display, reason: impl fmt::Display) -> Self {
        Self::new(Status::System, format!("{what}: {reason}"))
    }

    /// Makes the error for a text that is not allowed as a name. `what` is the kind of thing that was to get the name.
    #[cold]
    pub fn bad_name(what: impl Into<Cow<'static, str>>, name: &str, why: impl fmt::Display) -> Self {
        let reason = Reason::BadName { what: what.into(), name: name.to_owned(), why: why.to_string() };
        Self::because(Status::Invalid, reason)
    }

    /// Adds the object that the error is about, unless the error names an object already.
    #[must_use]
    #[cold]
    pub fn about(mut self, kind: SegmentKind, name: &str) -> Self {
        self.0.object.get_or_insert_with(|| Object { kind, name: name.to_owned() });
        self
    }

    /// Adds what the call waited for, and for how long.
    #[must_use]
    #[cold]
    pub fn waited(mut self, what: impl Into<Cow<'static, str>>, time: Duration) -> Self {
        self.0.waited = Some(Waited { what: what.into(), time });
        self
    }

    /// Replaces the time that the call waited. Callers that wait several times use this to report the sum.
    #[must_use]
    pub fn waited_in_all(mut self, time: Duration) -> Self {
        match &mut self.0.waited {
            Some(waited) => waited.time = time,
            None => {
                self =
                    Self::because(self.status, Reason::During(format!("after {} s", time.as_secs_f64()).into(), self))
            }
        }
        self
    }

    /// Adds a description of the peers that the error is about.
    #[must_use]
    #[cold]
    pub fn with_peer(mut self, peer: impl Into<String>) -> Self {
        self.0.peer = Some(peer.into());
        self
    }

    /// Replaces the status of the error.
    #[must_use]
    pub fn with_status(mut self, status: Status) -> Self {
        self.0.status = status;
        self
    }

    /// Makes an error that says in which step of a larger call this error occurred.
    #[must_use]
    #[cold]
    pub fn during(self, what: impl Into<Cow<'static, str>>) -> Self {
        Self::because(self.status, Reason::During(what.into(), self))
    }
}

/// Gives the status for a failed system call. A lack of descriptors, memory or space has a status of its own, which
/// tells the caller to make room.
#[cold]
pub fn status_of(error: &OsError) -> Status {
    if error.is_out_of_room() { Status::NoSpace } else { Status::System }
}

impl std::ops::Deref for Error {
    type Target = Failure;
    fn deref(&self) -> &Failure {
        &self.0
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(object) = &self.object {
            write!(f, "{object}: ")?;
        }
        if let Some(Waited { what, time }) = &self.waited {
            write!(f, "waited {:.3} s for {what}; ", time.as_secs_f64())?;
        }
        self.write_reason(f)?;
        self.write_peer(f)
    }
}

impl Failure {
    fn kind(&self) -> Option<SegmentKind> {
        self.object.as_ref().map(|object| object.kind)
    }

    fn write_reason(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.reason {
            Reason::Words(words) => f.write_str(words),
            Reason::Daemon(words) => f.write_str(words),
            Reason::System(error) => write!(f, "{error}"),
            Reason::UnexpectedAnswer => f.write_str("the daemon answered something else than was asked for"),
            Reason::ClosedHere => f.write_str(match self.kind() {
                Some(SegmentKind::Port) => "this end was closed here; open the port again",
                Some(SegmentKind::Item) => "it was closed here; access it again",
                Some(SegmentKind::Series) => "it was closed or ended here; open it anew",
                _ => "it was closed here; open it again",
            }),
            Reason::ReadOnly => f.write_str(match self.kind() {
                Some(SegmentKind::Item) => "it may only be read here; only its owner may change it",
                _ => "this task may only read it; grant it 'write' in the workflow file",
            }),
            Reason::OtherOptions { found, wanted } => write!(
                f,
                "it exists as {found}, and was opened here as {wanted}; make the options of its tasks (and of the \
                 workflow file) agree, or leave them open in all tasks but one"
            ),
            Reason::NothingYet => f.write_str("nothing there yet"),
            Reason::During(what, error) => write!(f, "{what}: {error}"),
            Reason::Damaged(what) => match self.kind() {
                Some(SegmentKind::Port) => write!(
                    f,
                    "{what}: some member of this port wrote over it; remove the port and let its tasks open it anew"
                ),
                Some(SegmentKind::Series) => {
                    write!(f, "{what}: its publisher wrote over its own table; end it and start it anew")
                }
                _ => write!(f, "{what}; some member wrote over it. Remove the region and make it anew"),
            },
            Reason::Forked => f.write_str(
                "this process was forked from the one that opened it; connect anew and open it again in the child",
            ),
            Reason::Interrupted(what) => write!(f, "the wait for {what} was interrupted by a signal"),
            Reason::Layout { version, fingerprint, ours } => write!(
                f,
                "made by a build with memory layout {version} ({fingerprint:08x}), this one has {LAYOUT_VERSION} \
                 ({ours:08x}); use one version of crossdock in all tasks"
            ),
            Reason::BadName { what, name, why } => write!(f, "'{name}' is no name for a {what}: {why}"),
            Reason::WrongType { what, have, want } => write!(f, "{what} is of type {have}, not {want}"),
            Reason::Lacks { what, name } => write!(f, "it has no {what} '{name}'"),
            Reason::HoldsAll(held) => write!(
                f,
                "this consumer holds all {held} messages that fit into the port, so its producer cannot send; release \
                 messages after use, or make the port with a greater capacity"
            ),
            Reason::NoPeer(side) => write!(f, "no {} has come since this end was opened", side.word()),
            Reason::PeersIdle => Ok(()),
            Reason::PeersLeft(Side::Producer) => {
                f.write_str("all messages were received, and the last producer left in order")
            }
            Reason::PeersLeft(Side::Consumer) => f.write_str("the port is full, and the last consumer left in order"),
            Reason::PeersDied(side) => write!(f, "no {} is left, one died", side.word()),
        }
    }

    fn write_peer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.reason, &self.peer) {
            (Reason::NoPeer(side), None) => write!(f, "; start the task that is the {}", side.word()),
            (_, None) => Ok(()),
            (Reason::NoPeer(_), Some(peer)) => write!(f, " (the last one before that was {peer})"),
            (Reason::PeersIdle, Some(peer)) => write!(f, "at the other end: {peer}"),
            (Reason::PeersLeft(Side::Producer), Some(peer)) => write!(f, ": {peer}"),
            (Reason::PeersLeft(Side::Consumer), Some(peer)) => {
                write!(f, ": {peer}; open the port again for a next one")
            }
            (Reason::PeersDied(_), Some(peer)) => write!(f, ": {peer}; wait_peer waits for its successor"),
            (_, Some(peer)) => write!(f, "; {peer}"),
        }
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            SegmentKind::Port => write!(f, "port {}", self.name),
            kind => write!(f, "{} '{}'", kind.word(), self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_pointer_and_a_result_of_a_number_two() {
        assert_eq!(size_of::<Result<()>>(), size_of::<usize>());
        assert_eq!(size_of::<Result<u64>>(), 2 * size_of::<usize>());
    }

    #[test]
    fn object_wait_reason_and_peer_become_one_sentence() {
        let error = Error::because(Status::TimedOut, Reason::PeersIdle)
            .waited("a message", Duration::from_millis(100))
            .with_peer("task simulate, last seen 0.1 s ago")
            .about(SegmentKind::Port, "p");
        let text = "port p: waited 0.100 s for a message; at the other end: task simulate, last seen 0.1 s ago";
        assert_eq!(error.to_string(), text);
        assert_eq!(error.waited_in_all(Duration::from_secs(2)).waited.as_ref().map(|w| w.time.as_secs()), Some(2));
    }

    #[test]
    fn the_object_named_first_stays() {
        let inner =
            Error::because(Status::Corrupt, Reason::Damaged("its header".into())).about(SegmentKind::Series, "u");
        assert!(inner.about(SegmentKind::Item, "v").to_string().starts_with("series 'u': its header: its publisher"));
    }

    #[test]
    fn a_step_that_failed_says_what_was_to_be_done_and_keeps_the_status() {
        let error = Error::new(Status::NotFound, "no such segment").during("handle 3:64");
        assert_eq!((error.status, error.to_string().as_str()), (Status::NotFound, "handle 3:64: no such segment"));
    }
}

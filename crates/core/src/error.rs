//! The one error of the library. It stays structured data until the edge (a C call, an exception, a terminal) prints
//! it.
//!
//! Code decides by `status` and `reason`. `Display` makes the sentence for people; no code reads that sentence.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use crossdock_layout::queue::Side;
use crossdock_layout::wire::SegmentKind;
use crossdock_layout::{LAYOUT_VERSION, Status};
use crossdock_os::OsError;

/// A failure. It is one pointer wide, so that results of fast calls stay in registers; it derefs to its [`Failure`].
#[derive(Clone, PartialEq, Eq)]
pub struct Error(Box<Failure>);

/// The result of every operation of the library.
pub type Result<T> = std::result::Result<T, Error>;

/// What is known of a failure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The kind of failure, of a short closed list with the same numbers in every language.
    pub status: Status,
    /// The object that the call was about.
    pub object: Option<Object>,
    /// What the call waited for, and how long.
    pub waited: Option<Waited>,
    /// Why it failed.
    pub reason: Reason,
    /// The peers that the call waited for or met, in words: names, ranks, processes and their last sign of life.
    pub peer: Option<String>,
}

/// A named object.
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
    /// The thing that the call waited for, for example "a message".
    pub what: Cow<'static, str>,
    /// For how long.
    pub time: Duration,
}

/// The reason for a failure. A reason that several places report, or that code examines, has a variant with its data.
/// [`Reason::Words`] is for a reason that one place reports and that only people read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reason {
    /// A sentence that says what happened and what to do about it.
    Words(Cow<'static, str>),
    /// The sentence that the daemon sent.
    Daemon(String),
    /// The kernel refused a call.
    System(OsError),
    /// The daemon's answer is of another kind than the question.
    UnexpectedAnswer,
    /// This process closed or ended the object before.
    ClosedHere,
    /// This task may only read the object.
    ReadOnly,
    /// The object exists with other options than the caller asked for.
    OtherOptions {
        /// The object's options.
        found: String,
        /// The caller's options.
        wanted: String,
    },
    /// A poll found nothing yet.
    NothingYet,
    /// Another failure stopped this call: the step that failed, and its failure.
    During(Cow<'static, str>, Error),
    /// Shared memory has contents that no correct member writes.
    Damaged(String),
    /// The calling process is a forked child of the process that opened the object.
    Forked,
    /// A signal interrupted the wait for this thing.
    Interrupted(String),
    /// The object was made by a build with another memory layout.
    Layout {
        /// The version of the layout that the object has.
        version: u32,
        /// The fingerprint of the layout that the object has.
        fingerprint: u32,
        /// The fingerprint here.
        ours: u32,
    },
    /// The text cannot be a name.
    BadName {
        /// The thing that was to get the name.
        what: Cow<'static, str>,
        /// The text.
        name: String,
        /// The fault of the text.
        why: String,
    },
    /// An object or variable has another type than was asked for.
    WrongType {
        /// The object or variable.
        what: String,
        /// Its type.
        have: String,
        /// The type that the caller asked for.
        want: String,
    },
    /// The object has nothing of this kind and name.
    Lacks {
        /// What it lacks: "variable".
        what: &'static str,
        /// The name that was asked for.
        name: String,
    },
    /// A consumer holds all messages that fit into its port, so its producer cannot send.
    HoldsAll(usize),
    /// No peer of this side has come since this end was opened.
    NoPeer(Side),
    /// The peers of this side are alive but did nothing.
    PeersIdle,
    /// The last peer of this side left in order.
    PeersLeft(Side),
    /// No peer of this side is left, and at least one died.
    PeersDied(Side),
}

impl Error {
    /// An error with these words.
    #[cold]
    #[inline(never)]
    pub fn new(status: Status, words: impl Into<Cow<'static, str>>) -> Self {
        Self::because(status, Reason::Words(words.into()))
    }

    /// An error with this reason.
    #[cold]
    #[inline(never)]
    pub fn because(status: Status, reason: Reason) -> Self {
        Self(Box::new(Failure { status, object: None, waited: None, reason, peer: None }))
    }

    /// The kernel refused this call.
    #[cold]
    #[inline(never)]
    pub fn os(error: &OsError) -> Self {
        Self::because(status_of(error), Reason::System(error.clone()))
    }

    /// This process closed or ended the object before.
    #[cold]
    #[inline(never)]
    pub fn closed_here() -> Self {
        Self::because(Status::Closed, Reason::ClosedHere)
    }

    /// This task may only read the object.
    #[cold]
    #[inline(never)]
    pub fn read_only() -> Self {
        Self::because(Status::Denied, Reason::ReadOnly)
    }

    /// The object has nothing of this kind and name.
    #[cold]
    pub fn lacks(what: &'static str, name: &str) -> Self {
        Self::because(Status::NotFound, Reason::Lacks { what, name: name.to_owned() })
    }

    /// The standard library reports that the kernel refused a call: what the caller tried, and the kernel's reason.
    #[cold]
    pub fn system(what: impl fmt::Display, reason: impl fmt::Display) -> Self {
        Self::new(Status::System, format!("{what}: {reason}"))
    }

    /// The error for a text that cannot be the name of a `what`.
    #[cold]
    pub fn bad_name(what: impl Into<Cow<'static, str>>, name: &str, why: impl fmt::Display) -> Self {
        let reason = Reason::BadName { what: what.into(), name: name.to_owned(), why: why.to_string() };
        Self::because(Status::Invalid, reason)
    }

    /// The same error, about this object unless the error names an object already.
    #[must_use]
    #[cold]
    pub fn about(mut self, kind: SegmentKind, name: &str) -> Self {
        self.0.object.get_or_insert_with(|| Object { kind, name: name.to_owned() });
        self
    }

    /// The same error, after a wait of this length for `what`.
    #[must_use]
    #[cold]
    pub fn waited(mut self, what: impl Into<Cow<'static, str>>, time: Duration) -> Self {
        self.0.waited = Some(Waited { what: what.into(), time });
        self
    }

    /// The same error with another length of the wait. For callers that divide a wait into slices.
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

    /// The same error with the peers that it is about.
    #[must_use]
    #[cold]
    pub fn with_peer(mut self, peer: impl Into<String>) -> Self {
        self.0.peer = Some(peer.into());
        self
    }

    /// The same error with another status.
    #[must_use]
    pub fn with_status(mut self, status: Status) -> Self {
        self.0.status = status;
        self
    }

    /// The failure of a larger step, caused by this error.
    #[must_use]
    #[cold]
    pub fn during(self, what: impl Into<Cow<'static, str>>) -> Self {
        Self::because(self.status, Reason::During(what.into(), self))
    }
}

/// The status for a failed system call. A lack of descriptors, memory or space gets a status that tells the caller to
/// make room.
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

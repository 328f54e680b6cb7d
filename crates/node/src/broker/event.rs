//! The events that the host reports to a broker, and the effects that the broker requests. A broker has no other input
//! or output.

use crossdock_layout::{MemberId, SegmentId};

use super::item::Verdict;
use super::nodes::{NodeEvent, NodeOrder};
use super::record::{Peer, Record};
use super::site::{SiteEvent, SiteOrder};

/// The number that the host gave to a connection. No number is used twice.
pub type Connection = u64;

/// The kind of a descriptor that came with a message, as the host found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Descriptor {
    /// A listening SOCK_SEQPACKET Unix socket.
    Listener,
    /// Sealed kernel memory.
    Memory {
        /// The size of the memory in bytes.
        size: u64,
        /// The inode number of the memfd, which no other memfd gets before the next boot; 0 if the number is not known.
        number: u64,
    },
    /// The pool of a series: memory that is sealed against writing. Only mappings that existed before the seal can
    /// still write.
    Pool {
        /// The size of the pool in bytes.
        size: u64,
        /// The inode number of the pool's memfd, as in `Memory`; 0 if the number is not known.
        number: u64,
    },
    /// A descriptor of any other kind.
    Other,
}

/// Something that happened, and that the host reports to the broker.
#[derive(Clone, Debug)]
pub enum Event<'a> {
    /// A process connected to an endpoint's socket.
    Connected {
        /// The number of the new connection.
        connection: Connection,
        /// The number of the endpoint.
        endpoint: u64,
        /// The process at the other end, as the kernel reports it.
        peer: Peer,
    },
    /// A message came. Its content may be any bytes.
    Message {
        /// The connection through which the message came.
        connection: Connection,
        /// The bytes of the message. `None` if the message, or its control data, was longer than any message may be.
        bytes: Option<&'a [u8]>,
        /// The descriptors that came with the message.
        descriptors: &'a [Descriptor],
    },
    /// A message came whose descriptors the host could not receive, because it had no descriptor left. Its content may
    /// be any bytes.
    Stripped {
        /// The connection through which the message came.
        connection: Connection,
        /// The bytes of the message.
        bytes: &'a [u8],
    },
    /// A connection has ended.
    Disconnected {
        /// The connection that has ended.
        connection: Connection,
    },
    /// A member is proved dead: by its pidfd, by its process's birth, or by the roll, in which each living member
    /// holds a lock.
    ProcessDied {
        /// The member that is proved dead.
        member: MemberId,
    },
    /// The answer to [`Effect::Make`] and the other effects that make memory. It comes before any other event.
    Made {
        /// The inode number of the new memfd (0 for an item's file), or why the memory could not be made.
        outcome: Result<u64, String>,
    },
    /// The answer to [`Effect::ProveItem`]. It comes before any other event.
    Proved {
        /// The item whose file was examined.
        item: SegmentId,
        /// The file that was examined.
        file: SegmentId,
        /// The kernel's answer.
        verdict: Verdict,
    },
    /// The answer to [`Effect::CopyItem`], which comes some time later.
    Copied {
        /// The item that was copied.
        item: SegmentId,
        /// The fresh file, which got the bytes.
        to: SegmentId,
        /// `Ok` if all bytes were copied; otherwise the reason why not.
        outcome: Result<(), String>,
    },
    /// A report from the catalog of the site to which this daemon belongs.
    Site(SiteEvent),
    /// A question or an answer of another node in the site.
    Nodes(NodeEvent),
    /// How many bytes of memory the host could give to new segments now.
    Free(u64),
    /// Whether the journal accepts records. The error says why the journal accepts none.
    Journal(Result<(), String>),
    /// Time has passed; the broker looks at its deadlines.
    Tick,
}

/// An action that the host carries out. The host carries out the effects of an event one after another, in the order in
/// which the broker returned them. The broker process may be killed between any two of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Write this record into the journal, before any effect that follows.
    Record(Record),
    /// Make a segment, pass it to the keeper, and answer with [`Event::Made`]. This is always the last effect of its
    /// event.
    Make {
        /// The id that the new segment gets.
        segment: SegmentId,
        /// The segment's size in bytes.
        size: u64,
        /// How many bytes of the segment the broker counts as reserved.
        reserve: u64,
        /// The name that `/proc/PID/maps` shows for the memory.
        label: String,
        /// The bytes with which the memory begins. All other bytes are zero.
        first: Vec<u8>,
    },
    /// Make a pin page with all of its memory allocated, pass it to the keeper, and answer with [`Event::Made`]. This
    /// is always the last effect of its event.
    MakePage {
        /// The id that the new pin page gets.
        page: SegmentId,
        /// The name that `/proc/PID/maps` shows for the memory.
        label: String,
    },
    /// Tell the publisher of this series, through the liveness table, that the series has one more pin page.
    TellOfPage {
        /// The id of the series.
        series: SegmentId,
    },
    /// Make an item's file, pass it to the keeper, and answer with [`Event::Made`]. This is always the last effect of
    /// its event.
    MakeItem {
        /// The id that the item's new file gets.
        file: SegmentId,
        /// The file's size in bytes.
        size: u64,
    },
    /// Ask the kernel whether any process has the item's file open or mapped. If no process has, and `size` is given, set
    /// the file to this size, because a former user may have changed the file's size. If the file is small, also
    /// allocate the memory that a former user may have released by punching holes. Answer with [`Event::Proved`]. No
    /// effect that writes to the journal follows this one.
    ProveItem {
        /// The item whose file the kernel is asked about.
        item: SegmentId,
        /// The item's file.
        file: SegmentId,
        /// The size in bytes that the file must have. `None` if the file goes to an owner on this node next, who gives it
        /// its size and its memory. Then the verdict is not [`Verdict::Alone`], but [`Verdict::Incomplete`].
        size: Option<u64>,
        /// True if the last holder is dead. The kernel may then still be dropping that process's references to the
        /// file.
        dying: bool,
    },
    /// Cut an item's file to this size. The item is about to grow, and an owner may have written behind the end of its
    /// data.
    CutItem {
        /// The item's file. Only the asking member may have it open.
        file: SegmentId,
        /// The size of the file in bytes before the item grows.
        size: u64,
    },
    /// Make a fresh file, pass it to the keeper, and copy the item's bytes into it. All other work continues during the
    /// copy. The answer is [`Event::Copied`]. Before the answer comes, the broker may request [`Effect::Forget`] for
    /// the fresh file, which ends the copy.
    CopyItem {
        /// The item that is to be copied.
        item: SegmentId,
        /// The file that has the item's bytes.
        from: SegmentId,
        /// The fresh file, which gets the bytes.
        to: SegmentId,
        /// The size of each of the two files in bytes.
        size: u64,
    },
    /// Make a fresh file, pass it to the keeper, and carry out `pull`, which fills the file. If the file cannot be
    /// made, report the failure of `pull` with [`NodeEvent::Pulled`]. Before the pull has ended, the broker may request
    /// [`Effect::Forget`] for the fresh file.
    FetchItem {
        /// The fresh file, which gets the bytes.
        to: SegmentId,
        /// The size of the file in bytes.
        size: u64,
        /// The request that fills the file: a pull from another node, or bytes that another node has sent before.
        pull: NodeOrder,
    },
    /// Pass a request to the gateway of the site.
    Site(SiteOrder),
    /// Carry out a request about another node, for example ask it a question or answer its question.
    Nodes(NodeOrder),
    /// Write a line to the log, for the person who runs the daemon.
    Log {
        /// The text of the line.
        line: String,
    },
    /// Keep the next descriptor that came with the client's message, as the memory of this segment.
    Adopt {
        /// The id of the segment to which the memory belongs from now on.
        segment: SegmentId,
    },
    /// Keep the descriptor that came with the client's message, as the listening socket of this endpoint.
    Listen {
        /// The endpoint's number.
        endpoint: u64,
    },
    /// Close an endpoint's listening socket in the broker and in the keeper.
    Unlisten {
        /// The number of the endpoint whose socket is closed.
        endpoint: u64,
    },
    /// Close a segment's descriptor in the broker and in the keeper.
    Forget {
        /// The id of the segment whose descriptor is closed.
        segment: SegmentId,
    },
    /// Fill some slots of a pin page with zeros, so that they pin no version any more.
    ClearPins {
        /// The id of the pin page.
        page: SegmentId,
        /// The first slot to clear.
        from: u32,
        /// How many slots to clear.
        count: u32,
    },
    /// Mark this member as alive in its slot of the liveness table.
    Alive {
        /// The member that is alive.
        member: MemberId,
    },
    /// A member is proved dead, or it said that it leaves. Mark the member as dead in the liveness table, and wake all
    /// members that wait for a death.
    Dead {
        /// The member that is dead or has left.
        member: MemberId,
    },
    /// Send a message to a client.
    Send {
        /// The client's connection.
        connection: Connection,
        /// The encoded message.
        message: Vec<u8>,
        /// The descriptors to send with the message.
        with: Attachment,
    },
    /// Close a connection after all messages to it were sent.
    Close {
        /// The connection to close.
        connection: Connection,
        /// The reason, for the log.
        why: String,
    },
}

/// The descriptors that go with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attachment {
    /// No descriptor.
    Nothing,
    /// The liveness table (read-only), and two descriptors of the roll, the file in which each living member locks a
    /// byte. The first of the two holds this member's lock. Through the second one, the member asks who holds a lock.
    /// From then on, the host watches the member's process.
    Papers {
        /// The member that gets these descriptors.
        member: MemberId,
    },
    /// The memory of a segment.
    Segment {
        /// The id of the segment whose memory the member gets.
        segment: SegmentId,
        /// Whether the member may write to the segment.
        writable: bool,
    },
    /// A descriptor of an item's file. The host opens the file anew for this member, so the open file description
    /// belongs to this member alone.
    Item {
        /// The id of the item's file.
        file: SegmentId,
        /// Whether the member may write. Otherwise the file is opened through the read-only door.
        writable: bool,
    },
    /// A series: its pool (read-only) and one of its pin pages.
    Series {
        /// The id of the series' pool.
        pool: SegmentId,
        /// The id of the pin page.
        page: SegmentId,
        /// The slot of the pin page that the observer gets.
        slot: u32,
    },
}

impl Attachment {
    /// Gives the number of descriptors of this attachment.
    #[must_use]
    pub const fn count(self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::Papers { .. } => 3,
            Self::Segment { .. } | Self::Item { .. } => 1,
            Self::Series { .. } => 2,
        }
    }
}

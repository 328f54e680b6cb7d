//! The events of a broker and the effects that it wants. A broker has no other contact with the world.

use crossdock_layout::{MemberId, SegmentId};

use super::item::Verdict;
use super::nodes::{NodeNews, NodeOrder};
use super::record::{Peer, Record};
use super::site::{SiteNews, SiteOrder};

/// A connection, by the number that the host gave it. No number is used twice.
pub type Connection = u64;

/// A descriptor that came with a message, as the host found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Descriptor {
    /// A listening SOCK_SEQPACKET Unix socket.
    Listener,
    /// Sealed kernel memory.
    Memory {
        /// Bytes.
        size: u64,
        /// The kernel's number for the memory, which no other memory ever has; 0 = none.
        number: u64,
    },
    /// As above, sealed against all writing except through mappings that existed before: a series' pool.
    Pool {
        /// Bytes.
        size: u64,
        /// As above.
        number: u64,
    },
    /// Anything else.
    Other,
}

/// Something happened.
#[derive(Clone, Debug)]
pub enum Event<'a> {
    /// A process connected to an endpoint.
    Connected {
        /// The number of the connection from now on.
        connection: Connection,
        /// Which endpoint.
        endpoint: u64,
        /// The process at the other end, as the kernel says.
        peer: Peer,
    },
    /// A message came. Its content may be anything.
    Message {
        /// From where.
        connection: Connection,
        /// The bytes; `None` if the message, or its control data, was longer than any message may be.
        bytes: Option<&'a [u8]>,
        /// The descriptors that came with the message.
        descriptors: &'a [Descriptor],
    },
    /// A connection is gone.
    Disconnected {
        /// Which.
        connection: Connection,
    },
    /// A member is proved dead: by its pidfd, its start time, or the roll.
    ProcessDied {
        /// Which member.
        member: MemberId,
    },
    /// The answer to [`Effect::Make`]. It comes before any other event.
    Made {
        /// The kernel's number for the memory, or why it could not be made.
        outcome: Result<u64, String>,
    },
    /// The answer to [`Effect::ProveItem`]. It comes before any other event.
    Proved {
        /// Which item.
        item: SegmentId,
        /// The file that was examined.
        file: SegmentId,
        /// The kernel's answer.
        verdict: Verdict,
    },
    /// The answer to [`Effect::CopyItem`], which comes some time later.
    Copied {
        /// Which item.
        item: SegmentId,
        /// The fresh file.
        to: SegmentId,
        /// Success, or why it failed.
        outcome: Result<(), String>,
    },
    /// News of the site that this daemon is a node of.
    Site(SiteNews),
    /// Another node of the site asks something, or has answered.
    Nodes(NodeNews),
    /// The number of bytes of memory that could be given out now.
    Free(u64),
    /// The journal accepts records, or why it does not.
    Journal(Result<(), String>),
    /// Time went by.
    Tick,
}

/// An action for the host. Effects are carried out in order; a broker may be killed between any two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Write this record down, before anything that follows.
    Record(Record),
    /// Make a segment, pass it to the keeper, and answer by [`Event::Made`]. This is always the last effect of its
    /// event.
    Make {
        /// Its id.
        segment: SegmentId,
        /// Bytes.
        size: u64,
        /// Bytes to reserve.
        reserve: u64,
        /// The name to show in `/proc/PID/maps`.
        label: String,
    },
    /// Make a pin page with its memory taken, pass it to the keeper, and answer by [`Event::Made`]. This is always the
    /// last effect of its event.
    MakePage {
        /// Its id.
        page: SegmentId,
        /// The name to show in `/proc/PID/maps`.
        label: String,
    },
    /// Tell the series' publisher, through the liveness table, that there is another pin page.
    TellOfPage {
        /// The series.
        series: SegmentId,
    },
    /// Make an item's file, pass it to the keeper, and answer by [`Event::Made`]. This is always the last effect of its
    /// event.
    MakeItem {
        /// Its id.
        file: SegmentId,
        /// Bytes.
        size: u64,
    },
    /// Ask the kernel whether any process has the item's file open or mapped, and answer by [`Event::Proved`]. Only
    /// effects that write nothing down follow it.
    ProveItem {
        /// Which item.
        item: SegmentId,
        /// Its file.
        file: SegmentId,
        /// The last holder is dead, and the kernel may still be dropping that process's references.
        dying: bool,
    },
    /// Make a fresh file, pass it to the keeper, copy the item's bytes there beside all other work, and answer by
    /// [`Event::Copied`]. The file may be forgotten meanwhile.
    CopyItem {
        /// Which item.
        item: SegmentId,
        /// The file with the item's bytes.
        from: SegmentId,
        /// The fresh file.
        to: SegmentId,
        /// Bytes of it.
        size: u64,
    },
    /// Make a fresh file, hand it to the keeper, and carry out the order, which fills it; if there is no file, answer the
    /// order by [`NodeNews::Pulled`]. The file may be forgotten meanwhile.
    FetchItem {
        /// The fresh file.
        to: SegmentId,
        /// Bytes of it.
        size: u64,
        /// Where its bytes come from.
        pull: NodeOrder,
    },
    /// Ask the site.
    Site(SiteOrder),
    /// Ask another node, or answer it.
    Nodes(NodeOrder),
    /// A notice for the person who runs the daemon.
    Log {
        /// In words.
        line: String,
    },
    /// Keep the next descriptor that came with the message as this segment.
    Adopt {
        /// Its id.
        segment: SegmentId,
    },
    /// Keep the descriptor that came with the message as this endpoint's listening socket.
    Listen {
        /// The endpoint's number.
        endpoint: u64,
    },
    /// Close an endpoint's listening socket, here and at the keeper.
    Unlisten {
        /// The endpoint's number.
        endpoint: u64,
    },
    /// Close a segment's descriptor, here and at the keeper.
    Forget {
        /// Its id.
        segment: SegmentId,
    },
    /// Fill some slots of a pin page with zeros, so that they pin nothing any more.
    ClearPins {
        /// The page.
        page: SegmentId,
        /// The first slot.
        from: u32,
        /// How many.
        count: u32,
    },
    /// From now on a member has this slot of the liveness table; watch its process.
    Alive {
        /// Which.
        member: MemberId,
        /// Its connection.
        connection: Connection,
        /// Its process.
        peer: Peer,
    },
    /// A member is dead, by proof or because it said that it leaves: mark it in the liveness table, and wake all who
    /// wait for a death.
    Dead {
        /// Which.
        member: MemberId,
    },
    /// Send a message.
    Send {
        /// Where to.
        connection: Connection,
        /// The message.
        message: Vec<u8>,
        /// The descriptors to send with the message.
        with: Attachment,
    },
    /// Close a connection after everything was sent to it.
    Close {
        /// Which.
        connection: Connection,
        /// The reason, for the log.
        why: String,
    },
}

/// The descriptors that go with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attachment {
    /// None.
    Nothing,
    /// The liveness table, read-only; the roll with a lock on this member's byte; and the roll for asking.
    Papers {
        /// Whose.
        member: MemberId,
    },
    /// A segment.
    Segment {
        /// Its id.
        segment: SegmentId,
        /// With the right to write.
        writable: bool,
    },
    /// An item's file, opened anew.
    Item {
        /// Its id.
        file: SegmentId,
        /// With the right to write; otherwise through the read-only door.
        writable: bool,
    },
    /// A series: its pool (read-only) and a pin page.
    Series {
        /// The pool's id.
        pool: SegmentId,
        /// The page's id.
        page: SegmentId,
        /// The slot that the observer gets.
        slot: u32,
    },
}

impl Attachment {
    /// The number of these descriptors.
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

//! What happens to a broker, and what it wants done: the whole of its contact with the world.

use crossdock_layout::{MemberId, SegmentId};

use super::item::Verdict;
use super::nodes::{NodeNews, NodeOrder};
use super::record::{Peer, Record};
use super::site::{SiteNews, SiteOrder};

/// A connection, by the number that the host gave it; no number is used twice.
pub type Connection = u64;

/// What a descriptor that came with a message is, as the host found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Descriptor {
    /// A listening SOCK_SEQPACKET Unix socket.
    Listener,
    /// Sealed kernel memory.
    Memory {
        /// Bytes.
        size: u64,
        /// The kernel's number for it, which no other memory ever has; 0 = none.
        number: u64,
    },
    /// The same, sealed against all writing but through mappings that there were before: a series' pool.
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
        /// The connection from now on.
        connection: Connection,
        /// Which endpoint.
        endpoint: u64,
        /// Who, by the kernel's word.
        peer: Peer,
    },
    /// A message came, of whatever content.
    Message {
        /// From where.
        connection: Connection,
        /// Its bytes; `None` if it, or its control data, was longer than any message may be.
        bytes: Option<&'a [u8]>,
        /// What came with it.
        descriptors: &'a [Descriptor],
    },
    /// A connection is gone.
    Disconnected {
        /// Which.
        connection: Connection,
    },
    /// It is proved that a member is dead: by its pidfd, its start time, or the roll.
    ProcessDied {
        /// Which member.
        member: MemberId,
    },
    /// The answer to [`Effect::Make`]; comes before any other event.
    Made {
        /// The kernel's number for the memory if it worked, else why not.
        outcome: Result<u64, String>,
    },
    /// The answer to [`Effect::ProveItem`]; comes before any other event.
    Proved {
        /// Which item.
        item: SegmentId,
        /// The file that was looked at.
        file: SegmentId,
        /// What the kernel said.
        verdict: Verdict,
    },
    /// The answer to [`Effect::CopyItem`], some time later.
    Copied {
        /// Which item.
        item: SegmentId,
        /// The fresh file.
        to: SegmentId,
        /// Whether it worked, else why not.
        outcome: Result<(), String>,
    },
    /// The site that this daemon is a node of has something to tell.
    Site(SiteNews),
    /// Another node of the site asks, or has answered.
    Nodes(NodeNews),
    /// So many bytes of memory could be given out now.
    Free(u64),
    /// The journal takes records, or it does not and why.
    Journal(Result<(), String>),
    /// Time went by.
    Tick,
}

/// Something is to be done. Effects are done in their order; a broker may be killed between any two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Write this down, before anything that follows.
    Record(Record),
    /// Make a segment, hand it to the keeper, and answer by [`Event::Made`]. Always the last effect of its event.
    Make {
        /// Its id.
        segment: SegmentId,
        /// Bytes.
        size: u64,
        /// Bytes to reserve.
        reserve: u64,
        /// What `/proc/PID/maps` is to show.
        label: String,
    },
    /// Make a pin page, with its memory taken, hand it to the keeper, and answer by [`Event::Made`]. Always the last effect of
    /// its event.
    MakePage {
        /// Its id.
        page: SegmentId,
        /// What `/proc/PID/maps` is to show.
        label: String,
    },
    /// Tell the series' publisher, by the liveness table, that there is another pin page.
    TellOfPage {
        /// The series.
        series: SegmentId,
    },
    /// Make an item's file, hand it to the keeper, and answer by [`Event::Made`]. Always the last effect of its event.
    MakeItem {
        /// Its id.
        file: SegmentId,
        /// Bytes.
        size: u64,
    },
    /// Ask the kernel whether any process has the item's file open or mapped, and answer by [`Event::Proved`]. Only effects
    /// that write nothing down come behind it.
    ProveItem {
        /// Which item.
        item: SegmentId,
        /// Its file.
        file: SegmentId,
        /// Its last holder is dead, and the kernel may still be dropping that process's references.
        dying: bool,
    },
    /// Make a fresh file, hand it to the keeper, copy the item's bytes there beside all other work, and answer by
    /// [`Event::Copied`]. It may be forgotten meanwhile.
    CopyItem {
        /// Which item.
        item: SegmentId,
        /// Where its bytes are.
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
    /// Fill some slots of a pin page with zeros: nothing is pinned by them any more.
    ClearPins {
        /// The page.
        page: SegmentId,
        /// The first slot.
        from: u32,
        /// How many.
        count: u32,
    },
    /// A member has this slot of the liveness table from now on; watch its process.
    Alive {
        /// Which.
        member: MemberId,
        /// Its connection.
        connection: Connection,
        /// Its process.
        peer: Peer,
    },
    /// A member is dead, by proof or by its own last word: mark it in the liveness table, and wake everybody who waits for
    /// a death.
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
        /// And the descriptors that go with it.
        with: Attachment,
    },
    /// Close a connection, after what was sent to it.
    Close {
        /// Which.
        connection: Connection,
        /// Why, for the log.
        why: String,
    },
}

/// What descriptors go with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attachment {
    /// None.
    Nothing,
    /// The liveness table, read-only; the roll with a lock on this member's byte; and the roll to ask by.
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
        /// With the right to write; else through the read-only door.
        writable: bool,
    },
    /// A series: its pool, read-only, and a pin page.
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
    /// How many descriptors that are.
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

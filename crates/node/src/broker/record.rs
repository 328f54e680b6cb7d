//! Records: everything that outlives a broker. The journal consists of them, and lasting state changes only through
//! them.

use crossdock_layout::wire::{Grant, SegmentKind};
use crossdock_layout::{MemberId, SegmentId, messages, record};

use super::item::ItemRecord;
use super::stored::Stored;

record! {
    /// The request that caused a change. If the request is repeated, it gets the same answer.
    #[derive(Copy)]
    pub struct Cause as Stored {
        /// The member that sent the request; 0 if no request caused the change.
        member: MemberId,
        /// The number of the member's request.
        request: u64,
    }
}

impl Cause {
    /// The value for a change that no request caused.
    pub const NONE: Self = Self { member: MemberId::NONE, request: 0 };
}

record! {
    /// The process at the other end of a connection, as the kernel describes it.
    #[derive(Copy)]
    pub struct Peer as Stored {
        /// The process id in the daemon's namespace.
        pid: u32,
        /// The number that `crossdock_os::process::birth` gives; 0 if it is not known. No other process has both the same
        /// id and the same birth. The largest number means that the process is the daemon itself, which stands in for a
        /// task of another node.
        birth: u64,
        /// The user id in the daemon's namespace.
        uid: u32,
    }
}

impl Peer {
    /// The birth of a process that is the daemon itself.
    pub const DAEMON: u64 = u64::MAX;

    /// Tells whether the daemon itself is this process, or a former broker of the daemon was.
    #[must_use]
    pub fn is_daemon(&self) -> bool {
        self.birth == Self::DAEMON
    }
}

record! {
    /// The roll and the namespace of process ids by which a daemon proves deaths of members. A later daemon with
    /// another roll cannot prove the death of a member that was recorded under this roll.
    #[derive(Copy, Default)]
    pub struct ProofScope as Stored {
        /// The device of the roll's file.
        device: u64,
        /// The number of the file's inode.
        inode: u64,
        /// When the roll's file was made, in nanoseconds since 1970.
        born: u64,
        /// The namespace of the process ids. In another namespace the same ids belong to other processes.
        processes: u64,
        /// The first member under this roll has this number or a greater one.
        first: u64,
    }
}

impl ProofScope {
    /// Tells whether both values describe the same roll.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        (self.device, self.inode, self.born) == (other.device, other.inode, other.born)
    }
}

messages! {
    /// One change of lasting state.
    pub enum Record: u32 as Stored {
        /// The next ids that are to be given out. All smaller ids are used up.
        1 Counters {
            /// The next number of a member.
            member: u64,
            /// The next id of a segment.
            segment: u64,
            /// The next number of a workflow or endpoint.
            number: u64,
        },
        /// A workflow began.
        2 Workflow {
            /// The workflow's number.
            number: u64,
            /// The maximum number of bytes that the workflow may reserve. If it is 0, only the limit of the node
            /// applies.
            quota: u64,
            /// The member whose end also ends the workflow.
            owner: MemberId,
            /// The workflow's name.
            name: String,
            /// The request that caused the change.
            cause: Cause,
        },
        /// A workflow ended, with its endpoints, members and segments.
        3 WorkflowEnd {
            /// The workflow's number.
            number: u64,
            /// The request that caused the change.
            cause: Cause,
        },
        /// An endpoint was made. The keeper has the endpoint's listening socket.
        4 Endpoint {
            /// The endpoint's number.
            number: u64,
            /// The workflow's number.
            workflow: u64,
            /// The task of every process that connects through the endpoint.
            task: String,
            /// The rights of the endpoint's task.
            grants: Vec<Grant>,
            /// The request that caused the change.
            cause: Cause,
        },
        /// An endpoint got more grants.
        5 Grants {
            /// The endpoint's number.
            endpoint: u64,
            /// The additional grants.
            grants: Vec<Grant>,
            /// The request that caused the change.
            cause: Cause,
        },
        /// A member began.
        6 Member {
            /// The member's id.
            member: MemberId,
            /// The endpoint through which the member connected.
            endpoint: u64,
            /// The workflow's number.
            workflow: u64,
            /// The member's task.
            task: String,
            /// The member's rank.
            rank: u32,
            /// The member's process.
            peer: Peer,
            /// The secret by which the member proves its identity when it connects again.
            token: [u8; 16],
            /// Whether the member only inspects the daemon's state, and is no part of a run.
            visitor: bool,
        },
        /// A member sent its first request that may leave it with something, for example an open segment. Until then, a
        /// member has nothing.
        19 MayHold {
            /// The member.
            member: MemberId,
        },
        /// A run of a workflow began.
        18 Run {
            /// The workflow's number.
            workflow: u64,
            /// The number of the run, counted from 1.
            run: u64,
        },
        /// A member is gone.
        7 MemberGone {
            /// The member that is gone.
            member: MemberId,
        },
        /// A segment was made. The keeper has the segment's descriptor.
        8 Segment {
            /// The segment's id.
            segment: SegmentId,
            /// The workflow's number.
            workflow: u64,
            /// The kind of segment.
            kind: SegmentKind,
            /// The segment's name.
            name: String,
            /// The segment's size in bytes.
            size: u64,
            /// How many bytes of the segment are reserved.
            reserved: u64,
            /// The attribute: a number that the segment's maker chose, and that the daemon only stores.
            attribute: u64,
            /// Whether the segment stays when the run ends.
            persistent: bool,
            /// When the segment was made, in milliseconds since 1970.
            since_ms: u64,
            /// The request that caused the change.
            cause: Cause,
        },
        /// More bytes of a segment are reserved.
        9 Reserved {
            /// The segment's id.
            segment: SegmentId,
            /// The number of reserved bytes, from the segment's start.
            upto: u64,
        },
        /// A segment lost its name. The segment's memory counts against the quota until no member has the segment open.
        10 Removed {
            /// The segment's id.
            segment: SegmentId,
            /// The members that have the segment open, each with the number of openings.
            holders: Vec<(MemberId, u32)>,
            /// The request that caused the change.
            cause: Cause,
        },
        /// A segment is gone for good.
        11 Released {
            /// The segment's id.
            segment: SegmentId,
        },
        /// A series began. The keeper has the series' pool. The ids after the pool's id are for its pin pages and their
        /// slots.
        13 Series {
            /// The pool's id.
            segment: SegmentId,
            /// The workflow's number.
            workflow: u64,
            /// The number of the workflow's run in which the series began.
            run: u64,
            /// The name of the series.
            name: String,
            /// The size of the pool in bytes.
            size: u64,
            /// How many bytes of the pool are reserved.
            reserved: u64,
            /// The attribute: a number that the series' publisher chose, and that the daemon only stores.
            attribute: u64,
            /// The maximum number of observers at the same time.
            observers: u32,
            /// When the series was made, in milliseconds since 1970.
            since_ms: u64,
            /// The publisher, and its request that began the series.
            cause: Cause,
        },
        /// A series has one more pin page. The keeper has the page's descriptor.
        14 PinPage {
            /// The pool's id.
            segment: SegmentId,
            /// The endpoint whose observers may use the page.
            endpoint: u64,
        },
        /// An observer has got a slot of a pin page.
        15 PinTaken {
            /// The pool's id.
            segment: SegmentId,
            /// The observer's number.
            pin: u32,
            /// The number of the slot, counted over all pages of the series.
            slot: u32,
            /// The observer, and its request that got the slot.
            cause: Cause,
        },
        /// A slot of a pin page was cleared, and is free.
        16 PinFreed {
            /// The pool's id.
            segment: SegmentId,
            /// The observer's number.
            pin: u32,
        },
        /// The publisher of a series does not publish it any more.
        17 Unpublished {
            /// The pool's id.
            segment: SegmentId,
            /// The request that caused the change.
            cause: Cause,
        },
        /// The outcome of a request that is done. Only compacted journals have this record.
        12 Outcome {
            /// The request that was carried out.
            cause: Cause,
            /// Whether the request made a segment, which is its answer. If not, the answer is a number.
            made: bool,
            /// If `made` is true, the id of the segment that was made. Otherwise the number that is the answer.
            value: u64,
        },
        /// A region that came from another node has all of its bytes, and gets this name. The region stays when the run
        /// ends.
        50 Renamed {
            /// The region's segment.
            segment: SegmentId,
            /// The name that the region gets.
            name: String,
            /// The member's request for which the region came to this node.
            cause: Cause,
        },
        /// A region is about to move to another node, or is not about to move any more.
        51 Moving {
            /// The region's segment.
            segment: SegmentId,
            /// Whether the region is about to move.
            moves: bool,
        },
        /// The node to which a region is about to move decides from now on whether the region has moved.
        52 HandedOver {
            /// The region's segment.
            segment: SegmentId,
            /// The segment that the region becomes on the other node.
            becomes: SegmentId,
            /// The other node's name.
            node: String,
        },
        /// A segment of this node has all bytes of a region that moves to this node. The node is about to take the
        /// region's name.
        53 Arriving {
            /// The segment on this node.
            segment: SegmentId,
            /// The region's segment on the former node.
            former: SegmentId,
            /// The former node's name.
            node: String,
            /// The name of the region's workflow.
            workflow: String,
            /// The region's name.
            name: String,
            /// Whether the segment has got the region's name. Only compacted journals have true here.
            named: bool,
        },
        /// The former node of a region knows whether the region has moved to this node.
        54 ArrivalKnown {
            /// The segment on this node.
            segment: SegmentId,
        },
        /// From now on the daemon has another roll, or runs in another namespace of process ids.
        30 Era(era: ProofScope),
        /// A member's session is over, but the member is not proved dead: it may still use what it has mapped.
        31 Ghost {
            /// The member whose session is over.
            member: MemberId,
            /// The member's process.
            peer: Peer,
        },
        /// The endpoint of a member whose session is over. Only compacted journals have this record, because otherwise
        /// the member's own record has the endpoint.
        35 GhostEndpoint {
            /// The member whose session is over.
            member: MemberId,
            /// The endpoint through which the member had connected.
            endpoint: u64,
        },
        /// The inode numbers of the memfds of segments with successive ids. This record is written before any client
        /// is told of the ids.
        32 Numbers {
            /// The first of the ids. The others follow it.
            segment: SegmentId,
            /// The inode numbers, one for each id.
            numbers: Vec<u64>,
        },
        /// The memory of what a request made was lost with the keeper, and no member can offer it any more. The
        /// request's outcome is forgotten: if the request is repeated, its member never got the memory.
        37 Undone {
            /// The id of the segment or item that the request made.
            made: SegmentId,
        },
        ..Item(ItemRecord) "Something about items.",
    }
}

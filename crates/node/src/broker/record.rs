//! Everything that outlives a broker, as records: the contents of the journal, and the only way in which lasting state
//! changes.

use crossdock_layout::wire::{Grant, SegmentKind};
use crossdock_layout::{MemberId, SegmentId, messages, record};

use super::item::ItemRecord;
use super::stored::Stored;

record! {
    /// The request that made a change, so that the same request gets the same answer when it is repeated.
    #[derive(Copy)]
    pub struct Cause as Stored {
        /// The member that asked; 0 if none did.
        member: MemberId,
        /// The number of the member's request.
        request: u64,
    }
}

impl Cause {
    /// No request made the change.
    pub const NONE: Self = Self { member: MemberId::NOBODY, request: 0 };
}

record! {
    /// A process at the other end of a connection, as the kernel describes it.
    #[derive(Copy)]
    pub struct Peer as Stored {
        /// The process id in the daemon's namespace.
        pid: u32,
        /// When the process was started, in clock ticks since boot. Number and time together identify a process for
        /// good. 0 = not known.
        started: u64,
        /// The user id in the daemon's namespace.
        uid: u32,
    }
}

record! {
    /// What the proofs of death of a journal's time rest on. Another roll begins another time, and nothing that was
    /// recorded before can be proved then.
    #[derive(Copy, Default)]
    pub struct Era as Stored {
        /// The device of the roll's file,
        device: u64,
        /// its inode's number,
        inode: u64,
        /// and the time when the file was made, in nanoseconds since 1970.
        born: u64,
        /// The namespace of the process numbers, which mean nothing in another namespace.
        processes: u64,
        /// The first member of this time has this number or a greater one.
        first: u64,
    }
}

impl Era {
    /// Is this the time of the same roll?
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        (self.device, self.inode, self.born) == (other.device, other.inode, other.born)
    }
}

messages! {
    /// One change of lasting state.
    pub enum Record: u32 as Stored {
        /// Ids below these are used up.
        1 Counters {
            /// Of members.
            member: u64,
            /// Of segments.
            segment: u64,
            /// Of workflows and endpoints.
            number: u64,
        },
        /// A workflow began.
        2 Workflow {
            /// Its number.
            number: u64,
            /// The most bytes; 0 for the node's limit.
            quota: u64,
            /// The member whose end ends the workflow.
            owner: MemberId,
            /// Its name.
            name: String,
            /// Who asked.
            cause: Cause,
        },
        /// A workflow ended, and everything in it is gone: endpoints, members, segments.
        3 WorkflowEnd {
            /// Its number.
            number: u64,
            /// Who asked.
            cause: Cause,
        },
        /// An endpoint began. The keeper has its listening socket.
        4 Endpoint {
            /// Its number.
            number: u64,
            /// The workflow's number.
            workflow: u64,
            /// The task of a process that connects.
            task: String,
            /// The rights of that task.
            grants: Vec<Grant>,
            /// Who asked.
            cause: Cause,
        },
        /// More grants.
        5 Grants {
            /// The endpoint's number.
            endpoint: u64,
            /// What.
            grants: Vec<Grant>,
            /// Who asked.
            cause: Cause,
        },
        /// A member began.
        6 Member {
            /// Its id.
            member: MemberId,
            /// The endpoint through which the member connected.
            endpoint: u64,
            /// The workflow's number.
            workflow: u64,
            /// Its task.
            task: String,
            /// Its rank.
            rank: u32,
            /// Its process.
            peer: Peer,
            /// The number by which the member proves its identity when it comes back.
            token: [u8; 16],
            /// The member only looks and takes no part in a run.
            visitor: bool,
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
            /// Which.
            member: MemberId,
        },
        /// A segment began. The keeper has its descriptor.
        8 Segment {
            /// Its id.
            segment: SegmentId,
            /// The workflow's number.
            workflow: u64,
            /// Region or port.
            kind: SegmentKind,
            /// Its name.
            name: String,
            /// Bytes.
            size: u64,
            /// Bytes that are reserved.
            reserved: u64,
            /// The value that its maker gave.
            attribute: u64,
            /// The segment stays when the run ends.
            persistent: bool,
            /// When the segment was made, in milliseconds since 1970.
            since_ms: u64,
            /// Who asked.
            cause: Cause,
        },
        /// More of a segment is reserved.
        9 Reserved {
            /// Which.
            segment: SegmentId,
            /// Bytes from its start.
            upto: u64,
        },
        /// A segment lost its name. It counts against the quota until no member has it open.
        10 Removed {
            /// Which.
            segment: SegmentId,
            /// The members that have it open.
            holders: Vec<(MemberId, u32)>,
            /// Who asked.
            cause: Cause,
        },
        /// A segment is gone.
        11 Released {
            /// Which.
            segment: SegmentId,
        },
        /// A series began. The keeper has its pool. Its pin pages and their slots get the ids that follow the pool's.
        13 Series {
            /// The pool's id.
            segment: SegmentId,
            /// The workflow's number.
            workflow: u64,
            /// The number of the run of its workflow.
            run: u64,
            /// Its name.
            name: String,
            /// Bytes of the pool.
            size: u64,
            /// Bytes of it that are reserved.
            reserved: u64,
            /// The value that its publisher gave.
            attribute: u64,
            /// The largest number of observers at the same time.
            observers: u32,
            /// When the series was made, in milliseconds since 1970.
            since_ms: u64,
            /// The publisher and its request.
            cause: Cause,
        },
        /// A series has one more pin page, which the keeper has.
        14 PinPage {
            /// The pool's id.
            segment: SegmentId,
            /// The endpoint whose observers may use it.
            endpoint: u64,
        },
        /// An observer has a slot of a pin page.
        15 PinTaken {
            /// The pool's id.
            segment: SegmentId,
            /// The observer's number.
            pin: u32,
            /// The slot, counted over all pages.
            slot: u32,
            /// The observer and its request.
            cause: Cause,
        },
        /// A slot was cleared and is free.
        16 PinFreed {
            /// The pool's id.
            segment: SegmentId,
            /// The observer's number.
            pin: u32,
        },
        /// A series' publisher no longer publishes it.
        17 Unpublished {
            /// The pool's id.
            segment: SegmentId,
            /// Who asked.
            cause: Cause,
        },
        /// A request that is done and changed nothing else (in snapshots).
        12 Outcome {
            /// Which request.
            cause: Cause,
            /// The answer: a segment made (true), or a number.
            made: bool,
            /// The segment's id, or the number.
            value: u64,
        },
        /// A time began, or a daemon in another namespace continues in it.
        30 Era(era: Era),
        /// A member's session is over, but the member is not proved dead: it may still use what it has mapped.
        31 Ghost {
            /// Which.
            member: MemberId,
            /// Its process.
            peer: Peer,
        },
        /// The kernel's numbers of the memory of these ids, before any client is told of them.
        32 Numbers {
            /// The first id; the others follow it.
            segment: SegmentId,
            /// One for each.
            numbers: Vec<u64>,
        },
        ..Item(ItemRecord) "Something about items.",
    }
}

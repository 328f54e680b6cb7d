//! Everything that outlives a broker, as records: what the journal holds, and the only way that lasting state changes.

use crossdock_layout::wire::{Grant, SegmentKind};
use crossdock_layout::{MemberId, SegmentId, messages, record};

use super::item::ItemRecord;
use super::stored::Stored;

record! {
    /// Which request made a change, so that the same request asked again gets the same answer.
    #[derive(Copy)]
    pub struct Cause as Stored {
        /// The member that asked; 0 if none did.
        member: MemberId,
        /// The number of its request.
        request: u64,
    }
}

impl Cause {
    /// It happened by itself.
    pub const NONE: Self = Self { member: MemberId::NOBODY, request: 0 };
}

record! {
    /// A process at the other end of a connection, by the kernel's word.
    #[derive(Copy)]
    pub struct Peer as Stored {
        /// Process id in the daemon's namespace.
        pid: u32,
        /// When it was started, in clock ticks since boot: number and time name a process for good. 0 = not known.
        started: u64,
        /// User id in the daemon's namespace.
        uid: u32,
    }
}

record! {
    /// What the proofs of a journal's time rest on. Another roll is another time: nothing that was written down before can
    /// be proved then.
    #[derive(Copy, Default)]
    pub struct Era as Stored {
        /// Which file is the roll: its device,
        device: u64,
        /// its inode's number,
        inode: u64,
        /// and when it was made, in nanoseconds since 1970.
        born: u64,
        /// The namespace in which process numbers count; they say nothing in another one.
        processes: u64,
        /// The first member of this time has this number, or a greater one.
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
            /// Most bytes; 0 = the node's.
            quota: u64,
            /// The member that it ends with.
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
        /// An endpoint began; its listening socket is with the keeper.
        4 Endpoint {
            /// Its number.
            number: u64,
            /// The workflow's number.
            workflow: u64,
            /// Who connects is this task.
            task: String,
            /// And may do this.
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
            /// The endpoint that it came by.
            endpoint: u64,
            /// The workflow's number.
            workflow: u64,
            /// Its task.
            task: String,
            /// Its rank.
            rank: u32,
            /// Its process.
            peer: Peer,
            /// What it proves itself by when it comes back.
            token: [u8; 16],
            /// It only looks and is no part of a run.
            visitor: bool,
        },
        /// A run of a workflow began.
        18 Run {
            /// The workflow's number.
            workflow: u64,
            /// The run's, counted from 1.
            run: u64,
        },
        /// A member is gone.
        7 MemberGone {
            /// Which.
            member: MemberId,
        },
        /// A segment began; its descriptor is with the keeper.
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
            /// What its maker gave.
            attribute: u64,
            /// It stays when the run ends.
            persistent: bool,
            /// When it was made, in milliseconds since 1970.
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
        /// A segment lost its name; it counts against the quota until no member has it open.
        10 Removed {
            /// Which.
            segment: SegmentId,
            /// Who has it open.
            holders: Vec<(MemberId, u32)>,
            /// Who asked.
            cause: Cause,
        },
        /// A segment is gone altogether.
        11 Released {
            /// Which.
            segment: SegmentId,
        },
        /// A series began; its pool is with the keeper. Its pin pages and their slots get the ids that follow the pool's.
        13 Series {
            /// The pool's id.
            segment: SegmentId,
            /// The workflow's number.
            workflow: u64,
            /// In which run of the workflow.
            run: u64,
            /// Its name.
            name: String,
            /// Bytes of the pool.
            size: u64,
            /// Bytes of it that are reserved.
            reserved: u64,
            /// What its publisher gave.
            attribute: u64,
            /// Most observers at a time.
            observers: u32,
            /// When it was made, in milliseconds since 1970.
            since_ms: u64,
            /// Who publishes, and its request.
            cause: Cause,
        },
        /// A series has one more pin page, which is with the keeper.
        14 PinPage {
            /// The pool's id.
            segment: SegmentId,
            /// The endpoint whose observers it is for.
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
            /// Who observes, and its request.
            cause: Cause,
        },
        /// A slot was cleared and is free.
        16 PinFreed {
            /// The pool's id.
            segment: SegmentId,
            /// The observer's number.
            pin: u32,
        },
        /// A series' publisher publishes it no longer.
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
            /// Its answer: a segment made (true), or a number.
            made: bool,
            /// The segment's id, or the number.
            value: u64,
        },
        /// A time began, or a daemon in another namespace goes on in it.
        30 Era(era: Era),
        /// A member has no standing any more, but is not proved dead: it may still use what it has mapped.
        31 Ghost {
            /// Which.
            member: MemberId,
            /// Its process.
            peer: Peer,
        },
        /// The kernel's numbers of the memory behind these ids, before any client is told of them.
        32 Numbers {
            /// The first id; the others follow it.
            segment: SegmentId,
            /// One for each.
            numbers: Vec<u64>,
        },
        ..Item(ItemRecord) "Something about items.",
    }
}

//! The requests of clients. The tables of `docs/wire-protocol.md` are generated from these declarations.

use super::cursor::{Malformed, Reader};
use super::declare::requests;
use super::grant::Grant;
use super::header::{Header, finish};
use super::item::ItemRequest;
use super::{InUse, List, ListOf, OpenMode, Padded, SegmentKind, Wire};
use crate::{MemberId, Rights, SegmentId};

/// The number of grants that fit into one message.
pub const GRANTS_PER_MESSAGE: usize = 24;

requests! {
    /// A request of a client to the daemon.
    pub enum Request: u16 as Wire {
        /// Opens a connection. The client sends Hello as its first message, and only once. The first three fields of
        /// Hello have the same positions in all versions.
        1 Hello -> Welcome {
            /// The version of the messages, [`super::PROTOCOL_VERSION`].
            protocol: u32,
            /// The version of the memory layout, [`crate::LAYOUT_VERSION`].
            layout: u32,
            /// The fingerprint of the client's build, [`super::FINGERPRINT`].
            fingerprint: u64,
            /// A random number that the client has chosen. If a client connects again and sends the same number in its
            /// new Hello, it becomes the same member again.
            token: [u8; 16],
            /// If this client connects again: the id of the member that it was before. Otherwise 0.
            member: MemberId,
            /// The client's rank in its task.
            rank: u32,
            /// True if the client only inspects the daemon's state, as `crossdock ls` does, without taking part in the
            /// workflow's run.
            visitor: bool,
            /// The task as which the client wants to act.
            task: Option<String>,
            /// The workflow that the client wants to join.
            workflow: Option<String>,
        },
        /// Opens a segment by name, or makes one.
        2 Open -> Segment {
            /// The kind of the segment: region or port.
            kind: SegmentKind,
            /// What to do if the name exists, or does not exist.
            mode: OpenMode,
            /// The rights that the client wants on the segment.
            access: Rights,
            /// Used if this request makes the segment. True if the segment shall stay when the workflow's run ends.
            persistent: bool,
            /// The size in bytes, if this request makes the segment.
            size: u64,
            /// Used if this request makes the segment: the number of bytes that count as reserved from the beginning.
            /// Each process that opens the segment for writing takes the memory of these bytes.
            reserve: u64,
            /// A number that the daemon stores and returns to each member that opens the segment. For a port, it
            /// contains the pattern and the capacity; for a region, it is 0.
            attribute: u64,
            /// How long to wait for the segment, in milliseconds; 0 = not at all.
            wait_ms: u64,
            /// The segment's name.
            name: String,
        },
        /// Opens a segment by its id.
        3 Attach -> Segment {
            /// The segment's id.
            segment: SegmentId,
            /// The rights that the client wants on the segment.
            access: Rights as Padded,
        },
        /// Asks the daemon to count the segment's bytes below `upto` as reserved.
        4 Reserve -> Done {
            /// The segment's id.
            segment: SegmentId,
            /// The number of bytes from the segment's start.
            upto: u64,
        },
        /// Says that this member has closed a segment once or several times. The daemon does not answer a Detach.
        5 Detach {
            /// The segment's id.
            segment: SegmentId,
            /// The number of times that the member has closed the segment since its last Detach.
            count: u32 as Padded,
        },
        /// Says how many times this member has a segment open. After a member has connected again, it sends a Hold for
        /// each of its segments. The daemon does not answer a Hold.
        6 Hold {
            /// The segment's id; 0 in the member's last Hold, which ends the list of its segments.
            segment: SegmentId,
            /// The number of times that the member has the segment open.
            count: u32 as Padded,
        },
        /// Removes the name of an object.
        7 Remove -> Done {
            /// The kind of the object: region, port or series.
            kind: SegmentKind,
            /// What to do if members have the object open.
            in_use: InUse,
            /// The name of the object. The daemon removes this name.
            name: String,
        },
        /// Makes a workflow. When the member that sent this request ends, the daemon ends the workflow.
        8 MakeWorkflow -> Done {
            /// The largest number of bytes that the workflow may reserve; 0 for the node's limit.
            quota: u64,
            /// The workflow's name.
            name: String,
        },
        /// Gives the daemon a listening socket, the endpoint of a task. The descriptor of the socket comes with a
        /// MakeEndpoint message.
        9 MakeEndpoint -> Done [1] {
            /// The workflow that the endpoint belongs to.
            workflow: String,
            /// The task's name. A process that connects to the endpoint's socket acts as this task.
            task: String,
            /// The rights of the endpoint's task.
            grants: Vec<Grant> as List<GRANTS_PER_MESSAGE>,
        },
        /// Gives the task of an endpoint further rights, which did not fit into the MakeEndpoint message.
        10 AddGrants -> Done {
            /// The endpoint's number, from the answer to `MakeEndpoint`.
            endpoint: u64,
            /// Further rights of the endpoint's task.
            grants: Vec<Grant> as List<GRANTS_PER_MESSAGE>,
        },
        /// Ends a workflow. The daemon removes everything in the workflow.
        11 EndWorkflow -> Done {
            /// The workflow's name.
            name: String,
        },
        /// Asks for one page of a listing.
        12 List -> Page {
            /// The kind of things to list.
            of: ListOf as Padded,
            /// The answer contains only those entries whose number is greater than this number.
            after: u64,
            /// If a workflow is named here, the list has only entries of this workflow.
            workflow: Option<String>,
        },
        /// Asks for a description of a present or former member.
        13 Describe -> Member {
            /// The id of the member.
            member: MemberId,
        },
        /// Gives a restarted daemon a segment that the member has open. The descriptor of the segment comes with an
        /// Offer message.
        14 Offer -> Done [1] {
            /// The segment's id.
            segment: SegmentId,
        },
        /// Gives a restarted daemon the listening socket of an endpoint. The descriptor of the socket comes with a
        /// Listen message. If the daemon has the endpoint's socket already, the request changes nothing.
        21 Listen -> Done [1] {
            /// The endpoint's number, from the answer to `MakeEndpoint`.
            endpoint: u64,
        },
        /// Says that the member ends its session. The daemon answers the Bye and then closes the connection.
        15 Bye -> Done,
        /// Reports how far this member is, for people to read. The daemon does not answer a Progress.
        16 Progress {
            /// The number of steps that the member has done.
            done: u64,
            /// The number of steps that the member will do in all; 0 if the member no longer reports progress.
            of: u64,
        },
        /// Copies or moves a region to this node. The daemon answers a CopyRegion when the region on this node is
        /// complete.
        17 CopyRegion -> Done {
            /// How long the copying of the region may take, in milliseconds.
            wait_ms: u64,
            /// True if the region moves with its name; in that case `copy` is equal to `name`. False if the region is
            /// copied.
            moves: bool as Padded,
            /// The name of the region.
            name: String,
            /// The name that the region's copy on this node gets.
            copy: String,
        },
        /// Keeps all other members from opening a region until the member that sent the Freeze closes it. Only members
        /// of the node daemon itself send a Freeze, when a region is copied or moved to another node.
        18 Freeze -> Done {
            /// The region's id. The member that sends the Freeze has the region open. If another member has the region
            /// open, the Freeze fails.
            segment: SegmentId,
            /// True if the region's name will go to another node.
            moves: bool as Padded,
        },
        /// Claims, in the site's catalog, the wanted name for a region that was copied or moved from another node to
        /// this node. The member then sends a second Adopt with `named` set, which gives the region this name. Only
        /// members of the node daemon itself send an Adopt, after they have copied the region's bytes.
        19 Adopt -> Done {
            /// The number that the broker gave to this copying or moving of a region, when it asked the daemon's
            /// members to do it.
            order: u64,
            /// True if this request gives the region its name. False if it only claims the name in the site's catalog.
            named: bool as Padded,
            /// The id of the region's copy on this node.
            segment: SegmentId,
            /// The id of the region's segment on the node from which the region came.
            former: SegmentId,
        },
        /// Lets another node decide whether a frozen region moves to that node. After the answer, this node lets
        /// members open the region again only if the other node says that the region has not moved. Only the member of
        /// the node daemon that has frozen the region sends a HandOver.
        20 HandOver -> Done {
            /// The region's id on this node.
            segment: SegmentId,
            /// The id that the region gets on the other node. Both nodes identify the move by this id.
            becomes: SegmentId,
            /// The name of the other node.
            node: String,
        },
        /// Begins a series. The descriptor of the series' pool comes with a Publish message. Observers can attach to
        /// the series as soon as the daemon has answered the Publish.
        40 Publish -> Done [1] {
            /// The size of the pool in bytes.
            size: u64,
            /// The bytes of the pool that count against the quota.
            reserved: u64,
            /// A number that the daemon stores and returns to each observer. The daemon does not interpret it.
            attribute: u64,
            /// The largest number of observers that the series may have at the same time.
            observers: u32 as Padded,
            /// The name of the series.
            name: String,
        },
        /// Asks for the series' next pin page: a page in which observers note the versions that they use. Only the
        /// publisher of a series sends a Pins request.
        41 Pins -> Pins {
            /// The id of the series' pool.
            segment: SegmentId,
            /// The index of the first pin page that the publisher does not know yet.
            from: u32 as Padded,
        },
        /// Attaches to a series by name, as an observer.
        42 Observe -> Series {
            /// How long to wait for the series, in milliseconds; 0 = not at all.
            wait_ms: u64,
            /// True if the member also accepts a series that was published in a run of the workflow that has ended.
            former: bool as Padded,
            /// The name of the series.
            name: String,
        },
        /// Says that this member no longer publishes a series. The published versions of the series stay.
        43 Unpublish -> Done {
            /// The id of the series' pool.
            segment: SegmentId,
        },
        ..Item(ItemRequest) "Something about items.",
    }
}

impl Request {
    /// Encodes the whole message.
    #[must_use]
    pub fn encode(&self, request: u64, settled: u64) -> Vec<u8> {
        let header = Header { opcode: self.number(), descriptors: self.descriptors(), request, word: settled };
        let mut writer = header.begin();
        self.write_body(&mut writer);
        finish(writer)
    }

    /// Decodes a message, which any process may have written. `descriptors` is the number of descriptors that really
    /// came with it.
    pub fn decode(message: &[u8], descriptors: usize) -> Result<(Header, Self), Malformed> {
        let (header, body) = Header::decode(message)?;
        let mut r = Reader::new(body);
        let request = Self::read_body(header.opcode, &mut r)?;
        r.end()?;
        if descriptors != usize::from(header.descriptors) || header.descriptors != request.descriptors() {
            return Err(Malformed::Descriptors);
        }
        if (header.request == 0) == request.wants_answer() {
            return Err(Malformed::Value("request"));
        }
        Ok((header, request))
    }

    /// Tells whether the sender may hold something after the daemon has served this request: an open segment or item, a
    /// workflow, an endpoint. Questions, reports and removals give the sender nothing.
    #[must_use]
    pub fn may_give(&self) -> bool {
        let gives_nothing = matches!(
            self,
            Self::Hello { .. } | Self::List { .. } | Self::Describe { .. } | Self::Remove { .. } | Self::Bye
        );
        self.wants_answer() && !gives_nothing
    }

    /// Tells whether the sender of this message takes memory when it gets the answer (Open, Reserve, Publish, Create,
    /// Resize). Only the header is read.
    #[must_use]
    pub fn takes_memory(message: &[u8]) -> bool {
        Header::decode(message).is_ok_and(|(header, _)| matches!(header.opcode, 2 | 4 | 40 | 50 | 59))
    }

    /// Reads the versions in a Hello, even if this build cannot read the rest, so that the daemon can name the versions
    /// in the error when it refuses a client of another build.
    #[must_use]
    pub fn versions(message: &[u8]) -> Option<(u32, u32, u64)> {
        let (header, body) = Header::decode(message).ok()?;
        let mut r = Reader::new(body);
        (header.opcode == 1).then_some(())?;
        Some((r.u32().ok()?, r.u32().ok()?, r.u64().ok()?))
    }
}

//! The requests of clients. The tables of `docs/wire-protocol.md` are generated from this.

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
    /// One request.
    pub enum Request: u16 as Wire {
        /// The first message on every connection, and only the first. Its first three fields keep their places in all
        /// versions.
        1 Hello -> Welcome {
            /// [`super::PROTOCOL_VERSION`].
            protocol: u32,
            /// [`crate::LAYOUT_VERSION`].
            layout: u32,
            /// [`super::FINGERPRINT`].
            fingerprint: u64,
            /// A random number that the client chose. With the same number it becomes the same member again.
            token: [u8; 16],
            /// The member that this client was before, when it comes back; otherwise 0.
            member: MemberId,
            /// The rank in its task.
            rank: u32,
            /// The client only looks, as `crossdock ls` does, and takes no part in the workflow's run.
            visitor: bool,
            /// The task that the client wants to be.
            task: Option<String>,
            /// The workflow that the client wants to join.
            workflow: Option<String>,
        },
        /// Opens or makes a segment by name.
        2 Open -> Segment {
            /// Region or port.
            kind: SegmentKind,
            /// What to do if the name exists, or does not exist.
            mode: OpenMode,
            /// What the client will do with the segment.
            access: Rights,
            /// If this request makes the segment: it stays when the run ends.
            persistent: bool,
            /// The size in bytes, if this request makes the segment.
            size: u64,
            /// The bytes that count as reserved at once, if this request makes the segment. Each process that opens it
            /// for writing takes those pages.
            reserve: u64,
            /// The daemon keeps this value with the segment and does not interpret it.
            attribute: u64,
            /// How long to wait for the segment; 0 = not at all.
            wait_ms: u64,
            /// The name.
            name: String,
        },
        /// Opens a segment by its id.
        3 Attach -> Segment {
            /// Which.
            segment: SegmentId,
            /// What the client will do with the segment.
            access: Rights as Padded,
        },
        /// Counts the segment's bytes below `upto` as reserved.
        4 Reserve -> Done {
            /// Which.
            segment: SegmentId,
            /// From its start.
            upto: u64,
        },
        /// This member has closed some of its openings of a segment. No answer.
        5 Detach {
            /// Which.
            segment: SegmentId,
            /// How many.
            count: u32 as Padded,
        },
        /// Sent after coming back: how many times this member has a segment open. No answer.
        6 Hold {
            /// Which.
            segment: SegmentId,
            /// How many.
            count: u32 as Padded,
        },
        /// Removes a name.
        7 Remove -> Done {
            /// Region or port.
            kind: SegmentKind,
            /// What to do if members have the object open.
            in_use: InUse,
            /// The name.
            name: String,
        },
        /// Makes a workflow that ends with this member.
        8 MakeWorkflow -> Done {
            /// The most bytes that the workflow may reserve; 0 for the node's limit.
            quota: u64,
            /// Its name.
            name: String,
        },
        /// Gives the daemon the listening socket that comes with this message.
        9 MakeEndpoint -> Done [1] {
            /// Whose endpoint.
            workflow: String,
            /// The task that a process becomes when it connects to the socket.
            task: String,
            /// The rights of that task.
            grants: Vec<Grant> as List<GRANTS_PER_MESSAGE>,
        },
        /// Adds grants that did not fit into one message.
        10 AddGrants -> Done {
            /// The number that `MakeEndpoint` gave.
            endpoint: u64,
            /// The further rights of the task.
            grants: Vec<Grant> as List<GRANTS_PER_MESSAGE>,
        },
        /// Ends a workflow with everything in it.
        11 EndWorkflow -> Done {
            /// Its name.
            name: String,
        },
        /// Asks for one page of a listing.
        12 List -> Page {
            /// Of what.
            of: ListOf as Padded,
            /// Only entries with a greater number than this are wanted.
            after: u64,
            /// Only entries of this workflow are wanted.
            workflow: Option<String>,
        },
        /// Asks for a description of a present or former member.
        13 Describe -> Member {
            /// Which.
            member: MemberId,
        },
        /// Gives a restarted daemon the segment whose descriptor comes with this message.
        14 Offer -> Done [1] {
            /// Which.
            segment: SegmentId,
        },
        /// Leaves in order. The connection ends after the answer.
        15 Bye -> Done,
        /// How far this member is, for people who look. No answer.
        16 Progress {
            /// Steps done.
            done: u64,
            /// Steps in all; 0 = it reports no progress any more.
            of: u64,
        },
        /// Begins a series whose pool comes with this message. Observers see it at once.
        40 Publish -> Done [1] {
            /// The size of the pool in bytes.
            size: u64,
            /// The bytes of the pool that count against the quota.
            reserved: u64,
            /// A value that the daemon keeps with the series and does not interpret.
            attribute: u64,
            /// The largest number of observers at the same time.
            observers: u32 as Padded,
            /// The name.
            name: String,
        },
        /// The publisher asks for a series' next pin page.
        41 Pins -> Pins {
            /// The pool.
            segment: SegmentId,
            /// The index of the first pin page that the publisher does not know yet.
            from: u32 as Padded,
        },
        /// Observes a series by name.
        42 Observe -> Series {
            /// How long to wait for the series; 0 = not at all.
            wait_ms: u64,
            /// A series of a former run is accepted as well.
            former: bool as Padded,
            /// The name.
            name: String,
        },
        /// This member no longer publishes a series. What it published stays.
        43 Unpublish -> Done {
            /// The pool.
            segment: SegmentId,
        },
        ..Item(ItemRequest) "Something about items.",
    }
}

impl Request {
    /// The whole message.
    #[must_use]
    pub fn encode(&self, request: u64, settled: u64) -> Vec<u8> {
        let header = Header { opcode: self.number(), descriptors: self.descriptors(), request, word: settled };
        let mut writer = header.begin();
        self.write_body(&mut writer);
        finish(writer)
    }

    /// Decodes a message that any process may have written. `descriptors` is the number that really came with it.
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

    /// May this message ask for memory that its sender then takes (Open, Reserve, Publish, Create, Resize)? It reads
    /// only the header.
    #[must_use]
    pub fn takes_memory(message: &[u8]) -> bool {
        Header::decode(message).is_ok_and(|(header, _)| matches!(header.opcode, 2 | 4 | 40 | 50 | 59))
    }

    /// The versions in a hello, whatever the rest of it looks like. A client of another build says its version here.
    #[must_use]
    pub fn versions(message: &[u8]) -> Option<(u32, u32, u64)> {
        let (header, body) = Header::decode(message).ok()?;
        let mut r = Reader::new(body);
        (header.opcode == 1).then_some(())?;
        Some((r.u32().ok()?, r.u32().ok()?, r.u64().ok()?))
    }
}

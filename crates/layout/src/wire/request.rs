//! What a client may ask; the tables of `docs/wire-protocol.md` are written from this.

use super::cursor::{Malformed, Reader};
use super::declare::requests;
use super::grant::Grant;
use super::header::{Header, finish};
use super::item::ItemRequest;
use super::{InUse, List, ListOf, OpenMode, Padded, SegmentKind, Wire};
use crate::{MemberId, Rights, SegmentId};

/// How many grants fit into one message.
pub const GRANTS_PER_MESSAGE: usize = 24;

requests! {
    /// One request.
    pub enum Request: u16 as Wire {
        /// First on every connection, and only there. Its first three fields never change their place.
        1 Hello -> Welcome {
            /// [`super::PROTOCOL_VERSION`].
            protocol: u32,
            /// [`crate::LAYOUT_VERSION`].
            layout: u32,
            /// [`super::FINGERPRINT`].
            fingerprint: u64,
            /// Chosen at random by the client; the same again makes it the same member again.
            token: [u8; 16],
            /// The member that this client was, when it comes back; else 0.
            member: MemberId,
            /// The rank in its task.
            rank: u32,
            /// It only looks, as `crossdock ls` does: it is no part of the workflow's run.
            visitor: bool,
            /// The task that it wants to be.
            task: Option<String>,
            /// The workflow that it wants to join.
            workflow: Option<String>,
        },
        /// Open or make a segment by name.
        2 Open -> Segment {
            /// Region or port.
            kind: SegmentKind,
            /// What to do about a name that is, or is not, there.
            mode: OpenMode,
            /// What the client means to do with it.
            access: Rights,
            /// If it is made: it stays when the run ends.
            persistent: bool,
            /// Bytes, if it has to be made.
            size: u64,
            /// Bytes that count as reserved at once, if it is made. Each process that opens it for writing takes those pages.
            reserve: u64,
            /// The daemon keeps this value with the segment and does not interpret it.
            attribute: u64,
            /// How long to wait for it; 0 = not at all.
            wait_ms: u64,
            /// The name.
            name: String,
        },
        /// Open a segment by id.
        3 Attach -> Segment {
            /// Which.
            segment: SegmentId,
            /// What the client means to do with it.
            access: Rights as Padded,
        },
        /// Let the segment's bytes below `upto` count as reserved.
        4 Reserve -> Done {
            /// Which.
            segment: SegmentId,
            /// From its start.
            upto: u64,
        },
        /// Some of this member's openings of a segment are closed. No answer.
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
        /// Take a name away.
        7 Remove -> Done {
            /// Region or port.
            kind: SegmentKind,
            /// What to do if members have it open.
            in_use: InUse,
            /// The name.
            name: String,
        },
        /// Make a workflow that ends with this member.
        8 MakeWorkflow -> Done {
            /// Most bytes that it may reserve; 0 = the node's.
            quota: u64,
            /// Its name.
            name: String,
        },
        /// Adopt the listening socket that comes with this.
        9 MakeEndpoint -> Done [1] {
            /// Whose endpoint.
            workflow: String,
            /// A process that connects to it is this task.
            task: String,
            /// And may do this.
            grants: Vec<Grant> as List<GRANTS_PER_MESSAGE>,
        },
        /// More grants than one message holds.
        10 AddGrants -> Done {
            /// The number that `MakeEndpoint` gave.
            endpoint: u64,
            /// And may do this.
            grants: Vec<Grant> as List<GRANTS_PER_MESSAGE>,
        },
        /// End a workflow, with everything in it.
        11 EndWorkflow -> Done {
            /// Its name.
            name: String,
        },
        /// One page of a listing.
        12 List -> Page {
            /// Of what.
            of: ListOf as Padded,
            /// Entries with a greater number than this.
            after: u64,
            /// Of this workflow only.
            workflow: Option<String>,
        },
        /// Who a member is or was.
        13 Describe -> Member {
            /// Which.
            member: MemberId,
        },
        /// Give back to a restarted daemon the segment whose descriptor comes with this.
        14 Offer -> Done [1] {
            /// Which.
            segment: SegmentId,
        },
        /// Leave in order; the connection ends after the answer.
        15 Bye -> Done,
        /// How far this member is, for people who look. No answer.
        16 Progress {
            /// Steps done.
            done: u64,
            /// Steps in all; 0 = it reports no progress any more.
            of: u64,
        },
        /// Begin a series whose pool comes with this; observers see it at once.
        40 Publish -> Done [1] {
            /// Bytes of the pool.
            size: u64,
            /// Bytes of it that are to count against the quota.
            reserved: u64,
            /// Kept with the series, means nothing here.
            attribute: u64,
            /// Most observers at a time.
            observers: u32 as Padded,
            /// The name.
            name: String,
        },
        /// Ask, as its publisher, for a series' next pin page.
        41 Pins -> Pins {
            /// The pool.
            segment: SegmentId,
            /// Index of the first one that is not known yet.
            from: u32 as Padded,
        },
        /// Observe a series by name.
        42 Observe -> Series {
            /// How long to wait for it; 0 = not at all.
            wait_ms: u64,
            /// One of a former run will do.
            former: bool as Padded,
            /// The name.
            name: String,
        },
        /// This member publishes a series no longer; what it published stays.
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

    /// Takes a message apart that any process may have written. `descriptors` is how many really came with it.
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

    /// May this message ask for memory that its sender then takes: Open, Reserve, Publish, Create, Resize? Looks at no more
    /// than its header.
    #[must_use]
    pub fn takes_memory(message: &[u8]) -> bool {
        Header::decode(message).is_ok_and(|(header, _)| matches!(header.opcode, 2 | 4 | 40 | 50 | 59))
    }

    /// The versions in a hello, whatever the rest of it looks like: what a client of another build says of itself.
    #[must_use]
    pub fn versions(message: &[u8]) -> Option<(u32, u32, u64)> {
        let (header, body) = Header::decode(message).ok()?;
        let mut r = Reader::new(body);
        (header.opcode == 1).then_some(())?;
        Some((r.u32().ok()?, r.u32().ok()?, r.u64().ok()?))
    }
}

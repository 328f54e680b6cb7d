//! What a client may ask; each with its layout, drawn in `docs/wire-protocol.md`.

use super::cursor::{Malformed, Reader, Writer};
use super::grant::{Grant, rights};
use super::header::{Header, finish};
use super::item::ItemRequest;
use super::series::count;
use super::{OpenMode, SegmentKind};
use crate::{MemberId, Rights, SegmentId};

/// What [`Request::List`] is to list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ListOf {
    /// Workflows.
    Workflows = 1,
    /// Members.
    Members = 2,
    /// Segments.
    Segments = 3,
    /// Items.
    Items = 5,
}

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// First on every connection, and only there. Its first three fields never change their place.
    Hello {
        /// [`super::PROTOCOL_VERSION`].
        protocol: u32,
        /// [`crate::LAYOUT_VERSION`].
        layout: u32,
        /// [`super::FINGERPRINT`].
        fingerprint: u64,
        /// Chosen at random by the client; the same again makes it the same member again.
        token: [u8; 16],
        /// The member that this client was, when it comes back; else nobody.
        member: MemberId,
        /// The rank in its task.
        rank: u32,
        /// The task that it wants to be.
        task: Option<String>,
        /// The workflow that it wants to join.
        workflow: Option<String>,
    },
    /// Open or make a segment by name.
    Open {
        /// Region or port.
        kind: SegmentKind,
        /// What to do about a name that is, or is not, there.
        mode: OpenMode,
        /// What the client means to do with it.
        access: Rights,
        /// Bytes, if it has to be made.
        size: u64,
        /// Bytes to reserve at once, if it is made.
        reserve: u64,
        /// Kept with the segment, means nothing here.
        attribute: u64,
        /// How long to wait for it; 0 = not at all.
        wait_ms: u64,
        /// The name.
        name: String,
    },
    /// Open a segment by id.
    Attach {
        /// Which.
        segment: SegmentId,
        /// What the client means to do with it.
        access: Rights,
    },
    /// Let the segment's bytes below `upto` count as reserved.
    Reserve {
        /// Which.
        segment: SegmentId,
        /// From its start.
        upto: u64,
    },
    /// Some of this member's openings of a segment are closed. No answer.
    Detach {
        /// Which.
        segment: SegmentId,
        /// How many.
        count: u32,
    },
    /// After coming back: this member has a segment open so many times. No answer.
    Hold {
        /// Which.
        segment: SegmentId,
        /// How many.
        count: u32,
    },
    /// Take a name away.
    Remove {
        /// Region or port.
        kind: SegmentKind,
        /// The name.
        name: String,
    },
    /// Make a workflow that ends with this member.
    MakeWorkflow {
        /// Most bytes that it may reserve; 0 = the node's.
        quota: u64,
        /// Its name.
        name: String,
    },
    /// Adopt the listening socket that comes with this.
    MakeEndpoint {
        /// Whose endpoint.
        workflow: String,
        /// Whoever connects to it is this task.
        task: String,
        /// And may do this.
        grants: Vec<Grant>,
    },
    /// More grants than one message holds.
    AddGrants {
        /// The number that `MakeEndpoint` gave.
        endpoint: u64,
        /// And may do this.
        grants: Vec<Grant>,
    },
    /// End a workflow, with everything in it.
    EndWorkflow {
        /// Its name.
        name: String,
    },
    /// One page of a listing.
    List {
        /// Of what.
        of: ListOf,
        /// Entries with a greater number than this.
        after: u64,
        /// Of this workflow only.
        workflow: Option<String>,
    },
    /// Who a member is or was.
    Describe {
        /// Which.
        member: MemberId,
    },
    /// Give back to a restarted daemon the segment whose descriptor comes with this.
    Offer {
        /// Which.
        segment: SegmentId,
    },
    /// Leave in order; the connection ends after the answer.
    Bye,
    /// Begin a series whose pool comes with this; observers see it once all of its pin pages are there.
    Publish {
        /// Bytes of the pool.
        size: u64,
        /// Bytes of it that are to count against the quota.
        reserved: u64,
        /// Kept with the series, means nothing here.
        attribute: u64,
        /// How many pin pages follow.
        pins: u32,
        /// The name.
        name: String,
    },
    /// Some pin pages of a series, which come with this.
    Pins {
        /// The pool.
        segment: SegmentId,
        /// Index of the first one.
        from: u32,
        /// How many.
        count: u32,
    },
    /// Observe a series by name.
    Observe {
        /// How long to wait for it; 0 = not at all.
        wait_ms: u64,
        /// The name.
        name: String,
    },
    /// This member publishes a series no longer; what it published stays.
    Unpublish {
        /// The pool.
        segment: SegmentId,
    },
    /// Something about items.
    Item(ItemRequest),
}

const MAX_GRANTS: usize = 24;

/// How many grants fit into one message.
pub const GRANTS_PER_MESSAGE: usize = MAX_GRANTS;

impl Request {
    /// The number that says which request this is.
    #[must_use]
    pub const fn opcode(&self) -> u16 {
        match self {
            Self::Hello { .. } => 1,
            Self::Open { .. } => 2,
            Self::Attach { .. } => 3,
            Self::Reserve { .. } => 4,
            Self::Detach { .. } => 5,
            Self::Hold { .. } => 6,
            Self::Remove { .. } => 7,
            Self::MakeWorkflow { .. } => 8,
            Self::MakeEndpoint { .. } => 9,
            Self::AddGrants { .. } => 10,
            Self::EndWorkflow { .. } => 11,
            Self::List { .. } => 12,
            Self::Describe { .. } => 13,
            Self::Offer { .. } => 14,
            Self::Bye => 15,
            Self::Publish { .. } => 40,
            Self::Pins { .. } => 41,
            Self::Observe { .. } => 42,
            Self::Unpublish { .. } => 43,
            Self::Item(request) => request.opcode(),
        }
    }

    /// How many descriptors come with it.
    #[must_use]
    pub const fn descriptors(&self) -> u16 {
        match self {
            Self::MakeEndpoint { .. } | Self::Offer { .. } | Self::Publish { .. } => 1,
            Self::Pins { count, .. } => *count as u16,
            _ => 0,
        }
    }

    /// Whether it is answered.
    #[must_use]
    pub const fn wants_answer(&self) -> bool {
        match self {
            Self::Detach { .. } | Self::Hold { .. } => false,
            Self::Item(request) => request.wants_answer(),
            _ => true,
        }
    }

    /// The whole message.
    #[must_use]
    pub fn encode(&self, request: u64, settled: u64) -> Vec<u8> {
        let header = Header { opcode: self.opcode(), descriptors: self.descriptors(), request, word: settled };
        let mut writer = header.begin();
        self.write_body(&mut writer);
        finish(writer)
    }

    fn write_body(&self, w: &mut Writer) {
        match self {
            Self::Hello { protocol, layout, fingerprint, token, member, rank, task, workflow } => {
                w.u32(*protocol).u32(*layout).u64(*fingerprint).bytes(token).u64(member.0).u32(*rank).u32(0);
                w.name(task.as_deref().unwrap_or("")).name(workflow.as_deref().unwrap_or(""));
            }
            Self::Open { kind, mode, access, size, reserve, attribute, wait_ms, name } => {
                w.u32(*kind as u32).u32(*mode as u32).u32(access.0).u32(0);
                w.u64(*size).u64(*reserve).u64(*attribute).u64(*wait_ms).name(name);
            }
            Self::Attach { segment, access } => {
                w.u64(segment.0).u32(access.0).u32(0);
            }
            Self::Reserve { segment, upto } => {
                w.u64(segment.0).u64(*upto);
            }
            Self::Detach { segment, count } | Self::Hold { segment, count } => {
                w.u64(segment.0).u32(*count).u32(0);
            }
            Self::Remove { kind, name } => {
                w.u32(*kind as u32).u32(0).name(name);
            }
            Self::MakeWorkflow { quota, name } => {
                w.u64(*quota).name(name);
            }
            Self::MakeEndpoint { workflow, task, grants } => {
                w.name(workflow).name(task).u32(grants.len() as u32).u32(0);
                grants.iter().for_each(|g| g.write(w));
            }
            Self::AddGrants { endpoint, grants } => {
                w.u64(*endpoint).u32(grants.len() as u32).u32(0);
                grants.iter().for_each(|g| g.write(w));
            }
            Self::EndWorkflow { name } => {
                w.name(name);
            }
            Self::List { of, after, workflow } => {
                w.u32(*of as u32).u32(0).u64(*after).name(workflow.as_deref().unwrap_or(""));
            }
            Self::Describe { member } => {
                w.u64(member.0);
            }
            Self::Offer { segment } => {
                w.u64(segment.0);
            }
            Self::Bye => {}
            Self::Publish { size, reserved, attribute, pins, name } => {
                w.u64(*size).u64(*reserved).u64(*attribute).u32(*pins).u32(0).name(name);
            }
            Self::Pins { segment, from, count } => {
                w.u64(segment.0).u32(*from).u32(*count);
            }
            Self::Observe { wait_ms, name } => {
                w.u64(*wait_ms).name(name);
            }
            Self::Unpublish { segment } => {
                w.u64(segment.0);
            }
            Self::Item(request) => request.write(w),
        }
    }

    /// Takes a message apart that anybody may have written. `descriptors` is how many really came with it.
    pub fn decode(message: &[u8], descriptors: usize) -> Result<(Header, Self), Malformed> {
        let (header, body) = Header::decode(message)?;
        let request = Self::read_body(header.opcode, &mut Reader::new(body))?;
        if descriptors != usize::from(header.descriptors) || header.descriptors != request.descriptors() {
            return Err(Malformed::Descriptors);
        }
        if (header.request == 0) == request.wants_answer() {
            return Err(Malformed::Value("request"));
        }
        Ok((header, request))
    }

    fn read_body(opcode: u16, r: &mut Reader<'_>) -> Result<Self, Malformed> {
        let request = match opcode {
            1 => {
                let (protocol, layout, fingerprint) = (r.u32()?, r.u32()?, r.u64()?);
                let (token, member, rank) = (*r.bytes()?, MemberId(r.u64()?), r.u32()?);
                r.reserved()?;
                let (task, workflow) = (r.optional_name()?, r.optional_name()?);
                Self::Hello { protocol, layout, fingerprint, token, member, rank, task, workflow }
            }
            2 => {
                let (kind, mode) = (kind(r)?, OpenMode::from_u32(r.u32()?).ok_or(Malformed::Value("mode"))?);
                let access = rights(r)?;
                r.reserved()?;
                let (size, reserve, attribute, wait_ms) = (r.u64()?, r.u64()?, r.u64()?, r.u64()?);
                Self::Open { kind, mode, access, size, reserve, attribute, wait_ms, name: r.name()? }
            }
            3 => {
                let (segment, access) = (SegmentId(r.u64()?), rights(r)?);
                r.reserved()?;
                Self::Attach { segment, access }
            }
            4 => Self::Reserve { segment: SegmentId(r.u64()?), upto: r.u64()? },
            5 | 6 => {
                let (segment, count) = (SegmentId(r.u64()?), r.u32()?);
                r.reserved()?;
                if opcode == 5 { Self::Detach { segment, count } } else { Self::Hold { segment, count } }
            }
            7 => {
                let kind = kind(r)?;
                r.reserved()?;
                Self::Remove { kind, name: r.name()? }
            }
            8 => Self::MakeWorkflow { quota: r.u64()?, name: r.name()? },
            9 => Self::MakeEndpoint { workflow: r.name()?, task: r.name()?, grants: grants(r)? },
            10 => Self::AddGrants { endpoint: r.u64()?, grants: grants(r)? },
            11 => Self::EndWorkflow { name: r.name()? },
            12 => {
                let of = match r.u32()? {
                    1 => ListOf::Workflows,
                    2 => ListOf::Members,
                    3 => ListOf::Segments,
                    5 => ListOf::Items,
                    _ => return Err(Malformed::Value("of")),
                };
                r.reserved()?;
                Self::List { of, after: r.u64()?, workflow: r.optional_name()? }
            }
            13 => Self::Describe { member: MemberId(r.u64()?) },
            14 => Self::Offer { segment: SegmentId(r.u64()?) },
            15 => Self::Bye,
            40 => {
                let (size, reserved, attribute, pins) = (r.u64()?, r.u64()?, r.u64()?, r.u32()?);
                r.reserved()?;
                Self::Publish { size, reserved, attribute, pins, name: r.name()? }
            }
            41 => Self::Pins { segment: SegmentId(r.u64()?), from: r.u32()?, count: count(r)? },
            42 => Self::Observe { wait_ms: r.u64()?, name: r.name()? },
            43 => Self::Unpublish { segment: SegmentId(r.u64()?) },
            50..=69 => Self::Item(ItemRequest::read(opcode, r)?),
            other => return Err(Malformed::Opcode(other)),
        };
        r.end()?;
        Ok(request)
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

fn kind(r: &mut Reader<'_>) -> Result<SegmentKind, Malformed> {
    SegmentKind::from_u32(r.u32()?).ok_or(Malformed::Value("kind"))
}

fn grants(r: &mut Reader<'_>) -> Result<Vec<Grant>, Malformed> {
    let count = r.u32()? as usize;
    r.reserved()?;
    if count > MAX_GRANTS {
        return Err(Malformed::Value("grants"));
    }
    (0..count).map(|_| Grant::read(r)).collect()
}

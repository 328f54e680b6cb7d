//! What the daemon answers; the client checks it as strictly as the daemon checks requests.

use super::cursor::{Malformed, Reader, Writer};
use super::entry::{MemberEntry, SegmentEntry, WorkflowEntry};
use super::header::{ANSWER, HEADER, Header, finish};
use super::item::{ItemEntry, ItemGiven};
use super::series::SeriesEntry;
use super::{MAX_MESSAGE, SegmentKind};
use crate::{MemberId, SegmentId, Status};

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To `Hello`; the liveness table comes with it.
    Welcome {
        /// The member that this connection is from now on.
        member: MemberId,
        /// It was this member before.
        resumed: bool,
        /// It may make workflows and see everything on this node.
        admin: bool,
        /// Changes whenever the daemon lost its descriptors: segments have to be offered again.
        incarnation: u64,
        /// The rank in its task.
        rank: u32,
        /// The task that it acts as.
        task: String,
        /// The workflow that it takes part in.
        workflow: String,
    },
    /// To `Open` and `Attach`; the segment comes with it.
    Segment {
        /// Which.
        segment: SegmentId,
        /// Bytes.
        size: u64,
        /// Bytes from its start that are reserved.
        reserved: u64,
        /// What its maker gave.
        attribute: u64,
        /// Region or port.
        kind: SegmentKind,
        /// Made by this request.
        created: bool,
        /// The descriptor can be written through.
        writable: bool,
        /// Its name.
        name: String,
    },
    /// To requests that only succeed; a number for some of them.
    Done {
        /// The endpoint's number after `MakeEndpoint`, the bytes reserved after `Reserve`, the pool's id after `Publish`,
        /// how many pin pages there are after `Pins`, else 0.
        value: u64,
    },
    /// To `List`, of workflows.
    Workflows(Page<WorkflowEntry>),
    /// To `List`, of members.
    Members(Page<MemberEntry>),
    /// To `List`, of segments.
    Segments(Page<SegmentEntry>),
    /// To `List`, of items.
    Items(Page<ItemEntry>),
    /// To requests that give an item; its memory comes with it.
    Item(ItemGiven),
    /// To `Find`.
    ItemInfo(ItemEntry),
    /// To `Describe`.
    Member(MemberEntry),
    /// To `Observe`; pool and pin page come with it.
    Series(SeriesEntry),
    /// It did not happen.
    Failed {
        /// Why, for programs.
        status: Status,
        /// Why, for people.
        text: String,
    },
}

/// Some entries of a listing; `more` if others follow behind the last one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// In order of their numbers.
    pub entries: Vec<T>,
    /// Ask again, after the last of these.
    pub more: bool,
}

/// Longest text of a failure, in bytes; longer ones are cut.
pub const MAX_TEXT: usize = 1024;

impl Answer {
    /// How many descriptors come with it.
    #[must_use]
    pub const fn descriptors(&self) -> u16 {
        match self {
            Self::Welcome { .. } | Self::Segment { .. } | Self::Item(_) => 1,
            Self::Series(_) => 2,
            _ => 0,
        }
    }

    /// The whole message, as the answer to the request with this opcode and number.
    #[must_use]
    pub fn encode(&self, opcode: u16, request: u64) -> Vec<u8> {
        let status = if let Self::Failed { status, .. } = self { *status } else { Status::Ok };
        let header = Header { opcode: opcode | ANSWER, descriptors: self.descriptors(), request, word: status as u64 };
        let mut writer = header.begin();
        self.write_body(&mut writer);
        finish(writer)
    }

    fn write_body(&self, w: &mut Writer) {
        match self {
            Self::Welcome { member, resumed, admin, incarnation, rank, task, workflow } => {
                w.u64(member.0).u64(*incarnation).u32(*rank).u32(u32::from(*resumed) | u32::from(*admin) << 1);
                w.name(task).name(workflow);
            }
            Self::Segment { segment, size, reserved, attribute, kind, created, writable, name } => {
                w.u64(segment.0).u64(*size).u64(*reserved).u64(*attribute);
                w.u32(*kind as u32).u32(u32::from(*created) | u32::from(*writable) << 1).name(name);
            }
            Self::Done { value } => {
                w.u64(*value);
            }
            Self::Workflows(page) => write_page(w, 1, page, WorkflowEntry::write),
            Self::Members(page) => write_page(w, 2, page, MemberEntry::write),
            Self::Segments(page) => write_page(w, 3, page, SegmentEntry::write),
            Self::Items(page) => write_page(w, 5, page, ItemEntry::write),
            Self::Item(given) => given.write(w),
            Self::ItemInfo(entry) => entry.write(w),
            Self::Member(entry) => entry.write(w),
            Self::Series(entry) => entry.write(w),
            Self::Failed { text, .. } => {
                let mut end = text.len().min(MAX_TEXT);
                while !text.is_char_boundary(end) {
                    end -= 1;
                }
                w.bytes(&text.as_bytes()[..end]);
            }
        }
    }

    /// Takes an answer apart that anybody may have written. Gives the request's number too.
    pub fn decode(message: &[u8], descriptors: usize) -> Result<(u64, Self), Malformed> {
        let (header, body) = Header::decode(message)?;
        if header.opcode & ANSWER == 0 {
            return Err(Malformed::Opcode(header.opcode));
        }
        let status = i32::try_from(header.word).ok().and_then(Status::from_number);
        let answer = match status.ok_or(Malformed::Value("status"))? {
            Status::Ok => Self::read_body(header.opcode & !ANSWER, Reader::new(body))?,
            status => Self::Failed { status, text: text(body)? },
        };
        if descriptors != usize::from(header.descriptors) || header.descriptors != answer.descriptors() {
            return Err(Malformed::Descriptors);
        }
        Ok((header.request, answer))
    }

    fn read_body(opcode: u16, mut r: Reader<'_>) -> Result<Self, Malformed> {
        let answer = match opcode {
            1 => {
                let (member, incarnation, rank) = (MemberId(r.u64()?), r.u64()?, r.u32()?);
                let [resumed, admin] = flags(r.u32()?)?;
                Self::Welcome { member, resumed, admin, incarnation, rank, task: r.name()?, workflow: r.name()? }
            }
            2 | 3 => {
                let (segment, size, reserved, attribute) = (SegmentId(r.u64()?), r.u64()?, r.u64()?, r.u64()?);
                let kind = SegmentKind::from_u32(r.u32()?).ok_or(Malformed::Value("kind"))?;
                let [created, writable] = flags(r.u32()?)?;
                let name = r.name()?;
                Self::Segment { segment, size, reserved, attribute, kind, created, writable, name }
            }
            4 | 7..=11 | 14 | 15 | 40 | 41 | 43 => Self::Done { value: r.u64()? },
            12 => match r.u32()? {
                1 => Self::Workflows(read_page(&mut r, WorkflowEntry::SIZE, WorkflowEntry::read)?),
                2 => Self::Members(read_page(&mut r, MemberEntry::SIZE, MemberEntry::read)?),
                3 => Self::Segments(read_page(&mut r, SegmentEntry::SIZE, SegmentEntry::read)?),
                5 => Self::Items(read_page(&mut r, ItemEntry::SIZE, ItemEntry::read)?),
                _ => return Err(Malformed::Value("of")),
            },
            13 => Self::Member(MemberEntry::read(&mut r)?),
            42 => Self::Series(SeriesEntry::read(&mut r)?),
            50 | 52 | 57..=59 | 61 => Self::Item(ItemGiven::read(&mut r)?),
            51 => Self::ItemInfo(ItemEntry::read(&mut r)?),
            53 | 56 | 60 | 62 | 63 => Self::Done { value: r.u64()? },
            other => return Err(Malformed::Opcode(other)),
        };
        r.end()?;
        Ok(answer)
    }
}

/// Bytes that a page has for its entries.
pub(super) const PAGE_ROOM: usize = MAX_MESSAGE - HEADER - 16;

fn write_page<T>(w: &mut Writer, of: u32, page: &Page<T>, write: impl Fn(&T, &mut Writer)) {
    w.u32(of).u32(page.entries.len() as u32).u32(u32::from(page.more)).u32(0);
    page.entries.iter().for_each(|entry| write(entry, w));
}

fn read_page<T>(
    r: &mut Reader<'_>,
    size: usize,
    read: impl Fn(&mut Reader<'_>) -> Result<T, Malformed>,
) -> Result<Page<T>, Malformed> {
    let count = r.u32()? as usize;
    let more = match r.u32()? {
        0 => false,
        1 => true,
        _ => return Err(Malformed::Value("more")),
    };
    r.reserved()?;
    if count > PAGE_ROOM / size {
        return Err(Malformed::Value("count"));
    }
    let entries = (0..count).map(|_| read(r)).collect::<Result<_, _>>()?;
    Ok(Page { entries, more })
}

fn flags(bits: u32) -> Result<[bool; 2], Malformed> {
    if bits > 3 {
        return Err(Malformed::Value("flags"));
    }
    Ok([bits & 1 != 0, bits & 2 != 0])
}

fn text(body: &[u8]) -> Result<String, Malformed> {
    if body.len() > MAX_TEXT {
        return Err(Malformed::Length);
    }
    std::str::from_utf8(body).map(str::to_owned).map_err(|_| Malformed::Value("text"))
}

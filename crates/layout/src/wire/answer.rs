//! The daemon's answers. The client checks them as strictly as the daemon checks requests.

use super::cursor::{Malformed, Reader, Writer};
use super::declare::answers;
use super::entry::{MemberEntry, NodeEntry, SegmentEntry, WorkflowEntry};
use super::header::{ANSWER, HEADER, Header, finish};
use super::item::{ItemEntry, ItemGiven};
use super::series::{PageEntry, SeriesEntry};
use super::{Bits, InHeader, ListOf, MAX_MESSAGE, Padded, Request, SegmentKind, Spells, Text, Wire};
use crate::{MemberId, SegmentId, Status};

/// The kind of answer that belongs to a request. It is not sent: the request's opcode says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(super) enum Reply {
    Welcome = 1,
    Segment = 2,
    Done = 3,
    Member = 4,
    Series = 5,
    Item = 6,
    ItemInfo = 7,
    Pins = 8,
    /// The number of the list is added to this.
    Page = 100,
}

answers! {
    /// The answer to a request.
    pub enum Answer: u16 as Wire {
        /// The answer to `Hello`. With it come the liveness table, the roll with this member's lock, and the roll for
        /// asking.
        1 Welcome [3] {
            /// The member that this connection is from now on.
            member: MemberId,
            /// Changes whenever the daemon lost its descriptors. Then segments have to be offered again.
            incarnation: u64,
            /// The workflow's run that the member takes part in; for a visitor the latest run.
            run: u64,
            /// The member's rank in its task.
            rank: u32,
            /// The member existed before and came back.
            resumed +
            /// The member may make workflows and see everything on this node.
            admin: bool as Bits,
            /// The task that the member acts as.
            task: String,
            /// The workflow that the member takes part in.
            workflow: String,
        },
        /// The answer to `Open` and `Attach`; the segment comes with it.
        2 Segment [1] {
            /// Which.
            segment: SegmentId,
            /// Bytes.
            size: u64,
            /// Bytes from its start that are reserved.
            reserved: u64,
            /// The value that the segment's maker gave.
            attribute: u64,
            /// Region or port.
            kind: SegmentKind,
            /// This request made the segment.
            created +
            /// The descriptor allows writing.
            writable: bool as Bits,
            /// Its name.
            name: String,
        },
        /// The answer to requests that only succeed. For some of them it has a number.
        3 Done {
            /// The endpoint's number after `MakeEndpoint`, the bytes reserved after `Reserve`, the pool's id after
            /// `Publish`; otherwise 0.
            value: u64,
        },
        /// The answer to a `List` of workflows.
        101 Workflows(page: Page<WorkflowEntry> as PageOf<1>),
        /// The answer to a `List` of members.
        102 Members(page: Page<MemberEntry> as PageOf<2>),
        /// The answer to a `List` of segments.
        103 Segments(page: Page<SegmentEntry> as PageOf<3>),
        /// The answer to a `List` of items.
        105 Items(page: Page<ItemEntry> as PageOf<5>),
        /// The answer to a `List` of nodes.
        106 Nodes(page: Page<NodeEntry> as PageOf<6>),
        /// The answer to requests that give an item; the item's memory comes with it.
        6 Item [1] (given: ItemGiven),
        /// To `Find`.
        7 ItemInfo(entry: ItemEntry),
        /// To `Describe`.
        4 Member(entry: MemberEntry),
        /// The answer to `Observe`; the pool and a pin page come with it.
        5 Series [2] (entry: SeriesEntry),
        /// The answer to `Pins`; the page comes with it. `NOT_YET` if there is no page.
        8 Pins [1] (entry: PageEntry),
        /// The request failed and changed nothing.
        0 Failed {
            /// Why, for programs.
            status: Status as InHeader,
            /// Why, for people.
            text: String as Text<MAX_TEXT>,
        },
    }
}

/// Some entries of a listing. `more` says that others follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// The entries, in the order of their numbers.
    pub entries: Vec<T>,
    /// More entries follow: the client asks again, from behind the last of these.
    pub more: bool,
}

/// The longest text of a failure, in bytes. A longer text is cut.
pub const MAX_TEXT: usize = 1024;

impl Answer {
    /// The whole message, as the answer to the request with this opcode and number.
    #[must_use]
    pub fn encode(&self, opcode: u16, request: u64) -> Vec<u8> {
        let status = if let Self::Failed { status, .. } = self { *status } else { Status::Ok };
        let header = Header { opcode: opcode | ANSWER, descriptors: self.descriptors(), request, word: status as u64 };
        let mut writer = header.begin();
        self.write_body(&mut writer);
        finish(writer)
    }

    /// Decodes an answer that any process may have written. Gives the request's number as well.
    pub fn decode(message: &[u8], descriptors: usize) -> Result<(u64, Self), Malformed> {
        let (header, body) = Header::decode(message)?;
        if header.opcode & ANSWER == 0 {
            return Err(Malformed::Opcode(header.opcode));
        }
        let status = u32::try_from(header.word).ok().and_then(Status::from_number).ok_or(Malformed::Value("status"))?;
        let mut r = Reader::answer(body, status);
        let number = match status {
            Status::Ok => number(header.opcode & !ANSWER, r)?,
            _ => 0,
        };
        let answer = Self::read_body(number, &mut r)?;
        r.end()?;
        if descriptors != usize::from(header.descriptors) || header.descriptors != answer.descriptors() {
            return Err(Malformed::Descriptors);
        }
        Ok((header.request, answer))
    }
}

/// Which answer the body of a good answer to this request is.
fn number(opcode: u16, mut body: Reader<'_>) -> Result<u16, Malformed> {
    match Request::reply(opcode).ok_or(Malformed::Opcode(opcode))? {
        Reply::Page => {
            let of = ListOf::from_number(body.u32()?).ok_or(Malformed::Value("of"))?;
            Ok(Reply::Page as u16 + of as u16)
        }
        reply => Ok(reply as u16),
    }
}

/// Bytes that a page has for its entries.
pub(super) const PAGE_ROOM: usize = MAX_MESSAGE - HEADER - 16;

/// A page of the list with this number.
#[derive(Clone, Copy, Debug)]
pub struct PageOf<const LIST: u32>;

impl<T, const LIST: u32> Spells<Page<T>> for PageOf<LIST>
where
    Wire: Spells<T>,
{
    const WHAT: &'static str = "Page";
    const SIZE: usize = 0;
    fn write(page: &Page<T>, w: &mut Writer) {
        w.u32(LIST).u32(page.entries.len() as u32);
        <Padded as Spells<bool>>::write(&page.more, w);
        page.entries.iter().for_each(|entry| Wire::write(entry, w));
    }
    fn read(r: &mut Reader<'_>, field: &'static str) -> Result<Page<T>, Malformed> {
        let (of, count, more) = (r.u32()?, r.u32()? as usize, <Padded as Spells<bool>>::read(r, "more")?);
        if of != LIST || count > PAGE_ROOM / <Wire as Spells<T>>::SIZE {
            return Err(Malformed::Value("count"));
        }
        Ok(Page { entries: (0..count).map(|_| Wire::read(r, field)).collect::<Result<_, _>>()?, more })
    }
}

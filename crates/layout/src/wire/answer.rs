//! The daemon's answers to clients. The client checks them as strictly as the daemon checks requests.

use super::cursor::{Malformed, Reader, Writer};
use super::declare::answers;
use super::entry::{MemberEntry, NodeEntry, SegmentEntry, WorkflowEntry};
use super::header::{ANSWER, HEADER, Header, finish};
use super::item::{ItemEntry, ItemGiven};
use super::series::{PageEntry, SeriesEntry};
use super::{Bits, Encoding, InHeader, ListOf, MAX_MESSAGE, Padded, Request, SegmentKind, Text, Wire};
use crate::{MemberId, SegmentId, Status};

/// The kind of answer that belongs to a request. The kind is not sent, because the opcode of the request determines it.
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
    /// A page of a listing: some of its entries, in one message. The number of the answer is 100 plus the number of the
    /// list.
    Page = 100,
}

answers! {
    /// The daemon's answer to a request.
    pub enum Answer: u16 as Wire {
        /// The answer to `Hello`. Three descriptors come with a Welcome: one of the liveness table, and two of the roll
        /// (a file with a lock for each living member). The member holds its own lock through the first descriptor of
        /// the roll. Through the second descriptor of the roll, it asks about the locks of other members.
        1 Welcome [3] {
            /// The id of the member to which this connection belongs.
            member: MemberId,
            /// A number that changes when the daemon has lost its descriptors. A member that finds a new number here
            /// must offer its segments to the daemon again.
            incarnation: u64,
            /// The number of the run in which the member takes part. A visitor takes part in no run; for a visitor,
            /// this is the number of the workflow's latest run.
            run: u64,
            /// The member's rank in its task.
            rank: u32,
            /// True if the client is a member that has connected again.
            resumed +
            /// True if the member may make workflows and see everything on this node.
            admin: bool as Bits,
            /// The task as which the member acts.
            task: String,
            /// The workflow in which the member takes part.
            workflow: String,
        },
        /// The answer to `Open` and `Attach`. A Segment message comes with the descriptor of the segment.
        2 Segment [1] {
            /// The segment's id.
            segment: SegmentId,
            /// The segment's size in bytes.
            size: u64,
            /// The number of bytes, from the segment's start, that are reserved.
            reserved: u64,
            /// A number that the maker of the segment chose. The daemon only stores it. For a port, it contains the
            /// pattern and the capacity; for a region, it is 0.
            attribute: u64,
            /// The kind of the segment: region or port.
            kind: SegmentKind,
            /// True if this request made the segment.
            created +
            /// True if the segment's descriptor allows writing.
            writable: bool as Bits,
            /// The segment's name.
            name: String,
        },
        /// The answer to requests such as `Remove`: the request succeeded. A Done contains at most one number.
        3 Done {
            /// The endpoint's number after `MakeEndpoint`, the number of reserved bytes after `Reserve`, the pool's id
            /// after `Publish`; 0 after other requests.
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
        /// The answer to requests that open an item, such as `Create` and `Access`. The descriptor of the item's memory
        /// comes with an Item message.
        6 Item [1] (given: ItemGiven),
        /// The answer to `Find`.
        7 ItemInfo(entry: ItemEntry),
        /// The answer to `Describe`.
        4 Member(entry: MemberEntry),
        /// The answer to `Observe`. Two descriptors come with a Series message: the descriptor of the series' pool, and
        /// the descriptor of the pin page, in which the observer notes the versions that it uses.
        5 Series [2] (entry: SeriesEntry),
        /// The answer to `Pins`. A Pins answer comes with the descriptor of the pin page. If the series has no pin page
        /// with the index that the publisher asked for, `Pins` fails with `NOT_YET`.
        8 Pins [1] (entry: PageEntry),
        /// The request failed and changed nothing.
        0 Failed {
            /// The reason for the failure, as a number for programs.
            status: Status as InHeader,
            /// The reason for the failure, as a text for people.
            text: String as Text<MAX_TEXT>,
        },
    }
}

/// Some entries of a listing, in one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// The entries, in the order of their numbers.
    pub entries: Vec<T>,
    /// True if more entries follow. To get them, the client asks again, for the entries behind the last entry of this
    /// page.
    pub more: bool,
}

/// The largest number of bytes in the text of a failure. A longer text is shortened.
pub const MAX_TEXT: usize = 1024;

impl Answer {
    /// Encodes the whole message, as the answer to the request with this opcode and number.
    #[must_use]
    pub fn encode(&self, opcode: u16, request: u64) -> Vec<u8> {
        let status = if let Self::Failed { status, .. } = self { *status } else { Status::Ok };
        let header = Header { opcode: opcode | ANSWER, descriptors: self.descriptors(), request, word: status as u64 };
        let mut writer = header.begin();
        self.write_body(&mut writer);
        finish(writer)
    }

    /// Decodes an answer, which any process may have written. Gives the answer, and the number of the request to which
    /// it belongs.
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

/// Gives the number of the answer that a successful request with this opcode gets. For a page of a listing, the body
/// says which list it is.
fn number(opcode: u16, mut body: Reader<'_>) -> Result<u16, Malformed> {
    match Request::reply(opcode).ok_or(Malformed::Opcode(opcode))? {
        Reply::Page => {
            let of = ListOf::from_number(body.u32()?).ok_or(Malformed::Value("of"))?;
            Ok(Reply::Page as u16 + of as u16)
        }
        reply => Ok(reply as u16),
    }
}

/// The number of bytes that a page of a listing has for its entries.
pub(super) const PAGE_ROOM: usize = MAX_MESSAGE - HEADER - 16;

/// Says how a page of a list is encoded. `LIST` is the number of the list, see [`ListOf`].
#[derive(Clone, Copy, Debug)]
pub struct PageOf<const LIST: u32>;

impl<T, const LIST: u32> Encoding<Page<T>> for PageOf<LIST>
where
    Wire: Encoding<T>,
{
    const WHAT: &'static str = "Page";
    const SIZE: usize = 0;
    fn write(page: &Page<T>, w: &mut Writer) {
        w.u32(LIST).u32(page.entries.len() as u32);
        <Padded as Encoding<bool>>::write(&page.more, w);
        page.entries.iter().for_each(|entry| Wire::write(entry, w));
    }
    fn read(r: &mut Reader<'_>, field: &'static str) -> Result<Page<T>, Malformed> {
        let (of, count, more) = (r.u32()?, r.u32()? as usize, <Padded as Encoding<bool>>::read(r, "more")?);
        if of != LIST || count > PAGE_ROOM / <Wire as Encoding<T>>::SIZE {
            return Err(Malformed::Value("count"));
        }
        Ok(Page { entries: (0..count).map(|_| Wire::read(r, field)).collect::<Result<_, _>>()?, more })
    }
}

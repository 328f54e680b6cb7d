//! Requests and answers about items; drawn in `docs/wire-protocol.md`.

use super::answer::PAGE_ROOM;
use super::cursor::{Malformed, Reader, Writer};
use crate::{MemberId, SegmentId};

/// Most keys of one request that waits for any of them.
pub const KEYS_PER_MESSAGE: usize = 24;

/// How sure a new owner can be that the former one has no way in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum ItemLevel {
    /// An owner word in shared memory: the tasks trust each other, and no daemon is asked.
    Cooperative = 1,
    /// The kernel proves that nobody else has the memory open or mapped; else the new owner gets a copy.
    Verified = 2,
    /// Always fresh pages: also against what the kernel's proof does not see.
    Strict = 3,
}

impl ItemLevel {
    /// The level with this number, if there is one.
    #[must_use]
    pub const fn from_u32(value: u32) -> Option<Self> {
        match value {
            1 => Some(Self::Cooperative),
            2 => Some(Self::Verified),
            3 => Some(Self::Strict),
            _ => None,
        }
    }

    /// The word used in messages to people.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Cooperative => "cooperative",
            Self::Verified => "verified",
            Self::Strict => "strict",
        }
    }
}

/// What becomes of an item whose owner is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum OnDeath {
    /// It stays the task's: who is this task again finds it.
    Keep = 1,
    /// It goes back to the task that made it.
    Return = 2,
    /// It is destroyed.
    Destroy = 3,
}

impl OnDeath {
    /// The policy with this number, if there is one.
    #[must_use]
    pub const fn from_u32(value: u32) -> Option<Self> {
        match value {
            1 => Some(Self::Keep),
            2 => Some(Self::Return),
            3 => Some(Self::Destroy),
            _ => None,
        }
    }

    /// The word used in messages to people.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::Return => "return",
            Self::Destroy => "destroy",
        }
    }
}

/// Who can own an item. None of them has to exist yet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Party {
    /// A task of the item's workflow; one rank of it, or whichever comes first.
    Task {
        /// The task's name.
        task: String,
        /// The rank; `None` = any.
        rank: Option<u32>,
    },
    /// Whoever registered this number.
    Number(u64),
}

const ANY_RANK: u64 = u64::MAX;

impl Party {
    /// One rank of a task.
    #[must_use]
    pub fn rank(task: &str, rank: u32) -> Self {
        Self::Task { task: task.to_owned(), rank: Some(rank) }
    }

    /// Any rank of a task.
    #[must_use]
    pub fn task(task: &str) -> Self {
        Self::Task { task: task.to_owned(), rank: None }
    }

    pub(super) fn write(&self, w: &mut Writer) {
        match self {
            Self::Task { task, rank } => w.u64(rank.map_or(ANY_RANK, u64::from)).name(task),
            Self::Number(number) => w.u64(*number).name(""),
        };
    }

    pub(super) fn read(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (number, task) = (r.u64()?, r.optional_name()?);
        Ok(match task {
            None => Self::Number(number),
            Some(task) if number == ANY_RANK => Self::Task { task, rank: None },
            Some(task) => {
                let rank = u32::try_from(number).map_err(|_| Malformed::Value("rank"))?;
                Self::Task { task, rank: Some(rank) }
            }
        })
    }
}

impl std::fmt::Display for Party {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Task { task, rank: None } => write!(f, "task '{task}'"),
            Self::Task { task, rank: Some(rank) } => write!(f, "task '{task}', rank {rank}"),
            Self::Number(number) => write!(f, "container {number}"),
        }
    }
}

/// What a client may ask about items.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ItemRequest {
    /// Make an item and be its owner.
    Create {
        /// Bytes.
        size: u64,
        /// How ownership is proved.
        level: ItemLevel,
        /// What becomes of it when its owner is gone.
        on_death: OnDeath,
        /// Its name in the workflow.
        key: String,
    },
    /// What is known of an item.
    Find {
        /// Which.
        key: String,
    },
    /// Wait until one of these items is this task's, or is shared, and open it.
    Access {
        /// To read a shared one; else to own it.
        read: bool,
        /// How long to wait; 0 = not at all.
        wait_ms: u64,
        /// Which; the first that fits.
        keys: Vec<String>,
    },
    /// Give it to somebody else.
    Transfer {
        /// Which.
        item: SegmentId,
        /// To whom.
        to: Party,
    },
    /// The member has it open no longer; it stays its task's. No answer.
    Release {
        /// Which.
        item: SegmentId,
    },
    /// After coming back: this member has it open. Item 0 says that this was all. No answer.
    Hold {
        /// Which.
        item: SegmentId,
    },
    /// Take it away.
    Destroy {
        /// Which.
        item: SegmentId,
    },
    /// Let others read it; nobody writes it until it is unshared.
    Share {
        /// Which.
        item: SegmentId,
    },
    /// Be its only user again.
    Unshare {
        /// Which.
        item: SegmentId,
        /// How long readers may take to leave it; afterwards they keep the old bytes and the owner gets a copy.
        wait_ms: u64,
    },
    /// Give it another size. Bytes that are new are zero.
    Resize {
        /// Which.
        item: SegmentId,
        /// Bytes.
        size: u64,
    },
    /// Change what becomes of it when its owner is gone.
    Policy {
        /// Which.
        item: SegmentId,
        /// From now on.
        on_death: OnDeath,
    },
    /// Open it once more, as whoever has it open.
    Reopen {
        /// Which.
        item: SegmentId,
    },
    /// Be reached by this number, too.
    Register {
        /// The number.
        number: u64,
    },
    /// The number by which an owner word names a party.
    Word {
        /// Which party.
        party: Party,
    },
}

impl ItemRequest {
    /// The number that says which request this is: 50 to 69.
    #[must_use]
    pub const fn opcode(&self) -> u16 {
        match self {
            Self::Create { .. } => 50,
            Self::Find { .. } => 51,
            Self::Access { .. } => 52,
            Self::Transfer { .. } => 53,
            Self::Release { .. } => 54,
            Self::Hold { .. } => 55,
            Self::Destroy { .. } => 56,
            Self::Share { .. } => 57,
            Self::Unshare { .. } => 58,
            Self::Resize { .. } => 59,
            Self::Policy { .. } => 60,
            Self::Reopen { .. } => 61,
            Self::Register { .. } => 62,
            Self::Word { .. } => 63,
        }
    }

    /// Whether it is answered.
    #[must_use]
    pub const fn wants_answer(&self) -> bool {
        !matches!(self, Self::Release { .. } | Self::Hold { .. })
    }

    pub(super) fn write(&self, w: &mut Writer) {
        match self {
            Self::Create { size, level, on_death, key } => {
                w.u64(*size).u32(*level as u32).u32(*on_death as u32).name(key);
            }
            Self::Find { key } => {
                w.name(key);
            }
            Self::Access { read, wait_ms, keys } => {
                w.u64(*wait_ms).u32(u32::from(*read)).u32(keys.len() as u32);
                for key in keys {
                    w.name(key);
                }
            }
            Self::Transfer { item, to } => to.write(w.u64(item.0)),
            Self::Release { item }
            | Self::Hold { item }
            | Self::Destroy { item }
            | Self::Share { item }
            | Self::Reopen { item } => {
                w.u64(item.0);
            }
            Self::Unshare { item, wait_ms } => {
                w.u64(item.0).u64(*wait_ms);
            }
            Self::Resize { item, size } => {
                w.u64(item.0).u64(*size);
            }
            Self::Policy { item, on_death } => {
                w.u64(item.0).u32(*on_death as u32).u32(0);
            }
            Self::Register { number } => {
                w.u64(*number);
            }
            Self::Word { party } => party.write(w),
        }
    }

    pub(super) fn read(opcode: u16, r: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(match opcode {
            50 => {
                let size = r.u64()?;
                Self::Create { size, level: level(r)?, on_death: on_death(r)?, key: r.name()? }
            }
            51 => Self::Find { key: r.name()? },
            52 => {
                let wait_ms = r.u64()?;
                let read = flag(r, "read")?;
                let count = r.u32()? as usize;
                if count == 0 || count > KEYS_PER_MESSAGE {
                    return Err(Malformed::Value("count"));
                }
                Self::Access { read, wait_ms, keys: (0..count).map(|_| r.name()).collect::<Result<_, _>>()? }
            }
            53 => Self::Transfer { item: item(r)?, to: Party::read(r)? },
            54 => Self::Release { item: item(r)? },
            55 => Self::Hold { item: item(r)? },
            56 => Self::Destroy { item: item(r)? },
            57 => Self::Share { item: item(r)? },
            58 => Self::Unshare { item: item(r)?, wait_ms: r.u64()? },
            59 => Self::Resize { item: item(r)?, size: r.u64()? },
            60 => {
                let (item, on_death) = (item(r)?, on_death(r)?);
                r.reserved()?;
                Self::Policy { item, on_death }
            }
            61 => Self::Reopen { item: item(r)? },
            62 => Self::Register { number: r.u64()? },
            63 => Self::Word { party: Party::read(r)? },
            other => return Err(Malformed::Opcode(other)),
        })
    }
}

fn item(r: &mut Reader<'_>) -> Result<SegmentId, Malformed> {
    r.u64().map(SegmentId)
}

fn level(r: &mut Reader<'_>) -> Result<ItemLevel, Malformed> {
    ItemLevel::from_u32(r.u32()?).ok_or(Malformed::Value("level"))
}

fn on_death(r: &mut Reader<'_>) -> Result<OnDeath, Malformed> {
    OnDeath::from_u32(r.u32()?).ok_or(Malformed::Value("on_death"))
}

fn flag(r: &mut Reader<'_>, field: &'static str) -> Result<bool, Malformed> {
    match r.u32()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Malformed::Value(field)),
    }
}

/// To `Create`, `Access`, `Share`, `Unshare`, `Resize` and `Reopen`: an item; its memory comes with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemGiven {
    /// Which; stays the same for as long as it exists.
    pub item: SegmentId,
    /// The memory that holds it now; another one when it was copied.
    pub file: SegmentId,
    /// Bytes.
    pub size: u64,
    /// How ownership is proved.
    pub level: ItemLevel,
    /// What becomes of it when its owner is gone.
    pub on_death: OnDeath,
    /// It can be written.
    pub writable: bool,
    /// Made by this request.
    pub created: bool,
    /// The numbers by which owner words name this task: this rank, and any rank of it.
    pub words: [u64; 2],
    /// The number by which owner words name the task that made it.
    pub creator: u64,
    /// Its key.
    pub key: String,
}

impl ItemGiven {
    pub(super) fn write(&self, w: &mut Writer) {
        w.u64(self.item.0).u64(self.file.0).u64(self.size).u32(self.level as u32).u32(self.on_death as u32);
        w.u32(u32::from(self.writable)).u32(u32::from(self.created)).u64(self.words[0]).u64(self.words[1]);
        w.u64(self.creator).name(&self.key);
    }

    pub(super) fn read(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            item: item(r)?,
            file: item(r)?,
            size: r.u64()?,
            level: level(r)?,
            on_death: on_death(r)?,
            writable: flag(r, "writable")?,
            created: flag(r, "created")?,
            words: [r.u64()?, r.u64()?],
            creator: r.u64()?,
            key: r.name()?,
        })
    }
}

/// What is going on with an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ItemState {
    /// Its owner has it open.
    Held = 1,
    /// It belongs to somebody who has not opened it.
    Waiting = 2,
    /// It is shared for reading.
    Shared = 3,
    /// It is being copied, because a former owner clings to it or its level asks for fresh pages.
    Copying = 4,
}

/// An item in a listing, or the answer to `Find`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemEntry {
    /// Which.
    pub item: SegmentId,
    /// The memory that holds it now.
    pub file: SegmentId,
    /// Bytes.
    pub size: u64,
    /// Whoever has it open as its owner, or nobody.
    pub holder: MemberId,
    /// Milliseconds since it became its owner's, or since the daemon's restart.
    pub since_ms: u64,
    /// How often it changed its owner.
    pub transfers: u64,
    /// How often it had to be copied because somebody clung to it.
    pub copies: u64,
    /// How ownership is proved.
    pub level: ItemLevel,
    /// What becomes of it when its owner is gone.
    pub on_death: OnDeath,
    /// What is going on with it.
    pub state: ItemState,
    /// How many requests wait for it.
    pub waiting: u32,
    /// How many members read it.
    pub readers: u32,
    /// The asker is its owner.
    pub mine: bool,
    /// Whose it is.
    pub owner: Party,
    /// Who made it.
    pub creator: Party,
    /// The workflow that it belongs to.
    pub workflow: String,
    /// Its key.
    pub key: String,
}

impl ItemEntry {
    pub(super) const SIZE: usize = 80 + 2 * (8 + super::NAME_FIELD) + 2 * super::NAME_FIELD;
    /// How many fit on a page.
    pub const PER_PAGE: usize = PAGE_ROOM / Self::SIZE;

    pub(super) fn write(&self, w: &mut Writer) {
        w.u64(self.item.0).u64(self.file.0).u64(self.size).u64(self.holder.0).u64(self.since_ms);
        w.u64(self.transfers).u64(self.copies).u32(self.level as u32).u32(self.on_death as u32);
        w.u32(self.state as u32).u32(self.waiting).u32(self.readers).u32(u32::from(self.mine));
        self.owner.write(w);
        self.creator.write(w);
        w.name(&self.workflow).name(&self.key);
    }

    pub(super) fn read(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            item: item(r)?,
            file: item(r)?,
            size: r.u64()?,
            holder: MemberId(r.u64()?),
            since_ms: r.u64()?,
            transfers: r.u64()?,
            copies: r.u64()?,
            level: level(r)?,
            on_death: on_death(r)?,
            state: match r.u32()? {
                1 => ItemState::Held,
                2 => ItemState::Waiting,
                3 => ItemState::Shared,
                4 => ItemState::Copying,
                _ => return Err(Malformed::Value("state")),
            },
            waiting: r.u32()?,
            readers: r.u32()?,
            mine: flag(r, "mine")?,
            owner: Party::read(r)?,
            creator: Party::read(r)?,
            workflow: r.name()?,
            key: r.name()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Answer, MAX_MESSAGE, Page, Request};
    use super::*;

    fn requests() -> Vec<ItemRequest> {
        let key = || "frame/3".to_owned();
        let item = SegmentId(7);
        vec![
            ItemRequest::Create { size: 9, level: ItemLevel::Strict, on_death: OnDeath::Return, key: key() },
            ItemRequest::Find { key: key() },
            ItemRequest::Access { read: true, wait_ms: 5, keys: vec![key(); KEYS_PER_MESSAGE] },
            ItemRequest::Transfer { item, to: Party::task("detect") },
            ItemRequest::Transfer { item, to: Party::rank("detect", 3) },
            ItemRequest::Transfer { item, to: Party::Number(12) },
            ItemRequest::Release { item },
            ItemRequest::Hold { item: SegmentId(0) },
            ItemRequest::Destroy { item },
            ItemRequest::Share { item },
            ItemRequest::Unshare { item, wait_ms: 4 },
            ItemRequest::Resize { item, size: 8192 },
            ItemRequest::Policy { item, on_death: OnDeath::Destroy },
            ItemRequest::Reopen { item },
            ItemRequest::Register { number: 5 },
            ItemRequest::Word { party: Party::task("detect") },
        ]
    }

    #[test]
    fn every_request_about_items_comes_through_unchanged_and_no_part_of_it_does() {
        for request in requests().into_iter().map(Request::Item) {
            let number = u64::from(request.wants_answer());
            let message = request.encode(number, 1);
            assert!(message.len() <= MAX_MESSAGE);
            assert_eq!(Request::decode(&message, 0).unwrap().1, request);
            for length in 24..message.len() {
                let mut cut = message[..length].to_vec();
                cut[4..8].copy_from_slice(&(length as u32).to_le_bytes());
                assert!(Request::decode(&cut, 0).is_err(), "{request:?} cut to {length}");
            }
        }
    }

    #[test]
    fn every_answer_about_items_comes_through_unchanged() {
        let key = || "k".to_owned();
        let given = ItemGiven {
            item: SegmentId(1),
            file: SegmentId(2),
            size: 3,
            level: ItemLevel::Verified,
            on_death: OnDeath::Keep,
            writable: true,
            created: false,
            words: [4, 5],
            creator: 6,
            key: key(),
        };
        let entry = ItemEntry {
            item: SegmentId(1),
            file: SegmentId(2),
            size: 3,
            holder: MemberId::new(3, 4),
            since_ms: 5,
            transfers: 6,
            copies: 7,
            level: ItemLevel::Cooperative,
            on_death: OnDeath::Destroy,
            state: ItemState::Copying,
            waiting: 8,
            readers: 9,
            mine: true,
            owner: Party::Number(10),
            creator: Party::rank("t", 11),
            workflow: key(),
            key: key(),
        };
        let page = Page { entries: vec![entry.clone(); ItemEntry::PER_PAGE], more: true };
        for (opcode, answer) in [
            (50, Answer::Item(given.clone())),
            (52, Answer::Item(given)),
            (51, Answer::ItemInfo(entry)),
            (12, Answer::Items(page)),
            (53, Answer::Done { value: 1 }),
        ] {
            let message = answer.encode(opcode, 9);
            assert!(message.len() <= MAX_MESSAGE);
            assert_eq!(Answer::decode(&message, answer.descriptors().into()), Ok((9, answer)));
        }
    }
}

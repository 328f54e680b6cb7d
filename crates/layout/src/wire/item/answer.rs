//! What they are told: an item, or what is known of one.

use super::super::NAME_FIELD;
use super::super::answer::PAGE_ROOM;
use super::super::cursor::{Malformed, Reader, Writer};
use super::{ItemLevel, ItemState, OnDeath, Party, flag, item, level, on_death};
use crate::{MemberId, SegmentId};

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
    pub(in crate::wire) fn write(&self, w: &mut Writer) {
        w.u64(self.item.0).u64(self.file.0).u64(self.size).u32(self.level as u32).u32(self.on_death as u32);
        w.u32(u32::from(self.writable)).u32(u32::from(self.created)).u64(self.words[0]).u64(self.words[1]);
        w.u64(self.creator).name(&self.key);
    }

    pub(in crate::wire) fn read(r: &mut Reader<'_>) -> Result<Self, Malformed> {
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
    pub(in crate::wire) const SIZE: usize = 80 + 2 * (8 + NAME_FIELD) + 2 * NAME_FIELD;
    /// How many fit on a page.
    pub const PER_PAGE: usize = PAGE_ROOM / Self::SIZE;

    pub(in crate::wire) fn write(&self, w: &mut Writer) {
        w.u64(self.item.0).u64(self.file.0).u64(self.size).u64(self.holder.0).u64(self.since_ms);
        w.u64(self.transfers).u64(self.copies).u32(self.level as u32).u32(self.on_death as u32);
        w.u32(self.state as u32).u32(self.waiting).u32(self.readers).u32(u32::from(self.mine));
        self.owner.write(w);
        self.creator.write(w);
        w.name(&self.workflow).name(&self.key);
    }

    pub(in crate::wire) fn read(r: &mut Reader<'_>) -> Result<Self, Malformed> {
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

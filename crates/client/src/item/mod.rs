//! Items: data that exactly one task owns at a time (CDI).
//!
//! The task that makes an item owns it. The owner reads, writes, copies, resizes, shares, transfers and destroys it; no other
//! task can reach it. Handing it to another task is one atomic step, without a copy: the daemon asks the kernel whether the former
//! owner let go of the memory, and if it did not, the new owner gets a copy instead.
//!
//! An [`Item`] whose task has handed it on is *spent*: it has no bytes any more, and every call says to whom it went.
//! Methods that give an item away by value make a later use a compile error.

mod handing;
mod local;
mod options;
mod session;
mod shared;

use crossdock_core::item::{Held, ItemMemory};
use crossdock_layout::wire::ItemGiven;
use crossdock_layout::{SegmentId, Status};
use std::sync::Arc;

pub use crossdock_core::item::Contents;
pub use crossdock_layout::wire::{ItemLevel, ItemState, OnDeath, Party};
pub use options::{ItemInfo, ItemOptions, address, party};
pub use shared::{ItemView, SharedItem};

pub(crate) use local::Local;

use crate::{Error, Mode, Region, Result, SegmentKind, Session};

/// An item that this task owns and has open. Dropping it closes it; it stays this task's, which may access it again.
#[derive(Debug)]
pub struct Item {
    session: Session,
    key: String,
    id: SegmentId,
    size: u64,
    level: ItemLevel,
    on_death: OnDeath,
    state: State,
    /// The heap in it, once a caller asked for it.
    region: Option<Region>,
}

#[derive(Debug)]
enum State {
    /// This process alone has it mapped.
    Own(ItemMemory),
    /// Mapped by all that may own it; this member has it.
    Cooperative(Arc<ItemMemory>, Held),
    /// It is another task's, or gone; in words.
    Spent(String),
}

impl Item {
    /// Its key in the workflow.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Its number; no other item ever has it.
    #[must_use]
    pub fn id(&self) -> SegmentId {
        self.id
    }

    /// Bytes of data. Stays readable in a spent item.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// How ownership is proved.
    #[must_use]
    pub fn level(&self) -> ItemLevel {
        self.level
    }

    /// What becomes of it when its owner is gone.
    #[must_use]
    pub fn on_death(&self) -> OnDeath {
        self.on_death
    }

    /// The session that it was opened by.
    #[must_use]
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Does this handle still have the item?
    #[must_use]
    pub fn is_open(&self) -> bool {
        !matches!(self.state, State::Spent(_))
    }

    /// Does it? Else the error says where the item went.
    ///
    /// # Errors
    /// `CLOSED`.
    pub fn check_open(&self) -> Result<()> {
        self.memory().map(drop)
    }

    /// Where its data begins in this process; null if it is spent. Another address after a resize.
    #[must_use]
    pub fn base(&self) -> *mut u8 {
        self.memory().map_or(std::ptr::null_mut(), ItemMemory::base)
    }

    /// Its data. A spent item has none.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.memory().map_or(&[], ItemMemory::bytes)
    }

    /// Its data, to be changed. A spent item has none.
    #[must_use]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match &mut self.state {
            State::Own(memory) => memory.bytes_mut(),
            State::Cooperative(memory, held) => memory.bytes_held(held),
            State::Spent(_) => &mut [],
        }
    }

    /// What it holds, as its owner (or a former one) described it.
    ///
    /// # Errors
    /// `CLOSED`; `CORRUPT` if a former owner left something else there.
    pub fn contents(&self) -> Result<Contents> {
        self.memory()?.contents().map_err(|e| self.named(e))
    }

    /// Says what it holds from now on; the bytes stay as they are.
    ///
    /// # Errors
    /// `INVALID` if that does not fit, `CLOSED`, `BUSY` while its heap is in use.
    pub fn describe(&mut self, contents: &Contents) -> Result<()> {
        self.close_region()?;
        let named = |error: Error| error.about(SegmentKind::Item, &self.key);
        match &mut self.state {
            State::Own(memory) => memory.describe(contents).map_err(named),
            State::Cooperative(memory, _) => memory.describe_held(contents).map_err(named),
            State::Spent(why) => Err(Error::new(Status::Closed, why.clone())),
        }
    }

    /// The heap in it, of an item that was described as holding one. Clones have to be gone before the item is handed on.
    ///
    /// # Errors
    /// `WRONG_TYPE` if it holds something else, `CORRUPT`, `CLOSED`.
    pub fn region(&mut self) -> Result<Region> {
        let contents = self.contents()?;
        if contents != Contents::Heap {
            let text = format!("item '{}' holds no heap; describe it as one when you make it", self.key);
            return Err(Error::new(Status::WrongType, text));
        }
        if self.region.is_none() {
            let mapping = self.memory()?.data_again().map_err(|e| self.named(e))?;
            self.region = Some(self.session.region_in_item(&self.key, self.id, mapping, true)?);
        }
        self.region.clone().ok_or_else(|| Error::new(Status::Closed, "the region is gone"))
    }

    /// The heap in it, as `mode` says: made of its bytes if it is not there, or made anew.
    ///
    /// # Errors
    /// `EXISTS` if it is there and must not be; as for [`Item::region`] and [`Item::describe`].
    pub fn open_region(&mut self, mode: Mode) -> Result<Region> {
        let there = self.contents()? == Contents::Heap;
        match mode {
            Mode::CreateOnly if there => {
                return Err(Error::new(Status::Exists, format!("item '{}' holds a heap already", self.key)));
            }
            Mode::CreateOnly | Mode::OpenOrCreate if !there => self.describe(&Contents::Heap)?,
            Mode::Recreate => {
                self.describe(&Contents::Bytes)?;
                self.bytes_mut().fill(0);
                self.describe(&Contents::Heap)?;
            }
            _ => {}
        }
        self.region()
    }

    fn memory(&self) -> Result<&ItemMemory> {
        match &self.state {
            State::Own(memory) => Ok(memory),
            State::Cooperative(memory, _) => Ok(memory),
            State::Spent(why) => Err(Error::new(Status::Closed, why.clone())),
        }
    }

    fn named(&self, error: Error) -> Error {
        error.about(SegmentKind::Item, &self.key)
    }

    /// Its heap must not be in use when the item leaves.
    fn close_region(&mut self) -> Result<()> {
        let Some(region) = self.region.take() else { return Ok(()) };
        if Arc::strong_count(&region) > 1 {
            self.region = Some(region);
            let text = format!("the heap of item '{}' is still in use here; drop what refers to it first", self.key);
            return Err(Error::new(Status::Busy, text));
        }
        Ok(())
    }

    /// A new handle of what the daemon gave.
    fn new(session: &Session, given: ItemGiven, state: State) -> Self {
        let ItemGiven { item, size, level, on_death, key, .. } = given;
        Self { session: session.clone(), key, id: item, size, level, on_death, state, region: None }
    }
}

impl Drop for Item {
    fn drop(&mut self) {
        self.region = None;
        match std::mem::replace(&mut self.state, State::Spent(String::new())) {
            State::Own(memory) => {
                drop(memory);
                self.session.connection().release_item(self.id);
            }
            // A forked child has nothing to let go of.
            State::Cooperative(memory, _) if self.session.connection().check_process().is_ok() => {
                let _ = memory.let_go(self.session.member());
            }
            _ => {}
        }
    }
}

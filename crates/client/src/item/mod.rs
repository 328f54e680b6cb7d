//! Items: data that exactly one task owns at a time (CDI).
//!
//! The task that makes an item owns it. The owner reads, writes, copies, resizes, shares, transfers and destroys it; no
//! other task can reach it. Handing it to another task is one atomic step without a copy. The daemon asks the kernel
//! whether the former owner has let go of the memory. If it has not, the new owner gets a copy instead.
//!
//! An [`Item`] that its task has handed on is *spent*: it has no bytes any more, and every call says which task got it.
//! Methods that take the item by value make a later use a compile error.

mod handing;
mod local;
mod opened;
mod options;
mod session;
mod shared;

use crossdock_core::item::{Held, ItemMemory};
use crossdock_layout::Status;
use crossdock_layout::wire::ItemGiven;
use std::sync::Arc;

pub use crossdock_core::item::Contents;
pub use crossdock_layout::wire::{ItemLevel, ItemState, OnDeath, Party};
pub use opened::OpenItem;
pub use options::{ItemInfo, ItemOptions, address, party};
pub use shared::{ItemView, SharedItem};

pub(crate) use local::Local;

use crate::{Error, Mode, Region, Result, Session};

/// An item that this task owns and has open. Dropping it closes it. The item still belongs to this task, which may
/// access it again.
#[derive(Debug)]
pub struct Item {
    open: OpenItem,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Only this process has the item mapped.
    Own(ItemMemory),
    /// All tasks that may own the item have it mapped, and this member has it.
    Cooperative(Arc<ItemMemory>, Held),
    /// The item belongs to another task, or is gone; the text says so.
    Spent(String),
}

impl State {
    fn memory(&self) -> Result<&ItemMemory> {
        match self {
            Self::Own(memory) => Ok(memory),
            Self::Cooperative(memory, _) => Ok(memory),
            Self::Spent(why) => Err(Error::new(Status::Closed, why.clone())),
        }
    }
}

impl std::ops::Deref for Item {
    type Target = OpenItem;
    fn deref(&self) -> &OpenItem {
        &self.open
    }
}

impl Item {
    /// Does this handle still have the item?
    #[must_use]
    pub fn is_open(&self) -> bool {
        !matches!(self.state, State::Spent(_))
    }

    /// An error, unless this handle still has the item. The error says where the item went.
    ///
    /// # Errors
    /// `CLOSED`.
    pub fn check_open(&self) -> Result<()> {
        self.memory().map(drop)
    }

    /// The address of the item's data in this process; null if the item is spent. It may change with a resize.
    #[must_use]
    pub fn base(&self) -> *mut u8 {
        self.memory().map_or(std::ptr::null_mut(), ItemMemory::base)
    }

    /// The item's data. A spent item has none.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.memory().map_or(&[], ItemMemory::bytes)
    }

    /// The item's data, to be changed. A spent item has none.
    #[must_use]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match &mut self.state {
            State::Own(memory) => memory.bytes_mut(),
            State::Cooperative(memory, held) => memory.bytes_held(held),
            State::Spent(_) => &mut [],
        }
    }

    /// The contents, as the owner or a former owner described them.
    ///
    /// # Errors
    /// `CLOSED`; `CORRUPT` if a former owner left no valid description.
    pub fn contents(&self) -> Result<Contents> {
        self.memory()?.contents().map_err(|e| self.named(e))
    }

    /// Describes the contents anew. The bytes stay as they are.
    ///
    /// # Errors
    /// `INVALID` if the description does not fit, `CLOSED`, `BUSY` while the item's heap is in use.
    pub fn describe(&mut self, contents: &Contents) -> Result<()> {
        self.open.close_region()?;
        let open = &self.open;
        let named = |error: Error| open.named(error);
        match &mut self.state {
            State::Own(memory) => memory.describe(contents).map_err(named),
            State::Cooperative(memory, _) => memory.describe_held(contents).map_err(named),
            State::Spent(why) => Err(Error::new(Status::Closed, why.clone())),
        }
    }

    /// The heap in an item that was described as holding one. All clones must be dropped before the item is handed on.
    ///
    /// # Errors
    /// `WRONG_TYPE` if the item holds something else, `CORRUPT`, `CLOSED`.
    pub fn region(&mut self) -> Result<Region> {
        self.open.region_in(self.state.memory()?)
    }

    /// The heap in the item, as `mode` says: an existing one, one that is made of the item's bytes, or a new one.
    ///
    /// # Errors
    /// `EXISTS` if there is a heap and must not be one; otherwise as [`Item::region`] and [`Item::describe`].
    pub fn open_region(&mut self, mode: Mode) -> Result<Region> {
        let there = self.contents()? == Contents::Heap;
        match mode {
            Mode::CreateOnly if there => {
                return Err(Error::new(Status::Exists, format!("item '{}' holds a heap already", self.key())));
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
        self.state.memory()
    }

    /// A handle of an item that the daemon gave.
    fn new(session: &Session, given: ItemGiven, state: State) -> Self {
        Self { open: OpenItem::new(session, given), state }
    }
}

impl Drop for Item {
    fn drop(&mut self) {
        self.open.drop_region();
        match std::mem::replace(&mut self.state, State::Spent(String::new())) {
            State::Own(memory) => {
                drop(memory);
                self.open.session.connection().release_item(self.id());
            }
            // A forked child has nothing to release.
            State::Cooperative(memory, _) if self.open.session.connection().check_process().is_ok() => {
                let _ = memory.let_go(self.open.session.member());
            }
            _ => {}
        }
    }
}

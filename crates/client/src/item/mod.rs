//! Items: data that exactly one task owns at a time (the idea comes from the CDI paper, see `docs/papers.md`).
//!
//! The task that makes an item owns it. The owner reads, writes, copies, resizes, shares, transfers and destroys the
//! item; no other task can reach it. A transfer is one atomic step without a copy. The daemon asks the kernel whether
//! the former owner still has the memory open or mapped. If so, the new owner gets a copy instead.
//!
//! An [`Item`] is *spent* after its task has handed it on. A spent `Item` has no bytes, and every call on it fails with
//! an error that names the new owner. Methods such as [`Item::transfer`] take the `Item` by value, so a later use of it
//! does not compile.

mod cooperative;
mod handing;
mod opened;
mod options;
mod session;
mod shared;
mod spent;

use crossdock_core::item::{HolderToken, ItemMemory};
use crossdock_layout::Status;
use crossdock_layout::wire::ItemGiven;
use std::sync::Arc;

pub use crossdock_core::item::Contents;
pub use crossdock_layout::wire::{ItemLevel, ItemState, OnDeath, Party};
pub use opened::OpenItem;
pub use options::{ItemInfo, ItemOptions, address, party};
pub use shared::{ItemView, SharedItem};

pub(crate) use cooperative::CooperativeItems;

use cooperative::MappedItem;
use spent::SpentReason;

use crate::{Error, Mode, Region, Result, Session};

/// An item that this task owns and has open. When this value is dropped, the item is closed. The item still belongs to
/// this task, so the task may open it again.
#[derive(Debug)]
pub struct Item {
    open: OpenItem,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Only this process has the item mapped.
    Own(ItemMemory),
    /// The item is cooperative, so each task that has ever opened it keeps it mapped. This member is the item's holder,
    /// and the session counts the item as held.
    Cooperative(Arc<MappedItem>, HolderToken),
    /// The value has no item any more.
    Spent(SpentReason),
}

impl State {
    /// The item's memory. `key` is the item's key, for the error.
    fn memory(&self, key: &str) -> Result<&ItemMemory> {
        match self {
            Self::Own(memory) => Ok(memory),
            Self::Cooperative(mapped, _) => Ok(&mapped.memory),
            Self::Spent(reason) => Err(reason.error(key)),
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
    /// Tells whether this value still has the item.
    #[must_use]
    pub fn is_open(&self) -> bool {
        !matches!(self.state, State::Spent(_))
    }

    /// Fails if this value no longer has the item. The error says which task got the item.
    ///
    /// # Errors
    /// `CLOSED` if this value has no item any more.
    pub fn check_open(&self) -> Result<()> {
        self.memory().map(drop)
    }

    /// The address of the item's data in this process; null if the item is spent. Resizing the item may change the
    /// address.
    #[must_use]
    pub fn base(&self) -> *mut u8 {
        self.memory().map_or(std::ptr::null_mut(), ItemMemory::base)
    }

    /// The item's data; empty if this value no longer has the item.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.memory().map_or(&[], ItemMemory::bytes)
    }

    /// The item's data, to be changed; empty if this value no longer has the item.
    #[must_use]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match &mut self.state {
            State::Own(memory) => memory.bytes_mut(),
            State::Cooperative(mapped, held) => mapped.memory.bytes_held(held),
            State::Spent(_) => &mut [],
        }
    }

    /// Gives the description of the contents, which the owner or a former owner has set.
    ///
    /// # Errors
    /// `CLOSED` if the item is spent. `CORRUPT` if a former owner left no valid description.
    pub fn contents(&self) -> Result<Contents> {
        self.memory()?.contents().map_err(|e| self.named(e))
    }

    /// Sets a new description of the contents. The bytes stay as they are.
    ///
    /// # Errors
    /// `INVALID` if the description does not fit the item, `CLOSED` if the item is spent, `BUSY` while the item's heap
    /// is in use, `DISCONNECTED` in a forked child.
    pub fn describe(&mut self, contents: &Contents) -> Result<()> {
        self.check_process()?;
        self.open.close_region()?;
        let open = &self.open;
        let named = |error: Error| open.named(error);
        match &mut self.state {
            State::Own(memory) => memory.describe(contents).map_err(named),
            State::Cooperative(mapped, _) => mapped.memory.describe_held(contents).map_err(named),
            State::Spent(reason) => Err(reason.error(open.key())),
        }
    }

    /// Opens the heap of an item whose description says that the item holds a heap. All clones of the region must be
    /// dropped before the item is transferred.
    ///
    /// # Errors
    /// `WRONG_TYPE` if the item's description names no heap, `CORRUPT` if the bytes are no valid heap, `CLOSED` if the
    /// item is spent, `DISCONNECTED` in a forked child.
    pub fn region(&mut self) -> Result<Region> {
        self.check_process()?;
        self.open.region_in(self.state.memory(self.open.key())?)
    }

    /// Opens the heap in the item. `mode` says whether the heap must exist, must not exist yet, may be made, or is
    /// replaced by an empty heap.
    ///
    /// # Errors
    /// `EXISTS` if `mode` forbids an existing heap and the item has a heap; otherwise as [`Item::region`] and
    /// [`Item::describe`].
    pub fn open_region(&mut self, mode: Mode) -> Result<Region> {
        self.check_process()?;
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
        self.state.memory(self.key())
    }

    /// Makes the value for an item that the daemon gave and that is not cooperative.
    fn owned(session: &Session, given: ItemGiven, memory: ItemMemory) -> Self {
        Self { open: OpenItem::new(session, Arc::new(given)), state: State::Own(memory) }
    }

    /// Makes the value for a cooperative item that this member holds from now on. As long as the value has the item, the
    /// session does not leave. If it left, the other members would believe that the holder is gone, and one of them
    /// would take the item. The caller must have a [`crate::connection::Taking`].
    fn held(open: OpenItem, mapped: Arc<MappedItem>, token: HolderToken) -> Self {
        open.session.connection().holds_item();
        Self { open, state: State::Cooperative(mapped, token) }
    }

    /// Takes the item away from this value.
    fn spend(&mut self, reason: SpentReason) {
        if let State::Cooperative(..) = std::mem::replace(&mut self.state, State::Spent(reason)) {
            self.open.session.connection().holds_item_no_more();
        }
    }
}

impl Drop for Item {
    fn drop(&mut self) {
        self.open.drop_region();
        match &self.state {
            State::Own(_) => {
                // The memory is unmapped before the daemon hears that the item is closed.
                self.spend(SpentReason::Closed);
                self.open.session.connection().release_item(self.id());
            }
            State::Cooperative(mapped, _) => {
                // Only the process that made the session holds the item; a forked child does not. So only that process
                // gives the item up.
                if self.check_process().is_ok() {
                    let _ = mapped.memory.let_go(self.open.session.member());
                }
                self.spend(SpentReason::Closed);
            }
            State::Spent(_) => {}
        }
    }
}

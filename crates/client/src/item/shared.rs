//! Items that are shared for reading: `ItemView` for a reader, and `SharedItem` for the owner.

use std::sync::Arc;
use std::time::Duration;

use crossdock_core::item::{Backing, ItemMemory};
use crossdock_layout::wire::{Answer, ItemGiven, ItemRequest};
use crossdock_layout::{SegmentId, Status};

use super::session::{milliseconds, taken};
use super::{Contents, Item, OpenItem};
use crate::connection::Answered;
use crate::segment::SegmentOpening;
use crate::{Error, Region, Result, SegmentKind, Session};

/// A shared item that is open for reading. Its bytes do not change as long as this value exists, because an owner that
/// takes the item back waits for its readers or continues with a copy.
#[derive(Debug)]
pub struct ItemView {
    open: OpenItem,
    // Rust drops fields from the first to the last. So the memory is unmapped before `_opening` tells the daemon that
    // the view is closed.
    memory: ItemMemory,
    _opening: SegmentOpening,
}

impl std::ops::Deref for ItemView {
    type Target = OpenItem;
    fn deref(&self) -> &OpenItem {
        &self.open
    }
}

impl ItemView {
    pub(super) fn new(session: &Session, given: ItemGiven, memory: ItemMemory, opening: SegmentOpening) -> Self {
        Self { open: OpenItem::new(session, Arc::new(given)), memory, _opening: opening }
    }

    /// The item's data. They are mapped read-only, so a write to them causes a SIGSEGV.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.memory.bytes()
    }

    /// The address of the item's data in this process.
    #[must_use]
    pub fn base(&self) -> *const u8 {
        self.memory.base()
    }

    /// Describes what the item's bytes contain.
    ///
    /// # Errors
    /// `CORRUPT` if the owner left no valid description.
    pub fn contents(&self) -> Result<Contents> {
        self.memory.contents().map_err(|e| self.named(e))
    }

    /// Opens the heap in the item for reading.
    ///
    /// # Errors
    /// `WRONG_TYPE` if the item's description names no heap, `CORRUPT` if the bytes are no valid heap.
    pub fn region(&mut self) -> Result<Region> {
        self.open.region_in(&self.memory)
    }
}

/// An item that this task owns and shares. The task can read it like every other task, and can take it back.
#[derive(Debug)]
pub struct SharedItem {
    /// The view of the item; `None` after the item was taken back.
    view: Option<ItemView>,
    session: Session,
    item: SegmentId,
    key: String,
}

impl SharedItem {
    pub(super) fn new(view: ItemView) -> Self {
        let (session, item, key) = (view.session().clone(), view.id(), view.key().to_owned());
        Self { view: Some(view), session, item, key }
    }

    /// The item's key in the workflow.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The view for reading the item.
    ///
    /// # Errors
    /// `CLOSED` after the item was taken back. Also `CLOSED` if taking back failed and this process could not open the
    /// item again.
    pub fn view(&self) -> Result<&ItemView> {
        self.view.as_ref().ok_or_else(|| gone(&self.key))
    }

    /// Opens the heap in the item for reading.
    ///
    /// # Errors
    /// As for [`SharedItem::view`] and [`ItemView::region`].
    pub fn region(&mut self) -> Result<Region> {
        self.view.as_mut().ok_or_else(|| gone(&self.key))?.region()
    }

    /// The item's data; empty after the item was taken back.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.view.as_ref().map_or(&[], ItemView::bytes)
    }

    /// Takes the item back in order to write it. Until the timeout, the call waits for the readers to close the item.
    /// If a reader still has the item open at the timeout, that reader keeps the old bytes, and this task continues
    /// with a copy.
    ///
    /// # Errors
    /// `NO_SPACE` if a reader still has the item and there is no room for the copy. `BUSY` while the item's heap is in
    /// use. `CLOSED` if the item was taken back already.
    pub fn unshare(mut self, timeout: Option<Duration>) -> Result<Item> {
        self.unshare_mut(timeout)
    }

    /// Works like [`SharedItem::unshare`], for a caller that has only a `&mut SharedItem`. After a success every
    /// further call on this `SharedItem` fails. After an error this `SharedItem` still has the item. But if this
    /// process could not open the item again, the item is closed; the item still belongs to this task.
    ///
    /// # Errors
    /// As for [`SharedItem::unshare`].
    pub fn unshare_mut(&mut self, timeout: Option<Duration>) -> Result<Item> {
        let Some(view) = &mut self.view else {
            return Err(Error::new(Status::Closed, format!("item '{}' was taken back already", self.key)));
        };
        view.open.close_region()?;
        // This process unmaps its view before it asks the daemon. Otherwise the kernel could not prove that no process
        // reads the item.
        self.view = None;
        let request = ItemRequest::Unshare { item: self.item, wait_ms: milliseconds(timeout) };
        let answer = self.session.ask_item(request, Some(timeout.unwrap_or_default()));
        answer.and_then(|answer| self.open_own(answer)).or_else(|error| {
            // The request failed. Either the item is still shared, or the daemon has taken it back and this process
            // could not map it. The answer to a request to reopen the item shows which of the two is true.
            let reopen = || self.session.ask_item(ItemRequest::Reopen { item: self.item }, None);
            let opened = match reopen() {
                Ok(answer) if matches!(&answer.0, Answer::Item(given) if given.writable) => self.open_own(answer),
                again => {
                    self.view = again.and_then(|answer| self.session.opened_view(answer)).ok();
                    Err(error)
                }
            };
            if opened.is_err() && self.view.is_none() {
                // This value has no view of the item, so dropping the value will not close the item. So the item is
                // closed here.
                self.session.connection().release_item(self.item);
            }
            opened
        })
    }

    /// Opens the item for writing, after the daemon has ended the sharing.
    fn open_own(&self, answer: Answered) -> Result<Item> {
        let (given, descriptor) = taken(answer)?;
        let memory = ItemMemory::open(&descriptor, given.size, Backing::Own)
            .map_err(|e| e.about(SegmentKind::Item, &self.key))?;
        Ok(Item::owned(&self.session, given, memory))
    }
}

fn gone(key: &str) -> Error {
    Error::new(Status::Closed, format!("item '{key}' could not be opened again"))
}

impl Drop for SharedItem {
    fn drop(&mut self) {
        if self.view.take().is_some() {
            // The item stays shared and still belongs to this task, so the task's next process can open it again.
            self.session.connection().release_item(self.item);
        }
    }
}

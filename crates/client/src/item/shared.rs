//! Items that are shared for reading: a reader's view, and the owner's.

use std::sync::Arc;
use std::time::Duration;

use crossdock_core::item::{Backing, ItemMemory};
use crossdock_layout::wire::{Answer, ItemGiven, ItemLevel, ItemRequest, OnDeath};
use crossdock_layout::{SegmentId, Status};

use super::session::{milliseconds, taken};
use super::{Contents, Item, State};
use crate::connection::Answered;
use crate::segment::Lease;
use crate::{Error, Region, Result, SegmentKind, Session};

/// A shared item, open for reading. Its bytes do not change for as long as this lives: an owner that takes the item back
/// waits for its readers, or goes on with a copy.
#[derive(Debug)]
pub struct ItemView {
    session: Session,
    given: ItemGiven,
    region: Option<Region>,
    // Unmapped before the daemon hears that it is.
    memory: ItemMemory,
    _lease: Lease,
}

impl ItemView {
    pub(super) fn new(session: Session, given: ItemGiven, memory: ItemMemory, lease: Lease) -> Self {
        Self { session, given, region: None, memory, _lease: lease }
    }

    /// Its key in the workflow.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.given.key
    }

    /// Its number; no other item ever has it.
    #[must_use]
    pub fn id(&self) -> SegmentId {
        self.given.item
    }

    /// Bytes of data.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.given.size
    }

    /// How ownership is proved.
    #[must_use]
    pub fn level(&self) -> ItemLevel {
        self.given.level
    }

    /// What becomes of it when its owner is gone.
    #[must_use]
    pub fn on_death(&self) -> OnDeath {
        self.given.on_death
    }

    /// The session that it was opened by.
    #[must_use]
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Its data. A store through the address is a fault.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.memory.bytes()
    }

    /// Where its data begins in this process.
    #[must_use]
    pub fn base(&self) -> *const u8 {
        self.memory.base()
    }

    /// What it holds.
    ///
    /// # Errors
    /// `CORRUPT` if its owner left something else there.
    pub fn contents(&self) -> Result<Contents> {
        self.memory.contents().map_err(|e| e.about(SegmentKind::Item, &self.given.key))
    }

    /// The heap in it, to be read.
    ///
    /// # Errors
    /// `WRONG_TYPE` if it holds something else, `CORRUPT`.
    pub fn region(&mut self) -> Result<Region> {
        if self.contents()? != Contents::Heap {
            return Err(Error::new(Status::WrongType, format!("item '{}' holds no heap", self.given.key)));
        }
        if self.region.is_none() {
            let mapping = self.memory.data_again()?;
            let region = self.session.region_in_item(&self.given.key, self.given.item, mapping, false)?;
            self.region = Some(region);
        }
        self.region.clone().ok_or_else(|| Error::new(Status::Closed, "the region is gone"))
    }

    /// May it be closed: is its heap not in use?
    fn check_unused(&mut self) -> Result<()> {
        match self.region.take() {
            Some(region) if Arc::strong_count(&region) > 1 => {
                self.region = Some(region);
                let text = format!("the heap of item '{}' is still in use here", self.given.key);
                Err(Error::new(Status::Busy, text))
            }
            _ => Ok(()),
        }
    }
}

/// An item that this task shares: it may read it like the others, and take it back.
#[derive(Debug)]
pub struct SharedItem {
    /// Gone once it was taken back.
    view: Option<ItemView>,
    session: Session,
    item: SegmentId,
    key: String,
}

impl SharedItem {
    pub(super) fn new(view: ItemView) -> Self {
        let (session, item, key) = (view.session.clone(), view.id(), view.key().to_owned());
        Self { view: Some(view), session, item, key }
    }

    /// Its key in the workflow.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// It, to be read.
    ///
    /// # Errors
    /// `CLOSED` once it was taken back, or if it could not be opened again when that failed.
    pub fn view(&self) -> Result<&ItemView> {
        self.view.as_ref().ok_or_else(|| gone(&self.key))
    }

    /// The heap in it, to be read.
    ///
    /// # Errors
    /// As for [`SharedItem::view`] and [`ItemView::region`].
    pub fn region(&mut self) -> Result<Region> {
        self.view.as_mut().ok_or_else(|| gone(&self.key))?.region()
    }

    /// Its data; none once it was taken back.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.view.as_ref().map_or(&[], ItemView::bytes)
    }

    /// Takes the item back, to be written again. Readers have until the timeout to leave; who has not left then keeps the
    /// bytes as they were, and this task goes on with a copy.
    ///
    /// # Errors
    /// `NO_SPACE` if a needed copy has no room, `BUSY` while its heap is in use.
    pub fn unshare(mut self, timeout: Option<Duration>) -> Result<Item> {
        self.unshare_mut(timeout)
    }

    /// [`SharedItem::unshare`] for those who must keep the handle: spent afterwards, as it was if it fails.
    ///
    /// # Errors
    /// As for [`SharedItem::unshare`].
    pub fn unshare_mut(&mut self, timeout: Option<Duration>) -> Result<Item> {
        let Some(view) = &mut self.view else {
            return Err(Error::new(Status::Closed, format!("item '{}' was taken back already", self.key)));
        };
        view.check_unused()?;
        // Unmapped first, and told: then the kernel can prove that no process reads.
        self.view = None;
        let request = ItemRequest::Unshare { item: self.item, wait_ms: milliseconds(timeout) };
        let answer = self.session.ask_item(request, Some(timeout.unwrap_or_default()));
        answer.and_then(|answer| self.open_own(answer)).or_else(|error| {
            // It is as it was, or was taken back before there was no room to open it.
            let reopen = || self.session.ask_item(ItemRequest::Reopen { item: self.item }, None);
            match reopen() {
                Ok(answer) if matches!(&answer.0, Answer::Item(given) if given.writable) => self.open_own(answer),
                again => {
                    self.view = again.and_then(|answer| self.session.opened_view(answer)).ok();
                    Err(error)
                }
            }
        })
    }

    /// What the daemon gave to write again.
    fn open_own(&self, answer: Answered) -> Result<Item> {
        let (given, descriptor) = taken(answer)?;
        let memory = ItemMemory::open(&descriptor, given.size, Backing::Own)
            .map_err(|e| e.about(SegmentKind::Item, &self.key))?;
        Ok(Item::new(&self.session, given, State::Own(memory)))
    }
}

fn gone(key: &str) -> Error {
    Error::new(Status::Closed, format!("item '{key}' could not be opened again"))
}

impl Drop for SharedItem {
    fn drop(&mut self) {
        if self.view.take().is_some() {
            // It stays shared, and this task's; the task's next process may access it again.
            self.session.connection().release_item(self.item);
        }
    }
}

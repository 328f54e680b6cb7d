//! The common part of every open item: its session, the daemon's answer about it, and its heap if a caller opened the
//! heap.

use std::sync::Arc;

use crossdock_core::item::{Contents, ItemMemory};
use crossdock_core::region::is_heap_mapped;
use crossdock_layout::wire::{ItemGiven, ItemLevel, OnDeath};
use crossdock_layout::{SegmentId, Status};

use crate::session_objects::OpenHeap;
use crate::{Error, Region, Result, SegmentKind, Session};

/// An item that is open in this process. [`super::Item`] and [`super::ItemView`] deref to it.
#[derive(Debug)]
pub struct OpenItem {
    pub(super) session: Session,
    /// The daemon's answer. All values that open one cooperative item in this session share it until one of them changes
    /// it.
    pub(super) given: Arc<ItemGiven>,
    heap: Option<OpenHeap>,
}

impl OpenItem {
    pub(super) fn new(session: &Session, given: Arc<ItemGiven>) -> Self {
        Self { session: session.clone(), given, heap: None }
    }

    /// The item's key in the workflow.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.given.key
    }

    /// The item's number. No other item ever has it.
    #[must_use]
    pub fn id(&self) -> SegmentId {
        self.given.item
    }

    /// The number of bytes of data. The number stays as it is when the item has gone to another owner.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.given.size
    }

    /// The level at which ownership of the item is proved.
    #[must_use]
    pub fn level(&self) -> ItemLevel {
        self.given.level
    }

    /// What happens to the item when its owner dies or leaves.
    #[must_use]
    pub fn on_death(&self) -> OnDeath {
        self.given.on_death
    }

    /// The session that opened the item.
    #[must_use]
    pub fn session(&self) -> &Session {
        &self.session
    }

    pub(super) fn named(&self, error: Error) -> Error {
        error.about(SegmentKind::Item, &self.given.key)
    }

    /// Returns the heap in the item's memory, and opens the heap at the first call.
    pub(super) fn region_in(&mut self, memory: &ItemMemory) -> Result<Region> {
        if memory.contents().map_err(|e| self.named(e))? != Contents::Heap {
            let text = "it holds no heap; describe it as one when you make it";
            return Err(self.named(Error::new(Status::WrongType, text)));
        }
        if let Some(heap) = &self.heap {
            return Ok(heap.region.clone());
        }
        let mapping = memory.data_again().map_err(|e| self.named(e))?;
        let heap = self.session.region_in_item(&self.given, mapping, memory.writable())?;
        Ok(self.heap.insert(heap).region.clone())
    }

    /// Closes the heap, before the item is transferred or its heap is made anew. Fails if the program still uses the
    /// heap.
    ///
    /// The memory of a cooperative item stays the same when the item is closed and opened again. So its heap is also
    /// in use if the program has not dropped a heap that it got before the item was closed, in any session.
    pub(super) fn close_region(&mut self) -> Result<()> {
        self.heap = self.heap.take().filter(|heap| Arc::strong_count(&heap.region) > 1);
        let cooperative = self.given.level == ItemLevel::Cooperative;
        if self.heap.is_some() || cooperative && is_heap_mapped(self.given.file) {
            let text = "its heap is still in use here; drop what refers to it first";
            return Err(self.named(Error::new(Status::Busy, text)));
        }
        Ok(())
    }

    /// Forgets the heap without a check whether the program still uses it, because the item is closed in any case.
    pub(super) fn drop_region(&mut self) {
        self.heap = None;
    }
}

//! The state of an open item, which all Python objects that refer to its memory share. It says whether this process has
//! the item as owner or as reader, and counts the views.
//!
//! When an item is handed on, its memory goes to another task. So an item can be handed on only while this process has
//! no view of the memory. A lock protects the state, and is never held during a call of Python code or of the daemon.
//! So a call that changes the item moves the item out of the protected state, changes it without the lock, and puts it
//! back.

use std::sync::{Arc, Mutex, MutexGuard};

use crossdock_client::{Contents, Error, Item as Inner, ItemView, Result, SegmentKind, SharedItem, Status};
use pyo3::prelude::*;

use crate::errors::{OrRaise, error};
use crate::fork::{Own, OwnLock, elsewhere};
use crate::views::{lock, viewed};
use crate::wait::in_thread;

/// The access that this process has to an item: as its owner, as an owner who shares it, as a reader, or none.
pub enum Access {
    /// The item belongs to this task. After the item was handed on or destroyed, each call on it fails.
    Own(Own<Inner>),
    /// The item belongs to this task, and the task shares it.
    Shared(Own<SharedItem>),
    /// The item belongs to another task, and this process reads it.
    Read(Own<ItemView>),
    /// This process has closed the item.
    Closed,
    /// Another thread is changing the item and has taken it out of the lock.
    Moving,
}

impl Access {
    /// The key of the item in the workflow.
    fn key(&self) -> &str {
        match self {
            Self::Own(item) => item.key(),
            Self::Shared(shared) => shared.key(),
            Self::Read(view) => view.key(),
            Self::Closed | Self::Moving => "",
        }
    }

    fn here(&self) -> bool {
        match self {
            Self::Own(item) => item.here(),
            Self::Shared(shared) => shared.here(),
            Self::Read(view) => view.here(),
            Self::Closed | Self::Moving => true,
        }
    }

    /// The item, if this task can change it and hand it on; otherwise an error.
    pub fn owned(&mut self) -> Result<&mut Inner> {
        match self {
            Self::Own(item) => item.check_open().map(|()| &mut **item),
            Self::Shared(shared) => {
                let text = format!("item '{}' is shared; call its unshare() first", shared.key());
                Err(Error::new(Status::Busy, text))
            }
            Self::Read(view) => Err(Error::read_only().about(SegmentKind::Item, view.key())),
            Self::Closed => Err(Error::closed_here()),
            Self::Moving => {
                Err(Error::new(Status::Busy, "another thread is changing the item; do one after the other"))
            }
        }
    }

    /// The address of the bytes, their number, and whether they can be written.
    fn mapped(&self) -> Result<(*mut u8, u64, bool)> {
        match self {
            Self::Own(item) => item.check_open().map(|()| (item.base(), item.size(), true)),
            Self::Shared(shared) => shared.view().map(|view| (view.base().cast_mut(), view.size(), false)),
            Self::Read(view) => Ok((view.base().cast_mut(), view.size(), false)),
            Self::Closed => Err(Error::closed_here()),
            Self::Moving => Err(Error::new(Status::Busy, "another thread is changing the item; look at it afterwards")),
        }
    }

    /// Describes what the bytes of the item contain.
    pub fn contents(&self) -> Result<Contents> {
        self.mapped()?;
        match self {
            Self::Own(item) => item.contents(),
            Self::Shared(shared) => shared.view()?.contents(),
            Self::Read(view) => view.contents(),
            Self::Closed | Self::Moving => Ok(Contents::Bytes),
        }
    }
}

struct State {
    access: Access,
    views: usize,
    /// True if the item was closed while it still had views. In this case the item is dropped when the last view is
    /// gone.
    leaving: bool,
}

/// An open item, which several Python objects share.
pub struct OpenItem {
    /// The key of the item in the workflow.
    pub key: String,
    state: OwnLock<Mutex<State>>,
}

/// The bytes of an item, as they are mapped in this process.
pub struct Bytes {
    /// The address of the first byte in this process.
    pub base: *mut u8,
    /// The number of bytes of the item's data.
    pub size: u64,
    /// Tells whether this process may write the bytes.
    pub writable: bool,
}

impl OpenItem {
    /// Makes the state of an item that was just opened.
    pub fn new(access: Access) -> Self {
        let key = access.key().to_owned();
        Self { key, state: OwnLock::new(Mutex::new(State { access, views: 0, leaving: false })) }
    }

    /// Tells whether this process can no longer use the item.
    pub fn is_closed(&self) -> bool {
        let Some(state) = self.state.here() else { return true };
        let state = lock(state);
        state.leaving || !matches!(state.access, Access::Moving) && state.access.mapped().is_err()
    }

    /// Locks the state; an error if the item belongs to another process. The caller releases the lock before it makes
    /// an exception.
    fn enter(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, State>> {
        let state = self.state.here().map(lock).filter(|state| state.access.here());
        state.ok_or_else(|| elsewhere(py, &format!("item '{}'", self.key)))
    }

    /// The item's bytes.
    pub fn bytes(&self, py: Python<'_>) -> PyResult<Bytes> {
        let found = {
            let state = self.enter(py)?;
            if state.leaving { Access::Closed.mapped() } else { state.access.mapped() }
        };
        let (base, size, writable) = found.or_raise(py)?;
        Ok(Bytes { base, size, writable })
    }

    /// Describes what the bytes of the item contain.
    pub fn contents(&self, py: Python<'_>) -> PyResult<Contents> {
        let found = self.enter(py)?.access.contents();
        found.or_raise(py)
    }

    /// Counts one more array over the bytes. The bytes stay at their address until the returned `ItemArrayBase` is
    /// dropped.
    pub fn view(self: &Arc<Self>, py: Python<'_>) -> PyResult<(Bytes, ItemArrayBase)> {
        let found = {
            let mut state = self.enter(py)?;
            let mapped = if state.leaving { Access::Closed.mapped() } else { state.access.mapped() };
            state.views += usize::from(mapped.is_ok());
            mapped
        };
        let (base, size, writable) = found.or_raise(py)?;
        Ok((Bytes { base, size, writable }, ItemArrayBase { item: self.clone() }))
    }

    /// Makes a change that moves the item's memory or takes it away from this process. Fails if a view of the memory
    /// exists.
    pub fn exclusively<T: Send>(
        self: &Arc<Self>,
        py: Python<'_>,
        verb: &str,
        change: impl FnOnce(&mut Access) -> Result<T> + Send,
    ) -> PyResult<T> {
        self.take(py, verb, false)?.change(py, change)
    }

    /// Makes a change that leaves the memory at its address, so arrays over the memory may exist.
    pub fn beside_views<T: Send>(
        self: &Arc<Self>,
        py: Python<'_>,
        verb: &str,
        change: impl FnOnce(&mut Access) -> Result<T> + Send,
    ) -> PyResult<T> {
        self.take(py, verb, true)?.change(py, change)
    }

    /// Works like `exclusively`, for a change that may wait long. Python's signals are handled meanwhile. After Ctrl-C,
    /// the change continues in its thread.
    pub fn exclusively_in_thread<T: Send + 'static>(
        self: &Arc<Self>,
        py: Python<'_>,
        verb: &str,
        change: impl FnOnce(&mut Access) -> Result<T> + Send + 'static,
    ) -> PyResult<T> {
        let mut taken = self.take(py, verb, false)?;
        in_thread(py, move || change(&mut taken.access))
    }

    /// Fails if more than `allowed` arrays over the bytes are alive.
    pub fn refuse_views(&self, py: Python<'_>, verb: &str, allowed: usize) -> PyResult<()> {
        let count = self.enter(py)?.views.saturating_sub(allowed);
        if count == 0 { Ok(()) } else { Err(self.busy(py, verb, &viewed(count))) }
    }

    fn busy(&self, py: Python<'_>, verb: &str, why: &str) -> PyErr {
        error(py, Status::Busy, format!("item '{}' cannot be {verb}: {why}", self.key))
    }

    /// Moves the item out of the state that the lock protects, so that the caller can change the item without the lock.
    /// Meanwhile, another thread that wants to change the item gets an error.
    fn take(self: &Arc<Self>, py: Python<'_>, verb: &str, beside_views: bool) -> PyResult<TakenAccess> {
        let taken = {
            let mut state = self.enter(py)?;
            match (&state.access, state.views) {
                (Access::Moving, _) => Err("another thread is changing it; do one after the other".to_owned()),
                _ if state.leaving => Ok(Access::Closed),
                (_, count) if count == 0 || beside_views => Ok(std::mem::replace(&mut state.access, Access::Moving)),
                (_, count) => Err(viewed(count)),
            }
        };
        let access = taken.map_err(|why| self.busy(py, verb, &why))?;
        Ok(TakenAccess { item: self.clone(), access })
    }

    /// Closes the item in this process: now, or when the last view is gone. The item's owner does not change.
    pub fn let_go(&self) {
        let Some(state) = self.state.here() else { return };
        let gone = {
            let mut state = lock(state);
            state.leaving = true;
            if state.views == 0 { std::mem::replace(&mut state.access, Access::Closed) } else { Access::Closed }
        };
        drop(gone);
    }
}

/// An item that a thread has moved out of the state that the lock protects. When this value is dropped, the item is put
/// back.
struct TakenAccess {
    item: Arc<OpenItem>,
    access: Access,
}

impl TakenAccess {
    /// Makes a change and puts the item back, and lets other Python threads run meanwhile.
    fn change<T: Send>(mut self, py: Python<'_>, change: impl FnOnce(&mut Access) -> Result<T> + Send) -> PyResult<T> {
        py.detach(move || change(&mut self.access)).or_raise(py)
    }
}

impl Drop for TakenAccess {
    fn drop(&mut self) {
        // If another thread has closed the item meanwhile, the item is dropped here, after the lock is released.
        let access = std::mem::replace(&mut self.access, Access::Closed);
        let Some(state) = self.item.state.here() else { return };
        let mut state = lock(state);
        if matches!(state.access, Access::Moving) {
            state.access = access;
        }
    }
}

/// The base object of an array over an item's memory. It counts as a view.
#[pyclass(frozen, module = "crossdock._native")]
pub struct ItemArrayBase {
    item: Arc<OpenItem>,
}

impl Drop for ItemArrayBase {
    fn drop(&mut self) {
        let Some(state) = self.item.state.here() else { return };
        let gone = {
            let mut state = lock(state);
            state.views -= 1;
            let last = state.views == 0 && state.leaving;
            if last { std::mem::replace(&mut state.access, Access::Closed) } else { Access::Closed }
        };
        drop(gone);
    }
}

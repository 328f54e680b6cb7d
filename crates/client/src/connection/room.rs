//! Reserves descriptors for an answer before its request is sent. If the process has no free descriptor, the call fails
//! before the daemon has done anything. To reserve a place in the descriptor table, this module fills it with a copy of
//! the socket's descriptor. The copies are closed just before the answer is read.
//!
//! If the daemon can give an answer twice, its place stays reserved while the answer is read, and for later requests.
//! This saves three system calls for each hand-over of an item. If the descriptor found no other place, the request is
//! sent again, and the place is given up before the second answer is read.

use crossdock_layout::wire::{ItemRequest, Request};
use crossdock_os::event;
use crossdock_os::socket::OwnSocket;

use super::State;
use super::asking::Pending;
use crate::Result;
use crate::handshake::no_descriptor;

/// The number of places in the descriptor table that this request needs, for the descriptors that its answer may bring.
pub(super) fn wanted(request: &Request) -> usize {
    match request {
        Request::Open { .. } | Request::Attach { .. } | Request::Pins { .. } => 1,
        Request::Observe { .. } => 2,
        Request::Item(
            ItemRequest::Create { .. }
            | ItemRequest::Access { .. }
            | ItemRequest::Share { .. }
            | ItemRequest::Unshare { .. }
            | ItemRequest::Resize { .. }
            | ItemRequest::Reopen { .. },
        ) => 1,
        _ => 0,
    }
}

impl State {
    /// Reserves `more` places in the descriptor table, for descriptors that answers will bring.
    pub(super) fn make_room(&mut self, more: usize) -> Result<()> {
        let all = self.awaited() + more;
        while more > 0 && self.room.len() < all {
            let copy = match &self.socket {
                Some(socket) => socket.duplicate().ok(),
                None => event::eventfd().ok().map(OwnSocket::new),
            };
            let Some(copy) = copy else {
                self.fit_room();
                return Err(no_descriptor());
            };
            self.room.push(copy);
        }
        Ok(())
    }

    /// Gives up the reserved places, because the descriptors of the message that is read next may need them. Keeps them
    /// if all requests that expect descriptors can be sent again.
    pub(super) fn make_way(&mut self) {
        if !self.pending.values().filter(|pending| pending.room() > 0).all(Pending::may_ask_again) {
            self.room.clear();
        }
    }

    /// Adapts the number of reserved places to the number of expected descriptors. If the process has too few free
    /// descriptors, reserves as many as possible. If no descriptor is expected, keeps at most one reserved place, for the
    /// next item.
    pub(super) fn fit_room(&mut self) {
        let awaited = self.awaited();
        self.room.truncate(awaited.max(1));
        if awaited > 0 {
            let _ = self.refill(awaited);
        }
    }

    fn refill(&mut self, all: usize) -> Option<()> {
        while self.room.len() < all {
            self.room.push(self.socket.as_ref()?.duplicate().ok()?);
        }
        Some(())
    }

    fn awaited(&self) -> usize {
        self.pending.values().map(Pending::room).sum()
    }
}

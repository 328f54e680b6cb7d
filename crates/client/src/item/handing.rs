//! The operations of an item's owner: transfer the item, copy, destroy, resize and share it.

use std::sync::Arc;
use std::time::Duration;

use crossdock_core::item::{Backing, ItemMemory};
use crossdock_layout::Status;
use crossdock_layout::wire::{Answer, ItemLevel, ItemRequest, OnDeath};

use super::{Item, ItemOptions, SharedItem, SpentReason, State, party};
use crate::connection::Answered;
use crate::{Error, Result};

impl Item {
    /// Gives the item to another task. `to` is a task such as `detect` (any rank of it), a rank such as `detect/3`, or
    /// a number such as `#7` (the task that registers number 7). The task need not exist yet. If a process that `to`
    /// names is waiting for the item, it has the item when this call returns.
    ///
    /// # Errors
    /// As for [`Item::transfer_mut`]. After an error the item is closed and still belongs to this task.
    pub fn transfer(mut self, to: &str) -> Result<()> {
        self.transfer_mut(to)
    }

    /// Works like [`Item::transfer`], for a caller that has only a `&mut Item`. After a transfer every further call on
    /// this `Item` fails. After an error this task still has the item, but the item's bytes may have another address.
    ///
    /// # Errors
    /// `INVALID` if `to` has none of the three forms that [`Item::transfer`] describes, or names this task itself.
    /// `DENIED` if that task has no grant to own the item. `BUSY` while the item's heap is in use. `CLOSED` if this
    /// task has already handed the item on. `NO_SPACE` if the daemon cannot record the transfer.
    pub fn transfer_mut(&mut self, to: &str) -> Result<()> {
        let addressee = party(to)?;
        self.check_process()?;
        self.memory()?;
        self.open.close_region()?;
        if let State::Cooperative(mapped, _) = &self.state {
            let word = self.open.session.word(&addressee)?;
            if mapped.own.contains(&word) {
                let text = format!("item '{}' belongs to this task already ({addressee})", self.key());
                return Err(Error::new(Status::Invalid, text));
            }
            mapped.memory.hand_over(word, self.open.session.member()).map_err(|e| self.named(e))?;
            self.spend(SpentReason::Transferred(addressee));
            return Ok(());
        }
        let reason = SpentReason::Transferred(addressee.clone());
        self.give_up(ItemRequest::Transfer { item: self.id(), to: addressee }, reason)
    }

    /// Removes the item. Tasks that wait for the item get an error.
    ///
    /// # Errors
    /// As for [`Item::destroy_mut`].
    pub fn destroy(mut self) -> Result<()> {
        self.destroy_mut()
    }

    /// Works like [`Item::destroy`], for a caller that has only a `&mut Item`.
    ///
    /// # Errors
    /// `BUSY` while the item's heap is in use, or while the item is on its way to another node. `CLOSED` if this task
    /// has already handed the item on.
    pub fn destroy_mut(&mut self) -> Result<()> {
        self.check_process()?;
        self.memory()?;
        self.open.close_region()?;
        let request = ItemRequest::Destroy { item: self.id() };
        if let State::Cooperative(mapped, _) = &self.state {
            mapped.memory.end(self.open.session.member()).map_err(|e| self.named(e))?;
            self.spend(SpentReason::Destroyed);
            self.open.session.items().forget(self.key(), self.id());
            return self.open.session.ask_item(request, None).map(drop);
        }
        self.give_up(request, SpentReason::Destroyed)
    }

    /// Checks that this process opened the item itself. A forked child has the same member id as its parent, so the
    /// member id in a cooperative item's memory does not show which of the two processes holds the item.
    pub(super) fn check_process(&self) -> Result<()> {
        self.open.session.connection().check_process()
    }

    /// Unmaps the memory and then sends the request. If the daemon refuses the request, opens the item again.
    fn give_up(&mut self, request: ItemRequest, reason: SpentReason) -> Result<()> {
        let opening = self.opening();
        self.spend(reason);
        self.open.session.ask_item(request, None).map(drop).inspect_err(|_| drop(self.open_again(opening)))
    }

    /// The number of the request by which this value got the item. While this value has the item, no other request of
    /// this session can open the item.
    fn opening(&self) -> Option<u64> {
        self.open.session.connection().opening_of(self.id())
    }

    /// Opens the item again, after a request about it has failed. If the daemon has in fact shared the item, returns
    /// the shared item; in all other cases returns `None`. `opening` is what `opening` gave before the request. If the
    /// daemon has in fact transferred the item, the item may have come back, and another thread of this session may
    /// have it. Then this value has no item.
    fn open_again(&mut self, opening: Option<u64>) -> Option<SharedItem> {
        let answer = self.open.session.ask_item(ItemRequest::Reopen { item: self.id() }, None);
        let is_shared = |answer: &Answered| matches!(&answer.0, Answer::Item(given) if !given.writable);
        let is_same = self.opening() == opening;
        if answer.as_ref().is_ok_and(is_shared) {
            let view = answer.and_then(|answer| self.open.session.opened_view(answer)).ok();
            return view.filter(|_| is_same).map(SharedItem::new);
        }
        let memory = answer.and_then(super::session::taken).and_then(|(given, descriptor)| {
            if !is_same {
                return Err(Error::new(Status::Closed, format!("item '{}' was handed on", self.key())));
            }
            let known = Arc::make_mut(&mut self.open.given);
            (known.size, known.file) = (given.size, given.file);
            ItemMemory::open(&descriptor, given.size, Backing::Own).map_err(|e| self.named(e))
        });
        self.state = match memory {
            Ok(memory) => State::Own(memory),
            Err(error) => {
                self.open.session.connection().release_opening(self.id(), opening);
                State::Spent(SpentReason::NotOpened(error))
            }
        };
        None
    }

    /// Makes a new item with the same bytes and the same description. This task owns the new item.
    ///
    /// # Errors
    /// As for [`crate::Session::create_item`].
    pub fn copy(&self, key: &str) -> Result<Item> {
        let contents = self.contents()?;
        // If this task dies before the copy is complete, the daemon removes the copy.
        let options = ItemOptions { size: self.size(), level: self.level(), on_death: OnDeath::Destroy, contents };
        let mut copy = self.open.session.create_item(key, &options)?;
        copy.bytes_mut().copy_from_slice(self.bytes());
        if self.on_death() != OnDeath::Destroy
            && let Err(error) = copy.set_on_death(self.on_death())
        {
            let _ = copy.destroy_mut();
            return Err(error);
        }
        Ok(copy)
    }

    /// Changes what happens to the item when its owner dies or leaves.
    ///
    /// # Errors
    /// `CLOSED` if this task has already handed the item on. `NO_SPACE` if the daemon cannot record the change.
    pub fn set_on_death(&mut self, on_death: OnDeath) -> Result<()> {
        self.check_process()?;
        self.memory()?;
        self.open.session.ask_item(ItemRequest::Policy { item: self.id(), on_death }, None)?;
        if let State::Cooperative(mapped, _) = &self.state {
            mapped.memory.set_on_death(on_death);
        }
        Arc::make_mut(&mut self.open.given).on_death = on_death;
        Ok(())
    }

    /// Gives the item another size. The bytes up to the smaller of the two sizes stay as they are; new bytes are zero.
    /// If the description of the contents does not fit the new size, it is replaced by "plain bytes". The data may be
    /// at another address after the call.
    ///
    /// # Errors
    /// `INVALID` if `size` is 0 or the item is cooperative. `NO_SPACE` if the quota or the node's memory does not
    /// suffice. `BUSY` while the item's heap is in use. `CLOSED` if this task has already handed the item on. After an
    /// error the item is as before.
    pub fn resize(&mut self, size: u64) -> Result<()> {
        self.check_process()?;
        self.memory()?;
        self.open.close_region()?;
        if self.level() == ItemLevel::Cooperative {
            let text = format!("item '{}' is cooperative; its size stays as it is. Make another one", self.key());
            return Err(Error::new(Status::Invalid, text));
        }
        let old = self.size();
        if let State::Own(memory) = &mut self.state
            && size > old
        {
            // The bytes behind the data are set to zero before the request. As soon as the daemon has given the item
            // the larger size, these bytes belong to the item, even if this process dies before it gets the answer.
            memory.clear_behind();
        }
        let opening = self.opening();
        // The mapping is removed before the daemon shrinks the item. Otherwise an access to the removed part of the
        // data would cause a SIGBUS.
        self.spend(SpentReason::Resizing);
        let opened = self.open.session.ask_item(ItemRequest::Resize { item: self.id(), size }, None);
        let memory = opened.and_then(super::session::taken).and_then(|(given, descriptor)| {
            let memory = ItemMemory::open(&descriptor, given.size, Backing::Own).map_err(|e| self.named(e))?;
            Ok((given.size, memory))
        });
        match memory {
            Ok((given, memory)) => {
                Arc::make_mut(&mut self.open.given).size = given;
                self.state = State::Own(memory);
                if self.contents().is_err() {
                    self.describe(&super::Contents::Bytes)?;
                }
                Ok(())
            }
            Err(error) if error.status == Status::NoSpace && self.shrink_back(old) => Err(error),
            Err(error) => {
                self.open_again(opening);
                Err(error)
            }
        }
    }

    /// Asks the daemon to give the item its old size again, because there was not enough memory for the new size.
    /// Otherwise the daemon would count bytes that do not exist. Returns `true` if the item is open with its old size.
    fn shrink_back(&mut self, old: u64) -> bool {
        let again = self.open.session.ask_item(ItemRequest::Resize { item: self.id(), size: old }, None);
        let memory = again.and_then(super::session::taken).and_then(|(given, descriptor)| {
            ItemMemory::open(&descriptor, given.size, Backing::Own).map_err(|e| self.named(e))
        });
        if let Ok(memory) = memory {
            self.state = State::Own(memory);
            return true;
        }
        false
    }

    /// Lets other tasks read the item. Until the owner takes the item back ([`SharedItem::unshare`]), no task can write
    /// it, not even the owner.
    ///
    /// # Errors
    /// `INVALID` if the item is cooperative. `NO_SPACE` if the daemon has to copy the item and has no room for the
    /// copy. `BUSY` while the item's heap is in use. `CLOSED` if this task has already handed the item on. After an
    /// error the item is closed and still belongs to this task. [`Item::share_mut`] keeps it open.
    pub fn share(mut self) -> Result<SharedItem> {
        self.share_mut()
    }

    /// Works like [`Item::share`], for a caller that has only a `&mut Item`. After a success every further call on this
    /// `Item` fails. After an error the `Item` still has the item, but the item's bytes may have another address.
    ///
    /// # Errors
    /// As for [`Item::share`].
    pub fn share_mut(&mut self) -> Result<SharedItem> {
        self.check_process()?;
        self.memory()?;
        self.open.close_region()?;
        if self.level() == ItemLevel::Cooperative {
            let text = format!("item '{}' is cooperative: all its tasks can read it already", self.key());
            return Err(Error::new(Status::Invalid, text));
        }
        let opening = self.opening();
        self.spend(SpentReason::Shared);
        let shared = self.open.session.ask_item(ItemRequest::Share { item: self.id() }, Some(Duration::ZERO));
        match shared.and_then(|answer| self.open.session.opened_view(answer)) {
            Ok(view) => Ok(SharedItem::new(view)),
            Err(error) => {
                // Perhaps the daemon shared the item, but this process had no memory to map it. In this case
                // `open_again` tries once more to map the shared item.
                self.open_again(opening).ok_or(error)
            }
        }
    }
}

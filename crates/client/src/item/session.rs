//! The session's calls for items: make, find, open, read, remove and register.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use crossdock_core::item::{Backing, ItemMemory, ItemWaitOutcome};
use crossdock_core::region::{self, MappedRegionParts};
use crossdock_layout::wire::{Answer, ItemGiven, ItemLevel, ItemRequest, KEYS_PER_MESSAGE, Party, Request};
use crossdock_layout::{MemberId, Status};
use crossdock_os::{Deadline, Mapping};

use super::cooperative::MappedItem;
use super::{Contents, Item, ItemInfo, ItemOptions, ItemView, OpenItem};
use crate::connection::Answered;
use crate::host::SessionHost;
use crate::segment::SegmentOpening;
use crate::session_objects::OpenHeap;
use crate::{Error, Result, SegmentKind, Session};

/// While the daemon prepares an item, a session waits at least for this time, even if the caller's timeout is shorter.
/// The daemon may need the time, for example to copy the item.
const READY: Duration = Duration::from_secs(60);
/// While a call waits for an item that the daemon prepares, it also asks the daemon whether the daemon is still
/// running. If the daemon does not answer within this time, it counts as stopped, and the call fails.
const ALIVE: Duration = Duration::from_secs(1);
/// How often a call that waits for a cooperative item checks whether another thread closes the session.
const LOOK: Duration = Duration::from_millis(50);

impl Session {
    /// Makes an item that this task owns. Its bytes are zero.
    ///
    /// # Errors
    /// `EXISTS` if an item has this key (the text names its owner). `INVALID` if the key is not allowed as a name, the
    /// size is 0, or the contents do not fit the size. `NO_SPACE` if the quota or the node's memory does not suffice.
    /// `DENIED` without a grant to own the item.
    pub fn create_item(&self, key: &str, options: &ItemOptions) -> Result<Item> {
        crate::session::check_name("item", key)?;
        options.contents.check(options.size.max(1))?;
        let (size, level, on_death) = (options.size, options.level, options.on_death);
        let request = ItemRequest::Create { size, level, on_death, key: key.to_owned() };
        let mut item = self.opened_item(self.ask_item(request, None)?, None)?;
        if options.contents != Contents::Bytes {
            item.describe(&options.contents)?;
        }
        Ok(item)
    }

    /// Asks the daemon about an item. On one node the answer comes at once. In a site, the daemon asks the node that has
    /// the item. If the item is on its way between two nodes, the call waits up to 5 s until it has arrived.
    ///
    /// # Errors
    /// `NOT_FOUND` if no item has this key, or if this task may not see it. In a site: `TIMED_OUT` if the item has not
    /// arrived in time; `DISCONNECTED` if the item's node or the catalog does not answer.
    pub fn find_item(&self, key: &str) -> Result<ItemInfo> {
        crate::session::check_name("item", key)?;
        match self.ask_item(ItemRequest::Find { key: key.to_owned() }, None)?.0 {
            Answer::ItemInfo(entry) => Ok(entry.into()),
            _ => Err(crate::session::unexpected()),
        }
    }

    /// Opens an item of this task. If the item does not exist yet, or if this task does not own it yet, the call waits
    /// until this task owns the item. If `timeout` is `None`, the call does not wait. In a site, a call without a timeout
    /// still waits for the answers of the item's node and of the catalog, and up to 5 s for an item that is on its way
    /// between two nodes.
    ///
    /// # Errors
    /// `TIMED_OUT` (the text says which task owns the item and since when). Without a timeout: `NOT_YET` if another
    /// task owns the item, and `NOT_FOUND` if there is no item of this key; in a site also `TIMED_OUT` if the item is
    /// still on its way, and `DISCONNECTED` if the item's node or the catalog does not answer. `NOT_FOUND` if the item
    /// is destroyed meanwhile. `BUSY` if this session has the item open. `DENIED` without a grant to own the item.
    /// `NO_SPACE` if the daemon has to copy the item and has no room for the copy. `CLOSED` if another thread closes
    /// the session meanwhile.
    pub fn access_item(&self, key: &str, timeout: Option<Duration>) -> Result<Item> {
        crate::session::check_name("item", key)?;
        let deadline = Deadline::after(timeout.unwrap_or_default());
        if let Some(known) = self.items().find(key) {
            if let Some(item) = self.take_known(key, known, timeout, deadline)? {
                return Ok(item);
            }
        }
        // This session does not know an item with this key, or the item that it knew was destroyed. So it asks the
        // daemon.
        self.access_any_item(&[key], timeout.map(|_| deadline.left()))
    }

    /// Opens one of these items (at most 24). If this task owns some of them, opens the first of those in the list. If
    /// this task owns none of them, waits and opens the item that this task gets first. If the list has a cooperative
    /// item, the call may choose that item although another member has it, and then waits only for that item.
    ///
    /// # Errors
    /// As for [`Session::access_item`].
    pub fn access_any_item(&self, keys: &[&str], timeout: Option<Duration>) -> Result<Item> {
        let deadline = Deadline::after(timeout.unwrap_or_default());
        let keys = check_keys(keys)?;
        let wait_ms = milliseconds(timeout);
        let answer =
            self.ask_item(ItemRequest::Access { read: false, wait_ms, keys }, Some(timeout.unwrap_or_default()))?;
        self.opened_item(answer, Some((timeout, deadline)))
    }

    /// Opens a shared item for reading. If the item is not shared yet, the call waits until it is shared. If `timeout`
    /// is `None`, the call does not wait.
    ///
    /// # Errors
    /// `TIMED_OUT` if the item is not shared before the timeout. Without a timeout: `NOT_YET` if it is not shared, and
    /// `NOT_FOUND` if there is no item of this key. `NOT_FOUND` also if the item is destroyed meanwhile. `DENIED`
    /// without a grant to read the item. `CORRUPT` if the shared item has less data than the daemon's answer says.
    pub fn read_item(&self, key: &str, timeout: Option<Duration>) -> Result<ItemView> {
        let (keys, wait_ms) = (check_keys(&[key])?, milliseconds(timeout));
        let answer =
            self.ask_item(ItemRequest::Access { read: true, wait_ms, keys }, Some(timeout.unwrap_or_default()))?;
        self.opened_view(answer)
    }

    /// Removes an item of any owner, in order to tidy up. Only the daemon's own user may do this. A process that has
    /// the item mapped keeps the memory.
    ///
    /// # Errors
    /// `NOT_FOUND` if there is no item of this key. `DENIED` if this session connected through a task's endpoint.
    /// `BUSY` while the item is on its way to another node.
    pub fn remove_item(&self, key: &str) -> Result<()> {
        self.remove_segment(crossdock_layout::wire::SegmentKind::Item, key)
    }

    /// Registers a number for this rank of this task. Other tasks can then transfer items to this rank by the name
    /// `#number`. A task may transfer an item to the number even before the number is registered. The number belongs to
    /// this rank as long as the workflow exists.
    ///
    /// # Errors
    /// `EXISTS` if another rank or task has the number. `DENIED` if this task may own no item. `NO_SPACE` if this rank
    /// has too many numbers already.
    pub fn register_number(&self, number: u64) -> Result<()> {
        self.ask_item(ItemRequest::Register { number }, None)?;
        self.items().register(number);
        Ok(())
    }

    /// Sends a request about items. `wait` is how long the daemon may wait before it answers; `None` if the daemon does
    /// not prepare an item for the answer.
    pub(super) fn ask_item(&self, request: ItemRequest, wait: Option<Duration>) -> Result<Answered> {
        let request = Request::Item(request);
        let Some(wait) = wait else { return self.connection().ask(request, None, None, self.deadline()) };
        let alive = self.timeout().saturating_sub(wait).max(ALIVE);
        self.connection().ask_to_prepare(request, wait, alive, self.late(Some(wait.max(READY))))
    }

    /// Opens the item in the daemon's answer, which this member now owns. If the item is cooperative, another member
    /// may still have it; then the call waits until that member gives it up.
    fn opened_item(&self, answer: Answered, wait: Option<(Option<Duration>, Deadline)>) -> Result<Item> {
        let (given, descriptor) = taken(answer)?;
        if given.level != ItemLevel::Cooperative {
            let connection = self.connection();
            let backing = if given.created { Backing::Own } else { Backing::HandedOver };
            let memory = ItemMemory::open(&descriptor, given.size, backing).map_err(|error| {
                connection.unmake(&given);
                connection.release_item(given.item);
                error.about(SegmentKind::Item, &given.key)
            })?;
            return Ok(Item::owned(self, given, memory));
        }
        let opening = SegmentOpening::new(self.connection().clone(), given.file);
        let memory = ItemMemory::open(&descriptor, given.size, Backing::Cooperative).map_err(|error| {
            self.connection().unmake(&given);
            error.about(SegmentKind::Item, &given.key)
        })?;
        let own = given.words.iter().filter_map(|w| u32::try_from(*w).ok()).collect();
        let given = Arc::new(given);
        let known = Arc::new(MappedItem { memory, given: given.clone(), own, _opening: opening });
        self.items().learn(&known);
        if given.created {
            let _taking = self.connection().begin_taking().inspect_err(|_| self.connection().unmake(&given))?;
            if let Some(token) = known.memory.created_by(self.member()) {
                return Ok(Item::held(OpenItem::new(self, given), known, token));
            }
        }
        let (timeout, deadline) = wait.unwrap_or((None, Deadline::after(Duration::ZERO)));
        self.take_known(&given.key, known, timeout, deadline)?.ok_or_else(|| gone(&given.key))
    }

    /// Takes a cooperative item whose memory this session has mapped. Waits in shared memory, without the daemon, until
    /// this member has the item. Returns `None` if the item had been destroyed before the call began. `deadline` is when
    /// the caller's `timeout` is over.
    pub(super) fn take_known(
        &self,
        key: &str,
        known: Arc<MappedItem>,
        timeout: Option<Duration>,
        deadline: Deadline,
    ) -> Result<Option<Item>> {
        // The value is prepared before the wait, because the time after the wait is a part of the hand-over.
        let open = OpenItem::new(self, known.given.clone());
        let mut own = Cow::from(&known.own);
        for number in self.items().registered() {
            own.to_mut().push(self.word(&Party::Number(number))?);
        }
        let taking = self.connection().begin_taking()?;
        let at_once = known.memory.take_at_once(&own, self.member(), self.liveness());
        let was_gone = at_once == Some(ItemWaitOutcome::Gone);
        let outcome = match at_once {
            Some(outcome) => outcome,
            None => loop {
                let outcome = known.memory.take(&own, self.member(), self.liveness(), deadline.at_most(LOOK));
                if !matches!(outcome, ItemWaitOutcome::TimedOut { .. }) || deadline.passed() {
                    break outcome;
                }
                taking.check()?;
            },
        };
        drop(own);
        match outcome {
            ItemWaitOutcome::Taken(token) => Ok(Some(Item::held(open, known, token))),
            ItemWaitOutcome::Gone => {
                drop(taking);
                self.items().forget(key, known.given.item);
                // The item may be gone because its owner died. The daemon may not know this yet, so this request tells
                // it to destroy the item.
                let _ = self.ask_item(ItemRequest::Destroy { item: known.given.item }, None);
                if was_gone { Ok(None) } else { Err(gone(key)) }
            }
            ItemWaitOutcome::TimedOut { holder, .. } if holder == self.member() => {
                let text = format!("item '{key}' is open in this session already; one at a time may use it");
                Err(Error::new(Status::Busy, text))
            }
            ItemWaitOutcome::TimedOut { holder, .. } => {
                drop(taking);
                let (status, within) = match timeout {
                    Some(timeout) => (Status::TimedOut, format!(" within {} ms", timeout.as_millis())),
                    None => (Status::NotYet, String::new()),
                };
                let who = match holder {
                    MemberId::NONE => "it belongs to a task that has not opened it".to_owned(),
                    // A program may poll often, so this error contains only what is known without a request to the
                    // daemon.
                    _ if timeout.is_none() => format!("it is held by {holder}"),
                    _ => format!("it is held by {}", self.describe_member(holder)),
                };
                Err(Error::new(status, format!("item '{key}' was not given to task '{}'{within}: {who}", self.task())))
            }
        }
    }

    /// The number that stands for a party in the owner word of a cooperative item. The daemon is asked only once for
    /// each party.
    pub(super) fn word(&self, party: &Party) -> Result<u32> {
        if let Some(word) = self.items().word(party) {
            return Ok(word);
        }
        let (Answer::Done { value }, _) = self.ask_item(ItemRequest::Word { party: party.clone() }, None)? else {
            return Err(crate::session::unexpected());
        };
        let word = u32::try_from(value).map_err(|_| crate::session::unexpected())?;
        self.items().learn_word(party.clone(), word);
        Ok(word)
    }

    /// Opens a shared item for reading, after the daemon has given the item in `answer`.
    pub(super) fn opened_view(&self, answer: Answered) -> Result<ItemView> {
        let (given, descriptor) = taken(answer)?;
        let opening = SegmentOpening::new(self.connection().clone(), given.file);
        let memory = ItemMemory::open(&descriptor, given.size, Backing::Shared)
            .map_err(|error| error.about(SegmentKind::Item, &given.key))?;
        Ok(ItemView::new(self, given, memory, opening))
    }

    /// Opens the heap in an item's data as a region. `mapping` is the mapped data.
    pub(super) fn region_in_item(&self, given: &ItemGiven, mapping: Mapping, writable: bool) -> Result<OpenHeap> {
        let (name, segment, file) = (given.key.clone(), given.item, given.file);
        let host = Arc::new(SessionHost::new(self, Vec::new()));
        let over = MappedRegionParts { name, segment, file, writable, member: self.member(), host };
        Ok(self.session_objects().note_heap(region::Region::over(mapping, None, over)?))
    }
}

pub(super) fn taken(answer: Answered) -> Result<(ItemGiven, crossdock_os::OwnFile)> {
    match answer {
        (Answer::Item(given), Some(descriptor)) => Ok((given, descriptor)),
        _ => Err(crate::session::unexpected()),
    }
}

fn gone(key: &str) -> Error {
    Error::new(Status::NotFound, format!("item '{key}' is gone: it was destroyed, or its owner died"))
}

fn check_keys(keys: &[&str]) -> Result<Vec<String>> {
    if keys.is_empty() || keys.len() > KEYS_PER_MESSAGE {
        let text = format!("one can wait for 1 to {KEYS_PER_MESSAGE} items at once, not for {}", keys.len());
        return Err(Error::new(Status::Invalid, text));
    }
    let checked = keys.iter().map(|key| crate::session::check_name("item", key).map(|()| (*key).to_owned()));
    checked.collect()
}

pub(super) fn milliseconds(timeout: Option<Duration>) -> u64 {
    timeout.map_or(0, |t| u64::try_from(t.as_millis()).unwrap_or(u64::MAX))
}

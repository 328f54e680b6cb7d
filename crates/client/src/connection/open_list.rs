//! The list of what this process has open. The daemon counts the openings. On a new connection this process sends the
//! list again. A daemon that has lost its descriptors gets the descriptors that are in this list.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering;

use crossdock_layout::wire::{Answer, InUse, ItemGiven, ItemLevel, ItemRequest, Request, SegmentKind};
use crossdock_layout::{SegmentId, Status};
use crossdock_os::OwnFile;

use super::asking::Pending;
use super::{Connection, State};
use crate::Result;

/// What a session has open, publishes or has made: segments, items, series and endpoints.
#[derive(Default)]
pub(super) struct OpenList {
    segments: BTreeMap<SegmentId, OpenSegmentCount>,
    /// The series that this session publishes.
    offered: BTreeMap<SegmentId, PublishedPool>,
    /// The items that this member has open as their owner.
    items: BTreeMap<SegmentId, OpenItem>,
    /// The endpoints that this session made.
    endpoints: Vec<Endpoint>,
}

/// An item that this member has open as its owner.
struct OpenItem {
    /// The number of the request that opened the item. An item that was transferred can come back before the
    /// transferring thread goes on. The number tells this thread whether the item is still open because of its own
    /// request.
    opening: u64,
    /// True if no thread of this process has the item any more, and a given-up request to transfer or destroy it is
    /// unanswered. If the request has succeeded, the item may be open again because of a later request, whose answer
    /// has not been read yet. So the daemon is told to close the item only after the request has failed.
    closing: bool,
}

/// An endpoint that this session made.
struct Endpoint {
    number: u64,
    workflow: String,
    /// A copy of the endpoint's listening socket.
    listener: OwnFile,
}

/// A segment that this process has open.
struct OpenSegmentCount {
    count: u32,
    kind: SegmentKind,
    /// The descriptor that is given to a daemon that lost the segment's descriptor. A read-only descriptor is enough,
    /// because the daemon opens the memory for writing itself.
    descriptor: Option<OwnFile>,
}

/// The memory of a series that this process publishes.
struct PublishedPool {
    pool: OwnFile,
    /// The pin pages that the daemon made for this series, with their ids.
    pages: Vec<(SegmentId, OwnFile)>,
}

impl Connection {
    /// Reduces the number of openings of a segment by one, and tells the daemon.
    pub(crate) fn release(&self, segment: SegmentId) {
        if self.is_ours() {
            self.tell_with(|state| state.release(segment));
        }
    }

    /// Notes that the item is closed in this process, and tells the daemon. The item still belongs to this task.
    pub(crate) fn release_item(&self, item: SegmentId) {
        if self.is_ours() {
            self.tell_with(|state| state.release_item(item));
        }
    }

    /// Works like `release_item`, for a call that has lost its item because a request failed. Does nothing if another
    /// request has opened the item since `opening`. If a given-up request may have ended this opening, the answer to
    /// that request decides whether the daemon is told.
    pub(crate) fn release_opening(&self, item: SegmentId, opening: Option<u64>) {
        if self.is_ours() && opening.is_some() {
            self.tell_with(|state| {
                if state.open_list.opening_of(item) != opening {
                    return;
                }
                let ends = opening.map(|opening| (item, opening));
                if !state.given_up.values().any(|pending| pending.ends() == ends) {
                    state.release_item(item);
                } else {
                    state.open_list.close_later(item);
                }
            });
        }
    }

    /// Gives the number of the request that opened this item; `None` if this member does not have the item open as its
    /// owner.
    pub(crate) fn opening_of(&self, item: SegmentId) -> Option<u64> {
        self.lock().open_list.opening_of(item)
    }

    /// A call of this process has failed after the daemon had made an item for it. Tells the daemon to destroy this
    /// item.
    pub(crate) fn unmake(&self, given: &ItemGiven) {
        if given.created && self.is_ours() {
            let destroy = Request::Item(ItemRequest::Destroy { item: given.item });
            self.tell_with(|state| state.tell_to_do(destroy));
        }
    }

    /// Adds one to the number of cooperative items that this session holds. The session counts these items itself: it
    /// must not leave while it holds one, and the daemon does not know which member holds a cooperative item. The
    /// caller must have a [`super::Taking`].
    pub(crate) fn holds_item(&self) {
        self.held.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn holds_item_no_more(&self) {
        self.held.fetch_sub(1, Ordering::AcqRel);
    }

    /// Forgets an endpoint that is not used, because the call that made it failed.
    pub(crate) fn forget_endpoint(&self, listener: &OwnFile) {
        if self.is_ours() {
            self.lock().open_list.endpoints.retain(|endpoint| !endpoint.listener.is_clone_of(listener));
        }
    }

    /// Checks that the session can keep what it has just made, a series or an endpoint. The reader has entered it in the
    /// list already. Fails if another thread has closed the session meanwhile.
    pub(crate) fn keep_made(&self) -> Result<()> {
        self.lock().check_open()?;
        self.watch();
        Ok(())
    }

    /// Remembers a pin page of a series that this session publishes.
    pub(crate) fn keep_page(&self, series: SegmentId, page: SegmentId, descriptor: OwnFile) {
        if let Some(offered) = self.lock().open_list.offered.get_mut(&series) {
            offered.pages.push((page, descriptor));
        }
    }

    /// Forgets a series that this session no longer publishes and whose pool is closed.
    pub(crate) fn forget_series(&self, segment: SegmentId) {
        if !self.is_ours() {
            return;
        }
        self.tell_with(|state| {
            if state.open_list.offered.remove(&segment).is_some() {
                state.release(segment);
            }
        });
    }

    /// Runs `change`, which changes the state and sends a message to the daemon. If the socket is full, wakes the
    /// watching thread, which sends the message later.
    fn tell_with(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        let had_room = state.untold.is_empty();
        change(&mut state);
        if had_room {
            self.watch_untold(&state);
        }
    }
}

impl State {
    fn release(&mut self, segment: SegmentId) {
        let segments = &mut self.open_list.segments;
        if let Some(open) = segments.get_mut(&segment) {
            open.count -= 1;
            if open.count == 0 {
                segments.remove(&segment);
            }
        }
        self.tell(Request::Detach { segment, count: 1 });
    }

    fn release_item(&mut self, item: SegmentId) {
        if self.open_list.items.remove(&item).is_some() {
            self.tell(Request::Item(ItemRequest::Release { item }));
        }
    }

    /// If this answer says that an item was transferred or destroyed, notes that this member no longer has the item
    /// open. The reader does this in the order of the answers, because a later answer may give this member the same
    /// item again. If the request has failed and no thread has the item any more, tells the daemon to close the item.
    pub(super) fn forget_item(&mut self, number: u64, answer: &Answer) {
        let pending = self.pending.get(number).or_else(|| self.given_up.get(number));
        let Some((item, opening)) = pending.and_then(Pending::ends) else { return };
        match self.open_list.items.get(&item).filter(|open| open.opening == opening) {
            Some(_) if matches!(answer, Answer::Done { .. }) => drop(self.open_list.items.remove(&item)),
            Some(open) if open.closing => self.release_item(item),
            _ => {}
        }
    }

    /// Tells the daemon to close or remove what an answer opened. The asking thread gave up before the answer came. If
    /// the request made an item, the item is destroyed. If the request made a segment, the segment is removed, unless
    /// another member has used it meanwhile. Another member can have used the segment, because this process may have
    /// read the answer long after the daemon sent it.
    pub(super) fn refuse(&mut self, answer: &Answer) {
        match answer {
            Answer::Segment { segment, kind, created, name, .. } => {
                self.release(*segment);
                if *created {
                    let (kind, name) = (*kind, name.clone());
                    self.tell_to_do(Request::Remove { kind, in_use: InUse::Unused, name });
                }
            }
            Answer::Series(entry) => {
                self.release(entry.pin);
                self.release(entry.segment);
            }
            Answer::Item(given) => {
                if given.created {
                    self.tell_to_do(Request::Item(ItemRequest::Destroy { item: given.item }));
                }
                if is_owned(given) {
                    self.release_item(given.item);
                } else {
                    self.release(given.file);
                }
            }
            _ => {}
        }
    }

    /// If this answer says that a workflow has ended, forgets the workflow's endpoints, because their sockets must not
    /// stay open. After any other answer the workflow still exists, and the session continues to give its endpoints to
    /// a daemon that has lost them.
    pub(super) fn forget_endpoints(&mut self, number: u64, answer: &Answer) {
        let pending = self.pending.get(number).or_else(|| self.given_up.get(number));
        let Some(Request::EndWorkflow { name }) = pending.map(Pending::request) else { return };
        if matches!(answer, Answer::Done { .. } | Answer::Failed { status: Status::NotFound, .. }) {
            let endpoints = &mut self.open_list.endpoints;
            endpoints.retain(|endpoint| endpoint.workflow != *name);
        }
    }

    /// Ends the registration of a series whose publisher gave up before the daemon answered.
    pub(super) fn refuse_series(&mut self, segment: SegmentId) {
        self.tell_to_do(Request::Unpublish { segment });
        self.release(segment);
    }

    /// Ends a workflow whose maker gave up before the daemon answered. If a request to end the workflow is unanswered,
    /// no second request is sent, because after the first request the name may belong to another workflow.
    pub(super) fn refuse_workflow(&mut self, name: &str) {
        let mut unanswered = self.pending.values().chain(self.given_up.values()).map(Pending::request);
        let is_ending =
            unanswered.any(|request| matches!(request, Request::EndWorkflow { name: ended } if ended == name));
        drop(unanswered);
        if !is_ending {
            self.tell_to_do(Request::EndWorkflow { name: name.to_owned() });
        }
    }

    /// Begins the messages of a new connection with the list of everything that this process has open. At the end of
    /// the list, the daemon closes everything that it counts as open for this member and that is not in the list. Some
    /// requests that were sent on the former connection may have made items that are not in the list. All such requests
    /// are sent again before the list ends. The daemon then adds their items to the list, and does not close them.
    pub(super) fn tell_open(&mut self) {
        // The answers that would decide about these items were lost with the former connection. An item that is not in
        // the list is closed, if it is still this member's.
        self.open_list.items.retain(|_, open| !open.closing);
        let OpenList { segments, items, .. } = &self.open_list;
        let segments = segments.iter().map(|(segment, open)| Request::Hold { segment: *segment, count: open.count });
        let items = items.keys().map(|item| ItemRequest::Hold { item: *item });
        // A segment with the number zero marks the end of the list.
        let segments = segments.chain([Request::Hold { segment: SegmentId(0), count: 0 }]);
        self.untold.extend(segments.chain(items.map(Request::Item)).map(|request| (0, request)));
        for number in self.makers_of_items() {
            let pending = self.given_up.get_mut(number).or_else(|| self.pending.get_mut(number));
            if let Some(pending) = pending {
                pending.sent_on = self.generation;
                self.untold.push_back((number, pending.request().clone()));
            }
        }
        self.untold.push_back((0, Request::Item(ItemRequest::Hold { item: SegmentId(0) })));
    }

    /// Gives the numbers of the requests that were sent on a former connection and may have made items. The requests
    /// that were given up come first; the requests of waiting threads follow. A request of a waiting thread is left out
    /// if a given-up request may have made an item with the same key, because the session must first destroy that item.
    fn makers_of_items(&self) -> Vec<u64> {
        let key_of = |pending: &Pending| match pending.request() {
            Request::Item(ItemRequest::Create { key, .. }) => Some(key.clone()),
            _ => None,
        };
        let given_up = self.given_up.iter().filter_map(|(number, pending)| Some((number, key_of(pending)?)));
        let (mut numbers, keys): (Vec<u64>, BTreeSet<String>) = given_up.unzip();
        // A request to destroy an item does not say which key the item has, so it may concern any key.
        let destroys = |pending: &Pending| matches!(pending.request(), Request::Item(ItemRequest::Destroy { .. }));
        if !self.given_up.values().any(destroys) {
            let sent = self.pending.iter().filter(|(_, pending)| pending.sent_on != 0 && !pending.is_answered());
            let others = sent.filter(|(_, pending)| key_of(pending).is_some_and(|key| !keys.contains(&key)));
            numbers.extend(others.map(|(number, _)| number));
        }
        numbers
    }
}

impl OpenList {
    /// The number of segments of this kind that this process has open.
    pub(super) fn count(&self, kind: SegmentKind) -> usize {
        self.segments.values().filter(|open| open.kind == kind).count()
    }

    /// The number of items that this member has open as their owner and that the program may use. Cooperative items are not among them.
    pub(super) fn items(&self) -> usize {
        self.items.values().filter(|open| !open.closing).count()
    }

    /// Notes that no thread has this item any more, and that the answer to a given-up request decides what happens.
    pub(super) fn close_later(&mut self, item: SegmentId) {
        if let Some(open) = self.items.get_mut(&item) {
            open.closing = true;
        }
    }

    pub(super) fn opening_of(&self, item: SegmentId) -> Option<u64> {
        self.items.get(&item).map(|open| open.opening)
    }

    /// Notes in this list the segments, or the item, that the daemon has opened for this process and names in `answer`.
    /// `number` is the number of the answered request; `None` if this request was about an item that this process had
    /// open already. `given` is the last descriptor that came with the answer. For a daemon that loses its own descriptor,
    /// this process keeps `given` until it closes what it opens now.
    pub(super) fn take(&mut self, number: Option<u64>, answer: &Answer, given: Option<&OwnFile>) {
        match answer {
            Answer::Segment { segment, kind, .. } => {
                // A daemon that has lost the pool of a series accepts the pool only from the publisher. So an observer
                // keeps no descriptor of the pool.
                let kept = given.filter(|_| *kind != SegmentKind::Series);
                self.add_segment(*segment, *kind, kept);
            }
            Answer::Series(entry) => {
                self.add_segment(entry.segment, SegmentKind::Series, None);
                // Perhaps no other member has a descriptor of the pin page.
                self.add_segment(entry.pin, SegmentKind::Series, given);
            }
            Answer::Item(item) if is_owned(item) => {
                if let Some(number) = number {
                    self.items.insert(item.item, OpenItem { opening: number, closing: false });
                }
            }
            Answer::Item(item) => {
                self.add_segment(item.file, SegmentKind::Item, given);
            }
            _ => {}
        }
    }

    /// Notes in this list the series or the endpoint that the daemon has made for a request, so that its descriptor can
    /// be given to a new daemon that does not have it. The reader notes it at once: the connection may be lost before
    /// the asking thread goes on, and the next daemon removes what is not in the list.
    pub(super) fn take_made(&mut self, request: &Request, descriptors: &[OwnFile], answer: &Answer) {
        let (Answer::Done { value }, Some(sent)) = (answer, descriptors.first()) else { return };
        match request {
            Request::Publish { .. } => {
                let segment = SegmentId(*value);
                self.add_segment(segment, SegmentKind::Series, None);
                self.offered.insert(segment, PublishedPool { pool: sent.clone(), pages: Vec::new() });
            }
            Request::MakeEndpoint { workflow, .. } => {
                let (number, workflow, listener) = (*value, workflow.clone(), sent.clone());
                self.endpoints.push(Endpoint { number, workflow, listener });
            }
            _ => {}
        }
    }

    /// Counts one more opening of a segment. Keeps `given` unless a descriptor of the segment is kept already.
    fn add_segment(&mut self, segment: SegmentId, kind: SegmentKind, given: Option<&OwnFile>) {
        let open = self.segments.entry(segment).or_insert(OpenSegmentCount { count: 0, kind, descriptor: None });
        open.count += 1;
        if open.descriptor.is_none() {
            open.descriptor = given.cloned();
        }
    }

    /// Gives the requests that offer all kept descriptors to a daemon that has lost its own, because its keeper died.
    pub(super) fn offers(&self) -> Vec<Request> {
        let segments = self.segments.iter().filter(|(_, open)| open.descriptor.is_some()).map(|(id, _)| *id);
        let pages = self.offered.values().flat_map(|series| series.pages.iter().map(|(page, _)| *page));
        let offers = segments.chain(self.offered.keys().copied()).chain(pages);
        let offers = offers.map(|segment| Request::Offer { segment });
        let endpoints = self.endpoints.iter().map(|endpoint| Request::Listen { endpoint: endpoint.number });
        endpoints.chain(offers).collect()
    }

    /// Gives the descriptor that must be sent with this request of `offers`; `None` if this process has closed the
    /// object meanwhile, or the program has closed the descriptor.
    pub(super) fn descriptor_of(&self, offer: &Request) -> Option<BorrowedFd<'_>> {
        let segment = match offer {
            Request::Offer { segment } => segment,
            Request::Listen { endpoint } => {
                return self.endpoints.iter().find(|kept| kept.number == *endpoint)?.listener.proved().ok();
            }
            _ => return None,
        };
        let opened = self.segments.get(segment).and_then(|open| open.descriptor.as_ref());
        let pool = || self.offered.get(segment).map(|series| &series.pool);
        let mut pages = self.offered.values().flat_map(|series| &series.pages);
        let page = || pages.find(|(page, _)| page == segment).map(|(_, fd)| fd);
        opened.or_else(pool).or_else(page)?.proved().ok()
    }
}

/// Tells whether this member owns the item and is the only member that has it open.
pub(super) fn is_owned(given: &ItemGiven) -> bool {
    given.writable && given.level != ItemLevel::Cooperative
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crossdock_os::child::{self, ExitStatus, Signal};
    use crossdock_os::{Deadline, event};

    use super::super::testing;
    use super::*;

    #[test]
    fn a_forked_child_does_not_wait_for_a_lock_of_its_parent_to_forget_an_endpoint() {
        let (connection, _daemon) = testing::connect();
        let listener = OwnFile::from(event::eventfd().unwrap());
        // The child inherits the lock as another thread of the parent holds it. No thread of the child gives it back.
        let held = connection.lock();
        let forked = child::fork_beside_threads(|| {
            connection.forget_endpoint(&listener);
            0
        });
        drop(held);
        let (child, deadline) = (forked.unwrap(), Deadline::after(Duration::from_secs(20)));
        let mut ended = None;
        while ended.is_none() && !deadline.passed() {
            std::thread::sleep(Duration::from_millis(1));
            ended = child::ended(child, false).unwrap();
        }
        if ended.is_none() {
            child::signal(child, Signal::KILL).unwrap();
            child::ended(child, true).unwrap();
        }
        assert_eq!(ended, Some(ExitStatus::Code(0)), "the child hangs");
    }
}

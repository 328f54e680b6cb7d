//! What this process holds. The daemon counts it, is told of it again over a new connection, and gets the descriptors
//! back if it lost its own.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use crossdock_layout::SegmentId;
use crossdock_layout::wire::{Answer, InUse, ItemGiven, ItemLevel, ItemRequest, Request, SegmentKind};
use crossdock_os::{Deadline, event, file, socket};

use super::{Connection, State};

/// How long each message that gives something back waits for a slow daemon.
const MOMENT: Duration = Duration::from_millis(200);

/// What a session holds.
#[derive(Default)]
pub(super) struct Held {
    leases: BTreeMap<SegmentId, Leased>,
    /// The series that this session publishes.
    offered: BTreeMap<SegmentId, Offered>,
    /// The items that this member has open as their owner.
    items: BTreeSet<SegmentId>,
    /// The endpoints that this session made, with copies of their listening sockets.
    endpoints: Vec<(Request, Arc<OwnedFd>)>,
}

/// A segment that this process has open.
struct Leased {
    count: u32,
    kind: SegmentKind,
    /// The descriptor to give back to a daemon that lost its own. A read-only one is enough, because the daemon opens
    /// it anew.
    descriptor: Option<OwnedFd>,
}

/// The memory of a series that this process publishes.
struct Offered {
    pool: Arc<OwnedFd>,
    /// The pin pages that the daemon made, by their ids.
    pages: Vec<(SegmentId, OwnedFd)>,
}

impl Connection {
    /// Closes one opening of a segment.
    pub(crate) fn release(&self, segment: SegmentId) {
        if self.is_ours() {
            self.lock().release(segment);
        }
    }

    /// Closes an item here. The item still belongs to this task.
    pub(crate) fn release_item(&self, item: SegmentId) {
        if self.is_ours() {
            self.lock().release_item(item);
        }
    }

    /// Removes an item that was made for a call that fails.
    pub(crate) fn unmake(&self, given: &ItemGiven) {
        if given.created && self.is_ours() {
            self.lock().tell_to_do(&Request::Item(ItemRequest::Destroy { item: given.item }));
        }
    }

    /// Forgets an item that no longer belongs to this task.
    pub(crate) fn forget_item(&self, item: SegmentId) {
        self.lock().held.items.remove(&item);
    }

    /// The number of items that this session has open as their owner.
    pub(crate) fn items(&self) -> usize {
        self.lock().held.items.len()
    }

    /// Remembers an endpoint, in case that the daemon forgets it.
    pub(crate) fn keep_endpoint(&self, request: Request, listener: Arc<OwnedFd>) {
        self.lock().held.endpoints.push((request, listener));
        self.watch();
    }

    /// Forgets the endpoints of a workflow that ended, because their sockets must not stay open.
    pub(crate) fn forget_endpoints(&self, of: &str) {
        let other = |request: &Request| !matches!(request, Request::MakeEndpoint { workflow, .. } if workflow == of);
        self.lock().held.endpoints.retain(|(request, _)| other(request));
    }

    /// Remembers a series that this session publishes, in case that the daemon forgets it, and that its pool is open
    /// here.
    pub(crate) fn keep_series(&self, segment: SegmentId, pool: Arc<OwnedFd>) {
        let mut state = self.lock();
        state.held.lease(segment, SegmentKind::Series, None);
        state.held.offered.insert(segment, Offered { pool, pages: Vec::new() });
        drop(state);
        self.watch();
    }

    /// Remembers a pin page of a series that this session publishes.
    pub(crate) fn keep_page(&self, series: SegmentId, page: SegmentId, descriptor: OwnedFd) {
        if let Some(offered) = self.lock().held.offered.get_mut(&series) {
            offered.pages.push((page, descriptor));
        }
    }

    /// This session no longer publishes the series and has closed its pool.
    pub(crate) fn forget_series(&self, segment: SegmentId) {
        if !self.is_ours() {
            return;
        }
        let mut state = self.lock();
        if state.held.offered.remove(&segment).is_some() {
            state.release(segment);
        }
    }

    /// The number of regions that this session has open.
    pub(crate) fn regions(&self) -> usize {
        self.lock().held.leases.values().filter(|leased| leased.kind == SegmentKind::Region).count()
    }

    /// Does this session publish or observe a series, or hold a version of one?
    pub(crate) fn has_series(&self) -> bool {
        self.lock().held.leases.values().any(|leased| leased.kind == SegmentKind::Series)
    }
}

impl State {
    fn release(&mut self, segment: SegmentId) {
        let leases = &mut self.held.leases;
        if let Some(leased) = leases.get_mut(&segment) {
            leased.count -= 1;
            if leased.count == 0 {
                leases.remove(&segment);
            }
        }
        self.tell(&Request::Detach { segment, count: 1 });
    }

    fn release_item(&mut self, item: SegmentId) {
        if self.held.items.remove(&item) {
            self.tell(&Request::Item(ItemRequest::Release { item }));
        }
    }

    /// Gives back what an answer gave that came after the asking thread gave up. An item that was made for it is
    /// removed.
    pub(super) fn refuse(&mut self, answer: &Answer) {
        match answer {
            Answer::Segment { segment, kind, created, name, .. } => {
                self.release(*segment);
                if *created {
                    let (kind, name) = (*kind, name.clone());
                    self.tell_to_do(&Request::Remove { kind, in_use: InUse::Refuse, name });
                }
            }
            Answer::Series(entry) => {
                self.release(entry.pin);
                self.release(entry.segment);
            }
            Answer::Item(given) => {
                if given.created {
                    self.tell_to_do(&Request::Item(ItemRequest::Destroy { item: given.item }));
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

    /// Tells a daemon on a new connection everything that is open here. The daemon closes what it does not hear of.
    pub(super) fn tell_held(&mut self) {
        let Held { leases, items, .. } = &self.held;
        let segments = leases.iter().map(|(segment, leased)| Request::Hold { segment: *segment, count: leased.count });
        let items = items.iter().map(|item| ItemRequest::Hold { item: *item });
        // The number zero says that the list is complete.
        let segments = segments.chain([Request::Hold { segment: SegmentId(0), count: 0 }]);
        let items = items.chain([ItemRequest::Hold { item: SegmentId(0) }]).map(Request::Item);
        let requests: Vec<_> = segments.chain(items).collect();
        requests.iter().for_each(|request| self.tell(request));
    }

    /// A daemon that lost its descriptors together with its keeper gets those of this process. No thread waits for the
    /// answers, because another member may have been first.
    pub(super) fn give_back(&mut self, socket: &OwnedFd) {
        for (request, fds) in self.held.descriptors() {
            let message = request.encode(self.next, 0);
            self.next += 1;
            while let Ok(false) = socket::send(socket, &message, &fds) {
                if !event::wait_writable(socket.as_fd(), Deadline::after(MOMENT)).unwrap_or(false) {
                    break;
                }
            }
        }
    }
}

impl Held {
    /// Notes what the daemon counts when it gives this: openings of memory, or an item of this task. `descriptor` is
    /// the last one that came with it.
    pub(super) fn take(&mut self, answer: &Answer, descriptor: Option<&OwnedFd>) {
        match answer {
            Answer::Segment { segment, kind, .. } => {
                self.lease(*segment, *kind, descriptor);
            }
            Answer::Series(entry) => {
                self.lease(entry.segment, SegmentKind::Series, None);
                // The publisher gives the pool back. The page may be known to no other member.
                self.lease(entry.pin, SegmentKind::Series, descriptor);
            }
            Answer::Item(given) if is_owned(given) => {
                self.items.insert(given.item);
            }
            Answer::Item(given) => {
                self.lease(given.file, SegmentKind::Item, descriptor);
            }
            _ => {}
        }
    }

    /// Counts one more opening of a segment. A copy of the descriptor is kept, unless there is one already.
    fn lease(&mut self, segment: SegmentId, kind: SegmentKind, given: Option<&OwnedFd>) {
        let leased = self.leases.entry(segment).or_insert(Leased { count: 0, kind, descriptor: None });
        leased.count += 1;
        if leased.descriptor.is_none() {
            leased.descriptor = given.and_then(|fd| file::duplicate(fd).ok());
        }
    }

    /// All descriptors that a daemon without them can use, with the requests that give them back.
    fn descriptors(&self) -> impl Iterator<Item = (Request, Vec<BorrowedFd<'_>>)> {
        let segments = self.leases.iter().filter_map(|(id, leased)| Some((*id, leased.descriptor.as_ref()?)));
        let segments = segments.map(|(segment, fd)| (Request::Offer { segment }, fd.as_fd()));
        let endpoints = self.endpoints.iter().map(|(request, fd)| (request.clone(), fd.as_fd()));
        let pools = self.offered.iter().map(|(id, series)| (Request::Offer { segment: *id }, series.pool.as_fd()));
        let pages = self.offered.values().flat_map(|series| &series.pages);
        let pages = pages.map(|(page, fd)| (Request::Offer { segment: *page }, fd.as_fd()));
        endpoints.chain(segments).chain(pools).chain(pages).map(|(request, fd)| (request, vec![fd]))
    }
}

/// Does this member own the item and have it alone?
fn is_owned(given: &ItemGiven) -> bool {
    given.writable && given.level != ItemLevel::Cooperative
}

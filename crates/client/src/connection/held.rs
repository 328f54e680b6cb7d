//! The list of what this process has open. The daemon counts the openings. On a new connection the list is sent again,
//! and a daemon that lost its descriptors gets them back from this list.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use crossdock_layout::SegmentId;
use crossdock_layout::wire::{Answer, InUse, ItemGiven, ItemLevel, ItemRequest, Request, SegmentKind};
use crossdock_os::{Deadline, event, file, socket};

use super::{Connection, State};

/// The longest time to wait for a slow daemon with each message that gives a descriptor back.
const MOMENT: Duration = Duration::from_millis(200);

/// What a session has open.
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
    /// The descriptor that is given to a daemon that lost the segment's descriptor. A read-only descriptor is enough,
    /// because the daemon opens the memory anew.
    descriptor: Option<OwnedFd>,
}

/// The memory of a series that this process publishes.
struct Offered {
    pool: Arc<OwnedFd>,
    /// The pin pages that the daemon made for this series, with their ids.
    pages: Vec<(SegmentId, OwnedFd)>,
}

impl Connection {
    /// Reduces the number of openings of a segment by one, and tells the daemon.
    pub(crate) fn release(&self, segment: SegmentId) {
        if self.is_ours() {
            self.lock().release(segment);
        }
    }

    /// Notes that the item is closed in this process, and tells the daemon. The item still belongs to this task.
    pub(crate) fn release_item(&self, item: SegmentId) {
        if self.is_ours() {
            self.lock().release_item(item);
        }
    }

    /// Removes an item that was made for a call that then failed.
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

    /// Remembers an endpoint, so that it can be given to a daemon that forgot it.
    pub(crate) fn keep_endpoint(&self, request: Request, listener: Arc<OwnedFd>) {
        self.lock().held.endpoints.push((request, listener));
        self.watch();
    }

    /// Forgets the endpoints of a workflow that ended, because their sockets must not stay open.
    pub(crate) fn forget_endpoints(&self, of: &str) {
        let other = |request: &Request| !matches!(request, Request::MakeEndpoint { workflow, .. } if workflow == of);
        self.lock().held.endpoints.retain(|(request, _)| other(request));
    }

    /// Remembers a series that this session publishes, so that it can be given to a daemon that forgot it. Also notes
    /// that its pool is open here.
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

    /// Forgets a series that this session no longer publishes and whose pool is closed.
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

    /// Tells whether this session publishes or observes a series, or holds a version of one.
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

    /// Gives back to the daemon what an answer opened, if the answer came after the asking thread gave up. If the
    /// request made an item or a segment, the item or segment is removed.
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

    /// Tells the daemon on a new connection everything that is open here. The daemon closes everything else of this
    /// member.
    pub(super) fn tell_held(&mut self) {
        let Held { leases, items, .. } = &self.held;
        let segments = leases.iter().map(|(segment, leased)| Request::Hold { segment: *segment, count: leased.count });
        let items = items.iter().map(|item| ItemRequest::Hold { item: *item });
        // A segment with the number zero marks the end of the list.
        let segments = segments.chain([Request::Hold { segment: SegmentId(0), count: 0 }]);
        let items = items.chain([ItemRequest::Hold { item: SegmentId(0) }]).map(Request::Item);
        let requests: Vec<_> = segments.chain(items).collect();
        requests.iter().for_each(|request| self.tell(request));
    }

    /// Sends the descriptors of this process to a daemon whose keeper died and took the daemon's descriptors with it.
    /// No thread waits for the answers. They may be errors, because another member may have sent the same descriptors
    /// first.
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
    /// Notes what the daemon counts as open because of this answer: segments, or an item of this task. `descriptor` is
    /// the last one that came with the answer.
    pub(super) fn take(&mut self, answer: &Answer, descriptor: Option<&OwnedFd>) {
        match answer {
            Answer::Segment { segment, kind, .. } => {
                self.lease(*segment, *kind, descriptor);
            }
            Answer::Series(entry) => {
                self.lease(entry.segment, SegmentKind::Series, None);
                // The observer keeps no descriptor of the pool, because the publisher has one for a daemon that lost
                // the pool. But perhaps no other member has the pin page, so the observer keeps a descriptor of this
                // page.
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

    /// Counts one more opening of a segment. If no descriptor of the segment is kept yet, keeps a copy of `given`.
    fn lease(&mut self, segment: SegmentId, kind: SegmentKind, given: Option<&OwnedFd>) {
        let leased = self.leases.entry(segment).or_insert(Leased { count: 0, kind, descriptor: None });
        leased.count += 1;
        if leased.descriptor.is_none() {
            leased.descriptor = given.and_then(|fd| file::duplicate(fd).ok());
        }
    }

    /// Gives all descriptors that a daemon needs if it lost its descriptors with its keeper. Each comes with the
    /// request that gives it to the daemon.
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

/// Tells whether this member owns the item and is the only one that has it open.
fn is_owned(given: &ItemGiven) -> bool {
    given.writable && given.level != ItemLevel::Cooperative
}

//! What this process holds: the daemon counts it, hears of it again over a new connection, and is given back the
//! descriptors if it lost its own.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use crossdock_layout::SegmentId;
use crossdock_layout::wire::{Answer, InUse, ItemGiven, ItemLevel, ItemRequest, Request, SegmentKind};
use crossdock_os::{Deadline, event, file, socket};

use super::{Connection, State};

/// How long a daemon that is behind is waited for, for each message that gives something back.
const MOMENT: Duration = Duration::from_millis(200);

/// What a session holds.
#[derive(Default)]
pub(super) struct Held {
    leases: BTreeMap<SegmentId, Leased>,
    /// Series that this session publishes.
    offered: BTreeMap<SegmentId, Offered>,
    /// Items that this member has as their owner.
    items: BTreeSet<SegmentId>,
    /// Endpoints that this session made, with copies of their listening sockets.
    endpoints: Vec<(Request, Arc<OwnedFd>)>,
}

/// A segment that is open here.
struct Leased {
    count: u32,
    kind: SegmentKind,
    /// To give back to a daemon that lost its own. For reading only will do: the daemon opens it anew.
    descriptor: Option<OwnedFd>,
}

/// The memory of a series that this process publishes.
struct Offered {
    pool: Arc<OwnedFd>,
    /// Pin pages that the daemon made, by their ids.
    pages: Vec<(SegmentId, OwnedFd)>,
}

impl Connection {
    /// One opening of a segment is closed.
    pub(crate) fn release(&self, segment: SegmentId) {
        if self.is_ours() {
            self.lock().release(segment);
        }
    }

    /// An item is open here no longer; it stays this task's.
    pub(crate) fn release_item(&self, item: SegmentId) {
        if self.is_ours() {
            self.lock().release_item(item);
        }
    }

    /// An item that was made for a call that fails is not left behind.
    pub(crate) fn unmake(&self, given: &ItemGiven) {
        if given.created && self.is_ours() {
            self.lock().tell_to_do(&Request::Item(ItemRequest::Destroy { item: given.item }));
        }
    }

    /// An item is this task's no longer.
    pub(crate) fn forget_item(&self, item: SegmentId) {
        self.lock().held.items.remove(&item);
    }

    /// How many items this session has open as their owner.
    pub(crate) fn items(&self) -> usize {
        self.lock().held.items.len()
    }

    /// Remembers an endpoint, for a daemon that forgets it.
    pub(crate) fn keep_endpoint(&self, request: Request, listener: Arc<OwnedFd>) {
        self.lock().held.endpoints.push((request, listener));
        self.watch();
    }

    /// Forgets the endpoints of a workflow that ended: their sockets must not stay open.
    pub(crate) fn forget_endpoints(&self, of: &str) {
        let other = |request: &Request| !matches!(request, Request::MakeEndpoint { workflow, .. } if workflow == of);
        self.lock().held.endpoints.retain(|(request, _)| other(request));
    }

    /// Remembers a series that this session publishes, for a daemon that forgets it, and that its pool is open here.
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

    /// This session publishes it no longer, and has its pool closed.
    pub(crate) fn forget_series(&self, segment: SegmentId) {
        if !self.is_ours() {
            return;
        }
        let mut state = self.lock();
        if state.held.offered.remove(&segment).is_some() {
            state.release(segment);
        }
    }

    /// How many regions this session has open.
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

    /// Releases what an answer gave that came after its caller gave up; an item that was made for it is unmade.
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

    /// Tells a daemon on a new connection all that is open here; it closes what it does not hear of.
    pub(super) fn tell_held(&mut self) {
        let Held { leases, items, .. } = &self.held;
        let segments = leases.iter().map(|(segment, leased)| Request::Hold { segment: *segment, count: leased.count });
        let items = items.iter().map(|item| ItemRequest::Hold { item: *item });
        // A zero says that this was all.
        let segments = segments.chain([Request::Hold { segment: SegmentId(0), count: 0 }]);
        let items = items.chain([ItemRequest::Hold { item: SegmentId(0) }]).map(Request::Item);
        let requests: Vec<_> = segments.chain(items).collect();
        requests.iter().for_each(|request| self.tell(request));
    }

    /// A daemon that lost its descriptors with its keeper gets those that this process has. No thread waits for the
    /// answers: another member may have been first.
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
    /// Notes what the daemon counts when it gives this: openings of memory, or an item of one's own. `descriptor` is the last
    /// that came with it.
    pub(super) fn take(&mut self, answer: &Answer, descriptor: Option<&OwnedFd>) {
        match answer {
            Answer::Segment { segment, kind, .. } => {
                self.lease(*segment, *kind, descriptor);
            }
            Answer::Series(entry) => {
                self.lease(entry.segment, SegmentKind::Series, None);
                // The pool is its publisher's to give back; the page may be known to no other member.
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

    /// One more opening of a segment; a copy of the descriptor is kept, unless there is one.
    fn lease(&mut self, segment: SegmentId, kind: SegmentKind, given: Option<&OwnedFd>) {
        let leased = self.leases.entry(segment).or_insert(Leased { count: 0, kind, descriptor: None });
        leased.count += 1;
        if leased.descriptor.is_none() {
            leased.descriptor = given.and_then(|fd| file::duplicate(fd).ok());
        }
    }

    /// All that a daemon without descriptors can use, and the requests that give it back.
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

/// Is this member its owner's, and the only one that has it?
fn is_owned(given: &ItemGiven) -> bool {
    given.writable && given.level != ItemLevel::Cooperative
}

//! The state that a session shares with its regions, ports, items, publishers and messages. When the session ends, this
//! module closes these objects in the order that their dependencies require.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use crossdock_client::{Handle as RawHandle, Session as Inner, Status};
use pyo3::prelude::*;

use crate::errors::{OrRaise, error};
use crate::fork::{Own, elsewhere};
use crate::open_items::OpenItem;
use crate::open_ports::OpenPort;
use crate::publishing::OpenPublisher;
use crate::views::{OpenRegion, lock};

/// The state that a session shares with its regions, ports, items, publishers and messages.
pub struct SessionState {
    session: Mutex<Option<Own<Inner>>>,
    /// For each segment id: the open regions with this id. If the program opens a region several times, the views of
    /// all its Region objects are counted together. An id has several regions if the heap of an item has moved to
    /// another file while the heap in the former file was still mapped; the newest region is the last in the list.
    regions: Mutex<HashMap<u64, Vec<Weak<OpenRegion>>>>,
    ports: Mutex<Vec<Weak<OpenPort>>>,
    items: Mutex<Vec<Weak<OpenItem>>>,
    series: Mutex<Vec<Weak<OpenPublisher>>>,
}

impl SessionState {
    /// Makes the state for a session that just connected.
    pub fn new(session: Inner) -> Self {
        Self {
            session: Mutex::new(Some(Own::new(session))),
            regions: Mutex::default(),
            ports: Mutex::default(),
            items: Mutex::default(),
            series: Mutex::default(),
        }
    }

    /// Tells whether `leave` has ended the session.
    pub fn is_over(&self) -> bool {
        lock(&self.session).is_none()
    }

    /// Tells whether this process is a forked child of the one that connected.
    pub fn is_elsewhere(&self) -> bool {
        lock(&self.session).as_ref().is_some_and(|session| !session.here())
    }

    /// Records an open end of a port, so that the end of the session closes it.
    pub fn keep_port(&self, port: &Arc<OpenPort>) {
        let mut ports = lock(&self.ports);
        ports.retain(|port| port.strong_count() > 0);
        ports.push(Arc::downgrade(port));
    }

    /// Records an open item, so that the end of the session closes it.
    pub fn keep_item(&self, item: &Arc<OpenItem>) {
        let mut items = lock(&self.items);
        items.retain(|item| item.strong_count() > 0);
        items.push(Arc::downgrade(item));
    }

    /// Records a publisher, so that the end of the session ends its series.
    pub fn keep_series(&self, open_publisher: &Arc<OpenPublisher>) {
        let mut series = lock(&self.series);
        series.retain(|open_publisher| open_publisher.strong_count() > 0);
        series.push(Arc::downgrade(open_publisher));
    }

    /// The session; an error if it was closed or belongs to another process.
    pub fn get(&self, py: Python<'_>) -> PyResult<Inner> {
        let held = lock(&self.session).as_ref().map(|session| (session.here(), (**session).clone()));
        match held {
            Some((true, session)) => Ok(session),
            Some((false, session)) => {
                std::mem::forget(session);
                Err(elsewhere(py, "this session"))
            }
            None => Err(error(py, Status::Closed, "this session is closed; call crossdock.connect() again")),
        }
    }

    /// Returns this process's `OpenRegion` of this region. If the process has none for this region, adds one.
    pub fn shared(&self, region: crossdock_client::Region) -> Arc<OpenRegion> {
        let mut regions = lock(&self.regions);
        regions.retain(|_, of_segment| {
            of_segment.retain(|open_region| open_region.strong_count() > 0);
            !of_segment.is_empty()
        });
        let of_segment = regions.entry(region.id().0).or_default();
        if let Some(known) = of_segment.iter().filter_map(Weak::upgrade).find(|known| known.is_of(&region)) {
            return known;
        }
        let open_region = Arc::new(OpenRegion::new(region));
        of_segment.push(Arc::downgrade(&open_region));
        open_region
    }

    /// Returns the region into which a handle points. If this process has not opened that region yet, opens it.
    pub fn region_of(&self, py: Python<'_>, handle: RawHandle) -> PyResult<Arc<OpenRegion>> {
        let known = lock(&self.regions).get(&handle.segment).and_then(|of_segment| {
            let mut open = of_segment.iter().rev().filter_map(Weak::upgrade);
            open.find(|open_region| open_region.is_open() && !open_region.in_item)
        });
        if let Some(open_region) = known {
            return Ok(open_region);
        }
        let session = self.get(py)?;
        Ok(self.shared(py.detach(|| session.region_of(handle)).or_raise(py)?))
    }

    /// The regions that are open in this process.
    pub fn open_regions(&self) -> Vec<Arc<OpenRegion>> {
        let regions = lock(&self.regions);
        let all = regions.values().flatten().filter_map(Weak::upgrade);
        all.filter(|open_region| open_region.is_open()).collect()
    }

    /// Ends the session. A region with arrays is unmapped when its last array is gone.
    pub fn leave(&self, py: Python<'_>) -> PyResult<()> {
        let Some(session) = lock(&self.session).take() else { return Ok(()) };
        if !session.here() {
            return Ok(());
        }
        let ports: Vec<_> = lock(&self.ports).drain(..).filter_map(|port| port.upgrade()).collect();
        let regions = self.open_regions();
        let items: Vec<_> = lock(&self.items).drain(..).filter_map(|item| item.upgrade()).collect();
        let series: Vec<_> =
            lock(&self.series).drain(..).filter_map(|open_publisher| open_publisher.upgrade()).collect();
        let left = py.detach(|| {
            // An error is ignored, because the daemon may have ended already. Observers see the end of the series in
            // shared memory.
            series.iter().for_each(|open_publisher| drop(open_publisher.end()));
            ports.iter().for_each(|port| port.close());
            items.iter().for_each(|item| item.let_go());
            regions.iter().for_each(|open_region| open_region.let_go());
            (*session).clone().close()
        });
        match left {
            // Arrays keep their region, and a region keeps its member. So the member leaves when the last array is
            // gone.
            Err(e) if e.status == Status::Busy => Ok(()),
            other => other.or_raise(py),
        }
    }
}

//! The requests to the daemon that concern series: to register a series that this process publishes, and to become an
//! observer of a series.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossdock_core::series::{Offer, PinPageGiven};
use crossdock_layout::wire::{Answer, PIN_PAGE, PageEntry, Request, SeriesEntry};
use crossdock_layout::{SegmentId, Status};
use crossdock_os::{Deadline, OwnFile, memfd};

use crate::connection::Connection;
use crate::segment::SegmentOpening;
use crate::session::check_name;
use crate::{Error, Result, Session};

/// The longest time for which a publisher that is dropped tries to end its registration with the daemon. If the daemon
/// does not answer in this time, the registration ends when the member ends.
const FAREWELL: Duration = Duration::from_millis(300);

/// The registration of a series that this process publishes.
pub(crate) struct PublisherRegistration {
    connection: Arc<Connection>,
    segment: SegmentId,
    over: AtomicBool,
}

/// The registration of a series that this process observes, with its pool and a pin page. The registration ends when
/// this value is dropped.
pub(super) struct ObserverRegistration {
    pub entry: SeriesEntry,
    pub pool: OwnFile,
    pub page: OwnFile,
    /// The openings that the daemon counts. They are closed from the first to the last of this list; the pin page is
    /// the first.
    pub openings: Vec<SegmentOpening>,
}

impl PublisherRegistration {
    pub fn segment(&self) -> SegmentId {
        self.segment
    }

    /// Ends the registration, so that another member may publish under the name.
    pub fn leave(&self, deadline: Deadline) -> Result<()> {
        if self.over.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let said = self.connection.ask(Request::Unpublish { segment: self.segment }, None, None, deadline);
        self.connection.forget_series(self.segment);
        said.map(drop)
    }
}

impl Drop for PublisherRegistration {
    fn drop(&mut self) {
        let _ = self.leave(Deadline::after(FAREWELL));
    }
}

impl Session {
    /// Registers a new series with the daemon. The caller has checked the name. After the registration, the series'
    /// reserved bytes count against the quota.
    pub(super) fn register_publisher(&self, name: &str, offer: Offer) -> Result<PublisherRegistration> {
        let register = || self.try_to_register(name, &offer.pool, offer.size, offer.reserved, offer.observers);
        // `NOT_FOUND` has two possible causes. If the daemon's keeper died meanwhile, the daemon has lost the pool that
        // this process sent. In a site, the daemon first has to claim the name, and does not keep the pool while it
        // waits for the catalog. In both cases the request is sent again, at most twice.
        let again = |error: Error| if error.status == Status::NotFound { register() } else { Err(error) };
        register().or_else(again).or_else(again)
    }

    fn try_to_register(
        &self,
        name: &str,
        pool: &OwnFile,
        size: u64,
        reserved: u64,
        observers: u32,
    ) -> Result<PublisherRegistration> {
        let connection = self.connection();
        let request = Request::Publish { size, reserved, attribute: 0, observers, name: name.to_owned() };
        let (answer, _) = connection.ask(request, Some(pool.clone()), None, self.deadline())?;
        let Answer::Done { value } = answer else { return Err(crate::session::unexpected()) };
        let segment = SegmentId(value);
        connection.keep_made()?;
        Ok(PublisherRegistration { connection: connection.clone(), segment, over: AtomicBool::new(false) })
    }

    /// Asks for the next pin page of a series that this session publishes; `None` if the daemon has not made another
    /// page yet.
    pub(crate) fn pin_page(
        &self,
        segment: SegmentId,
        from: u32,
        patience: Option<Duration>,
    ) -> Result<Option<PinPageGiven>> {
        let connection = self.connection();
        let deadline = self.deadline();
        let deadline = patience.map_or(deadline, |patience| deadline.at_most(patience));
        let (answer, descriptors) = match connection.ask(Request::Pins { segment, from }, None, None, deadline) {
            Err(error) if error.status == Status::NotYet => return Ok(None),
            other => other?,
        };
        let (Answer::Pins(PageEntry { page: id, next, left }), Some(page)) = (answer, descriptors.into_iter().next())
        else {
            return Err(crate::session::unexpected());
        };
        connection.keep_page(segment, id, page.clone());
        Ok(Some(PinPageGiven { page, next, left }))
    }

    /// Registers this process as an observer of a series. If the series does not exist, waits up to `timeout` until it
    /// is published.
    pub(super) fn register_observer(
        &self,
        name: &str,
        former: bool,
        timeout: Duration,
    ) -> Result<ObserverRegistration> {
        check_name("series", name)?;
        let timeout = Some(timeout).filter(|t| !t.is_zero());
        let wait_ms = timeout.map_or(0, |t| u64::try_from(t.as_millis()).unwrap_or(u64::MAX));
        let request = Request::Observe { wait_ms, former, name: name.to_owned() };
        let connection = self.connection();
        let (answer, descriptors) = connection.ask_with(request, Vec::new(), timeout, self.late(timeout))?;
        let Answer::Series(entry) = answer else { return Err(crate::session::unexpected()) };
        let openings = [entry.pin, entry.segment].map(|id| SegmentOpening::new(connection.clone(), id)).into();
        let mut descriptors = descriptors.into_iter();
        let (Some(pool), Some(page)) = (descriptors.next(), descriptors.next()) else {
            return Err(crate::session::unexpected());
        };
        // The memory comes from another member, which cannot be trusted. So this process checks the memory.
        let checked = memfd::check(&pool, entry.size).and_then(|()| memfd::check(&page, PIN_PAGE));
        checked.map_err(|error| Error::new(Status::Corrupt, format!("series '{name}' cannot be used: {error}")))?;
        Ok(ObserverRegistration { entry, pool, page, openings })
    }
}

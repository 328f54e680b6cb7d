//! The observing side: attaching, and asking for versions.

use std::sync::Arc;
use std::time::Duration;

use crossdock_core::series as core;
use crossdock_layout::{MemberId, SegmentId, Status};

use super::daemon::Seat;
use super::{Description, SeriesReport, SeriesState, Version};
use crate::host::SessionHost;
use crate::segment::Lease;
use crate::{Error, Result, Session};

/// What an observer and its versions share: the pin page is the daemon's again when the last of them is gone.
pub(super) struct Place {
    /// In this order: the page is given back before the pool.
    _leases: (Lease, Lease),
    pub description: Description,
    pub name: String,
}

/// An observer of a series. Its versions may outlive it.
pub struct Observer {
    inner: core::Observer,
    place: Arc<Place>,
    segment: SegmentId,
    publisher: MemberId,
}

impl Session {
    /// Observes the series of this name in the current run; waits for it up to `timeout`. One of a former run is history:
    /// [`Session::observe_former`].
    ///
    /// # Errors
    /// `NOT_FOUND` (with no waiting), `TIMED_OUT`, `DENIED`, `NO_SPACE` (it has all the observers that it takes),
    /// `CORRUPT`, `INCOMPATIBLE`.
    pub fn observe(&self, name: &str, timeout: Duration) -> Result<Observer> {
        self.observe_run(name, false, timeout)
    }

    /// As [`Session::observe`], but takes the latest series of this name, of whichever run: what a run that has ended left.
    ///
    /// # Errors
    /// As [`Session::observe`].
    pub fn observe_former(&self, name: &str, timeout: Duration) -> Result<Observer> {
        self.observe_run(name, true, timeout)
    }

    fn observe_run(&self, name: &str, former: bool, timeout: Duration) -> Result<Observer> {
        let timeout = Some(timeout).filter(|t| !t.is_zero());
        let Seat { entry, pool, page, leases } = self.seat_at_series(name, former, timeout)?;
        let inner = core::Observer::attach(core::AttachParts {
            name: entry.name,
            pool,
            size: entry.size,
            pin_page: page,
            slot: entry.slot,
            publisher: entry.publisher,
            host: Arc::new(SessionHost::new(self, None)),
        })?;
        let description = inner.description().clone();
        let place = Arc::new(Place { _leases: leases, description, name: name.to_owned() });
        Ok(Observer { inner, place, segment: entry.segment, publisher: entry.publisher })
    }

    /// What goes on in a series, read without being an observer of it (`inspect`, `ls`).
    ///
    /// # Errors
    /// `NOT_FOUND`, `DENIED`, `WRONG_TYPE` (not a series), `CORRUPT`, `INCOMPATIBLE`.
    pub fn series_report(&self, id: SegmentId) -> Result<SeriesReport> {
        let opened = self.attach_segment(id)?;
        if opened.kind != crate::SegmentKind::Series {
            let text = format!("{} is {} '{}', not a series", opened.id, opened.kind.word(), opened.name);
            return Err(Error::new(Status::WrongType, text));
        }
        SeriesReport::read(&opened.name, &opened.descriptor, opened.size)
    }
}

impl Observer {
    /// The series' name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.inner.name()
    }

    /// The segment's id; a restarted publisher's series has another one.
    #[must_use]
    pub fn id(&self) -> SegmentId {
        self.segment
    }

    /// The same as a number: tells a publisher from its successor.
    #[must_use]
    pub fn incarnation(&self) -> u64 {
        self.segment.0
    }

    /// The publishing member.
    #[must_use]
    pub fn publisher(&self) -> MemberId {
        self.publisher
    }

    /// Variables (shapes at their largest), attributes, constants.
    #[must_use]
    pub fn description(&self) -> &Description {
        &self.place.description
    }

    /// How the publisher is doing.
    #[must_use]
    pub fn state(&self) -> SeriesState {
        self.inner.state()
    }

    /// The newest version's number; 0 before the first.
    #[must_use]
    pub fn newest(&self) -> u64 {
        self.inner.newest()
    }

    /// How many versions the publisher withheld for lack of room since the series began.
    #[must_use]
    pub fn withheld(&self) -> u64 {
        self.inner.withheld()
    }

    /// The newest version, also after the publisher's end or death.
    ///
    /// # Errors
    /// `NOT_YET`: nothing was published so far (`CLOSED`, `PEER_DIED`: nothing will be). `BUSY`: this observer holds 15
    /// versions. `CORRUPT`.
    pub fn latest(&mut self) -> Result<Version> {
        let inner = self.inner.latest()?;
        Ok(self.version(inner))
    }

    /// The newest version, if it is newer than every one given so far; waits for it otherwise.
    ///
    /// # Errors
    /// `TIMED_OUT`; `NOT_YET` with a timeout of zero; `CLOSED`: the publisher ended and all was given; `PEER_DIED`; as
    /// `latest`.
    pub fn next(&mut self, timeout: Duration) -> Result<Version> {
        let inner = self.inner.next(timeout)?;
        Ok(self.version(inner))
    }

    /// The version that follows the one given last, in order; waits for it. Versions that are gone are passed over, and
    /// counted in [`Version::missed`] of the one that is given. The first one given is the oldest there is.
    ///
    /// # Errors
    /// As `next`.
    pub fn each(&mut self, timeout: Duration) -> Result<Version> {
        let inner = self.inner.each(timeout)?;
        Ok(self.version(inner))
    }

    /// The version of this number; waits until it is published.
    ///
    /// # Errors
    /// `NOT_FOUND`: recycled, or never there. `NOT_YET` with a timeout of zero: still to come. As `next`.
    pub fn at(&mut self, sequence: u64, timeout: Duration) -> Result<Version> {
        let inner = self.inner.at(sequence, timeout)?;
        Ok(self.version(inner))
    }

    fn version(&self, inner: core::Version) -> Version {
        Version { inner, place: self.place.clone() }
    }
}

impl std::fmt::Debug for Observer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Observer").field("name", &self.name()).field("id", &self.segment).finish_non_exhaustive()
    }
}

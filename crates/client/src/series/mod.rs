//! The session's calls for series. One publisher changes the data of a series in place and publishes consistent
//! versions; observers never stop the publisher (after the TCASM paper; see `docs/papers.md`). The calls of publishers,
//! observers and versions are in the crate `core`.
//!
//! The publisher works on ordinary memory and publishes it. An observer asks for the latest, the next or a certain
//! version. The observer reads the version as contiguous arrays that neither change nor can be written. The daemon
//! takes part only when a publisher or an observer is registered, or when the pool grows.

mod registration;

use std::sync::Arc;
use std::time::Duration;

use crossdock_core::series::{AttachParts, Identity, Original, Replica};
use crossdock_layout::wire::SegmentKind;
use crossdock_layout::{SegmentId, Status};

pub use crossdock_core::series::{
    AttributeSpec, Description, Detect, FullPolicy, Kind, Method, Observer, Pages, Publisher,
    PublisherState as SeriesState, Report as SeriesReport, Runner, Spec as SeriesOptions,
    Statistics as SeriesStatistics, Value, Variable, Version, Waiter, diff,
};
pub(crate) use registration::PublisherRegistration;

use crate::host::SessionHost;
use crate::session::check_name;
use crate::{Error, Result, Session};
use registration::ObserverRegistration;

/// How long a call of `publish` waits for the daemon at most, if the pool of the series has to grow.
const PATIENCE: Duration = Duration::from_millis(500);

impl Session {
    /// Begins to publish a series. If the former publisher of this name ended or died, the new series takes over the
    /// name. Observers of the old series keep their versions.
    ///
    /// # Errors
    /// `EXISTS` if a living publisher has the name (the text names it). `INVALID` if a name, type, shape or size is not
    /// allowed. `DENIED` without a grant to publish the series. `NO_SPACE` if the quota or the node's memory does not
    /// suffice.
    pub fn publisher(&self, name: &str, options: &SeriesOptions) -> Result<Publisher> {
        check_name("series", name)?;
        // The publisher allocates memory before the daemon knows the series. The daemon counts this memory against the
        // quota when the series is registered.
        let host = Arc::new(SessionHost::patient(self, PATIENCE));
        let identity = Identity { name: name.into(), workflow: self.workflow().into(), member: self.member() };
        let (mut publisher, offer) = Publisher::create(identity, options, host.clone())?;
        crate::at_exit::keep_series(publisher.end_mark());
        let registration = self.register_publisher(name, offer)?;
        publisher.placed(registration.segment());
        host.keep_registration(registration);
        Ok(publisher)
    }

    /// Begins a series that publishes the same versions as a series on another node. The node daemon uses it.
    ///
    /// # Errors
    /// As [`Session::publisher`].
    pub fn replica(&self, name: &str, original: &Original) -> Result<Replica> {
        check_name("series", name)?;
        let host = Arc::new(SessionHost::patient(self, PATIENCE));
        let identity = Identity { name: name.into(), workflow: self.workflow().into(), member: self.member() };
        let (mut replica, offer) = Replica::create(identity, original, host.clone())?;
        let registration = self.register_publisher(name, offer)?;
        replica.placed(registration.segment());
        host.keep_registration(registration);
        Ok(replica)
    }

    /// Observes the series of this name in the current run. If there is none, waits for it up to `timeout`. For a
    /// series of a former run see [`Session::observe_former`].
    ///
    /// # Errors
    /// `NOT_FOUND` if there is no such series and `timeout` is zero; `TIMED_OUT` if none comes before the timeout.
    /// `DENIED` without a grant to observe the series. `NO_SPACE` if the series has as many observers as it allows, or
    /// if the quota does not suffice for a further pin page. `CORRUPT` if the pool holds what no correct publisher
    /// writes. `INCOMPATIBLE` if a build with another memory layout published the series.
    pub fn observe(&self, name: &str, timeout: Duration) -> Result<Observer> {
        self.attach_observer(self.register_observer(name, false, timeout)?)
    }

    /// Works like [`Session::observe`], but takes the latest series of this name from any run. So the call finds a
    /// series that an ended run left.
    ///
    /// # Errors
    /// As [`Session::observe`].
    pub fn observe_former(&self, name: &str, timeout: Duration) -> Result<Observer> {
        self.attach_observer(self.register_observer(name, true, timeout)?)
    }

    fn attach_observer(&self, registration: ObserverRegistration) -> Result<Observer> {
        let ObserverRegistration { entry, pool, page, openings } = registration;
        Observer::attach(AttachParts {
            name: entry.name,
            segment: entry.segment,
            pool,
            size: entry.size,
            pin_page: page,
            slot: entry.slot,
            publisher: entry.publisher,
            host: Arc::new(SessionHost::new(self, openings)),
        })
    }

    /// Reads the counters and the list of versions of a series without becoming its observer. `inspect` and `ls` use
    /// it.
    ///
    /// # Errors
    /// `NOT_FOUND` if there is no such segment, or if this session may not see it. `DENIED` if the grant of this task
    /// does not allow to observe the series. `WRONG_TYPE` if the segment is no series. `CORRUPT` if the pool holds what
    /// no correct publisher writes. `INCOMPATIBLE` if a build with another memory layout published the series.
    pub fn series_report(&self, id: SegmentId) -> Result<SeriesReport> {
        let opened = self.attach_segment(id)?;
        if opened.kind != SegmentKind::Series {
            let text = format!("{} is {} '{}', not a series", opened.id, opened.kind.word(), opened.name);
            return Err(Error::new(Status::WrongType, text));
        }
        SeriesReport::read(&opened.name, &opened.descriptor, opened.size)
    }

    /// Removes a series' name. Observers that have the series open keep it.
    ///
    /// # Errors
    /// `NOT_FOUND` if there is no series of this name. `DENIED` without a grant to remove it. `BUSY` while a member
    /// publishes the series.
    pub fn remove_series(&self, name: &str) -> Result<()> {
        self.remove_segment(SegmentKind::Series, name)
    }
}

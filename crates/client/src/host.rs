//! `SessionHost`: an open region, port or series sends its requests to the daemon through this type.

use std::sync::OnceLock;
use std::time::Duration;

use crossdock_core::Host;
use crossdock_core::liveness::LivenessSource;
use crossdock_core::series::PinPageGiven;
use crossdock_layout::wire::Request;
use crossdock_layout::{MemberId, SegmentId};

use crate::segment::SegmentOpening;
use crate::series::PublisherRegistration;
use crate::{Result, Session};

/// An open object's access to its session. While the object exists, this value keeps the session alive and keeps the
/// object's segments open in the daemon's count.
pub(crate) struct SessionHost {
    /// The openings that the daemon counts. They are closed one after the other, from the first to the last of this
    /// list, before the session ends.
    _openings: Vec<SegmentOpening>,
    /// The registration of the series that this process publishes; empty until the daemon knows the series.
    registration: OnceLock<PublisherRegistration>,
    /// The segment whose reserved bytes count against the quota. Empty until the daemon knows the segment. It stays
    /// empty if all bytes of the segment are counted already.
    segment: OnceLock<SegmentId>,
    /// The longest wait for the daemon when a segment grows. `None` means the session's usual time.
    patience: Option<Duration>,
    session: Session,
}

impl SessionHost {
    /// Makes the `SessionHost` of an object that never grows: the daemon has counted all of its memory already.
    pub fn new(session: &Session, openings: Vec<SegmentOpening>) -> Self {
        let (registration, segment) = (OnceLock::new(), OnceLock::new());
        Self { _openings: openings, registration, segment, patience: None, session: session.clone() }
    }

    /// Makes the `SessionHost` of an object whose segment can grow.
    pub fn growing(session: &Session, opening: SegmentOpening, segment: SegmentId) -> Self {
        Self { segment: OnceLock::from(segment), ..Self::new(session, vec![opening]) }
    }

    /// Makes the `SessionHost` of a series that is registered with the daemon later. `patience` is the longest wait for
    /// the daemon when the memory of the series grows.
    pub fn patient(session: &Session, patience: Duration) -> Self {
        Self { patience: Some(patience), ..Self::new(session, Vec::new()) }
    }

    /// Stores the registration, after the daemon has accepted the series.
    pub fn keep_registration(&self, registration: PublisherRegistration) {
        self.segment.get_or_init(|| registration.segment());
        self.registration.get_or_init(|| registration);
    }
}

impl Host for SessionHost {
    fn liveness(&self) -> &dyn LivenessSource {
        self.session.liveness()
    }

    fn reserve(&self, total: u64) -> Result<()> {
        let Some(segment) = self.segment.get() else { return Ok(()) };
        let request = Request::Reserve { segment: *segment, upto: total };
        let deadline = self.session.deadline();
        let deadline = self.patience.map_or(deadline, |patience| deadline.at_most(patience));
        self.session.connection().ask(request, None, None, deadline).map(drop)
    }

    fn is_closing(&self) -> bool {
        self.session.connection().is_closing()
    }

    fn describe(&self, member: MemberId) -> String {
        self.session.describe_member(member)
    }

    fn pages_word(&self) -> u32 {
        self.segment.get().map_or(0, |segment| self.session.liveness().table().pages(*segment))
    }

    fn series_ended(&self) -> Result<()> {
        self.registration.get().map_or(Ok(()), |registration| registration.leave(self.session.deadline()))
    }

    fn pin_page(&self, from: u32) -> Result<Option<PinPageGiven>> {
        let Some(segment) = self.segment.get() else { return Ok(None) };
        self.session.pin_page(*segment, from, self.patience)
    }
}

//! What open objects ask of their session.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crossdock_core::Host;
use crossdock_core::liveness::Living;
use crossdock_core::series::PinPageGiven;
use crossdock_layout::wire::Request;
use crossdock_layout::{MemberId, SegmentId};

use crate::segment::Lease;
use crate::{Result, Session};

/// The host of one open object. It keeps the session, and the daemon's count of openings.
pub(crate) struct SessionHost {
    session: Session,
    /// What is counted against the quota; nothing before the daemon knows the segment, or if all of it is counted.
    segment: Arc<OnceLock<SegmentId>>,
    /// How long growing waits for the daemon, if not as long as other requests.
    patience: Option<Duration>,
    _lease: Option<Lease>,
}

impl SessionHost {
    /// For memory that is all there and counted.
    pub fn new(session: &Session, lease: Option<Lease>) -> Self {
        Self { session: session.clone(), segment: Arc::default(), patience: None, _lease: lease }
    }

    /// For a segment that grows.
    #[must_use]
    pub fn growing(mut self, segment: Arc<OnceLock<SegmentId>>, patience: Option<Duration>) -> Self {
        (self.segment, self.patience) = (segment, patience);
        self
    }
}

impl Host for SessionHost {
    fn liveness(&self) -> &dyn Living {
        self.session.liveness()
    }

    fn reserve(&self, total: u64) -> Result<()> {
        let Some(segment) = self.segment.get() else { return Ok(()) };
        let request = Request::Reserve { segment: *segment, upto: total };
        let deadline = self.session.deadline();
        let deadline = self.patience.map_or(deadline, |patience| deadline.at_most(patience));
        self.session.connection().ask(request, None, None, deadline).map(drop)
    }

    fn describe(&self, member: MemberId) -> String {
        self.session.describe_member(member)
    }

    fn pages_word(&self) -> u32 {
        self.segment.get().map_or(0, |segment| self.session.liveness().table().pages(*segment))
    }

    fn pin_page(&self, from: u32) -> Result<Option<PinPageGiven>> {
        let Some(segment) = self.segment.get() else { return Ok(None) };
        self.session.pin_page(*segment, from, self.patience)
    }
}

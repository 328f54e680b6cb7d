//! Sends a report to the other node, and repeats it until the other node confirms it.

use std::time::Duration;

use crossdock_client::Status;

use crate::Peers;

/// How long one request waits for its answer before it is repeated.
const ASK: Duration = Duration::from_secs(5);
/// The pause before a failed request is repeated.
pub const AGAIN: Duration = Duration::from_millis(50);

/// How sending a report ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportOutcome {
    Yes,
    /// The side that sends the report has ended meanwhile, so the report is not needed any more.
    Ended,
    /// The side that should get the report does not exist any more.
    Unknown,
}

/// A part of a relay that sends reports: a channel, a mirror or a supply.
pub trait Reporter {
    /// Returns `None` as long as the report must still be sent, and otherwise the reason why it need not be sent any
    /// more.
    fn stopped(&self) -> Option<ReportOutcome>;
    /// Sleeps for `time`, or until the sender of the report ends.
    fn pause(&self, time: Duration);
}

/// Sends a request to a service of the other node and repeats it, until that node answers or one of the two sides has
/// ended.
pub fn tell(side: &impl Reporter, peers: &dyn Peers, node: &str, service: u32, body: &[u8]) -> ReportOutcome {
    loop {
        let failed = match peers.ask(node, service, body, ASK) {
            Ok(_) => return ReportOutcome::Yes,
            Err(error) => error.status,
        };
        if let Some(stopped) = side.stopped() {
            return stopped;
        }
        if !may_pass(failed) {
            return ReportOutcome::Unknown;
        }
        side.pause(AGAIN);
    }
}

/// Tells whether a request or a pull that failed with this status may succeed if it is repeated.
pub fn may_pass(failed: Status) -> bool {
    matches!(failed, Status::Disconnected | Status::TimedOut | Status::Busy | Status::System)
}

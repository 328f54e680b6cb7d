//! Sends a report to the other node until it is confirmed.

use std::time::Duration;

use crossdock_client::Status;

use crate::Peers;

/// How long one question waits for its answer before it is asked again.
const ASK: Duration = Duration::from_secs(5);
/// The pause before a question that failed is asked again.
pub const AGAIN: Duration = Duration::from_millis(50);

/// How sending a report ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportOutcome {
    Yes,
    /// This side has ended meanwhile, so the report is not needed any more.
    Ended,
    /// The other side does not exist any more.
    Unknown,
}

/// The side that sends a report.
pub trait Reporter {
    /// Gives `None` while the report should still be sent. Otherwise gives the reason why sending it is useless.
    fn stopped(&self) -> Option<ReportOutcome>;
    /// Waits for `time`, or until this side ends.
    fn pause(&self, time: Duration);
}

/// Asks a service of the other node again and again, until it answers or one of the sides has ended.
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

/// Tells whether a question or a pull that failed with this status may succeed later.
pub fn may_pass(failed: Status) -> bool {
    matches!(failed, Status::Disconnected | Status::TimedOut | Status::Busy | Status::System)
}

//! Telling the other node something until it is heard.

use std::time::Duration;

use crossdock_client::Status;

use crate::Peers;

/// One question waits so long for its answer, and is asked again then.
const ASK: Duration = Duration::from_secs(5);
/// The pause before a question that failed is asked again.
pub const AGAIN: Duration = Duration::from_millis(50);

/// What telling ended with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    Yes,
    /// This side has ended meanwhile.
    Over,
    /// The other side is not there any more.
    Unknown,
}

/// The side that tells.
pub trait Side {
    /// Says whether telling is of no use any more, and why.
    fn stopped(&self) -> Option<Told>;
    /// Waits, but not beyond the end of this side.
    fn pause(&self, time: Duration);
}

/// Asks a service of the other node again and again until it has answered.
pub fn tell(side: &impl Side, peers: &dyn Peers, node: &str, service: u32, body: &[u8]) -> Told {
    loop {
        let failed = match peers.ask(node, service, body, ASK) {
            Ok(_) => return Told::Yes,
            Err(error) => error.status,
        };
        if let Some(stopped) = side.stopped() {
            return stopped;
        }
        if !may_pass(failed) {
            return Told::Unknown;
        }
        side.pause(AGAIN);
    }
}

/// May a question or pull that failed with this status succeed later?
pub fn may_pass(failed: Status) -> bool {
    matches!(failed, Status::Disconnected | Status::TimedOut | Status::Busy | Status::System)
}

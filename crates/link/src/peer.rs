//! The two nodes of a link, and what one node knows of the other.

use crossdock_layout::Status;
use crossdock_layout::link::MAX_LINK_TEXT;
use crossdock_layout::text::clipped;
use crossdock_layout::wire::SegmentKind;
use std::time::{Duration, Instant};

/// A node's name, and the number of one start of its daemon.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    /// The node's name, unique in its site.
    pub name: String,
    /// A number for this start of the daemon. No two starts have the same number.
    pub incarnation: u64,
}

/// The settings of links: times, sizes, and limits for the number of streams and connections.
#[derive(Clone, Copy, Debug)]
pub struct LinkOptions {
    /// A node sends a pulse when this time has passed since its last pulse.
    pub pulse: Duration,
    /// A peer that was silent for this time counts as away. It may come back, so its tasks do not count as dead.
    pub away: Duration,
    /// The largest number of streams among which one pull is divided.
    pub streams: usize,
    /// The least number of bytes that each stream of a pull brings, if several streams share the pull.
    pub share: usize,
    /// The largest number of connections that a server serves at the same time. One node may have at most an eighth of
    /// this number. At most three quarters of this number may be connections that carry bytes of objects.
    pub connections: usize,
}

impl Default for LinkOptions {
    fn default() -> Self {
        Self {
            pulse: Duration::from_millis(500),
            away: Duration::from_secs(3),
            streams: 4,
            share: 256 << 10,
            connections: 2048,
        }
    }
}

impl LinkOptions {
    /// Gives the time after which a silent connection is closed and replaced. TCP repeats lost packets at ever longer
    /// intervals. After this time, a new connection therefore brings bytes sooner than the old connection.
    #[must_use]
    pub fn give_up(&self) -> Duration {
        self.away * 4
    }

    pub(crate) fn pulse_ms(&self) -> u32 {
        ms(self.pulse)
    }

    pub(crate) fn away_ms(&self) -> u32 {
        ms(self.away.max(self.pulse))
    }
}

fn ms(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX).max(1)
}

/// Whether a peer can be reached, as far as this node's connection to the peer shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Presence {
    /// The last message of the peer came within the last [`LinkOptions::away`].
    Here,
    /// The peer was silent for longer than [`LinkOptions::away`]. It is not known to be dead.
    Away,
    /// There was no connection to the peer so far.
    Unmet,
}

/// The state of a link, for `crossdock ls --nodes` and error messages.
#[derive(Clone, Debug)]
pub struct LinkState {
    /// The peer's name.
    pub node: String,
    /// The peer's address.
    pub address: String,
    /// The name of the transport that the connection uses; if there is no connection, that of the best transport.
    pub transport: &'static str,
    /// Whether the peer can be reached.
    pub presence: Presence,
    /// The time since the last message of the peer came.
    pub heard: Option<Duration>,
    /// The incarnation (the number of the start) of the peer's daemon at the last connection.
    pub incarnation: Option<u64>,
    /// Why there is no connection now.
    pub why: Option<String>,
    /// Why the present connection uses no better transport. Only the side that dials knows the reason.
    pub better: Option<String>,
    /// The name of the transport that carries the bytes of large pulls, if it is not the one in `transport`.
    pub pulls: Option<&'static str>,
}

impl std::fmt::Display for LinkState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (&self.presence, self.heard) {
            (Presence::Here, Some(heard)) => write!(f, "node '{}' was heard {heard:.1?} ago", self.node)?,
            (_, Some(heard)) => write!(f, "node '{}' is away, last heard {heard:.1?} ago", self.node)?,
            (_, None) => write!(f, "node '{}' was never heard", self.node)?,
        }
        self.why.as_ref().map_or(Ok(()), |why| write!(f, " ({why})"))
    }
}

/// The moment at which the last message of a peer came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastHeard(pub Instant);

impl LastHeard {
    pub fn now() -> Self {
        Self(Instant::now())
    }

    pub fn presence(self, options: &LinkOptions) -> Presence {
        if self.0.elapsed() <= options.away { Presence::Here } else { Presence::Away }
    }
}

/// Names the object whose bytes a node pulls, with the id and epoch that the owner's node uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceId {
    /// The kind of object.
    pub kind: SegmentKind,
    /// The object's id on the owner's node.
    pub object: u64,
    /// The object's epoch. If the object has another epoch by now, the request is refused.
    pub epoch: u64,
}

impl std::fmt::Display for SourceId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} (epoch {})", self.kind.word(), self.object, self.epoch)
    }
}

/// A node's reason for not doing what a peer asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The kind of refusal; neither `Ok` nor `NotYet`.
    pub status: Status,
    /// The text for people: object, reason and hint.
    pub text: String,
}

impl Refusal {
    /// Makes a refusal.
    ///
    /// # Panics
    /// Panics if `status` is `Ok` or `NotYet`, because these are no refusals.
    pub fn new(status: Status, text: impl Into<String>) -> Self {
        assert!(!matches!(status, Status::Ok | Status::NotYet), "{status} refuses nothing");
        let mut text = text.into();
        text.truncate(clipped(&text, MAX_LINK_TEXT).len());
        Self { status, text }
    }

    /// Makes the refusal of a request for a part that the object does not have, or does not have any more.
    #[must_use]
    pub fn shorter() -> Self {
        Self::new(Status::Corrupt, "the object became shorter while it was sent")
    }
}

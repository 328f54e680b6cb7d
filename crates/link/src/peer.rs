//! The two nodes of a link, and what one knows of the other.

use crossdock_layout::Status;
use crossdock_layout::link::MAX_LINK_TEXT;
use crossdock_layout::wire::SegmentKind;
use std::time::{Duration, Instant};

/// One start of a node's daemon.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    /// The node's name, unique in its site.
    pub name: String,
    /// Which start of its daemon this is. Never the same for two starts.
    pub incarnation: u64,
}

/// Times and sizes of links.
#[derive(Clone, Copy, Debug)]
pub struct LinkOptions {
    /// A node sends a pulse when it has sent nothing for this long.
    pub pulse: Duration,
    /// A peer that was silent for so long counts as away. It may come back; nothing is concluded about its tasks.
    pub away: Duration,
    /// Streams that a large pull is spread over.
    pub streams: usize,
    /// A pull of at least so many bytes is large.
    pub spread_from: usize,
    /// Most connections that a server serves at once.
    pub connections: usize,
}

impl Default for LinkOptions {
    fn default() -> Self {
        Self {
            pulse: Duration::from_millis(500),
            away: Duration::from_secs(3),
            streams: 4,
            spread_from: 32 << 20,
            connections: 1024,
        }
    }
}

impl LinkOptions {
    /// A connection whose peer was silent for so long is given up, and made anew. By then TCP itself repeats lost packets
    /// so rarely that a new connection is faster.
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

/// What a node knows of a peer, by the connection to it alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It was heard within the away time.
    Here,
    /// It was silent for longer. That is no death.
    Away,
    /// No connection to it has stood so far.
    Unmet,
}

/// The state of a link, for `crossdock ls --nodes` and error messages.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The peer's name.
    pub node: String,
    /// Its address.
    pub address: String,
    /// How the bytes travel.
    pub transport: &'static str,
    /// Is it there?
    pub presence: Presence,
    /// How long ago it was last heard.
    pub heard: Option<Duration>,
    /// Which start of its daemon was met last.
    pub incarnation: Option<u64>,
    /// Why there is no connection now.
    pub why: Option<String>,
}

impl std::fmt::Display for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (&self.presence, self.heard) {
            (Presence::Here, Some(heard)) => write!(f, "node '{}' was heard {heard:.1?} ago", self.node)?,
            (_, Some(heard)) => write!(f, "node '{}' is away, last heard {heard:.1?} ago", self.node)?,
            (_, None) => write!(f, "node '{}' was never heard", self.node)?,
        }
        self.why.as_ref().map_or(Ok(()), |why| write!(f, " ({why})"))
    }
}

/// When a peer was last heard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heard(pub Instant);

impl Heard {
    pub fn now() -> Self {
        Self(Instant::now())
    }

    pub fn presence(self, options: &LinkOptions) -> Presence {
        if self.0.elapsed() <= options.away { Presence::Here } else { Presence::Away }
    }
}

/// An object of which bytes are wanted, as its owner's node knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// What it is.
    pub kind: SegmentKind,
    /// Its id on that node.
    pub object: u64,
    /// Its epoch. An object that has another one by now is not what is meant.
    pub epoch: u64,
}

impl std::fmt::Display for Wanted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} (epoch {})", self.kind.word(), self.object, self.epoch)
    }
}

/// Why a node does not do what it was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// As a number; neither `Ok` nor `NotYet`.
    pub status: Status,
    /// For people: object, reason and hint.
    pub text: String,
}

impl Refusal {
    /// A refusal.
    ///
    /// # Panics
    /// `Ok` and `NotYet` refuse nothing.
    pub fn new(status: Status, text: impl Into<String>) -> Self {
        assert!(!matches!(status, Status::Ok | Status::NotYet), "{status} refuses nothing");
        let mut text = text.into();
        let mut end = text.len().min(MAX_LINK_TEXT);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        Self { status, text }
    }
}

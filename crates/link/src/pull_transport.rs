//! Chooses the transport that brings the bytes of a link's pulls: the *usual* one, which also carries the questions, or
//! the *other* one, which carries nothing but pulls.
//!
//! Which of the two transports is faster depends on the two machines, so the link measures both with its own large
//! pulls. The faster transport is used, and the slower one is measured again from time to time. If the other transport
//! does not connect or breaks, pulls go by the usual transport, and the other one is tried again later.

use crate::Transport;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Pulls of at least this many bytes are measured. The time of a smaller pull is mostly the round trip of its
/// connection, and does not show which transport is faster.
const LARGE: usize = 1 << 20;
/// The slower of the two transports is measured again after this time.
const AGAIN: Duration = Duration::from_secs(60);
/// The longest time that a pull waits for a connection of the link's second transport. After this time, the pull uses
/// the link's usual transport.
pub(crate) const TRIAL: Duration = Duration::from_secs(2);
/// A transport that failed is tried again after this time. Each further failure doubles the time, up to [`RETRY_MOST`].
const RETRY: Duration = Duration::from_secs(10);
const RETRY_MOST: Duration = Duration::from_secs(600);
/// A transport counts as measured after this many pulls. One pull is not enough, because the first one also makes the
/// connections.
const PULLS: u32 = 2;

/// A second transport of a link, which only carries pulls; or the reason why there is none.
#[derive(Clone, Default)]
pub struct OtherTransport {
    transport: Option<Arc<dyn Transport>>,
    why: String,
}

impl std::fmt::Debug for OtherTransport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.transport.as_ref().map_or(&self.why, |transport| transport.name()))
    }
}

impl OtherTransport {
    /// Lets pulls go by `transport`, if it is faster than the usual transport.
    #[must_use]
    pub fn new(transport: Arc<dyn Transport>) -> Self {
        Self { transport: Some(transport), why: String::new() }
    }

    /// Lets pulls go by the usual transport alone. `why` is the reason, as text for people.
    #[must_use]
    pub fn none(why: impl Into<String>) -> Self {
        Self { transport: None, why: why.into() }
    }
}

/// One of the two transports by which a link can pull bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PullTransport {
    Usual,
    Other,
}

/// The measurements of one transport for pulls.
#[derive(Clone, Copy, Default)]
struct Measured {
    pulls: u32,
    bytes_per_second: f64,
    at: Option<Instant>,
}

impl Measured {
    fn note(&mut self, bytes_per_second: f64) {
        let old = if self.pulls < PULLS { bytes_per_second } else { self.bytes_per_second };
        *self = Self {
            pulls: self.pulls.saturating_add(1),
            bytes_per_second: 0.75 * old + 0.25 * bytes_per_second,
            at: Some(Instant::now()),
        };
    }

    fn is_stale(&self) -> bool {
        self.at.is_none_or(|at| at.elapsed() >= AGAIN)
    }
}

/// The last failure of the transport that carries only pulls.
struct Failed {
    at: Instant,
    why: String,
    /// The time from the failure until the transport may be tried again.
    pause: Duration,
}

#[derive(Default)]
struct State {
    usual: Measured,
    other: Measured,
    failed: Option<Failed>,
}

impl State {
    fn may_use_other(&self) -> bool {
        self.failed.as_ref().is_none_or(|failed| failed.at.elapsed() >= failed.pause)
    }

    fn faster(&self) -> PullTransport {
        let known = self.usual.pulls >= PULLS && self.other.pulls >= PULLS;
        if known && self.other.bytes_per_second > self.usual.bytes_per_second {
            PullTransport::Other
        } else {
            PullTransport::Usual
        }
    }
}

/// The transports of a link's pulls, and what was measured of them.
pub(crate) struct PullTransports {
    other: OtherTransport,
    state: Mutex<State>,
}

impl PullTransports {
    pub fn new(other: OtherTransport) -> Self {
        Self { other, state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the other transport, unless it has failed a short time ago.
    pub fn other(&self) -> Option<&Arc<dyn Transport>> {
        self.other.transport.as_ref().filter(|_| self.lock().may_use_other())
    }

    /// Chooses the transport for a pull of `length` bytes.
    pub fn choose(&self, length: usize) -> PullTransport {
        let state = self.lock();
        if self.other.transport.is_none() || !state.may_use_other() {
            return PullTransport::Usual;
        }
        if length < LARGE {
            return state.faster();
        }
        match (state.usual, state.other) {
            (_, other) if other.pulls < PULLS => PullTransport::Other,
            (usual, _) if usual.pulls < PULLS => PullTransport::Usual,
            (_, other) if other.is_stale() => PullTransport::Other,
            (usual, _) if usual.is_stale() => PullTransport::Usual,
            _ => state.faster(),
        }
    }

    /// Notes how long a pull took.
    pub fn note(&self, transport: PullTransport, length: usize, took: Duration) {
        if self.other.transport.is_none() || length < LARGE {
            return;
        }
        let rate = length as f64 / took.as_secs_f64().max(1e-9);
        let mut state = self.lock();
        match transport {
            PullTransport::Usual => state.usual.note(rate),
            // The pull was to go by the other transport, but the other transport has just failed, so the usual
            // transport brought these bytes. The time that the pull took says nothing about the other transport. So
            // nothing is noted.
            PullTransport::Other if !state.may_use_other() => {}
            PullTransport::Other => {
                state.other.note(rate);
                state.failed = None;
            }
        }
    }

    /// Notes that the other transport did not connect, or broke.
    pub fn failed(&self, why: &str) {
        let mut state = self.lock();
        let pause = match &state.failed {
            None => RETRY,
            // Several connections of one pull fail together. They count as one failure.
            Some(last) if last.at.elapsed() < last.pause => last.pause,
            Some(last) => (last.pause * 2).min(RETRY_MOST),
        };
        state.failed = Some(Failed { at: Instant::now(), why: why.to_owned(), pause });
    }

    /// Tells by which transport large pulls go. If they go by the other transport, gives the name of the other
    /// transport and an empty text. If they go by the usual transport, gives `None`, and the reason why they do not go
    /// by the other transport; the reason is empty if there is nothing to say.
    pub fn seen(&self) -> (Option<&'static str>, String) {
        let Some(other) = &self.other.transport else { return (None, self.other.why.clone()) };
        let (state, name) = (self.lock(), other.name());
        if let Some(failed) = state.failed.as_ref().filter(|_| !state.may_use_other()) {
            return (None, format!("{name}: {}", failed.why));
        }
        if state.usual.pulls < PULLS || state.other.pulls < PULLS {
            return (None, format!("{name} is measured with the next pulls of {LARGE} bytes or more"));
        }
        if state.faster() == PullTransport::Other {
            return (Some(name), String::new());
        }
        let rate = |measured: &Measured| measured.bytes_per_second / 1e9;
        (None, format!("{name} was slower: {:.2} GB/s instead of {:.2}", rate(&state.other), rate(&state.usual)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tcp;

    const BIG: usize = 10 << 20;

    fn pull(pull_transports: &PullTransports, usual_ms: u64, other_ms: u64) -> PullTransport {
        let transport = pull_transports.choose(BIG);
        let ms = if transport == PullTransport::Usual { usual_ms } else { other_ms };
        pull_transports.note(transport, BIG, Duration::from_millis(ms));
        transport
    }

    #[test]
    fn both_transports_are_measured_and_the_faster_one_is_used() {
        for (usual, other, wanted) in [(10, 5, PullTransport::Other), (5, 10, PullTransport::Usual)] {
            let pull_transports = PullTransports::new(OtherTransport::new(Arc::new(Tcp::default())));
            assert_eq!(pull_transports.choose(100), PullTransport::Usual, "a small pull tries nothing");
            let first: Vec<_> = (0..4).map(|_| pull(&pull_transports, usual, other)).collect();
            assert_eq!(first, [PullTransport::Other, PullTransport::Other, PullTransport::Usual, PullTransport::Usual]);
            assert!((0..5).all(|_| pull(&pull_transports, usual, other) == wanted));
            assert_eq!(pull_transports.choose(100), wanted);
            let (name, why) = pull_transports.seen();
            assert_eq!(name.is_some(), wanted == PullTransport::Other);
            assert_eq!(why.contains("slower: 1.05 GB/s instead of 2.10"), wanted == PullTransport::Usual, "{why}");
        }
    }

    #[test]
    fn a_transport_that_fails_is_left_alone_for_a_while_and_the_reason_is_told() {
        let pull_transports = PullTransports::new(OtherTransport::new(Arc::new(Tcp::default())));
        assert!(pull_transports.other().is_some());
        pull_transports.failed("no route");
        assert_eq!(pull_transports.choose(BIG), PullTransport::Usual);
        assert!(pull_transports.other().is_none());
        assert_eq!(pull_transports.seen(), (None, "tcp: no route".to_owned()));
        // A second connection of the same pull fails, too. This failure does not double the pause before the next
        // attempt.
        pull_transports.failed("no route");
        for pause in [RETRY, RETRY * 2, RETRY * 4] {
            assert_eq!(pull_transports.lock().failed.as_ref().unwrap().pause, pause);
            pull_transports.lock().failed.as_mut().unwrap().at -= pause;
            assert_eq!(pull_transports.choose(BIG), PullTransport::Other);
            pull_transports.failed("no route");
        }
        // A pull was to go by the other transport, so it is noted as `Other`. But the pause after the failure of the
        // other transport is not over, so the pull has gone by the usual transport. The pull does not show that the
        // other transport works again, and the failure stays noted.
        pull_transports.note(PullTransport::Other, BIG, Duration::from_millis(1));
        assert!(pull_transports.lock().failed.is_some());
        // The test moves the time of the failure into the past, so that the pause is over. Then a pull by the other
        // transport shows that this transport works.
        pull_transports.lock().failed.as_mut().unwrap().at -= RETRY * 8;
        pull_transports.note(PullTransport::Other, BIG, Duration::from_millis(1));
        assert!(pull_transports.lock().failed.is_none());
    }

    #[test]
    fn without_another_transport_the_reason_is_told() {
        let pull_transports = PullTransports::new(OtherTransport::none("this node has no UCX"));
        assert_eq!(
            (pull_transports.choose(BIG), pull_transports.seen()),
            (PullTransport::Usual, (None, "this node has no UCX".to_owned()))
        );
    }
}

//! Tries from time to time whether a better transport than the present one works. A thread makes the trial: it opens a
//! data connection, which belongs to the present control connection, through the better transport. No pull uses this
//! data connection, so the trial disturbs nothing.

use crate::link::Shared;
use crossdock_layout::link::Purpose;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The pause before the first trial. It is short, because the better transport may have failed only because the peer was
/// just starting. Each further pause is twice as long, up to [`PAUSE_MOST`].
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MOST: Duration = Duration::from_secs(60);

/// While one connection lasts, tries from time to time whether a better transport works.
pub struct TransportTrials {
    /// The index of the transport in use, in the link's list of transports. The list begins with the best one.
    than: usize,
    session: [u8; 16],
    next: Instant,
    pause: Duration,
    /// The thread of the present trial. Its result is the index of a better transport that works; `None` if there is
    /// none.
    trial: Option<JoinHandle<Option<usize>>>,
    found: Option<usize>,
}

impl TransportTrials {
    /// Prepares trials of the transports that come before the index `place` in the link's list. `session` is the
    /// identifier of the present control connection.
    pub fn than(place: usize, session: [u8; 16]) -> Self {
        Self { than: place, session, next: Instant::now() + PAUSE, pause: PAUSE, trial: None, found: None }
    }

    /// Gives the index of the better transport that works; `None` if none was found so far.
    pub const fn found(&self) -> Option<usize> {
        self.found
    }

    /// Tells whether a better transport works. The call does not wait: it begins a trial when one is due, and takes the
    /// result of a trial that has ended.
    pub fn works(&mut self, link: &Arc<Shared>) -> bool {
        if self.found.is_none() && self.trial.as_ref().is_some_and(JoinHandle::is_finished) {
            // If the thread panicked, its message has been printed already, so the panic is ignored here.
            self.found = self.trial.take().and_then(|trial| trial.join().ok().flatten());
            self.pause = (self.pause * 2).min(PAUSE_MOST);
            self.next = Instant::now() + self.pause;
        }
        if self.found.is_none() && self.trial.is_none() && self.than > 0 && Instant::now() >= self.next {
            let (link, than, session) = (Arc::clone(link), self.than, self.session);
            let trial = move || (0..than).find(|index| works(&link, *index, session));
            self.trial = std::thread::Builder::new().name("crossdock-better".into()).spawn(trial).ok();
        }
        self.found.is_some()
    }
}

fn works(link: &Shared, index: usize, session: [u8; 16]) -> bool {
    match link.try_transport(index, Purpose::Data, session) {
        Ok((frames, ..)) => {
            frames.stream().close();
            true
        }
        Err(_) => false,
    }
}

//! What `checkpoint`, `watch` and `export` have in common: finding series, and versions of several ranks that belong together.

pub mod contents;
pub mod set;
pub mod span;
pub mod statistics;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crossdock_client::{ConnectOptions, Observer, Session, Status};

use crate::find;

/// How long one look takes at most, so that signals are answered.
pub const LOOK: Duration = Duration::from_millis(200);

/// The signal that asked this program to end, if one did.
#[derive(Clone)]
pub struct Stop(Arc<AtomicUsize>);

impl Stop {
    /// From now on Ctrl-C, SIGTERM and hang-up end this program in order, not at once.
    pub fn on_signals() -> Result<Self, String> {
        let asked = Arc::new(AtomicUsize::new(0));
        for signal in [2, 15, 1] {
            signal_hook::flag::register_usize(signal, Arc::clone(&asked), signal as usize)
                .map_err(|e| format!("cannot take signal {signal}: {e}"))?;
        }
        Ok(Self(asked))
    }

    /// 128 + the signal's number, as shells say it.
    pub fn asked(&self) -> Option<u8> {
        match self.0.load(Ordering::Relaxed) {
            0 => None,
            signal => Some(128 + signal as u8),
        }
    }
}

/// Observes all the names, waiting until each is there. Inside a task the endpoint says where; outside, every daemon of
/// the user is asked, and a name may be WORKFLOW/NAME.
pub fn observe(names: &[String], socket: Option<&Path>, until: Instant, stop: &Stop) -> Result<Vec<Observer>, String> {
    let mut found: Vec<Observer> = Vec::new();
    let mut session: Option<Session> = None;
    loop {
        let why = match &session {
            Some(session) => match session.observe(&names[found.len()], LOOK.min(until - Instant::now().min(until))) {
                Ok(observer) => {
                    found.push(observer);
                    if found.len() == names.len() {
                        return Ok(found);
                    }
                    continue;
                }
                Err(e) if matches!(e.status, Status::NotFound | Status::TimedOut) => e.message,
                Err(e) => return Err(e.message),
            },
            None => match session_for(&names[0], socket) {
                Ok(inside) => {
                    session = Some(inside);
                    continue;
                }
                Err(why) => {
                    std::thread::sleep(LOOK / 4);
                    why
                }
            },
        };
        if stop.asked().is_some() {
            return Err("stopped".into());
        }
        if Instant::now() >= until {
            return Err(why);
        }
    }
}

/// A session in which a series of this name can be seen.
fn session_for(name: &str, socket: Option<&Path>) -> Result<Session, String> {
    let given = socket.map(Path::to_owned).or_else(|| std::env::var_os("CROSSDOCK_SOCKET").map(Into::into));
    if given.is_some() {
        let options =
            ConnectOptions { socket: given, private_daemon: false, visitor: true, ..ConnectOptions::default() };
        return Session::connect(&options).map_err(|e| e.message);
    }
    for daemon in find::daemons(None)? {
        let listing = daemon.session.list().map_err(|e| e.message)?;
        for segment in &listing.segments {
            if segment.kind == crossdock_client::SegmentKind::Series && segment.name == name {
                return daemon.inside(&segment.workflow, None);
            }
        }
    }
    Err(format!("there is no series `{name}` in any daemon of yours; `crossdock ls` shows what there is"))
}

/// `field` with 4 ranks: `field/0` … `field/3`.
pub fn names(given: &[String], ranks: Option<u32>) -> Vec<String> {
    match ranks {
        None => given.to_vec(),
        Some(n) => given.iter().flat_map(|name| (0..n).map(move |rank| format!("{name}/{rank}"))).collect(),
    }
}

/// How several names are said in one word: `field/0…3`.
pub fn together(names: &[String]) -> String {
    match names {
        [one] => one.clone(),
        [first, .., last] => format!("{first} … {last}"),
        [] => String::new(),
    }
}

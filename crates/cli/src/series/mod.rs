//! The common part of the commands `checkpoint`, `watch` and `export`: finds series. If each of several ranks publishes
//! a series, also finds one version of each rank, all with the same version number.

pub mod contents;
pub mod durations;
pub mod ranked_observers;
pub mod statistics;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crossdock_client::{Observer, Session, Status};
use crossdock_os::child;

use crate::names;
use crate::table::complain;

/// The longest wait before the command checks whether a signal asked it to end.
pub const LOOK: Duration = Duration::from_millis(200);

/// The signal that asked this program to end, if one did.
#[derive(Clone)]
pub struct StopSignal(Arc<AtomicUsize>);

impl StopSignal {
    /// From this call on, Ctrl-C, SIGTERM and hang-up only note the signal, so that this program can clean up before it
    /// ends. A signal that was ignored when this program was started stays ignored, except SIGTERM.
    pub fn on_signals() -> Result<Self, String> {
        let asked = Arc::new(AtomicUsize::new(0));
        for signal in child::not_ignored(&[2, 15, 1]) {
            signal_hook::flag::register_usize(signal, Arc::clone(&asked), signal as usize)
                .map_err(|e| format!("cannot take signal {signal}: {e}"))?;
        }
        Ok(Self(asked))
    }

    /// Gives the exit code for the signal that asked this program to end: 128 + its number, as shells report it. `None`
    /// means that no signal came.
    pub fn asked(&self) -> Option<u8> {
        match self.0.load(Ordering::Relaxed) {
            0 => None,
            signal => Some(128 + signal as u8),
        }
    }
}

/// Which series to observe, and how long to wait for them.
pub struct SeriesSelection<'a> {
    pub names: &'a [String],
    pub socket: Option<&'a Path>,
    pub wait: Duration,
    /// True if a series of a run that has ended is accepted too.
    pub former: bool,
}

/// Observes all named series, and waits until each exists. Inside a task, only the daemon at the task's endpoint is
/// asked; outside of a task, every daemon of the user is asked. For a name that does not exist, a message with similar
/// names is printed at once.
pub fn observe(wanted: &SeriesSelection<'_>, stop: &StopSignal) -> Result<Vec<Observer>, String> {
    let (names, until) = (wanted.names, Instant::now() + wanted.wait);
    let mut found: Vec<Observer> = Vec::new();
    let mut place: Option<(Session, usize)> = None;
    let (mut reported, mut former, mut before) = (false, wanted.former, None);
    loop {
        let why = match &place {
            Some((session, prefix)) => {
                let name = &names[found.len()][*prefix..];
                let look = LOOK.min(until - Instant::now().min(until));
                let observer = if former { session.observe_former(name, look) } else { session.observe(name, look) };
                match observer {
                    Ok(observer) => {
                        found.push(observer);
                        if found.len() == names.len() {
                            return Ok(found);
                        }
                        continue;
                    }
                    Err(e) if matches!(e.status, Status::NotFound | Status::TimedOut) => {
                        // `names::series` found the first series while the series' run lived. If the run has ended
                        // meanwhile, this series is now the newest ended series of its name. So the next attempt also
                        // takes ended series.
                        former |= found.is_empty();
                        format!("there is no series `{}` yet", names[found.len()])
                    }
                    Err(e) => return Err(e.to_string()),
                }
            }
            None => match names::series(&names[0], wanted.socket, wanted.former, &mut before) {
                Ok(names::Series::Found(session, prefix)) => {
                    place = Some((session, prefix));
                    continue;
                }
                Ok(names::Series::CameAndWent(session, prefix)) => {
                    place = Some((session, prefix));
                    former = true;
                    continue;
                }
                Ok(names::Series::Elsewhere(session, prefix, observer)) => {
                    place = Some((session, prefix));
                    found.push(*observer);
                    if found.len() == names.len() {
                        return Ok(found);
                    }
                    continue;
                }
                Ok(names::Series::Missing(why)) => why,
                Err(why) => why,
            },
        };
        if stop.asked().is_some() {
            return Err("stopped".into());
        }
        if Instant::now() >= until {
            return Err(format!("{why}; waited {:.1} s (--wait)", wanted.wait.as_secs_f64()));
        }
        if !reported {
            complain(&format!("{why}; waiting up to {:.1} s for its publisher (--wait)", wanted.wait.as_secs_f64()));
            reported = true;
        }
        std::thread::sleep(LOOK / 4);
    }
}

/// Gives the names for several ranks: `field` with 4 ranks becomes `field/0` … `field/3`.
pub fn of_ranks(given: &[String], ranks: Option<u32>) -> Vec<String> {
    match ranks {
        None => given.to_vec(),
        Some(n) => given.iter().flat_map(|name| (0..n).map(move |rank| format!("{name}/{rank}"))).collect(),
    }
}

/// Writes the names of several ranks' series in short form: `field/0…3`.
pub fn together(names: &[String]) -> String {
    match names {
        [one] => one.clone(),
        [first, .., last] => format!("{first} … {last}"),
        [] => String::new(),
    }
}

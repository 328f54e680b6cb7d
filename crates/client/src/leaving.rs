//! How a program ends. If it ends with status 0, it has left in order, in every language, even if it closed nothing:
//! its series end, its ports close, and sessions with nothing else open leave. A program that ends with another status,
//! by a signal or by `exec` has died, as far as its peers can tell.
//!
//! Other threads may still run then, and so may destructors that were registered before the first session. So nothing
//! is unmapped or freed here. A session that has regions, items or versions open does not leave: the kernel ends it a
//! moment later, and until then its heap slots and pins are its own.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::time::Duration;

use crossdock_core::series::EndMark;
use crossdock_os::exit;
use crossdock_os::fork::PerProcess;

use crate::connection::Connection;
use crate::owned::Owned;

/// The sessions and series that this process ends when it exits in order.
#[derive(Default)]
struct Open {
    sessions: Vec<(Weak<Owned>, Weak<Connection>)>,
    series: Vec<Weak<EndMark>>,
}

/// A forked child begins with nothing, because the parent ends what the parent has open.
static OPEN: PerProcess<Mutex<Open>> = PerProcess::new();

/// How often, and with what pause, the list is asked for at the end. A thread might hold its lock for ever.
const ATTEMPTS: u32 = 100;
const PAUSE: Duration = Duration::from_micros(200);

fn open() -> MutexGuard<'static, Open> {
    let own = OPEN.get_or_make(|| Some(Mutex::default())).expect("the closure always makes one");
    own.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Remembers a session that was made.
pub(crate) fn keep_session(owned: &Arc<Owned>, connection: &Arc<Connection>) {
    exit::at_normal_exit(leave);
    let mut open = open();
    open.sessions.retain(|(_, connection)| connection.strong_count() > 0);
    open.sessions.push((Arc::downgrade(owned), Arc::downgrade(connection)));
}

/// Remembers a series that is being published.
pub(crate) fn keep_series(mark: &Arc<EndMark>) {
    let mut open = open();
    open.series.retain(|mark| mark.strong_count() > 0);
    open.series.push(Arc::downgrade(mark));
}

/// Ends everything when the process ends in order.
fn leave() {
    let Some((sessions, series)) = take_all() else { return };
    for mark in series.iter().filter_map(Weak::upgrade) {
        mark.end();
    }
    for (owned, connection) in &sessions {
        let Some(connection) = connection.upgrade() else { continue };
        if connection.check_process().is_err() {
            continue;
        }
        if let Some(owned) = owned.upgrade() {
            owned.close_ports();
        }
        if !connection.has_series() && connection.items() == 0 && connection.regions() == 0 {
            connection.end();
        }
    }
}

type Taken = (Vec<(Weak<Owned>, Weak<Connection>)>, Vec<Weak<EndMark>>);

fn take_all() -> Option<Taken> {
    let open = OPEN.get()?;
    for _ in 0..ATTEMPTS {
        match open.try_lock() {
            Ok(mut open) => return Some((std::mem::take(&mut open.sessions), std::mem::take(&mut open.series))),
            Err(TryLockError::Poisoned(_)) => return None,
            Err(TryLockError::WouldBlock) => std::thread::sleep(PAUSE),
        }
    }
    None
}

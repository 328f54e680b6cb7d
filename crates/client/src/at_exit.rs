//! What happens when a program ends. A program that ends with status 0 leaves properly, in every language, even if it
//! closed nothing: its series end, its ports close, and each session that has nothing else open leaves. If a program
//! ends with another status, by a signal or by `exec`, its peers see that it died.
//!
//! While the program ends, other threads may still run, and destructors that were registered before the first session
//! have not run yet. So this module unmaps and frees nothing. A session that has regions, items or versions open does
//! not leave. Its member ends a moment later, when the kernel ends the process; until then its heap slots and pins stay
//! valid.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::time::Duration;

use crossdock_core::series::EndMark;
use crossdock_os::exit;
use crossdock_os::fork::PerProcess;

use crate::connection::Connection;
use crate::session_objects::SessionObjects;

/// The sessions and series that this process ends when it exits with status 0.
#[derive(Default)]
struct OpenAtExit {
    sessions: Vec<(Weak<SessionObjects>, Weak<Connection>)>,
    series: Vec<Weak<EndMark>>,
}

/// A forked child begins with an empty list. The parent itself ends the sessions and series of its own list.
static OPEN: PerProcess<Mutex<OpenAtExit>> = PerProcess::new();

/// When the program ends, another thread might hold the lock of the list for ever. So this module gives up after this
/// many attempts to take the lock, and the program ends.
const ATTEMPTS: u32 = 100;
const PAUSE: Duration = Duration::from_micros(200);

fn open() -> MutexGuard<'static, OpenAtExit> {
    let own = OPEN.get_or_make(|| Some(Mutex::default())).expect("the closure always makes one");
    own.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Notes a new session, so that this process ends the session when it exits with status 0.
pub(crate) fn keep_session(objects: &Arc<SessionObjects>, connection: &Arc<Connection>) {
    exit::at_normal_exit(leave);
    let mut open = open();
    open.sessions.retain(|(_, connection)| connection.strong_count() > 0);
    open.sessions.push((Arc::downgrade(objects), Arc::downgrade(connection)));
}

/// Notes a series that this process begins to publish, so that this process ends the series when it exits with status
/// 0.
pub(crate) fn keep_series(mark: &Arc<EndMark>) {
    let mut open = open();
    open.series.retain(|mark| mark.strong_count() > 0);
    open.series.push(Arc::downgrade(mark));
}

/// Ends all series, ports and sessions of this process. It is called when the process exits with status 0.
fn leave() {
    let Some((sessions, series)) = take_all() else { return };
    for mark in series.iter().filter_map(Weak::upgrade) {
        mark.end();
    }
    for (objects, connection) in &sessions {
        let Some(connection) = connection.upgrade() else { continue };
        if connection.check_process().is_err() {
            continue;
        }
        let objects = objects.upgrade();
        let _ = connection.leave(|| objects.iter().for_each(|objects| objects.close_ports()));
    }
}

type Taken = (Vec<(Weak<SessionObjects>, Weak<Connection>)>, Vec<Weak<EndMark>>);

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

//! The C functions for sessions.

use std::ffi::c_char;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crossdock_client::{ConnectOptions, PerProcess, Result, Session, Status};

use crate::arguments::{copy_text, optional_text, out, read};
use crate::error::{call, invalid};
use crate::plain;
use crate::references::{ReferenceGuard, Table};

static SESSIONS: Table<Session> = Table::new(1, "session", Status::Disconnected);

/// The session that all parts of this process share. A forked child connects a session of its own and leaves that of
/// its parent alone.
static DEFAULT: PerProcess<Mutex<Option<u64>>> = PerProcess::new();

/// Gives the session that a reference refers to.
pub(crate) fn session(reference: u64) -> Result<ReferenceGuard<'static, Session>> {
    SESSIONS.hold(reference)
}

/// Reads the options of a connection. NULL means the default options.
///
/// # Safety
/// `options` must be NULL or point to options whose text fields are NULL or zero-terminated.
unsafe fn connect_options(options: *const plain::ConnectOptions) -> Result<ConnectOptions> {
    let mut result = ConnectOptions::default();
    if options.is_null() {
        return Ok(result);
    }
    // SAFETY: the caller promises that `options`, which is not NULL here, is readable.
    let given = unsafe { read(options, "options")? };
    // SAFETY: the caller promises that the texts in the struct are zero-terminated, too.
    unsafe {
        result.socket = optional_text(given.socket, "socket path")?.map(PathBuf::from);
        result.task = optional_text(given.task, "task")?.map(str::to_owned);
        result.workflow = optional_text(given.workflow, "workflow")?.map(str::to_owned);
    }
    if given.rank != -1 {
        let rank = u32::try_from(given.rank);
        result.rank = Some(rank.map_err(|_| invalid(format!("rank is {}; it is -1 or 0 to 2^32 - 1", given.rank)))?);
    }
    if given.timeout_ms != -1 {
        let ms = u64::try_from(given.timeout_ms);
        let ms = ms.map_err(|_| {
            invalid(format!("timeout_ms is {}; it is -1 or a number of milliseconds", given.timeout_ms))
        })?;
        result.timeout = Duration::from_millis(ms);
    }
    result.private_daemon = given.private_daemon != 0;
    Ok(result)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_session_connect(options: *const plain::ConnectOptions, session: *mut u64) -> i32 {
    call(|| {
        let session = out(session, "session")?;
        // SAFETY: `crossdock.h` requires NULL or valid options.
        let options = unsafe { connect_options(options)? };
        let reference = SESSIONS.insert(Session::connect(&options)?)?;
        // SAFETY: `crossdock.h` requires writable memory.
        unsafe { session.set(reference) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_session_default(session: *mut u64) -> i32 {
    call(|| {
        let session = out(session, "session")?;
        let default = DEFAULT.get_or_make(|| Some(Mutex::default())).expect("the closure always makes one");
        let mut default = default.lock().unwrap_or_else(PoisonError::into_inner);
        let reference = match *default {
            Some(reference) if SESSIONS.hold(reference).is_ok() => reference,
            // There is no shared session yet, or it was closed.
            _ => {
                let reference = SESSIONS.insert(Session::connect(&ConnectOptions::default())?)?;
                *default = Some(reference);
                reference
            }
        };
        SESSIONS.add(reference)?;
        // SAFETY: `crossdock.h` requires writable memory.
        unsafe { session.set(reference) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn crossdock_session_ref(session: u64) -> i32 {
    call(|| SESSIONS.add(session))
}

#[unsafe(no_mangle)]
extern "C" fn crossdock_session_unref(session: u64) -> i32 {
    call(|| SESSIONS.remove(session))
}

#[unsafe(no_mangle)]
extern "C" fn crossdock_session_close(session: u64) -> i32 {
    call(|| {
        // If objects of the session are open, this call fails, and the reference stays valid.
        SESSIONS.hold(session)?.clone().close()?;
        SESSIONS.close(session)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_session_member(session: u64, member: *mut u64) -> i32 {
    call(|| {
        let member = out(member, "member id")?;
        // SAFETY: `crossdock.h` requires writable memory.
        unsafe { member.set(self::session(session)?.member().0) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_session_rank(session: u64, rank: *mut u32) -> i32 {
    call(|| {
        let rank = out(rank, "rank")?;
        // SAFETY: `crossdock.h` requires writable memory.
        unsafe { rank.set(self::session(session)?.rank()) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_session_run(session: u64, run: *mut u64) -> i32 {
    call(|| {
        let run = out(run, "run")?;
        // SAFETY: `crossdock.h` requires writable memory.
        unsafe { run.set(self::session(session)?.run()) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn crossdock_session_progress(session: u64, done: u64, of: u64) -> i32 {
    call(|| self::session(session)?.progress(done, of))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_session_task(session: u64, buffer: *mut c_char, buffer_size: usize) -> i32 {
    // SAFETY: `crossdock.h` requires a buffer of that size.
    call(|| unsafe { copy_text(self::session(session)?.task(), buffer, buffer_size) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_session_workflow(session: u64, buffer: *mut c_char, buffer_size: usize) -> i32 {
    // SAFETY: `crossdock.h` requires a buffer of that size.
    call(|| unsafe { copy_text(self::session(session)?.workflow(), buffer, buffer_size) })
}

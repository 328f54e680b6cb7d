//! The boundary to C. Every exported function runs inside [`call`]. If the function fails, `call` returns the status
//! and stores the message for this thread. It also catches every panic.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use crossdock_client::{Error, PerProcess, Result, Status};
use crossdock_layout::set::ClosedSet;

thread_local! {
    /// The last failure of this thread, with its message as C text.
    static LAST: RefCell<Option<(Status, CString)>> = const { RefCell::new(None) };
    /// Where and why this thread panicked last. The panic hook stores it here instead of printing it.
    static PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Runs the body of an exported function. A panic is a defect of this library and never the caller's fault. It becomes
/// the status `SYSTEM`, and the message says in which line of the library it happened.
pub(crate) fn call(body: impl FnOnce() -> Result<()>) -> i32 {
    quiet_panics();
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => Status::Ok as i32,
        Ok(Err(error)) => fail(error),
        Err(payload) => fail(fault(payload)),
    }
}

/// Works like [`call`], for the few exported functions that hand data over, such as send and receive. This function is
/// inlined, so that the code of an exported function lies in one place. The linker puts these exported functions side
/// by side in a section of their own, because with cold caches each additional page of code that a call touches costs
/// half a microsecond.
///
/// The panic hook need not be set here. A body that can panic needs a valid reference, and every valid reference was
/// made through [`call`], which sets the hook.
#[inline(always)]
pub(crate) fn call_in_use(body: impl FnOnce() -> Result<()>) -> i32 {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => Status::Ok as i32,
        Ok(Err(error)) => fail(error),
        Err(payload) => fail(fault(payload)),
    }
}

/// Makes an error with the status `INVALID`.
pub(crate) fn invalid(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(Status::Invalid, message)
}

/// Keeps the error for `crossdock_error_message`. `NOT_YET` is no failure and does not replace the last error.
#[cold]
#[inline(never)]
fn fail(error: Error) -> i32 {
    if error.status != Status::NotYet {
        let message = CString::new(error.to_string().replace('\0', "\\0")).unwrap_or_default();
        // In a thread that is ending, the thread-local message may be gone already. Then the caller gets only the
        // status.
        let _ = LAST.try_with(|last| *last.borrow_mut() = Some((error.status, message)));
    }
    error.status as i32
}

#[cold]
#[inline(never)]
fn fault(payload: Box<dyn Any + Send>) -> Error {
    // The panic's payload is not dropped, because its destructor could panic, too. The payload holds nothing that must
    // be freed.
    std::mem::forget(payload);
    let place = PANIC.try_with(|p| p.borrow().clone()).unwrap_or_default();
    Error::new(Status::System, format!("a fault in crossdock itself, please report it: {place}"))
}

/// Sets a panic hook that does not print, because a library never prints. The hook belongs to this library's own copy
/// of the standard library, so it does not change the hooks of the program.
fn quiet_panics() {
    // This flag is no `Once`, because a forked child could find the lock of a `Once` held by a thread that does not
    // exist in the child.
    static SET: AtomicBool = AtomicBool::new(false);
    if !SET.load(Ordering::Relaxed) && !SET.swap(true, Ordering::Relaxed) {
        std::panic::set_hook(Box::new(|info| {
            let _ = PANIC.try_with(|p| *p.borrow_mut() = info.to_string().replace('\n', " "));
        }));
    }
}

/// The message of this thread's last failure; "" if there was none. The text is valid until this thread's next failure.
#[unsafe(no_mangle)]
pub extern "C" fn crossdock_error_message() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ref().map_or(c"".as_ptr(), |(_, message)| message.as_ptr()))
        .unwrap_or(c"".as_ptr())
}

/// The status of this thread's last failure; OK if there was none.
#[unsafe(no_mangle)]
pub extern "C" fn crossdock_error_status() -> i32 {
    LAST.try_with(|last| last.borrow().as_ref().map_or(Status::Ok, |(status, _)| *status)).unwrap_or(Status::Ok) as i32
}

/// Stores a status and a message as the last failure of this thread, and returns the status.
#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_error_raise(status: i32, message: *const c_char) -> i32 {
    call(|| {
        let status = u32::try_from(status)
            .ok()
            .and_then(Status::from_number)
            .ok_or_else(|| invalid(format!("{status} is no status")))?;
        // SAFETY: `crossdock.h` requires zero-terminated text.
        let message = unsafe { crate::arguments::text(message, "message")? };
        if status == Status::Ok { Ok(()) } else { Err(Error::new(status, message)) }
    })
}

/// The name of a status as in the C header, without the prefix.
#[unsafe(no_mangle)]
pub extern "C" fn crossdock_status_name(status: i32) -> *const c_char {
    texts(status).0.as_ptr()
}

/// The meaning of a status as one line of text.
#[unsafe(no_mangle)]
pub extern "C" fn crossdock_status_meaning(status: i32) -> *const c_char {
    texts(status).1.as_ptr()
}

/// The name and the meaning of the status with this number.
fn texts(status: i32) -> (&'static CStr, &'static CStr) {
    static TEXTS: PerProcess<Vec<(CString, CString)>> = PerProcess::new();
    let text = |text: String| CString::new(text).unwrap_or_default();
    let texts = TEXTS.get_or_make(|| {
        let all = Status::SET.members.iter().map(|status| {
            let meaning: Vec<_> = status.doc.iter().map(|line| line.trim()).collect();
            (text(status.word.to_uppercase().replace(' ', "_")), text(meaning.join(" ")))
        });
        Some(all.collect())
    });
    let found = usize::try_from(status).ok().and_then(|number| texts?.get(number));
    found.map_or((c"UNKNOWN", c"not a status of this library"), |(name, meaning)| (name, meaning))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message() -> String {
        // SAFETY: the function gives zero-terminated text that stays valid until this thread's next failure.
        unsafe { CStr::from_ptr(crossdock_error_message()) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn a_panic_becomes_a_status_and_a_message_with_its_place() {
        let status = call(|| panic!("on purpose"));
        assert_eq!(status, Status::System as i32);
        assert!(message().contains("on purpose") && message().contains("error.rs"), "{}", message());
    }

    #[test]
    fn not_yet_and_success_leave_the_last_failure_alone() {
        assert_eq!(call(|| Err(Error::new(Status::Busy, "port 'p' is taken"))), 12);
        assert_eq!(call(|| Err(Error::new(Status::NotYet, "nothing"))), 1);
        assert_eq!(call(|| Ok(())), 0);
        assert_eq!((message().as_str(), crossdock_error_status()), ("port 'p' is taken", 12));
    }

    #[test]
    fn failures_of_one_thread_are_not_seen_by_another() {
        assert_eq!(call(|| Err(invalid("mine\0yours"))), 8);
        std::thread::spawn(|| assert_eq!((message().as_str(), crossdock_error_status()), ("", 0))).join().unwrap();
        assert_eq!(message(), "mine\\0yours");
    }

    #[test]
    fn every_status_has_its_own_name_and_others_have_none() {
        // SAFETY: both functions give static zero-terminated text.
        let name = |n| unsafe { CStr::from_ptr(crossdock_status_name(n)) }.to_str().unwrap();
        let names: std::collections::HashSet<_> = (0..17).map(name).collect();
        assert_eq!(names.len(), 17);
        assert_eq!((name(17), name(-1)), ("UNKNOWN", "UNKNOWN"));
    }
}

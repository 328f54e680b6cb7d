//! What a shim (the library's function in front of a libc function) does when a file name does not exist, or when a
//! consumer may not write.

use std::ffi::{CStr, c_char, c_int};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crossdock_core::files::{
    Deed, FileWaitOutcome, RenameTarget, VARIABLE, Views, WATCHED, Watched, WriteRefusal, absolute, normalise,
};
use crossdock_os::file;

use crate::real_functions::{EACCES, ENOENT, EROFS, errno, set_errno};

pub(crate) const AT_FDCWD: c_int = -100;
const EINTR: c_int = 4;
const ETIMEDOUT: c_int = 110;
/// The most lines that one process writes to its log about files that did not come or may not be written.
const LINES: u32 = 20;

/// The settings that the library reads from the environment when the program starts. They are kept, because a program
/// may clear its environment.
pub(crate) struct ProgramSettings {
    pub views: Views,
    pub watched: Watched,
    /// The library's own environment variables and LD_PRELOAD: those that were set, with their values.
    pub variables: Vec<(&'static str, String)>,
    /// Device and inode of the file that was the program's standard error at its start.
    errors: Option<(u64, u64)>,
}

/// The new name of the process's last rename that failed.
static TARGET: RenameTarget = RenameTarget::new();

static START: OnceLock<ProgramSettings> = OnceLock::new();

/// Runs when the library is loaded, before the program starts.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = {
    extern "C" fn load() {
        start();
    }
    load
};

pub(crate) fn start() -> &'static ProgramSettings {
    START.get_or_init(|| {
        let of = |name| std::env::var(name).ok().filter(|text| !text.is_empty());
        let errors = file::identity(2).ok();
        let views = of(VARIABLE).as_deref().map_or_else(|| Ok(Views::default()), Views::parse);
        let views = views.unwrap_or_else(|why| {
            file::complain(&format!("crossdock: {why}; no file is awaited\n"));
            Views::default()
        });
        let watched = of(WATCHED).and_then(|text| Watched::parse(&text).ok()).unwrap_or_default();
        let variables = [VARIABLE, WATCHED, "LD_PRELOAD"].into_iter().filter_map(|name| Some((name, of(name)?)));
        ProgramSettings { views, watched, variables: variables.collect(), errors }
    })
}

/// How many times in a row a shim repeats a call that failed with ENOENT although the shim finds the file afterwards.
/// If the file was removed and published anew meanwhile, the repeated call succeeds. But if the folder `missing` does
/// not exist, a call with the name `missing/../file` never succeeds, so the repetitions must end.
const IN_VAIN: u32 = 8;

/// What a shim does after a call failed with ENOENT.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    /// The program gets the errno that is set now.
    Return,
    /// The file came during a wait, so the shim tries the call again.
    AfterWait,
    /// The shim has found the file without a wait, so it tries the call again.
    AtOnce,
}

/// Waits for the file, if a call failed with ENOENT and the file belongs to a managed directory.
///
/// # Safety
/// `path` must be null or a terminated string.
unsafe fn ask(folder: c_int, path: *const c_char) -> Next {
    let start = start();
    if start.views.is_empty() || path.is_null() {
        return Next::Return;
    }
    // SAFETY: the path is not null, and the caller guarantees that it is terminated.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    let Some(whole) = whole(folder, path) else {
        set_errno(ENOENT);
        return Next::Return;
    };
    if TARGET.is(&whole) {
        set_errno(ENOENT);
        return Next::Return;
    }
    // `REPORTED` is no `Once`, because a `Once` has a lock inside. A child that was forked while another thread held
    // this lock would wait for ever.
    static REPORTED: AtomicBool = AtomicBool::new(false);
    let is_own = start.views.find(&whole).is_some();
    if is_own
        && !REPORTED.swap(true, Ordering::Relaxed)
        && let Some(why) = start.views.trouble()
    {
        file::complain(&format!("crossdock: {why}\n"));
    }
    let was_missing = start.views.is_missing(&whole);
    match start.views.await_file(&whole) {
        FileWaitOutcome::Published if was_missing => return Next::AfterWait,
        FileWaitOutcome::Published => return Next::AtOnce,
        FileWaitOutcome::Pass => set_errno(ENOENT),
        FileWaitOutcome::Interrupted => set_errno(EINTR),
        FileWaitOutcome::Gone(story) => {
            tell(start, &story);
            set_errno(ENOENT);
        }
        FileWaitOutcome::TimedOut(story) => {
            tell(start, &story);
            set_errno(ETIMEDOUT);
        }
    }
    Next::Return
}

/// Decides which errno the program gets after a call that failed and would have changed a file or a name. In a
/// directory whose files this program only reads, the errno is EROFS, even if the kernel's errno was EACCES because the
/// published file is read-only. The reason goes to the log. The reason goes to the log also if this program tried to
/// write a file of its own that is published already.
///
/// # Safety
/// `path` must be null or a terminated string.
pub(crate) unsafe fn refused(deed: Deed, folder: c_int, path: *const c_char) {
    let found = errno();
    // SAFETY: the caller guarantees that the path is null or a terminated string.
    let given = unsafe { why_refused(deed, found, folder, path) };
    set_errno(given);
}

/// Works like [`refused`], but for a call that failed with the errno `found`. Returns the errno that the program gets.
///
/// # Safety
/// `path` must be null or a terminated string.
pub(crate) unsafe fn why_refused(deed: Deed, found: c_int, folder: c_int, path: *const c_char) -> c_int {
    let start = start();
    let is_watched = !start.views.is_empty() || !start.watched.is_empty();
    if path.is_null() || !matches!(found, EACCES | EROFS) || !is_watched {
        return found;
    }
    // SAFETY: the path is not null, and the caller guarantees that it is terminated.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    let Some(whole) = whole(folder, path) else { return found };
    if let Some(refusal) = start.views.refuse(deed, &whole) {
        report(start, &refusal);
        return EROFS;
    }
    if deed == Deed::Write
        && let Some(refusal) = start.watched.refuse_writing(&whole)
    {
        report(start, &refusal);
    }
    found
}

/// Notes the new name of a rename that failed. Programs look up the new name after such a failure, to see whether it
/// is a folder. So if the name lies in a directory whose files this program only reads, a look-up of the name does not
/// wait for a file during the next ten seconds. This function leaves errno as it is.
///
/// # Safety
/// `path` must be null or a terminated string.
pub(crate) unsafe fn not_renamed_to(folder: c_int, path: *const c_char) {
    let start = start();
    if path.is_null() || start.views.is_empty() {
        return;
    }
    let found = errno();
    // SAFETY: the path is not null, and the caller guarantees that it is terminated.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    if let Some(whole) = whole(folder, path)
        && start.views.find(&whole).is_some()
    {
        TARGET.note(&whole);
    }
    set_errno(found);
}

fn report(start: &ProgramSettings, refusal: &WriteRefusal) {
    tell(start, refusal);
    refusal.report();
}

/// Makes a path absolute. `None` if it is empty, or if its folder is not known.
fn whole(folder: c_int, path: &[u8]) -> Option<Vec<u8>> {
    match (path.first()?, folder) {
        (b'/', _) => Some(normalise(path)),
        (_, AT_FDCWD) => file::working_folder().ok().map(|folder| absolute(&folder, path)),
        (_, folder) => file::folder_of(folder).ok().map(|folder| absolute(&folder, path)),
    }
}

/// Writes to the task's log why a file did not come or may not be written. The log is standard error, if that is still
/// the file with which the program started.
fn tell(start: &ProgramSettings, story: &dyn std::fmt::Display) {
    static LINES_WRITTEN: AtomicU32 = AtomicU32::new(0);
    let is_log = start.errors.is_some() && file::identity(2).ok() == start.errors;
    if is_log && LINES_WRITTEN.fetch_add(1, Ordering::Relaxed) < LINES {
        file::complain(&format!("crossdock: {story}\n"));
    }
}

/// Repeats the real function until it succeeds or there is no file to wait for.
///
/// # Safety
/// `path` must be null or a terminated string.
pub(crate) unsafe fn retry<T>(
    folder: c_int,
    path: *const c_char,
    failed: impl Fn(&T) -> bool,
    call: impl Fn() -> T,
) -> T {
    let mut in_vain = 0;
    loop {
        let answer = call();
        if !failed(&answer) || errno() != ENOENT {
            return answer;
        }
        // SAFETY: the caller guarantees that the path is null or a terminated string.
        match unsafe { ask(folder, path) } {
            Next::Return => return answer,
            Next::AfterWait => in_vain = 0,
            Next::AtOnce if in_vain == IN_VAIN => {
                set_errno(ENOENT);
                return answer;
            }
            Next::AtOnce => in_vain += 1,
        }
    }
}

//! Lets a program wait for a file that another task publishes in a managed directory (`docs/files.md`).

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crossdock_core::files::{FileWaitOutcome, Views, normalise};
use crossdock_layout::Status;

use crate::{Error, Reason, Result};

/// Waits until the file exists, if it lies in a managed directory that this task consumes. For every other path, and
/// outside of `crossdock run`, the call returns at once. The caller must open the file to learn whether it exists.
///
/// Blocks for at most the time that the workflow file gives as the directory's `wait`. Any number of threads may wait.
/// No session is needed.
///
/// # Errors
/// `NOT_FOUND` if the producers have ended and the file was not published. `TIMED_OUT` if the directory's `wait` is
/// over. `SYSTEM` if `path` is relative and the working folder has no path, or if a signal interrupted the wait and its
/// handler was installed without `SA_RESTART`.
pub fn await_file(path: impl AsRef<Path>) -> Result<()> {
    let path = path.as_ref();
    let views = Views::of_process();
    if views.is_empty() || path.exists() {
        return Ok(());
    }
    let whole = std::path::absolute(path).map_err(|e| Error::system(path.display(), &e))?;
    match views.await_file(&normalise(whole.as_os_str().as_bytes())) {
        FileWaitOutcome::Published | FileWaitOutcome::Pass => Ok(()),
        FileWaitOutcome::Gone(story) => Err(Error::new(Status::NotFound, story.to_string())),
        FileWaitOutcome::TimedOut(story) => Err(Error::new(Status::TimedOut, story.to_string())),
        FileWaitOutcome::Interrupted => {
            Err(Error::because(Status::System, Reason::Interrupted(path.display().to_string())))
        }
    }
}

//! How a consumer waits for a file of a managed directory until a producer has published it.

use std::ffi::{CString, OsStr};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::Duration;

use crossdock_layout::files::{LossReason, Phase, SilentHost};
use crossdock_os::{Deadline, clock, file, futex};

use super::{View, Views};

/// The longest sleep during a wait for a file. After each sleep the waiting task looks at the folder itself, in case
/// the service was killed and reports nothing.
const STRETCH: Duration = Duration::from_millis(100);

/// How a wait for a file ended, and the answer that the program gets for its call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FileWaitOutcome {
    /// Calls do not wait for this name: the program gets the kernel's answer.
    Pass,
    /// The file exists now: the caller tries the program's call again.
    Published,
    /// The file will not come: the program gets ENOENT. Either all producers have ended or failed, or their hosts are
    /// lost. Or the file was published on another host, and that host dropped it or was lost before this host had
    /// fetched it.
    Gone(WaitFailure),
    /// The deadline passed: the program gets ETIMEDOUT.
    TimedOut(WaitFailure),
    /// A signal interrupted the wait, and its handler was installed without SA_RESTART: the program gets EINTR.
    Interrupted,
}

/// The reason why a file did not come, for the log of the task that waited.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WaitFailure {
    path: String,
    waited: Duration,
    producers: String,
    phase: Phase,
    published: u64,
    last: Option<Duration>,
    torn: u64,
    lost: Option<LossReason>,
    silent: Option<(SilentHost, Duration)>,
}

impl Views {
    /// Waits for the file at an absolute, normalised path, if calls wait for a file of that name.
    ///
    /// The caller has tried the program's call before and got ENOENT. This function blocks until the file is
    /// published, all producers are gone, the directory's deadline has passed, or a signal handler ran. Any number of
    /// threads may wait.
    #[must_use]
    pub fn await_file(&self, path: &[u8]) -> FileWaitOutcome {
        self.await_file_while(path, Duration::ZERO, &|| true)
    }

    /// Waits as [`Views::await_file`] does, for a program in another process. The caller has stopped that program's
    /// call. `before` is the time that the program has waited already. Every 100 ms this function calls `is_wanted`; if
    /// the answer is `false`, the wait ends as interrupted.
    #[must_use]
    pub fn await_file_while(&self, path: &[u8], before: Duration, is_wanted: &dyn Fn() -> bool) -> FileWaitOutcome {
        match self.find(path) {
            Some((view, rest)) if view.awaits(rest) => view.wait(path, rest, before, is_wanted),
            _ => FileWaitOutcome::Pass,
        }
    }

    /// Tells whether a producer may still publish a file of this name. The answer is `false` when the producers have
    /// ended. It is also `false` if the host that published the file dropped it, or was lost, before this host had
    /// fetched it.
    #[must_use]
    pub fn is_coming(&self, path: &[u8]) -> bool {
        let Some((view, rest)) = self.find(path).filter(|(view, rest)| view.awaits(rest)) else { return false };
        let Some(notice) = view.notice() else { return false };
        !matches!(notice.phase(), Phase::Ended | Phase::Failed) && notice.has_lost(rest).is_none()
    }

    /// Tells whether [`Views::await_file`] would begin to wait for the file at this absolute, normalised path. The file
    /// system is asked only if calls wait for files of that name.
    #[must_use]
    pub fn is_missing(&self, path: &[u8]) -> bool {
        let awaited = self.find(path).is_some_and(|(view, rest)| view.awaits(rest));
        awaited && CString::new(path).is_ok_and(|name| !file::exists(&name))
    }
}

impl View {
    fn wait(&self, path: &[u8], rest: &[u8], before: Duration, is_wanted: &dyn Fn() -> bool) -> FileWaitOutcome {
        let (Some(notice), Ok(name)) = (self.notice(), CString::new(path)) else { return FileWaitOutcome::Pass };
        let began = clock::now_ns().saturating_sub(u64::try_from(before.as_nanos()).unwrap_or(0));
        let deadline = Deadline::after(self.deadline.saturating_sub(before));
        loop {
            // The order matters: `news`, the count of changes, is read first, then the phase, and the file is looked up
            // last. If the file is published after `news` was read, either the look-up finds the file, or `news` has
            // changed and the sleep ends immediately.
            let news = notice.news.load(Acquire);
            let phase = notice.phase();
            let lost = notice.has_lost(rest);
            if file::exists(&name) {
                return FileWaitOutcome::Published;
            }
            let over = lost.is_some() || matches!(phase, Phase::Ended | Phase::Failed);
            if over || deadline.passed() {
                let last = notice.last_ns.load(Relaxed);
                let now = clock::now_ns();
                let story = WaitFailure {
                    path: OsStr::from_bytes(path).to_string_lossy().into_owned(),
                    waited: Duration::from_nanos(now.saturating_sub(began)),
                    producers: notice.producers(),
                    phase,
                    published: notice.published.load(Relaxed),
                    last: (last != 0).then(|| Duration::from_nanos(now.saturating_sub(last))),
                    torn: notice.torn.load(Relaxed),
                    lost,
                    silent: notice.silent().map(|silent| {
                        let ago = Duration::from_nanos(now.saturating_sub(silent.since_ns));
                        (silent, ago)
                    }),
                };
                return if over { FileWaitOutcome::Gone(story) } else { FileWaitOutcome::TimedOut(story) };
            }
            if futex::wait_interruptible(&notice.news, news, deadline.at_most(STRETCH), &name) || !is_wanted() {
                return FileWaitOutcome::Interrupted;
            }
        }
    }
}

impl WaitFailure {
    /// Gives the same failure with the path by which the program knows the file. A view needs this, because the path at
    /// which the view waits for the file is not the path that the program uses.
    #[must_use]
    pub fn about(self, path: &[u8]) -> Self {
        Self { path: OsStr::from_bytes(path).to_string_lossy().into_owned(), ..self }
    }
}

impl fmt::Display for WaitFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, producers, published, .. } = self;
        match self.phase {
            _ if self.lost == Some(LossReason::WithHost) => {
                write!(
                    f,
                    "{path} of {producers} will not come: the host that published it is lost, and this host had not fetched it"
                )?;
            }
            _ if self.lost == Some(LossReason::Dropped) => {
                let why =
                    "the rule `keep` dropped it before this host had fetched it; `keep: consumed` waits for all hosts";
                write!(f, "{path} of {producers} will not come: {why}")?;
            }
            Phase::Ended => write!(f, "{path} will not come: {producers} ended in order")?,
            Phase::Failed => write!(f, "{path} will not come: {producers} failed")?,
            Phase::Coming => {
                write!(
                    f,
                    "{path} was not published within {:.1} s: {producers} has not started",
                    self.waited.as_secs_f64()
                )?;
            }
            Phase::Producing => {
                write!(
                    f,
                    "{path} was not published within {:.1} s: {producers} still runs",
                    self.waited.as_secs_f64()
                )?;
            }
        }
        match self.last {
            Some(ago) => write!(f, "; {published} files were published, the last one {:.1} s ago", ago.as_secs_f64())?,
            None => write!(f, "; no file was published")?,
        }
        if self.torn > 0 {
            write!(f, "; {} files were not published because their writer was killed", self.torn)?;
        }
        if let Some((SilentHost { host, is_lost, .. }, ago)) = &self.silent {
            let what = if *is_lost { "is lost: its lease has ended, and it has been" } else { "has been" };
            write!(f, "; host {host} {what} silent for {:.1} s", ago.as_secs_f64())?;
        }
        Ok(())
    }
}

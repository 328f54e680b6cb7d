//! Fetches the files that producers of another host publish, with one thread for each directory and host.
//!
//! The thread finds the other host in the site's catalog (`hosts.rs`), asks the other host for changes of that host's
//! files, and puts the changes into a backlog (`backlog.rs`). Up to [`super::backlog::LANES`] threads, called lanes,
//! carry out what is in the backlog. Lanes exist only while there is something to do. A lane makes a file in the hidden
//! folder `fetched` with its whole size, so that the room is reserved. The lane pulls the bytes, and sets the mode and
//! the time of the original. One rename shows the file to consumers. If there is no room for a file, or if an operation
//! on this host or on the other host fails (for example because descriptors are short), the file is tried again, while
//! later changes are carried out. Consumers are told that the producers have ended only when the backlog is empty.
//!
//! What if this host's service dies? The next service removes what is in `fetched`, asks for all changes again, and
//! skips the files that consumers see already. What if the other host's service dies? Its successor has another `life`,
//! so this host asks for all changes again. What if the other host is lost, so that it does not answer and its entry in
//! the catalog is gone? The consumers' logs say that the host is lost, and which files are lost with it. After a while
//! the lost host's producers count as failed, and every wait for a file that is still in the backlog ends with an
//! error. If the host comes back, the fetching continues where it stopped.

use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Scope;
use std::time::{Duration, Instant, SystemTime};

use crossdock_core::fault_point;
use crossdock_layout::Status;
use crossdock_layout::files::{LossReason, Phase, SilentHost};
use crossdock_layout::wire::SegmentKind;
use crossdock_link::{Link, SourceId};
use crossdock_os::fs::{self, File, FileTimes, OpenOptions};
use crossdock_os::{Access, Deadline, Mapping, clock, file, mount};

use super::backlog::{Backlog, PendingChange};
use super::hosts::{Hosts, NoLink};
use super::messages::{Answer, ChangeKind, FileMetadata, NEWS, Question};
use super::{AFTER_FAILURE, Shared, State, awaited};
use crate::rules::Keep;
use crate::store::present;

/// The points at which a checked build can kill the service while it fetches a file.
#[cfg(feature = "fault-points")]
pub const FETCH_FAULT_POINTS: &[&str] =
    &["files.fetch.made", "files.fetch.filled", "files.fetch.final", "files.fetch.shown", "files.fetch.told"];

/// The timeout of a request for changes. The other host answers within five seconds.
const ASK: Duration = Duration::from_secs(7);
/// The pause after a failed request, after an answer that came immediately without changes, and before another attempt
/// to fetch files for which there was no room.
const PAUSE: Duration = Duration::from_millis(100);
/// If the other host has not answered for this time, the consumers' logs say so.
const SILENT: Duration = Duration::from_secs(5);
/// If the other host has not announced itself in the catalog for this time, the consumers' logs say so. A host may need
/// this long to prepare its part of a run.
const COMING: Duration = Duration::from_secs(60);
/// A lost host is given up when it has been silent for this time: every wait for one of its files then ends with an
/// error. A run that has lost a host ends after a shorter time. So the run reports the lost host as the reason of its
/// end, and not a task whose wait has failed.
const GIVE_UP: Duration = Duration::from_secs(25);
/// The size of the first piece of a file. Between two pieces the thread checks whether it must end.
const PIECE: usize = 4 << 20;
/// The largest size of a piece. If a piece came within half a second, the next piece is twice as large.
const PIECE_MOST: usize = 64 << 20;
/// The smallest size of a piece. If a piece took five seconds, the next piece is half as large.
const PIECE_LEAST: usize = 256 << 10;
/// A piece of a file that has not come from the other host within this time is asked for again.
const PULL: Duration = Duration::from_secs(10);
/// How often the bytes of a file that has become shorter are asked for before the file is given up.
const TRIES: u32 = 3;

/// A lane (a thread that carries out changes) ends after it had nothing to do for this time.
const IDLE: Duration = Duration::from_secs(1);

/// Tells threads that they must end.
#[derive(Debug, Default)]
pub(super) struct StopSignal {
    is_over: Mutex<bool>,
    changed: Condvar,
}

impl StopSignal {
    pub fn set(&self) {
        *self.is_over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    /// Waits for `time`, or until the thread must end. Returns true if the thread must end.
    pub fn within(&self, time: Duration) -> bool {
        let guard = self.is_over.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(guard, time, |is_over| !*is_over);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// What this host knows of the producers on another host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    pub node: String,
    pub phase: Phase,
    pub torn: u64,
    /// The host's silence; `None` while the host answers.
    pub silent: Option<SilentOrigin>,
}

/// A host that does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SilentOrigin {
    /// The time at which the host became silent, in nanoseconds of the monotonic clock.
    pub since_ns: u64,
    pub level: SilenceLevel,
}

/// What is known of a host that does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SilenceLevel {
    /// The host does not answer this host. But its entry in the catalog still exists, or its silence is short. So
    /// perhaps the host runs, and only the connection to this host is cut.
    Silent,
    /// The host does not answer, and its entry in the catalog is gone.
    Lost,
    /// The host has been lost for so long that consumers' waits for its files end with an error.
    GivenUp,
}

/// The present silence of another host: when it began, and what the consumers' logs already say about it.
#[derive(Default)]
struct Silence {
    since: Option<Instant>,
    /// True if the other host has not announced itself in the catalog yet.
    is_before: bool,
    /// True if the consumers' logs already say that the other host is silent.
    is_told: bool,
    /// True if the consumers' logs already say that the other host is lost.
    is_told_lost: bool,
}

/// Why a file was not fetched.
enum Failed {
    /// This host has no room for the file.
    Room(String),
    /// The bytes of the file could not be read from the other host.
    Bytes(crossdock_link::Error),
    /// An operation on the file failed on this host; the text says why.
    Here(String),
    /// The other host reported a newer change of the file name, so this fetch ended.
    Overtaken,
    /// The fetching thread must end.
    Over,
}

/// Why the fetch of a file is tried again later.
#[derive(Debug)]
enum Postponed {
    /// This host has no room for the file.
    NoRoom,
    /// An operation failed on this host or on the other host; the text says why. The cause may pass, for example a lack
    /// of descriptors.
    Failure(String),
}

/// Tells why an operation on this host's copy of a file failed.
fn failed_here(error: &io::Error) -> Failed {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Failed::Room(error.to_string()),
        _ => Failed::Here(error.to_string()),
    }
}

/// The state of the threads that fetch files of one directory from one host.
pub(super) struct Fetcher {
    pub shared: Arc<Shared>,
    pub directory: String,
    /// The index of the other host among the origins, which are the hosts with producers of this directory.
    pub origin: usize,
    /// The name of the other host's node.
    pub node: String,
    pub hosts: Arc<Hosts>,
    pub stop: Arc<StopSignal>,
    /// How long the fetch of a file may wait until there is room for the file, or until a failure has passed.
    pub wait: Duration,
    pub backlog: Mutex<Backlog>,
    /// The number of the last change that the other host's service has reported again. After a new start, that service
    /// reports all changes from the first one. So this host may already have the files of changes up to this number.
    pub retold: AtomicU64,
    /// Signalled when a change was added to the backlog, and when a change was carried out.
    pub changed: Condvar,
}

impl Fetcher {
    /// Asks the other host for changes, and starts lanes that fetch its files, until the thread must end.
    pub fn run(&self) {
        std::thread::scope(|scope| self.hear(scope));
    }

    /// Asks the other host for changes, until the thread must end.
    fn hear<'s>(&'s self, scope: &'s Scope<'s, '_>) {
        let (mut life, mut since, mut is_retold) = (0, 0, false);
        let mut silence = Silence::default();
        loop {
            let asked = Instant::now();
            let answer = match self.ask(life, since, silence.since.is_some()) {
                Ok(answer) => answer,
                Err(why) => {
                    self.is_silent(&mut silence, &why);
                    if self.stop.within(PAUSE) {
                        return;
                    }
                    continue;
                }
            };
            self.speaks(std::mem::take(&mut silence));
            // If too many requests for changes wait on the other host, it answers immediately. After such an answer,
            // this host pauses before it asks again.
            let is_early = answer.entries.is_empty() && asked.elapsed() < PAUSE;
            {
                let mut backlog = self.backlog();
                if answer.life != life {
                    // The other host's service was started anew, so this host asks for all changes from the first one.
                    is_retold = life != 0;
                    (life, since) = (answer.life, 0);
                    backlog.forget();
                }
                if is_retold {
                    self.retold.store(answer.upto, Ordering::Relaxed);
                    is_retold = !answer.is_complete;
                }
                for entry in answer.entries {
                    since = entry.number;
                    backlog.add(answer.directory, entry);
                }
            }
            since = since.max(answer.upto);
            self.open_lanes(scope);
            if self.settles() && answer.is_complete {
                self.shared.state().origin_is(self.origin, answer.phase, answer.torn);
            }
            if self.stop.within(if is_early { PAUSE } else { Duration::ZERO }) {
                return;
            }
        }
    }

    fn backlog(&self) -> MutexGuard<'_, Backlog> {
        self.backlog.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until all changes are done, but not longer than [`PAUSE`]. The next request can then report them as done.
    /// Tells whether all changes are done.
    fn settles(&self) -> bool {
        let is_busy = |backlog: &mut Backlog| !backlog.is_empty();
        let waited = self.changed.wait_timeout_while(self.backlog(), PAUSE, is_busy);
        waited.unwrap_or_else(PoisonError::into_inner).0.is_empty()
    }

    /// Starts lanes: threads that carry out the changes in the backlog.
    fn open_lanes<'s>(&'s self, scope: &'s Scope<'s, '_>) {
        self.changed.notify_all();
        while self.backlog().open_lane() {
            let lane = || self.work();
            let started = std::thread::Builder::new().name("crossdock-lane".into()).spawn_scoped(scope, lane);
            if started.is_err() {
                self.backlog().close_lane();
                break;
            }
        }
    }

    /// Runs a lane. The lane carries out changes, and ends when it has had no change to carry out for a while.
    fn work(&self) {
        let mut idle = Instant::now();
        while !self.stop.within(Duration::ZERO) {
            let has_choice = self.backlog().has_choice();
            let awaited = if has_choice { self.shared.awaited() } else { Arc::default() };
            let mut backlog = self.backlog();
            if let Some(work) = backlog.take(&awaited, Instant::now()) {
                drop(backlog);
                self.carry_out(work);
                self.changed.notify_all();
                idle = Instant::now();
                continue;
            }
            let is_waiting = backlog.is_waiting();
            if is_waiting {
                // The lane stays, because a consumer may soon wait for one of the files in the backlog.
                idle = Instant::now();
            } else if idle.elapsed() >= IDLE {
                // The backlog has stayed locked since it was found empty. So the thread that adds the next change sees
                // that this lane does not run any more, and starts a new lane.
                backlog.close_lane();
                return;
            }
            let pause = if is_waiting { awaited::LOOK } else { PAUSE };
            drop(self.changed.wait_timeout(backlog, pause));
        }
        self.backlog().close_lane();
    }

    /// Handles a request that was not answered. In each silence, the consumers' logs get one line that says that the
    /// other host does not answer, and one line that says that it is lost.
    fn is_silent(&self, silence: &mut Silence, why: &str) {
        let silent = self.tell_silence(silence, why).elapsed();
        let is_gone = self.hosts.is_gone(&self.node, &self.directory);
        let level = match is_gone {
            true if silent > GIVE_UP => SilenceLevel::GivenUp,
            true if silent > SILENT => SilenceLevel::Lost,
            _ => SilenceLevel::Silent,
        };
        let mut state = self.shared.state();
        let Origin { phase, silent: former, .. } = state.origins[self.origin].clone();
        let was = former.map_or(SilenceLevel::Silent, |former| former.level);
        let is_news = !matches!(phase, Phase::Ended | Phase::Failed) && was != level;
        let missing = if is_news { self.backlog().files() } else { Vec::new() };
        // Consumers read the notice without the lock of `state`. So the lost files are marked before the producers
        // count as failed. In the other order, a consumer that waits for a lost file could miss the reason why this
        // file does not come.
        if level == SilenceLevel::GivenUp {
            missing.iter().for_each(|rest| state.is_given_up(rest));
        }
        if former.is_none_or(|former| former.level != level) {
            let silent_ns = u64::try_from(silent.as_nanos()).unwrap_or(u64::MAX);
            let since_ns = former.map_or(clock::now_ns().saturating_sub(silent_ns), |former| former.since_ns);
            state.is_quiet(self.origin, Some(SilentOrigin { since_ns, level }));
        }
        if !is_news {
            return;
        }
        if was == SilenceLevel::Silent {
            missing.iter().for_each(|rest| state.is_lost(rest));
            if !std::mem::replace(&mut silence.is_told_lost, true) {
                state.trouble(lost(&self.node, &missing));
            }
        }
        // The other host is in the catalog again, so the files that are still missing do not count as lost any more.
        if level == SilenceLevel::Silent {
            missing.iter().for_each(|rest| state.is_found(rest));
        }
    }

    /// Tells the consumers that the other host does not answer, if they were not told yet in this silence. Returns the
    /// time at which the silence began.
    fn tell_silence(&self, silence: &mut Silence, why: &str) -> Instant {
        let is_met = self.hosts.is_met(&self.node);
        if is_met && std::mem::take(&mut silence.is_before) {
            // The other host has announced itself for the first time. Only its silence from now on counts.
            silence.since = None;
        }
        silence.is_before = !is_met;
        let began = *silence.since.get_or_insert_with(|| {
            let (now, heard) = (Instant::now(), self.hosts.heard(&self.node).unwrap_or_default());
            now.checked_sub(heard).unwrap_or(now)
        });
        let patience = if is_met { SILENT } else { COMING };
        if began.elapsed() > patience && !std::mem::replace(&mut silence.is_told, true) {
            self.trouble(&format!("no word of the files of host {}: {why}", self.node));
        }
        began
    }

    /// Is called after each answer of the other host. If the host was silent before, notes that it is no longer silent.
    fn speaks(&self, silence: Silence) {
        if silence.since.is_none() {
            return;
        }
        let mut state = self.shared.state();
        state.is_quiet(self.origin, None);
        if silence.is_told_lost {
            self.backlog().files().iter().for_each(|rest| state.is_found(rest));
            state.trouble(format!("host {} is back", self.node));
        }
    }

    /// Asks the other host for changes. The other host answers as soon as there is a change, and at the latest when the
    /// time for the answer is over. While the backlog is not empty, this time is one second, because the next request
    /// must soon tell the other host which changes are done. If the other host was silent before, the time is one
    /// second, too, so that the loss of the host is noticed soon.
    fn ask(&self, life: u64, since: u64, was_silent: bool) -> Result<Answer, String> {
        let link = self.link()?;
        let Origin { phase, torn, .. } = self.shared.state().origins[self.origin].clone();
        let lowest = self.backlog().lowest();
        let done = lowest.map_or(since, |number| number - 1);
        let question = Question { directory: self.directory.clone(), life, since, done, phase, torn };
        let is_calm = lowest.is_none() && !was_silent;
        let by = Deadline::after(if is_calm { ASK } else { Duration::from_secs(1) });
        let said = link.ask(NEWS, &question.write(), by).map_err(|error| error.to_string())?;
        Answer::read(&said).ok_or_else(|| "its answer cannot be read".to_owned())
    }

    fn link(&self) -> Result<Arc<Link>, String> {
        self.hosts.link(&self.node).map_err(|why| match why {
            NoLink::Over => "the exchange has ended".to_owned(),
            NoLink::Because(why) => why,
        })
    }

    /// Carries out one change of the backlog.
    fn carry_out(&self, work: PendingChange) {
        let rest = &work.entry.rest;
        match work.entry.what {
            ChangeKind::File(meta) => {
                if let Err(postponed) = self.fetch(&work, &meta) {
                    let pause = self.postpone(rest, &meta, postponed);
                    return self.backlog().put_back(work, Instant::now(), pause);
                }
            }
            ChangeKind::Folder => self.shared.state().show_folder(rest),
            ChangeKind::Gone => self.shared.state().gone(self.origin, rest),
            ChangeKind::Dropped => self.shared.state().lost(rest),
        }
        self.shared.state().waits_no_longer(rest);
        self.backlog().finish(&work);
    }

    /// Reports why a file is tried again later. Gives the pause before the next attempt.
    fn postpone(&self, rest: &Path, meta: &FileMetadata, postponed: Postponed) -> Duration {
        let mut state = self.shared.state();
        match postponed {
            Postponed::NoRoom => {
                state.waits_for_room(rest, meta.size);
                PAUSE
            }
            Postponed::Failure(why) => {
                let name = rest.display();
                state.trouble_once(format!("{name} cannot be fetched from host {} yet: {why}", self.node));
                AFTER_FAILURE
            }
        }
    }

    /// Fetches a file, or gives it up. The error says why the file must be tried again later.
    fn fetch(&self, work: &PendingChange, meta: &FileMetadata) -> Result<(), Postponed> {
        let mut tries = 0;
        let why = loop {
            let is_late = work.postponed.is_some_and(|first| first.elapsed() >= self.wait);
            match self.bring(work, meta) {
                Ok(()) | Err(Failed::Over | Failed::Overtaken) => return Ok(()),
                Err(Failed::Room(why)) if is_late => {
                    break format!("no room within {:.0} s: {why}", self.wait.as_secs_f64());
                }
                Err(Failed::Room(_)) => return Err(Postponed::NoRoom),
                // The file was removed before it could be fetched, or the other host's service was started anew. A
                // later change reports which of the two happened.
                Err(Failed::Bytes(error)) if matches!(error.status, Status::NotFound | Status::Closed) => return Ok(()),
                // The file has become shorter on the other host, or that host sends what no host sends. This does not
                // pass, and consumers hear of the producers' end only afterwards, so there are only a few attempts.
                Err(Failed::Bytes(error)) if error.status == Status::Corrupt => {
                    tries += 1;
                    if tries >= TRIES {
                        break error.to_string();
                    }
                }
                Err(Failed::Bytes(error)) if is_late => break error.to_string(),
                // The other host could not open, read or send the file, for example because its descriptors or its memory
                // are short.
                Err(Failed::Bytes(error)) => return Err(Postponed::Failure(error.to_string())),
                Err(Failed::Here(why)) if is_late => break why,
                Err(Failed::Here(why)) => return Err(Postponed::Failure(why)),
            }
            if self.stop.within(PAUSE) {
                return Ok(());
            }
        };
        let mut state = self.shared.state();
        state.waits_no_longer(&work.entry.rest);
        state.store.note("unfetched", &work.entry.rest);
        drop(state);
        self.trouble(&format!("{} was not fetched from host {}: {why}", work.entry.rest.display(), self.node));
        Ok(())
    }

    fn bring(&self, work: &PendingChange, meta: &FileMetadata) -> Result<(), Failed> {
        let entry = &work.entry;
        let is_retold = entry.number <= self.retold.load(Ordering::Relaxed);
        let begun = self.shared.state().begin(self.origin, &entry.rest, meta, is_retold)?;
        let Some((path, made)) = begun else { return Ok(()) };
        fault_point!("files.fetch.made");
        let source_id = SourceId { kind: SegmentKind::Item, object: entry.number, epoch: work.directory };
        let filled = self.fill(&made, work, &source_id, meta);
        let shown = filled.and_then(|()| {
            fault_point!("files.fetch.filled");
            finish(&made, meta).map_err(|error| failed_here(&error))?;
            drop(made);
            fault_point!("files.fetch.final");
            let mut state = self.shared.state();
            let shown = state.arrive(&self.shared, self.origin, &path, &entry.rest, meta.size);
            shown.map_err(|error| failed_here(&error))
        });
        if shown.is_err() {
            let _ = fs::remove_file(&path);
        }
        shown
    }

    /// Reserves room for the whole file, and reads the bytes into it.
    fn fill(&self, made: &File, work: &PendingChange, source_id: &SourceId, meta: &FileMetadata) -> Result<(), Failed> {
        if meta.size == 0 {
            return Ok(());
        }
        if !mount::has_room(made, meta.size) {
            return Err(Failed::Room(format!(
                "the file system of the directory has less than {} bytes free",
                meta.size
            )));
        }
        let length = usize::try_from(meta.size).map_err(|_| Failed::Here("it is too large".into()))?;
        fs::set_len(made, meta.size).map_err(|error| failed_here(&error))?;
        let mapped = Mapping::for_huge_pages(made, length, Access::ReadWrite);
        let mut mapped = mapped.map_err(|error| failed_here(&error.reason()))?;
        // If the file lies in memory, huge pages are faster: the kernel makes the same amount of memory in a third of
        // the time that it needs with small pages.
        mapped.take_huge_pages(made, 0, meta.size);
        file::extend(made, 0, meta.size).map_err(|error| failed_here(&error.reason()))?;
        let bytes = mapped.fresh_bytes();
        let (mut offset, mut piece, mut silence) = (0, PIECE, Silence::default());
        while offset < length {
            if self.stop.within(Duration::ZERO) {
                return Err(Failed::Over);
            }
            if self.backlog().is_overtaken(work) {
                return Err(Failed::Overtaken);
            }
            let end = length.min(offset + piece);
            let asked = Instant::now();
            let link = match self.link() {
                Ok(link) => link,
                Err(why) => {
                    self.tell_silence(&mut silence, &why);
                    self.stop.within(PAUSE);
                    continue;
                }
            };
            match link.pull(source_id, offset as u64, &mut bytes[offset..end], Deadline::after(PULL)) {
                Ok(_) => (offset, silence) = (end, Silence::default()),
                Err(error) if is_cut(&error) || link.is_closed() => {
                    self.tell_silence(&mut silence, &error.to_string());
                    self.stop.within(PAUSE);
                }
                Err(error) => return Err(Failed::Bytes(error)),
            }
            piece = match asked.elapsed() {
                quick if quick < Duration::from_millis(500) => (piece * 2).min(PIECE_MOST),
                slow if slow > Duration::from_secs(5) => (piece / 2).max(PIECE_LEAST),
                _ => piece,
            };
        }
        Ok(())
    }

    fn trouble(&self, line: &str) {
        self.shared.state().trouble(line.to_owned());
    }
}

/// The most file names in the line about a lost host.
const NAMES: usize = 5;

/// Writes the line for the log that says which files are lost with a host.
fn lost(node: &str, missing: &[PathBuf]) -> String {
    let names: Vec<String> = missing.iter().take(NAMES).map(|rest| rest.display().to_string()).collect();
    let more = if missing.len() > NAMES { ", …" } else { "" };
    let files = match missing.len() {
        0 => "this host has all of its files that it knew of".to_owned(),
        1 => format!("1 file that this host had not fetched is lost with it: {}", names[0]),
        count => format!("{count} files that this host had not fetched are lost with it: {}{more}", names.join(", ")),
    };
    format!("host {node} is lost: its lease in the catalog has ended, and it does not answer; {files}")
}

/// Tells whether the connection broke or was too slow, so that the bytes are asked for again.
fn is_cut(error: &crossdock_link::Error) -> bool {
    matches!(error.status, Status::Disconnected | Status::TimedOut | Status::Busy)
}

/// Gives the fetched file the time and the mode of the original. The mode is set without the right to write, as for
/// every published file, and without set-user-id, because the fetched file belongs to the service's user: with
/// set-user-id, every process that runs the file would get the rights of this user.
fn finish(made: &File, meta: &FileMetadata) -> io::Result<()> {
    let (seconds, nanoseconds) = meta.modified;
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let time =
        if seconds < 0 { SystemTime::UNIX_EPOCH.checked_sub(whole) } else { SystemTime::UNIX_EPOCH.checked_add(whole) };
    if let Some(time) = time.and_then(|time| time.checked_add(Duration::from_nanos(nanoseconds.into()))) {
        made.set_times(FileTimes::new().set_modified(time))?;
    }
    let mode = meta.mode & 0o555 | 0o444;
    fs::set_mode(made, mode)
}

impl State {
    /// Makes the hidden file for a file of another host. Returns `None` if consumers see the file already. `is_retold`
    /// says that the other host's service was started anew and reports all of its files again.
    fn begin(
        &mut self,
        origin: usize,
        rest: &Path,
        meta: &FileMetadata,
        is_retold: bool,
    ) -> Result<Option<(PathBuf, File)>, Failed> {
        if self.is_over {
            return Err(Failed::Over);
        }
        let may_be_same = is_retold || !self.fetched.contains_key(rest);
        if may_be_same && self.has_from_before(rest, meta).map_err(|error| failed_here(&error))? {
            self.fetched.insert(rest.to_owned(), origin);
            return Ok(None);
        }
        if self.has_own(rest).map_err(|error| failed_here(&error))? {
            return Ok(None);
        }
        let path = self.store.fetched();
        let made = fs::open(OpenOptions::new().read(true).write(true).create_new(true).mode(0o600), &path);
        made.map(|made| Some((path, made))).map_err(|error| failed_here(&error))
    }

    /// Tells whether a producer of this host has published a file of this name, which may be on the disk now. If so,
    /// consumers of this host continue to see that file.
    fn has_own(&self, rest: &Path) -> io::Result<bool> {
        let layout = &self.store.layout;
        let file = |folder: &Path| {
            present(fs::symlink_metadata(folder.join(rest))).map(|there| there.filter(fs::Metadata::is_file))
        };
        match file(&layout.published)? {
            Some(there) => layout.is_staged(rest, &there),
            None => Ok(!self.fetched.contains_key(rest) && file(&layout.spilled)?.is_some()),
        }
    }

    /// Tells whether an earlier service of this host has fetched this very file.
    fn has_from_before(&self, rest: &Path, meta: &FileMetadata) -> io::Result<bool> {
        let layout = &self.store.layout;
        for folder in [&layout.published, &layout.spilled] {
            let Some(there) = present(fs::symlink_metadata(folder.join(rest)))? else { continue };
            let known = FileMetadata::of(&there);
            let is_same = there.is_file() && known.size == meta.size && known.modified == meta.modified;
            if is_same && !layout.is_staged(rest, &there)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Gives a fetched file its name in the folders that consumers see.
    fn arrive(&mut self, shared: &Shared, origin: usize, path: &Path, rest: &Path, size: u64) -> io::Result<()> {
        if self.is_over {
            return Err(ErrorKind::Interrupted.into());
        }
        // A producer of this host has published a file of the same name while the bytes were fetched. So the fetched
        // file is removed.
        if self.has_own(rest)? {
            return fs::remove_file(path);
        }
        if let Some(folder) = rest.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            self.show_folder(folder);
        }
        self.outdated(rest).iter().for_each(|old| self.store.drop_file(old));
        self.store.show_everywhere(path, rest).map_err(|(error, _)| error)?;
        fault_point!("files.fetch.shown");
        self.fetched.insert(rest.to_owned(), origin);
        self.report.fetched += 1;
        self.report.bytes_fetched += size;
        self.has_shown(shared, rest);
        fault_point!("files.fetch.told");
        Ok(())
    }

    /// Shows consumers a folder that producers of another host made.
    fn show_folder(&mut self, rest: &Path) {
        let shown = self.store.show_folder(rest).and_then(|()| {
            let mut folder = Path::new("").to_owned();
            rest.iter().try_for_each(|part| {
                folder.push(part);
                self.watch_reads(&folder)
            })
        });
        if let Err(error) = shown {
            self.trouble(format!("{} cannot be shown: {error}", rest.display()));
        }
    }

    /// Removes a name that the other host has removed. Files that producers of this host made stay.
    fn gone(&mut self, origin: usize, rest: &Path) {
        let below = self.fetched.range(rest.to_owned()..).take_while(|(name, _)| name.starts_with(rest));
        let names: Vec<PathBuf> = below.filter(|(_, of)| **of == origin).map(|(name, _)| name.clone()).collect();
        for name in names {
            self.take_from_consumers(&name);
        }
        if !matches!(self.store.layout.staged_folder(rest), Ok(Some(_))) {
            self.store.remove_empty(rest);
        }
    }

    /// Handles a file that another host has dropped. If this host does not have the file, consumers that wait for it
    /// get an error.
    fn lost(&mut self, rest: &Path) {
        if !self.has(rest) {
            self.store.note("dropped", rest);
            self.store.tell_lost(rest, LossReason::Dropped);
        }
    }

    /// Adds a line for `crossdock ls --files` to the list of events: this file is lost together with the host that made
    /// it. Adds no line if this host has the file already.
    fn is_lost(&mut self, rest: &Path) {
        if !self.has(rest) {
            self.store.note("lost", rest);
        }
    }

    /// Handles a file of a lost host that is given up. If this host does not have the file, consumers that wait for it
    /// get an error.
    fn is_given_up(&mut self, rest: &Path) {
        if !self.has(rest) {
            self.store.tell_lost(rest, LossReason::WithHost);
        }
    }

    /// Withdraws the note that a file was lost with its host, because the host is back.
    fn is_found(&mut self, rest: &Path) {
        self.store.note("done", rest);
        self.store.tell_found(rest);
    }

    /// Tells whether consumers of this host see a file of this name.
    fn has(&self, rest: &Path) -> bool {
        let layout = &self.store.layout;
        layout.published.join(rest).exists() || layout.spilled.join(rest).exists()
    }

    /// Notes that another host does not answer, or that it answers again. Tells consumers which host is lost. If no
    /// host is lost, tells them which host has been silent for the longest time.
    fn is_quiet(&mut self, number: usize, silent: Option<SilentOrigin>) {
        self.origins[number].silent = silent;
        let is_over = |origin: &&Origin| matches!(origin.phase, Phase::Ended | Phase::Failed);
        let waiting = self.origins.iter().filter(|origin| !is_over(origin));
        let quiet = waiting.filter_map(|origin| Some((origin.silent?, &origin.node)));
        let is_lost = |quiet: &SilentOrigin| quiet.level != SilenceLevel::Silent;
        let first = quiet.min_by_key(|(quiet, _)| (!is_lost(quiet), quiet.since_ns));
        let first = first.map(|(quiet, node)| SilentHost {
            host: node.clone(),
            since_ns: quiet.since_ns,
            is_lost: is_lost(&quiet),
        });
        self.store.tell_silent(first.as_ref());
        self.tell_phase();
    }

    /// Notes whether the producers of another host have started, have ended or have failed (`phase`), and how many of
    /// their files were not published because the writer was killed (`torn`). Tells consumers the state of the
    /// producers of all hosts. The caller has carried out all changes that those producers caused.
    fn origin_is(&mut self, number: usize, phase: Phase, torn: u64) {
        let origin = &mut self.origins[number];
        if (origin.phase, origin.torn) == (phase, torn) {
            return;
        }
        (origin.phase, origin.torn) = (phase, torn);
        let all = self.report.torn + self.origins.iter().map(|origin| origin.torn).sum::<u64>();
        self.store.set_torn(all);
        self.tell_phase();
    }

    /// Tells consumers whether the producers of all hosts together have started, have ended or have failed. The
    /// producers of a host that was given up count as failed, unless all of their files have come.
    pub(super) fn tell_phase(&self) {
        let phase = |origin: &Origin| match (origin.phase, origin.silent) {
            (phase @ (Phase::Ended | Phase::Failed), _) => phase,
            (_, Some(SilentOrigin { level: SilenceLevel::GivenUp, .. })) => Phase::Failed,
            (phase, _) => phase,
        };
        let phases: Vec<Phase> = self.own.into_iter().chain(self.origins.iter().map(phase)).collect();
        let is_over = |phase: &Phase| matches!(phase, Phase::Ended | Phase::Failed);
        let phase = if phases.is_empty() || phases.iter().all(|phase| *phase == Phase::Coming) {
            Phase::Coming
        } else if !phases.iter().all(is_over) {
            Phase::Producing
        } else if phases.contains(&Phase::Failed) {
            Phase::Failed
        } else {
            Phase::Ended
        };
        self.store.tell_phase(phase);
    }

    /// Watches which files consumers read in a folder, if files are dropped after all consumers have read them.
    pub(super) fn watch_reads(&mut self, rest: &Path) -> io::Result<()> {
        let Keep::Consumed { readers } = &self.keep else { return Ok(()) };
        for consumer in 0..readers.len() {
            let folder = self.store.layout.for_consumer(consumer).join(rest);
            let number = self.reads.add_reads(&folder)?;
            self.read_folders.insert(number, (consumer, rest.to_owned()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::atomic::AtomicU32;

    use crossdock_link::{Choice, LinkOptions, Node, Peer, Refusal, Serve, Server, Source, Transports, Trust};
    use crossdock_os::testing::until;

    use super::super::messages::Entry;
    use super::super::{Announcement, RemoteHosts, Service};
    use super::*;
    use crate::rules::Publish;

    const EMPTY: FileMetadata = FileMetadata { size: 0, mode: 0o644, modified: (1, 2) };

    /// The host `b`, which fetches the file `d/f` of the host `a`.
    struct Consumer {
        root: PathBuf,
        transports: Transports,
        fetcher: Fetcher,
        service: Option<Service>,
    }

    impl Consumer {
        fn new(name: &str, size: u64) -> Self {
            let root = PathBuf::from(format!("/dev/shm/crossdock-fetch-{name}-{}", std::process::id()));
            let keep = Keep::Consumed { readers: vec![1] };
            let notice = root.with_extension("notice");
            let service = Service::start(&root, &notice, "simulate", Publish::Close, keep).unwrap();
            service.shared.share(&RemoteHosts { origins: vec!["a".into()], ..RemoteHosts::default() }, 1).unwrap();
            let transports = Transports::new(&Trust::Loopback, Choice::Tcp).unwrap();
            let own = Node { name: "b".into(), incarnation: 1 };
            let fetcher = Fetcher {
                shared: service.shared.clone(),
                directory: "frames".into(),
                origin: 0,
                node: "a".into(),
                hosts: Arc::new(Hosts::new(&transports, own)),
                stop: Arc::default(),
                wait: Duration::from_secs(60),
                backlog: Mutex::default(),
                retold: AtomicU64::new(0),
                changed: Condvar::new(),
            };
            let what = ChangeKind::File(FileMetadata { size, mode: 0o644, modified: (1, 2) });
            fetcher.backlog().add(0, Entry { number: 1, rest: "d/f".into(), what });
            Self { root, transports, fetcher, service: Some(service) }
        }

        /// Tries once to fetch the file, without the pause before it. Tells whether the file is not tried again.
        fn tries(&self) -> bool {
            let later = Instant::now() + AFTER_FAILURE;
            let work = self.fetcher.backlog().take(&HashSet::new(), later).expect("the file is still to be fetched");
            self.fetcher.carry_out(work);
            self.fetcher.backlog().is_empty()
        }

        /// Begins to fetch an empty file. Then a producer of this host publishes a file of the same name. Gives the path of
        /// the file that is being fetched.
        fn begins_beside_its_own(&self) -> PathBuf {
            let begun = self.fetcher.shared.state().begin(0, Path::new("d/f"), &EMPTY, false);
            let Ok(Some((path, _))) = begun else { panic!("no file is begun") };
            std::fs::create_dir(self.root.join("stage/d")).unwrap();
            std::fs::write(self.root.join("stage/d/f"), "of this host").unwrap();
            until("the file of this host", || self.has_file());
            path
        }

        fn has_file(&self) -> bool {
            ["published/d/f", "for.0/d/f"].iter().all(|name| self.root.join(name).is_file())
        }

        fn troubles(&self) -> Vec<String> {
            self.fetcher.shared.state().report.troubles.clone()
        }
    }

    impl Drop for Consumer {
        fn drop(&mut self) {
            self.fetcher.hosts.close();
            self.service = None;
            fs::remove_dir_all(&self.root).unwrap();
            fs::remove_file(self.root.with_extension("notice")).unwrap();
        }
    }

    #[cfg(feature = "faults")]
    #[test]
    fn a_file_comes_after_a_call_of_this_host_failed() {
        let seen = crossdock_os::faults::each_call_fails(|attempt| {
            let host = Consumer::new("call-fails", 0);
            attempt.arm();
            let is_over = host.tries();
            let hit = attempt.disarm();
            assert!(is_over || host.tries(), "{hit:?}: {:?}", host.troubles());
            assert!(host.has_file(), "{hit:?}: {:?}", host.troubles());
        });
        assert!(["open", "chmod", "mkdir", "link", "rename"].iter().all(|call| seen.contains(call)), "{seen:?}");
    }

    #[cfg(feature = "faults")]
    #[test]
    fn a_file_is_not_given_up_if_its_room_cannot_be_reserved_because_a_call_failed() {
        let seen = crossdock_os::faults::each_call_fails(|attempt| {
            let host = Consumer::new("room-fails", 100_000);
            // The fetch ends when the room is reserved, before it needs the other host.
            host.fetcher.stop.set();
            attempt.arm();
            host.tries();
            let hit = attempt.disarm();
            let is_given_up = host.troubles().iter().any(|line| line.contains("was not fetched"));
            assert!(!is_given_up, "{hit:?}: {:?}", host.troubles());
        });
        assert!(["ftruncate", "mmap", "fallocate"].iter().all(|call| seen.contains(call)), "{seen:?}");
    }

    #[cfg(feature = "faults")]
    #[test]
    fn a_file_of_this_host_stays_although_a_call_failed_while_one_of_its_name_was_fetched() {
        let seen = crossdock_os::faults::each_call_fails(|attempt| {
            let host = Consumer::new("own-fails", 0);
            let (shared, rest, path) = (&host.fetcher.shared, Path::new("d/f"), host.begins_beside_its_own());
            let mut state = shared.state();
            attempt.arm();
            let _ = state.arrive(shared, 0, &path, rest, 0);
            let hit = attempt.disarm();
            drop(state);
            assert_eq!(std::fs::read(host.root.join("published/d/f")).unwrap(), b"of this host", "{hit:?}");
        });
        assert!(seen.contains("open") && seen.contains("stat"), "{seen:?}");
    }

    #[test]
    fn a_file_of_this_host_that_was_moved_to_the_disk_stays_when_one_of_its_name_is_fetched() {
        use crate::spill::Spill;
        use crate::view::MovedFiles;
        let host = Consumer::new("own-moved", 0);
        let disk = tempfile::tempdir().unwrap();
        let (shared, rest, path) = (&host.fetcher.shared, Path::new("d/f"), host.begins_beside_its_own());
        let mut state = shared.state();
        let layout = state.store.layout.clone();
        state.spill = Some(Spill::open(&layout, disk.path(), 1, MovedFiles::default()).unwrap());
        let copy = state.spill.as_mut().and_then(|spill| spill.next(&layout, 2)).unwrap();
        copy.make().unwrap();
        state.take_to_disk(&copy).unwrap();
        assert!(!host.has_file(), "the file is on the disk now");
        assert!(matches!(state.begin(0, rest, &EMPTY, false), Ok(None)), "this host has its own file");
        state.arrive(shared, 0, &path, rest, 0).unwrap();
        drop(state);
        assert_eq!(std::fs::read(layout.spilled.join(rest)).unwrap(), b"of this host");
        assert!(!host.has_file());
    }

    #[test]
    fn a_used_up_quota_is_a_lack_of_room() {
        for kind in [ErrorKind::StorageFull, ErrorKind::QuotaExceeded] {
            assert!(matches!(failed_here(&kind.into()), Failed::Room(_)));
        }
    }

    /// The host `a`, which cannot open its file for some requests, for example because its descriptors are short.
    struct ShortHost {
        requests: AtomicU32,
        status: Status,
    }

    impl Serve for ShortHost {
        fn answer(&self, _: &Peer, _: u32, _: &[u8], _: Deadline) -> Result<Vec<u8>, Refusal> {
            Err(Refusal::new(Status::NotFound, "the test asks for no changes"))
        }

        fn open(&self, _: &Peer, _: &SourceId) -> Result<Arc<dyn Source>, Refusal> {
            if self.requests.fetch_sub(1, Ordering::Relaxed) > 1 {
                return Err(Refusal::new(self.status, "a call failed"));
            }
            Ok(Arc::new(vec![7; 1000]))
        }
    }

    fn meet(host: &Consumer, refusals: u32, status: Status) -> Server {
        let accept = host.transports.listen("127.0.0.1:0").unwrap();
        let node = Node { name: "a".into(), incarnation: 1 };
        let serve = ShortHost { requests: AtomicU32::new(refusals + 1), status };
        let server = Server::start(accept, node, Arc::new(serve), LinkOptions::default()).unwrap();
        host.fetcher.hosts.learn("a", "frames", &Announcement::producing(1, server.address()));
        server
    }

    #[test]
    fn a_file_comes_after_the_other_host_had_no_descriptor_or_memory_for_it() {
        for status in [Status::System, Status::NoSpace] {
            let host = Consumer::new("short-host", 1000);
            let _server = meet(&host, 2 * TRIES, status);
            let tries = (1..).find(|_| host.tries()).unwrap();
            assert!(host.has_file(), "{status:?}, after {tries} tries: {:?}", host.troubles());
            assert!(matches!(&host.troubles()[..], [line] if line.contains("cannot be fetched from host a yet")));
        }
    }

    #[test]
    fn a_file_that_has_become_shorter_is_given_up_after_a_few_attempts() {
        let host = Consumer::new("shorter", 1000);
        let _server = meet(&host, u32::MAX / 2, Status::Corrupt);
        assert!(host.tries() && !host.has_file());
        assert!(matches!(&host.troubles()[..], [line] if line.contains("d/f was not fetched from host a")));
    }

    #[test]
    fn a_file_that_cannot_be_fetched_is_given_up_when_its_time_is_over() {
        let mut host = Consumer::new("given-up", 1000);
        host.fetcher.wait = Duration::ZERO;
        let _server = meet(&host, u32::MAX / 2, Status::System);
        // The file has waited long behind other files, but its time begins with its first failure.
        assert!(!host.tries(), "the file was given up at its first failure: {:?}", host.troubles());
        assert!(host.tries() && !host.has_file());
        assert!(host.troubles().iter().any(|line| line.contains("d/f was not fetched from host a")));
    }
}

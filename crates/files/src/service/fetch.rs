//! Brings the files that producers of another host publish: a thread for each directory and host.
//!
//! The thread asks for news, and carries them out in their order. A file is made in the hidden folder `fetched` with its whole
//! size, so that it has its room; its bytes are pulled into it; it gets the mode and the time of the original; and one rename
//! shows it to consumers. A file for which there is no room is put aside and tried again, while later news go on. The end of
//! the producers is told to consumers when nothing is put aside.
//!
//! What if this host's service dies? The next one removes what is in `fetched`, asks for all news again, and passes over the
//! files that it finds shown. What if the other host's service dies? Its successor has another `life`: all news are asked for
//! again.

use std::collections::VecDeque;
use std::fs::{self, File, FileTimes, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use crossdock_core::fault_point;
use crossdock_layout::Status;
use crossdock_layout::files::Phase;
use crossdock_layout::wire::SegmentKind;
use crossdock_link::{Link, Wanted};
use crossdock_os::{Access, Deadline, Mapping, file};

use super::words::{Answer, Entry, Meta, NEWS, Question, What};
use super::{Shared, State};
use crate::rules::Keep;
use crate::store::same;

/// Where a checked build can kill the service while it fetches a file.
#[cfg(feature = "fault-points")]
pub const FETCH_FAULT_POINTS: &[&str] =
    &["files.fetch.made", "files.fetch.filled", "files.fetch.final", "files.fetch.shown", "files.fetch.told"];

/// A question for news waits so long.
const ASK: Duration = Duration::from_secs(10);
/// The pause after a failed question, after an answer that came at once without news, and before another attempt to fetch files for
/// which there was no room.
const PAUSE: Duration = Duration::from_millis(100);
/// After so long without an answer, the consumers' logs say so.
const SILENT: Duration = Duration::from_secs(5);
/// The first piece of a file has this size. Between two pieces the thread looks whether it is to end.
const PIECE: usize = 4 << 20;
/// Pieces that come within half a second double up to this size.
const PIECE_MOST: usize = 64 << 20;
/// Pieces that take five seconds halve down to this size.
const PIECE_LEAST: usize = 256 << 10;
/// A piece that has not come within this time is asked for again.
const PULL: Duration = Duration::from_secs(10);
/// A file whose bytes cannot be had is tried so often.
const TRIES: u32 = 3;

/// Tells threads to end.
#[derive(Debug, Default)]
pub(super) struct Stop {
    is_over: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    pub fn set(&self) {
        *self.is_over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    /// Waits for so long; gives whether the thread is to end.
    fn within(&self, time: Duration) -> bool {
        let guard = self.is_over.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(guard, time, |is_over| !*is_over);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// What one host knows of the producers of another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    pub node: String,
    pub phase: Phase,
    pub torn: u64,
}

/// How long the other host has said nothing.
#[derive(Default)]
struct Silence {
    since: Option<Instant>,
    /// The consumers know.
    is_told: bool,
}

/// A file for which there was no room.
struct Aside {
    entry: Entry,
    meta: Meta,
    since: Instant,
}

/// Why a file was not fetched.
enum Failed {
    /// There is no room for it.
    Room(String),
    /// Its bytes cannot be had.
    Bytes(crossdock_link::Error),
    /// This host refuses something.
    Here(String),
    /// The thread is to end.
    Over,
}

/// One directory, and one host with producers of it.
pub(super) struct Fetcher {
    pub shared: Arc<Shared>,
    pub directory: String,
    /// The host's number among the origins of this directory.
    pub origin: usize,
    pub link: Arc<Link>,
    pub stop: Arc<Stop>,
    /// How long a file may wait for room.
    pub wait: Duration,
}

impl Fetcher {
    /// The thread.
    pub fn run(&self) {
        let (mut life, mut since) = (0, 0);
        let mut aside: VecDeque<Aside> = VecDeque::new();
        let mut silence = Silence::default();
        loop {
            let asked = Instant::now();
            let answer = match self.ask(life, since, &aside) {
                Ok(answer) => answer,
                Err(why) => {
                    self.is_silent(&mut silence, &why);
                    if self.stop.within(PAUSE) {
                        return;
                    }
                    continue;
                }
            };
            silence = Silence::default();
            // The other host answers at once if too many questions wait there.
            let is_early = answer.entries.is_empty() && asked.elapsed() < PAUSE;
            if answer.life != life {
                // All news again, from the first one.
                (life, since) = (answer.life, 0);
                aside.clear();
            }
            for entry in answer.entries {
                since = entry.number;
                aside.retain(|other| !other.entry.rest.starts_with(&entry.rest));
                if !self.carry_out(answer.directory, entry, &mut aside) {
                    return;
                }
            }
            since = since.max(answer.upto);
            for _ in 0..aside.len() {
                let Some(Aside { entry, meta, since }) = aside.pop_front() else { break };
                if !self.fetch(answer.directory, entry, meta, since, &mut aside) {
                    return;
                }
            }
            if answer.is_complete && aside.is_empty() {
                self.shared.state().origin_is(self.origin, answer.phase, answer.torn);
            }
            let pause = if !aside.is_empty() || is_early { PAUSE } else { Duration::ZERO };
            if self.stop.within(pause) {
                return;
            }
        }
    }

    /// Tells the consumers once that the other host says nothing.
    fn is_silent(&self, silence: &mut Silence, why: &str) {
        let began = *silence.since.get_or_insert_with(Instant::now);
        if began.elapsed() > SILENT && !std::mem::replace(&mut silence.is_told, true) {
            self.trouble(&format!("no word of the files of host {}: {why}", self.link.seen().node));
        }
    }

    /// Asks for what is new. While files wait for room, the answer comes within a second.
    fn ask(&self, life: u64, since: u64, aside: &VecDeque<Aside>) -> Result<Answer, String> {
        let Origin { phase, torn, .. } = self.shared.state().origins[self.origin].clone();
        let done = aside.iter().map(|aside| aside.entry.number - 1).min().unwrap_or(since);
        let question = Question { directory: self.directory.clone(), life, since, done, phase, torn };
        let by = Deadline::after(if aside.is_empty() { ASK } else { Duration::from_secs(1) });
        let said = self.link.ask(NEWS, &question.write(), by).map_err(|error| error.to_string())?;
        Answer::read(&said).ok_or_else(|| "its answer cannot be read".to_owned())
    }

    /// Does what one entry says; `false` if the thread is to end.
    fn carry_out(&self, directory: u64, entry: Entry, aside: &mut VecDeque<Aside>) -> bool {
        match entry.what {
            What::File(meta) => return self.fetch(directory, entry, meta, Instant::now(), aside),
            What::Folder => self.shared.state().show_folder(&entry.rest),
            What::Gone => self.shared.state().gone(self.origin, &entry.rest),
        }
        true
    }

    /// Fetches a file, or puts it aside; `false` if the thread is to end.
    fn fetch(&self, directory: u64, entry: Entry, meta: Meta, since: Instant, aside: &mut VecDeque<Aside>) -> bool {
        let mut tries = 0;
        let why = loop {
            match self.bring(directory, &entry, &meta) {
                Ok(()) => return true,
                Err(Failed::Over) => return false,
                Err(Failed::Room(why)) if since.elapsed() >= self.wait => {
                    break format!("no room within {:.0} s: {why}", self.wait.as_secs_f64());
                }
                Err(Failed::Room(_)) => {
                    aside.push_back(Aside { entry, meta, since });
                    return true;
                }
                // The file went before it could be fetched, or the other service was started anew. Later news tell of it.
                Err(Failed::Bytes(error)) if matches!(error.status, Status::NotFound | Status::Closed) => return true,
                Err(Failed::Bytes(error)) => {
                    tries += 1;
                    if tries >= TRIES {
                        break error.to_string();
                    }
                }
                Err(Failed::Here(why)) => break why,
            }
            if self.stop.within(PAUSE) {
                return false;
            }
        };
        let node = self.link.seen().node;
        self.trouble(&format!("{} was not fetched from host {node}: {why}", entry.rest.display()));
        true
    }

    fn bring(&self, directory: u64, entry: &Entry, meta: &Meta) -> Result<(), Failed> {
        let Some((path, made)) = self.shared.state().begin(self.origin, &entry.rest, meta)? else { return Ok(()) };
        fault_point!("files.fetch.made");
        let wanted = Wanted { kind: SegmentKind::Item, object: entry.number, epoch: directory };
        let filled = self.fill(&made, &wanted, meta);
        let shown = filled.and_then(|()| {
            fault_point!("files.fetch.filled");
            finish(&made, meta).map_err(|error| Failed::Here(error.to_string()))?;
            drop(made);
            fault_point!("files.fetch.final");
            let mut state = self.shared.state();
            let shown = state.arrive(&self.shared, self.origin, &path, &entry.rest, meta.size);
            shown.map_err(|error| match error.kind() {
                ErrorKind::StorageFull => Failed::Room(error.to_string()),
                _ => Failed::Here(error.to_string()),
            })
        });
        if shown.is_err() {
            let _ = fs::remove_file(&path);
        }
        shown
    }

    /// Takes the room, and reads the bytes into it.
    fn fill(&self, made: &File, wanted: &Wanted, meta: &Meta) -> Result<(), Failed> {
        if meta.size == 0 {
            return Ok(());
        }
        let length = usize::try_from(meta.size).map_err(|_| Failed::Here("it is too large".into()))?;
        file::extend(made, 0, meta.size).map_err(|error| match error.reason().kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Failed::Room(error.to_string()),
            _ => Failed::Here(error.to_string()),
        })?;
        let mapped = Mapping::new(made, length, Access::ReadWrite);
        let mut mapped = mapped.map_err(|error| Failed::Here(error.to_string()))?;
        let bytes = mapped.fresh_bytes();
        let (mut offset, mut piece, mut silence) = (0, PIECE, Silence::default());
        while offset < length {
            if self.stop.within(Duration::ZERO) {
                return Err(Failed::Over);
            }
            let end = length.min(offset + piece);
            let asked = Instant::now();
            match self.link.pull(wanted, offset as u64, &mut bytes[offset..end], Deadline::after(PULL)) {
                Ok(_) => (offset, silence) = (end, Silence::default()),
                Err(error) if is_cut(&error) => {
                    self.is_silent(&mut silence, &error.to_string());
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

/// The connection is gone or slow: a reason to ask again.
fn is_cut(error: &crossdock_link::Error) -> bool {
    matches!(error.status, Status::Disconnected | Status::TimedOut | Status::Busy)
}

/// The time of the original, and its mode without the right to write and without set-user-id: this file belongs to the service's
/// user.
fn finish(made: &File, meta: &Meta) -> io::Result<()> {
    let (seconds, nanoseconds) = meta.modified;
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let time =
        if seconds < 0 { SystemTime::UNIX_EPOCH.checked_sub(whole) } else { SystemTime::UNIX_EPOCH.checked_add(whole) };
    if let Some(time) = time.and_then(|time| time.checked_add(Duration::from_nanos(nanoseconds.into()))) {
        made.set_times(FileTimes::new().set_modified(time))?;
    }
    let mode = meta.mode & 0o555 | 0o444;
    made.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(mode))
}

impl State {
    /// Makes the hidden file for a file of another host. `None`: consumers see it already.
    fn begin(&mut self, origin: usize, rest: &Path, meta: &Meta) -> Result<Option<(PathBuf, File)>, Failed> {
        if self.is_over {
            return Err(Failed::Over);
        }
        if self.has_own(rest) {
            return Ok(None);
        }
        if !self.fetched.contains_key(rest) && self.has_from_before(rest, meta) {
            self.fetched.insert(rest.to_owned(), origin);
            return Ok(None);
        }
        let path = self.store.fetched();
        let made = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path);
        match made {
            Ok(made) => Ok(Some((path, made))),
            Err(error) if error.kind() == ErrorKind::StorageFull => Err(Failed::Room(error.to_string())),
            Err(error) => Err(Failed::Here(error.to_string())),
        }
    }

    /// Has a producer of this host published a file of this name? Consumers of this host keep that one.
    fn has_own(&self, rest: &Path) -> bool {
        let there = fs::symlink_metadata(self.store.layout.published.join(rest));
        there.is_ok_and(|there| there.is_file() && same(&self.store.layout.stage.join(rest), &there))
    }

    /// Has a former service fetched this very file?
    fn has_from_before(&self, rest: &Path, meta: &Meta) -> bool {
        let layout = &self.store.layout;
        [&layout.published, &layout.spilled].iter().any(|folder| {
            let there = fs::symlink_metadata(folder.join(rest));
            there.is_ok_and(|there| {
                let is_same = Meta::of(&there).size == meta.size && Meta::of(&there).modified == meta.modified;
                there.is_file() && is_same && !same(&layout.stage.join(rest), &there)
            })
        })
    }

    /// Shows a file that has come.
    fn arrive(&mut self, shared: &Shared, origin: usize, path: &Path, rest: &Path, size: u64) -> io::Result<()> {
        if self.is_over {
            return Err(ErrorKind::Interrupted.into());
        }
        // Published here while the bytes came.
        if self.has_own(rest) {
            return fs::remove_file(path);
        }
        if let Some(folder) = rest.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            self.show_folder(folder);
        }
        self.store.show_everywhere(path, rest)?;
        fault_point!("files.fetch.shown");
        self.fetched.insert(rest.to_owned(), origin);
        self.report.fetched += 1;
        self.report.bytes_fetched += size;
        self.has_shown(shared, rest);
        fault_point!("files.fetch.told");
        Ok(())
    }

    /// Shows a folder of another host's producers.
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

    /// A name of another host is no more. What this host's producers made stays.
    fn gone(&mut self, origin: usize, rest: &Path) {
        let below = self.fetched.range(rest.to_owned()..).take_while(|(name, _)| name.starts_with(rest));
        let names: Vec<PathBuf> = below.filter(|(_, of)| **of == origin).map(|(name, _)| name.clone()).collect();
        for name in names {
            self.take_from_consumers(&name);
        }
        if !self.store.layout.stage.join(rest).is_dir() {
            self.store.remove_empty(rest);
        }
    }

    /// What the producers of another host do. Consumers hear it when everything that they published is shown.
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

    /// Tells consumers what the producers of all hosts do.
    pub(super) fn tell_phase(&self) {
        let phases: Vec<Phase> = self.own.into_iter().chain(self.origins.iter().map(|origin| origin.phase)).collect();
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

    /// Watches what consumers read in a folder, where files go when all have read them.
    pub(super) fn watch_reads(&mut self, rest: &Path) -> io::Result<()> {
        let Keep::Consumed { readers } = &self.keep else { return Ok(()) };
        for consumer in 0..readers.len() {
            let folder = self.store.layout.for_consumer(consumer).join(rest);
            let number = self.reads.add_reads(&folder).map_err(super::plain)?;
            self.read_folders.insert(number, (consumer, rest.to_owned()));
        }
        Ok(())
    }
}

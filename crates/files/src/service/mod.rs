//! The service of one managed directory: a thread that watches the producers' folder and publishes files for consumers.
//!
//! The folders are the service's only record. A publication has three steps: (1) link the file into the folder `new`;
//! (2) rename the link into the consumers' folder; (3) announce the file in the notice. What if the service dies? If it
//! dies before step 1, consumers see nothing, and the next service publishes the finished files that it finds. If it
//! dies between steps 1 and 2, the next service removes the link from `new`, and publishes the file in the same way. If
//! it dies between steps 2 and 3, the file is published, but not announced. A waiting consumer then finds the file
//! within 100 ms, because a consumer that waits checks the folder that often.

mod announcement;
mod awaited;
mod backlog;
mod change_log;
mod exchange;
mod fetch;
mod folders;
mod hosts;
mod messages;
mod registry;
mod serving;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Bound;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use crossdock_layout::files::Phase;
use crossdock_os::event::{self, Epoll};
use crossdock_os::fs;
use crossdock_os::inotify::{FolderEvent, FolderWatch, NameChange};
use crossdock_os::{Deadline, OsResult};

#[doc(hidden)]
pub use announcement::fuzz_entry;
pub use announcement::{Announcement, HostRole, key};
pub use exchange::{Exchange, RemoteHosts};
#[cfg(feature = "fault-points")]
pub use fetch::FETCH_FAULT_POINTS;
pub use registry::Site;

use self::awaited::AwaitedNames;
use self::change_log::ChangeLog;
use self::fetch::Origin;
use self::folders::{WatchedFolders, take_below};
use self::messages::ChangeKind;
use self::serving::OpenFile;
use crate::look::walk;
use crate::rules::{Action, Keep, Publish, is_hidden};
use crate::spill::Spill;
use crate::store::{Layout, PublishOutcome, Store};
use crate::view::MovedFiles;
use crate::writers::Writers;

/// How soon the service looks again at a file that could not be published, for example because a process had it open for
/// writing. It must look again without an event, because no event tells that the cause has passed: a forked process may
/// have closed its copy of the descriptor, or descriptors may be free again. If an event about the file comes, the
/// service looks sooner.
const AGAIN: Duration = Duration::from_millis(50);
/// The shortest time between a failed attempt to publish a file, or to watch a folder, and the next attempt.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// An empty file without a close event is not published before it is this old, because its producer may still be inside
/// the `open` that made the file.
const OPENING: Duration = Duration::from_secs(1);

/// How long a file is kept after all consumers have read it, because some programs open a file twice.
const SETTLED: Duration = Duration::from_secs(1);

/// After the producers have ended, some finished files may not be published yet, because calls fail. If this lasts longer
/// than this time, consumers are told that the producers have ended all the same.
const UNPUBLISHED: Duration = Duration::from_secs(60);

/// How often the service measures the memory of a directory whose files may move to a disk. It also measures
/// immediately after each publication.
const SPILL_LOOK: Duration = Duration::from_millis(20);

/// How long the watching thread visits folders before it lets other threads use the state. A producer can make very
/// many folders in a short time.
const ROUND: Duration = Duration::from_millis(20);
/// After the watching thread has visited folders for the time [`ROUND`], it waits for events at most this time.
/// Meanwhile other threads can use the state.
const PAUSE: Duration = Duration::from_millis(1);

const EVENTS: u64 = 1;
const STOP: u64 = 2;

/// A running service. Dropping it ends its threads; published files stay.
#[derive(Debug)]
pub struct Service {
    shared: Arc<Shared>,
    watcher: Option<JoinHandle<()>>,
    /// The thread that moves files to a disk.
    mover: Option<JoinHandle<()>>,
}

/// What the service of a directory has done so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// How many files were published. A file that replaces a published file counts too.
    pub published: u64,
    /// The total size of the published files, in bytes.
    pub bytes: u64,
    /// How many files were not published because their writer was killed.
    pub torn: u64,
    /// How many files were not published because the directory's memory was used up when they were closed.
    pub cut: u64,
    /// How many published files were dropped, as the key `keep` of the workflow file says.
    pub dropped: u64,
    /// How many published files were moved to a disk.
    pub spilled: u64,
    /// How many files were fetched from other hosts.
    pub fetched: u64,
    /// The total size of the fetched files, in bytes.
    pub bytes_fetched: u64,
    /// True if the service notices killed writers. Only a service that runs as root can do so.
    pub writers_known: bool,
    /// What went wrong, a line for each problem; at most [`TROUBLES`] lines.
    pub troubles: Vec<String>,
}

/// The largest number of lines in [`Report::troubles`].
pub const TROUBLES: usize = 20;

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    writers: Writers,
    /// A descriptor that is readable when the watcher thread must end.
    stop: OwnedFd,
    /// A descriptor that is readable when a view has reported a read.
    nudge: OwnedFd,
    /// Signalled when there may be a file to move to a disk, and when the thread that moves files must end.
    room: Condvar,
    /// Signalled when there are changes to report to other hosts.
    news: Condvar,
    /// The files for which consumers of this host wait, as the kernel last showed them.
    awaited_names: Mutex<AwaitedNames>,
}

#[derive(Debug)]
struct State {
    store: Store,
    how: Publish,
    keep: Keep,
    watch: FolderWatch,
    /// True if the last attempt to read the events of `watch` failed. That attempt may have lost events.
    is_unread: bool,
    /// Watches what consumers read; used only if files are dropped after all consumers have read them.
    reads: FolderWatch,
    /// For each watch number of a watched folder: the consumer to whom the folder belongs, and the path of the folder
    /// relative to the top folder of that consumer.
    read_folders: BTreeMap<i32, (usize, PathBuf)>,
    /// For each file: how often each consumer has closed the file after reading it.
    read: BTreeMap<PathBuf, Vec<u32>>,
    /// For each file that all consumers have read: when the last consumer had read it.
    consumed: BTreeMap<PathBuf, Instant>,
    folders: WatchedFolders,
    /// The folders that the service must still visit, each with what the service does there.
    unvisited: BTreeMap<PathBuf, Visit>,
    /// Files that a process had open for writing when the service last looked at them.
    written: BTreeSet<PathBuf>,
    /// Files whose publication failed and is tried again, with the time of the last attempt. Each file is reported one
    /// time only.
    failed: BTreeMap<PathBuf, Instant>,
    /// For each folder that could not be watched or read: the time of the last attempt, and the change by which the
    /// folder appeared.
    unentered: BTreeMap<PathBuf, (Instant, NameChange)>,
    /// Files that were not published because their writer was killed.
    torn: BTreeSet<PathBuf>,
    /// The inodes of files that were closed while the quota was used up. Only another close publishes such a file.
    cut: BTreeSet<u64>,
    /// Files of other hosts that wait until this host has room for them.
    without_room: BTreeSet<PathBuf>,
    /// Published files, oldest first; used only if a limited number of files is kept.
    order: Vec<PathBuf>,
    /// Consumers that read through a view, which reports their reads.
    by_view: BTreeSet<usize>,
    /// The disk to which files are moved; `None` if files stay in memory.
    spill: Option<Spill>,
    /// Names that the service itself has removed from `stage`; the events of these removals are ignored.
    moved: BTreeSet<PathBuf>,
    /// Files that were in their folder before the folder was watched, each with its inode. No event tells whether they
    /// were renamed into place. Used only with [`Publish::Rename`].
    found: BTreeMap<PathBuf, u64>,
    /// True if the service moves and fetches no more files, because it ends.
    is_over: bool,
    /// The number of this start of the service. If another host knows a different number, it asks for all changes from
    /// the first one.
    life: u64,
    /// The changes that other hosts must learn.
    ledger: ChangeLog,
    /// Files that other hosts are fetching, which are held open meanwhile.
    held: Vec<OpenFile>,
    /// The paths at which consumers and views of this host look for the directory's files.
    seen_at: Vec<String>,
    /// Whether the producers of this host have not started yet, run, have ended or have failed; `None` if this host has
    /// no producers.
    own: Option<Phase>,
    /// How and when the producers of this host have ended, as long as consumers are not told so. Consumers are not told
    /// while finished files cannot be published; until then `own` says that the producers run.
    ending: Option<(Phase, Instant)>,
    /// The other hosts with producers.
    origins: Vec<Origin>,
    /// Files that were fetched, each with the index of its host in `origins`.
    fetched: BTreeMap<PathBuf, usize>,
    report: Report,
}

/// What the service does in a folder.
#[derive(Clone, Copy, Debug)]
enum Visit {
    /// Watches the folder, and looks at what is in it. The field says by which change the folder has appeared.
    Enter(NameChange),
    /// Publishes every finished file in the folder.
    Look,
}

impl Service {
    /// Starts a service for the store in the folder `root`. The service reports publications in the notice at the path
    /// `notice`. Store and notice are made if they do not exist. Finished files that an earlier service did not publish
    /// are published immediately.
    ///
    /// # Errors
    /// The store cannot be made or watched; the error names the folder. Or descriptors or memory are short.
    pub fn start(root: &Path, notice: &Path, producers: &str, how: Publish, keep: Keep) -> io::Result<Self> {
        let single = if let Keep::Consumed { readers } = &keep { readers.len() } else { 0 };
        let store = Store::open(root, notice, producers, single)?;
        // The thread that answers the kernel runs before the first folder is watched.
        let writers = Writers::new()?;
        let state = State {
            store,
            how,
            keep,
            watch: FolderWatch::new()?,
            is_unread: false,
            reads: FolderWatch::new()?,
            read_folders: BTreeMap::new(),
            read: BTreeMap::new(),
            consumed: BTreeMap::new(),
            folders: WatchedFolders::default(),
            unvisited: BTreeMap::new(),
            written: BTreeSet::new(),
            failed: BTreeMap::new(),
            unentered: BTreeMap::new(),
            torn: BTreeSet::new(),
            cut: BTreeSet::new(),
            without_room: BTreeSet::new(),
            order: Vec::new(),
            by_view: BTreeSet::new(),
            spill: None,
            moved: BTreeSet::new(),
            found: BTreeMap::new(),
            is_over: false,
            life: 0,
            ledger: ChangeLog::default(),
            held: Vec::new(),
            seen_at: Vec::new(),
            own: Some(Phase::Coming),
            ending: None,
            origins: Vec::new(),
            fetched: BTreeMap::new(),
            report: Report::default(),
        };
        let (state, stop) = (Mutex::new(state), event::eventfd()?);
        let (nudge, room, news) = (event::eventfd()?, Condvar::new(), Condvar::new());
        let awaited_names = Mutex::new(AwaitedNames::of(notice)?);
        let shared = Arc::new(Shared { state, writers, stop, nudge, room, news, awaited_names });
        let mut service = Self { shared: shared.clone(), watcher: None, mover: None };
        shared.state().take_over()?;
        {
            let mut state = shared.state();
            state.enter(&shared, Path::new(""), NameChange::Made)?;
            state.visit_all(&shared);
        }
        let epoll = shared.watched()?;
        let watches = move || shared.run(&epoll);
        service.watcher = Some(std::thread::Builder::new().name("crossdock-files".into()).spawn(watches)?);
        Ok(service)
    }

    /// Tells the service that the store lies in memory with a limit of its own. A file that is closed while this memory
    /// is full is not published, because its writer may have got ENOSPC.
    pub fn limited(&self) {
        self.shared.state().store.is_limited = true;
    }

    /// From now on, moves the oldest published files to the folder `disk` whenever three quarters of `quota` bytes are
    /// used. Consumers then need a view that shows both folders. The caller passes the returned value to this view.
    ///
    /// # Errors
    /// The folder cannot be made, or the files that a killed service left in it cannot be taken over.
    pub fn spill_to(&mut self, disk: &Path, quota: u64) -> io::Result<MovedFiles> {
        let moved = MovedFiles::default();
        {
            let mut state = self.shared.state();
            let mut spill = Spill::open(&state.store.layout, disk, quota, moved.clone())?;
            state.moved.extend(spill.unstaged.drain(..));
            state.spill = Some(spill);
        }
        let shared = self.shared.clone();
        self.mover = Some(std::thread::Builder::new().name("crossdock-spill".into()).spawn(move || shared.spill())?);
        Ok(moved)
    }

    /// Tells the service that this consumer reads through a view. Returns the function that the view calls for each
    /// file that the consumer has closed.
    pub fn reads_by_view(&self, consumer: usize) -> impl Fn(&Path) + Send + Sync + 'static {
        self.shared.state().by_view.insert(consumer);
        let shared = self.shared.clone();
        move |rest| {
            shared.state().count_read(consumer, rest.to_owned());
            event::signal(&shared.nudge);
        }
    }

    /// Gives the paths of the store's folders.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.shared.state().store.layout.clone()
    }

    /// Tells consumers whether the producers of this host have started, have ended or have failed. If `phase` is
    /// [`Phase::Ended`], all finished files are published first. If this fails, for example because descriptors are
    /// short, the service tries again, and tells consumers of the end later, at the latest after a minute.
    pub fn producers(&self, phase: Phase) {
        let mut state = self.shared.state();
        // When the producers have ended, all their events are in the queue. The service carries out these events before
        // it announces the end.
        state.take_in(&self.shared);
        if !matches!(phase, Phase::Ended | Phase::Failed) {
            return state.announce(&self.shared, phase);
        }
        state.publish_rest(&self.shared, phase == Phase::Ended);
        if state.lacks_files() {
            state.announce(&self.shared, Phase::Producing);
            state.ending = Some((phase, Instant::now()));
            // The watching thread may be in a long wait for events.
            event::signal(&self.shared.nudge);
        } else {
            state.announce(&self.shared, phase);
        }
    }

    /// Reports what the service has done so far.
    #[must_use]
    pub fn report(&self) -> Report {
        let mut state = self.shared.state();
        state.take_in_troubles(&self.shared);
        state.report.clone()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        {
            let mut state = self.shared.state();
            state.is_over = true;
            // From now on, no file is published any more.
            state.announce_end(&self.shared);
        }
        self.shared.room.notify_all();
        self.shared.news.notify_all();
        let _ = self.mover.take().map(JoinHandle::join);
        event::signal(&self.shared.stop);
        let _ = self.watcher.take().map(JoinHandle::join);
        // The thread that answers the kernel ends last, because the watching thread also opens files.
        self.shared.writers.stop();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The descriptors for which the watching thread waits.
    fn watched(&self) -> OsResult<Epoll> {
        let state = self.state();
        let epoll = Epoll::new()?;
        epoll.add(&self.stop, STOP, false)?;
        epoll.add(&state.watch, EVENTS, false)?;
        epoll.add(&state.reads, EVENTS, false)?;
        epoll.add(&self.nudge, EVENTS, false)?;
        Ok(epoll)
    }

    fn run(&self, epoll: &Epoll) {
        let mut last = Instant::now();
        loop {
            let (is_idle, is_behind) = {
                let state = self.state();
                let is_idle = state.written.is_empty()
                    && state.consumed.is_empty()
                    && state.unentered.is_empty()
                    && state.ending.is_none();
                (is_idle, !state.unvisited.is_empty())
            };
            let patience = match (is_idle, is_behind) {
                (_, true) => PAUSE,
                (false, false) => AGAIN,
                (true, false) => Duration::from_secs(3600),
            };
            let ready = match epoll.wait(Deadline::after(patience)) {
                Ok(ready) => ready,
                Err(error) => {
                    let mut state = self.state();
                    state.trouble(format!("no file is published any more: {error}"));
                    return state.announce_end(self);
                }
            };
            if ready.iter().any(|r| r.token == STOP) {
                return;
            }
            event::clear(&self.nudge);
            let mut state = self.state();
            state.take_in(self);
            let are_reads_known = state.take_in_reads();
            state.drop_consumed();
            state.enter_again(AFTER_FAILURE);
            state.visit(self, Some(Deadline::after(ROUND)));
            // Events about other files, however many, must not keep these files from being looked at again. If folders
            // are still to be visited, they come first, but not for ever.
            if last.elapsed() >= if is_behind { AFTER_FAILURE } else { AGAIN } {
                last = Instant::now();
                let may_try =
                    |rest: &&PathBuf| state.failed.get(*rest).is_none_or(|last| last.elapsed() > AFTER_FAILURE);
                let again: Vec<PathBuf> = state.written.iter().filter(may_try).cloned().collect();
                again.iter().for_each(|rest| state.publish_found(self, rest));
            }
            state.end_if_complete(self);
            let is_unread = state.is_unread || !are_reads_known;
            drop(state);
            if is_unread {
                // The events are still in the kernel's queue, so the next wait for events would end at once.
                std::thread::sleep(AGAIN);
            }
        }
    }

    /// Moves files to the disk until the service ends. The service publishes other files while bytes are copied.
    fn spill(&self) {
        let mut state = self.state();
        while !state.is_over {
            let used = state.in_memory();
            let State { spill, store, .. } = &mut *state;
            let Some(copy) = spill.as_mut().and_then(|spill| spill.next(&store.layout, used)) else {
                // No event tells how much memory a file takes while it is being written, so the loop measures from time
                // to time.
                let waited = self.room.wait_timeout(state, SPILL_LOOK);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            };
            drop(state);
            let made = copy.make();
            state = self.state();
            match made.and_then(|()| state.take_to_disk(&copy)) {
                Ok(()) => {}
                Err(error) => {
                    copy.drop_file();
                    if state.store.layout.published.join(&copy.rest).exists() {
                        state.trouble(format!("{} cannot be moved to the disk: {error}", copy.rest.display()));
                        state.spill.iter_mut().for_each(|spill| spill.order.push_back(copy.rest.clone()));
                        let waited = self.room.wait_timeout(state, Duration::from_secs(1));
                        state = waited.unwrap_or_else(PoisonError::into_inner).0;
                    }
                }
            }
        }
    }
}

/// Tells whether the file was made or changed less than [`OPENING`] ago. If the time of the change lies in the future,
/// the answer is `false`.
fn is_young(meta: &fs::Metadata) -> bool {
    let changed = u64::try_from(meta.ctime()).unwrap_or(0);
    let changed = SystemTime::UNIX_EPOCH + Duration::from_secs(changed);
    // `ctime` counts whole seconds here, so `age` is up to one second too large.
    SystemTime::now().duration_since(changed).is_ok_and(|age| age < OPENING + Duration::from_secs(1))
}

impl State {
    /// Handles all events of the watched folders that the kernel has queued.
    fn take_in(&mut self, shared: &Shared) {
        if self.take_in_events(shared) {
            // The service removes names of `stage` only while it holds this lock. So this second read returns the
            // events of all such removals. A name that is still in `moved` afterwards belongs to an event that was
            // lost.
            self.take_in_events(shared);
            if !self.is_unread {
                self.moved.clear();
                self.look_again(shared);
            }
        }
    }

    /// Handles the events that the kernel has queued. Tells whether events were lost.
    fn take_in_events(&mut self, shared: &Shared) -> bool {
        let events = match self.watch.read() {
            Ok(events) => events,
            Err(error) => {
                self.trouble_once(format!("changes of files cannot be noticed yet: {error}"));
                self.is_unread = true;
                return false;
            }
        };
        let mut are_lost = std::mem::take(&mut self.is_unread);
        let by = Deadline::after(ROUND);
        let last_gone = self.last_gone(&events);
        for (at, event) in events.into_iter().enumerate() {
            if event.change == NameChange::Overflow {
                are_lost = true;
                continue;
            }
            let Some(folder) = self.folders.path(event.folder) else { continue };
            let rest = folder.join(&event.name);
            if is_hidden(&rest) {
                continue;
            }
            if event.change == NameChange::Removed && self.moved.remove(&rest) {
                continue;
            }
            if event.change == NameChange::Made {
                // The file was made when the service already watched its folder. So if the file is renamed, an event
                // will tell the service.
                self.found.remove(&rest);
            }
            // A rename finishes only the file or folder that was renamed. If a later event says that this name, or the
            // name of a folder above it, has disappeared, a new file or folder may have the name now. The rename has
            // not finished this new file, so the rename must not count. The rename of a marker counts even if the
            // marker has disappeared since, because the file to which the marker belongs is finished all the same.
            let is_outdated = event.change == NameChange::Arrived
                && (event.is_folder || self.how == Publish::Rename)
                && rest.ancestors().any(|name| last_gone.get(name).is_some_and(|gone| *gone > at));
            let change = if is_outdated { NameChange::Made } else { event.change };
            self.act(shared, change, &rest, event.is_folder);
            // No event tells what happens in a folder before it is watched, so the folders in a new folder are watched
            // as soon as possible. Folders elsewhere are not visited here, because an event that is still to be handled
            // may be about one of them.
            self.visit_below(shared, &rest, Some(by));
        }
        are_lost
    }

    /// For each name that has disappeared: the index of the last event in `events` that says so.
    fn last_gone(&self, events: &[FolderEvent]) -> BTreeMap<PathBuf, usize> {
        let is_gone = |event: &FolderEvent| matches!(event.change, NameChange::Removed | NameChange::Left);
        let gone = events.iter().enumerate().filter(|(_, event)| is_gone(event));
        gone.filter_map(|(at, event)| Some((self.folders.path(event.folder)?.join(&event.name), at))).collect()
    }

    /// Compares the folders after events were lost: removes from the consumers' folders the names that producers have
    /// removed, watches all folders, and publishes what is finished.
    fn look_again(&mut self, shared: &Shared) {
        let mut seen = Vec::new();
        let layout = self.store.layout.clone();
        if let Err(error) = walk(&layout.published, Path::new(""), &mut |rest, _| seen.push(rest)) {
            self.trouble(format!("events were lost, and the published files cannot be read: {error}"));
        }
        for rest in seen {
            let is_elsewhere = self.fetched.contains_key(&rest) || layout.spilled.join(&rest).exists();
            if !is_elsewhere && matches!(self.staged_meta(&rest), Ok(None)) {
                self.withdraw(&rest);
            }
        }
        self.folders.clear();
        // These lists are emptied. The visit of the top folder, which follows, finds every folder and file again that
        // still exists.
        self.unentered.clear();
        self.found.clear();
        self.unvisited = BTreeMap::from([(PathBuf::new(), Visit::Enter(NameChange::Made))]);
        if self.how == Publish::Rename {
            self.trouble_once(
                "the kernel has lost events: files that were renamed into place meanwhile are published only when the \
                 producers have ended"
                    .to_owned(),
            );
        }
        shared.news.notify_all();
    }

    /// Carries out the action that the rules give for a change of the name `rest` in the producers' folder.
    fn act(&mut self, shared: &Shared, change: NameChange, rest: &Path, is_folder: bool) {
        match self.how.action(change, rest.file_name().unwrap_or_default(), is_folder) {
            Action::Publish => self.publish(shared, rest),
            Action::PublishFound => self.publish_found(shared, rest),
            Action::PublishInstead(name) => self.publish(shared, &rest.with_file_name(name)),
            Action::Withdraw => {
                self.withdraw(rest);
                shared.news.notify_all();
            }
            // The service visits this folder now. It visits the folders below it later, in rounds of limited time.
            Action::Enter => self.visit_one(shared, rest, Visit::Enter(change)),
            Action::Nothing => {}
        }
    }

    /// If a limited number of files is kept, lists the files that an earlier service has published. The list is sorted
    /// by the files' status time, because a publication changes this time.
    fn take_over(&mut self) -> io::Result<()> {
        if matches!(self.keep, Keep::Newest(_)) {
            let mut found = Vec::new();
            let mut see = |rest, meta: fs::Metadata| found.push((meta.ctime(), meta.ctime_nsec(), rest));
            walk(&self.store.layout.published, Path::new(""), &mut see)?;
            found.sort();
            self.order = found.into_iter().map(|(.., rest)| rest).collect();
        }
        Ok(())
    }

    /// Visits folders until none is left, or until the time `by`. A visit may find more folders to visit.
    fn visit(&mut self, shared: &Shared, by: Option<Deadline>) {
        self.visit_below(shared, Path::new(""), by);
    }

    /// Visits `folder` and the folders below it, as far as they are noted for a visit.
    fn visit_below(&mut self, shared: &Shared, folder: &Path, by: Option<Deadline>) {
        let first = |state: &Self| {
            let mut from = state.unvisited.range::<Path, _>((Bound::Included(folder), Bound::Unbounded));
            from.next().filter(|(rest, _)| rest.starts_with(folder)).map(|(rest, what)| (rest.clone(), *what))
        };
        while let Some((rest, what)) = first(self).filter(|_| !by.is_some_and(Deadline::passed)) {
            self.unvisited.remove(&rest);
            self.visit_one(shared, &rest, what);
        }
    }

    /// Visits folders until none is left.
    fn visit_all(&mut self, shared: &Shared) {
        self.visit(shared, None);
    }

    fn visit_one(&mut self, shared: &Shared, rest: &Path, what: Visit) {
        let (visited, came) = match what {
            Visit::Enter(came) => {
                // This visit replaces the noted visits of this folder. If a noted visit followed later, it would find
                // files that are made from now on, and treat them as files that were in the folder before it was
                // watched.
                self.unvisited.remove(rest);
                self.unentered.remove(rest);
                (self.enter(shared, rest, came), came)
            }
            Visit::Look => (self.look_at_files(shared, rest), NameChange::Made),
        };
        if let Err(error) = visited {
            self.enter_later(rest, came, &error);
        }
    }

    /// Watches a folder of `stage`. Then looks at the files in the folder, because they may have been made before the
    /// watch, and notes the folders in it for a visit. If the folder appeared by a rename, all names below it have
    /// appeared by this rename.
    fn enter(&mut self, shared: &Shared, rest: &Path, came: NameChange) -> io::Result<()> {
        let Some(folder) = self.store.layout.staged_folder(rest)? else { return Ok(()) };
        // This comes before the other watch. If it fails, no event publishes a file whose writer is not known.
        shared.writers.watch(&folder)?;
        let number = match self.watch.add(&folder) {
            Ok(number) => number,
            // The folder was removed before it could be watched.
            Err(error) if error.is_absent() => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        self.folders.insert(number, rest);
        self.store.show_folder(rest)?;
        if !rest.as_os_str().is_empty() {
            self.ledger.note(rest, ChangeKind::Folder);
            shared.news.notify_all();
        }
        self.watch_reads(rest)?;
        if self.how.takes_found(false) {
            return self.look_at_files(shared, rest);
        }
        let entries = match fs::read_dir(&*folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            // If the list were short, files would never be published.
            entries => entries?.collect::<io::Result<Vec<_>>>()?,
        };
        for entry in entries {
            let below = rest.join(entry.file_name());
            match entry.file_type() {
                _ if is_hidden(&below) => {}
                Ok(kind) if kind.is_dir() => self.visit_later(below, Visit::Enter(came)),
                Ok(kind) if kind.is_file() && came == NameChange::Arrived => self.act(shared, came, &below, false),
                Ok(kind) if kind.is_file() => self.take_unsure(shared, &below, entry.ino())?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Handles a file that was in its folder before the folder was watched, so that no event told of its close or
    /// rename. If the file is a marker, and no process writes the marker, the file that it marks is published. With
    /// [`Publish::Rename`], the service cannot tell a file that was renamed into place from a file that is being
    /// written. So it publishes such a file only when the producers have ended.
    fn take_unsure(&mut self, shared: &Shared, rest: &Path, inode: u64) -> io::Result<()> {
        let published = self.store.layout.published.clone();
        let is_shown = |rest: &Path, inode| {
            fs::symlink_metadata(published.join(rest)).is_ok_and(|shown: fs::Metadata| shown.ino() == inode)
        };
        if self.how == Publish::Rename {
            if !is_shown(rest, inode) {
                self.found.insert(rest.to_owned(), inode);
            }
            // The service may be able to watch this folder only after the producers have ended. Then no producer writes
            // the file any more, so the file is published now.
            if self.own == Some(Phase::Ended) {
                self.publish_unsure(shared);
            }
            return Ok(());
        }
        let name = rest.file_name().unwrap_or_default();
        let Action::PublishInstead(finished) = self.how.action(NameChange::Closed, name, false) else { return Ok(()) };
        let finished = rest.with_file_name(finished);
        let (Some(marker), Some(file)) = (self.staged_meta(rest)?, self.staged_meta(&finished)?) else { return Ok(()) };
        if is_shown(&finished, file.ino()) || self.cut.contains(&file.ino()) {
            return Ok(());
        }
        // A marker that is older than the file belongs to an earlier file of this name, and is ignored. When a producer
        // closes the file's own marker, the service gets an event. A program can set `mtime` to any time, but not
        // `ctime`. So the `ctime` of the marker is compared, and the `mtime` of the file counts only if it is earlier
        // than the `ctime` of the file.
        let changed = (file.mtime(), file.mtime_nsec()).min((file.ctime(), file.ctime_nsec()));
        let is_marked = changed <= (marker.ctime(), marker.ctime_nsec());
        // An error of `is_written` is ignored here, because `publish` then fails for the same reason, and reports the
        // error.
        if is_marked && !self.store.is_written(rest).unwrap_or(false) {
            self.publish(shared, &finished);
        }
        Ok(())
    }

    /// Publishes the files in `found`. These files may have been renamed into place before their folder was watched;
    /// the service cannot know whether they were.
    fn publish_unsure(&mut self, shared: &Shared) {
        for (rest, inode) in std::mem::take(&mut self.found) {
            let is_other = matches!(self.staged_meta(&rest), Ok(Some(meta)) if meta.ino() != inode);
            if !is_other && !self.cut.contains(&inode) {
                self.publish(shared, &rest);
            }
        }
    }

    /// Notes a folder that cannot be watched or read now, for example because descriptors are short.
    fn enter_later(&mut self, rest: &Path, came: NameChange, error: &io::Error) {
        self.unentered.insert(rest.to_owned(), (Instant::now(), came));
        self.trouble_once(format!("{} cannot be watched yet: {error}", rest.display()));
    }

    /// Notes for another visit those folders that could not be watched and whose last attempt was at least `pause` ago.
    fn enter_again(&mut self, pause: Duration) {
        let due = self.unentered.iter().filter(|(_, (last, _))| last.elapsed() >= pause);
        let due: Vec<_> = due.map(|(rest, (_, came))| (rest.clone(), Visit::Enter(*came))).collect();
        for (rest, what) in due {
            self.unentered.remove(&rest);
            self.visit_later(rest, what);
        }
    }

    /// Notes that the service must visit a folder. If a note already says that the folder was renamed, that note stays:
    /// the rename has finished the files in the folder, so the visit must treat them as finished.
    fn visit_later(&mut self, rest: PathBuf, what: Visit) {
        let noted = self.unvisited.entry(rest).or_insert(what);
        if !matches!(noted, Visit::Enter(NameChange::Arrived)) {
            *noted = what;
        }
    }

    /// Publishes every finished file of a folder, and notes the folders in it for a visit.
    fn look_at_files(&mut self, shared: &Shared, rest: &Path) -> io::Result<()> {
        let Some(folder) = self.store.layout.staged_folder(rest)? else { return Ok(()) };
        let entries: Vec<_> = match fs::read_dir(&*folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            // If the list were short, files would never be published.
            entries => entries?.collect::<io::Result<_>>()?,
        };
        for entry in entries {
            let below = rest.join(entry.file_name());
            if is_hidden(&below) {
                continue;
            }
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => {
                    let what = if self.folders.has(&below) { Visit::Look } else { Visit::Enter(NameChange::Made) };
                    self.visit_later(below, what);
                }
                Ok(kind) if kind.is_file() && !self.cut.contains(&entry.ino()) => self.publish_found(shared, &below),
                _ => {}
            }
        }
        Ok(())
    }

    /// Publishes a file that was found without a close or rename event.
    ///
    /// For a moment after a producer's `open` has made the name, the kernel does not count the producer as a writer. In
    /// this moment a lease would be granted, and consumers would get the file empty. Only an empty file with one name
    /// can be in this state. The service does not publish such a file now. The producer's close will cause an event. If
    /// the file was closed before its folder was watched, no event comes, and the service publishes the file when it is
    /// old enough.
    fn publish_found(&mut self, shared: &Shared, rest: &Path) {
        if self
            .staged_meta(rest)
            .ok()
            .flatten()
            .is_some_and(|meta| meta.len() == 0 && meta.nlink() == 1 && is_young(&meta))
        {
            self.written.insert(rest.to_owned());
        } else {
            self.publish(shared, rest);
        }
    }

    /// Gives the metadata of a name in the producers' folder, without following a link.
    fn staged_meta(&self, rest: &Path) -> io::Result<Option<fs::Metadata>> {
        let Some(place) = self.store.layout.staged(rest)? else { return Ok(None) };
        match fs::symlink_metadata(&*place) {
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
            meta => meta.map(Some),
        }
    }

    /// Publishes a file if it is finished. Otherwise the service looks at it again later.
    fn publish(&mut self, shared: &Shared, rest: &Path) {
        let meta = match self.staged_meta(rest) {
            Ok(Some(meta)) => meta,
            Ok(None) => {
                self.written.remove(rest);
                self.failed.remove(rest);
                return;
            }
            Err(error) => return self.publish_later(rest, &error),
        };
        let was_written = self.written.contains(rest);
        let outdated = self.outdated(rest);
        let mut is_torn = || shared.writers.is_torn(meta.ino(), meta.created().ok());
        let mut before = |store: &Store| outdated.iter().for_each(|old| store.drop_file(old));
        let tried = self.store.publish(rest, was_written, &mut is_torn, &mut before);
        if tried.is_ok() {
            self.failed.remove(rest);
        }
        match tried {
            Ok(PublishOutcome::Done) => {
                self.written.remove(rest);
                self.torn.remove(rest);
                self.report.published += 1;
                self.report.bytes += meta.len();
                self.cut.remove(&meta.ino());
                self.fetched.remove(rest);
                self.note_file(rest);
                self.has_shown(shared, rest);
            }
            Ok(PublishOutcome::Full) => {
                self.written.remove(rest);
                self.cut.insert(meta.ino());
                if self.torn.insert(rest.to_owned()) {
                    self.report.cut += 1;
                    self.store.note("cut", rest);
                    self.trouble(format!(
                        "{} was not published: the directory's quota was used up when it was closed, so it may lack its end",
                        rest.display()
                    ));
                }
            }
            Ok(PublishOutcome::Written) => drop(self.written.insert(rest.to_owned())),
            Ok(PublishOutcome::Torn) => {
                self.written.remove(rest);
                if self.torn.insert(rest.to_owned()) {
                    self.report.torn += 1;
                    self.store.tell_torn();
                    self.store.note("torn", rest);
                    self.trouble(format!("{} was not published: its writer was killed", rest.display()));
                }
            }
            Ok(PublishOutcome::Already | PublishOutcome::Nothing) => drop(self.written.remove(rest)),
            Err(error) => self.publish_later(rest, &error),
        }
    }

    /// Notes a file that cannot be published now. The cause may pass, for example a full disk or a lack of descriptors, so
    /// the service tries again.
    fn publish_later(&mut self, rest: &Path, error: &io::Error) {
        self.written.insert(rest.to_owned());
        if self.failed.insert(rest.to_owned(), Instant::now()).is_none() {
            self.trouble_once(format!("{} cannot be published yet: {error}", rest.display()));
        }
    }

    /// Publishes all finished files that are not published yet, because the producers have ended. `is_well` is false if
    /// they have failed.
    fn publish_rest(&mut self, shared: &Shared, is_well: bool) {
        // If a folder could not be watched so far, the service tries again now, so that the files in the folder are
        // published before the end.
        self.enter_again(Duration::ZERO);
        self.visit_all(shared);
        if self.how.takes_found(is_well) {
            self.unvisited.insert(PathBuf::new(), Visit::Look);
            self.visit_all(shared);
        }
        if is_well {
            self.publish_unsure(shared);
        }
        let left: Vec<PathBuf> = std::mem::take(&mut self.written).into_iter().collect();
        left.iter().for_each(|rest| self.publish(shared, rest));
    }

    /// Tells whether a file could not be published, a folder could not be watched, or events could not be read, because
    /// a call failed.
    fn lacks_files(&self) -> bool {
        !self.failed.is_empty() || !self.unentered.is_empty() || self.is_unread
    }

    /// Tells consumers that the producers have ended, if all finished files are published now, or if the files that are
    /// not published have had their time.
    fn end_if_complete(&mut self, shared: &Shared) {
        let Some((phase, since)) = self.ending else { return };
        let is_late = since.elapsed() >= UNPUBLISHED;
        if !is_late && !self.lacks_files() {
            // A folder that was visited only now may have finished files.
            self.publish_rest(shared, phase == Phase::Ended);
        }
        if is_late || !self.lacks_files() {
            self.announce_end(shared);
        }
    }

    /// Tells consumers how the producers have ended, if they are not told yet.
    fn announce_end(&mut self, shared: &Shared) {
        if let Some((phase, _)) = self.ending {
            self.announce(shared, phase);
        }
    }

    /// Tells consumers and other hosts whether the producers of this host have started, have ended or have failed.
    fn announce(&mut self, shared: &Shared, phase: Phase) {
        (self.own, self.ending) = (Some(phase), None);
        self.tell_phase();
        shared.news.notify_all();
    }

    /// Does what follows when consumers see a new file: forgets the reads of an older file of this name, removes the
    /// older file's copy on the disk, announces the new file, drops old files and wakes the other threads.
    fn has_shown(&mut self, shared: &Shared, rest: &Path) {
        self.read.remove(rest);
        self.consumed.remove(rest);
        let State { spill, store, .. } = self;
        if let Some(Err(error)) = spill.as_mut().map(|spill| spill.published(&store.layout, rest)) {
            self.trouble(format!("{}: an older file stays on the disk: {error}", rest.display()));
        }
        self.drop_old(rest);
        self.store.tell_published(rest);
        shared.room.notify_all();
        shared.news.notify_all();
    }

    fn withdraw(&mut self, rest: &Path) {
        self.written.remove(rest);
        self.failed.remove(rest);
        self.folders.remove(rest);
        take_below(&mut self.found, rest);
        // `unvisited` and `unentered` may contain notes that the service must visit the removed folder, or folders in
        // it. These notes are removed, because a new folder may get this name later. Such a note could then wrongly say
        // that a rename has finished the files of the new folder.
        take_below(&mut self.unvisited, rest);
        take_below(&mut self.unentered, rest);
        self.ledger.gone(rest);
        self.take_from_consumers(rest);
    }

    /// Removes a name and all names below it from the folders that consumers see. The rule `keep` no longer counts
    /// these files.
    fn take_from_consumers(&mut self, rest: &Path) {
        self.order.retain(|name| !name.starts_with(rest));
        take_below(&mut self.fetched, rest);
        take_below(&mut self.read, rest);
        take_below(&mut self.consumed, rest);
        if let Err(error) = self.store.withdraw(rest) {
            self.trouble(format!("{} cannot be taken from consumers: {error}", rest.display()));
        }
    }

    /// Lists the published files that are dropped when `newest` is published, the oldest first. The caller removes them
    /// before consumers see `newest`, so that consumers never see more files than the rule `keep` permits.
    fn outdated(&self, newest: &Path) -> Vec<PathBuf> {
        let Keep::Newest(keep) = self.keep else { return Vec::new() };
        let others: Vec<&PathBuf> = self.order.iter().filter(|rest| *rest != newest).collect();
        let count = (others.len() + 1).saturating_sub(keep.max(1));
        others.into_iter().take(count).cloned().collect()
    }

    /// If only a limited number of files is kept, drops the oldest files from the folders of producers and consumers. A
    /// consumer that has such a file open keeps it.
    fn drop_old(&mut self, newest: &Path) {
        if !matches!(self.keep, Keep::Newest(_)) {
            return;
        }
        let outdated = self.outdated(newest);
        self.order.retain(|rest| rest != newest && !outdated.contains(rest));
        self.order.push(newest.to_owned());
        for old in outdated {
            if let Err(error) = self.drop_file(&old) {
                self.trouble_once(format!("{} cannot be dropped yet: {error}", old.display()));
                // The next publication tries again to drop this file, because this file is then the oldest one.
                self.order.insert(0, old);
            }
        }
    }

    fn drop_file(&mut self, rest: &Path) -> io::Result<()> {
        self.store.remove_staged(rest)?;
        // The other hosts keep their copies of the file as long as the rule `keep` on those hosts says.
        self.ledger.dropped(rest);
        self.withdraw(rest);
        self.report.dropped += 1;
        self.store.note("dropped", rest);
        Ok(())
    }

    /// Measures how many bytes of memory the directory takes.
    fn in_memory(&self) -> u64 {
        if self.store.is_limited {
            return self.store.used();
        }
        let Some(spill) = &self.spill else { return 0 };
        let size = |rest: &PathBuf| fs::metadata(self.store.layout.published.join(rest)).map_or(0, |meta| meta.len());
        spill.order.iter().map(size).sum()
    }

    /// Gives a copied file its name on the disk.
    fn take_to_disk(&mut self, copy: &crate::spill::Copy) -> io::Result<()> {
        let State { spill, store, moved, .. } = &mut *self;
        let Some(spill) = spill else { return Ok(()) };
        let taken = spill.take(&store.layout, copy);
        // The move may have removed the producers' name although it failed afterwards. Without this entry, the event of
        // the removal would look like a removal by a producer, and the file would be taken from consumers. If the move
        // has not removed the name, an entry would hide the next removal by a producer.
        moved.extend(spill.unstaged.drain(..));
        self.report.spilled += u64::from(taken?);
        Ok(())
    }

    /// Counts that a consumer has closed a file after reading it.
    fn count_read(&mut self, consumer: usize, rest: PathBuf) {
        let Keep::Consumed { readers } = &self.keep else { return };
        // Each other host counts as one consumer that reads each file of this host one time.
        let hosts = if self.fetched.contains_key(&rest) { 0 } else { self.ledger.readers() };
        let wanted: Vec<u32> = readers.iter().copied().chain(std::iter::repeat_n(1, hosts)).collect();
        let counts = self.read.entry(rest.clone()).or_default();
        // The other hosts become known only when the exchange with them starts, so `counts` may be shorter than
        // `wanted`.
        counts.resize(wanted.len(), 0);
        let Some(count) = counts.get_mut(consumer) else { return };
        *count += 1;
        if counts.iter().zip(&wanted).all(|(read, wanted)| read >= wanted) {
            self.consumed.insert(rest, Instant::now());
        }
    }

    /// Counts the reads of consumers that the kernel has reported in its queue of events. Tells whether these events
    /// could be read.
    fn take_in_reads(&mut self) -> bool {
        let lost = "the kernel has lost reads: some files that were read stay until the run ends";
        let Ok(events) = self.reads.read() else {
            self.trouble_once(lost.to_owned());
            return false;
        };
        for event in events {
            if event.change == NameChange::Overflow {
                self.trouble_once(lost.to_owned());
                continue;
            }
            let Some((consumer, folder)) = self.read_folders.get(&event.folder) else { continue };
            if event.change != NameChange::Read || event.is_folder || self.by_view.contains(consumer) {
                continue;
            }
            self.count_read(*consumer, folder.join(&event.name));
        }
        true
    }

    /// If the rule `keep` says so, drops the files that all consumers have read more than [`SETTLED`] ago and that no
    /// process uses now.
    fn drop_consumed(&mut self) {
        let due: Vec<PathBuf> =
            self.consumed.iter().filter(|(_, since)| since.elapsed() > SETTLED).map(|(rest, _)| rest.clone()).collect();
        for rest in due {
            let dropped = match self.store.is_unused(&rest) {
                Ok(true) => self.drop_file(&rest).map(|()| true),
                // A process has the file mapped or has opened it again, or the check failed.
                unused => unused,
            };
            if let Err(error) = &dropped {
                // The cause may pass, for example a lack of descriptors, so the service tries again later.
                self.trouble_once(format!("{} cannot be dropped yet: {error}", rest.display()));
            }
            if !matches!(dropped, Ok(true)) {
                self.consumed.insert(rest, Instant::now());
            }
        }
    }

    /// Notes for `crossdock ls --files` that a file of another host waits until this host has room for it.
    fn waits_for_room(&mut self, rest: &Path, bytes: u64) {
        if self.without_room.insert(rest.to_owned()) {
            self.store.note(&format!("room {bytes}"), rest);
        }
    }

    /// Notes that this file, and all files below this name, no longer wait until this host has room for them.
    fn waits_no_longer(&mut self, rest: &Path) {
        let names: Vec<PathBuf> = self.without_room.iter().filter(|name| name.starts_with(rest)).cloned().collect();
        for name in names {
            self.without_room.remove(&name);
            self.store.note("done", &name);
        }
    }

    /// Takes over what the thread that answers the kernel has to report.
    fn take_in_troubles(&mut self, shared: &Shared) {
        self.report.writers_known = shared.writers.are_known();
        shared.writers.take_troubles().into_iter().for_each(|line| self.trouble_once(line));
    }

    fn trouble(&mut self, line: String) {
        if self.report.troubles.len() < TROUBLES {
            self.report.troubles.push(shown(&line));
        }
    }

    /// Reports a problem that may come again and again, for example with each attempt. A line that was reported already
    /// is not reported again.
    fn trouble_once(&mut self, line: String) {
        if !self.report.troubles.contains(&shown(&line)) {
            self.trouble(line);
        }
    }
}

/// Replaces the control characters of a line, which come from names of files, so that no name can control the terminal
/// that shows the line.
fn shown(line: &str) -> String {
    line.replace(char::is_control, "·")
}

#[cfg(test)]
mod tests {
    use crossdock_os::testing::{until, until_within};

    use super::*;
    use crate::rules::Keep;

    /// Lets the kernel's queue of events overflow while the service is held up, and then changes files: no event tells
    /// the service of these changes.
    fn change_unseen(service: &Service, change: impl FnOnce(&Path)) {
        let state = service.shared.state();
        let stage = state.store.layout.stage.clone();
        let most = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
        fs::write(stage.join(".a"), "x").unwrap();
        for _ in 0..=most.trim().parse::<usize>().unwrap() / 4 {
            fs::rename(stage.join(".a"), stage.join(".b")).unwrap();
            fs::rename(stage.join(".b"), stage.join(".a")).unwrap();
        }
        change(&stage);
        drop(state);
    }

    /// Changes files while the service is held up. Afterwards the service learns of all these changes together.
    fn change_held_up(service: &Service, change: impl FnOnce(&Path)) {
        let state = service.shared.state();
        change(&state.store.layout.stage);
        drop(state);
    }

    fn is_seen(service: &Service, name: &str) -> bool {
        is_seen_in(&service.layout(), name)
    }

    fn is_seen_in(layout: &Layout, name: &str) -> bool {
        layout.published.join(name).exists()
    }

    /// The first attempt to publish a file has failed, and no event will tell of the file again. Events about other
    /// files come without a pause.
    #[test]
    fn a_file_that_could_not_be_published_is_tried_again_although_other_events_come_all_the_time() {
        let root = PathBuf::from(format!("/dev/shm/crossdock-steady-{}", std::process::id()));
        let notice = root.with_extension("notice");
        let service = Service::start(&root, &notice, "simulate", Publish::Close, Keep::All).unwrap();
        let mut state = service.shared.state();
        fs::write(state.store.layout.stage.join("f"), "x").unwrap();
        until("the file's events", || state.watch.read().unwrap().iter().any(|e| e.change == NameChange::Closed));
        state.publish_later(Path::new("f"), &io::ErrorKind::OutOfMemory.into());
        drop(state);
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    event::signal(&service.shared.nudge);
                    std::thread::sleep(Duration::from_millis(5));
                }
            });
            let began = Instant::now();
            while !is_seen(&service, "f") && began.elapsed() < Duration::from_secs(20) {
                std::thread::sleep(Duration::from_millis(5));
            }
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        assert!(is_seen(&service, "f"), "{:?}", service.report());
        drop(service);
        fs::remove_dir_all(&root).unwrap();
        fs::remove_file(&notice).unwrap();
    }

    #[test]
    fn files_whose_events_were_lost_are_published_and_removed_ones_go() {
        for how in [Publish::Close, Publish::Marker(".done".into())] {
            let root = PathBuf::from(format!("/dev/shm/crossdock-overflow-{}", std::process::id()));
            let notice = root.with_extension("notice");
            let service = Service::start(&root, &notice, "simulate", how.clone(), Keep::All).unwrap();
            let stage = service.layout().stage;
            let make = |name: &str| {
                fs::write(stage.join(name), "x").unwrap();
                fs::write(stage.join(format!("{name}.done")), "").unwrap();
            };
            make("old");
            until("the first file", || is_seen(&service, "old"));
            change_unseen(&service, |stage| {
                fs::remove_file(stage.join("old")).unwrap();
                fs::create_dir(stage.join("d")).unwrap();
                make("new");
                make("d/new");
            });
            until("the new files", || is_seen(&service, "new") && is_seen(&service, "d/new"));
            until("the removed file to go", || !is_seen(&service, "old"));
            make("d/later");
            until("a file in the new folder", || is_seen(&service, "d/later"));
            drop(service);
            fs::remove_dir_all(&root).unwrap();
            fs::remove_file(&notice).unwrap();
        }
    }

    #[cfg(feature = "faults")]
    #[test]
    fn the_end_is_not_announced_before_a_finished_file_is_published_although_calls_failed() {
        use crossdock_os::faults::{FaultPlan, set_thread_plan, take_thread_plan};
        let root = PathBuf::from(format!("/dev/shm/crossdock-end-fails-{}", std::process::id()));
        let notice = root.with_extension("notice");
        let mut service = Service::start(&root, &notice, "simulate", Publish::Close, Keep::All).unwrap();
        let stage = service.layout().stage;
        fs::create_dir(stage.join("d")).unwrap();
        until("the folder", || is_seen(&service, "d"));
        // Only this thread publishes files, because a plan of failures belongs to a thread.
        event::signal(&service.shared.stop);
        service.watcher.take().unwrap().join().unwrap();
        let (mut late, mut in_time) = (0, 0);
        for seed in 0..1000 {
            let name = format!("d/{seed}");
            fs::write(stage.join(&name), "x").unwrap();
            // The service tries several times to publish the file, and each attempt may fail.
            let plan = FaultPlan::default();
            plan.fail_some(seed, 8);
            set_thread_plan(plan);
            service.producers(Phase::Ended);
            take_thread_plan();
            let is_ending = service.shared.state().ending.is_some();
            assert!(is_ending || is_seen(&service, &name), "{seed}: the end was announced too early");
            (late, in_time) = (late + u32::from(is_ending), in_time + u32::from(!is_ending));
            service.producers(Phase::Ended);
            assert!(service.shared.state().ending.is_none(), "{seed}: {:?}", service.report());
            assert!(is_seen(&service, &name), "{seed}: {:?}", service.report());
            fs::remove_file(stage.join(&name)).unwrap();
        }
        assert!(late > 10 && in_time > 10, "{late} {in_time}");
        drop(service);
        fs::remove_dir_all(&root).unwrap();
        fs::remove_file(&notice).unwrap();
    }

    #[cfg(feature = "faults")]
    #[test]
    fn events_that_cannot_be_read_cost_no_cpu_time_and_no_file() {
        use crossdock_os::faults::{FaultPlan, set_thread_plan, take_thread_plan};
        let root = PathBuf::from(format!("/dev/shm/crossdock-unread-{}", std::process::id()));
        let notice = root.with_extension("notice");
        let keep = Keep::Consumed { readers: vec![1] };
        let mut service = Service::start(&root, &notice, "simulate", Publish::Rename, keep).unwrap();
        let stage = service.layout().stage;
        let make = |name: &str| {
            fs::write(stage.join(".new"), "x").unwrap();
            fs::rename(stage.join(".new"), stage.join(name)).unwrap();
        };
        make("old");
        until("the first file", || is_seen(&service, "old"));
        let is_ending = |service: &Service| service.shared.state().ending.is_some();
        // This thread watches instead of the service's own one, because a plan of failures belongs to a thread.
        event::signal(&service.shared.stop);
        service.watcher.take().unwrap().join().unwrap();
        event::clear(&service.shared.stop);
        let epoll = service.shared.watched().unwrap();
        make("new");
        fs::read_to_string(root.join("for.0/old")).unwrap();
        let none_can_be_read = || {
            let plan = FaultPlan::default();
            plan.fail_each("inotify_read");
            set_thread_plan(plan);
        };
        none_can_be_read();
        service.producers(Phase::Ended);
        take_thread_plan();
        assert!(is_ending(&service), "the end was announced, although the file is not published");
        let began = Instant::now();
        let failed = std::thread::scope(|scope| {
            let watcher = scope.spawn(|| {
                none_can_be_read();
                service.shared.run(&epoll);
                take_thread_plan().unwrap().counted().1
            });
            until("a line for each kind of events", || service.report().troubles.len() > 1);
            std::thread::sleep(Duration::from_millis(200));
            event::signal(&service.shared.stop);
            watcher.join().unwrap()
        });
        // Each round reads the events of producers and those of consumers.
        let most = 2 * (began.elapsed().as_millis() / AGAIN.as_millis() + 1);
        assert!(u128::from(failed) <= most, "{failed} attempts, at most {most} expected");
        assert_eq!(service.report().troubles.len(), 2, "{:?}", service.report());
        event::clear(&service.shared.stop);
        std::thread::scope(|scope| {
            let watcher = scope.spawn(|| service.shared.run(&epoll));
            until("the end", || !is_ending(&service));
            event::signal(&service.shared.stop);
            watcher.join().unwrap();
        });
        assert!(is_seen(&service, "new"), "{:?}", service.report());
        drop(service);
        fs::remove_dir_all(&root).unwrap();
        fs::remove_file(&notice).unwrap();
    }

    #[test]
    fn files_whose_renames_were_lost_are_published_at_the_end_and_the_log_says_so() {
        let root = PathBuf::from(format!("/dev/shm/crossdock-lost-renames-{}", std::process::id()));
        let notice = root.with_extension("notice");
        let service = Service::start(&root, &notice, "simulate", Publish::Rename, Keep::All).unwrap();
        change_unseen(&service, |stage| {
            fs::write(stage.join(".new"), "x").unwrap();
            fs::rename(stage.join(".new"), stage.join("new")).unwrap();
        });
        until("a line about the lost events", || !service.report().troubles.is_empty());
        service.producers(Phase::Ended);
        assert!(is_seen(&service, "new"), "{:?}", service.report());
        drop(service);
        fs::remove_dir_all(&root).unwrap();
        fs::remove_file(&notice).unwrap();
    }

    #[test]
    fn a_marker_publishes_its_file_although_both_were_made_before_their_folder_was_watched() {
        let root = PathBuf::from(format!("/dev/shm/crossdock-found-markers-{}", std::process::id()));
        let notice = root.with_extension("notice");
        let start = || Service::start(&root, &notice, "simulate", Publish::Marker(".done".into()), Keep::All).unwrap();
        let service = start();
        let mut held = None;
        change_held_up(&service, |stage| {
            let new = stage.join("d/a");
            fs::create_dir_all(&new).unwrap();
            for name in ["finished", "open"] {
                fs::write(new.join(name), "x").unwrap();
            }
            fs::write(new.join("finished.done"), "").unwrap();
            held = Some(std::fs::File::create(new.join("open.done")).unwrap());
            // The marker is older than the file, so the marker belongs to an earlier file of this name. The pause is
            // longer than the resolution of the file system's time stamps, so that the two time stamps differ.
            fs::write(new.join("again.done"), "").unwrap();
            std::thread::sleep(Duration::from_millis(50));
            fs::write(new.join("again"), "half").unwrap();
        });
        until("the finished file", || is_seen(&service, "d/a/finished"));
        let stage = service.layout().stage;
        let make = |name: &str| {
            fs::write(stage.join(name), "x").unwrap();
            fs::write(stage.join(format!("{name}.done")), "").unwrap();
        };
        make("later");
        until("a later file", || is_seen(&service, "later"));
        assert!(!is_seen(&service, "d/a/open") && !is_seen(&service, "d/a/again"));
        drop(held);
        make("d/a/again");
        until("the other files", || is_seen(&service, "d/a/open") && is_seen(&service, "d/a/again"));
        drop(service);
        make("d/a/meanwhile");
        let service = start();
        assert!(is_seen(&service, "d/a/meanwhile"), "{:?}", service.report());
        drop(service);
        fs::remove_dir_all(&root).unwrap();
        fs::remove_file(&notice).unwrap();
    }

    #[test]
    fn a_file_that_was_renamed_before_its_folder_was_watched_is_published_at_the_end() {
        let root = PathBuf::from(format!("/dev/shm/crossdock-found-renames-{}", std::process::id()));
        let notice = root.with_extension("notice");
        let service = Service::start(&root, &notice, "simulate", Publish::Rename, Keep::All).unwrap();
        change_held_up(&service, |stage| {
            fs::create_dir_all(stage.join("d/a")).unwrap();
            for name in ["d/a/renamed", "d/a/removed"] {
                fs::write(stage.join("d/a/.new"), "x").unwrap();
                fs::rename(stage.join("d/a/.new"), stage.join(name)).unwrap();
            }
        });
        until("the folder", || is_seen(&service, "d/a"));
        let stage = service.layout().stage;
        fs::write(stage.join("d/a/.new"), "x").unwrap();
        fs::rename(stage.join("d/a/.new"), stage.join("d/a/later")).unwrap();
        until("a later file", || is_seen(&service, "d/a/later"));
        fs::remove_file(stage.join("d/a/removed")).unwrap();
        // The next two files are made in place and not renamed, and their events tell the service so.
        fs::write(stage.join("d/a/removed"), "x").unwrap();
        fs::write(stage.join("d/a/in place"), "x").unwrap();
        assert!(!is_seen(&service, "d/a/renamed"), "the service cannot know that the file is finished");
        service.producers(Phase::Ended);
        assert!(is_seen(&service, "d/a/renamed"), "{:?}", service.report());
        assert!(!is_seen(&service, "d/a/in place") && !is_seen(&service, "d/a/removed"));
        assert_eq!(service.report().troubles, Vec::<String>::new());
        drop(service);
        fs::remove_dir_all(&root).unwrap();
        fs::remove_file(&notice).unwrap();
    }

    #[test]
    fn a_folder_that_was_renamed_and_removed_before_its_visit_finishes_no_file_in_another_one_of_its_name() {
        let root = PathBuf::from(format!("/dev/shm/crossdock-late-visit-{}", std::process::id()));
        let notice = root.with_extension("notice");
        let service = Service::start(&root, &notice, "simulate", Publish::Rename, Keep::All).unwrap();
        let shared = &service.shared;
        let below = PathBuf::from("d/a");
        for has_failed in [false, true] {
            let mut state = shared.state();
            let (folder, other) = (state.store.layout.stage.join("d"), state.store.layout.stage.join(".d"));
            fs::create_dir_all(other.join("a")).unwrap();
            fs::rename(&other, &folder).unwrap();
            state.take_in(shared);
            state.visit_all(shared);
            if has_failed {
                let long_ago = Instant::now().checked_sub(2 * AFTER_FAILURE).unwrap();
                state.unentered.insert(below.clone(), (long_ago, NameChange::Arrived));
            } else {
                state.unvisited.insert(below.clone(), Visit::Enter(NameChange::Arrived));
            }
            fs::create_dir(state.store.layout.stage.join(format!("another {has_failed}"))).unwrap();
            fs::remove_dir_all(&folder).unwrap();
            fs::create_dir_all(folder.join("a")).unwrap();
            fs::write(folder.join("a/f"), "half").unwrap();
            state.take_in(shared);
            state.enter_again(AFTER_FAILURE);
            state.visit_all(shared);
            assert!(state.folders.has(&below), "the new folder is watched");
            assert_eq!(state.report.published, 0, "{has_failed}: the file is not finished");
            fs::remove_dir_all(&folder).unwrap();
        }
        drop(service);
        fs::remove_dir_all(&root).unwrap();
        fs::remove_file(&notice).unwrap();
    }

    #[test]
    fn a_folder_that_could_not_be_watched_is_visited_before_consumers_hear_of_the_end() {
        for how in [Publish::Rename, Publish::Marker(".done".into())] {
            let root = PathBuf::from(format!("/dev/shm/crossdock-visit-at-end-{}", std::process::id()));
            let notice = root.with_extension("notice");
            let service = Service::start(&root, &notice, "simulate", how.clone(), Keep::All).unwrap();
            let mut state = service.shared.state();
            let folder = state.store.layout.stage.join("d");
            fs::create_dir(&folder).unwrap();
            state.take_in(&service.shared);
            state.withdraw(Path::new("d"));
            state.unentered.insert("d".into(), (Instant::now(), NameChange::Made));
            fs::write(folder.join(".f"), "x").unwrap();
            fs::rename(folder.join(".f"), folder.join("f")).unwrap();
            fs::write(folder.join("f.done"), "").unwrap();
            drop(state);
            service.producers(Phase::Ended);
            assert!(is_seen(&service, "d/f"), "{how:?}: {:?}", service.report());
            drop(service);
            fs::remove_dir_all(&root).unwrap();
            fs::remove_file(&notice).unwrap();
        }
    }

    #[test]
    fn a_folder_that_can_be_watched_only_after_the_producers_end_shows_its_files_late() {
        for how in [Publish::Rename, Publish::Marker(".done".into())] {
            let root = PathBuf::from(format!("/dev/shm/crossdock-visit-late-{}", std::process::id()));
            let notice = root.with_extension("notice");
            let service = Service::start(&root, &notice, "simulate", how.clone(), Keep::All).unwrap();
            service.producers(Phase::Ended);
            let mut state = service.shared.state();
            let folder = state.store.layout.stage.join("d");
            fs::create_dir(&folder).unwrap();
            state.take_in(&service.shared);
            state.withdraw(Path::new("d"));
            fs::write(folder.join("f"), "x").unwrap();
            fs::write(folder.join("f.done"), "").unwrap();
            state.visit_one(&service.shared, Path::new("d"), Visit::Enter(NameChange::Made));
            drop(state);
            assert!(is_seen(&service, "d/f"), "{how:?}: {:?}", service.report());
            drop(service);
            fs::remove_dir_all(&root).unwrap();
            fs::remove_file(&notice).unwrap();
        }
    }

    #[test]
    fn a_folder_that_could_not_be_watched_is_visited_again_also_while_producers_are_busy() {
        let root = PathBuf::from(format!("/dev/shm/crossdock-visit-busy-{}", std::process::id()));
        let notice = root.with_extension("notice");
        let service = Service::start(&root, &notice, "simulate", Publish::Close, Keep::All).unwrap();
        let mut state = service.shared.state();
        let stage = state.store.layout.stage.clone();
        fs::create_dir(stage.join("d")).unwrap();
        state.take_in(&service.shared);
        state.withdraw(Path::new("d"));
        state.unentered.insert("d".into(), (Instant::now(), NameChange::Made));
        fs::write(stage.join("d/f"), "x").unwrap();
        drop(state);
        // An event comes every few milliseconds, so the service never waits so long for an event that the wait times
        // out.
        until_within(Duration::from_secs(30), "the file", || {
            fs::create_dir(stage.join("busy")).unwrap();
            fs::remove_dir(stage.join("busy")).unwrap();
            is_seen(&service, "d/f")
        });
        drop(service);
        fs::remove_dir_all(&root).unwrap();
        fs::remove_file(&notice).unwrap();
    }

    #[test]
    fn a_rename_finishes_no_file_that_got_its_name_or_its_folders_name_afterwards() {
        let root = PathBuf::from(format!("/dev/shm/crossdock-late-rename-{}", std::process::id()));
        let notice = root.with_extension("notice");
        let service = Service::start(&root, &notice, "simulate", Publish::Rename, Keep::All).unwrap();
        let mut state = service.shared.state();
        let stage = state.store.layout.stage.clone();
        let (folder, file) = (stage.join("d"), stage.join("f"));
        fs::create_dir_all(folder.join("a")).unwrap();
        state.take_in(&service.shared);
        state.visit_all(&service.shared);
        // The service gets the events of all the following changes together.
        for name in ["d/a/f", "f"] {
            fs::write(stage.join(".f"), "x").unwrap();
            fs::rename(stage.join(".f"), stage.join(name)).unwrap();
        }
        fs::remove_file(&file).unwrap();
        fs::write(&file, "half").unwrap();
        fs::rename(&folder, stage.join(".former")).unwrap();
        fs::create_dir_all(stage.join(".d/a")).unwrap();
        fs::rename(stage.join(".d"), &folder).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        fs::create_dir_all(folder.join("a")).unwrap();
        fs::write(folder.join("a/f"), "half").unwrap();
        fs::write(stage.join(".g"), "x").unwrap();
        fs::rename(stage.join(".g"), stage.join("g")).unwrap();
        state.take_in(&service.shared);
        state.visit_all(&service.shared);
        assert!(state.folders.has(Path::new("d/a")), "the new folder is watched");
        assert_eq!(state.report.published, 1, "only the file g is finished");
        drop(state);
        assert!(is_seen(&service, "g"));
        drop(service);
        fs::remove_dir_all(&root).unwrap();
        fs::remove_file(&notice).unwrap();
    }

    #[test]
    fn folders_that_come_and_go_while_events_are_lost_leave_no_notes() {
        let root = PathBuf::from(format!("/dev/shm/crossdock-lost-folders-{}", std::process::id()));
        let notice = root.with_extension("notice");
        let service = Service::start(&root, &notice, "simulate", Publish::Close, Keep::All).unwrap();
        let mut state = service.shared.state();
        let stage = state.store.layout.stage.clone();
        for round in 0..5 {
            let folders: Vec<_> = (0..10).map(|number| format!("{round}.{number}")).collect();
            folders.iter().for_each(|name| fs::create_dir(stage.join(name)).unwrap());
            state.look_again(&service.shared);
            state.visit_one(&service.shared, Path::new(""), Visit::Enter(NameChange::Made));
            assert_eq!(state.unvisited.len(), folders.len());
            folders.iter().for_each(|name| fs::remove_dir(stage.join(name)).unwrap());
            state.unentered.insert(format!("{round}").into(), (Instant::now(), NameChange::Arrived));
        }
        state.look_again(&service.shared);
        assert_eq!((state.unvisited.len(), state.unentered.len()), (1, 0));
        drop(state);
        drop(service);
        fs::remove_dir_all(&root).unwrap();
        fs::remove_file(&notice).unwrap();
    }

    #[test]
    fn consumers_hear_of_the_end_when_files_that_cannot_be_published_have_had_their_time() {
        let root = PathBuf::from(format!("/dev/shm/crossdock-late-end-{}", std::process::id()));
        let notice = root.with_extension("notice");
        let service = Service::start(&root, &notice, "simulate", Publish::Close, Keep::All).unwrap();
        // Among the published files, a folder has the name of the producers' file, so the file cannot be published.
        fs::create_dir(service.layout().published.join("f")).unwrap();
        fs::write(service.layout().stage.join("f"), "x").unwrap();
        service.producers(Phase::Failed);
        let mut state = service.shared.state();
        assert_eq!(state.own, Some(Phase::Producing), "a finished file is not published");
        state.ending = state.ending.and_then(|(phase, since)| Some((phase, since.checked_sub(UNPUBLISHED)?)));
        drop(state);
        until("the end", || service.shared.state().own == Some(Phase::Failed));
        drop(service);
        fs::remove_dir_all(&root).unwrap();
        fs::remove_file(&notice).unwrap();
    }

    #[test]
    fn files_in_a_folder_that_can_be_watched_after_the_end_come_before_consumers_hear_of_the_end() {
        for how in [Publish::Close, Publish::Rename, Publish::Marker(".done".into()), Publish::End] {
            let root = PathBuf::from(format!("/dev/shm/crossdock-watch-end-{}", std::process::id()));
            let notice = root.with_extension("notice");
            let service = Service::start(&root, &notice, "simulate", how.clone(), Keep::All).unwrap();
            let layout = service.layout();
            // Among the published files, a file has the name of the producers' folder, so the visit of the folder fails.
            fs::write(layout.published.join("d"), "").unwrap();
            fs::create_dir(layout.stage.join("d")).unwrap();
            fs::write(layout.stage.join("d/.f"), "x").unwrap();
            fs::rename(layout.stage.join("d/.f"), layout.stage.join("d/f")).unwrap();
            fs::write(layout.stage.join("d/f.done"), "").unwrap();
            service.producers(Phase::Ended);
            assert_eq!(service.shared.state().own, Some(Phase::Producing), "{how:?}");
            fs::remove_file(layout.published.join("d")).unwrap();
            until("the end", || service.shared.state().own == Some(Phase::Ended));
            assert!(is_seen(&service, "d/f"), "{how:?}: {:?}", service.report());
            drop(service);
            fs::remove_dir_all(&root).unwrap();
            fs::remove_file(&notice).unwrap();
        }
    }

    #[test]
    fn opens_go_on_after_the_watch_of_writers_was_given_up() {
        let root = PathBuf::from(format!("/dev/shm/crossdock-given-up-{}", std::process::id()));
        let notice = root.with_extension("notice");
        let service = Service::start(&root, &notice, "simulate", Publish::Close, Keep::All).unwrap();
        let stage = service.layout().stage;
        // A folder was removed before it could be watched. This must not make the service give up watching which
        // processes write files.
        let known = service.report().writers_known;
        service.shared.writers.watch(&root.join("gone")).unwrap();
        assert_eq!(service.report().writers_known, known);
        // The kernel watches no files of this file system.
        service.shared.writers.watch(Path::new("/proc")).unwrap();
        assert!(!service.report().writers_known);
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for number in 0..10 {
                fs::write(stage.join(number.to_string()), "x").unwrap();
            }
            sender.send(()).unwrap();
        });
        receiver.recv_timeout(Duration::from_secs(60)).expect("an open waits for an answer that does not come");
        drop(service);
        fs::remove_dir_all(&root).unwrap();
        fs::remove_file(&notice).unwrap();
    }

    /// Publishes the file `a` in a directory whose files are dropped after one consumer has read them.
    fn with_file_to_read(root: &Path) -> Service {
        let keep = Keep::Consumed { readers: vec![1] };
        let service = Service::start(root, &root.with_extension("notice"), "simulate", Publish::Close, keep).unwrap();
        fs::create_dir(service.layout().stage.join("d")).unwrap();
        fs::write(service.layout().stage.join("d/a"), "x").unwrap();
        until("the file", || is_seen(&service, "d/a"));
        service
    }

    #[test]
    fn a_file_that_was_read_before_the_other_hosts_were_known_waits_for_them() {
        let root = PathBuf::from(format!("/dev/shm/crossdock-read-early-{}", std::process::id()));
        let service = with_file_to_read(&root);
        service.shared.state().count_read(0, "d/a".into());
        event::signal(&service.shared.nudge);
        let across = RemoteHosts { produces: true, readers: vec!["b".into()], ..RemoteHosts::default() };
        service.shared.share(&across, 1).unwrap();
        std::thread::sleep(SETTLED + Duration::from_millis(500));
        assert!(is_seen(&service, "d/a"), "the host b has not fetched the file");
        service.shared.state().count_read(1, "d/a".into());
        event::signal(&service.shared.nudge);
        until("the file to go", || !is_seen(&service, "d/a"));
        drop(service);
        fs::remove_dir_all(&root).unwrap();
        fs::remove_file(root.with_extension("notice")).unwrap();
    }

    #[test]
    fn a_file_that_cannot_be_dropped_is_reported_once_also_if_its_name_has_a_control_character() {
        let root = PathBuf::from(format!("/dev/shm/crossdock-drop-told-{}", std::process::id()));
        let service = with_file_to_read(&root);
        let mut state = service.shared.state();
        // Producers have put a folder in the place of the file. The service tries to remove the folder as a file, which
        // fails.
        let name = PathBuf::from("a\u{1b}b");
        fs::create_dir(state.store.layout.stage.join(&name)).unwrap();
        fs::write(state.store.layout.published.join(&name), "x").unwrap();
        for _ in 0..3 {
            state.consumed.insert(name.clone(), Instant::now().checked_sub(2 * SETTLED).unwrap());
            state.drop_consumed();
        }
        assert!(matches!(&state.report.troubles[..], [line] if line.starts_with("a·b cannot")), "{:?}", state.report);
        drop(state);
        drop(service);
        fs::remove_dir_all(&root).unwrap();
        fs::remove_file(root.with_extension("notice")).unwrap();
    }

    #[cfg(feature = "faults")]
    #[test]
    fn a_file_that_was_read_is_dropped_although_a_call_failed_before() {
        let root = PathBuf::from(format!("/dev/shm/crossdock-drop-fails-{}", std::process::id()));
        let seen = crossdock_os::faults::each_call_fails(|attempt| {
            let service = with_file_to_read(&root);
            let mut state = service.shared.state();
            let mut drop_at_once = || {
                let long_ago = Instant::now().checked_sub(2 * SETTLED).unwrap();
                state.consumed.insert("d/a".into(), long_ago);
                state.drop_consumed();
                state.consumed.contains_key(Path::new("d/a"))
            };
            attempt.arm();
            let is_kept = drop_at_once();
            let hit = attempt.disarm();
            assert!(!is_kept || !drop_at_once(), "{hit:?}");
            let stage = &state.store.layout.stage;
            assert!(!stage.join("d/a").exists(), "{hit:?}: the file still takes memory");
            assert_eq!(state.report.dropped, 1, "{hit:?}");
            drop(state);
            drop(service);
            fs::remove_dir_all(&root).unwrap();
            fs::remove_file(root.with_extension("notice")).unwrap();
        });
        assert!(seen.contains("open"), "{seen:?}");
    }

    #[cfg(feature = "faults")]
    #[test]
    fn a_file_stays_published_although_a_call_failed_while_it_moved_to_the_disk() {
        let root = PathBuf::from(format!("/dev/shm/crossdock-move-fails-{}", std::process::id()));
        let (notice, disk) = (root.with_extension("notice"), root.with_extension("disk"));
        let seen = crossdock_os::faults::each_call_fails(|attempt| {
            let service = Service::start(&root, &notice, "simulate", Publish::Close, Keep::All).unwrap();
            fs::create_dir(service.layout().stage.join("d")).unwrap();
            fs::write(service.layout().stage.join("d/a"), "x").unwrap();
            until("the file", || is_seen(&service, "d/a"));
            let mut state = service.shared.state();
            let layout = state.store.layout.clone();
            // No thread moves files, so that the move happens in this thread, where calls fail.
            state.spill = Some(Spill::open(&layout, &disk, 1, MovedFiles::default()).unwrap());
            let mut hit = None;
            let is_somewhere = || layout.published.join("d/a").exists() || layout.spilled.join("d/a").exists();
            for _ in 0..2 {
                let Some(copy) = state.spill.as_mut().and_then(|spill| spill.next(&layout, 2)) else { break };
                copy.make().unwrap();
                if hit.is_none() {
                    attempt.arm();
                }
                let moved = state.take_to_disk(&copy);
                hit = hit.or_else(|| attempt.disarm());
                if moved.is_err() {
                    state.spill.iter_mut().for_each(|spill| spill.order.push_back(copy.rest.clone()));
                }
                state.take_in(&service.shared);
                assert!(is_somewhere(), "{hit:?}: the service took its own removal for one of a producer");
            }
            assert!(!layout.published.join("d/a").exists(), "{hit:?}: the file still takes memory");
            // The name in `stage` belongs to producers again, and so does its removal.
            fs::write(layout.stage.join("d/a"), "y").unwrap();
            state.take_in(&service.shared);
            assert!(is_seen_in(&layout, "d/a"), "{hit:?}");
            fs::remove_file(layout.stage.join("d/a")).unwrap();
            state.take_in(&service.shared);
            assert!(!is_somewhere(), "{hit:?}: the removal by the producer was ignored");
            drop(state);
            drop(service);
            fs::remove_dir_all(&root).unwrap();
            fs::remove_dir_all(&disk).unwrap();
            fs::remove_file(&notice).unwrap();
        });
        assert!(["open", "stat", "unlink", "rename"].iter().all(|call| seen.contains(call)), "{seen:?}");
    }

    #[cfg(feature = "faults")]
    #[test]
    fn the_removal_of_a_file_counts_although_several_calls_failed_while_it_moved_to_the_disk() {
        use crossdock_os::faults::{FaultPlan, set_thread_plan, take_thread_plan};
        let root = PathBuf::from(format!("/dev/shm/crossdock-moves-fail-{}", std::process::id()));
        let (notice, disk) = (root.with_extension("notice"), root.with_extension("disk"));
        let service = Service::start(&root, &notice, "simulate", Publish::Close, Keep::All).unwrap();
        let mut state = service.shared.state();
        let layout = state.store.layout.clone();
        fs::create_dir(layout.stage.join("d")).unwrap();
        state.spill = Some(Spill::open(&layout, &disk, 1, MovedFiles::default()).unwrap());
        let (mut left, mut taken) = (0, 0);
        for seed in 0..1000 {
            let rest = PathBuf::from(format!("d/{seed}"));
            fs::write(layout.stage.join(&rest), "x").unwrap();
            state.take_in(&service.shared);
            let copy = state.spill.as_mut().and_then(|spill| spill.next(&layout, 2)).unwrap();
            assert_eq!(copy.rest, rest);
            copy.make().unwrap();
            let plan = FaultPlan::default();
            plan.fail_some(seed, 4);
            set_thread_plan(plan);
            let moved = state.take_to_disk(&copy);
            take_thread_plan();
            copy.drop_file();
            state.take_in(&service.shared);
            let is_somewhere = || layout.published.join(&rest).exists() || layout.spilled.join(&rest).exists();
            assert!(is_somewhere(), "{seed}: the service took its own removal for one of a producer");
            if layout.stage.join(&rest).exists() {
                assert!(moved.is_err(), "{seed}");
                fs::remove_file(layout.stage.join(&rest)).unwrap();
                state.take_in(&service.shared);
                assert!(!is_somewhere(), "{seed}: the removal by the producer was ignored");
                left += 1;
            } else {
                taken += u32::from(moved.is_err());
            }
        }
        assert!(left > 10 && taken > 10, "{left} {taken}");
        drop(state);
        drop(service);
        fs::remove_dir_all(&root).unwrap();
        fs::remove_dir_all(&disk).unwrap();
        fs::remove_file(&notice).unwrap();
    }

    #[cfg(feature = "faults")]
    #[test]
    fn the_removal_of_a_file_counts_although_its_move_to_the_disk_failed() {
        let root = PathBuf::from(format!("/dev/shm/crossdock-unmoved-fails-{}", std::process::id()));
        let (notice, disk) = (root.with_extension("notice"), root.with_extension("disk"));
        crossdock_os::faults::each_call_fails(|attempt| {
            let service = Service::start(&root, &notice, "simulate", Publish::Close, Keep::All).unwrap();
            fs::create_dir(service.layout().stage.join("d")).unwrap();
            fs::write(service.layout().stage.join("d/a"), "x").unwrap();
            until("the file", || is_seen(&service, "d/a"));
            let mut state = service.shared.state();
            let layout = state.store.layout.clone();
            state.spill = Some(Spill::open(&layout, &disk, 1, MovedFiles::default()).unwrap());
            let copy = state.spill.as_mut().and_then(|spill| spill.next(&layout, 2)).unwrap();
            copy.make().unwrap();
            attempt.arm();
            let moved = state.take_to_disk(&copy);
            let hit = attempt.disarm();
            state.take_in(&service.shared);
            if moved.is_err() && layout.stage.join("d/a").exists() {
                fs::remove_file(layout.stage.join("d/a")).unwrap();
                state.take_in(&service.shared);
                assert!(!is_seen_in(&layout, "d/a"), "{hit:?}: the removal by the producer was ignored");
            }
            drop(state);
            drop(service);
            fs::remove_dir_all(&root).unwrap();
            fs::remove_dir_all(&disk).unwrap();
            fs::remove_file(&notice).unwrap();
        });
    }
}

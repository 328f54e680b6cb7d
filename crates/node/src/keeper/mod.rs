//! The keeper: it holds every descriptor that must outlive a broker, and starts a new broker when one has ended.
//!
//! The keeper is small on purpose: it reads nothing from clients and decides nothing. A broker is a fork of the keeper.
//! So it inherits the keeper's descriptors, and the writable mapping of the liveness table. Every descriptor that the
//! broker makes or accepts later goes to the keeper through a socket pair *before* the broker writes the record about
//! it. When a broker is killed, the keeper first reads the messages that are left in this socket, and then starts the
//! next broker.

mod daemon_files;
mod keeper_socket;

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use crossdock_os::child::{self, ExitStatus, Signal};
use crossdock_os::event::{Epoll, next_signal, signalfd};
use crossdock_os::fs::File;
use crossdock_os::roll::{Roll, RollLock, RollReader};
use crossdock_os::tmpfs::Folder;
use crossdock_os::{Deadline, Mapping, OsResult, process, program, socket};

use crate::host;
use crate::journal::Journal;
use crate::table;
use crate::{ServeError, ServeOptions};
pub(crate) use daemon_files::DaemonFiles;
pub(crate) use keeper_socket::{KeeperRequest, KeeperSocket};

/// What a broker inherits from the keeper.
pub(crate) struct BrokerInheritance {
    pub listeners: BTreeMap<u64, OwnedFd>,
    pub segments: BTreeMap<u64, OwnedFd>,
    /// For each item's file, the doors to it that a former broker may have left open.
    pub doors: BTreeMap<u64, Vec<OwnedFd>>,
    /// The items' files with a door that the keeper had no descriptor for.
    pub lost_doors: BTreeSet<u64>,
    pub journal: File,
    /// True if this keeper has created the journal's file, so no other daemon has it open.
    pub journal_is_new: bool,
    pub table: OwnedFd,
    pub words: Mapping,
    /// A number that differs for each keeper. The descriptors of a former keeper are lost.
    pub incarnation: u64,
    /// Whether the daemon runs in the background.
    pub detached: bool,
    /// The folder of the items' files. It is mounted once, so that every broker has the same one.
    pub folder: Option<Folder>,
    /// The roll, whose locks prove which members are dead.
    pub roll: Registry,
    /// The number of bytes of memory that the daemon may give out.
    pub memory: u64,
    /// How many brokers of this keeper have begun to serve.
    pub served: u64,
}

impl BrokerInheritance {
    /// Gives how the keeper ends if a signal tells it to end now.
    fn ended_by_request(&self) -> Ended {
        if self.served > 0 { Ended::Served } else { Ended::BeforeItServed }
    }
}

/// How the keeper ended without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The daemon served until it was told to end, or until no member used it.
    Served,
    /// The daemon was told to end before it served.
    BeforeItServed,
}

/// The roll, with the keeper's own lock on it. The lock shows brokers that locks work on this file system.
pub(crate) struct Registry {
    pub roll: Roll,
    pub reader: RollReader,
    /// The keeper's own lock. Brokers do not have it.
    _entry: RollLock,
}

impl Registry {
    fn open(place: &DaemonFiles, incarnation: u64) -> OsResult<Self> {
        // The keeper's own number on the roll. No member has this number, because member ids do not use the upper bits.
        let own = 1 << 62 | incarnation;
        let roll = Roll::open(&place.roll)?;
        let entry = RollLock::hold(roll.enter(own)?)?;
        let reader = RollReader::new(roll.reader()?, own);
        if !reader.sees_own_lock() {
            eprintln!(
                "crossdock serve: the file system of {} does not keep locks; deaths are noticed by this daemon alone. Put \
                 the socket on a tmpfs, or an ordinary local file system",
                place.roll.display()
            );
        }
        Ok(Self { roll, reader, _entry: entry })
    }
}

/// The number of crashes in a row after which the keeper gives up. A crash is a broker that ends by its own fault within
/// `SOON` after its start. It is no crash if a later broker says that it cannot start: perhaps memory or another resource
/// is short at the moment, and the keeper must not give up its descriptors for that.
const HOPELESS: u32 = 10;
const SOON: Duration = Duration::from_millis(50);
/// How many kills of new brokers in a row cause no pause yet. Tests and people kill a few, the kernel kills every one.
const KILLS: u32 = 8;
/// How long the keeper tries to start the first broker while memory or another resource is short.
const PATIENCE: Duration = Duration::from_secs(10);
/// The pauses between attempts to start a broker become longer, within these limits.
const SHORTEST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(1280);
/// How long the keeper must have had nothing to do before it gives back the pages of its program. So this work does not
/// delay the first members.
const SHRINK_PAUSE: Duration = Duration::from_millis(100);
const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;
const SIGINT: i32 = 2;
const SIGHUP: i32 = 1;
const SIGCHLD: i32 = 17;

/// Runs the keeper until a signal tells it to end, or until the broker of a private daemon ends because no member uses
/// it.
pub(crate) fn run(options: &ServeOptions, place: &DaemonFiles, ready: Option<OwnedFd>) -> Result<Ended, ServeError> {
    // A signal that this process was started with ignored, for example by `nohup`, stays ignored.
    let ends = child::not_ignored(&[SIGTERM, SIGINT, SIGHUP]);
    let signals = signalfd(&[&ends[..], &[SIGCHLD]].concat()).map_err(why)?;
    let watch = patiently(|| Watch::new(&signals)).map_err(why)?;
    let mut own = Some((watch, prepare(place, options)?));
    let mut ready = ready;
    let (mut crashes, mut failures, mut kills) = (0, 0, 0_u32);
    // True once a broker has ended in another way than by failing to start.
    let mut has_run = false;
    loop {
        let begun = start_broker(options, place, &mut own, &signals, has_run).map_err(why)?;
        let started = Instant::now();
        let Some((watch, held)) = own.as_mut() else { continue };
        let served_before = held.served;
        let ended = match begun {
            None => End::Requested,
            Some((broker, post)) => {
                let ended = watch.until_end(held, post, &signals, broker, &mut ready);
                // A broker that outlived this call could take in members after the keeper has looked for living
                // members.
                ended.inspect_err(|_| drop(stop(broker))).map_err(why)?
            }
        };
        match ended {
            End::Requested => return Ok(held.ended_by_request()),
            End::Broker(ExitStatus::Code(0)) => return Ok(Ended::Served),
            End::Broker(ExitStatus::Code(host::CANNOT_START)) if !has_run => {
                return Err(ServeError(format!(
                    "the broker could not start at {}; its reason is above",
                    place.socket.display()
                )));
            }
            End::Broker(how) => {
                let cannot_start = how == ExitStatus::Code(host::CANNOT_START);
                has_run |= !cannot_start;
                // A SIGKILL comes from another process, so it does not count as a failure of the broker.
                let is_killed = how == ExitStatus::Signal(SIGKILL);
                let is_soon = !is_killed && started.elapsed() < SOON;
                crashes = if is_soon && !cannot_start { crashes + 1 } else { 0 };
                failures = if is_soon || cannot_start { failures + 1 } else { 0 };
                // But the kernel also kills each new broker, before it serves, if there is no memory for it.
                let is_early = is_killed && started.elapsed() < SOON && held.served == served_before;
                kills = if is_early { kills + 1 } else { 0 };
                if crashes >= HOPELESS {
                    return Err(ServeError(format!("the broker died {HOPELESS} times in a row, lastly by {how:?}")));
                }
                // The first restarts are immediate. If brokers end again and again soon after their start, pauses keep
                // them from using a whole CPU.
                let in_a_row = failures.max(kills.saturating_sub(KILLS));
                let pause = SHORTEST_PAUSE.saturating_mul(1 << in_a_row.min(6)).min(LONGEST_PAUSE);
                if in_a_row > 2 && watch.rest(&signals, pause).map_err(why)? {
                    return Ok(held.ended_by_request());
                }
            }
        }
    }
}

/// Forks a broker. Returns its process id and the keeper's end of the socket pair, or `None` if a signal told the daemon
/// to end before a broker could be forked.
///
/// A fork fails if the node lacks memory, processes or another resource. If no broker has run yet, the keeper holds nothing
/// and gives up after a while. Later it tries again until it succeeds, because everything that it holds would be lost
/// with it.
fn start_broker(
    options: &ServeOptions,
    place: &DaemonFiles,
    own: &mut Option<(Watch, BrokerInheritance)>,
    signals: &OwnedFd,
    has_run: bool,
) -> OsResult<Option<(i32, OwnedFd)>> {
    let patience = Deadline::after(PATIENCE);
    let mut pause = SHORTEST_PAUSE;
    loop {
        let error = match fork_broker(options, place, own) {
            Ok(broker) => return Ok(Some(broker)),
            Err(error) => error,
        };
        if !has_run && (patience.passed() || !is_short(&error)) {
            return Err(error);
        }
        if pause == SHORTEST_PAUSE {
            eprintln!("crossdock serve: no broker can be started now: {error}; the daemon tries again until it can");
        }
        if own.as_ref().map_or(Ok(false), |(watch, _)| watch.rest(signals, pause))? {
            return Ok(None);
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Tries once to fork a broker. Returns its process id, and the keeper's end of the socket pair, which is in the keeper's
/// epoll set.
fn fork_broker(
    options: &ServeOptions,
    place: &DaemonFiles,
    own: &mut Option<(Watch, BrokerInheritance)>,
) -> OsResult<(i32, OwnedFd)> {
    let (ours, theirs) = socket::pair()?;
    // The socket is in the set before the fork, because a broker that the keeper cannot watch must not run. If the fork
    // fails, the kernel removes the socket from the set when it is closed.
    own.as_ref().map_or(Ok(()), |(watch, _)| watch.epoll.add(&ours, POST, false))?;
    let (mut ours, mut theirs) = (Some(ours), Some(theirs));
    let keeper = std::process::id() as i32;
    // This process has one thread, as `serve` has checked. Here the threads are not counted again, because that needs a
    // descriptor, and the keeper may have none left.
    let broker = child::fork_beside_threads(|| {
        // Each process keeps only its own end of the socket pair. So it notices when the other process has ended.
        ours = None;
        // The child now owns copies of all held descriptors, and may close them one by one.
        match (theirs.take(), own.take()) {
            (Some(post), Some((watch, held))) => {
                drop(watch);
                host::run(options, place, held, KeeperSocket::new(post), keeper)
            }
            _ => host::CANNOT_START,
        }
    })?;
    Ok((broker, ours.expect("only the child gives it up")))
}

/// Repeats a call for a while if it fails for lack of memory or another resource.
fn patiently<T>(mut call: impl FnMut() -> OsResult<T>) -> OsResult<T> {
    let patience = Deadline::after(PATIENCE);
    loop {
        match call() {
            Err(error) if !patience.passed() && is_short(&error) => std::thread::sleep(SHORTEST_PAUSE),
            done => return done,
        }
    }
}

/// Tells whether a call failed because memory or another resource is short at the moment.
fn is_short(error: &crossdock_os::OsError) -> bool {
    error.is_out_of_room() || error.is_to_be_repeated()
}

fn prepare(place: &DaemonFiles, options: &ServeOptions) -> Result<BrokerInheritance, ServeError> {
    // The keeper must be able to hold all descriptors that a broker has, so it raises its own limit of descriptors.
    child::raise_descriptor_limit();
    child::survive_file_limit();
    let memory = process::total_memory();
    let memory = if options.memory == 0 { memory } else { options.memory.min(memory) };
    // The folder is mounted before the first fork, so that the keeper and all brokers have the same one.
    let folder = Folder::mount(memory).or_else(|_| Folder::shared_memory()).ok();
    let incarnation = crate::id_base();
    let (table, words) = table::create(incarnation).map_err(why)?;
    let roll = Registry::open(place, incarnation).map_err(why)?;
    let mut listeners = BTreeMap::new();
    listeners.insert(crate::broker::MAIN_ENDPOINT, place.listen().map_err(why)?);
    let made = Journal::make(&place.journal);
    let journal_is_new = made.is_some();
    let journal = made
        .map_or_else(|| Journal::open(&place.journal), Ok)
        .map_err(|error| ServeError(format!("the journal {} cannot be opened: {error}", place.journal.display())))?;
    Ok(BrokerInheritance {
        listeners,
        segments: BTreeMap::new(),
        doors: BTreeMap::new(),
        lost_doors: BTreeSet::new(),
        journal,
        journal_is_new,
        table,
        words,
        incarnation,
        detached: options.detach,
        folder,
        roll,
        memory,
        served: 0,
    })
}

enum End {
    Requested,
    Broker(ExitStatus),
}

/// The numbers of the descriptors in the keeper's epoll set: the signals, and the keeper's end of the socket pair.
const SIGNALS: u64 = 0;
const POST: u64 = 1;

/// The epoll set of the keeper. It is made once, because the keeper may have no descriptor left when a broker ends.
struct Watch {
    epoll: Epoll,
}

impl Watch {
    fn new(signals: &OwnedFd) -> OsResult<Self> {
        let epoll = Epoll::new()?;
        epoll.add(signals, SIGNALS, false)?;
        Ok(Self { epoll })
    }

    /// Waits for `pause` while there is no broker. Returns true, perhaps earlier, if a signal tells the daemon to end.
    fn rest(&self, signals: &OwnedFd, pause: Duration) -> OsResult<bool> {
        let deadline = Deadline::after(pause);
        loop {
            self.epoll.wait(deadline)?;
            if end_is_requested(signals) {
                return Ok(true);
            }
            if deadline.passed() {
                return Ok(false);
            }
        }
    }

    /// Reads what the broker sends, until the broker has ended or a signal tells the daemon to end.
    fn until_end(
        &self,
        held: &mut BrokerInheritance,
        post: OwnedFd,
        signals: &OwnedFd,
        broker: i32,
        ready: &mut Option<OwnedFd>,
    ) -> OsResult<End> {
        let served_before = held.served;
        let (mut post_open, mut is_small) = (true, false);
        loop {
            // When a broker serves, the keeper mostly waits.
            let may_shrink = !is_small && held.served > served_before;
            let wait = if may_shrink { SHRINK_PAUSE } else { Duration::from_secs(3600) };
            let events = self.epoll.wait(Deadline::after(wait))?;
            if may_shrink && events.is_empty() {
                program::give_back_pages();
                is_small = true;
            }
            for event in events {
                match event.token {
                    SIGNALS if end_is_requested(signals) => {
                        stop(broker)?;
                        // The last message of the broker may say that it has begun to serve.
                        take_in(held, &post, ready)?;
                        return Ok(End::Requested);
                    }
                    POST if post_open => post_open = take_in(held, &post, ready)?,
                    _ => {}
                }
            }
            if !post_open {
                self.epoll.remove(&post).ok();
            }
            if let Some(ended) = child::ended(broker, false)? {
                // The last messages of the broker may still be in the socket.
                take_in(held, &post, ready)?;
                return Ok(End::Broker(ended));
            }
        }
    }
}

/// Reads the signals that have come. Tells whether one of them tells the daemon to end.
fn end_is_requested(signals: &OwnedFd) -> bool {
    std::iter::from_fn(|| next_signal(signals)).any(|signal| signal != SIGCHLD)
}

/// Reads all messages that wait. Returns `false` if the broker has closed its end of the socket pair and no message is
/// left.
fn take_in(held: &mut BrokerInheritance, post: &OwnedFd, ready: &mut Option<OwnedFd>) -> OsResult<bool> {
    while let Some(letter) = keeper_socket::read(post)? {
        match letter {
            KeeperRequest::End => return Ok(false),
            KeeperRequest::Segment(id, fd) => drop(held.segments.insert(id, fd)),
            KeeperRequest::Listener(id, fd) => drop(held.listeners.insert(id, fd)),
            KeeperRequest::Journal(fd) => held.journal = File::from(fd),
            KeeperRequest::NoSegment(id) => {
                held.lost_doors.remove(&id);
                drop((held.segments.remove(&id), held.doors.remove(&id)));
            }
            KeeperRequest::Door(file, fd) => held.doors.entry(file).or_default().push(fd),
            KeeperRequest::LostDoor(file) => drop(held.lost_doors.insert(file)),
            KeeperRequest::NoDoors(file) => drop(held.doors.remove(&file)),
            KeeperRequest::NoListener(id) => drop(held.listeners.remove(&id)),
            KeeperRequest::Ready => {
                held.served += 1;
                if held.detached {
                    child::leave_stream(2);
                }
                if let Some(ready) = ready.take() {
                    std::io::Write::write_all(&mut File::from(ready), b"\n").ok();
                }
            }
        }
    }
    Ok(true)
}

fn stop(broker: i32) -> OsResult<()> {
    child::signal(broker, Signal::TERM)?;
    if let Ok(Some(pidfd)) = process::open_pidfd(broker) {
        crossdock_os::event::wait_readable(pidfd.as_fd(), Deadline::after(Duration::from_millis(500)))?;
    }
    if child::ended(broker, false)?.is_none() {
        child::signal(broker, Signal::KILL)?;
        child::ended(broker, true)?;
    }
    Ok(())
}

fn why(error: crossdock_os::OsError) -> ServeError {
    ServeError(error.to_string())
}

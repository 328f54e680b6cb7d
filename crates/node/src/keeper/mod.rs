//! The keeper: holds every descriptor that must outlive a broker, and starts a new broker when one is gone.
//!
//! Small on purpose: it reads nothing from clients and decides nothing. A broker is a fork of the keeper, so it
//! inherits the descriptors (and the writable mapping of the liveness table) as they are; what it makes or adopts
//! later it sends here over a socket pair *before* it writes it down. What a killed broker had sent is still in that
//! socket and is taken in before the next one starts.

mod place;
mod post;

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use crossdock_os::child::{self, Ended, Signal};
use crossdock_os::event::{Epoll, next_signal, signalfd};
use crossdock_os::roll::{Asker, Entry, Roll};
use crossdock_os::tmpfs::Folder;
use crossdock_os::{Deadline, Mapping, OsResult, process, socket};

use crate::host;
use crate::table;
use crate::{ServeError, ServeOptions};
pub(crate) use place::Place;
pub(crate) use post::{Letter, Post};

/// What a broker inherits.
pub(crate) struct Held {
    pub listeners: BTreeMap<u64, OwnedFd>,
    pub segments: BTreeMap<u64, OwnedFd>,
    /// Doors to items' files that may be open.
    pub doors: BTreeMap<u64, Vec<OwnedFd>>,
    pub journal: File,
    pub table: OwnedFd,
    pub words: Mapping,
    /// Changes whenever a keeper starts: the descriptors of the former one are lost.
    pub incarnation: u64,
    /// It runs in the background.
    pub detached: bool,
    /// Where items' files are; mounted once, so that every broker has the same.
    pub folder: Option<Folder>,
    /// What deaths are proved by.
    pub roll: Registry,
}

/// The roll, and the keeper's own place on it, by which brokers see that it works.
pub(crate) struct Registry {
    pub roll: Roll,
    pub asker: Asker,
    /// The keeper's alone: not mapped in brokers.
    _entry: Entry,
}

impl Registry {
    fn open(place: &Place, incarnation: u64) -> OsResult<Self> {
        // No member's number: those leave the upper bits free.
        let own = 1 << 62 | incarnation;
        let roll = Roll::open(&place.roll)?;
        let entry = Entry::hold(roll.enter(own)?)?;
        let asker = Asker::new(roll.reader()?, own);
        if !asker.works() {
            eprintln!(
                "crossdock serve: the file system of {} does not keep locks; deaths are noticed by this daemon alone. Put \
                 the socket on a tmpfs, or an ordinary local file system",
                place.roll.display()
            );
        }
        Ok(Self { roll, asker, _entry: entry })
    }
}

/// A broker that dies by its own fault so soon after its start, so many times in a row, cannot be helped.
const HOPELESS: u32 = 10;
const SOON: Duration = Duration::from_millis(50);
const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;
const SIGINT: i32 = 2;
const SIGHUP: i32 = 1;
const SIGCHLD: i32 = 17;

/// Runs until told to end, or until a private daemon's broker found itself idle.
pub(crate) fn run(options: &ServeOptions, place: &Place, ready: Option<OwnedFd>) -> Result<(), ServeError> {
    let signals = signalfd(&[SIGTERM, SIGINT, SIGHUP, SIGCHLD]).map_err(why)?;
    let mut held = Some(prepare(place, options)?);
    let mut ready = ready;
    let mut failures = 0;
    let mut served = false;
    loop {
        let (ours, theirs) = patiently(socket::pair).map_err(why)?;
        let (mut ours, mut theirs) = (Some(ours), Some(theirs));
        let started = Instant::now();
        let keeper = std::process::id() as i32;
        let broker = patiently(|| {
            child::fork(|| {
                // Each side keeps its own end only, so that the end of one is seen by the other.
                ours = None;
                // The child's copies of everything held are its own, to close one by one.
                match (theirs.take(), held.take()) {
                    (Some(post), Some(held)) => host::run(options, place, held, Post::new(post), keeper),
                    _ => host::CANNOT_START,
                }
            })
        });
        let broker = broker.map_err(why)?;
        drop(theirs.take());
        let (Some(ours), Some(held)) = (ours.take(), held.as_mut()) else { continue };
        let ended = watch(held, ours, &signals, broker, &mut ready).map_err(why)?;
        match ended {
            End::Told => return Ok(()),
            End::Broker(Ended::Code(0)) => return Ok(()),
            // A later one that cannot start may lack room just then, and what the keeper holds is not given up for that.
            End::Broker(Ended::Code(host::CANNOT_START)) if !served => {
                return Err(ServeError(format!(
                    "the broker could not start at {}; its reason is above",
                    place.socket.display()
                )));
            }
            End::Broker(how) => {
                served |= how != Ended::Code(host::CANNOT_START);
                // SIGKILL comes from outside, and may come any number of times.
                let own_fault = how != Ended::Signal(SIGKILL) && started.elapsed() < SOON;
                failures = if own_fault { failures + 1 } else { 0 };
                if failures >= HOPELESS {
                    return Err(ServeError(format!("the broker died {HOPELESS} times in a row, lastly by {how:?}")));
                }
                // The first restarts are immediate; one that fails again and again must not take the processor.
                std::thread::sleep(Duration::from_millis(if failures > 2 { 20 << failures.min(6) } else { 0 }));
            }
        }
    }
}

/// Tries again for a while what the kernel has no room for: what the keeper holds is not given up for a moment's shortage.
fn patiently<T>(mut call: impl FnMut() -> OsResult<T>) -> OsResult<T> {
    let patience = Deadline::after(Duration::from_secs(10));
    loop {
        match call() {
            Err(error) if !patience.passed() && (error.is_out_of_room() || error.is_to_be_repeated()) => {
                std::thread::sleep(Duration::from_millis(20));
            }
            done => return done,
        }
    }
}

fn prepare(place: &Place, options: &ServeOptions) -> Result<Held, ServeError> {
    // What a broker may have, its keeper may be asked to hold.
    child::raise_descriptor_limit();
    child::survive_file_limit();
    let memory = process::total_memory();
    let memory = if options.memory == 0 { memory } else { options.memory.min(memory) };
    // Before the first fork, so that keeper and brokers have the same folder.
    let folder = Folder::mount(memory).or_else(|_| Folder::shared_memory()).ok();
    let incarnation = crate::id_base();
    let (table, words) = table::create(incarnation).map_err(why)?;
    let roll = Registry::open(place, incarnation).map_err(why)?;
    let mut listeners = BTreeMap::new();
    listeners.insert(crate::broker::MAIN_ENDPOINT, place.listen().map_err(why)?);
    let journal = crate::journal::Journal::open(&place.journal)
        .map_err(|error| ServeError(format!("the journal {} cannot be opened: {error}", place.journal.display())))?;
    Ok(Held {
        listeners,
        segments: BTreeMap::new(),
        doors: BTreeMap::new(),
        journal,
        table,
        words,
        incarnation,
        detached: options.detach,
        folder,
        roll,
    })
}

enum End {
    Told,
    Broker(Ended),
}

/// Takes in what the broker sends, until it is gone or everything is to end.
fn watch(held: &mut Held, post: OwnedFd, signals: &OwnedFd, broker: i32, ready: &mut Option<OwnedFd>) -> OsResult<End> {
    let epoll = patiently(|| {
        let epoll = Epoll::new()?;
        epoll.add(signals, 0, false)?;
        epoll.add(&post, 1, false)?;
        Ok(epoll)
    })?;
    let mut post_open = true;
    loop {
        let events = epoll.wait(Deadline::after(Duration::from_secs(3600)))?;
        for event in events {
            match event.token {
                0 => {
                    while let Some(signal) = next_signal(signals) {
                        if signal != SIGCHLD {
                            stop(broker)?;
                            return Ok(End::Told);
                        }
                    }
                }
                _ if post_open => post_open = take_in(held, &post, ready)?,
                _ => {}
            }
        }
        if !post_open {
            epoll.remove(&post).ok();
        }
        if let Some(ended) = child::ended(broker, false)? {
            // What it sent last may be waiting still.
            take_in(held, &post, ready)?;
            return Ok(End::Broker(ended));
        }
    }
}

/// Everything that waits in the post; false when the other end is closed and nothing is left.
fn take_in(held: &mut Held, post: &OwnedFd, ready: &mut Option<OwnedFd>) -> OsResult<bool> {
    while let Some(letter) = post::read(post)? {
        match letter {
            Letter::End => return Ok(false),
            Letter::Segment(id, fd) => drop(held.segments.insert(id, fd)),
            Letter::Listener(id, fd) => drop(held.listeners.insert(id, fd)),
            Letter::Journal(fd) => held.journal = File::from(fd),
            Letter::NoSegment(id) => drop((held.segments.remove(&id), held.doors.remove(&id))),
            Letter::Door(file, fd) => held.doors.entry(file).or_default().push(fd),
            Letter::NoDoors(file) => drop(held.doors.remove(&file)),
            Letter::NoListener(id) => drop(held.listeners.remove(&id)),
            Letter::Ready => {
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

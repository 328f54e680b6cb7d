//! The broker process: one thread and one epoll set around the state machine.
//!
//! Events come from sockets, pidfds and the clock. Effects go to sockets, the keeper, the journal and the liveness
//! table, in the order in which the broker gave them. Each round handles at most one message of each connection, so a
//! flood on one connection delays the others only by that.

mod deaths;
mod descriptors;
mod doing;
mod doors;
mod intake;
mod items;
mod log;
mod nodes;
mod site;
mod start;

use std::collections::{BTreeMap, HashMap};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use crossdock_layout::MemberId;
use crossdock_os::cgroup::Cgroup;
use crossdock_os::event::{Epoll, next_signal};
use crossdock_os::{Deadline, Mapping, OsResult, process};

use crate::ServeOptions;
use crate::broker::{Broker, Event};
use crate::journal::Journal;
use crate::keeper::{Held, Place, Post, Registry};
pub(crate) use site::JOIN;

/// Exit code: the daemon cannot work here, and another attempt would end in the same way.
pub(crate) const CANNOT_START: i32 = 2;
/// Exit code: the broker was told to end, and the keeper decides what follows.
const TOLD: i32 = 3;

/// The upper byte of a number in the epoll set, which says what the number stands for.
const LISTENER: u64 = 1 << 56;
const LINK: u64 = 2 << 56;
const PROCESS: u64 = 3 << 56;
const SIGNALS: u64 = 4 << 56;
const COPIES: u64 = 6 << 56;
const GATE: u64 = 7 << 56;
const SITE: u64 = 8 << 56;
const NODES: u64 = 9 << 56;
const KIND: u64 = 0xff << 56;

/// The most connections that one round takes from a listening socket.
const ACCEPTS: usize = 64;
/// The age up to which a figure for free memory is used.
const FREE_AGE: Duration = Duration::from_millis(20);
/// The age up to which the list of a task's memory limits is used.
const LIMITS_AGE: Duration = Duration::from_secs(1);

struct Link {
    socket: OwnedFd,
    /// The process that connected, as the kernel says; 0 if it is not visible from here.
    process: u32,
    /// Its memory cgroup at that time.
    cgroup: Option<(Instant, Cgroup)>,
}

struct Host<'a> {
    options: &'a ServeOptions,
    /// The liveness table: the descriptor for members, and the mapping for writing.
    table: OwnedFd,
    words: Mapping,
    post: Post,
    epoll: Epoll,
    journal: Journal,
    broker: Broker,
    listeners: BTreeMap<u64, OwnedFd>,
    segments: HashMap<u64, OwnedFd>,
    files: items::Files,
    links: HashMap<u64, Link>,
    roll: Registry,
    looks: deaths::Looks,
    /// Pidfds of members, by their slots.
    processes: HashMap<u64, (MemberId, OwnedFd)>,
    next_link: u64,
    /// Given up for a moment to refuse a connection when no other descriptor is left.
    spare: Option<OwnedFd>,
    began: Instant,
    free_since: Option<Instant>,
    log: log::Log,
    journal_fails: bool,
    journal_retry: Instant,
    idle_since: Instant,
    membership: Option<site::Membership>,
}

/// Runs a broker over what the keeper holds. Gives the exit code.
pub(crate) fn run(options: &ServeOptions, place: &Place, held: Held, post: Post, keeper: i32) -> i32 {
    match start::start(options, place, held, post, keeper) {
        Ok((mut host, signals)) => match host.serve(&signals) {
            Ok(code) => code,
            Err(error) => {
                eprintln!("crossdock broker: {error}");
                1
            }
        },
        Err(why) => {
            eprintln!("crossdock broker: {why}");
            CANNOT_START
        }
    }
}

impl Host<'_> {
    fn now(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    fn serve(&mut self, signals: &OwnedFd) -> OsResult<i32> {
        loop {
            let events = self.epoll.wait(self.next_wake())?;
            if events.is_empty() {
                self.feed(Event::Tick);
            }
            for event in events {
                let id = event.token & !KIND;
                match event.token & KIND {
                    LISTENER => self.accept(id),
                    LINK => self.read(id),
                    PROCESS => self.process_died(id),
                    COPIES => self.copies_done(),
                    GATE => self.turn_away(),
                    SITE => self.site_news(),
                    NODES => self.node_news(),
                    SIGNALS if next_signal(signals).is_some() => {
                        self.leave_site();
                        return Ok(TOLD);
                    }
                    _ => {}
                }
            }
            self.look_for_deaths();
            self.compact_if_wanted();
            if self.is_idle() {
                return Ok(0);
            }
        }
    }

    fn next_wake(&self) -> Deadline {
        let mut wait = Duration::from_secs(3600);
        if let Some(due) = self.broker.next_due() {
            wait = Duration::from_millis(due.saturating_sub(self.now()));
        }
        if let Some(due) = self.looks.due() {
            wait = wait.min(due.saturating_duration_since(Instant::now()));
        }
        if self.journal_fails {
            wait = wait.min(self.journal_retry.saturating_duration_since(Instant::now()));
        }
        if self.options.private && self.broker.connections() == 0 {
            wait = wait.min((self.idle_since + self.options.idle).saturating_duration_since(Instant::now()));
        }
        // One millisecond more, so that what is due at a whole millisecond is certainly due.
        Deadline::after(wait + Duration::from_millis(1))
    }

    /// A private daemon ends when no member has been connected for a while.
    fn is_idle(&mut self) -> bool {
        if self.broker.connections() > 0 || !self.broker.lasting().members.is_empty() {
            self.idle_since = Instant::now();
            return false;
        }
        self.options.private && self.idle_since.elapsed() >= self.options.idle
    }

    /// Gives the broker an event and carries out its effects.
    fn feed(&mut self, event: Event<'_>) {
        self.look_at_journal();
        let now = self.now();
        let effects = self.broker.handle(now, event);
        self.perform(effects, Vec::new());
    }

    /// Called before a request that takes memory: what the task's own memory cgroup has left, if that is less than the
    /// node has. A task in a container may not see its limit, and the kernel would kill it. Gives whether the figure is
    /// the task's.
    fn look_at_tasks_memory(&mut self, connection: u64) -> bool {
        let Some(link) = self.links.get_mut(&connection) else { return false };
        if link.cgroup.as_ref().is_none_or(|(since, _)| since.elapsed() >= LIMITS_AGE) {
            link.cgroup = Some((Instant::now(), Cgroup::of(link.process)));
        }
        let Some((_, cgroup)) = link.cgroup.as_ref().filter(|(_, cgroup)| cgroup.is_limited()) else { return false };
        let left = cgroup.left();
        let now = self.now();
        let effects = self.broker.handle(now, Event::Free(left.min(free_memory())));
        self.perform(effects, Vec::new());
        self.free_since = None;
        true
    }

    fn look_at_free_memory(&mut self) {
        if self.free_since.is_none_or(|since| since.elapsed() >= FREE_AGE) {
            self.free_since = Some(Instant::now());
            let free = free_memory();
            let now = self.now();
            // Deadlines are checked at every event, also at this one.
            let effects = self.broker.handle(now, Event::Free(free));
            self.perform(effects, Vec::new());
        }
    }

    /// Room for the records of an event is reserved before the event.
    fn look_at_journal(&mut self) {
        if self.journal_fails && Instant::now() < self.journal_retry {
            return;
        }
        let state = self.journal.make_room();
        if state.is_err() != self.journal_fails {
            if let Err(why) = &state {
                self.log.failure(format_args!("no room for the journal: {why}; requests that need it are refused"));
            }
            self.journal_fails = state.is_err();
            let now = self.now();
            let effects = self.broker.handle(now, Event::Journal(state));
            self.perform(effects, Vec::new());
        }
        self.journal_retry = Instant::now() + Duration::from_millis(100);
    }

    pub(super) fn compact_if_wanted(&mut self) {
        if !self.journal.wants_compacting() {
            return;
        }
        match self.journal.compact(self.broker.lasting()) {
            Ok(copy) => {
                if let Err(error) = self.post.hold_journal(std::os::fd::AsFd::as_fd(&copy)) {
                    self.log.failure(format_args!("the keeper cannot be told of the new journal: {error}"));
                    std::process::abort();
                }
            }
            Err(error) => self.log.failure(format_args!("the journal could not be compacted: {error}")),
        }
    }
}

/// The bytes of memory that the node has left for segments.
fn free_memory() -> u64 {
    let available = process::available_memory();
    // The last part is left to the node's other programs.
    if available == 0 { u64::MAX } else { available.saturating_sub(available / 64 + (32 << 20)) }
}

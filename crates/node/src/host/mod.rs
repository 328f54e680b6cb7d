//! The broker process: one thread with one epoll set, which runs the state machine.
//!
//! Events come from sockets, pidfds and the clock. Effects go to sockets, the keeper, the journal and the liveness
//! table, in the order that the broker gave. Each round of its loop reads at most one message of each connection, so
//! that many messages of one connection do not delay the others.

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

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use crossdock_layout::MemberId;
use crossdock_os::cgroup::Cgroup;
use crossdock_os::event::{Epoll, next_signal};
use crossdock_os::{Deadline, Mapping, OsResult, process};

use crate::ServeOptions;
use crate::broker::{Broker, Event};
use crate::journal::Journal;
use crate::keeper::{BrokerInheritance, DaemonFiles, KeeperSocket, Registry};
pub(crate) use site::JOIN;

/// An exit code: the broker could not start. If this broker is the daemon's first one, the daemon ends.
pub(crate) const CANNOT_START: i32 = 2;
/// An exit code: the broker ended because it got SIGTERM. The keeper decides what follows.
const STOPPED: i32 = 3;

/// Each descriptor in the epoll set has a number. These are the values of the number's upper byte. They say what the
/// rest of the number identifies.
const LISTENER: u64 = 1 << 56;
const LINK: u64 = 2 << 56;
const PROCESS: u64 = 3 << 56;
const SIGNALS: u64 = 4 << 56;
const COPIES: u64 = 6 << 56;
const GATE: u64 = 7 << 56;
const SITE: u64 = 8 << 56;
const NODES: u64 = 9 << 56;
const KIND: u64 = 0xff << 56;

/// The maximum number of connections that one round accepts from a listening socket.
const ACCEPTS: usize = 64;
/// How old the measured amount of free memory may be when it is used.
const FREE_AGE: Duration = Duration::from_millis(20);
/// How old the list of a task's memory limits may be when it is used.
const LIMITS_AGE: Duration = Duration::from_secs(1);

struct Link {
    socket: OwnedFd,
    /// The id of the process that connected, as the kernel reports it; 0 if the process is not visible in the daemon's
    /// namespace.
    process: u32,
    /// The memory cgroup of the process, and when it was read.
    cgroup: Option<(Instant, Cgroup)>,
}

struct Host<'a> {
    options: &'a ServeOptions,
    place: &'a DaemonFiles,
    /// The liveness table: the descriptor that members get, and the mapping through which this process writes.
    table: OwnedFd,
    words: Mapping,
    post: KeeperSocket,
    epoll: Epoll,
    journal: Journal,
    broker: Broker,
    listeners: BTreeMap<u64, OwnedFd>,
    /// The endpoints whose listening sockets are not in the epoll set yet, and when to try again to add them.
    unwatched: BTreeSet<u64>,
    watch_retry: Instant,
    segments: HashMap<u64, OwnedFd>,
    files: items::ItemFiles,
    links: HashMap<u64, Link>,
    /// The connections that this process has closed, and whose end it has not yet reported to the broker.
    hung_up: VecDeque<u64>,
    roll: Registry,
    /// The connection that was accepted just now, and a pidfd of its process.
    newcomer: Option<(u64, OwnedFd)>,
    looks: deaths::DeathChecks,
    /// The members whose processes this process watches, each with the process's pidfd. The key is the member's slot.
    processes: HashMap<u64, (MemberId, OwnedFd)>,
    next_link: u64,
    /// A spare descriptor. If the process has no descriptor left, this one is closed for a moment, to refuse a
    /// connection or to send an answer.
    spare: Option<OwnedFd>,
    began: Instant,
    free_since: Option<Instant>,
    log: log::Log,
    journal_fails: bool,
    journal_retry: Instant,
    /// After a failure, the journal is not compacted before this time.
    compact_retry: Instant,
    idle_since: Instant,
    membership: Option<site::Membership>,
}

/// Runs a broker with the descriptors that it inherits from the keeper. Returns the exit code of the broker's process.
pub(crate) fn run(
    options: &ServeOptions,
    place: &DaemonFiles,
    held: BrokerInheritance,
    post: KeeperSocket,
    keeper: i32,
) -> i32 {
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
                    GATE => self.refuse_waiting(),
                    SITE => self.site_news(),
                    NODES => self.node_news(),
                    SIGNALS if next_signal(signals).is_some() => {
                        self.leave_site();
                        return Ok(STOPPED);
                    }
                    _ => {}
                }
            }
            self.look_for_deaths();
            self.watch_listeners_again();
            self.compact_if_wanted();
            if self.is_idle() {
                self.leave_site();
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
        if !self.unwatched.is_empty() {
            wait = wait.min(self.watch_retry.saturating_duration_since(Instant::now()));
        }
        if self.options.private && self.broker.connections() == 0 {
            wait = wait.min((self.idle_since + self.options.idle).saturating_duration_since(Instant::now()));
        }
        // The broker's clock counts whole milliseconds. One millisecond is added, so that the deadline has certainly
        // passed on this clock when the wait ends.
        Deadline::after(wait + Duration::from_millis(1))
    }

    /// Tells whether a private daemon has had no member for so long that it ends.
    fn is_idle(&mut self) -> bool {
        if !self.options.private {
            return false;
        }
        if self.broker.connections() > 0 || !self.broker.lasting().members.is_empty() {
            self.idle_since = Instant::now();
            return false;
        }
        self.idle_since.elapsed() >= self.options.idle
    }

    /// Gives an event to the broker and carries out its effects.
    fn feed(&mut self, event: Event<'_>) {
        self.look_at_journal();
        let now = self.now();
        let effects = self.broker.handle(now, event);
        self.perform(effects, Vec::new());
    }

    /// Is called before a request that takes memory. Finds out how much memory the task can still take: what its cgroup
    /// has left or what the node has left, whichever is less. Reports this amount to the broker. The daemon does this
    /// for the task, because a task in a container is perhaps unable to see its own limit, and the kernel would kill
    /// the task. Returns `false` if no cgroup of the task has a limit; then nothing is reported.
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
            // With this event, the broker also handles the deadlines that have passed.
            let effects = self.broker.handle(now, Event::Free(free));
            self.perform(effects, Vec::new());
        }
    }

    /// Reserves disk space for the records that the next event may write into the journal.
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
        if self.journal_fails {
            self.journal_retry = Instant::now() + Duration::from_millis(100);
        }
    }

    pub(super) fn compact_if_wanted(&mut self) {
        if !self.journal.wants_compacting() || Instant::now() < self.compact_retry {
            return;
        }
        if !self.place.are_ours() {
            // The files were removed while this daemon ran, and another daemon may have begun in their place. Its
            // journal has the name now.
            self.compact_retry = Instant::now() + Duration::from_secs(1);
            return;
        }
        match self.journal.compact(self.broker.lasting()) {
            Ok(copy) => {
                if let Err(error) = self.post.hold_journal(std::os::fd::AsFd::as_fd(&copy)) {
                    self.log.failure(format_args!("the keeper cannot be told of the new journal: {error}"));
                    std::process::abort();
                }
            }
            Err(error) => {
                self.log.failure(format_args!("the journal could not be compacted: {error}"));
                self.compact_retry = Instant::now() + Duration::from_millis(100);
            }
        }
    }
}

/// Tells how many bytes of the node's memory can be used for segments.
fn free_memory() -> u64 {
    let available = process::available_memory();
    // A small part of the memory is left for other programs of the node.
    if available == 0 { u64::MAX } else { available.saturating_sub(available / 64 + (32 << 20)) }
}

//! The keeper of an embedded catalog, which holds the catalog's state, serves clients and ends leases.

use std::io;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use crossdock_os::{Deadline, event};

use super::frame::{Framed, Stream};
use super::journal::Journal;
use super::local::Local;
use super::message::{self, Answer, PAGE_BYTES, Request, VERSION};
use super::watchers::{Watcher, Watchers};
use crate::store::{Change, Record, Store};
use crate::{CatalogError, CatalogResult, LEASE_MIN, Listing, Revision};

/// The maximum number of connections that the keeper serves at the same time.
const CONNECTIONS: usize = 4096;
/// The maximum number of connections whose clients have not completed their hello yet. Such a connection may come from
/// any program, because a certificate is checked during this time.
const GREETINGS: usize = 64;
/// How long a client may take to send its first message (the hello). Also how long it may take to send the rest of a
/// message whose first bytes have arrived.
const PATIENCE: Duration = Duration::from_secs(5);
/// A connection without calls is closed after this time. A client stops using such a connection earlier (`FRESH`).
const IDLE: Duration = Duration::from_secs(60);
/// How often the keeper sends a message to a watch for which nothing has changed.
pub(super) const HEARTBEAT: Duration = Duration::from_secs(1);
/// How often a waiting thread checks whether the keeper is ending.
const SLICE: Duration = Duration::from_millis(250);
/// The longest lease that the keeper grants.
const LEASE_MAX: Duration = Duration::from_secs(86_400);

/// The options of a keeper of the catalog.
#[derive(Clone, Debug)]
pub struct KeeperOptions {
    /// The folder of the journal. It must exist.
    pub folder: PathBuf,
    /// The time that is added to each lease after a restart of the keeper, so that the lease's holder can find the
    /// keeper.
    pub grace: Duration,
}

struct State {
    store: Store,
    journal: Journal,
}

pub(super) struct Shared {
    /// A read-write lock: one change may wake the threads of a thousand watches, which then all read the state at the
    /// same time.
    state: RwLock<State>,
    watchers: Arc<Watchers>,
    started: Instant,
    stopped: AtomicBool,
    connections: AtomicUsize,
    greetings: AtomicUsize,
}

/// A connection that the keeper counts until this value is dropped.
struct Counted {
    shared: Arc<Shared>,
    is_greeting: bool,
}

impl Counted {
    /// Counts a connection that has arrived. Fails with the reason if the keeper has too many connections.
    fn new(shared: &Arc<Shared>) -> CatalogResult<Self> {
        let others = shared.connections.fetch_add(1, Ordering::Relaxed);
        let greetings = shared.greetings.fetch_add(1, Ordering::Relaxed);
        let counted = Self { shared: Arc::clone(shared), is_greeting: true };
        if others >= CONNECTIONS || greetings >= GREETINGS {
            return Err(CatalogError::Full(format!(
                "it has {others} connections, {greetings} of them without a hello"
            )));
        }
        Ok(counted)
    }

    /// Notes that the client's hello is complete.
    fn greeted(&mut self) {
        if std::mem::take(&mut self.is_greeting) {
            self.shared.greetings.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.greeted();
        self.shared.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Serves a catalog until this value is dropped.
pub struct Keeper {
    shared: Arc<Shared>,
    expiry: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Makes a keeper from the records of the folder's journal. A new journal begins an empty catalog.
    ///
    /// # Errors
    /// The journal cannot be read or written, or it is damaged, or another keeper uses it.
    pub fn open(options: &KeeperOptions) -> io::Result<Self> {
        let (mut journal, records) = Journal::open(&options.folder)?;
        let mut store = Store::new();
        if records.is_empty() {
            // The first revision of a new catalog is the present time in microseconds. If the journal of an earlier
            // catalog in this folder was lost, all revisions of the earlier catalog are smaller. So a condition that
            // names a revision of the earlier catalog never holds by chance.
            let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let start = Record::Start { revision: since.as_micros() as u64, next_lease: since.as_micros() as u64 };
            let begun = journal.append(&start).and_then(|()| store.apply(&start, 0));
            begun.map_err(|error| io::Error::other(error.to_string()))?;
        }
        for record in &records {
            store.apply(record, 0).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
        }
        let revision = store.revision();
        store.compact(revision);
        store.keep_all(0, options.grace.as_millis() as u64);
        let shared = Arc::new(Shared {
            state: RwLock::new(State { store, journal }),
            watchers: Arc::default(),
            started: Instant::now(),
            stopped: AtomicBool::new(false),
            connections: AtomicUsize::new(0),
            greetings: AtomicUsize::new(0),
        });
        let own = Arc::clone(&shared);
        let expiry = thread::Builder::new().name("catalog-leases".into()).spawn(move || own.expire())?;
        Ok(Self { shared, expiry: Some(expiry) })
    }

    /// Makes a client for the keeper's own process. The client calls the keeper without a connection.
    #[must_use]
    pub fn local(&self) -> Local {
        Local(Arc::downgrade(&self.shared))
    }

    /// Serves one client until its connection ends. The call blocks.
    pub fn serve(&self, stream: Box<dyn Stream>) {
        match Counted::new(&self.shared) {
            Ok(counted) => self.shared.serve(stream, counted),
            Err(full) => drop(Framed::new(stream).send(&Answer::Failed(full).encode())),
        }
    }

    /// Accepts connections from `listener`, in plain text, until the returned value is dropped. Each connection is
    /// served by a thread of its own.
    ///
    /// # Errors
    /// The listener cannot be used, or no thread could be started.
    pub fn listen(&self, listener: TcpListener) -> io::Result<Listening> {
        listener.set_nonblocking(true)?;
        self.listen_to(move |by| {
            if !event::wait_readable(&listener, by).map_err(io::Error::other)? {
                return Ok(None);
            }
            let (mut stream, _) = listener.accept()?;
            Ok(Some(Box::new(move || {
                stream.set_nonblocking(false)?;
                stream.set_nodelay(true)?;
                stream.set_timeout(PATIENCE)?;
                Ok(Box::new(stream) as Box<dyn Stream>)
            })))
        })
    }

    /// Accepts connections from any source, until the returned value is dropped. `accept` waits for the next connection
    /// until its deadline. It returns a function that makes the connection's stream, for example by a TLS handshake;
    /// that function runs in the connection's own thread.
    ///
    /// # Errors
    /// The thread that listens could not be started.
    pub fn listen_to(
        &self,
        accept: impl Fn(Deadline) -> io::Result<Option<AcceptStream>> + Send + 'static,
    ) -> io::Result<Listening> {
        let stop = Arc::new(AtomicBool::new(false));
        let (shared, ends) = (Arc::clone(&self.shared), Arc::clone(&stop));
        let accept = move || {
            while !ends.load(Ordering::Relaxed) && !shared.stops() {
                let greet = match accept(Deadline::after(SLICE)) {
                    Ok(Some(greet)) => greet,
                    Ok(None) => continue,
                    Err(_) => {
                        // `accept` failed, most likely because the process has run out of descriptors. After a pause
                        // the loop tries again.
                        thread::sleep(Duration::from_millis(10));
                        continue;
                    }
                };
                // If there are too many connections, or if no thread can be started, the connection is dropped. Its
                // client connects again.
                let Ok(counted) = Counted::new(&shared) else { continue };
                let shared = Arc::clone(&shared);
                let serve = move || {
                    if let Ok(stream) = greet() {
                        shared.serve(stream, counted);
                    }
                };
                thread::Builder::new().name("catalog-client".into()).stack_size(512 << 10).spawn(serve).ok();
            }
        };
        let thread = thread::Builder::new().name("catalog-accept".into()).spawn(accept)?;
        Ok(Listening { stop, thread: Some(thread) })
    }
}

/// A function that makes the stream of a connection that has arrived.
pub type AcceptStream = Box<dyn FnOnce() -> io::Result<Box<dyn Stream>> + Send>;

impl Drop for Keeper {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Relaxed);
        self.shared.watchers.wake(|_| true);
        if let Some(expiry) = self.expiry.take() {
            expiry.thread().unpark();
            expiry.join().ok();
        }
        // Wait for all threads that use the journal, so that another keeper can open it afterwards.
        while Arc::strong_count(&self.shared) > 1 {
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A listener whose clients are served. Dropping this value ends the listening; existing connections continue.
pub struct Listening {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

impl Shared {
    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Makes a watcher, which is woken by each change of a key below `prefix`.
    pub(super) fn interest(&self, prefix: &str) -> Watcher {
        self.watchers.enter(prefix)
    }

    fn now(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    pub(super) fn stops(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Writes the change into the journal, applies it to the state, and wakes the watches whose prefix covers the
    /// change.
    fn apply(&self, state: &mut State, record: &Record) -> CatalogResult<()> {
        let before = state.store.revision();
        state.journal.append(record)?;
        state.store.apply(record, self.now())?;
        if state.journal.wants_compacting() {
            if let Err(error) = state.journal.compact(&state.store.snapshot()) {
                eprintln!("catalog: the journal could not be written anew, it goes on growing: {error}");
            }
        }
        if state.store.revision() > before {
            self.watchers.wake(|prefix| state.store.concerns(prefix, before));
        }
        Ok(())
    }

    /// Runs the thread that ends leases whose holders did not renew them in time.
    fn expire(&self) {
        let mut reported = None;
        while !self.stops() {
            let wait = match self.end_leases() {
                Ok(wait) => {
                    reported = None;
                    wait
                }
                Err(why) => {
                    // Most likely the disk is full. The attempts go on until it has room, and the reason is printed
                    // only once.
                    if reported.as_ref() != Some(&why) {
                        eprintln!("catalog: leases whose time is over cannot be ended: {why}");
                        reported = Some(why);
                    }
                    SLICE
                }
            };
            thread::park_timeout(wait);
        }
    }

    /// Ends all leases whose time is over. Gives the time until this must be done again.
    fn end_leases(&self) -> CatalogResult<Duration> {
        let now = self.now();
        let mut state = self.write();
        while let Some(lease) = state.store.expired(now) {
            let ended = state.store.plan_end(lease)?;
            self.apply(&mut state, &ended)?;
        }
        let wait = state.store.next_due().map_or(SLICE, |due| Duration::from_millis(due.saturating_sub(now)));
        // A lease that is granted during this time cannot end before this time is over, because this time is at most
        // `SLICE`, and each lease lasts longer.
        Ok(wait.clamp(Duration::from_millis(5), SLICE))
    }

    fn serve(&self, stream: Box<dyn Stream>, mut counted: Counted) {
        // An error, for example after a bad message, ends only the connection of this client. So the error is ignored.
        self.converse(&mut Framed::new(stream), &mut counted).ok();
    }

    fn converse(&self, framed: &mut Framed, counted: &mut Counted) -> io::Result<()> {
        let Some(hello) = self.next_request(framed, PATIENCE)? else { return Ok(()) };
        match hello {
            Ok(Request::Hello { version: VERSION }) => framed.send(&Answer::Done.encode())?,
            Ok(Request::Hello { version }) => {
                let text =
                    format!("the client speaks version {version}, the keeper {VERSION}; use one build of crossdock");
                return framed.send(&Answer::Failed(CatalogError::Invalid(text)).encode());
            }
            Ok(_) | Err(_) => return Ok(()),
        }
        counted.greeted();
        while let Some(request) = self.next_request(framed, IDLE)? {
            let answer = match request {
                Ok(Request::Hello { .. }) => return Ok(()),
                Ok(Request::Watch { prefix, from }) => return self.tell(framed, &prefix, from),
                Ok(Request::List { prefix }) => {
                    self.send_list(framed, &prefix)?;
                    continue;
                }
                Ok(request) => self.answer(request).unwrap_or_else(Answer::Failed),
                Err(error) => return framed.send(&Answer::Failed(error).encode()),
            };
            framed.send(&answer.encode())?;
        }
        Ok(())
    }

    /// Waits for the next request. If the request's bytes are wrong, the inner error says why. Returns `None` if the
    /// keeper stops, or if the client is silent for longer than `patience`.
    fn next_request(&self, framed: &mut Framed, patience: Duration) -> io::Result<Option<CatalogResult<Request>>> {
        let mut by = Deadline::after(patience);
        let mut begun = false;
        while !by.passed() && !self.stops() {
            if let Some(bytes) = framed.receive(by.at_most(SLICE))? {
                return Ok(Some(Request::decode(&bytes)));
            }
            if framed.has_part() && !begun {
                begun = true;
                by = Deadline::after(PATIENCE);
            }
        }
        Ok(None)
    }

    /// Serves a request that has one answer.
    pub(super) fn answer(&self, request: Request) -> CatalogResult<Answer> {
        let mut state = match request {
            Request::Get { key } => return Ok(Answer::Entry(self.read().store.get(&key)?)),
            _ => self.write(),
        };
        match request {
            Request::Commit(commit) => {
                let (done, record) = state.store.plan(&commit)?;
                if let Some(record) = record {
                    self.apply(&mut state, &record)?;
                }
                Ok(Answer::Committed(done))
            }
            Request::Grant { time_ms } => {
                let time = Duration::from_millis(time_ms).clamp(LEASE_MIN, LEASE_MAX);
                let (lease, record) = state.store.plan_grant(time.as_millis() as u64)?;
                self.apply(&mut state, &record)?;
                Ok(Answer::Granted(lease))
            }
            Request::KeepAlive { lease } => {
                state.store.keep_alive(lease, self.now())?;
                Ok(Answer::Done)
            }
            Request::Revoke { lease } => {
                let record = state.store.plan_end(lease)?;
                self.apply(&mut state, &record)?;
                Ok(Answer::Done)
            }
            Request::Hello { .. } | Request::Get { .. } | Request::List { .. } | Request::Watch { .. } => {
                Err(CatalogError::Broken("a request that is served elsewhere".into()))
            }
        }
    }

    pub(super) fn list(&self, prefix: &str) -> CatalogResult<Listing> {
        self.read().store.list(prefix)
    }

    fn send_list(&self, framed: &mut Framed, prefix: &str) -> io::Result<()> {
        let listing = match self.list(prefix) {
            Ok(listing) => listing,
            Err(error) => return framed.send(&Answer::Failed(error).encode()),
        };
        let revision = listing.revision;
        let size = |entry: &crate::Entry| entry.key.len() + entry.value.len() + 64;
        pages(listing.entries, size, |entries, more| framed.send(&Answer::Page { revision, more, entries }.encode()))
    }

    /// Waits for changes that concern a watch and have the revision `from` or a later one. The wait also ends at the
    /// deadline, and when the keeper stops. Gives the changes, and the revision up to which they are complete.
    pub(super) fn changes(
        &self,
        interest: &Watcher,
        mut from: Revision,
        by: Deadline,
    ) -> CatalogResult<(Vec<Arc<Change>>, Revision)> {
        let mut seen = None;
        loop {
            let (wakes, changes, upto) = {
                let state = self.read();
                let (wakes, upto) = (interest.wakes(), state.store.revision());
                if seen == Some(wakes) {
                    // No change up to `upto` concerned this watch, so the watch misses nothing, even if the store has
                    // forgotten changes meanwhile.
                    from = from.max(upto + 1);
                }
                (wakes, state.store.since(interest.prefix(), from)?, upto)
            };
            if !changes.is_empty() || by.passed() || self.stops() {
                return Ok((changes, upto));
            }
            // No change below the prefix, up to the present revision of the store, is left to report.
            from = from.max(upto + 1);
            seen = Some(wakes);
            interest.wait(wakes, by);
        }
    }

    /// Sends the changes of keys below `prefix` to a client that watches them, until the client's connection ends.
    fn tell(&self, framed: &mut Framed, prefix: &str, mut from: Revision) -> io::Result<()> {
        let interest = self.interest(prefix);
        loop {
            let (changes, upto) = match self.changes(&interest, from, Deadline::after(HEARTBEAT)) {
                Ok(changes) => changes,
                Err(error) => return framed.send(&Answer::Failed(error).encode()),
            };
            if self.stops() {
                return Ok(());
            }
            from = from.max(upto + 1);
            let size = |change: &Arc<Change>| change.encoded().len();
            pages(changes, size, |changes, more| framed.send(&message::encode_changes(upto, more, &changes)))?;
        }
    }
}

/// Sends `things` in several messages of bounded length. Sends one empty message if there are no things.
fn pages<T>(
    things: Vec<T>,
    size: impl Fn(&T) -> usize,
    mut send: impl FnMut(Vec<T>, bool) -> io::Result<()>,
) -> io::Result<()> {
    let (mut page, mut bytes) = (Vec::new(), 0);
    for thing in things {
        let more = size(&thing);
        if bytes + more > PAGE_BYTES {
            send(std::mem::take(&mut page), true)?;
            bytes = 0;
        }
        bytes += more;
        page.push(thing);
    }
    send(page, false)
}

//! When each registration began, and how long it took until each watcher reported it.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use crossdock_os::clock::now_ns;

/// The maximum number of registrations in one site.
const MOST: usize = 1 << 18;
/// How long the watchers may take until all of them have reported everything.
const LONGEST: Duration = Duration::from_secs(60);

/// Collects the watchers' reports. The registrations of a site are numbered from 0.
pub struct Board {
    begun: Vec<AtomicU64>,
    next: AtomicUsize,
    reports: AtomicUsize,
    /// The number of reports that the measuring thread waits for.
    wanted: AtomicUsize,
    measuring: Thread,
    watchers: Mutex<Vec<Delays>>,
}

/// For each report of one watcher: the number of the registration, and the delay in microseconds.
type Delays = Arc<Mutex<Vec<(usize, f64)>>>;

/// One watcher's access to the board, in which it reports the registrations that it sees.
pub struct Watcher {
    board: Arc<Board>,
    delays: Delays,
}

impl Board {
    /// Makes a board. The thread that calls this function becomes the measuring thread, which waits in `await_reports`.
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            begun: (0..MOST).map(|_| AtomicU64::new(0)).collect(),
            next: AtomicUsize::new(0),
            reports: AtomicUsize::new(0),
            wanted: AtomicUsize::new(usize::MAX),
            measuring: thread::current(),
            watchers: Mutex::default(),
        })
    }

    /// Adds a watcher, whose reports of registrations this board collects.
    pub fn watcher(self: &Arc<Self>) -> Watcher {
        let delays = Delays::default();
        self.watchers.lock().expect("no watcher panics").push(Arc::clone(&delays));
        Watcher { board: Arc::clone(self), delays }
    }

    /// Begins a registration, and gives its number.
    pub fn begin(&self) -> usize {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.begun[number].store(now_ns(), Ordering::SeqCst);
        number
    }

    /// Waits until each watcher has reported each registration.
    ///
    /// # Panics
    /// Panics if the watchers take too long.
    pub fn await_reports(&self) {
        let watchers = self.watchers.lock().expect("no watcher panics").len();
        let wanted = self.next.load(Ordering::SeqCst) * watchers;
        self.wanted.store(wanted, Ordering::SeqCst);
        let until = Instant::now() + LONGEST;
        loop {
            let reports = self.reports.load(Ordering::SeqCst);
            if reports >= wanted {
                return;
            }
            assert!(Instant::now() < until, "{watchers} watchers made {reports} of {wanted} reports");
            thread::park_timeout(Duration::from_millis(100));
        }
    }

    /// Takes the delays that the watchers have reported since the last call.
    pub fn take(&self) -> Vec<(usize, f64)> {
        let watchers = self.watchers.lock().expect("no watcher panics");
        watchers.iter().flat_map(|delays| std::mem::take(&mut *delays.lock().expect("no watcher panics"))).collect()
    }
}

impl Watcher {
    /// Notes the present time as the time at which the watcher saw the registration `number`.
    pub fn report(&self, number: usize) {
        let delay = now_ns().saturating_sub(self.board.begun[number].load(Ordering::SeqCst)) as f64 / 1e3;
        self.delays.lock().expect("no watcher panics").push((number, delay));
        let reports = self.board.reports.fetch_add(1, Ordering::SeqCst) + 1;
        if reports == self.board.wanted.load(Ordering::SeqCst) {
            self.board.measuring.unpark();
        }
    }
}

//! Passes on to the screen what the user is to see.
//!
//! A thread writes to the screen from the start of the first task on. The screen may be a stopped terminal or a full
//! pipe. Then only this thread waits, and the supervisor still notices what happens to the tasks. If too many lines of
//! tasks wait for the screen, further lines are dropped, and the screen later shows their number. The logs have all
//! lines.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crossdock_os::thread;

use super::Show;
use super::screen::Screen;

/// The largest number of updates that may wait when a line of a task comes. Further lines are dropped.
const WAITING: usize = 10_000;
/// How long [`View::finish`] waits until all that was said before is on the screen.
const FINISH: Duration = Duration::from_secs(1);

/// One change of the screen.
type Update = Box<dyn FnOnce(&Screen) + Send>;

/// What the user sees on the terminal. After [`View::begin`], only [`View::finish`] and [`View::end`] wait for the
/// screen.
pub struct View {
    screen: Arc<Screen>,
    queue: Arc<Queue>,
    /// True if a thread writes to the screen.
    has_thread: bool,
}

/// The updates that the thread has not made yet.
#[derive(Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    updates: VecDeque<Update>,
    /// The number of lines that were dropped since the thread took the last update.
    dropped: u64,
    /// True while the thread makes an update.
    busy: bool,
}

impl View {
    /// Makes a view for ranks with these names.
    pub fn new(show: Show, names: &[String]) -> Self {
        Self { screen: Arc::new(Screen::new(show, names)), queue: Arc::default(), has_thread: false }
    }

    /// Starts the thread that writes to the screen. If it cannot be started, the caller's thread goes on writing.
    pub fn begin(&mut self) {
        let (queue, screen) = (self.queue.clone(), self.screen.clone());
        self.has_thread = thread::start(move || queue.serve(&screen)).is_ok();
    }

    /// Shows a note about the run as a whole.
    pub fn note(&self, text: &str) {
        let text = text.to_owned();
        self.show(move |screen| screen.note(&text));
    }

    /// Shows an alarm. An alarm is printed even with `--show quiet`.
    pub fn alarm(&self, text: &str) {
        let text = text.to_owned();
        self.show(move |screen| screen.alarm(&text));
    }

    /// Shows that a rank has begun, and starts its clock.
    pub fn begun(&self, index: usize, name: &str, text: &str) {
        let (name, text) = (name.to_owned(), text.to_owned());
        self.show(move |screen| screen.begun(index, &name, &text));
    }

    /// Shows a bar in the rank's line, which says how far the rank is.
    pub fn progress(&self, index: usize, done: u64, of: u64) {
        self.show_if_there_is_room(move |screen| screen.progress(index, done, of));
    }

    /// Shows that a rank has ended, and stops its clock.
    pub fn ended(&self, index: usize, name: &str, text: &str, well: bool) {
        let (name, text) = (name.to_owned(), text.to_owned());
        self.show(move |screen| screen.ended(index, &name, &text, well));
    }

    /// Tells whether the view shows figures of the data that passes between the tasks.
    pub fn has_figures(&self) -> bool {
        self.screen.has_figures()
    }

    /// Shows the figures below the bars.
    pub fn figures(&self, text: String) {
        self.show_if_there_is_room(move |screen| screen.figures(text));
    }

    /// Shows a line that a rank wrote.
    pub fn line(&self, index: usize, name: &str, line: &str) {
        let (name, line) = (name.to_owned(), line.to_owned());
        if !self.show_if_there_is_room(move |screen| screen.line(index, &name, &line)) {
            self.queue.lock().dropped += 1;
        }
    }

    /// Ends the live picture: its lines are not updated any more. Waits up to a second until everything is on the screen.
    pub fn finish(&self) {
        self.show(Screen::finish);
        self.queue.await_idle(FINISH);
    }

    /// Waits until everything is on the screen, without a time limit. The caller must have cleaned up before.
    pub fn end(&self) {
        self.queue.await_idle(Duration::MAX);
    }

    fn show(&self, update: impl FnOnce(&Screen) + Send + 'static) {
        match self.has_thread {
            true => self.queue.add(Box::new(update)),
            false => update(&self.screen),
        }
    }

    /// Shows an update that may be dropped. Returns `false` if it was dropped.
    fn show_if_there_is_room(&self, update: impl FnOnce(&Screen) + Send + 'static) -> bool {
        let is_room = self.queue.lock().updates.len() < WAITING;
        if is_room {
            self.show(update);
        }
        is_room
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, update: Update) {
        self.lock().updates.push_back(update);
        self.changed.notify_all();
    }

    /// Makes the updates, one after another, until the process ends.
    fn serve(&self, screen: &Screen) {
        let mut waiting = self.lock();
        loop {
            let Some(update) = waiting.updates.pop_front() else {
                waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            waiting.busy = true;
            let dropped = std::mem::take(&mut waiting.dropped);
            drop(waiting);
            update(screen);
            if dropped > 0 {
                screen.note(&format!("{dropped} lines of tasks are not shown here; the logs have them"));
            }
            waiting = self.lock();
            waiting.busy = false;
            self.changed.notify_all();
        }
    }

    /// Waits until all updates are made, but not longer than `longest`.
    fn await_idle(&self, longest: Duration) {
        let is_busy = |waiting: &mut Waiting| waiting.busy || !waiting.updates.is_empty();
        drop(self.changed.wait_timeout_while(self.lock(), longest, is_busy));
    }
}

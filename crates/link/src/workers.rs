//! Threads for calls that wait: as many as are needed at once, up to a limit; idle ones end after a while.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Something to do.
pub type Job = Box<dyn FnOnce() + Send>;

/// An idle thread ends after this time.
const IDLE: Duration = Duration::from_secs(10);

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    idle: usize,
    threads: usize,
    stopping: bool,
}

/// The threads and what they have to do.
pub struct Workers {
    queue: Mutex<Queue>,
    changed: Condvar,
    most: usize,
}

impl Workers {
    /// At most so many threads; none is started yet.
    #[must_use]
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { queue: Mutex::default(), changed: Condvar::new(), most })
    }

    /// Has a thread do it at once; `false` if there is none left.
    pub fn run(self: &Arc<Self>, job: Job) -> bool {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.stopping {
            return false;
        }
        if queue.idle > queue.jobs.len() {
            queue.jobs.push_back(job);
            self.changed.notify_one();
            return true;
        }
        if queue.threads >= self.most {
            return false;
        }
        let workers = self.clone();
        let spawned = std::thread::Builder::new().name("crossdock-answer".into()).spawn(move || workers.work(job));
        queue.threads += usize::from(spawned.is_ok());
        spawned.is_ok()
    }

    fn work(&self, first: Job) {
        // However the job ends: a panic ends this thread, and must not be counted as a thread for ever.
        struct Gone<'a>(&'a Workers);
        impl Drop for Gone<'_> {
            fn drop(&mut self) {
                self.0.queue.lock().unwrap_or_else(PoisonError::into_inner).threads -= 1;
                self.0.changed.notify_all();
            }
        }
        let _gone = Gone(self);
        first();
        loop {
            let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
            queue.idle += 1;
            let waited = self.changed.wait_timeout_while(queue, IDLE, |q| q.jobs.is_empty() && !q.stopping);
            let (mut queue, _) = waited.unwrap_or_else(PoisonError::into_inner);
            queue.idle -= 1;
            let Some(job) = queue.jobs.pop_front() else { return };
            drop(queue);
            job();
        }
    }

    /// Takes no more jobs, and waits for those that were taken, but not for longer than `most`: a job has a deadline of
    /// its peer's choice.
    pub fn stop(&self, most: Duration) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.stopping = true;
        self.changed.notify_all();
        let _ = self.changed.wait_timeout_while(queue, most, |queue| queue.threads > 0);
    }
}

//! Threads for calls that wait. As many run as are needed at once, up to a limit; idle threads end after a while.

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

/// The threads and the jobs that wait for them.
pub struct Workers {
    queue: Mutex<Queue>,
    changed: Condvar,
    most: usize,
}

impl Workers {
    /// At most this many threads. None is started yet.
    #[must_use]
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { queue: Mutex::default(), changed: Condvar::new(), most })
    }

    /// Gives a job to a thread at once; `false` if no thread is free and no more may be started.
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
        // The counter goes down when the job ends, also by a panic, which ends the thread.
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

    /// Takes no more jobs, and waits for the jobs that run, but not longer than `most`, because the peer chose the
    /// job's deadline.
    pub fn stop(&self, most: Duration) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.stopping = true;
        self.changed.notify_all();
        let _ = self.changed.wait_timeout_while(queue, most, |queue| queue.threads > 0);
    }
}

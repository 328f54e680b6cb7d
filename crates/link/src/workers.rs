//! Threads for jobs that may wait. Each job runs on an idle thread or, if there is none, on a new thread. The number of
//! threads is limited. A thread that is idle for a while ends.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// A piece of work for a thread.
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

/// Threads, and the jobs that wait for a thread.
pub struct Workers {
    queue: Mutex<Queue>,
    changed: Condvar,
    most: usize,
}

impl Workers {
    /// Makes a pool of at most `most` threads. No thread is started yet.
    #[must_use]
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { queue: Mutex::default(), changed: Condvar::new(), most })
    }

    /// Gives a job to a free thread, or starts a thread for it. Returns `false` if no thread is free and no further
    /// thread may be started.
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
        // Decrements the number of threads when the thread ends, also after a panic of a job.
        struct ThreadCount<'a>(&'a Workers);
        impl Drop for ThreadCount<'_> {
            fn drop(&mut self) {
                self.0.queue.lock().unwrap_or_else(PoisonError::into_inner).threads -= 1;
                self.0.changed.notify_all();
            }
        }
        let _counted = ThreadCount(self);
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

    /// Takes no more jobs, and waits until the running jobs have ended. The wait lasts at most `most`, because a job
    /// may last until a deadline that a peer chose.
    pub fn stop(&self, most: Duration) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.stopping = true;
        self.changed.notify_all();
        let _ = self.changed.wait_timeout_while(queue, most, |queue| queue.threads > 0);
    }
}

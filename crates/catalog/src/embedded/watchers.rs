//! Wakes the threads that serve watches. A change wakes only the watches whose prefix it concerns.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use crossdock_os::{Deadline, futex};

/// All watches of a catalog, grouped by their prefixes. Watches of the same prefix share one counter of wakes.
#[derive(Default)]
pub(super) struct Watchers {
    counters: Mutex<BTreeMap<String, Arc<AtomicU32>>>,
}

/// One client's watch of the keys below `prefix`. [`Watchers::wake`] can wake it until it is dropped.
pub(super) struct Watcher {
    watchers: Arc<Watchers>,
    prefix: String,
    counter: Arc<AtomicU32>,
}

impl Watchers {
    pub fn enter(self: &Arc<Self>, prefix: &str) -> Watcher {
        let counter = Arc::clone(self.lock().entry(prefix.to_owned()).or_default());
        Watcher { watchers: Arc::clone(self), prefix: prefix.to_owned(), counter }
    }

    /// Wakes the watches for whose prefix `concerns` returns true.
    pub fn wake(&self, concerns: impl Fn(&str) -> bool) {
        for (_, counter) in self.lock().iter().filter(|(prefix, _)| concerns(prefix)) {
            counter.fetch_add(1, Ordering::Release);
            futex::wake_all(counter);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Arc<AtomicU32>>> {
        self.counters.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Watcher {
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Gives the number of wakes so far. A watch reads this number before it looks for changes, and passes the number
    /// to `wait`. So a change that comes between the look and the wait ends the wait.
    pub fn wakes(&self) -> u32 {
        self.counter.load(Ordering::Acquire)
    }

    /// Waits until there are more than `seen` wakes, or until the deadline. The call may also return earlier.
    pub fn wait(&self, seen: u32, by: Deadline) {
        futex::wait(&self.counter, seen, by);
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let mut counters = self.watchers.lock();
        // Only the map and this watch refer to the counter. No other watch can get the counter while the map is
        // locked, so the counter can be removed.
        if Arc::strong_count(&self.counter) == 2 {
            counters.remove(&self.prefix);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn only_the_watches_that_a_change_concerns_are_woken() {
        let watchers = Arc::new(Watchers::default());
        let [a, same, b] = ["a/", "a/", "b/"].map(|prefix| watchers.enter(prefix));
        let before = [&a, &same, &b].map(Watcher::wakes);
        watchers.wake(|prefix| "a/1".starts_with(prefix));
        assert_eq!([&a, &same, &b].map(Watcher::wakes), [before[0] + 1, before[1] + 1, before[2]]);
        // `wake` was called after `before` was read, so this wait ends at once.
        a.wait(before[0], Deadline::after(Duration::from_secs(3600)));
        b.wait(before[2], Deadline::after(Duration::from_millis(1)));
    }

    #[test]
    fn a_prefix_is_forgotten_with_its_last_watch() {
        let watchers = Arc::new(Watchers::default());
        let (one, other) = (watchers.enter("a/"), watchers.enter("a/"));
        drop(one);
        assert_eq!(watchers.lock().len(), 1);
        drop(other);
        assert!(watchers.lock().is_empty());
    }
}

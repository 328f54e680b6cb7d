//! Keeps one descriptor of a file for the whole process. All objects that read the file share this descriptor. The
//! descriptor stays open as long as one of these objects uses it.

use std::sync::{Arc, Mutex, Weak};

use crate::error::OsResult;
use crate::fork;

/// One value that all objects of a process share, for example a descriptor of a file below `/proc/self`. A forked child
/// needs a value of its own, because in the child `/proc/self` is another process.
pub(crate) struct WeakSingleton<T>(Mutex<Option<(u64, Weak<T>)>>);

impl<T> WeakSingleton<T> {
    pub const fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// Gives the shared value. If it does not exist, makes it with `open`. The caller gets a value of its own if
    /// another thread holds the lock. In a forked child that thread may not exist, so the function never waits for the
    /// lock.
    pub fn get(&self, open: impl FnOnce() -> OsResult<T>) -> OsResult<Arc<T>> {
        let Ok(mut known) = self.0.try_lock() else { return open().map(Arc::new) };
        let token = fork::token();
        let there = known.as_ref().filter(|(of, _)| *of == token).and_then(|(_, shared)| shared.upgrade());
        if let Some(there) = there {
            return Ok(there);
        }
        let fresh = Arc::new(open()?);
        *known = Some((token, Arc::downgrade(&fresh)));
        Ok(fresh)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_one_as_long_as_it_is_used() {
        static NUMBERS: WeakSingleton<u32> = WeakSingleton::new();
        let first = NUMBERS.get(|| Ok(1)).unwrap();
        assert_eq!(*NUMBERS.get(|| Ok(2)).unwrap(), 1);
        drop(first);
        assert_eq!(*NUMBERS.get(|| Ok(3)).unwrap(), 3);
    }
}

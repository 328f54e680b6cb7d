//! One descriptor per process for a file that many objects read. It stays open as long as one of them uses it.

use std::sync::{Arc, Mutex, Weak};

use crate::error::OsResult;
use crate::fork;

/// One value that all objects of a process share, for example a descriptor of a file below `/proc/self`. A forked child
/// needs a value of its own, because in the child `/proc/self` is another process.
pub(crate) struct PerProcess<T>(Mutex<Option<(u32, Weak<T>)>>);

impl<T> PerProcess<T> {
    pub const fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// The shared value, opened if there is none. If another thread is opening it, or was when this process was forked,
    /// the caller gets one of its own: a child must not wait for a thread that it does not have.
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
        static NUMBERS: PerProcess<u32> = PerProcess::new();
        let first = NUMBERS.get(|| Ok(1)).unwrap();
        assert_eq!(*NUMBERS.get(|| Ok(2)).unwrap(), 1);
        drop(first);
        assert_eq!(*NUMBERS.get(|| Ok(3)).unwrap(), 3);
    }
}

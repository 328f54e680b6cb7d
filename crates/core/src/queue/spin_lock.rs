//! A lock within one process, which is held for a few dozen instructions. One atomic exchange takes it, and one store
//! releases it.
//!
//! The guarded data are valid at every moment, so a panic under the lock does no harm. No thread sleeps while it
//! holds the lock. If the holder has lost its CPU, a thread that wants the lock yields its own CPU to the holder.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

pub(super) struct SpinLock<T> {
    locked: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: threads reach the value only through a `SpinLockGuard`, and only one guard exists at a time.
unsafe impl<T: Send> Sync for SpinLock<T> {}

pub(super) struct SpinLockGuard<'a, T>(&'a SpinLock<T>);

impl<T> SpinLock<T> {
    pub fn new(value: T) -> Self {
        Self { locked: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    #[inline]
    pub fn lock(&self) -> SpinLockGuard<'_, T> {
        if self.locked.swap(true, Acquire) {
            self.lock_contended();
        }
        SpinLockGuard(self)
    }

    #[cold]
    fn lock_contended(&self) {
        for turn in 0u64.. {
            if !self.locked.load(Relaxed) && !self.locked.swap(true, Acquire) {
                return;
            }
            if turn % 64 < 63 { std::hint::spin_loop() } else { std::thread::yield_now() }
        }
    }
}

impl<T> Deref for SpinLockGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: only one `SpinLockGuard` of a lock exists at a time, so no other thread changes the value.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for SpinLockGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: only one `SpinLockGuard` of a lock exists at a time, and it is borrowed mutably.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for SpinLockGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.0.locked.store(false, Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    #[test]
    fn threads_take_turns() {
        let spin_lock = super::SpinLock::new(0u32);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        *spin_lock.lock() += 1;
                    }
                });
            }
        });
        assert_eq!(*spin_lock.lock(), 40_000);
    }
}

//! A lock within one process, which is held for a few dozen instructions. One atomic exchange takes it, and one store
//! releases it.
//!
//! The guarded data are valid at every moment, so a panic under the lock does no harm. No thread sleeps while it holds
//! the lock. If the holder has lost its CPU, a thread that wants the lock lets it run (`yield`).

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

pub(super) struct Latch<T> {
    held: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached through `Held` alone, of which there is one at a time.
unsafe impl<T: Send> Sync for Latch<T> {}

pub(super) struct Held<'a, T>(&'a Latch<T>);

impl<T> Latch<T> {
    pub fn new(value: T) -> Self {
        Self { held: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    #[inline]
    pub fn hold(&self) -> Held<'_, T> {
        if self.held.swap(true, Acquire) {
            self.hold_after_others();
        }
        Held(self)
    }

    #[cold]
    fn hold_after_others(&self) {
        for turn in 0u64.. {
            if !self.held.load(Relaxed) && !self.held.swap(true, Acquire) {
                return;
            }
            if turn % 64 < 63 { std::hint::spin_loop() } else { std::thread::yield_now() }
        }
    }
}

impl<T> Deref for Held<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: this is the one `Held` of the latch.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Held<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and it is borrowed mutably.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Held<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.0.held.store(false, Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    #[test]
    fn threads_take_turns() {
        let latch = super::Latch::new(0u32);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        *latch.hold() += 1;
                    }
                });
            }
        });
        assert_eq!(*latch.hold(), 40_000);
    }
}

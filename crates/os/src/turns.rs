//! Makes the threads that write to one stream take turns: only one thread writes at a time. A thread waits for its turn
//! until its deadline at most. A mutex of the standard library cannot do this, because a thread waits for such a mutex
//! without a limit.

use crate::Deadline;
use std::sync::{Condvar, Mutex, PoisonError};

/// Lets only one thread at a time write to a stream.
#[derive(Debug, Default)]
pub struct Turns {
    is_taken: Mutex<bool>,
    given_back: Condvar,
}

/// The turn of the thread that took it. Dropping this value gives the turn back.
#[derive(Debug)]
pub struct Turn<'a>(&'a Turns);

impl Turns {
    /// Waits for the turn. Gives `None` if another thread still has it at the deadline.
    pub fn take(&self, deadline: Deadline) -> Option<Turn<'_>> {
        let mut is_taken = self.is_taken.lock().unwrap_or_else(PoisonError::into_inner);
        while *is_taken {
            if deadline.passed() {
                return None;
            }
            is_taken =
                self.given_back.wait_timeout(is_taken, deadline.left()).unwrap_or_else(PoisonError::into_inner).0;
        }
        *is_taken = true;
        Some(Turn(self))
    }

    /// Takes the turn if no thread has it.
    pub fn try_take(&self) -> Option<Turn<'_>> {
        let mut is_taken = self.is_taken.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::replace(&mut *is_taken, true) { None } else { Some(Turn(self)) }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.0.is_taken.lock().unwrap_or_else(PoisonError::into_inner) = false;
        self.0.given_back.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn a_thread_waits_for_its_turn_until_its_deadline_and_gets_it_when_it_is_given_back() {
        let turns = Turns::default();
        let turn = turns.try_take().unwrap();
        assert!(turns.try_take().is_none());
        let began = Instant::now();
        assert!(turns.take(Deadline::after(Duration::from_millis(20))).is_none());
        assert!(began.elapsed() >= Duration::from_millis(20));
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| turns.take(Deadline::after(Duration::from_secs(20))).is_some());
            drop(turn);
            assert!(waits.join().unwrap());
        });
        assert!(turns.try_take().is_some());
    }
}

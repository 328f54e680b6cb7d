//! Ends a run at the first signal while the run is still being prepared.
//!
//! To prepare a run may take minutes, for example when an engine starts slowly, and the supervisor reads no message
//! of the front meanwhile. So a thread reads the front's messages until the run is prepared. If a message says that a
//! signal came, the thread ends the supervisor at once. The front, which outlives the supervisor, then kills the
//! processes that the supervisor has started, and removes what it has made, as after a supervisor that was killed.

use std::os::fd::{AsFd, OwnedFd};
use std::thread::JoinHandle;

use crossdock_os::{event, exit, pipe, thread};

use crate::run::{folder, rank};

/// The thread that listens while the run is being prepared.
pub(super) struct EarlyListener {
    stop: OwnedFd,
    thread: JoinHandle<Vec<u8>>,
}

impl EarlyListener {
    /// Starts the thread. Gives `None` if the kernel lacks something for it; then a signal ends the run as soon as the
    /// run is prepared.
    pub fn start() -> Option<Self> {
        let (stopped, stop) = pipe::pipe().ok()?;
        let thread = thread::start(move || listen(&stopped)).ok()?;
        Some(Self { stop, thread })
    }

    /// Ends the thread. Gives the bytes that it has read and that are not a whole message yet.
    pub fn end(self) -> Vec<u8> {
        drop(self.stop);
        self.thread.join().unwrap_or_default()
    }
}

/// Reads messages until the other end of the pipe `stopped` is closed, or the front is dead.
fn listen(stopped: &OwnedFd) -> Vec<u8> {
    let stdin = std::io::stdin();
    let mut heard = Vec::new();
    loop {
        let Ok(ready) = event::wait_any(&[stopped.as_fd(), stdin.as_fd()], None) else { return heard };
        if ready[0] {
            return heard;
        }
        if !ready[1] {
            continue; // A signal has interrupted the wait.
        }
        let mut buffer = [0; 256];
        match pipe::read(stdin.as_fd(), &mut buffer) {
            Ok(Some(more)) if more > 0 => heard.extend_from_slice(&buffer[..more]),
            // The front is dead. The supervisor finds this out when the run is prepared, and then cleans up itself.
            _ => return heard,
        }
        if let Some(signal) = next_signal(&mut heard) {
            folder::complain(&format!("stopped by {} before the first task began", rank::signal_name(signal)));
            exit::now(128 + signal);
        }
    }
}

/// Takes whole messages off the front of `heard`, up to the first one that says that a signal came. Gives the signal's
/// number. What follows it, and a message that is not whole yet, stay.
pub(super) fn next_signal(heard: &mut Vec<u8>) -> Option<i32> {
    while let Some(end) = heard.iter().position(|byte| *byte == b'\n') {
        let line: Vec<u8> = heard.drain(..=end).collect();
        let word = String::from_utf8_lossy(&line);
        if let Some(signal) = word.strip_prefix("signal ").and_then(|number| number.trim().parse().ok()) {
            return Some(signal);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_taken_whole_and_one_at_a_time() {
        let mut heard = b"rubbish\nsignal 2\nsignal 15\nsig".to_vec();
        assert_eq!(next_signal(&mut heard), Some(2));
        assert_eq!(next_signal(&mut heard), Some(15));
        assert_eq!(next_signal(&mut heard), None);
        heard.extend_from_slice(b"nal 1\n");
        assert_eq!(next_signal(&mut heard), Some(1));
        assert!(heard.is_empty());
    }
}

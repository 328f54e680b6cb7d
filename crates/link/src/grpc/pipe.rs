//! A pipe passes pieces of bytes between a thread, which may wait, and a task of the event loop, which must not. It
//! holds about [`ROOM`] bytes. While it is full, the writing side waits.

use crate::{Error, Result};
use bytes::{Buf, Bytes};
use crossdock_layout::Status;
use crossdock_os::Deadline;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// A pipe takes no further piece while it holds this many bytes.
const ROOM: usize = 1 << 20;

/// How a stream of bytes has ended.
#[derive(Clone, Debug)]
pub enum End {
    /// The stream ended properly: the writing side has said that no more pieces follow, or the reading side wants no
    /// more.
    InOrder,
    /// The connection broke.
    Broken(Error),
}

#[derive(Default)]
struct State {
    pieces: VecDeque<Bytes>,
    held: usize,
    end: Option<End>,
    /// The asynchronous tasks that wait for a change of the pipe.
    wakers: Vec<Waker>,
}

/// A queue of byte buffers in memory, with one writing and one reading side.
#[derive(Default)]
pub struct Pipe {
    state: Mutex<State>,
    changed: Condvar,
}

impl Pipe {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, mut state: MutexGuard<'_, State>) {
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        self.changed.notify_all();
        for waker in wakers {
            waker.wake();
        }
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>, deadline: Deadline) -> MutexGuard<'a, State> {
        self.changed.wait_timeout(state, deadline.left()).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Puts a piece in. The call waits until the pipe has room. It returns `None` if the pipe has no room by the
    /// deadline; then the piece was not put in.
    ///
    /// # Errors
    /// The stream has ended.
    pub fn put(&self, piece: Bytes, deadline: Deadline) -> Result<Option<()>> {
        let mut state = self.lock();
        loop {
            match &state.end {
                Some(End::Broken(error)) => return Err(error.clone()),
                Some(End::InOrder) => {
                    return Err(Error::new(Status::Disconnected, "write", "the stream has ended"));
                }
                None if state.held < ROOM => {
                    state.held += piece.len();
                    state.pieces.push_back(piece);
                    self.tell(state);
                    return Ok(Some(()));
                }
                None if deadline.passed() => return Ok(None),
                None => state = self.wait(state, deadline),
            }
        }
    }

    /// Takes at least one byte into `buffer`, which is not empty. The call waits until there is a byte. 0 means that
    /// the stream has ended properly; `None` means that the deadline passed.
    ///
    /// # Errors
    /// The connection broke. All bytes that had arrived before were taken.
    pub fn take(&self, buffer: &mut [u8], deadline: Deadline) -> Result<Option<usize>> {
        let mut state = self.lock();
        loop {
            if !state.pieces.is_empty() {
                let mut filled = 0;
                while filled < buffer.len() {
                    let Some(piece) = state.pieces.front_mut() else { break };
                    let taken = piece.len().min(buffer.len() - filled);
                    piece.copy_to_slice(&mut buffer[filled..filled + taken]);
                    filled += taken;
                    if piece.is_empty() {
                        state.pieces.pop_front();
                    }
                }
                state.held -= filled;
                self.tell(state);
                return Ok(Some(filled));
            }
            match &state.end {
                Some(End::Broken(error)) => return Err(error.clone()),
                Some(End::InOrder) => return Ok(Some(0)),
                None if deadline.passed() => return Ok(None),
                None => state = self.wait(state, deadline),
            }
        }
    }

    fn poll<T>(&self, context: &Context<'_>, ready: impl FnOnce(&mut State) -> Option<T>) -> Poll<T> {
        let mut state = self.lock();
        if let Some(done) = ready(&mut state) {
            self.tell(state);
            return Poll::Ready(done);
        }
        if !state.wakers.iter().any(|waker| waker.will_wake(context.waker())) {
            state.wakers.push(context.waker().clone());
        }
        Poll::Pending
    }

    /// Puts a piece in, for an asynchronous task. The piece is dropped if the stream has ended.
    pub async fn put_async(&self, piece: Bytes) {
        let mut piece = Some(piece);
        std::future::poll_fn(|context| {
            self.poll(context, |state| {
                if state.end.is_none() && state.held >= ROOM {
                    return None;
                }
                let piece = piece.take().filter(|piece| state.end.is_none() && !piece.is_empty());
                if let Some(piece) = piece {
                    state.held += piece.len();
                    state.pieces.push_back(piece);
                }
                Some(())
            })
        })
        .await;
    }

    /// Takes the next piece, for an asynchronous task. `None` means that the stream has ended.
    pub fn poll_take(&self, context: &Context<'_>) -> Poll<Option<Bytes>> {
        self.poll(context, |state| match state.pieces.pop_front() {
            Some(piece) => {
                state.held -= piece.len();
                Some(Some(piece))
            }
            None => state.end.is_some().then_some(None),
        })
    }

    /// Waits, in an asynchronous task, until the stream has ended.
    pub async fn ended(&self) {
        std::future::poll_fn(|context| self.poll(context, |state| state.end.is_some().then_some(()))).await;
    }

    /// Ends the stream after the pieces that are in the pipe. If an end of the stream is noted already, that end stays.
    pub fn end(&self, end: End) {
        let mut state = self.lock();
        state.end.get_or_insert(end);
        self.tell(state);
    }

    /// Ends the stream and drops the pieces that are in the pipe, because no side takes them any more.
    pub fn abandon(&self, end: End) {
        let mut state = self.lock();
        state.pieces.clear();
        state.held = 0;
        state.end.get_or_insert(end);
        self.tell(state);
    }
}

#[cfg(test)]
mod tests {
    use super::{End, Pipe, ROOM};
    use bytes::Bytes;
    use crossdock_layout::Status;
    use crossdock_os::Deadline;
    use std::time::Duration;

    fn now() -> Deadline {
        Deadline::after(Duration::ZERO)
    }

    #[test]
    fn bytes_are_taken_in_order_and_before_the_end() {
        let pipe = Pipe::default();
        let mut buffer = [0; 4];
        assert_eq!(pipe.take(&mut buffer, now()).unwrap(), None);
        for piece in [&b"ab"[..], b"c", b"de"] {
            pipe.put(Bytes::from_static(piece), now()).unwrap().unwrap();
        }
        pipe.end(End::InOrder);
        assert_eq!(pipe.take(&mut buffer, now()).unwrap(), Some(4));
        assert_eq!(&buffer, b"abcd");
        assert_eq!(pipe.take(&mut buffer, now()).unwrap(), Some(1));
        assert_eq!(pipe.take(&mut buffer, now()).unwrap(), Some(0));
        assert_eq!(pipe.put(Bytes::from_static(b"f"), now()).unwrap_err().status, Status::Disconnected);
    }

    #[test]
    fn a_full_pipe_takes_no_more_until_bytes_were_taken() {
        let pipe = Pipe::default();
        pipe.put(Bytes::from(vec![0; ROOM]), now()).unwrap().unwrap();
        assert!(pipe.put(Bytes::from_static(b"x"), now()).unwrap().is_none());
        assert_eq!(pipe.take(&mut [0; 8], now()).unwrap(), Some(8));
        pipe.put(Bytes::from_static(b"x"), now()).unwrap().unwrap();
        pipe.abandon(End::InOrder);
        assert_eq!(pipe.take(&mut [0; 8], now()).unwrap(), Some(0));
    }
}

//! Ports: bounded channels that carry handles. Other Python threads run during every wait. A wait ends at its deadline,
//! when the peer dies, or on Ctrl-C.

use std::sync::Arc;
use std::time::Duration;

use crossdock_client::{End, Inline, Message as Sent, Pattern, Port as Inner, Result, postpone_healing};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};
use std::os::fd::AsRawFd;

use crate::errors::OrRaise;
use crate::handles::Handle;
use crate::iteration::Messages;
use crate::messages::Message;
use crate::objects;
use crate::open_ports::OpenPort;
use crate::session_state::SessionState;
use crate::sizes::count;
use crate::wait::{deadline, wait};

/// One end of a port. `Session.port` makes it. It is a context manager. Iterating over a consumer's end gives the
/// messages until the producer has closed its end.
#[pyclass(frozen, module = "crossdock")]
pub struct Port {
    port: Arc<OpenPort>,
    session: Arc<SessionState>,
    end: End,
    pattern: Pattern,
    capacity: u32,
}

impl Port {
    /// Makes the Python object for an end that was just opened.
    pub fn new(port: Arc<OpenPort>, session: Arc<SessionState>, end: End, pattern: Pattern, capacity: u32) -> Self {
        Self { port, session, end, pattern, capacity }
    }

    /// Tries the call once, without waiting. To be fast, the attempt reads no clock and does not let other Python
    /// threads run. If the call cannot succeed yet, the caller uses `wait`, which tries again. Healing regions after a
    /// death may take some seconds, so other threads run meanwhile.
    fn at_once<T>(
        &self,
        py: Python<'_>,
        timeout: Option<f64>,
        step: impl FnOnce(&Inner) -> Result<T>,
    ) -> PyResult<Option<T>> {
        deadline(py, timeout)?;
        let tried = self.port.with_open(|port| {
            let (done, due) = postpone_healing(|| step(port));
            Some((done.ok()?, due.then(|| port.clone())))
        });
        let Some((done, heals)) = tried else { return Ok(None) };
        if let Some(port) = heals {
            py.detach(|| port.heal());
        }
        Ok(Some(done))
    }

    /// Waits in short slices. Between two slices this thread does not use the port's end, so another thread can end the
    /// wait with `close`.
    fn wait<T: Send>(
        &self,
        py: Python<'_>,
        timeout: Option<f64>,
        step: impl Fn(&Inner, Option<Duration>) -> Result<T> + Send + Sync,
    ) -> PyResult<T> {
        let total = deadline(py, timeout)?;
        self.port.get(py)?;
        wait(py, total, |slice| step(&**self.port.open()?, Some(slice)))
    }
}

#[pymethods]
impl Port {
    /// The port's name.
    #[getter]
    fn name(&self) -> &str {
        &self.port.name
    }

    /// The end of the port: "producer" or "consumer".
    #[getter]
    fn end(&self) -> &str {
        self.end.word()
    }

    /// The pattern of the port: "one-to-one", "fan-out", "fan-in" or "work-queue".
    #[getter]
    fn pattern(&self) -> &str {
        self.pattern.word()
    }

    /// The number of messages that can be in flight.
    #[getter]
    fn capacity(&self) -> u32 {
        self.capacity
    }

    /// True if this process has closed the end.
    #[getter]
    fn closed(&self) -> bool {
        self.port.open().is_err()
    }

    /// Sends a message. `data` is an object of a region (Vector, Ndarray, String, Simple or an array of one of them), a
    /// Handle, or None.
    ///
    /// `tag` is a number that you choose, from 0 to 2**64-1. `inline` is up to 24 bytes that travel in the message
    /// itself. The data is not copied, so do not change the object until `reclaim` returns its handle. If the port is
    /// full, the call waits up to `timeout` seconds for room (None: 60; with 0 it raises NotYetError). TimedOutError
    /// names the consumer that has not released its messages. ClosedError and PeerDiedError mean that no consumer is
    /// left. After an error nothing was sent.
    #[pyo3(signature = (data=None, *, tag=0, inline=None, timeout=None))]
    fn send(
        &self,
        py: Python<'_>,
        data: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = count)] tag: u64,
        inline: Option<&[u8]>,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let (handle, bytes) = match data {
            Some(data) => objects::handle_of(data)?,
            None => (crossdock_client::Handle::NONE, 0),
        };
        let inline = Inline::new(inline.unwrap_or_default()).or_raise(py)?;
        let message = Sent { handle, tag, inline, position: 0 };
        if self.at_once(py, timeout, |port| port.send_sized(&message, bytes, Some(Duration::ZERO)))?.is_some() {
            return Ok(());
        }
        self.wait(py, timeout, |port, slice| port.send_sized(&message, bytes, slice))
    }

    /// For a producer: waits until the port has room for the next message. Returns a handle whose data no consumer
    /// reads any more, the oldest one first. Returns None if there is room but no handle to return, for example before
    /// the first message.
    ///
    /// The timeout and the errors are those of `send`.
    #[pyo3(signature = (*, timeout=None))]
    fn reclaim(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<Handle>> {
        let credit = match self.at_once(py, timeout, |port| port.reclaim(Some(Duration::ZERO)))? {
            Some(credit) => credit,
            None => self.wait(py, timeout, |port, slice| port.reclaim(slice))?,
        };
        Ok(credit.map(Into::into))
    }

    /// Returns the next message. The message belongs to this consumer until it is released.
    ///
    /// If there is no message, the call waits up to `timeout` seconds (None: 60; with 0 it raises NotYetError).
    /// TimedOutError names the producers. ClosedError means that all producers have closed their ends, and
    /// PeerDiedError that one of them died. Messages that they sent before are received first.
    #[pyo3(signature = (*, timeout=None))]
    pub(crate) fn receive(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Message> {
        let message = match self.at_once(py, timeout, |port| port.receive(Some(Duration::ZERO)))? {
            Some(message) => message,
            None => self.wait(py, timeout, |port, slice| port.receive(slice))?,
        };
        Ok(Message::new(self.port.clone(), message, self.session.clone()))
    }

    /// Releases a message: gives it back to the producer. It does the same as `message.release()`.
    fn release(&self, py: Python<'_>, message: &Message) -> PyResult<()> {
        message.release(py)
    }

    /// Does the same as `receive` in an event loop: other coroutines run while it waits.
    #[pyo3(signature = (*, timeout=None))]
    fn areceive<'py>(slf: &Bound<'py, Self>, timeout: Option<f64>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        deadline(py, timeout)?;
        py.import("crossdock._aio")?.getattr("receive")?.call1((slf, timeout))
    }

    /// Waits up to `timeout` seconds (None: 60) until a living peer is at the other end.
    #[pyo3(signature = (*, timeout=None))]
    fn wait_peer(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        self.wait(py, timeout, |port, slice| port.wait_peer(slice))
    }

    /// The descriptor for select and epoll. It belongs to the port, so do not read or close it. With asyncio, use
    /// `areceive`.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        Ok(self.port.get(py)?.descriptor().or_raise(py)?.as_raw_fd())
    }

    /// Makes the descriptor become readable at the next event. If the call returns True, the caller must not wait for
    /// the descriptor but look at the port now, because a message may have arrived already.
    fn _arm(&self, py: Python<'_>) -> PyResult<bool> {
        let port = self.port.get(py)?;
        py.detach(|| port.arm()).or_raise(py)
    }

    /// Undoes `_arm`: until the next `_arm`, the descriptor does not become readable.
    fn _disarm(&self, py: Python<'_>) -> PyResult<()> {
        self.port.get(py)?.disarm();
        Ok(())
    }

    /// Adds `bytes` to the port's counter of copied bytes. These are bytes that this end copied from or to memory
    /// outside of any region.
    fn note_copied(&self, py: Python<'_>, #[pyo3(from_py_with = count)] bytes: u64) -> PyResult<()> {
        self.port.get(py)?.note_copied(bytes);
        Ok(())
    }

    /// Counters of the whole port, summed over all members that have used it, as a dict: messages sent and received,
    /// bytes, and waits in nanoseconds.
    #[getter]
    fn statistics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let s = self.port.get(py)?.statistics();
        let all = PyDict::new(py);
        for (name, value) in [
            ("messages", s.messages),
            ("received", s.received),
            ("bytes_handed_over", s.bytes_handed_over),
            ("bytes_copied", s.bytes_copied),
            ("producer_wait_ns", s.producer_wait_ns),
            ("consumer_wait_ns", s.consumer_wait_ns),
            ("sleeps", s.sleeps),
            ("wakes", s.wakes),
            ("redelivered", s.redelivered),
            ("voided", s.voided),
            ("under_way", s.under_way),
        ] {
            all.set_item(name, value)?;
        }
        Ok(all)
    }

    /// Closes this end. The other end gets all messages that were sent, and then a ClosedError. Messages that this
    /// consumer did not release go to the next consumer. Closing twice does nothing.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.port.close());
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// Closes the end when a `with` block ends. If the block failed, the end is not closed, because peers must not
    /// think that all messages were sent. If the error ends the program, the peers learn that the program died.
    #[pyo3(signature = (kind, _value, _trace))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: Option<&Bound<'_, PyType>>,
        _value: Option<&Bound<'_, PyAny>>,
        _trace: Option<&Bound<'_, PyAny>>,
    ) {
        if kind.is_none() {
            self.close(py);
        }
    }

    /// Returns an iterator over the messages, for `for` and `async for`. The iteration ends when the producer has
    /// closed its end. `timeout` is how many seconds to wait for each message (None: 60). Iterating over the port
    /// object itself is the same as `messages(timeout=None)`. The errors are those of `receive`.
    #[pyo3(signature = (*, timeout=None))]
    fn messages(slf: Py<Self>, py: Python<'_>, timeout: Option<f64>) -> PyResult<Messages> {
        deadline(py, timeout)?;
        Ok(Messages { port: slf, timeout })
    }

    fn __iter__(slf: Py<Self>) -> Messages {
        Messages { port: slf, timeout: None }
    }

    fn __aiter__(slf: Py<Self>) -> Messages {
        Messages { port: slf, timeout: None }
    }

    fn __repr__(&self) -> String {
        format!(
            "<crossdock.Port '{}': {}, {}, capacity {}{}>",
            self.port.name,
            self.end(),
            self.pattern(),
            self.capacity,
            if self.closed() { ", closed" } else { "" }
        )
    }
}

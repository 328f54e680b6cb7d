//! Ports: bounded channels that carry handles. Every wait lets other Python threads run. It ends at its deadline, when
//! the peer dies, or on Ctrl-C.

use std::sync::Arc;
use std::time::Duration;

use crossdock_client::{End, Inline, Message as Sent, Pattern, Port as Inner, Result};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};
use std::os::fd::AsRawFd;

use crate::errors::OrRaise;
use crate::handles::Handle;
use crate::iteration::Messages;
use crate::messages::Message;
use crate::objects;
use crate::sizes::count;
use crate::slots::Slot;
use crate::standing::Standing;
use crate::wait::{deadline, wait};

/// One end of a port. Made by `Session.port`; a context manager. Iterating over a consumer gives its messages until the
/// producer has left in order.
#[pyclass(frozen, module = "crossdock")]
pub struct Port {
    slot: Arc<Slot>,
    session: Arc<Standing>,
    end: End,
    pattern: Pattern,
    capacity: u32,
}

impl Port {
    /// An end that was just opened.
    pub fn new(slot: Arc<Slot>, session: Arc<Standing>, end: End, pattern: Pattern, capacity: u32) -> Self {
        Self { slot, session, end, pattern, capacity }
    }

    /// Tries a call that succeeds if there is nothing to wait for. It reads no clock and does not let other Python
    /// threads run. After any failure `wait` tries again.
    fn at_once<T>(
        &self,
        py: Python<'_>,
        timeout: Option<f64>,
        step: impl FnOnce(&Inner) -> Result<T>,
    ) -> PyResult<Option<T>> {
        deadline(py, timeout)?;
        Ok(self.slot.with_open(|port| if port.here() { step(port).ok() } else { None }))
    }

    /// Waits in slices. Between them the end is not in use, so `close` by another thread ends the wait.
    fn wait<T: Send>(
        &self,
        py: Python<'_>,
        timeout: Option<f64>,
        step: impl Fn(&Inner, Option<Duration>) -> Result<T> + Send + Sync,
    ) -> PyResult<T> {
        let total = deadline(py, timeout)?;
        self.slot.get(py)?;
        wait(py, total, |slice| step(&**self.slot.open()?, Some(slice)))
    }
}

#[pymethods]
impl Port {
    /// The port's name.
    #[getter]
    fn name(&self) -> &str {
        &self.slot.name
    }

    /// "producer" or "consumer".
    #[getter]
    fn end(&self) -> &str {
        self.end.word()
    }

    /// "one-to-one", "fan-out", "fan-in" or "work-queue".
    #[getter]
    fn pattern(&self) -> &str {
        self.pattern.word()
    }

    /// The number of messages that can be in flight.
    #[getter]
    fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Whether this end was closed here.
    #[getter]
    fn closed(&self) -> bool {
        self.slot.open().is_err()
    }

    /// Sends an object of a region (Vector, Ndarray, String, Simple, an array of one of them), a Handle, or None.
    ///
    /// `tag`: a number that you choose, 0 to 2**64-1. `inline`: up to 24 bytes that travel in the message itself.
    /// Nothing is copied: do not change the object until `reclaim` gives it back. Waits for room up to `timeout`
    /// seconds (None: 60 s; 0: NotYetError if there is none). TimedOutError names the consumer that holds the messages;
    /// ClosedError and PeerDiedError: no consumer is left. After an error nothing was sent.
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

    /// Producer: waits until there is room for the next send, and returns the oldest handle whose data no consumer
    /// reads any more. None: there is room, and no handle came back (at first, for instance).
    ///
    /// Waits and errors are those of `send`.
    #[pyo3(signature = (*, timeout=None))]
    fn reclaim(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<Handle>> {
        let credit = match self.at_once(py, timeout, |port| port.reclaim(Some(Duration::ZERO)))? {
            Some(credit) => credit,
            None => self.wait(py, timeout, |port, slice| port.reclaim(slice))?,
        };
        Ok(credit.map(Into::into))
    }

    /// The next message. This consumer keeps it until it is released.
    ///
    /// Waits up to `timeout` seconds (None: 60 s; 0: NotYetError if there is none). TimedOutError names the producers;
    /// ClosedError: all of them left in order; PeerDiedError. Messages that were sent before are received first.
    #[pyo3(signature = (*, timeout=None))]
    pub(crate) fn receive(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Message> {
        let message = match self.at_once(py, timeout, |port| port.receive(Some(Duration::ZERO)))? {
            Some(message) => message,
            None => self.wait(py, timeout, |port, slice| port.receive(slice))?,
        };
        Ok(Message::new(self.slot.clone(), message, self.session.clone()))
    }

    /// Gives a message back to the producer; the same as `message.release()`.
    fn release(&self, py: Python<'_>, message: &Message) -> PyResult<()> {
        message.release(py)
    }

    /// `receive` for an event loop: other coroutines run while it waits.
    #[pyo3(signature = (*, timeout=None))]
    fn areceive<'py>(slf: &Bound<'py, Self>, timeout: Option<f64>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        deadline(py, timeout)?;
        py.import("crossdock._aio")?.getattr("receive")?.call1((slf, timeout))
    }

    /// Waits until a living peer is at the other end, up to `timeout` seconds (None: 60 s).
    #[pyo3(signature = (*, timeout=None))]
    fn wait_peer(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        self.wait(py, timeout, |port, slice| port.wait_peer(slice))
    }

    /// The descriptor for select/epoll. It belongs to the port: do not read or close it. Use `areceive` with asyncio.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        Ok(self.slot.get(py)?.descriptor().or_raise(py)?.as_raw_fd())
    }

    /// Asks for the descriptor to become readable at the next event. True: look at once, because something may have
    /// come already.
    fn _arm(&self, py: Python<'_>) -> PyResult<bool> {
        self.slot.get(py)?.arm().or_raise(py)
    }

    /// Takes `_arm` back.
    fn _disarm(&self, py: Python<'_>) -> PyResult<()> {
        self.slot.get(py)?.disarm();
        Ok(())
    }

    /// Counts `bytes` that this end had to copy from or to memory outside of any region.
    fn note_copied(&self, py: Python<'_>, #[pyo3(from_py_with = count)] bytes: u64) -> PyResult<()> {
        self.slot.get(py)?.note_copied(bytes);
        Ok(())
    }

    /// Counters of the whole port (messages, received, bytes, waits in nanoseconds), over all its members so far.
    #[getter]
    fn statistics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let s = self.slot.get(py)?.statistics();
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

    /// Leaves in order: the other end gets the messages that were sent, then ClosedError. Messages that were not
    /// released go to a successor. Closing twice does nothing.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.slot.close());
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// Closes the end, unless the block failed: peers must not take the messages so far for all there are. If the
    /// program ends by that error, they learn that it died.
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

    /// The messages in order, for `for` and `async for`, until the producer has left in order. `timeout`: the seconds
    /// to wait for each (None: 60). Iterating over the port itself is the same with None. Errors are those of
    /// `receive`.
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
            self.slot.name,
            self.end(),
            self.pattern(),
            self.capacity,
            if self.closed() { ", closed" } else { "" }
        )
    }
}

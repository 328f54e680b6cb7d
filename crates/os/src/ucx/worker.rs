//! A UCX worker with its endpoint: the calls of UCX that a wire makes. Only one thread at a time makes these calls.

use super::abi::{self, EndpointParams, HandlerParams, RequestParams, StartResult, Status, WorkerParams};
use super::inbox::{Inbox, message_arrived, peer_lost};
use super::library::{Fabric, Functions};
use super::lock;
use crate::deadline::Deadline;
use crate::event;
use rustix::fd::BorrowedFd;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;
use std::time::Duration;

/// The id of UCX's handler for the messages of a wire. A wire sends all messages with this id.
const MESSAGE: u32 = 1;
/// The longest time that a worker waits until UCX has closed the endpoint, or has sent the last messages.
const FLUSH: Duration = Duration::from_secs(1);
/// While a worker waits for an operation and UCX reports no event, it lets UCX proceed after this time.
const SLICE: Duration = Duration::from_millis(10);

/// The way in which a message is sent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum SendMode {
    /// UCX copies the bytes.
    Copied,
    /// The receiving side gets the bytes from the sender's memory.
    Fetched,
}

/// A worker of UCX, through which one wire sends and receives. Dropping this value destroys it.
pub struct Worker {
    fabric: Arc<Fabric>,
    worker: *mut c_void,
    /// The UCX endpoint; null until the worker is connected.
    endpoint: *mut c_void,
    event_fd: c_int,
    pub inbox: Box<Inbox>,
}

// SAFETY: UCX does not care which thread calls it (`UCS_THREAD_MODE_SERIALIZED`), and the addresses of the UCX worker
// and endpoint are used only by calls that have the only reference to this value or hold the wire's lock.
unsafe impl Send for Worker {}

impl Worker {
    /// Makes a worker. It receives only messages whose header has this token.
    pub fn new(fabric: &Arc<Fabric>, token: u64) -> Result<Self, String> {
        let params = WorkerParams {
            field_mask: abi::WORKER_THREAD_MODE | abi::WORKER_FLAGS,
            thread_mode: abi::THREAD_MODE_SERIALIZED,
            cpu_mask: [0; 16],
            events: 0,
            user_data: null_mut(),
            event_fd: 0,
            flags: abi::WORKER_IGNORES_LEFT_REQUESTS,
            name: std::ptr::null(),
            am_alignment: 0,
            client_id: 0,
        };
        let mut worker = null_mut();
        let status = {
            let _making = lock(&fabric.making);
            // SAFETY: the context exists as long as `fabric`, and the parameters' mask names the fields that are set.
            unsafe { (fabric.library.functions.worker_create)(fabric.context, &params, &mut worker) }
        };
        fabric.passed("makes no worker", status)?;
        let inbox = Inbox::new(token);
        let mut made = Self { fabric: Arc::clone(fabric), worker, endpoint: null_mut(), event_fd: -1, inbox };
        let handler = HandlerParams {
            field_mask: abi::HANDLER_ID | abi::HANDLER_FLAGS | abi::HANDLER_CALLBACK | abi::HANDLER_ARGUMENT,
            id: MESSAGE,
            flags: abi::HANDLER_WHOLE_MESSAGE,
            callback: message_arrived,
            argument: made.argument(),
        };
        // SAFETY: the worker was made just now, and UCX writes the descriptor to a field of `made`.
        let status = unsafe { (made.functions().event_fd)(worker, &mut made.event_fd) };
        fabric.passed("makes a worker that cannot sleep", status)?;
        // SAFETY: the worker is alive, and the inbox lives longer than the worker.
        let status = unsafe { (made.functions().set_handler)(worker, &handler) };
        fabric.passed("takes no messages", status)?;
        Ok(made)
    }

    fn functions(&self) -> &Functions {
        &self.fabric.library.functions
    }

    /// The inbox's address, for UCX's callbacks.
    fn argument(&self) -> *mut c_void {
        (&raw const *self.inbox).cast_mut().cast()
    }

    /// The address that the peer needs to connect.
    pub fn address(&self) -> Result<Vec<u8>, String> {
        let (mut address, mut length) = (null_mut(), 0);
        // SAFETY: the worker exists as long as `self`, and UCX writes the address and its length to two local
        // variables.
        let status = unsafe { (self.functions().worker_address)(self.worker, &mut address, &mut length) };
        self.fabric.passed("gives no address", status)?;
        // SAFETY: UCX gave the address and the number of bytes at it.
        let copy = unsafe { std::slice::from_raw_parts(address.cast::<u8>(), length) }.to_vec();
        // SAFETY: this worker gave the address just now, and the address is not used again.
        unsafe { (self.functions().release_address)(self.worker, address) };
        Ok(copy)
    }

    /// Prepares the connection to the worker with this address.
    pub fn connect(&mut self, address: &[u8]) -> Result<(), String> {
        let params = EndpointParams {
            field_mask: abi::ENDPOINT_ADDRESS | abi::ENDPOINT_ERROR_MODE | abi::ENDPOINT_ERROR_HANDLER,
            address: address.as_ptr().cast(),
            error_mode: abi::ERROR_MODE_PEER,
            error_callback: Some(peer_lost),
            error_argument: self.argument(),
            user_data: null_mut(),
            flags: 0,
            socket_address: [0; 2],
            connection_request: null_mut(),
            name: std::ptr::null(),
            local_socket_address: [0; 2],
        };
        let mut endpoint = null_mut();
        // SAFETY: the worker is alive, and the parameters' mask names the fields that are set.
        let status = unsafe { (self.functions().endpoint_create)(self.worker, &params, &mut endpoint) };
        self.fabric.passed("does not connect", status)?;
        self.endpoint = endpoint;
        Ok(())
    }

    pub fn is_connected(&self) -> bool {
        !self.endpoint.is_null()
    }

    /// UCX's descriptor, which is readable when [`Self::arm`] has succeeded and UCX can proceed.
    pub const fn event_fd(&self) -> c_int {
        self.event_fd
    }

    /// Lets UCX proceed; returns whether anything happened.
    pub fn progress(&self) -> bool {
        // SAFETY: the worker is alive, and one thread at a time uses it.
        unsafe { (self.functions().progress)(self.worker) > 0 }
    }

    /// Prepares UCX's descriptor for a sleep. Gives `true` if this thread may sleep until the descriptor is readable,
    /// and `false` if UCX can proceed now.
    pub fn arm(&self) -> Result<bool, Status> {
        // SAFETY: the worker is alive, and one thread at a time uses it.
        match unsafe { (self.functions().arm)(self.worker) } {
            abi::OK => Ok(true),
            abi::BUSY => Ok(false),
            status => Err(status),
        }
    }

    /// Sends a message.
    ///
    /// # Safety
    /// The worker must be connected. Header and bytes must stay where they are until the operation is complete, or
    /// until this value is dropped.
    pub unsafe fn send(&self, header: &[u64; 2], bytes: &[u8], way: SendMode) -> StartResult {
        let how = if way == SendMode::Copied { abi::SEND_EAGER } else { abi::SEND_RENDEZVOUS };
        let params = RequestParams::new(abi::REQUEST_FLAGS, how);
        let (header, header_length) = (header.as_ptr().cast(), size_of_val(header));
        let (data, length) = (bytes.as_ptr().cast(), bytes.len());
        // SAFETY: the caller promises that the worker is connected, and that header and bytes stay where they are until
        // the operation is complete.
        StartResult::new(unsafe {
            (self.functions().send)(self.endpoint, MESSAGE, header, header_length, data, length, &params)
        })
    }

    /// Gets the bytes of a message from its sender.
    ///
    /// # Safety
    /// The description must come from this worker's inbox and be used only once. `place` must have room for the
    /// message's bytes, and no other code may use this room until the operation is complete or this value is dropped.
    pub unsafe fn receive(&self, description: *mut c_void, place: *mut u8, length: usize) -> StartResult {
        let params = RequestParams::new(0, 0);
        // SAFETY: the caller promises that UCX gave the description to this worker, and that `place` has room for the
        // bytes.
        StartResult::new(unsafe { (self.functions().receive)(self.worker, description, place.cast(), length, &params) })
    }

    /// Gives the final status of an operation; `None` while the operation goes on.
    ///
    /// # Safety
    /// The request must be one of this worker, and must not be freed yet.
    pub unsafe fn status(&self, request: *mut c_void) -> Option<Status> {
        // SAFETY: the caller promises that this worker made the request, and that the request is not freed yet.
        let status = unsafe { (self.functions().check)(request) };
        (status != abi::IN_PROGRESS).then_some(status)
    }

    /// Frees the request of an operation that is complete.
    ///
    /// # Safety
    /// The request must be one of this worker, and must not be used again.
    pub unsafe fn free(&self, request: *mut c_void) {
        // SAFETY: the caller promises that this worker made the request, and that the request is not used again.
        unsafe { (self.functions().free)(request) };
    }

    /// Waits until all messages have left, at most a second.
    pub fn flush(&self) {
        if self.is_connected() {
            // SAFETY: the endpoint exists until this value is dropped.
            let flushed = unsafe { (self.functions().endpoint_flush)(self.endpoint, &RequestParams::new(0, 0)) };
            self.finish(StartResult::new(flushed));
        }
    }

    fn finish(&self, started: StartResult) {
        let StartResult::Goes(request) = started else { return };
        let by = Deadline::after(FLUSH);
        // SAFETY: the request belongs to an operation that this worker has just started, and only this function knows
        // the request. The descriptor is the worker's own.
        unsafe {
            while self.status(request).is_none() && !by.passed() {
                if !self.progress() && self.arm() == Ok(true) {
                    let _ = event::wait_readable(BorrowedFd::borrow_raw(self.event_fd), by.at_most(SLICE));
                }
            }
            self.free(request);
        }
    }

    pub fn text(&self, status: Status) -> String {
        self.fabric.library.text(status)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        for description in self.inbox.take_large() {
            // SAFETY: UCX gave the description to this worker, and it was not used yet.
            unsafe { (self.functions().release_data)(self.worker, description) };
        }
        if self.is_connected() {
            let params = RequestParams::new(abi::REQUEST_FLAGS, abi::CLOSE_FORCE);
            // SAFETY: the endpoint is alive, and it is not used again.
            let closed = unsafe { (self.functions().endpoint_close)(self.endpoint, &params) };
            self.finish(StartResult::new(closed));
        }
        let _making = lock(&self.fabric.making);
        // SAFETY: this value is the only one with the worker's address.
        unsafe { (self.functions().worker_destroy)(self.worker) };
    }
}

//! The part of UCX's binary interface that this crate uses: the interface of version 1.13, which later versions keep.
//! Each structure has a mask that says which of its fields are set, and the library reads no other field.

use std::ffi::{c_char, c_int, c_uint, c_void};

pub const API_MAJOR: c_uint = 1;
pub const API_MINOR: c_uint = 13;

/// `ucs_status_t` is a packed enum: one signed byte.
pub type Status = i8;
pub const OK: Status = 0;
pub const IN_PROGRESS: Status = 1;
pub const BUSY: Status = -15;
/// UCX returns a request as a pointer. If the pointer's value, as a signed number, is from this number to -1, it is an
/// error code and no address.
const LAST_ERROR: isize = -100;

pub const FEATURE_WAKEUP: u64 = 1 << 4;
pub const FEATURE_AM: u64 = 1 << 6;

#[repr(C)]
pub struct ContextParams {
    pub field_mask: u64,
    pub features: u64,
    pub request_size: usize,
    pub request_init: *const c_void,
    pub request_cleanup: *const c_void,
    pub tag_sender_mask: u64,
    pub mt_workers_shared: c_int,
    pub estimated_num_eps: usize,
    pub estimated_num_ppn: usize,
    pub name: *const c_char,
}
pub const CONTEXT_FEATURES: u64 = 1;
pub const CONTEXT_MT_WORKERS_SHARED: u64 = 1 << 5;

#[repr(C)]
pub struct WorkerParams {
    pub field_mask: u64,
    pub thread_mode: c_int,
    pub cpu_mask: [u64; 16],
    pub events: c_uint,
    pub user_data: *mut c_void,
    pub event_fd: c_int,
    pub flags: u64,
    pub name: *const c_char,
    pub am_alignment: usize,
    pub client_id: u64,
}
pub const WORKER_THREAD_MODE: u64 = 1;
pub const WORKER_FLAGS: u64 = 1 << 5;
/// The thread mode for a worker that several threads use, one at a time.
pub const THREAD_MODE_SERIALIZED: c_int = 1;
/// The flag of a worker that may be destroyed while some of its requests are not complete.
pub const WORKER_IGNORES_LEFT_REQUESTS: u64 = 1;

#[repr(C)]
pub struct EndpointParams {
    pub field_mask: u64,
    pub address: *const c_void,
    pub error_mode: c_int,
    pub error_callback: Option<unsafe extern "C" fn(*mut c_void, *mut c_void, Status)>,
    pub error_argument: *mut c_void,
    pub user_data: *mut c_void,
    pub flags: c_uint,
    pub socket_address: [u64; 2],
    pub connection_request: *mut c_void,
    pub name: *const c_char,
    pub local_socket_address: [u64; 2],
}
pub const ENDPOINT_ADDRESS: u64 = 1;
pub const ENDPOINT_ERROR_MODE: u64 = 1 << 1;
pub const ENDPOINT_ERROR_HANDLER: u64 = 1 << 2;
/// The error mode in which UCX reports the loss of the peer.
pub const ERROR_MODE_PEER: c_int = 1;

#[repr(C)]
pub struct RequestParams {
    pub mask: u32,
    pub flags: u32,
    pub request: *mut c_void,
    pub callback: *const c_void,
    pub datatype: u64,
    pub user_data: *mut c_void,
    pub reply_buffer: *mut c_void,
    pub memory_type: c_int,
    pub received: *mut usize,
    pub memory: *mut c_void,
}
pub const REQUEST_FLAGS: u32 = 1 << 4;
pub const SEND_EAGER: u32 = 1 << 1;
pub const SEND_RENDEZVOUS: u32 = 1 << 2;
pub const CLOSE_FORCE: u32 = 1;

impl RequestParams {
    pub const fn new(mask: u32, flags: u32) -> Self {
        use std::ptr::{null, null_mut};
        Self {
            mask,
            flags,
            request: null_mut(),
            callback: null(),
            datatype: 0,
            user_data: null_mut(),
            reply_buffer: null_mut(),
            memory_type: 0,
            received: null_mut(),
            memory: null_mut(),
        }
    }
}

#[repr(C)]
pub struct HandlerParams {
    pub field_mask: u64,
    pub id: c_uint,
    pub flags: u32,
    pub callback: MessageCallback,
    pub argument: *mut c_void,
}
pub const HANDLER_ID: u64 = 1;
pub const HANDLER_FLAGS: u64 = 1 << 1;
pub const HANDLER_CALLBACK: u64 = 1 << 2;
pub const HANDLER_ARGUMENT: u64 = 1 << 3;
/// The flag of a handler whose callback gets a message only when all of the message has arrived.
pub const HANDLER_WHOLE_MESSAGE: u32 = 1;

#[repr(C)]
pub struct MessageParams {
    pub attributes: u64,
    pub reply_endpoint: *mut c_void,
}
/// The attribute of a message whose bytes are still with the sender. The argument `data` of the callback is then UCX's
/// description of these bytes.
pub const MESSAGE_RENDEZVOUS: u64 = 1 << 17;

/// The type of the function that UCX calls for each message. Its arguments are: the handler's argument, the header and
/// its length, the data and their length, and the message's parameters.
pub type MessageCallback =
    unsafe extern "C" fn(*mut c_void, *const c_void, usize, *mut c_void, usize, *const MessageParams) -> Status;

// The sizes are those of the structures in the headers of UCX 1.13.1 on 64-bit machines.
const _: () = {
    assert!(size_of::<ContextParams>() == 80);
    assert!(size_of::<WorkerParams>() == 200);
    assert!(size_of::<EndpointParams>() == 104);
    assert!(size_of::<RequestParams>() == 72);
    assert!(size_of::<HandlerParams>() == 32);
    assert!(size_of::<MessageParams>() == 16);
};

/// The result of a call that starts an operation.
pub enum StartResult {
    /// The operation is complete.
    Done,
    /// The operation goes on; its request tells when it is complete.
    Goes(*mut c_void),
    /// The operation failed.
    Failed(Status),
}

impl StartResult {
    /// Decodes the pointer that UCX returns when an operation is started.
    pub fn new(returned: *mut c_void) -> Self {
        match returned as isize {
            0 => Self::Done,
            error if (LAST_ERROR..0).contains(&error) => Self::Failed(error as Status),
            _ => Self::Goes(returned),
        }
    }
}

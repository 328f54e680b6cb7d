//! Loads `libucp.so.0`, checks its version, and makes a context.

use super::abi::{self, ContextParams, EndpointParams, HandlerParams, RequestParams, Status, WorkerParams};
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::sync::{Arc, Mutex};

/// The name by which the dynamic linker finds UCX. `LD_LIBRARY_PATH` may name the folder of another build.
const NAME: &CStr = c"libucp.so.0";

/// Declares the table of functions, and how the table is filled.
macro_rules! functions {
    ($($(#[$about:meta])* $field:ident = $name:literal: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions of UCX that this crate calls.
        pub(super) struct Functions {
            $($(#[$about])* pub $field: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Functions {
            fn find(handle: *mut c_void) -> Result<Self, String> {
                Ok(Self {$(
                    // SAFETY: the function of this name has this type in UCX 1.13, and later versions keep it.
                    $field: unsafe {
                        std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) $(-> $result)?>(
                            symbol(handle, $name)?
                        )
                    },
                )*})
            }
        }
    };
}

functions! {
    get_version = c"ucp_get_version": fn(*mut c_uint, *mut c_uint, *mut c_uint);
    config_read = c"ucp_config_read": fn(*const c_char, *const c_char, *mut *mut c_void) -> Status;
    config_modify = c"ucp_config_modify": fn(*mut c_void, *const c_char, *const c_char) -> Status;
    config_release = c"ucp_config_release": fn(*mut c_void);
    init = c"ucp_init_version": fn(c_uint, c_uint, *const ContextParams, *const c_void, *mut *mut c_void) -> Status;
    cleanup = c"ucp_cleanup": fn(*mut c_void);
    worker_create = c"ucp_worker_create": fn(*mut c_void, *const WorkerParams, *mut *mut c_void) -> Status;
    worker_destroy = c"ucp_worker_destroy": fn(*mut c_void);
    worker_address = c"ucp_worker_get_address": fn(*mut c_void, *mut *mut c_void, *mut usize) -> Status;
    release_address = c"ucp_worker_release_address": fn(*mut c_void, *mut c_void);
    progress = c"ucp_worker_progress": fn(*mut c_void) -> c_uint;
    event_fd = c"ucp_worker_get_efd": fn(*mut c_void, *mut c_int) -> Status;
    arm = c"ucp_worker_arm": fn(*mut c_void) -> Status;
    set_handler = c"ucp_worker_set_am_recv_handler": fn(*mut c_void, *const HandlerParams) -> Status;
    endpoint_create = c"ucp_ep_create": fn(*mut c_void, *const EndpointParams, *mut *mut c_void) -> Status;
    endpoint_close = c"ucp_ep_close_nbx": fn(*mut c_void, *const RequestParams) -> *mut c_void;
    endpoint_flush = c"ucp_ep_flush_nbx": fn(*mut c_void, *const RequestParams) -> *mut c_void;
    send = c"ucp_am_send_nbx":
        fn(*mut c_void, c_uint, *const c_void, usize, *const c_void, usize, *const RequestParams) -> *mut c_void;
    receive = c"ucp_am_recv_data_nbx":
        fn(*mut c_void, *mut c_void, *mut c_void, usize, *const RequestParams) -> *mut c_void;
    release_data = c"ucp_am_data_release": fn(*mut c_void, *mut c_void);
    check = c"ucp_request_check_status": fn(*mut c_void) -> Status;
    free = c"ucp_request_free": fn(*mut c_void);
    status_text = c"ucs_status_string": fn(Status) -> *const c_char;
}

fn symbol(handle: *mut c_void, name: &CStr) -> Result<*mut c_void, String> {
    // SAFETY: the handle comes from `dlopen`, and the name ends with a zero byte.
    let found = unsafe { libc::dlsym(handle, name.as_ptr()) };
    if found.is_null() { Err(format!("it has no function '{}'", name.to_string_lossy())) } else { Ok(found) }
}

/// UCX's library in this process. It stays loaded until the process ends.
pub struct Library {
    pub(super) functions: Functions,
    version: (u32, u32, u32),
}

impl std::fmt::Debug for Library {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "UCX {}", self.version())
    }
}

impl Library {
    /// Loads the library.
    ///
    /// # Errors
    /// The reason why UCX cannot be used, as text for people: the library is not there, or is of another version.
    pub fn load() -> Result<Arc<Self>, String> {
        // SAFETY: the library's constructors read its settings from the environment, and install signal handlers, which
        // are removed below.
        let handle = unsafe { libc::dlopen(NAME.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            // SAFETY: after a failure `dlerror` returns a text, which stays valid until this thread's next call of it.
            let why = unsafe { libc::dlerror().as_ref().map(|text| CStr::from_ptr(text).to_string_lossy()) };
            return Err(format!("UCX cannot be loaded: {}", why.unwrap_or_default()));
        }
        let functions = Functions::find(handle).map_err(|why| format!("UCX cannot be used: {why}"))?;
        let mut version: (c_uint, c_uint, c_uint) = (0, 0, 0);
        // SAFETY: the function writes the three numbers of its version to the three addresses.
        unsafe { (functions.get_version)(&mut version.0, &mut version.1, &mut version.2) };
        let library = Self { functions, version };
        if version.0 != abi::API_MAJOR || version.1 < abi::API_MINOR {
            return Err(format!("UCX is of version {}, and this build needs 1.13 or a later 1.x", library.version()));
        }
        calm(handle);
        Ok(Arc::new(library))
    }

    /// The library's version, as in `1.13.1`.
    pub fn version(&self) -> String {
        format!("{}.{}.{}", self.version.0, self.version.1, self.version.2)
    }

    /// UCX's text for a status.
    pub(super) fn text(&self, status: Status) -> String {
        // SAFETY: the function takes any number, and returns a text that stays valid.
        unsafe { CStr::from_ptr((self.functions.status_text)(status)) }.to_string_lossy().into_owned()
    }
}

/// Removes the signal handlers that the library has installed, because they would print a stack of this process and
/// then wait. Also silences the library's log on the standard output, unless the user has set `UCX_LOG_LEVEL`.
fn calm(handle: *mut c_void) {
    if let Ok(found) = symbol(handle, c"ucs_debug_disable_signals") {
        // SAFETY: the function has no arguments; it restores the former handlers.
        unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn()>(found)() };
    }
    if let Ok(found) = symbol(handle, c"ucs_global_opts_set_value")
        && std::env::var_os("UCX_LOG_LEVEL").is_none()
    {
        // SAFETY: the function takes an option's name and its value, both as texts that end with a zero byte.
        unsafe {
            let set: unsafe extern "C" fn(*const c_char, *const c_char) -> Status = std::mem::transmute(found);
            set(c"LOG_LEVEL".as_ptr(), c"fatal".as_ptr());
        }
    }
}

/// A UCX context: the transports and devices that connections may use.
pub struct Fabric {
    pub(super) library: Arc<Library>,
    pub(super) context: *mut c_void,
    /// The lock that a thread holds while it makes or destroys a UCX worker.
    pub(super) making: Mutex<()>,
}

// SAFETY: the context was made with `mt_workers_shared`, so workers of several threads may use it. The calls that make
// and destroy workers hold the lock.
unsafe impl Send for Fabric {}
// SAFETY: a context that was made with `mt_workers_shared` may be used by several threads, and the calls that make and
// destroy workers hold the lock.
unsafe impl Sync for Fabric {}

impl std::fmt::Debug for Fabric {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.library.fmt(f)
    }
}

impl Fabric {
    /// Makes a context. Settings come from the environment (`UCX_TLS`, `UCX_NET_DEVICES` …). Unless the user has set
    /// `UCX_TLS`, shared memory is left out: two daemons on one machine may be in different containers, where UCX's
    /// shared memory does not work.
    ///
    /// # Errors
    /// The reason why UCX makes no context, as text for people.
    pub fn open(library: Arc<Library>) -> Result<Self, String> {
        let functions = &library.functions;
        let failed = |what: &str, status| format!("UCX {}: {what}: {}", library.version(), library.text(status));
        let mut config = std::ptr::null_mut();
        // SAFETY: both texts may be null. UCX then uses the usual prefix of environment variables, and no file.
        let status = unsafe { (functions.config_read)(std::ptr::null(), std::ptr::null(), &mut config) };
        if status != abi::OK {
            return Err(failed("read the settings", status));
        }
        let set = |name: &str, value: &str| {
            let (name, value) = (CString::new(name).expect("no zero"), CString::new(value).expect("no zero"));
            // SAFETY: the configuration was read just now, and both texts end with a zero byte.
            unsafe { (functions.config_modify)(config, name.as_ptr(), value.as_ptr()) }
        };
        let mut status = abi::OK;
        if std::env::var_os("UCX_TLS").is_none() {
            status = set("TLS", "^sm");
        }
        let params = ContextParams {
            field_mask: abi::CONTEXT_FEATURES | abi::CONTEXT_MT_WORKERS_SHARED,
            features: abi::FEATURE_AM | abi::FEATURE_WAKEUP,
            request_size: 0,
            request_init: std::ptr::null(),
            request_cleanup: std::ptr::null(),
            tag_sender_mask: 0,
            mt_workers_shared: 1,
            estimated_num_eps: 0,
            estimated_num_ppn: 0,
            name: std::ptr::null(),
        };
        let mut context = std::ptr::null_mut();
        if status == abi::OK {
            // SAFETY: the parameters' mask names the fields that are set, and the configuration was read just now.
            status = unsafe { (functions.init)(abi::API_MAJOR, abi::API_MINOR, &params, config, &mut context) };
        }
        // SAFETY: the configuration is not used again.
        unsafe { (functions.config_release)(config) };
        if status != abi::OK {
            return Err(failed("no transport can be used", status));
        }
        Ok(Self { library, context, making: Mutex::new(()) })
    }

    /// UCX's version, as in `1.13.1`.
    pub fn version(&self) -> String {
        self.library.version()
    }

    /// Gives an error if `status` is not `OK`. The error is a text for people: `what` (for example "makes no worker")
    /// and UCX's words for the status.
    pub(super) fn passed(&self, what: &str, status: Status) -> Result<(), String> {
        if status == abi::OK { Ok(()) } else { Err(format!("UCX {what}: {}", self.library.text(status))) }
    }
}

impl Drop for Fabric {
    fn drop(&mut self) {
        // SAFETY: every wire holds the fabric, so all workers are destroyed before the fabric is dropped.
        unsafe { (self.library.functions.cleanup)(self.context) };
    }
}

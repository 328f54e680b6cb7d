//! Publishes the files of managed directories.
//!
//! A file is published when its last writer has closed it, or when it is renamed into place. To publish a file, the
//! service makes a hard link to it in the consumers' folder. Nothing is copied, and a consumer sees a file whole or not
//! at all.
//!
//! Events tell the service *when* to look at a file. A lease tells *whether* the file still has a writer
//! ([`crossdock_os::lease`]). A file whose writer is killed by a signal stays unpublished. The folders are the only
//! record. So if a service was killed, the next service compares the producers' folder with the consumers' folder, and
//! continues.

#[cfg(all(test, feature = "faults"))]
mod failing_calls;
mod look;
mod refusals;
mod rules;
mod service;
mod spill;
mod stage;
mod store;
mod view;
mod writers;

pub use look::{DirectorySnapshot, FileLine, FileState, FileUser, look};
pub use refusals::{GuardedDirectory, Refusals, Refused, RefusedRole};
pub use rules::{Keep, Publish};
#[cfg(feature = "fault-points")]
pub use service::FETCH_FAULT_POINTS;
#[doc(hidden)]
pub use service::fuzz_entry;
pub use service::{Announcement, Exchange, HostRole, RemoteHosts, Report, Service, Site, key as entry_key};
#[cfg(feature = "fault-points")]
pub use spill::SPILL_FAULT_POINTS;
#[cfg(feature = "fault-points")]
pub use store::FAULT_POINTS;
pub use store::{Layout, Store};
pub use view::{MovedFiles, View, ViewCallbacks, ViewOptions};

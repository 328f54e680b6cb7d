//! Every raw system call of crossdock, behind safe functions.
//!
//! Each file is about one kind of kernel object. This crate does not know what crossdock does with these objects. Every
//! error names the system call and its object. Every descriptor is close-on-exec. The module `sys` lets tests make any
//! call fail.

pub mod bell;
pub mod calls;
pub mod cgroup;
pub mod child;
pub mod clock;
pub mod copy;
pub mod datagram;
pub mod deadline;
pub mod error;
pub mod event;
pub mod exit;
pub mod fanotify;
#[cfg(feature = "faults")]
pub mod faults;
pub mod file;
pub mod fork;
pub mod fork_watch;
pub mod fs;
pub mod futex;
pub mod inotify;
pub mod lease;
pub mod mapping;
pub mod memfd;
pub mod mount;

pub mod orphans;
pub mod own_file;
pub mod pagemap;
pub mod pinned;
pub mod pipe;

pub mod process;
pub mod program;
pub mod reservation;
pub mod roll;
pub mod seccomp;
mod singleton;
pub mod socket;
pub mod spawn;
mod sys;
pub mod tcp;
#[doc(hidden)]
pub mod testing;
pub mod thread;
pub mod tmpfs;
pub mod turns;
pub mod ucx;
pub mod userfault;

pub use copy::{fetch, load_eight};
pub use deadline::Deadline;
pub use error::{OsError, OsResult};
pub use mapping::{Access, Mapping};
pub use own_file::OwnFile;

//! The consumer's side of managed directories: which file names a consumer waits for, and how it waits for one.
//!
//! The published folder alone decides whether a file exists. A consumer first tries its call. If the kernel answers
//! "no such file", the consumer asks this module whether it has to wait for this name. If it has to wait, the
//! consumer sleeps until the directory's service reports a change, and then tries its call again. So opening a file
//! that is published already costs no more than usual. A wait needs neither the daemon nor a socket. It uses one
//! mapped page, the notice, and the folder of published files, both read-only.
//!
//! There are three ways to intercept a program's call: the preload library, seccomp notification, and the client
//! libraries. Each of them calls [`Views::await_file`], and none decides by itself. The idea of waiting for files by
//! name comes from DYAD (`docs/papers.md`).

mod notice;
mod path;
mod refusal;
mod target;
mod views;
mod wait;
mod watched;

pub use notice::{NoticeReader, NoticeWriter};
pub use path::{absolute, normalise};
pub use refusal::{Deed, WriteRefusal};
pub use target::RenameTarget;
pub use views::{VARIABLE, View, Views};
pub use wait::{FileWaitOutcome, WaitFailure};
pub use watched::{WATCHED, Watched};

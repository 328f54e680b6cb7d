//! The consumer's side of managed directories: which names are awaited, and how a consumer waits for one.
//!
//! The published folder is the truth. A consumer first tries its call. Only if the kernel answers "no such file" does
//! it ask this module whether the name is awaited; then it sleeps until the service reports a change, and tries again.
//! So opening a published file costs nothing more. A wait needs neither the daemon nor a socket: it uses one page and
//! one folder, which are mapped or mounted read-only.
//!
//! Every door (preload, seccomp notification, libraries) calls [`Views::await_file`]; no door decides by itself. The
//! idea of awaiting files by name is DYAD's (`docs/papers.md`).

mod notice;
mod path;
mod views;
mod wait;

pub use notice::{NoticeReader, NoticeWriter};
pub use path::{absolute, normalise};
pub use views::{VARIABLE, View, Views};
pub use wait::{Outcome, Story};

//! Managed directories as their consumers see them: which names are awaited, and how a consumer waits for one.
//!
//! The published folder is the truth. A consumer tries its call first; only when the kernel answers "no such file" does it
//! ask here whether the name is awaited, sleeps until the service tells of news, and tries again. So a published file costs
//! nothing, and a wait needs neither the daemon nor a socket: a page and a folder, both mapped or mounted read-only.
//!
//! Every door (preload, seccomp notification, libraries) uses [`Views::await_file`]; none decides by itself.
//! (The idea of awaiting files by name is DYAD's; `docs/papers.md`.)

mod notice;
mod path;
mod views;
mod wait;

pub use notice::{NoticeReader, NoticeWriter};
pub use path::{absolute, normalise};
pub use views::{VARIABLE, View, Views};
pub use wait::{Outcome, Story};

//! The queue of a port: a ring of cells, a table of end slots, and two words on which members sleep.
//! `docs/memory-format-ports.md` has pictures. `crossdock_layout::queue` says for each field which member writes it and
//! which reads it.
//!
//! | file | contents |
//! |---|---|
//! | `error` | errors, and the result of an attempt that may say "not yet" |
//! | `ring` | a process's view of a port's segment: formatting and checks |
//! | `cell`, `slot` | the only code that touches the words of a cell or an end slot |
//! | `message` | a message, and its inline bytes, which are copied in and out of a cell |
//! | `options` | the options for opening a port |
//! | `signal` | the words on which members sleep, and why no wake is lost |
//! | `produce`, `consume`, `release`, `reclaim` | sending, receiving, releasing and reclaiming |
//! | `ends`, `heal` | joining and leaving a port, and healing after a member's death |
//! | `postponed_healing` | calls that leave the healing of regions to their caller |
//! | `wait`, `spin` | waiting: spinning as long as that pays, then sleeping |
//! | `end` | one end of a port, for the client library |
//! | `report` | counters and states, for programs that only look |
//!
//! **Why a death at any instruction loses nothing.** Each change of a cell is one store or one compare-and-swap of its
//! state word, and the word names the end that works on the cell. A member claims an end by one compare-and-swap of
//! the end's owner word, which then contains the member's id. So if a member finds a half-done change, it knows which
//! member made it. If the liveness table says that this member is dead, the finder finishes or undoes the change. If
//! the finder dies during this work, another member does the work again.

mod cell;
mod consume;
mod end;
mod ends;
mod error;
#[cfg(not(loom))]
mod fuzz;
mod heal;
#[cfg(all(test, loom))]
mod loom_model;
mod message;
mod options;
mod postponed_healing;
mod produce;
mod reclaim;
mod release;
mod report;
mod ring;
mod signal;
mod slot;
mod spin;
mod spin_lock;
mod wait;

pub use crossdock_layout::queue::{Pattern, Side, Waiting};
pub use end::End;
#[cfg(not(loom))]
pub use fuzz::fuzz_entry;
pub use message::{INLINE_MAX, Inline, Message};
pub use options::PortOptions;
pub use postponed_healing::postpone_healing;
pub use report::{EndInfo, PortReport, PortStatistics};
pub use ring::{Ring, Shape};

pub use error::Attempt;

/// The names of all fault points of this module, at which a test build can kill its own process. The kill tests kill a
/// process at each of them.
pub const FAULT_POINTS: &[&str] = &[
    "queue.format.claimed",
    "queue.format.half",
    "queue.format.done",
    "queue.join.claimed",
    "queue.join.named",
    "queue.join.here",
    "queue.join.cleared",
    "queue.send.claimed",
    "queue.send.half",
    "queue.send.filled",
    "queue.send.ready",
    "queue.send.counted",
    "queue.wake.collected",
    "queue.wait.announced",
    "queue.receive.taken",
    "queue.receive.read",
    "queue.release.share",
    "queue.release.freed",
    "queue.reclaim.taken",
    "queue.leave.claimed",
    "queue.leave.settled",
    "queue.heal.locked",
    "queue.heal.counted",
    "queue.heal.half",
    "queue.heal.settled",
    "queue.heal.recorded",
];

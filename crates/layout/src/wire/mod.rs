//! The messages between clients and the node daemon; drawn bit by bit in `docs/wire-protocol.md`.

mod kinds;

pub use kinds::{OpenMode, SegmentKind};

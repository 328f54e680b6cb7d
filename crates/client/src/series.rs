//! Series: consistent versions of data that one publisher changes in place, for observers that never stop it (TCASM;
//! design 3.4).
//!
//! The publisher works on ordinary memory and publishes; an observer asks for the latest, the next or a certain version,
//! and reads it as contiguous arrays that cannot change and cannot be written. The daemon is only asked for places.

mod daemon;
mod observer;
mod publisher;
mod version;

pub use crossdock_core::series::{
    AttributeSpec, Description, Detect, FullPolicy, Kind, Method, Pages, PublisherState as SeriesState,
    Report as SeriesReport, Runner, Spec as SeriesOptions, Statistics as SeriesStatistics, Value, Variable,
};
pub use observer::Observer;
pub use publisher::Publisher;
pub use version::{Version, diff};

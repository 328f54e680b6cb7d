//! Samples daemons and runs for `crossdock top`, the web page and `/metrics`. This crate only reads, and changes
//! nothing.

mod answers;
pub mod find;
mod frames;
mod fuzz;
mod metrics;
mod picture;
#[allow(missing_docs, reason = "fields whose names say all: they are the page's JSON")]
mod sample;
mod server;

pub use fuzz::fuzz_request;
pub use sample::{
    Daemon, Event, ItemRow, MemberRow, PortRow, RankRow, RegionRow, RunRow, Sample, Sampler, Scope, SeriesRow,
    series_state,
};
pub use server::{Options, Web};

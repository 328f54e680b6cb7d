//! Tests of a series in one process: what its publisher and its observers see.

mod describing;
mod full;
mod observing;
mod places;
#[path = "../series_world/mod.rs"]
mod series_world;
mod versions;
mod withheld;

use crossdock_core::series::Detect;

const WAYS: [Detect; 6] =
    [Detect::Auto, Detect::CopyAll, Detect::Hints, Detect::PrivateCopies, Detect::WriteProtect, Detect::Compare];

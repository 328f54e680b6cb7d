//! The names of all fault points of regions; a test kills at each, and another holds this list against the sources.

/// Every `fault_point!` of region, heap, directory and containers.
pub const POINTS: &[&str] = &[];

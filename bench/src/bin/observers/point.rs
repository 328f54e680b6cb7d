//! The points of the plot of figure 2 of the TCASM paper.

use std::collections::BTreeMap;

use crossdock_bench::{Point, Record, median};

/// Makes a point: the time, divided by the time of the same work without sharing. Figure 2 of the TCASM paper shows the
/// same ratio. The point has no aim.
pub fn point(way: &str, side: &str, size: usize, seconds: &[f64], alone: f64) -> Point {
    let runs: Vec<f64> = seconds.iter().map(|s| s / alone).collect();
    let record = Record {
        id: "T9",
        case: format!("{side}, {way}, {}", human(size)),
        value: median(&runs),
        unit: "x",
        floor: Some(1.0),
        peers: BTreeMap::new(),
        aim: "",
        ratio: 1.0,
        met: true,
        runs,
    };
    Point::new(record, "tcasm-2", size, format!("{side}, {way}"))
}

/// Formats a number of bytes for people, for example `64 KiB`.
pub fn human(bytes: usize) -> String {
    match bytes {
        b if b >= 1 << 30 => format!("{} GiB", b >> 30),
        b if b >= 1 << 20 => format!("{} MiB", b >> 20),
        b => format!("{} KiB", b >> 10),
    }
}

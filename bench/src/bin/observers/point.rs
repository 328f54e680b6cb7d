//! A point of a plot: a record with its position in the plot.

use std::collections::BTreeMap;

use crossdock_bench::{Record, median};
use serde::Serialize;

/// A measured figure, with its position in a plot or a table.
#[derive(Serialize)]
pub struct Point {
    /// The measured figure.
    #[serde(flatten)]
    pub record: Record,
    /// The name of the plot, for example `tcasm-2`; `None` for a row that is in no plot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub figure: Option<&'static str>,
    /// The position on the axis: the number of bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub x: Option<f64>,
    /// The name of the line in the plot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub series: Option<String>,
}

impl From<Record> for Point {
    fn from(record: Record) -> Self {
        Self { record, figure: None, x: None, series: None }
    }
}

/// Makes a point: the time, divided by the time of the same work without sharing. It has no aim. The paper shows the
/// same ratio.
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
    Point { record, figure: Some("tcasm-2"), x: Some(size as f64), series: Some(format!("{side}, {way}")) }
}

/// Writes a number of bytes for people, for example `64 KiB`.
pub fn human(bytes: usize) -> String {
    match bytes {
        b if b >= 1 << 30 => format!("{} GiB", b >> 30),
        b if b >= 1 << 20 => format!("{} MiB", b >> 20),
        b => format!("{} KiB", b >> 10),
    }
}

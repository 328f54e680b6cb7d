//! The record of one figure, and medians. Every program that measures uses this code.
//!
//! A record is the same JSON object in every program and language. It has the fields `id`, `case`, `value`, `unit`,
//! `floor`, `peers`, `aim`, `ratio`, `met` and `runs`. The aim limits `ratio`; `met` tells whether the aim is met.

mod daemon;
mod point;
pub mod raw;

use std::collections::BTreeMap;

use serde::Serialize;

pub use daemon::{Daemon, connect, free_port};
pub use point::Point;

/// The record of one figure.
#[derive(Clone, Debug, Serialize)]
pub struct Record {
    /// The row in docs/benchmarks.md, for example `P16`.
    pub id: &'static str,
    /// What exactly is measured, in a few words.
    pub case: String,
    /// The figure itself, the median of the runs.
    pub value: f64,
    /// The unit of `value`, `floor` and `runs`, for example µs.
    pub unit: &'static str,
    /// The floor: the least value that is possible on this machine, measured in the same run.
    pub floor: Option<f64>,
    /// The values of other systems, measured in the same run.
    pub peers: BTreeMap<String, f64>,
    /// The aim in words, for example `≤ 5 ms`.
    pub aim: &'static str,
    /// The value divided by the limit that the aim gives. It is at most 1 if the aim is met.
    pub ratio: f64,
    /// Tells whether the aim is met.
    pub met: bool,
    /// The figure of each run.
    pub runs: Vec<f64>,
}

impl Record {
    /// Makes a record whose aim is a fixed limit in the unit of the figure.
    #[must_use]
    pub fn below(
        id: &'static str,
        case: impl Into<String>,
        unit: &'static str,
        runs: Vec<f64>,
        limit: f64,
        aim: &'static str,
    ) -> Self {
        let value = median(&runs);
        let ratio = value / limit;
        Self {
            id,
            case: case.into(),
            value,
            unit,
            floor: None,
            peers: BTreeMap::new(),
            aim,
            ratio,
            met: ratio <= 1.0,
            runs,
        }
    }
}

/// Computes the median of the runs.
#[must_use]
pub fn median(runs: &[f64]) -> f64 {
    let mut sorted = runs.to_vec();
    sorted.sort_by(f64::total_cmp);
    if sorted.is_empty() { f64::NAN } else { sorted[sorted.len() / 2] }
}

/// Gives the CPU time in seconds that this thread has used. Unlike wall time, the CPU time does not depend on other
/// programs.
#[must_use]
pub fn processor_time() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Prints the records as a table. If `--json` is among the arguments, prints them as one JSON array.
pub fn print(records: &[Record]) {
    if !print_json(records) {
        print_table(records);
    }
}

/// Prints points as a table or, with `--json`, as JSON, as [`print`] does.
pub fn print_points(points: &[Point]) {
    if !print_json(points) {
        print_table(points.iter().map(|point| &point.record));
    }
}

/// Prints the values as one JSON array if `--json` is among the arguments. Tells whether it has printed them.
fn print_json<T: Serialize>(values: &[T]) -> bool {
    let wanted = std::env::args().any(|argument| argument == "--json");
    if wanted {
        println!("{}", serde_json::to_string(values).expect("numbers and texts"));
    }
    wanted
}

fn print_table<'a>(records: impl IntoIterator<Item = &'a Record>) {
    for record in records {
        let least = record.runs.iter().copied().fold(f64::INFINITY, f64::min);
        let most = record.runs.iter().copied().fold(0.0, f64::max);
        let met = match (record.aim, record.met) {
            ("", _) => "",
            (_, true) => "met",
            (_, false) => "MISSED",
        };
        println!(
            "{:4} {:44} {:>10.3} {:6} ({least:.3} – {most:.3})  {}  {met}",
            record.id, record.case, record.value, record.unit, record.aim
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_one() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn an_aim_is_met_up_to_its_limit() {
        assert!(Record::below("P0", "x", "ms", vec![20.0], 20.0, "≤ 20 ms").met);
        assert!(!Record::below("P0", "x", "ms", vec![20.1], 20.0, "≤ 20 ms").met);
    }
}

//! The figures of all rounds, and the records that are made from them.

use std::collections::BTreeMap;

use crossdock_bench::{Point, Record, median};

use crate::Kind;

pub const EMBEDDED: &str = "embedded";
#[cfg(feature = "etcd")]
pub const ETCD: &str = "etcd";
pub const FLOOR: &str = "floor: TCP and a file";
pub const DISK: &str = "floor: TCP and a file on a disk";
pub const PUTS: &str = "floor: plain puts of etcd";

pub const ONE: &str = "registrations per second, one by one";
pub const TOGETHER: &str = "registrations per second, all nodes at once";
pub const REPORTED: &str = "the same, until all watches have reported all";
pub const DELAY: &str = "watch delay, median";
pub const DELAY_99: &str = "watch delay, 99 %";
pub const LAST: &str = "watch delay, last node";
pub const BUSY: &str = "watch delay while all register, median";
pub const BUSY_99: &str = "watch delay while all register, 99 %";

const PANELS: [&str; 8] = [ONE, TOGETHER, REPORTED, DELAY, DELAY_99, LAST, BUSY, BUSY_99];
const PER_SECOND: [&str; 3] = [ONE, TOGETHER, REPORTED];

/// The figures. For each panel of the plot, each kind of site and each line of the plot there is one value for each
/// round.
#[derive(Default)]
pub struct Rows(BTreeMap<(&'static str, Kind, &'static str), Vec<f64>>);

impl Rows {
    pub fn add(&mut self, kind: Kind, series: &'static str, panel: &'static str, value: f64) {
        self.0.entry((panel, kind, series)).or_default().push(value);
    }

    pub fn points(&self) -> Vec<Point> {
        let of = |panel| move |(key, _): &(&(&str, Kind, &str), _)| key.0 == panel;
        let rows = PANELS.iter().flat_map(|&panel| self.0.iter().filter(of(panel)));
        rows.map(|(&(panel, kind, series), runs)| self.point(panel, kind, series, runs)).collect()
    }

    fn point(&self, panel: &'static str, kind: Kind, series: &'static str, runs: &[f64]) -> Point {
        let nodes = match kind {
            Kind::Real => "3 real nodes",
            Kind::Simulated => "1 000 simulated nodes",
        };
        let case = format!("catalog, {nodes}, {panel}: {series}");
        let unit = if PER_SECOND.contains(&panel) { "1/s" } else { "µs" };
        let floor = match series {
            FLOOR | DISK | PUTS => None,
            EMBEDDED => self.0.get(&(panel, kind, FLOOR)),
            // The floor of etcd is a plain put. But a plain put has no figure for watches. So in the panels for
            // watches, the floor of the embedded catalog is the floor of etcd, too.
            _ => self.0.get(&(panel, kind, PUTS)).or_else(|| self.0.get(&(panel, kind, FLOOR))),
        };
        let record = Record::below("P15", case, unit, runs.to_vec(), 1.0, "");
        let record = Record { floor: floor.map(|runs| median(runs)), ratio: 0.0, met: true, ..record };
        Point::new(record, "catalog", kind.nodes(), series).in_panel(panel)
    }
}

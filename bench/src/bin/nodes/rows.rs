//! The times of all rounds, and the records that are made from them.

use std::collections::BTreeMap;

use crossdock_bench::{Point, Record, median};

use crate::Size;

pub const FLOORS: [&str; 2] = ["raw TCP", "raw TCP, 4 streams"];
pub const FRESH: &str = "raw TCP, 4 streams, fresh memory";
pub const GRPC: &str = "gRPC";
pub const ROUND_TRIP: &str = "TCP round trip";
pub const REGISTRATION: &str = "registration in the catalog";

pub const NOUNS: [&str; 4] = ["item", "message", "version", "file"];
/// The sites: without TLS and with TLS.
pub const SITES: [&str; 2] = ["plain", "TLS"];

#[derive(Default)]
pub struct Times {
    /// For each kind of measurement, one time for each round.
    runs: BTreeMap<String, Vec<f64>>,
    /// For each kind of transfer, the time of each transfer.
    each: BTreeMap<String, Vec<f64>>,
    /// True in every round but the first. The times of the first round are not counted.
    pub is_counted: bool,
}

impl Times {
    pub fn add(&mut self, what: &[&str], time: f64) {
        if self.is_counted {
            self.runs.entry(what.join(", ")).or_default().push(time);
        }
    }

    /// Adds the transfers of one round.
    pub fn add_each(&mut self, what: &[&str], took: &[f64]) {
        self.add(what, median(took));
        if self.is_counted {
            self.each.entry(what.join(", ")).or_default().extend(took);
        }
    }

    fn of(&self, what: &[&str]) -> &[f64] {
        self.runs.get(&what.join(", ")).map_or(&[], Vec::as_slice)
    }

    fn median(&self, what: &[&str]) -> f64 {
        median(self.of(what))
    }
}

pub fn points(times: &Times, sizes: &[&Size]) -> Vec<Point> {
    let mut points: Vec<Point> = catalog(times).into_iter().map(Point::from).collect();
    for noun in NOUNS {
        for size in sizes {
            let point = |record, way: &str| Point::new(record, "nodes", size.bytes, way).in_panel(noun);
            for site in SITES {
                let runs = times.of(&[noun, site, size.name]).to_vec();
                points.push(point(against_tcp(times, noun, site, size, runs.clone()), site));
                if size.bytes == 10_000_000 && !times.of(&[GRPC, size.name]).is_empty() {
                    points.push(against_grpc(times, noun, site, size, runs).into());
                }
            }
            for way in [FLOORS[0], FLOORS[1], FRESH, GRPC] {
                let runs = times.of(&[way, size.name]).to_vec();
                if !runs.is_empty() {
                    points.push(point(no_aim(format!("{noun}, {}: {way}", size.name), "µs", runs), way));
                }
            }
        }
    }
    points.extend(table_2(times, sizes));
    points
}

/// Makes table II of the CDI paper: the mean time of a transfer from one host to another.
fn table_2(times: &Times, sizes: &[&Size]) -> Vec<Point> {
    let item = |site: &str| ["item", site].join(", ");
    let ways = [
        (GRPC, GRPC.to_owned()),
        ("TCP", FLOORS[0].to_owned()),
        ("item", item(SITES[0])),
        ("item, TLS", item(SITES[1])),
    ];
    let mut points = Vec::new();
    for (series, way) in ways {
        for size in sizes {
            let Some(took) = times.each.get(&[way.as_str(), size.name].join(", ")) else { continue };
            let runs: Vec<f64> = took.iter().map(|us| us / 1e3).collect();
            let mean = runs.iter().sum::<f64>() / runs.len() as f64;
            let record = no_aim(format!("table II, {series}, {}", size.name), "ms", runs);
            points.push(Point::new(Record { value: mean, ..record }, "CDI, table II", size.bytes, series));
        }
    }
    points
}

fn against_tcp(times: &Times, noun: &str, site: &str, size: &Size, runs: Vec<f64>) -> Record {
    let floor = FLOORS.map(|way| times.median(&[way, size.name])).into_iter().fold(f64::INFINITY, f64::min);
    let (limit, aim) = match size.bytes {
        ..=10_000 => {
            let limit = 2.0 * floor + times.median(&[REGISTRATION]);
            (limit, "≤ 2 × a raw TCP round trip + the catalog's transaction")
        }
        10_001..1_000_000 => (f64::INFINITY, ""),
        _ => (floor / 0.9, "≥ 0.9 × the best raw TCP"),
    };
    let case = format!("{noun}, {site}, {}", size.name);
    let peers = [FLOORS[0], FLOORS[1], FRESH, GRPC].into_iter().filter(|way| !times.of(&[way, size.name]).is_empty());
    let peers = peers.map(|way| (way.to_owned(), times.median(&[way, size.name]))).collect();
    Record { floor: Some(floor), peers, ..Record::below("P15", case, "µs", runs, limit, aim) }
}

fn against_grpc(times: &Times, noun: &str, site: &str, size: &Size, runs: Vec<f64>) -> Record {
    let grpc = times.median(&[GRPC, size.name]);
    let case = format!("{noun}, {site}, {}, against gRPC", size.name);
    let peers = BTreeMap::from([(GRPC.to_owned(), grpc)]);
    Record { peers, ..Record::below("P15", case, "µs", runs, grpc / 5.0, "≥ 5 × gRPC") }
}

fn catalog(times: &Times) -> Vec<Record> {
    let record = |what: &str, unit| no_aim(what.to_owned(), unit, times.of(&[what]).to_vec());
    let registration = Record { floor: Some(times.median(&[ROUND_TRIP])), ..record(REGISTRATION, "µs") };
    vec![record(ROUND_TRIP, "µs"), registration]
}

fn no_aim(case: String, unit: &'static str, runs: Vec<f64>) -> Record {
    Record { ratio: 0.0, met: true, ..Record::below("P15", case, unit, runs, 1.0, "") }
}

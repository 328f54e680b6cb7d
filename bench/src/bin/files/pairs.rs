//! Measures row Y5: pairs of a producer and a consumer that exchange files, by each method of waiting for a file.

use std::collections::BTreeMap;
use std::process::Child;
use std::time::Duration;

use crossdock_bench::{Point, Record, median};

use crate::part::STEP;
use crate::place::{Doors, Place, printed_numbers};

/// The methods of crossdock by which a consumer waits for a file.
const OURS: [&str; 3] = ["preload", "notification", "library"];
/// The methods without crossdock. With `sequential`, the consumers start after the producers have ended.
const OTHERS: [&str; 4] = ["sequential", "polling", "inotify", "markers"];

/// The files that each producer writes.
#[derive(Clone, Copy)]
pub struct Files {
    pub case: &'static str,
    pub bytes: usize,
    pub count: usize,
}

/// Measures the time of a file: from the producer's first byte until the consumer has read the last byte.
pub fn each_file(doors: &Doors<'_>, files: Files, pairs: usize) -> Vec<Record> {
    let of_files = |method: &'static str| {
        let times = run(doors, method, files, pairs, Duration::ZERO);
        let all = times.iter().flat_map(|(begun, ended)| begun.iter().zip(ended).map(|(b, e)| (e - b) / 1e6));
        (method, all.collect::<Vec<f64>>())
    };
    let times: BTreeMap<&str, Vec<f64>> = OURS.into_iter().chain(OTHERS).map(of_files).collect();
    let peers: BTreeMap<String, f64> =
        OTHERS.iter().map(|method| ((*method).to_owned(), median(&times[method]))).collect();
    let sequential = peers["sequential"];
    let record = |door: &str| {
        let (limit, aim) = if files.bytes < 100_000_000 {
            (sequential / 6.0, "≥ 6 × the sequential approach")
        } else {
            (sequential, "ahead of the sequential approach")
        };
        let case = format!("{}, {pairs} pairs, {door}, one file", files.case);
        let mut record = Record::below("Y5", case, "ms", times[door].clone(), limit, aim);
        record.floor = Some(peers["markers"]);
        record.peers = peers.clone();
        record
    };
    OURS.map(record).into()
}

/// Measures figure 2 of the DYAD paper: the time from the start to the end of all tasks, over the number of pairs. Each
/// pair does the same work, so this shows weak scaling. The consumer analyses each file as long as the producer computes
/// it.
pub fn all_files(doors: &Doors<'_>, files: Files, pairs: &[usize], rounds: usize) -> Vec<Point> {
    let mut points = Vec::new();
    for &pairs in pairs {
        let mut times: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for _ in 0..rounds {
            for method in ["preload", "sequential", "markers"] {
                let (begun, ended): (Vec<_>, Vec<_>) = run(doors, method, files, pairs, STEP).into_iter().unzip();
                let first = begun.concat().into_iter().fold(f64::INFINITY, f64::min) - STEP.as_nanos() as f64;
                let last = ended.concat().into_iter().fold(0.0, f64::max);
                times.entry(method).or_default().push((last - first) / 1e9);
            }
        }
        for (method, runs) in times {
            let case = format!("{}, {pairs} pairs, {method}, all files", files.case);
            let record = Record {
                id: "Y5",
                case,
                value: median(&runs),
                unit: "s",
                floor: None,
                peers: BTreeMap::new(),
                aim: "",
                ratio: 0.0,
                met: true,
                runs,
            };
            points.push(Point::new(record, "dyad-2", pairs, method).in_panel(files.case));
        }
    }
    points
}

/// Runs the pairs with one method of waiting for a file. After each file the consumer waits for `analysis`, as if it
/// analysed the file. Gives, for each pair, the times at which the producer began to write each file and at which the
/// consumer had read it, in nanoseconds of the monotonic clock.
fn run(doors: &Doors<'_>, method: &str, files: Files, pairs: usize, analysis: Duration) -> Vec<(Vec<f64>, Vec<f64>)> {
    let ours = OURS.contains(&method);
    let places: Vec<Place> = (0..pairs).map(|pair| Place::new(&format!("pair-{pair}"))).collect();
    let (count, bytes) = (files.count.to_string(), files.bytes.to_string());
    let analysis = analysis.as_millis().to_string();
    let consume = |place: &Place| {
        let folder = place.folder(if ours { "published" } else { "plain" });
        place.start(doors, method, &["consume", method, &folder, &count, &bytes, &analysis])
    };
    let produce = |place: &Place| {
        let folder = place.folder(if ours { "stage" } else { "plain" });
        place.start(doors, "none", &["produce", method, &folder, &count, &bytes])
    };
    let all = |children: Vec<Child>| children.into_iter().map(printed_numbers).collect::<Vec<_>>();
    let (begun, ended) = if method == "sequential" {
        let begun = all(places.iter().map(produce).collect());
        (begun, all(places.iter().map(consume).collect()))
    } else {
        let consumers = places.iter().map(consume).collect();
        let begun = all(places.iter().map(produce).collect());
        (begun, all(consumers))
    };
    begun.into_iter().zip(ended).collect()
}

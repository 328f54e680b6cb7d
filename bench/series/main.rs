//! Measures series (rows P8 and P9, and table I of the TCASM paper): the publisher's time for one version, compared
//! with one memcpy of the same bytes in the same run. Rounds of memcpy and of series alternate, so that other programs
//! slow both down alike.
//!
//! `bench/series/run [--json]` runs this program. `QUICK=1` makes a short run with a quarter of the data.

mod world;

use crossdock_bench::{Record, median, print, processor_time};
use crossdock_core::series::{Detect, Identity, Method, Pages, Publisher, Spec, Variable};
use std::time::Instant;
use world::{alone, anonymous, memory_of};

const PAGE: usize = 4096;

/// A buffer for the memcpy: private memory with huge pages. The variables of a series have memory of the same kind.
struct Buffer(crossdock_os::reservation::Reservation);

impl Buffer {
    fn new(bytes: usize) -> Self {
        let place = crossdock_os::reservation::Reservation::reserve(bytes).expect("addresses");
        place.put_memory(0, bytes).expect("memory");
        Self(place)
    }

    fn start(&self) -> *mut u8 {
        self.0.start().as_ptr()
    }
}

fn timed(work: impl FnOnce()) -> f64 {
    let started = Instant::now();
    work();
    started.elapsed().as_secs_f64() * 1e3
}

/// Writes one number into each cache line of the range. A solver that changes everything writes at least this much.
fn write_all(start: *mut u8, bytes: usize, step: u64) {
    for at in (0..bytes).step_by(64) {
        // SAFETY: the address lies within the memory that the caller gave.
        unsafe { start.add(at).cast::<u64>().write_volatile(step + at as u64) };
    }
}

fn publish_one(publisher: &mut Publisher) {
    publisher.publish(&[]).expect("room");
}

fn copy(to: &Buffer, from: *const u8, bytes: usize) {
    // SAFETY: both ranges have this many bytes and do not overlap.
    unsafe { std::ptr::copy_nonoverlapping(from, to.start(), bytes) };
}

/// Says whether crossdock may move a variable's pages. Only the method of private copies needs this. A method that
/// crossdock chooses itself leaves the pages in place.
fn pages_of(detect: Detect) -> Pages {
    if detect == Detect::PrivateCopies { Pages::MayMove } else { Pages::Stay }
}

fn publisher(bytes: usize, detect: Detect) -> (Publisher, world::Kept) {
    let world = alone();
    let spec = Spec { detect, pages: pages_of(detect), ..Spec::of(vec![Variable::new("u", "u8", &[bytes as u64])]) };
    let (publisher, offer) =
        Publisher::create(Identity::alone("bench"), &spec, world.clone()).expect("memory for the series");
    (publisher, world::Kept(world, offer))
}

fn aim(id: &'static str, case: String, runs: Vec<f64>, floor: f64, limit: f64, aim: &'static str) -> Record {
    let mut record = Record::below(id, case, "ms", runs, limit, aim);
    record.floor = Some(floor);
    record
}

/// Measures row P8: all data changes in each step.
fn everything(bytes: usize, rounds: usize, records: &mut Vec<Record>) {
    let (from, to) = (Buffer::new(bytes), Buffer::new(bytes));
    write_all(from.start(), bytes, 0);
    copy(&to, from.start(), bytes);
    let (mut auto, _kept) = publisher(bytes, Detect::Auto);
    let (mut begun, _kept_too) = publisher(bytes, Detect::Auto);
    // The first three steps are not measured, because in them the series takes the memory for two versions.
    for step in 0..3 {
        write_all(auto.memory("u").expect("a variable"), bytes, step);
        auto.publish(&[]).expect("room");
        begun.begin().expect("room");
        write_all(begun.memory("u").expect("a variable"), bytes, step);
        begun.publish(&[]).expect("room");
    }
    let (mut floor, mut publish, mut flip) = (Vec::new(), Vec::new(), Vec::new());
    for step in 3..3 + rounds as u64 {
        write_all(from.start(), bytes, step);
        floor.push(timed(|| copy(&to, from.start(), bytes)));
        write_all(auto.memory("u").expect("a variable"), bytes, step);
        publish.push(timed(|| publish_one(&mut auto)));
        let begin = timed(|| begun.begin().expect("room"));
        write_all(begun.memory("u").expect("a variable"), bytes, step);
        flip.push(begin + timed(|| publish_one(&mut begun)));
    }
    let memcpy = median(&floor);
    let size = bytes >> 20;
    let way = auto.statistics().method.word();
    let case = format!("publish, all of {size} MB changed ({way})");
    records.push(aim("P8", case, publish, memcpy, 0.6 * memcpy, "≤ 0.6 × memcpy"));
    let case = format!("begin and publish, {size} MB written in place");
    records.push(aim("P8", case, flip, memcpy, 0.01 * memcpy, "≤ 1 % of memcpy"));
}

/// Measures row P9: one hundredth of the data changes in each step. With `scattered`, single pages all over the data
/// change. Otherwise one contiguous range changes, which moves on with each step.
fn hundredth(
    bytes: usize,
    rounds: usize,
    scattered: bool,
    chunk: Option<u32>,
    detect: Detect,
    records: &mut Vec<Record>,
) {
    let before = anonymous();
    let world = alone();
    let mut spec = Spec::of(vec![Variable::new("u", "u8", &[bytes as u64])]);
    spec.chunk = chunk;
    (spec.detect, spec.pages) = (detect, pages_of(detect));
    let (mut publisher, offer) =
        Publisher::create(Identity::alone("bench"), &spec, world.clone()).expect("memory for the series");
    write_all(publisher.memory("u").expect("a variable"), bytes, 0);
    publisher.publish(&[]).expect("room");
    let (changed, pages) = (bytes / 100 / PAGE * PAGE, bytes / PAGE);
    let plain = Buffer::new(bytes / 8);
    let (mut random, mut window) = (7usize, 0);
    let mut step = |publisher: &mut Publisher, step: u64| {
        let start = publisher.memory("u").expect("a variable");
        let mut touch = |at: usize, length: usize| {
            // SAFETY: the address lies within the memory of the variable.
            write_all(unsafe { start.add(at) }, length, step);
            if detect == Detect::Hints {
                publisher.touched("u", at as u64..(at + length) as u64).expect("within the variable");
            }
        };
        let writing = timed(|| {
            if scattered {
                for _ in 0..changed / PAGE {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    touch((random >> 20) % pages * PAGE, PAGE);
                }
            } else {
                window = (window + changed) % (bytes - changed) / PAGE * PAGE;
                touch(window, changed);
            }
        });
        (writing, timed(|| publish_one(publisher)))
    };
    for n in 1..12 {
        step(&mut publisher, n);
    }
    let (source, target) = (Buffer::new(changed), Buffer::new(changed));
    write_all(source.start(), changed, 1);
    copy(&target, source.start(), changed);
    write_all(plain.start(), bytes / 8, 1);
    let (mut floor, mut publish, mut writing, mut bare) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for n in 0..rounds as u64 {
        write_all(source.start(), changed, n);
        floor.push(timed(|| copy(&target, source.start(), changed)));
        bare.push(timed(|| write_all(plain.start(), changed.min(bytes / 8), n)));
        let (wrote, published) = step(&mut publisher, 12 + n);
        writing.push(wrote);
        publish.push(published);
    }
    let own = anonymous().saturating_sub(before + (bytes / 8 + 2 * changed) as u64);
    let memory = (memory_of(&offer) + own) as f64;
    let statistics = publisher.statistics();
    let memcpy = median(&floor);
    let where_ = if scattered { "in single pages" } else { "in one window" };
    let chunk = statistics.chunk >> 10;
    let what = format!("1 % of {} MB {where_}, {chunk} KB chunks ({})", bytes >> 20, statistics.method.word());
    records.push(aim("P9", format!("publish, {what}"), publish, memcpy, 5.0 * memcpy + 1.0, "≤ 5 × memcpy + 1 ms"));
    // The aim for memory applies only to the method that crossdock chooses. A method that the program forces may store
    // the data twice.
    let (limit, words) = match detect {
        Detect::Auto => ((1.05 * bytes as f64 + 2.0 * changed as f64) / 1e6, "≤ 1.05 × + changed"),
        _ => (f64::INFINITY, ""),
    };
    let mut record = Record::below("P9", format!("memory, {what}"), "MB", vec![memory / 1e6], limit, words);
    record.floor = Some(bytes as f64 / 1e6);
    records.push(record);
    let mut record = Record::below("P9", format!("writing, {what}"), "ms", writing, f64::INFINITY, "");
    record.floor = Some(median(&bare));
    records.push(record);
}

/// Prints table I: microseconds per page when all data changes, for each method. The time includes publishing and the
/// first writes afterwards.
fn table(bytes: usize, rounds: usize, records: &mut Vec<Record>) {
    let pages = (bytes / PAGE) as f64;
    let (from, to) = (Buffer::new(bytes), Buffer::new(bytes));
    write_all(from.start(), bytes, 0);
    copy(&to, from.start(), bytes);
    let ways = [Detect::CopyAll, Detect::Compare, Detect::WriteProtect, Detect::PrivateCopies];
    let mut publishers: Vec<_> = ways.iter().map(|way| publisher(bytes, *way)).collect();
    let (mut floor, mut bare) = (Vec::new(), Vec::new());
    let mut sums = vec![(Vec::new(), Vec::new()); ways.len()];
    for round in 0..rounds as u64 + 3 {
        let wrote = timed(|| write_all(from.start(), bytes, round));
        let copied = timed(|| copy(&to, from.start(), bytes));
        for ((publisher, _), sum) in publishers.iter_mut().zip(&mut sums) {
            let start = publisher.memory("u").expect("a variable");
            let writing = timed(|| write_all(start, bytes, round));
            let publishing = timed(|| publish_one(publisher));
            if round >= 3 {
                sum.0.push((writing - wrote).max(0.0) * 1e3 / pages);
                sum.1.push(publishing * 1e3 / pages);
            }
        }
        if round >= 3 {
            bare.push(wrote * 1e3 / pages);
            floor.push(copied * 1e3 / pages);
        }
    }
    let memcpy = median(&floor);
    records.push(Record::below("T9", "table I: memcpy", "µs/page", floor, f64::INFINITY, ""));
    for ((publisher, _), (writing, publishing)) in publishers.iter().zip(sums) {
        let method = publisher.statistics().method;
        let both: Vec<f64> = writing.iter().zip(&publishing).map(|(w, p)| w + p).collect();
        let name = method.word();
        for (case, runs) in [("publish", publishing), ("first writes", writing)] {
            let mut record =
                Record::below("T9", format!("table I: {case}, {name}"), "µs/page", runs, f64::INFINITY, "");
            record.floor = Some(memcpy);
            records.push(record);
        }
        // The aim applies only to the method that crossdock chooses when all data changes. The other methods are shown
        // for comparison.
        let all = method == Method::CopyAll;
        let (limit, aim) = if all { (1.15, "≤ 1.15 × memcpy (paper: 5.9)") } else { (f64::INFINITY, "") };
        let mut record = Record::below("T9", format!("table I: both, {name}"), "µs/page", both, limit * memcpy, aim);
        record.floor = Some(memcpy);
        records.push(record);
    }
}

/// Measures the cost of changing the method that finds changes. The program changes little data, then everything, then
/// little again, and then much but not all. Each of these four phases gives one record: the CPU time of its longest
/// publish, compared with one memcpy of all the data. The pool grows at the first publish of the second phase, because
/// two versions have no chunk in common for the first time. This publish has a record of its own, because every method
/// needs new memory for it.
fn changing_over(bytes: usize, records: &mut Vec<Record>) {
    const STRETCH: u64 = 20;
    const GROWS: &str = "everything, after 1 %";
    let (from, to) = (Buffer::new(bytes), Buffer::new(bytes));
    write_all(from.start(), bytes, 0);
    copy(&to, from.start(), bytes);
    let floor: Vec<f64> = (0..5)
        .map(|_| {
            let before = processor_time();
            copy(&to, from.start(), bytes);
            (processor_time() - before) * 1e3
        })
        .collect();
    drop((from, to));
    let (mut publisher, _kept) = publisher(bytes, Detect::Auto);
    let little = bytes / 100 / PAGE * PAGE;
    let (mut step, mut at) = (0, 0);
    let mut stretch = |part: usize, scattered: bool| {
        let mut took = Vec::new();
        for _ in 0..STRETCH {
            step += 1;
            at = (at + part) % (bytes - part + 1) / PAGE * PAGE;
            // SAFETY: the address lies within the memory of the variable.
            let place = unsafe { publisher.memory("u").expect("a variable").add(at) };
            if scattered {
                // Two of every three pages are written.
                for page in (0..bytes / PAGE).filter(|page| page % 3 != step as usize % 3) {
                    // SAFETY: the page lies within the memory of the variable.
                    write_all(unsafe { publisher.memory("u").expect("a variable").add(page * PAGE) }, PAGE, step);
                }
            } else {
                write_all(place, part, step);
            }
            // The figure is the publisher's CPU time and not the wall time. The wall time would be longer if other
            // programs used the CPU.
            let before = processor_time();
            publish_one(&mut publisher);
            took.push((processor_time() - before) * 1e3);
        }
        let statistics = publisher.statistics();
        if std::env::var("BENCH_TRACE").is_ok() {
            eprintln!("{} {} {took:.1?}", statistics.method.word(), statistics.switches);
        }
        (took, statistics.method.word())
    };
    for (part, scattered, what) in [
        (little, false, "1 % in one window, from the beginning"),
        (bytes, false, GROWS),
        (little, false, "1 % again"),
        (bytes, true, "two pages of three, after 1 %"),
    ] {
        let (mut took, way) = stretch(part, scattered);
        let (memcpy, size) = (median(&floor), bytes >> 20);
        if what == GROWS {
            let case = format!("the pool grows by {size} MB, and all of them are copied");
            records.push(aim("P9", case, vec![took.remove(0)], memcpy, f64::INFINITY, ""));
        }
        let longest = took.iter().copied().fold(0.0, f64::max);
        let case = format!("longest publish while the way changes, {size} MB, {what} (to {way})");
        let words = "≤ 2 × memcpy of all: its own copy, and no more again";
        records.push(aim("P9", case, vec![longest], memcpy, 2.0 * memcpy, words));
    }
}

fn main() {
    let mut records = Vec::new();
    let quick = std::env::var("QUICK").is_ok_and(|value| !value.is_empty() && value != "0");
    // With the argument `begin`, the program only calls `begin` and `publish` many times, for use under a profiler.
    if std::env::args().any(|argument| argument == "begin") {
        let (mut publisher, _kept) = publisher(16 << 20, Detect::Auto);
        for step in 0..if quick { 300 } else { 3000 } {
            publisher.begin().expect("room");
            write_all(publisher.memory("u").expect("a variable"), 16 << 20, step);
            publish_one(&mut publisher);
        }
        return;
    }
    if std::env::args().any(|argument| argument == "changing-over") {
        changing_over(if quick { 256 << 20 } else { 1 << 30 }, &mut records);
        return print(&records);
    }
    let (large, rounds) = if quick { (256 << 20, 7) } else { (1 << 30, 11) };
    table(large / 4, rounds, &mut records);
    for bytes in [large / 16, large / 4] {
        everything(bytes, rounds, &mut records);
    }
    hundredth(large, rounds, false, None, Detect::Auto, &mut records);
    hundredth(large, rounds, true, None, Detect::Auto, &mut records);
    hundredth(large, rounds, true, Some(4096), Detect::WriteProtect, &mut records);
    hundredth(large, rounds, false, None, Detect::Compare, &mut records);
    hundredth(large, rounds, false, None, Detect::PrivateCopies, &mut records);
    hundredth(large, rounds, false, None, Detect::Hints, &mut records);
    changing_over(large, &mut records);
    print(&records);
}

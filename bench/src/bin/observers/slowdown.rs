//! Measures row P10: how much a publisher slows down with one and with eight observers, compared with none. Of the
//! eight, one is stopped while it holds a version.
//!
//! Two things are measured separately. **Iterations** are measured in wall time, with observers that read the whole
//! array at each look. If there are fewer CPUs than processes, this figure also contains the competition for CPUs,
//! caches and memory. **Publishing** is measured in the publisher's own CPU time. The observers look as often as in the
//! other measurement, but each reads only a few numbers. This figure contains the work that observers cause in the
//! publisher: it reads their pins and finds the slots that they hold. Two CPUs are enough to measure it. For comparison
//! there is a publisher without observers that keeps eight older versions. This publisher shows how much of the
//! slowdown comes from slots that are not in the caches.

use std::cell::Cell;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crossdock_bench::{Daemon, Record, median, processor_time};
use crossdock_client::{Detect, Publisher, Version};
use crossdock_os::process::{self, Signal};

use crate::series;
use crate::shared::{look, numbers, often_enough, pin, timed, work};

/// The size of the array in bytes.
const SIZE: usize = 8 << 20;
/// How often each observer looks per second. A program that plots or analyses the data looks about this often, and
/// pauses in between.
const LOOKS: u32 = 20;
const KEPT: &str = "no observer, eight older versions kept";

/// Measures the publisher's whole iteration and its publishing alone, with each number of observers. Figures are
/// relative to those without observers.
pub fn slowdown(daemon: &Daemon, runs: usize, seconds: f64) -> Vec<Record> {
    pin(true);
    let session = daemon.connect();
    let mut publisher = series::publisher(&session, "watched", SIZE, Detect::Auto, None);
    let mut keeper = series::publisher_that_keeps(&session, "kept", SIZE, Detect::Auto, None, 8);
    let published = Cell::new(0.0);
    let iterate = |publisher: &mut Publisher| {
        work(series::array(publisher, SIZE));
        let before = processor_time();
        publisher.publish(&[]).expect("published");
        published.set(published.get() + processor_time() - before);
    };
    let mut iterate_keeper = || iterate(&mut keeper);
    let mut iterate = || iterate(&mut publisher);
    iterate();
    // The cases alternate, so that other programs slow all of them down alike.
    let count = often_enough(seconds, &mut iterate);
    let mut times = [const { Vec::new() }; 3];
    let mut own = [const { Vec::new() }; 4];
    for _ in 0..runs {
        for (index, observers) in [0usize, 1, 8].into_iter().enumerate() {
            with_watchers(daemon, observers, "all", || times[index].push(timed(count, &mut iterate)));
            with_watchers(daemon, observers, "little", || {
                // The publisher takes new memory when a version is held for the first time, but not at later publishes.
                // So it publishes some versions before the measurement.
                timed(count / 4 + 1, &mut iterate);
                published.set(0.0);
                timed(count, &mut iterate);
                own[index].push(published.get() / f64::from(count));
            });
        }
        timed(count / 4 + 16, &mut iterate_keeper);
        published.set(0.0);
        timed(count, &mut iterate_keeper);
        own[3].push(published.get() / f64::from(count));
    }
    let mut records = Vec::new();
    for (times, what) in [
        (&times[..], "publisher's iteration over 8 MiB, all changed"),
        (&own[..], "publisher's own processor time for publishing 8 MiB, all changed"),
    ] {
        let base = median(&times[0]);
        for (times, observers) in times.iter().zip(["no observer", "1 observer", "8 observers, one stuck", KEPT]) {
            let percent: Vec<f64> = times.iter().map(|t| (t / base - 1.0) * 100.0).collect();
            let case = format!("{what}, {observers}");
            let aim = "≤ 2 % slower with 8 observers than with none";
            let (limit, aim) = if observers == KEPT { (f64::INFINITY, "") } else { (2.0, aim) };
            let mut record = Record::below("P10", case, "%", percent, limit, aim);
            record.floor = Some(base * 1e3);
            records.push(record);
        }
    }
    drop(session);
    records
}

/// Starts this many observers, which do the work `what`, and then calls `measure`. If there are eight observers, one of
/// them is stopped.
fn with_watchers(daemon: &Daemon, observers: usize, what: &str, measure: impl FnOnce()) {
    let socket = daemon.socket().display().to_string();
    let mut watchers: Vec<Child> = (0..observers).map(|_| watch(&socket, what)).collect();
    if let (8, Some(stuck)) = (observers, watchers.first()) {
        signal(stuck, Signal::STOP);
    }
    measure();
    for watcher in &mut watchers {
        signal(watcher, Signal::KILL);
        let _ = watcher.wait();
    }
}

/// Runs an observer's process, which looks at versions at a fixed rate and holds a version between two looks.
pub fn watcher(arguments: &[String]) {
    pin(false);
    let (_session, mut observer) = series::observer(arguments[0].as_ref(), "watched");
    let all = arguments.get(1).is_some_and(|what| what == "all");
    let mut held = observer.latest().expect("a version");
    let see = |held: &Version| {
        let numbers = numbers(held.bytes("u").expect("the array"));
        look(if all { numbers } else { &numbers[..8] });
    };
    see(&held);
    println!("looks");
    let pause = Duration::from_secs(1) / LOOKS;
    loop {
        let begun = Instant::now();
        let _ = held.refresh();
        see(&held);
        std::thread::sleep(pause.saturating_sub(begun.elapsed()));
    }
}

fn watch(socket: &str, what: &str) -> Child {
    let program = std::env::current_exe().expect("this program's path");
    let mut child =
        Command::new(program).args(["watch", socket, what]).stdout(Stdio::piped()).spawn().expect("a child");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("its output")).read_line(&mut line).expect("it looks");
    child
}

fn signal(child: &Child, signal: Signal) {
    if let Ok(Some(pidfd)) = process::open_pidfd(child.id() as i32) {
        let _ = process::send_signal(&pidfd, signal);
    }
}

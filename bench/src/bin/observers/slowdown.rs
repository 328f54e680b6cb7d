//! P10: what none, one and eight observers do to a publisher; with eight, one is stopped while it holds a version.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crossdock_bench::{Daemon, Record, median};
use crossdock_client::Detect;
use crossdock_os::process::{self, Signal};

use crate::series;
use crate::shared::{look, measure, numbers, pin, work};

/// Of the array, and how much of it changes each time.
const SIZE: usize = 8 << 20;
/// Looks of each observer per second: what a plot or an analysis does, not a loop at full speed.
const LOOKS: u32 = 20;

/// Publisher's iteration with so many observers, next to none.
pub fn slowdown(daemon: &Daemon, runs: usize, seconds: f64) -> Vec<Record> {
    pin(true);
    let session = daemon.connect();
    let mut publisher = series::publisher(&session, "watched", SIZE, Detect::Auto, None);
    let mut iterate = || {
        work(series::array(&mut publisher, SIZE));
        publisher.publish(&[]).expect("published");
    };
    iterate();
    let mut records = Vec::new();
    let mut base = 0.0;
    for count in [0usize, 1, 8] {
        let mut watchers: Vec<Child> = (0..count).map(|_| watch(&daemon.socket().display().to_string())).collect();
        if let (8, Some(stuck)) = (count, watchers.first()) {
            signal(stuck, Signal::STOP);
        }
        let times = measure(runs, seconds, &mut iterate);
        for watcher in &mut watchers {
            signal(watcher, Signal::KILL);
            let _ = watcher.wait();
        }
        if count == 0 {
            base = median(&times);
        }
        let percent: Vec<f64> = times.iter().map(|t| (t / base - 1.0) * 100.0).collect();
        let what = ["no observer", "1 observer", "8 observers, one stuck"][count.min(2)];
        let case = format!("publisher's iteration over 8 MiB, all changed, {what}");
        let mut record = Record::below("P10", case, "%", percent, 2.0, "≤ 2 % slower with 8 observers than with none");
        record.floor = Some(base * 1e3);
        record.met |= count == 0;
        records.push(record);
    }
    drop(session);
    records
}

/// An observer's process: looks again and again, and holds a version between its looks.
pub fn watcher(arguments: &[String]) {
    pin(false);
    let (_session, mut observer) = series::observer(arguments[0].as_ref(), "watched");
    let mut held = observer.latest().expect("a version");
    look(numbers(held.bytes("u").expect("the array")));
    println!("looks");
    let pause = Duration::from_secs(1) / LOOKS;
    loop {
        let begun = Instant::now();
        let _ = held.refresh();
        look(numbers(held.bytes("u").expect("the array")));
        std::thread::sleep(pause.saturating_sub(begun.elapsed()));
    }
}

fn watch(socket: &str) -> Child {
    let program = std::env::current_exe().expect("this program's path");
    let mut child = Command::new(program).args(["watch", socket]).stdout(Stdio::piped()).spawn().expect("a child");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("its output")).read_line(&mut line).expect("it looks");
    child
}

fn signal(child: &Child, signal: Signal) {
    if let Ok(Some(pidfd)) = process::open_pidfd(child.id() as i32) {
        let _ = process::send_signal(&pidfd, signal);
    }
}

//! P10: what none, one and eight observers do to a publisher; with eight, one is stopped while it holds a version.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crossdock_bench::{Daemon, Record, median};
use crossdock_client::Detect;
use crossdock_os::process::{self, Signal};

use crate::series;
use crate::shared::{look, numbers, often_enough, pin, timed, work};

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
    // In turn, so that whatever else the machine does falls on all of them alike.
    let count = often_enough(seconds, &mut iterate);
    let mut times = [const { Vec::new() }; 3];
    for _ in 0..runs {
        for (observers, times) in [0usize, 1, 8].into_iter().zip(&mut times) {
            let mut watchers: Vec<Child> =
                (0..observers).map(|_| watch(&daemon.socket().display().to_string())).collect();
            if let (8, Some(stuck)) = (observers, watchers.first()) {
                signal(stuck, Signal::STOP);
            }
            times.push(timed(count, &mut iterate));
            for watcher in &mut watchers {
                signal(watcher, Signal::KILL);
                let _ = watcher.wait();
            }
        }
    }
    let base = median(&times[0]);
    let mut records = Vec::new();
    for (times, what) in times.iter().zip(["no observer", "1 observer", "8 observers, one stuck"]) {
        let percent: Vec<f64> = times.iter().map(|t| (t / base - 1.0) * 100.0).collect();
        let case = format!("publisher's iteration over 8 MiB, all changed, {what}");
        let mut record = Record::below("P10", case, "%", percent, 2.0, "≤ 2 % slower with 8 observers than with none");
        record.floor = Some(base * 1e3);
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

//! Measures figure 2 of the TCASM paper: what sharing costs the producer and the observer, for several sizes and five
//! ways of sharing.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use crossdock_bench::{Daemon, Point, median};
use crossdock_client::Detect;

use crate::point::point;
use crate::queue::{Queue, SharedFile};
use crate::series;
use crate::shared::{look, measure, numbers, pin, work};

/// The ways in which the data gets from the producer to the observer.
const WAYS: [&str; 5] = ["function call", "file", "mmap with a queue", "series", "series, begin"];

/// Measures all points of figure 2 of the TCASM paper.
pub fn figure(daemon: &Daemon, sizes: &[usize], runs: usize, seconds: f64) -> Vec<Point> {
    pin(true);
    let mut points = Vec::new();
    for &size in sizes {
        let mut data = vec![0.0f64; size / 8];
        let alone = measure(runs, seconds, || work(&mut data));
        let looking = measure(runs, seconds, || {
            look(&data);
        });
        for way in WAYS {
            let (producer, observer) = one(daemon, way, size, runs, seconds);
            let floor = median(&alone);
            points.push(point(way, "producer", size, &producer, floor));
            if let Some(observer) = observer {
                points.push(point(way, "observer", size, &[observer], median(&looking)));
            }
        }
    }
    points
}

/// Measures one way of sharing: seconds per iteration of the producer, and seconds per version of the observer.
fn one(daemon: &Daemon, way: &str, size: usize, runs: usize, seconds: f64) -> (Vec<f64>, Option<f64>) {
    let mut data = vec![0.0f64; size / 8];
    match way {
        "function call" => {
            let times = measure(runs, seconds, || {
                work(&mut data);
                look(&data);
            });
            (times, None)
        }
        "file" => {
            let folder = daemon.socket().with_file_name("file");
            std::fs::create_dir_all(&folder).expect("a folder");
            let (file, bell) = (SharedFile::new(&folder), Queue::new(4096));
            file.put(bytes(&data));
            let child = observe(&["file", &file.path().display().to_string(), &bell.path(), &size.to_string()]);
            let times = measure(runs, seconds, || {
                work(&mut data);
                file.put(bytes(&data));
                bell.announce();
            });
            bell.end();
            (times, Some(said(child)))
        }
        "mmap with a queue" => {
            let queue = Queue::new(size);
            let child = observe(&["queue", &queue.path(), &size.to_string()]);
            let times = measure(runs, seconds, || {
                work(&mut data);
                queue.put(bytes(&data));
            });
            queue.end();
            (times, Some(said(child)))
        }
        _ => series_way(daemon, way, size, runs, seconds),
    }
}

fn series_way(daemon: &Daemon, way: &str, size: usize, runs: usize, seconds: f64) -> (Vec<f64>, Option<f64>) {
    let session = daemon.connect();
    let mut publisher = series::publisher(&session, "figure", size, Detect::Auto, None);
    let child = observe(&["series", &daemon.socket().display().to_string(), "figure"]);
    let begins = way.ends_with("begin");
    let times = measure(runs, seconds, || {
        if begins {
            // The work writes the whole version, so `begin` need not copy the former state.
            publisher.begin().expect("a free place");
            series::array(&mut publisher, size).fill(1.5);
        } else {
            work(series::array(&mut publisher, size));
        }
        publisher.publish(&[]).expect("published");
    });
    publisher.end().expect("ended");
    let observed = said(child);
    session.remove_series("figure").expect("removed");
    (times, Some(observed))
}

/// Runs the observer in a process of its own. It prints seconds per version.
pub fn observer(arguments: &[String]) {
    pin(false);
    let (mut count, mut busy) = (0u32, 0.0);
    let mut timed = |part: &mut dyn FnMut()| {
        let begun = Instant::now();
        part();
        busy += begun.elapsed().as_secs_f64();
        count += 1;
    };
    match arguments[0].as_str() {
        "file" => {
            let (bell, mut seen) = (Queue::open(&arguments[2], 4096), 0);
            let mut buffer = vec![0u8; arguments[3].parse().expect("a size")];
            while let Some(now) = bell.wait(seen) {
                seen = now;
                timed(&mut || {
                    let mut file = std::fs::File::open(&arguments[1]).expect("the file");
                    file.read_exact(&mut buffer).expect("all of it");
                    look(numbers(&buffer));
                });
            }
        }
        "queue" => {
            let (queue, mut seen) = (Queue::open(&arguments[1], arguments[2].parse().expect("a size")), 0);
            while let Some(now) = queue.wait(seen) {
                while seen != now {
                    timed(&mut || {
                        queue.take(seen, |bytes| {
                            look(numbers(bytes));
                        })
                    });
                    seen = seen.wrapping_add(1);
                }
            }
        }
        _ => {
            let (_session, mut observer) = series::observer(arguments[1].as_ref(), &arguments[2]);
            let mut held: Option<crossdock_client::Version> = None;
            while let Some(version) = series::next(&mut observer) {
                let mut version = Some(version);
                timed(&mut || {
                    // If the observer holds an older version, that version is refreshed, so that only the chunks that
                    // differ are mapped again.
                    match (&mut held, version.take().expect("it was just given")) {
                        (Some(former), version) => drop(former.replace_by(version).expect("a newer version")),
                        (none, version) => *none = Some(version),
                    }
                    look(numbers(held.as_ref().expect("a version").bytes("u").expect("the array")));
                });
            }
        }
    }
    println!("{}", busy / f64::from(count.max(1)));
}

fn bytes(data: &[f64]) -> &[u8] {
    // SAFETY: every sequence of eight bytes is a valid number.
    unsafe { data.align_to().1 }
}

/// Starts this program again as an observer process.
fn observe(arguments: &[&str]) -> Child {
    let program = std::env::current_exe().expect("this program's path");
    let child = Command::new(program).arg("observe").args(arguments).stdout(Stdio::piped()).spawn().expect("a child");
    // The observer must have started before the measurement begins.
    std::thread::sleep(std::time::Duration::from_millis(50));
    child
}

fn said(child: Child) -> f64 {
    let output = child.wait_with_output().expect("its output");
    String::from_utf8_lossy(&output.stdout).trim().parse().unwrap_or(f64::NAN)
}

//! The processes of a measurement, which `files part …` runs: programs that open, read and write files.

use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crossdock_os::clock::now_ns;
use crossdock_os::inotify::{FolderWatch, NameChange};

/// The time that a producer computes before it writes each file.
pub const STEP: Duration = Duration::from_millis(2);

/// Calls `once` many times, and prints how long each call took, in nanoseconds.
fn each(times: usize, once: impl Fn()) {
    (0..200).for_each(|_| once());
    let begun = Instant::now();
    (0..times).for_each(|_| once());
    println!("{}", begun.elapsed().as_nanos() as f64 / times as f64);
}

/// Runs one process of a measurement. It prints the time of the monotonic clock for each of its steps.
pub fn part(words: &[&str]) {
    let number = |text: &str| text.parse::<usize>().expect("a number");
    match *words {
        ["open", path, times] => {
            each(number(times), || drop(File::open(path).expect("a published file")));
        }
        ["write", path, times] => {
            let open = || OpenOptions::new().write(true).open(path);
            each(number(times), || drop(open().expect("a file of the producer")));
        }
        ["await", folder, files] => {
            for file in 0..number(files) {
                let opened = File::open(format!("{folder}/{file}")).expect("a file that comes");
                println!("{}", now_ns());
                drop(opened);
            }
        }
        ["read", path, times] => {
            let mut buffer = vec![0; 1 << 20];
            for _ in 0..number(times) {
                let begun = Instant::now();
                read_all(Path::new(path), &mut buffer);
                println!("{}", begun.elapsed().as_nanos());
            }
        }
        ["produce", method, folder, files, bytes] => {
            let content = vec![7u8; number(bytes)];
            for file in 0..number(files) {
                std::thread::sleep(STEP);
                println!("{}", now_ns());
                fs::write(format!("{folder}/{file}"), &content).expect("room in memory");
                if matches!(method, "polling" | "markers") {
                    fs::write(format!("{folder}/{file}.done"), "").expect("room in memory");
                }
            }
        }
        ["consume", method, folder, files, bytes, analysis] => {
            let analysis = Duration::from_millis(number(analysis) as u64);
            let mut buffer = vec![0; 1 << 20];
            let watch = FolderWatch::new().expect("inotify");
            watch.add(Path::new(folder)).expect("the folder");
            for file in 0..number(files) {
                let path = PathBuf::from(format!("{folder}/{file}"));
                match method {
                    "polling" => poll(&path, Duration::from_millis(10)),
                    "markers" => poll(&path, Duration::from_micros(100)),
                    "inotify" => by_hand(&watch, file, folder),
                    "library" => crossdock_client::await_file(&path).expect("a file that comes"),
                    _ => {}
                }
                let read = read_all(&path, &mut buffer);
                assert_eq!(read, number(bytes), "{method}: a file is read in part");
                std::thread::sleep(analysis);
                println!("{}", now_ns());
            }
        }
        _ => panic!("no part {words:?}"),
    }
}

fn read_all(path: &Path, buffer: &mut [u8]) -> usize {
    let mut file = File::open(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut read = 0;
    loop {
        match file.read(buffer).expect("a file that is there") {
            0 => return read,
            more => read += more,
        }
    }
}

fn poll(path: &Path, every: Duration) {
    while !path.with_extension("done").exists() {
        std::thread::sleep(every);
    }
}

/// Waits until the file with this number is closed, or until a later file exists. The producer writes the files one
/// after the other, so a later file shows that this file is complete.
fn by_hand(watch: &FolderWatch, file: usize, folder: &str) {
    let later = || Path::new(&format!("{folder}/{}", file + 1)).exists();
    let mut closed = false;
    while !closed && !later() {
        let _ = crossdock_os::event::wait_readable(watch, crossdock_os::Deadline::after(Duration::from_millis(100)));
        let events = watch.read().expect("inotify");
        closed = events.iter().any(|e| e.change == NameChange::Closed && e.name.to_str() == Some(&file.to_string()));
    }
}

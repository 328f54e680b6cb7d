//! Measures row P11: how long an observer takes to attach, and to follow a version in which some chunks changed.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crossdock_bench::{Daemon, Record, median};
use crossdock_client::Detect;
use crossdock_os::{Access, Mapping, memfd};

use crate::series;
use crate::shared::{numbers, pin};

const CHUNK: usize = 64 << 10;
const CHUNKS: usize = 1024;

/// Measures how long it takes to attach, and to follow a version in which 1, 64 or 512 of 1024 chunks changed.
pub fn attach(daemon: &Daemon, runs: usize) -> Vec<Record> {
    pin(true);
    let program = std::env::current_exe().expect("this program's path");
    let socket = daemon.socket().display().to_string();
    let mut child = Command::new(program)
        .args(["publish", &socket])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a child");
    let mut ask = child.stdin.take().expect("its input");
    let mut answers = BufReader::new(child.stdout.take().expect("its output")).lines();
    let mut publish = |chunks: usize| {
        writeln!(ask, "{chunks}").and_then(|()| ask.flush()).expect("the publisher listens");
        answers.next().expect("an answer").expect("an answer");
    };
    publish(CHUNKS);

    let session = daemon.connect();
    let mut attaching = Vec::new();
    for _ in 0..runs * 10 {
        let begun = Instant::now();
        let mut observer = session.observe("chunks", Duration::from_secs(5)).expect("the series");
        let version = observer.latest().expect("a version");
        std::hint::black_box(version.sequence());
        attaching.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    let mut records =
        vec![Record::below("P11", "attach, and have the latest version", "µs", attaching, 80.0, "≤ 80 µs")];

    let floor = map_one_chunk();
    let mut observer = session.observe("chunks", Duration::from_secs(5)).expect("the series");
    let mut version = observer.latest().expect("a version");
    std::hint::black_box(numbers(version.bytes("u").expect("the array"))[0]);
    let mut first = 0.0;
    for changed in [1usize, 64, 512] {
        let times: Vec<f64> = (0..runs * 5)
            .map(|_| {
                publish(changed);
                let begun = Instant::now();
                let remapped = version.refresh().expect("the newest");
                let took = begun.elapsed().as_secs_f64() * 1e6;
                assert_eq!(remapped as usize, changed, "only what differs is mapped anew");
                took
            })
            .collect();
        let case = format!("follow a version of 64 MiB, {changed} of 1024 chunks changed");
        let mut record = Record::below("P11", case, "µs", times, f64::INFINITY, "in proportion to changed chunks");
        if changed == 1 {
            first = record.value;
        } else {
            // The aim: each chunk takes at most 1.5 times as long as one call of `mmap`.
            let each = (record.value - first) / (changed - 1) as f64;
            record.floor = Some(floor * changed as f64);
            record.ratio = each / (floor * 1.5);
            record.met = record.ratio <= 1.0;
        }
        records.push(record);
    }
    drop(ask);
    let _ = child.wait();
    records
}

/// Measures one `mmap(MAP_FIXED)` that maps a chunk over another chunk, in microseconds.
fn map_one_chunk() -> f64 {
    let size = CHUNK * CHUNKS;
    let fd = memfd::create("bench-floor", size as u64).expect("memory");
    memfd::reserve(&fd, 0, size as u64).expect("memory");
    let mapping = Mapping::new(fd.as_fd(), size, Access::Read).expect("a mapping");
    let mut times = Vec::new();
    for n in 0..1000usize {
        // The chunks are mapped in a scattered order. Otherwise the kernel would join neighbouring chunks into one
        // mapping.
        let (at, from) = (n * 37 % CHUNKS * CHUNK, n * 101 % CHUNKS * CHUNK);
        // SAFETY: the address is within `mapping`, because `at` is less than the mapping's size.
        let place = unsafe { mapping.start().as_ptr().add(at) };
        let begun = Instant::now();
        // SAFETY: the call replaces a part of `mapping`, whose memory no code reads. The file has the bytes that are
        // mapped.
        let mapped = unsafe {
            rustix::mm::mmap(
                place.cast(),
                CHUNK,
                rustix::mm::ProtFlags::READ,
                rustix::mm::MapFlags::SHARED | rustix::mm::MapFlags::FIXED,
                &fd,
                from as u64,
            )
        };
        times.push(begun.elapsed().as_secs_f64() * 1e6);
        mapped.expect("a mapping");
    }
    median(&times)
}

/// Runs the publisher's process: reads how many chunks to change, publishes, and answers.
pub fn publisher(arguments: &[String]) {
    pin(false);
    let session = crossdock_bench::connect(arguments[0].as_ref());
    let mut publisher = series::publisher(&session, "chunks", CHUNK * CHUNKS, Detect::Hints, Some(CHUNK as u32));
    for line in std::io::stdin().lines() {
        let Ok(chunks) = line.expect("a line").parse::<usize>() else { break };
        for n in 0..chunks {
            // The changed chunks are spread out. If they were neighbours, the observer could map several of them by one
            // call.
            let at = n * (CHUNKS / chunks) * CHUNK;
            series::array(&mut publisher, CHUNK * CHUNKS)[at / 8] += 1.0;
            publisher.touched("u", at as u64..at as u64 + 8).expect("within the array");
        }
        publisher.publish(&[]).expect("published");
        println!("published");
    }
}

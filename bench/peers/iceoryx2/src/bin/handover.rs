//! Measures iceoryx2 for row P3, a comparison of hand-overs by several systems. The publisher borrows a slice of shared
//! memory, fills it in place and sends it. The subscriber receives the slice and reads all of it. The steps are those
//! of `../handover/common.py`: the consumer starts to wait; then the producer fills the data, does other work, waits
//! for 20 ms, notes the time, and sends. So no figure depends on which side was late, or on the contents of the caches.
//!
//! `peer-iceoryx2-handover spin|block SIZE:ROUNDS…` prints one line for each size: `HANDOVER {"size", "ns": […],
//! "right"}`.

use core::time::Duration;
use iceoryx2::port::update_connections::UpdateConnections;
use iceoryx2::prelude::*;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

type Error = Box<dyn std::error::Error>;

const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
const WARM_UP: u64 = 2;

fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` lives through the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Simulates the other work of a task between two hand-overs: writes so many bytes that no other data is left in the
/// caches.
fn other_work(other: &mut Vec<u64>) {
    other.resize(64 << 17, 0);
    other.iter_mut().for_each(|word| *word = word.wrapping_mul(3).wrapping_add(1));
}

fn sizes() -> Vec<(usize, u64)> {
    let word = |w: String| {
        let (size, rounds) = w.split_once(':')?;
        Some((size.parse().ok()?, rounds.parse().ok()?))
    };
    std::env::args().skip(2).filter_map(word).collect()
}

struct Names {
    data: ServiceName,
    bell: ServiceName,
}

impl Names {
    fn new(run: &str, size: usize) -> Result<Self, Error> {
        let name = |what: &str| format!("{run}/{what}/{size}").as_str().try_into();
        Ok(Self { data: name("data")?, bell: name("bell")? })
    }
}

fn produce(run: &str, spin: bool) -> Result<(), Error> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(std::env::args().skip(1))
        .env("PEER_CHILD", run)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut heard = BufReader::new(child.stdout.take().ok_or("no pipe")?);
    let mut hear = || -> Result<Vec<u64>, Error> {
        let mut line = String::new();
        if heard.read_line(&mut line)? == 0 {
            return Err("the consumer's process ended".into());
        }
        Ok(line.split_whitespace().filter_map(|w| w.parse().ok()).collect())
    };
    let node = NodeBuilder::new().create::<ipc::Service>()?;
    for (size, rounds) in sizes() {
        let names = Names::new(run, size)?;
        let topic = node.service_builder(&names.data).publish_subscribe::<[u64]>().max_publishers(1).max_subscribers(1).open_or_create()?;
        let publisher = topic.publisher_builder().initial_max_slice_len(size / 8).create()?;
        let bell = node.service_builder(&names.bell).event().open_or_create()?;
        let notifier = bell.notifier_builder().create()?;
        hear()?; // the subscriber has connected
        publisher.update_connections()?;
        let (mut times, mut right, mut other) = (Vec::new(), true, Vec::new());
        for seed in 0..rounds + WARM_UP {
            hear()?; // the subscriber waits
            let sample = publisher.loan_slice_uninit(size / 8)?;
            let sample = sample.write_from_fn(|i| seed.wrapping_add((i as u64).wrapping_mul(STEP)));
            other_work(&mut other);
            let ready = now_ns() + 20_000_000;
            while now_ns() < ready {}
            let begun = now_ns();
            sample.send()?;
            if !spin {
                notifier.notify()?;
            }
            let said = hear()?;
            times.push(said[0] - begun);
            right &= said[1] == 1;
        }
        let times: Vec<String> = times[WARM_UP as usize..].iter().map(u64::to_string).collect();
        println!("HANDOVER {{\"size\": {size}, \"ns\": [{}], \"right\": {right}}}", times.join(", "));
    }
    drop(child.stdin.take());
    child.wait()?;
    Ok(())
}

fn consume(run: &str, spin: bool) -> Result<(), Error> {
    let say = |text: String| -> Result<(), Error> {
        println!("{text}");
        std::io::stdout().flush()?;
        Ok(())
    };
    let node = NodeBuilder::new().create::<ipc::Service>()?;
    for (size, rounds) in sizes() {
        let names = Names::new(run, size)?;
        let topic = node.service_builder(&names.data).publish_subscribe::<[u64]>().max_publishers(1).max_subscribers(1).open_or_create()?;
        let subscriber = topic.subscriber_builder().create()?;
        let bell = node.service_builder(&names.bell).event().open_or_create()?;
        let listener = bell.listener_builder().create()?;
        say("here".into())?;
        let mut other = Vec::new();
        for seed in 0..rounds + WARM_UP {
            other_work(&mut other);
            std::hint::black_box(&other);
            say("waiting".into())?;
            let sample = loop {
                if !spin {
                    listener.timed_wait(|_| {}, Duration::from_secs(20))?;
                }
                if let Some(sample) = subscriber.receive()? {
                    break sample;
                }
                std::hint::spin_loop();
            };
            let at = now_ns();
            let sum = sample.payload().iter().fold(0u64, |sum, v| sum.wrapping_add(*v));
            let n = (size / 8) as u64;
            let right = sum == n.wrapping_mul(seed).wrapping_add(STEP.wrapping_mul(n * (n - 1) / 2));
            say(format!("{at} {}", u8::from(right)))?;
        }
    }
    Ok(())
}

fn main() -> Result<(), Error> {
    set_log_level(LogLevel::Error);
    let spin = std::env::args().nth(1).is_some_and(|w| w == "spin");
    match std::env::var("PEER_CHILD") {
        Ok(run) => consume(&run, spin),
        Err(_) => produce(&format!("crossdock-bench-{}", std::process::id()), spin),
    }
}

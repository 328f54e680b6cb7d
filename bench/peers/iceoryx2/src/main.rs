//! Measures iceoryx2 in the same steps that `bench/ports` uses for crossdock. Two processes, pinned to two CPUs, send
//! messages of 8 bytes to each other in turn, and read each of them. *Spinning* uses subscribers that poll. *Blocking*
//! uses events of iceoryx2, with a pause before each message so that the other side sleeps. The time of sending is
//! stored in shared memory.
//!
//! The program prints the medians over all rounds, as `spin_ns N` and `blocking_ns N`. It also prints the smallest
//! values, as `least_spin_ns N` and `least_blocking_ns N`.

use core::time::Duration;
use iceoryx2::prelude::*;
use std::time::Instant;

type Error = Box<dyn std::error::Error>;

fn pin(cpu: usize) {
    // SAFETY: a zeroed `cpu_set_t` is a valid, empty set, and it lives until the last call has returned.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
    }
}

fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` lives through the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn play(first: bool, rounds: u32, name: &str) -> Result<(f64, f64), Error> {
    let node = NodeBuilder::new().create::<ipc::Service>()?;
    let topic = |way: &str| -> Result<_, Error> {
        let service = node
            .service_builder(&format!("{name}/{way}").as_str().try_into()?)
            .publish_subscribe::<u64>()
            .max_publishers(1)
            .max_subscribers(1)
            .open_or_create()?;
        Ok(service)
    };
    let bell = |way: &str| -> Result<_, Error> {
        Ok(node.service_builder(&format!("{name}/bell/{way}").as_str().try_into()?).event().open_or_create()?)
    };
    let (there, back) = if first { ("a", "b") } else { ("b", "a") };
    let (to, from) = (topic(there)?, topic(back)?);
    let (publisher, subscriber) = (to.publisher_builder().create()?, from.subscriber_builder().create()?);
    let (bell_to, bell_from) = (bell(there)?, bell(back)?);
    let (notifier, listener) = (bell_to.notifier_builder().create()?, bell_from.listener_builder().create()?);
    while to.dynamic_config().number_of_subscribers() == 0 || bell_to.dynamic_config().number_of_listeners() == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    // A process may see all subscribers and listeners before the other process has finished its set-up. So both
    // processes wait a while.
    std::thread::sleep(Duration::from_millis(300));

    let send = |value: u64| -> Result<(), Error> {
        publisher.loan_uninit()?.write_payload(value).send()?;
        Ok(())
    };
    let receive = || -> Result<u64, Error> {
        loop {
            if let Some(sample) = subscriber.receive()? {
                return Ok(*sample);
            }
            std::hint::spin_loop();
        }
    };
    let (mut spins, mut sleeps) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let trips = 2000;
        let start = Instant::now();
        for trip in 0..trips {
            if first {
                send(trip)?;
            }
            std::hint::black_box(receive()?);
            if !first {
                send(trip)?;
            }
        }
        spins.push(start.elapsed().as_nanos() as f64 / trips as f64 / 2.0);
        let mut times = Vec::new();
        let answer = || -> Result<(), Error> {
            let ready = Instant::now() + Duration::from_micros(40);
            while Instant::now() < ready {
                std::hint::spin_loop();
            }
            send(now_ns())?;
            notifier.notify()?;
            Ok(())
        };
        for _ in 0..200 {
            if first {
                answer()?;
            }
            while listener.blocking_wait(|_| {})? == 0 {}
            let woken = now_ns();
            let sent = receive()?;
            times.push((woken - sent) as f64);
            if !first {
                answer()?;
            }
        }
        sleeps.push(median(times));
    }
    let least = |times: &[f64]| times.iter().copied().fold(f64::MAX, f64::min);
    if first {
        println!("least_spin_ns {:.0}\nleast_blocking_ns {:.0}", least(&spins), least(&sleeps));
    }
    Ok((median(spins), median(sleeps)))
}

fn main() -> Result<(), Error> {
    set_log_level(LogLevel::Error);
    let rounds = if std::env::var("QUICK").is_ok_and(|v| v != "0") { 9 } else { 41 };
    if let Ok(name) = std::env::var("PEER_CHILD") {
        pin(1);
        play(false, rounds, &name)?;
        return Ok(());
    }
    let name = format!("crossdock-bench-{}", std::process::id());
    let mut child = std::process::Command::new(std::env::current_exe()?).env("PEER_CHILD", &name).spawn()?;
    pin(0);
    let (spin, blocking) = play(true, rounds, &name)?;
    child.wait()?;
    println!("spin_ns {spin:.0}\nblocking_ns {blocking:.0}");
    Ok(())
}

//! Tests of many series on one node, and of many observers of one series: that they work, and how many descriptors they
//! need.
//!
//! `cargo test -p crossdock-node --release --test series_many -- --ignored --nocapture` measures what one series takes.

mod support;

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crossdock_client::{ConnectOptions, Observer, Publisher, SeriesOptions, Session, Value, Variable};
use support::{Daemon, until};

const SOON: Duration = Duration::from_secs(60);
const N: u64 = 512;

fn options() -> SeriesOptions {
    SeriesOptions { variables: vec![Variable::new("u", "u64", &[N])], ..SeriesOptions::default() }
}

fn publish(publisher: &mut Publisher, value: u64) {
    publisher.elements::<u64>("u").unwrap().fill(value);
    publisher.publish(&[("value", Value::U64(value))]).unwrap();
}

fn sees(observer: &mut Observer, value: u64) {
    let version = observer.latest().unwrap();
    assert!(version.elements::<u64>("u").unwrap().iter().all(|n| *n == value));
}

fn descriptors(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}

/// Starts a helper process, which publishes or observes `count` series and runs until its standard input ends.
fn helper(daemon: &Daemon, what: &str, from: usize, count: usize) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "helper_has_many", "--ignored", "--nocapture"]);
    command.env("HELPER", what).env("FROM", from.to_string()).env("COUNT", count.to_string());
    command.env("SOCKET", daemon.socket()).stdin(Stdio::piped()).stdout(Stdio::piped());
    command.spawn().unwrap()
}

#[test]
#[ignore = "a helper process of other tests"]
fn helper_has_many() {
    let number = |name: &str| std::env::var(name).unwrap().parse::<usize>().unwrap();
    let socket = std::env::var_os("SOCKET").unwrap().into();
    let session = Session::connect(&ConnectOptions { socket: Some(socket), ..ConnectOptions::default() }).unwrap();
    let numbers = number("FROM")..number("FROM") + number("COUNT");
    let before = descriptors(std::process::id());
    let (mut publishers, mut observers) = (Vec::new(), Vec::new());
    for n in numbers {
        let name = format!("rank/{n}");
        if std::env::var("HELPER").unwrap() == "publishers" {
            let mut publisher = session.publisher(&name, &options()).unwrap();
            publish(&mut publisher, n as u64);
            publishers.push(publisher);
        } else {
            let mut observer = session.observe(&name, SOON).unwrap();
            let version = observer.next(SOON).unwrap();
            assert!(version.elements::<u64>("u").unwrap().iter().all(|value| *value == n as u64));
            observers.push((observer, version));
        }
    }
    println!("\nready {}", descriptors(std::process::id()) - before);
    let _ = std::io::read_to_string(std::io::stdin());
    // The publishers are not stopped by the versions that the observers hold. A held version costs a publisher only
    // memory.
    for publisher in &mut publishers {
        (0..40).for_each(|value| publish(publisher, value));
    }
}

/// Waits until the helper is ready. Returns how many descriptors its series took.
fn ready(child: &mut Child) -> usize {
    use std::io::BufRead;
    let mut lines = std::io::BufReader::new(child.stdout.take().unwrap()).lines();
    let line = lines.find_map(|line| line.unwrap().strip_prefix("ready ").map(|n| n.parse().unwrap()));
    // The child may print more before it ends. This thread discards those lines, so that the child does not block.
    std::thread::spawn(move || lines.for_each(drop));
    line.expect("the helper ended before it was ready")
}

fn many(daemon: &Daemon, processes: usize, each: usize) {
    let (keeper, broker) = (daemon.keeper.id(), daemon.broker());
    let before = (descriptors(keeper), descriptors(broker));
    let all = processes * each;
    let start = |what| (0..processes).map(|p| helper(daemon, what, p * each, each)).collect::<Vec<_>>();
    let mut children = start("publishers");
    children.extend(start("observers"));
    for child in &mut children {
        let took = ready(child);
        assert!(took <= 4 * each + 8, "{each} series took {took} descriptors of a process");
    }
    let connections = 4 * children.len();
    let took = (descriptors(keeper) - before.0, descriptors(broker) - before.1);
    println!("{all} series with an observer each: {took:?} descriptors of keeper and broker");
    assert!(took.0 <= 2 * all && took.1 <= 2 * all + connections, "{all} series took {took:?}");
    for mut child in children {
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());
    }
}

#[test]
fn a_series_with_an_observer_takes_two_descriptors_of_keeper_and_broker() {
    let daemon = Daemon::start();
    many(&daemon, 2, 64);
    daemon.stop();
}

/// The test runs as many processes as one node may have ranks: 128 that publish, and 128 that observe.
#[test]
#[ignore = "256 processes"]
fn a_hundred_and_twenty_eight_processes_publish_and_as_many_observe() {
    let daemon = Daemon::start();
    many(&daemon, 128, 1);
    many(&daemon, 4, 512);
    daemon.stop();
}

#[test]
fn a_series_has_a_thousand_observers() {
    let daemon = Daemon::start();
    let (one, other) = (daemon.session(), daemon.session());
    let mut publisher = one.publisher("field", &SeriesOptions { max_observers: 1024, ..options() }).unwrap();
    publish(&mut publisher, 1);
    let broker = daemon.broker();
    let before = descriptors(broker);
    let mut observers: Vec<_> = (0..1024).map(|_| other.observe("field", SOON).unwrap()).collect();
    assert!(descriptors(broker) - before <= 1024 / 32 + 4, "32 observers share a page");
    assert!(other.observe("field", Duration::ZERO).is_err());
    // Each observer holds a version. Later versions must not be written into the slots of these held versions.
    let held: Vec<_> = observers.iter_mut().map(|observer| observer.latest().unwrap()).collect();
    for value in 2..60 {
        publish(&mut publisher, value);
    }
    for version in &held {
        assert!(version.elements::<u64>("u").unwrap().iter().all(|n| *n == 1), "a held version changed");
    }
    observers.iter_mut().for_each(|observer| sees(observer, 59));
    drop(held);
    until("nothing but the newest is kept", || {
        publish(&mut publisher, 60);
        publisher.statistics().versions <= 2
    });
}

/// The publisher looks for new pin pages before it reuses slots. So the publisher keeps the version that a new observer
/// pins, even if the publisher did not know the observer's pin page before.
#[test]
fn an_observer_that_comes_between_two_versions_keeps_what_it_pins() {
    let daemon = Daemon::start();
    let (one, other) = (daemon.session(), daemon.session());
    let capacity = Some(64 * 4096);
    let mut publisher = one
        .publisher("field", &SeriesOptions { capacity, chunk: Some(4096), max_observers: 200, ..options() })
        .unwrap();
    let mut held = Vec::new();
    for value in 1..150 {
        publish(&mut publisher, value);
        if value % 4 == 0 && held.len() < 40 {
            let mut observer = other.observe("field", SOON).unwrap();
            held.push((value, observer.latest().unwrap(), observer));
        }
    }
    for (value, version, _) in &held {
        assert!(version.elements::<u64>("u").unwrap().iter().all(|n| n == value), "version {value} changed");
    }
}

/// While an observer holds a version, the publisher must not reuse the version's slots. This also holds while no broker
/// runs and after the broker's restart.
#[test]
fn held_versions_stay_while_brokers_come_and_go() {
    let daemon = Daemon::start();
    let (one, other) = (daemon.session(), daemon.session());
    let mut publisher = one.publisher("field", &options()).unwrap();
    publish(&mut publisher, 1);
    let mut observer = other.observe("field", SOON).unwrap();
    let version = observer.latest().unwrap();
    for round in 0..5 {
        daemon.kill_broker();
        for value in 0..30 {
            publish(&mut publisher, 100 * round + value);
        }
        assert!(version.elements::<u64>("u").unwrap().iter().all(|n| *n == 1), "a held version changed");
        let mut again = other.observe("field", SOON).unwrap();
        sees(&mut again, 100 * round + 29);
    }
}

#[test]
#[ignore = "measures"]
fn what_a_series_takes() {
    let daemon = Daemon::start();
    let (one, other) = (daemon.session(), daemon.session());
    let mut times = [Vec::new(), Vec::new()];
    let mut kept = Vec::new();
    for n in 0..400 {
        let (name, began) = (format!("s/{n}"), Instant::now());
        let publisher = one.publisher(&name, &options()).unwrap();
        times[0].push(began.elapsed());
        let began = Instant::now();
        let observer = other.observe(&name, SOON).unwrap();
        times[1].push(began.elapsed());
        kept.push((publisher, observer));
    }
    for (what, times) in ["publish", "observe"].iter().zip(&mut times) {
        times.sort_unstable();
        println!("{what}: median {:?}, 95 % {:?}", times[times.len() / 2], times[times.len() * 95 / 100]);
    }
}

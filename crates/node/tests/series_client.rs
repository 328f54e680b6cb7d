//! Tests of series through the library: publishers and observers start, end and die in any order, and so does the
//! daemon.

mod support;

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crossdock_client::{
    ConnectOptions, FullPolicy, Mode, Observer, SeriesOptions, SeriesState, Session, Status, Value, Variable, Version,
    diff,
};
use support::series::{failed, numbers, publish, shows};
use support::{Daemon, kill, spawn, until};

const N: usize = 20_000;

fn options() -> SeriesOptions {
    SeriesOptions { variables: vec![Variable::new("u", "u64", &[N as u64])], ..SeriesOptions::default() }
}

const SOON: Duration = Duration::from_secs(5);

fn observe(session: &Session) -> Observer {
    session.observe("field", SOON).unwrap()
}

#[test]
fn an_observer_may_come_before_during_and_after_the_publishers_life() {
    let daemon = Daemon::start();
    let (one, other) = (daemon.session(), daemon.session());
    let early = std::thread::spawn(move || {
        let mut observer = observe(&one);
        let version = observer.next(SOON).unwrap();
        (observer, version)
    });
    std::thread::sleep(Duration::from_millis(50));
    let session = daemon.session();
    let mut publisher = session.publisher("field", &options()).unwrap();
    let mut during = observe(&other);
    assert_eq!(failed(during.latest()).0, Status::NotYet);
    publish(&mut publisher, 7);
    let (mut early, version) = early.join().unwrap();
    shows(&version, 7);
    for value in 8..30 {
        publish(&mut publisher, value);
    }
    shows(&during.next(SOON).unwrap(), 29);
    publisher.end().unwrap();
    let closed = failed(during.next(SOON));
    assert!(closed.0 == Status::Closed && closed.1.contains("field"), "{closed:?}");
    let mut late = observe(&other);
    shows(&late.next(Duration::ZERO).unwrap(), 29);
    assert_eq!((late.state(), failed(late.next(SOON)).0), (SeriesState::Ended, Status::Closed));
    // The version that the first observer holds still has the old values. `refresh` replaces it by the newest version.
    shows(&version, 7);
    let mut version = version;
    version.refresh().unwrap();
    shows(&version, 29);
    shows(&early.latest().unwrap(), 29);
}

#[test]
fn a_publisher_that_came_too_late_does_not_keep_the_name() {
    let daemon = Daemon::start();
    let options_of_session = ConnectOptions { timeout: Duration::from_secs(1), ..daemon.options() };
    let session = Session::connect(&options_of_session).unwrap();
    let broker = daemon.broker();
    kill(broker, "STOP");
    assert_eq!(failed(session.publisher("field", &options())).0, Status::TimedOut);
    kill(broker, "CONT");
    // The broker now answers the request that the session has given up. The answer to `list` comes after this late
    // answer, so the session has read both answers when `list` returns.
    session.list().unwrap();
    let mut publisher = session.publisher("field", &options()).unwrap();
    publish(&mut publisher, 1);
    shows(&observe(&daemon.session()).latest().unwrap(), 1);
    assert_eq!(session.list().unwrap().segments.len(), 1);
}

#[test]
fn a_publisher_that_came_too_late_for_a_broker_that_died_does_not_keep_the_name() {
    let daemon = Daemon::start();
    let options_of_session = ConnectOptions { timeout: Duration::from_secs(1), ..daemon.options() };
    let session = Session::connect(&options_of_session).unwrap();
    let kept = session.region("kept", Mode::CreateOnly, 1 << 18, None).unwrap();
    let broker = daemon.broker();
    kill(broker, "STOP");
    assert_eq!(failed(session.publisher("field", &options())).0, Status::TimedOut);
    kill(broker, "CONT");
    // The broker carries out the request that `session` has given up, and only then serves this new session. `session`
    // has not read the late answer yet.
    let other = daemon.session();
    daemon.kill_broker();
    daemon.wait_until_up();
    let mut publisher = session.publisher("field", &options()).unwrap();
    publish(&mut publisher, 1);
    shows(&observe(&other).latest().unwrap(), 1);
    drop((kept, publisher));
    daemon.stop();
}

#[test]
fn a_version_that_is_held_outlives_its_observer_and_gives_its_page_back_at_last() {
    let daemon = Daemon::start();
    let session = daemon.session();
    let mut options = options();
    options.max_observers = 1;
    let mut publisher = session.publisher("field", &options).unwrap();
    publish(&mut publisher, 1);
    let mut observer = observe(&session);
    let version = observer.latest().unwrap();
    drop(observer);
    assert_eq!(failed(session.observe("field", Duration::ZERO)).0, Status::NoSpace);
    for value in 2..40 {
        publish(&mut publisher, value);
    }
    shows(&version, 1);
    drop(version);
    let mut again = observe(&session);
    shows(&again.latest().unwrap(), 39);
}

#[test]
fn there_is_one_publisher_and_its_successor_is_another_series() {
    let daemon = Daemon::start();
    let (session, other) = (daemon.session(), daemon.session());
    let mut first = session.publisher("field", &options()).unwrap();
    publish(&mut first, 1);
    let taken = failed(other.publisher("field", &options()));
    let who = format!("process {}", std::process::id());
    assert!(taken.0 == Status::Exists && taken.1.contains("field") && taken.1.contains(&who), "{taken:?}");
    assert_eq!(failed(session.remove_series("field")).0, Status::Busy);
    let mut former = observe(&session);
    drop(first);
    let mut second = other.publisher("field", &options()).unwrap();
    publish(&mut second, 2);
    let mut latter = observe(&session);
    assert!(latter.id() > former.id());
    shows(&latter.latest().unwrap(), 2);
    shows(&former.latest().unwrap(), 1);
    assert_eq!(failed(former.next(SOON)).0, Status::Closed);
    drop(second);
    session.remove_series("field").unwrap();
    assert_eq!(failed(session.observe("field", Duration::ZERO)).0, Status::NotFound);
}

#[test]
fn waits_end_by_their_deadline_and_say_for_whom() {
    let daemon = Daemon::start();
    let session = daemon.session();
    let began = Instant::now();
    let alone = failed(session.observe("field", Duration::from_millis(150)));
    assert!(alone.0 == Status::TimedOut && alone.1.contains("series 'field'"), "{alone:?}");
    let mut publisher = session.publisher("field", &options()).unwrap();
    publish(&mut publisher, 1);
    let mut observer = observe(&session);
    observer.next(SOON).unwrap();
    assert_eq!(failed(observer.next(Duration::ZERO)).0, Status::NotYet);
    let late = failed(observer.next(Duration::from_millis(150)));
    let who = format!("process {}", std::process::id());
    assert!(late.0 == Status::TimedOut && late.1.contains("field") && late.1.contains(&who), "{late:?}");
    assert!(began.elapsed() > Duration::from_millis(300) && began.elapsed() < Duration::from_secs(3));
}

#[test]
fn waits_end_by_their_deadline_if_the_daemon_is_stopped() {
    let daemon = Daemon::start();
    let session = daemon.session();
    let mut publisher = session.publisher("field", &options()).unwrap();
    publish(&mut publisher, 1);
    let mut observer = observe(&session);
    observer.next(SOON).unwrap();
    kill(daemon.broker(), "STOP");
    let time = |observer: &mut Observer, timeout| {
        let began = Instant::now();
        (failed(observer.next(timeout)).0, began.elapsed())
    };
    let polls: Vec<_> = (0..10).map(|_| time(&mut observer, Duration::ZERO)).collect();
    let wait = time(&mut observer, Duration::from_millis(200));
    kill(daemon.broker(), "CONT");
    let polled: Duration = polls.iter().map(|(_, time)| *time).sum();
    assert!(polls.iter().all(|poll| poll.0 == Status::NotYet) && polled < Duration::from_millis(50), "{polls:?}");
    assert!(wait.0 == Status::TimedOut && wait.1 < Duration::from_millis(600), "{wait:?}");
}

#[test]
fn versions_go_when_no_observer_holds_them_and_as_many_as_asked_for_stay() {
    let daemon = Daemon::start();
    let session = daemon.session();
    let mut options = options();
    options.keep = 2;
    let mut publisher = session.publisher("field", &options).unwrap();
    let mut observer = observe(&session);
    for value in 1..=6 {
        publish(&mut publisher, value);
    }
    for sequence in 4..=6 {
        shows(&observer.at(sequence, Duration::ZERO).unwrap(), sequence);
    }
    let gone = failed(observer.at(1, Duration::ZERO));
    assert!(gone.0 == Status::NotFound && gone.1.contains('1'), "{gone:?}");
    assert_eq!(failed(observer.at(7, Duration::ZERO)).0, Status::NotYet);
    let (five, six) = (observer.at(5, Duration::ZERO).unwrap(), observer.at(6, Duration::ZERO).unwrap());
    let changes = diff(&five, &six).unwrap();
    assert_eq!(changes, [("u".to_owned(), 0..8 * N as u64)]);
    assert_eq!(diff(&six, &six).unwrap(), []);
}

#[test]
fn a_full_pool_withholds_or_fails_or_takes_back_as_the_policy_says() {
    let daemon = Daemon::start();
    let session = daemon.session();
    for full in [FullPolicy::Withhold, FullPolicy::Fail, FullPolicy::TakeBack] {
        let mut options = options();
        options.full = full;
        options.capacity = Some(N as u64 * 8 * 5 / 2);
        let mut publisher = session.publisher("field", &options).unwrap();
        let mut observer = observe(&session);
        let mut held: Vec<Version> = Vec::new();
        let refused = loop {
            let value = held.len() as u64 + 1;
            numbers(&mut publisher).fill(value);
            match publisher.publish(&[("value", Value::U64(value))]) {
                Ok(0) => {
                    assert_eq!((full, publisher.statistics().withheld), (FullPolicy::Withhold, 1));
                    break None;
                }
                Ok(_) => held.push(observer.latest().unwrap()),
                Err(error) => break Some(error),
            }
            if !held[0].is_valid() {
                break None;
            }
            assert!(held.len() < 10, "the pool has no end");
        };
        if full != FullPolicy::TakeBack {
            assert_eq!(refused.is_some(), full == FullPolicy::Fail);
            if let Some(error) = refused {
                assert!(error.status == Status::NoSpace && error.to_string().contains("field"), "{error}");
            }
            held.iter().zip(1..).for_each(|(version, value)| shows(version, value));
            let value = held.len() as u64 + 1;
            held.clear();
            publisher.publish(&[("value", Value::U64(value))]).unwrap();
            shows(&observer.latest().unwrap(), value);
        } else {
            assert!(refused.is_none(), "{refused:?}");
            assert_eq!(failed(held[0].bytes("u")).0, Status::NotFound);
            let newest = held.last().unwrap();
            shows(newest, held.len() as u64);
        }
        drop(publisher);
        session.remove_series("field").unwrap();
    }
}

#[test]
fn the_quota_is_the_pools_limit() {
    let daemon = Daemon::start_with(&["--memory", "2000000"]);
    let session = daemon.session();
    let failing = SeriesOptions { full: FullPolicy::Fail, ..options() };
    let mut publisher = session.publisher("field", &failing).unwrap();
    let mut observer = observe(&session);
    let mut held = Vec::new();
    let full = loop {
        numbers(&mut publisher).fill(held.len() as u64);
        match publisher.publish(&[]) {
            Ok(_) => held.push(observer.latest().unwrap()),
            Err(error) => break error,
        }
        assert!(held.len() < 16, "no quota holds");
    };
    assert_eq!(full.status, Status::NoSpace, "{full}");
    let second = failed(session.publisher(
        "more",
        &SeriesOptions { variables: vec![Variable::new("u", "f64", &[1 << 20])], ..SeriesOptions::default() },
    ));
    assert_eq!(second.0, Status::NoSpace, "{}", second.1);
    held.clear();
    publisher.publish(&[]).unwrap();
}

/// Starts a publisher or an observer in another process, which the test can kill.
fn helper(daemon: &Daemon, role: &str) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "helper_does_what_it_is_told", "--ignored", "--nocapture"]);
    command.env("CROSSDOCK_TEST_ROLE", role).env("CROSSDOCK_SOCKET", daemon.socket()).env("CROSSDOCK_TASK", role);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

#[test]
#[ignore = "a part of other tests, run by them in a process of its own"]
fn helper_does_what_it_is_told() {
    let Ok(role) = std::env::var("CROSSDOCK_TEST_ROLE") else { return };
    let session = Session::connect(&crossdock_client::ConnectOptions::default()).unwrap();
    if role == "solver" {
        let mut publisher = session.publisher("field", &options()).unwrap();
        for value in 1.. {
            publish(&mut publisher, value);
            std::thread::sleep(Duration::from_micros(200));
        }
    }
    let mut observer = observe(&session);
    let mut held: Vec<Version> = Vec::new();
    loop {
        let version = observer.next(SOON).unwrap();
        let Value::U64(value) = *version.attribute("value").unwrap() else { panic!() };
        shows(&version, value);
        held.push(version);
        if held.len() > 2 {
            held.remove(0);
        }
    }
}

#[test]
fn a_publishers_death_is_told_and_its_last_version_stays() {
    let daemon = Daemon::start();
    let session = daemon.session();
    let mut solver = helper(&daemon, "solver");
    let mut observer = observe(&session);
    let mut last = 0;
    for _ in 0..20 {
        last = observer.next(SOON).unwrap().sequence();
    }
    solver.kill().unwrap();
    solver.wait().unwrap();
    let killed = Instant::now();
    let died = loop {
        match observer.next(SOON) {
            Ok(version) => last = version.sequence(),
            Err(error) => break error,
        }
    };
    assert!(killed.elapsed() < Duration::from_millis(500), "{:?}", killed.elapsed());
    assert!(died.status == Status::PeerDied && died.to_string().contains("solver"), "{died}");
    assert_eq!(observer.state(), SeriesState::Died);
    let version = observer.latest().unwrap();
    assert_eq!(version.sequence(), last);
    shows(&version, last);
    // Another process publishes a new series under the same name. The version of the old series stays as it was.
    let mut again = helper(&daemon, "solver");
    until("the successor publishes", || session.observe("field", SOON).unwrap().id() != observer.id());
    shows(&version, last);
    let successors = observe(&session).next(SOON).unwrap();
    let Value::U64(value) = *successors.attribute("value").unwrap() else { panic!() };
    shows(&successors, value);
    again.kill().unwrap();
    again.wait().unwrap();
}

#[test]
fn observers_that_are_killed_cost_the_publisher_nothing_for_long() {
    let daemon = Daemon::start();
    let session = daemon.session();
    let mut options = options();
    // The pool must have a record for each version that an observer holds, and the number of records grows with
    // `max_observers`.
    options.max_observers = 12;
    options.capacity = Some(64 << 20);
    let mut publisher = session.publisher("field", &options).unwrap();
    let mut value = 0;
    for _ in 0..3 {
        let mut watchers: Vec<_> = (0..4).map(|_| helper(&daemon, "watcher")).collect();
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(400) {
            value += 1;
            publish(&mut publisher, value);
            std::thread::sleep(Duration::from_micros(500));
        }
        for watcher in &mut watchers {
            assert!(watcher.try_wait().unwrap().is_none(), "a watcher saw a torn version, or none");
            watcher.kill().unwrap();
            watcher.wait().unwrap();
        }
    }
    until("nothing but the newest is kept, for the dead ones' pins are cleared", || {
        publish(&mut publisher, 3);
        publisher.statistics().versions <= 2
    });
}

#[test]
fn series_go_on_while_the_broker_is_killed_again_and_again() {
    let daemon = Daemon::start();
    let (session, other) = (daemon.session(), daemon.session());
    let mut publisher = session.publisher("field", &options()).unwrap();
    let mut observer = observe(&other);
    let kept = {
        publish(&mut publisher, 1);
        observer.latest().unwrap()
    };
    for round in 0..20u64 {
        daemon.kill_broker();
        for value in 0..10 {
            let value = 2 + round * 10 + value;
            publish(&mut publisher, value);
            shows(&observer.next(SOON).unwrap(), value);
        }
        // A new observer or publisher waits until the next broker runs, and then begins.
        let mut visitor = observe(&other);
        shows(&visitor.latest().unwrap(), 11 + round * 10);
        let more = format!("more/{round}");
        let mut second = other.publisher(&more, &options()).unwrap();
        publish(&mut second, round);
        daemon.kill_broker();
        shows(&session.observe(&more, SOON).unwrap().latest().unwrap(), round);
        second.end().unwrap();
        session.remove_series(&more).unwrap();
    }
    shows(&kept, 1);
    let segments = session.list().unwrap().segments;
    let named: Vec<_> = segments.iter().filter(|s| !s.removed).map(|s| s.name.as_str()).collect();
    assert_eq!(named, ["field"]);
}

#[test]
fn a_publisher_gives_its_series_to_the_next_daemon() {
    let mut daemon = Daemon::start();
    let (session, other) = (daemon.session(), daemon.session());
    let mut publisher = session.publisher("field", &options()).unwrap();
    let mut observer = observe(&other);
    publish(&mut publisher, 1);
    let held = observer.latest().unwrap();
    // These publishes give the pool memory for a few versions. While no daemon runs, the pool cannot get more memory.
    for value in [5, 6, 1] {
        publish(&mut publisher, value);
        shows(&observer.latest().unwrap(), value);
    }
    kill(daemon.keeper.id(), "KILL");
    daemon.keeper.wait().unwrap();
    publish(&mut publisher, 2);
    shows(&observer.next(SOON).unwrap(), 2);
    daemon.keeper = spawn(&daemon.socket(), &[]);
    daemon.wait_until_up();
    // The sessions of publisher and observer connect to the new daemon, at the latest with their next request. The
    // publisher's session then offers the pool's memory to the daemon.
    session.list().unwrap();
    let mut visitor = observe(&other);
    shows(&visitor.latest().unwrap(), 2);
    publish(&mut publisher, 3);
    shows(&visitor.next(SOON).unwrap(), 3);
    shows(&observer.next(SOON).unwrap(), 3);
    shows(&held, 1);
}

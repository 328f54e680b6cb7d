//! Series between daemons of one site. Everything behaves as on one node: versions, older versions that are kept, ends,
//! deaths and restarts.

mod support;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use crossdock_client::{
    ConnectOptions, Detect, FullPolicy, Observer, Publisher, SegmentKind, SeriesOptions, SeriesState, Session, Status,
    Value, Variable, Version,
};
use support::series::{failed, numbers, publish, shows};
use support::sites::{Site, World, connect, until};
use support::{Daemon, kill};

const LONG: Duration = Duration::from_secs(60);
const CHUNK: usize = 4096;
/// How many numbers a chunk holds.
const PART: usize = CHUNK / 8;

/// Makes the options of a series with one variable `u` of `chunks` chunks. The publisher finds changes by comparing.
fn options(chunks: usize) -> SeriesOptions {
    SeriesOptions {
        chunk: Some(CHUNK as u32),
        detect: Detect::Compare,
        ..SeriesOptions::of(vec![Variable::new("u", "u64", &[(chunks * PART) as u64])])
    }
}

fn publish_all(publisher: &mut Publisher, values: impl IntoIterator<Item = u64>) {
    for value in values {
        publish(publisher, value);
    }
}

fn observe(session: &Session, name: &str) -> Observer {
    session.observe(name, LONG).unwrap()
}

/// Checks that two versions are equal in everything that an observer can see.
fn equal(one: &Version, other: &Version) {
    assert_eq!(one.sequence(), other.sequence());
    assert_eq!((one.time(), one.copied(), one.method()), (other.time(), other.copied(), other.method()));
    assert_eq!(one.attributes(), other.attributes());
    for variable in &one.description().variables {
        let name = &variable.name;
        assert_eq!(one.shape(name).unwrap(), other.shape(name).unwrap());
        assert!(one.bytes(name).unwrap() == other.bytes(name).unwrap(), "{name} of version {}", one.sequence());
    }
}

/// Runs in a child process: publishes a given number of versions, or until it is killed. Prints "ready" after the first
/// version.
#[test]
#[ignore = "a part that other tests start in a process of its own"]
fn child() {
    let Ok(versions) = std::env::var("CROSSDOCK_TEST_CHILD") else { return };
    let socket = std::env::var("CROSSDOCK_TEST_SOCKET").unwrap();
    let session = Session::connect(&ConnectOptions {
        socket: Some(socket.into()),
        task: Some("doomed".into()),
        timeout: Duration::from_secs(30),
        ..Default::default()
    })
    .unwrap();
    let mut publisher = session.publisher("field", &options(4)).unwrap();
    publish_all(&mut publisher, 0..versions.parse().unwrap());
    println!("ready");
    std::thread::sleep(Duration::from_secs(600));
}

fn start(daemon: &Daemon, versions: u64) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--ignored", "--nocapture"])
        .env("CROSSDOCK_TEST_CHILD", versions.to_string())
        .env("CROSSDOCK_TEST_SOCKET", daemon.socket())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line.contains("ready")), "the child ended");
    child
}

fn end(mut child: Child) {
    kill(child.id(), "KILL");
    child.wait().unwrap();
}

#[test]
fn versions_are_the_same_on_all_nodes_and_a_node_fetches_each_changed_chunk_once() {
    let world = World::new(3);
    let publishing = world.session(0, "solver");
    let mut publisher = publishing.publisher("field", &options(1000)).unwrap();
    let sessions: Vec<_> = (0..3).map(|node| world.session(node, "viewer")).collect();
    // Two of the observers are on node `b`, where one mirror serves both of them.
    let places = [&sessions[0], &sessions[1], &sessions[1], &sessions[2]];
    let mut observers: Vec<_> = places.into_iter().map(|session| observe(session, "field")).collect();
    assert_eq!(failed(observers[1].latest()).0, Status::NotYet);
    let mut fetched = 0;
    // The chunks that change in each step: all, few, none, all but one, every second chunk, and one chunk.
    let steps: [&dyn Fn(usize) -> bool; 6] =
        [&|_| true, &|n| n % 333 == 5, &|_| false, &|n| n != 17, &|n| n % 2 == 0, &|n| n == 999];
    for (step, changes) in steps.iter().enumerate() {
        let data = numbers(&mut publisher);
        let mut changed = 0;
        for n in (0..1000).filter(|n| changes(*n)) {
            (0..PART).for_each(|at| data[n * PART + at] = (step * 1_000_003 + n * PART + at + 1) as u64);
            changed += 1;
        }
        let attributes = [("step", Value::U64(step as u64)), ("name", Value::Text(format!("step {step}")))];
        let attributes = if step == 1 { &attributes[..1] } else { &attributes[..] };
        assert_eq!(publisher.publish(attributes).unwrap(), step as u64 + 1);
        let versions: Vec<_> = observers.iter_mut().map(|observer| observer.next(LONG).unwrap()).collect();
        assert_eq!(versions[0].sequence(), step as u64 + 1);
        versions[1..].iter().for_each(|version| equal(&versions[0], version));
        fetched += changed;
        for n in [1, 3] {
            // Observers of a mirror may see a version before the mirror's report counts the version's bytes. So the
            // test waits for the report.
            until("it is counted", || {
                let report = places[n].series_report(observers[n].id()).unwrap();
                assert!(report.copied <= fetched && report.newest == step as u64 + 1, "step {step}: {report:?}");
                report.copied == fetched
            });
        }
    }
    assert_eq!(observers[1].id(), observers[2].id());
    assert_ne!(observers[1].id(), observers[0].id());
    let (here, there) = (observers[0].description(), observers[1].description());
    assert_eq!((&here.variables, &here.attributes), (&there.variables, &there.attributes));
    assert_eq!((here.chunk, here.created, here.full), (there.chunk, there.created, there.full));
    assert_eq!(observers[1].name(), "field");
}

#[test]
fn kept_versions_are_there_for_an_observer_that_comes_late() {
    let world = World::new(2);
    let (on_a, on_b) = (world.session(0, "solver"), world.session(1, "viewer"));
    let mut publisher = on_a.publisher("field", &SeriesOptions { keep: 3, ..options(8) }).unwrap();
    publish_all(&mut publisher, 1..=9);
    let (mut here, mut there) = (observe(&on_a, "field"), observe(&on_b, "field"));
    for sequence in [6, 7, 8, 9] {
        equal(&here.at(sequence, Duration::ZERO).unwrap(), &there.at(sequence, Duration::ZERO).unwrap());
    }
    for observer in [&mut here, &mut there] {
        assert_eq!(failed(observer.at(5, Duration::ZERO)).0, Status::NotFound);
        assert_eq!(failed(observer.at(10, Duration::ZERO)).0, Status::NotYet);
        assert_eq!(failed(observer.at(10, Duration::from_millis(50))).0, Status::TimedOut);
    }
    let mut each = observe(&on_b, "field");
    for sequence in 6..=9 {
        let version = each.each(LONG).unwrap();
        assert_eq!((version.sequence(), version.missed()), (sequence, 0));
        shows(&version, sequence);
    }
    // A version that an observer holds stays, however many versions are published later. The mirror also keeps as many
    // earlier versions as the option `keep` of the series says.
    let held = there.at(7, Duration::ZERO).unwrap();
    publish_all(&mut publisher, 10..=20);
    until("the newest is there", || there.newest() == 20);
    shows(&held, 7);
    let kept: Vec<_> = (17..=20).map(|sequence| there.at(sequence, Duration::ZERO).unwrap()).collect();
    kept.iter().for_each(|version| shows(version, version.sequence()));
}

#[test]
fn an_observer_may_come_before_the_publisher_and_shapes_change() {
    let world = World::new(2);
    let on_b = world.session(1, "viewer");
    let early = std::thread::spawn(move || {
        let mut observer = observe(&on_b, "grid");
        let first = observer.next(LONG).unwrap();
        (on_b, observer, first)
    });
    let on_a = world.session(0, "solver");
    // After this pause, the observer on node `b` very likely waits for the series.
    std::thread::sleep(Duration::from_millis(200));
    let grid = Variable {
        max_shape: vec![64, 4096],
        constants: vec![("spacing".into(), Value::F64(0.5))],
        ..Variable::new("u", "f32", &[2, 3])
    };
    let one = Variable::new("one", "i32", &[]);
    let mut spec = SeriesOptions::of(vec![grid, one]);
    spec.constants = vec![("title".into(), Value::Text("a test".into())), ("count".into(), Value::I64(-3))];
    let mut publisher = on_a.publisher("grid", &spec).unwrap();
    publisher.elements::<f32>("u").unwrap().fill(1.5);
    publisher.elements::<i32>("one").unwrap().fill(-7);
    publisher.publish(&[]).unwrap();
    let (on_b, mut there, first) = early.join().unwrap();
    let mut here = observe(&on_a, "grid");
    equal(&here.latest().unwrap(), &first);
    assert_eq!(here.description().variables, there.description().variables);
    assert_eq!(here.description().constants, there.description().constants);
    for (step, shape) in [[2, 4], [64, 4096], [0, 0], [64, 1], [63, 4000], [1, 1]].into_iter().enumerate() {
        publisher.resize("u", &shape).unwrap();
        let u = publisher.elements::<f32>("u").unwrap();
        u.iter_mut().enumerate().filter(|(n, _)| n % 3 == step % 3).for_each(|(n, u)| *u = n as f32);
        publisher.publish(&[("step", Value::I64(step as i64))]).unwrap();
        let (one, other) = (here.next(LONG).unwrap(), there.next(LONG).unwrap());
        assert_eq!(other.shape("u").unwrap(), shape);
        equal(&one, &other);
    }
    drop((there, first, on_b));
}

#[test]
fn many_tasks_of_a_node_observe_a_series_of_another_node_at_the_same_time() {
    let world = World::new(2);
    let (on_a, on_b) = (world.session(0, "solver"), world.session(1, "early"));
    let mut publisher = on_a.publisher("field", &SeriesOptions { max_observers: 512, ..options(4) }).unwrap();
    publish(&mut publisher, 1);
    // Node b knows that node a has the series.
    drop(observe(&on_b, "field"));
    let sessions: Vec<_> = (0..150).map(|number| world.session(1, &format!("viewer{number}"))).collect();
    let together = Barrier::new(sessions.len());
    std::thread::scope(|scope| {
        for session in &sessions {
            scope.spawn(|| {
                together.wait();
                shows(&observe(session, "field").latest().unwrap(), 1);
            });
        }
    });
}

#[test]
fn all_tasks_of_a_node_need_one_place_of_a_series_of_another_node() {
    let world = World::new(2);
    let (on_a, on_b) = (world.session(0, "solver"), world.session(1, "early"));
    let mut publisher = on_a.publisher("field", &SeriesOptions { max_observers: 64, ..options(4) }).unwrap();
    publish(&mut publisher, 1);
    let here = world.session(0, "viewer");
    // One of the series' 64 observers is the supply of the mirror on node b. So 63 observers fit on node a.
    let all: Vec<_> =
        std::iter::once(observe(&on_b, "field")).chain((0..63).map(|_| observe(&here, "field"))).collect();
    assert_eq!(failed(here.observe("field", LONG)).0, Status::NoSpace);
    let sessions: Vec<_> = (0..60).map(|number| world.session(1, &format!("viewer{number}"))).collect();
    let together = Barrier::new(sessions.len());
    std::thread::scope(|scope| {
        for session in &sessions {
            scope.spawn(|| {
                together.wait();
                shows(&observe(session, "field").latest().unwrap(), 1);
            });
        }
    });
    drop(all);
}

#[test]
fn tasks_that_come_together_leave_room_for_observers_on_the_node_of_the_series() {
    let world = World::new(2);
    let (on_a, on_b) = (world.session(0, "solver"), world.session(1, "early"));
    let mut publisher = on_a.publisher("field", &SeriesOptions { max_observers: 64, ..options(4) }).unwrap();
    publish(&mut publisher, 1);
    let here = world.session(0, "viewer");
    let some: Vec<_> =
        std::iter::once(observe(&on_b, "field")).chain((0..40).map(|_| observe(&here, "field"))).collect();
    let sessions: Vec<_> = (0..60).map(|number| world.session(1, &format!("viewer{number}"))).collect();
    let together = Barrier::new(sessions.len() + 1);
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for session in &sessions {
            threads.push(scope.spawn(|| {
                together.wait();
                drop(observe(session, "field"));
            }));
        }
        together.wait();
        while threads.iter().any(|thread| !thread.is_finished()) {
            drop(observe(&here, "field"));
        }
    });
    drop(some);
}

#[test]
fn the_end_of_a_series_comes_behind_its_last_version() {
    let world = World::new(2);
    let (on_a, on_b) = (world.session(0, "solver"), world.session(1, "viewer"));
    let mut publisher = on_a.publisher("field", &options(4)).unwrap();
    publish(&mut publisher, 1);
    let mut there = observe(&on_b, "field");
    shows(&there.next(LONG).unwrap(), 1);
    publish(&mut publisher, 2);
    publisher.end().unwrap();
    shows(&there.next(LONG).unwrap(), 2);
    let closed = failed(there.next(LONG));
    assert!(closed.0 == Status::Closed && closed.1.contains("series 'field'"), "{closed:?}");
    assert_eq!(there.state(), SeriesState::Ended);
    // The last version stays available, both to present observers and to observers that come later.
    let mut late = observe(&on_b, "field");
    assert_eq!(late.id(), there.id());
    shows(&late.latest().unwrap(), 2);
    drop((late, there));
    let mut later = observe(&on_b, "field");
    shows(&later.latest().unwrap(), 2);
    assert_eq!(failed(later.next(LONG)).0, Status::Closed);
    // A later publisher of this name publishes a new series. An observer on the other node then gets the new series.
    let mut second = on_a.publisher("field", &options(4)).unwrap();
    publish(&mut second, 3);
    let mut latest = observe(&on_b, "field");
    shows(&latest.latest().unwrap(), 3);
    shows(&later.latest().unwrap(), 2);
}

#[test]
fn the_death_of_a_publisher_comes_behind_its_last_version() {
    let world = World::new(2);
    let on_b = world.session(1, "viewer");
    let doomed = start(&world.daemons[0], 3);
    let mut there = observe(&on_b, "field");
    shows(&there.next(LONG).unwrap(), 2);
    end(doomed);
    let died = failed(there.next(LONG));
    assert_eq!(died.0, Status::PeerDied, "{died:?}");
    assert!(died.1.contains("doomed.on.a"), "{died:?}");
    shows(&there.latest().unwrap(), 2);
    let mut late = observe(&on_b, "field");
    shows(&late.latest().unwrap(), 2);
    assert_eq!(failed(late.next(LONG)).0, Status::PeerDied);
    // Another process publishes a new series under the same name. A new call of `observe` finds this series.
    let again = start(&world.daemons[0], 5);
    let mut next = observe(&on_b, "field");
    shows(&next.next(LONG).unwrap(), 4);
    end(again);
}

#[test]
fn a_node_that_is_lost_is_the_death_of_its_publishers() {
    let site = Site::new();
    let (_a, mut b) = (site.keeper(), site.node("b"));
    let on_a = connect(&_a, "viewer");
    let doomed = start(&b, 2);
    let mut there = observe(&on_a, "field");
    let version = there.next(LONG).unwrap();
    let broker = b.broker();
    kill(b.keeper.id(), "KILL");
    b.keeper.wait().unwrap();
    kill(broker, "KILL");
    let died = failed(there.next(LONG));
    assert_eq!(died.0, Status::PeerDied, "{died:?}");
    shows(&version, 1);
    end(doomed);
}

#[test]
fn a_publishers_broker_that_is_killed_stops_no_observer_of_another_node() {
    let world = World::new(2);
    let (on_a, on_b) = (world.session(0, "solver"), world.session(1, "viewer"));
    let mut publisher = on_a.publisher("field", &options(50)).unwrap();
    publish(&mut publisher, 1);
    let mut there = observe(&on_b, "field");
    shows(&there.next(LONG).unwrap(), 1);
    for value in 2..5 {
        world.daemons[0].kill_broker();
        publish(&mut publisher, value);
        shows(&there.next(LONG).unwrap(), value);
    }
    publisher.end().unwrap();
    assert_eq!(failed(there.next(LONG)).0, Status::Closed);
}

#[test]
fn an_observers_broker_that_is_killed_is_the_end_of_its_mirrors_and_they_can_be_observed_again() {
    let world = World::new(2);
    let (on_a, on_b) = (world.session(0, "solver"), world.session(1, "viewer"));
    let mut publisher = on_a.publisher("field", &options(50)).unwrap();
    publish(&mut publisher, 1);
    let mut there = observe(&on_b, "field");
    let version = there.next(LONG).unwrap();
    world.daemons[1].kill_broker();
    let died = failed(there.next(LONG));
    assert_eq!(died.0, Status::PeerDied, "{died:?}");
    publish(&mut publisher, 2);
    let mut again = observe(&on_b, "field");
    shows(&again.latest().unwrap(), 2);
    shows(&version, 1);
    publish(&mut publisher, 3);
    shows(&again.next(LONG).unwrap(), 3);
}

#[test]
fn no_publisher_waits_for_a_stuck_node_and_waits_there_say_when_the_node_was_seen() {
    let world = World::new(2);
    let (on_a, on_b) = (world.session(0, "solver"), world.session(1, "viewer"));
    // The pool has room for four versions.
    let spec = SeriesOptions { capacity: Some(4 * 100 * CHUNK as u64), ..options(100) };
    let mut publisher = on_a.publisher("field", &spec).unwrap();
    publish(&mut publisher, 1);
    let mut there = observe(&on_b, "field");
    shows(&there.next(LONG).unwrap(), 1);
    // The daemon of node b is stopped, so the mirror on node b gets no more versions. The publisher must not be
    // affected.
    let broker = world.daemons[1].broker();
    kill(broker, "STOP");
    for value in 2..=300 {
        assert_eq!(publish(&mut publisher, value), value, "no version is withheld");
    }
    kill(broker, "CONT");
    until("the newest is there", || there.newest() == 300);
    shows(&there.next(LONG).unwrap(), 300);
    // Now the publisher's daemon is stopped. So a new version does not reach node b, and the wait there must end with
    // an error that says when the publisher's daemon was last heard of.
    let broker = world.daemons[0].broker();
    kill(broker, "STOP");
    publish(&mut publisher, 301);
    let waited = failed(there.next(Duration::from_millis(1500)));
    kill(broker, "CONT");
    assert_eq!(waited.0, Status::TimedOut, "{waited:?}");
    assert!(waited.1.contains("solver.on.a") && waited.1.contains("last heard of"), "{waited:?}");
    shows(&there.next(LONG).unwrap(), 301);
}

#[test]
fn observers_of_another_node_that_hold_versions_delay_no_task_and_lose_nothing() {
    let world = World::new(2);
    let (on_a, on_b) = (world.session(0, "solver"), world.session(1, "viewer"));
    let spec = SeriesOptions { capacity: Some(4 * 10 * CHUNK as u64), ..options(10) };
    let mut publisher = on_a.publisher("field", &spec).unwrap();
    let mut there = observe(&on_b, "field");
    let mut held = Vec::new();
    let mut value = 0;
    // The observer holds so many versions that the mirror has no room for another version. The mirror then shows no new
    // version, but the publisher continues.
    while held.len() < 3 {
        value += 1;
        publish(&mut publisher, value);
        held.push(there.next(LONG).unwrap());
    }
    let began = Instant::now();
    let mut published = 0;
    while published < 50 {
        value += 1;
        published += u64::from(publish(&mut publisher, value) > 0);
        assert!(began.elapsed() < LONG, "the publisher is stuck");
    }
    held.iter().for_each(|version| shows(version, version.sequence()));
    held.clear();
    let last = loop {
        value += 1;
        if publish(&mut publisher, value) > 0 {
            break value;
        }
    };
    until("the newest is there", || {
        let version = there.latest().unwrap();
        version.attribute("value").unwrap() == &Value::U64(last)
    });
}

#[test]
fn versions_that_are_taken_back_are_skipped_and_none_is_torn() {
    let world = World::new(2);
    let (on_a, on_b) = (world.session(0, "solver"), world.session(1, "viewer"));
    let spec = SeriesOptions { capacity: Some(3 * 100 * CHUNK as u64), full: FullPolicy::TakeBack, ..options(100) };
    let mut publisher = on_a.publisher("field", &spec).unwrap();
    publish(&mut publisher, 1);
    let mut there = observe(&on_b, "field");
    let mut seen = 0;
    for value in 2..=400 {
        assert_eq!(publish(&mut publisher, value), value);
        let Ok(version) = there.latest() else { continue };
        // The publisher may take the version back before the observer reads it.
        if let Ok(numbers) = version.elements::<u64>("u") {
            assert!(numbers.iter().all(|n| Value::U64(*n) == *version.attribute("value").unwrap()));
            seen += 1;
        }
    }
    assert!(seen > 0, "an observer reads some");
    until("the newest is there", || there.newest() == 400);
    shows(&there.latest().unwrap(), 400);
}

#[test]
fn a_mirror_that_no_task_observes_is_gone_on_both_nodes() {
    let world = World::new(2);
    let (on_a, on_b) = (world.session(0, "solver"), world.session(1, "viewer"));
    let mut publisher = on_a.publisher("field", &options(4)).unwrap();
    publish(&mut publisher, 1);
    let series = |session: &Session| -> Vec<String> {
        let all = session.list().unwrap().segments.into_iter();
        all.filter(|segment| segment.kind == SegmentKind::Series).map(|segment| segment.name).collect()
    };
    let members = |session: &Session| session.list().unwrap().members.len();
    let before = members(&on_a);
    for _ in 0..3 {
        let mut there = observe(&on_b, "field");
        let version = there.next(LONG).unwrap();
        assert!(series(&on_b).iter().any(|name| name.starts_with(".mirror/")), "{:?}", series(&on_b));
        drop(there);
        shows(&version, 1);
        drop(version);
        until("the mirror is gone", || series(&on_b).is_empty());
        until("nothing observes for b", || members(&on_a) == before);
    }
}

#[test]
fn a_series_has_one_publisher_in_a_site() {
    let world = World::new(2);
    let (on_a, on_b) = (world.session(0, "solver"), world.session(1, "other"));
    let mut publisher = on_a.publisher("field", &options(4)).unwrap();
    publish(&mut publisher, 1);
    let second = failed(on_b.publisher("field", &options(4)).map(drop));
    assert!(second.0 == Status::Exists && second.1.contains("on node a by task 'solver'"), "{second:?}");
    // After the publisher has ended, a task of the same node may publish a series of this name. After that series is
    // removed, a task of any node may publish a series of this name.
    drop(publisher);
    publish(&mut on_a.publisher("field", &options(4)).unwrap(), 2);
    on_a.remove_series("field").unwrap();
    until("the name is free", || {
        on_b.publisher("field", &options(4)).map(|mut publisher| publish(&mut publisher, 3)).is_ok()
    });
    let mut there = observe(&on_a, "field");
    shows(&there.latest().unwrap(), 3);
}

#[test]
fn the_next_publisher_may_be_on_another_node_once_the_former_has_ended_or_died() {
    let world = World::new(3);
    let sessions: Vec<_> = (0..3).map(|node| world.session(node, "viewer")).collect();
    let doomed = start(&world.daemons[0], 3);
    let mut there = observe(&sessions[1], "field");
    shows(&there.next(LONG).unwrap(), 2);
    let living = failed(sessions[1].publisher("field", &options(4)).map(drop));
    assert!(
        living.0 == Status::Exists && living.1.contains("task 'doomed'") && living.1.contains("on node a"),
        "{living:?}"
    );
    end(doomed);
    // Node a notices the death of the publisher first. Until node b knows of the death, node b refuses a new publisher
    // of this name.
    let mut publisher = None;
    until("the name is free", || {
        publisher = sessions[1].publisher("field", &options(4)).ok();
        publisher.is_some()
    });
    let mut publisher = publisher.unwrap();
    publish(&mut publisher, 7);
    for session in &sessions {
        let mut observer = session.observe("field", LONG).unwrap();
        shows(&observer.next(LONG).unwrap(), 7);
        assert_eq!(observer.newest(), 1);
    }
    // An observer of the former series keeps the versions of that series.
    shows(&there.latest().unwrap(), 2);
    publisher.end().unwrap();
    let mut last = sessions[2].publisher("field", &options(4)).unwrap();
    publish(&mut last, 8);
    for session in &sessions {
        shows(&observe(session, "field").latest().unwrap(), 8);
    }
}

#[test]
fn an_observer_that_waits_for_the_coming_series_finds_it_on_whichever_node_it_comes() {
    let world = World::new(3);
    let on_b = world.session(1, "viewer");
    {
        let on_a = world.session(0, "solver");
        let mut publisher = on_a.publisher("field", &options(4)).unwrap();
        publish(&mut publisher, 1);
        publisher.end().unwrap();
    }
    // The block above has dropped the session of node `a`. So node `a` has no member any more, and the run on node `a`
    // ends.
    let former = |session: &Session| session.observe("field", Duration::ZERO).map(drop);
    until("the run has ended, and b knows the name", || {
        former(&on_b).is_err_and(|error| error.status == Status::NotFound && error.to_string().contains("former run"))
    });
    shows(&on_b.observe_former("field", LONG).unwrap().latest().unwrap(), 1);
    let waiting = std::thread::spawn(move || {
        let mut observer = observe(&on_b, "field");
        let first = observer.next(LONG).unwrap();
        (observer, first)
    });
    std::thread::sleep(Duration::from_millis(200));
    let on_c = world.session(2, "solver");
    let mut publisher = on_c.publisher("field", &options(4)).unwrap();
    publish(&mut publisher, 2);
    let (observer, first) = waiting.join().unwrap();
    shows(&first, 2);
    assert_eq!(observer.newest(), 1);
}

#[test]
fn versions_that_passed_while_a_node_was_stuck_are_reported_as_missed() {
    let world = World::new(2);
    let (on_a, on_b) = (world.session(0, "solver"), world.session(1, "viewer"));
    let mut publisher = on_a.publisher("field", &SeriesOptions { keep: 2, ..options(20) }).unwrap();
    publish(&mut publisher, 1);
    let mut there = observe(&on_b, "field");
    shows(&there.each(LONG).unwrap(), 1);
    let broker = world.daemons[1].broker();
    kill(broker, "STOP");
    publish_all(&mut publisher, 2..=100);
    kill(broker, "CONT");
    let (mut seen, mut missed) = (1, 0);
    while seen < 100 {
        let version = there.each(LONG).unwrap();
        shows(&version, version.sequence());
        assert_eq!(version.missed(), version.sequence() - seen - 1);
        (seen, missed) = (version.sequence(), missed + version.missed());
    }
    assert!(missed >= 90, "{missed}");
    let gone = failed(there.at(50, Duration::ZERO));
    assert_eq!(gone.0, Status::NotFound, "{gone:?}");
}

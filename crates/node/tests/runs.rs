//! Tests of what a run is, and of what ends with a run. There is one test for each cell of the rows "port", "series"
//! and "run" in the table of `docs/lifetimes.md`.

mod support;

use std::time::Duration;

use crossdock_client::{
    ConnectOptions, End, Handle, InUse, Message, Mode, Port, PortOptions, SegmentKind, SeriesOptions, Session, Status,
    Variable,
};
use support::{Daemon, until};

const LONG: Option<Duration> = Some(Duration::from_secs(20));
const BRIEFLY: Duration = Duration::from_millis(30);

fn open(session: &Session, end: End) -> Port {
    session.port("p", end, &PortOptions::default(), None).unwrap()
}

fn send(port: &Port, tags: impl IntoIterator<Item = u64>) {
    tags.into_iter().for_each(|tag| port.send(&Message::new(Handle::NONE, tag), LONG).unwrap());
}

/// Receives all messages, as `for message in port` does in Python. Returns their tags and the final status.
fn read(port: &Port, wait: Option<Duration>) -> (Vec<u64>, Status) {
    let mut tags = Vec::new();
    loop {
        match port.receive(wait) {
            Ok(message) => {
                port.release(&message).unwrap();
                tags.push(message.tag);
            }
            Err(error) => return (tags, error.status),
        }
    }
}

fn visitor(daemon: &Daemon) -> Session {
    Session::connect(&ConnectOptions { visitor: true, ..daemon.options() }).unwrap()
}

fn ports(daemon: &Daemon) -> usize {
    visitor(daemon).list().unwrap().segments.iter().filter(|s| s.kind == SegmentKind::Port).count()
}

/// Runs the README's first example once: the producer and the consumer start, pass messages, and end.
fn run_once(daemon: &Daemon, producer_first: bool) {
    let consume = |session: Session| read(&open(&session, End::Consumer), LONG);
    let produce = |session: Session| send(&open(&session, End::Producer), 0..40);
    std::thread::scope(|scope| {
        let consumer = (!producer_first).then(|| scope.spawn(|| consume(daemon.session())));
        std::thread::sleep(BRIEFLY);
        let producer = scope.spawn(|| produce(daemon.session()));
        std::thread::sleep(BRIEFLY);
        let consumer = consumer.unwrap_or_else(|| scope.spawn(|| consume(daemon.session())));
        producer.join().unwrap();
        assert_eq!(consumer.join().unwrap(), ((0..40).collect(), Status::Closed));
    });
}

#[test]
fn run_begins_with_the_first_member_and_ends_with_the_last() {
    let daemon = Daemon::start();
    let first = daemon.session();
    let second = daemon.session();
    assert_eq!((first.run(), second.run()), (1, 1));
    drop(first);
    assert_eq!(daemon.session().run(), 1, "one member was left");
    drop(second);
    assert_eq!(daemon.session().run(), 2);
    assert_eq!(visitor(&daemon).run(), 2, "a visitor begins none");
    assert_eq!(daemon.session().run(), 3);
}

#[test]
fn run_that_a_visitor_watches_ends_with_its_last_member_all_the_same() {
    let daemon = Daemon::start();
    let watching = visitor(&daemon);
    assert_eq!(watching.run(), 0);
    let run = |daemon: &Daemon| daemon.session().run();
    assert_eq!((run(&daemon), run(&daemon)), (1, 2));
    drop(watching);
}

#[test]
fn run_of_a_workflow_lasts_until_its_end() {
    let daemon = Daemon::start();
    let launcher = daemon.session();
    launcher.make_workflow("w", 0).unwrap();
    let inside = || Session::connect(&ConnectOptions { workflow: Some("w".into()), ..daemon.options() }).unwrap();
    let first = inside();
    assert_eq!(first.run(), 1);
    send(&open(&first, End::Producer), [3]);
    drop(first);
    // A second task of the same run comes later, and receives what the first task sent.
    let second = inside();
    assert_eq!(second.run(), 1);
    assert_eq!(read(&open(&second, End::Consumer), LONG), (vec![3], Status::Closed));
    drop(second);
    launcher.end_workflow("w").unwrap();
    assert_eq!(ports(&daemon), 0);
}

#[test]
fn run_goes_on_over_the_brokers_death() {
    let daemon = Daemon::start();
    let member = daemon.session();
    send(&open(&member, End::Producer), [1]);
    daemon.kill_broker();
    assert_eq!(daemon.session().run(), 1);
    assert_eq!(read(&open(&daemon.session(), End::Consumer), LONG), (vec![1], Status::Closed));
    drop(member);
    until("the port is gone with its run", || ports(&daemon) == 0);
}

#[test]
fn port_works_in_every_run_of_a_daemon_and_in_both_orders() {
    let daemon = Daemon::start();
    for run in 0..4 {
        run_once(&daemon, run % 2 == 0);
    }
    // This session stands for a notebook (a Python session that stays open). While it is connected, all programs that
    // the loop starts belong to one run.
    let _notebook = daemon.session();
    for run in 0..4 {
        run_once(&daemon, run % 2 == 0);
    }
}

#[test]
fn port_ends_with_its_run_and_its_messages_with_it() {
    let daemon = Daemon::start();
    let session = daemon.session();
    send(&open(&session, End::Producer), [0, 1]);
    assert_eq!(ports(&daemon), 1);
    session.close().unwrap();
    assert_eq!(ports(&daemon), 0);
    let next = daemon.session();
    let consumer = open(&next, End::Consumer);
    let error = consumer.receive(Some(BRIEFLY)).unwrap_err();
    assert_eq!(error.status, Status::TimedOut, "nothing of the former run is received: {error}");
}

#[test]
fn port_takes_other_options_in_the_next_run() {
    let daemon = Daemon::start();
    let with = |capacity| {
        let options = PortOptions { capacity, ..PortOptions::default() };
        daemon.session().port("p", End::Producer, &options, None).map(|port| port.shape().capacity)
    };
    assert_eq!((with(4).unwrap(), with(16).unwrap()), (4, 16));
}

#[test]
fn port_that_is_persistent_outlasts_its_run_until_it_is_removed() {
    let daemon = Daemon::start();
    let options = PortOptions { persistent: true, ..PortOptions::default() };
    let session = daemon.session();
    send(&session.port("p", End::Producer, &options, None).unwrap(), [5, 6]);
    session.close().unwrap();
    daemon.kill_broker();
    let session = daemon.session();
    assert_eq!(session.run(), 2);
    assert_eq!(read(&open(&session, End::Consumer), LONG), (vec![5, 6], Status::Closed));
    session.remove_port("p").unwrap();
    assert_eq!(ports(&daemon), 0);
}

#[test]
fn port_of_a_run_that_ended_while_the_broker_was_dead_is_gone_as_well() {
    let daemon = Daemon::start();
    let (program, path) = (std::env::current_exe().unwrap(), daemon.socket());
    let mut child = std::process::Command::new(program)
        .args(["--exact", "child", "--ignored"])
        .env("CROSSDOCK_TEST_CHILD", &path)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    until("the child has its port", || ports(&daemon) == 1);
    daemon.kill_broker();
    child.kill().unwrap();
    child.wait().unwrap();
    until("the port is gone with its run", || ports(&daemon) == 0);
}

#[test]
#[ignore = "a part that another test starts in a process of its own"]
fn child() {
    let Ok(socket) = std::env::var("CROSSDOCK_TEST_CHILD") else { return };
    let options = ConnectOptions { socket: Some(socket.into()), ..ConnectOptions::default() };
    let session = Session::connect(&options).unwrap();
    let _port = open(&session, End::Producer);
    std::thread::sleep(Duration::from_secs(20));
}

fn publish(session: &Session, value: u64) {
    let options = SeriesOptions { variables: vec![Variable::new("u", "u64", &[8])], ..SeriesOptions::default() };
    let mut publisher = session.publisher("field", &options).unwrap();
    publisher.elements::<u64>("u").unwrap().fill(value);
    publisher.publish(&[]).unwrap();
}

fn first_number(observer: &mut crossdock_client::Observer) -> u64 {
    observer.latest().unwrap().elements::<u64>("u").unwrap()[0]
}

#[test]
fn series_of_a_former_run_is_taken_only_on_request() {
    let daemon = Daemon::start();
    publish(&daemon.session(), 1);
    let session = daemon.session();
    let error = session.observe("field", Duration::ZERO).unwrap_err();
    assert!(error.status == Status::NotFound && error.to_string().contains("former run"), "{error}");
    let error = session.observe("field", BRIEFLY).unwrap_err();
    assert!(error.status == Status::TimedOut && error.to_string().contains("former"), "{error}");
    assert_eq!(first_number(&mut session.observe_former("field", Duration::ZERO).unwrap()), 1);
    let listed = session.list().unwrap();
    assert!(listed.segments.iter().any(|s| s.name == "field" && s.former));
}

#[test]
fn series_that_comes_is_waited_for_though_a_former_run_left_one() {
    for visits in [false, true] {
        let daemon = Daemon::start();
        publish(&daemon.session(), 1);
        let early = if visits { visitor(&daemon) } else { daemon.session() };
        std::thread::scope(|scope| {
            let observer = scope.spawn(|| early.observe("field", LONG.unwrap()).unwrap());
            std::thread::sleep(BRIEFLY);
            assert!(!observer.is_finished());
            let solver = daemon.session();
            publish(&solver, 2);
            assert_eq!(first_number(&mut observer.join().unwrap()), 2, "visitor: {visits}");
        });
    }
}

#[test]
fn series_that_ended_within_the_run_can_still_be_observed() {
    let daemon = Daemon::start();
    let _other_task = daemon.session();
    publish(&daemon.session(), 1);
    assert_eq!(first_number(&mut daemon.session().observe("field", Duration::ZERO).unwrap()), 1);
}

#[test]
fn series_of_a_former_run_outlives_the_broker() {
    let daemon = Daemon::start();
    publish(&daemon.session(), 1);
    daemon.kill_broker();
    let session = daemon.session();
    assert_eq!(session.observe("field", Duration::ZERO).unwrap_err().status, Status::NotFound);
    assert_eq!(first_number(&mut session.observe_former("field", Duration::ZERO).unwrap()), 1);
    session.remove_series("field").unwrap();
    assert_eq!(session.observe_former("field", Duration::ZERO).unwrap_err().status, Status::NotFound);
}

#[test]
fn region_outlasts_its_run_until_it_is_removed() {
    let daemon = Daemon::start();
    drop(daemon.session().region("r", Mode::CreateOnly, 1 << 20, None).unwrap());
    let session = daemon.session();
    drop(session.region("r", Mode::OpenOnly, 0, None).unwrap());
    session.remove(SegmentKind::Region, "r", InUse::Refuse).unwrap();
    assert_eq!(session.region("r", Mode::OpenOnly, 0, None).unwrap_err().status, Status::NotFound);
}

#[test]
fn what_is_in_use_is_removed_only_by_force_and_its_users_are_named() {
    let daemon = Daemon::start();
    let session = daemon.session();
    let region = session.region("r", Mode::CreateOnly, 1 << 20, None).unwrap();
    let port = open(&session, End::Producer);
    let options = SeriesOptions { variables: vec![Variable::new("u", "u64", &[8])], ..SeriesOptions::default() };
    let publisher = session.publisher("field", &options).unwrap();
    let user = visitor(&daemon);
    for (kind, name) in [(SegmentKind::Region, "r"), (SegmentKind::Port, "p"), (SegmentKind::Series, "field")] {
        let error = user.remove(kind, name, InUse::Refuse).unwrap_err();
        assert_eq!(error.status, Status::Busy);
        let process = format!("process {}", std::process::id());
        assert!(error.to_string().contains(&process) && error.to_string().contains("--force"), "{error}");
        user.remove(kind, name, InUse::Force).unwrap();
        assert_eq!(user.remove(kind, name, InUse::Force).unwrap_err().status, Status::NotFound);
    }
    drop((region, port, publisher));
}

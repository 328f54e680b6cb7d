//! Tests of the daemon as real processes: it starts, serves, restarts and ends.

mod support;

use std::time::{Duration, Instant};

use crossdock_client::{ConnectOptions, End, Mode, ObjectMode, PortOptions, SegmentKind, Session, Status};
use crossdock_layout::wire::{Answer, OpenMode, Request};
use support::{Daemon, Raw, kill, open, spawn, until};

#[test]
fn a_session_makes_a_port_and_sees_it_listed() {
    let daemon = Daemon::start();
    let session = daemon.session();
    let port = session.port("positions", End::Producer, &PortOptions::default(), None).unwrap();
    let listing = session.list().unwrap();
    assert_eq!(listing.segments.len(), 1);
    assert_eq!((listing.segments[0].name.as_str(), listing.segments[0].kind), ("positions", SegmentKind::Port));
    assert_eq!(listing.members.len(), 1);
    drop(port);
    session.close().unwrap();
    daemon.stop();
}

#[test]
fn a_workflow_that_came_too_late_does_not_keep_its_name() {
    let daemon = Daemon::start();
    let options = ConnectOptions { timeout: Duration::from_secs(1), ..daemon.options() };
    let session = Session::connect(&options).unwrap();
    let broker = daemon.broker();
    kill(broker, "STOP");
    assert_eq!(session.make_workflow("w", 0).unwrap_err().status, Status::TimedOut);
    kill(broker, "CONT");
    // The broker now answers the request that the session has given up. The answer to `list` comes after this late
    // answer, so the session has read both answers when `list` returns.
    session.list().unwrap();
    session.make_workflow("w", 0).unwrap();
    session.list().unwrap();
    assert_eq!(session.make_workflow("w", 0).unwrap_err().status, Status::Exists);
    session.close().unwrap();
    daemon.stop();
}

#[test]
fn a_region_and_a_port_that_were_made_too_late_stay_if_another_member_has_had_them() {
    for used in [false, true] {
        let daemon = Daemon::start();
        let (session, other) = (
            Session::connect(&ConnectOptions { timeout: Duration::from_secs(1), ..daemon.options() }).unwrap(),
            daemon.session(),
        );
        let broker = daemon.broker();
        kill(broker, "STOP");
        let late = session.region("r", Mode::OpenOrCreate, 1 << 20, None).map(drop);
        assert_eq!(late.unwrap_err().status, Status::TimedOut);
        let late = session.port("p", End::Producer, &PortOptions::default(), None).map(drop);
        assert_eq!(late.unwrap_err().status, Status::TimedOut);
        kill(broker, "CONT");
        // `session` has given its two requests up, but the broker has now carried them out. `session` reads the two
        // late answers only when it waits for the answer to its next request.
        until("both are there", || other.list().unwrap().segments.len() == 2);
        if used {
            let region = other.region("r", Mode::OpenOrCreate, 1 << 20, None).unwrap();
            region.vector::<u64>("v", ObjectMode::CreateOnly, None).unwrap().resize(7).unwrap();
            other.port("p", End::Producer, &PortOptions::default(), None).map(drop).unwrap();
        }
        // While `session` waits for the answer to its first `list`, it reads the late answers to the two requests that
        // it has given up, and tells the broker to remove the region and the port that these requests made. The broker
        // handles this before it answers the second `list`.
        until("the daemon answers", || session.list().is_ok());
        until("the daemon answers again", || session.list().is_ok());
        assert_eq!(other.list().unwrap().segments.len(), if used { 2 } else { 0 });
        if used {
            let region = other.region("r", Mode::OpenOnly, 0, None).unwrap();
            assert_eq!(region.vector::<u64>("v", ObjectMode::OpenOnly, None).unwrap().len().unwrap(), 7);
        }
        drop((session, other));
        daemon.stop();
    }
}

#[test]
fn what_was_made_is_there_after_the_broker_was_killed_and_the_session_goes_on() {
    let daemon = Daemon::start();
    let session = daemon.session();
    let member = session.member();
    session.port("kept", End::Producer, &PortOptions::default(), None).unwrap();
    daemon.kill_broker();
    let began = Instant::now();
    let listing = session.list().unwrap();
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    assert_eq!(listing.segments[0].name, "kept");
    assert_eq!(listing.members.iter().map(|m| m.id).collect::<Vec<_>>(), [member]);
    session.port("kept", End::Consumer, &PortOptions::default(), None).unwrap();
    daemon.stop();
}

#[test]
fn an_open_waits_for_its_segment_and_gives_up_at_its_deadline() {
    let daemon = Daemon::start();
    let (mut waiter, _) = Raw::join(&daemon.socket());
    let (mut maker, _) = Raw::join(&daemon.socket());
    let began = Instant::now();
    let answer = waiter.ask(&open("late", OpenMode::OpenOnly, 0, 100)).unwrap().0;
    assert!(matches!(answer, Answer::Failed { status: Status::TimedOut, .. }), "{answer:?}");
    let waited = began.elapsed();
    assert!((Duration::from_millis(100)..Duration::from_millis(400)).contains(&waited), "{waited:?}");
    assert!(waiter.send(&open("late", OpenMode::OpenOnly, 0, 5000).encode(77, 77), &[]));
    let made = maker.ask(&open("late", OpenMode::CreateOnly, 8192, 0)).unwrap().0;
    let (number, answer, fds) = waiter.receive().unwrap();
    assert_eq!((number, fds.len()), (77, 1));
    let (Answer::Segment { segment: one, .. }, Answer::Segment { segment: other, .. }) = (made, answer) else {
        panic!()
    };
    assert_eq!(one, other);
    daemon.stop();
}

#[test]
fn a_second_daemon_on_the_same_socket_ends_with_an_error_and_harms_no_client() {
    let daemon = Daemon::start();
    let session = daemon.session();
    let status = spawn(&daemon.socket(), &[]).wait().unwrap();
    assert!(!status.success());
    session.list().unwrap();
    daemon.session();
    drop(session);
    daemon.stop();
}

#[test]
fn a_private_daemon_ends_when_no_member_is_left_and_leaves_nothing() {
    let mut daemon = Daemon::start_with(&["--private", "--idle-ms", "200"]);
    let session = daemon.session();
    std::thread::sleep(Duration::from_millis(400));
    session.list().unwrap();
    drop(session);
    until("the daemon ends", || daemon.keeper.try_wait().unwrap().is_some());
    assert_eq!(std::fs::read_dir(daemon.folder.path()).unwrap().count(), 0);
}

#[test]
fn members_die_in_the_table_within_100_ms_of_their_process() {
    let daemon = Daemon::start();
    let (mut raw, _) = Raw::join(&daemon.socket());
    // The process `cat` inherits the connection as its standard input, and keeps it open without reading. So `cat` is
    // now the member's process, and the test can kill it.
    let (victim, member) = Raw::join(&daemon.socket());
    drop(victim);
    let began = Instant::now();
    until(
        "the member is gone",
        || matches!(raw.ask(&Request::Describe { member }), Some((Answer::Member(m), _)) if m.state as u32 > 2),
    );
    assert!(began.elapsed() < Duration::from_millis(100), "{:?}", began.elapsed());
    daemon.stop();
}

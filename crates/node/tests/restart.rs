//! Tests of restarts: the broker is killed again and again under load, the keeper is killed, and the journal has no
//! room left.

mod support;

use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crossdock_client::{ConnectOptions, End, InUse, ItemOptions, ItemState, Mode, PortOptions, Session, Status};
use crossdock_layout::wire::{Answer, Grant, OpenMode, Request, SegmentKind};
use crossdock_layout::{MemberId, Rights};
use crossdock_os::socket::{self, Received};
use crossdock_os::{Deadline, event, memfd, testing};
use support::{Daemon, Raw, kill, open, set_limit, spawn, starve, until};

/// The broker is killed while four sessions open, list and remove ports without a pause. Every call must succeed.
#[test]
fn a_hundred_kills_under_load_lose_nothing_and_fail_no_call() {
    let daemon = Daemon::start();
    let over = AtomicBool::new(false);
    let calls = AtomicUsize::new(0);
    let slowest = Mutex::new(Duration::ZERO);
    let ids = Mutex::new(BTreeSet::new());
    let kept = daemon.session();
    kept.port("kept", End::Producer, &PortOptions::default(), None).unwrap();
    let kept_id = kept.list().unwrap().segments[0].id;
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let (daemon, over, calls, slowest, ids) = (&daemon, &over, &calls, &slowest, &ids);
            scope.spawn(move || {
                let session = daemon.session();
                let mut round = 0;
                while !over.load(Ordering::Relaxed) {
                    round += 1;
                    let name = format!("w{worker}/r{round}");
                    let began = Instant::now();
                    work(&session, &name, ids);
                    let mut slowest = slowest.lock().unwrap();
                    *slowest = began.elapsed().max(*slowest);
                    calls.fetch_add(3, Ordering::Relaxed);
                }
                session.close().unwrap();
            });
        }
        for _ in 0..100 {
            let before = calls.load(Ordering::Relaxed);
            daemon.kill_broker();
            // After each kill, the loop waits for eight more calls, but at most 60 ms. So some kills come during normal
            // work, and some before the new broker is ready.
            let pause = Instant::now();
            while calls.load(Ordering::Relaxed) < before + 8 && pause.elapsed() < Duration::from_millis(60) {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
        over.store(true, Ordering::Relaxed);
    });
    let (calls, slowest) = (calls.into_inner(), slowest.into_inner().unwrap());
    println!("{calls} calls over 100 kills, slowest round of three {slowest:?}");
    assert!(calls > 400, "only {calls} calls");
    assert!(slowest < Duration::from_secs(4), "{slowest:?}");
    let listing = kept.list().unwrap();
    let names: Vec<_> = listing.segments.iter().filter(|s| !s.removed).map(|s| (s.id, s.name.as_str())).collect();
    assert_eq!(names, [(kept_id, "kept")], "nothing lost, nothing left");
    assert_eq!(listing.members.len(), 1);
    drop(kept);
    daemon.stop();
}

/// Makes, finds and removes a port. Each step must succeed, and no id may appear twice.
fn work(session: &Session, name: &str, ids: &Mutex<BTreeSet<u64>>) {
    let port = session.port(name, End::Producer, &PortOptions::default(), None).unwrap();
    let own = session.list().unwrap().segments.into_iter().filter(|s| s.name == name && !s.removed);
    let own: Vec<_> = own.map(|s| s.id.0).collect();
    assert_eq!(own.len(), 1, "{name} is there once");
    assert!(ids.lock().unwrap().insert(own[0]), "segment {} was another one before", own[0]);
    session.remove_port(name).unwrap();
    drop(port);
}

#[test]
fn a_request_without_an_answer_is_done_once_when_it_is_sent_again() {
    let daemon = Daemon::start();
    let hello = |member| match Raw::hello_message(9) {
        Request::Hello { protocol, layout, fingerprint, token, rank, task, workflow, visitor, .. } => {
            Request::Hello { protocol, layout, fingerprint, token, member, rank, task, workflow, visitor }
        }
        other => other,
    };
    let mut raw = Raw::connect(&daemon.socket());
    let Some((Answer::Welcome { member, .. }, _)) = raw.ask(&hello(MemberId::NONE)) else { panic!() };
    let create = open("once", OpenMode::CreateOnly, 8192, 0).encode(50, 50);
    assert!(raw.send(&create, &[]));
    let (_, first, _) = raw.receive().unwrap();
    daemon.kill_broker();
    let (again, welcome) = Raw::greet(&daemon.socket(), &hello(member));
    assert!(matches!(welcome, Answer::Welcome { member: same, resumed: true, .. } if same == member), "{welcome:?}");
    assert!(again.send(&create, &[]));
    let (number, second, fds) = again.receive().unwrap();
    assert_eq!((number, fds.len()), (50, 1));
    assert_eq!(first, second, "created, the same segment");
    daemon.stop();
}

/// The repeated request loses its descriptor, because the daemon has none left when the request comes.
#[test]
fn a_series_that_was_made_before_the_brokers_death_is_confirmed_although_its_pool_could_not_be_received_again() {
    let daemon = Daemon::start();
    let (raw, welcome) = Raw::greet(&daemon.socket(), &Raw::hello_message(9));
    let Answer::Welcome { member, .. } = welcome else { panic!("{welcome:?}") };
    let (pool, _mapping) = memfd::create_published("crossdock-test", 8192, 4096).unwrap();
    let publish = Request::Publish { size: 8192, reserved: 4096, attribute: 0, observers: 4, name: "u".into() };
    let publish = publish.encode(50, 50);
    assert!(raw.send(&publish, &[pool.as_fd()]));
    assert!(event::wait_readable(&raw.socket, Deadline::after(Duration::from_secs(20))).unwrap(), "it was answered");
    daemon.kill_broker();
    let (again, welcome) = Raw::greet(&daemon.socket(), &Raw::hello_again(9, member));
    assert!(matches!(welcome, Answer::Welcome { member: same, resumed: true, .. } if same == member), "{welcome:?}");
    let (_, first, _) = raw.receive().unwrap();
    assert!(matches!(first, Answer::Done { .. }), "{first:?}");
    // When the broker answers this request, it has closed the descriptors that it needed for the welcome.
    let mut again = again.number_from(20);
    again.ask(&Request::Describe { member }).unwrap();
    let broker = daemon.broker();
    let limit = starve(broker, 0);
    assert!(again.send(&publish, &[pool.as_fd()]));
    let (number, second, _) = again.receive().unwrap();
    set_limit(broker, limit);
    assert_eq!((number, second), (50, first), "the same series");
    daemon.stop();
}

#[test]
fn progress_is_the_last_that_was_said_and_outlasts_the_broker() {
    let daemon = Daemon::start();
    let (looks, works) = (daemon.session(), daemon.session());
    let listed = || looks.list().unwrap().members.iter().find(|m| m.id == works.member()).and_then(|m| m.progress);
    for done in 0..=100_000 {
        works.progress(done, 100_000).unwrap();
    }
    until("the last of many is told", || listed() == Some((100_000, 100_000)));
    daemon.kill_broker();
    until("the next broker hears of it", || listed() == Some((100_000, 100_000)));
    // While the broker is stopped, it reads no message, but the calls that report progress must not wait for it. When
    // the broker continues, it must get the last report.
    let broker = daemon.broker();
    kill(broker, "STOP");
    let began = Instant::now();
    for done in 0..200 {
        works.progress(done, 1000).unwrap();
    }
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    kill(broker, "CONT");
    until("the last of those is told", || listed() == Some((199, 1000)));
    assert_eq!(works.progress(3, 2).unwrap_err().status, Status::Invalid);
    drop(works);
    daemon.stop();
}

/// A socket has room for a few hundred messages that the daemon has not read. The session here has more objects, and
/// sends at least one message for each.
#[test]
fn a_session_with_more_objects_than_a_socket_takes_messages_outlives_the_broker_and_closes_them() {
    let daemon = Daemon::start();
    let (session, other) = (daemon.session(), daemon.session());
    let item = |number: usize| session.create_item(&format!("k{number}"), &ItemOptions::bytes(100)).unwrap();
    let mut items: Vec<_> = (0..700).map(item).collect();
    daemon.kill_broker();
    assert_eq!(session.find_item("k0").unwrap().state, ItemState::Held);
    // From here on, `session` makes no call that waits for the daemon. Its messages about the closed items must reach
    // the daemon nevertheless.
    items.truncate(350);
    until("the daemon hears that an item was closed", || other.find_item("k699").unwrap().state != ItemState::Held);
    kill(daemon.broker(), "STOP");
    items.truncate(1);
    kill(daemon.broker(), "CONT");
    assert_ne!(session.find_item("k1").unwrap().state, ItemState::Held);
    assert_eq!(other.find_item("k0").unwrap().state, ItemState::Held);
    drop((items, session, other));
    daemon.stop();
}

#[test]
fn a_segment_keeps_its_age_over_a_broker() {
    let daemon = Daemon::start();
    let session = daemon.session();
    let today = || std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_millis() as u64;
    let before = today();
    let _port = session.port("old", End::Producer, &PortOptions::default(), None).unwrap();
    let since = session.list().unwrap().segments[0].since_ms;
    // The broker reads the computer's clock only when it starts. That clock may have been corrected since then, so the
    // broker's time and the test's time may differ by a second.
    assert!(since + 1000 >= before && since <= today() + 1000, "{before} {since} {}", today());
    daemon.kill_broker();
    assert_eq!(session.list().unwrap().segments[0].since_ms, since);
    daemon.stop();
}

#[test]
fn a_member_that_dies_while_there_is_no_broker_is_dead_for_the_next_one() {
    let daemon = Daemon::start();
    let session = daemon.session();
    let broker = daemon.broker();
    kill(broker, "STOP");
    // Another process becomes a member, and is killed while the broker is stopped and cannot see it.
    let mut program = std::process::Command::new(std::env::current_exe().unwrap());
    program.args(["--exact", "helper_holds_a_session", "--ignored", "--nocapture"]);
    program.env("CROSSDOCK_TEST_SOCKET", daemon.socket()).stdout(std::process::Stdio::null());
    let mut helper = program.spawn().unwrap();
    kill(broker, "CONT");
    until("the helper is a member", || session.list().unwrap().members.len() == 2);
    kill(daemon.broker(), "STOP");
    helper.kill().unwrap();
    helper.wait().unwrap();
    daemon.kill_broker();
    until("the helper is dead for the new broker", || session.list().unwrap().members.len() == 1);
    daemon.stop();
}

#[test]
#[ignore = "run by the test above, in a process of its own"]
fn helper_holds_a_session() {
    let Some(socket) = std::env::var_os("CROSSDOCK_TEST_SOCKET") else { return };
    let options = crossdock_client::ConnectOptions { socket: Some(socket.into()), ..Default::default() };
    let _session = Session::connect(&options).unwrap();
    std::thread::sleep(Duration::from_secs(20));
}

#[test]
fn a_daemon_started_after_the_keepers_death_counts_on_and_gets_back_what_its_members_have() {
    let mut daemon = Daemon::start();
    let session = daemon.session();
    session.make_workflow("melt", 0).unwrap();
    let path = daemon.folder.path().join("task.sock");
    let grant = Grant { pattern: "*".into(), kind: SegmentKind::Port, rights: Rights::ALL };
    let second = daemon.folder.path().join("second.sock");
    for path in [&path, &second] {
        session.make_endpoint("melt", "simulate", socket::listen(path).unwrap(), std::slice::from_ref(&grant)).unwrap();
    }
    let options = crossdock_client::ConnectOptions { socket: Some(path.clone()), ..Default::default() };
    let task = Session::connect(&options).unwrap();
    let port = task.port("p", End::Producer, &PortOptions::default(), None).unwrap();
    let before = task.list().unwrap().segments[0].id;
    daemon.keeper.kill().unwrap();
    daemon.keeper.wait().unwrap();
    daemon.keeper = spawn(&daemon.socket(), &[]);
    // When this call returns, the launcher's session has connected again and has given the new daemon the workflow's
    // endpoints. Then the task can connect through its endpoint, and the new daemon gets the task's port back.
    assert_eq!(session.list().unwrap().workflows.len(), 2);
    let listing = task.list().unwrap();
    assert_eq!(listing.segments.iter().map(|s| s.id).collect::<Vec<_>>(), [before]);
    let other = Session::connect(&options).unwrap();
    other.port("p", End::Consumer, &PortOptions::default(), None).map(drop).unwrap();
    other.port("q", End::Producer, &PortOptions::default(), None).map(drop).unwrap();
    let after = other.list().unwrap().segments.into_iter().find(|s| s.name == "q").unwrap().id;
    assert!(after > before, "{after:?} after {before:?}");
    assert!(other.member() > task.member());
    let by_second = crossdock_client::ConnectOptions { socket: Some(second.clone()), ..options };
    Session::connect(&by_second).expect("the other endpoint of the task works, too");
    drop((port, task, other));
    session.close().unwrap();
    std::fs::remove_file(&path).unwrap();
    std::fs::remove_file(&second).unwrap();
    daemon.stop();
}

#[test]
fn a_member_gives_everything_back_although_the_next_broker_dies_meanwhile() {
    let mut daemon = Daemon::start();
    let session = daemon.session();
    let region = |number: usize| {
        let name = format!("r{number}");
        session.region(&name, Mode::CreateOnly, 1 << 18, None).unwrap()
    };
    let regions: Vec<_> = (0..400).map(region).collect();
    for round in 0..4 {
        daemon.kill_node();
        daemon.keeper.wait().unwrap();
        daemon.keeper = spawn(&daemon.socket(), &[]);
        daemon.wait_until_up();
        std::thread::sleep(Duration::from_millis(30 * round));
        daemon.kill_broker();
        daemon.wait_until_up();
        session.list().unwrap();
        let other = daemon.session();
        for region in &regions {
            assert_eq!(other.region(region.name(), Mode::OpenOnly, 0, None).unwrap().id(), region.id());
        }
    }
    drop((regions, session));
    daemon.stop();
}

#[test]
fn a_name_is_free_if_no_client_offers_its_segment_after_the_keepers_death() {
    let mut daemon = Daemon::start();
    let (mut raw, _) = Raw::join(&daemon.socket());
    raw.ask(&open("r", OpenMode::CreateOnly, 8192, 0)).unwrap();
    daemon.keeper.kill().unwrap();
    daemon.keeper.wait().unwrap();
    daemon.keeper = spawn(&daemon.socket(), &[]);
    Raw::greet(&daemon.socket(), &Raw::hello_message(77));
    let session = daemon.session();
    std::thread::sleep(Duration::from_millis(300));
    assert!(session.list().unwrap().segments.iter().all(|s| !s.removed), "a living member may have it");
    drop(raw);
    until("it is given up", || session.list().unwrap().segments.iter().all(|s| s.removed));
    drop(session);
    daemon.stop();
}

#[test]
fn an_offered_segment_is_taken_back_under_its_name_and_id() {
    let mut daemon = Daemon::start();
    let hello = Raw::hello_message(3);
    let mut raw = Raw::connect(&daemon.socket());
    let Some((Answer::Welcome { member, .. }, _)) = raw.ask(&hello) else { panic!() };
    let (made, fds) = raw.ask(&open("r", OpenMode::CreateOnly, 8192, 0)).unwrap();
    let Answer::Segment { segment, .. } = made else { panic!("{made:?}") };
    daemon.keeper.kill().unwrap();
    daemon.keeper.wait().unwrap();
    daemon.keeper = spawn(&daemon.socket(), &[]);
    let (mut raw, welcome) = Raw::greet(&daemon.socket(), &Raw::hello_again(3, member));
    assert!(matches!(welcome, Answer::Welcome { member: same, .. } if same == member));
    let busy = raw.ask(&open("r", OpenMode::OpenOnly, 0, 0)).unwrap().0;
    assert!(matches!(busy, Answer::Failed { status: Status::Busy, .. }), "{busy:?}");
    let wrong = crossdock_os::memfd::create("crossdock-test", 4096).unwrap();
    let refused = raw.ask_with(&Request::Offer { segment }, &[wrong.as_fd()]).unwrap().0;
    assert!(matches!(refused, Answer::Failed { status: Status::Invalid, .. }), "{refused:?}");
    let taken = raw.ask_with(&Request::Offer { segment }, &[fds[0].as_fd()]).unwrap().0;
    assert_eq!(taken, Answer::Done { value: 1 });
    let (opened, fds) = raw.ask(&open("r", OpenMode::OpenOnly, 0, 0)).unwrap();
    assert!(matches!(opened, Answer::Segment { segment: same, .. } if same == segment), "{opened:?}");
    crossdock_os::memfd::check(&fds[0], 8192).unwrap();
    daemon.stop();
}

#[test]
fn a_workflow_whose_end_failed_gets_its_endpoint_back_after_the_keepers_death() {
    let mut daemon = Daemon::start();
    let options = ConnectOptions { timeout: Duration::from_secs(1), ..daemon.options() };
    let launcher = Session::connect(&options).unwrap();
    launcher.make_workflow("melt", 1 << 20).unwrap();
    let path = daemon.folder.path().join("task.sock");
    let grant = Grant { pattern: "*".into(), kind: SegmentKind::Region, rights: Rights::ALL };
    launcher.make_endpoint("melt", "simulate", socket::listen(&path).unwrap(), &[grant]).unwrap();
    daemon.kill_node();
    daemon.keeper.wait().unwrap();
    launcher.end_workflow("melt").unwrap_err();
    daemon.keeper = spawn(&daemon.socket(), &[]);
    let (task, _) = Raw::join(&path);
    // An attempt may end the workflow although its answer comes too late. The next attempt then finds no workflow,
    // which counts as success here.
    until("the workflow ends", || match launcher.end_workflow("melt") {
        Ok(()) => true,
        Err(error) => error.status == Status::NotFound,
    });
    assert!(task.was_dropped());
    until("the endpoint is closed", || socket::connect(&path).is_err());
    std::fs::remove_file(&path).unwrap();
    launcher.close().unwrap();
    daemon.stop();
}

#[test]
fn a_workflow_ends_with_its_launcher_and_takes_everything_along() {
    let daemon = Daemon::start();
    let (launcher, watcher) = (daemon.session(), daemon.session());
    launcher.make_workflow("melt", 1 << 20).unwrap();
    let path = daemon.folder.path().join("task.sock");
    let grant = Grant { pattern: "*".into(), kind: SegmentKind::Region, rights: Rights::ALL };
    launcher.make_endpoint("melt", "simulate", socket::listen(&path).unwrap(), &[grant]).unwrap();
    let (mut task, _) = Raw::join(&path);
    task.ask(&open("frames", OpenMode::CreateOnly, 65536, 0)).unwrap();
    // The workflow still exists after the broker is killed. It ends when its launcher leaves.
    daemon.kill_broker();
    let report = watcher.workflow_report("melt").unwrap();
    assert_eq!(report.segments.len(), 1);
    let (mut task, _) = Raw::join(&path);
    let beyond = task.ask(&open("big", OpenMode::CreateOnly, 1 << 21, 0)).unwrap().0;
    assert!(matches!(beyond, Answer::Failed { status: Status::NoSpace, .. }), "{beyond:?}");
    launcher.close().unwrap();
    assert!(task.was_dropped());
    assert_eq!(watcher.workflow_report("melt").unwrap_err().status, Status::NotFound);
    assert!(watcher.list().unwrap().segments.is_empty());
    until("the endpoint is closed", || socket::connect(&path).is_err());
    std::fs::remove_file(&path).unwrap();
    drop(watcher);
    daemon.stop();
}

/// A daemon that has lost its descriptors waits for the members that may have the lost objects. The member here has
/// nothing and makes no call.
#[test]
fn a_session_that_has_opened_nothing_keeps_no_name_after_the_daemons_death() {
    let mut daemon = Daemon::start();
    let (idle, maker) = (daemon.session(), daemon.session());
    drop(maker.region("r", Mode::CreateOnly, 1 << 18, None).unwrap());
    maker.close().unwrap();
    daemon.kill_node();
    daemon.keeper.wait().unwrap();
    daemon.keeper = spawn(&daemon.socket(), &[]);
    let other = daemon.newcomer();
    drop(other.region("r", Mode::OpenOrCreate, 1 << 18, None).unwrap());
    drop((idle, other));
    daemon.stop();
}

#[test]
fn a_session_that_has_opened_nothing_keeps_no_region_after_the_brokers_death() {
    let daemon = Daemon::start();
    let (idle, other) = (daemon.session(), daemon.session());
    drop(other.region("r", Mode::CreateOnly, 1 << 18, None).unwrap());
    daemon.kill_broker();
    let removed = || other.remove(SegmentKind::Region, "r", InUse::Refuse).is_ok();
    testing::until_within(Duration::from_secs(10), "the next broker knows that no member has the region", removed);
    drop((idle, other));
    daemon.stop();
}

#[test]
fn a_process_of_another_user_in_the_place_of_a_lost_daemon_gets_no_hello() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    const ANOTHER: u32 = 65534;
    if !rustix::process::geteuid().is_root() {
        return testing::skip("another-user");
    }
    let mut daemon = Daemon::start();
    let options = ConnectOptions { timeout: Duration::from_secs(1), ..daemon.options() };
    let session = Session::connect(&options).unwrap();
    let region = session.region("r", Mode::CreateOnly, 1 << 18, None).unwrap();
    daemon.kill_node();
    daemon.keeper.wait().unwrap();
    let folder = daemon.folder.path();
    let allow = |mode| std::fs::set_permissions(folder, std::fs::Permissions::from_mode(mode)).unwrap();
    std::fs::remove_file(daemon.socket()).unwrap();
    allow(0o777);
    let mut program = std::process::Command::new(std::env::current_exe().unwrap());
    program.args(["--exact", "helper_does_what_it_is_told", "--ignored", "--nocapture"]);
    program.env("CROSSDOCK_TEST_SOCKET", daemon.socket()).uid(ANOTHER).gid(ANOTHER);
    let mut impostor = program.stdout(std::process::Stdio::null()).spawn().unwrap();
    until("the other user's process listens", || daemon.socket().exists());
    let error = session.list().unwrap_err();
    assert_eq!(error.status, Status::Disconnected);
    assert!(error.to_string().contains(&format!("a process of user {ANOTHER} listens at")), "{error}");
    assert!(impostor.wait().unwrap().success(), "the other user's process got a hello");
    std::fs::remove_file(daemon.socket()).unwrap();
    allow(0o700);
    daemon.keeper = spawn(&daemon.socket(), &[]);
    daemon.wait_until_up();
    assert_eq!(session.list().unwrap().segments.len(), 1, "the session goes on with a daemon of its own user");
    drop((region, session));
    daemon.stop();
}

#[test]
fn a_session_ends_if_it_gets_another_member_id_when_it_connects_again() {
    let (mut daemon, other) = (Daemon::start(), Daemon::start());
    let session = daemon.session();
    let (welcome, papers) = Raw::connect(&other.socket()).ask(&Raw::hello_message(9)).unwrap();
    assert!(matches!(welcome, Answer::Welcome { member, .. } if member != session.member()), "{welcome:?}");
    daemon.kill_node();
    daemon.keeper.wait().unwrap();
    std::fs::remove_file(daemon.socket()).unwrap();
    let listener = socket::listen(&daemon.socket()).unwrap();
    let deadline = Deadline::after(Duration::from_secs(20));
    let serves = std::thread::spawn(move || {
        let mut buffer = [0; crossdock_layout::wire::MAX_MESSAGE + 1];
        loop {
            assert!(event::wait_readable(&listener, deadline).unwrap(), "the session connects");
            let Some(connection) = socket::accept(&listener).unwrap() else { continue };
            assert!(event::wait_readable(&connection, deadline).unwrap(), "the session says hello");
            let Ok(Some(Received::Message(length, _))) = socket::receive(&connection, &mut buffer) else { continue };
            let (hello, _) = crossdock_layout::wire::Header::decode(&buffer[..length]).unwrap();
            let papers: Vec<_> = papers.iter().map(AsFd::as_fd).collect();
            assert!(socket::send(&connection, &welcome.encode(hello.opcode, hello.request), &papers).unwrap());
            return connection;
        }
    });
    let error = session.list().unwrap_err();
    assert_eq!(error.status, Status::Incompatible, "{error}");
    assert!(error.to_string().contains("another member id"), "{error}");
    drop(serves.join().unwrap());
    drop(session);
    other.stop();
}

/// Listens at the path of a daemon. Fails if a connection brings a message.
#[test]
#[ignore = "run by the test above, in a process of another user"]
fn helper_does_what_it_is_told() {
    let Some(path) = std::env::var_os("CROSSDOCK_TEST_SOCKET") else { return };
    let listener = socket::listen(std::path::Path::new(&path)).unwrap();
    let deadline = Deadline::after(Duration::from_secs(4));
    let mut connections = Vec::new();
    let mut buffer = [0; crossdock_layout::wire::MAX_MESSAGE + 1];
    while !deadline.passed() {
        let _ = event::wait_readable(&listener, deadline.at_most(Duration::from_millis(20)));
        connections.extend(socket::accept(&listener).unwrap());
        for connection in &connections {
            assert!(!matches!(socket::receive(connection, &mut buffer), Ok(Some(Received::Message(..)))));
        }
    }
    assert!(!connections.is_empty(), "the session has tried to connect");
}

//! Clients that send wrong messages, flood the daemon, stop reading, or come by the thousand. The daemon drops only
//! these clients, and continues to serve all other clients.

mod support;

use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossdock_client::{ConnectOptions, Session, Status};
use crossdock_layout::LAYOUT_VERSION;
use crossdock_layout::wire::{Answer, FINGERPRINT, HEADER, MAX_MESSAGE, OpenMode, PROTOCOL_VERSION, Request};
use crossdock_os::{memfd, socket};
use support::{Daemon, Raw, open, until};

/// Measures how long an honest client's request takes: the median of `rounds` requests.
fn median_latency(raw: &mut Raw, rounds: usize) -> Duration {
    let mut times: Vec<_> = (0..rounds)
        .map(|_| {
            let began = Instant::now();
            let answer = raw.ask(&open("honest", OpenMode::OpenOrCreate, 4096, 0)).expect("the honest are served").0;
            assert!(matches!(answer, Answer::Segment { .. }), "{answer:?}");
            began.elapsed()
        })
        .collect();
    times.sort();
    times[rounds / 2]
}

#[test]
fn each_kind_of_lie_drops_the_liar_and_only_the_liar() {
    let daemon = Daemon::start();
    let (mut honest, _) = Raw::join(&daemon.socket());
    let member = |daemon: &Daemon| Raw::join(&daemon.socket()).0;
    let stranger = |daemon: &Daemon| Raw::connect(&daemon.socket());
    let good = open("x", OpenMode::OpenOnly, 0, 0).encode(7, 7);
    let fd = memfd::create("crossdock-test", 4096).unwrap();

    for length in [1, 2, 8, HEADER - 1, HEADER, good.len() - 1] {
        let liar = member(&daemon);
        liar.send(&good[..length], &[]);
        assert!(liar.was_dropped(), "cut to {length}");
    }
    for length in [good.len() + 1, MAX_MESSAGE, MAX_MESSAGE + 1, 100_000] {
        let liar = member(&daemon);
        let mut long = good.clone();
        long.resize(length, 0);
        liar.send(&long, &[]);
        assert!(liar.was_dropped(), "grown to {length}");
    }
    // A request number that was used before is allowed, because a client repeats its requests after a restart. A second
    // hello is not allowed.
    let mut liar = member(&daemon);
    liar.ask(&Raw::hello_message(1));
    assert!(liar.was_dropped());
    let liar = stranger(&daemon);
    liar.send(&good, &[]);
    assert!(liar.was_dropped(), "a request before the hello");
    let liar = member(&daemon);
    liar.send(&good, &[fd.as_fd()]);
    assert!(liar.was_dropped(), "a descriptor that was not asked for");
    let liar = member(&daemon);
    liar.send(&good, &[fd.as_fd(), fd.as_fd(), fd.as_fd(), fd.as_fd()]);
    assert!(liar.was_dropped(), "four of them");
    let mut state = 9u64;
    for _ in 0..200 {
        let liar = if state % 2 == 0 { member(&daemon) } else { stranger(&daemon) };
        let mut bytes = good.clone();
        for byte in bytes.iter_mut().skip(if state % 3 == 0 { 0 } else { 8 }) {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
            *byte = (state >> 40) as u8;
        }
        liar.send(&bytes, &[]);
        assert!(liar.was_dropped());
    }
    assert!(matches!(honest.ask(&open("x", OpenMode::CreateOnly, 4096, 0)).unwrap().0, Answer::Segment { .. }));
    daemon.stop();
}

#[test]
fn descriptors_of_dropped_messages_do_not_pile_up_in_the_broker() {
    let daemon = Daemon::start();
    let count = |daemon: &Daemon| std::fs::read_dir(format!("/proc/{}/fd", daemon.broker())).unwrap().count();
    let fd = memfd::create("crossdock-test", 4096).unwrap();
    // The test serves one client before it counts the broker's descriptors. After that, the broker has opened all
    // descriptors that it always needs.
    let _first = Raw::join(&daemon.socket());
    let before = count(&daemon) + 2;
    for _ in 0..50 {
        let liar = Raw::join(&daemon.socket()).0;
        liar.send(b"rubbish", &[fd.as_fd(), fd.as_fd(), fd.as_fd(), fd.as_fd()]);
        assert!(liar.was_dropped());
    }
    until("the broker has as many as before", || count(&daemon) <= before);
    daemon.stop();
}

#[test]
fn another_version_is_refused_by_a_sentence_that_names_both() {
    let daemon = Daemon::start();
    for (protocol, layout, fingerprint) in
        [(PROTOCOL_VERSION + 1, LAYOUT_VERSION, FINGERPRINT), (PROTOCOL_VERSION, LAYOUT_VERSION + 7, FINGERPRINT ^ 1)]
    {
        let raw = Raw::connect(&daemon.socket());
        let Request::Hello { token, member, rank, task, workflow, visitor, .. } = Raw::hello_message(1) else {
            panic!()
        };
        let hello = Request::Hello { protocol, layout, fingerprint, token, member, rank, task, workflow, visitor };
        // The hello of another build may be longer.
        let mut message = hello.encode(1, 0);
        message.extend([7; 40]);
        let length = (message.len() as u32).to_le_bytes();
        message[4..8].copy_from_slice(&length);
        raw.send(&message, &[]);
        let (_, answer, _) = raw.receive().unwrap();
        let Answer::Failed { status: Status::Incompatible, text } = answer else { panic!("{answer:?}") };
        for number in [PROTOCOL_VERSION, protocol, LAYOUT_VERSION, layout] {
            assert!(text.contains(&number.to_string()), "{text}");
        }
    }
    daemon.stop();
}

#[test]
fn half_open_connections_by_the_hundred_harm_no_client_and_are_closed_in_time() {
    let daemon = Daemon::start();
    let (mut honest, _) = Raw::join(&daemon.socket());
    let alone = median_latency(&mut honest, 200);
    let half_open: Vec<_> = (0..600).map(|_| Raw::connect(&daemon.socket())).collect();
    let crowded = median_latency(&mut honest, 200);
    println!("median attach {alone:?} alone, {crowded:?} with 600 half-open connections");
    assert!(crowded < alone * 3 + Duration::from_millis(1), "{alone:?} alone, {crowded:?} in the crowd");
    Raw::join(&daemon.socket());
    assert!(half_open[0].was_dropped(), "the oldest went first");
    until("all are closed", || half_open.last().is_none_or(Raw::was_dropped));
    daemon.stop();
}

#[test]
fn floods_leave_the_honest_their_share() {
    let daemon = Daemon::start();
    let (mut honest, _) = Raw::join(&daemon.socket());
    let alone = median_latency(&mut honest, 500);
    let over = AtomicBool::new(false);
    let flooded = std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let (flooder, _) = Raw::join(&daemon.socket());
                    let message = open("nothing", OpenMode::OpenOnly, 0, 0).encode(1, 1);
                    // This client never reads its answers. When too many answers wait for it, the daemon drops the
                    // client, and the client connects again.
                    while !over.load(Ordering::Relaxed) && flooder.send(&message, &[]) {
                        std::hint::spin_loop();
                    }
                }
            });
        }
        std::thread::sleep(Duration::from_millis(50));
        let flooded = median_latency(&mut honest, 500);
        over.store(true, Ordering::Relaxed);
        flooded
    });
    // On a machine with two CPUs, the two flooders use both CPUs. So the limit below is loose: it checks that the
    // honest client gets its share of the daemon's time, not how fast the daemon is.
    println!("median attach {alone:?} alone, {flooded:?} under two floods");
    assert!(flooded < alone * 20 + Duration::from_millis(5), "{alone:?} alone, {flooded:?} flooded");
    daemon.stop();
}

#[test]
fn a_program_with_too_many_waiting_requests_is_told_so() {
    let daemon = Daemon::start();
    let (raw, _) = Raw::join(&daemon.socket());
    for number in 1..=65 {
        raw.send(&open("never", OpenMode::OpenOnly, 0, 10_000).encode(number, 1), &[]);
    }
    let (number, answer, _) = raw.receive().unwrap();
    assert_eq!(number, 65);
    assert!(matches!(answer, Answer::Failed { status: Status::Busy, .. }), "{answer:?}");
    daemon.stop();
}

#[test]
fn what_is_no_daemon_is_told_from_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let connect = |name: &str| {
        let options = ConnectOptions {
            socket: Some(path(name)),
            timeout: Duration::from_millis(300),
            ..ConnectOptions::default()
        };
        Session::connect(&options).unwrap_err()
    };
    assert_eq!(connect("nothing").status, Status::NotFound);
    std::fs::write(path("file"), "x").unwrap();
    assert_eq!(connect("file").status, Status::Disconnected);
    let _stream = UnixListener::bind(path("stream")).unwrap();
    assert_eq!(connect("stream").status, Status::Incompatible);
    let silent = socket::listen(&path("silent")).unwrap();
    assert_eq!(connect("silent").status, Status::TimedOut);
    let babbling = socket::listen(&path("babbling")).unwrap();
    let babbler = std::thread::spawn(move || {
        until("a client comes", || match socket::accept(&babbling).unwrap() {
            Some(connection) => socket::send(&connection, b"HTTP/1.1 400 Bad Request", &[]).unwrap(),
            None => false,
        });
    });
    assert_eq!(connect("babbling").status, Status::Incompatible);
    babbler.join().unwrap();
    drop(silent);
}

#[test]
fn bad_sizes_and_names_are_errors_of_the_call_alone() {
    let daemon = Daemon::start();
    let (mut raw, _) = Raw::join(&daemon.socket());
    for (size, status) in [(0, Status::Invalid), (u64::MAX, Status::Invalid), (1 << 45, Status::NoSpace)] {
        let answer = raw.ask(&open("x", OpenMode::CreateOnly, size, 0)).unwrap().0;
        assert!(matches!(&answer, Answer::Failed { status: s, .. } if *s == status), "{size}: {answer:?}");
    }
    let session = daemon.session();
    for name in ["", "a b", "../up", "/abs", &"x".repeat(200)] {
        assert_eq!(session.remove_port(name).unwrap_err().status, Status::Invalid, "{name}");
    }
    assert_eq!(session.remove_port("not/there").unwrap_err().status, Status::NotFound);
    drop(session);
    daemon.stop();
}

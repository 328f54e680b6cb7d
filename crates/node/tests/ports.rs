//! Tests of ports with a real daemon: descriptors for event loops, the rights of tasks, and deaths that a process
//! learns only from the kernel, by a pidfd.

mod support;

use crossdock_client::{
    End, Handle, Message, Mode, Pattern, Port, PortOptions, Rights, SegmentKind, Session, Shape, Status,
};
use crossdock_layout::queue::{PORT_READY, PortHeader, PortIdentity};
use crossdock_layout::wire::{Answer, Request};
use crossdock_os::{Access, Deadline, Mapping, event};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use support::{Daemon, Raw, kill, open};

const POLL: Option<Duration> = Some(Duration::ZERO);
const LONG: Option<Duration> = Some(Duration::from_secs(20));
const SOON: Duration = Duration::from_millis(100);

#[test]
#[ignore = "a part that other tests start in a process of its own"]
fn child() {
    let Ok(socket) = std::env::var("CROSSDOCK_TEST_CHILD") else { return };
    let options = crossdock_client::ConnectOptions {
        socket: Some(socket.into()),
        task: Some("simulate".into()),
        ..Default::default()
    };
    let session = Session::connect(&options).unwrap();
    let _port = session.port("p", End::Producer, &PortOptions::default(), None).unwrap();
    std::thread::sleep(Duration::from_secs(20));
}

fn spawn_producer(daemon: &Daemon) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--ignored"])
        .env("CROSSDOCK_TEST_CHILD", daemon.socket())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

fn pair(daemon: &Daemon) -> (Session, Port, Port) {
    let session = daemon.session();
    let open = |end| session.port("p", end, &PortOptions::default(), None).unwrap();
    let (producer, consumer) = (open(End::Producer), open(End::Consumer));
    (session, producer, consumer)
}

fn readable(port: &Port, within: Duration) -> bool {
    event::wait_readable(port.descriptor().unwrap(), Deadline::after(within)).unwrap()
}

#[test]
fn a_killed_producer_ends_the_wait_and_rings_the_bell() {
    let daemon = Daemon::start();
    let session = daemon.session();
    let consumer = session.port("p", End::Consumer, &PortOptions::default(), None).unwrap();
    for with_bell in [false, true] {
        let mut child = spawn_producer(&daemon);
        consumer.wait_peer(LONG).unwrap();
        let killed = std::thread::scope(|scope| {
            let killer = scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(50));
                child.kill().unwrap();
                Instant::now()
            });
            if with_bell {
                while !consumer.arm().unwrap() && !readable(&consumer, Duration::from_secs(20)) {}
                // The descriptor may become readable although nothing has happened. But when the producer dies, it must
                // become readable.
                while consumer.receive(POLL).unwrap_err().status == Status::NotYet {
                    assert!(consumer.arm().unwrap() || readable(&consumer, Duration::from_secs(20)));
                }
            }
            let error = consumer.receive(LONG).unwrap_err();
            let late = killer.join().unwrap().elapsed();
            assert_eq!(error.status, Status::PeerDied, "{error}");
            assert!(error.to_string().contains("port p: ") && error.to_string().contains("task simulate"), "{error}");
            late
        });
        assert!(killed < SOON, "bell: {with_bell}, {killed:?}");
        child.wait().unwrap();
    }
}

#[test]
fn who_opens_a_port_that_a_stopped_member_is_formatting_waits_until_the_deadline_and_no_longer() {
    let daemon = Daemon::start();
    let session = daemon.session();
    session.make_port("p", &PortOptions::default()).unwrap();
    let (mut raw, stopped) = Raw::join(&daemon.socket());
    let request = match open("p", Mode::OpenOnly, 0, 0) {
        Request::Open { mode, size, reserve, attribute, wait_ms, persistent, name, .. } => {
            let (kind, access) = (SegmentKind::Port, Rights::CONSUME);
            Request::Open { kind, mode, access, size, reserve, attribute, wait_ms, persistent, name }
        }
        other => other,
    };
    let memory = raw.ask(&request).unwrap().1.remove(0);
    let port = Mapping::new(&memory, 4096, Access::ReadWrite).unwrap();
    let init = std::mem::offset_of!(PortIdentity, init) as u64;
    port.word64(init).unwrap().store(stopped.0, Ordering::Release);
    let began = Instant::now();
    let timeout = Duration::from_secs(2);
    let error = session.port("p", End::Consumer, &PortOptions::default(), Some(timeout)).unwrap_err();
    let waited = began.elapsed();
    assert_eq!(error.status, Status::TimedOut, "{error}");
    assert!(waited >= timeout && waited < Duration::from_secs(4), "{waited:?}");
    daemon.stop();
}

#[test]
fn a_descriptor_rings_for_a_message_once_armed_and_never_misses_one() {
    let daemon = Daemon::start();
    let (_session, producer, consumer) = pair(&daemon);
    assert!(!readable(&consumer, Duration::ZERO));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for tag in 0..300 {
                producer.send(&Message::new(Handle::NONE, tag), LONG).unwrap();
                if tag % 10 == 0 {
                    std::thread::sleep(Duration::from_micros(300));
                }
            }
        });
        let mut due = 0;
        while due < 300 {
            if !consumer.arm().unwrap() {
                assert!(readable(&consumer, Duration::from_secs(10)), "message {due} never rang");
            }
            consumer.disarm();
            while let Ok(message) = consumer.receive(POLL) {
                assert_eq!(message.tag, due);
                consumer.release(&message).unwrap();
                due += 1;
            }
        }
    });
    consumer.disarm();
    assert!(!readable(&consumer, Duration::ZERO), "disarmed is silent");
}

#[test]
fn a_producers_descriptor_rings_when_a_cell_comes_free() {
    let daemon = Daemon::start();
    let (_session, producer, consumer) = pair(&daemon);
    for tag in 0..8 {
        producer.send(&Message::new(Handle::NONE, tag), POLL).unwrap();
    }
    assert!(!producer.arm().unwrap());
    assert!(!readable(&producer, Duration::from_millis(20)));
    let message = consumer.receive(POLL).unwrap();
    consumer.release(&message).unwrap();
    assert!(readable(&producer, Duration::from_secs(10)));
    producer.send(&Message::new(Handle::NONE, 8), POLL).unwrap();
}

#[test]
fn a_second_producer_and_other_options_are_refused_with_names() {
    let daemon = Daemon::start();
    let (session, _producer, _consumer) = pair(&daemon);
    let busy = session.port("p", End::Producer, &PortOptions::default(), None).unwrap_err();
    assert_eq!(busy.status, Status::Busy);
    assert!(busy.to_string().contains("port p: its producer end is taken by program"), "{busy}");
    let other = PortOptions { pattern: Some(Pattern::FanOut), capacity: 16, persistent: false };
    let error = session.port("p", End::Consumer, &other, None).unwrap_err();
    assert_eq!(error.status, Status::Invalid);
    assert!(
        error.to_string().contains("one-to-one with 8 cells") && error.to_string().contains("fan-out with 16"),
        "{error}"
    );
    let odd = PortOptions { capacity: 3, ..PortOptions::default() };
    assert_eq!(session.port("q", End::Consumer, &odd, None).unwrap_err().status, Status::Invalid);
}

#[test]
fn a_session_that_closes_leaves_its_ports_in_order() {
    let daemon = Daemon::start();
    let (sender, receiver) = (daemon.session(), daemon.session());
    let producer = sender.port("p", End::Producer, &PortOptions::default(), None).unwrap();
    let consumer = receiver.port("p", End::Consumer, &PortOptions::default(), None).unwrap();
    producer.send(&Message::new(Handle::NONE, 1), POLL).unwrap();
    sender.close().unwrap();
    assert_eq!(producer.send(&Message::new(Handle::NONE, 2), POLL).unwrap_err().status, Status::Closed);
    let message = consumer.receive(LONG).unwrap();
    consumer.release(&message).unwrap();
    assert_eq!(consumer.receive(LONG).unwrap_err().status, Status::Closed);
}

#[test]
fn a_call_that_waits_for_an_end_does_not_take_it_after_the_session_was_closed() {
    let daemon = Daemon::start();
    let (first, session) = (daemon.session(), daemon.session());
    let taken = first.port("p", End::Consumer, &PortOptions::default(), None).unwrap();
    let waiting = std::thread::spawn({
        let session = session.clone();
        move || session.port("p", End::Consumer, &PortOptions::default(), LONG).map(drop)
    });
    std::thread::sleep(SOON);
    // While the daemon is stopped, it does not learn that the session leaves. So the liveness table does not show that
    // the member is dead.
    kill(daemon.broker(), "STOP");
    let closed = session.close();
    taken.close();
    let late = waiting.join().unwrap();
    kill(daemon.broker(), "CONT");
    closed.unwrap();
    assert_eq!(late.unwrap_err().status, Status::Closed);
    first.close().unwrap();
    daemon.stop();
}

#[test]
fn a_call_that_waits_for_the_formatting_and_then_for_an_end_ends_by_its_deadline() {
    let daemon = Daemon::start();
    let (first, second) = (daemon.session(), daemon.session());
    let _taken = first.port("p", End::Consumer, &PortOptions::default(), None).unwrap();
    let request = Request::Attach { segment: first.list().unwrap().segments[0].id, access: Rights::ALL };
    let (Answer::Segment { size, .. }, memory) = Raw::join(&daemon.socket()).0.ask(&request).unwrap() else { panic!() };
    let mapping = Mapping::new(&memory[0], size as usize, Access::ReadWrite).unwrap();
    // SAFETY: the mapping is a port, which begins with its header; the header consists of atomics.
    let init = unsafe { &mapping.start().cast::<PortHeader>().as_ref().identity.init };
    init.store(first.member().0, Ordering::Release);
    let began = Instant::now();
    let refused = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(1500));
            init.store(PORT_READY, Ordering::Release);
        });
        second.port("p", End::Consumer, &PortOptions::default(), Some(Duration::from_millis(2500))).map(drop)
    });
    assert_eq!(refused.unwrap_err().status, Status::Busy);
    let time = began.elapsed();
    assert!((Duration::from_millis(2500)..Duration::from_millis(3800)).contains(&time), "{time:?}");
}

#[test]
fn a_report_shows_who_is_there_and_what_went_through() {
    let daemon = Daemon::start();
    let (session, producer, consumer) = pair(&daemon);
    producer.send_sized(&Message::new(Handle::NONE, 1), 1000, POLL).unwrap();
    producer.note_copied(10);
    let report = session.port_report(consumer.id()).unwrap();
    assert_eq!(report.shape, Shape { pattern: Pattern::OneToOne, capacity: 8 });
    assert_eq!((report.statistics.messages, report.statistics.under_way), (1, 1));
    assert_eq!((report.statistics.bytes_handed_over, report.statistics.bytes_copied), (1000, 10));
    assert_eq!(report.ends.len(), 2);
    assert!(report.ends.iter().all(|end| end.alive && end.member == session.member()));
}

/// Counts how often a segment's memory is mapped in this process.
fn mappings(name: &str) -> usize {
    std::fs::read_to_string("/proc/self/maps").unwrap().lines().filter(|line| line.contains(name)).count()
}

#[test]
fn a_port_keeps_the_region_of_its_messages_open_until_it_is_closed() {
    let daemon = Daemon::start();
    let sending = daemon.session();
    let receiving = daemon.session();
    let region = sending.region("kept-by-port", Mode::CreateOnly, 1 << 20, None).unwrap();
    let handle = region.save(region.allocate(64, 8).unwrap()).unwrap();
    let producer = sending.port("p", End::Producer, &PortOptions::default(), None).unwrap();
    let consumer = receiving.port("p", End::Consumer, &PortOptions::default(), None).unwrap();
    assert_eq!(mappings("kept-by-port"), 1, "the producer's own");
    let mut bases = Vec::new();
    for tag in 0..3 {
        producer.send(&Message::new(handle, tag), LONG).unwrap();
        let message = consumer.receive(LONG).unwrap();
        bases.push(receiving.region_of(message.handle).unwrap().base() as usize);
        consumer.release(&message).unwrap();
        assert_eq!(mappings("kept-by-port"), 2, "after message {tag}");
    }
    assert!(bases.iter().all(|base| *base == bases[0]));
    consumer.close();
    assert_eq!(mappings("kept-by-port"), 1, "the port's goes with the port");
    receiving.close().unwrap();
}

#[test]
fn a_handle_that_came_by_no_port_keeps_nothing_open() {
    let daemon = Daemon::start();
    let (sending, looking) = (daemon.session(), daemon.session());
    let region = sending.region("kept-by-none", Mode::CreateOnly, 1 << 20, None).unwrap();
    let handle = region.save(region.allocate(64, 8).unwrap()).unwrap();
    let _port = looking.port("p", End::Consumer, &PortOptions::default(), None).unwrap();
    drop(looking.region_of(handle).unwrap());
    assert_eq!(mappings("kept-by-none"), 1);
}

#[test]
fn who_says_nothing_takes_the_port_as_it_was_made() {
    let daemon = Daemon::start();
    let session = daemon.session();
    let made = PortOptions { pattern: Some(Pattern::FanOut), capacity: 2, persistent: false };
    session.make_port("p", &made).unwrap();
    assert_eq!(session.make_port("p", &made).unwrap_err().status, Status::Exists);
    let producer = session.port("p", End::Producer, &PortOptions::default(), None).unwrap();
    assert_eq!(producer.shape(), made.shape());
    let half = PortOptions { capacity: 2, ..Default::default() };
    assert_eq!(session.port("p", End::Consumer, &half, None).unwrap().shape(), made.shape());
    let other = PortOptions { capacity: 4, ..Default::default() };
    let error = session.port("p", End::Consumer, &other, None).unwrap_err();
    assert_eq!(error.status, Status::Invalid);
    assert!(error.to_string().contains("port p") && error.to_string().contains("workflow file"), "{error}");
}

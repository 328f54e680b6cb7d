//! Tests that a session does no harm in a program that closes all descriptors, as `closefrom` does, or that lowers its
//! limit of descriptors. Each test lets a helper process do this.

mod support;

use std::fs::File;
use std::io::Seek;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use crossdock_client::{
    ConnectOptions, Detect, End, Handle, ItemLevel, ItemOptions, Message, Mode, Pages, PortOptions, SeriesOptions,
    Session, Status, Variable,
};
use crossdock_os::testing::{close_all_descriptors, processor_time, until_within};
use support::series::{failed, publish, shows};
use support::{Daemon, kill, limit_descriptors};

/// Runs the helper test `part` in another process of this test program.
fn run_helper(part: &str) {
    let daemon = Daemon::start();
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.args(["--exact", part, "--ignored", "--nocapture"]).stdout(Stdio::null());
    program.env("CROSSDOCK_TEST_SOCKET", daemon.socket()).env("CROSSDOCK_TEST_BROKER", daemon.broker().to_string());
    assert!(program.status().unwrap().success());
    daemon.stop();
}

fn connect() -> Option<Session> {
    let socket = std::env::var_os("CROSSDOCK_TEST_SOCKET")?;
    Some(Session::connect(&ConnectOptions { socket: Some(socket.into()), ..Default::default() }).unwrap())
}

/// The program's own files, which get the numbers of the descriptors that the program has closed.
fn open_own_files() -> Vec<(File, u64)> {
    let files = (0..40).map(|_| tempfile::tempfile().unwrap());
    files.map(|file| (file.metadata().unwrap().ino(), file)).map(|(inode, file)| (file, inode)).collect()
}

fn check_own_files(files: Vec<(File, u64)>) {
    for (mut file, inode) in files {
        let now = file.metadata().expect("the file is open");
        assert_eq!((now.ino(), now.len(), file.stream_position().unwrap()), (inode, 0, 0));
    }
}

fn broker() -> u32 {
    std::env::var("CROSSDOCK_TEST_BROKER").unwrap().parse().unwrap()
}

/// Checks that this process uses hardly any CPU time while this thread does `meanwhile`, which takes a second.
fn check_that_no_thread_spins(meanwhile: impl FnOnce()) {
    let before = processor_time();
    meanwhile();
    let used = processor_time() - before;
    assert!(used < Duration::from_millis(100), "the process used {used:?} of CPU time in a second");
}

#[test]
fn a_session_touches_no_file_of_a_program_that_has_closed_all_descriptors() {
    run_helper("helper_opens_its_own_files");
}

#[test]
#[ignore = "run by the test above"]
fn helper_opens_its_own_files() {
    let Some(session) = connect() else { return };
    close_all_descriptors();
    let files = open_own_files();
    // The second report is left to the watching thread, so the call wakes this thread.
    session.progress(1, 3).unwrap();
    session.progress(2, 3).unwrap();
    session.close().unwrap();
    check_own_files(files);
}

#[test]
fn open_objects_touch_no_file_of_a_program_that_has_closed_all_descriptors() {
    run_helper("helper_has_objects_open");
}

#[test]
#[ignore = "run by the test above"]
fn helper_has_objects_open() {
    let Some(session) = connect() else { return };
    let region = session.region("r", Mode::CreateOnly, 64 << 20, None).unwrap();
    let port = |end| session.port("p", end, &PortOptions::default(), None).unwrap();
    let (producer, consumer) = (port(End::Producer), port(End::Consumer));
    assert!(!consumer.arm().unwrap());
    let item =
        session.create_item("i", &ItemOptions { level: ItemLevel::Cooperative, ..ItemOptions::bytes(4096) }).unwrap();
    let variables = vec![Variable::new("u", "u64", &[20_000])];
    let (pages, detect) = (Pages::MayMove, Detect::PrivateCopies);
    let options = SeriesOptions { variables, pages, detect, ..SeriesOptions::default() };
    let mut publisher = session.publisher("s", &options).unwrap();
    publish(&mut publisher, 1);
    let mut version = session.observe("s", Duration::ZERO).unwrap().latest().unwrap();
    shows(&version, 1);
    let mut begun = session.publisher("t", &options).unwrap();
    // From now on, the pools need no more memory.
    for value in 2..5 {
        publish(&mut publisher, value);
        begun.begin().unwrap();
        publish(&mut begun, value);
    }
    close_all_descriptors();
    let files = open_own_files();
    // The message rings the bell of the consumer, which is armed.
    producer.send(&Message::new(Handle::NONE, 1), None).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    consumer.receive(None).unwrap();
    // The region needs more memory, and the series maps other memory.
    let (status, text) = failed(region.allocate(32 << 20, 8));
    assert!(status == Status::NoSpace && text.contains("this program has closed"), "{text}");
    for value in 5..9 {
        publish(&mut publisher, value);
    }
    shows(&session.observe("s", Duration::ZERO).unwrap().latest().unwrap(), 8);
    // A begun version is published, but afterwards no file can be mapped at the variables' addresses.
    begun.begin().unwrap();
    publish(&mut begun, 5);
    shows(&session.observe("t", Duration::ZERO).unwrap().latest().unwrap(), 5);
    assert!(failed(begun.begin()).1.contains("this program has closed"));
    assert!(failed(version.refresh()).1.contains("this program has closed"));
    shows(&version, 1);
    drop((region, producer, consumer, item, publisher, begun, version));
    session.close().unwrap();
    check_own_files(files);
}

#[test]
fn no_thread_spins_in_a_program_that_has_closed_all_descriptors_when_the_broker_dies() {
    run_helper("helper_loses_its_broker");
}

#[test]
#[ignore = "run by the test above"]
fn helper_loses_its_broker() {
    let Some(session) = connect() else { return };
    close_all_descriptors();
    kill(broker(), "KILL");
    session.list().unwrap();
    check_that_no_thread_spins(|| std::thread::sleep(Duration::from_secs(1)));
    session.close().unwrap();
}

#[test]
fn a_session_that_is_made_after_all_descriptors_were_closed_is_watched() {
    run_helper("helper_connects_again");
}

#[test]
#[ignore = "run by the test above"]
fn helper_connects_again() {
    let Some(first) = connect() else { return };
    close_all_descriptors();
    let second = connect().unwrap();
    let told = || second.list().unwrap().members.iter().find(|m| m.id == second.member()).and_then(|m| m.progress);
    second.progress(1, 3).unwrap();
    second.progress(2, 3).unwrap();
    until_within(Duration::from_secs(20), "the watching thread sends the second report", || told() == Some((2, 3)));
    second.close().unwrap();
    first.close().unwrap();
}

#[test]
fn no_thread_spins_in_a_program_that_may_open_no_more_descriptors() {
    run_helper("helper_lowers_its_limit");
}

#[test]
#[ignore = "run by the test above"]
fn helper_lowers_its_limit() {
    let Some(session) = connect() else { return };
    let before = limit_descriptors(Some(1));
    // The second report wakes the watching thread, which then polls more descriptors than the limit allows.
    session.progress(1, 3).unwrap();
    session.progress(2, 3).unwrap();
    check_that_no_thread_spins(|| std::thread::sleep(Duration::from_secs(1)));
    limit_descriptors(before);
    session.close().unwrap();
}

#[test]
fn a_call_does_not_spin_in_a_program_that_may_poll_no_descriptor() {
    run_helper("helper_waits_without_poll");
}

#[test]
#[ignore = "run by the test above"]
fn helper_waits_without_poll() {
    let Some(socket) = std::env::var_os("CROSSDOCK_TEST_SOCKET") else { return };
    let timeout = Duration::from_secs(1);
    let session =
        Session::connect(&ConnectOptions { socket: Some(socket.into()), timeout, ..Default::default() }).unwrap();
    kill(broker(), "STOP");
    let before = limit_descriptors(Some(0));
    check_that_no_thread_spins(|| assert_eq!(session.list().unwrap_err().status, Status::TimedOut));
    limit_descriptors(before);
    kill(broker(), "CONT");
    session.list().unwrap();
    session.close().unwrap();
}

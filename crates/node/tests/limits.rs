//! Tests of what happens when there are no more connections, no free descriptors, no room for the journal on its disk,
//! no quota or no memory.

mod support;

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crossdock_client::{ConnectOptions, Contents, ItemLevel, ItemOptions, Mode, OnDeath, Session, Status};
use crossdock_layout::Rights;
use crossdock_layout::wire::{Answer, OpenMode, Request, SegmentKind};
use support::{Daemon, Raw, children, kill, open, set_limit, spawn, starve, until};

#[test]
fn ten_thousand_connections_leave_the_daemon_serving() {
    let limit = crossdock_os::child::raise_descriptor_limit();
    // Each connection takes one descriptor in this process and one in the daemon. The daemon uses at most half of its
    // own limit for connections.
    let count = 10_000.min(limit.saturating_sub(200)).min(limit / 2 - 100) as usize;
    let daemon = Daemon::start();
    let (mut honest, _) = Raw::join(&daemon.socket());
    let began = Instant::now();
    let mut members = Vec::new();
    let mut strangers = Vec::new();
    for number in 0..count {
        // Every fourth connection says hello, up to 2500 members, because one endpoint may have no more.
        if number % 4 == 0 && members.len() < 2500 {
            members.push(Raw::join(&daemon.socket()).0);
        } else {
            strangers.push(Raw::connect(&daemon.socket()));
        }
    }
    println!("{count} connections in {:?}, {} of them members", began.elapsed(), members.len());
    let began = Instant::now();
    for _ in 0..100 {
        assert!(matches!(honest.ask(&open("x", OpenMode::OpenOrCreate, 4096, 0)).unwrap().0, Answer::Segment { .. }));
    }
    println!("an attach among them takes {:?}", began.elapsed() / 100);
    let members_before = members.len();
    drop(strangers);
    drop(members);
    // The daemon must first notice that all these members have ended. On a loaded machine this takes so long that
    // connecting may time out. So the test connects again and again.
    until("all are gone again", || {
        let members = Session::connect(&daemon.options()).and_then(|session| Ok(session.list()?.members.len()));
        members.is_ok_and(|count| count <= 2)
    });
    assert!(members_before > 100);
    daemon.stop();
}

/// Starts a daemon with a low limit of descriptors.
fn starved() -> (tempfile::TempDir, std::process::Child) {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("sh");
    let program = env!("CARGO_BIN_EXE_crossdock-node");
    let socket = folder.path().join("endpoint.sock");
    command.arg("-c").arg(format!("ulimit -n 64; exec {program} --socket {}", socket.display()));
    let keeper = command.stderr(std::process::Stdio::null()).spawn().unwrap();
    until("it listens", || crossdock_os::socket::connect(&socket).is_ok());
    (folder, keeper)
}

#[test]
fn without_descriptors_the_daemon_refuses_does_not_spin_and_recovers() {
    let (folder, mut keeper) = starved();
    let socket = folder.path().join("endpoint.sock");
    let (mut honest, _) = Raw::join(&socket);
    let crowd: Vec<_> = (0..200).map(|_| Raw::connect(&socket)).collect();
    let broker = children(keeper.id())[0];
    let busy = || {
        let stat = std::fs::read_to_string(format!("/proc/{broker}/stat")).unwrap();
        let fields: Vec<_> = stat[stat.rfind(')').unwrap()..].split_whitespace().collect();
        fields[12].parse::<u64>().unwrap() + fields[13].parse::<u64>().unwrap()
    };
    std::thread::sleep(Duration::from_millis(100));
    let before = busy();
    std::thread::sleep(Duration::from_millis(500));
    assert!(busy() - before < 15, "the broker used {} ticks of 50 while nothing happened", busy() - before);
    let mut refused = false;
    for number in 0..100 {
        match honest.ask(&open(&format!("s{number}"), OpenMode::CreateOnly, 4096, 0)).unwrap().0 {
            Answer::Segment { .. } => {}
            Answer::Failed { status: Status::NoSpace, text } => {
                assert!(text.contains("ulimit"), "{text}");
                refused = true;
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(refused);
    drop(crowd);
    until("it takes connections again", || {
        let mut raw = Raw::connect(&socket);
        matches!(raw.ask(&Raw::hello_message(200)), Some((Answer::Welcome { .. }, _)))
    });
    kill(keeper.id(), "TERM");
    keeper.wait().unwrap();
}

fn task(daemon: &Daemon, name: &str) -> Session {
    Session::connect(&ConnectOptions { task: Some(name.into()), ..daemon.options() }).unwrap()
}

const LONG: Option<Duration> = Some(Duration::from_secs(10));

/// The journal is compacted while the keeper has no descriptor left, so the keeper does not get the new journal's file.
#[test]
fn a_compacted_journal_counts_although_the_keeper_had_no_descriptor_for_it() {
    let daemon = Daemon::start();
    let session = daemon.session();
    let journal = daemon.folder.path().join("endpoint.sock.journal");
    let file = || std::fs::metadata(&journal).unwrap().ino();
    let before = file();
    let limit = starve(daemon.keeper.id(), 0);
    until("the journal is compacted", || {
        for _ in 0..100 {
            session.make_workflow(&"w".repeat(60), 0).unwrap();
            session.end_workflow(&"w".repeat(60)).unwrap();
        }
        file() != before
    });
    set_limit(daemon.keeper.id(), limit);
    let region = |name: &str| session.region(name, Mode::CreateOnly, 4096, None).unwrap();
    let mut made = vec![region("r0")];
    for round in ["r1", "r2"] {
        daemon.kill_broker();
        daemon.wait_until_up();
        let listed: Vec<_> = session.list().unwrap().segments.into_iter().map(|segment| segment.id).collect();
        assert_eq!(listed, made.iter().map(|region| region.id()).collect::<Vec<_>>());
        made.push(region(round));
        assert!(listed.iter().all(|id| *id < made.last().unwrap().id()), "no id is given out twice");
    }
    drop(made);
    session.close().unwrap();
    daemon.stop();
}

/// The keeper had no descriptor left for a region's memory, so the next broker of the same keeper does not have it.
#[test]
fn what_the_keeper_had_no_descriptor_for_is_given_to_the_next_broker_by_its_members() {
    let daemon = Daemon::start();
    let session = daemon.session();
    let limit = starve(daemon.keeper.id(), 0);
    let region = session.region("frames", Mode::CreateOnly, 1 << 20, None).unwrap();
    // The keeper reads what the broker has sent.
    std::thread::sleep(Duration::from_millis(200));
    set_limit(daemon.keeper.id(), limit);
    for _ in 0..2 {
        daemon.kill_broker();
        daemon.wait_until_up();
        let other = daemon.session();
        assert_eq!(other.region("frames", Mode::OpenOnly, 0, LONG).unwrap().id(), region.id());
        other.close().unwrap();
    }
    drop(region);
    session.close().unwrap();
    daemon.stop();
}

/// No broker can start while the keeper has no descriptor left.
#[test]
fn a_keeper_without_descriptors_keeps_what_it_has_until_it_can_start_a_broker() {
    let mut daemon = Daemon::start();
    let (a, b) = (task(&daemon, "a"), task(&daemon, "b"));
    a.create_item("x", &ItemOptions::bytes(8192)).unwrap().transfer("b").unwrap();
    let limit = starve(daemon.keeper.id(), 0);
    daemon.kill_broker();
    std::thread::sleep(Duration::from_secs(8));
    assert_eq!(daemon.keeper.try_wait().unwrap(), None, "the keeper still has the item");
    set_limit(daemon.keeper.id(), limit);
    b.access_item("x", LONG).unwrap().destroy().unwrap();
    a.close().unwrap();
    b.close().unwrap();
    daemon.stop();
}

/// The keeper has no descriptor left for the files of items, one of which the daemon copies for the next owner.
#[test]
fn items_that_the_keeper_had_no_descriptor_for_outlive_the_broker() {
    let daemon = Daemon::start();
    let (a, b) = (task(&daemon, "a"), task(&daemon, "b"));
    let limit = starve(daemon.keeper.id(), 0);
    let mut kept = a.create_item("kept", &ItemOptions::bytes(8192)).unwrap();
    kept.bytes_mut().fill(7);
    let mut given = a.create_item("given", &ItemOptions::bytes(8192)).unwrap();
    given.bytes_mut().fill(8);
    given.transfer("b").unwrap();
    let strict = ItemOptions { level: ItemLevel::Strict, ..ItemOptions::bytes(8192) };
    let mut copied = a.create_item("copied", &strict).unwrap();
    copied.bytes_mut().fill(9);
    copied.transfer("b").unwrap();
    // The keeper reads what the broker has sent.
    std::thread::sleep(Duration::from_millis(200));
    set_limit(daemon.keeper.id(), limit);
    for _ in 0..2 {
        daemon.kill_broker();
        daemon.wait_until_up();
        a.list().unwrap();
    }
    kept.transfer("b").unwrap();
    for (key, byte) in [("kept", 7), ("given", 8), ("copied", 9)] {
        let item = b.access_item(key, LONG).unwrap();
        assert!(item.bytes().iter().all(|found| *found == byte), "{key}");
        item.destroy().unwrap();
    }
    a.close().unwrap();
    b.close().unwrap();
    daemon.stop();
}

#[test]
fn an_item_whose_copy_lacks_a_descriptor_can_be_opened_later() {
    let daemon = Daemon::start();
    let (a, b) = (task(&daemon, "a"), task(&daemon, "b"));
    let (size, level, on_death) = (1 << 20, ItemLevel::Strict, OnDeath::Keep);
    for free in 0..8 {
        let key = format!("item{free}");
        // The item is so large that the daemon copies it in a separate thread.
        let item = a.create_item(&key, &ItemOptions { size, level, on_death, contents: Contents::Bytes }).unwrap();
        let former = starve(daemon.broker(), free);
        item.transfer("b").unwrap();
        set_limit(daemon.broker(), former);
        let opened = b.access_item(&key, LONG);
        assert!(opened.is_ok(), "with {free} descriptors: {}", opened.unwrap_err());
    }
    drop((a, b));
    daemon.stop();
}

#[test]
fn a_member_whose_answer_lacks_a_descriptor_gets_the_item_after_all() {
    let daemon = Daemon::start();
    let (a, b) = (task(&daemon, "a"), task(&daemon, "b"));
    for free in 0..8 {
        let key = format!("item{free}");
        a.create_item(&key, &ItemOptions::bytes(1000)).unwrap().transfer("b").unwrap();
        let former = starve(daemon.broker(), free);
        let opened = std::thread::scope(|scope| {
            let opening = scope.spawn(|| b.access_item(&key, LONG).map(drop));
            std::thread::sleep(Duration::from_millis(100));
            set_limit(daemon.broker(), former);
            opening.join().unwrap()
        });
        assert!(opened.as_ref().err().is_none_or(|error| error.status == Status::NoSpace), "{opened:?}");
        let again = b.access_item(&key, LONG).map(drop);
        assert!(again.is_ok(), "with {free} descriptors: {opened:?}, then {again:?}");
    }
    drop((a, b));
    daemon.stop();
}

#[test]
fn what_a_new_daemon_has_no_descriptor_for_is_given_back_later() {
    let mut daemon = Daemon::start();
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.args(["--exact", "helper_has_a_region", "--ignored", "--nocapture"]);
    let mut helper = program.env("CROSSDOCK_TEST_SOCKET", daemon.socket()).stdout(Stdio::null()).spawn().unwrap();
    until("the helper has the region", || daemon.session().list().unwrap().segments.len() == 1);
    kill(helper.id(), "STOP");
    daemon.kill_node();
    daemon.keeper.wait().unwrap();
    daemon.keeper = spawn(&daemon.socket(), &[]);
    drop(daemon.newcomer());
    // The daemon has one free descriptor, and the helper's new connection takes it. So the daemon has no descriptor
    // left for the region that the helper offers.
    let former = starve(daemon.broker(), 1);
    kill(helper.id(), "CONT");
    std::thread::sleep(Duration::from_millis(500));
    set_limit(daemon.broker(), former);
    let other = daemon.session();
    let opened = other.region("r", Mode::OpenOnly, 0, Some(Duration::from_secs(5)));
    opened.map(drop).unwrap();
    helper.kill().unwrap();
    helper.wait().unwrap();
    drop(other);
    daemon.stop();
}

#[test]
#[ignore = "run by the test above, in a process of its own"]
fn helper_has_a_region() {
    let Some(socket) = std::env::var_os("CROSSDOCK_TEST_SOCKET") else { return };
    let options = ConnectOptions { socket: Some(socket.into()), ..Default::default() };
    let session = Session::connect(&options).unwrap();
    let _region = session.region("r", Mode::CreateOnly, 1 << 18, None).unwrap();
    std::thread::sleep(Duration::from_secs(30));
}

/// A daemon whose journal is on a small disk. The disk is a small file system, which the test mounts in a mount
/// namespace if the system allows this.
struct OnSmallDisk {
    keeper: std::process::Child,
    socket: PathBuf,
    ballast: PathBuf,
    _folder: tempfile::TempDir,
}

impl OnSmallDisk {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let disk = folder.path().join("disk");
        std::fs::create_dir(&disk).unwrap();
        let program = env!("CARGO_BIN_EXE_crossdock-node");
        let script = format!(
            "mount -t tmpfs -o size=1m,mode=0700 none {0} && exec {program} --socket {0}/endpoint.sock",
            disk.display()
        );
        let keeper = Command::new("unshare")
            .args(["-Urm", "sh", "-c", &script])
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let root = PathBuf::from(format!("/proc/{}/root{}", keeper.id(), disk.display()));
        let (socket, ballast) = (root.join("endpoint.sock"), root.join("ballast"));
        until("it listens", || crossdock_os::socket::connect(&socket).is_ok());
        Self { keeper, socket, ballast, _folder: folder }
    }

    /// Fills the disk. After that, the journal can use only the room that it has reserved before.
    fn fill(&self) {
        let mut bytes = 1 << 20;
        while bytes >= 4096 {
            let file = std::fs::OpenOptions::new().append(true).create(true).open(&self.ballast).unwrap();
            if std::io::Write::write_all(&mut &file, &vec![1; bytes]).is_err() {
                bytes /= 2;
            }
        }
    }

    fn make_room(&self) {
        std::fs::remove_file(&self.ballast).unwrap();
    }

    fn stop(mut self) {
        kill(self.keeper.id(), "TERM");
        self.keeper.wait().unwrap();
    }
}

/// Makes segments, each by its own message, until the daemon says that the journal has no room. Returns how many
/// segments were made.
fn make_until_the_journal_is_full(raw: &mut Raw, message: impl Fn(u32) -> Request) -> u32 {
    for number in 0..5000 {
        match raw.ask(&message(number)).expect("the daemon goes on").0 {
            Answer::Failed { status: Status::NoSpace, text } => {
                assert!(text.contains("journal"), "{text}");
                return number;
            }
            Answer::Segment { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    panic!("the journal has room for all this");
}

#[test]
fn a_full_disk_under_the_journal_is_an_error_of_the_call_and_passes() {
    let daemon = OnSmallDisk::start();
    let (mut raw, _) = Raw::join(&daemon.socket);
    daemon.fill();
    let name = |number| format!("{}{number}", "n".repeat(100));
    make_until_the_journal_is_full(&mut raw, |number| open(&name(number), OpenMode::CreateOnly, 4096, 0));
    let listed = raw.ask(&open(&name(0), OpenMode::OpenOnly, 0, 0)).unwrap().0;
    assert!(matches!(listed, Answer::Segment { .. }), "what is there is given out");
    daemon.make_room();
    until("there is room again", || {
        matches!(raw.ask(&open("after", OpenMode::OpenOrCreate, 4096, 0)).unwrap().0, Answer::Segment { .. })
    });
    daemon.stop();
}

#[test]
fn a_daemon_waits_for_room_if_the_disk_is_full_and_a_run_with_many_ports_ends() {
    let daemon = OnSmallDisk::start();
    let (mut raw, _) = Raw::join(&daemon.socket);
    daemon.fill();
    let port = |number: u32, mode| Request::Open {
        kind: SegmentKind::Port,
        mode,
        access: Rights::PRODUCE,
        size: 4096,
        reserve: 0,
        attribute: 0,
        wait_ms: 0,
        persistent: false,
        name: format!("p{number}"),
    };
    let made = make_until_the_journal_is_full(&mut raw, |number| port(number, OpenMode::CreateOnly));
    let brokers = children(daemon.keeper.id());
    // When the member leaves, the daemon must record the end of each of its ports. These records need more room than
    // the journal reserves for records that must always be written.
    raw.send(&Request::Bye.encode(1_000_000, 0), &[]);
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(children(daemon.keeper.id()), brokers, "the broker has ended");
    daemon.make_room();
    let (mut raw, _) = Raw::join(&daemon.socket);
    for number in [0, made - 1] {
        let answer = raw.ask(&port(number, OpenMode::OpenOnly)).unwrap().0;
        assert!(matches!(answer, Answer::Failed { status: Status::NotFound, .. }), "{answer:?}");
    }
    daemon.stop();
}

#[test]
fn the_quota_holds_and_room_comes_back_when_the_last_user_is_gone() {
    let daemon = Daemon::start_with(&["--memory", "1048576"]);
    let (mut one, _) = Raw::join(&daemon.socket());
    let (mut other, _) = Raw::join(&daemon.socket());
    let reserve = |raw: &mut Raw, segment, upto| raw.ask(&Request::Reserve { segment, upto }).unwrap().0;
    let made = one.ask(&open("a", OpenMode::CreateOnly, 1 << 20, 0)).unwrap().0;
    let Answer::Segment { segment, .. } = made else { panic!("{made:?}") };
    assert_eq!(reserve(&mut one, segment, 700_000), Answer::Done { value: 700_416 });
    other.ask(&open("a", OpenMode::OpenOnly, 0, 0)).unwrap();
    one.ask(&Request::Remove { kind: SegmentKind::Region, in_use: crossdock_client::InUse::Keep, name: "a".into() })
        .unwrap();
    let made = one.ask(&open("a", OpenMode::CreateOnly, 1 << 20, 0)).unwrap().0;
    let Answer::Segment { segment: fresh, .. } = made else { panic!("the name is free at once: {made:?}") };
    let full = reserve(&mut one, fresh, 700_000);
    assert!(matches!(&full, Answer::Failed { status: Status::NoSpace, .. }), "the old one is still mapped: {full:?}");
    one.send(&Request::Detach { segment, count: 1 }.encode(0, 0), &[]);
    drop(other);
    until("its memory is free again", || matches!(reserve(&mut one, fresh, 700_000), Answer::Done { .. }));
    daemon.stop();
}

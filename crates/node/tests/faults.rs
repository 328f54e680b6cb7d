//! Each system call in the life of a session fails once. The library's call that made this system call returns
//! NO_SPACE, or succeeds nevertheless. If the library's call failed, it succeeds when it is repeated. No data is lost,
//! no object is left behind, and no descriptor is leaked.

mod support;

use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crossdock_client::{
    ConnectOptions, End, Grant, Handle, InUse, ItemOptions, Message, Mode, ObjectMode, PortOptions, Region, Rights,
    SegmentKind, SeriesOptions, Session, Status, TypeRef, Value, Variable,
};
use crossdock_layout::wire::{Answer, OpenMode, Request};
use crossdock_os::mapping::{Access, Mapping};
use crossdock_os::{faults, socket};
use support::{Daemon, Raw, children, open, spawn_in, until};

const LONG: Option<Duration> = Some(Duration::from_secs(20));
/// How long an answer may take on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// Lets only one test run at a time, because the tests count this process's descriptors.
static ONE: Mutex<()> = Mutex::new(());

/// The library's calls that failed at the first attempt, each with its error.
#[derive(Default)]
struct Failures(Vec<(&'static str, crossdock_client::Error)>);

impl Failures {
    /// Makes a call, and repeats it if it fails. Only one system call is made to fail, so the second attempt must
    /// succeed.
    fn twice<T>(&mut self, what: &'static str, mut call: impl FnMut() -> crossdock_client::Result<T>) -> T {
        match call() {
            Ok(value) => value,
            Err(error) => {
                self.0.push((what, error));
                call().unwrap_or_else(|error| {
                    panic!("{what}, repeated: {error} ({}); before: {:?}", error.status, self.0)
                })
            }
        }
    }
}

struct Setting {
    daemon: Daemon,
    a: Session,
    b: Session,
    bystander: Region,
    block: u64,
}

const BLOCK: usize = 1000;

impl Setting {
    fn new(environment: &[(&str, &Path)]) -> Self {
        let daemon = Daemon::start_in(&[], environment);
        let task = |name: &str| {
            Session::connect(&ConnectOptions { task: Some(name.into()), timeout: PATIENCE, ..daemon.options() })
                .unwrap()
        };
        let (a, b) = (task("a"), task("b"));
        let bystander = b.region("bystander", Mode::CreateOnly, 1 << 20, None).unwrap();
        let block = bystander.allocate(8 * BLOCK as u64, 8).unwrap();
        let setting = Self { a, b, bystander, block, daemon };
        setting.words().fill(0x5a5a);
        setting
    }

    #[expect(clippy::mut_from_ref, reason = "shared memory")]
    fn words(&self) -> &mut [u64] {
        // SAFETY: the block belongs to this test and has `BLOCK` words.
        unsafe { std::slice::from_raw_parts_mut(self.bystander.base().add(self.block as usize).cast::<u64>(), BLOCK) }
    }

    /// Gives the names of the daemon's segments, except the test's own segment `bystander`.
    fn segments(&self) -> Vec<String> {
        let listed = self.b.list().unwrap().segments.into_iter();
        listed.map(|segment| segment.name).filter(|name| name != "bystander").collect()
    }
}

fn descriptors(process: &str) -> usize {
    std::fs::read_dir(format!("/proc/{process}/fd")).unwrap().count()
}

/// Whose system calls are made to fail: those of a member (the test itself), or those of the daemon.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fails {
    Member,
    Daemon,
}

type Hit = Option<(&'static str, &'static [faults::Fault])>;

fn fails_everywhere(life: impl Fn(&Setting, &mut Failures)) {
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    for fails in [Fails::Member, Fails::Daemon] {
        each_call_fails(fails, &life);
    }
}

/// Runs `life` many times. In each run a different system call fails, or the same system call fails with a different
/// error. Ends when `life` makes fewer system calls than the number of the call that is to fail.
fn each_call_fails(fails: Fails, life: &impl Fn(&Setting, &mut Failures)) {
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("plan");
    let page = faults::MappedPlan::open(&plan).unwrap();
    let environment = [(faults::VARIABLE, plan.as_path())];
    let setting = Setting::new(if fails == Fails::Daemon { &environment } else { &[] });
    let arm = |n, which| match fails {
        Fails::Member => faults::arm_thread(n, which),
        Fails::Daemon => page.words().fail_nth(n, which),
    };
    let disarm = || -> Hit {
        match fails {
            Fails::Member => faults::disarm_thread(),
            Fails::Daemon => page.words().disarm(),
        }
    };
    let broker = setting.daemon.broker();
    let descriptors =
        || descriptors("self") + if fails == Fails::Daemon { descriptors(&broker.to_string()) } else { 0 };
    // First `life` runs twice without a failure, because some descriptors and threads are made only once in a process.
    for _ in 0..2 {
        let mut none = Failures::default();
        life(&setting, &mut none);
        assert!(none.0.is_empty(), "{:?}", none.0);
    }
    until("the first lives have left nothing", || setting.segments().is_empty());
    // The watching thread closes the socket of a closed session a moment after the session.
    let mut before = descriptors();
    until("no descriptor is closed any more", || {
        std::thread::sleep(Duration::from_millis(200));
        std::mem::replace(&mut before, descriptors()) == before
    });
    let (mut n, mut which) = (1, 0);
    let mut seen = std::collections::BTreeMap::<_, u32>::new();
    loop {
        let mut failures = Failures::default();
        arm(n, which);
        life(&setting, &mut failures);
        let Some((call, errors)) = disarm() else { break };
        *seen.entry(call).or_default() += 1;
        let how = errors[which as usize % errors.len()];
        for (what, error) in &failures.0 {
            let text = format!("{fails:?}, call {n}, {call} with {how:?}: {what}: {error} ({})", error.status);
            assert_eq!(error.status, Status::NoSpace, "{text}");
        }
        assert!(setting.words().iter().all(|word| *word == 0x5a5a), "a bystander's bytes");
        until(
            &format!(
                "nothing is left: {fails:?}, call {n}, {call} with {how:?}, {:?}, {:?}",
                failures.0,
                setting.segments()
            ),
            || setting.segments().is_empty(),
        );
        until(&format!("no descriptor leaks by {fails:?}, call {n}, {call} with {how:?}"), || descriptors() == before);
        // The daemon does not make the same system calls in each run of `life`. So a test of the daemon does not try
        // all errors at one call: in the next run, the next call fails with the next error.
        if fails == Fails::Daemon {
            (n, which) = (n + 1, which + 1);
        } else if which as usize + 1 < errors.len() {
            which += 1;
        } else {
            (n, which) = (n + 1, 0);
        }
    }
    println!("{fails:?}: {} calls failed: {seen:?}", n - 1);
    assert!(n > 3, "the life makes calls");
    assert_eq!(setting.daemon.broker(), broker, "it is the same broker");
    let Setting { daemon, a, b, bystander, .. } = setting;
    drop(bystander);
    a.close().unwrap();
    b.close().unwrap();
    daemon.stop();
}

#[test]
fn a_session_comes_and_goes() {
    fails_everywhere(|setting, failures| {
        let session = failures
            .twice("connect", || Session::connect(&ConnectOptions { timeout: PATIENCE, ..setting.daemon.options() }));
        failures.twice("list", || session.list());
        session.close().unwrap();
        until("it has left", || setting.b.list().unwrap().members.len() == 2);
    });
}

#[test]
fn a_region_with_its_heap_names_and_vectors() {
    fails_everywhere(|setting, failures| {
        let region = failures.twice("region", || setting.a.region("r", Mode::CreateOnly, 8 << 20, None));
        let mut blocks = Vec::new();
        for n in 0..40u64 {
            let size = 64 + n * 2000;
            blocks.push((failures.twice("allocate", || region.allocate(size, 8)), size as usize, n as u8));
            let (at, size, n) = blocks[blocks.len() - 1];
            // SAFETY: the block belongs to this test and has `size` bytes.
            unsafe { region.base().add(at as usize).write_bytes(n, size) };
        }
        let ty = TypeRef::new("vector<f64>").unwrap();
        let claim = failures.twice("claim", || region.claim("v", &ty, ObjectMode::OpenOrCreate, None));
        if claim.created {
            failures.twice("commit", || region.commit(claim.offset));
        }
        failures.twice("resize", || region.vector_resize(claim.offset, 8, 10_000));
        let other = failures.twice("region", || setting.b.region("r", Mode::OpenOnly, 0, None));
        let found = failures.twice("find", || other.find("v"));
        assert_eq!(found.offset, claim.offset);
        assert_eq!(other.vector_at(found.offset, 8).unwrap().size, 10_000);
        for (at, size, n) in blocks {
            // SAFETY: the block belongs to this test and has `size` bytes.
            let bytes = unsafe { std::slice::from_raw_parts(other.base().add(at as usize), size) };
            assert!(bytes.iter().all(|byte| *byte == n), "block {n}");
            failures.twice("deallocate", || other.deallocate(at));
        }
        failures.twice("remove", || region.remove("v"));
        drop((region, other));
        failures.twice("remove_region", || setting.a.remove(SegmentKind::Region, "r", InUse::Keep));
    });
}

#[test]
fn a_port_and_its_messages() {
    fails_everywhere(|setting, failures| {
        let options = PortOptions { capacity: 4, ..PortOptions::default() };
        let to = failures.twice("producer", || setting.a.port("p", End::Producer, &options, None));
        let from = failures.twice("consumer", || setting.b.port("p", End::Consumer, &options, None));
        failures.twice("wait_peer", || to.wait_peer(LONG));
        failures.twice("descriptor", || from.descriptor().map(drop));
        for n in 0..10 {
            failures.twice("arm", || from.arm());
            failures.twice("send", || to.send(&Message::new(Handle::NONE, n), LONG));
            let message = failures.twice("receive", || from.receive(LONG));
            assert_eq!(message.tag, n, "each message once, in order");
            failures.twice("release", || from.release(&message));
            failures.twice("reclaim", || to.reclaim(LONG));
        }
        let nothing = from.receive(Some(Duration::from_millis(1))).unwrap_err();
        assert_eq!(nothing.status, Status::TimedOut);
        to.close();
        from.close();
        failures.twice("remove_port", || setting.a.remove_port("p"));
    });
}

#[test]
fn a_series_and_its_versions() {
    fails_everywhere(|setting, failures| {
        let options =
            SeriesOptions { variables: vec![Variable::new("u", "u64", &[40_000])], ..SeriesOptions::default() };
        let mut publisher = failures.twice("publisher", || setting.a.publisher("s", &options));
        let mut observer = failures.twice("observe", || setting.b.observe("s", Duration::from_secs(20)));
        let mut held = Vec::new();
        for value in 1..6u64 {
            let elements = publisher.elements::<u64>("u").unwrap();
            // The first version changes all elements of the array, the second version 1250 elements, and each later
            // version a quarter as many as the version before.
            let changed = if value == 1 { 40_000 } else { 20_000 >> (2 * value) };
            elements[..changed].fill(value);
            let withheld = publisher.statistics().withheld;
            failures.twice("publish", || publisher.publish(&[("value", Value::U64(value))]));
            let mut before = withheld;
            while publisher.statistics().withheld > before {
                // There was no free slot for this version. The next version contains its changes.
                before = publisher.statistics().withheld;
                std::thread::sleep(Duration::from_millis(20));
                publisher.publish(&[("value", Value::U64(value))]).unwrap();
            }
            let version = failures.twice("next", || observer.latest());
            assert_eq!(
                version.attribute("value").unwrap(),
                &Value::U64(value),
                "{:?} {:?} withheld {withheld}",
                faults::disarm_thread(),
                publisher.statistics()
            );
            let shown = failures.twice("elements", || version.elements::<u64>("u").map(<[u64]>::to_vec));
            assert!(shown[..changed].iter().all(|n| *n == value) && shown[39_999] == 1, "version {value}");
            held.push((value, version));
        }
        let (_, mut oldest) = held.remove(0);
        failures.twice("refresh", || oldest.refresh());
        let shown = failures.twice("elements", || oldest.elements::<u64>("u").map(<[u64]>::to_vec));
        assert_eq!((shown[0], shown[39_999]), (5, 1), "the newest");
        for (value, version) in &held {
            let shown = version.elements::<u64>("u").unwrap();
            assert_eq!((shown[0], shown[39_999]), (*value, 1), "a held version does not change");
        }
        drop((held, oldest, observer));
        failures.twice("end", || publisher.end_mut());
        drop(publisher);
        failures.twice("remove_series", || setting.a.remove_series("s"));
    });
}

#[test]
fn an_item_and_its_owners() {
    fails_everywhere(|setting, failures| {
        let mut item = failures.twice("create", || setting.a.create_item("i", &ItemOptions::bytes(100_000)));
        item.bytes_mut().fill(7);
        failures.twice("transfer", || item.transfer_mut("b"));
        let mut item = failures.twice("access", || setting.b.access_item("i", LONG));
        assert!(item.bytes().iter().all(|byte| *byte == 7), "its bytes come along");
        item.bytes_mut()[99_999] = 8;
        failures.twice("resize", || item.resize(200_000));
        assert_eq!((item.bytes()[0], item.bytes()[99_999], item.bytes()[199_999]), (7, 8, 0));
        let mut shared = failures.twice("share", || item.share_mut());
        let view = failures.twice("read", || setting.a.read_item("i", LONG));
        assert_eq!((view.bytes()[0], view.bytes()[99_999]), (7, 8));
        drop(view);
        let mut item = failures.twice("unshare", || shared.unshare_mut(LONG));
        assert_eq!((item.bytes()[0], item.bytes()[99_999]), (7, 8));
        failures.twice("destroy", || item.destroy_mut());
    });
}

/// In each round, a different system call of a daemon's start fails. The daemon must serve nevertheless, or end with an
/// error and leave nothing behind.
#[test]
fn a_daemon_serves_or_ends_with_an_error_and_leaves_nothing() {
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let (mut served, mut ended) = (0, 0);
    let mut seen = std::collections::BTreeSet::new();
    for n in 1.. {
        let scratch = tempfile::tempdir().unwrap();
        let plan = scratch.path().join("plan");
        let page = faults::MappedPlan::open(&plan).unwrap();
        page.words().fail_nth(n, n);
        let folder = Daemon::folder();
        let socket = folder.path().join("endpoint.sock");
        let mut keeper = spawn_in(&socket, &[], &[(faults::VARIABLE, &plan)]);
        let options = ConnectOptions { socket: Some(socket.clone()), timeout: PATIENCE, ..ConnectOptions::default() };
        let mut status = None;
        until("the daemon serves or ends", || {
            // The kernel accepts connections to the socket before the broker serves. If the broker fails to start, the
            // daemon ends. So a connection proves nothing; only an answer proves that the daemon serves.
            status = keeper.try_wait().unwrap();
            status.is_some() || Session::connect(&options).is_ok()
        });
        let hit = page.words().disarm();
        match status {
            None => {
                served += 1;
                Daemon { folder, keeper }.stop();
            }
            Some(status) => {
                ended += 1;
                assert!(!status.success(), "{hit:?}");
                // The lock's file may be left: if a daemon fails to get the lock, the file may belong to another
                // daemon, so the daemon does not remove it.
                let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|f| f.unwrap().file_name()).collect();
                assert!(left.iter().all(|name| name == "endpoint.sock.lock"), "{hit:?}: {left:?}");
                let next = Daemon { keeper: spawn_in(&socket, &[], &[]), folder };
                next.wait_until_up();
                next.stop();
            }
        }
        let Some((call, _)) = hit else { break };
        seen.insert(call);
    }
    println!("{served} daemons served, {ended} ended with an error: {seen:?}");
    assert!(served > 10 && ended > 10, "{served} served, {ended} ended");
}

/// Starts a daemon whose plan of failures the test can change while the daemon runs.
fn daemon_with_plan() -> (Daemon, faults::MappedPlan, tempfile::TempDir) {
    let scratch = tempfile::tempdir().unwrap();
    let plan = scratch.path().join("plan");
    let page = faults::MappedPlan::open(&plan).unwrap();
    (Daemon::start_in(&[], &[(faults::VARIABLE, plan.as_path())]), page, scratch)
}

/// No process can be forked for longer than the keeper waits when it starts its first broker.
#[test]
fn a_keeper_that_cannot_fork_keeps_what_it_has_until_it_can_or_is_told_to_end() {
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let (mut daemon, plan, _scratch) = daemon_with_plan();
    let task = |name: &str| {
        Session::connect(&ConnectOptions { task: Some(name.into()), timeout: PATIENCE, ..daemon.options() }).unwrap()
    };
    let (a, b) = (task("a"), task("b"));
    let item = a.create_item("x", &ItemOptions::bytes(8192)).unwrap();
    item.transfer("b").unwrap();
    plan.words().fail_each("fork");
    daemon.kill_broker();
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(12) {
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(daemon.keeper.try_wait().unwrap(), None, "the keeper still has the item");
    }
    assert!(plan.words().counted().1 > 5, "the keeper tries to fork again and again");
    plan.words().disarm();
    b.access_item("x", LONG).unwrap().destroy().unwrap();
    a.close().unwrap();
    b.close().unwrap();
    plan.words().fail_each("fork");
    daemon.kill_broker();
    until("no broker is left", || children(daemon.keeper.id()).is_empty());
    daemon.end();
}

#[test]
fn tasks_can_connect_to_an_endpoint_whose_socket_could_not_be_watched_when_it_was_made() {
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let (daemon, plan, _scratch) = daemon_with_plan();
    let launcher = daemon.session();
    launcher.make_workflow("w", 0).unwrap();
    let path = daemon.folder.path().join("task.sock");
    let grants = [Grant { pattern: "*".into(), kind: SegmentKind::Region, rights: Rights::READ }];
    let listener = socket::listen(&path).unwrap();
    let (_, before) = plan.words().counted();
    plan.words().fail_each("epoll_ctl");
    launcher.make_endpoint("w", "task", listener, &grants).unwrap();
    plan.words().disarm();
    assert!(plan.words().counted().1 > before, "the daemon could not watch the socket");
    let options = ConnectOptions { socket: Some(path.clone()), timeout: PATIENCE, ..daemon.options() };
    Session::connect(&options).unwrap().close().unwrap();
    launcher.close().unwrap();
    std::fs::remove_file(&path).unwrap();
    daemon.stop();
}

/// After the keeper's death, a member that may only read offers a segment's memory to the new daemon, and one of the
/// daemon's system calls fails during this. Even so, a member that later opens the memory for writing can write.
#[test]
fn memory_that_a_reader_offers_can_be_written_although_a_call_failed() {
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let all = (1..).map_while(|n| a_reader_offers(|plan| plan.fail_nth(n, 0))).count();
    assert!(all > 3, "{all}");
    // The keeper and the broker share the fault plan, and the order of their system calls changes from run to run. So
    // the first round may let some of these calls never fail. The second round counts only the calls that open a file,
    // so that each of these fails once.
    let opens = (1..).map_while(|n| a_reader_offers(|plan| plan.fail_nth_of("open", n, 0))).count();
    assert!(opens > 0, "the daemon opens what was offered");
}

/// A member that may only read offers memory, while a system call of the daemon fails according to the plan that `arm`
/// makes. Then the member opens this memory for writing. Gives the system call that failed.
fn a_reader_offers(arm: impl Fn(&faults::FaultPlan)) -> Hit {
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("plan");
    let page = faults::MappedPlan::open(&plan).unwrap();
    let environment = [(faults::VARIABLE, plan.as_path())];
    let mut daemon = Daemon::start_in(&[], &environment);
    let mut raw = Raw::connect(&daemon.socket());
    let Some((Answer::Welcome { member, .. }, _)) = raw.ask(&Raw::hello_message(3)) else { panic!() };
    let (made, fds) = raw.ask(&open("r", OpenMode::CreateOnly, 8192, 0)).unwrap();
    let Answer::Segment { segment, .. } = made else { panic!("{made:?}") };
    let readable = crossdock_os::file::reopen_read_only(&fds[0]).unwrap();
    drop(fds);
    daemon.keeper.kill().unwrap();
    daemon.keeper.wait().unwrap();
    daemon.keeper = spawn_in(&daemon.socket(), &[], &environment);
    let again = |next| {
        let (raw, welcome) = Raw::greet(&daemon.socket(), &Raw::hello_again(3, member));
        assert!(matches!(welcome, Answer::Welcome { member: same, .. } if same == member), "{welcome:?}");
        raw.number_from(next)
    };
    let mut raw = again(100);
    arm(page.words());
    let mut offered = raw.ask_with(&Request::Offer { segment }, &[readable.as_fd()]);
    let hit = page.words().disarm();
    if !matches!(offered, Some((Answer::Done { .. }, _))) {
        // The system call that failed may be the one by which the daemon receives the offer or sends the answer to the
        // offer. So the member offers the memory a second time. If the daemon has dropped the connection, the member
        // first connects again.
        raw = if offered.is_none() && raw.was_dropped() { again(200) } else { raw };
        offered = raw.ask_with(&Request::Offer { segment }, &[readable.as_fd()]);
    }
    assert!(matches!(offered, Some((Answer::Done { .. }, _))), "{hit:?}: {offered:?}");
    let (opened, fds) = raw.ask(&open("r", OpenMode::OpenOnly, 0, 0)).unwrap();
    assert!(matches!(opened, Answer::Segment { segment: same, .. } if same == segment), "{hit:?}: {opened:?}");
    let mapped = Mapping::new(&fds[0], 8192, Access::ReadWrite);
    assert!(mapped.is_ok(), "{hit:?}: {:?}", mapped.err());
    daemon.stop();
    hit
}

/// If no place can be reserved in the descriptor table for the descriptor of an object, the call that opens the object
/// fails, and leaves nothing.
#[test]
fn an_object_for_whose_descriptor_no_place_can_be_reserved_is_not_opened() {
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let setting = Setting::new(&[]);
    let mut reserved = 0;
    for n in 1.. {
        // The call reads the answers to the session's messages about the former round, so that the next call reads only
        // its own answer.
        setting.a.list().unwrap();
        faults::arm_thread(n, 0);
        let opened = setting.a.region("r", Mode::CreateOnly, 1 << 20, None);
        let hit = faults::disarm_thread();
        if matches!(hit, Some(("F_DUPFD_CLOEXEC", _))) {
            reserved += 1;
            assert_eq!(opened.map(drop).unwrap_err().status, Status::NoSpace, "call {n}");
            until("the region is removed", || setting.segments().is_empty());
            continue;
        }
        if let Ok(region) = opened {
            drop(region);
            setting.a.remove(SegmentKind::Region, "r", InUse::Keep).unwrap();
        }
        if hit.is_none() {
            break;
        }
    }
    assert_eq!(reserved, 1, "one descriptor comes, and the session makes no copy of it");
    let Setting { daemon, a, b, bystander, .. } = setting;
    drop((a, b, bystander));
    daemon.stop();
}

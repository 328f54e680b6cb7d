//! Tests that sessions survive the death of the keeper, a lack of descriptors, and deaths of other members that no
//! daemon can report.

mod support;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Lines};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use crossdock_client::{ConnectOptions, End, ItemLevel, ItemOptions, Mode, PortOptions, Region, Session};
use crossdock_layout::Status;
use crossdock_layout::wire::{Answer, OpenMode, Request};
use support::{Daemon, Raw, children, connect_to_next_daemon, kill, limit_descriptors, open, spawn, until};

/// Starts another process of this test program, which runs only the helper test `part`.
fn helper(part: &str, daemon: &Daemon) -> Child {
    command_of_helper(part, daemon).stdout(Stdio::null()).spawn().unwrap()
}

fn command_of_helper(part: &str, daemon: &Daemon) -> Command {
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.args(["--exact", part, "--ignored", "--nocapture"]).env("CROSSDOCK_TEST_SOCKET", daemon.socket());
    program
}

fn session_of_helper() -> Option<Session> {
    session_of_helper_as(None)
}

fn session_of_helper_as(task: Option<&str>) -> Option<Session> {
    Some(Session::connect(&ConnectOptions { task: task.map(str::to_owned), ..options_of_helper()? }).unwrap())
}

fn options_of_helper() -> Option<ConnectOptions> {
    let socket = std::env::var_os("CROSSDOCK_TEST_SOCKET")?;
    Some(ConnectOptions { socket: Some(socket.into()), ..Default::default() })
}

fn kill_keeper(daemon: &mut Daemon) {
    daemon.keeper.kill().unwrap();
    daemon.keeper.wait().unwrap();
}

/// Lets a member have a region open while `ends` ends the daemon. Then the next daemon must give this region to a new
/// session, and not another region of the same name.
fn the_region_stays_when(ends: impl FnOnce(&mut Daemon)) {
    let mut daemon = Daemon::start();
    let session = daemon.session();
    let region = session.region("frames", Mode::CreateOnly, 1 << 20, None).unwrap();
    let before = session.list().unwrap().segments[0].id;
    ends(&mut daemon);
    daemon.keeper = spawn(&daemon.socket(), &[]);
    let other = daemon.newcomer();
    let same = other.region("frames", Mode::OpenOrCreate, 1 << 20, None).unwrap();
    // A session first offers its region to the next daemon, and says afterwards that it has the region open.
    until("both sessions count as members that have the region", || {
        let named = other.list().unwrap().segments.into_iter().filter(|s| s.name == "frames");
        let (ids, members): (Vec<_>, Vec<_>) = named.map(|s| (s.id, s.members)).unzip();
        assert_eq!(ids, [before], "another region has the name");
        members == [2]
    });
    drop((region, same));
    session.close().unwrap();
    other.close().unwrap();
    daemon.stop();
}

#[test]
fn a_member_that_asks_nothing_gives_its_region_to_the_next_daemon() {
    the_region_stays_when(kill_keeper);
}

/// Starts a daemon that cannot start, because it may have only `descriptors` descriptors, and waits for its end.
fn fail_to_start(socket: &Path, descriptors: u32) {
    let program = env!("CARGO_BIN_EXE_crossdock-node");
    let words = format!("ulimit -n {descriptors}; exec {program} --socket {}", socket.display());
    let status = Command::new("sh").args(["-c", &words]).stderr(Stdio::null()).status().unwrap();
    assert!(!status.success());
}

/// Starts a daemon whose catalog does not exist, so the daemon waits, and tells the daemon to end.
fn end_before_it_serves(socket: &Path) {
    let mut keeper = spawn(socket, &["--site", "here", "--node", "a", "--catalog", "embedded:127.0.0.1:1"]);
    until("the broker runs", || !children(keeper.id()).is_empty());
    kill(keeper.id(), "TERM");
    assert!(keeper.wait().unwrap().success());
}

#[test]
fn daemons_that_cannot_start_after_the_keepers_death_take_no_name_from_living_members() {
    the_region_stays_when(|daemon| {
        kill_keeper(daemon);
        for descriptors in [8, 12, 16] {
            fail_to_start(&daemon.socket(), descriptors);
        }
        end_before_it_serves(&daemon.socket());
    });
}

#[test]
fn a_daemon_that_ends_because_its_brokers_crash_takes_no_name_from_living_members() {
    the_region_stays_when(|daemon| {
        until("the daemon gives up", || {
            children(daemon.keeper.id()).into_iter().for_each(|broker| kill(broker, "SEGV"));
            daemon.keeper.try_wait().unwrap().is_some()
        });
    });
}

/// Kills each broker of a keeper soon after its start, for two seconds, as the kernel does if there is no memory for a
/// broker. Returns the number of killed brokers.
fn kill_brokers_at_once(keeper: u32) -> usize {
    let mut killed = BTreeSet::new();
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(2) {
        for broker in children(keeper) {
            let pid = rustix::process::Pid::from_raw(broker as i32).unwrap();
            // The broker may have ended already.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            killed.insert(broker);
        }
    }
    killed.len()
}

#[test]
fn a_keeper_whose_brokers_are_killed_at_once_holds_the_regions() {
    let daemon = Daemon::start();
    let session = daemon.session();
    let region = session.region("frames", Mode::CreateOnly, 1 << 20, None).unwrap();
    kill_brokers_at_once(daemon.keeper.id());
    let other = daemon.newcomer();
    assert_eq!(other.region("frames", Mode::OpenOnly, 0, None).unwrap().id(), region.id());
    drop(region);
    session.close().unwrap();
    other.close().unwrap();
    daemon.stop();
}

#[test]
fn a_keeper_whose_brokers_are_killed_before_they_serve_does_not_start_one_after_another_without_pause() {
    let mut daemon = Daemon::start();
    kill_keeper(&mut daemon);
    // The catalog does not exist, so no broker of this daemon serves, however late the test kills it.
    let mut keeper = spawn(&daemon.socket(), &["--site", "here", "--node", "a", "--catalog", "embedded:127.0.0.1:1"]);
    until("the first broker runs", || !children(keeper.id()).is_empty());
    let killed = kill_brokers_at_once(keeper.id());
    kill(keeper.id(), "TERM");
    let ended = keeper.wait().unwrap();
    assert!(ended.success(), "{ended}");
    assert!((2..50).contains(&killed), "{killed} brokers in two seconds");
    daemon.keeper = spawn(&daemon.socket(), &[]);
    daemon.stop();
}

/// The files of a daemon are removed while it runs, and another daemon begins at the same path.
#[test]
fn a_daemon_whose_files_were_removed_leaves_those_of_the_next_daemon_alone() {
    let mut former = Daemon::start();
    for file in std::fs::read_dir(former.folder.path()).unwrap() {
        std::fs::remove_file(file.unwrap().path()).unwrap();
    }
    let mut next = spawn(&former.socket(), &[]);
    let session = former.newcomer();
    let region = session.region("frames", Mode::CreateOnly, 1 << 20, None).unwrap();
    former.kill_broker();
    until("the former daemon has another broker", || !children(former.keeper.id()).is_empty());
    std::thread::sleep(Duration::from_millis(300));
    for broker in children(next.id()) {
        kill(broker, "KILL");
    }
    assert_eq!(session.list().unwrap().segments.iter().map(|s| s.id).collect::<Vec<_>>(), [region.id()]);
    kill(former.keeper.id(), "TERM");
    assert!(former.keeper.wait().unwrap().success());
    let other = former.newcomer();
    assert_eq!(other.region("frames", Mode::OpenOnly, 0, None).unwrap().id(), region.id());
    drop(region);
    session.close().unwrap();
    other.close().unwrap();
    kill(next.id(), "TERM");
    assert!(next.wait().unwrap().success());
    assert_eq!(std::fs::read_dir(former.folder.path()).unwrap().count(), 0);
}

/// Gives the inode numbers of the journals that the broker of this keeper has open.
fn open_journals(keeper: u32) -> BTreeSet<u64> {
    let brokers = children(keeper);
    let files = brokers.iter().flat_map(|broker| std::fs::read_dir(format!("/proc/{broker}/fd")).into_iter().flatten());
    let paths = files.map(|file| file.unwrap().path());
    let journals = paths.filter(|path| {
        std::fs::read_link(path).is_ok_and(|target| target.to_string_lossy().contains("endpoint.sock.journal"))
    });
    journals.filter_map(|path| Some(std::fs::metadata(path).ok()?.ino())).collect()
}

/// Some files of a daemon are removed while it runs, and another daemon begins at the same path, where it finds the
/// journal of the daemon that runs.
fn daemons_have_a_journal_each(removed: &[&str]) {
    let mut former = Daemon::start();
    let (mut raw, _) = Raw::join(&former.socket());
    let (made, _) = raw.ask(&open("frames", OpenMode::CreateOnly, 8192, 0)).unwrap();
    assert!(matches!(made, Answer::Segment { .. }), "{made:?}");
    raw.ask(&Request::MakeWorkflow { quota: 0, name: "w".into() }).unwrap();
    // The broker of the former daemon can be reached through this endpoint, whose socket the other daemon does not have.
    let path = former.folder.path().join("task.sock");
    let make = Request::MakeEndpoint { workflow: "w".into(), task: "t".into(), grants: vec![] };
    let (made, _) = raw.ask_with(&make, &[crossdock_os::socket::listen(&path).unwrap().as_fd()]).unwrap();
    assert!(matches!(made, Answer::Done { .. }), "{made:?}");
    for file in ["endpoint.sock", "endpoint.sock.lock"].iter().chain(removed) {
        std::fs::remove_file(former.folder.path().join(file)).unwrap();
    }
    let mut next = spawn(&former.socket(), &[]);
    let session = former.newcomer();
    let region = session.region("later", Mode::CreateOnly, 1 << 20, None).unwrap();
    former.kill_broker();
    let mut task = None;
    until("the former daemon serves again", || {
        let options = ConnectOptions { socket: Some(path.clone()), ..former.options() };
        task = Session::connect(&options).ok();
        task.is_some()
    });
    let (of_former, of_next) = (open_journals(former.keeper.id()), open_journals(next.id()));
    assert!(!of_former.is_empty() && !of_next.is_empty(), "{of_former:?} {of_next:?}");
    assert!(of_former.is_disjoint(&of_next), "{of_former:?} {of_next:?}");
    let listed = || {
        let segments = session.list().unwrap().segments.into_iter();
        segments.map(|segment| (segment.name, segment.id)).collect::<Vec<_>>()
    };
    let before = listed();
    assert!(before.iter().any(|(_, id)| *id == region.id()), "{before:?}");
    children(next.id()).into_iter().for_each(|broker| kill(broker, "KILL"));
    assert_eq!(listed(), before);
    drop((region, task, raw));
    session.close().unwrap();
    for keeper in [&mut former.keeper, &mut next] {
        kill(keeper.id(), "TERM");
        assert!(keeper.wait().unwrap().success());
    }
    std::fs::remove_file(path).unwrap();
    assert_eq!(std::fs::read_dir(former.folder.path()).unwrap().count(), 0);
}

#[test]
fn a_daemon_whose_lock_was_removed_and_the_next_daemon_have_a_journal_each() {
    daemons_have_a_journal_each(&[]);
}

#[test]
fn a_daemon_whose_lock_and_roll_were_removed_and_the_next_daemon_have_a_journal_each() {
    daemons_have_a_journal_each(&["endpoint.sock.roll"]);
}

#[test]
fn a_daemon_that_never_served_leaves_nothing() {
    let folder = Daemon::folder();
    let socket = folder.path().join("endpoint.sock");
    for descriptors in [8, 12, 16] {
        fail_to_start(&socket, descriptors);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "with {descriptors} descriptors");
    }
    end_before_it_serves(&socket);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_death_is_noticed_while_there_is_no_daemon_and_after_it_has_come_back() {
    for comes_back in [false, true] {
        let mut daemon = Daemon::start();
        let session = daemon.session();
        let port = session.port("p", End::Consumer, &PortOptions::default(), None).unwrap();
        let mut producer = helper("helper_produces", &daemon);
        port.wait_peer(Some(Duration::from_secs(10))).unwrap();
        kill_keeper(&mut daemon);
        if comes_back {
            daemon.keeper = spawn(&daemon.socket(), &[]);
            drop(daemon.newcomer());
        }
        let waiting = std::thread::spawn(move || {
            let error = port.receive(Some(Duration::from_secs(20))).map(drop).unwrap_err();
            (error.status, Instant::now())
        });
        std::thread::sleep(Duration::from_millis(200));
        assert!(!waiting.is_finished(), "the producer lives");
        let killed = Instant::now();
        producer.kill().unwrap();
        producer.wait().unwrap();
        let (status, noticed) = waiting.join().unwrap();
        assert_eq!(status, Status::PeerDied);
        let took = noticed - killed;
        assert!(took < Duration::from_secs(1), "noticed after {took:?}, 100 ms are promised on a machine that is idle");
        if comes_back {
            drop(session);
            daemon.stop();
        }
    }
}

#[test]
#[ignore = "run by the test above, in a process of its own"]
fn helper_produces() {
    let Some(session) = session_of_helper() else { return };
    let _port = session.port("p", End::Producer, &PortOptions::default(), None).unwrap();
    std::thread::sleep(Duration::from_secs(30));
}

#[test]
fn without_descriptors_a_call_fails_and_the_session_lives() {
    let daemon = Daemon::start();
    let status = helper("helper_runs_out_of_descriptors", &daemon).wait().unwrap();
    assert!(status.success(), "{status}");
    daemon.stop();
}

#[test]
#[ignore = "run by the test above, in a process of its own"]
fn helper_runs_out_of_descriptors() {
    let Some(session) = session_of_helper() else { return };
    let region = session.region("r", Mode::CreateOnly, 1 << 20, None).unwrap();
    let mut taken = take_all_descriptors();
    for left in 0..4 {
        // A region takes one descriptor.
        let opened = session.region("other", Mode::OpenOrCreate, 1 << 20, None).map(drop);
        assert_eq!(opened.is_ok(), left > 0, "{left} descriptors are left: {opened:?}");
        if let Err(error) = opened {
            assert_eq!(error.status, Status::NoSpace, "{error}");
            assert!(error.to_string().contains("ulimit -n"), "{error}");
            assert!(session.list().is_ok(), "the session goes on");
        }
        taken.pop();
    }
    drop(taken);
    assert_eq!(session.list().unwrap().members.len(), 1);
    let own = |key: &str, level| {
        session.create_item(key, &ItemOptions { level, ..ItemOptions::bytes(1000) }).unwrap().transfer("b").unwrap();
    };
    own("first", ItemLevel::Verified);
    own("second", ItemLevel::Verified);
    own("third", ItemLevel::Cooperative);
    let b = session_of_helper_as(Some("b")).unwrap();
    // This call reserves a place for the descriptors of items.
    drop(b.access_item("first", None).unwrap());
    let taken = take_all_descriptors();
    for key in ["first", "second", "second", "third"] {
        let opened = b.access_item(key, None).map(drop);
        assert!(opened.is_ok(), "{key}: {opened:?}");
    }
    drop(taken);
    b.close().unwrap();
    session.region("third", Mode::CreateOnly, 1 << 20, None).map(drop).unwrap();
    drop(region);
    session.close().unwrap();
}

/// Tests for a former defect: members that still used the liveness table of a dead daemon believed that new members
/// were dead, and used the blocks of these new members.
#[test]
fn blocks_of_living_members_stay_theirs_while_keepers_are_killed() {
    let mut daemon = Daemon::start();
    let mut workers = vec![helper("helper_uses_the_heap", &daemon), helper("helper_uses_the_heap", &daemon)];
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(300));
        kill_keeper(&mut daemon);
        daemon.keeper = spawn(&daemon.socket(), &[]);
        drop(daemon.newcomer());
        workers.push(helper("helper_uses_the_heap", &daemon));
    }
    for mut worker in workers {
        let status = worker.wait().unwrap();
        assert!(status.success(), "{status}");
    }
    daemon.stop();
}

#[test]
#[ignore = "run by the test above, in a process of its own"]
fn helper_uses_the_heap() {
    let Some(options) = options_of_helper() else { return };
    // The test may kill the daemon while this process starts.
    let session = connect_to_next_daemon(&options);
    let region = session.region("heap", Mode::OpenOrCreate, 64 << 20, None).unwrap();
    use_heap(&region, session.member().0);
}

#[test]
fn a_keeper_that_is_stopped_holds_no_member_up() {
    let daemon = Daemon::start();
    let session = daemon.session();
    support::kill(daemon.keeper.id(), "STOP");
    let other = daemon.newcomer();
    let region = other.region("r", Mode::CreateOnly, 1 << 20, None).unwrap();
    let same = session.region("r", Mode::OpenOnly, 0, None).unwrap();
    assert_eq!(region.id(), same.id());
    support::kill(daemon.keeper.id(), "CONT");
    drop((region, same));
    daemon.kill_broker();
    assert!(session.region("r", Mode::OpenOnly, 0, None).is_ok(), "the keeper had taken it in");
    session.close().unwrap();
    other.close().unwrap();
    daemon.stop();
}

/// Tests for a former defect: a member without a free descriptor lost its connection, and the daemon took it for dead
/// although it was alive. Another member then got the first member's heap slot, and both members used the slot.
#[test]
fn bystanders_blocks_stay_theirs_while_members_run_out_of_descriptors() {
    let daemon = Daemon::start();
    let mut workers = vec![helper("helper_uses_the_heap", &daemon), helper("helper_uses_the_heap", &daemon)];
    let mut crowded = [(); 2].map(|()| CrowdedMember::start(&daemon));
    for member in &mut crowded {
        member.wait_until_refused();
    }
    for _ in 0..4 {
        std::thread::sleep(Duration::from_millis(300));
        // Members without a free descriptor cannot connect to the next broker. This broker gives slots of the liveness
        // table to new members. It must not give them the slots of the members that cannot connect.
        daemon.kill_broker();
        drop(daemon.newcomer());
        workers.push(helper("helper_uses_the_heap", &daemon));
    }
    for worker in workers.iter_mut().chain(crowded.iter_mut().map(|member| &mut member.process)) {
        let status = worker.wait().unwrap();
        assert!(status.success(), "{status}");
    }
    daemon.stop();
}

/// The line that a member without descriptors writes when one of its calls was refused for this reason.
const REFUSED: &str = "refused: no descriptor is free";

struct CrowdedMember {
    process: Child,
    /// What the member writes. It must stay open until the member's end.
    lines: Lines<BufReader<ChildStdout>>,
}

impl CrowdedMember {
    fn start(daemon: &Daemon) -> Self {
        let mut program = command_of_helper("helper_uses_the_heap_without_descriptors", daemon);
        let mut process = program.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { process, lines }
    }

    fn wait_until_refused(&mut self) {
        assert!(self.lines.any(|line| line.unwrap().ends_with(REFUSED)), "it had no descriptor left");
    }
}

#[test]
#[ignore = "run by the test above, in a process of its own"]
fn helper_uses_the_heap_without_descriptors() {
    let Some(session) = session_of_helper() else { return };
    let region = session.region("heap", Mode::OpenOrCreate, 64 << 20, None).unwrap();
    // Without a descriptor, the heap cannot become larger. So this member makes it large enough for its blocks first.
    let blocks: Vec<_> = (1..=300).map(|round| region.allocate(8 * words_of(round) as u64, 8).unwrap()).collect();
    blocks.into_iter().for_each(|block| region.deallocate(block).unwrap());
    // With a low limit, all descriptors are soon taken.
    limit_descriptors(Some(100));
    let taken = take_all_descriptors();
    // The test kills no broker before it has read the line, so the session has a connection.
    let refused = session.region("other", Mode::OpenOrCreate, 1 << 20, None).map(drop);
    assert_eq!(refused.map_err(|error| error.status), Err(Status::NoSpace));
    drop(taken);
    println!("{REFUSED}");
    let works = std::thread::spawn({
        let (region, member) = (region.clone(), session.member().0);
        move || use_heap(&region, member)
    });
    while !works.is_finished() {
        let taken = take_all_descriptors();
        std::thread::sleep(Duration::from_millis(200));
        drop(taken);
        // The session can connect to the next broker now, and goes on.
        session.list().unwrap();
    }
    works.join().unwrap();
}

fn take_all_descriptors() -> Vec<std::fs::File> {
    std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect()
}

/// Gives the size of the block that `use_heap` allocates in this round.
fn words_of(round: u64) -> usize {
    1 + (round * 7919 % 200) as usize
}

/// Fills blocks of the heap, and checks later that each block still has its contents. Ends after two seconds, but not
/// before it has checked 300 blocks.
fn use_heap(region: &Region, tag: u64) {
    let mut blocks = std::collections::VecDeque::new();
    let mut checked = 0;
    let mut round = 0u64;
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(2) || checked < 300 {
        assert!(began.elapsed() < Duration::from_secs(60), "{checked} blocks in a minute");
        round += 1;
        let words = words_of(round);
        let offset = region.allocate(8 * words as u64, 8).unwrap();
        // SAFETY: the block belongs to this member and has `words` words.
        let block =
            || unsafe { std::slice::from_raw_parts_mut(region.base().add(offset as usize).cast::<u64>(), words) };
        block().fill(tag ^ round);
        blocks.push_back((offset, words, round));
        if blocks.len() > 300 {
            let (offset, words, round) = blocks.pop_front().unwrap();
            // SAFETY: the block belongs to this member and has `words` words.
            let block = unsafe { std::slice::from_raw_parts(region.base().add(offset as usize).cast::<u64>(), words) };
            assert!(block.iter().all(|word| *word == tag ^ round), "another member's bytes in block {offset}");
            region.deallocate(offset).unwrap();
            checked += 1;
        }
    }
}

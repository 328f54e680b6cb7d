//! Tests in which the wall clocks of nodes jump by months, forwards and backwards, while items go from node to node. A
//! small library, which is loaded into the daemons, changes the time that they read. So the clock of the machine itself
//! stays as it is.

mod support;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use crossdock_client::{ConnectOptions, ItemOptions, Mode, Session};
use crossdock_layout::Status;
use crossdock_layout::wire::NodeState;
use support::sites::{Site, connect, until};
use support::{Daemon, spawn_in};

const PATIENCE: Option<Duration> = Some(Duration::from_secs(120));
const DAY: i64 = 86_400;

/// The C source of the library that is loaded into the daemons. The library adds a number of seconds, which it reads
/// from a file, to the wall clock's time. The variable `CLOCK_SHIFT` names the file.
const SHIFT: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static volatile const long *shift;
__attribute__((constructor)) static void begin(void) {
    int file = open(getenv("CLOCK_SHIFT"), O_RDONLY | O_CLOEXEC);
    void *at = mmap(0, sizeof(long), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (at == MAP_FAILED) abort();
    shift = at;
}
int clock_gettime(clockid_t clock, struct timespec *time) {
    int failed = syscall(SYS_clock_gettime, clock, time);
    if (!failed && clock == CLOCK_REALTIME) time->tv_sec += *shift;
    return failed;
}
"#;

/// A daemon whose wall clock the test can shift.
struct Shifted {
    daemon: Daemon,
    shift: PathBuf,
}

impl Shifted {
    fn start(site: &Site, node: &str, catalog: &str, library: &Path, days: i64) -> Self {
        Self::start_with(&site.arguments(node, catalog), node, library, days)
    }

    fn start_with(arguments: &[&str], node: &str, library: &Path, days: i64) -> Self {
        let folder = Daemon::folder();
        let shift = library.with_file_name(node);
        std::fs::write(&shift, (days * DAY).to_le_bytes()).unwrap();
        let variables = [("LD_PRELOAD", library), ("CLOCK_SHIFT", &shift)];
        let keeper = spawn_in(&folder.path().join("endpoint.sock"), arguments, &variables);
        let daemon = Daemon { folder, keeper };
        until("the daemon listens", || Session::connect(&daemon.options()).is_ok());
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", daemon.broker())).unwrap();
        assert!(maps.contains("shift.so"), "the daemon reads the shifted clock");
        Self { daemon, shift }
    }

    /// Lets the wall clock jump: from now on it is `days` days ahead of the clock of the machine.
    fn jump(&self, days: i64) {
        use std::os::unix::fs::FileExt;
        let file = std::fs::File::options().write(true).open(&self.shift).unwrap();
        file.write_all_at(&(days * DAY).to_le_bytes(), 0).unwrap();
    }

    fn is_joined_with(&self, other: &str) -> bool {
        let session = Session::connect(&ConnectOptions { visitor: true, ..self.daemon.options() }).unwrap();
        let nodes = session.nodes().unwrap();
        let has = |name: &str, state| nodes.iter().any(|node| (node.name.as_str(), node.state) == (name, state));
        let own = if other == "b" { "a" } else { "b" };
        has(own, NodeState::Here) && has(other, NodeState::Joined)
    }
}

/// Builds the library that shifts the clock, and checks that a program with it reads the shifted clock.
fn library() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let (source, built) = (folder.path().join("shift.c"), folder.path().join("shift.so"));
    std::fs::write(&source, SHIFT).unwrap();
    let made = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&built).arg(&source).status().unwrap();
    assert!(made.success());
    let shift = folder.path().join("tried");
    std::fs::write(&shift, (250 * DAY).to_le_bytes()).unwrap();
    let date = Command::new("date").arg("+%s").env("LD_PRELOAD", &built).env("CLOCK_SHIFT", &shift).output().unwrap();
    let shifted: i64 = String::from_utf8(date.stdout).unwrap().trim().parse().unwrap();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() as i64;
    assert!((shifted - now - 250 * DAY).abs() < 1000, "the clock was not shifted");
    (folder, built)
}

/// A daemon is killed and its files are removed, and the wall clock is set back. The ids that the next daemon gives out
/// are greater than those of the first daemon. If the next daemon gave out an old id again, an old handle could name a
/// new object.
#[test]
fn a_daemon_without_a_journal_gives_no_id_out_again_although_the_clock_was_set_back() {
    let (_folder, built) = library();
    let mut node = Shifted::start_with(&[], "alone", &built, 250);
    let mut last = 0;
    // The last two shifts set the clock to a time before 2026.
    for days in [250, 0, -30, -5000, -5000] {
        let session = node.daemon.session();
        let id = session.region("r", Mode::CreateOnly, 1 << 20, None).unwrap().id().0;
        assert!(id > last, "before the shift by {days} days the id {id} follows {last}");
        last = id;
        drop(session);
        node.jump(days);
        node.daemon.kill_node();
        node.daemon.keeper.wait().unwrap();
        for file in std::fs::read_dir(node.daemon.folder.path()).unwrap() {
            std::fs::remove_file(file.unwrap().path()).unwrap();
        }
        let variables = [("LD_PRELOAD", built.as_path()), ("CLOCK_SHIFT", &node.shift)];
        node.daemon.keeper = spawn_in(&node.daemon.socket(), &[], &variables);
        node.daemon.wait_until_up();
    }
}

#[test]
fn jumps_of_wall_clocks_end_no_lease_and_repeat_no_id() {
    let (_folder, built) = library();
    let site = Site::new();
    let a = Shifted::start(&site, "a", &format!("keep:{}", site.catalog), &built, 0);
    let catalog = format!("embedded:{}", site.catalog);
    let b = Shifted::start(&site, "b", &catalog, &built, 0);
    until("they see each other", || a.is_joined_with("b") && b.is_joined_with("a"));
    let (one, two) = (connect(&a.daemon, "one"), connect(&b.daemon, "two"));
    let region = |session: &Session, name: &str| session.region(name, Mode::CreateOnly, 1 << 20, None);
    let item = one.create_item("ball", &ItemOptions::bytes(1 << 20)).unwrap();
    item.transfer("two").unwrap();
    let (mut ids, mut held) = (BTreeSet::new(), Vec::new());
    let began = Instant::now();
    let jumps = [0, 250, -250, 3000, 0, -30];
    for (turn, days) in jumps.into_iter().enumerate() {
        // First the clock of one node jumps, then the clock of the other node.
        for (node, session, other, name) in [(&a, &one, &two, "a"), (&b, &two, &one, "b")] {
            node.jump(days);
            for (part, restart) in [false, true].into_iter().enumerate() {
                if restart {
                    // A broker reads the wall clock only when it starts. So the next broker of the node reads the new
                    // time.
                    node.daemon.kill_broker();
                    until("they are together again", || a.is_joined_with("b") && b.is_joined_with("a"));
                }
                let made = format!("{name}-{turn}-{part}");
                let fresh = region(session, &made).unwrap();
                assert!(ids.insert(fresh.id()), "{} was given out twice", fresh.id());
                held.push(fresh);
                let error = region(other, &made).unwrap_err();
                assert_eq!(error.status, Status::Exists, "{error}");
                assert!(error.to_string().contains(&format!("is on node {name}")), "{error}");
                for (session, next) in [(&two, "one"), (&one, "two")] {
                    let mut item = session.access_item("ball", PATIENCE).unwrap();
                    item.bytes_mut()[0] += 1;
                    item.transfer(next).unwrap();
                }
                assert!(a.is_joined_with("b") && b.is_joined_with("a"), "a jump ended a lease");
            }
        }
    }
    // The test runs for at least eight seconds, so each node renews its lease several times. Afterwards, every name
    // must still belong to its node.
    while began.elapsed() < Duration::from_secs(8) {
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(a.is_joined_with("b") && b.is_joined_with("a"));
    assert!(region(&two, "a-0-0").unwrap_err().to_string().contains("is on node a"));
    let item = two.access_item("ball", PATIENCE).unwrap();
    assert_eq!(usize::from(item.bytes()[0]), 8 * jumps.len());
    item.destroy().unwrap();
    // The daemons of node `c` are started one after another, each without the journal of the daemon before it. Even so,
    // none of these daemons may give out an id that an earlier daemon has given out.
    for days in [0, 3000, -250] {
        let c = Shifted::start(&site, "c", &catalog, &built, days);
        let session = connect(&c.daemon, "three");
        let id = region(&session, "c").unwrap().id();
        assert!(ids.iter().all(|former| *former != id), "{id} was given out twice");
        ids.insert(id);
        drop(session);
        c.daemon.stop();
    }
}

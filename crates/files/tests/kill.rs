//! Kills processes with SIGKILL: the service at each step of a publication and of a fetch from another host, a
//! producer, and a waiting consumer. Consumers never see a part of a file, every wait ends, and no file or process is
//! left behind. The last two tests stop the service.
#![cfg(feature = "fault-points")]

mod announced;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crossdock_catalog::Memory;
use crossdock_core::fault;
use crossdock_core::files::{FileWaitOutcome, Views};
use crossdock_files::{
    Exchange, FAULT_POINTS, FETCH_FAULT_POINTS, Keep, Publish, RemoteHosts, SPILL_FAULT_POINTS, Service,
};
use crossdock_layout::files::Phase;
use crossdock_link::{Choice, Transports, Trust};
use crossdock_os::child::{self, Signal};
use crossdock_os::fanotify::OpenWatch;
use crossdock_os::process;
use crossdock_os::testing::until;

const LONG: Duration = Duration::from_secs(60);
/// Environment variables for a process that a test starts: which part it plays, and in which folder.
const PART: &str = "CROSSDOCK_TEST_PART";
const ROOT: &str = "CROSSDOCK_TEST_ROOT";
/// The environment variable with the address at which the service of the producers' host listens.
const FROM: &str = "CROSSDOCK_TEST_FROM";

fn content() -> Vec<u8> {
    (0..100_000u32).flat_map(u32::to_le_bytes).collect()
}

fn start(root: &Path, single: bool) -> Service {
    let keep = if single { Keep::Consumed { readers: vec![9, 9] } } else { Keep::All };
    let service = Service::start(root, &root.with_extension("notice"), "simulate", Publish::Close, keep).unwrap();
    service.producers(Phase::Producing);
    service
}

#[test]
#[ignore = "a part that other tests start in a process of its own"]
fn child() {
    let (Ok(part), Ok(root)) = (std::env::var(PART), std::env::var(ROOT)) else { return };
    let root = PathBuf::from(root);
    let say = |word: &str| fs::write(root.with_extension("said"), word).unwrap();
    match part.as_str() {
        "service" | "service-single" => {
            fault::arm_from_environment();
            let service = start(&root, part == "service-single");
            say("ready");
            std::thread::sleep(LONG);
            drop(service);
        }
        "service-newest" => {
            fault::arm_from_environment();
            let service = newest(&root);
            say("ready");
            std::thread::sleep(LONG);
            drop(service);
        }
        "spills" => {
            fault::arm_from_environment();
            let service = spilling(&root);
            say("ready");
            std::thread::sleep(LONG);
            drop(service);
        }
        "fetches" => {
            fault::arm_from_environment();
            let (service, exchange) = fetching(&root, &std::env::var(FROM).unwrap());
            say("ready");
            std::thread::sleep(LONG);
            drop((exchange, service));
        }
        "writes" => {
            let mut file = fs::File::create(root.join("stage/a")).unwrap();
            file.write_all(&content()[..1000]).unwrap();
            process::kill_self();
        }
        "closes" => {
            fs::write(root.join("stage/a"), content()).unwrap();
            process::kill_self();
        }
        "waits" => {
            say("ready");
            let _ = wait(&root, &root.join("published"));
        }
        other => panic!("no part {other}"),
    }
}

/// Starts a service that keeps the newest file only.
fn newest(root: &Path) -> Service {
    let notice = root.with_extension("notice");
    let service = Service::start(root, &notice, "simulate", Publish::Close, Keep::Newest(1)).unwrap();
    service.producers(Phase::Producing);
    service
}

/// Starts a service whose quota of memory is so small that the service soon moves each file to the disk.
fn spilling(root: &Path) -> Service {
    let mut service = start(root, false);
    service.spill_to(&root.with_extension("disk"), 1000).unwrap();
    service
}

/// Starts the service of the host `b`, whose two consumers read what the host `a` publishes.
fn fetching(root: &Path, from: &str) -> (Service, Exchange) {
    let service = start(root, true);
    let across = RemoteHosts {
        produces: false,
        consumes: true,
        readers: Vec::new(),
        origins: vec!["a".into()],
        wait: LONG,
        path: "/data/frames".into(),
    };
    let transports = Transports::new(&Trust::Loopback, Choice::Auto).unwrap();
    let catalog = Memory::new();
    announced::announce(&catalog, "f", "a", from);
    let exchange =
        Exchange::start(&transports, "b", "", &announced::site(catalog), &[("f", &service, &across)]).unwrap();
    (service, exchange)
}

fn play(part: &str, root: &Path, point: Option<&str>) -> Child {
    let point: Vec<(&str, &str)> = point.map(|point| ("CROSSDOCK_FAULT", point)).into_iter().collect();
    play_with(part, root, &point)
}

fn play_with(part: &str, root: &Path, variables: &[(&str, &str)]) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["child", "--exact", "--ignored"]).env(PART, part).env(ROOT, root).stdout(Stdio::null());
    command.envs(variables.iter().copied()).spawn().unwrap()
}

fn wait(root: &Path, folder: &Path) -> FileWaitOutcome {
    wait_until(root, &folder.join("a"), LONG)
}

/// Waits as a consumer does for `file`, at most for `limit`.
fn wait_until(root: &Path, file: &Path, limit: Duration) -> FileWaitOutcome {
    let (folder, notice) = (file.parent().unwrap(), root.with_extension("notice"));
    let line = Views::line(folder.to_str().unwrap(), notice.to_str().unwrap(), limit, &[]);
    Views::parse(&line).unwrap().await_file(file.to_str().unwrap().as_bytes())
}

/// The path of a folder in `/dev/shm`. Dropping this value removes the folder and the files beside it.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        Self(PathBuf::from(format!("/dev/shm/crossdock-kill-{name}-{}", std::process::id())))
    }

    fn await_said(&self) {
        until("the other process", || self.0.with_extension("said").exists());
    }

    /// Tells whether consumers see the file. This function panics if they see only a part of the file.
    fn is_seen(&self, folder: &Path) -> bool {
        match fs::File::open(folder.join("a")) {
            Ok(mut file) => {
                let mut bytes = Vec::new();
                file.read_to_end(&mut bytes).unwrap();
                assert!(bytes == content(), "{} bytes are seen", bytes.len());
                true
            }
            Err(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
                false
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
        let _ = fs::remove_dir_all(self.0.with_extension("disk"));
        for ending in ["notice", "said"] {
            let _ = fs::remove_file(self.0.with_extension(ending));
        }
    }
}

#[test]
fn a_service_that_dies_at_any_step_shows_nothing_in_part_and_the_next_one_goes_on() {
    for single in [false, true] {
        for point in FAULT_POINTS.iter().filter(|point| single || **point != "files.copied") {
            let place = Place::new(&format!("{point}-{single}"));
            let root = &place.0;
            let part = if single { "service-single" } else { "service" };
            let mut service = play(part, root, Some(point));
            place.await_said();
            let folders: Vec<PathBuf> = match single {
                false => vec![root.join("published")],
                true => vec![root.join("for.0"), root.join("for.1"), root.join("published")],
            };
            let (waits_at, wait_root) = (folders[0].clone(), root.clone());
            let waiter = std::thread::spawn(move || wait(&wait_root, &waits_at));
            fs::write(root.join("stage/a"), content()).unwrap();
            let status = service.wait().unwrap();
            assert_eq!(status.signal(), Some(9), "{point}: the service did not come there");
            for folder in &folders {
                place.is_seen(folder);
            }
            let next = start(root, single);
            assert_eq!(waiter.join().unwrap(), FileWaitOutcome::Published, "{point}");
            until("every consumer to see the file", || folders.iter().all(|folder| place.is_seen(folder)));
            assert_eq!(fs::read_dir(root.join("new")).unwrap().count(), 0, "{point}: a link is left");
            drop(next);
        }
    }
}

#[test]
fn a_service_that_dies_when_the_newest_file_appears_has_dropped_the_oldest_one_and_the_next_one_counts_on() {
    // The service is killed at the fault point `files.renamed`, just after the second file was renamed into the
    // consumers' folder. So the test sees what consumers see in the middle of this publication.
    let place = Place::new("newest");
    let root = &place.0;
    let mut service = play("service-newest", root, Some("files.renamed:2"));
    place.await_said();
    let published = root.join("published");
    let (old, new) = (published.join("old"), published.join("new"));
    fs::write(root.join("stage/old"), "1").unwrap();
    until("the first file", || old.exists());
    fs::write(root.join("stage/a"), content()).unwrap();
    assert_eq!(service.wait().unwrap().signal(), Some(9), "the service did not come there");
    assert!(place.is_seen(&published) && !old.exists(), "consumers see more files than the newest one");
    let next = newest(root);
    fs::write(root.join("stage/new"), "2").unwrap();
    until("the third file", || new.exists());
    assert!(!place.is_seen(&published), "the next service does not count the file of the earlier one");
    drop(next);
}

#[test]
fn a_service_that_dies_while_it_moves_a_file_to_the_disk_loses_nothing_and_the_next_one_goes_on() {
    for point in SPILL_FAULT_POINTS {
        let place = Place::new(point);
        let root = &place.0;
        let faces = [root.join("published"), root.join("spilled")];
        let mut service = play("spills", root, Some(point));
        place.await_said();
        fs::write(root.join("stage/a"), content()).unwrap();
        assert_eq!(service.wait().unwrap().signal(), Some(9), "{point}: the service did not come there");
        assert!(faces.iter().filter(|face| place.is_seen(face)).count() > 0, "{point}: the file is lost");
        let next = spilling(root);
        until("the file to be on the disk alone", || place.is_seen(&faces[1]) && !place.is_seen(&faces[0]));
        assert!(!root.join("stage/a").exists(), "{point}");
        assert_eq!(
            fs::read_dir(root.with_extension("disk").join("new")).unwrap().count(),
            0,
            "{point}: a copy is left"
        );
        fs::write(root.join("stage/b"), "later").unwrap();
        until("the next file", || faces.iter().any(|face| fs::read(face.join("b")).is_ok_and(|b| b == b"later")));
        // The next service itself may have removed the name `a` from `stage`. The next service has handled the event of
        // this removal before the event of `b`. If this service took its own removal for a removal by a producer,
        // consumers would not see `a` any more.
        assert!(place.is_seen(&faces[1]), "{point}: the file is lost");
        drop(next);
    }
}

#[test]
fn a_service_that_dies_at_any_step_of_a_fetch_shows_nothing_in_part_and_the_next_one_fetches_it_whole() {
    for point in FETCH_FAULT_POINTS {
        let (here, there) = (Place::new(&format!("{point}-a")), Place::new(&format!("{point}-b")));
        let producers = start(&here.0, false);
        let across = RemoteHosts {
            produces: true,
            consumes: false,
            readers: vec!["b".into()],
            origins: Vec::new(),
            wait: LONG,
            path: "/data/frames".into(),
        };
        let transports = Transports::new(&Trust::Loopback, Choice::Auto).unwrap();
        let exchange = Exchange::start(
            &transports,
            "a",
            "127.0.0.1:0",
            &announced::site(Memory::new()),
            &[("f", &producers, &across)],
        );
        let exchange = exchange.unwrap();
        let from = exchange.address().to_owned();
        let root = &there.0;
        let mut service = play_with("fetches", root, &[("CROSSDOCK_FAULT", *point), (FROM, &from)]);
        there.await_said();
        fs::write(here.0.join("stage/a"), content()).unwrap();
        assert_eq!(service.wait().unwrap().signal(), Some(9), "{point}: the service did not come there");
        let folders = [root.join("for.0"), root.join("for.1"), root.join("published")];
        for folder in &folders {
            there.is_seen(folder);
        }
        let (next, fetches) = fetching(root, &from);
        for folder in &folders {
            assert_eq!(wait(root, folder), FileWaitOutcome::Published, "{point}");
            assert!(there.is_seen(folder), "{point}");
        }
        for folder in ["fetched", "new"] {
            assert_eq!(fs::read_dir(root.join(folder)).unwrap().count(), 0, "{point}: a file is left in {folder}");
        }
        assert_eq!(next.report().troubles, Vec::<String>::new(), "{point}");
        drop((fetches, next, exchange, producers));
    }
}

#[test]
fn a_producer_that_is_killed_never_shows_a_part_of_its_file() {
    for part in ["writes", "closes"] {
        let place = Place::new(part);
        let root = &place.0;
        let service = start(root, false);
        let known = service.report().writers_known;
        let status = play(part, root, None).wait().unwrap();
        assert_eq!(status.signal(), Some(9));
        service.producers(Phase::Failed);
        let report = service.report();
        // Without root the service does not notice killed writers (docs/files.md). Then only the file of the producer
        // that was killed after it had closed the file is known to be whole.
        if known || part == "closes" {
            let seen = place.is_seen(&root.join("published"));
            assert_eq!((report.published, report.torn), (u64::from(seen), u64::from(!seen)), "{part}: {report:?}");
            assert!(!seen || part == "closes");
        }
        drop(service);
    }
}

#[test]
fn a_consumer_that_is_killed_while_it_waits_leaves_nothing_and_holds_up_no_other() {
    let place = Place::new("waits");
    let root = &place.0;
    let service = start(root, false);
    let mut waits = play("waits", root, None);
    place.await_said();
    waits.kill().unwrap();
    assert_eq!(waits.wait().unwrap().signal(), Some(9));
    fs::write(root.join("stage/a"), content()).unwrap();
    assert_eq!(wait(root, &root.join("published")), FileWaitOutcome::Published);
    assert!(place.is_seen(&root.join("published")));
    // The service itself may have the file open for a moment, so the test waits until it is closed.
    until("nothing to be left", || {
        let left = crossdock_files::look(root, &root.with_extension("notice"), "/f").unwrap();
        left.lines.len() == 1 && left.lines[0].waiters.is_empty() && left.lines[0].readers.is_empty()
    });
    drop(service);
}

#[test]
fn while_the_service_is_stopped_published_files_can_be_read_and_waits_end_by_their_deadline() {
    let place = Place::new("stopped");
    let root = &place.0;
    let mut service = play("service", root, None);
    place.await_said();
    let (published, next) = (root.join("published"), root.join("published/next"));
    fs::write(root.join("stage/a"), content()).unwrap();
    assert_eq!(wait(root, &published), FileWaitOutcome::Published);

    let pid = service.id() as i32;
    child::signal(pid, Signal::STOP).unwrap();
    until("the service to be stopped", || process_is_stopped(pid));
    assert!(place.is_seen(&published), "a published file cannot be opened");
    let staged = root.join("stage/next");
    let producer = std::thread::spawn(move || fs::write(staged, "later").unwrap());
    let began = Instant::now();
    let outcome = wait_until(root, &next, Duration::from_millis(300));
    assert!(matches!(outcome, FileWaitOutcome::TimedOut(_)), "{outcome:?}");
    let took = began.elapsed();
    assert!((Duration::from_millis(300)..Duration::from_secs(5)).contains(&took), "{took:?}");
    // If the service runs as root, the kernel asks it before each open of a producer (docs/files.md). So the producer's
    // open waits until the stopped service runs again.
    let is_asked = OpenWatch::new().is_ok();
    assert!(is_asked || producer.is_finished(), "a producer waits for a service that watches no opens");
    assert!(!next.exists(), "the stopped service published a file");

    let (waits_for, wait_root) = (next.clone(), root.clone());
    let waiter = std::thread::spawn(move || wait_until(&wait_root, &waits_for, LONG));
    child::signal(pid, Signal::CONT).unwrap();
    producer.join().unwrap();
    assert_eq!(waiter.join().unwrap(), FileWaitOutcome::Published);
    assert_eq!(fs::read(&next).unwrap(), b"later");
    assert!(place.is_seen(&published));
    service.kill().unwrap();
    service.wait().unwrap();
}

#[test]
fn a_producer_that_waits_for_a_stopped_service_goes_on_when_the_service_is_killed() {
    let place = Place::new("stopped-killed");
    let root = &place.0;
    let mut service = play("service", root, None);
    place.await_said();
    let pid = service.id() as i32;
    child::signal(pid, Signal::STOP).unwrap();
    until("the service to be stopped", || process_is_stopped(pid));
    let staged = root.join("stage/a");
    let producer = std::thread::spawn(move || fs::write(staged, content()).unwrap());
    service.kill().unwrap();
    service.wait().unwrap();
    producer.join().unwrap();
    let next = start(root, false);
    assert_eq!(wait(root, &root.join("published")), FileWaitOutcome::Published);
    assert!(place.is_seen(&root.join("published")));
    drop(next);
}

/// Tells whether the kernel shows the process `pid` as stopped by a signal.
fn process_is_stopped(pid: i32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| stat.contains(") T "))
}

//! Tests of a managed directory on several hosts. As in a run, each host has a service with a store of its own, and
//! they talk through mutual TLS.

mod announced;

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crossdock_catalog::Memory;
use crossdock_core::files::{FileWaitOutcome, Views};
use crossdock_files::{Exchange, Keep, Publish, RemoteHosts, Service};
use crossdock_layout::files::Phase;
use crossdock_link::{Authority, Certificates, Choice, Transports, Trust};
use crossdock_os::testing::until;

const LONG: Duration = Duration::from_secs(120);
const HOURS: Duration = Duration::from_secs(3600);

/// A host of the test, with a store of its own.
struct Host {
    name: &'static str,
    root: PathBuf,
    transports: Transports,
    across: RemoteHosts,
    keep: Keep,
    /// The catalog of this host alone. Tests write into it what other hosts announce.
    catalog: Memory,
    exchange: Option<Exchange>,
    service: Option<Service>,
}

impl Host {
    fn new(authority: &Authority, name: &'static str, keep: &Keep, across: RemoteHosts) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let root = PathBuf::from(format!("/dev/shm/crossdock-hosts-{}-{number}", std::process::id()));
        let papers = authority.issue(name).unwrap();
        let trust = Trust::Certificates(Arc::new(Certificates::new(&papers).unwrap()));
        let transports = Transports::new(&trust, Choice::Auto).unwrap();
        let (keep, catalog) = (keep.clone(), Memory::new());
        let mut host = Self { name, root, transports, across, keep, catalog, exchange: None, service: None };
        host.start();
        host
    }

    /// Makes a host whose exchange with other hosts is not running.
    fn alone(authority: &Authority, name: &'static str, across: RemoteHosts) -> Self {
        let mut host = Self::new(authority, name, &Keep::All, across);
        host.exchange = None;
        host
    }

    fn start(&mut self) {
        let notice = self.root.with_extension("notice");
        let service = Service::start(&self.root, &notice, "simulate on a", Publish::Close, self.keep.clone()).unwrap();
        let directories = [("frames", &service, &self.across)];
        let site = announced::site(self.catalog.client());
        let exchange = Exchange::start(&self.transports, self.name, "127.0.0.1:0", &site, &directories).unwrap();
        (self.service, self.exchange) = (Some(service), Some(exchange));
    }

    fn service(&self) -> &Service {
        self.service.as_ref().unwrap()
    }

    fn meet(&self, addresses: &[(&str, &str)]) {
        for (node, address) in addresses {
            announced::announce(&self.catalog, "frames", node, address);
        }
    }

    fn address(&self) -> String {
        self.exchange.as_ref().unwrap().address().to_owned()
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.root.join("stage").join(name), bytes).unwrap();
    }

    fn published(&self, name: &str) -> PathBuf {
        self.root.join("published").join(name)
    }

    fn wait_for(&self, name: &str, time: Duration) -> FileWaitOutcome {
        let (folder, notice) = (self.root.join("published"), self.root.with_extension("notice"));
        let views = Views::parse(&Views::line(folder.to_str().unwrap(), notice.to_str().unwrap(), time, &[])).unwrap();
        views.await_file(folder.join(name).to_str().unwrap().as_bytes())
    }

    fn wait(&self, name: &str) -> FileWaitOutcome {
        self.wait_for(name, LONG)
    }

    fn fetched(&self) -> u64 {
        self.service().report().fetched
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.exchange = None;
        self.service = None;
        let left = fs::read_dir(self.root.join("fetched")).unwrap().count();
        fs::remove_dir_all(&self.root).unwrap();
        let _ = fs::remove_dir_all(self.root.with_extension("disk"));
        fs::remove_file(self.root.with_extension("notice")).unwrap();
        if !std::thread::panicking() {
            assert_eq!(left, 0, "files are left that were not fetched to their end");
        }
    }
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn across(produces: bool, readers: &[&str], origins: &[&str]) -> RemoteHosts {
    let (consumes, path) = (!origins.is_empty(), "/data/frames".into());
    RemoteHosts { produces, consumes, readers: names(readers), origins: names(origins), wait: LONG, path }
}

/// Makes the host `a` with producers and the host `b` with consumers.
fn two(keep: &Keep) -> (Host, Host) {
    let authority = Authority::make("files", HOURS).unwrap();
    let a = Host::new(&authority, "a", keep, across(true, &["b"], &[]));
    let b = Host::new(&authority, "b", keep, across(false, &[], &["a"]));
    b.meet(&[("a", &a.address())]);
    a.service().producers(Phase::Producing);
    (a, b)
}

#[test]
fn a_file_comes_whole_and_once_with_its_mode_and_time_and_a_waiting_open_gets_it() {
    let (a, b) = two(&Keep::All);
    let bytes: Vec<u8> = (0..1_000_000u32).flat_map(u32::to_le_bytes).collect();
    std::thread::scope(|scope| {
        let waits: Vec<_> = (0..4).map(|_| scope.spawn(|| b.wait("sub/x"))).collect();
        fs::create_dir(a.root.join("stage/sub")).unwrap();
        let made = a.root.join("stage/sub/x.tmp");
        // The mode is set before the file is closed, because the service publishes the file then, and makes it
        // read-only.
        let mut file = fs::File::create(&made).unwrap();
        file.write_all(&bytes).unwrap();
        file.set_permissions(fs::Permissions::from_mode(0o6750)).unwrap();
        drop(file);
        fs::rename(&made, a.root.join("stage/sub/x")).unwrap();
        for wait in waits {
            assert_eq!(wait.join().unwrap(), FileWaitOutcome::Published);
        }
    });
    assert!(fs::read(b.published("sub/x")).unwrap() == bytes);
    let (here, there) = (fs::metadata(a.published("sub/x")).unwrap(), fs::metadata(b.published("sub/x")).unwrap());
    assert_eq!(here.modified().unwrap(), there.modified().unwrap());
    assert_eq!(there.mode() & 0o7777, 0o554, "set-user-id does not come along: the file has another owner here");
    a.write("empty", b"");
    assert_eq!(b.wait("empty"), FileWaitOutcome::Published);
    let report = b.service().report();
    // The file was published under two names, one after the other. The first name may have been removed before it could
    // be fetched.
    assert!((2..=3).contains(&report.fetched), "{report:?}");
    assert_eq!((report.published, report.troubles), (0, Vec::new()));
}

#[test]
fn the_end_of_the_producers_comes_after_all_of_their_files() {
    let (a, b) = two(&Keep::All);
    for number in 0..200 {
        a.write(&format!("{number}"), &[7; 300]);
    }
    a.service().producers(Phase::Ended);
    let FileWaitOutcome::Gone(story) = b.wait("never") else { panic!("the wait does not end") };
    let text = story.to_string();
    assert!(text.contains("simulate on a ended in order") && text.contains("200 files were published"), "{text}");
    assert_eq!((b.fetched(), fs::read_dir(b.root.join("published")).unwrap().count()), (200, 200));
}

#[test]
fn a_failure_of_one_host_is_told_when_the_producers_of_all_hosts_are_gone() {
    let authority = Authority::make("files", HOURS).unwrap();
    let a = Host::new(&authority, "a", &Keep::All, across(true, &["c"], &[]));
    let b = Host::new(&authority, "b", &Keep::All, across(true, &["c"], &[]));
    let c = Host::new(&authority, "c", &Keep::All, across(false, &[], &["a", "b"]));
    c.meet(&[("a", &a.address()), ("b", &b.address())]);
    a.write("of-a", b"a");
    a.service().producers(Phase::Failed);
    b.service().producers(Phase::Producing);
    assert_eq!(c.wait("of-a"), FileWaitOutcome::Published);
    let FileWaitOutcome::TimedOut(story) = c.wait_for("never", Duration::from_secs(1)) else { panic!("b still runs") };
    assert!(story.to_string().contains("simulate on a still runs"), "{story}");
    b.write("of-b", b"b");
    assert_eq!(c.wait("of-b"), FileWaitOutcome::Published);
    b.service().producers(Phase::Ended);
    let FileWaitOutcome::Gone(story) = c.wait("never") else { panic!("the wait does not end") };
    assert!(story.to_string().contains("failed"), "{story}");
}

#[test]
fn what_a_producer_removes_renames_and_replaces_does_so_on_the_other_host() {
    let (a, b) = two(&Keep::All);
    let stage = a.root.join("stage");
    fs::create_dir_all(stage.join("d/e")).unwrap();
    for name in ["d/one", "d/e/two", "d.x", "old"] {
        a.write(name, b"first");
        assert_eq!(b.wait(name), FileWaitOutcome::Published, "{name}");
    }
    let kept = fs::File::open(b.published("old")).unwrap();
    a.write("new", b"second, and longer");
    fs::rename(stage.join("new"), stage.join("old")).unwrap();
    until("the new file", || fs::read(b.published("old")).is_ok_and(|bytes| bytes == b"second, and longer"));
    let mut bytes = [0; 5];
    kept.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"first", "an open file stays as it was");
    fs::remove_dir_all(stage.join("d")).unwrap();
    until("the folder to go", || !b.published("d").exists());
    assert!(b.published("d.x").exists());
    fs::remove_file(stage.join("old")).unwrap();
    until("the file to go", || !b.published("old").exists());
    a.write("old", b"third");
    assert_eq!(b.wait("old"), FileWaitOutcome::Published);
    assert_eq!(fs::read(b.published("old")).unwrap(), b"third");
    fs::create_dir(stage.join("empty")).unwrap();
    until("the empty folder", || b.published("empty").is_dir());
}

#[test]
fn files_of_this_host_and_of_another_one_lie_side_by_side_and_go_each_with_its_producer() {
    let authority = Authority::make("files", HOURS).unwrap();
    let a = Host::new(&authority, "a", &Keep::All, across(true, &["b"], &["b"]));
    let b = Host::new(&authority, "b", &Keep::All, across(true, &["a"], &["a"]));
    let (at_a, at_b) = (a.address(), b.address());
    a.meet(&[("b", &at_b)]);
    b.meet(&[("a", &at_a)]);
    for host in [&a, &b] {
        fs::create_dir(host.root.join("stage/d")).unwrap();
    }
    a.write("d/a", b"of a");
    b.write("d/b", b"of b");
    for host in [&a, &b] {
        for name in ["d/a", "d/b"] {
            assert_eq!(host.wait(name), FileWaitOutcome::Published);
        }
        assert_eq!((host.fetched(), host.service().report().published), (1, 1), "nothing goes round");
    }
    fs::remove_dir_all(a.root.join("stage/d")).unwrap();
    until("the file of a to go", || !b.published("d/a").exists());
    assert!(b.published("d/b").exists(), "the other host's own file stays");
}

#[test]
fn a_name_that_producers_of_two_hosts_write_is_each_hosts_own() {
    let authority = Authority::make("files", HOURS).unwrap();
    let a = Host::new(&authority, "a", &Keep::All, across(true, &["b"], &["b"]));
    let b = Host::new(&authority, "b", &Keep::All, across(true, &["a"], &["a"]));
    a.write("x", b"of a");
    b.write("x", b"of b");
    for host in [&a, &b] {
        assert_eq!(host.wait("x"), FileWaitOutcome::Published);
    }
    let (at_a, at_b) = (a.address(), b.address());
    a.meet(&[("b", &at_b)]);
    b.meet(&[("a", &at_a)]);
    // Each host learns of the changes of the other host in the order in which they were made. So when this file has
    // come, all earlier changes are done too.
    a.write("later", b"of a");
    b.write("later-too", b"of b");
    assert_eq!((a.wait("later-too"), b.wait("later")), (FileWaitOutcome::Published, FileWaitOutcome::Published));
    assert_eq!(
        (fs::read(a.published("x")).unwrap(), fs::read(b.published("x")).unwrap()),
        (b"of a".into(), b"of b".into())
    );
    assert_eq!((a.fetched(), b.fetched()), (1, 1));
}

#[test]
fn a_killed_writer_of_the_other_host_is_part_of_the_story_and_its_file_never_comes() {
    let (a, b) = two(&Keep::All);
    a.write("whole", b"x");
    let path = a.root.join("stage/torn");
    let script = format!("exec 3> {}; echo half >&3; kill -9 $$", path.display());
    let mut writer = std::process::Command::new("sh").args(["-c", &script]).spawn().unwrap();
    assert!(!writer.wait().unwrap().success());
    a.service().producers(Phase::Failed);
    let FileWaitOutcome::Gone(story) = b.wait("never") else { panic!("the wait does not end") };
    let text = story.to_string();
    // Without root the service does not notice killed writers. Then the killed writer's file counts as finished
    // (docs/files.md).
    let known = a.service().report().writers_known;
    assert!(text.contains("simulate on a failed") && text.contains("writer was killed") == known, "{text}");
    assert_eq!((b.fetched(), b.published("torn").exists()), if known { (1, false) } else { (2, true) });
}

#[test]
fn several_directories_share_a_link_and_each_gets_its_own_files() {
    let authority = Authority::make("files", HOURS).unwrap();
    let a = [(); 3].map(|()| Host::alone(&authority, "a", across(true, &["b"], &[])));
    let b = [(); 3].map(|()| Host::alone(&authority, "b", across(false, &[], &["a"])));
    let catalog = Memory::new();
    let exchange = |hosts: &[Host]| {
        let all: Vec<_> =
            hosts.iter().zip(["x", "y", "z"]).map(|(host, name)| (name, host.service(), &host.across)).collect();
        let site = announced::site(catalog.client());
        Exchange::start(&hosts[0].transports, hosts[0].name, "127.0.0.1:0", &site, &all).unwrap()
    };
    let (_from, _to) = (exchange(&a), exchange(&b));
    for (number, (here, there)) in a.iter().zip(&b).enumerate() {
        here.write("f", number.to_string().as_bytes());
        assert_eq!(there.wait("f"), FileWaitOutcome::Published);
        assert_eq!(fs::read_to_string(there.published("f")).unwrap(), number.to_string());
    }
    assert_eq!(b.each_ref().map(Host::fetched), [1, 1, 1]);
}

#[test]
fn a_file_is_kept_until_the_consumers_of_all_hosts_have_read_it() {
    let authority = Authority::make("files", HOURS).unwrap();
    let keep = |readers: &[u32]| Keep::Consumed { readers: readers.to_vec() };
    let a = Host::new(&authority, "a", &keep(&[0]), across(true, &["b", "c"], &[]));
    let b = Host::new(&authority, "b", &keep(&[1, 1]), across(false, &[], &["a"]));
    let c = Host::new(&authority, "c", &keep(&[0]), across(false, &[], &["a"]));
    b.meet(&[("a", &a.address())]);
    a.service().producers(Phase::Producing);
    fs::create_dir(a.root.join("stage/d")).unwrap();
    a.write("d/x", b"x");
    assert_eq!(b.wait("d/x"), FileWaitOutcome::Published);
    assert!(a.published("d/x").exists(), "c does not have it yet");
    c.meet(&[("a", &a.address())]);
    assert_eq!(c.wait("d/x"), FileWaitOutcome::Published);
    until("the producers' host to drop it", || !a.published("d/x").exists() && !a.root.join("stage/d/x").exists());
    assert!(b.published("d/x").exists() && c.published("d/x").exists());
    let read = |consumer: &str| assert_eq!(fs::read(b.root.join(consumer).join("d/x")).unwrap(), b"x");
    read("for.0");
    assert_eq!(b.service().report().dropped, 0, "the second consumer of b has not read it");
    read("for.1");
    until("b to drop it", || !b.published("d/x").exists() && !b.root.join("for.0/d/x").exists());
    // A file that is published after another file was dropped reaches the other host too.
    a.write("y", b"y");
    assert_eq!(b.wait("y"), FileWaitOutcome::Published);
}

/// `cp -p`, archivers and `touch` set a file's time after they have closed it.
#[test]
fn a_file_whose_time_was_set_after_its_publication_comes() {
    let authority = Authority::make("files", HOURS).unwrap();
    let a = Host::new(&authority, "a", &Keep::All, across(true, &["b"], &[]));
    a.service().producers(Phase::Producing);
    a.write("x", b"x");
    assert_eq!(a.wait("x"), FileWaitOutcome::Published);
    until("the publication to be noted", || a.service().report().published == 1);
    let staged = fs::File::open(a.root.join("stage/x")).unwrap();
    staged.set_modified(std::time::UNIX_EPOCH + HOURS).unwrap();
    let b = Host::new(&authority, "b", &Keep::All, across(false, &[], &["a"]));
    b.meet(&[("a", &a.address())]);
    assert_eq!(b.wait_for("x", Duration::from_secs(20)), FileWaitOutcome::Published);
    assert_eq!(fs::read(b.published("x")).unwrap(), b"x");
}

#[test]
fn each_host_keeps_its_newest_files() {
    let (a, b) = two(&Keep::Newest(3));
    for number in 0..20 {
        a.write(&number.to_string(), b"x");
        assert_eq!(b.wait(&number.to_string()), FileWaitOutcome::Published, "{number}");
    }
    let seen = |host: &Host| {
        let entries = fs::read_dir(host.root.join("published")).unwrap();
        let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    for host in [&a, &b] {
        until("the oldest to go", || seen(host) == ["17", "18", "19"]);
    }
    assert_eq!(b.service().report().troubles, Vec::<String>::new());
}

#[test]
fn a_node_without_consumers_of_the_directory_gets_nothing() {
    let authority = Authority::make("files", HOURS).unwrap();
    let a = Host::new(&authority, "a", &Keep::All, across(true, &["b"], &[]));
    let stranger = Host::new(&authority, "c", &Keep::All, across(false, &[], &["a"]));
    stranger.meet(&[("a", &a.address())]);
    a.write("x", b"x");
    until("the refusal", || {
        let troubles = stranger.service().report().troubles;
        troubles.iter().any(|line| line.contains("node 'c' has no consumer of this managed directory"))
    });
    assert_eq!(stranger.fetched(), 0);
}

#[test]
fn a_service_that_is_started_anew_on_either_side_fetches_nothing_twice_and_goes_on() {
    let (mut a, mut b) = two(&Keep::All);
    a.write("x", b"x");
    assert_eq!(b.wait("x"), FileWaitOutcome::Published);
    // The service of host `a` starts anew, at another address.
    (a.exchange, a.service) = (None, None);
    a.start();
    b.exchange = None;
    b.service = None;
    b.start();
    b.meet(&[("a", &a.address())]);
    a.write("y", b"y");
    assert_eq!(b.wait("y"), FileWaitOutcome::Published);
    assert_eq!((b.fetched(), fs::read(b.published("x")).unwrap()), (1, b"x".to_vec()));
}

/// A relay that passes bytes between a consumers' host and a producers' host. It can be slow, and can cut all
/// connections after a number of bytes.
struct Wire {
    address: String,
    /// How many bytes still pass towards the consumers' host before the cut.
    left: Arc<AtomicU64>,
    is_cut: Arc<AtomicBool>,
    /// The pause after each 16 KiB of a connection towards the consumers' host, in milliseconds.
    pause: Arc<AtomicU64>,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Wire {
    fn to(address: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let wire = Self {
            address: listener.local_addr().unwrap().to_string(),
            left: Arc::new(AtomicU64::new(u64::MAX / 2)),
            is_cut: Arc::default(),
            pause: Arc::default(),
            open: Arc::default(),
        };
        let (left, is_cut, open) = (wire.left.clone(), wire.is_cut.clone(), wire.open.clone());
        let pause = wire.pause.clone();
        std::thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                let Ok(far) = TcpStream::connect(&address) else { continue };
                if is_cut.load(Ordering::SeqCst) {
                    continue;
                }
                open.lock().unwrap().extend([near.try_clone().unwrap(), far.try_clone().unwrap()]);
                let (a, b) = (near.try_clone().unwrap(), far.try_clone().unwrap());
                std::thread::spawn(move || pass(a, b, None));
                let (left, is_cut, open, pause) = (left.clone(), is_cut.clone(), open.clone(), pause.clone());
                std::thread::spawn(move || pass(far, near, Some((&left, &is_cut, &open, &pause))));
            }
        });
        wire
    }

    fn join(&self) {
        self.left.store(u64::MAX / 2, Ordering::SeqCst);
        self.is_cut.store(false, Ordering::SeqCst);
    }
}

type Limit<'a> = (&'a AtomicU64, &'a AtomicBool, &'a Mutex<Vec<TcpStream>>, &'a AtomicU64);

fn pass(mut from: TcpStream, mut to: TcpStream, limit: Option<Limit<'_>>) {
    let mut buffer = [0; 16 << 10];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        if let Some((left, is_cut, open, pause)) = limit {
            std::thread::sleep(Duration::from_millis(pause.load(Ordering::SeqCst)));
            let before = left.load(Ordering::SeqCst);
            left.store(before.saturating_sub(read as u64), Ordering::SeqCst);
            if before <= read as u64 {
                is_cut.store(true, Ordering::SeqCst);
                for stream in open.lock().unwrap().drain(..) {
                    let _ = stream.shutdown(std::net::Shutdown::Both);
                }
                return;
            }
        }
        if to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
}

#[test]
fn a_link_that_is_cut_in_the_middle_of_a_file_shows_nothing_and_the_fetch_goes_on() {
    let authority = Authority::make("files", HOURS).unwrap();
    let a = Host::new(&authority, "a", &Keep::All, across(true, &["b"], &[]));
    let b = Host::new(&authority, "b", &Keep::All, across(false, &[], &["a"]));
    let wire = Wire::to(a.address());
    b.meet(&[("a", &wire.address)]);
    a.write("first", b"x");
    assert_eq!(b.wait("first"), FileWaitOutcome::Published);
    let bytes: Vec<u8> = (0..2_000_000u32).flat_map(u32::to_le_bytes).collect();
    wire.left.store(3_000_000, Ordering::SeqCst);
    a.write("large", &bytes);
    until("the cut", || wire.is_cut.load(Ordering::SeqCst));
    let FileWaitOutcome::TimedOut(story) = b.wait_for("large", Duration::from_secs(1)) else {
        panic!("it cannot come")
    };
    assert!(story.to_string().contains("simulate on a"), "{story}");
    assert_eq!(fs::read_dir(b.root.join("fetched")).unwrap().count(), 1, "it is on its way");
    until("the line of the log", || {
        b.service().report().troubles.iter().any(|line| line.contains("no word of the files of host a"))
    });
    wire.join();
    assert_eq!(b.wait("large"), FileWaitOutcome::Published);
    assert!(fs::read(b.published("large")).unwrap() == bytes);
    assert_eq!(b.fetched(), 2);
}

/// Makes the host `a` with producers and the host `b` with consumers, and a slow relay between them.
fn two_with_a_wire(keep: &Keep) -> (Host, Host, Wire) {
    let authority = Authority::make("files", HOURS).unwrap();
    let a = Host::new(&authority, "a", keep, across(true, &["b"], &[]));
    let b = Host::new(&authority, "b", keep, across(false, &[], &["a"]));
    let wire = Wire::to(a.address());
    b.meet(&[("a", &wire.address)]);
    a.service().producers(Phase::Producing);
    a.write("first", b"x");
    assert_eq!(b.wait("first"), FileWaitOutcome::Published);
    (a, b, wire)
}

#[test]
fn a_file_that_a_consumer_waits_for_does_not_queue_behind_files_that_none_has_opened() {
    let (a, b, wire) = two_with_a_wire(&Keep::All);
    // With this pause, each of the large files takes most of a minute.
    wire.pause.store(10, Ordering::SeqCst);
    let large = vec![7; 64 << 20];
    std::thread::scope(|scope| {
        let wait = scope.spawn(|| b.wait("z-small"));
        for number in 0..5 {
            a.write(&format!("large-{number}"), &large);
        }
        until("several fetches at once", || fs::read_dir(b.root.join("fetched")).unwrap().count() == 3);
        a.write("other", b"no consumer waits for it");
        a.write("z-small", b"small");
        assert_eq!(wait.join().unwrap(), FileWaitOutcome::Published);
    });
    assert_eq!(fs::read(b.published("z-small")).unwrap(), b"small");
    assert_eq!((b.fetched(), b.published("large-0").exists(), b.published("other").exists()), (2, false, false));
}

#[test]
fn a_file_that_is_dropped_while_it_is_fetched_comes_all_the_same() {
    let (a, b, wire) = two_with_a_wire(&Keep::Newest(1));
    wire.pause.store(2, Ordering::SeqCst);
    let bytes: Vec<u8> = (0..3_000_000u32).flat_map(u32::to_le_bytes).collect();
    a.write("large", &bytes);
    // A fetch has begun when the first bytes have come. Before that, the other host does not know of the fetch.
    let begins = |file: &Path| {
        let mut bytes = [0; 8];
        fs::File::open(file).is_ok_and(|file| file.read_exact_at(&mut bytes, 0).is_ok()) && bytes[4] == 1
    };
    until("its first bytes", || {
        fs::read_dir(b.root.join("fetched")).unwrap().any(|entry| begins(&entry.unwrap().path()))
    });
    a.write("next", b"x");
    until("the drop", || !a.published("large").exists() && !a.root.join("stage/large").exists());
    assert_eq!(b.wait("large"), FileWaitOutcome::Published);
    assert!(fs::read(b.published("large")).unwrap() == bytes);
}

#[test]
fn a_wait_for_a_file_that_was_dropped_before_it_was_fetched_ends_at_once_and_names_the_rule() {
    let authority = Authority::make("files", HOURS).unwrap();
    let keep = Keep::Newest(2);
    let a = Host::new(&authority, "a", &keep, across(true, &["b"], &[]));
    let b = Host::new(&authority, "b", &keep, across(false, &[], &["a"]));
    a.service().producers(Phase::Producing);
    for number in 0..5 {
        a.write(&number.to_string(), b"x");
        until("the publication", || a.published(&number.to_string()).exists());
    }
    until("the drop", || !a.published("2").exists());
    b.meet(&[("a", &a.address())]);
    let FileWaitOutcome::Gone(story) = b.wait("0") else { panic!("it cannot come") };
    assert!(story.to_string().contains("the rule `keep` dropped it before this host had fetched it"), "{story}");
    assert_eq!((b.wait("3"), b.wait("4")), (FileWaitOutcome::Published, FileWaitOutcome::Published));
    a.write("0", b"anew");
    until("the name's new file", || fs::read(b.published("0")).is_ok_and(|bytes| bytes == b"anew"));
    assert_eq!(b.wait("0"), FileWaitOutcome::Published);
}

#[test]
fn a_silent_host_is_named_in_the_consumers_log_and_the_exchange_ends_all_the_same() {
    let authority = Authority::make("files", HOURS).unwrap();
    let a = Host::new(&authority, "a", &Keep::All, across(true, &["b"], &[]));
    let b = Host::new(&authority, "b", &Keep::All, across(false, &[], &["a"]));
    b.meet(&[("a", &a.address())]);
    a.write("x", b"x");
    assert_eq!(b.wait("x"), FileWaitOutcome::Published);
    drop(a);
    until("the line of the log", || {
        b.service().report().troubles.iter().any(|line| line.contains("no word of the files of host a"))
    });
    assert_eq!(fs::read(b.published("x")).unwrap(), b"x", "what has come stays");
}

#[test]
fn an_entry_that_leads_to_another_host_or_to_another_authority_brings_no_file() {
    let (authority, other) = (Authority::make("files", HOURS).unwrap(), Authority::make("other", HOURS).unwrap());
    let a = Host::new(&authority, "a", &Keep::All, across(true, &["b"], &[]));
    // `neighbour` is another node with a certificate of the same authority. `stranger` has the right name, but a
    // certificate of another authority. Both serve the host `b`, and each has a file of the name that `b` waits for.
    let neighbour = Host::new(&authority, "x", &Keep::All, across(true, &["b"], &[]));
    let stranger = Host::new(&other, "a", &Keep::All, across(true, &["b"], &[]));
    for liar in [&neighbour, &stranger] {
        liar.service().producers(Phase::Producing);
        liar.write("file", b"false");
        let b = Host::new(&authority, "b", &Keep::All, across(false, &[], &["a"]));
        b.meet(&[("a", &liar.address())]);
        until("the line of the log", || {
            b.service().report().troubles.iter().any(|line| line.contains("files of host a"))
        });
        assert_eq!((b.fetched(), b.published("file").exists()), (0, false), "{}", liar.name);
        // Once the catalog's entry leads to the true host `a`, the file comes.
        if !a.published("file").exists() {
            a.service().producers(Phase::Producing);
            a.write("file", b"true");
        }
        b.meet(&[("a", &a.address())]);
        assert_eq!(b.wait("file"), FileWaitOutcome::Published);
        assert_eq!(fs::read(b.published("file")).unwrap(), b"true");
    }
}

#[test]
fn a_file_that_went_to_the_disk_of_the_producers_host_still_comes() {
    let authority = Authority::make("files", HOURS).unwrap();
    let mut a = Host::new(&authority, "a", &Keep::All, across(true, &["b"], &[]));
    let disk = a.root.with_extension("disk");
    a.service.as_mut().unwrap().spill_to(&disk, 1000).unwrap();
    a.write("x", &[3; 5000]);
    let spilled = a.root.join("spilled/x");
    until("the move to the disk", || spilled.exists() && !a.published("x").exists());
    let b = Host::new(&authority, "b", &Keep::All, across(false, &[], &["a"]));
    b.meet(&[("a", &a.address())]);
    assert_eq!(b.wait("x"), FileWaitOutcome::Published);
    assert_eq!(fs::read(b.published("x")).unwrap(), [3; 5000]);
    assert!(a.root.join("spilled/x").exists(), "it is not gone");
    assert_eq!(Path::new(&a.root).join("stage").read_dir().unwrap().count(), 0);
}

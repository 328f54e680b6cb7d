//! Tests of the embedded catalog: the claims of `conformance` over TCP, restarts of the keeper, and peers that send
//! wrong bytes.

mod conformance;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use conformance::{soon, tests};
use crossdock_catalog::embedded::{Client, Keeper, KeeperOptions, Listening, TcpDial};
use crossdock_catalog::{Catalog, CatalogError, Commit, EntryChange, Event, Follower};
use crossdock_os::Deadline;
use tempfile::TempDir;

/// A keeper that the tests can stop and then start again at the same address.
struct Place {
    folder: TempDir,
    address: String,
    running: Option<(Listening, Keeper)>,
}

impl Place {
    fn new() -> Self {
        let mut place = Self { folder: tempfile::tempdir().unwrap(), address: "127.0.0.1:0".into(), running: None };
        place.start();
        place
    }

    fn start(&mut self) {
        let by = soon();
        let listener = loop {
            match TcpListener::bind(&self.address) {
                Ok(listener) => break listener,
                Err(error) => assert!(!by.passed(), "{}: {error}", self.address),
            }
            thread::sleep(Duration::from_millis(20));
        };
        let options = KeeperOptions { folder: self.folder.path().into(), grace: Duration::from_secs(5) };
        let keeper = Keeper::open(&options).unwrap();
        self.address = listener.local_addr().unwrap().to_string();
        let listening = keeper.listen(listener).unwrap();
        self.running = Some((listening, keeper));
    }

    fn stop(&mut self) {
        self.running = None;
    }

    fn client(&self) -> Client {
        Client::new(TcpDial(self.address.clone()))
    }
}

fn clients() -> impl Fn() -> Box<dyn Catalog> {
    let place = Place::new();
    move || Box::new(place.client())
}

conformance::claims!(tests clients);

fn local_clients() -> impl Fn() -> Box<dyn Catalog> {
    let place = Place::new();
    move || Box::new(place.running.as_ref().expect("it runs").1.local())
}

/// The claims of `conformance`, run with the client in the keeper's own process.
mod local {
    use super::conformance::{self, tests};
    use super::local_clients;

    conformance::claims!(tests local_clients);
}

#[test]
fn a_local_client_and_a_remote_one_see_the_same_catalog() {
    let mut place = Place::new();
    let (remote, local) = (place.client(), place.running.as_ref().unwrap().1.local());
    let from = local.list("", soon()).unwrap().revision + 1;
    let mut watches = [local.watch("", from).unwrap(), remote.watch("", from).unwrap()];
    let put = remote.put("a", b"1", None, soon()).unwrap();
    assert_eq!(local.get("a", soon()).unwrap().unwrap().modified, put);
    let deleted = local.commit(&Commit::new().expect_at("a", put).delete("a"), soon()).unwrap();
    assert!(deleted.done);
    for watch in &mut watches {
        let mut revisions = Vec::new();
        while revisions.len() < 2 {
            revisions.extend(watch.next(soon()).unwrap().iter().map(Event::revision));
        }
        assert_eq!(revisions, [put, deleted.revision]);
    }
    place.stop();
    assert!(matches!(local.get("a", soon()), Err(CatalogError::Unreachable(_))));
}

#[test]
fn a_restarted_keeper_has_everything_and_clients_find_it_again() {
    let mut place = Place::new();
    let c = place.client();
    let lease = c.grant(Duration::from_secs(30), soon()).unwrap();
    let revision = c.put("a", b"1", Some(lease), soon()).unwrap();
    c.put("b", b"2", None, soon()).unwrap();
    let mut watch = c.watch("", revision + 2).unwrap();
    let mut follower = Follower::new("");
    assert_eq!(follower.next(&c, soon()).unwrap().len(), 2);
    for round in 0..3 {
        place.stop();
        place.start();
        assert_eq!(c.get("a", soon()).unwrap().unwrap().modified, revision);
        c.keep_alive(lease, soon()).unwrap();
        let put = c.put("b", &[round], None, soon()).unwrap();
        let by = soon();
        let found = loop {
            // An error means only that the connection was lost. With the next call, the same watch continues.
            match watch.next(by) {
                Ok(found) if !found.is_empty() => break found,
                outcome => assert!(!by.passed(), "{outcome:?}"),
            }
        };
        assert_eq!(found.iter().map(Event::revision).collect::<Vec<_>>(), [put]);
    }
    let by = soon();
    while follower.known()["b"].value != [2] {
        follower.next(&c, by).ok();
        assert!(!by.passed());
    }
}

/// Makes more changes than the keeper keeps for watches.
fn make_many_changes(c: &Client, prefix: &str) {
    for commit in 0..160 {
        let keys = (0..64).map(|key| format!("{prefix}{key}"));
        let commit = keys.fold(Commit::new(), |commit_of, key| commit_of.put(&key, &[commit], None));
        assert!(c.commit(&commit, soon()).unwrap().done);
    }
}

#[test]
fn a_follower_that_missed_more_changes_than_are_kept_lists_again() {
    let place = Place::new();
    let c = place.client();
    c.put("gone", b"", None, soon()).unwrap();
    let mut follower = Follower::new("");
    follower.next(&c, soon()).unwrap();
    let revision = c.put("a", b"1", None, soon()).unwrap();
    c.delete("gone", soon()).unwrap();
    make_many_changes(&c, "many/");
    let news = follower.next(&c, soon()).unwrap();
    assert!(matches!(&news[0], EntryChange::Gone(entry) if entry.key == "gone"), "{:?}", news[0]);
    assert_eq!((news.len(), follower.known()["a"].modified), (66, revision));
    assert_eq!(follower.known()["many/63"].value, [159]);
    // The follower's new watch reports the changes after the listing.
    c.put("b", b"2", None, soon()).unwrap();
    assert!(matches!(&follower.next(&c, soon()).unwrap()[..], [EntryChange::Put(entry)] if entry.key == "b"));
}

#[test]
fn many_changes_below_other_prefixes_cost_a_watch_nothing() {
    let place = Place::new();
    let c = place.client();
    let from = c.list("", soon()).unwrap().revision + 1;
    let mut watch = c.watch("quiet/", from).unwrap();
    assert!(watch.next(Deadline::after(Duration::from_millis(200))).unwrap().is_empty());
    make_many_changes(&c, "loud/");
    // A watch that is not woken looks at the store once a second, when it sends its heartbeat. If a change below the
    // watch's prefix came in the same second in which the store forgot other changes, the watch would have to list
    // again. So the test waits for a heartbeat before it makes the change.
    thread::sleep(Duration::from_millis(2500));
    let revision = c.put("quiet/a", b"", None, soon()).unwrap();
    let by = soon();
    let found = loop {
        let found = watch.next(by).unwrap();
        if !found.is_empty() {
            break found;
        }
    };
    assert_eq!(found.iter().map(Event::revision).collect::<Vec<_>>(), [revision]);
}

/// A keeper that did not wake the watch would report the change only with its next heartbeat, up to a second later.
#[test]
fn a_watch_reports_a_change_without_waiting_for_a_heartbeat() {
    let place = Place::new();
    let (c, local) = (place.client(), place.running.as_ref().unwrap().1.local());
    for watcher in [&c as &dyn Catalog, &local] {
        let from = c.list("", soon()).unwrap().revision + 1;
        let mut watch = watcher.watch("a/", from).unwrap();
        let began = Instant::now();
        for number in 0..30 {
            thread::scope(|scope| {
                let found = scope.spawn(|| {
                    let by = Deadline::after(Duration::from_secs(30));
                    loop {
                        let found = watch.next(by).unwrap();
                        if let [event] = &found[..] {
                            return event.revision();
                        }
                        assert!(found.is_empty() && !by.passed(), "{found:?}");
                    }
                });
                thread::sleep(Duration::from_millis(5));
                let put = c.put(&format!("a/{number}"), b"", None, soon()).unwrap();
                assert_eq!(found.join().unwrap(), put);
            });
            assert!(began.elapsed() < Duration::from_secs(12), "{number} changes took {:?}", began.elapsed());
        }
    }
}

#[test]
fn a_lease_outlives_the_keepers_absence_and_ends_after_its_time_and_the_grace() {
    let mut place = Place::new();
    let c = place.client();
    let lease = c.grant(Duration::from_secs(1), soon()).unwrap();
    c.put("a", b"", Some(lease), soon()).unwrap();
    place.stop();
    thread::sleep(Duration::from_millis(1500));
    place.start();
    // The lease's time has passed while the keeper was down. The restart gave the lease its whole time again.
    c.keep_alive(lease, soon()).unwrap();
    let by = soon();
    while c.get("a", soon()).unwrap().is_some() {
        assert!(!by.passed(), "the lease does not end after the restart");
        thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(c.keep_alive(lease, soon()), Err(CatalogError::NoLease));
}

/// The environment variable that is set in the process whose files may not grow. Its value is the folder of the journal.
const FULL: &str = "CROSSDOCK_TEST_FULL";

#[test]
fn a_keeper_without_room_for_the_end_of_a_lease_says_so_once() {
    if let Some(folder) = std::env::var_os(FULL) {
        let keeper = Keeper::open(&KeeperOptions { folder: folder.into(), grace: Duration::ZERO }).unwrap();
        let c = keeper.local();
        while c.grant(Duration::from_secs(1), soon()).is_ok() {}
        return thread::sleep(Duration::from_secs(3));
    }
    let folder = tempfile::tempdir().unwrap();
    let mut command = std::process::Command::new("sh");
    // A file may have 512 or 1024 bytes, and a write beyond that fails instead of killing the process.
    command.args(["-c", "trap '' XFSZ; ulimit -f 1 && exec \"$0\" \"$@\""]).arg(std::env::current_exe().unwrap());
    command.args(["--nocapture", "--exact", "a_keeper_without_room_for_the_end_of_a_lease_says_so_once"]);
    let output = command.env(FULL, folder.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let lines: Vec<_> = said.lines().filter(|line| line.starts_with("catalog: ")).collect();
    assert!(
        lines.len() == 1 && lines[0].contains("catalog.journal cannot be written"),
        "{} lines: {said:.2000}",
        lines.len()
    );
}

#[test]
fn a_keeper_that_lost_its_journal_passes_no_former_fence_and_makes_watchers_list_again() {
    let mut place = Place::new();
    let c = place.client();
    let lease = c.grant(Duration::from_secs(30), soon()).unwrap();
    let revision = c.put("a", b"1", Some(lease), soon()).unwrap();
    let mut watch = c.watch("", revision + 1).unwrap();
    place.stop();
    std::fs::remove_file(place.folder.path().join("catalog.journal")).unwrap();
    place.start();
    assert_eq!(c.keep_alive(lease, soon()), Err(CatalogError::NoLease));
    assert!(c.put("a", b"2", None, soon()).unwrap() > revision + 1);
    let by = soon();
    loop {
        match watch.next(by) {
            Err(CatalogError::Compacted(_)) => break,
            outcome => assert!(!by.passed(), "{outcome:?}"),
        }
    }
}

#[test]
fn a_call_to_no_keeper_ends_by_its_deadline_and_says_where_it_was_looked_for() {
    let mut place = Place::new();
    let c = place.client();
    place.stop();
    let error = c.get("a", Deadline::after(Duration::from_millis(100))).unwrap_err();
    assert!(matches!(&error, CatalogError::Unreachable(why) if why.contains(&place.address)), "{error}");
    assert!(matches!(
        c.put("a", b"", None, Deadline::after(Duration::from_millis(100))),
        Err(CatalogError::Unreachable(_))
    ));
    assert!(matches!(
        c.watch("", 1).unwrap().next(Deadline::after(Duration::from_millis(100))),
        Err(CatalogError::Unreachable(_))
    ));
}

/// The keeper of this test accepts a connection, but never answers a request.
#[test]
fn a_keeper_that_does_not_answer_leaves_a_change_unknown() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let ends = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&ends);
    let silent = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        // The keeper of this test reads the hello and answers "done". After that it reads and sends nothing.
        let mut hello = [0; 30];
        stream.read_exact(&mut hello).unwrap();
        stream.write_all(&[1, 0, 0, 0, 1]).unwrap();
        while !stop.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(20));
        }
    });
    let c = Client::new(TcpDial(address));
    let commit = crossdock_catalog::Commit::new().put("a", b"", None);
    let outcome = c.commit(&commit, Deadline::after(Duration::from_millis(500)));
    assert!(matches!(outcome, Err(CatalogError::Unknown(_))), "{outcome:?}");
    ends.store(true, Ordering::Relaxed);
    silent.join().unwrap();
}

/// The keeper of this test accepts connections, and never sends a byte.
#[test]
fn a_follower_ends_its_list_and_its_watch_when_it_is_told_to() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let c = Client::new(TcpDial(listener.local_addr().unwrap().to_string()));
    let ends = AtomicBool::new(false);
    let is_over = || ends.load(Ordering::Relaxed);
    let began = Instant::now();
    thread::scope(|scope| {
        let list = scope.spawn(|| Follower::new("").next_until(&c, soon(), &is_over));
        let watch = scope.spawn(|| c.watch("", 1).unwrap().next_until(Deadline::after(Duration::ZERO), &is_over));
        thread::sleep(Duration::from_millis(300));
        ends.store(true, Ordering::Relaxed);
        assert!(matches!(list.join().unwrap(), Err(CatalogError::Unreachable(_))));
        assert!(matches!(watch.join().unwrap(), Err(CatalogError::Unreachable(_))));
    });
    assert!(began.elapsed() < Duration::from_secs(4), "the calls waited for their deadline");
}

#[test]
fn bytes_that_are_no_messages_end_their_connection_and_no_other() {
    let place = Place::new();
    let c = place.client();
    c.put("a", b"1", None, soon()).unwrap();
    let hello = || {
        let mut bytes = vec![26, 0, 0, 0, 1, 17, 0, 0, 0];
        bytes.extend(b"crossdock-catalog");
        bytes.extend([1, 0, 0, 0]);
        bytes
    };
    let attacks: Vec<Vec<u8>> = vec![
        vec![0; 64],
        vec![255; 64],
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        vec![1, 0, 0, 0, 3],
        // Wrong: a hello with a version of the protocol that does not exist yet.
        [&hello()[..26], &[9, 0, 0, 0]].concat(),
        // Bad messages: a list request without its prefix, an unknown request, a message that claims a length of 4 GiB,
        // and a key that claims a length of 4 GiB.
        [hello(), vec![1, 0, 0, 0, 4]].concat(),
        [hello(), vec![1, 0, 0, 0, 99]].concat(),
        [hello(), vec![255, 255, 255, 255]].concat(),
        [hello(), vec![9, 0, 0, 0, 3, 255, 255, 255, 255, 1, 2, 3, 4]].concat(),
        [hello(), hello()].concat(),
        // Wrong: a commit that claims to have four thousand million operations.
        [hello(), vec![9, 0, 0, 0, 2, 0, 0, 0, 0, 255, 255, 255, 255]].concat(),
    ];
    for (number, bytes) in attacks.iter().enumerate() {
        let mut stream = TcpStream::connect(&place.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.write_all(bytes).unwrap();
        // The keeper closes the connection. Before that, it has sent only a few bytes.
        let mut said = Vec::new();
        let end = stream.read_to_end(&mut said);
        assert!(
            end.is_ok() || end.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset),
            "attack {number}"
        );
        assert!(said.len() < 2000, "attack {number}");
        assert_eq!(c.get("a", soon()).unwrap().unwrap().value, b"1");
    }
}

/// Counts the threads of this process that serve a keeper's connections. The keepers of other tests may have such
/// threads at the same time.
fn client_threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|name| name.trim_end() == "catalog-client").count()
}

#[test]
fn silent_connections_by_the_hundred_get_few_threads_and_clients_are_served() {
    let place = Place::new();
    let c = place.client();
    c.put("a", b"1", None, soon()).unwrap();
    let silent: Vec<_> = (0..400).map(|_| TcpStream::connect(&place.address).unwrap()).collect();
    thread::sleep(Duration::from_millis(500));
    let threads = client_threads();
    assert!(threads < 200, "{threads} threads serve {} silent connections", silent.len());
    // A client that is connected already is served at once. A new client is served when the keeper has closed silent
    // connections.
    assert!(c.get("a", Deadline::after(Duration::from_secs(2))).unwrap().is_some());
    assert!(place.client().get("a", soon()).unwrap().is_some());
}

/// The keeper of this test answers with wrong bytes.
#[test]
fn answers_that_make_no_sense_are_errors_and_never_a_panic() {
    let answers: [&[u8]; 5] =
        [&[1, 0, 0, 0, 99], &[255, 255, 255, 255], &[6, 0, 0, 0, 4, 1, 1, 1, 1, 1], &[0, 0, 0, 0], &[1, 0, 0, 0, 1]];
    for answer in answers {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let ends = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&ends);
        let liar = thread::spawn(move || {
            let mut open = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                if let Ok((mut stream, _)) = listener.accept() {
                    stream.write_all(&[&[1, 0, 0, 0, 1], answer].concat()).ok();
                    open.push(stream);
                }
                thread::sleep(Duration::from_millis(5));
            }
        });
        let c = Client::new(TcpDial(address));
        let by = || Deadline::after(Duration::from_millis(300));
        assert!(c.get("a", by()).is_err());
        assert!(c.list("", by()).is_err());
        assert!(c.grant(Duration::from_secs(1), by()).is_err());
        assert!(c.commit(&crossdock_catalog::Commit::new().put("a", b"", None), by()).is_err());
        assert!(c.watch("", 1).unwrap().next(by()).map_or(true, |events| events.is_empty()));
        ends.store(true, Ordering::Relaxed);
        liar.join().unwrap();
    }
}

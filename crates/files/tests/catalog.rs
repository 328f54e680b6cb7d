//! Tests of hosts that find each other through a catalog. Through the catalog they also notice that a host is lost.

mod meeting;

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossdock_catalog::embedded::{Client, Dial, Keeper, KeeperOptions, Stream, TcpDial};
use crossdock_catalog::{Faults, Memory};
use crossdock_core::files::FileWaitOutcome;
use crossdock_layout::files::Phase;
use crossdock_os::Deadline;
use meeting::{CLAIMS, Host, announced, site, until};

const SHORT: Duration = Duration::from_millis(1500);

#[test]
fn hosts_keep_every_claim_with_a_catalog_in_memory() {
    let catalog = Memory::new();
    for (name, claim) in CLAIMS {
        println!("{name}");
        claim(&|| Arc::new(catalog.client()));
    }
}

#[test]
fn hosts_keep_every_claim_with_an_embedded_catalog() {
    let folder = tempfile::tempdir().unwrap();
    let keeper = Keeper::open(&KeeperOptions { folder: folder.path().to_owned(), grace: SHORT }).unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let _listening = keeper.listen(listener).unwrap();
    for (name, claim) in CLAIMS {
        println!("{name}");
        claim(&|| Arc::new(Client::new(TcpDial(address.clone()))));
    }
}

/// Cuts this client off from the catalog, or connects it again.
fn cut(client: &Memory, cut: bool) {
    client.set_faults(Faults { cut, ..Faults::default() });
}

/// Starts the host `a` with producers and the host `b` with consumers. Also returns the catalog client of `a`, which a
/// test can cut off, and the catalog.
fn two() -> (Host, Host, Arc<Memory>, Memory) {
    let catalog = Memory::new();
    let of_a = Arc::new(catalog.client());
    let a = Host::producers(&site(of_a.clone(), "s"));
    let b = Host::consumers(&site(Arc::new(catalog.client()), "s"));
    a.service().producers(Phase::Producing);
    a.write("x");
    b.gets("x");
    (a, b, of_a, catalog)
}

/// Lets the host `a` die: it does not answer any more, and its catalog client `its` is cut off, so that its lease ends.
fn kill(a: &mut Host, its: &Memory) {
    cut(its, true);
    a.end();
}

#[test]
fn a_host_whose_lease_has_ended_goes_on_as_long_as_it_answers_and_announces_itself_again() {
    let (a, b, of_a, catalog) = two();
    let seen = site(Arc::new(catalog.client()), "s");
    let first = announced(&seen, "a").unwrap();
    cut(&of_a, true);
    until("the end of the lease", || announced(&seen, "a").is_none());
    a.write("y");
    b.gets("y");
    // The host's entry is missing for six seconds. If the host had also been silent for so long, it would count as
    // lost.
    std::thread::sleep(Duration::from_secs(6));
    let FileWaitOutcome::TimedOut(story) = b.wait("never", SHORT) else { panic!("a still runs") };
    assert!(story.to_string().contains("simulate on a still runs") && !story.to_string().contains("silent"), "{story}");
    assert!(a.has_said("the catalog cannot be reached"), "{:?}", a.service().report().troubles);
    cut(&of_a, false);
    until("the new lease", || announced(&seen, "a").is_some_and(|now| now.life == first.life));
    until("the line of the log", || a.has_said("this host has announced its files again"));
    a.write("z");
    b.gets("z");
    assert_eq!(b.service().report().troubles, Vec::<String>::new());
}

#[test]
fn a_lost_host_ends_waits_with_its_name_and_with_what_was_lost_and_goes_on_when_it_is_back() {
    let (mut a, b, of_a, catalog) = two();
    let full_before = crossdock_os::mount::used(&b.root);
    a.write_huge("huge");
    until("the file that waits for room", || {
        let seen = crossdock_files::look(&b.root, &b.root.with_extension("notice"), "/f").unwrap();
        seen.lines.iter().any(|line| line.state == crossdock_files::FileState::NoRoom)
    });
    // The attempts to fetch the file take no memory that other processes of the host need.
    for _ in 0..300 {
        let more = crossdock_os::mount::used(&b.root).saturating_sub(full_before);
        assert!(more < 1 << 30, "the host's memory is filled: {more} bytes more");
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::scope(|scope| {
        let wait = scope.spawn(|| b.wait("never", Duration::from_secs(100)));
        kill(&mut a, &of_a);
        until("the line of the log", || b.has_said("host a is lost"));
        let FileWaitOutcome::TimedOut(story) = b.wait("huge", SHORT) else { panic!("the host is not given up yet") };
        assert!(story.to_string().contains("host a is lost: its lease has ended"), "{story}");
        let FileWaitOutcome::Gone(story) = wait.join().unwrap() else { panic!("its host is lost") };
        let text = story.to_string();
        assert!(
            text.contains("simulate on a failed") && text.contains("host a is lost: its lease has ended"),
            "{text}"
        );
    });
    let FileWaitOutcome::Gone(story) = b.wait("huge", Duration::from_secs(100)) else { panic!("it is lost") };
    assert!(story.to_string().contains("the host that published it is lost"), "{story}");
    let line = "host a is lost: its lease in the catalog has ended, and it does not answer; \
                1 file that this host had not fetched is lost with it: huge";
    assert!(b.has_said(line), "{:?}", b.service().report().troubles);
    let seen = crossdock_files::look(&b.root, &b.root.with_extension("notice"), "/f").unwrap();
    let states: Vec<_> = seen.lines.iter().map(|line| (line.name.to_str().unwrap(), line.state.word())).collect();
    assert_eq!(states, [("huge", "lost"), ("x", "published")]);
    // The service of host `a` starts again in the same store, from which the lost file was removed.
    std::fs::remove_file(a.root.join("stage/huge")).unwrap();
    a.restart(&site(Arc::new(catalog.client()), "s"));
    a.service().producers(Phase::Producing);
    until("the host to be back", || b.has_said("host a is back"));
    a.write("huge");
    b.gets("huge");
    let FileWaitOutcome::TimedOut(story) = b.wait("never", SHORT) else { panic!("a runs again") };
    assert!(!story.to_string().contains("host a"), "{story}");
}

#[test]
fn a_host_whose_producers_have_ended_and_whose_files_have_all_come_may_go() {
    let (mut a, b, of_a, _catalog) = two();
    a.service().producers(Phase::Ended);
    let FileWaitOutcome::Gone(_) = b.wait("never", Duration::from_secs(100)) else { panic!("a has ended") };
    kill(&mut a, &of_a);
    std::thread::sleep(Duration::from_secs(8));
    let FileWaitOutcome::Gone(story) = b.wait("never", Duration::from_secs(100)) else { panic!("a has ended") };
    assert!(story.to_string().contains("ended in order") && !story.to_string().contains("lost"), "{story}");
    assert!(!b.has_said("is lost"), "{:?}", b.service().report().troubles);
}

#[test]
fn a_wait_for_a_host_that_does_not_answer_names_it_and_says_since_when() {
    let (mut a, b, _of_a, catalog) = two();
    a.end();
    // The test writes the entry of the ended host `a` into the catalog again. So host `b` cannot know whether `a` is
    // lost or only cut off.
    let seen = site(Arc::new(catalog.client()), "s");
    let entry = crossdock_files::entry_key("s", "flow/x", "frames", "a");
    let value = b"1 7 produces producing 1 1 0 0 127.0.0.1:1";
    crossdock_catalog::Catalog::put(&*seen.catalog, &entry, value, None, meeting::soon()).unwrap();
    std::thread::sleep(Duration::from_secs(6));
    let FileWaitOutcome::TimedOut(story) = b.wait("never", SHORT) else { panic!("a may come back") };
    let text = story.to_string();
    let seconds = text.split_once("host a has been silent for ").expect(&text).1.trim_end_matches(" s");
    assert!(seconds.parse::<f64>().is_ok_and(|seconds| (6.0..60.0).contains(&seconds)), "{text}");
    assert!(b.has_said("no word of the files of host a") && !b.has_said("is lost"));
}

/// Makes connections on which each answer comes after [`AWAY`], as over a slow link.
struct SlowDial(String);

/// How long an answer takes over a slow link.
const AWAY: Duration = Duration::from_millis(300);

struct SlowStream {
    stream: TcpStream,
    timeout: Duration,
    /// The time from which the answer to the last write can be read.
    answered: Instant,
}

impl Dial for SlowDial {
    fn dial(&self, _: Deadline) -> io::Result<Box<dyn Stream>> {
        let stream = TcpStream::connect(&self.0)?;
        Ok(Box::new(SlowStream { stream, timeout: AWAY, answered: Instant::now() }))
    }
}

impl Stream for SlowStream {
    fn set_timeout(&mut self, time: Duration) -> io::Result<()> {
        self.timeout = time;
        self.stream.set_timeout(time)
    }
}

impl Read for SlowStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        std::thread::sleep(self.timeout.min(self.answered.saturating_duration_since(Instant::now())));
        if Instant::now() < self.answered { Err(io::ErrorKind::WouldBlock.into()) } else { self.stream.read(into) }
    }
}

impl Write for SlowStream {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.answered = Instant::now() + AWAY;
        self.stream.write(from)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

#[test]
fn hosts_meet_although_the_link_to_the_catalog_is_slow() {
    let folder = tempfile::tempdir().unwrap();
    let keeper = Keeper::open(&KeeperOptions { folder: folder.path().to_owned(), grace: SHORT }).unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let _listening = keeper.listen(listener).unwrap();
    let client = || Arc::new(Client::new(SlowDial(address.clone())));
    let (a, b) = (Host::producers(&site(client(), "slow")), Host::consumers(&site(client(), "slow")));
    a.write("x");
    assert_eq!(b.wait("x", Duration::from_secs(30)), FileWaitOutcome::Published);
}

/// The keeper of this test accepts connections, and never sends a byte.
#[test]
fn a_host_ends_soon_although_the_catalog_does_not_answer() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let client = Client::new(TcpDial(listener.local_addr().unwrap().to_string()));
    let mut host = Host::consumers(&site(Arc::new(client), "silent"));
    std::thread::sleep(Duration::from_millis(300));
    let began = Instant::now();
    host.end();
    // `end` may wait for the call that gets a lease, which takes at most two seconds. It must not wait for the call
    // that lists entries, which may take ten seconds.
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

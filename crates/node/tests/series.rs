//! Tests of what the daemon does for series: which memory it accepts as a pool, who may publish, and which observer
//! gets which slot of which pin page.

mod support;

use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crossdock_layout::liveness::LivenessTable;
use crossdock_layout::wire::{
    Answer, Grant, InUse, ListOf, OpenMode, PIN_PAGE, PIN_SLOTS, PageEntry, Request, SegmentKind, SeriesEntry,
};
use crossdock_layout::{MemberId, Rights, SegmentId, Status};
use crossdock_os::{Access, Mapping, memfd, socket};
use support::{Daemon, Raw, kill, open, spawn, until};

const SIZE: u64 = 65_536;
const SLOT: u64 = PIN_PAGE / PIN_SLOTS as u64;

/// A publisher that does not use the library: the test sends its messages and makes the pool's memory.
struct Publisher {
    raw: Raw,
    pool: (OwnedFd, Mapping),
    segment: SegmentId,
}

/// Gives the first word of an observer's slot.
fn word(page: &Mapping, slot: u32) -> &AtomicU64 {
    page.word64(u64::from(slot) * SLOT).unwrap()
}

fn writable(page: &OwnedFd) -> Mapping {
    Mapping::new(page, PIN_PAGE as usize, Access::ReadWrite).unwrap()
}

fn publish(name: &str, observers: u32) -> Request {
    Request::Publish { size: SIZE, reserved: 8192, attribute: 7, observers, name: name.to_owned() }
}

fn ask(raw: &mut Raw, request: &Request, fds: &[BorrowedFd<'_>]) -> Result<u64, (Status, String)> {
    match raw.ask_with(request, fds).expect("an answer").0 {
        Answer::Done { value } => Ok(value),
        Answer::Failed { status, text } => Err((status, text)),
        other => panic!("{other:?}"),
    }
}

fn observe(raw: &mut Raw, name: &str, wait_ms: u64) -> Result<(SeriesEntry, Vec<OwnedFd>), (Status, String)> {
    let request = Request::Observe { wait_ms, former: false, name: name.to_owned() };
    match raw.ask(&request).expect("an answer") {
        (Answer::Series(entry), fds) => Ok((entry, fds)),
        (Answer::Failed { status, text }, _) => Err((status, text)),
        other => panic!("{other:?}"),
    }
}

impl Publisher {
    fn new(mut raw: Raw, name: &str, observers: u32) -> Self {
        let pool = memfd::create_for_own_writing("crossdock-test", SIZE).unwrap();
        let segment = SegmentId(ask(&mut raw, &publish(name, observers), &[pool.0.as_fd()]).unwrap());
        Self { raw, pool, segment }
    }

    /// Asks for the pin page with the index `from`. Returns the daemon's answer and the page's descriptor.
    fn page(&mut self, from: u32) -> Result<(PageEntry, OwnedFd), (Status, String)> {
        match self.raw.ask(&Request::Pins { segment: self.segment, from }).expect("an answer") {
            (Answer::Pins(entry), fds) => Ok((entry, fds.into_iter().next().unwrap())),
            (Answer::Failed { status, text }, _) => Err((status, text)),
            other => panic!("{other:?}"),
        }
    }
}

fn join(daemon: &Daemon) -> Raw {
    Raw::join(&daemon.socket()).0
}

fn segments(raw: &mut Raw) -> Vec<SegmentId> {
    let Answer::Segments(page) = raw.ask(&Request::List { of: ListOf::Segments, after: 0, workflow: None }).unwrap().0
    else {
        panic!()
    };
    page.entries.into_iter().map(|e| e.segment).collect()
}

#[test]
fn an_observer_gets_a_pool_that_it_cannot_write_and_a_page_of_its_own() {
    let daemon = Daemon::start();
    let mut publisher = Publisher::new(join(&daemon), "field", 3);
    assert_eq!(publisher.page(0).unwrap_err().0, Status::NotYet, "no observer, no page");
    let (mut one, mut other) = (join(&daemon), join(&daemon));
    let (entry, fds) = observe(&mut one, "field", 0).unwrap();
    assert_eq!(
        (entry.segment, entry.size, entry.reserved, entry.attribute),
        (publisher.segment, SIZE, 8192 + 4096, 7),
        "with its page"
    );
    publisher.pool.1.word64(0).unwrap().store(11, Ordering::Release);
    let pool = Mapping::new(&fds[0], SIZE as usize, Access::Read).unwrap();
    assert_eq!(pool.word64(0).unwrap().load(Ordering::Acquire), 11);
    // The pool stays sealed, even if the descriptor is opened again through /proc.
    assert!(Mapping::new(&fds[0], SIZE as usize, Access::ReadWrite).is_err());
    let again = std::fs::OpenOptions::new().read(true).write(true).open(proc_path(&fds[0])).unwrap();
    assert!(Mapping::new(&again, SIZE as usize, Access::ReadWrite).is_err());
    assert!(std::io::Write::write(&mut &again, b"x").is_err());
    let (second, more) = observe(&mut other, "field", 0).unwrap();
    assert_ne!((entry.pin, entry.slot), (second.pin, second.slot));
    // The publisher gets the pin page read-only, and sees what the observers write in it.
    let (page, fd) = publisher.page(0).unwrap();
    assert_eq!((page.page.0, page.next, page.left), (publisher.segment.0 + 1, 1, 0));
    assert!(Mapping::new(&fd, PIN_PAGE as usize, Access::ReadWrite).is_err());
    let seen = Mapping::new(&fd, PIN_PAGE as usize, Access::Read).unwrap();
    for (entry, page) in [(&entry, &fds[1]), (&second, &more[1])] {
        word(&writable(page), entry.slot).store(entry.pin.0, Ordering::SeqCst);
        assert_eq!(word(&seen, entry.slot).load(Ordering::SeqCst), entry.pin.0);
    }
    assert_eq!(publisher.page(1).unwrap_err().0, Status::NotYet);
}

#[test]
fn the_table_tells_of_a_page_before_an_observer_has_it() {
    let daemon = Daemon::start();
    let publisher = Publisher::new(join(&daemon), "field", 80);
    let mut observer = join(&daemon);
    let words = Mapping::new(observer.table(), size_of::<LivenessTable>(), Access::Read).unwrap();
    // SAFETY: the whole liveness table of the daemon is mapped, and stays mapped during the test.
    let table: &LivenessTable = unsafe { words.start().cast().as_ref() };
    let table = || table.pages(publisher.segment);
    let before = table();
    observe(&mut observer, "field", 0).unwrap();
    let with_one = table();
    assert_ne!(with_one, before);
    for _ in 1..PIN_SLOTS {
        observe(&mut observer, "field", 0).unwrap();
    }
    assert_eq!(table(), with_one, "the page has room for all of them");
    let (next, _) = observe(&mut observer, "field", 0).unwrap();
    assert_eq!(next.slot, 0);
    assert_ne!(table(), with_one);
}

/// Sends a request that the daemon refuses at once. Returns false if the connection has ended.
fn ask_in_vain(raw: &Raw, number: u64) -> bool {
    raw.send(&open("nothing", OpenMode::OpenOnly, 0, 0).encode(number, 0), &[])
}

/// Counts how many answers to a client that does not read them fit into the client's socket.
fn most_unread_answers(daemon: &Daemon) -> u64 {
    let raw = join(daemon);
    let mut number = 1;
    while ask_in_vain(&raw, number) {
        number += 1;
    }
    // The first `None` may be the kernel's report that the connection was reset, and answers may follow it. So the loop
    // ends only at the second `None`.
    let (mut answers, mut ends) = (0, 0);
    while ends < 2 {
        match raw.receive() {
            Some(_) => answers += 1,
            None => ends += 1,
        }
    }
    answers
}

#[test]
fn a_publisher_that_does_not_read_its_answers_ends_its_own_connection_and_not_the_broker() {
    let daemon = Daemon::start();
    let broker = daemon.broker();
    let most = most_unread_answers(&daemon);
    let observer = join(&daemon);
    for number in 1..=2 {
        let request = Request::Observe { wait_ms: 60_000, former: false, name: "field".into() };
        assert!(observer.send(&request.encode(number, 0), &[]));
    }
    let publisher = join(&daemon);
    for number in 1..=most {
        assert!(ask_in_vain(&publisher, number));
    }
    // The publisher's socket is full, so it has no room for the answer to the publisher's next request, which publishes
    // the series. Both requests of the observer wait for the series, and the daemon has not made a pin page for the
    // observer yet.
    let pool = memfd::create_for_own_writing("crossdock-test", SIZE).unwrap();
    assert!(publisher.send(&publish("field", 4).encode(most + 1, 0), &[pool.0.as_fd()]));
    for number in 1..=2 {
        let (answered, answer, _) = observer.receive().expect("an answer");
        assert!(answered == number && matches!(answer, Answer::Series(_)), "{answered}: {answer:?}");
    }
    assert!(publisher.was_dropped());
    assert_eq!(daemon.broker(), broker, "the broker still runs");
    daemon.stop();
}

fn proc_path(fd: &OwnedFd) -> String {
    use std::os::fd::AsRawFd;
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

#[test]
fn a_slot_is_cleared_at_its_observers_end_and_at_its_death() {
    let daemon = Daemon::start();
    let mut publisher = Publisher::new(join(&daemon), "field", 2);
    let pin = |raw: &mut Raw| {
        let (entry, fds) = observe(raw, "field", 0).unwrap();
        let mapping = writable(&fds[1]);
        assert_eq!(word(&mapping, entry.slot).load(Ordering::SeqCst), 0, "a slot comes empty");
        word(&mapping, entry.slot).store(5, Ordering::SeqCst);
        (entry, mapping)
    };
    let (mut leaving, mut dying) = (join(&daemon), join(&daemon));
    let (entry, _kept) = pin(&mut leaving);
    pin(&mut dying);
    let page = Mapping::new(publisher.page(0).unwrap().1, PIN_PAGE as usize, Access::Read).unwrap();
    let both = || [0, 1].map(|slot| word(&page, slot).load(Ordering::SeqCst));
    assert_eq!(both(), [5, 5]);
    let mut third = join(&daemon);
    let full = observe(&mut third, "field", 0).unwrap_err();
    assert!(full.0 == Status::NoSpace && full.1.contains("field") && full.1.contains('2'), "{full:?}");
    leaving.send(&Request::Detach { segment: entry.pin, count: 1 }.encode(0, 0), &[]);
    until("the slot of the one that left is cleared", || both() == [0, 5]);
    drop(dying);
    until("the slot of the dead is cleared", || both() == [0, 0]);
    observe(&mut third, "field", 0).unwrap();
}

#[test]
fn a_page_is_for_the_observers_of_one_task() {
    let daemon = Daemon::start();
    let (mut admin, _) = Raw::join(&daemon.socket());
    let workflow = || "w".to_owned();
    ask(&mut admin, &Request::MakeWorkflow { quota: 0, name: workflow() }, &[]).unwrap();
    let mut endpoints = Vec::new();
    for task in ["publish", "one", "other"] {
        let path = daemon.folder.path().join(format!("{task}.sock"));
        let listener = socket::listen(&path).unwrap();
        let rights = if task == "publish" { Rights::PUBLISH } else { Rights::OBSERVE };
        let grants = vec![Grant { pattern: "field/*".into(), kind: SegmentKind::Series, rights }];
        let request = Request::MakeEndpoint { workflow: workflow(), task: task.into(), grants };
        ask(&mut admin, &request, &[listener.as_fd()]).unwrap();
        endpoints.push(path);
    }
    let member = |path: &std::path::Path| Raw::join(path).0;
    let mut publisher = Publisher::new(member(&endpoints[0]), "field/0", 2);
    let observed = |task: usize| {
        let mut raw = member(&endpoints[task]);
        let seen = observe(&mut raw, "field/0", 0);
        let left = seen.as_ref().ok().map(|(entry, _)| entry.pin);
        if let Some(pin) = left {
            raw.send(&Request::Detach { segment: pin, count: 1 }.encode(0, 0), &[]);
        }
        left.ok_or_else(|| seen.unwrap_err().0)
    };
    let first = observed(1).unwrap();
    assert_eq!(observed(1), Ok(first), "its own slot again");
    let second = observed(2).unwrap();
    assert_eq!(publisher.page(0).unwrap().0.left, 1, "another page for another task");
    assert_eq!(observed(2), Ok(second));
    // A task that has neither the right to publish nor the right to observe cannot open the series. The right to
    // publish includes the right to observe.
    let mut stranger = member(&endpoints[1]);
    let denied = ask(&mut stranger, &publish("field/1", 1), &[endpoint_pool().as_fd()]).unwrap_err();
    assert!(denied.0 == Status::Denied && denied.1.contains("field/1"), "{denied:?}");
    assert_eq!(observe(&mut stranger, "secret", 0).unwrap_err().0, Status::Denied);
    for path in endpoints {
        std::fs::remove_file(path).unwrap();
    }
}

fn endpoint_pool() -> OwnedFd {
    memfd::create_for_own_writing("crossdock-test", SIZE).unwrap().0
}

#[test]
fn what_is_no_pool_is_refused() {
    let daemon = Daemon::start();
    let mut raw = join(&daemon);
    let plain = memfd::create("crossdock-test", SIZE).unwrap();
    let unsealed = tempfile::tempfile().unwrap();
    unsealed.set_len(SIZE).unwrap();
    let listener = UnixListener::bind(daemon.folder.path().join("x.sock")).unwrap();
    for fd in [plain.as_fd(), unsealed.as_fd(), listener.as_fd()] {
        let refused = ask(&mut raw, &publish("field", 1), &[fd]).unwrap_err();
        assert!(refused.0 == Status::Invalid && refused.1.contains("field"), "{refused:?}");
    }
    std::fs::remove_file(daemon.folder.path().join("x.sock")).unwrap();
    let pool = endpoint_pool();
    let larger = Request::Publish { size: SIZE + 4096, reserved: 0, attribute: 0, observers: 1, name: "field".into() };
    assert_eq!(ask(&mut raw, &larger, &[pool.as_fd()]).unwrap_err().0, Status::Invalid);
    for observers in [0, 1025, u32::MAX] {
        assert_eq!(ask(&mut raw, &publish("field", observers), &[pool.as_fd()]).unwrap_err().0, Status::Invalid);
    }
    let publisher = Publisher::new(raw, "field", 5);
    let segment = publisher.segment;
    // A member that is not the publisher cannot get the series' pin pages, end the series, or reserve memory in it.
    let mut other = join(&daemon);
    assert_eq!(ask(&mut other, &Request::Pins { segment, from: 0 }, &[]).unwrap_err().0, Status::NotFound);
    assert_eq!(ask(&mut other, &Request::Unpublish { segment }, &[]).unwrap_err().0, Status::NotFound);
    assert_eq!(segments(&mut other), [segment]);
}

#[test]
fn an_observer_waits_for_the_series_and_not_beyond_its_deadline() {
    let daemon = Daemon::start();
    let mut late = join(&daemon);
    let began = Instant::now();
    let timed_out = observe(&mut late, "field", 100).unwrap_err();
    assert!(timed_out.0 == Status::TimedOut && timed_out.1.contains("series 'field'"), "{timed_out:?}");
    assert!(began.elapsed() >= Duration::from_millis(100) && began.elapsed() < Duration::from_secs(20));
    // Several observers wait at the same time. Each must get a slot of its own in a pin page.
    let waiting: Vec<_> = (0..3)
        .map(|_| {
            let mut raw = join(&daemon);
            std::thread::spawn(move || (observe(&mut raw, "field", 30_000).unwrap().0, raw))
        })
        .collect();
    std::thread::sleep(Duration::from_millis(50));
    let publisher = Publisher::new(join(&daemon), "field", 3);
    // All observers stay connected until the slots are compared, because the slot of an observer that leaves is given
    // to another observer.
    let seen: Vec<_> = waiting.into_iter().map(|w| w.join().unwrap()).collect();
    let slots: BTreeSet<_> = seen.iter().map(|(entry, _)| (entry.segment, entry.slot)).collect();
    assert_eq!(slots, (0..3).map(|slot| (publisher.segment, slot)).collect());
}

#[test]
fn there_is_one_publisher_until_it_ends_or_dies() {
    let daemon = Daemon::start();
    let mut first = Publisher::new(join(&daemon), "field", 1);
    let mut next = join(&daemon);
    let second = |raw: &mut Raw| ask(raw, &publish("field", 1), &[endpoint_pool().as_fd()]);
    let taken = second(&mut next).unwrap_err();
    let process = format!("process {}", std::process::id());
    assert!(taken.0 == Status::Exists && taken.1.contains("field") && taken.1.contains(&process), "{taken:?}");
    let remove = Request::Remove { kind: SegmentKind::Series, in_use: InUse::Keep, name: "field".into() };
    assert_eq!(ask(&mut next, &remove, &[]).unwrap_err().0, Status::Busy);
    let (mut observer, segment) = (join(&daemon), first.segment);
    assert_eq!(observe(&mut observer, "field", 0).unwrap().0.segment, segment);
    ask(&mut first.raw, &Request::Unpublish { segment }, &[]).unwrap();
    // The series has ended, but it still exists: a late observer is refused only because the series allows no more than
    // one observer.
    let (mut late, _) = Raw::join(&daemon.socket());
    let full = observe(&mut late, "field", 0).unwrap_err();
    assert_eq!(full.0, Status::NoSpace, "{}", full.1);
    let successor = Publisher::new(next, "field", 1);
    assert!(successor.segment > segment);
    assert_eq!(observe(&mut late, "field", 0).unwrap().0.segment, successor.segment);
    drop(successor);
    until("the dead publisher's name can be taken", || second(&mut join(&daemon)).is_ok());
}

#[test]
fn who_has_which_slot_outlives_the_broker() {
    let daemon = Daemon::start();
    let (token, hello) = (3u8, |member| match Raw::hello_message(3) {
        Request::Hello { protocol, layout, fingerprint, token, rank, task, workflow, visitor, .. } => {
            Request::Hello { protocol, layout, fingerprint, token, member, rank, task, workflow, visitor }
        }
        other => other,
    });
    assert_eq!(token, 3);
    let mut publisher = Publisher::new(join(&daemon), "field", 3);
    let (mut staying, welcome) = Raw::greet(&daemon.socket(), &hello(MemberId::NONE));
    let Answer::Welcome { member, .. } = welcome else { panic!("{welcome:?}") };
    let pinned = |raw: &mut Raw, value| {
        let (entry, fds) = observe(raw, "field", 0).unwrap();
        word(&writable(&fds[1]), entry.slot).store(value, Ordering::SeqCst);
        entry.pin
    };
    let (kept, given_up) = (pinned(&mut staying, 1), pinned(&mut staying, 2));
    assert_ne!(kept, given_up);
    let page = Mapping::new(publisher.page(0).unwrap().1, PIN_PAGE as usize, Access::Read).unwrap();
    daemon.kill_broker();
    // The member connects again, and lists only one of its two slots as in use. So the daemon clears and frees the
    // other slot.
    let (back, _) = Raw::greet(&daemon.socket(), &hello(member));
    back.send(&Request::Hold { segment: kept, count: 1 }.encode(0, 0), &[]);
    back.send(&Request::Hold { segment: SegmentId(0), count: 0 }.encode(0, 0), &[]);
    let words = || [0, 1, 2].map(|slot| word(&page, slot).load(Ordering::SeqCst));
    until("the slot that it did not name is cleared", || words() == [1, 0, 0]);
    let mut other = join(&daemon);
    for _ in 0..2 {
        assert_ne!(observe(&mut other, "field", 0).unwrap().0.pin, kept);
    }
    assert_eq!(observe(&mut other, "field", 0).unwrap_err().0, Status::NoSpace);
    assert_eq!(words()[0], 1, "the one that it named is its own still");
}

#[test]
fn a_publisher_gives_its_series_back_after_the_keepers_death() {
    let mut daemon = Daemon::start();
    let hello = |member| match Raw::hello_message(4) {
        Request::Hello { protocol, layout, fingerprint, token, rank, task, workflow, visitor, .. } => {
            Request::Hello { protocol, layout, fingerprint, token, member, rank, task, workflow, visitor }
        }
        other => other,
    };
    let (raw, welcome) = Raw::greet(&daemon.socket(), &hello(MemberId::NONE));
    let Answer::Welcome { member, .. } = welcome else { panic!("{welcome:?}") };
    let mut publisher = Publisher::new(raw, "field", 5);
    let mut dead = join(&daemon);
    let (entry, fds) = observe(&mut dead, "field", 0).unwrap();
    let page = writable(&fds[1]);
    word(&page, entry.slot).store(9, Ordering::SeqCst);
    let (known, descriptor) = publisher.page(0).unwrap();
    kill(daemon.keeper.id(), "KILL");
    daemon.keeper.wait().unwrap();
    daemon.keeper = spawn(&daemon.socket(), &[]);
    daemon.wait_until_up();
    let (mut observer, _) = Raw::greet(&daemon.socket(), &Raw::hello_message(5));
    let lost = observe(&mut observer, "field", 0).unwrap_err();
    assert!(lost.0 == Status::Busy && lost.1.contains("field"), "{lost:?}");
    let (segment, pool) = (publisher.segment, publisher.pool.0.as_fd());
    // The daemon refuses any memory that is not the lost pool, from every member, even from the publisher.
    let (forged, _map) = memfd::create_for_own_writing("crossdock-test", SIZE).unwrap();
    assert_eq!(ask(&mut observer, &Request::Offer { segment }, &[forged.as_fd()]).unwrap_err().0, Status::Denied);
    // The daemon accepts the pool itself only from the publisher. Until the publisher has offered it, no member can
    // become an observer.
    assert_eq!(ask(&mut observer, &Request::Offer { segment }, &[fds[0].as_fd()]), Ok(0));
    assert_eq!(observe(&mut observer, "field", 0).unwrap_err().0, Status::Busy);
    publisher.raw = Raw::greet(&daemon.socket(), &hello(member)).0.number_from(100);
    assert_eq!(ask(&mut publisher.raw, &Request::Offer { segment }, &[forged.as_fd()]).unwrap_err().0, Status::Denied);
    let other = memfd::create("crossdock-test", SIZE).unwrap();
    let refused = ask(&mut publisher.raw, &Request::Offer { segment }, &[other.as_fd()]).unwrap_err();
    assert_eq!(refused.0, Status::Invalid);
    assert_eq!(ask(&mut publisher.raw, &Request::Offer { segment }, &[pool]), Ok(1));
    // The publisher now offers memory for the pin page that the dead observer used: first other memory, which the
    // daemon refuses, and then the page itself, which the daemon accepts. Then the daemon clears what the dead observer
    // had written in its slot of the page.
    drop(dead);
    let plain = memfd::create("crossdock-test", PIN_PAGE).unwrap();
    let offer = Request::Offer { segment: known.page };
    assert_eq!(ask(&mut publisher.raw, &offer, &[plain.as_fd()]).unwrap_err().0, Status::Denied);
    assert_eq!(ask(&mut publisher.raw, &offer, &[descriptor.as_fd()]), Ok(1));
    until("what the dead wrote is cleared", || word(&page, entry.slot).load(Ordering::SeqCst) == 0);
    let (entry, fds) = observe(&mut observer, "field", 1000).unwrap();
    assert_eq!((entry.segment, entry.size), (segment, SIZE));
    publisher.pool.1.word64(64).unwrap().store(3, Ordering::Release);
    let seen = Mapping::new(&fds[0], SIZE as usize, Access::Read).unwrap();
    assert_eq!(seen.word64(64).unwrap().load(Ordering::Acquire), 3);
}

#[test]
fn reserving_counts_against_the_quota_and_is_the_publishers_alone() {
    let daemon = Daemon::start_with(&["--memory", "65536"]);
    let mut publisher = Publisher::new(join(&daemon), "field", 1);
    let segment = publisher.segment;
    let reserve = |upto| Request::Reserve { segment, upto };
    assert_eq!(ask(&mut publisher.raw, &reserve(32_768), &[]), Ok(32_768));
    let mut observer = join(&daemon);
    observe(&mut observer, "field", 0).unwrap();
    assert_eq!(ask(&mut observer, &reserve(36_864), &[]).unwrap_err().0, Status::Denied);
    let beyond = Request::Publish { size: SIZE, reserved: 40_960, attribute: 0, observers: 1, name: "more".into() };
    let full = ask(&mut observer, &beyond, &[endpoint_pool().as_fd()]).unwrap_err();
    assert!(full.0 == Status::NoSpace && full.1.contains("more"), "{full:?}");
    assert_eq!(ask(&mut publisher.raw, &reserve(SIZE + 4096), &[]).unwrap_err().0, Status::Invalid);
    // The daemon's limit of memory is exactly `SIZE`. The observer's pin page takes 4096 bytes of this limit, so the
    // pool can reserve only the rest.
    assert_eq!(ask(&mut publisher.raw, &reserve(SIZE), &[]).unwrap_err().0, Status::NoSpace);
    assert_eq!(ask(&mut publisher.raw, &reserve(SIZE - 4096), &[]), Ok(SIZE - 4096));
}

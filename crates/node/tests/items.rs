//! Tests of items that members of one daemon use: whatever the members request, each item has one owner at a time.

mod support;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crossdock_client::{
    ConnectOptions, Contents, Item, ItemLevel, ItemOptions, Mode, ObjectMode, OnDeath, Region, Session, Status,
    interruptible,
};
use crossdock_layout::wire::{Answer, ItemRequest, Party, Request};
use crossdock_os::file;
use support::{Daemon, Raw, kill, until};

const LONG: Option<Duration> = Some(Duration::from_secs(10));

fn task(daemon: &Daemon, name: &str) -> Session {
    rank(daemon, name, 0)
}

fn rank(daemon: &Daemon, name: &str, rank: u32) -> Session {
    Session::connect(&ConnectOptions { task: Some(name.into()), rank: Some(rank), ..daemon.options() }).unwrap()
}

fn options(level: ItemLevel, on_death: OnDeath) -> ItemOptions {
    ItemOptions { size: 10_000, level, on_death, contents: Contents::Bytes }
}

#[test]
fn an_item_goes_from_task_to_task_with_its_bytes_and_without_a_copy() {
    let daemon = Daemon::start();
    let (a, b) = (task(&daemon, "a"), task(&daemon, "b"));
    let mut item = a.create_item("frame", &ItemOptions::bytes(10_000)).unwrap();
    assert!(item.bytes().iter().all(|byte| *byte == 0));
    item.bytes_mut().fill(7);
    item.transfer("b").unwrap();
    let mut item = b.access_item("frame", LONG).unwrap();
    assert!(item.bytes().iter().all(|byte| *byte == 7) && item.bytes().len() == 10_000);
    item.bytes_mut()[0] = 8;
    item.transfer("a").unwrap();
    assert_eq!(a.access_item("frame", LONG).unwrap().bytes()[..2], [8, 7]);
    let info = a.find_item("frame").unwrap();
    assert_eq!((info.transfers, info.copies), (2, 0));
    drop((a, b));
    daemon.stop();
}

#[test]
fn an_item_that_was_made_too_late_by_a_broker_that_died_does_not_keep_its_name() {
    for level in [ItemLevel::Verified, ItemLevel::Cooperative] {
        let daemon = Daemon::start();
        let of_session = ConnectOptions { timeout: Duration::from_secs(2), ..daemon.options() };
        let session = Session::connect(&of_session).unwrap();
        let kept = session.create_item("kept", &options(level, OnDeath::Keep)).unwrap();
        let broker = daemon.broker();
        kill(broker, "STOP");
        assert_eq!(session.create_item("x", &options(level, OnDeath::Keep)).unwrap_err().status, Status::TimedOut);
        kill(broker, "CONT");
        // The broker carries out the request that `session` has given up, and only then serves this new session.
        // `session` has not read the late answer yet.
        let other = daemon.session();
        assert!(other.find_item("x").is_ok());
        daemon.kill_broker();
        daemon.wait_until_up();
        // A new request for the key waits for a moment until the given-up request for the same key has ended. If the
        // given-up request takes longer to end, the new request fails. So the test repeats the new request.
        until("the name is free", || session.create_item("x", &options(level, OnDeath::Keep)).is_ok());
        assert_eq!(session.find_item("kept").unwrap().key, "kept");
        drop((kept, other, session));
        daemon.stop();
    }
}

/// A member of the task `task` that sends its own messages. No two members of a test have the same `token`.
fn raw_task(daemon: &Daemon, task: &str, token: u8) -> Raw {
    let mut hello = Raw::hello_message(token);
    if let Request::Hello { task: of, .. } = &mut hello {
        *of = Some(task.to_owned());
    }
    Raw::greet(&daemon.socket(), &hello).0
}

#[test]
fn a_cooperative_item_whose_maker_died_before_the_answer_goes_to_another_member() {
    let daemon = Daemon::start();
    let mut maker = raw_task(&daemon, "a", 1);
    let (level, on_death, size) = (ItemLevel::Cooperative, OnDeath::Keep, 4096);
    let create = ItemRequest::Create { size, level, on_death, key: "k".into() };
    assert!(matches!(maker.ask(&Request::Item(create)), Some((Answer::Item(_), _))));
    let other = task(&daemon, "a");
    assert_eq!(other.access_item("k", None).map(drop).unwrap_err().status, Status::NotYet, "the maker has it");
    drop(maker);
    let mut item = other.access_item("k", LONG).unwrap();
    item.bytes_mut()[0] = 1;
    item.destroy().unwrap();
    drop(other.create_item("k", &options(level, on_death)).unwrap());
    drop(other);
    daemon.stop();
}

#[test]
fn the_next_owner_of_a_file_that_lacks_memory_takes_the_memory_and_not_the_daemon() {
    let daemon = Daemon::start();
    let (mut one, mut two) = (raw_task(&daemon, "one", 1), raw_task(&daemon, "two", 2));
    for (key, size) in [("small", 64 << 20), ("large", 3 << 29)] {
        let (level, on_death, keys) = (ItemLevel::Verified, OnDeath::Keep, vec![key.to_owned()]);
        let create = ItemRequest::Create { size, level, on_death, key: key.into() };
        let (given, fds) = match one.ask(&Request::Item(create)) {
            Some((Answer::Item(given), fds)) => (given, fds),
            // This machine has no room for the large item, so the test omits it.
            Some((Answer::Failed { status: Status::NoSpace, .. }, _)) if key == "large" => break,
            other => panic!("no item, but {other:?}"),
        };
        // The first owner transfers the item without writing into its file. So the file has no memory yet.
        drop(fds);
        one.ask(&Request::Item(ItemRequest::Transfer { item: given.item, to: Party::task("two") })).unwrap();
        let access = ItemRequest::Access { read: false, wait_ms: 5000, keys };
        let (answer, fds) = two.ask(&Request::Item(access)).unwrap();
        assert!(matches!(answer, Answer::Item(_)), "{key}: {answer:?}");
        let (length, taken) = file::sizes(&fds[0]).unwrap();
        assert!(length > size && taken < 1 << 20, "{key}: {taken} of {length} bytes have memory");
    }
    drop((one, two));
    daemon.stop();
}

#[test]
fn waiting_members_get_it_in_the_step_of_the_transfer_and_by_order_of_arrival() {
    let daemon = Daemon::start();
    let a = task(&daemon, "a");
    let mut item = Some(a.create_item("frame", &ItemOptions::bytes(100)).unwrap());
    let order = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for worker in 0..3 {
            let session = rank(&daemon, "b", worker);
            let order = &order;
            scope.spawn(move || {
                std::thread::sleep(Duration::from_millis(40 * u64::from(worker)));
                let item = session.access_item("frame", LONG).unwrap();
                order.lock().unwrap().push(worker);
                item.transfer("a").unwrap();
            });
        }
        std::thread::sleep(Duration::from_millis(200));
        for _ in 0..3 {
            item.take().unwrap().transfer("b").unwrap();
            item = Some(a.access_item("frame", LONG).unwrap());
        }
        assert_eq!(*order.lock().unwrap(), [0, 1, 2]);
    });
    drop(item);
    drop(a);
    daemon.stop();
}

#[test]
fn a_task_that_does_not_exist_yet_gets_what_was_transferred_to_it_and_a_wait_may_begin_before_the_item() {
    let daemon = Daemon::start();
    let a = task(&daemon, "a");
    a.create_item("early", &ItemOptions::bytes(100)).unwrap().transfer("later").unwrap();
    a.create_item("numbered", &ItemOptions::bytes(100)).unwrap().transfer("#42").unwrap();
    let later = task(&daemon, "later");
    drop(later.access_item("early", LONG).unwrap());
    let refused = later.access_item("numbered", None).unwrap_err();
    assert_eq!(refused.status, Status::NotYet);
    later.register_number(42).unwrap();
    drop(later.access_item("numbered", LONG).unwrap());
    assert_eq!(a.register_number(42).unwrap_err().status, Status::Exists);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| later.access_any_item(&["x", "unborn"], LONG).unwrap().key().to_owned());
        std::thread::sleep(Duration::from_millis(50));
        a.create_item("unborn", &ItemOptions::bytes(1)).unwrap().transfer("later/0").unwrap();
        assert_eq!(waiting.join().unwrap(), "unborn");
    });
    drop((a, later));
    daemon.stop();
}

#[test]
fn bad_input_is_refused_with_words_that_help_and_the_item_stays_as_it_was() {
    let daemon = Daemon::start_with(&["--memory", "16777216"]);
    let (a, b) = (task(&daemon, "a"), task(&daemon, "b"));
    let status = |result: Result<_, crossdock_client::Error>| result.map(drop).unwrap_err().status;
    let bytes = ItemOptions::bytes;
    assert_eq!(status(a.create_item("k", &bytes(0))), Status::Invalid);
    assert_eq!(status(a.create_item("a b", &bytes(1))), Status::Invalid);
    assert_eq!(status(a.create_item("k", &bytes(u64::MAX))), Status::Invalid);
    assert_eq!(status(a.create_item("k", &bytes(1 << 40))), Status::NoSpace);
    assert_eq!(a.find_item("k").unwrap_err().status, Status::NotFound);
    let mut item = a.create_item("k", &bytes(100)).unwrap();
    item.bytes_mut()[0] = 9;
    let exists = b.create_item("k", &bytes(1)).unwrap_err();
    assert_eq!(exists.status, Status::Exists);
    assert!(exists.to_string().contains("task 'a', rank 0"), "{exists}");
    assert_eq!(status(a.access_item("k", LONG)), Status::Busy, "accessed twice");
    assert_eq!(b.access_item("nothing", None).unwrap_err().status, Status::NotFound);
    let began = Instant::now();
    let late = b.access_item("k", Some(Duration::from_millis(80))).unwrap_err();
    assert_eq!(late.status, Status::TimedOut);
    assert!(began.elapsed() >= Duration::from_millis(80) && began.elapsed() < Duration::from_secs(2));
    assert!(
        late.to_string().contains("belongs to task 'a', rank 0 since") && late.to_string().contains("process"),
        "{late}"
    );
    for to in ["a", "a/0", "", "x y", "#"] {
        assert_eq!(item.transfer_mut(to).unwrap_err().status, Status::Invalid, "{to}");
        assert_eq!(item.bytes()[0], 9, "it is as it was");
    }
    // A member that is not the owner sends a request with the item's id, and is refused.
    let id = item.id();
    let refused = support::Raw::join(&daemon.socket()).0.ask(&crossdock_layout::wire::Request::Item(
        crossdock_layout::wire::ItemRequest::Transfer { item: id, to: crossdock_client::Party::task("b") },
    ));
    assert!(matches!(refused, Some((crossdock_layout::wire::Answer::Failed { status: Status::Denied, .. }, _))));
    // After the transfer, every call on the former owner's `Item` fails, and the error says who got the item.
    item.transfer_mut("b").unwrap();
    assert!(item.bytes().is_empty() && item.bytes_mut().is_empty() && item.base().is_null());
    for error in [item.transfer_mut("b").unwrap_err(), item.destroy_mut().unwrap_err(), item.resize(5).unwrap_err()] {
        assert_eq!(error.status, Status::Closed);
        assert!(error.to_string().contains("transferred to task 'b'"), "{error}");
    }
    // The item is destroyed while another member waits for it.
    let mine = b.access_item("k", LONG).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| a.access_item("k", LONG).unwrap_err());
        until("the member waits", || b.find_item("k").unwrap().waiting == 1);
        mine.destroy().unwrap();
        let error = waiting.join().unwrap();
        assert_eq!(error.status, Status::NotFound);
        assert!(error.to_string().contains("destroyed by task 'b'"), "{error}");
    });
    assert!(a.list().unwrap().items.is_empty() && a.list().unwrap().segments.is_empty());
    drop((item, a, b));
    daemon.stop();
}

#[test]
fn a_deadline_that_passes_as_another_message_arrives_is_told() {
    use crossdock_layout::wire::{ItemRequest, Request};
    let daemon = Daemon::start();
    let raw = support::Raw::join(&daemon.socket()).0;
    for n in 10..50 {
        let access = ItemRequest::Access { read: false, wait_ms: 25, keys: vec!["nothing".into()] };
        assert!(raw.send(&Request::Item(access).encode(2 * n, 1), &[]));
        // The pause ends just after the deadline of the first request, so this deadline passes at about the time at
        // which the second request arrives. The daemon's figure for free memory is old by then, so the daemon first
        // reads the figure again.
        std::thread::sleep(Duration::from_micros(25_000 + n * 30));
        let find = ItemRequest::Find { key: "nothing".into() };
        assert!(raw.send(&Request::Item(find).encode(2 * n + 1, 1), &[]));
        let mut answers: Vec<_> = (0..2).map(|_| raw.receive().expect("an answer to each").0).collect();
        answers.sort_unstable();
        assert_eq!(answers, [2 * n, 2 * n + 1]);
    }
    drop(raw);
    daemon.stop();
}

#[test]
fn what_is_dropped_stays_its_tasks_and_can_be_accessed_again() {
    let daemon = Daemon::start();
    let a = task(&daemon, "a");
    let mut item = a.create_item("k", &ItemOptions::bytes(100)).unwrap();
    item.bytes_mut()[1] = 3;
    drop(item);
    assert_eq!(a.access_item("k", None).unwrap().bytes()[1], 3);
    assert_eq!(a.find_item("k").unwrap().transfers, 0);
    drop(a);
    daemon.stop();
}

#[test]
fn the_policy_says_what_becomes_of_a_gone_owners_item() {
    let daemon = Daemon::start();
    let a = task(&daemon, "a");
    for on_death in [OnDeath::Keep, OnDeath::Return, OnDeath::Destroy] {
        let key = on_death.word();
        a.create_item(key, &options(ItemLevel::Verified, on_death)).unwrap().transfer("b").unwrap();
        let b = task(&daemon, "b");
        let mut item = b.access_item(key, LONG).unwrap();
        item.bytes_mut()[0] = 5;
        // The member `b` ends as if it had died: its connection ends, and it sends no message about the item.
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| a.access_item(key, Some(Duration::from_millis(300))));
            std::thread::sleep(Duration::from_millis(50));
            drop(item);
            drop(b);
            let came = waiting.join().unwrap();
            match on_death {
                OnDeath::Keep => assert_eq!(came.unwrap_err().status, Status::TimedOut),
                OnDeath::Return => assert_eq!(came.unwrap().bytes()[0], 5),
                OnDeath::Destroy => {
                    let error = came.unwrap_err();
                    assert_eq!(error.status, Status::NotFound);
                    assert!(error.to_string().contains("is gone"), "{error}");
                }
            }
        });
    }
    let b = task(&daemon, "b");
    assert_eq!(b.access_item("keep", LONG).unwrap().bytes()[0], 5, "the restarted task finds it");
    drop((a, b));
    daemon.stop();
}

#[test]
fn a_shared_item_is_read_by_many_and_written_by_no_task_until_it_is_taken_back() {
    let daemon = Daemon::start();
    let (a, b, c) = (task(&daemon, "a"), task(&daemon, "b"), task(&daemon, "c"));
    let mut item = a.create_item("k", &ItemOptions::bytes(10_000)).unwrap();
    item.bytes_mut().fill(1);
    assert_eq!(b.read_item("k", None).unwrap_err().status, Status::NotYet);
    let shared = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| b.read_item("k", LONG).unwrap().bytes()[9_999]);
        std::thread::sleep(Duration::from_millis(50));
        let shared = item.share().unwrap();
        assert_eq!(waiting.join().unwrap(), 1);
        shared
    });
    let reader = c.read_item("k", LONG).unwrap();
    assert_eq!((shared.bytes()[0], reader.bytes()[0]), (1, 1));
    assert_eq!(b.access_item("k", None).unwrap_err().status, Status::NotYet);
    // The reader closes the item in time, so the owner can write to the item again without a copy.
    let mut item = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| shared.unshare(LONG).unwrap());
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(b.read_item("k", None).unwrap_err().status, Status::NotYet, "no new reader while it is taken back");
        drop(reader);
        waiting.join().unwrap()
    });
    assert_eq!(a.find_item("k").unwrap().copies, 0);
    item.bytes_mut().fill(2);
    // The reader keeps the item open. So the reader keeps the old bytes, and the owner gets a copy.
    let shared = item.share().unwrap();
    let reader = b.read_item("k", LONG).unwrap();
    let mut item = shared.unshare(Some(Duration::from_millis(50))).unwrap();
    item.bytes_mut().fill(3);
    assert!(reader.bytes().iter().all(|byte| *byte == 2));
    assert_eq!(a.find_item("k").unwrap().copies, 1);
    let reserved = a.list().unwrap().workflows[0].reserved;
    drop(reader);
    support::until("the readers' bytes are given back", || a.list().unwrap().workflows[0].reserved < reserved);
    drop((item, a, b, c));
    daemon.stop();
}

#[test]
fn what_a_former_owner_wrote_behind_the_end_of_an_item_is_not_in_the_item_after_it_has_grown() {
    let daemon = Daemon::start();
    let (mut one, two) = (raw_task(&daemon, "one", 1), task(&daemon, "two"));
    let (level, on_death) = (ItemLevel::Verified, OnDeath::Keep);
    let create = ItemRequest::Create { size: 5000, level, on_death, key: "k".into() };
    let Some((Answer::Item(given), fds)) = one.ask(&Request::Item(create)) else { panic!("no item") };
    let (end, _) = file::sizes(&fds[0]).unwrap();
    file::write_all_at(&fds[0], &vec![7; end as usize], 0).unwrap();
    // The page behind the end stays a hole. So the file looks whole to the next owner.
    file::write_all_at(&fds[0], &[7; 20_000], end + 4096).unwrap();
    drop(fds);
    let mut item = std::thread::scope(|scope| {
        let opening = scope.spawn(|| two.access_item("k", LONG).unwrap());
        until("the next owner waits", || two.find_item("k").unwrap().waiting == 1);
        one.ask(&Request::Item(ItemRequest::Transfer { item: given.item, to: Party::task("two") })).unwrap();
        opening.join().unwrap()
    });
    assert!(item.bytes().iter().all(|byte| *byte == 7));
    item.resize(50_000).unwrap();
    assert!(item.bytes()[..5000].iter().all(|byte| *byte == 7));
    assert_eq!(item.bytes()[5000..].iter().find(|byte| **byte != 0), None);
    drop((one, item, two));
    daemon.stop();
}

#[test]
fn an_item_grows_and_shrinks_and_keeps_its_bytes() {
    let daemon = Daemon::start_with(&["--memory", "33554432"]);
    let a = task(&daemon, "a");
    let mut item = a.create_item("k", &ItemOptions::bytes(5_000)).unwrap();
    item.bytes_mut().fill(7);
    for (size, kept) in [(100_000, 5_000), (3_000, 3_000), (9_000, 3_000), (8 << 20, 3_000), (1, 1)] {
        item.resize(size).unwrap();
        assert_eq!(item.size(), size);
        assert_eq!(item.bytes().iter().filter(|byte| **byte == 7).count(), kept, "at {size}");
        assert_eq!(a.find_item("k").unwrap().size, size);
    }
    for (size, status) in [(0, Status::Invalid), (1 << 40, Status::NoSpace), (64 << 20, Status::NoSpace)] {
        assert_eq!(item.resize(size).unwrap_err().status, status);
        assert_eq!((item.size(), item.bytes()[0]), (1, 7), "it is as it was");
    }
    assert_eq!(a.list().unwrap().workflows[0].reserved, 8192);
    drop((item, a));
    daemon.stop();
}

#[test]
fn a_copy_is_an_item_of_its_own_with_the_same_bytes_and_description() {
    let daemon = Daemon::start();
    let a = task(&daemon, "a");
    let order = crossdock_client::Order::C;
    let contents = Contents::Array { ty: "f64".into(), shape: vec![10, 20], order };
    let mut item = a.create_item("k", &ItemOptions { contents: contents.clone(), ..ItemOptions::bytes(1600) }).unwrap();
    item.bytes_mut()[8] = 5;
    let mut copy = item.copy("k2").unwrap();
    assert_eq!((copy.bytes()[8], copy.contents().unwrap(), copy.on_death()), (5, contents, OnDeath::Keep));
    copy.bytes_mut()[8] = 6;
    assert_eq!(item.bytes()[8], 5);
    assert_eq!(item.copy("k2").unwrap_err().status, Status::Exists);
    let bad = Contents::Array { ty: "f64".into(), shape: vec![201], order };
    assert_eq!(item.describe(&bad).unwrap_err().status, Status::Invalid);
    drop((item, copy, a));
    daemon.stop();
}

#[test]
fn a_heap_in_an_item_goes_with_it() {
    let daemon = Daemon::start();
    let (a, b) = (task(&daemon, "a"), task(&daemon, "b"));
    for level in [ItemLevel::Verified, ItemLevel::Strict, ItemLevel::Cooperative] {
        let key = level.word();
        let options = ItemOptions { contents: Contents::Heap, level, ..ItemOptions::bytes(1 << 20) };
        let mut item = a.create_item(key, &options).unwrap();
        let region = item.region().unwrap();
        let vector = region.vector::<f64>("v", crossdock_client::ObjectMode::CreateOnly, None).unwrap();
        vector.resize(1000).unwrap();
        vector.set(999, 1.5).unwrap();
        assert_eq!(item.transfer_mut("b").unwrap_err().status, Status::Busy, "its heap is in use");
        drop((vector, region));
        item.transfer_mut("b").unwrap();
        let mut item = b.access_item(key, LONG).unwrap();
        let region = item.region().unwrap();
        let vector = region.vector::<f64>("v", crossdock_client::ObjectMode::OpenOnly, None).unwrap();
        assert_eq!(vector.get(999).unwrap(), 1.5);
        drop((vector, region));
        item.destroy().unwrap();
    }
    assert!(a.list().unwrap().items.is_empty());
    drop((a, b));
    daemon.stop();
}

#[test]
fn a_cooperative_item_that_was_closed_and_opened_again_keeps_the_heap_that_is_still_in_use() {
    let daemon = Daemon::start();
    let (first, second, b) = (task(&daemon, "a"), task(&daemon, "a"), task(&daemon, "b"));
    let options = ItemOptions {
        contents: Contents::Heap,
        level: ItemLevel::Cooperative,
        on_death: OnDeath::Keep,
        ..ItemOptions::bytes(1 << 20)
    };
    let mut item = first.create_item("k", &options).unwrap();
    let vector = item.region().unwrap().vector::<f64>("v", ObjectMode::CreateOnly, None).unwrap();
    vector.resize(1).unwrap();
    vector.set(0, 1.5).unwrap();
    drop(item);
    for session in [&first, &second] {
        let mut item = session.access_item("k", LONG).unwrap();
        assert_eq!(item.open_region(Mode::Recreate).unwrap_err().status, Status::Busy);
        assert_eq!(item.describe(&Contents::Bytes).unwrap_err().status, Status::Busy);
        assert_eq!(item.transfer_mut("b").unwrap_err().status, Status::Busy);
        assert_eq!(item.destroy_mut().unwrap_err().status, Status::Busy);
    }
    assert_eq!(vector.get(0).unwrap(), 1.5);
    drop(vector);
    let mut item = second.access_item("k", LONG).unwrap();
    assert!(item.open_region(Mode::Recreate).unwrap().objects().unwrap().is_empty());
    item.transfer("b").unwrap();
    b.access_item("k", LONG).unwrap().destroy().unwrap();
    drop((first, second, b));
    daemon.stop();
}

#[test]
fn the_heap_of_an_item_is_the_one_of_its_present_memory_even_if_an_old_heap_is_in_use() {
    let daemon = Daemon::start();
    let (a, b) = (task(&daemon, "a"), task(&daemon, "b"));
    let write = |item: &mut Item, value: f64| {
        let vector = item.region().unwrap().vector::<f64>("v", ObjectMode::OpenOrCreate, None).unwrap();
        vector.resize(1).unwrap();
        vector.set(0, value).unwrap();
    };
    let read = |region: &Region| region.vector::<f64>("v", ObjectMode::OpenOnly, None).unwrap().get(0).unwrap();
    let options = ItemOptions { contents: Contents::Heap, ..ItemOptions::bytes(1 << 20) };
    let mut item = a.create_item("k", &options).unwrap();
    write(&mut item, 1.0);
    // The reader keeps the heap of its first view. So the owner continues with a copy, and the reader's second view
    // shows this copy.
    let shared = item.share().unwrap();
    let old = b.read_item("k", LONG).unwrap().region().unwrap();
    let mut item = shared.unshare(None).unwrap();
    write(&mut item, 2.0);
    let shared = item.share().unwrap();
    let new = b.read_item("k", LONG).unwrap().region().unwrap();
    assert_eq!((read(&old), read(&new)), (1.0, 2.0));
    drop((old, new));
    // The owner closes the item but keeps its heap, opens the item again, and writes. The kept heap must not show this
    // write.
    let mut item = shared.unshare(LONG).unwrap();
    let old = item.region().unwrap();
    drop(item);
    let mut item = a.access_item("k", LONG).unwrap();
    write(&mut item, 3.0);
    assert_eq!(read(&old), 2.0);
    item.transfer("b").unwrap();
    assert_eq!(read(&b.access_item("k", LONG).unwrap().region().unwrap()), 3.0);
    drop((old, a, b));
    daemon.stop();
}

#[test]
fn a_handle_leads_to_the_heap_of_an_open_item_and_not_to_one_of_an_earlier_opening() {
    let daemon = Daemon::start();
    let (a, b) = (task(&daemon, "a"), task(&daemon, "b"));
    let options = ItemOptions { contents: Contents::Heap, ..ItemOptions::bytes(1 << 20) };
    let mut item = a.create_item("k", &options).unwrap();
    let handle = item.region().unwrap().vector::<f64>("v", ObjectMode::OpenOrCreate, None).unwrap().save().unwrap();
    let of = |session: &Session| session.region_of(handle);
    assert!(of(&a).is_ok());
    let shared = item.share().unwrap();
    assert_eq!(of(&a).unwrap_err().status, Status::BadHandle);
    let (mut first, mut second) = (b.read_item("k", LONG).unwrap(), b.read_item("k", LONG).unwrap());
    let old = first.region().unwrap();
    assert!(std::sync::Arc::ptr_eq(&old, &second.region().unwrap()));
    drop(first);
    assert!(std::sync::Arc::ptr_eq(&old, &of(&b).unwrap()));
    drop(second);
    assert_eq!(of(&b).unwrap_err().status, Status::BadHandle);
    // The reader still has the heap `old` of the first sharing open. So `unshare` gives the owner a copy of the item.
    let shared = shared.unshare(None).unwrap().share().unwrap();
    let mut view = b.read_item("k", LONG).unwrap();
    assert_eq!(of(&b).unwrap_err().status, Status::BadHandle);
    let new = view.region().unwrap();
    assert!(std::sync::Arc::ptr_eq(&new, &of(&b).unwrap()) && !std::sync::Arc::ptr_eq(&new, &old));
    drop((shared, view, old, new, a, b));
    daemon.stop();
}

#[test]
fn a_late_answer_about_an_open_item_leaves_the_item_to_its_owner() {
    let daemon = Daemon::start();
    let options = |name: &str| ConnectOptions { task: Some(name.into()), rank: Some(0), ..daemon.options() };
    let a = Session::connect(&ConnectOptions { timeout: Duration::from_secs(1), ..options("a") }).unwrap();
    let other = task(&daemon, "a");
    let mut item = a.create_item("k", &ItemOptions::bytes(200)).unwrap();
    item.bytes_mut().fill(7);
    item.resize(100).unwrap();
    let broker = daemon.broker();
    support::kill(broker, "STOP");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(1500));
            support::kill(broker, "CONT");
        });
        // The request to resize times out, so the owner sends a request to reopen the item. While the owner waits for
        // the answer to that request, the daemon is continued and answers the request to resize.
        assert_eq!(item.resize(8192).unwrap_err().status, Status::TimedOut);
    });
    assert!(item.is_open());
    a.find_item("k").unwrap();
    assert_eq!(other.access_item("k", None).map(drop).unwrap_err().status, Status::NotYet);
    item.resize(300).unwrap();
    assert_eq!(item.bytes(), [[7; 100], [0; 100], [0; 100]].concat(), "new bytes are zero");
    item.bytes_mut()[299] = 4;
    drop(item);
    assert_eq!(other.access_item("k", None).unwrap().bytes()[299], 4);
    drop((a, other));
    daemon.stop();
}

#[test]
fn a_call_for_an_item_ends_in_time_if_the_daemon_is_stopped() {
    let daemon = Daemon::start();
    let options = ConnectOptions { task: Some("a".into()), timeout: Duration::from_millis(300), ..daemon.options() };
    let a = Session::connect(&options).unwrap();
    let mut shared = a.create_item("k", &ItemOptions::bytes(100)).unwrap().share().unwrap();
    let broker = daemon.broker();
    support::kill(broker, "STOP");
    let began = Instant::now();
    for timeout in [None, Some(Duration::from_millis(100)), Some(Duration::from_millis(500))] {
        assert_eq!(a.access_item("other", timeout).map(drop).unwrap_err().status, Status::TimedOut);
    }
    assert_eq!(shared.unshare_mut(Some(Duration::from_millis(100))).unwrap_err().status, Status::TimedOut);
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    support::kill(broker, "CONT");
    // While the daemon was stopped, the `SharedItem` could not open the item again. So the `SharedItem` has closed the
    // item, and this task can open it by its key.
    assert_eq!(shared.view().map(drop).unwrap_err().status, Status::Closed);
    drop(a.access_item("k", LONG).unwrap());
    drop(shared);
    a.close().unwrap();
    daemon.stop();
}

#[test]
fn a_cooperative_item_is_handed_over_without_the_daemon() {
    let daemon = Daemon::start();
    let (a, b) = (task(&daemon, "a"), task(&daemon, "b"));
    let item = a.create_item("k", &options(ItemLevel::Cooperative, OnDeath::Return)).unwrap();
    let mut item = Some(item);
    item.as_mut().unwrap().bytes_mut()[0] = 1;
    // Each task opens the item once and transfers it once. After that, each task knows the number that stands for the
    // other task in the owner word. So the tasks need no daemon, and the daemon is stopped.
    item.take().unwrap().transfer("b").unwrap();
    b.access_item("k", LONG).unwrap().transfer("a").unwrap();
    support::kill(daemon.broker(), "STOP");
    for _ in 0..1000 {
        let mut item = a.access_item("k", LONG).unwrap();
        item.bytes_mut()[1] = item.bytes()[1].wrapping_add(1);
        item.transfer("b").unwrap();
        b.access_item("k", LONG).unwrap().transfer("a").unwrap();
    }
    let item = a.access_item("k", LONG).unwrap();
    assert_eq!(item.bytes()[..2], [1, 232]);
    assert_eq!(b.access_item("k", Some(Duration::from_millis(20))).unwrap_err().status, Status::TimedOut);
    support::kill(daemon.broker(), "CONT");
    assert_eq!(a.access_item("k", None).unwrap_err().status, Status::Busy);
    item.transfer("b").unwrap();
    let mut item = b.access_item("k", LONG).unwrap();
    assert_eq!(item.transfer_mut("b").unwrap_err().status, Status::Invalid);
    assert_eq!(item.resize(5).unwrap_err().status, Status::Invalid);
    assert_eq!(item.share_mut().unwrap_err().status, Status::Invalid);
    item.destroy().unwrap();
    assert_eq!(a.access_item("k", None).unwrap_err().status, Status::NotFound);
    drop((a, b));
    daemon.stop();
}

#[test]
fn a_call_that_waits_for_a_cooperative_item_does_not_take_it_after_the_session_was_closed() {
    let daemon = Daemon::start();
    let (a, b) = (task(&daemon, "a"), task(&daemon, "b"));
    let item = a.create_item("k", &options(ItemLevel::Cooperative, OnDeath::Keep)).unwrap();
    assert_eq!(b.access_item("k", None).map(drop).unwrap_err().status, Status::NotYet);
    let waiting = std::thread::spawn({
        let b = b.clone();
        move || b.access_item("k", LONG).map(drop)
    });
    std::thread::sleep(Duration::from_millis(100));
    b.close().unwrap();
    item.transfer("b").unwrap();
    assert_eq!(waiting.join().unwrap().unwrap_err().status, Status::Closed);
    drop(task(&daemon, "b").access_item("k", LONG).unwrap());
    drop(a);
    daemon.stop();
}

#[test]
fn a_cooperative_key_that_was_destroyed_and_made_anew_names_the_new_item() {
    let daemon = Daemon::start();
    let (a, b) = (task(&daemon, "a"), task(&daemon, "b"));
    let make = || a.create_item("k", &options(ItemLevel::Cooperative, OnDeath::Keep)).unwrap();
    let first = make();
    assert_eq!(b.access_item("k", None).map(drop).unwrap_err().status, Status::NotYet);
    first.destroy().unwrap();
    // `b` still has the memory of the first item mapped. It must wait for the second item, and must not use the memory
    // of the first item.
    let waiting = std::thread::spawn({
        let b = b.clone();
        move || b.access_item("k", LONG).map(|mut item| item.bytes_mut()[0])
    });
    std::thread::sleep(Duration::from_millis(100));
    let mut second = make();
    second.bytes_mut()[0] = 2;
    second.transfer("b").unwrap();
    assert_eq!(waiting.join().unwrap().unwrap(), 2);
    drop((a, b));
    daemon.stop();
}

#[test]
fn a_strict_item_gets_fresh_pages_at_every_transfer_and_a_large_one_delays_no_request() {
    let daemon = Daemon::start();
    let (a, b) = (task(&daemon, "a"), task(&daemon, "b"));
    let strict = ItemOptions { level: ItemLevel::Strict, ..ItemOptions::bytes(256 << 20) };
    let mut item = a.create_item("k", &strict).unwrap();
    let last = item.bytes().len() - 1;
    item.bytes_mut()[last] = 9;
    let first = a.find_item("k").unwrap().file;
    item.transfer("b").unwrap();
    let (mut slowest, began) = (Duration::ZERO, Instant::now());
    let item = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| b.access_item("k", LONG).unwrap());
        while !waiting.is_finished() {
            let began = Instant::now();
            a.find_item("k").unwrap();
            slowest = slowest.max(began.elapsed());
        }
        waiting.join().unwrap()
    });
    println!("copied 256 MiB in {:?}, slowest other request {slowest:?}", began.elapsed());
    assert!(slowest < Duration::from_millis(200), "{slowest:?}");
    assert_eq!(item.bytes()[last], 9);
    let info = b.find_item("k").unwrap();
    assert!(info.file != first && info.copies == 0);
    drop((item, a, b));
    daemon.stop();
}

#[test]
fn ownership_survives_the_broker_and_a_transfer_happens_once() {
    let daemon = Daemon::start();
    let (a, b) = (task(&daemon, "a"), task(&daemon, "b"));
    let mut held = a.create_item("held", &ItemOptions::bytes(100)).unwrap();
    held.bytes_mut()[0] = 1;
    let shared = a.create_item("shared", &ItemOptions::bytes(100)).unwrap().share().unwrap();
    a.create_item("sent", &ItemOptions::bytes(100)).unwrap().transfer("b").unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| b.access_item("ball", LONG).unwrap().bytes()[0]);
        std::thread::sleep(Duration::from_millis(50));
        daemon.kill_broker();
        let mut ball = a.create_item("ball", &ItemOptions::bytes(100)).unwrap();
        ball.bytes_mut()[0] = 7;
        daemon.kill_broker();
        ball.transfer("b").unwrap();
        assert_eq!(waiting.join().unwrap(), 7);
    });
    daemon.kill_broker();
    assert_eq!(held.bytes()[0], 1);
    let state = |key: &str| a.find_item(key).unwrap();
    assert_eq!(state("held").holder, a.member());
    assert_eq!(state("shared").state, crossdock_client::ItemState::Shared);
    assert_eq!(state("sent").owner.to_string(), "task 'b'");
    held.transfer("b").unwrap();
    for key in ["held", "sent", "ball"] {
        b.access_item(key, LONG).unwrap().destroy().unwrap();
    }
    shared.unshare(LONG).unwrap().destroy().unwrap();
    assert!(a.list().unwrap().segments.is_empty());
    drop((a, b));
    daemon.stop();
}

#[test]
fn a_workflow_ends_with_its_items_and_a_daemon_leaves_nothing() {
    let daemon = Daemon::start();
    let a = task(&daemon, "a");
    a.make_workflow("w", 1 << 20).unwrap();
    let inside = Session::connect(&ConnectOptions { workflow: Some("w".into()), ..daemon.options() }).unwrap();
    for level in [ItemLevel::Verified, ItemLevel::Strict, ItemLevel::Cooperative] {
        drop(inside.create_item(level.word(), &options(level, OnDeath::Keep)).unwrap());
    }
    let too_much = inside.create_item("large", &ItemOptions::bytes(2 << 20)).unwrap_err();
    assert_eq!(too_much.status, Status::NoSpace);
    assert!(too_much.to_string().contains("quota of workflow 'w'"), "{too_much}");
    assert_eq!(a.list().unwrap().items.len(), 3);
    a.end_workflow("w").unwrap();
    assert!(a.list().unwrap().items.is_empty() && a.list().unwrap().segments.is_empty());
    drop((inside, a));
    daemon.stop();
}

/// One thread of the session `a` waits for the item `k`. Another thread of `a` makes the item and transfers it to the
/// task `b`, which transfers it back at once. `check` is the check of the transferring thread. It keeps this thread
/// busy until the waiting thread has the item. Gives the item of the waiting thread, and the transfer's result.
fn comes_back(a: &Session, daemon: &Daemon, check: fn() -> bool) -> (Item, crossdock_client::Result<()>) {
    let b = task(daemon, "b");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| a.access_item("k", LONG).unwrap());
        std::thread::sleep(Duration::from_millis(300));
        let item = a.create_item("k", &ItemOptions::bytes(100)).unwrap();
        let next = scope.spawn(|| b.access_item("k", LONG).unwrap().transfer("a").unwrap());
        std::thread::sleep(Duration::from_millis(300));
        // The broker does not answer before the transferring thread is in its check.
        let broker = daemon.broker();
        kill(broker, "STOP");
        scope.spawn(move || {
            std::thread::sleep(Duration::from_millis(800));
            kill(broker, "CONT");
        });
        let transferred = interruptible(check, || item.transfer("b"));
        next.join().unwrap();
        (waiting.join().unwrap(), transferred)
    })
}

fn busy_for_a_while() {
    std::thread::sleep(Duration::from_secs(3));
}

#[test]
fn an_item_that_came_back_before_its_transfer_returned_is_open_until_it_is_closed() {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    fn busy_at_first() -> bool {
        if CALLS.fetch_add(1, Ordering::Relaxed) == 0 {
            busy_for_a_while();
        }
        false
    }
    let daemon = Daemon::start();
    let a = task(&daemon, "a");
    let (item, transferred) = comes_back(&a, &daemon, busy_at_first);
    transferred.unwrap();
    let another = task(&daemon, "a");
    another.access_item("k", None).expect_err("one member at a time has the item");
    drop(item);
    another.access_item("k", LONG).unwrap().destroy().unwrap();
    drop((a, another));
    daemon.stop();
}

#[test]
fn an_item_that_came_back_before_its_transfer_failed_is_open_until_it_is_closed() {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    // The first call of the check interrupts the request to transfer the item. The second call is during the request
    // to open the item again.
    fn interrupts_and_is_busy() -> bool {
        let calls = CALLS.fetch_add(1, Ordering::Relaxed);
        if calls == 1 {
            busy_for_a_while();
        }
        calls == 0
    }
    let daemon = Daemon::start();
    let a = task(&daemon, "a");
    let (item, transferred) = comes_back(&a, &daemon, interrupts_and_is_busy);
    assert_eq!(transferred.unwrap_err().status, Status::TimedOut);
    let another = task(&daemon, "a");
    another.access_item("k", None).expect_err("one member at a time has the item");
    drop(item);
    another.access_item("k", LONG).unwrap().destroy().unwrap();
    drop((a, another));
    daemon.stop();
}

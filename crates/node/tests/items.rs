//! Items between members of a daemon: one owner at a time, whatever they ask for.

mod support;

use std::time::{Duration, Instant};

use crossdock_client::{ConnectOptions, Contents, ItemLevel, ItemOptions, OnDeath, Session, Status};
use support::Daemon;

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
fn whoever_waits_gets_it_in_the_step_of_the_transfer_and_by_order_of_arrival() {
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
    assert!(exists.message.contains("task 'a', rank 0"), "{exists}");
    assert_eq!(status(a.access_item("k", LONG)), Status::Busy, "accessed twice");
    assert_eq!(b.access_item("nothing", None).unwrap_err().status, Status::NotFound);
    let began = Instant::now();
    let late = b.access_item("k", Some(Duration::from_millis(80))).unwrap_err();
    assert_eq!(late.status, Status::TimedOut);
    assert!(began.elapsed() >= Duration::from_millis(80) && began.elapsed() < Duration::from_secs(2));
    assert!(late.message.contains("belongs to task 'a', rank 0 since") && late.message.contains("process"), "{late}");
    for to in ["a", "a/0", "", "x y", "#"] {
        assert_eq!(item.hand_over(to).unwrap_err().status, Status::Invalid, "{to}");
        assert_eq!(item.bytes()[0], 9, "it is as it was");
    }
    // Others name its number, too.
    let id = item.id();
    let refused = support::Raw::join(&daemon.socket()).0.ask(&crossdock_layout::wire::Request::Item(
        crossdock_layout::wire::ItemRequest::Transfer { item: id, to: crossdock_client::Party::task("b") },
    ));
    assert!(matches!(refused, Some((crossdock_layout::wire::Answer::Failed { status: Status::Denied, .. }, _))));
    // Spent: every call says where it went.
    item.hand_over("b").unwrap();
    assert!(item.bytes().is_empty() && item.bytes_mut().is_empty() && item.base().is_null());
    for error in [item.hand_over("b").unwrap_err(), item.end().unwrap_err(), item.resize(5).unwrap_err()] {
        assert_eq!(error.status, Status::Closed);
        assert!(error.message.contains("transferred to task 'b'"), "{error}");
    }
    // Destroyed while others wait.
    let mine = b.access_item("k", LONG).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| a.access_item("k", LONG).unwrap_err());
        std::thread::sleep(Duration::from_millis(50));
        mine.destroy().unwrap();
        let told = waiting.join().unwrap();
        assert_eq!(told.status, Status::NotFound);
        assert!(told.message.contains("destroyed by task 'b'"), "{told}");
    });
    assert!(a.list().unwrap().items.is_empty() && a.list().unwrap().segments.is_empty());
    drop((item, a, b));
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
        // As by death: the connection ends, and nothing was said of the item.
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
                    assert!(error.message.contains("is gone"), "{error}");
                }
            }
        });
    }
    let b = task(&daemon, "b");
    assert_eq!(b.access_item("keep", LONG).unwrap().bytes()[0], 5, "the restarted task finds it");
    drop((a, b));
    daemon.stop();
}

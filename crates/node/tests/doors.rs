//! Tests of the doors of items. A door is the mount through which the daemon opens an item's files for members. A
//! former user of an item cannot open the item's file again through a path descriptor, even if the broker is killed
//! meanwhile.

mod support;

use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crossdock_client::{ConnectOptions, Item, ItemOptions, Session};
use crossdock_layout::SegmentId;
use crossdock_layout::wire::{Answer, ItemLevel, ItemRequest, OnDeath, Request};
use crossdock_os::tmpfs::Folder;
use rustix::fs::{Mode, OFlags};
use support::{Daemon, Raw, set_limit, starve};

const LONG: Option<Duration> = Some(Duration::from_secs(20));
const NOT_PERMITTED: i32 = 1;
const READ_ONLY: i32 = 30;

/// Lets only one test run at a time. When a test starts a daemon, it forks, and until `exec` the forked child shares
/// this process's mappings. During this time a proof in another test would fail, and its item would be copied.
static ALONE: Mutex<()> = Mutex::new(());

fn task(daemon: &Daemon, name: &str) -> Session {
    Session::connect(&ConnectOptions { task: Some(name.into()), ..daemon.options() }).unwrap()
}

/// Tells whether the daemon can make doors of items on this machine, with the rights of the user who runs the test. The
/// daemon of an ordinary user cannot make doors.
fn has_doors() -> bool {
    Folder::mount(1 << 20).is_ok_and(|folder| folder.gate().is_some())
}

/// Opens a path descriptor (O_PATH) of an item's file, through the item's mapping.
fn path_of(item: &Item) -> OwnedFd {
    let address = item.bytes().as_ptr() as u64;
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let range = maps.lines().filter_map(|line| line.split_once(' ')).map(|(range, _)| range).find(|range| {
        let (from, to) = range.split_once('-').unwrap();
        let bound = |text| u64::from_str_radix(text, 16).unwrap();
        (bound(from)..bound(to)).contains(&address)
    });
    let path = format!("/proc/self/map_files/{}", range.unwrap());
    rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap()
}

/// Opens the file through a path descriptor, first for reading and then for writing. Gives the two errors.
fn opened(path: &OwnedFd) -> [Option<i32>; 2] {
    let name = format!("/proc/self/fd/{}", path.as_raw_fd());
    [false, true].map(|write| OpenOptions::new().read(true).write(write).open(&name).err()?.raw_os_error())
}

#[test]
fn a_former_owner_does_not_come_back_by_a_path_whatever_brokers_are_killed() {
    if !has_doors() {
        return crossdock_os::testing::skip("doors");
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let daemon = Daemon::start();
    let (a, b) = (task(&daemon, "a"), task(&daemon, "b"));
    let item = a.create_item("k", &ItemOptions::bytes(5000)).unwrap();
    let path = path_of(&item);
    assert_eq!(opened(&path), [None, None], "its owner may");
    // The keeper still has the door, so the next broker gets the door from the keeper.
    daemon.kill_broker();
    item.transfer("b").unwrap();
    let mut item = b.access_item("k", LONG).unwrap();
    item.bytes_mut()[0] = 7;
    assert_eq!(a.find_item("k").unwrap().copies, 0);
    assert_eq!(opened(&path), [Some(NOT_PERMITTED), Some(READ_ONLY)]);
    daemon.kill_broker();
    assert_eq!(
        opened(&path),
        [Some(NOT_PERMITTED), Some(READ_ONLY)],
        "no process guards the gate for a moment, and it is shut"
    );
    let former = path_of(&item);
    let mut shared = item.share().unwrap();
    let reader = a.read_item("k", LONG).unwrap();
    assert_eq!(reader.bytes()[0], 7);
    assert_eq!(opened(&former), [Some(NOT_PERMITTED), Some(READ_ONLY)], "while it is shared");
    drop(reader);
    let item = shared.unshare_mut(LONG).unwrap();
    assert_eq!(opened(&path), [Some(NOT_PERMITTED), Some(READ_ONLY)]);
    assert_eq!(a.find_item("k").unwrap().copies, 0);
    item.destroy().unwrap();
    drop((a, b));
    daemon.stop();
}

/// The owner opens the item through a door while the keeper has no descriptor left, so the keeper does not get the door.
/// After the broker's death, the next broker cannot shut the door. So the next owner gets a copy of the item.
#[test]
fn an_item_whose_owners_door_the_keeper_could_not_keep_is_copied_for_the_next_owner() {
    if !has_doors() {
        return crossdock_os::testing::skip("doors");
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let daemon = Daemon::start();
    let (a, b) = (task(&daemon, "a"), task(&daemon, "b"));
    a.create_item("k", &ItemOptions::bytes(5000)).unwrap().transfer("b").unwrap();
    let limit = starve(daemon.keeper.id(), 0);
    let item = b.access_item("k", LONG).unwrap();
    // The keeper reads what the broker has sent.
    std::thread::sleep(Duration::from_millis(200));
    set_limit(daemon.keeper.id(), limit);
    let path = path_of(&item);
    let former = a.find_item("k").unwrap().file;
    daemon.kill_broker();
    item.transfer("a").unwrap();
    let mut item = a.access_item("k", LONG).unwrap();
    assert_ne!(a.find_item("k").unwrap().file, former, "the next owner has another file");
    item.bytes_mut()[0] = 7;
    if let Ok(file) = File::open(format!("/proc/self/fd/{}", path.as_raw_fd())) {
        let mut seen = [0];
        assert!(file.read_at(&mut seen, 0).is_err() || seen == [0], "the former owner reads the next owner's bytes");
    }
    item.destroy().unwrap();
    drop((a, b));
    daemon.stop();
}

/// A member that connects again and again, and each time opens its item again, gets the same door each time.
#[test]
fn an_owner_that_connects_and_opens_its_item_again_and_again_takes_no_more_descriptors() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let daemon = Daemon::start();
    let mut raw = Raw::connect(&daemon.socket());
    let Some((Answer::Welcome { member, .. }, _papers)) = raw.ask(&Raw::hello_message(3)) else { panic!() };
    let (level, on_death) = (ItemLevel::Verified, OnDeath::Keep);
    let create = ItemRequest::Create { size: 5000, level, on_death, key: "k".into() };
    let Some((Answer::Item(given), _)) = raw.ask(&Request::Item(create)) else { panic!() };
    let item = given.item;
    let count = |process: u32| std::fs::read_dir(format!("/proc/{process}/fd")).unwrap().count();
    let before = [daemon.keeper.id(), daemon.broker()].map(count);
    for round in 0..100 {
        let (again, _) = Raw::greet(&daemon.socket(), &Raw::hello_again(3, member));
        raw = again.number_from(1000 + 10 * round);
        for listed in [item, SegmentId(0)] {
            assert!(raw.send(&Request::Item(ItemRequest::Hold { item: listed }).encode(0, 0), &[]));
        }
        let opened = raw.ask(&Request::Item(ItemRequest::Reopen { item }));
        assert!(matches!(opened, Some((Answer::Item(_), _))), "{opened:?}");
    }
    let after = [daemon.keeper.id(), daemon.broker()].map(count);
    assert!(after[0] <= before[0] + 4 && after[1] <= before[1] + 4, "{before:?} descriptors became {after:?}");
    drop(raw);
    daemon.stop();
}

#[test]
fn an_item_that_goes_through_many_hands_is_not_copied_for_it() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let daemon = Daemon::start();
    let ring: Vec<_> = (0..20).map(|at| task(&daemon, &format!("t{at}"))).collect();
    let mut item = ring[0].create_item("k", &ItemOptions::bytes(100)).unwrap();
    for step in 1..=60u8 {
        let next = usize::from(step) % ring.len();
        item.bytes_mut()[0] = step;
        item.transfer(&format!("t{next}")).unwrap();
        item = ring[next].access_item("k", LONG).unwrap();
        assert_eq!(item.bytes()[0], step);
    }
    assert_eq!(ring[0].find_item("k").unwrap().copies, 0);
    item.destroy().unwrap();
    drop(ring);
    daemon.stop();
}

//! Tests of the doors of items. A door is the mount through which the daemon opens an item's files for members. A
//! former user of an item cannot open the item's file again through a path descriptor, even if the broker is killed
//! meanwhile.

mod support;

use std::fs::OpenOptions;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crossdock_client::{ConnectOptions, Item, ItemOptions, Session};
use crossdock_os::tmpfs::Folder;
use rustix::fs::{Mode, OFlags};
use support::Daemon;

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

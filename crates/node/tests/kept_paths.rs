//! What a former owner or reader can keep of an item: a path descriptor, a spliced page, a file mode. The daemon is
//! that of an ordinary user, so it has no doors. With what it keeps, the former user must neither read, write nor
//! truncate the data of the next owner.

mod support;

use std::fs::{File, Permissions};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use crossdock_client::{ConnectOptions, Grant, ItemLevel, ItemOptions, OnDeath, Party, Rights, SegmentKind, Session};
use crossdock_layout::wire::{Answer, ItemRequest, OpenMode, Request};
use rustix::fs::{Mode, OFlags};
use rustix::mount::OpenTreeFlags;
use support::{Daemon, Raw};

const LONG: Option<Duration> = Some(Duration::from_secs(20));
const SIZE: u64 = 8192;
/// The user id of an ordinary user. Any id except root's would do.
const ORDINARY: u32 = 65534;
const SECRET: u8 = 0x5e;

/// Runs `body` as an ordinary user. If the test runs as root, runs `test` in a new process as an ordinary user instead,
/// and fails if that process fails.
fn as_an_ordinary_user(test: &str, body: impl FnOnce()) {
    if !rustix::process::geteuid().is_root() {
        return body();
    }
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(folder.path(), Some(ORDINARY), Some(ORDINARY)).unwrap();
    let ended = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env("TMPDIR", folder.path())
        .uid(ORDINARY)
        .gid(ORDINARY)
        .output()
        .unwrap();
    let said = |bytes| String::from_utf8_lossy(bytes).into_owned();
    assert!(ended.status.success(), "as an ordinary user:\n{}\n{}", said(&ended.stdout), said(&ended.stderr));
}

fn task(daemon: &Daemon, name: &str) -> Session {
    Session::connect(&ConnectOptions { task: Some(name.into()), ..daemon.options() }).unwrap()
}

/// Connects a member through which the test can send any message. Such a member can keep an item's file open after it
/// has said that it gives the item up.
fn former(daemon: &Daemon) -> Raw {
    let mut hello = Raw::hello_message(1);
    let Request::Hello { token, task, .. } = &mut hello else { unreachable!() };
    *token = crossdock_os::child::random().unwrap();
    *task = Some("former".to_owned());
    let (raw, answer) = Raw::greet(&daemon.socket(), &hello);
    assert!(matches!(answer, Answer::Welcome { .. }), "{answer:?}");
    raw
}

fn create(former: &mut Raw, key: &str) -> (crossdock_layout::SegmentId, OwnedFd) {
    let request =
        ItemRequest::Create { size: SIZE, level: ItemLevel::Verified, on_death: OnDeath::Keep, key: key.into() };
    match former.ask(&Request::Item(request)) {
        Some((Answer::Item(given), fds)) => (given.item, fds.into_iter().next().unwrap()),
        other => panic!("no item but {other:?}"),
    }
}

fn give(former: &mut Raw, item: crossdock_layout::SegmentId) {
    let request = ItemRequest::Transfer { item, to: Party::task("next") };
    let answer = former.ask(&Request::Item(request));
    assert!(matches!(answer, Some((Answer::Done { .. }, _))), "{answer:?}");
}

fn path_of(fd: &OwnedFd) -> OwnedFd {
    let name = format!("/proc/self/fd/{}", fd.as_raw_fd());
    rustix::fs::open(name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap()
}

/// Opens the file behind a path descriptor, looks for the secret in it, writes to it and truncates it. Returns whether
/// the secret was in the file.
fn come_back(path: &OwnedFd) -> bool {
    let name = format!("/proc/self/fd/{}", path.as_raw_fd());
    let _ = std::fs::set_permissions(&name, Permissions::from_mode(0o600));
    let mut seen = false;
    if let Ok(file) = File::open(&name) {
        let mut bytes = vec![0; 3 * SIZE as usize];
        let length = file.read_at(&mut bytes, 0).unwrap_or(0);
        seen = bytes[..length].contains(&SECRET);
    }
    if let Ok(file) = File::options().write(true).open(&name) {
        let _ = file.write_all_at(&[0x66; 64], 4096);
        let _ = file.set_len(0);
    }
    seen
}

#[test]
fn a_former_owners_path_descriptor_leads_to_no_byte_of_the_next_owner() {
    as_an_ordinary_user("a_former_owners_path_descriptor_leads_to_no_byte_of_the_next_owner", check_a_kept_path);
}

fn check_a_kept_path() {
    let daemon = Daemon::start();
    let next = task(&daemon, "next");
    let mut former = former(&daemon);
    for restart in [false, true] {
        let key = if restart { "over-a-restart" } else { "plain" };
        let (item, fd) = create(&mut former, key);
        let path = path_of(&fd);
        // A descriptor with access mode 3. It allows neither reading nor writing, but through it a process can try to
        // open the file again.
        let name = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let third = rustix::fs::open(name, OFlags::from_bits_retain(3) | OFlags::CLOEXEC, Mode::empty());
        let tree = rustix::mount::open_tree(&fd, "", OpenTreeFlags::AT_EMPTY_PATH | OpenTreeFlags::OPEN_TREE_CLOEXEC);
        drop(fd);
        // A descriptor with access mode 3 counts as an open file in the kernel's proof. So no proof succeeds while the
        // test keeps this descriptor. To test a successful proof, too, the test keeps it only in the round without a
        // restart of the broker.
        let third = third.ok().filter(|_| !restart);
        give(&mut former, item);
        if restart {
            daemon.kill_broker();
        }
        let mut item = next.access_item(key, LONG).unwrap();
        item.bytes_mut().fill(SECRET);
        for (what, path) in [("path", Some(path)), ("mode 3", third), ("open_tree", tree.ok())] {
            let Some(path) = path else { continue };
            assert!(!come_back(&path), "{key}: the secret was seen by the descriptor of {what}");
        }
        // If the former owner had truncated the file, reading here would end this process by SIGBUS.
        assert!(item.bytes().iter().all(|byte| *byte == SECRET), "{key}: harmed");
    }
    drop((next, former));
    daemon.stop();
}

#[test]
fn a_former_owner_that_takes_all_rights_from_the_file_does_not_keep_the_next_owner_out() {
    as_an_ordinary_user(
        "a_former_owner_that_takes_all_rights_from_the_file_does_not_keep_the_next_owner_out",
        check_a_mode_of_nothing,
    );
}

fn check_a_mode_of_nothing() {
    let daemon = Daemon::start();
    let next = task(&daemon, "next");
    let mut former = former(&daemon);
    let (item, fd) = create(&mut former, "frame");
    rustix::fs::fchmod(&fd, Mode::empty()).unwrap();
    drop(fd);
    give(&mut former, item);
    drop(next.access_item("frame", LONG).unwrap());
    drop((next, former));
    daemon.stop();
}

#[test]
fn pages_that_a_former_owner_or_reader_spliced_away_are_not_the_next_owners() {
    as_an_ordinary_user(
        "pages_that_a_former_owner_or_reader_spliced_away_are_not_the_next_owners",
        check_pages_in_pipes,
    );
}

fn check_pages_in_pipes() {
    let daemon = Daemon::start();
    let next = task(&daemon, "next");
    let mut former = former(&daemon);
    let (item, fd) = create(&mut former, "frame");
    crossdock_os::memfd::reserve(&fd, 0, SIZE + 4096).unwrap();
    let (mut pipes, mut files) = (vec![spliced(&fd)], vec![path_of(&fd)]);
    drop(fd);
    give(&mut former, item);
    let mut item = next.access_item("frame", LONG).unwrap();
    item.bytes_mut().fill(1);
    // A reader closes the item properly, but keeps a spliced page and a path descriptor.
    let mut shared = item.share().unwrap();
    let read = ItemRequest::Access { read: true, wait_ms: 5000, keys: vec!["frame".into()] };
    let (fd, file) = match former.ask(&Request::Item(read)) {
        Some((Answer::Item(given), fds)) => (fds.into_iter().next().unwrap(), given.file),
        other => panic!("no item but {other:?}"),
    };
    pipes.push(spliced(&fd));
    files.push(path_of(&fd));
    drop(fd);
    former.send(&Request::Detach { segment: file, count: 1 }.encode(0, 0), &[]);
    let mut item = shared.unshare_mut(LONG).unwrap();
    item.bytes_mut().fill(SECRET);
    for (at, pipe) in pipes.iter().enumerate() {
        let mut bytes = [0; 4096];
        let length = rustix::io::read(pipe, &mut bytes).unwrap();
        assert!(!bytes[..length].contains(&SECRET), "the secret was seen in pipe {at}");
    }
    for path in &files {
        assert!(!come_back(path));
    }
    assert!(item.bytes().iter().all(|byte| *byte == SECRET));
    drop((item, next, former));
    daemon.stop();
}

/// Puts a page of the file into a pipe. The pipe then has the file's own page, not a copy.
fn spliced(fd: &OwnedFd) -> OwnedFd {
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let mut offset = 4096;
    let length = rustix::pipe::splice(fd, Some(&mut offset), &writer, None, 4096, rustix::pipe::SpliceFlags::NONBLOCK);
    assert_eq!(length, Ok(4096), "an ordinary user's daemon does not stop the splice itself");
    reader
}

/// A member sends a request `Open` with the request number of its earlier `Create`. The broker must not answer with the
/// file of the item that the `Create` made, because the item may belong to another task by then.
#[test]
fn a_former_owner_that_uses_the_number_of_its_create_again_gets_no_file() {
    let daemon = Daemon::start();
    let next = task(&daemon, "next");
    let former = former(&daemon);
    // The member's messages confirm no answer, so the broker keeps the outcomes of the member's requests.
    let ask = |number: u64, request: Request| {
        assert!(former.send(&request.encode(number, 0), &[]));
        former.receive().expect("an answer")
    };
    let (level, on_death) = (ItemLevel::Verified, OnDeath::Keep);
    let (_, answer, fds) =
        ask(50, Request::Item(ItemRequest::Create { size: SIZE, level, on_death, key: "frame".into() }));
    let Answer::Item(given) = answer else { panic!("no item but {answer:?}") };
    drop(fds);
    let transfer = ItemRequest::Transfer { item: given.item, to: Party::task("next") };
    assert!(matches!(ask(51, Request::Item(transfer)).1, Answer::Done { .. }));
    let mut owned = next.access_item("frame", LONG).unwrap();
    owned.bytes_mut().fill(SECRET);
    let open = support::open("frame", OpenMode::OpenOnly, SIZE, 0);
    assert!(former.send(&open.encode(50, 0), &[]));
    if let Some((_, answer, fds)) = former.receive() {
        panic!("the former owner got {answer:?} and {} descriptors", fds.len());
    }
    assert!(former.was_dropped());
    drop((owned, next, former));
    daemon.stop();
}

#[test]
fn what_only_confined_tasks_had_open_is_handed_on_without_a_copy() {
    as_an_ordinary_user("what_only_confined_tasks_had_open_is_handed_on_without_a_copy", check_confined_tasks);
}

fn check_confined_tasks() {
    let daemon = Daemon::start();
    let control = daemon.session();
    control.make_workflow("w", 0).unwrap();
    let grants = |confined: Rights| {
        let own = Rights::OWN.with(Rights::READ).with(confined);
        [Grant { pattern: "*".into(), kind: SegmentKind::Item, rights: own }]
    };
    let folder = tempfile::tempdir().unwrap();
    for (name, confined) in [("a", Rights::CONFINED), ("b", Rights::CONFINED), ("c", Rights::NONE)] {
        let listener = crossdock_os::socket::listen(&folder.path().join(name)).unwrap();
        control.make_endpoint("w", name, listener, &grants(confined)).unwrap();
    }
    let join = |name: &str| {
        let socket = Some(folder.path().join(name));
        Session::connect(&ConnectOptions { socket, ..ConnectOptions::default() }).unwrap()
    };
    let (a, b, c) = (join("a"), join("b"), join("c"));
    // The id of the item's file. The test sees only by this id whether the daemon has copied the item: after a copy,
    // the item has another file.
    let file = || a.find_item("k").unwrap().file;
    let item = a.create_item("k", &ItemOptions::bytes(5000)).unwrap();
    let first = file();
    item.transfer("b").unwrap();
    let item = b.access_item("k", LONG).unwrap();
    assert_eq!(file(), first, "from one that is confined");
    item.transfer("c").unwrap();
    let item = c.access_item("k", LONG).unwrap();
    assert_eq!(file(), first, "to one that is not");
    item.transfer("a").unwrap();
    let item = a.access_item("k", LONG).unwrap();
    assert_ne!(file(), first, "back from one that is not");
    drop(item);
    assert!(a.remove_item("k").is_err(), "the promise of being confined is no right");
    drop((a, b, c, control));
    drop(folder);
    daemon.stop();
}

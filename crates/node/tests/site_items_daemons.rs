//! Tests of items with real daemons of one site. When an owner on another node opens an item, the item's bytes come to
//! the owner's node.

mod support;

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::time::{Duration, Instant};

use crossdock_client::{
    ConnectOptions, Contents, End, ItemLevel, ItemOptions, ItemState, Mode, ObjectMode, OnDeath, Party, Port,
    PortOptions, Session,
};
use crossdock_layout::wire::{Answer, ItemRequest, NodeState, Request};
use crossdock_layout::{SegmentId, Status};
use crossdock_os::testing::until_within;
use rustix::fs::FallocateFlags;
use support::sites::Site;
use support::{Daemon, Raw, kill};

const PATIENCE: Option<Duration> = Some(Duration::from_secs(180));

fn until(what: &str, holds: impl FnMut() -> bool) {
    until_within(Duration::from_secs(180), what, holds);
}

/// Makes a site of three daemons. The first daemon keeps the catalog.
fn site() -> Vec<Daemon> {
    let all = Site::new().daemons(3);
    for daemon in &all {
        until("the nodes see each other", || {
            let session = Session::connect(&ConnectOptions { visitor: true, ..daemon.options() }).unwrap();
            session.nodes().unwrap().iter().filter(|node| node.state == NodeState::Joined).count() == 2
        });
    }
    all
}

fn session(daemon: &Daemon, task: &str) -> Session {
    Session::connect(&ConnectOptions { task: Some(task.into()), ..daemon.options() }).unwrap()
}

fn fill(bytes: &mut [u8], seed: u64) {
    for (n, word) in bytes.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ n as u64).to_le_bytes());
    }
}

fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Counts how many item files a node's daemon keeps. The count includes files that the node keeps only until another
/// node has pulled their bytes.
fn files(daemon: &Daemon) -> usize {
    let keeper = format!("/proc/{}/fd", daemon.keeper.id());
    let links = std::fs::read_dir(keeper).unwrap().filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    links.filter(|to| to.to_string_lossy().contains("crossdock-item-")).count()
}

#[test]
fn an_item_goes_round_three_nodes_and_keeps_its_bytes() {
    let nodes = site();
    let tasks = ["one", "two", "three"];
    let sessions: Vec<_> = nodes.iter().zip(tasks).map(|(node, task)| session(node, task)).collect();
    for (size, level) in [(10_000, ItemLevel::Verified), (3 << 20, ItemLevel::Strict), (40 << 20, ItemLevel::Verified)]
    {
        let key = format!("item{size}");
        let mut item = sessions[0].create_item(&key, &ItemOptions { level, ..ItemOptions::bytes(size) }).unwrap();
        fill(item.bytes_mut(), size);
        let (id, mut expected) = (item.id(), sum(item.bytes()));
        item.transfer("two").unwrap();
        for step in 1..6 {
            let mut item = sessions[step % 3].access_item(&key, PATIENCE).unwrap();
            assert_eq!((item.id(), item.size()), (id, size));
            assert_eq!(sum(item.bytes()), expected, "{key}, step {step}");
            fill(item.bytes_mut(), step as u64);
            expected = sum(item.bytes());
            item.transfer(tasks[(step + 1) % 3]).unwrap();
        }
        let item = sessions[0].access_item(&key, PATIENCE).unwrap();
        assert_eq!(sum(item.bytes()), expected);
        item.destroy().unwrap();
        until("nothing is left", || nodes.iter().all(|node| files(node) == 0));
    }
}

#[test]
fn a_wait_for_an_item_ends_when_its_owner_on_another_node_gives_it() {
    let nodes = site();
    let (one, two) = (session(&nodes[0], "one"), session(&nodes[1], "two"));
    let waiting = std::thread::spawn(move || {
        let mut item = two.access_item("late", PATIENCE).unwrap();
        assert_eq!(item.bytes()[0], 7);
        item.bytes_mut()[0] = 8;
        item.transfer("one").unwrap();
        two
    });
    let mut item = one.create_item("late", &ItemOptions::bytes(5000)).unwrap();
    item.bytes_mut()[0] = 7;
    let error = session(&nodes[2], "three").access_item("late", None).map(drop).unwrap_err();
    assert!(matches!(error.status, Status::NotYet | Status::NotFound), "{error}");
    item.transfer("two").unwrap();
    assert_eq!(one.access_item("late", PATIENCE).unwrap().bytes()[0], 8);
    drop(waiting.join().unwrap());
}

#[test]
fn an_item_with_a_heap_arrives_with_its_handles_valid() {
    let nodes = site();
    let (one, two) = (session(&nodes[1], "one"), session(&nodes[2], "two"));
    let options = ItemOptions { contents: Contents::Heap, ..ItemOptions::bytes(4 << 20) };
    let mut item = one.create_item("heap", &options).unwrap();
    let mut handles = Vec::new();
    let region = item.region().unwrap();
    for n in 1..100_u64 {
        let list = region.vector::<u64>(&format!("list{n}"), ObjectMode::CreateOnly, None).unwrap();
        list.resize(n).unwrap();
        list.set(n - 1, n).unwrap();
        handles.push((n, list.save().unwrap()));
    }
    drop(region);
    item.transfer("two").unwrap();
    let mut item = two.access_item("heap", PATIENCE).unwrap();
    let region = item.region().unwrap();
    for (n, handle) in handles {
        let list = region.load_vector::<u64>(handle).unwrap().to_vec().unwrap();
        assert_eq!((list.len() as u64, list.last()), (n, Some(&n)));
    }
}

#[test]
fn kills_of_brokers_during_transfers_lose_nothing() {
    let nodes = site();
    let tasks = ["one", "two", "three"];
    let sessions: Vec<_> = nodes.iter().zip(tasks).map(|(node, task)| session(node, task)).collect();
    let mut item = sessions[0].create_item("k", &ItemOptions::bytes(2 << 20)).unwrap();
    fill(item.bytes_mut(), 1);
    let mut expected = sum(item.bytes());
    item.transfer("two").unwrap();
    for step in 1..13 {
        // The test kills one broker in each step: in turn, the broker of the node that has the item, of the node that
        // gets the item, and of the third node.
        kill(nodes[(step + step / 3) % 3].broker(), "KILL");
        let mut item = sessions[step % 3].access_item("k", PATIENCE).unwrap();
        assert_eq!(sum(item.bytes()), expected, "step {step}");
        fill(item.bytes_mut(), step as u64 + 100);
        expected = sum(item.bytes());
        item.transfer(tasks[(step + 1) % 3]).unwrap();
    }
    let item = sessions[1].access_item("k", PATIENCE).unwrap();
    assert_eq!(sum(item.bytes()), expected);
    item.destroy().unwrap();
    until("nothing is left", || nodes.iter().all(|node| files(node) == 0));
}

#[test]
fn an_item_is_not_lost_while_its_node_does_not_know_how_to_reach_the_bytes() {
    // The lease is so long that no node is lost while the catalog does not answer.
    let nodes = Site { lease_ms: "120000".into(), ..Site::new() }.daemons(3);
    let (two, three) = (session(&nodes[1], "two"), session(&nodes[2], "three"));
    let mut item = three.create_item("x", &ItemOptions::bytes(256 << 20)).unwrap();
    fill(item.bytes_mut(), 1);
    let expected = sum(item.bytes());
    item.transfer("two").unwrap();
    let waiting = std::thread::spawn(move || {
        let first = two.access_item("x", PATIENCE).map(|item| sum(item.bytes()));
        (first, two)
    });
    until("the bytes are on their way", || files(&nodes[1]) > 0);
    // The catalog is stopped before the next broker of node b starts. So this broker does not know the address of any
    // node.
    let (catalog, former) = (nodes[0].broker(), nodes[1].broker());
    kill(catalog, "STOP");
    kill(former, "KILL");
    until("there is another broker", || nodes[1].broker() != former);
    std::thread::sleep(Duration::from_secs(6));
    kill(catalog, "CONT");
    let (first, two) = waiting.join().unwrap();
    let came = first.or_else(|error| {
        assert_eq!(error.status, Status::Disconnected, "{error}");
        let mut came = None;
        until("the bytes come", || match two.access_item("x", PATIENCE) {
            Ok(item) => {
                came = Some(sum(item.bytes()));
                true
            }
            Err(error) => {
                assert_eq!(error.status, Status::Disconnected, "{error}");
                false
            }
        });
        came.ok_or(error)
    });
    assert_eq!(came.unwrap(), expected);
}

#[test]
fn each_node_has_one_copy_for_its_readers_and_the_owner_waits_for_them_all() {
    let nodes = site();
    let (owner, beside) = (session(&nodes[0], "one"), session(&nodes[1], "two"));
    let (also, third) = (session(&nodes[1], "other"), session(&nodes[2], "three"));
    let mut item = owner.create_item("k", &ItemOptions::bytes(3 << 20)).unwrap();
    for round in 1..4 {
        fill(item.bytes_mut(), round);
        let (id, expected) = (item.id(), sum(item.bytes()));
        let error = beside.read_item("k", None).map(drop).unwrap_err();
        assert!(matches!(error.status, Status::NotYet | Status::NotFound), "{error}");
        // The first reader asks for the item before the owner shares it. The other readers ask after that.
        let (first, shared) = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| beside.read_item("k", PATIENCE).unwrap());
            let shared = item.share().unwrap();
            (waiting.join().unwrap(), shared)
        });
        let readers = [first, also.read_item("k", PATIENCE).unwrap(), third.read_item("k", PATIENCE).unwrap()];
        for reader in &readers {
            assert_eq!((sum(reader.bytes()), reader.id()), (expected, id));
        }
        assert_eq!((files(&nodes[0]), files(&nodes[1]), files(&nodes[2])), (1, 1, 1), "files of round {round}");
        let found = also.find_item("k").unwrap();
        assert_eq!((found.state, found.mine), (ItemState::Shared, false));
        let left = AtomicU16::new(0);
        item = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let mut item = shared.unshare(PATIENCE).unwrap();
                assert_eq!(left.load(Ordering::SeqCst), 3, "the owner writes while members read");
                item.bytes_mut()[0] ^= 1;
                item
            });
            for reader in readers {
                assert_eq!(sum(reader.bytes()), expected, "what a reader has did not change");
                left.fetch_add(1, Ordering::SeqCst);
                drop(reader);
            }
            waiting.join().unwrap()
        });
        until("the copies go", || files(&nodes[1]) + files(&nodes[2]) == 0);
    }
    item.destroy().unwrap();
    until("nothing is left", || nodes.iter().all(|node| files(node) == 0));
}

/// A task makes an item, and tells a task of another node about it at once. That task must find the item, although its
/// node may not know the item yet.
#[test]
fn an_item_of_another_node_is_found_as_soon_as_it_is_made() {
    let nodes = site();
    let (one, two) = (session(&nodes[0], "one"), session(&nodes[1], "two"));
    for n in 0..50 {
        let key = format!("k{n}");
        let item = two.create_item(&key, &ItemOptions::bytes(100)).unwrap();
        let error = one.access_item(&key, None).map(drop).unwrap_err();
        assert_eq!(error.status, Status::NotYet, "{error}");
        assert!(error.to_string().contains("two"), "{error}");
        assert_eq!(one.find_item(&format!("{key}/other")).unwrap_err().status, Status::NotFound);
        item.destroy().unwrap();
    }
}

/// If a task of another node uses a port of this node, this node's daemon has the port's end open in place of the task,
/// as a member with the task's name. When this member ends, the task itself still lives. So the task's item on this
/// node must stay. `ends` ends the member; it gets this node's daemon and the ends of
/// the port, and returns what must stay until the end of the test.
fn an_item_waits_for_a_task_when<Kept>(ends: impl FnOnce(&Daemon, Port, Port) -> Kept) {
    let nodes = site();
    let (one, two) = (session(&nodes[0], "one"), session(&nodes[1], "two"));
    let options = ItemOptions { on_death: OnDeath::Return, ..ItemOptions::bytes(100) };
    one.create_item("k", &options).unwrap().transfer("two").unwrap();
    let consumer = one.port("p", End::Consumer, &PortOptions::default(), None).unwrap();
    let producer = two.port("p", End::Producer, &PortOptions::default(), PATIENCE).unwrap();
    let stands_there = || one.list().unwrap().members.iter().any(|member| member.task == "two");
    until("the daemon has the task's end", stands_there);
    let kept = ends(&nodes[0], consumer, producer);
    until("that end is gone", || !stands_there());
    assert_eq!(one.find_item("k").unwrap().owner, Party::task("two"));
    drop(two.access_item("k", PATIENCE).unwrap());
    drop(kept);
}

#[test]
fn an_item_waits_for_a_task_whose_port_on_this_node_has_ended() {
    an_item_waits_for_a_task_when(|_, consumer, producer| {
        producer.close();
        assert_eq!(consumer.receive(PATIENCE).map(drop).unwrap_err().status, Status::Closed);
        consumer.close();
    });
}

/// The broker, whose process used the port's end, is killed.
#[test]
fn an_item_waits_for_a_task_whose_port_on_this_node_was_lost_with_the_broker() {
    an_item_waits_for_a_task_when(|daemon, consumer, producer| {
        daemon.kill_broker();
        (consumer, producer)
    });
}

/// Two tasks pass an item back and forth between two nodes. Meanwhile tasks on all three nodes must find the item at
/// every moment.
#[test]
fn an_item_is_found_on_every_node_while_it_goes_from_node_to_node() {
    let nodes = site();
    let (one, two) = (&session(&nodes[0], "one"), &session(&nodes[1], "two"));
    one.create_item("k", &ItemOptions::bytes(100)).unwrap().transfer("two").unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let seekers: Vec<_> = nodes
            .iter()
            .map(|node| {
                let (session, is_over) = (session(node, "seeker"), &is_over);
                scope.spawn(move || {
                    let mut found = 0;
                    while !is_over.load(Ordering::Relaxed) {
                        session.find_item("k").unwrap_or_else(|error| panic!("after {found} answers: {error}"));
                        found += 1;
                    }
                    found
                })
            })
            .collect();
        let began = Instant::now();
        let pass = || {
            let mut rounds = 0;
            while rounds < 60 || began.elapsed() < Duration::from_secs(3) {
                two.access_item("k", PATIENCE)?.transfer("one")?;
                one.access_item("k", PATIENCE)?.transfer("two")?;
                rounds += 1;
            }
            Ok::<_, crossdock_client::Error>(())
        };
        let passed = pass();
        is_over.store(true, Ordering::Relaxed);
        passed.unwrap();
        let found: Vec<u32> = seekers.into_iter().map(|seeker| seeker.join().unwrap()).collect();
        assert!(found.iter().all(|found| *found > 5), "too few look-ups to mean anything: {found:?}");
    });
}

/// An owner takes a shared item back and writes to it at once, while another node is pulling the bytes. The reader on
/// that node must get the bytes as they were shared, or an error.
#[test]
fn a_reader_gets_what_was_shared_although_its_owner_writes_again_at_once() {
    let nodes = site();
    let (owner, reader) = (session(&nodes[0], "one"), &session(&nodes[1], "two"));
    let mut item = owner.create_item("k", &ItemOptions::bytes(8 << 20)).unwrap();
    let mut read = 0;
    for round in 1..9_u64 {
        fill(item.bytes_mut(), round);
        let expected = sum(item.bytes());
        let shared = item.share().unwrap();
        item = std::thread::scope(|scope| {
            let patience = if round % 4 == 0 { PATIENCE } else { Some(Duration::from_millis(500)) };
            let reading = scope.spawn(move || reader.read_item("k", patience));
            // The moment at which the owner takes the item back changes from round to round: when the reader has the
            // bytes, when the owner's node knows of the reader, or immediately after the sharing.
            match round % 4 {
                0 => until("the reader has the item", || reading.is_finished()),
                2 => until("a reader has come", || owner.find_item("k").unwrap().readers > 1 || reading.is_finished()),
                _ => {}
            }
            let mut item = shared.unshare(Some(Duration::ZERO)).unwrap();
            fill(item.bytes_mut(), 1000 + round);
            match reading.join().unwrap() {
                Ok(copy) => {
                    assert_eq!(sum(copy.bytes()), expected, "round {round}");
                    read += 1;
                }
                Err(error) => assert!(matches!(error.status, Status::TimedOut | Status::NotYet), "{error}"),
            }
            item
        });
    }
    assert!(read >= 2, "only {read} readers had the bytes");
    item.destroy().unwrap();
    until("nothing is left", || nodes.iter().all(|node| files(node) == 0));
}

/// A node is killed and loses all that it has: an item that was made there, and an item that came there from another
/// node.
#[test]
fn what_only_a_killed_node_had_is_reported_as_lost_and_nothing_is_left_on_the_others() {
    let mut nodes = site();
    let owner = session(&nodes[0], "one");
    let other = session(&nodes[1], "two");
    let gone = nodes.pop().unwrap();
    let there = session(&gone, "three");
    let _made = there.create_item("made", &ItemOptions::bytes(100_000)).unwrap();
    let _region = there.region("region", Mode::CreateOnly, 1 << 20, None).unwrap();
    owner.create_item("moved", &ItemOptions::bytes(3 << 20)).unwrap().transfer("three").unwrap();
    let mut moved = there.access_item("moved", PATIENCE).unwrap();
    fill(moved.bytes_mut(), 1);
    until("the first node has forgotten the bytes", || files(&nodes[0]) == 0);
    gone.kill_node();
    // Until the lease of the killed node ends, the error says which node does not answer.
    let error = other.access_item("moved", Some(Duration::from_millis(300))).unwrap_err();
    assert!(error.to_string().contains("node c"), "{error}");
    let is_lost = |error: crossdock_client::Error, name: &str| {
        let text = error.to_string();
        assert!(!text.contains("is lost") || text.contains("was on node c"), "{text}");
        text.contains(name) && text.contains("what only that node had is lost")
    };
    for session in [&owner, &other] {
        for name in ["made", "moved"] {
            until("it is lost", || is_lost(session.access_item(name, None).unwrap_err(), name));
            until("it is lost", || is_lost(session.find_item(name).unwrap_err(), name));
        }
        let open = || session.region("region", Mode::OpenOnly, 0, None).unwrap_err();
        until("it is lost", || is_lost(open(), "region"));
    }
    let late = owner.access_item("made", Some(Duration::from_millis(100))).unwrap_err();
    assert!(late.status == Status::TimedOut && is_lost(late, "made"));
    // The names of the lost items are free. After a new item has had the name `made`, errors about this name no longer
    // mention the lost item.
    let again = other.create_item("made", &ItemOptions::bytes(100)).unwrap();
    again.destroy().unwrap();
    let error = other.access_item("made", None).unwrap_err();
    assert!(error.status == Status::NotFound && !error.to_string().contains("is lost"), "{error}");
    until("nothing is left", || nodes.iter().all(|node| files(node) == 0));
    for session in [&owner, &other] {
        assert!(session.list().unwrap().items.is_empty());
    }
}

/// If a node with readers is lost, the owner of the shared item waits for these readers at most as long as its timeout
/// says, and then gets the item.
#[test]
fn readers_of_a_lost_node_count_no_longer() {
    let mut nodes = site();
    let owner = session(&nodes[0], "one");
    let gone = nodes.pop().unwrap();
    let there = session(&gone, "three");
    let mut item = owner.create_item("k", &ItemOptions::bytes(100_000)).unwrap();
    fill(item.bytes_mut(), 1);
    let shared = item.share().unwrap();
    let copy = there.read_item("k", PATIENCE).unwrap();
    kill(gone.broker(), "KILL");
    drop(gone);
    let item = shared.unshare(PATIENCE).unwrap();
    assert_eq!(sum(item.bytes()), sum(copy.bytes()), "its mapping outlives its daemon");
    item.destroy().unwrap();
}

/// Connects a member of task `one` through which the test can send any message.
fn raw(daemon: &Daemon) -> Raw {
    let mut hello = Raw::hello_message(1);
    let Request::Hello { token, task, .. } = &mut hello else { unreachable!() };
    *token = crossdock_os::child::random().unwrap();
    *task = Some("one".to_owned());
    let (raw, answer) = Raw::greet(&daemon.socket(), &hello);
    assert!(matches!(answer, Answer::Welcome { .. }), "{answer:?}");
    raw
}

/// Makes an item, and gives its file.
fn create(owner: &mut Raw, key: &str, size: u64) -> (SegmentId, OwnedFd) {
    let (level, on_death) = (ItemLevel::Verified, OnDeath::Keep);
    match owner.ask(&Request::Item(ItemRequest::Create { size, level, on_death, key: key.into() })) {
        Some((Answer::Item(given), fds)) => (given.item, fds.into_iter().next().unwrap()),
        other => panic!("no item but {other:?}"),
    }
}

fn give(owner: &mut Raw, item: SegmentId) {
    let answer = owner.ask(&Request::Item(ItemRequest::Transfer { item, to: Party::task("two") }));
    assert!(matches!(answer, Some((Answer::Done { .. }, _))), "{answer:?}");
}

#[test]
fn a_file_that_its_former_owner_cut_reaches_the_next_owner_on_another_node() {
    let nodes = site();
    let (mut one, two) = (raw(&nodes[0]), session(&nodes[1], "two"));
    for size in [8192, 1 << 20] {
        let key = format!("cut{size}");
        let (item, file) = create(&mut one, &key, size);
        // The data of an item begins after the first page of its file.
        crossdock_os::file::write_all_at(&file, b"12345678", 4096).unwrap();
        crossdock_os::file::set_size(&file, 4196).unwrap();
        drop(file);
        give(&mut one, item);
        let item = two.access_item(&key, PATIENCE).unwrap();
        assert_eq!(item.size(), size);
        assert_eq!(item.bytes()[..8], *b"12345678");
        assert!(item.bytes()[8..].iter().all(|byte| *byte == 0));
    }
}

/// Fills the memory of a node, after the owner of an item has punched a hole into the item's file. Then gives the item
/// to a task of another node. If `behind` is true, the file also has pages behind its end, as many as are missing in
/// the hole. A daemon that only counts the file's pages then does not notice the hole.
fn check_a_hole(behind: bool) {
    const SIZE: u64 = 8 << 20;
    let site = Site::new();
    let small = ["--memory", "67108864"];
    let first = site.start_with(Daemon::folder(), "a", &format!("keep:{}", site.catalog), &small);
    let second = site.node("b");
    let (mut one, two) = (raw(&first), session(&second, "two"));
    let (item, file) = create(&mut one, "holes", SIZE);
    let (_, other) = create(&mut one, "all", SIZE);
    crossdock_os::file::write_all_at(&file, b"12345678", 4096).unwrap();
    let (hole, length) = (4 << 20, 4 << 20);
    crossdock_os::memfd::give_back(&file, hole, length).unwrap();
    if behind {
        rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, SIZE + 4096, length).unwrap();
    }
    let (mut end, mut step) = (SIZE + 4096, 1 << 26);
    while step >= 4096 {
        match rustix::fs::fallocate(&other, FallocateFlags::empty(), end, step) {
            Ok(()) => end += step,
            Err(_) => step /= 2,
        }
    }
    drop(file);
    let broker = first.broker();
    give(&mut one, item);
    if !behind {
        let started = Instant::now();
        two.access_item("holes", Some(Duration::from_secs(3))).map(drop).unwrap_err();
        assert!(started.elapsed() < Duration::from_secs(20), "the wait ended after {:?}", started.elapsed());
        assert_eq!(first.broker(), broker, "the broker was killed");
    }
    crossdock_os::file::set_size(&other, SIZE + 4096).unwrap();
    let item = two.access_item("holes", PATIENCE).unwrap();
    assert_eq!(item.bytes()[..8], *b"12345678");
    assert_eq!(first.broker(), broker, "the broker was killed");
}

#[test]
fn a_hole_in_an_items_file_kills_no_broker_if_the_memory_of_its_node_is_full() {
    [false, true].into_iter().for_each(check_a_hole);
}

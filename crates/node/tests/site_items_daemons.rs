//! Items of real daemons of one site: an owner on another node opens an item, and its bytes come there.

mod support;

use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use crossdock_client::{ConnectOptions, Contents, ItemLevel, ItemOptions, ObjectMode, Session};
use crossdock_layout::Status;
use crossdock_layout::wire::NodeState;
use support::{Daemon, kill, spawn};

const PATIENCE: Option<Duration> = Some(Duration::from_secs(60));

/// Below those that the kernel gives to outgoing connections, so that it is still free a moment later.
fn free_port() -> String {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = std::process::id() as u16;
    loop {
        let port = 12_000 + first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % 20_000;
        if let Ok(listener) = TcpListener::bind(("127.0.0.1", port)) {
            return listener.local_addr().unwrap().to_string();
        }
    }
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(60), "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Three daemons; the first one keeps the catalog.
fn site() -> Vec<Daemon> {
    let catalog = free_port();
    let start = |node: &str, catalog: &str| {
        let folder = Daemon::folder();
        let arguments = ["--site", "here", "--node", node, "--lease-ms", "6000", "--catalog", catalog];
        let keeper = spawn(&folder.path().join("endpoint.sock"), &arguments);
        let mut daemon = Daemon { folder, keeper };
        until("the daemon listens", || {
            let ended = daemon.keeper.try_wait().unwrap();
            assert!(ended.is_none(), "the daemon of node {node}, catalog {catalog}, ended at its start: {ended:?}");
            Session::connect(&daemon.options()).is_ok()
        });
        daemon
    };
    let first = start("a", &format!("keep:{catalog}"));
    let at = format!("embedded:{catalog}");
    let all = vec![first, start("b", &at), start("c", &at)];
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

/// Files that a node's daemon keeps: items, and bytes that wait to be pulled.
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
        // The one that has it, the one that gets it, or the third, which is in between.
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

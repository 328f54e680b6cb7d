//! Tests of links between two nodes: questions, pulls, cut and slow connections, silent peers, and daemons that are
//! started again.

mod common;

use common::*;
use crossdock_layout::Status;
use crossdock_link::{Accept, Error, Link, LinkOptions, Presence, Result, Source, Stream, Transport};
use crossdock_os::testing::until;
use crossdock_os::{Access, Deadline, Mapping, memfd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

fn with_object(bytes: &[u8]) -> Arc<Store> {
    let store = Arc::new(Store::default());
    store.objects.lock().unwrap().insert(7, Arc::new(bytes.to_vec()));
    store
}

#[test]
fn questions_are_answered_and_refusals_say_why_and_where() {
    for (a, b) in transports() {
        let store = Arc::new(Store::default());
        let server = serve(&b, "127.0.0.1:0", 5, &store);
        let link = link(&a, server.address());
        assert_eq!(link.connected(soon()).unwrap(), 5);
        for size in [0, 1, 40_000, 60 << 10] {
            let body = pattern(size, 3);
            assert!(link.ask(ECHO, &body, soon()).unwrap() == body);
        }
        assert_eq!(link.ask(WHO, &[], soon()).unwrap(), b"a");
        let error = link.ask(REFUSE, &[], soon()).unwrap_err();
        assert_eq!((error.status, error.node.as_deref()), (Status::NotFound, Some("b")));
        assert!(error.to_string().contains("there is no service 2") && error.to_string().contains(server.address()));
        assert_eq!(link.ask(ECHO, &vec![0; (60 << 10) + 1], soon()).unwrap_err().status, Status::Invalid);
        assert_eq!(link.ask(HUGE, &[], soon()).unwrap_err().status, Status::NoSpace);
        let seen = link.seen();
        assert_eq!((seen.presence, seen.incarnation, seen.transport), (Presence::Here, Some(5), a.name()));
        assert_eq!(server.presence("a"), Presence::Here);
        assert_eq!(server.presence("c"), Presence::Unmet);
        drop(link);
        until("the server notices", || *store.left.lock().unwrap() == ["a: it closed in order"]);
        assert_eq!(*store.joined.lock().unwrap(), ["a"]);
    }
}

#[test]
fn bytes_of_every_size_are_pulled_into_place_and_none_beside() {
    let bytes = pattern(5_000_000, 11);
    for (a, b) in transports() {
        let store = with_object(&bytes);
        let server = serve(&b, "127.0.0.1:0", 5, &store);
        let link = link(&a, server.address());
        for (offset, length) in [(0, 1), (1, 4095), (4096, 4097), (77, 300_000), (0, 5_000_000), (4_999_999, 1), (9, 0)]
        {
            let mut memory = vec![0xee; length + 2];
            link.pull(&source_id(7), offset as u64, &mut memory[1..=length], soon()).unwrap();
            assert!(memory[1..=length] == bytes[offset..offset + length], "{offset} {length}");
            assert!(memory[0] == 0xee && memory[length + 1] == 0xee, "{offset} {length}");
        }
        // Two connections arrived: the control connection, and one data connection that all pulls shared.
        assert_eq!(server.counts().arrived.load(Ordering::Relaxed), 2);
    }
}

#[test]
fn a_large_pull_is_spread_over_several_streams() {
    let bytes = pattern(3_000_001, 13);
    for (a, b) in transports() {
        let store = with_object(&bytes);
        let server = serve(&b, "127.0.0.1:0", 5, &store);
        let options = LinkOptions { share: 256 << 10, streams: 4, ..quick() };
        let link = Link::open(a, node("a", 1), "b", server.address(), options).unwrap();
        let mut memory = vec![0; bytes.len()];
        let pulled = link.pull(&source_id(7), 0, &mut memory, soon()).unwrap();
        assert_eq!(pulled.streams, 4);
        assert!(memory == bytes);
    }
}

#[test]
fn a_segment_goes_from_memory_to_memory() {
    const SIZE: u64 = 2 << 20;
    let (a, b) = transports().remove(1);
    let from = memfd::create("crossdock-test", SIZE).unwrap();
    let mut mapping = Mapping::new(&from, SIZE as usize, Access::ReadWrite).unwrap();
    mapping.fresh_bytes().copy_from_slice(&pattern(SIZE as usize, 17));
    let store = Arc::new(Store::default());
    let source: Arc<dyn Source> = Arc::new(Mapping::new(&from, SIZE as usize, Access::Read).unwrap());
    store.objects.lock().unwrap().insert(7, source);
    let server = serve(&b, "127.0.0.1:0", 5, &store);
    let link = link(&a, server.address());
    let fresh = memfd::create("crossdock-test", SIZE).unwrap();
    let mut place = Mapping::new(&fresh, SIZE as usize, Access::ReadWrite).unwrap();
    link.pull(&source_id(7), 0, place.fresh_bytes(), soon()).unwrap();
    assert!(place.fresh_bytes() == mapping.fresh_bytes());
}

#[test]
fn what_is_not_there_or_has_another_epoch_is_refused_and_the_connection_goes_on() {
    let (a, b) = transports().remove(0);
    let store = with_object(&[1, 2, 3]);
    let server = serve(&b, "127.0.0.1:0", 5, &store);
    let link = link(&a, server.address());
    let mut memory = [0; 3];
    let error = link.pull(&source_id(8), 0, &mut memory, soon()).unwrap_err();
    assert_eq!(error.status, Status::NotFound);
    assert!(error.to_string().starts_with("pull 3 bytes from 0 of item 8 (epoch 3), node 'b' at "), "{error}");
    let mut former = source_id(7);
    former.epoch = 2;
    assert_eq!(link.pull(&former, 0, &mut memory, soon()).unwrap_err().status, Status::NotFound);
    assert_eq!(link.pull(&source_id(7), 1, &mut memory, soon()).unwrap_err().status, Status::Invalid);
    link.pull(&source_id(7), 0, &mut memory, soon()).unwrap();
    assert_eq!(memory, [1, 2, 3]);
}

#[test]
fn a_pull_whose_connections_are_cut_goes_on_where_it_was() {
    let bytes = pattern(6 << 20, 19);
    for (a, b) in through_a_proxy() {
        let store = with_object(&bytes);
        let server = serve(&b, "127.0.0.1:0", 5, &store);
        let proxy = Proxy::start(server.address(), Wire { cut_after: 700_001, ..Wire::default() });
        let link = link(&a, &proxy.address);
        let mut memory = vec![0; bytes.len()];
        let pulled = link.pull(&source_id(7), 0, &mut memory, soon()).unwrap();
        assert!(memory == bytes);
        // Each connection brought at least one chunk before it was cut, so there were few attempts.
        assert!((5..=30).contains(&pulled.resumed), "{pulled:?}");
    }
}

#[test]
fn a_pull_that_is_cut_at_any_step_of_its_beginning_goes_on() {
    let bytes = pattern(3000, 23);
    for (a, b) in transports() {
        let store = with_object(&bytes);
        let server = serve(&b, "127.0.0.1:0", 5, &store);
        let link = link(&a, server.address());
        link.connected(soon()).unwrap();
        // The proxy cuts each connection at some byte of the greeting, of a header or of the data.
        for cut in (1..3200).step_by(193) {
            let once = Proxy::start(server.address(), Wire { cut_after: cut, ..Wire::default() });
            let through_once = common::link(&a, &once.address);
            let mut memory = vec![0; bytes.len()];
            let end = Deadline::after(Duration::from_millis(150));
            // Every connection through this proxy is cut at byte `cut`. The pull must succeed, or fail at its deadline
            // at the latest.
            match through_once.pull(&source_id(7), 0, &mut memory, end) {
                Ok(_) => assert!(memory == bytes, "cut at {cut}"),
                Err(error) => assert!(
                    matches!(error.status, Status::TimedOut | Status::Disconnected | Status::Denied),
                    "cut at {cut}: {error}"
                ),
            }
        }
        let mut memory = vec![0; bytes.len()];
        link.pull(&source_id(7), 0, &mut memory, soon()).unwrap();
        assert!(memory == bytes, "the server goes on");
    }
}

#[test]
fn a_byte_that_is_changed_on_the_way_is_found_and_asked_for_again() {
    let bytes = pattern(1 << 20, 29);
    let (a, b) = transports().remove(0);
    let store = with_object(&bytes);
    let server = serve(&b, "127.0.0.1:0", 5, &store);
    let wire = Wire { change_at: 500_000, changes: 1, ..Wire::default() };
    let proxy = Proxy::start(server.address(), wire);
    let through = link(&a, &proxy.address);
    let mut memory = vec![0; bytes.len()];
    let pulled = through.pull(&source_id(7), 0, &mut memory, soon()).unwrap();
    assert!(memory == bytes);
    assert_eq!(pulled.wrong, 1);
    // If every connection changes a byte, the pull ends with an error that says that a checksum was wrong.
    let proxy = Proxy::start(server.address(), Wire { change_at: 50_000, changes: usize::MAX, ..Wire::default() });
    let through = link(&a, &proxy.address);
    let error = through.pull(&source_id(7), 0, &mut memory, soon()).unwrap_err();
    assert_eq!(error.status, Status::Corrupt);
    assert!(error.to_string().contains("wrong checksum"), "{error}");
}

#[test]
fn a_slow_connection_brings_everything() {
    let bytes = pattern(1 << 20, 31);
    for (a, b) in transports() {
        let store = with_object(&bytes);
        let server = serve(&b, "127.0.0.1:0", 5, &store);
        let proxy = Proxy::start(server.address(), Wire { slow_ms: 30, ..Wire::default() });
        let link = link(&a, &proxy.address);
        let mut memory = vec![0; bytes.len()];
        let pulled = link.pull(&source_id(7), 0, &mut memory, soon()).unwrap();
        assert!(memory == bytes);
        assert_eq!(pulled.resumed, 0);
    }
}

#[test]
fn a_pull_that_gets_nothing_ends_at_its_deadline_and_says_how_far_it_came() {
    let (a, b) = transports().remove(0);
    let store = with_object(&pattern(1 << 20, 3));
    let server = serve(&b, "127.0.0.1:0", 5, &store);
    let proxy = Proxy::start(server.address(), Wire::default());
    let link = link(&a, &proxy.address);
    link.connected(soon()).unwrap();
    proxy.open.store(false, Ordering::Release);
    let mut memory = vec![0; 1 << 20];
    let error = link.pull(&source_id(7), 0, &mut memory, Deadline::after(200 * MS)).unwrap_err();
    assert_eq!(error.status, Status::TimedOut);
    assert!(error.to_string().contains("0 of 1048576 bytes had arrived"), "{error}");
}

#[test]
fn a_silent_peer_is_away_on_both_sides_and_comes_back() {
    for (a, b) in through_a_proxy() {
        let store = Arc::new(Store::default());
        let server = serve(&b, "127.0.0.1:0", 5, &store);
        let proxy = Proxy::start(server.address(), Wire::default());
        let link = link(&a, &proxy.address);
        link.connected(soon()).unwrap();
        proxy.open.store(false, Ordering::Release);
        until("a misses b", || link.seen().presence == Presence::Away);
        until("b misses a", || server.presence("a") == Presence::Away);
        assert!(link.seen().to_string().starts_with("node 'b' is away, last heard "), "{}", link.seen());
        // The silence has no consequence: the connection stays, and a question that waits is answered after all.
        std::thread::scope(|scope| {
            let asked = scope.spawn(|| link.ask(ECHO, b"still there?", soon()));
            proxy.open.store(true, Ordering::Release);
            assert_eq!(asked.join().unwrap().unwrap(), b"still there?");
        });
        until("a hears b", || link.seen().presence == Presence::Here);
        until("b hears a", || server.presence("a") == Presence::Here);
        assert_eq!(server.counts().arrived.load(Ordering::Relaxed), 1);
        assert!(store.left.lock().unwrap().is_empty());
    }
}

#[test]
fn a_peer_that_stays_silent_is_dialed_anew() {
    let (a, b) = transports().remove(1);
    let store = Arc::new(Store::default());
    let server = serve(&b, "127.0.0.1:0", 5, &store);
    let proxy = Proxy::start(server.address(), Wire::default());
    let options = LinkOptions { pulse: 20 * MS, away: 100 * MS, ..LinkOptions::default() };
    let link = Link::open(a, node("a", 1), "b", &proxy.address, options).unwrap();
    link.connected(soon()).unwrap();
    proxy.open.store(false, Ordering::Release);
    until("the connection is given up", || link.seen().why.is_some());
    assert!(link.seen().why.unwrap().contains("silent for"), "{:?}", link.seen());
    proxy.open.store(true, Ordering::Release);
    assert_eq!(link.ask(ECHO, b"again", soon()).unwrap(), b"again");
    assert_eq!(link.seen().why, None);
}

#[test]
fn a_question_without_an_answer_ends_at_its_deadline_and_says_when_the_peer_was_heard() {
    let (a, b) = transports().remove(0);
    let store = Arc::new(Store::default());
    let server = serve(&b, "127.0.0.1:0", 5, &store);
    let link = link(&a, server.address());
    link.connected(soon()).unwrap();
    let gate = store.gate.lock().unwrap();
    let error = link.ask(GATE, &[], Deadline::after(30 * MS)).unwrap_err();
    assert_eq!(error.status, Status::TimedOut);
    assert!(error.to_string().contains("node 'b' was heard "), "{error}");
    // The late answer of the first question arrives when its caller does not wait any more. It does no harm.
    drop(gate);
    assert_eq!(link.ask(ECHO, b"next", soon()).unwrap(), b"next");
}

#[test]
fn too_many_questions_at_once_are_refused_and_the_others_answered() {
    let (a, b) = transports().remove(0);
    let store = Arc::new(Store::default());
    let server = serve(&b, "127.0.0.1:0", 5, &store);
    let link = link(&a, server.address());
    link.connected(soon()).unwrap();
    let gate = store.gate.lock().unwrap();
    std::thread::scope(|scope| {
        let asked: Vec<_> = (0..70).map(|_| scope.spawn(|| link.ask(GATE, b"x", soon()))).collect();
        until("six are refused", || asked.iter().filter(|one| one.is_finished()).count() == 6);
        drop(gate);
        let answers: Vec<_> = asked.into_iter().map(|one| one.join().unwrap()).collect();
        assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 64);
        assert!(answers.iter().all(|answer| answer.as_ref().err().is_none_or(|error| error.status == Status::Busy)));
    });
}

#[test]
fn a_daemon_that_is_started_anew_is_met_again_and_what_belonged_to_its_former_start_is_told() {
    for (a, b) in through_a_proxy() {
        let store = with_object(&pattern(8 << 20, 37));
        let server = serve(&b, "127.0.0.1:0", 5, &store);
        let address = server.address().to_owned();
        let proxy = Proxy::start(&address, Wire { slow_ms: 40, ..Wire::default() });
        let link = link(&a, &proxy.address);
        assert_eq!(link.connected(soon()).unwrap(), 5);
        std::thread::scope(|scope| {
            let gate = store.gate.lock().unwrap();
            let asked = scope.spawn(|| link.ask(GATE, &[], soon()));
            let pulled = scope.spawn(|| link.pull(&source_id(7), 0, &mut vec![0; 8 << 20], soon()));
            until("the pull has begun", || server.counts().sent.load(Ordering::Relaxed) > 0);
            let stopped = scope.spawn(move || drop(server));
            let error = asked.join().unwrap().unwrap_err();
            assert_eq!(error.status, Status::Disconnected);
            assert!(error.to_string().contains("may have been done or not"), "{error}");
            drop(gate);
            stopped.join().unwrap();
            let anew = serve(&b, &address, 6, &store);
            let error = pulled.join().unwrap().unwrap_err();
            assert_eq!(error.status, Status::Closed, "{error}");
            until("the new daemon is met", || link.connected(soon()).is_ok_and(|incarnation| incarnation == 6));
            assert_eq!(link.ask(ECHO, b"new", soon()).unwrap(), b"new");
            drop(anew);
        });
    }
}

#[test]
fn a_link_to_nothing_says_so_by_its_deadline_and_connects_once_there_is_something() {
    let (a, b) = transports().remove(1);
    let store = Arc::new(Store::default());
    let address = {
        let server = serve(&b, "127.0.0.1:0", 5, &store);
        server.address().to_owned()
    };
    let link = link(&a, &address);
    let error = link.connected(Deadline::after(300 * MS)).unwrap_err();
    assert!(matches!(error.status, Status::Disconnected | Status::TimedOut), "{error}");
    assert!(error.to_string().contains("node 'b'"), "{error}");
    assert_eq!(link.seen().presence, Presence::Unmet);
    let _server = serve(&b, &address, 6, &store);
    assert_eq!(link.connected(soon()).unwrap(), 6);
}

#[test]
fn a_node_of_another_name_is_not_taken_for_the_one_that_was_meant() {
    // The link asks for node `c`, but node `b` listens at the address. In plain text `b` itself refuses. Under TLS the
    // certificate of `b` shows that it is not `c`.
    for (a, b) in transports() {
        let refused = if a.name().ends_with("+tls") { Status::Denied } else { Status::Disconnected };
        let store = Arc::new(Store::default());
        let server = serve(&b, "127.0.0.1:0", 5, &store);
        let link = Link::open(a, node("a", 1), "c", server.address(), quick()).unwrap();
        let error = link.connected(Deadline::after(500 * MS)).unwrap_err();
        assert_eq!(error.status, refused, "{error}");
        assert!(error.to_string().contains("node 'c'"), "{error}");
    }
    let (a, b) = transports().remove(1);
    let store = Arc::new(Store::default());
    let server = serve(&b, "127.0.0.1:0", 5, &store);
    // The node calls itself `x`, but its certificate is that of `a`.
    let link = Link::open(a, node("x", 1), "b", server.address(), quick()).unwrap();
    let error = link.connected(Deadline::after(500 * MS)).unwrap_err();
    assert_eq!(error.status, Status::Denied, "{error}");
    assert!(error.to_string().contains("not that of node 'x'"), "{error}");
}

/// A transport that never connects, and only counts how often it is asked to connect.
struct Undialled(AtomicUsize);

impl Transport for Undialled {
    fn name(&self) -> &'static str {
        "undialled"
    }

    fn why_not_better(&self) -> &'static str {
        ""
    }

    fn dial(&self, _: &str, _: &str, _: Deadline) -> Result<Arc<dyn Stream>> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Err(Error::new(Status::Disconnected, "dial", "this transport reaches no node"))
    }

    fn listen(&self, _: &str) -> Result<Box<dyn Accept>> {
        Err(Error::new(Status::Invalid, "listen", "this transport only dials"))
    }
}

#[test]
fn a_node_of_another_name_is_not_tried_by_another_transport() {
    let (a, b) = transports().remove(0);
    let server = serve(&b, "127.0.0.1:0", 5, &Arc::new(Store::default()));
    let other = Arc::new(Undialled(AtomicUsize::new(0)));
    let link = Link::negotiate(vec![a, other.clone()], node("a", 1), "c", server.address(), quick()).unwrap();
    until("three refusals", || server.counts().refused.load(Ordering::Relaxed) >= 3);
    assert_eq!(link.connected(Deadline::after(MS)).unwrap_err().status, Status::Disconnected);
    assert_eq!(other.0.load(Ordering::Relaxed), 0, "node 'b' has answered by the first transport");
}

#[test]
fn the_end_of_a_server_ends_its_threads_and_that_of_a_link_too() {
    for (a, b) in transports() {
        let store = with_object(&pattern(100, 1));
        let server = serve(&b, "127.0.0.1:0", 5, &store);
        let links: Vec<_> = (0..5).map(|_| link(&a, server.address())).collect();
        for link in &links {
            link.pull(&source_id(7), 0, &mut [0; 100], soon()).unwrap();
        }
        drop(server);
        drop(links);
        // All threads of the server, which held the store, have ended.
        assert_eq!(Arc::strong_count(&store), 1);
    }
}

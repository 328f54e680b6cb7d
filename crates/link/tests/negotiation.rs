//! Tests which transport a pair of nodes uses: peers of every choice at one address, a network that passes only HTTP/2,
//! and peers that send wrong bytes in HTTP/2.
#![cfg(feature = "grpc")]

mod common;

use common::*;
use crossdock_layout::Status;
use crossdock_link::{Choice, Link, Serve, Server, Transports, Trust};
use crossdock_os::Deadline;
use crossdock_os::testing::until;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Makes the transports of node `a` with the choice `a`, and those of node `b` with the choice `b`. There is one pair
/// in plain text and one inside TLS.
fn choose(a: Choice, b: Choice) -> Vec<(Transports, Transports)> {
    let authority = authority();
    let certificates = |node| trust(&authority.issue(node).unwrap());
    let pairs = [(Trust::Loopback, Trust::Loopback), (certificates("a"), certificates("b"))];
    pairs.map(|(of_a, of_b)| (Transports::new(&of_a, a).unwrap(), Transports::new(&of_b, b).unwrap())).into()
}

fn start(b: &Transports, store: &Arc<Store>) -> Server {
    let serve: Arc<dyn Serve> = store.clone();
    Server::start(b.listen("127.0.0.1:0").unwrap(), node("b", 5), serve, quick()).unwrap()
}

fn connect(a: &Transports, address: &str) -> Link {
    Link::negotiate_with(a.other_transport(), a.dials(), node("a", 1), "b", address, quick()).unwrap()
}

/// Asks one question, and pulls an object of some megabytes.
fn works(link: &Link, bytes: &[u8]) {
    assert_eq!(link.ask(ECHO, b"x", soon()).unwrap(), b"x");
    let mut memory = vec![0; bytes.len()];
    link.pull(&source_id(7), 0, &mut memory, soon()).unwrap();
    assert!(memory == bytes);
}

#[test]
fn one_address_accepts_each_transport_and_each_pair_uses_the_best_that_both_have() {
    let bytes = pattern(3 << 20, 5);
    for (of_a, of_b, used) in [
        (Choice::Auto, Choice::Auto, "tcp"),
        (Choice::Grpc, Choice::Auto, "grpc"),
        (Choice::Tcp, Choice::Auto, "tcp"),
        (Choice::Auto, Choice::Grpc, "grpc"),
    ] {
        for (a, b) in choose(of_a, of_b) {
            let store = Arc::new(Store::default());
            store.objects.lock().unwrap().insert(7, Arc::new(bytes.clone()));
            let server = start(&b, &store);
            let link = connect(&a, server.address());
            works(&link, &bytes);
            let seen = link.seen();
            assert!(seen.transport.starts_with(used), "{of_a} to {of_b}: {seen:?}");
            let better = seen.better.expect("there is a connection");
            match (of_a, of_b) {
                (Choice::Grpc, _) => assert!(better.contains("--transport grpc"), "{better}"),
                (_, Choice::Grpc) => assert!(better.starts_with("tcp") && better.len() > 9, "{better}"),
                _ => assert!(!better.is_empty()),
            }
            let peers = server.peers();
            assert_eq!(peers.iter().map(|peer| peer.transport).collect::<Vec<_>>(), [seen.transport]);
        }
    }
}

#[test]
fn nodes_without_a_common_transport_say_so() {
    for (of_a, of_b, says) in [
        (Choice::Tcp, Choice::Grpc, "the peer uses TCP, and this node accepts only gRPC"),
        (Choice::Grpc, Choice::Tcp, ""),
    ] {
        for (a, b) in choose(of_a, of_b) {
            let store = Arc::new(Store::default());
            let server = start(&b, &store);
            let link = connect(&a, server.address());
            let error = link.connected(Deadline::after(500 * MS)).unwrap_err();
            assert!(matches!(error.status, Status::Disconnected | Status::TimedOut | Status::Denied), "{error}");
            until("the refusal is told", || store.refused.lock().unwrap().iter().any(|said| said.contains(says)));
        }
    }
}

/// A network that can cut connections. While `is_narrow` is set, it lets only connections with HTTP/2 pass. It cuts any
/// other connection as soon as the connection's first bytes have come.
struct Gate {
    address: String,
    is_narrow: Arc<AtomicBool>,
}

impl Gate {
    fn before(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let is_narrow = Arc::new(AtomicBool::new(true));
        let (server, narrow) = (server.to_owned(), is_narrow.clone());
        // This thread runs until the test process ends; no code waits for it.
        std::thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                let (server, narrow) = (server.clone(), narrow.clone());
                std::thread::spawn(move || {
                    let mut first = [0; 2048];
                    let read = (&client).read(&mut first).unwrap_or(0);
                    // In plain text HTTP/2 begins with its preface. Inside TLS the client's first message names the
                    // protocol.
                    let is_http2 =
                        first[..read].starts_with(b"PRI") || first[..read].windows(3).any(|w| w == b"\x02h2");
                    if narrow.load(Ordering::Acquire) && !is_http2 {
                        return;
                    }
                    let Ok(server) = TcpStream::connect(server) else { return };
                    if (&server).write_all(&first[..read]).is_err() {
                        return;
                    }
                    let (mut from, mut to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                    let down = std::thread::spawn(move || {
                        let _ = std::io::copy(&mut from, &mut to);
                        let _ = to.shutdown(Shutdown::Both);
                    });
                    let _ = std::io::copy(&mut &client, &mut &server);
                    let _ = server.shutdown(Shutdown::Both);
                    down.join().unwrap();
                });
            }
        });
        Self { address, is_narrow }
    }
}

#[test]
fn where_only_http2_passes_grpc_is_used_and_tcp_again_once_it_passes() {
    let bytes = pattern(3 << 20, 7);
    for (a, b) in choose(Choice::Auto, Choice::Auto) {
        let store = Arc::new(Store::default());
        store.objects.lock().unwrap().insert(7, Arc::new(bytes.clone()));
        let server = start(&b, &store);
        let gate = Gate::before(server.address());
        let link = connect(&a, &gate.address);
        works(&link, &bytes);
        let seen = link.seen();
        assert!(seen.transport.starts_with("grpc"), "{seen:?}");
        assert!(seen.better.as_ref().is_some_and(|why| why.starts_with("tcp")), "{seen:?}");
        gate.is_narrow.store(false, Ordering::Release);
        until("TCP is used", || link.seen().transport.starts_with("tcp"));
        works(&link, &bytes);
    }
}

#[test]
fn a_question_that_waits_is_answered_before_the_transport_changes() {
    let (a, b) = choose(Choice::Auto, Choice::Auto).remove(0);
    let store = Arc::new(Store::default());
    let server = start(&b, &store);
    let gate = Gate::before(server.address());
    let link = connect(&a, &gate.address);
    link.connected(soon()).unwrap();
    assert_eq!(link.seen().transport, "grpc");
    let answers = store.gate.lock().unwrap();
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| link.ask(GATE, b"slow", soon()));
        gate.is_narrow.store(false, Ordering::Release);
        // TCP is tried again after a second or more. Then the server counts a second connection. But a question waits
        // for its answer on the connection by gRPC, so the link keeps this connection.
        until("TCP was tried", || server.counts().arrived.load(Ordering::Relaxed) >= 2);
        assert_eq!(link.seen().transport, "grpc");
        drop(answers);
        assert_eq!(asked.join().unwrap().unwrap(), b"slow");
    });
    until("TCP is used", || link.seen().transport == "tcp");
}

#[test]
fn wrong_bytes_of_http2_end_only_their_own_connection() {
    let (a, b) = choose(Choice::Grpc, Choice::Auto).remove(0);
    let store = Arc::new(Store::default());
    store.objects.lock().unwrap().insert(7, Arc::new(vec![5; 100_000]));
    let server = start(&b, &store);
    let honest = connect(&a, server.address());
    honest.connected(soon()).unwrap();
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
    let lies: [(&str, Vec<u8>); 7] = [
        ("half of a preface", b"PRI * HTT".to_vec()),
        ("a preface that goes on wrong", b"PROPFIND / HTTP/1.1\r\nHost: b\r\n\r\n".to_vec()),
        ("noise behind the preface", [PREFACE, &[0xff; 200]].concat()),
        ("a frame of 16 MiB", [PREFACE, SETTINGS, &[0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1]].concat()),
        ("data for no call", [PREFACE, SETTINGS, &[0, 0, 1, 0, 0, 0, 0, 0, 1, 9]].concat()),
        ("header fields that are none", [PREFACE, SETTINGS, &[0, 0, 2, 1, 4, 0, 0, 0, 1, 0xff, 0xff]].concat()),
        ("no call at all", [PREFACE, SETTINGS].concat()),
    ];
    for (what, bytes) in lies {
        let mut socket = TcpStream::connect(server.address()).unwrap();
        socket.write_all(&bytes).unwrap();
        if what.starts_with("half") {
            socket.shutdown(Shutdown::Write).unwrap();
        }
        wait_for_end(socket);
        assert_eq!(honest.ask(ECHO, b"fine", soon()).unwrap(), b"fine", "after {what}");
    }
    let mut memory = vec![0; 100_000];
    honest.pull(&source_id(7), 0, &mut memory, soon()).unwrap();
    assert_eq!(memory, [5; 100_000]);
    drop(honest);
    drop(server);
    assert_eq!(Arc::strong_count(&store), 1);
}

//! Tests of pulls over UCX beside a control connection over TCP: which of the two transports carries a pull, and why.

mod common;

use common::*;
use crossdock_layout::Status;
use crossdock_link::{Link, OtherTransport, SourceId, Ucx};
use crossdock_os::Deadline;
use crossdock_os::testing::skip;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

const SIZE: usize = 3 << 20;

fn store() -> Arc<Store> {
    let store = Arc::new(Store::default());
    store.objects.lock().unwrap().insert(7, Arc::new(pattern(SIZE, 43)));
    store
}

fn link_with(ucx: &Way, address: &str) -> Link {
    let usual = vec![tcp(crossdock_link::Trust::Network)];
    Link::negotiate_with(OtherTransport::new(ucx.clone()), usual, node("a", 1), "b", address, quick()).unwrap()
}

fn pull(link: &Link, source_id: &SourceId) {
    let mut memory = vec![0; SIZE];
    link.pull(source_id, 0, &mut memory, soon()).unwrap();
    assert!(memory == pattern(SIZE, 43), "bytes differ");
}

#[test]
fn a_link_measures_pulls_by_both_transports_and_says_which_it_uses() {
    let Some(ucx) = ucx() else { return skip("ucx") };
    let store = store();
    let server = serve(&ucx, "127.0.0.1:0", 5, &store);
    let link = link_with(&ucx, server.address());
    link.connected(soon()).unwrap();
    assert!(link.seen().better.unwrap().contains("ucx is measured with the next pulls"), "{:?}", link.seen());
    for _ in 0..6 {
        pull(&link, &source_id(7));
    }
    let seen = link.seen();
    assert_eq!(seen.transport, "tcp");
    match seen.pulls {
        Some(name) => assert_eq!(name, "ucx"),
        None => assert!(seen.better.unwrap().contains("ucx was slower: ")),
    }
    // Over UCX, the server refuses an object for the same reasons as over TCP.
    let fresh = link_with(&ucx, server.address());
    let error = fresh.pull(&source_id(8), 0, &mut vec![0; SIZE], soon()).unwrap_err();
    assert_eq!(error.status, Status::NotFound);
    assert!(error.to_string().starts_with("pull 3145728 bytes from 0 of item 8 (epoch 3), node 'b' at "), "{error}");
}

#[test]
fn a_peer_without_ucx_is_pulled_from_by_tcp_and_the_reason_is_told() {
    let Some(ucx) = ucx() else { return skip("ucx") };
    let store = store();
    let server = serve(&tcp(crossdock_link::Trust::Network), "127.0.0.1:0", 5, &store);
    let link = link_with(&ucx, server.address());
    for _ in 0..3 {
        pull(&link, &source_id(7));
    }
    let seen = link.seen();
    assert_eq!(seen.pulls, None);
    assert!(seen.better.unwrap().contains("ucx: the other node closed the connection; is it without UCX?"));
}

#[test]
fn ucx_is_refused_where_certificates_protect_or_only_loopback_is_allowed() {
    let papers = authority().issue("a").unwrap();
    let protected = Ucx::load(&trust(&papers)).unwrap_err();
    assert!(protected.contains("UCX has no TLS, and this node has certificates"), "{protected}");
    let loopback = Ucx::load(&crossdock_link::Trust::Loopback).unwrap_err();
    assert!(loopback.contains("needs --trusted-network"), "{loopback}");
}

/// If wrong bytes come in place of the greeting of UCX, the server ends their connection and serves other connections.
#[test]
fn a_peer_that_lies_in_the_greeting_of_ucx_is_refused() {
    let Some(ucx) = ucx() else { return skip("ucx") };
    let store = store();
    let server = serve(&ucx, "127.0.0.1:0", 5, &store);
    let preamble = b"XDOCKUCX";
    let with = |version: u32, length: u32| {
        [&preamble[..], &version.to_le_bytes(), &[7; 8], &length.to_le_bytes(), &[1; 40]].concat()
    };
    for lie in [b"XD and then something else, long enough for a greeting".to_vec(), with(2, 40), with(1, u32::MAX)] {
        let mut liar = TcpStream::connect(server.address()).unwrap();
        liar.write_all(&lie).unwrap();
        // The server ends the connection, properly or by a reset.
        let _ = liar.read_to_end(&mut Vec::new());
    }
    pull(&link_with(&ucx, server.address()), &source_id(7));
}

/// The server of this test accepts the connection, and then sends nothing, a refusal, or wrong bytes.
#[test]
fn a_server_that_does_not_answer_the_greeting_of_ucx_or_lies_leaves_an_error_by_the_deadline() {
    let Some(ucx) = ucx() else { return skip("ucx") };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let refusal = [&[0; 12][..], &6u32.to_le_bytes(), b"no way"].concat();
    let too_long = [&1u32.to_le_bytes()[..], &[0; 8], &u32::MAX.to_le_bytes()].concat();
    let answers = [(vec![], "deadline"), (refusal, "the other node refuses: no way"), (too_long, "4294967295 bytes")];
    for (answer, wanted) in answers {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut client, _) = listener.accept().unwrap();
                client.write_all(&answer).unwrap();
                // The client ends the connection.
                let _ = client.read_to_end(&mut Vec::new());
            });
            let error = ucx.dial("b", &address, Deadline::after(500 * MS)).unwrap_err();
            assert!(error.reason.contains(wanted) && error.node.as_deref() == Some("b"), "{wanted}: {error}");
        });
    }
}

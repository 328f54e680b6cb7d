//! Tests of streams between two nodes, in plain text and inside TLS: bytes, deadlines, ends, and peers without a valid
//! certificate.

mod common;

use common::{authority, inside_tls, kinds, meet, meet_at, pattern, soon, tcp, transports, trust};
use crossdock_layout::Status;
use crossdock_link::{Certificates, Stream, Trust};
use crossdock_os::Deadline;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, SystemTime};

const MS: Duration = Duration::from_millis(1);

#[test]
fn bytes_arrive_in_order_both_ways_at_once_whatever_the_sizes() {
    for (a, b) in transports() {
        let (one, other) = meet(&a, &b);
        let (one, other) = (one.unwrap(), other.unwrap());
        let sizes = [1, 7, 16 << 10, (16 << 10) - 1, (16 << 10) + 1, 300_000, 3, 1 << 20, 5_000_000];
        let total: usize = sizes.iter().sum();
        let send = |stream: &dyn Stream, seed| {
            let all = pattern(total, seed);
            let mut at = 0;
            for size in sizes {
                let (head, rest) = all[at..at + size].split_at(size / 3);
                stream.write(&[head, &[], rest], soon()).unwrap();
                at += size;
            }
        };
        let check = |stream: &dyn Stream, seed| {
            let mut got = vec![0; total];
            let (mut at, mut step) = (0, 1);
            while at < total {
                let end = (at + step).min(total);
                stream.read_all(&mut got[at..end], soon()).unwrap();
                (at, step) = (end, step * 3 % 1_000_003);
            }
            assert!(got == pattern(total, seed), "bytes differ");
        };
        std::thread::scope(|scope| {
            scope.spawn(|| send(&*one, 5));
            scope.spawn(|| send(&*other, 9));
            scope.spawn(|| check(&*one, 9));
            check(&*other, 5);
        });
        assert!(one.may_be("b") && other.may_be("a"));
        assert_eq!(one.is_protected(), a.name().ends_with("+tls"));
    }
}

#[test]
fn a_stream_outlives_the_listener_that_accepted_it() {
    let streams: Vec<_> = transports().iter().map(|(a, b)| meet(a, b)).collect();
    // `meet` has dropped the listeners. This is longer than the transports wait for idle connections to end.
    std::thread::sleep(2000 * MS);
    for (one, other) in streams {
        let (one, other) = (one.unwrap(), other.unwrap());
        other.write(&[b"later"], soon()).unwrap();
        let mut got = [0; 5];
        one.read_all(&mut got, soon()).unwrap();
        assert_eq!(&got, b"later");
        one.write(&[b"answer"], soon()).unwrap();
        other.read_all(&mut [0; 6], soon()).unwrap();
    }
}

#[test]
fn a_read_ends_at_its_deadline_and_the_stream_goes_on() {
    for (a, b) in transports() {
        let (one, other) = meet(&a, &b);
        let (one, other) = (one.unwrap(), other.unwrap());
        let error = one.read(&mut [0; 8], Deadline::after(5 * MS)).unwrap_err();
        assert_eq!(error.status, Status::TimedOut);
        other.write(&[b"later"], soon()).unwrap();
        let mut got = [0; 5];
        one.read_all(&mut got, soon()).unwrap();
        assert_eq!(&got, b"later");
    }
}

#[test]
fn messages_of_several_writers_do_not_mix() {
    const LENGTH: usize = 48 << 10;
    const EACH: usize = 60;
    for (a, b) in transports() {
        let (one, other) = meet(&a, &b);
        let (one, other) = (one.unwrap(), other.unwrap());
        std::thread::scope(|scope| {
            for writer in 1..=4u8 {
                let one = &one;
                scope.spawn(move || {
                    // Each write has two parts, like the write of a message: one for its header, and one for its bytes.
                    let message = [writer; LENGTH];
                    for _ in 0..EACH {
                        one.write(&[&message[..32], &message[32..]], soon()).unwrap();
                    }
                });
            }
            let mut message = vec![0; LENGTH];
            for number in 0..4 * EACH {
                // The reader is slower than the writers, so the socket takes only a part of many messages.
                std::thread::sleep(Duration::from_micros(300));
                other.read_all(&mut message, soon()).unwrap();
                let whole = message.iter().all(|byte| *byte == message[0]);
                assert!(whole, "message {number} over {} has bytes of several writers", one.transport());
            }
        });
    }
}

#[test]
fn a_writer_waits_for_its_turn_until_its_deadline_and_the_stream_goes_on() {
    for (a, b) in transports().into_iter().filter(|(a, _)| a.name() != "grpc" && a.name() != "grpc+tls") {
        let (one, other) = meet(&a, &b);
        let (one, other) = (one.unwrap(), other.unwrap());
        let block = vec![7; 64 << 20];
        std::thread::scope(|scope| {
            let first = scope.spawn(|| one.write(&[&block], soon()));
            std::thread::sleep(100 * MS);
            let began = std::time::Instant::now();
            let error = one.write(&[b"more"], Deadline::after(50 * MS)).unwrap_err();
            assert_eq!(error.status, Status::Busy, "{error}");
            assert!(began.elapsed() < Duration::from_secs(5), "it waited for {:?}", began.elapsed());
            let mut got = vec![0; block.len()];
            other.read_all(&mut got, soon()).unwrap();
            assert!(got == block, "bytes differ");
            first.join().unwrap().unwrap();
            one.write(&[b"later"], soon()).unwrap();
            let mut got = [0; 5];
            other.read_all(&mut got, soon()).unwrap();
            assert_eq!(&got, b"later");
        });
    }
}

#[test]
fn a_write_to_a_peer_that_does_not_read_ends_at_its_deadline_and_ends_the_stream() {
    for (a, b) in transports() {
        let (one, other) = meet(&a, &b);
        let (one, _other) = (one.unwrap(), other.unwrap());
        let block = vec![0; 64 << 20];
        let error = one.write(&[&block], Deadline::after(50 * MS)).unwrap_err();
        assert_eq!(error.status, Status::TimedOut);
        let after = one.write(&[b"more"], soon()).unwrap_err();
        assert_eq!(after.status, Status::Disconnected);
    }
}

#[test]
fn an_end_in_order_is_told_from_a_cut() {
    for (a, b) in transports() {
        let (one, other) = meet(&a, &b);
        let (one, other) = (one.unwrap(), other.unwrap());
        other.write(&[b"last"], soon()).unwrap();
        other.close();
        let mut got = [0; 4];
        one.read_all(&mut got, soon()).unwrap();
        assert_eq!(one.read(&mut got, soon()).unwrap(), 0);
        assert_eq!(one.read_all(&mut got, soon()).unwrap_err().status, Status::Disconnected);
    }
}

/// Starts a proxy that forwards one connection. After `upto` bytes from the server, the proxy cuts the connection on
/// both sides.
fn cutting_proxy(server: String, upto: usize) -> (String, std::thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let thread = std::thread::spawn(move || {
        let (client, _) = listener.accept().unwrap();
        let server = TcpStream::connect(server).unwrap();
        let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
        let up = std::thread::spawn(move || {
            let _ = std::io::copy(&mut from, &mut to);
        });
        let _ = std::io::copy(&mut (&server).take(upto as u64), &mut &client);
        let _ = client.shutdown(std::net::Shutdown::Both);
        let _ = server.shutdown(std::net::Shutdown::Both);
        up.join().unwrap();
    });
    (address, thread)
}

#[test]
fn tls_that_is_cut_at_any_byte_is_an_error_and_never_an_end() {
    for (a, b) in inside_tls() {
        let listener = b.listen("127.0.0.1:0").unwrap();
        // The cut falls into the TLS handshake, or into the 5 000 bytes of data that follow the handshake.
        for upto in (0..5000).step_by(241) {
            let (address, proxy) = cutting_proxy(listener.address(), upto);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let arrived = listener.accept(soon()).unwrap().unwrap();
                    if let Ok(stream) = arrived.establish(soon()) {
                        let _ = stream.write(&[&[7; 5000]], soon());
                        let _ = stream.read(&mut [0; 1], soon());
                    }
                });
                match a.dial("b", &address, soon()) {
                    Err(error) => assert!(matches!(error.status, Status::Denied | Status::Disconnected), "{error}"),
                    Ok(stream) => {
                        let mut got = vec![0; 5001];
                        let error = stream.read_all(&mut got, soon()).unwrap_err();
                        assert_eq!(error.status, Status::Disconnected, "{error}");
                        // gRPC also writes by itself, not only when the test calls `write`. Such a write may fail
                        // before a read notices the cut, and the error then has the reason of the failed write.
                        let is_named = error.reason.contains("without a farewell") || a.name() != "tcp+tls";
                        assert!(is_named && !error.reason.contains("stream ended"), "cut at {upto}: {error}");
                    }
                }
            });
            proxy.join().unwrap();
        }
    }
}

#[test]
fn a_byte_that_is_changed_on_the_way_is_refused_by_tls() {
    for (a, b) in inside_tls() {
        let server = b.listen("127.0.0.1:0").unwrap();
        let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
        let (at, to) = (proxy.local_addr().unwrap().to_string(), server.address());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let stream = server.accept(soon()).unwrap().unwrap().establish(soon()).unwrap();
                // The proxy changes only bytes that are written after this message has arrived.
                stream.read_all(&mut [0; 3], soon()).unwrap();
                stream.write(&[&[7; 1000]], soon()).unwrap();
                let _ = stream.read(&mut [0; 1], soon());
            });
            scope.spawn(|| {
                let (mut client, _) = proxy.accept().unwrap();
                let mut server = TcpStream::connect(&to).unwrap();
                let (mut from, mut up) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                let forward = std::thread::spawn(move || {
                    let _ = std::io::copy(&mut from, &mut up);
                    let _ = up.shutdown(std::net::Shutdown::Both);
                });
                let mut seen = 0;
                let mut buffer = [0; 4096];
                while let Ok(read @ 1..) = server.read(&mut buffer) {
                    seen += read;
                    // If more than 1000 bytes arrive in one read after the handshake, they belong to the test's
                    // message. The proxy then changes one byte of them.
                    if read > 1000 && seen > 1500 {
                        buffer[read - 100] ^= 1;
                    }
                    if client.write_all(&buffer[..read]).is_err() {
                        break;
                    }
                }
                let _ = client.shutdown(std::net::Shutdown::Both);
                forward.join().unwrap();
            });
            let stream = a.dial("b", &at, soon()).unwrap();
            stream.write(&[b"now"], soon()).unwrap();
            let error = stream.read_all(&mut [0; 1000], soon()).unwrap_err();
            assert_eq!(error.status, Status::Denied, "{error}");
            stream.close();
        });
    }
}

#[test]
fn certificates_of_another_authority_of_another_node_or_expired_are_refused_on_both_sides() {
    let (ours, theirs) = (authority(), authority());
    let past = SystemTime::now() - Duration::from_secs(60);
    let mut mixed = theirs.issue("b").unwrap();
    mixed.authority = ours.issue("b").unwrap().authority;
    let bad = [
        ("another authority", trust(&theirs.issue("b").unwrap())),
        ("signed by another authority", trust(&mixed)),
        ("expired", trust(&ours.issue_until("b", past).unwrap())),
    ];
    for kind in kinds() {
        let good = |node| kind(trust(&ours.issue(node).unwrap()));
        for (what, bad) in &bad {
            let bad = kind(bad.clone());
            let (dialed, _) = meet(&good("a"), &bad);
            let error = dialed.expect_err(what);
            assert_eq!(error.status, Status::Denied, "{what}: {error}");
            assert_eq!(error.node.as_deref(), Some("b"));
            // With the bad certificate on the client's side, the client learns of the refusal with its first read: in
            // TLS 1.3 the client's handshake ends before the server has checked the certificate.
            let (dialed, accepted) = meet(&bad, &good("b"));
            assert_eq!(accepted.expect_err(what).status, Status::Denied, "{what}");
            assert!(dialed.is_err() || dialed.unwrap().read(&mut [0; 1], soon()).is_err(), "{what}");
        }
        let (dialed, _) = meet(&good("a"), &good("c"));
        let error = dialed.unwrap_err();
        assert!(
            error.to_string().contains("not valid for name") || error.reason.contains("NotValidForName"),
            "{error}"
        );
        let (dialed, accepted) = meet(&good("c"), &good("b"));
        assert!(dialed.is_ok() && !accepted.as_ref().unwrap().may_be("a") && accepted.unwrap().may_be("c"));
    }
}

#[test]
fn plain_text_and_tls_refuse_each_other() {
    let (_, tls) = transports().remove(1);
    let plain = tcp(Trust::Loopback);
    let listener = tls.listen("127.0.0.1:0").unwrap();
    let mut socket = TcpStream::connect(listener.address()).unwrap();
    socket.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n and some more to fill what a record's header says").unwrap();
    let error = listener.accept(soon()).unwrap().unwrap().establish(soon()).unwrap_err();
    assert_eq!(error.status, Status::Denied, "{error}");
    // A TLS client connects to a server without TLS: the server's first bytes are no TLS handshake.
    let listener = plain.listen("127.0.0.1:0").unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let stream = listener.accept(soon()).unwrap().unwrap().establish(soon()).unwrap();
            stream.write(&[b"hello, this is no greeting of TLS"], soon()).unwrap();
            while stream.read(&mut [0; 4096], soon()).is_ok_and(|read| read > 0) {}
        });
        let error = tls.dial("b", &listener.address(), soon()).unwrap_err();
        assert_eq!(error.status, Status::Denied, "{error}");
    });
}

#[test]
fn a_client_without_a_certificate_is_refused() {
    let authority = authority();
    let server = tcp(trust(&authority.issue("b").unwrap()));
    let listener = server.listen("127.0.0.1:0").unwrap();
    // This client is no node: it trusts the server, but has no certificate of its own.
    let mut roots = rustls::RootCertStore::empty();
    let pem = authority.issue("x").unwrap().authority;
    use rustls::pki_types::pem::PemObject;
    roots.add(rustls::pki_types::CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap();
    let config = rustls::ClientConfig::builder_with_provider(rustls::crypto::ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut client = rustls::ClientConnection::new(std::sync::Arc::new(config), "b".try_into().unwrap()).unwrap();
    let address = listener.address();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut socket = TcpStream::connect(address).unwrap();
            let mut stream = rustls::Stream::new(&mut client, &mut socket);
            let _ = stream.write_all(b"hello").and_then(|()| stream.read_exact(&mut [0; 1]));
        });
        let error = listener.accept(soon()).unwrap().unwrap().establish(soon()).unwrap_err();
        assert_eq!(error.status, Status::Denied, "{error}");
    });
}

#[test]
fn a_greeting_that_comes_slowly_ends_at_its_deadline() {
    let (_, tls) = transports().remove(1);
    let listener = tls.listen("127.0.0.1:0").unwrap();
    let mut socket = TcpStream::connect(listener.address()).unwrap();
    let arrived = listener.accept(soon()).unwrap().unwrap();
    socket.write_all(&[0x16, 3, 1, 2]).unwrap();
    let error = arrived.establish(Deadline::after(30 * MS)).unwrap_err();
    assert_eq!(error.status, Status::TimedOut, "{error}");
}

#[test]
fn without_certificates_only_loopback_is_listened_at_and_connected_to() {
    for kind in kinds() {
        let none = kind(Trust::Loopback);
        for error in [none.listen("0.0.0.0:0").err(), none.dial("b", "192.0.2.1:7700", soon()).err()] {
            let error = error.expect("refused");
            assert_eq!(error.status, Status::Denied);
            assert!(error.to_string().contains("--trusted-network"), "{error}");
        }
        assert!(none.listen("[::1]:0").is_ok() || none.listen("127.0.0.1:0").is_ok());
        assert!(kind(Trust::Network).listen("0.0.0.0:0").is_ok());
    }
    for (_, tls) in inside_tls() {
        assert!(tls.listen("0.0.0.0:0").is_ok());
    }
}

#[test]
fn an_address_that_nothing_listens_at_is_refused_with_its_name() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    for kind in kinds() {
        let transport = kind(Trust::default());
        let error = transport.dial("b", &closed, soon()).unwrap_err();
        assert_eq!(error.status, Status::Disconnected);
        assert!(error.to_string().contains("node 'b'") && error.to_string().contains(&closed), "{error}");
        let error = transport.dial("b", "no-port", soon()).unwrap_err();
        assert_eq!(error.status, Status::Invalid);
    }
}

#[test]
fn papers_are_written_for_this_user_alone_and_read_back() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let authority = authority();
    authority.issue("a").unwrap().save(folder.path()).unwrap();
    let papers = crossdock_link::NodeCredentials::load(folder.path()).unwrap();
    let server = tcp(trust(&authority.issue("b").unwrap()));
    let listener = server.listen("127.0.0.1:0").unwrap();
    let (dialed, accepted) = meet_at(&tcp(trust(&papers)), &*listener);
    assert!(dialed.is_ok() && accepted.is_ok());
    assert!(!format!("{papers:?}").contains("PRIVATE"));
    // Saving the credentials a second time fails, because `save` must not replace a key that is in use.
    assert!(papers.save(folder.path()).is_err());
    let key = folder.path().join("node.key");
    assert_eq!(std::fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(crossdock_link::NodeCredentials::load(folder.path()).unwrap_err().status, Status::Denied);
    let mut wrong = papers;
    wrong.key = authority.issue("b").unwrap().key;
    assert!(Certificates::new(&wrong).is_err(), "a key that is not the certificate's");
}

//! Peers that send wrong messages, as client or as server. Only the connection on which a wrong message came ends, no
//! call hangs, and no memory grows without bound.

mod common;

use common::*;
use crossdock_layout::Status;
use crossdock_layout::link::{
    FRAME_HEADER, FrameHeader, LINK_VERSION, MAGIC, MAX_CHUNK, MAX_FRAME, NodeMessage, Purpose,
};
use crossdock_layout::wire::SegmentKind;
use crossdock_link::{Link, Server};
use crossdock_os::Deadline;
use crossdock_os::testing::until;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;

fn hello(purpose: Purpose, session: [u8; 16]) -> NodeMessage {
    NodeMessage::Hello {
        magic: MAGIC,
        version: LINK_VERSION,
        purpose,
        incarnation: 9,
        session,
        pulse_ms: 500,
        away_ms: 3000,
        node: "liar".into(),
        to: "b".into(),
    }
}

fn read_message(socket: &mut TcpStream) -> Option<NodeMessage> {
    let mut first = [0; FRAME_HEADER];
    socket.read_exact(&mut first).ok()?;
    let header = FrameHeader::decode(&first).unwrap();
    let mut body = vec![0; header.length - FRAME_HEADER];
    socket.read_exact(&mut body).ok()?;
    Some(NodeMessage::decode(header, &body).unwrap())
}

/// Connects as the node `liar` and waits for the server's Welcome. Returns the connection and the field `session` of
/// the Welcome.
fn greeted(server: &Server, purpose: Purpose, session: [u8; 16]) -> (TcpStream, [u8; 16]) {
    let mut socket = TcpStream::connect(server.address()).unwrap();
    socket.write_all(&hello(purpose, session).encode(0)).unwrap();
    match read_message(&mut socket) {
        Some(NodeMessage::Welcome { session, .. }) => (socket, session),
        other => panic!("{other:?}"),
    }
}

fn frame(length: u32, opcode: u16, reserved: u16, number: u64, body: &[u8]) -> Vec<u8> {
    let mut bytes = length.to_le_bytes().to_vec();
    bytes.extend(opcode.to_le_bytes());
    bytes.extend(reserved.to_le_bytes());
    bytes.extend(number.to_le_bytes());
    bytes.extend(body);
    bytes
}

#[test]
fn each_kind_of_lie_ends_the_liars_connection_and_only_that() {
    let (a, b) = transports().remove(0);
    let store = Arc::new(Store::default());
    store.objects.lock().unwrap().insert(7, Arc::new(vec![5; 100_000]));
    let server = serve(&b, "127.0.0.1:0", 5, &store);
    let honest = link(&a, server.address());
    honest.connected(soon()).unwrap();

    let control = || greeted(&server, Purpose::Control, [0; 16]);
    let fetch = |length| NodeMessage::Fetch {
        kind: SegmentKind::Item,
        checked: true,
        object: 7,
        epoch: EPOCH,
        offset: 0,
        length,
    };
    // A peer must not begin a connection with any of these messages.
    let mut of_other_magic = hello(Purpose::Control, [0; 16]).encode(0);
    of_other_magic[FRAME_HEADER] ^= 1;
    let mut of_other_purpose = hello(Purpose::Control, [0; 16]).encode(0);
    of_other_purpose[FRAME_HEADER + 12] = 9;
    let before: Vec<(&str, Vec<u8>)> = vec![
        ("no message at all", b"GET / HTTP/1.1\r\nHost: b\r\n\r\n".to_vec()),
        ("a length beyond the most", frame(MAX_FRAME as u32 + 1, 1, 0, 0, &[])),
        ("a length of 4 GiB", frame(u32::MAX, 1, 0, 0, &[])),
        ("a length below a header's", frame(3, 1, 0, 0, &[])),
        ("a reserved field that is set", frame(16, 9, 1, 0, &[])),
        ("a magic number of something else", of_other_magic),
        ("a purpose that is none", of_other_purpose),
        ("a question before the greeting", NodeMessage::Ask { service: ECHO, wait_ms: 5, body: vec![] }.encode(1)),
        ("bytes wanted before the greeting", fetch(5).encode(1)),
        ("a greeting in the answerer's words", NodeMessage::Pulse { count: 1 }.encode(0)),
        ("data for no session", hello(Purpose::Data, [4; 16]).encode(0)),
    ];
    let lies = before.len();
    for (what, bytes) in before {
        let mut socket = TcpStream::connect(server.address()).unwrap();
        socket.write_all(&bytes).unwrap();
        wait_for_end(socket);
        assert_eq!(honest.ask(ECHO, b"fine", soon()).unwrap(), b"fine", "after {what}");
    }
    // A peer that has sent its greeting must not send any of these messages.
    let after: Vec<(&str, Vec<u8>)> = vec![
        ("a second greeting", hello(Purpose::Control, [0; 16]).encode(0)),
        ("bytes wanted by the control connection", fetch(5).encode(1)),
        ("a chunk that was not asked for", NodeMessage::Chunk { offset: 0, length: 5, sum: 0 }.encode(1)),
        ("an answer to nothing", NodeMessage::Said(vec![1]).encode(1)),
        ("an opcode that is none", frame(16, 77, 0, 0, &[])),
        ("a question without a number", frame(24, 4, 0, 0, &[0; 8])),
        ("a message longer than its fields", frame(32, 3, 0, 0, &[0; 16])),
    ];
    for (what, bytes) in after {
        let (mut socket, _) = control();
        socket.write_all(&bytes).unwrap();
        wait_for_end(socket);
        assert_eq!(honest.ask(ECHO, b"fine", soon()).unwrap(), b"fine", "after {what}");
    }
    // Each of these messages is wrong on a data connection.
    for bytes in
        [NodeMessage::Ask { service: ECHO, wait_ms: 5, body: vec![] }.encode(1), fetch(0).encode(1), fetch(5).encode(0)]
    {
        let (_control, session) = control();
        let (mut data, _) = greeted(&server, Purpose::Data, session);
        data.write_all(&bytes).unwrap();
        wait_for_end(data);
    }
    assert_eq!(honest.ask(ECHO, b"fine", soon()).unwrap(), b"fine");
    assert!(server.counts().refused.load(Ordering::Relaxed) >= lies as u64);
}

#[test]
fn a_session_of_one_node_is_of_no_use_to_another() {
    let (_, b) = transports().remove(0);
    let store = Arc::new(Store::default());
    let server = serve(&b, "127.0.0.1:0", 5, &store);
    let (_control, session) = greeted(&server, Purpose::Control, [0; 16]);
    let mut socket = TcpStream::connect(server.address()).unwrap();
    let NodeMessage::Hello { magic, version, pulse_ms, away_ms, to, .. } = hello(Purpose::Data, session) else {
        unreachable!()
    };
    let of_another = NodeMessage::Hello {
        magic,
        version,
        pulse_ms,
        away_ms,
        to,
        session,
        purpose: Purpose::Data,
        incarnation: 9,
        node: "other".into(),
    };
    socket.write_all(&of_another.encode(0)).unwrap();
    assert!(matches!(read_message(&mut socket), Some(NodeMessage::Failed { status: Status::Disconnected, .. })));
}

#[test]
fn another_version_is_refused_with_both_numbers() {
    let (_, b) = transports().remove(0);
    let store = Arc::new(Store::default());
    let server = serve(&b, "127.0.0.1:0", 5, &store);
    let mut of_77 = hello(Purpose::Control, [0; 16]).encode(0);
    of_77[FRAME_HEADER + 8] = 77;
    // The message ends early, because a later version may have other fields after its version number.
    of_77.truncate(FRAME_HEADER + 40);
    of_77[..4].copy_from_slice(&(FRAME_HEADER as u32 + 40).to_le_bytes());
    let mut socket = TcpStream::connect(server.address()).unwrap();
    socket.write_all(&of_77).unwrap();
    let Some(NodeMessage::Failed { status, text }) = read_message(&mut socket) else { panic!("no answer") };
    assert_eq!(status, Status::Incompatible);
    assert!(text.contains("version 77") && text.contains("this node 1"), "{text}");
}

#[test]
fn half_open_and_slow_connections_by_the_hundred_harm_no_honest_node() {
    for (a, b) in through_a_proxy() {
        let store = Arc::new(Store::default());
        store.objects.lock().unwrap().insert(7, Arc::new(vec![5; 100_000]));
        let server = serve(&b, "127.0.0.1:0", 5, &store);
        let honest = link(&a, server.address());
        honest.connected(soon()).unwrap();
        honest.pull(&source_id(7), 0, &mut [0; 10], soon()).unwrap();
        let mut sockets = Vec::new();
        for number in 0..300u32 {
            let mut socket = TcpStream::connect(server.address()).unwrap();
            // Every second connection sends the beginning of a message; the others send nothing.
            if number % 2 == 0 {
                let _ = socket.write_all(&frame(200, 1, 0, 0, &[7]));
            }
            sockets.push(socket);
        }
        // The honest node has its connections already, so the 300 new connections do not disturb it.
        assert_eq!(honest.ask(ECHO, b"fine", soon()).unwrap(), b"fine");
        honest.pull(&source_id(7), 0, &mut [0; 100_000], soon()).unwrap();
        // At most 32 connections of this host were in their greeting at the same time. The server refused the others,
        // and it closes these 32 when the time for their greeting is over.
        for socket in sockets {
            wait_for_end(socket);
        }
        assert!(store.refused.lock().unwrap().iter().any(|said| said.contains("32 of them from '127.0.0.1'")));
        // When the connections without a greeting have ended, a new node can connect.
        let another = link(&a, server.address());
        another.connected(soon()).unwrap();
    }
}

#[test]
fn a_peer_that_asks_and_never_reads_is_given_up() {
    let (a, b) = transports().remove(0);
    let store = Arc::new(Store::default());
    store.objects.lock().unwrap().insert(7, Arc::new(vec![5; 64 << 20]));
    let options = crossdock_link::LinkOptions { pulse: 50 * MS, away: 250 * MS, ..Default::default() };
    let serving: Arc<dyn crossdock_link::Serve> = store.clone();
    let server = Server::start(b.listen("127.0.0.1:0").unwrap(), node("b", 5), serving, options).unwrap();
    let (control, session) = greeted(&server, Purpose::Control, [0; 16]);
    let (mut data, _) = greeted(&server, Purpose::Data, session);
    let fetch = NodeMessage::Fetch {
        kind: SegmentKind::Item,
        checked: true,
        object: 7,
        epoch: EPOCH,
        offset: 0,
        length: 64 << 20,
    };
    data.write_all(&fetch.encode(1)).unwrap();
    // The peer neither reads nor sends a pulse, so the server closes both of its connections.
    until("the silent control connection ends", || !store.left.lock().unwrap().is_empty());
    let gave_up = |said: &String| said.contains("write");
    until("the unread data connection ends", || store.refused.lock().unwrap().iter().any(gave_up));
    drop((control, data));
    assert_eq!(link(&a, server.address()).ask(ECHO, b"fine", soon()).unwrap(), b"fine");
}

#[test]
fn a_flood_of_questions_leaves_other_nodes_their_share() {
    let (a, b) = transports().remove(0);
    let store = Arc::new(Store::default());
    let server = serve(&b, "127.0.0.1:0", 5, &store);
    let honest = link(&a, server.address());
    honest.connected(soon()).unwrap();
    let (mut liar, _) = greeted(&server, Purpose::Control, [0; 16]);
    let gate = store.gate.lock().unwrap();
    let question = NodeMessage::Ask { service: GATE, wait_ms: 60_000, body: vec![] };
    for number in 1..=1000 {
        liar.write_all(&question.encode(number)).unwrap();
    }
    let mut refused = 0;
    while refused < 1000 - 64 {
        match read_message(&mut liar).expect("the connection stays") {
            NodeMessage::Failed { status: Status::Busy, .. } => refused += 1,
            NodeMessage::Pulse { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(honest.ask(ECHO, b"fine", soon()).unwrap(), b"fine");
    drop(gate);
}

/// Starts a server that acts as node `b` and sends a Welcome on every connection. For each later message, except a
/// pulse, the server calls `lie`, which sends a wrong answer.
fn lying_server(lie: impl Fn(&mut TcpStream, u64, &NodeMessage) + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let lie = Arc::new(lie);
    // This thread runs until the test process ends; no code waits for it.
    std::thread::spawn(move || {
        while let Ok((mut socket, _)) = listener.accept() {
            let lie = lie.clone();
            std::thread::spawn(move || {
                let Some(NodeMessage::Hello { .. }) = read_message(&mut socket) else { return };
                let welcome = NodeMessage::Welcome {
                    version: LINK_VERSION,
                    incarnation: 5,
                    session: [1; 16],
                    pulse_ms: 500,
                    away_ms: 3000,
                    node: "b".into(),
                };
                if socket.write_all(&welcome.encode(0)).is_err() {
                    return;
                }
                loop {
                    let mut first = [0; FRAME_HEADER];
                    if socket.read_exact(&mut first).is_err() {
                        return;
                    }
                    let header = FrameHeader::decode(&first).unwrap();
                    let mut body = vec![0; header.length - FRAME_HEADER];
                    if socket.read_exact(&mut body).is_err() {
                        return;
                    }
                    let message = NodeMessage::decode(header, &body).unwrap();
                    if !matches!(message, NodeMessage::Pulse { .. }) {
                        lie(&mut socket, header.number, &message);
                    }
                }
            });
        }
    });
    address
}

#[test]
fn a_server_that_lies_about_its_bytes_writes_nothing_beside_them_and_hangs_no_caller() {
    // All checksums are right, so that only the wrong field can be noticed.
    let chunk = |offset, length: u64, number| {
        let sum = twox_hash::XxHash3_64::oneshot(&vec![9; length as usize]);
        NodeMessage::Chunk { offset, length, sum }.encode(number)
    };
    let unlike = |n| NodeMessage::Chunk { offset: 0, length: 1000, sum: 1 }.encode(n);
    type Lie = Box<dyn Fn(u64) -> Vec<u8> + Send + Sync>;
    let lies: Vec<(&str, Lie)> = vec![
        ("more than was asked for", Box::new(move |n| [chunk(0, 5000, n), vec![9; 5000]].concat())),
        ("another place", Box::new(move |n| [chunk(1, 1000, n), vec![9; 1000]].concat())),
        ("far behind the end", Box::new(move |n| [chunk(1 << 60, 1000, n), vec![9; 1000]].concat())),
        ("another number", Box::new(move |n| [chunk(0, 1000, n + 1), vec![9; 1000]].concat())),
        ("the longest chunk", Box::new(move |n| chunk(0, MAX_CHUNK, n))),
        (
            "a chunk that is too long",
            Box::new(move |n| {
                frame(40, 8, 0, n, &{
                    let mut body = 0u64.to_le_bytes().to_vec();
                    body.extend((MAX_CHUNK + 1).to_le_bytes());
                    body.extend(0u64.to_le_bytes());
                    body
                })
            }),
        ),
        ("a wrong checksum", Box::new(move |n| [unlike(n), vec![9; 1000]].concat())),
        ("half of a chunk", Box::new(move |n| [chunk(0, 1000, n), vec![9; 500]].concat())),
        ("nothing", Box::new(|_| vec![])),
        ("a question", Box::new(|n| NodeMessage::Ask { service: 1, wait_ms: 1, body: vec![] }.encode(n))),
        ("noise", Box::new(|_| vec![0xff; 100])),
    ];
    let (a, _) = transports().remove(0);
    for (what, lie) in lies {
        let address = lying_server(move |socket, number, _| {
            let _ = socket.write_all(&lie(number));
        });
        let link = link(&a, &address);
        let mut memory = vec![0xee; 1002];
        let error = link.pull(&source_id(7), 0, &mut memory[1..=1000], Deadline::after(300 * MS)).unwrap_err();
        assert!(matches!(error.status, Status::TimedOut | Status::Corrupt), "{what}: {error}");
        assert!(memory[0] == 0xee && memory[1001] == 0xee, "{what}");
    }
}

#[test]
fn a_server_that_answers_questions_with_lies_is_given_up_and_dialed_anew() {
    let (a, _) = transports().remove(0);
    let address = lying_server(|socket, number, _| {
        let _ = socket.write_all(&NodeMessage::Said(b"for another".to_vec()).encode(number + 100));
        let _ = socket.write_all(&NodeMessage::Chunk { offset: 0, length: 1, sum: 0 }.encode(number));
    });
    let link = link(&a, &address);
    let error = link.ask(ECHO, b"x", soon()).unwrap_err();
    assert_eq!(error.status, Status::Disconnected, "{error}");
    assert!(error.to_string().contains("does not belong here"), "{error}");
    link.connected(soon()).unwrap();
}

#[test]
fn a_server_that_never_welcomes_does_not_keep_a_caller_beyond_its_deadline() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (a, _) = transports().remove(0);
    let options = crossdock_link::LinkOptions { away: 200 * MS, pulse: 50 * MS, ..Default::default() };
    let address = listener.local_addr().unwrap().to_string();
    let link = Link::open(a, node("a", 1), "b", &address, options).unwrap();
    let error = link.ask(ECHO, b"x", Deadline::after(100 * MS)).unwrap_err();
    assert_eq!(error.status, Status::TimedOut, "{error}");
    drop(link);
}

#[test]
fn both_sides_of_an_idle_link_send_pulses() {
    let (a, b) = transports().remove(0);
    let pulses = |socket: &mut TcpStream| {
        for count in 0..3 {
            assert_eq!(read_message(socket), Some(NodeMessage::Pulse { count }));
        }
    };
    let store = Arc::new(Store::default());
    let server = serve(&b, "127.0.0.1:0", 5, &store);
    pulses(&mut greeted(&server, Purpose::Control, [0; 16]).0);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let link = link(&a, &listener.local_addr().unwrap().to_string());
    let (mut socket, _) = listener.accept().unwrap();
    assert!(matches!(read_message(&mut socket), Some(NodeMessage::Hello { .. })));
    let welcome = NodeMessage::Welcome {
        version: LINK_VERSION,
        incarnation: 5,
        session: [1; 16],
        pulse_ms: 500,
        away_ms: 3000,
        node: "b".into(),
    };
    socket.write_all(&welcome.encode(0)).unwrap();
    pulses(&mut socket);
    drop(link);
}

#[test]
fn the_catalogs_connections_are_handed_to_it() {
    let (_, b) = transports().remove(0);
    let store = Arc::new(Store::default());
    let server = serve(&b, "127.0.0.1:0", 5, &store);
    let (mut socket, _) = greeted(&server, Purpose::Catalog, [0; 16]);
    let mut said = String::new();
    socket.read_to_string(&mut said).unwrap();
    assert_eq!(said, "catalog for liar");
}

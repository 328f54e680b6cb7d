//! Functions and types that the tests of links share.
#![allow(dead_code)]

use crossdock_layout::Status;
use crossdock_layout::wire::SegmentKind;
use crossdock_link::{
    Accept, Authority, Certificates, Link, LinkOptions, Node, NodeCredentials, Peer, Refusal, Result, Serve, Server,
    Source, SourceId, Stream, Tcp, Transport, Trust, Ucx,
};
use crossdock_os::Deadline;
use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// Gives a deadline that no test reaches, even on a loaded machine.
pub fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

/// Reads until the other side has closed the connection. A reset counts as closing.
pub fn wait_for_end(mut socket: TcpStream) {
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut buffer = [0; 4096];
    loop {
        match socket.read(&mut buffer) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return,
            Err(error) => panic!("the server keeps the connection: {error}"),
        }
    }
}

pub fn trust(papers: &NodeCredentials) -> Trust {
    Trust::Certificates(Arc::new(Certificates::new(papers).unwrap()))
}

pub fn authority() -> Authority {
    Authority::make("test", Duration::from_secs(3600)).unwrap()
}

/// A transport of any kind.
pub type Way = Arc<dyn Transport>;

pub fn tcp(trust: Trust) -> Way {
    Arc::new(Tcp::new(trust))
}

#[cfg(feature = "grpc")]
pub fn grpc(trust: Trust) -> Way {
    Arc::new(crossdock_link::Grpc::new(trust).unwrap())
}

/// Gives a function for each kind of transport of this build. The function makes a transport of this kind.
pub fn kinds() -> Vec<fn(Trust) -> Way> {
    vec![
        tcp,
        #[cfg(feature = "grpc")]
        grpc,
    ]
}

/// Gives UCX as a transport, if this machine has it.
pub fn ucx() -> Option<Way> {
    Some(Arc::new(Ucx::load(&Trust::Network).ok()?))
}

/// Pairs of transports, one for node `a` and one for node `b`, that trust each other. They are the pairs of
/// [`through_a_proxy`], and a pair of UCX if this machine has it.
pub fn transports() -> Vec<(Way, Way)> {
    let over_ucx = ucx().map(|ucx| (ucx.clone(), ucx));
    through_a_proxy().into_iter().chain(over_ucx).collect()
}

/// Pairs of transports, one for node `a` and one for node `b`. All bytes go through one TCP connection, so that a proxy
/// sees and changes them. Each kind of transport has one pair in plain text and one inside TLS. The first two pairs are
/// those of TCP.
pub fn through_a_proxy() -> Vec<(Way, Way)> {
    let authority = authority();
    let of = |node| trust(&authority.issue(node).unwrap());
    let pairs =
        |kind: fn(Trust) -> Way| [(kind(Trust::Loopback), kind(Trust::Loopback)), (kind(of("a")), kind(of("b")))];
    kinds().into_iter().flat_map(pairs).collect()
}

/// Gives those pairs of [`transports`] that use TLS.
pub fn inside_tls() -> Vec<(Way, Way)> {
    transports().into_iter().filter(|(a, _)| a.name().ends_with("+tls")).collect()
}

/// The two ends of a connection: the end that dialed, and the end that accepted.
pub type Ends = (Result<Arc<dyn Stream>>, Result<Arc<dyn Stream>>);

/// Connects `a` to a new listener of `b`, and returns the result of both ends. The dialing end expects the node `b`.
pub fn meet(a: &Way, b: &Way) -> Ends {
    let listener = b.listen("127.0.0.1:0").unwrap();
    meet_at(a, &*listener)
}

pub fn meet_at(a: &Way, listener: &dyn Accept) -> Ends {
    let address = listener.address();
    std::thread::scope(|scope| {
        let accepted = scope.spawn(|| listener.accept(soon()).unwrap().unwrap().establish(soon()));
        let dialed = a.dial("b", &address, soon());
        if dialed.is_err() {
            return (dialed, accepted.join().unwrap());
        }
        (dialed, accepted.join().unwrap())
    })
}

pub fn pattern(length: usize, seed: u64) -> Vec<u8> {
    crossdock_os::testing::Random(seed).bytes(length)
}

/// What a node of the tests serves: objects, each under a number, and a few services.
#[derive(Default)]
pub struct Store {
    pub objects: Mutex<HashMap<u64, Arc<dyn Source>>>,
    pub refused: Mutex<Vec<String>>,
    pub joined: Mutex<Vec<String>>,
    pub left: Mutex<Vec<String>>,
    /// Service 3 does not answer while a test holds this lock.
    pub gate: Mutex<()>,
}

pub const ECHO: u32 = 1;
pub const REFUSE: u32 = 2;
pub const GATE: u32 = 3;
pub const WHO: u32 = 4;
pub const HUGE: u32 = 5;

impl Serve for Store {
    fn answer(&self, peer: &Peer, service: u32, body: &[u8], _by: Deadline) -> std::result::Result<Vec<u8>, Refusal> {
        match service {
            ECHO => Ok(body.to_vec()),
            GATE => {
                drop(self.gate.lock());
                Ok(body.to_vec())
            }
            WHO => Ok(peer.node.name.clone().into_bytes()),
            HUGE => Ok(vec![0; 1 << 20]),
            _ => Err(Refusal::new(Status::NotFound, format!("there is no service {service}; ask another"))),
        }
    }

    fn open(&self, _peer: &Peer, source_id: &SourceId) -> std::result::Result<Arc<dyn Source>, Refusal> {
        let found = self.objects.lock().unwrap().get(&source_id.object).cloned();
        match found {
            Some(source) if source_id.epoch == EPOCH => Ok(source),
            Some(_) => Err(Refusal::new(Status::NotFound, format!("{source_id} has epoch {EPOCH} by now"))),
            None => Err(Refusal::new(Status::NotFound, format!("{source_id} is not here"))),
        }
    }

    fn catalog(&self, peer: &Peer, stream: Arc<dyn Stream>) {
        let _ = stream.write(&[b"catalog for ", peer.node.name.as_bytes()], soon());
        stream.close();
    }

    fn joined(&self, peer: &Peer) {
        self.joined.lock().unwrap().push(peer.node.name.clone());
    }

    fn left(&self, peer: &Peer, why: &str) {
        self.left.lock().unwrap().push(format!("{}: {why}", peer.node.name));
    }

    fn refused(&self, error: &crossdock_link::Error) {
        self.refused.lock().unwrap().push(error.to_string());
    }
}

pub const EPOCH: u64 = 3;

pub fn source_id(object: u64) -> SourceId {
    SourceId { kind: SegmentKind::Item, object, epoch: EPOCH }
}

pub fn node(name: &str, incarnation: u64) -> Node {
    Node { name: name.into(), incarnation }
}

/// Gives short times, so that a test need not wait long until a peer counts as away. The times are long enough for a
/// loaded machine.
pub fn quick() -> LinkOptions {
    LinkOptions { pulse: 50 * MS, away: 2000 * MS, streams: 1, ..LinkOptions::default() }
}

pub const MS: Duration = Duration::from_millis(1);

pub fn serve(b: &Way, address: &str, incarnation: u64, store: &Arc<Store>) -> Server {
    let store: Arc<dyn Serve> = store.clone();
    Server::start(b.listen(address).unwrap(), node("b", incarnation), store, quick()).unwrap()
}

pub fn link(a: &Way, address: &str) -> Link {
    Link::open(a.clone(), node("a", 1), "b", address, quick()).unwrap()
}

/// How a [`Proxy`] changes the bytes that go from the server to the client of a connection.
#[derive(Clone, Copy, Default)]
pub struct Wire {
    /// The number of bytes after which a connection is cut; 0: never.
    pub cut_after: usize,
    /// The number of the byte that is changed, counted from 0.
    pub change_at: usize,
    /// The number of connections whose byte is changed.
    pub changes: usize,
    /// The delay in milliseconds for each 64 KiB.
    pub slow_ms: u64,
}

/// Forwards connections to a server, and damages them as `Wire` says. While `open` is false, no bytes are forwarded in
/// either direction.
pub struct Proxy {
    pub address: String,
    pub open: Arc<AtomicBool>,
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    pub fn start(server: &str, wire: Wire) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (open, stopping) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(false)));
        let changes = Arc::new(AtomicUsize::new(wire.changes));
        let server = server.to_owned();
        let thread = {
            let (open, stopping) = (open.clone(), stopping.clone());
            std::thread::spawn(move || {
                let mut threads = Vec::new();
                while let Ok((client, _)) = listener.accept() {
                    if stopping.load(Ordering::Acquire) {
                        break;
                    }
                    let Ok(server) = TcpStream::connect(&server) else { continue };
                    for (from, to, wire) in [
                        (client.try_clone().unwrap(), server.try_clone().unwrap(), Wire::default()),
                        (server, client, wire),
                    ] {
                        let (open, stopping, changes) = (open.clone(), stopping.clone(), changes.clone());
                        threads.push(std::thread::spawn(move || pass(from, to, wire, &open, &stopping, &changes)));
                    }
                }
                for thread in threads {
                    thread.join().unwrap();
                }
            })
        };
        Self { address, open, stopping, thread: Some(thread) }
    }
}

/// Lowers the counter by 1. Gives `false` if the counter is 0.
fn take_one(counter: &AtomicUsize) -> bool {
    let mut left = counter.load(Ordering::Acquire);
    while left > 0 {
        match counter.compare_exchange_weak(left, left - 1, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return true,
            Err(present) => left = present,
        }
    }
    false
}

fn pass(from: TcpStream, to: TcpStream, wire: Wire, open: &AtomicBool, stopping: &AtomicBool, changes: &AtomicUsize) {
    let mut buffer = vec![0; 64 << 10];
    let mut seen = 0;
    from.set_read_timeout(Some(20 * MS)).unwrap();
    while !stopping.load(Ordering::Acquire) {
        if !open.load(Ordering::Acquire) {
            std::thread::sleep(MS);
            continue;
        }
        let upto = if wire.cut_after == 0 { buffer.len() } else { buffer.len().min(wire.cut_after - seen) };
        let read = match (&from).read(&mut buffer[..upto]) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => continue,
            Err(_) => break,
        };
        if wire.change_at >= seen && wire.change_at < seen + read && wire.changes > 0 && take_one(changes) {
            buffer[wire.change_at - seen] ^= 0x10;
        }
        seen += read;
        if wire.slow_ms > 0 {
            std::thread::sleep(Duration::from_millis(wire.slow_ms * read as u64 / (64 << 10)));
        }
        if (&to).write_all(&buffer[..read]).is_err() || seen == wire.cut_after {
            break;
        }
    }
    let _ = from.shutdown(std::net::Shutdown::Both);
    let _ = to.shutdown(std::net::Shutdown::Both);
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Release);
        let _ = TcpStream::connect(&self.address);
        self.thread.take().unwrap().join().unwrap();
    }
}

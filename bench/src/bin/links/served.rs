//! The serving process. It serves the same bytes in three ways: raw TCP, links without TLS, and links with TLS. Links
//! of both kinds can run over TCP or gRPC. Links without TLS can also run over UCX.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;

use crossdock_bench::raw;
use crossdock_link::{
    Buffer, Certificates, Choice, LinkOptions, Node, NodeCredentials, Peer, Refusal, Serve, Server, Source, SourceId,
    Transports, Trust,
};
use crossdock_os::Deadline;

/// The served object repeats these bytes. An object is pulled in parts, and no length of a part is a multiple of 251,
/// so a part at the wrong place is noticed.
const PATTERN: [u8; 251] = {
    let mut pattern = [0; 251];
    let mut at = 0;
    while at < pattern.len() {
        pattern[at] = at as u8;
        at += 1;
    }
    pattern
};

/// Serves one object under every object number that a client may ask for.
struct One(Arc<Vec<u8>>);

struct Bytes(Arc<Vec<u8>>);

impl Source for Bytes {
    fn length(&self) -> u64 {
        self.0.len() as u64
    }

    fn bytes<'a>(&'a self, offset: u64, length: u64, buffer: &'a mut Buffer) -> Result<&'a [u8], Refusal> {
        self.0.bytes(offset, length, buffer)
    }
}

impl Serve for One {
    fn answer(&self, _: &Peer, _: u32, body: &[u8], _: Deadline) -> Result<Vec<u8>, Refusal> {
        Ok(body.to_vec())
    }

    fn open(&self, _: &Peer, _: &SourceId) -> Result<Arc<dyn Source>, Refusal> {
        Ok(Arc::new(Bytes(self.0.clone())))
    }
}

/// Serves until the standard input of this process ends.
pub fn serve(address: &str, papers: &Path, most: usize) {
    let mut bytes = vec![0; most];
    bytes.chunks_mut(PATTERN.len()).for_each(|part| part.copy_from_slice(&PATTERN[..part.len()]));
    let bytes = Arc::new(bytes);
    let listener = TcpListener::bind((address, 0)).expect("a free port");
    println!("{}", listener.local_addr().expect("its address"));
    let papers = NodeCredentials::load(papers).expect("papers");
    let trusted = Trust::Certificates(Arc::new(Certificates::new(&papers).expect("certificates")));
    let servers = [(Trust::Network, Choice::Ucx), (trusted, Choice::Auto)].map(|(trust, choice)| {
        let transports = Transports::new(&trust, choice).expect("transports");
        let accept = transports.listen(&format!("{address}:0")).expect("a free port");
        let own = Node { name: "b".into(), incarnation: 1 };
        let server =
            Server::start(accept, own, Arc::new(One(bytes.clone())), LinkOptions::default()).expect("a server");
        println!("{}", server.address());
        server
    });
    std::io::stdout().flush().expect("told");
    std::thread::spawn(move || raw::serve(listener, bytes));
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    drop(servers);
    std::process::exit(0);
}

/// Checks that `memory` has the first bytes of the served object.
pub fn check(memory: &[u8]) {
    let wrong = memory.chunks(PATTERN.len()).position(|part| part != &PATTERN[..part.len()]);
    assert_eq!(wrong, None, "a part of {} bytes is wrong", PATTERN.len());
}

//! The serving process. It serves the same bytes in three ways: raw TCP, links without TLS, and links with TLS. Both kinds
//! of links may be over TCP or gRPC, and those without TLS over UCX, too.

use std::borrow::Cow;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;

use crossdock_bench::raw;
use crossdock_link::{
    Certificates, Choice, LinkOptions, Node, Papers, Peer, Refusal, Serve, Server, Source, Transports, Trust, Wanted,
};
use crossdock_os::Deadline;

use super::MOST;

/// Serves one object, whatever object a client asks for.
struct One(Arc<Vec<u8>>);

struct Bytes(Arc<Vec<u8>>);

impl Source for Bytes {
    fn length(&self) -> u64 {
        self.0.len() as u64
    }

    fn bytes(&self, offset: u64, length: u64) -> Option<Cow<'_, [u8]>> {
        self.0.bytes(offset, length)
    }
}

impl Serve for One {
    fn answer(&self, _: &Peer, _: u32, body: &[u8], _: Deadline) -> Result<Vec<u8>, Refusal> {
        Ok(body.to_vec())
    }

    fn open(&self, _: &Peer, _: &Wanted) -> Result<Arc<dyn Source>, Refusal> {
        Ok(Arc::new(Bytes(self.0.clone())))
    }
}

/// Serves until the standard input of this process ends.
pub fn serve(address: &str, papers: &Path) {
    let bytes: Arc<Vec<u8>> = Arc::new((0..MOST).map(byte).collect());
    let listener = TcpListener::bind((address, 0)).expect("a free port");
    println!("{}", listener.local_addr().expect("its address"));
    let papers = Papers::load(papers).expect("papers");
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

fn byte(at: usize) -> u8 {
    (at % 251) as u8
}

/// Checks that `memory` has the first bytes of the served object.
pub fn check(memory: &[u8]) {
    let wrong = memory.iter().enumerate().position(|(at, found)| *found != byte(at));
    assert_eq!(wrong, None, "a byte is wrong");
}

//! What the tests of links share.
#![allow(dead_code)]

use crossdock_link::{Accept, Authority, Certificates, Papers, Result, Stream, Tcp, Transport, Trust};
use crossdock_os::Deadline;
use std::sync::Arc;
use std::time::Duration;

/// Long enough for a loaded machine; no test waits for it to pass.
pub fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

pub fn trust(papers: &Papers) -> Trust {
    Trust::Certificates(Arc::new(Certificates::new(papers).unwrap()))
}

pub fn authority() -> Authority {
    Authority::make("test", Duration::from_secs(3600)).unwrap()
}

/// Transports of node `a` and node `b` that trust each other: in plain text, and inside TLS.
pub fn transports() -> Vec<(Tcp, Tcp)> {
    let authority = authority();
    let of = |node| Tcp::new(trust(&authority.issue(node).unwrap()));
    vec![(Tcp::new(Trust::Loopback), Tcp::new(Trust::Loopback)), (of("a"), of("b"))]
}

/// The dialing end and the accepting one.
pub type Ends = (Result<Arc<dyn Stream>>, Result<Arc<dyn Stream>>);

/// What both ends of a connection come to: the dialing one, which means to reach `b`, and the accepting one.
pub fn meet(a: &Tcp, b: &Tcp) -> Ends {
    let listener = b.listen("127.0.0.1:0").unwrap();
    meet_at(a, &*listener)
}

pub fn meet_at(a: &Tcp, listener: &dyn Accept) -> Ends {
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
    let mut state = seed | 1;
    (0..length)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u8
        })
        .collect()
}

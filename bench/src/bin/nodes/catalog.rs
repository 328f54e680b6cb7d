//! Measures the embedded catalog of the site without TLS, over the network: how long a registration takes, how many
//! registrations four clients make in a second, and how soon a watch reports a change.

use std::time::{Duration, Instant};

use crossdock_bench::median;
use crossdock_catalog::embedded::{Client as Embedded, TcpDial};
use crossdock_catalog::{Catalog, LeaseId};
use crossdock_os::Deadline;

use crate::rows::{REGISTRATION, REGISTRATIONS, Times, WATCH};

const EACH: usize = 100;
const CLIENTS: usize = 4;
const PREFIX: &str = "measured/";

/// A client of the catalog.
pub struct Client(Embedded);

impl Client {
    pub fn new(address: &str) -> Self {
        Self(Embedded::new(TcpDial(address.to_owned())))
    }

    pub fn measure(&self, times: &mut Times, round: usize) {
        let lease = self.0.grant(Duration::from_secs(60), soon()).expect("a lease");
        let begun = Instant::now();
        self.register(&format!("one/{round}"), lease);
        times.add(&[REGISTRATION], begun.elapsed().as_secs_f64() * 1e6 / EACH as f64);
        let begun = Instant::now();
        std::thread::scope(|scope| {
            for client in 0..CLIENTS {
                scope.spawn(move || self.register(&format!("many/{round}/{client}"), lease));
            }
        });
        times.add(&[REGISTRATIONS], (EACH * CLIENTS) as f64 / begun.elapsed().as_secs_f64());
        times.add(&[WATCH], self.watch(lease));
        self.0.revoke(lease, soon()).expect("revoked");
    }

    fn register(&self, prefix: &str, lease: LeaseId) {
        for name in 0..EACH {
            let made = self.0.create(&format!("{PREFIX}{prefix}/{name}"), b"1 a", Some(lease), soon());
            made.expect("the catalog answers").expect("a free name");
        }
    }

    /// Measures the microseconds from a client's call that makes a change until a watch reports this change.
    fn watch(&self, lease: LeaseId) -> f64 {
        let key = format!("{PREFIX}watched");
        let from = self.0.put(&key, b"0", Some(lease), soon()).expect("put");
        let mut watch = self.0.watch(&key, from + 1).expect("a watch");
        let mut took = Vec::new();
        for value in 1..=EACH {
            let begun = Instant::now();
            self.0.put(&key, value.to_string().as_bytes(), Some(lease), soon()).expect("put");
            while watch.next(soon()).expect("changes").is_empty() {}
            took.push(begun.elapsed().as_secs_f64() * 1e6);
        }
        median(&took)
    }
}

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

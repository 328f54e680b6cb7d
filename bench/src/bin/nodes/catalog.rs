//! Measures a transaction of the embedded catalog of the site without TLS, over the network. `bench/catalog` measures the
//! catalog itself.

use std::time::{Duration, Instant};

use crossdock_catalog::Catalog;
use crossdock_catalog::embedded::{Client as Embedded, TcpDial};
use crossdock_os::Deadline;

use crate::rows::{REGISTRATION, Times};

const EACH: usize = 100;

/// A client of the site's catalog.
pub struct Client(Embedded);

impl Client {
    pub fn new(address: &str) -> Self {
        Self(Embedded::new(TcpDial(address.to_owned())))
    }

    /// Measures the time of a registration.
    pub fn measure(&self, times: &mut Times, round: usize) {
        let lease = self.0.grant(Duration::from_secs(60), soon()).expect("a lease");
        let begun = Instant::now();
        for name in 0..EACH {
            let made = self.0.create(&format!("measured/{round}/{name}"), b"1 a", Some(lease), soon());
            made.expect("the catalog answers").expect("a free name");
        }
        times.add(&[REGISTRATION], begun.elapsed().as_secs_f64() * 1e6 / EACH as f64);
        self.0.revoke(lease, soon()).expect("revoked");
    }
}

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

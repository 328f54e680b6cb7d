//! The catalog in etcd: the common claims on three members, and members that are killed.
//!
//! The path of etcd as Debian installs it; `scripts/setup catalog` does this.

mod conformance;

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command};
use std::thread;
use std::time::Duration;

use conformance::{CLAIMS, soon};
use crossdock_catalog::etcd::{Etcd, EtcdOptions};
use crossdock_catalog::{Catalog, CatalogError, Event};
use crossdock_os::Deadline;
use tempfile::TempDir;

/// Three etcd members on loopback. The kernel ends them with the thread that started them.
struct Cluster {
    folder: TempDir,
    ports: Vec<(u16, u16)>,
    running: Vec<Option<Child>>,
}

fn free_ports(number: usize) -> Vec<u16> {
    let held: Vec<_> = (0..number).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    held.iter().map(|listener| listener.local_addr().unwrap().port()).collect()
}

/// The metrics page of a member.
fn metrics(port: u16) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    Some(text)
}

impl Cluster {
    fn start() -> Self {
        let ports = free_ports(6);
        let ports = (0..3).map(|n| (ports[2 * n], ports[2 * n + 1])).collect();
        let folder = tempfile::tempdir().unwrap();
        let mut cluster = Self { folder, ports, running: vec![None, None, None] };
        (0..3).for_each(|n| cluster.run(n, "new"));
        cluster.client().put("ready", b"", None, soon()).unwrap();
        cluster
    }

    fn run(&mut self, n: usize, state: &str) {
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let peers: Vec<_> = (0..3).map(|n| format!("m{n}={}", url(self.ports[n].1))).collect();
        let log = File::options().create(true).append(true).open(self.folder.path().join(format!("{n}.log"))).unwrap();
        let member = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "etcd", "--name", &format!("m{n}"), "--unsafe-no-fsync"])
            .args(["--data-dir", self.folder.path().join(format!("m{n}")).to_str().unwrap()])
            .args(["--listen-client-urls", &url(self.ports[n].0), "--advertise-client-urls", &url(self.ports[n].0)])
            .args(["--listen-peer-urls", &url(self.ports[n].1), "--initial-advertise-peer-urls", &url(self.ports[n].1)])
            .args(["--initial-cluster", &peers.join(","), "--initial-cluster-state", state])
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .expect("etcd is not there; scripts/setup catalog installs it");
        self.running[n] = Some(member);
    }

    fn stop(&mut self, n: usize) {
        if let Some(mut child) = self.running[n].take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    fn client(&self) -> Etcd {
        let members = self.ports.iter().map(|(port, _)| format!("http://127.0.0.1:{port}")).collect();
        Etcd::new(&EtcdOptions { members, ..EtcdOptions::default() }).unwrap()
    }

    /// The index of the member that leads the cluster.
    fn leader(&self) -> usize {
        let by = soon();
        loop {
            for n in (0..3).filter(|n| self.running[*n].is_some()) {
                if metrics(self.ports[n].0).is_some_and(|text| text.contains("\netcd_server_is_leader 1")) {
                    return n;
                }
            }
            assert!(!by.passed(), "no member leads");
            thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        (0..3).for_each(|n| self.stop(n));
    }
}

#[test]
fn etcd_keeps_every_common_claim() {
    let cluster = Cluster::start();
    for (name, claim) in CLAIMS {
        println!("{name}");
        claim(&|| Box::new(cluster.client()));
    }
}

#[test]
fn a_killed_leader_costs_no_entry_no_lease_and_no_event() {
    let mut cluster = Cluster::start();
    let c = cluster.client();
    let lease = c.grant(Duration::from_secs(60), soon()).unwrap();
    c.put("leased", b"", Some(lease), soon()).unwrap();
    let first = c.put("k/first", b"", None, soon()).unwrap();
    let mut watch = c.watch("k/", first).unwrap();
    assert_eq!(watch.next(soon()).unwrap().len(), 1);
    for round in 0..2 {
        let leader = cluster.leader();
        // The first member in this client's list is the leader, so its calls are on the way to the leader when it dies.
        let members = [leader, (leader + 1) % 3, (leader + 2) % 3];
        let members = members.map(|n| format!("http://127.0.0.1:{}", cluster.ports[n].0)).to_vec();
        let near = Etcd::new(&EtcdOptions { members, ..EtcdOptions::default() }).unwrap();
        let mut its_watch = near.watch("k/", first + 1).unwrap();
        its_watch.next(Deadline::after(Duration::from_millis(200))).unwrap();
        cluster.stop(leader);
        let key = format!("k/{round}");
        assert!(near.create(&key, b"once", None, soon()).unwrap().is_ok());
        near.keep_alive(lease, soon()).unwrap();
        assert!(c.get("leased", soon()).unwrap().is_some());
        for watch in [&mut watch, &mut its_watch] {
            let by = soon();
            loop {
                let events = watch.next(by);
                assert!(!by.passed(), "the watch lost {key}: {events:?}");
                if events.is_ok_and(|events| events.iter().map(Event::key).any(|found| found == key)) {
                    break;
                }
            }
        }
        cluster.run(leader, "existing");
    }
}

#[test]
fn without_a_majority_calls_end_by_their_deadlines() {
    let mut cluster = Cluster::start();
    let c = cluster.client();
    cluster.stop(0);
    cluster.stop(1);
    let late = || Deadline::after(Duration::from_secs(2));
    assert!(matches!(c.get("ready", late()), Err(CatalogError::Unreachable(_))));
    let put = c.put("a", b"", None, late());
    assert!(matches!(put, Err(CatalogError::Unknown(_) | CatalogError::Unreachable(_))), "{put:?}");
    cluster.run(0, "existing");
    cluster.run(1, "existing");
    c.put("a", b"again", None, soon()).unwrap();
}

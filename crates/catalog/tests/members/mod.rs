//! Three members of Debian's etcd, which `scripts/setup catalog` installs. Tests of the node daemon use this module as
//! well.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command};
use std::thread;
use std::time::Duration;

use crossdock_catalog::Catalog;
use crossdock_catalog::etcd::{Etcd, EtcdOptions};
use crossdock_os::Deadline;
use tempfile::TempDir;

/// How long the tests wait for etcd. It is far longer than an election of etcd takes, even on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Three etcd members on loopback. If the thread that started them ends, the kernel kills them.
pub struct Cluster {
    folder: TempDir,
    ports: Vec<(u16, u16)>,
    running: Vec<Option<Child>>,
}

fn free_ports(number: usize) -> Vec<u16> {
    let held: Vec<_> = (0..number).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    held.iter().map(|listener| listener.local_addr().unwrap().port()).collect()
}

/// Reads the metrics page of an etcd member. Returns `None` if the member does not answer.
fn metrics(port: u16) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    Some(text)
}

impl Cluster {
    pub fn start() -> Self {
        let ports = free_ports(6);
        let ports = (0..3).map(|n| (ports[2 * n], ports[2 * n + 1])).collect();
        let folder = tempfile::tempdir().unwrap();
        let mut cluster = Self { folder, ports, running: vec![None, None, None] };
        (0..3).for_each(|n| cluster.run(n, "new"));
        cluster.client().put("ready", b"", None, Deadline::after(PATIENCE)).unwrap();
        cluster
    }

    pub fn run(&mut self, n: usize, state: &str) {
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

    pub fn stop(&mut self, n: usize) {
        if let Some(mut child) = self.running[n].take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    pub fn client(&self) -> Etcd {
        let members = (0..3).map(|n| self.url(n)).collect();
        Etcd::new(&EtcdOptions { members, ..EtcdOptions::default() }).unwrap()
    }

    /// Gives the URL at which clients reach this etcd member.
    pub fn url(&self, n: usize) -> String {
        format!("http://127.0.0.1:{}", self.ports[n].0)
    }

    /// Gives the index of the etcd member that leads the cluster.
    pub fn leader(&self) -> usize {
        let by = Deadline::after(PATIENCE);
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

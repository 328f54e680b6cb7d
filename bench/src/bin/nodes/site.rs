//! Two sites of two nodes each: one site without TLS, one with TLS.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossdock_bench::{Daemon, connect};
use crossdock_client::NodeState;
use crossdock_link::{Authority, Certificates, Choice, Papers, Transports, Trust};
use serde::{Deserialize, Serialize};

use crate::send::Senders;

/// A site of the nodes `a` and `b`. The daemon of `b` keeps the catalog.
pub struct Site {
    pub name: &'static str,
    pub catalog: String,
    pub a: Daemon,
    pub b: Daemon,
    /// The address of node `a`.
    pub own: String,
    /// The folder with a folder of certificates for each node; `None` without TLS.
    pub papers: Option<PathBuf>,
}

/// All that the receiver must know of a site.
#[derive(Serialize, Deserialize)]
pub struct SiteSetting {
    pub name: String,
    pub socket: PathBuf,
    pub papers: Option<PathBuf>,
    /// Where node `a` serves the files of its managed directory.
    pub files: String,
}

/// All that the receiver must know.
#[derive(Serialize, Deserialize)]
pub struct Setting {
    pub address: String,
    pub sites: Vec<SiteSetting>,
}

pub struct Sites {
    pub all: Vec<Site>,
    folder: PathBuf,
}

impl Sites {
    pub fn start(command: &Path, before: &[String], [own, other]: [&str; 2]) -> Self {
        let folder = std::env::temp_dir().join(format!("crossdock-nodes-{}", std::process::id()));
        let authority = Authority::make("bench", Duration::from_secs(3600)).expect("an authority");
        for node in ["a", "b"] {
            std::fs::create_dir_all(folder.join(node)).expect("a folder for certificates");
            authority.issue(node).and_then(|papers| papers.save(&folder.join(node))).expect("papers");
        }
        let site = |name, papers: Option<PathBuf>| {
            let catalog = format!("{other}:{}", free_port());
            let daemon = |before: &[String], node, catalog: &str| {
                let folder = papers.as_ref().map(|papers| papers.join(node));
                let trust = match &folder {
                    Some(folder) => vec!["--certificates", folder.to_str().expect("plain letters")],
                    None => vec!["--trusted-network"],
                };
                let options = ["--site", "bench", "--node", node, "--catalog", catalog];
                Daemon::start_with(before, command, &[&options[..], &trust].concat())
            };
            let b = daemon(before, "b", &format!("keep:{catalog}"));
            let named = if papers.is_some() { "b@" } else { "" };
            let a = daemon(&[], "a", &format!("embedded:{named}{catalog}"));
            Site { name, catalog, a, b, own: own.to_owned(), papers: papers.clone() }
        };
        let all = vec![site("plain", None), site("TLS", Some(folder.clone()))];
        for site in &all {
            await_joined(&site.a);
            await_joined(&site.b);
        }
        Self { all, folder }
    }

    pub fn setting(&self, address: &str, senders: &[Senders]) -> Setting {
        let site = |(site, senders): (&Site, &Senders)| SiteSetting {
            name: site.name.to_owned(),
            socket: site.b.socket(),
            papers: site.papers.clone(),
            files: senders.files_address().to_owned(),
        };
        Setting { address: address.to_owned(), sites: self.all.iter().zip(senders).map(site).collect() }
    }
}

impl Drop for Sites {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Makes the transports between the managed directories of the two nodes.
pub fn transports(papers: Option<&Path>, node: &str) -> Transports {
    let trust = match papers {
        Some(folder) => {
            let papers = Papers::load(&folder.join(node)).expect("papers");
            Trust::Certificates(Arc::new(Certificates::new(&papers).expect("certificates")))
        }
        None => Trust::Network,
    };
    Transports::new(&trust, Choice::Auto).expect("transports")
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("its address").port()
}

/// Waits until the daemon knows that the other node has joined.
fn await_joined(daemon: &Daemon) {
    let session = connect(&daemon.socket());
    let until = Instant::now() + Duration::from_secs(30);
    while !session.nodes().expect("the nodes").iter().any(|node| node.state == NodeState::Joined) {
        assert!(Instant::now() < until, "the nodes do not join");
        std::thread::sleep(Duration::from_millis(1));
    }
}

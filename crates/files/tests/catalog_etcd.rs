//! Tests of hosts that find each other through etcd, also while a member of etcd is killed.
//!
//! The tests use etcd at the path where Debian installs it. `scripts/setup catalog` installs this etcd.

mod meeting;
#[path = "../../catalog/tests/members/mod.rs"]
mod members;

use std::sync::Arc;
use std::time::Duration;

use crossdock_layout::files::Phase;
use meeting::{CLAIMS, Host, announced, site};
use members::Cluster;

#[test]
fn hosts_keep_every_claim_with_etcd() {
    let cluster = Cluster::start();
    for (name, claim) in CLAIMS {
        println!("{name}");
        claim(&|| Arc::new(cluster.client()));
    }
}

#[test]
fn files_go_on_while_the_leader_of_etcd_is_killed() {
    let mut cluster = Cluster::start();
    // The lease is longer than an election of etcd on a loaded machine. So no lease ends during an election.
    let mut site = site(Arc::new(cluster.client()), "leader");
    site.lease = Duration::from_secs(60);
    let (a, b) = (Host::producers(&site), Host::consumers(&site));
    a.service().producers(Phase::Producing);
    a.write("x");
    b.gets("x");
    let life = announced(&site, "a").unwrap().life;
    let leader = cluster.leader();
    cluster.stop(leader);
    a.write("y");
    b.gets("y");
    assert_eq!(announced(&site, "a").unwrap().life, life);
    assert_eq!(b.service().report().troubles, Vec::<String>::new());
    cluster.run(leader, "existing");
}

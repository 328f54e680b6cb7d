//! Tests of daemons of a site whose catalog is in etcd (Debian's package). Items are handed over while etcd's leaders
//! are killed. Without a majority of etcd's members, no name can be made in the site.

#[path = "../../catalog/tests/members/mod.rs"]
mod members;
mod support;

use std::time::{Duration, Instant};

use crossdock_client::{ItemOptions, Mode, Session};
use crossdock_layout::Status;
use crossdock_os::testing::until_within;
use members::Cluster;
use support::Daemon;
use support::sites::{Site, connect};

const PATIENCE: Duration = Duration::from_secs(180);

fn until(what: &str, holds: impl FnMut() -> bool) {
    until_within(PATIENCE, what, holds);
}

/// Starts two daemons of one site, whose catalog is in etcd.
fn daemons(etcd: &Cluster, lease_ms: &str) -> (Daemon, Daemon) {
    let site = Site { lease_ms: lease_ms.into(), ..Site::new() };
    let catalog = format!("etcd:{},{},{}", etcd.url(0), etcd.url(1), etcd.url(2));
    let start = |node| site.start(Daemon::folder(), node, &catalog);
    (start("a"), start("b"))
}

fn make(session: &Session, name: &str) -> crossdock_client::Result<()> {
    session.region(name, Mode::CreateOnly, 1 << 20, None).map(drop)
}

#[test]
fn items_are_handed_over_while_leaders_are_killed() {
    let mut etcd = Cluster::start();
    // The lease is longer than an election of etcd takes on a loaded machine, so no lease ends.
    let (a, b) = daemons(&etcd, "60000");
    let (one, two) = (connect(&a, "one"), connect(&b, "two"));
    let mut item = one.create_item("ball", &ItemOptions::bytes(3 << 20)).unwrap();
    item.bytes_mut()[3 << 19] = 1;
    let id = item.id();
    item.transfer("two").unwrap();
    for round in 1..=3 {
        let leader = etcd.leader();
        etcd.stop(leader);
        for (session, next) in [(&two, "one"), (&one, "two")] {
            let mut item = session.access_item("ball", Some(PATIENCE)).unwrap();
            assert_eq!((item.id(), item.size()), (id, 3 << 20));
            item.bytes_mut()[3 << 19] += 1;
            assert_eq!(item.bytes()[3 << 19] as usize, if next == "one" { 2 * round } else { 2 * round + 1 });
            item.transfer(next).unwrap();
        }
        // Two of etcd's members still run, which is a majority. So nodes can still make names, and no two nodes get the
        // same name.
        let name = format!("made-{round}");
        make(&one, &name).unwrap();
        let error = make(&two, &name).unwrap_err();
        assert_eq!(error.status, Status::Exists, "{error}");
        assert!(error.to_string().contains("is on node a"), "{error}");
        etcd.run(leader, "existing");
    }
    let item = two.access_item("ball", Some(PATIENCE)).unwrap();
    item.destroy().unwrap();
}

#[test]
fn without_a_majority_no_name_is_made_and_what_is_there_goes_on() {
    let mut etcd = Cluster::start();
    let (a, b) = daemons(&etcd, "6000");
    let (one, two) = (connect(&a, "one"), connect(&b, "two"));
    make(&one, "before").unwrap();
    etcd.stop(0);
    etcd.stop(1);
    let began = Instant::now();
    let error = make(&two, "during").unwrap_err();
    assert!(began.elapsed() < PATIENCE && matches!(error.status, Status::Disconnected | Status::TimedOut), "{error}");
    one.region("before", Mode::OpenOnly, 0, None).unwrap();
    etcd.run(0, "existing");
    etcd.run(1, "existing");
    until("names are made again", || make(&two, "after").is_ok());
    // After etcd runs again, node a must first announce its old names again. From then on node b cannot take these
    // names.
    until("the name is node a's", || {
        make(&two, "before")
            .is_err_and(|error| error.status == Status::Exists && error.to_string().contains("is on node a"))
    });
}

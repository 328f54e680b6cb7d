//! Tests of the catalog in etcd: the claims of `conformance` with three etcd members, also while some of the etcd
//! members are killed.
//!
//! The tests use etcd at the path where Debian installs it. `scripts/setup catalog` installs this etcd.

mod conformance;
mod members;

use std::net::TcpListener;
use std::time::Duration;

use conformance::{CLAIMS, soon};
use crossdock_catalog::etcd::{Etcd, EtcdOptions};
use crossdock_catalog::{Catalog, CatalogError, EntryChange, Event, Follower};
use crossdock_os::Deadline;
use members::Cluster;

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
        // The leader is the first etcd member in the list of the client `near`. So at the moment when the test stops
        // the leader, the client's calls go to the leader.
        let members = [leader, (leader + 1) % 3, (leader + 2) % 3];
        let members = members.map(|n| cluster.url(n)).to_vec();
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
fn a_follower_lists_again_after_a_compaction_of_etcd() {
    let cluster = Cluster::start();
    let c = cluster.client();
    c.put("f/gone", b"", None, soon()).unwrap();
    let mut follower = Follower::new("f/");
    follower.next(&c, soon()).unwrap();
    c.delete("f/gone", soon()).unwrap();
    let revision = c.put("f/a", b"1", None, soon()).unwrap();
    let compacted = tokio::runtime::Runtime::new().unwrap().block_on(async {
        let client = etcd_client::Client::connect([cluster.url(0)], None).await?;
        client.kv_client().compact(revision as i64, None).await
    });
    compacted.unwrap();
    // The follower's watch has not begun yet, and etcd has already forgotten the changes with which the watch would
    // begin.
    let news = follower.next(&c, soon()).unwrap();
    assert!(
        matches!(&news[..], [EntryChange::Gone(gone), EntryChange::Put(a)] if gone.key == "f/gone" && a.modified == revision)
    );
    c.put("f/b", b"2", None, soon()).unwrap();
    let by = soon();
    while !follower.known().contains_key("f/b") {
        assert!(!by.passed());
        follower.next(&c, by).unwrap();
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

#[test]
fn each_member_is_the_first_one_for_some_of_the_nodes() {
    let listeners: Vec<_> = (0..3).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let members: Vec<_> = listeners.iter().map(|l| format!("http://{}", l.local_addr().unwrap())).collect();
    listeners.iter().for_each(|listener| listener.set_nonblocking(true).unwrap());
    let mut first = [0; 3];
    for number in 0..9 {
        let options = EtcdOptions { members: members.clone(), name: format!("n{number}"), ..EtcdOptions::default() };
        // No etcd member answers, and the deadline passes before the client asks the next one.
        Etcd::new(&options).unwrap().get("a", Deadline::after(Duration::from_millis(400))).unwrap_err();
        for (count, listener) in first.iter_mut().zip(&listeners) {
            *count += usize::from(listener.accept().is_ok());
        }
    }
    assert_eq!(first.iter().sum::<usize>(), 9, "a client asked several members, or none: {first:?}");
    assert!(first.iter().all(|count| *count > 0), "{first:?}");
}

//! The claims that every catalog must fulfil. Each claim is a function that runs on each implementation and uses keys
//! below its own prefix.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossdock_catalog::{
    Catalog, CatalogError, Commit, EntryChange, Event, Follower, KEY_MAX, LEASE_MIN, VALUE_MAX, Watch,
};
use crossdock_os::Deadline;

/// A function that makes clients, all of the same catalog.
pub type Clients<'a> = &'a dyn Fn() -> Box<dyn Catalog>;

/// Gives a deadline that a call never reaches, even on a loaded machine.
pub fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

/// The time of the leases that the tests let expire.
const SHORT: Duration = LEASE_MIN;

/// Gives a prefix that no other test uses.
fn prefix() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("test-{}-{}/", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Reads from the watch until it has reported `wanted` events.
fn events(watch: &mut dyn Watch, wanted: usize) -> Vec<Event> {
    let (mut found, by) = (Vec::new(), soon());
    while found.len() < wanted {
        assert!(!by.passed(), "{} of {wanted} events: {found:?}", found.len());
        found.extend(watch.next(by).unwrap());
    }
    found
}

fn words(events: &[Event]) -> Vec<String> {
    let word = |event: &Event| match event {
        Event::Put(entry) => {
            format!("{}={}", entry.key.rsplit('/').next().unwrap(), String::from_utf8_lossy(&entry.value))
        }
        Event::Deleted { key, .. } => format!("-{}", key.rsplit('/').next().unwrap()),
    };
    events.iter().map(word).collect()
}

pub fn a_value_comes_back_with_its_revisions(clients: Clients<'_>) {
    let (c, p) = (clients(), prefix());
    let key = format!("{p}a");
    let first = c.put(&key, b"one", None, soon()).unwrap();
    let second = c.put(&key, b"two", None, soon()).unwrap();
    assert!(second > first);
    let found = clients().get(&key, soon()).unwrap().unwrap();
    assert_eq!(
        (found.value.as_slice(), found.created, found.modified, found.lease),
        (&b"two"[..], first, second, None)
    );
}

pub fn a_key_that_was_deleted_is_gone_and_comes_back_as_another(clients: Clients<'_>) {
    let (c, p) = (clients(), prefix());
    let key = format!("{p}a");
    assert_eq!(c.get(&key, soon()).unwrap(), None);
    c.delete(&key, soon()).unwrap();
    let first = c.put(&key, b"", None, soon()).unwrap();
    c.delete(&key, soon()).unwrap();
    assert_eq!(c.get(&key, soon()).unwrap(), None);
    let second = c.put(&key, b"", None, soon()).unwrap();
    let found = c.get(&key, soon()).unwrap().unwrap();
    assert!(first < second);
    assert_eq!(found.created, second);
}

pub fn a_list_has_what_is_below_the_prefix_in_order(clients: Clients<'_>) {
    let (c, p) = (clients(), prefix());
    for key in ["b", "a/2", "a/1", "a", "ab", "c"] {
        c.put(&format!("{p}{key}"), key.as_bytes(), None, soon()).unwrap();
    }
    let keys = |prefix: &str| -> Vec<String> {
        let listing = c.list(prefix, soon()).unwrap();
        listing.entries.into_iter().map(|entry| entry.key[p.len()..].to_owned()).collect()
    };
    assert_eq!(keys(&p), ["a", "a/1", "a/2", "ab", "b", "c"]);
    assert_eq!(keys(&format!("{p}a/")), ["a/1", "a/2"]);
    assert_eq!(keys(&format!("{p}x")), Vec::<String>::new());
}

pub fn a_list_of_any_length_is_whole(clients: Clients<'_>) {
    let (c, p) = (clients(), prefix());
    let value = vec![b'x'; VALUE_MAX];
    for batch in 0..5 {
        let mut commit = Commit::new();
        for n in 0..60 {
            commit = commit.put(&format!("{p}{batch}-{n:02}"), &value, None);
        }
        assert!(c.commit(&commit, soon()).unwrap().done);
    }
    let listing = clients().list(&p, soon()).unwrap();
    assert_eq!(listing.entries.len(), 300);
    assert!(listing.entries.iter().all(|entry| entry.value == value));
    // A watch that begins before all 300 entries reports each of them.
    let oldest = listing.entries.iter().map(|entry| entry.modified).min().unwrap();
    assert_eq!(events(&mut *c.watch(&p, oldest).unwrap(), 300).len(), 300);
}

pub fn only_the_first_creates_and_the_others_are_told_of_it(clients: Clients<'_>) {
    let (c, p) = (clients(), prefix());
    let key = format!("{p}name");
    assert!(c.create(&key, b"mine", None, soon()).unwrap().is_ok());
    let winner = clients().create(&key, b"other", None, soon()).unwrap().unwrap_err();
    assert_eq!(winner.value, b"mine");
    // A second creator with the same value is refused, because an equal value does not show that the second creator
    // made the entry.
    assert!(clients().create(&key, b"mine", None, soon()).unwrap().is_err());
}

pub fn a_commit_at_an_old_revision_changes_nothing(clients: Clients<'_>) {
    let (c, p) = (clients(), prefix());
    let (key, other) = (format!("{p}owner"), format!("{p}other"));
    let old = c.put(&key, b"a", None, soon()).unwrap();
    let new = c.put(&key, b"b", None, soon()).unwrap();
    let stale = Commit::new().expect_at(&key, old).put(&key, b"late", None).put(&other, b"late", None);
    let refused = c.commit(&stale, soon()).unwrap();
    assert!(!refused.done);
    assert_eq!(
        refused.found[0].as_ref().map(|entry| (entry.value.clone(), entry.modified)),
        Some((b"b".to_vec(), new))
    );
    assert_eq!(c.get(&other, soon()).unwrap(), None);
    let fresh = Commit::new().expect_at(&key, new).expect_free(&other).delete(&key).put(&other, b"now", None);
    let done = c.commit(&fresh, soon()).unwrap();
    assert!(done.done && done.revision > new);
    assert_eq!(c.get(&key, soon()).unwrap(), None);
    assert_eq!(c.get(&other, soon()).unwrap().unwrap().modified, done.revision);
    // A condition on the last revision of a deleted key does not hold.
    assert!(!c.commit(&Commit::new().expect_at(&key, new).put(&key, b"", None), soon()).unwrap().done);
    let two = c.commit(&Commit::new().expect_free(&key).expect_free(&other).put(&key, b"", None), soon()).unwrap();
    assert!(!two.done && two.found[0].is_none() && two.found[1].is_some());
}

pub fn a_call_that_makes_no_sense_is_refused(clients: Clients<'_>) {
    let (c, p) = (clients(), prefix());
    let refused =
        |outcome: Result<u64, CatalogError>| assert!(matches!(outcome, Err(CatalogError::Invalid(_))), "{outcome:?}");
    refused(c.put("", b"", None, soon()));
    refused(c.put("a\nb", b"", None, soon()));
    refused(c.put(&"x".repeat(KEY_MAX + 1), b"", None, soon()));
    refused(c.put(&format!("{p}a"), &vec![0; VALUE_MAX + 1], None, soon()));
    let twice = Commit::new().put("k", b"1", None).delete("k");
    refused(c.commit(&twice, soon()).map(|done| done.revision));
    let mut long = Commit::new();
    for n in 0..=crossdock_catalog::COMMIT_MAX {
        long = long.put(&format!("{p}{n}"), b"", None);
    }
    refused(c.commit(&long, soon()).map(|done| done.revision));
    refused(c.get("", soon()).map(|_| 0));
    // The longest key and the longest value are accepted.
    let key = format!("{p}{}", "k".repeat(KEY_MAX - p.len()));
    c.put(&key, &vec![7; VALUE_MAX], None, soon()).unwrap();
    assert_eq!(c.get(&key, soon()).unwrap().unwrap().value, vec![7; VALUE_MAX]);
}

pub fn of_many_that_create_at_once_one_wins(clients: Clients<'_>) {
    let p = prefix();
    for round in 0..10 {
        let key = format!("{p}{round}");
        let wins: usize = thread::scope(|scope| {
            let create = |n: u8| {
                let (c, key) = (clients(), key.clone());
                scope.spawn(move || c.create(&key, &[n], None, soon()).unwrap().is_ok())
            };
            let threads: Vec<_> = (0..4).map(create).collect();
            threads.into_iter().map(|thread| usize::from(thread.join().unwrap())).sum()
        });
        assert_eq!(wins, 1);
    }
}

pub fn no_increment_is_lost(clients: Clients<'_>) {
    let (p, c) = (prefix(), clients());
    let key = format!("{p}sum");
    c.put(&key, b"0", None, soon()).unwrap();
    thread::scope(|scope| {
        for _ in 0..4 {
            let (c, key) = (clients(), key.clone());
            scope.spawn(move || {
                let mut left = 20;
                while left > 0 {
                    let entry = c.get(&key, soon()).unwrap().unwrap();
                    let sum: u64 = String::from_utf8(entry.value).unwrap().parse().unwrap();
                    let more = (sum + 1).to_string();
                    let commit = Commit::new().expect_at(&key, entry.modified).put(&key, more.as_bytes(), None);
                    left -= usize::from(c.commit(&commit, soon()).unwrap().done);
                }
            });
        }
    });
    assert_eq!(c.get(&key, soon()).unwrap().unwrap().value, b"80");
}

pub fn entries_go_with_their_lease(clients: Clients<'_>) {
    let (c, p) = (clients(), prefix());
    let (kept, lost) = (format!("{p}kept"), format!("{p}lost"));
    let lease = c.grant(SHORT, soon()).unwrap();
    let from = c.put(&kept, b"", None, soon()).unwrap();
    c.put(&lost, b"", Some(lease), soon()).unwrap();
    assert_eq!(c.get(&lost, soon()).unwrap().unwrap().lease, Some(lease));
    let found = events(&mut *clients().watch(&p, from + 1).unwrap(), 2);
    assert_eq!(words(&found), ["lost=", "-lost"]);
    assert_eq!(c.get(&lost, soon()).unwrap(), None);
    assert!(c.get(&kept, soon()).unwrap().is_some());
    assert_eq!(c.keep_alive(lease, soon()), Err(CatalogError::NoLease));
    assert_eq!(c.put(&lost, b"", Some(lease), soon()), Err(CatalogError::NoLease));
    assert_eq!(c.revoke(lease, soon()), Err(CatalogError::NoLease));
}

pub fn a_lease_that_is_kept_alive_stays(clients: Clients<'_>) {
    let (c, p) = (clients(), prefix());
    // The lease is long enough that a loaded machine keeps it alive in time, and short enough to end during the test if
    // it is not kept alive.
    let time = Duration::from_secs(4);
    let lease = c.grant(time, soon()).unwrap();
    let key = format!("{p}a");
    c.put(&key, b"", Some(lease), soon()).unwrap();
    let start = Instant::now();
    while start.elapsed() < time + Duration::from_secs(2) {
        c.keep_alive(lease, soon()).unwrap();
        thread::sleep(Duration::from_millis(200));
    }
    assert!(c.get(&key, soon()).unwrap().is_some());
    c.revoke(lease, soon()).unwrap();
    assert_eq!(c.get(&key, soon()).unwrap(), None);
}

pub fn an_entry_moves_to_another_lease_or_to_none(clients: Clients<'_>) {
    let (c, p) = (clients(), prefix());
    let (a, b) = (format!("{p}a"), format!("{p}b"));
    let first = c.grant(Duration::from_secs(60), soon()).unwrap();
    let second = c.grant(Duration::from_secs(60), soon()).unwrap();
    assert_ne!(first, second);
    for key in [&a, &b] {
        c.put(key, b"", Some(first), soon()).unwrap();
    }
    c.put(&a, b"", Some(second), soon()).unwrap();
    c.put(&b, b"", None, soon()).unwrap();
    c.revoke(first, soon()).unwrap();
    assert_eq!(c.get(&a, soon()).unwrap().unwrap().lease, Some(second));
    assert_eq!(c.get(&b, soon()).unwrap().unwrap().lease, None);
    c.revoke(second, soon()).unwrap();
    assert_eq!(c.get(&a, soon()).unwrap(), None);
    assert!(c.get(&b, soon()).unwrap().is_some());
}

pub fn an_entry_goes_to_the_lease_of_another_client_only_while_that_lease_lasts(clients: Clients<'_>) {
    let (c, other, p) = (clients(), clients(), prefix());
    let (name, node) = (format!("{p}name"), format!("{p}node"));
    let own = c.grant(Duration::from_secs(60), soon()).unwrap();
    let lease = other.grant(Duration::from_secs(60), soon()).unwrap();
    other.put(&node, b"", Some(lease), soon()).unwrap();
    let there = c.get(&node, soon()).unwrap().unwrap();
    assert_eq!(there.lease, Some(lease));
    // The client `c` moves its entry `name` to the lease of the client `other`, on the condition that the entry `node`,
    // which belongs to that lease, still exists.
    let give = || {
        let from = c.put(&name, b"c", Some(own), soon()).unwrap();
        let commit = Commit::new().expect_at(&name, from).expect_at(&node, there.modified);
        c.commit(&commit.put(&name, b"other", Some(lease)), soon()).unwrap().done
    };
    assert!(give());
    assert_eq!(other.get(&name, soon()).unwrap().unwrap().lease, Some(lease));
    // Now the other client's lease ends before the commit.
    c.put(&name, b"c", Some(own), soon()).unwrap();
    other.revoke(lease, soon()).unwrap();
    assert!(!give());
    let kept = c.get(&name, soon()).unwrap().unwrap();
    assert_eq!((&*kept.value, kept.lease), (&b"c"[..], Some(own)));
    c.revoke(own, soon()).unwrap();
    assert_eq!(c.get(&name, soon()).unwrap(), None);
}

pub fn a_watch_tells_all_changes_below_its_prefix_in_order(clients: Clients<'_>) {
    let (c, p) = (clients(), prefix());
    let from = c.put(&format!("{p}in/a"), b"1", None, soon()).unwrap();
    c.put(&format!("{p}out"), b"1", None, soon()).unwrap();
    c.put(&format!("{p}in/a"), b"2", None, soon()).unwrap();
    let mut watch = clients().watch(&format!("{p}in/"), from).unwrap();
    assert_eq!(words(&events(&mut *watch, 2)), ["a=1", "a=2"]);
    c.put(&format!("{p}out"), b"2", None, soon()).unwrap();
    let both = Commit::new().delete(&format!("{p}in/a")).put(&format!("{p}in/b"), b"3", None);
    let revision = c.commit(&both, soon()).unwrap().revision;
    let mut found = watch.next(soon()).unwrap();
    found.sort_by_key(|event| event.key().to_owned());
    assert_eq!(words(&found), ["-a", "b=3"], "one revision comes together");
    assert!(found.iter().all(|event| event.revision() == revision));
    assert_eq!(watch.next(Deadline::after(Duration::from_millis(50))), Ok(Vec::new()));
}

pub fn a_follower_knows_what_is_there(clients: Clients<'_>) {
    let (c, p) = (clients(), prefix());
    let put = |key: &str, value: &str| c.put(&format!("{p}{key}"), value.as_bytes(), None, soon()).unwrap();
    put("a", "1");
    let reader = clients();
    let mut follower = Follower::new(&p);
    let first = follower.next(&*reader, soon()).unwrap();
    assert!(matches!(&first[..], [EntryChange::Put(entry)] if entry.value == b"1"));
    put("b", "2");
    c.delete(&format!("{p}a"), soon()).unwrap();
    let by = soon();
    while follower.known().keys().map(|key| &key[p.len()..]).collect::<Vec<_>>() != ["b"] {
        assert!(!by.passed());
        follower.next(&*reader, by).unwrap();
    }
    // Changes that happen before the follower lists again are reported as differences.
    put("c", "3");
    c.delete(&format!("{p}b"), soon()).unwrap();
    follower.restart();
    let news = follower.next(&*reader, soon()).unwrap();
    assert!(
        matches!(&news[..], [EntryChange::Gone(b), EntryChange::Put(c)] if b.value == b"2" && c.value == b"3"),
        "{news:?}"
    );
}

/// Calls the macro `$with` with the names of all claims.
macro_rules! claims {
    ($with:ident $($first:tt)*) => {
        $with! { $($first)*
            a_value_comes_back_with_its_revisions
            a_key_that_was_deleted_is_gone_and_comes_back_as_another
            a_list_has_what_is_below_the_prefix_in_order
            a_list_of_any_length_is_whole
            only_the_first_creates_and_the_others_are_told_of_it
            a_commit_at_an_old_revision_changes_nothing
            a_call_that_makes_no_sense_is_refused
            of_many_that_create_at_once_one_wins
            no_increment_is_lost
            entries_go_with_their_lease
            a_lease_that_is_kept_alive_stays
            an_entry_moves_to_another_lease_or_to_none
            an_entry_goes_to_the_lease_of_another_client_only_while_that_lease_lasts
            a_watch_tells_all_changes_below_its_prefix_in_order
            a_follower_knows_what_is_there
        }
    };
}
#[allow(unused_imports, reason = "etcd goes through the list itself")]
pub(crate) use claims;

macro_rules! list {
    ($($claim:ident)*) => { &[$((stringify!($claim), $claim)),*] };
}

/// A claim about catalogs. It panics if the catalog of these clients does not fulfil it.
#[allow(dead_code, reason = "see CLAIMS")]
pub type Claim = fn(Clients<'_>);

/// Every claim with its name.
#[allow(dead_code, reason = "the other implementations have a test for each claim")]
pub const CLAIMS: &[(&str, Claim)] = claims!(list);

/// Makes a `#[test]` of each claim, with clients that the function `$clients` makes.
#[allow(unused_macros, reason = "etcd's claims share one cluster")]
macro_rules! tests {
    ($clients:ident $($claim:ident)*) => {
        $(#[test]
        fn $claim() {
            conformance::$claim(&$clients());
        })*
    };
}
#[allow(unused_imports, reason = "etcd's claims share one cluster")]
pub(crate) use tests;

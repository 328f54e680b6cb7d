//! Tests of the catalog in memory: the claims of `conformance`, and its clock and its faults.

mod conformance;

use std::time::Duration;

use conformance::{soon, tests};
use crossdock_catalog::{Catalog, CatalogError, EntryChange, Faults, Follower, LEASE_MIN, Memory};
use crossdock_os::Deadline;

fn clients() -> impl Fn() -> Box<dyn Catalog> {
    let memory = Memory::new();
    move || Box::new(memory.client())
}

conformance::claims!(tests clients);

const POLL: Duration = Duration::ZERO;

#[test]
fn a_lease_ends_when_the_manual_clock_says_so() {
    let memory = Memory::with_manual_clock();
    let lease = memory.grant(Duration::from_secs(10), soon()).unwrap();
    memory.put("a", b"", Some(lease), soon()).unwrap();
    memory.advance(Duration::from_secs(9));
    memory.keep_alive(lease, soon()).unwrap();
    memory.advance(Duration::from_secs(9));
    assert!(memory.get("a", soon()).unwrap().is_some());
    memory.advance(Duration::from_secs(1));
    assert!(memory.get("a", soon()).unwrap().is_none());
    let short = memory.grant(Duration::ZERO, soon()).unwrap();
    memory.advance(LEASE_MIN - Duration::from_millis(1));
    assert_eq!(memory.keep_alive(short, soon()), Ok(()));
}

#[test]
fn faults_of_one_handle_leave_the_others_alone() {
    let memory = Memory::with_manual_clock();
    let other = memory.client();
    let mut watch = other.watch("", 1).unwrap();
    other.set_faults(Faults { cut: true, ..Faults::default() });
    memory.put("a", b"", None, soon()).unwrap();
    assert!(matches!(other.get("a", soon()), Err(CatalogError::Unreachable(_))));
    assert_eq!(watch.next(Deadline::after(POLL)), Ok(Vec::new()));
    other.set_faults(Faults { fail: 1, hold: true, ..Faults::default() });
    assert!(matches!(other.get("a", soon()), Err(CatalogError::Unreachable(_))));
    assert!(other.get("a", soon()).unwrap().is_some());
    assert_eq!(watch.next(Deadline::after(POLL)), Ok(Vec::new()));
    other.set_faults(Faults::default());
    assert_eq!(watch.next(Deadline::after(POLL)).unwrap().len(), 1);
}

#[test]
fn a_creation_whose_answer_was_lost_is_found_to_be_ones_own() {
    let memory = Memory::with_manual_clock();
    memory.set_faults(Faults { lose: 1, ..Faults::default() });
    assert!(memory.create("name", b"node a, first life", None, soon()).unwrap().is_ok());
    assert!(memory.create("name", b"node b, first life", None, soon()).unwrap().is_err());
    // If no time is left for a second attempt, the call fails with `Unknown`: the change may have been made.
    memory.set_faults(Faults { lose: 1, ..Faults::default() });
    let put = memory.put("other", b"", None, Deadline::after(POLL));
    assert!(matches!(put, Err(CatalogError::Unknown(_))));
    assert!(memory.get("other", soon()).unwrap().is_some());
}

#[test]
fn a_follower_lists_again_after_a_compaction_and_tells_the_difference() {
    let memory = Memory::with_manual_clock();
    let reader = memory.client();
    memory.put("n/a", b"", None, soon()).unwrap();
    memory.put("n/b", b"", None, soon()).unwrap();
    let mut follower = Follower::new("n/");
    assert_eq!(follower.next(&reader, soon()).unwrap().len(), 2);
    reader.set_faults(Faults { hold: true, ..Faults::default() });
    memory.delete("n/a", soon()).unwrap();
    memory.put("n/c", b"", None, soon()).unwrap();
    memory.compact();
    let mut late = memory.watch("n/", 1).unwrap();
    assert!(matches!(late.next(Deadline::after(POLL)), Err(CatalogError::Compacted(5))));
    reader.set_faults(Faults::default());
    let news = follower.next(&reader, soon()).unwrap();
    assert!(
        matches!(&news[..], [EntryChange::Gone(a), EntryChange::Put(c)] if a.key == "n/a" && c.key == "n/c"),
        "{news:?}"
    );
}

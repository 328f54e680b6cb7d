//! These tests make each system call of a writer of checkpoints fail one time, with each error that the kernel may
//! give. After an error nothing has changed, and the repeated call succeeds.

use std::collections::BTreeSet;
use std::path::Path;

use crossdock_checkpoint::{Contents, Folder, Series, Variable, restart};
use crossdock_layout::Status;
use crossdock_os::faults;

fn contents(bytes: &[u8]) -> Contents<'_> {
    let variable = Variable {
        name: "u".into(),
        type_name: "u8".into(),
        shape: vec![bytes.len() as u64],
        constants: vec![],
        bytes,
    };
    let series = Series { name: "s".into(), sequence: 1, time_ns: 1, attributes: vec![], variables: vec![variable] };
    Contents { attributes: vec![], series: vec![series] }
}

fn open(path: &Path) -> crossdock_checkpoint::Result<Folder> {
    Folder::open(path, "s", &mut |_| {})
}

/// The names of the folder's visible files, each of which must be a whole checkpoint.
fn visible(path: &Path) -> BTreeSet<String> {
    let names = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let names: BTreeSet<_> = names.filter(|name| !name.starts_with('.')).collect();
    for name in &names {
        crossdock_checkpoint::Checkpoint::open(&path.join(name)).unwrap().verify().unwrap();
    }
    names
}

#[test]
fn a_call_that_fails_changes_nothing_and_succeeds_when_it_is_repeated() {
    let bytes = vec![7; 300_000];
    let mut failed = 0;
    let seen = faults::each_call_fails(|attempt| {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("checkpoints");
        attempt.arm();
        let mut folder = open(&path).unwrap_or_else(|_| {
            failed += 1;
            open(&path).expect("the folder, repeated")
        });
        let mut wanted = BTreeSet::new();
        for number in 1..=3 {
            if folder.save(&contents(&bytes), &|| true).is_err() {
                failed += 1;
                let hit = attempt.disarm();
                assert_eq!(visible(&path), wanted, "after {hit:?}");
                folder.save(&contents(&bytes), &|| true).unwrap_or_else(|e| panic!("{hit:?}: {e}"));
            }
            wanted.insert(format!("s-{number:08}.h5"));
        }
        if folder.prune(2).is_err() {
            failed += 1;
            folder.prune(2).expect("prune, repeated");
        }
        let hit = attempt.disarm();
        wanted.remove("s-00000001.h5");
        assert_eq!(visible(&path), wanted, "{hit:?}");
        let left: Vec<_> = std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left.len(), 3, "two checkpoints and the lock: {left:?}");
    });
    let wanted = ["open", "mkdir", "write_file", "ftruncate", "fsync", "rename", "unlink", "flock"];
    assert!(wanted.iter().all(|call| seen.contains(call)), "{seen:?}");
    assert!(failed > 20, "{failed}");
}

#[test]
fn a_listing_that_fails_hides_no_checkpoint_from_a_restart_and_no_number_from_a_writer() {
    let bytes = [7; 100];
    let seen = faults::each_call_fails(|attempt| {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path();
        let mut folder = open(path).unwrap();
        for _ in 0..3 {
            folder.save(&contents(&bytes), &|| true).unwrap();
        }
        drop(folder);
        attempt.arm();
        let found = restart(path, "s");
        let saved = open(path).and_then(|mut folder| folder.save(&contents(&bytes), &|| true));
        let hit = attempt.disarm();
        match found {
            Ok(found) => assert_eq!(found.checkpoint.path(), path.join("s-00000003.h5"), "{hit:?}"),
            Err(e) => assert_ne!(e.status, Status::NotFound, "{hit:?}: {e}"),
        }
        if let Ok(saved) = saved {
            assert_eq!(saved.path, path.join("s-00000004.h5"), "{hit:?}");
        }
    });
    assert!(seen.contains("getdents"), "{seen:?}");
}

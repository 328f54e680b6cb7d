//! Tests that a journal gives back all records that were written, up to the first damage.

use super::*;
use crate::broker::Cause;
use crossdock_layout::MemberId;

fn workflow(number: u64) -> Record {
    let name = format!("w{number}");
    Record::Workflow { number, quota: 0, owner: MemberId::NONE, name, cause: Cause::NONE }
}

fn fresh(folder: &tempfile::TempDir) -> (Journal, Lasting, PathBuf) {
    let path = folder.path().join("journal");
    let (journal, lasting) = Journal::read(Journal::open(&path).unwrap(), &path).unwrap();
    (journal, lasting, path)
}

fn reopened(path: &Path) -> (Journal, Lasting) {
    let (mut journal, lasting) = Journal::read(Journal::open(path).unwrap(), path).unwrap();
    journal.cut_tail().unwrap();
    (journal, lasting)
}

#[test]
fn records_are_there_after_a_restart_and_appending_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let (mut journal, mut lasting, path) = fresh(&folder);
    for number in 1..100 {
        journal.make_room().unwrap();
        journal.append(&workflow(number)).unwrap();
        lasting.apply(&workflow(number));
    }
    let (mut journal, again) = reopened(&path);
    assert_eq!(again, lasting);
    journal.append(&workflow(100)).unwrap();
    lasting.apply(&workflow(100));
    assert_eq!(reopened(&path).1, lasting);
}

#[test]
fn a_record_torn_at_any_byte_ends_the_journal_before_it_and_no_later() {
    let folder = tempfile::tempdir().unwrap();
    let (mut journal, mut lasting, path) = fresh(&folder);
    journal.append(&workflow(1)).unwrap();
    lasting.apply(&workflow(1));
    let whole = journal.end;
    journal.append(&workflow(2)).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    for length in whole..bytes.len() as u64 {
        std::fs::write(&path, &bytes[..length as usize]).unwrap();
        let (mut journal, again) = reopened(&path);
        assert_eq!(again, lasting, "cut at {length}");
        journal.append(&workflow(3)).unwrap();
        assert_eq!(reopened(&path).1.workflows.len(), 2);
    }
}

/// The writer of the file may be alive: another daemon, whose other files were removed by hand.
#[test]
fn a_journal_that_is_read_and_compacted_leaves_the_former_file_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let (mut journal, mut lasting, path) = fresh(&folder);
    journal.append(&workflow(1)).unwrap();
    lasting.apply(&workflow(1));
    let mut former = journal.file.try_clone().unwrap();
    std::io::Write::write_all(&mut fs::open(fs::OpenOptions::new().append(true), &path).unwrap(), b"half a rec")
        .unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let (mut next, again) = Journal::read(Journal::open(&path).unwrap(), &path).unwrap();
    assert_eq!(again, lasting);
    next.compact(&again).unwrap();
    next.append(&workflow(2)).unwrap();
    lasting.apply(&workflow(2));
    assert_eq!(reopened(&path).1, lasting);
    let mut left = Vec::new();
    std::io::Read::read_to_end(&mut former, &mut left).unwrap();
    assert_eq!(left, bytes);
}

#[test]
fn a_compacted_journal_says_the_same_in_fewer_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let (mut journal, mut lasting, path) = fresh(&folder);
    for number in 1..1000 {
        for record in [workflow(number), Record::WorkflowEnd { number, cause: Cause::NONE }] {
            journal.append(&record).unwrap();
            lasting.apply(&record);
        }
    }
    let long = journal.end;
    journal.compact(&lasting).unwrap();
    assert!(journal.end < long / 100);
    journal.append(&workflow(5000)).unwrap();
    lasting.apply(&workflow(5000));
    assert_eq!(reopened(&path).1, lasting);
}

#[test]
fn a_file_that_is_no_journal_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    std::fs::write(&path, "a letter to the editor").unwrap();
    assert!(Journal::read(Journal::open(&path).unwrap(), &path).is_err());
    assert_eq!(std::fs::read(&path).unwrap(), b"a letter to the editor");
}

#[test]
fn a_journal_whose_name_another_file_has_gets_it_back() {
    let folder = tempfile::tempdir().unwrap();
    let (mut journal, mut lasting, path) = fresh(&folder);
    journal.append(&workflow(1)).unwrap();
    lasting.apply(&workflow(1));
    journal.check_name();
    assert!(!journal.wants_compacting());
    // The state after a broker was killed between renaming the new journal and passing its descriptor to the keeper.
    std::fs::rename(&path, folder.path().join("elsewhere")).unwrap();
    std::fs::write(&path, header(0)).unwrap();
    journal.check_name();
    assert!(journal.wants_compacting());
    journal.compact(&lasting).unwrap();
    assert_eq!(reopened(&path).1, lasting);
    journal.check_name();
    assert!(!journal.wants_compacting());
}

#[test]
fn a_broker_starts_from_the_later_file_if_its_keeper_does_not_hold_it() {
    let folder = tempfile::tempdir().unwrap();
    let (mut journal, mut lasting, path) = fresh(&folder);
    journal.append(&workflow(1)).unwrap();
    lasting.apply(&workflow(1));
    let held = || File::from(journal.copy().unwrap());
    let former = held();
    assert!(Journal::latest(held(), &path, |_| true).unwrap().1, "the file has the name");
    drop(journal.compact(&lasting).unwrap());
    journal.append(&workflow(2)).unwrap();
    lasting.apply(&workflow(2));
    // The keeper has only the former file, because it had no descriptor left for the new one.
    let other = Journal::latest(former.try_clone().unwrap(), &path, |_| false);
    assert!(other.unwrap().1, "the file of another daemon");
    let (file, is_held) = Journal::latest(former.try_clone().unwrap(), &path, |_| true).unwrap();
    assert!(!is_held);
    let (mut journal, again) = Journal::read(file, &path).unwrap();
    assert_eq!(again, lasting);
    // The next compacted file is later than both.
    let third = File::from(journal.compact(&lasting).unwrap());
    assert!(Journal::latest(third.try_clone().unwrap(), &path, |_| true).unwrap().1);
    assert!(!Journal::latest(former.try_clone().unwrap(), &path, |_| true).unwrap().1);
    for other in [&b""[..], b"short", &[0; 4096], b"a letter to the editor, which is long enough"] {
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, other).unwrap();
        assert!(Journal::latest(third.try_clone().unwrap(), &path, |_| true).unwrap().1, "{other:?}");
    }
    std::fs::write(&path, header(1)).unwrap();
    assert!(Journal::latest(third.try_clone().unwrap(), &path, |_| true).unwrap().1, "an earlier journal");
    std::fs::remove_file(&path).unwrap();
    assert!(Journal::latest(third.try_clone().unwrap(), &path, |_| true).unwrap().1, "no file has the name");
}

#[test]
fn a_journal_without_its_name_is_compacted_until_that_works() {
    let folder = tempfile::tempdir().unwrap();
    let (mut journal, mut lasting, path) = fresh(&folder);
    journal.append(&workflow(1)).unwrap();
    lasting.apply(&workflow(1));
    std::fs::remove_file(&path).unwrap();
    journal.check_name();
    // A folder has the name of the new file, so the new file cannot be made.
    std::fs::create_dir(path.with_extension("new")).unwrap();
    assert!(journal.compact(&lasting).is_err());
    assert!(journal.wants_compacting());
    std::fs::remove_dir(path.with_extension("new")).unwrap();
    journal.compact(&lasting).unwrap();
    assert!(!journal.wants_compacting());
    assert_eq!(reopened(&path).1, lasting);
}

#[test]
fn the_checksum_of_a_record_is_that_of_the_standards_test_vector() {
    assert_eq!(checksum(b"abc"), 0xad77_0999);
    let record = workflow(1);
    let (frame, body) = (frame(&record), encode(&record));
    assert_eq!(frame[..FRAME], [(body.len() as u32).to_le_bytes(), checksum(&body).to_le_bytes()].concat());
    assert_eq!(frame[FRAME..], body);
}

//! Tests that written files are read back unchanged, and that damaged files are refused.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crossdock_checkpoint::{Checkpoint, Contents, Folder, Series, Value, Variable, restart, write};
use crossdock_layout::Status;
use proptest::prelude::*;

fn numbers(n: usize) -> Vec<u8> {
    (0..n).flat_map(|i| (i as f64 * 0.5).to_le_bytes()).collect()
}

fn one<'a>(name: &str, sequence: u64, bytes: &'a [u8]) -> Series<'a> {
    Series {
        name: name.into(),
        sequence,
        time_ns: 1_700_000_000_000_000_000,
        attributes: vec![("step".into(), Value::I64(-7)), ("note".into(), Value::Text("früh".into()))],
        variables: vec![Variable {
            name: "u".into(),
            type_name: "f64".into(),
            shape: vec![bytes.len() as u64 / 8],
            constants: vec![("x".into(), Value::F64(0.25))],
            bytes,
        }],
    }
}

fn put(path: &Path, contents: &Contents) {
    write(&File::create(path).unwrap(), path, contents).unwrap();
}

#[test]
fn ranks_attributes_constants_and_elements_come_back() {
    let (folder, a, b) = (tempfile::tempdir().unwrap(), numbers(1000), numbers(10));
    let path = folder.path().join("x.h5");
    let contents = Contents {
        attributes: vec![("publisher".into(), Value::U64(9))],
        series: vec![one("field/10", 3, &b), one("field/2", 3, &a)],
    };
    put(&path, &contents);
    let back = Checkpoint::open(&path).unwrap();
    back.verify().unwrap();
    assert_eq!(back.series().collect::<Vec<_>>(), ["field/2", "field/10"], "in order of their ranks");
    assert_eq!(back.attributes().cloned().collect::<Vec<_>>(), contents.attributes);
    assert_eq!(back.sequence("field/2").unwrap(), 3);
    assert_eq!(back.series_attributes("field/2").unwrap(), contents.series[1].attributes);
    let u = back.variable("field/2", "u").unwrap();
    assert_eq!((u.type_name.as_str(), u.shape.as_slice(), u.constants.len()), ("f64", [1000].as_slice(), 1));
    let mut read = vec![0; a.len()];
    back.read("field/2", "u", &mut read).unwrap();
    assert_eq!(read, a);
}

#[test]
fn other_sizes_and_names_are_told_apart() {
    let (folder, bytes) = (tempfile::tempdir().unwrap(), numbers(4));
    let path = folder.path().join("x.h5");
    put(&path, &Contents { attributes: vec![], series: vec![one("field", 1, &bytes)] });
    let back = Checkpoint::open(&path).unwrap();
    assert_eq!(back.read("", "u", &mut [0; 8]).unwrap_err().status, Status::WrongType);
    let e = back.read("", "v", &mut [0; 8]).unwrap_err();
    assert!(e.status == Status::NotFound && e.to_string().contains("it has u"), "{e}");
    let e = back.sequence("feld").unwrap_err();
    assert!(e.status == Status::NotFound && e.to_string().contains("it holds field"), "{e}");
}

#[test]
fn a_byte_changed_anywhere_is_found_or_harms_nothing() {
    let (folder, bytes) = (tempfile::tempdir().unwrap(), numbers(700));
    let path = folder.path().join("x.h5");
    put(&path, &Contents { attributes: vec![], series: vec![one("field/0", 1, &bytes), one("field/1", 1, &bytes)] });
    let good = fs::read(&path).unwrap();
    let file = File::options().write(true).open(&path).unwrap();
    let mut unnoticed = 0;
    for at in 0..good.len() {
        file.write_all_at(&[good[at] ^ 0x10], at as u64).unwrap();
        match Checkpoint::open(&path).and_then(|c| c.verify().map(|()| c)) {
            Err(e) => assert_eq!(e.status, Status::Corrupt, "byte {at}: {e}"),
            // The damage was in the bytes between headers and data, which no reader uses.
            Ok(back) => {
                unnoticed += 1;
                let mut read = vec![0; bytes.len()];
                back.read("field/1", "u", &mut read).unwrap();
                assert_eq!(read, bytes, "byte {at}");
            }
        }
        file.write_all_at(&good[at..=at], at as u64).unwrap();
    }
    assert!(unnoticed < 8192, "{unnoticed} bytes are guarded by nothing");
}

#[test]
fn a_file_cut_short_anywhere_is_none() {
    let (folder, bytes) = (tempfile::tempdir().unwrap(), numbers(20));
    let path = folder.path().join("x.h5");
    put(&path, &Contents { attributes: vec![], series: vec![one("field", 1, &bytes)] });
    let good = fs::read(&path).unwrap();
    for length in (0..good.len()).step_by(7) {
        fs::write(&path, &good[..length]).unwrap();
        assert_eq!(Checkpoint::open(&path).unwrap_err().status, Status::Corrupt, "{length} bytes");
    }
}

#[test]
fn what_hdf5_cannot_hold_is_refused_before_anything_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.h5");
    let refused = |series: Vec<Series>| {
        let file = File::create(&path).unwrap();
        let e = write(&file, &path, &Contents { attributes: vec![], series }).unwrap_err();
        assert_eq!((e.status, file.metadata().unwrap().len()), (Status::Invalid, 0), "{e}");
        e.to_string()
    };
    let (bytes, mut bad) = (numbers(4), one("field", 1, &[]));
    bad.variables[0].bytes = &bytes[..9];
    assert!(refused(vec![bad.clone()]).contains("9 bytes"));
    assert!(refused(vec![one("field", 1, &bytes), one("field", 1, &bytes)]).contains("twice"));
    assert!(refused(vec![one("field", 1, &bytes), one("field/u", 1, &bytes)]).contains("taken twice"));
    bad = one("field", 1, &bytes);
    bad.variables[0].type_name = "f65".into();
    assert!(refused(vec![bad.clone()]).contains("f65"));
    bad = one("field", 1, &bytes);
    bad.attributes.push(("step".into(), Value::I64(1)));
    assert!(refused(vec![bad]).contains("twice"));
}

fn folder_with(n: u64) -> (tempfile::TempDir, Vec<PathBuf>) {
    let (place, bytes) = (tempfile::tempdir().unwrap(), numbers(100));
    let mut folder = Folder::open(place.path(), "field", &mut |_| {}).unwrap();
    let paths = (1..=n)
        .map(|i| {
            folder.save(&Contents { attributes: vec![], series: vec![one("field", i, &bytes)] }, &|| true).unwrap().path
        })
        .collect();
    (place, paths)
}

fn damage(path: &Path) {
    let length = fs::metadata(path).unwrap().len();
    File::options().write(true).open(path).unwrap().write_all_at(&[0xff; 8], length - 16).unwrap();
}

#[test]
fn the_newest_good_one_is_used_and_the_damaged_ones_are_said() {
    let (place, paths) = folder_with(3);
    assert_eq!(restart(place.path(), "").unwrap().checkpoint.path(), paths[2]);
    damage(&paths[2]);
    let found = restart(place.path(), "field").unwrap();
    assert_eq!((found.checkpoint.path(), found.skipped.len()), (paths[1].as_path(), 1));
    assert!(found.skipped[0].1.to_string().contains("checksum of u"), "{}", found.skipped[0].1);
    damage(&paths[0]);
    damage(&paths[1]);
    let e = restart(place.path(), "").unwrap_err();
    assert!(e.status == Status::Corrupt && e.to_string().contains("none of the 3"), "{e}");
    assert_eq!(restart(place.path(), "other").unwrap_err().status, Status::NotFound);
    assert_eq!(restart(&place.path().join("nowhere"), "").unwrap_err().status, Status::NotFound);
}

#[test]
fn a_writer_goes_on_where_a_dead_one_stopped() {
    let (place, paths) = folder_with(3);
    damage(&paths[2]);
    let half = place.path().join(".field-00000004.h5.new");
    fs::write(&half, b"half").unwrap();
    let others =
        [".other-00000001.h5.new", ".field-x-00000001.h5.new", ".field-1.h5.new"].map(|n| place.path().join(n));
    others.iter().for_each(|other| fs::write(other, b"not ours").unwrap());
    let mut said = Vec::new();
    let mut folder = Folder::open(place.path(), "field", &mut |line| said.push(line)).unwrap();
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(!half.exists() && others.iter().all(|other| other.exists()));
    assert!(paths[2].with_extension("h5.damaged").exists());
    assert_eq!(folder.newest().unwrap().unwrap().path(), paths[1]);
    let bytes = numbers(1);
    let saved = folder.save(&Contents { attributes: vec![], series: vec![one("field", 9, &bytes)] }, &|| true).unwrap();
    assert!(saved.path.ends_with("field-00000004.h5"), "numbers are never used twice: {}", saved.path.display());
    assert_eq!(folder.prune(2).unwrap(), 1);
    assert!(!paths[0].exists() && paths[1].exists());
}

#[test]
fn the_number_of_a_damaged_checkpoint_is_not_used_again() {
    let (place, paths) = folder_with(3);
    let (open, bytes) = (|| Folder::open(place.path(), "field", &mut |_| {}).unwrap(), numbers(1));
    damage(&paths[2]);
    // This writer sets the damaged checkpoint aside, and ends without saving one.
    drop(open());
    let saved = open().save(&Contents { attributes: vec![], series: vec![one("field", 9, &bytes)] }, &|| true).unwrap();
    assert!(saved.path.ends_with("field-00000004.h5"), "{}", saved.path.display());
}

#[test]
fn a_checkpoint_that_another_program_puts_into_the_folder_is_not_replaced() {
    let (place, paths) = folder_with(1);
    let (mut folder, bytes) = (Folder::open(place.path(), "field", &mut |_| {}).unwrap(), numbers(1));
    let contents = Contents { attributes: vec![], series: vec![one("field", 9, &bytes)] };
    let second = place.path().join("field-00000002.h5");
    // The file comes before the checkpoint is written, and then while it is written.
    fs::write(&second, "before").unwrap();
    assert!(folder.save(&contents, &|| true).unwrap().path.ends_with("field-00000003.h5"));
    let fourth = place.path().join("field-00000004.h5");
    let copy = || fs::write(&fourth, "meanwhile").is_ok();
    let e = folder.save(&contents, &copy).unwrap_err();
    assert!(e.status == Status::System && e.to_string().contains("field-00000004.h5"), "{e}");
    assert!(folder.save(&contents, &|| true).unwrap().path.ends_with("field-00000005.h5"));
    assert_eq!((fs::read(&second).unwrap(), fs::read(&fourth).unwrap()), (b"before".into(), b"meanwhile".into()));
    assert!(paths[0].exists());
}

#[test]
fn a_folder_without_a_further_number_is_refused() {
    let (place, _) = folder_with(1);
    let last = place.path().join("field-18446744073709551615.h5");
    fs::write(&last, b"no checkpoint").unwrap();
    let e = Folder::open(place.path(), "field", &mut |_| {}).unwrap_err();
    assert!(e.status == Status::Invalid && e.to_string().contains("field-18446744073709551615.h5"), "{e}");
    assert!(last.exists());
}

#[test]
fn a_checkpoint_that_cannot_be_removed_does_not_keep_the_others() {
    let (place, paths) = folder_with(4);
    let folder = Folder::open(place.path(), "field", &mut |_| {}).unwrap();
    // The test replaces the checkpoint by a folder. `unlink` cannot remove a folder, not even for root.
    fs::remove_file(&paths[0]).unwrap();
    fs::create_dir(&paths[0]).unwrap();
    let e = folder.prune(1).unwrap_err();
    assert!(e.to_string().contains("field-00000001.h5"), "{e}");
    assert!(!paths[1].exists() && !paths[2].exists() && paths[3].exists());
}

#[test]
fn a_checkpoint_that_cannot_be_read_is_no_damaged_one() {
    let (place, paths) = folder_with(2);
    fs::remove_file(&paths[1]).unwrap();
    // The kernel refuses to open a link that leads to itself.
    std::os::unix::fs::symlink(&paths[1], &paths[1]).unwrap();
    let e = restart(place.path(), "").unwrap_err();
    assert!(e.status == Status::System && e.to_string().contains("field-00000002.h5"), "{e}");
    // The link leads to a file in an archive that is missing, for example because it is not mounted.
    fs::remove_file(&paths[1]).unwrap();
    std::os::unix::fs::symlink(place.path().join("archive/field-00000002.h5"), &paths[1]).unwrap();
    let e = restart(place.path(), "").unwrap_err();
    assert!(e.status == Status::System && e.to_string().contains("field-00000002.h5"), "{e}");
    fs::create_dir(place.path().join("archive")).unwrap();
    fs::copy(&paths[0], place.path().join("archive/field-00000002.h5")).unwrap();
    assert_eq!(restart(place.path(), "").unwrap().checkpoint.path(), paths[1]);
}

#[test]
fn a_restart_from_one_file_takes_no_other() {
    let (place, paths) = folder_with(2);
    let found = restart(&paths[0], "field").unwrap();
    assert_eq!((found.checkpoint.path(), found.skipped.len()), (paths[0].as_path(), 0));
    damage(&paths[0]);
    assert_eq!(restart(&paths[0], "field").unwrap_err().status, Status::Corrupt);
    // The status is not NOT_FOUND, because the program would take NOT_FOUND for a first start and begin at its first
    // step.
    fs::remove_file(&paths[0]).unwrap();
    let e = restart(&paths[0], "field").unwrap_err();
    assert!(e.status == Status::Invalid && e.to_string().contains("field-00000001.h5"), "{e}");
    // `crossdock export` may give a checkpoint any name that ends in `.h5`. So such a path counts as the path of a
    // file, which is missing here.
    assert_eq!(restart(&place.path().join("now.h5"), "field").unwrap_err().status, Status::Invalid);
    assert_eq!(restart(&place.path().join("nowhere"), "field").unwrap_err().status, Status::NotFound);
}

/// A writer that keeps one checkpoint replaces it all the time, so the checkpoint that a restart has listed is often
/// gone when the restart opens it.
#[test]
fn a_restart_finds_the_checkpoint_that_replaced_the_one_it_listed() {
    let (place, _) = folder_with(1);
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut folder = Folder::open(place.path(), "field", &mut |_| {}).unwrap();
            let bytes = numbers(1);
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                let contents = Contents { attributes: vec![], series: vec![one("field", 1, &bytes)] };
                folder.save(&contents, &|| true).unwrap();
                folder.prune(1).unwrap();
            }
        });
        let failed = (0..3000).find_map(|_| restart(place.path(), "").err());
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(failed.is_none(), "{failed:?}");
    });
}

#[test]
fn two_writers_of_one_name_do_not_meet() {
    let (place, _) = folder_with(1);
    let _first = Folder::open(place.path(), "field", &mut |_| {}).unwrap();
    assert_eq!(Folder::open(place.path(), "field", &mut |_| {}).unwrap_err().status, Status::Busy);
    Folder::open(place.path(), "other", &mut |_| {}).unwrap();
}

#[test]
fn a_folder_that_went_away_is_told_and_the_next_try_may_succeed() {
    let (place, bytes) = (tempfile::tempdir().unwrap(), numbers(3));
    let path = place.path().join("sub");
    let mut folder = Folder::open(&path, "field", &mut |_| {}).unwrap();
    let contents = Contents { attributes: vec![], series: vec![one("field", 1, &bytes)] };
    fs::remove_dir_all(&path).unwrap();
    let e = folder.save(&contents, &|| true).unwrap_err();
    assert!(e.status == Status::NotFound && e.to_string().contains("still there"), "{e}");
    fs::create_dir(&path).unwrap();
    assert!(folder.save(&contents, &|| true).unwrap().path.ends_with("field-00000001.h5"));
}

#[test]
fn what_a_failed_try_could_not_clear_away_does_not_stop_the_next() {
    let (place, bytes) = (tempfile::tempdir().unwrap(), numbers(3));
    let mut folder = Folder::open(place.path(), "field", &mut |_| {}).unwrap();
    let contents = Contents { attributes: vec![], series: vec![one("field", 1, &bytes)] };
    // This file is what remains if the folder becomes read-only while a checkpoint is written.
    fs::write(place.path().join(".field-00000001.h5.new"), "half").unwrap();
    let saved = folder.save(&contents, &|| true).unwrap();
    Checkpoint::open(&saved.path).unwrap().verify().unwrap();
}

#[test]
fn what_was_taken_back_while_it_was_written_is_not_saved() {
    let (place, _) = folder_with(1);
    let (bytes, mut folder) = (numbers(3), Folder::open(place.path(), "field", &mut |_| {}).unwrap());
    let contents = Contents { attributes: vec![], series: vec![one("field", 2, &bytes)] };
    assert_eq!(folder.save(&contents, &|| false).unwrap_err().status, Status::Closed);
    assert_eq!(restart(place.path(), "").unwrap().checkpoint.sequence("").unwrap(), 1);
    assert!(folder.save(&contents, &|| true).unwrap().path.ends_with("field-00000002.h5"));
    assert!(fs::read_dir(place.path()).unwrap().flatten().all(|e| !e.file_name().to_string_lossy().ends_with(".new")));
}

#[test]
fn several_names_in_one_folder_have_to_be_told_apart() {
    let (place, _) = folder_with(1);
    let bytes = numbers(3);
    let mut other = Folder::open(place.path(), "other", &mut |_| {}).unwrap();
    other.save(&Contents { attributes: vec![], series: vec![one("other", 1, &bytes)] }, &|| true).unwrap();
    let e = restart(place.path(), "").unwrap_err();
    assert!(e.status == Status::Invalid && e.to_string().contains("field, other"), "{e}");
    assert_eq!(restart(place.path(), "other").unwrap().checkpoint.series().next(), Some("other"));
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<i64>().prop_map(Value::I64),
        any::<u64>().prop_map(Value::U64),
        (-1e300..1e300).prop_map(Value::F64),
        "[a-z äß]{0,63}".prop_map(Value::Text),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_is_written_is_read(
        attributes in proptest::collection::vec(("[a-z]{1,20}", value()), 0..20),
        extents in proptest::collection::vec(0u64..5, 0..4),
        names in proptest::collection::hash_set("[a-z]{1,8}(/[0-9]{1,3})?", 1..5),
    ) {
        let mut attributes = attributes;
        attributes.sort_by(|a, b| a.0.cmp(&b.0));
        attributes.dedup_by(|a, b| a.0 == b.0);
        let count = extents.iter().product::<u64>() as usize;
        let bytes: Vec<u8> = (0..count * 3).map(|i| i as u8).collect();
        let series: Vec<Series> = names.iter().map(|name| Series {
            name: name.clone(), sequence: 5, time_ns: 6, attributes: attributes.clone(),
            variables: vec![Variable { name: "U".into(), type_name: "u8[3]".into(), shape: extents.clone(), constants: vec![], bytes: &bytes }],
        }).collect();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.h5");
        put(&path, &Contents { attributes: vec![], series });
        let back = Checkpoint::open(&path).unwrap();
        back.verify().unwrap();
        for name in &names {
            prop_assert_eq!(&back.series_attributes(name).unwrap(), &attributes);
            let mut read = vec![0; bytes.len()];
            back.read(name, "U", &mut read).unwrap();
            prop_assert_eq!(&read, &bytes);
            prop_assert_eq!(&back.variable(name, "U").unwrap().shape, &extents);
        }
    }

    #[test]
    fn wild_headers_with_good_checksums_crash_no_reader(noise in proptest::collection::vec((0usize..3000, any::<u8>()), 1..8)) {
        let bytes = numbers(2);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.h5");
        put(&path, &Contents { attributes: vec![], series: vec![one("field/0", 1, &bytes), one("field/1", 1, &bytes)] });
        let mut whole = fs::read(&path).unwrap();
        let text = String::from_utf8(whole[..512].to_vec()).unwrap();
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let described: usize = words[7].parse().unwrap();
        for (at, byte) in noise {
            whole[512 + at % described] = byte;
        }
        let sum = crc32fast::hash(&whole[512..512 + described]);
        let cover = text.replace(words[9], &format!("{sum:08x}"));
        whole[..512].copy_from_slice(cover.as_bytes());
        fs::write(&path, &whole).unwrap();
        if let Ok(back) = Checkpoint::open(&path) {
            let _ = back.verify();
            for name in back.series().map(str::to_owned).collect::<Vec<_>>() {
                let _ = back.series_attributes(&name);
                let _ = back.read(&name, "u", &mut [0; 16]);
            }
        }
    }
}

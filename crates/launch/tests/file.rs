//! Tests of the workflow file: each kind of mistake has a golden text, and good files are read correctly.
//!
//! `UPDATE=1 cargo test -p crossdock-launch --test file` writes the golden texts and the schema again.

use crossdock_layout::Rights;
use std::fs;
use std::path::{Path, PathBuf};

use crossdock_launch::file::{self, Files, Processors, User};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)
}

fn files(name: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder(name)).unwrap().map(|e| e.unwrap().path()).collect();
    files.retain(|f| f.extension().is_some_and(|e| e == "yaml"));
    files.sort();
    files
}

fn same_or_update(path: &Path, text: &str) -> bool {
    if std::env::var_os("UPDATE").is_some() {
        fs::write(path, text).unwrap();
        return true;
    }
    fs::read_to_string(path).unwrap_or_default() == text
}

#[test]
fn each_mistake_is_told_with_place_and_mend() {
    let base = folder("bad").display().to_string();
    let mut wrong = Vec::new();
    for path in files("bad") {
        let problems = file::read(&path).expect_err(&format!("{} has a mistake", path.display()));
        assert!(problems.list().iter().all(|p| !p.hint.is_empty() && !p.what.is_empty()), "{problems}");
        // The golden texts must not depend on where the repository lies.
        let text = format!("{problems}\n").replace(&format!("{base}/"), "");
        if !same_or_update(&path.with_extension("expected"), &text) {
            wrong.push(format!("{}:\n{text}", path.display()));
        }
    }
    assert!(wrong.is_empty(), "not as expected:\n{}", wrong.join("\n"));
}

#[test]
fn good_files_have_no_problems() {
    for path in files("good") {
        file::read(&path).unwrap_or_else(|e| panic!("{e}"));
    }
}

#[test]
fn every_key_is_read() {
    let w = file::read(&folder("good").join("everything.yaml")).unwrap();
    assert_eq!((w.name.as_str(), w.memory, w.engine, w.grace_s), ("melt/night", Some(1 << 30), Some("podman"), 3));
    let [simulate, analyse, plot] = &w.tasks[..] else { panic!("three tasks") };
    assert_eq!(simulate.files, Files::Root(folder("good").canonicalize().unwrap()));
    assert_eq!(simulate.command, ["python3", "simulate.py", "--steps", "500", "two words", "it's"]);
    assert_eq!(simulate.mounts.len(), 1);
    assert!(simulate.mounts[0].write);
    assert_eq!(simulate.environment[0], ("OMP_NUM_THREADS".into(), "1".into()));
    assert_eq!((simulate.ranks, &simulate.processors, simulate.memory), (2, &Processors::Count(1), Some(512 << 20)));
    assert_eq!(simulate.process.command.as_ref().unwrap().len(), 2);
    assert_eq!(simulate.process.environment.len(), 1);
    assert_eq!(simulate.regions[0].name, "frames/*");
    assert!(simulate.regions[0].may(Rights::CREATE) && simulate.regions[1].may(Rights::WRITE));
    assert_eq!(analyse.command, ["/bin/sh", "-c", "./analyse --fast > out"]);
    assert_eq!(analyse.user, User::Ids(1000, 1000));
    assert!(analyse.host_network);
    assert_eq!(analyse.processors, Processors::List(vec![0, 1]));
    assert!(!analyse.regions[0].may(Rights::WRITE));
    let series: Vec<_> =
        analyse.series.iter().map(|s| (s.name.as_str(), s.may(Rights::PUBLISH), s.may(Rights::OBSERVE))).collect();
    assert_eq!(series, [("field/3", false, true), ("all", true, true)]);
    let items: Vec<_> =
        analyse.items.iter().map(|i| (i.name.as_str(), i.may(Rights::OWN), i.may(Rights::READ))).collect();
    assert_eq!(items, [("frame/1", false, true), ("own/*", true, true)]);
    assert_eq!(plot.after, ["simulate"]);
    assert_eq!(w.ports.iter().map(|p| p.capacity).collect::<Vec<_>>(), [4, 8, 1]);
    assert_eq!(w.regions[0].size, Some(512 << 20));
}

#[test]
fn an_unreadable_file_is_told_as_such() {
    for (path, words) in [("/no/such/file.yaml", "cannot be read"), ("/", "is a folder")] {
        let text = file::read(Path::new(path)).unwrap_err().to_string();
        assert!(text.contains(words) && text.contains(path), "{text}");
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("w.yaml");
    fs::write(&path, b"workflow: \xff\xfe").unwrap();
    assert!(file::read(&path).unwrap_err().to_string().contains("UTF-8"));
    fs::write(&path, vec![b'x'; 3 << 20]).unwrap();
    assert!(file::read(&path).unwrap_err().to_string().contains("is this a workflow file?"));
}

#[test]
fn the_schema_for_editors_is_the_table_of_keys() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/workflow.schema.json");
    assert!(same_or_update(&path, &file::schema_text()), "run with UPDATE=1 to write {} anew", path.display());
}

#[test]
fn hostile_texts_end_quickly() {
    let deep = "[".repeat(10_000);
    let laughs = {
        let mut text = String::from("a0: &a0 [x, x]\n");
        for i in 1..40 {
            text += &format!("a{i}: &a{i} [*a{0}, *a{0}]\n", i - 1);
        }
        text
    };
    let long_chain: String = {
        let mut text = String::from("workflow: w\ntasks:\n  t0: {command: [x]}\n");
        for i in 1..5000 {
            text += &format!("  t{i}: {{command: [x], after: t{}}}\n", i - 1);
        }
        text
    };
    for text in [
        deep.as_str(),
        laughs.as_str(),
        long_chain.as_str(),
        "\u{feff}",
        "%YAML 9.9\n---\n",
        "? [a]\n: b\n",
        "&a",
        "*a",
    ] {
        crossdock_launch::fuzz_workflow(text.as_bytes());
    }
    assert!(file::parse(Path::new("x"), &long_chain).is_ok());
}

#[test]
fn mutated_files_end_with_a_workflow_or_with_problems() {
    let texts: Vec<Vec<u8>> = ["good", "bad"].iter().flat_map(|f| files(f)).map(|f| fs::read(f).unwrap()).collect();
    let mut random = crossdock_os::testing::Random(1);
    let spice: [&[u8]; 12] = [
        b"&a",
        b"*a",
        b"[",
        b"}",
        b": ",
        b"\n  - ",
        b"\t",
        b"|",
        b"---\n",
        b"\xc3\xa9",
        b"99999999999999999999",
        b"\0",
    ];
    for _ in 0..4000 {
        let mut text = texts[random.below(texts.len())].clone();
        for _ in 0..1 + random.below(4) {
            let at = random.below(text.len() + 1);
            match random.below(4) {
                0 => drop(text.splice(at..at, spice[random.below(spice.len())].iter().copied())),
                1 => text.truncate(at),
                2 if at < text.len() => text[at] = random.byte(),
                _ => {
                    let other = &texts[random.below(texts.len())];
                    let from = random.below(other.len());
                    text.splice(at..at, other[from..(from + 40).min(other.len())].iter().copied());
                }
            }
        }
        crossdock_launch::fuzz_workflow(&text);
    }
}

//! Tests two hostile tasks in every engine: a former owner that keeps access to an item, and a reader that wants to
//! write an item. They neither see nor change the new owner's bytes, and the transfer is completed.

mod common;

use std::fs;

use common::{Place, engines};

/// Ways in which the hostile test program keeps access to an item that it has handed over. For the ways in `COPIED`,
/// the kernel reports the access, so the next owner gets a copy. For the ways in `MOVED`, the kernel reports nothing,
/// so the next owner gets the file itself.
const COPIED: [&str; 6] = ["mapping", "duplicate", "fork", "child", "flight", "reopened"];
const MOVED: [&str; 4] = ["numbered", "spliced", "sent", "path"];
/// Ways that the hostile program tries again and again during the transfer. If the file is open in such an attempt
/// while the kernel checks it, the next owner gets a copy.
const RACES: [&str; 2] = ["racing", "spying"];

fn place(user: &str) -> Place {
    let place = Place::new("");
    fs::create_dir(place.path().join("bin")).unwrap();
    fs::copy(env!("CARGO_BIN_EXE_crossdock-test-hostile"), place.path().join("bin/act")).unwrap();
    let task = |name: &str, more: &str| {
        format!(
            "  {name}:\n    command: [/program/act, {name}]\n    mounts: [{{host: bin, task: /program}}]\n    \
             process: {{command: [bin/act, {name}]}}\n    {user}\n    items: {{way/*: own, told*: own{more}}}\n"
        )
    };
    let text = format!(
        "workflow: w\nmemory: 64 MiB\ntasks:\n{}{}{}",
        task("former", ", shared: read"),
        task("victim", ", shared: own"),
        task("partner", "")
    );
    fs::write(place.path().join("workflow.yaml"), text).unwrap();
    place
}

/// Checks what the tasks printed, line by line.
fn check(place: &Place, what: &str) {
    let (former, victim, partner) = (place.log("former"), place.log("victim"), place.log("partner"));
    for bad in ["SEEN", "WRITTEN", "HARMED", "FAILED", "did not"] {
        let anywhere = [&former, &victim, &partner].iter().any(|log| log.contains(bad));
        assert!(!anywhere, "{what}: {bad}\n{former}\n{victim}\n{partner}");
    }
    assert!(former.contains("tried 12 ways") && former.contains("tried to write"), "{what}: {former}");
    for way in COPIED {
        let copies = if former.contains(&format!("{way}: refused")) { 0 } else { 1 };
        assert!(victim.contains(&format!("{way}: unharmed copies {copies}")), "{what}: {way}: {victim}");
    }
    for way in MOVED {
        assert!(victim.contains(&format!("{way}: unharmed copies 0")), "{what}: {way}: {victim}");
    }
    for way in RACES {
        assert!(victim.contains(&format!("{way}: unharmed")), "{what}: {way}: {victim}");
    }
    assert!(victim.contains("shared: unharmed") && victim.contains("taken back: unharmed"), "{what}: {victim}");
    assert!(former.contains("tried to read on"), "{what}: {former}");
}

/// Checks that the run's summary counts each transfer of an item, and each copy that a transfer made necessary.
fn counted(summary: &str, victim: &str, what: &str) {
    let summary: serde_json::Value = serde_json::from_str(summary).unwrap();
    let items = summary["items"].as_array().unwrap();
    let ways: Vec<_> = items.iter().filter(|i| i["item"].as_str().unwrap().starts_with("way/")).collect();
    assert_eq!(ways.len(), COPIED.len() + MOVED.len() + RACES.len(), "{what}: {summary}");
    for item in ways {
        let way = &item["item"].as_str().unwrap()["way/".len()..];
        // Each item is transferred once to the victim. After that, each item of `RACES` is transferred 200 times to the
        // partner and 200 times back.
        let transfers = if RACES.contains(&way) { 401 } else { 1 };
        assert_eq!(item["transfers"], transfers, "{what}: {item}");
        assert!(victim.contains(&format!("{way}: unharmed copies {}", item["copies"])), "{what}: {item}: {victim}");
        assert!(item["owner"].as_str().unwrap().contains("victim"), "{what}: {item}");
    }
}

#[test]
fn a_hostile_former_owner_sees_and_harms_nothing_in_any_engine_as_user_or_as_root() {
    for engine in engines() {
        let users: &[&str] = match engine {
            // Under `process` and `charliecloud`, every task runs as the user who started the run.
            "process" | "charliecloud" => &[""],
            _ => &["user: root", "user: '1000:1000'"],
        };
        for user in users {
            let place = place(user);
            let run = place.run(engine, &["--json"]);
            let what = format!("{engine} {user}");
            let logs = || format!("{}\n{}", place.log("former"), place.log("victim"));
            assert_eq!(run.code, 0, "{what}\n{}\n{}\n{}", run.err, run.out, logs());
            check(&place, &what);
            counted(&run.out, &place.log("victim"), &what);
            place.assert_nothing_left(engine);
            println!("{what}: held");
        }
    }
}

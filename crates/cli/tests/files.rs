//! Managed directories in every container engine that works here: unmodified programs write, wait and read.

mod common;

use std::fs;
use std::time::Duration;

use common::{Place, engines, finish, signal};
use crossdock_os::process::Signal;

/// Engines with containers: without one, all tasks have the same view of the host's folders.
fn containers() -> Vec<&'static str> {
    engines().into_iter().filter(|engine| *engine != "process").collect()
}

/// The stores of this test's runs that are still there.
fn stores(run: &str) -> Vec<String> {
    let names = fs::read_dir("/dev/shm").unwrap().flatten().map(|e| e.file_name().to_string_lossy().into_owned());
    names.filter(|n| n.starts_with("crossdock-files-") && n.contains(run)).collect()
}

#[test]
fn a_consumer_opens_files_before_they_are_there_and_reads_each_whole() {
    for engine in containers() {
        // The consumer starts at once; the producer is slow, and writes each file in two halves.
        let place = Place::new(
            r#"
workflow: w
files:
  frames: {path: /data/frames, produce: [simulate], consume: [analyse, count], wait: 30}
tasks:
  simulate:
    command: 'sleep 0.5; for n in 1 2 3 4 5; do (seq 20000; sleep 0.05; seq 20000) > /data/frames/$n.txt; done; mkdir /data/frames/sub; echo last > /data/frames/sub/end'
  analyse:
    command: 'for n in 1 2 3 4 5; do wc -l < /data/frames/$n.txt; done; cat /data/frames/sub/end; touch /data/frames/x 2>&1 | grep -o "Read-only"; cat /data/frames/never || echo "no such frame"'
  count:
    command: [cat, /data/frames/5.txt, /data/frames/sub/end]
"#,
        );
        let run = place.run(engine, &[]);
        assert_eq!(run.code, 0, "{engine}\n{}\n{}", run.err, run.out);
        let log = place.log("analyse");
        assert!(log.starts_with(&"40000\n".repeat(5)), "{engine}: {log}");
        for words in
            ["last\n", "Read-only", "no such frame", "will not come: simulate ended in order; 6 files were published"]
        {
            assert!(log.contains(words), "{engine}: no {words:?} in {log}");
        }
        assert_eq!(place.log("count").lines().count(), 40_001, "{engine}");
        assert!(run.out.contains("frames") && run.out.contains('6'), "{engine}: {}", run.out);
        place.assert_nothing_left(engine);
        assert_eq!(stores("w-"), Vec::<String>::new(), "{engine}");
    }
}

#[test]
fn a_producer_that_fails_ends_every_wait_and_a_killed_run_leaves_nothing() {
    for engine in containers() {
        let place = Place::new(
            "workflow: failing\nfiles: {f: {path: /f, produce: bad, consume: waits}}\ntasks:\n  \
             bad: {command: 'sleep 0.3; printf half > /f/a.tmp; exit 3'}\n  \
             waits: {command: 'exec cat /f/a'}\n",
        );
        let run = place.run(engine, &[]);
        assert_eq!(run.code, 3, "{engine}\n{}\n{}", run.err, run.out);
        place.assert_nothing_left(engine);

        let place = Place::new(
            "workflow: killed\nfiles: {f: {path: /f, produce: writes, consume: waits}}\ntasks:\n  \
             writes: {command: 'echo ready; exec sleep MARK'}\n  \
             waits: {command: 'exec cat /f/never'}\n",
        );
        let child = place.start(engine, &[]);
        common::await_that("the producer", || {
            fs::read_to_string(place.path().join("crossdock-logs/killed/writes.log")).is_ok_and(|t| t.contains("ready"))
        });
        assert_eq!(stores("killed-").len(), 1, "{engine}");
        signal(place.supervisor(&child), Signal::KILL);
        signal(child.id(), Signal::KILL);
        let _ = finish(child);
        // A later run of the same user cleans up after one that died whole, once the kernel has let go of its lock.
        common::await_that("the killed run's store to be removed", || {
            let run = finish(place.start(engine, &["--deadline", "1"]));
            assert!(run.took < Duration::from_secs(30), "{engine}: {:?}", run.took);
            stores("killed-").is_empty()
        });
        place.assert_nothing_left(engine);
    }
}

#[test]
fn without_a_container_engine_the_run_is_refused_with_a_hint() {
    let place = Place::new(
        "workflow: w\nfiles: {f: {path: /f, produce: a, consume: b}}\ntasks:\n  a: {command: 'true'}\n  b: {command: 'true'}\n",
    );
    let run = place.run("process", &[]);
    assert_ne!(run.code, 0);
    assert!(run.err.contains("need a container engine") && run.err.contains("bubblewrap"), "{}", run.err);
    place.assert_nothing_left("process");
}

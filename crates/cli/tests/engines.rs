//! Runs the same small workflows in every engine that works on this machine.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;

use common::{Place, engines, finish, signal, until};
use rustix::process::Signal;

#[test]
fn a_task_finds_its_words_names_files_and_nothing_else() {
    for engine in engines() {
        let place = Place::new(
            r#"
workflow: w
tasks:
  first:
    command: [sh, -c, 'for a in "$0" "$@"; do echo "[$a]"; done; env; pwd; cat note.txt', plain, "two words", "it's", '"quoted"', '$HOME', "", "a\nb", "*", "-x"]
    mounts: [{host: "in, put", task: /data/in}, {host: out, task: /out, write: true}]
    workdir: /data/in
    environment: {GREETING: "a, b = 'c'", EMPTY: ""}
    ranks: 2
  second:
    command: ["sh", "-c", "touch /x /data/in/x; touch /out/made /tmp/x && echo tmp ok; cat /proc/net/dev; ls -la /run/crossdock; echo pid $$"]
    mounts: [{host: "in, put", task: /data/in}, {host: out, task: /out, write: true}]
    after: first
    process: {command: [echo, not in a container]}
"#,
        );
        for folder in ["in, put", "out"] {
            fs::create_dir(place.path().join(folder)).unwrap();
        }
        fs::write(place.path().join("in, put/note.txt"), "the note\n").unwrap();
        let run = place.run(engine, &[]);
        assert_eq!(run.code, 0, "{engine}\n{}\n{}", run.err, run.out);
        for rank in 0..2 {
            let log = place.log(&format!("first.{rank}"));
            let words = "[plain]\n[two words]\n[it's]\n[\"quoted\"]\n[$HOME]\n[]\n[a\nb]\n[*]\n[-x]\n";
            assert!(log.starts_with(words), "{engine}: {log}");
            let rank = format!("CROSSDOCK_RANK={rank}\n");
            for line in [
                &rank,
                "CROSSDOCK_RANKS=2\n",
                "CROSSDOCK_TASK=first\n",
                "CROSSDOCK_WORKFLOW=w\n",
                "GREETING=a, b = 'c'\n",
                "EMPTY=\n",
                "the note\n",
            ] {
                assert!(log.contains(line), "{engine}: no {line:?} in {log}");
            }
        }
        let log = place.log("second");
        if engine != "process" {
            assert!(place.log("first.0").contains("\n/data/in\n"), "{engine}");
            assert!(place.path().join("out/made").exists(), "{engine}: a mount with write can be written");
            assert!(log.contains("tmp ok"), "{engine}: {log}");
            // Docker carries the task's output and its errors separately, so "touch: " may come before another line.
            assert!(log.contains("cannot touch '/x'"), "{engine}: the root is read-only: {log}");
        }
        if !["process", "charliecloud"].contains(&engine) {
            assert!(!place.path().join("in, put/x").exists(), "{engine}: a mount without write cannot be written");
            let interfaces = log
                .lines()
                .filter(|l| l.contains(':') && !l.contains("Inter"))
                .filter(|l| l.trim_start().starts_with(|c: char| c.is_ascii_lowercase()));
            let names: Vec<&str> = interfaces
                .filter_map(|l| l.split_once(':'))
                .map(|(n, _)| n.trim())
                .filter(|n| !n.contains(' ') && *n != "touch")
                .collect();
            assert_eq!(names, ["lo"], "{engine}: {log}");
            let pid = log.lines().find_map(|l| l.strip_prefix("pid ")).unwrap().parse::<u32>().unwrap();
            assert!(pid < 100, "{engine}: own process ids");
        }
        place.assert_nothing_left(engine);
    }
}

#[test]
fn no_task_has_a_capability_or_can_make_a_read_only_mount_writable() {
    for engine in engines().into_iter().filter(|engine| *engine != "process") {
        for user in ["me", "root", "1000:1000"] {
            let place = Place::new(&format!(
                "workflow: w\ntasks:\n  t:\n    user: {user}\n    mounts: [{{host: in, task: /data/in}}]\n    \
                 command: 'grep CapEff /proc/self/status; mount -o remount,rw,bind /data/in; touch /data/in/x; echo end'\n"
            ));
            fs::create_dir(place.path().join("in")).unwrap();
            fs::set_permissions(place.path().join("in"), fs::Permissions::from_mode(0o777)).unwrap();
            let run = place.run(engine, &[]);
            assert_eq!(run.code, 0, "{engine}\n{}\n{}", run.err, run.out);
            let log = place.log("t");
            // Docker carries the task's output and its errors separately, so errors may come after the last line of the
            // output.
            assert!(log.contains("end\n"), "{engine}: {log}");
            assert!(!place.path().join("in/x").exists(), "{engine}, user {user}: a read-only mount was written: {log}");
            // charliecloud leaves root its capabilities. They count only in the task's own namespaces, in which the
            // read-only mounts are locked. So the task is not required to have no capabilities under charliecloud.
            if engine != "charliecloud" {
                assert!(log.contains("CapEff:\t0000000000000000\n"), "{engine}, user {user}: {log}");
            }
        }
    }
}

#[test]
fn a_failure_stops_the_others_and_is_passed_on_with_its_last_words() {
    for engine in engines() {
        let place = Place::new(
            "workflow: w\ngrace: 20\ntasks:\n  bad: {command: 'sleep 0.3; echo one; echo the reason >&2; exit 7'}\n  \
             polite: {command: \"trap 'echo asked to end; exit 0' TERM; echo ready; sleep MARK & wait\"}\n  \
             never: {command: [touch, never], after: bad}\n",
        );
        let run = place.run(engine, &[]);
        assert_eq!(run.code, 7, "{engine}\n{}\n{}", run.err, run.out);
        assert!(
            ["task `bad` ended with exit code 7; its last lines:\n", "    one\n", "    the reason"]
                .iter()
                .all(|w| run.out.contains(w)),
            "{engine}: {}",
            run.out
        );
        assert!(run.out.contains("was not started"), "{engine}: {}", run.out);
        // SIGTERM may end the shell before it has set its trap. In that case the shell has not printed `ready`. A shell
        // that has printed `ready` has set its trap, so it must have caught the signal.
        let log = place.log("polite");
        assert!(!log.contains("ready") || log.contains("asked to end"), "{engine}: {log}");
        place.assert_nothing_left(engine);
    }
}

#[test]
fn a_task_that_does_not_listen_is_killed_after_the_grace() {
    for engine in engines() {
        let place = Place::new(
            "workflow: w\ngrace: 1\ntasks:\n  deaf: {command: \"trap '' TERM; echo ready; while :; do sleep MARK; done\"}\n",
        );
        let child = place.start(engine, &[]);
        place.await_log("deaf", "ready");
        signal(child.id(), Signal::TERM);
        let run = finish(child);
        assert_eq!(run.code, 143, "{engine}\n{}\n{}", run.err, run.out);
        assert!(run.out.contains("stopped by SIGTERM"), "{engine}: {}", run.out);
        place.assert_nothing_left(engine);
    }
}

#[test]
fn interrupt_stops_everything_in_order() {
    for engine in engines() {
        let place = Place::new(
            "workflow: w\ntasks:\n  a: {command: 'echo ready; exec sleep MARK', ranks: 2}\n  b: {command: 'echo ready; sleep MARK & wait'}\n",
        );
        let child = place.start(engine, &[]);
        for task in ["a.0", "a.1", "b"] {
            place.await_log(task, "ready");
        }
        signal(child.id(), Signal::INT);
        let run = finish(child);
        assert_eq!(run.code, 130, "{engine}\n{}\n{}", run.err, run.out);
        place.assert_nothing_left(engine);
    }
}

#[test]
fn a_killed_launcher_leaves_nothing() {
    for engine in engines() {
        for victim in ["front", "supervisor"] {
            let place = Place::new(
                "workflow: w\ngrace: 1\ntasks:\n  a: {command: 'echo ready; sleep MARK & wait'}\n  b: {command: 'echo ready; exec sleep MARK'}\n",
            );
            let mut child = place.start(engine, &[]);
            place.await_log("a", "ready");
            place.await_log("b", "ready");
            match victim {
                "front" => {
                    child.kill().unwrap();
                    child.wait().unwrap();
                    until("the supervisor to clean up", || place.runs().is_empty());
                }
                _ => {
                    signal(place.supervisor(&child), Signal::KILL);
                    let run = finish(child);
                    assert_eq!(run.code, 137, "{engine}\n{}\n{}", run.err, run.out);
                    assert!(run.err.contains("the supervisor was killed"), "{}", run.err);
                }
            }
            place.assert_nothing_left(engine);
        }
    }
}

#[test]
fn both_killed_at_once_are_cleaned_up_after_by_the_next_run() {
    for engine in engines() {
        let place = Place::new("workflow: w\ntasks:\n  a: {command: 'echo ready; exec sleep MARK'}\n");
        let child = place.start(engine, &[]);
        place.await_log("a", "ready");
        place.kill_front_and_supervisor(child);
        assert_eq!(place.runs().len(), 1, "{engine}");
        fs::write(place.path().join("workflow.yaml"), "workflow: w\ntasks:\n  a: {command: echo}\n").unwrap();
        let run = place.run(engine, &[]);
        assert_eq!(run.code, 0, "{engine}\n{}\n{}", run.err, run.out);
        assert!(run.err.contains("cleaned up after run"), "{engine}\n{}", run.err);
        place.assert_nothing_left(engine);
    }
}

#[test]
fn a_descriptor_of_the_caller_does_not_reach_a_task() {
    for engine in engines() {
        let place =
            Place::new("workflow: w\ntasks:\n  a: {command: '[ -e /proc/self/fd/7 ] && echo open || echo closed'}\n");
        let run = finish(place.start_by(&["sh", "-c", "exec \"$@\" 7</", "sh"], engine, &[]));
        assert_eq!(run.code, 0, "{engine}\n{}\n{}", run.err, run.out);
        assert_eq!(place.log("a"), "closed\n", "{engine}");
        place.assert_nothing_left(engine);
    }
}

#[test]
fn two_runs_at_once_do_not_meet() {
    for engine in engines() {
        let place = Place::new(
            "workflow: w\ntasks:\n  a: {command: 'sleep 0.5; echo done'}\n  b: {command: 'sleep 0.5; echo done'}\n",
        );
        let (one, two) = (place.start(engine, &[]), place.start(engine, &[]));
        let (one, two) = (finish(one), finish(two));
        assert_eq!((one.code, two.code), (0, 0), "{engine}\n{}\n{}", one.err, two.err);
        let logs: Vec<_> =
            fs::read_dir(place.path().join("crossdock-logs")).unwrap().flatten().map(|e| e.path()).collect();
        assert_eq!(logs.len(), 2, "each has its own logs: {logs:?}");
        place.assert_nothing_left(engine);
    }
}

#[test]
fn memory_and_processors_are_limited() {
    for engine in engines() {
        let place = Place::new(
            "workflow: w\ntasks:\n  a: {command: 'ulimit -d; nproc', memory: 256 MiB, processors: 1}\n  b: {command: 'ulimit -d'}\n",
        );
        let run = place.run(engine, &[]);
        assert_eq!(run.code, 0, "{engine}\n{}\n{}", run.err, run.out);
        assert_eq!(place.log("a"), "262144\n1\n", "{engine}");
        assert_eq!(place.log("b"), "unlimited\n", "{engine}");
        place.assert_nothing_left(engine);
    }
}

/// Makes a root folder that has only links, the files `own/note` and `etc/passwd`, and an empty folder `usr`, into
/// which the tests mount the host's `/usr`.
fn small_root(place: &Place) {
    let root = place.path().join("root");
    for folder in ["usr", "etc", "own"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    for (link, target) in [("bin", "usr/bin"), ("lib", "usr/lib"), ("lib64", "usr/lib64"), ("sbin", "usr/sbin")] {
        std::os::unix::fs::symlink(target, root.join(link)).unwrap();
    }
    fs::write(root.join("own/note"), "of the root\n").unwrap();
    fs::write(root.join("etc/passwd"), "someone:x:0:0::/:/bin/sh\n").unwrap();
}

const SMALL: &str = "command: 'cat /own/note; ls /; touch /own/x; echo x > /etc/hosts; touch /made; mkdir /run/mine && echo run ok'\n    \
    mounts: [{host: /usr, task: /usr}, {host: ., task: /new/deep/place}]\n    process: {command: 'echo of the root; echo new; echo run ok'}\n";

#[test]
fn a_root_folder_is_the_tasks_file_system_and_stays_untouched() {
    for engine in engines() {
        let place = Place::new(&format!("workflow: w\ntasks:\n  a:\n    root: root\n    {SMALL}"));
        small_root(&place);
        let listing = || {
            let output = std::process::Command::new("find").arg(place.path().join("root")).output().unwrap();
            String::from_utf8(output.stdout).unwrap()
        };
        let hosts = || fs::read("/etc/hosts").unwrap();
        let (before, hosts_before) = (listing(), hosts());
        let run = place.run(engine, &[]);
        let log = place.log("a");
        assert!(hosts() == hosts_before, "{engine}: the task wrote the host's /etc/hosts");
        assert_eq!(run.code, 0, "{engine}\n{}\n{log}", run.err);
        assert!(log.contains("of the root") && log.contains("\nnew\n") && log.contains("run ok"), "{engine}: {log}");
        assert!(!log.contains("opt\n"), "{engine}: nothing of the host's root: {log}");
        // If the root lacks mount points, charliecloud lets a task of an ordinary user write into the root, so this
        // check is left out for charliecloud.
        if engine != "charliecloud" || rustix::process::geteuid().is_root() {
            assert_eq!(listing(), before, "{engine}");
        }
        place.assert_nothing_left(engine);
    }
}

#[test]
fn an_image_is_the_tasks_file_system_and_a_missing_one_is_told() {
    for engine in engines().into_iter().filter(|e| matches!(*e, "podman" | "docker")) {
        let place = Place::new("workflow: w\ntasks:\n  a: {command: 'true', image: 'crossdock-no-such-image:1'}\n");
        let run = place.run(engine, &[]);
        assert_eq!(run.code, 69, "{engine}\n{}", run.err);
        assert!(
            run.err.contains("has no image `crossdock-no-such-image:1`") && run.err.contains(&format!("{engine} pull")),
            "{}",
            run.err
        );

        let image = format!("crossdock-test-{}:1", place.mark);
        fs::write(
            place.path().join("workflow.yaml"),
            format!("workflow: w\ntasks:\n  a:\n    image: {image}\n    {SMALL}"),
        )
        .unwrap();
        small_root(&place);
        let shell = |script: &str| {
            std::process::Command::new("sh").args(["-c", script]).current_dir(place.path()).output().unwrap()
        };
        let made = shell(&format!("tar -C root -cf image.tar . && {engine} import image.tar {image}"));
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let run = place.run(engine, &[]);
        let gone = shell(&format!("{engine} rmi {image}"));
        let log = place.log("a");
        assert_eq!(run.code, 0, "{engine}\n{}\n{log}", run.err);
        assert!(log.contains("of the root") && log.contains("\nnew\n") && log.contains("run ok"), "{engine}: {log}");
        assert!(gone.status.success(), "{}", String::from_utf8_lossy(&gone.stderr));
        place.assert_nothing_left(engine);
    }
}

//! Tests managed directories in every container engine that works on this machine: unmodified programs write files,
//! wait for them and read them.

mod common;

use std::fs;
use std::time::Duration;

use common::{Place, engines, finish, signal};
use crossdock_os::process::Signal;

/// Lists the engines that work here, without `process`. Under `process` there is no container, and all tasks see the
/// same folders of the host, so these tests do not use it.
fn containers() -> Vec<&'static str> {
    engines().into_iter().filter(|engine| *engine != "process").collect()
}

/// Lists the stores of this test's runs that still exist.
fn stores(run: &str) -> Vec<String> {
    let names = fs::read_dir("/dev/shm").unwrap().flatten().map(|e| e.file_name().to_string_lossy().into_owned());
    names.filter(|n| n.starts_with("crossdock-files-") && n.contains(run)).collect()
}

/// Finds the run's id in its summary (`--json`), because other tests run workflows of the same name at the same time.
fn id_of(run: &common::Ended) -> String {
    let rest = run.out.split("\"run\": \"").nth(1).unwrap_or_else(|| panic!("no id in {}", run.out));
    rest.split('"').next().unwrap().to_owned()
}

#[test]
fn a_consumer_opens_files_before_they_are_there_and_reads_each_whole() {
    for engine in containers() {
        // The consumers start at the same time as the producer. The producer is slow, and writes each file in two
        // parts.
        let place = Place::new(
            r#"
workflow: w
files:
  frames: {path: /data/frames, produce: [simulate], consume: [analyse, count], wait: 30}
tasks:
  simulate:
    command: 'sleep 0.5; for n in 1 2 3 4 5; do (seq 20000; sleep 0.05; seq 20000) > /data/frames/$n.txt; done; mkdir /data/frames/sub; echo last > /data/frames/sub/end'
  analyse:
    command: 'for n in 1 2 3 4 5; do wc -l < /data/frames/$n.txt; done; cat /data/frames/sub/end; touch /data/frames/x; echo x >> /data/frames/1.txt; cat /data/frames/never || echo "no such frame"'
  count:
    command: [cat, /data/frames/5.txt, /data/frames/sub/end]
"#,
        );
        let run = place.run(engine, &["--json"]);
        assert_eq!(run.code, 0, "{engine}\n{}\n{}", run.err, run.out);
        let log = place.log("analyse");
        assert!(log.starts_with(&"40000\n".repeat(5)), "{engine}: {log}");
        let refused = |name: &str| format!("/data/frames/{name} cannot be opened for writing: this task only reads");
        let words = [
            "last\n",
            "Read-only",
            &refused("x"),
            &refused("1.txt"),
            "no such frame",
            "will not come: simulate ended in order; 6 files were published",
        ];
        for words in words {
            assert!(log.contains(words), "{engine}: no {words:?} in {log}");
        }
        assert_eq!(place.log("count").lines().count(), 40_001, "{engine}");
        assert!(run.out.contains("frames") && run.out.contains('6'), "{engine}: {}", run.out);
        place.assert_nothing_left(engine);
        assert_eq!(stores(&id_of(&run)), Vec::<String>::new(), "{engine}");
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
        common::until("the producer", || {
            fs::read_to_string(place.path().join("crossdock-logs/killed/writes.log")).is_ok_and(|t| t.contains("ready"))
        });
        assert_eq!(stores("killed-").len(), 1, "{engine}");
        signal(place.supervisor(&child), Signal::KILL);
        signal(child.id(), Signal::KILL);
        let _ = finish(child);
        // A later run of the same user cleans up after a killed run, once the kernel has released the killed run's
        // lock.
        common::until("the killed run's store to be removed", || {
            let run = finish(place.start(engine, &["--deadline", "1"]));
            assert!(run.took < Duration::from_secs(30), "{engine}: {:?}", run.took);
            stores("killed-").is_empty()
        });
        place.assert_nothing_left(engine);
    }
}

#[test]
fn tasks_that_read_each_others_files_may_do_so_and_a_note_names_them() {
    let Some(engine) = containers().into_iter().next() else { return crossdock_os::testing::skip("bubblewrap") };
    let place = Place::new(
        "workflow: w\nfiles:\n  f: {path: /f, produce: a, consume: b, wait: 30}\n  \
         g: {path: /g, produce: b, consume: a, wait: 30}\ntasks:\n  \
         a: {command: 'echo there > /f/1; cat /g/1'}\n  b: {command: 'cat /f/1 && echo back > /g/1'}\n",
    );
    let run = place.run(engine, &[]);
    assert_eq!(run.code, 0, "{engine}\n{}\n{}", run.err, run.out);
    assert!(run.err.contains("each task reads files of the next one: `b` → `a` → `b`"), "{}", run.err);
    assert_eq!((place.log("b"), place.log("a")), ("there\n".to_owned(), "back\n".to_owned()));
    place.assert_nothing_left(engine);
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

/// The source of a consumer that is linked statically, so that the preload library does not work for it.
const STATIC: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
int main(int argc, char **argv) {
    for (int n = 1; n < argc; n++) {
        char buffer[4096];
        ssize_t length;
        int file = open(argv[n], O_RDONLY);
        if (file < 0) {
            perror(argv[n]);
            continue;
        }
        while ((length = read(file, buffer, sizeof buffer)) > 0) fwrite(buffer, 1, length, stdout);
        close(file);
    }
    return 0;
}
"#;

#[test]
fn a_static_consumer_waits_by_stopped_calls_in_every_engine() {
    for engine in containers() {
        let place = Place::new(
            r#"
workflow: w
files:
  frames: {path: /data/frames, produce: [simulate], consume: [analyse, told, without], wait: 30}
tasks:
  simulate:
    command: 'until [ -e /go/looked ]; do sleep 0.05; done; for n in 1 2 3; do (seq 20000; sleep 0.05; seq 20000) > /data/frames/$n.txt; done'
    mounts: [{host: go, task: /go}]
  analyse:
    command: [./show, /data/frames/1.txt, /data/frames/2.txt, /data/frames/3.txt, /data/frames/never]
    workdir: /tools
    mounts: [{host: tools, task: /tools}]
  told: {command: 'cat /data/frames/3.txt | wc -l; (echo x > /data/frames/3.txt) || true', door: notification}
  without:
    command: 'cat /data/frames/1.txt || echo "not waited"; touch /go/looked'
    door: none
    mounts: [{host: go, task: /go, write: true}]
"#,
        );
        fs::create_dir(place.path().join("go")).unwrap();
        let tools = place.path().join("tools");
        fs::create_dir(&tools).unwrap();
        fs::write(tools.join("show.c"), STATIC).unwrap();
        let show = std::process::Command::new("gcc")
            .args(["-static", "-O1", "-o"])
            .arg(tools.join("show"))
            .arg(tools.join("show.c"))
            .status();
        assert!(show.expect("gcc is there").success());
        let run = place.run(engine, &[]);
        assert_eq!(run.code, 0, "{engine}\n{}\n{}", run.err, run.out);
        let log = place.log("analyse");
        assert_eq!(log.lines().count(), 120_002, "{engine}: {}", &log[log.len().saturating_sub(400)..]);
        assert!(log.contains("never will not come: simulate ended in order"), "{engine}");
        let log = place.log("told");
        let refused = "/data/frames/3.txt cannot be opened for writing: this task only reads the files of /data/frames";
        // Docker carries output and errors separately, so their order in the log may differ from the task's order.
        let is_counted = log.lines().any(|line| line == "40000");
        assert!(is_counted && log.contains(refused) && log.contains("Read-only"), "{engine}: {log}");
        assert!(place.log("without").contains("not waited"), "{engine}");
        place.assert_nothing_left(engine);
    }
}

#[test]
fn a_task_behind_stopped_calls_is_asked_to_end_before_it_is_killed() {
    for engine in containers() {
        let place = Place::new(
            "workflow: w\ngrace: 20\nfiles: {f: {path: /f, produce: fails, consume: waits}}\ntasks:\n  \
             fails: {command: 'sleep 1; exit 3'}\n  \
             waits: {door: notification, command: 'trap \"echo asked; exit 0\" TERM; echo ready; while :; do sleep 0.1; done'}\n",
        );
        let run = place.run(engine, &[]);
        assert_eq!(run.code, 3, "{engine}\n{}\n{}", run.err, run.out);
        assert!(place.log("waits").contains("asked"), "{engine}: {}", place.log("waits"));
        place.assert_nothing_left(engine);
    }
}

#[test]
fn check_says_which_door_serves_a_program() {
    let place = Place::new("");
    let check = |program: &str| finish(place.command(&["check", program, "--json"]).spawn().unwrap());
    let shell = check("sh");
    assert!(shell.code == 0 && shell.out.contains(r#""door": "preload""#), "{}{}", shell.out, shell.err);
    fs::write(place.path().join("show.c"), STATIC).unwrap();
    let gcc = |flags: &[&str]| {
        let status = std::process::Command::new("gcc").current_dir(place.path()).args(flags).arg("show.c").status();
        assert!(status.expect("gcc is there").success());
    };
    gcc(&["-static", "-o", "show"]);
    let seen = check("./show");
    assert!(seen.code == 0 && seen.out.contains(r#""door": "notification""#), "{}{}", seen.out, seen.err);
    assert!(seen.out.contains(r#""made": "static""#), "{}", seen.out);
    gcc(&["-fsanitize=address", "-o", "show"]);
    let seen = check("./show");
    let words = [r#""door": "notification""#, "it is built with AddressSanitizer"];
    assert!(seen.code == 0 && words.iter().all(|words| seen.out.contains(words)), "{}{}", seen.out, seen.err);
    // The next checks look at three programs: one has a dynamic loader but makes system calls itself, one does not
    // exist, and one is a file that is not a program.
    fs::write(place.path().join("show.c"), "int main() { __asm__ volatile(\".byte 0x0f, 0x05\"); return 0; }").unwrap();
    gcc(&["-o", "calls"]);
    let seen = check("./calls");
    let wanted = if cfg!(target_arch = "x86_64") { "go past the library" } else { "preload" };
    assert!(seen.code == 0 && seen.out.contains(wanted), "{}{}", seen.out, seen.err);
    let seen = check("./missing");
    assert!(seen.code == 127 && seen.err.contains("./missing is no program there"), "{}{}", seen.out, seen.err);
    fs::copy(place.path().join("show.c"), place.path().join("text")).unwrap();
    fs::set_permissions(place.path().join("text"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let seen = check("./text");
    assert!(seen.code == 1 && seen.out.contains(r#""door": "none""#), "{}{}", seen.out, seen.err);
}

/// A program whose first argument is the mode in which it opens the files. With `r` it reads the files, and with `w` or
/// `wb` it writes them. Unless the mode is `wb`, it then tries to write the first file again, and prints the result.
const EITHER: &str = r#"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
int main(int argc, char **argv) {
    char line[100];
    struct stat seen = {.st_mode = 0222};
    FILE *file;
    for (int n = 2; n < argc; n++) {
        if (!(file = fopen(argv[n], argv[1]))) return perror(argv[n]), 1;
        if (argv[1][0] == 'w') fprintf(file, "all of %s\n", argv[n]);
        else while (fgets(line, sizeof line, file)) fputs(line, stdout);
        fclose(file);
    }
    if (!strcmp(argv[1], "wb")) return 0;
    for (int n = 0; n < 600 && (seen.st_mode & 0222); n++) stat(argv[2], &seen), usleep(100000);
    file = fopen(argv[2], "w");
    puts(file ? "written again" : errno == EROFS ? "EROFS" : errno == EACCES ? "EACCES" : strerror(errno));
    return 0;
}
"#;

#[test]
fn programs_of_musl_and_with_address_sanitizer_produce_and_consume_in_every_engine() {
    // Three kinds of programs that cannot start with the preload library: programs for musl, static programs, and
    // programs with AddressSanitizer.
    let kinds = [
        ("musl", "musl-gcc", &["-O1"][..], "is started by musl's loader"),
        ("bare", "musl-gcc", &["-O1", "-static"], "is static"),
        ("asan", "gcc", &["-O1", "-fsanitize=address"], "is built with AddressSanitizer"),
    ];
    let is_root = crossdock_os::child::user() == 0;
    for engine in containers() {
        // Under charliecloud, root keeps every right, so the producer could write the published file. With the mode
        // `wb` the producer does not try to.
        let may_write = is_root && engine == "charliecloud";
        let mode = if may_write { "wb" } else { "w" };
        let names = |side: &str| kinds.map(|(kind, ..)| format!("{side}-{kind}")).join(", ");
        let paths = kinds.map(|(kind, ..)| format!("/f/{kind}")).join(", ");
        let task = |name: String, words: String| {
            format!("  {name}: {{command: [{words}], workdir: /tools, mounts: [{{host: tools, task: /tools}}]}}\n")
        };
        let tasks = kinds.map(|(kind, ..)| {
            task(format!("write-{kind}"), format!("./{kind}, {mode}, /f/{kind}"))
                + &task(format!("read-{kind}"), format!("./{kind}, r, {paths}"))
        });
        let place = Place::new(&format!(
            "workflow: w\nfiles: {{f: {{path: /f, produce: [{}], consume: [{}], wait: 60}}}}\ntasks:\n{}",
            names("write"),
            names("read"),
            tasks.join("")
        ));
        let tools = place.path().join("tools");
        fs::create_dir(&tools).unwrap();
        fs::write(tools.join("either.c"), EITHER).unwrap();
        for (kind, compiler, flags, _) in kinds {
            let mut made = std::process::Command::new(compiler);
            let made = made.current_dir(&tools).args(flags).args(["-o", kind, "either.c"]).status();
            let Ok(made) = made else { return crossdock_os::testing::skip("musl") };
            assert!(made.success(), "{compiler} cannot make {kind}");
        }
        let run = place.run(engine, &[]);
        assert_eq!(run.code, 0, "{engine}\n{}\n{}", run.err, run.out);
        for (kind, _, _, why) in kinds {
            let log = place.log(&format!("read-{kind}"));
            // The lines of the program and the lines of the program's door may come in any order.
            let own: Vec<&str> = log.lines().filter(|line| !line.starts_with("crossdock: ")).collect();
            assert_eq!(own, ["all of /f/musl", "all of /f/bare", "all of /f/asan", "EROFS"], "{engine}, {kind}: {log}");
            let refused = "crossdock: /f/musl cannot be opened for writing: this task only reads the files of /f";
            assert!(log.contains(refused), "{engine}, {kind}: {log}");
            assert!(run.err.contains(why), "{engine}: no {why:?} in {}", run.err);
            let log = place.log(&format!("write-{kind}"));
            if !may_write {
                let words =
                    ["EACCES\n", &format!("crossdock: /f/{kind} cannot be opened for writing: it was published ")];
                assert!(words.iter().all(|words| log.contains(words)), "{engine}, {kind}: {log}");
            }
        }
        place.assert_nothing_left(engine);
    }
}

#[test]
fn a_full_quota_is_enospc_for_the_producer_and_a_story_in_its_log_and_the_cut_file_is_never_seen() {
    // The producer waits until its first file has a second link, because that shows that the file is published. Later,
    // before it removes a file to free memory, the producer waits until the test has seen the full directory in the
    // list.
    let is_root = crossdock_os::child::user() == 0;
    // The service of docker may have mounts of its own, and so may not see the mounts of the run.
    for engine in containers().into_iter().filter(|engine| *engine != "docker") {
        let place = Place::new(
            r#"
workflow: w
files:
  frames: {path: /f, produce: writes, consume: reads, quota: 8 MiB, wait: 30}
tasks:
  writes:
    command: 'echo whole > /f/first; until [ "$(stat -c %h /f/first)" = 2 ]; do sleep 0.1; done; head -c 4000000 /dev/zero > /f/freed; dd if=/dev/zero of=/f/big bs=1M count=32 2>&1; echo code $?; n=0; until [ -e /go/looked ] || [ $n = 600 ]; do sleep 0.1; n=$((n+1)); done; rm /f/freed'
    mounts: [{host: go, task: /go}]
  reads: {command: 'cat /f/first; cat /f/big | wc -c'}
"#,
        );
        fs::create_dir(place.path().join("go")).unwrap();
        let child = place.start(engine, &["--json"]);
        if is_root {
            let mut seen = String::new();
            common::until("the list to show the full directory", || {
                seen = finish(place.command(&["ls", "--files"]).spawn().unwrap()).out;
                let is_cut = |line: &str| line.starts_with("big ") && line.contains("beyond quota");
                seen.contains("no room left: writing fails with ENOSPC") && seen.lines().any(is_cut)
            });
            assert!(seen.contains("quota 8 MiB: 8 MiB used"), "{engine}: {seen}");
            let words = "closed while no room was left, so its end may be missing; write it again";
            assert!(seen.contains(words), "{engine}: {seen}");
            let json = finish(place.command(&["ls", "--files", "-o", "json"]).spawn().unwrap()).out;
            assert!(json.contains(words) && json.contains("\"full\": true"), "{engine}: {json}");
            fs::write(place.path().join("go/looked"), "").unwrap();
        }
        let run = finish(child);
        if !is_root {
            assert!(run.code != 0 && run.err.contains("only root may limit memory so"), "{engine}\n{}", run.err);
            continue;
        }
        assert_eq!(run.code, 0, "{engine}\n{}\n{}", run.err, run.out);
        let log = place.log("writes");
        for words in
            ["No space left on device", "code 1", "/f: big was not published: the directory's quota was used up"]
        {
            assert!(log.contains(words), "{engine}: no {words:?} in {log}");
        }
        let log = place.log("reads");
        assert!(
            log.contains("whole\n") && log.contains("big will not come") && log.ends_with("\n0\n"),
            "{engine}: {log}"
        );
        assert_eq!(stores(&id_of(&run)), Vec::<String>::new(), "{engine}");
        assert!(!fs::read_to_string("/proc/self/mounts").unwrap().contains(&id_of(&run)), "{engine}");
        place.assert_nothing_left(engine);
    }
}

#[test]
fn ls_shows_every_file_with_its_state_and_who_writes_reads_and_awaits_it() {
    for engine in containers() {
        let place = Place::new(
            r#"
workflow: w
files:
  frames: {path: /f, produce: writes, consume: [reads, waits, told], keep: consumed}
tasks:
  writes: {command: 'echo whole > /f/done; exec 3> /f/open; echo half >&3; echo x > /f/.hidden; echo ready; exec sleep MARK'}
  reads: {command: 'exec 3< /f/done; echo ready; exec sleep MARK'}
  waits: {command: 'exec cat /f/sub/never'}
  told: {door: notification, command: 'exec cat /f/never'}
"#,
        );
        let child = place.start(engine, &[]);
        place.await_log("writes", "ready");
        place.await_log("reads", "ready");
        let wanted = [
            ("done", "published", "reads ("),
            ("open", "written", "writes ("),
            (".hidden", "unpublished", "-"),
            ("sub/never", "awaited", "waits ("),
            ("never", "awaited", "told ("),
        ];
        let mut seen = String::new();
        common::until("the list to be whole", || {
            seen = finish(place.command(&["ls", "--files"]).spawn().unwrap()).out;
            let line = |name: &str| seen.lines().find(|line| line.split_whitespace().next() == Some(name));
            wanted.iter().all(|(name, state, user)| line(name).is_some_and(|l| l.contains(state) && l.contains(user)))
        });
        assert!(seen.contains("frames at /f (publish close, keep consumed): writes runs, 1 published"), "{seen}");
        let words = ["ls", "--files", "-o", "yaml", "-w", "--times", "2", "--every", "10ms"];
        let followed = finish(place.command(&words).spawn().unwrap()).out;
        assert_eq!(followed.matches("name: \"frames\"").count(), 2, "{followed}");
        signal(child.id(), Signal::TERM);
        finish(child);
        place.assert_nothing_left(engine);
    }
}

#[test]
fn a_published_file_is_final_for_a_producer_that_is_root_too() {
    // The producer waits until its file is read-only. Waiting for a second link would not suffice, because the service
    // makes the link before it makes the file read-only. A file that is written between these two steps is published
    // later, with its new text. Charliecloud cannot make a file read-only for root (docs/files.md), so the test leaves
    // charliecloud out for root.
    let is_root = crossdock_os::child::user() == 0;
    for engine in containers().into_iter().filter(|engine| !is_root || *engine != "charliecloud") {
        let place = Place::new(
            r#"
workflow: w
files:
  frames: {path: /f, produce: writes, consume: reads, wait: 60}
tasks:
  writes:
    command: 'echo first > /f/a; for n in $(seq 600); do [ "$(stat -c %a /f/a)" != 444 ] || break; sleep 0.1; done; (echo second > /f/a) 2>&1 || echo refused'
  reads: {command: 'cat /f/a; cat /f/b; cat /f/a'}
"#,
        );
        let run = place.run(engine, &[]);
        assert!(place.log("writes").contains("refused"), "{engine}: {}\n{}", place.log("writes"), run.err);
        let log = place.log("reads");
        // docker carries output and errors separately, so their order in the log may differ from the task's order.
        let read: Vec<_> = log.lines().filter(|line| !line.contains("/f/b")).collect();
        assert_eq!(read, ["first", "first"], "{engine}: {log}");
    }
}

#[test]
fn a_refused_change_is_explained_in_the_log_of_its_task_and_counted_in_the_list() {
    // Under charliecloud, root keeps every right, so the producer can write the published file. In that case the test
    // does not look for refusals of the producer.
    let is_root = crossdock_os::child::user() == 0;
    for engine in containers() {
        let place = Place::new(
            r#"
workflow: w
files:
  frames: {path: /f, produce: writes, consume: [reads, told], wait: 600}
tasks:
  writes:
    command: 'echo first > /f/a; until [ "$(stat -c %a /f/a)" = 444 ]; do sleep 0.1; done; for n in 1 2 3; do (echo second > /f/a) || true; done; echo tried; exec sleep MARK'
  reads: {command: 'cat /f/a; (echo x > /f/a) || true; rm -f /f/a || true; mv /f/a /f/b || true; echo tried; exec sleep MARK'}
  told: {door: notification, command: 'cat /f/a; (echo x > /f/a) || true; mv /f/a /f/b || true; mkdir /f/a || true; mkdir /f/new || true; echo tried; exec sleep MARK'}
"#,
        );
        let child = place.start(engine, &[]);
        ["writes", "reads", "told"].into_iter().for_each(|task| place.await_log(task, "tried"));
        let consumer = ["reads 3 a EROFS", "told 3 new EROFS"];
        let producer = ["writes 3 a EACCES"];
        let may_write = is_root && engine == "charliecloud";
        let wanted = consumer.iter().chain(producer.iter().filter(|_| !may_write));
        let mut seen = String::new();
        common::until("the list of refusals", || {
            seen = finish(place.command(&["ls", "--files"]).spawn().unwrap()).out;
            wanted.clone().all(|row| {
                let words: Vec<&str> = row.split(' ').collect();
                let fits = |line: &str| {
                    let found: Vec<&str> = line.split_whitespace().collect();
                    found.get(..3) == Some(&words[..3]) && found.contains(&words[3]) && line.contains(" ago ")
                };
                seen.lines().any(fits)
            })
        });
        assert!(
            seen.lines().any(|line| line.starts_with("REFUSED ") && line.contains("LAST FILE")),
            "{engine}: {seen}"
        );
        let json = finish(place.command(&["ls", "--files", "-o", "json"]).spawn().unwrap()).out;
        assert!(json.contains("\"role\": \"consumer\"") && json.contains("\"times\": 3"), "{engine}: {json}");
        let explains = |task: &str, what: &str| {
            let log = place.log(task);
            assert!(log.contains(what), "{engine}: no {what:?} in {log}");
        };
        let reads = "this task only reads the files of /f (written by writes); hint: ";
        explains("reads", &format!("crossdock: /f/a cannot be opened for writing: {reads}"));
        explains("reads", &format!("crossdock: /f/a cannot be removed: {reads}"));
        explains("reads", &format!("crossdock: /f/a cannot be renamed: {reads}"));
        explains("told", &format!("crossdock: /f/new cannot be made: {reads}"));
        if !may_write {
            explains("writes", "crossdock: /f/a cannot be opened for writing: it was published ");
            explains("writes", "hint: write a new name, or write `.a` and rename it to `a`");
        }
        signal(child.id(), Signal::TERM);
        finish(child);
        place.assert_nothing_left(engine);
    }
}

/// Lists the mounts whose line contains the text `of`.
fn mounts(of: &str) -> Vec<String> {
    let all = fs::read_to_string("/proc/self/mounts").unwrap();
    all.lines().filter(|line| line.contains(of)).map(str::to_owned).collect()
}

#[test]
fn a_task_and_tools_of_the_host_wait_by_a_view() {
    let is_root = crossdock_os::child::user() == 0;
    // The service of docker may have mounts of its own, and so may not see the mounts of the run.
    for engine in containers().into_iter().filter(|engine| *engine != "docker") {
        let place = Place::new(
            r#"
workflow: w
files:
  frames: {path: /f, produce: writes, consume: [reads, told], host: view, wait: 60}
tasks:
  writes:
    mounts: [{host: go, task: /go}]
    command: 'echo one > /f/1; until [ -e /go/now ]; do sleep 0.1; done; mkdir /f/sub; echo two > /f/sub/2; echo three > /f/3'
  reads: {door: view, command: 'cat /f/1; cat /f/3; cat /f/sub/2; touch /f/x 2>&1 | grep -o "Read-only"; ls /f; cat /f/never 2>/dev/null; sleep 1'}
  told: {command: 'cat /f/3'}
"#,
        );
        fs::create_dir(place.path().join("go")).unwrap();
        if !is_root {
            let run = place.run(engine, &[]);
            assert!(run.code != 0 && run.err.contains("only root may mount a view"), "{engine}\n{}", run.err);
            continue;
        }
        let child = place.start(engine, &["--json"]);
        let view = place.path().join("view");
        common::until("the view to show a file", || fs::read(view.join("1")).is_ok_and(|text| text == b"one\n"));
        let mut waits = std::process::Command::new("cat");
        let mut output = waits.arg(view.join("3")).stdout(std::process::Stdio::piped()).spawn().unwrap();
        let mut vain = std::process::Command::new("cat");
        let mut vain = vain.arg(view.join("never")).stderr(std::process::Stdio::null()).spawn().unwrap();
        fs::write(place.path().join("go/now"), "").unwrap();
        let mut text = String::new();
        std::io::Read::read_to_string(&mut output.stdout.take().unwrap(), &mut text).unwrap();
        assert!(output.wait().unwrap().success());
        assert_eq!(text, "three\n", "{engine}");
        let run = finish(child);
        assert_eq!(run.code, 0, "{engine}\n{}\n{}", run.err, run.out);
        assert!(!vain.wait().unwrap().success(), "{engine}");
        let log = place.log("reads");
        let (messages, own): (Vec<&str>, Vec<&str>) = log.lines().partition(|line| line.starts_with("crossdock: "));
        assert_eq!(own, ["one", "three", "two", "Read-only", "1", "3", "sub"], "{engine}");
        let wanted =
            ["/f/x cannot be opened for writing: this task only reads", "/f/never will not come: writes ended"];
        assert!(wanted.iter().all(|words| messages.iter().any(|line| line.contains(words))), "{engine}: {messages:?}");
        let wanted = format!("waited in vain: {}/never will not come: writes ended", view.display());
        let log = place.log("writes");
        assert!(log.contains("crossdock: cat (process ") && log.contains(&wanted), "{engine}: {log}");
        assert_eq!(place.log("told"), "three\n", "{engine}");
        assert!(!view.exists(), "{engine}: the view's folder is left");
        assert_eq!(mounts(&id_of(&run)), Vec::<String>::new(), "{engine}");
        place.assert_nothing_left(engine);
    }
}

#[test]
fn a_killed_run_leaves_no_mount_of_a_view() {
    if crossdock_os::child::user() != 0 {
        return crossdock_os::testing::skip("fuse");
    }
    let Some(engine) = containers().into_iter().find(|engine| *engine == "bubblewrap") else {
        return crossdock_os::testing::skip("bubblewrap");
    };
    let place = Place::new(
        "workflow: viewed\nfiles: {f: {path: /f, produce: writes, consume: waits, host: view}}\ntasks:\n  \
         writes: {command: 'echo ready > /f/a; exec sleep MARK'}\n  waits: {door: view, command: 'exec cat /f/never'}\n",
    );
    let child = place.start(engine, &[]);
    let view = place.path().join("view");
    common::until("the view", || fs::read(view.join("a")).is_ok_and(|text| text == b"ready\n"));
    let all = fs::read_to_string("/proc/self/mounts").unwrap();
    let own: Vec<&str> = all.lines().filter(|line| line.contains("/crossdock-files-viewed-")).collect();
    assert!(!own.is_empty(), "{all}");
    signal(place.supervisor(&child), Signal::KILL);
    signal(child.id(), Signal::KILL);
    let _ = finish(child);
    common::until("the mounts to go", || {
        mounts(&view.display().to_string()).is_empty() && mounts("/crossdock-files-viewed-").is_empty()
    });
    // The next run can start only if the killed run has left no mount. The killed supervisor may hold the lock of its
    // run for a moment after the run's mounts are gone. A run that starts in this moment does not remove the killed
    // run's store, but a later run does. So the test starts several runs.
    for _ in 0..5 {
        let run = finish(place.start(engine, &["--deadline", "1"]));
        assert!(run.err.contains("writes    · started"), "{}", run.err);
        if stores("viewed-").is_empty() {
            break;
        }
    }
    common::until("the store to be removed", || stores("viewed-").is_empty());
    place.assert_nothing_left(engine);
}

#[test]
fn files_move_to_a_disk_and_consumers_do_not_notice() {
    if crossdock_os::child::user() != 0 {
        return crossdock_os::testing::skip("fuse");
    }
    // The producer waits for room before each file, because a busy machine may move files slowly. The service of docker
    // may have mounts of its own, and so may not see the run's store in memory and the run's views. So docker is left
    // out.
    for engine in containers().into_iter().filter(|engine| *engine != "docker") {
        let place = Place::new(
            r#"
workflow: w
files:
  frames: {path: /f, produce: writes, consume: [reads, late], quota: 8 MiB, spill: disk, wait: 60}
tasks:
  writes:
    command: 'for n in $(seq 20); do until [ $(df --output=avail /f | tail -1) -gt 1500 ]; do sleep 0.05; done; head -c 1000000 /dev/zero | tr "\0" x > /f/$n; done'
  reads: {command: 'for n in $(seq 20); do tr -d x < /f/$n | wc -c; wc -c < /f/$n; done'}
  late: {command: 'cat /f/20 > /dev/null; for n in $(seq 20); do wc -c < /f/$n; done; ls /f | wc -l; cat /f/21 || true'}
"#,
        );
        fs::create_dir(place.path().join("disk")).unwrap();
        let run = place.run(engine, &["--json"]);
        assert_eq!(run.code, 0, "{engine}\n{}\n{}", run.err, run.out);
        let late = place.log("late");
        assert_eq!(place.log("reads"), "0\n1000000\n".repeat(20), "{engine}\n{}\n{}", run.err, run.out);
        assert!(late.starts_with(&format!("{}20\n", "1000000\n".repeat(20))), "{engine}: {late}");
        assert!(late.contains("No such file"), "{engine}: {late}");
        let spilled = run.out.split("\"spilled\": ").nth(1).and_then(|rest| rest.split([',', '\n']).next());
        let spilled: u32 = spilled.unwrap().trim().parse().unwrap();
        assert!(spilled >= 10, "{engine}: {spilled} files were moved");
        assert_eq!(fs::read_dir(place.path().join("disk")).unwrap().count(), 0, "{engine}: the disk has files left");
        assert_eq!(mounts(&id_of(&run)), Vec::<String>::new(), "{engine}");
        place.assert_nothing_left(engine);
    }
}

#[test]
fn what_a_task_puts_in_the_place_of_its_store_stays_as_it_is_and_the_run_says_so() {
    let Some(engine) = containers().into_iter().find(|engine| *engine == "bubblewrap") else {
        return crossdock_os::testing::skip("bubblewrap");
    };
    let place = Place::new(
        r#"
workflow: swapped
files:
  f: {path: /f, produce: p, consume: c, store: scratch}
tasks:
  p:
    mounts: [{host: ., task: /w, write: true}]
    command: 'echo x > /f/a; cd /w/scratch; for s in crossdock-files-*; do mv $s ../moved && ln -s ../outside $s; done # MARK'
  c: {after: p, command: 'true'}
"#,
    );
    let at = |name: &str| place.path().join(name);
    fs::create_dir_all(at("outside/0")).unwrap();
    fs::create_dir(at("scratch")).unwrap();
    fs::write(at("outside/0/file"), "x").unwrap();
    let run = place.run(engine, &[]);
    assert!(run.err.contains("it is not the folder that the run made"), "{}\n{}", run.err, run.out);
    assert!(at("outside/0/file").exists() && at("moved").exists(), "{}", run.err);
    let links: Vec<_> = fs::read_dir(at("scratch")).unwrap().flatten().map(|e| e.path()).collect();
    assert_eq!(links.len(), 1, "{links:?}");
    // A later run removes the rest of this run when the link is gone.
    fs::remove_file(&links[0]).unwrap();
    fs::write(at("workflow.yaml"), "workflow: w\ntasks:\n  a: {command: 'true'}\n").unwrap();
    let run = place.run(engine, &[]);
    assert_eq!(run.code, 0, "{}", run.err);
    place.assert_nothing_left(engine);
}

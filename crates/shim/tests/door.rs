//! Tests that a program without a dynamic loader waits for files by seccomp notification.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crossdock_core::files::{VARIABLE, Views, WATCHED, Watched};
use crossdock_files::{Keep, Publish, Service};
use crossdock_layout::files::Phase;
use crossdock_layout::refusal;
use crossdock_os::testing::until;
use crossdock_os::{datagram, spawn};
use crossdock_shim::program::{self, Door, Linkage};

/// How long the producer waits before it publishes.
const LATE: Duration = Duration::from_millis(150);
/// A time that is longer than any step of these tests takes.
const LONG: Duration = Duration::from_secs(60);

/// Compiles the test program at the first call. The program is removed with the target folder.
fn probe() -> &'static Path {
    static PROBE: OnceLock<PathBuf> = OnceLock::new();
    PROBE.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/door/probe.c");
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("door-probe");
        let made_as = program.with_extension(std::process::id().to_string());
        let words = ["-static", "-pthread", "-O1", "-o"];
        let made = Command::new("gcc").args(words).arg(&made_as).arg(&source).status().expect("gcc is there");
        assert!(made.success(), "gcc cannot make {}", program.display());
        fs::rename(&made_as, &program).unwrap();
        program
    })
}

struct Fixture {
    root: PathBuf,
    service: Option<Service>,
    deadline: Duration,
}

impl Fixture {
    fn new(name: &str) -> Self {
        let root = PathBuf::from(format!("/dev/shm/crossdock-door-{name}-{}", std::process::id()));
        let service =
            Service::start(&root, &root.with_extension("notice"), "simulate", Publish::Close, Keep::All).unwrap();
        service.producers(Phase::Producing);
        Self { root, service: Some(service), deadline: LONG }
    }

    fn published(&self, name: &str) -> String {
        self.root.join("published").join(name).to_str().unwrap().to_owned()
    }

    fn publish(&self, name: &str, content: &[u8]) {
        fs::write(self.root.join("stage").join(name), content).unwrap();
    }

    fn start(&self, words: &[&str]) -> Child {
        self.start_program(probe(), words)
    }

    fn start_program(&self, program: &Path, words: &[&str]) -> Child {
        let notice = self.root.with_extension("notice");
        let line = Views::line(&self.published(""), notice.to_str().unwrap(), self.deadline, &[]);
        let mut command = Command::new(env!("CARGO_BIN_EXE_crossdock-shim"));
        command.args(["door", "auto", "/no/preload.so", "--"]).arg(program).args(words).env(VARIABLE, line);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    fn run(&self, words: &[&str]) -> Output {
        self.start(words).wait_with_output().unwrap()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.service = None;
        fs::remove_dir_all(&self.root).unwrap();
        fs::remove_file(self.root.with_extension("notice")).unwrap();
    }
}

/// Gives the first child of a process.
fn child_of(of: u32) -> Option<u32> {
    let text = fs::read_to_string(format!("/proc/{of}/task/{of}/children")).unwrap_or_default();
    text.split_whitespace().next()?.parse().ok()
}

/// Waits until the program behind the door runs. Returns the process ids of the server and of the program that the
/// guard `guard` has started.
fn behind(guard: &Child) -> (i32, i32) {
    let mut found = (0, 0);
    until("the program", || {
        let Some(server) = child_of(guard.id()) else { return false };
        let Some(program) = child_of(server) else { return false };
        found = (server as i32, program as i32);
        fs::read_link(format!("/proc/{program}/exe")).is_ok_and(|exe| exe == probe())
    });
    found
}

#[test]
fn a_static_program_waits_by_every_call_that_takes_a_name() {
    let seen = program::look(Path::new("/"), "/", "", probe().to_str().unwrap()).unwrap();
    assert_eq!((&seen.kind, seen.door()), (&Linkage::Static, Some(Door::Notification)));
    let fixture = Fixture::new("calls");
    let content: Vec<u8> = (0..50_000u32).flat_map(|n| format!("{n}\n").into_bytes()).collect();
    for what in ["open", "fopen", "stat", "access", "relative", "openat", "openat2", "child", "restarted"] {
        let began = Instant::now();
        let child = fixture.start(&[what, &fixture.published(what)]);
        std::thread::sleep(LATE);
        fixture.publish(what, &content);
        let output = child.wait_with_output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{what}: {:?} {errors}", output.status);
        assert!(output.stdout == content, "{what}: {} bytes; {errors}", output.stdout.len());
        assert!(began.elapsed() >= LATE, "{what} did not wait");
        // The file is published now, so the call does not wait.
        assert!(fixture.run(&[what, &fixture.published(what)]).stdout == content, "{what}, published");
    }
}

#[test]
fn a_wait_that_ends_badly_gives_the_usual_errno_and_the_whole_story() {
    let mut fixture = Fixture::new("story");
    fixture.deadline = Duration::from_millis(300);
    let never = fixture.published("never");
    for what in ["open", "restarted"] {
        let output = fixture.run(&[what, &never]);
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "ETIMEDOUT", "{what}");
        let story = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(story.contains("never was not published within 0.3 s: simulate still runs"), "{what}: {story}");
    }
    fixture.deadline = LONG;
    assert_eq!(fixture.run(&["interrupted", &never]).stdout, b"EINTR\n");
    // `create` opens a file with O_CREAT. It must fail immediately and not wait, because the folder for the new file
    // does not exist.
    assert_eq!(fixture.run(&["create", &fixture.published("no-folder/x")]).stdout, b"ENOENT\n");
    assert_eq!(fixture.run(&["open", "/nowhere/x"]).stdout, b"ENOENT\n");
    assert_eq!(fixture.run(&["open", &fixture.published(".hidden")]).stdout, b"ENOENT\n");
    assert_eq!(fixture.run(&["ring", "-"]).stdout, b"ENOSYS\n");
    fixture.service.as_ref().unwrap().producers(Phase::Ended);
    let output = fixture.run(&["open", &never]);
    assert_eq!(output.stdout, b"ENOENT\n");
    assert!(String::from_utf8_lossy(&output.stderr).contains("simulate ended in order"), "{output:?}");
}

#[test]
fn an_open_for_writing_gives_a_consumer_erofs_and_the_reason_in_its_log() {
    let fixture = Fixture::new("refused");
    fixture.publish("a", b"whole");
    let (file, none) = (fixture.published("a"), fixture.published("b"));
    until("the file", || Path::new(&file).exists());
    // In this test the folder is not mounted read-only, so the kernel itself would let root write. The door must refuse
    // the call.
    let refused = ["create", "write", "append", "creat", "write2"].map(|what| (what, &file));
    for (what, path) in refused.into_iter().chain([("create", &none), ("creat", &none), ("anew", &none)]) {
        let output = fixture.run(&[what, path]);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "EROFS\n", "{what} {path}");
        let folder = fixture.published("");
        let wanted = format!(
            "crossdock: {path} cannot be opened for writing: this task only reads the files of {} (written by simulate); \
             hint: open it for reading only, or write to another folder\n",
            folder.trim_end_matches('/')
        );
        assert_eq!(String::from_utf8_lossy(&output.stderr), wanted, "{what} {path}");
    }
    assert_eq!((fs::read(&file).unwrap(), Path::new(&none).exists()), (b"whole".to_vec(), false));
    let other = fixture.root.with_extension("other");
    for (what, path, wanted) in [
        ("anew", file.as_str(), "EEXIST\n"),
        ("write", none.as_str(), "ENOENT\n"),
        ("write2", none.as_str(), "ENOENT\n"),
        ("write", &fixture.published("."), "EISDIR\n"),
        ("creat", other.to_str().unwrap(), ""),
    ] {
        let output = fixture.run(&[what, path]);
        let said = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!((&*said.0, &*said.1), (wanted, ""), "{what} {path}");
    }
    fs::remove_file(other).unwrap();
}

#[test]
fn a_change_of_a_name_gives_a_consumer_erofs_and_the_reason_in_its_log() {
    let fixture = Fixture::new("changes");
    fixture.publish("a", b"whole");
    let (file, none) = (fixture.published("a"), fixture.published("b"));
    until("the file", || Path::new(&file).exists());
    for (what, path, word) in [
        ("truncate", &file, "opened for writing"),
        ("unlink", &file, "removed"),
        ("rename", &file, "renamed"),
        ("mkdir", &none, "made"),
        ("symlink", &none, "made"),
    ] {
        let output = fixture.run(&[what, path]);
        let said = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let wanted = format!("crossdock: {path} cannot be {word}: this task only reads the files of ");
        assert!(said.0 == "EROFS\n" && said.1.starts_with(&wanted) && said.1.lines().count() == 1, "{what}: {said:?}");
    }
    assert_eq!((fs::read(&file).unwrap(), Path::new(&none).exists()), (b"whole".to_vec(), false));
    // After a failed rename, a program may look up the new name. This lookup must not wait.
    let began = Instant::now();
    assert_eq!(fixture.run(&["look", &file]).stdout, b"whole");
    assert!(began.elapsed() < Duration::from_secs(10));
    // The kernel's own errors must reach the program, also EXDEV, which makes `mv` copy a file.
    for (what, path, wanted) in [
        ("mkdir", file.as_str(), "EEXIST\n"),
        ("unlink", &none, "ENOENT\n"),
        ("rename", &none, "ENOENT\n"),
        ("move", &file, "EXDEV\n"),
        ("mkdir", &format!("{none}/c"), "ENOENT\n"),
    ] {
        let output = fixture.run(&[what, path]);
        let said = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!((&*said.0, &*said.1), (wanted, ""), "{what} {path}");
    }
}

#[test]
fn a_producer_learns_why_it_cannot_write_a_published_file_and_all_else_is_as_without_the_door() {
    use std::os::unix::process::CommandExt;
    let fixture = Fixture::new("producer");
    fixture.publish("a", b"whole");
    until("the file", || Path::new(&fixture.published("a")).exists());
    let stage = fixture.root.join("stage");
    let socket = datagram::receiver(&fixture.root, "refusals").unwrap();
    let watched = Watched::line(stage.to_str().unwrap(), &fixture.root.join("refusals"), None);
    let run = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_crossdock-shim"));
        command.args(["door", "watch", "/no/preload.so", "--"]).arg(probe()).args(words).env(WATCHED, &watched);
        if crossdock_os::child::user() == 0 {
            // Root may write every file, so the program runs as another user.
            command.uid(65534).gid(65534);
        }
        command.stdin(Stdio::null()).output().unwrap()
    };
    let file = stage.join("a").to_str().unwrap().to_owned();
    let refused = ["create", "write", "append", "creat", "write2", "truncate"];
    for what in refused {
        let output = run(&[what, &file]);
        let said = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let wanted = format!("crossdock: {file} cannot be opened for writing: it was published ");
        assert!(said.0 == "EACCES\n" && said.1.starts_with(&wanted) && said.1.lines().count() == 1, "{what}: {said:?}");
    }
    let mut message = [0; refusal::MESSAGE_BYTES];
    let mut reported = 0;
    while let Some(length) = datagram::receive(&socket, &mut message).unwrap() {
        let (count, path) = refusal::read(&message[..length]).unwrap();
        assert_eq!((count.unchecked_for_display(), path), (1, file.as_bytes()));
        reported += 1;
    }
    assert_eq!(reported, refused.len());
    let new = stage.join("b").to_str().unwrap().to_owned();
    for (what, path, wanted) in [
        ("open", &file, "whole"),
        ("anew", &file, "EEXIST\n"),
        ("write", &new, "ENOENT\n"),
        ("creat", &new, ""),
        ("open", &new, ""),
        ("rename", &file, ""),
    ] {
        let output = run(&[what, path]);
        let said = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!((&*said.0, &*said.1), (wanted, ""), "{what} {path}");
    }
    // The program may make an io_uring, because a producer waits for no file and so has no wait that io_uring could
    // bypass.
    assert_ne!(run(&["ring", "-"]).stdout, b"ENOSYS\n");
    assert_eq!(run(&["abort", "-"]).status.code(), Some(128 + 6));
}

#[test]
fn a_program_of_musl_waits() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (source, program) = (folder.join("door-musl.c"), folder.join("door-musl"));
    let text = "#include <stdio.h>\nint main(int n, char **words) {\n\
                FILE *file = fopen(words[n - 1], \"r\");\nint c;\nif (!file) return 1;\n\
                while ((c = getc(file)) != EOF) putchar(c);\nreturn 0;\n}\n";
    fs::write(&source, text).unwrap();
    let made = Command::new("musl-gcc").args(["-O1", "-o"]).arg(&program).arg(&source).status();
    let Ok(made) = made else { return crossdock_os::testing::skip("musl") };
    assert!(made.success(), "musl-gcc cannot make {}", program.display());
    let seen = program::look(Path::new("/"), "/", "", program.to_str().unwrap()).unwrap();
    assert!(matches!(seen.kind, Linkage::Dynamic { .. }) && seen.door() == Some(Door::Notification), "{seen:?}");
    let fixture = Fixture::new("musl");
    let child = fixture.start_program(&program, &[&fixture.published("late")]);
    std::thread::sleep(LATE);
    fixture.publish("late", b"all of it");
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(0), &b"all of it"[..]), "{output:?}");
}

#[test]
fn goroutines_wait_while_the_runtime_of_go_stops_others_by_signals() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/door/preempted.go");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let program = folder.join("door-go");
    let path = format!("{}:/usr/local/go/bin", std::env::var("PATH").unwrap());
    let mut go = Command::new("env");
    go.arg(format!("PATH={path}")).arg("go").args(["build", "-o"]).arg(&program).arg(&source);
    go.env("CGO_ENABLED", "0").env("GO111MODULE", "off").env("GOCACHE", folder.join("door-go-cache"));
    let made = go.stderr(Stdio::piped()).output().unwrap();
    if made.status.code() == Some(127) {
        return crossdock_os::testing::skip("go");
    }
    assert!(made.status.success(), "{made:?}");
    let seen = program::look(Path::new("/"), "/", "", program.to_str().unwrap()).unwrap();
    assert!(seen.is_go && seen.door() == Some(Door::Notification), "{seen:?}");
    let fixture = Fixture::new("go");
    let child = fixture.start_program(&program, &[fixture.published("").trim_end_matches('/'), "32"]);
    std::thread::sleep(LATE);
    for number in (0..32).rev() {
        fixture.publish(&number.to_string(), &vec![1; 1000 + number]);
        std::thread::sleep(Duration::from_millis(10));
    }
    let output = child.wait_with_output().unwrap();
    let wanted = (0..32).map(|n| 1000 + n).sum::<usize>().to_string();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), wanted, "{output:?}");
}

#[test]
fn many_threads_wait_at_once() {
    let fixture = Fixture::new("threads");
    let child = fixture.start(&["threads", &fixture.published("")]);
    std::thread::sleep(LATE);
    for number in (0..64).rev() {
        fixture.publish(&number.to_string(), &vec![1; 1000 + number]);
    }
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), (0..64).map(|n| 1000 + n).sum::<usize>().to_string());
}

#[test]
fn the_ends_of_programs_and_signals_to_them_pass_through() {
    let fixture = Fixture::new("ends");
    assert_eq!(fixture.run(&["nothing", "-"]).status.code(), Some(2));
    assert_eq!(fixture.run(&["abort", "-"]).status.code(), Some(128 + 6));
    let mut child = fixture.start(&["term", "-"]);
    let mut said = [0; 6];
    child.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
    spawn::signal_process(child.id() as i32, 15);
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(9), &b"asked\n"[..]));
}

/// The test starts a door inside a door. The inner door cannot install its filter, because a process has at most one
/// filter with a listener. So the inner door runs its program without a filter.
#[test]
fn the_signal_that_ends_a_program_is_told_although_its_calls_are_not_stopped() {
    let shim = env!("CARGO_BIN_EXE_crossdock-shim");
    let mut command = Command::new(shim);
    command.args(["door", "notification", "/no/preload.so", "--", shim, "door", "watch", "/no/preload.so", "--"]);
    let output = command.args(["sh", "-c", "kill -TERM $$"]).stdin(Stdio::null()).output().unwrap();
    let log = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), &*log), (Some(128 + 15), ""));
}

#[test]
fn a_killed_server_ends_the_task_with_a_reason_and_nothing_hangs() {
    let fixture = Fixture::new("server");
    let never = fixture.published("never");
    let child = fixture.start(&["open", &never]);
    let (server, program) = behind(&child);
    spawn::signal_process(server, 9);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(71));
    let story = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(story.contains("the process that answers this task's opens") && story.contains("signal 9"), "{story}");
    until("the program's end", || !Path::new(&format!("/proc/{program}")).exists());
}

#[test]
fn a_killed_guard_takes_the_program_with_it_and_a_killed_program_leaves_nothing() {
    let fixture = Fixture::new("guard");
    for killed in 0..2 {
        let mut child = fixture.start(&["open", &fixture.published("never")]);
        let (server, program) = behind(&child);
        spawn::signal_process(if killed == 0 { child.id() as i32 } else { program }, 9);
        let status = child.wait().unwrap();
        if killed == 1 {
            assert_eq!(status.code(), Some(128 + 9));
        }
        for pid in [server, program] {
            until("their end", || !Path::new(&format!("/proc/{pid}")).exists());
        }
    }
}

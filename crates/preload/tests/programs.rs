//! Tests with real, unmodified programs: each opens a file before it exists, waits, and reads the whole file.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use crossdock_core::files::{VARIABLE, Views, WATCHED, Watched};
use crossdock_files::{Keep, Publish, Service};
use crossdock_layout::files::Phase;

/// How long the producer waits before it publishes.
const LATE: Duration = Duration::from_millis(150);

fn library() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let folder = tests.parent().unwrap();
    [folder, folder.parent().unwrap()]
        .iter()
        .map(|f| f.join("libcrossdock_preload.so"))
        .find(|f| f.exists())
        .expect("cargo builds the library before its tests")
}

struct Fixture {
    root: PathBuf,
    service: Option<Service>,
    deadline: Duration,
}

impl Fixture {
    fn new(name: &str) -> Self {
        let root = PathBuf::from(format!("/dev/shm/crossdock-preload-{name}-{}", std::process::id()));
        let service =
            Service::start(&root, &root.with_extension("notice"), "simulate", Publish::Close, Keep::All).unwrap();
        service.producers(Phase::Producing);
        Self { root, service: Some(service), deadline: Duration::from_secs(20) }
    }

    fn published(&self) -> PathBuf {
        self.root.join("published")
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(words[0]);
        let notice = self.root.with_extension("notice");
        let line = Views::line(self.published().to_str().unwrap(), notice.to_str().unwrap(), self.deadline, &[]);
        command.args(&words[1..]).env("LD_PRELOAD", library()).env(VARIABLE, line).current_dir(self.published());
        command
    }

    /// Starts a program that opens the file `name`. Publishes the file only some time later. Returns the program's
    /// output.
    fn late(&self, name: &str, content: &[u8], words: &[&str]) -> Output {
        let began = Instant::now();
        let mut command = self.command(words);
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        let child = command.spawn().unwrap_or_else(|e| panic!("{words:?}: {e}"));
        std::thread::sleep(LATE);
        fs::write(self.root.join("stage").join(name), content).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(began.elapsed() >= LATE, "{words:?} did not wait");
        assert!(output.status.success(), "{words:?}: {output:?}");
        output
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.service = None;
        fs::remove_dir_all(&self.root).unwrap();
        fs::remove_file(self.root.with_extension("notice")).unwrap();
    }
}

fn is_there(program: &str) -> bool {
    std::env::var("PATH").unwrap().split(':').any(|folder| Path::new(folder).join(program).exists())
}

/// The path leads through a folder that does not exist, so the kernel never finds the file, although the file is
/// published.
#[test]
fn a_path_through_a_missing_folder_is_not_found_and_keeps_no_program_busy() {
    let f = Fixture::new("detour");
    fs::write(f.root.join("stage/1.txt"), "x").unwrap();
    let began = Instant::now();
    while !f.published().join("1.txt").exists() {
        assert!(began.elapsed() < Duration::from_secs(20), "the file is not published");
    }
    let script = "for call in (open, os.stat, os.listdir):\n    try:\n        call('missing/../1.txt')\n    \
                  except FileNotFoundError:\n        print('none')";
    let mut child = f
        .command(&["timeout", "20", "python3", "-c", &format!("import os\n{script}")])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut text = String::new();
    std::io::Read::read_to_string(child.stdout.as_mut().unwrap(), &mut text).unwrap();
    assert!(child.wait().unwrap().success() && text == "none\nnone\nnone\n", "{text:?}");
}

#[test]
fn each_way_to_open_for_writing_gives_a_consumer_erofs_and_the_reason_in_its_log() {
    use std::os::unix::process::CommandExt;
    let fixture = Fixture::new("refused");
    fs::write(fixture.root.join("stage/a"), "whole").unwrap();
    let file = fixture.published().join("a");
    let end = Instant::now() + Duration::from_secs(20);
    while !file.exists() {
        assert!(Instant::now() < end, "the file was not published");
        std::thread::sleep(Duration::from_millis(5));
    }
    // The folder is not mounted read-only in this test. So the kernel's errno is EACCES, except for a process of root.
    let code = r#"
import ctypes, errno, os
libc = ctypes.CDLL(None, use_errno=True)
path = b"a"
def check(name, call, failed):
    ctypes.set_errno(0)
    answer = call()
    assert answer == failed, (name, answer)
    assert ctypes.get_errno() == errno.EROFS, (name, errno.errorcode.get(ctypes.get_errno()))
libc.fopen.restype = libc.fopen64.restype = libc.freopen.restype = ctypes.c_void_p
for flags in (os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_CREAT | os.O_TRUNC):
    for name in ("open", "open64"):
        check(name, lambda: getattr(libc, name)(path, flags, 0o600), -1)
    for name in ("openat", "openat64"):
        check(name, lambda: getattr(libc, name)(-100, path, flags, 0o600), -1)
for name in ("creat", "creat64"):
    check(name, lambda: getattr(libc, name)(path, 0o600), -1)
for mode in (b"w", b"a", b"r+", b"rb+"):
    for name in ("fopen", "fopen64"):
        check(name, lambda: getattr(libc, name)(path, mode), None)
stream = libc.fopen(b"/dev/null", b"r")
check("freopen", lambda: libc.freopen(path, b"r+", ctypes.c_void_p(stream)), None)
SYS_openat = {"x86_64": 257, "aarch64": 56}[os.uname().machine]
check("syscall", lambda: libc.syscall(SYS_openat, -100, path, os.O_RDWR, 0), -1)
assert open("a").read() == "whole"
try:
    os.open("/proc/version", os.O_WRONLY)
except PermissionError:
    print("other files keep their errno")
"#;
    let run = |code: &str| {
        let mut command = fixture.command(&["python3", "-c", code]);
        if crossdock_os::child::user() == 0 {
            command.uid(65534).gid(65534);
        }
        let output = command.output().unwrap();
        let log = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{log}");
        (String::from_utf8_lossy(&output.stdout).into_owned(), log)
    };
    let (said, log) = run(code);
    assert_eq!(said, "other files keep their errno\n");
    let words = format!(
        "crossdock: {} cannot be opened for writing: this task only reads the files of {} (written by simulate); hint: ",
        file.display(),
        fixture.published().display()
    );
    assert_eq!(log.lines().filter(|line| line.starts_with(&words)).count(), 20, "{log}");
    assert_eq!(log.lines().count(), 20, "the number of lines is limited: {log}");

    // These calls create, rename or open files, but not through the C library's `open`. Each process writes its own
    // lines to the log.
    let code = r#"
import ctypes, errno, os, struct
libc = ctypes.CDLL(None, use_errno=True)
def check(name, call, *path):
    ctypes.set_errno(0)
    answer = call(*path)
    assert answer in (-1, None), (name, answer)
    assert ctypes.get_errno() == errno.EROFS, (name, errno.errorcode.get(ctypes.get_errno()))
libc.mkdtemp.restype = ctypes.c_void_p
how = ctypes.create_string_buffer(struct.pack("QQQ", os.O_RDWR, 0, 0))
check("openat2", lambda: libc.syscall(437, -100, b"a", how, ctypes.c_long(24)))
for name in ("mkstemp", "mkstemp64", "mkdtemp"):
    check(name, getattr(libc, name), ctypes.create_string_buffer(b"tmp-XXXXXX"))
check("mkostemp", libc.mkostemp, ctypes.create_string_buffer(b"tmp-XXXXXX"), 0)
check("mkstemps", libc.mkstemps, ctypes.create_string_buffer(b"tmp-XXXXXX.h5"), 3)
check("mkdir", libc.mkdir, b"new", 0o755)
check("symlink", libc.symlink, b"a", b"new")
check("rename", libc.rename, b"a", b"b")
check("renameat2", libc.renameat2, -100, b"a", -100, b"b", 0)
check("unlink", libc.unlink, b"a")
check("unlinkat", libc.unlinkat, -100, b"a", 0)
check("remove", libc.remove, b"a")
check("truncate", libc.truncate, b"a", ctypes.c_long(0))
check("unlinkat by syscall", lambda: libc.syscall(ctypes.c_long({"x86_64": 263, "aarch64": 35}[os.uname().machine]), -100, b"a", 0))
try:
    os.posix_spawn("/bin/true", ["true"], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 1, "a", os.O_WRONLY, 0)])
except PermissionError:
    print("posix_spawn fails")
assert open("a").read() == "whole"
"#;
    let (said, log) = run(code);
    assert_eq!(said, "posix_spawn fails\n", "{log}");
    let count = |words: &str| log.matches(&format!("cannot be {words}: this task only reads the files of ")).count();
    let counts = ["opened for writing", "made", "renamed", "removed"].map(count);
    assert_eq!((counts, log.lines().count()), ([3, 7, 2, 4], 16), "{log}");
}

#[test]
fn a_rename_that_fails_does_not_wait_for_its_new_name() {
    let fixture = Fixture::new("renamed");
    fs::write(fixture.root.join("stage/a"), "whole").unwrap();
    let end = Instant::now() + Duration::from_secs(20);
    while !fixture.published().join("a").exists() {
        assert!(Instant::now() < end, "the file was not published");
        std::thread::sleep(Duration::from_millis(5));
    }
    // The folder is not mounted read-only in this test, and root may rename in it. So the test makes the calls fail for
    // another reason: the file to be renamed lies in a folder that does not exist.
    let code = r#"
import ctypes, errno, os, sys, time
libc = ctypes.CDLL(None, use_errno=True)
began = time.monotonic()
def check(name, call, to):
    ctypes.set_errno(0)
    assert call() == -1 and ctypes.get_errno() == errno.ENOENT, (name, errno.errorcode.get(ctypes.get_errno()))
    for look in (os.stat, os.listdir, open):
        try:
            look(to)
        except FileNotFoundError:
            continue
        sys.exit(name + ": " + str(to))
check("rename", lambda: libc.rename(b"none/a", b"b"), "b")
check("renameat", lambda: libc.renameat(-100, b"none/a", -100, b"c"), "c")
check("renameat2", lambda: libc.renameat2(-100, b"none/a", -100, b"d", 0), "d")
check("syscall", lambda: libc.syscall(ctypes.c_long({"x86_64": 316, "aarch64": 276}[os.uname().machine]), -100, b"none/a", -100, b"e", ctypes.c_long(0)), "e")
assert time.monotonic() - began < 10, "a look-up has waited"
"#;
    let output = fixture.command(&["python3", "-c", code]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    // The program waits for the name `late`, because `late` was not the new name of a rename that failed.
    let late = format!("{code}\nprint(open('late').read())");
    let output = fixture.late("late", b"here", &["python3", "-c", &late]);
    assert_eq!(output.stdout, b"here\n");
}

#[test]
fn a_producer_with_the_library_learns_why_it_cannot_write_a_published_file() {
    use std::os::unix::process::CommandExt;
    let fixture = Fixture::new("producer");
    let file = fixture.root.join("stage/a");
    fs::write(&file, "whole").unwrap();
    let end = Instant::now() + Duration::from_secs(20);
    while !fixture.published().join("a").exists() {
        assert!(Instant::now() < end, "the file was not published");
        std::thread::sleep(Duration::from_millis(5));
    }
    let line = Watched::line(fixture.root.join("stage").to_str().unwrap(), &fixture.root.join("refusals"), None);
    // The second process is started with an empty environment, and gets the library's variables all the same.
    let code = r#"
import errno, os, subprocess, sys
def refused(path):
    try:
        os.open(path, os.O_WRONLY | os.O_CREAT)
    except OSError as error:
        assert error.errno == errno.EACCES, error
        return
    sys.exit("it may be written")
refused("a")
if sys.argv[1:]:
    sys.exit()
subprocess.run([sys.executable, sys.argv[0], "again"], env={}, check=True)
open("b", "w").write("new")
os.replace("b", "a")
"#;
    let program = fixture.root.join("program.py");
    fs::write(&program, code).unwrap();
    let mut command = Command::new("python3");
    command.arg(&program).env("LD_PRELOAD", library()).env(WATCHED, line).current_dir(fixture.root.join("stage"));
    if crossdock_os::child::user() == 0 {
        command.uid(65534).gid(65534);
    }
    let output = command.output().unwrap();
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{log}");
    let begin = format!("crossdock: {} cannot be opened for writing: it was published ", file.display());
    assert!(log.lines().count() == 2 && log.lines().all(|line| line.starts_with(&begin)), "{log}");
}

#[test]
fn programs_of_every_day_wait_for_a_file_and_read_all_of_it() {
    let fixture = Fixture::new("daily");
    let content: Vec<u8> = (0..100_000u32).flat_map(|n| format!("{n}\n").into_bytes()).collect();
    let folder = fixture.published();
    let folder = folder.to_str().unwrap();
    let python = |code: &str| format!("import sys,os,pathlib,shutil; p=sys.argv[1]; sys.stdout.buffer.write({code})");
    let open = python("open(p,'rb').read()");
    let path = python("pathlib.Path(p).read_bytes()");
    let raw = python("os.read(os.open(p,os.O_RDONLY),1<<24)");
    let at = python("os.read(os.open(os.path.basename(p),os.O_RDONLY,dir_fd=os.open(os.path.dirname(p),0)),1<<24)");
    let size = python("open(p,'rb').read() if os.path.getsize(p)>0 else b''");
    let spawned = python("__import__('subprocess').run(['cat',p],env={},stdout=-1).stdout");
    let cases: Vec<(&str, Vec<&str>)> = vec![
        ("cat", vec!["cat", "NAME"]),
        ("cat by a relative name", vec!["cat", "./RELATIVE"]),
        ("dd", vec!["dd", "if=NAME", "bs=64k", "status=none"]),
        ("a shell's redirection", vec!["sh", "-c", "cat < NAME"]),
        ("bash", vec!["bash", "-c", "cat < NAME"]),
        ("cp", vec!["cp", "NAME", "/dev/stdout"]),
        ("head", vec!["head", "-c", "10000000", "NAME"]),
        ("a cleared environment", vec!["env", "-i", "/bin/cat", "NAME"]),
        ("tar", vec!["sh", "-c", "tar cf - NAME 2>/dev/null | tar xOf -"]),
        ("gzip", vec!["sh", "-c", "gzip -c NAME | gzip -dc"]),
        ("Python's open", vec!["python3", "-c", &open, "NAME"]),
        ("pathlib", vec!["python3", "-c", &path, "NAME"]),
        ("os.open", vec!["python3", "-c", &raw, "NAME"]),
        ("openat", vec!["python3", "-c", &at, "NAME"]),
        ("stat before open", vec!["python3", "-c", &size, "NAME"]),
        ("a child of Python with an empty environment", vec!["python3", "-c", &spawned, "NAME"]),
        ("perl", vec!["perl", "-e", "open(F,'<',$ARGV[0]) or die $!; print while <F>", "NAME"]),
        ("awk", vec!["awk", "{print}", "NAME"]),
        ("node", vec!["node", "-e", "process.stdout.write(require('fs').readFileSync(process.argv[1]))", "NAME"]),
    ];
    let mut missing = 0;
    for (number, (what, words)) in cases.iter().enumerate() {
        if !is_there(words[0]) {
            missing += 1;
            continue;
        }
        let name = format!("file-{number}");
        let whole = format!("{folder}/{name}");
        let words: Vec<String> = words.iter().map(|w| w.replace("NAME", &whole).replace("RELATIVE", &name)).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let output = fixture.late(&name, &content, &words);
        assert!(output.stdout == content, "{what}: {} of {} bytes", output.stdout.len(), content.len());
    }
    assert!(missing <= 3, "{missing} programs are not there");
}

#[test]
fn a_wait_that_ends_badly_gives_the_usual_errno_and_tells_the_whole_story_in_the_log() {
    let mut fixture = Fixture::new("story");
    fixture.deadline = Duration::from_millis(200);
    let never = fixture.published().join("never");
    let code =
        format!("import errno\ntry: open('{}')\nexcept OSError as e: print(errno.errorcode[e.errno])", never.display());
    let output = fixture.command(&["python3", "-c", &code]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "ETIMEDOUT");
    let story = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(story.contains("never was not published within 0.2 s: simulate still runs"), "{story}");
    fixture.service.as_ref().unwrap().producers(Phase::Ended);
    let began = Instant::now();
    fixture.deadline = Duration::from_secs(60);
    let output = fixture.command(&["python3", "-c", &code]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "ENOENT");
    assert!(String::from_utf8_lossy(&output.stderr).contains("simulate ended in order"), "{output:?}");
    assert!(began.elapsed() < Duration::from_secs(10));
}

#[test]
fn names_elsewhere_hidden_names_and_writes_are_left_alone() {
    let fixture = Fixture::new("alone");
    let began = Instant::now();
    let folder = fixture.published();
    for words in [
        vec!["cat".to_owned(), "/nowhere/file".into()],
        vec!["cat".into(), format!("{}/.hidden", folder.display())],
        vec!["sh".into(), "-c".into(), "exec 3<> no/such/folder/file".into()],
    ] {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        assert!(!fixture.command(&words).output().unwrap().status.success(), "{words:?}");
    }
    assert!(began.elapsed() < Duration::from_secs(10), "nothing was to be waited for");
}

#[test]
fn a_signal_ends_a_wait_as_the_program_expects_it() {
    let fixture = Fixture::new("signal");
    let never = fixture.published().join("never");
    let code = format!(
        "import signal\ndef ring(*a): raise SystemExit(7)\nsignal.signal(signal.SIGALRM, ring)\nsignal.alarm(1)\nopen('{}')",
        never.display()
    );
    let began = Instant::now();
    let status = fixture.command(&["python3", "-c", &code]).status().unwrap();
    assert_eq!(status.code(), Some(7));
    assert!(began.elapsed() < Duration::from_secs(10));
}

#[test]
fn many_threads_wait_at_once() {
    let fixture = Fixture::new("threads");
    let folder = fixture.published();
    let code = format!(
        "import concurrent.futures as c\nread=lambda n: len(open('{}/'+str(n),'rb').read())\n\
         with c.ThreadPoolExecutor(16) as pool: print(sum(pool.map(read, range(64))))",
        folder.display()
    );
    let child = fixture.command(&["python3", "-c", &code]).stdout(std::process::Stdio::piped()).spawn().unwrap();
    std::thread::sleep(LATE);
    for number in (0..64).rev() {
        fs::write(fixture.root.join("stage").join(number.to_string()), vec![1; 1000 + number]).unwrap();
    }
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), (0..64).map(|n| 1000 + n).sum::<usize>().to_string());
}

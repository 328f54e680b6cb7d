//! Tests of a service in a process that has no free descriptors.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use crossdock_files::{Keep, Publish, Service};
use crossdock_os::testing::until;
use crossdock_os::{Deadline, event, process};

/// A shell that runs a script in a folder. The test and the script exchange lines.
struct Script {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Script {
    fn new(folder: &Path, script: &str) -> Self {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).current_dir(folder).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = shell.spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, input, output }
    }

    /// Waits for the next line of the script.
    fn line(&mut self) -> String {
        let deadline = Deadline::after(Duration::from_secs(20));
        let is_there = !self.output.buffer().is_empty();
        assert!(is_there || event::wait_readable(self.output.get_ref().as_fd(), deadline).unwrap(), "the script waits");
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }
}

/// Kills a writer while this process has only `free` free descriptors, and another process opens a file.
fn kill_a_writer(root: &Path, service: &Service, free: usize) {
    let (torn, whole) = (format!("torn-{free}"), format!("whole-{free}"));
    let stage = root.join("stage");
    let mut writer = Script::new(&stage, &format!("exec 3>{torn}; echo half >&3; echo open; exec sleep 600"));
    let mut opener =
        Script::new(&stage, &format!("echo ready; read line; echo x > {whole} && echo opened || echo failed"));
    assert_eq!((writer.line(), opener.line()), ("open".into(), "ready".into()));
    let pidfd = process::open_pidfd(writer.child.id() as i32).unwrap().unwrap();

    let mut all: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    assert!(all.len() > free, "descriptors were free");
    all.truncate(all.len() - free);
    process::send_signal(&pidfd, process::Signal::KILL).unwrap();
    until("the writer's end", || process::is_dead(&pidfd));
    opener.input.write_all(b"go on\n").unwrap();
    let opened = opener.line();
    // The kernel reports the close before it reports this open. So the service has learned of the close by now.
    drop(all);

    assert_eq!(opened, "opened", "{free} descriptors are free");
    until("the whole file", || root.join("published").join(&whole).exists());
    let torn = root.join("published").join(torn);
    until("a decision about the other file", || {
        torn.exists() || service.report().torn == u64::try_from(free).unwrap() + 1
    });
    assert!(!torn.exists(), "{free} descriptors are free: {:?}", service.report());
    writer.child.wait().unwrap();
    opener.child.wait().unwrap();
}

/// Kills a writer while more processes have files open than this process can have descriptors.
fn kill_one_of_many_writers(root: &Path, service: &Service) {
    let script = "for n in $(seq 70); do (exec 3>many-$n; echo half >&3; echo; exec sleep 600) & all=\"$all $!\"; done
        (exec 3>torn; echo half >&3; echo; exec sleep 600) & torn=$!
        read line; kill -9 $torn; echo x > whole && echo opened; read line; kill -9 $all";
    let mut script = Script::new(&root.join("stage"), script);
    (0..71).for_each(|_| assert_eq!(script.line(), ""));
    let torn = service.report().torn;
    script.input.write_all(b"go on\n").unwrap();
    assert_eq!(script.line(), "opened");
    until("the whole file", || root.join("published/whole").exists());
    until("a decision about the other file", || root.join("published/torn").exists() || service.report().torn > torn);
    assert!(!root.join("published/torn").exists(), "{:?}", service.report());
    script.input.write_all(b"go on\n").unwrap();
    script.child.wait().unwrap();
}

/// The test runs itself again, in a process that can have few descriptors.
#[test]
fn without_free_descriptors_the_file_of_a_killed_writer_stays_unpublished_and_others_can_be_opened() {
    const INSIDE: &str = "CROSSDOCK_TEST_FEW_DESCRIPTORS";
    let root = PathBuf::from(format!("/dev/shm/crossdock-few-descriptors-{}", std::process::id()));
    let start =
        || Service::start(&root, &root.with_extension("notice"), "simulate", Publish::Close, Keep::All).unwrap();
    let service = start();
    let known = service.report().writers_known;
    if known && std::env::var_os(INSIDE).is_some() {
        (0..4).for_each(|free| kill_a_writer(&root, &service, free));
        kill_one_of_many_writers(&root, &service);
        let troubles = service.report().troubles;
        assert!(!troubles.iter().any(|line| line.contains("dropped")), "{troubles:?}");
    }
    drop(service);
    fs::remove_dir_all(&root).unwrap();
    fs::remove_file(root.with_extension("notice")).unwrap();
    if !known {
        return crossdock_os::testing::skip("known-writers");
    }
    if std::env::var_os(INSIDE).is_none() {
        let name = "without_free_descriptors_the_file_of_a_killed_writer_stays_unpublished_and_others_can_be_opened";
        let mut again = Command::new("/bin/sh");
        again.args(["-c", r#"ulimit -n 64 && exec "$0" "$@""#]).arg(std::env::current_exe().unwrap());
        let output = again.args(["--exact", name, "--nocapture"]).env(INSIDE, "1").output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{output:?}");
    }
}

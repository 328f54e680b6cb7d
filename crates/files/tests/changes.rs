//! Tests what producers may do to a file before and after the file is published. The table in docs/files.md lists these
//! cases.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crossdock_files::{Keep, Publish, Service};
use crossdock_layout::files::Phase;

struct Directory {
    root: PathBuf,
    service: Option<Service>,
}

impl Directory {
    fn new(how: Publish) -> Self {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let root = PathBuf::from(format!("/dev/shm/crossdock-changes-{}-{number}", std::process::id()));
        let service = Service::start(&root, &root.with_extension("notice"), "simulate", how, Keep::All).unwrap();
        service.producers(Phase::Producing);
        Self { root, service: Some(service) }
    }

    fn stage(&self, name: &str) -> PathBuf {
        self.root.join("stage").join(name)
    }

    fn published(&self, name: &str) -> PathBuf {
        self.root.join("published").join(name)
    }

    fn comes(&self, name: &str) {
        let began = Instant::now();
        while !self.published(name).exists() {
            assert!(began.elapsed() < Duration::from_secs(60), "{name} was not published within a minute");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Runs a command in the producers' folder with the rights of an ordinary user, so that the modes of files apply
    /// even if the test runs as root.
    fn producer(&self, script: &str) -> bool {
        let mut command = match crossdock_os::child::user() {
            0 => {
                let mut command = Command::new("setpriv");
                command.args(["--bounding-set", "-dac_override", "/bin/sh"]);
                command
            }
            _ => Command::new("/bin/sh"),
        };
        command.args(["-c", script]).current_dir(self.root.join("stage")).stderr(Stdio::null());
        command.status().unwrap().success()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        self.service = None;
        fs::remove_dir_all(&self.root).unwrap();
        fs::remove_file(self.root.with_extension("notice")).unwrap();
    }
}

#[test]
fn a_published_file_is_not_rewritten_appended_to_or_truncated() {
    let d = Directory::new(Publish::Close);
    assert!(d.producer("echo one > a"));
    d.comes("a");
    for change in ["echo two > a", "echo two >> a", "truncate -s 0 a", "dd if=/dev/zero of=a bs=1 count=1 conv=notrunc"]
    {
        assert!(!d.producer(change), "{change}");
    }
    assert_eq!(fs::read(d.published("a")).unwrap(), b"one\n");
}

#[test]
fn a_file_may_be_rewritten_appended_to_and_truncated_until_its_rename() {
    let d = Directory::new(Publish::Rename);
    assert!(d.producer("echo one > .a; echo two >> .a; truncate -s 6 .a; echo 3 >> .a; mv .a a"));
    d.comes("a");
    assert_eq!(fs::read(d.published("a")).unwrap(), b"one\ntw3\n");
}

#[test]
fn appending_by_a_second_open_before_the_first_close_is_part_of_the_file() {
    let d = Directory::new(Publish::Close);
    let mut first = fs::File::create(d.stage("a")).unwrap();
    first.write_all(b"one").unwrap();
    let mut second = OpenOptions::new().append(true).open(d.stage("a")).unwrap();
    drop(first);
    second.write_all(b"two").unwrap();
    drop(second);
    d.comes("a");
    assert_eq!(fs::read(d.published("a")).unwrap(), b"onetwo");
}

#[test]
fn an_unlinked_name_can_be_written_again_and_is_another_file() {
    let d = Directory::new(Publish::Close);
    assert!(d.producer("echo one > a"));
    d.comes("a");
    let mut held = fs::File::open(d.published("a")).unwrap();
    assert!(d.producer("rm a; echo two > a"));
    let began = Instant::now();
    while fs::read(d.published("a")).ok().as_deref() != Some(b"two\n") {
        assert!(began.elapsed() < Duration::from_secs(60), "the second file was not published within a minute");
        std::thread::sleep(Duration::from_millis(2));
    }
    let mut text = String::new();
    std::io::Read::read_to_string(&mut held, &mut text).unwrap();
    assert_eq!(text, "one\n");
}

#[test]
fn symbolic_links_are_not_published() {
    let d = Directory::new(Publish::Close);
    assert!(d.producer("ln -s /etc/passwd link; echo one > a"));
    d.comes("a");
    assert!(fs::symlink_metadata(d.published("link")).is_err());
}

#[test]
fn locks_of_a_consumer_and_of_a_producer_hold_each_other() {
    let d = Directory::new(Publish::Close);
    assert!(d.producer("echo one > a"));
    d.comes("a");
    let free = format!("exec 3< {}; flock -n 3 && flock -n a true", d.published("a").display());
    assert!(!d.producer(&free), "the consumer's lock holds the producer's");
    assert!(d.producer("flock -n a true"), "it goes with its holder");
}

//! Tests what producers may do to a file before and after the file is published. The table in docs/files.md lists these
//! cases.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
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
        Self::keeping(how, Keep::All)
    }

    fn keeping(how: Publish, keep: Keep) -> Self {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let root = PathBuf::from(format!("/dev/shm/crossdock-changes-{}-{number}", std::process::id()));
        let service = Service::start(&root, &root.with_extension("notice"), "simulate", how, keep).unwrap();
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
fn a_folder_that_is_renamed_into_place_is_published_with_its_files() {
    let d = Directory::new(Publish::Rename);
    assert!(d.producer("mkdir -p .t/below; echo one > .t/x; echo two > .t/below/y; mv .t final"));
    d.comes("final/x");
    d.comes("final/below/y");
    assert!(d.producer("mv final other; echo three > .z; mv .z z"));
    d.comes("other/x");
    d.comes("other/below/y");
    d.comes("z");
    assert!(!d.published("final/x").exists());
}

#[test]
fn a_file_with_a_marker_stays_published_when_its_folder_is_renamed() {
    let d = Directory::new(Publish::Marker(".done".into()));
    assert!(d.producer("mkdir t; sleep 0.2; echo one > t/x; echo > t/x.done; echo two > t/y"));
    d.comes("t/x");
    assert!(d.producer("mv t final; echo three > z; echo > z.done"));
    d.comes("final/x");
    d.comes("z");
    assert!(!d.published("final/y").exists() && !d.published("t/x").exists());
}

#[test]
fn symbolic_links_are_not_published() {
    let d = Directory::new(Publish::Close);
    assert!(d.producer("ln -s /etc/passwd link; echo one > a"));
    d.comes("a");
    assert!(fs::symlink_metadata(d.published("link")).is_err());
}

/// A folder of the host that does not belong to the managed directory. It has the files `f` and `g`.
struct Elsewhere(PathBuf);

impl Elsewhere {
    fn beside(d: &Directory) -> Self {
        let folder = d.root.with_extension("elsewhere");
        fs::create_dir(&folder).unwrap();
        for name in ["f", "g"] {
            fs::write(folder.join(name), "not for consumers").unwrap();
            fs::set_permissions(folder.join(name), fs::Permissions::from_mode(0o600)).unwrap();
        }
        Self(folder)
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

#[test]
fn a_folder_that_becomes_a_symbolic_link_leads_the_service_to_no_file_outside() {
    let d = Directory::new(Publish::Close);
    let elsewhere = Elsewhere::beside(&d);
    // The service finds `x/f` open for writing. From then on it looks at this name at regular intervals.
    assert!(d.producer("mkdir .x; echo one > .x/g"));
    let mut writer = fs::File::create(d.stage(".x/f")).unwrap();
    writer.write_all(b"of the producer").unwrap();
    assert!(d.producer("mv .x x"));
    d.comes("x/g");
    assert!(d.producer(&format!("mv x y; ln -s {} x", elsewhere.0.display())));
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(1) {
        assert!(!d.published("x/f").exists(), "consumers see a file from outside of the directory");
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(writer);
    d.comes("y/f");
    for name in ["f", "g"] {
        let mode = fs::metadata(elsewhere.0.join(name)).unwrap().mode() & 0o777;
        assert_eq!(mode, 0o600, "the service changed the mode of {name}, which lies outside of the directory");
    }
}

#[test]
fn a_file_outside_of_the_directory_is_not_removed_when_old_files_are_dropped() {
    let d = Directory::keeping(Publish::Close, Keep::Newest(1));
    let elsewhere = Elsewhere::beside(&d);
    assert!(d.producer("mkdir x; echo one > x/f"));
    d.comes("x/f");
    assert!(d.producer(&format!("mv x .y; ln -s {} x; echo two > b", elsewhere.0.display())));
    d.comes("b");
    // `b` is the newest file, so the service has dropped `x/f` by now.
    assert!(d.producer("echo three > c"));
    d.comes("c");
    assert!(elsewhere.0.join("f").exists(), "the service removed a file that lies outside of the directory");
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

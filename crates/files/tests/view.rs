//! Tests of a view: what programs of the host see on the mount of the view, and what they wait for. The tests run only
//! as root, because an ordinary user may not mount the view.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crossdock_files::{Keep, MovedFiles, Publish, Service, View, ViewCallbacks, ViewOptions};
use crossdock_layout::files::Phase;
use crossdock_os::Deadline;
use crossdock_os::testing::until;

const LONG: Duration = Duration::from_secs(60);

/// A managed directory with a view. Its producers are running.
struct Fixture {
    root: PathBuf,
    at: PathBuf,
    service: Option<Service>,
    wait: Duration,
    view: Option<View>,
    reads: Arc<Mutex<Vec<PathBuf>>>,
    stories: Arc<Mutex<Vec<String>>>,
}

impl Fixture {
    /// Returns `None` if this machine's kernel or user cannot mount a view.
    fn new(wait: Duration) -> Option<Self> {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let root = PathBuf::from(format!("/dev/shm/crossdock-view-{}-{number}", std::process::id()));
        let at = std::env::temp_dir().join(root.file_name().unwrap());
        let service =
            Service::start(&root, &root.with_extension("notice"), "simulate", Publish::Close, Keep::All).unwrap();
        service.producers(Phase::Producing);
        let (reads, stories) = Default::default();
        let mut fixture = Self { root, at, service: Some(service), wait, view: None, reads, stories };
        if crossdock_os::child::user() != 0 || !Path::new("/dev/fuse").exists() {
            return None;
        }
        fixture.view = Some(View::mount(&fixture.at, fixture.show(), fixture.callbacks()).unwrap());
        Some(fixture)
    }

    fn show(&self) -> ViewOptions {
        ViewOptions {
            faces: vec![self.root.join("published")],
            seen_at: "/data/frames".into(),
            notice: self.root.with_extension("notice"),
            wait: self.wait,
            awaits: Vec::new(),
            moved: MovedFiles::default(),
        }
    }

    fn callbacks(&self) -> ViewCallbacks {
        let (reads, stories) = (self.reads.clone(), self.stories.clone());
        ViewCallbacks {
            read: Box::new(move |rest| reads.lock().unwrap().push(rest.to_owned())),
            story: Box::new(move |_, story| stories.lock().unwrap().push(story)),
        }
    }

    fn stage(&self, name: &str) -> PathBuf {
        self.root.join("stage").join(name)
    }

    fn shell(&self, script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).current_dir(&self.at).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, script: &str) -> Output {
        self.shell(script).output().unwrap()
    }

    /// Starts a program that waits for a file, and returns when the program sleeps in its system call.
    fn waiting(&self, script: &str) -> Child {
        let child = self.shell(script).spawn().unwrap();
        until("a process waits in the view", || {
            let stack = fs::read_to_string(format!("/proc/{}/wchan", child.id())).unwrap_or_default();
            stack.contains("request_wait_answer") || stack.contains("fuse")
        });
        child
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.view = None;
        self.service = None;
        fs::remove_dir_all(&self.root).unwrap();
        fs::remove_file(self.root.with_extension("notice")).unwrap();
        if !std::thread::panicking() {
            assert!(!self.at.exists(), "the mount point is left");
        }
    }
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn ended(child: Child) -> Output {
    child.wait_with_output().unwrap()
}

#[test]
fn tools_of_the_host_wait_for_a_file_and_read_the_very_bytes_that_were_written() {
    let Some(s) = Fixture::new(LONG) else { return crossdock_os::testing::skip("fuse") };
    let reader = s.waiting("exec cat coming");
    // The wait does not lock the folder, so other processes can list it and look up other names.
    assert_eq!(text(&s.run("ls -A")), "");
    let content: Vec<u8> = (0..1_000_000u32).flat_map(u32::to_le_bytes).collect();
    fs::write(s.stage("coming"), &content).unwrap();
    let read = ended(reader);
    assert!(read.status.success() && read.stdout == content, "{}", String::from_utf8_lossy(&read.stderr));
    assert_eq!(text(&s.run("ls -A")), "coming\n");
    assert_eq!(text(&s.run("stat -c %s,%A coming; wc -c < coming")), "4000000,-r--r--r--\n4000000\n");
    until("the view tells of the read", || s.reads.lock().unwrap().contains(&"coming".into()));
}

#[test]
fn a_stat_waits_too_and_says_the_size_of_the_whole_file() {
    let Some(s) = Fixture::new(LONG) else { return crossdock_os::testing::skip("fuse") };
    let looks = s.waiting("exec stat -c %s coming");
    fs::write(s.stage("coming"), [1; 12345]).unwrap();
    assert_eq!(text(&ended(looks)), "12345\n");
}

#[test]
fn a_file_that_is_open_stays_when_its_name_is_replaced_or_removed() {
    let Some(s) = Fixture::new(LONG) else { return crossdock_os::testing::skip("fuse") };
    fs::write(s.stage("a"), "first").unwrap();
    let mut held = File::open(s.at.join("a")).unwrap();
    fs::write(s.stage(".b"), "second").unwrap();
    fs::rename(s.stage(".b"), s.stage("a")).unwrap();
    until("the new file is there", || fs::read(s.at.join("a")).is_ok_and(|text| text == b"second"));
    let mut text = String::new();
    held.read_to_string(&mut text).unwrap();
    assert_eq!((text.as_str(), held.metadata().unwrap().len()), ("first", 5));
    fs::remove_file(s.stage("a")).unwrap();
    until("the name is gone", || fs::read_dir(&s.at).unwrap().next().is_none());
    assert_eq!(held.metadata().unwrap().len(), 5);
    let hold = File::open(s.stage(".b"));
    assert!(hold.is_err());
}

#[test]
fn folders_are_shown_and_hidden_names_are_not_awaited() {
    let Some(s) = Fixture::new(LONG) else { return crossdock_os::testing::skip("fuse") };
    fs::create_dir_all(s.stage("a/b")).unwrap();
    fs::write(s.stage("a/b/c"), "x").unwrap();
    until("the folder is there", || s.at.join("a/b").is_dir());
    assert_eq!(fs::read(s.at.join("a/b/c")).unwrap(), b"x");
    assert_eq!(text(&s.run("find . -type f")), "./a/b/c\n");
    assert_eq!(fs::read(s.at.join(".hidden")).unwrap_err().raw_os_error(), Some(2));
}

#[test]
fn consumers_cannot_write() {
    let Some(s) = Fixture::new(LONG) else { return crossdock_os::testing::skip("fuse") };
    fs::write(s.stage("a"), "x").unwrap();
    assert_eq!(fs::read(s.at.join("a")).unwrap(), b"x");
    for refused in [
        fs::write(s.at.join("a"), "y"),
        fs::write(s.at.join("new"), "y"),
        fs::remove_file(s.at.join("a")),
        fs::create_dir(s.at.join("folder")),
        File::options().append(true).open(s.at.join("a")).map(drop),
    ] {
        let errno = refused.unwrap_err().raw_os_error();
        // A name without a file is shown as an existing file, so making a folder of that name may fail with EEXIST.
        assert!(errno == Some(30) || errno == Some(17), "EROFS or EEXIST: {errno:?}");
    }
}

#[test]
fn a_wait_ends_with_its_time_and_with_the_producers_and_says_why() {
    let Some(s) = Fixture::new(Duration::from_millis(300)) else { return crossdock_os::testing::skip("fuse") };
    let error = File::open(s.at.join("never")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(110), "ETIMEDOUT");
    let stories = s.stories.lock().unwrap().clone();
    assert!(!stories.is_empty());
    for story in stories {
        let (what, why) = story.split_once(" s: ").unwrap();
        assert!(what.starts_with("/data/frames/never was not published within "), "{story}");
        assert!(why.starts_with("simulate still runs"), "{story}");
    }
    s.service.as_ref().unwrap().producers(Phase::Ended);
    assert_eq!(File::open(s.at.join("never")).unwrap_err().raw_os_error(), Some(2));
    let stories = s.stories.lock().unwrap().clone();
    let wanted = "/data/frames/never will not come: simulate ended in order";
    assert!(stories.last().unwrap().starts_with(wanted), "{stories:?}");
}

#[test]
fn a_waiting_process_is_killed_at_once_and_leaves_no_wait() {
    let Some(s) = Fixture::new(Duration::from_secs(600)) else { return crossdock_os::testing::skip("fuse") };
    let mut waits = s.waiting("exec cat coming");
    waits.kill().unwrap();
    let status = waits.wait().unwrap();
    assert_eq!(status.signal(), Some(9));
    let mut waits = s.waiting("exec cat coming");
    crossdock_os::spawn::signal_process(waits.id() as i32, 15);
    assert_eq!(waits.wait().unwrap().signal(), Some(15));
}

#[test]
fn a_folder_has_one_view_at_a_time() {
    let Some(s) = Fixture::new(LONG) else { return crossdock_os::testing::skip("fuse") };
    fs::write(s.stage("a"), "x").unwrap();
    assert_eq!(fs::read(s.at.join("a")).unwrap(), b"x");
    let error = View::mount(&s.at, s.show(), s.callbacks()).unwrap_err().to_string();
    assert!(error.starts_with("another view is mounted on") && error.contains(s.at.to_str().unwrap()), "{error}");
    assert_eq!(fs::read(s.at.join("a")).unwrap(), b"x");
}

#[test]
fn of_views_that_are_mounted_at_the_same_time_one_gets_the_folder() {
    let Some(s) = Fixture::new(LONG) else { return crossdock_os::testing::skip("fuse") };
    let at = s.at.with_extension("shared");
    fs::create_dir(&at).unwrap();
    let mut mounts = 0;
    // A child that another test has just forked can hold the lock of the last round's view for a moment. Then no view gets
    // the folder in this round.
    let patience = Deadline::after(LONG);
    while mounts < 20 {
        assert!(!patience.passed(), "only {mounts} views got the folder");
        let mounted: Vec<_> = std::thread::scope(|scope| {
            let starts: Vec<_> = (0..4).map(|_| scope.spawn(|| View::mount(&at, s.show(), s.callbacks()))).collect();
            starts.into_iter().map(|start| start.join().unwrap()).collect()
        });
        let (views, refused): (Vec<_>, Vec<_>) = mounted.into_iter().partition(Result::is_ok);
        assert!(views.len() <= 1, "{views:?}");
        mounts += views.len();
        for error in refused.into_iter().filter_map(Result::err) {
            assert!(error.to_string().starts_with("another view is mounted on"), "{error}");
        }
        drop(views);
        assert!(!is_mounted(&at));
    }
    fs::remove_dir(&at).unwrap();
}

/// The mount of the view is removed, and not the mount to which the view's path leads at that moment.
#[test]
fn a_view_removes_its_own_mount_if_its_path_leads_to_another_one() {
    let Some(s) = Fixture::new(LONG) else { return crossdock_os::testing::skip("fuse") };
    let above = s.at.with_extension("above");
    let at = above.join(s.at.file_name().unwrap());
    fs::create_dir(&above).unwrap();
    let view = View::mount(&at, s.show(), s.callbacks()).unwrap();
    let moved = s.at.with_extension("moved");
    fs::rename(&above, &moved).unwrap();
    std::os::unix::fs::symlink(std::env::temp_dir(), &above).unwrap();
    assert!(is_mounted(&moved.join(at.file_name().unwrap())));
    drop(view);
    assert!(is_mounted(&s.at), "the mount of the other view is removed");
    assert!(!is_mounted(&moved.join(at.file_name().unwrap())), "the view's own mount is left");
    fs::remove_file(&above).unwrap();
    fs::remove_dir_all(&moved).unwrap();
}

fn is_mounted(at: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    mounts.lines().any(|line| line.split(' ').nth(4) == at.to_str())
}

/// The server is this test program, started a second time so that it can be killed.
#[test]
fn after_a_killed_server_open_files_go_on_waits_end_and_the_mount_goes() {
    if let Some(root) = std::env::var_os("CROSSDOCK_TEST_VIEW") {
        serve(Path::new(&root));
    }
    let Some(other) = Fixture::new(LONG) else { return crossdock_os::testing::skip("fuse") };
    let root = PathBuf::from(format!("/dev/shm/crossdock-view-killed-{}", std::process::id()));
    let above = std::env::temp_dir().join(root.file_name().unwrap());
    let at = above.join("at");
    fs::create_dir(&above).unwrap();
    let name = "after_a_killed_server_open_files_go_on_waits_end_and_the_mount_goes";
    let mut server = Command::new(std::env::current_exe().unwrap());
    server.args([name, "--exact", "--nocapture"]).env("CROSSDOCK_TEST_VIEW", &root).stdout(Stdio::null());
    let mut server = server.spawn().unwrap();
    until("the server has mounted", || fs::read(at.join("a")).is_ok_and(|text| text == b"whole"));
    let mut held = File::open(at.join("a")).unwrap();
    let mut waits = Command::new("cat").arg(at.join("never")).stderr(Stdio::null()).spawn().unwrap();
    until("a process waits", || {
        fs::read_to_string(format!("/proc/{}/wchan", waits.id())).unwrap_or_default().contains("wait_answer")
    });
    // The guard must remove this view's mount, and not what the path of the view leads to after the kill.
    let moved = above.with_extension("moved");
    fs::rename(&above, &moved).unwrap();
    fs::create_dir(&above).unwrap();
    std::os::unix::fs::symlink(&other.at, &at).unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(!waits.wait().unwrap().success(), "the wait ends");
    let at = moved.join("at");
    until("the mount is gone", || !is_mounted(&at));
    assert!(is_mounted(&other.at), "the mount of another view is removed");
    let mut text = String::new();
    held.read_to_string(&mut text).unwrap();
    assert_eq!(text, "whole", "an open file is read on");
    fs::remove_dir(&at).unwrap();
    fs::remove_dir(&moved).unwrap();
    fs::remove_dir_all(&above).unwrap();
    fs::remove_dir_all(&root).unwrap();
    fs::remove_file(root.with_extension("notice")).unwrap();
}

fn serve(root: &Path) -> ! {
    let notice = root.with_extension("notice");
    let service = Service::start(root, &notice, "simulate", Publish::Close, Keep::All).unwrap();
    service.producers(Phase::Producing);
    File::create(service.layout().stage.join("a")).unwrap().write_all(b"whole").unwrap();
    let faces = vec![service.layout().published];
    let seen_at = "/data/frames".into();
    let show = ViewOptions { faces, seen_at, notice, wait: LONG, awaits: Vec::new(), moved: MovedFiles::default() };
    let callbacks = ViewCallbacks { read: Box::new(|_| ()), story: Box::new(|_, _| ()) };
    let _view = View::mount(&std::env::temp_dir().join(root.file_name().unwrap()).join("at"), show, callbacks).unwrap();
    loop {
        std::thread::park();
    }
}

#[test]
fn a_mount_point_that_is_not_empty_is_refused() {
    let Some(s) = Fixture::new(LONG) else { return crossdock_os::testing::skip("fuse") };
    let at = s.root.join("stage");
    fs::write(at.join("x"), "x").unwrap();
    let error = View::mount(&at, s.show(), s.callbacks()).unwrap_err().to_string();
    assert!(error.contains("is not empty"), "{error}");
}

#[test]
fn the_numbers_of_files_are_stable_for_programs_that_compare_them() {
    let Some(s) = Fixture::new(LONG) else { return crossdock_os::testing::skip("fuse") };
    fs::write(s.stage("a"), "x").unwrap();
    let first = fs::metadata(s.at.join("a")).unwrap();
    let held = File::open(s.at.join("a")).unwrap();
    assert_eq!(held.metadata().unwrap().ino(), fs::metadata(s.at.join("a")).unwrap().ino());
    assert_eq!(first.len(), 1);
}

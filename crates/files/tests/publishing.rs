//! Tests of a managed directory from both sides: what producers do in `stage`, and what consumers see and when.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crossdock_core::files::{FileWaitOutcome, Views};
use crossdock_files::{FileState, Keep, Layout, Publish, Service, look};
use crossdock_layout::files::Phase;
use crossdock_os::testing::until;

/// A managed directory in memory, with its service.
struct Fixture {
    root: PathBuf,
    service: Option<Service>,
    layout: Layout,
}

impl Fixture {
    fn new(how: Publish) -> Self {
        Self::keeping(how, Keep::All)
    }

    fn keeping(how: Publish, keep: Keep) -> Self {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Self::at(PathBuf::from(format!("/dev/shm/crossdock-files-{}-{number}", std::process::id())), how, keep)
    }

    fn at(root: PathBuf, how: Publish, keep: Keep) -> Self {
        let service = Service::start(&root, &root.with_extension("notice"), "simulate", how, keep).unwrap();
        let layout = service.layout();
        Self { root, service: Some(service), layout }
    }

    fn service(&self) -> &Service {
        self.service.as_ref().unwrap()
    }

    fn stage(&self, name: &str) -> PathBuf {
        self.layout.stage.join(name)
    }

    fn published(&self, name: &str) -> PathBuf {
        self.layout.published.join(name)
    }

    /// Gives the settings with which a consumer's open waits for a file. The consumer sees the published folder under its
    /// real path.
    fn views(&self, deadline: Duration) -> Views {
        let notice = self.root.with_extension("notice");
        let notice = notice.to_str().unwrap();
        Views::parse(&Views::line(self.layout.published.to_str().unwrap(), notice, deadline, &[])).unwrap()
    }

    fn wait(&self, name: &str) -> FileWaitOutcome {
        self.views(Duration::from_secs(10)).await_file(self.published(name).to_str().unwrap().as_bytes())
    }

    /// The state of a name in the list of `crossdock ls --files`.
    fn state(&self, name: &str) -> Option<FileState> {
        let look = look(&self.root, &self.root.with_extension("notice"), "/f").unwrap();
        look.lines.into_iter().find(|line| line.name == Path::new(name)).map(|line| line.state)
    }

    /// Waits until the service has handled every event so far. For this purpose, publishes a file: its event comes
    /// after all earlier events.
    fn settle(&self) {
        let name = format!("settled-{}", fs::read_dir(&self.layout.published).unwrap().count());
        fs::write(self.stage(&name), "x").unwrap();
        assert_eq!(self.wait(&name), FileWaitOutcome::Published);
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.service = None;
        fs::remove_dir_all(&self.root).unwrap();
        fs::remove_file(self.root.with_extension("notice")).unwrap();
    }
}

/// A file cannot be published, because among the published files a folder has the file's name. When the folder is gone,
/// the service publishes the file, although the producer does nothing more.
#[test]
fn a_file_that_could_not_be_published_is_published_when_the_reason_has_passed() {
    let directory = Fixture::new(Publish::Close);
    fs::create_dir(directory.published("f")).unwrap();
    fs::write(directory.stage("f"), "complete").unwrap();
    std::thread::sleep(Duration::from_millis(500));
    assert!(directory.published("f").is_dir());
    fs::remove_dir(directory.published("f")).unwrap();
    let began = Instant::now();
    while fs::read(directory.published("f")).ok().as_deref() != Some(b"complete") {
        assert!(began.elapsed() < Duration::from_secs(20), "the service has given up");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The reason is the same as in the test above.
#[test]
fn waits_end_only_when_a_file_that_could_not_be_published_at_the_producers_end_is_published() {
    let directory = Fixture::new(Publish::Close);
    fs::create_dir(directory.published("f")).unwrap();
    fs::write(directory.stage("f"), "complete").unwrap();
    directory.service().producers(Phase::Ended);
    let FileWaitOutcome::TimedOut(story) = directory
        .views(Duration::from_millis(300))
        .await_file(directory.published("never").to_str().unwrap().as_bytes())
    else {
        panic!("a wait ends before all finished files are published")
    };
    assert!(story.to_string().contains("simulate still runs"), "{story}");
    fs::remove_dir(directory.published("f")).unwrap();
    let FileWaitOutcome::Gone(story) = directory.wait("never") else { panic!("the wait does not end") };
    assert!(story.to_string().contains("simulate ended in order"), "{story}");
    assert_eq!(fs::read(directory.published("f")).unwrap(), b"complete");
}

#[test]
fn a_closed_file_is_published_whole_and_is_the_very_file_that_was_written() {
    let f = Fixture::new(Publish::Close);
    let mut file = File::create(f.stage("a.dat")).unwrap();
    file.write_all(&[7; 100_000]).unwrap();
    f.settle();
    assert!(!f.published("a.dat").exists(), "it is still open");
    file.write_all(&[8; 100_000]).unwrap();
    drop(file);
    assert_eq!(f.wait("a.dat"), FileWaitOutcome::Published);
    let (here, there) = (fs::metadata(f.stage("a.dat")).unwrap(), fs::metadata(f.published("a.dat")).unwrap());
    assert_eq!((here.ino(), here.len()), (there.ino(), 200_000));
    assert_eq!(there.permissions().mode() & 0o222, 0, "a published file is final");
}

#[test]
fn a_file_with_two_writers_waits_for_the_second_and_one_that_is_mapped_for_its_unmapping() {
    let f = Fixture::new(Publish::Close);
    let one = File::create(f.stage("two")).unwrap();
    let other = OpenOptions::new().append(true).open(f.stage("two")).unwrap();
    drop(one);
    f.settle();
    assert!(!f.published("two").exists());
    drop(other);
    assert_eq!(f.wait("two"), FileWaitOutcome::Published);

    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(f.stage("mapped")).unwrap();
    file.set_len(4096).unwrap();
    let mapping = crossdock_os::Mapping::new(&file, 4096, crossdock_os::Access::ReadWrite).unwrap();
    drop(file);
    f.settle();
    assert!(!f.published("mapped").exists(), "stores through the mapping still come");
    drop(mapping);
    assert_eq!(f.wait("mapped"), FileWaitOutcome::Published);
}

/// During a producer's `open`, a file has its name before the kernel counts the producer as a writer. `mknod` makes a
/// file that stays in this state.
#[test]
fn an_empty_file_that_no_producer_has_opened_yet_is_not_published_at_once() {
    let f = Fixture::new(Publish::Close);
    let began = Instant::now();
    let made = Command::new("python3").args(["-c", "import os, sys; os.mknod(sys.argv[1])"]).arg(f.stage("a")).status();
    assert!(made.unwrap().success());
    assert_eq!(f.wait("a"), FileWaitOutcome::Published, "no producer comes: it is finished");
    assert!(began.elapsed() >= Duration::from_secs(1), "published after {:?}", began.elapsed());
}

#[test]
fn a_rename_into_place_publishes_and_replaces_while_a_reader_keeps_what_it_opened() {
    let f = Fixture::new(Publish::Rename);
    fs::write(f.stage("x.tmp"), "first").unwrap();
    fs::rename(f.stage("x.tmp"), f.stage("x")).unwrap();
    assert_eq!(f.wait("x"), FileWaitOutcome::Published);
    assert!(!f.published("x.tmp").exists(), "a close alone publishes nothing here");
    let reader = File::open(f.published("x")).unwrap();
    fs::write(f.stage("y.tmp"), "second").unwrap();
    fs::rename(f.stage("y.tmp"), f.stage("x")).unwrap();
    let until = Instant::now() + Duration::from_secs(10);
    while fs::read_to_string(f.published("x")).unwrap() != "second" {
        assert!(Instant::now() < until, "the second generation was never published");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(std::io::read_to_string(reader).unwrap(), "first");
}

#[test]
fn a_file_whose_writer_is_killed_is_never_published_and_one_written_anew_is() {
    let f = Fixture::new(Publish::Close);
    if !f.service().report().writers_known {
        return crossdock_os::testing::skip("known-writers");
    }
    for _ in 0..20 {
        let script = format!("exec 3> {}; echo half >&3; kill -9 $$", f.stage("half").display());
        let mut child = Command::new("sh").args(["-c", &script]).stderr(Stdio::null()).spawn().unwrap();
        child.wait().unwrap();
        f.settle();
        assert!(!f.published("half").exists());
    }
    assert_eq!(f.service().report().torn, 1, "one file, written again and again");
    assert_eq!(f.state("half"), Some(FileState::Torn));
    fs::write(f.stage("half"), "whole").unwrap();
    assert_eq!(f.wait("half"), FileWaitOutcome::Published);
    assert_eq!(f.state("half"), Some(FileState::Published));
    // A process that closes its file and is killed later has finished the file. If it is killed before the service has
    // looked at the file, it counts as killed while it wrote. So the script waits for the publication before it kills
    // itself.
    for number in 0..20 {
        let name = format!("early-{number}");
        let (stage, published) = (f.stage(&name), f.published(&name));
        let wait = format!("until [ -e {} ]; do sleep 0.01; done", published.display());
        let script = format!("echo whole > {}; {wait}; kill -9 $$", stage.display());
        Command::new("sh").args(["-c", &script]).stderr(Stdio::null()).status().unwrap();
        assert!(published.exists());
    }
}

#[test]
fn a_killed_writer_is_noticed_in_a_folder_below() {
    let f = Fixture::new(Publish::Close);
    if !f.service().report().writers_known {
        return crossdock_os::testing::skip("known-writers");
    }
    fs::create_dir_all(f.stage("a/b")).unwrap();
    fs::write(f.stage("a/b/first"), "whole").unwrap();
    assert_eq!(f.wait("a/b/first"), FileWaitOutcome::Published);
    let script = format!("exec 3> {}; echo half >&3; kill -9 $$", f.stage("a/b/half").display());
    Command::new("sh").args(["-c", &script]).stderr(Stdio::null()).status().unwrap();
    until("a decision", || f.published("a/b/half").exists() || f.service().report().torn == 1);
    assert!(!f.published("a/b/half").exists());
}

#[test]
fn a_file_that_was_closed_is_published_at_the_end_although_its_writer_was_killed_later() {
    let f = Fixture::new(Publish::End);
    if !f.service().report().writers_known {
        return crossdock_os::testing::skip("known-writers");
    }
    let (whole, half) = (f.stage("whole"), f.stage("half"));
    let script =
        format!("echo whole > {}; exec 3> {}; echo half >&3; sleep 1; kill -9 $$", whole.display(), half.display());
    Command::new("sh").args(["-c", &script]).stderr(Stdio::null()).status().unwrap();
    f.service().producers(Phase::Ended);
    assert!(f.published("whole").exists());
    assert!(!f.published("half").exists());
    assert_eq!((f.service().report().torn, f.state("half")), (1, Some(FileState::Torn)));
}

/// File systems of disks give the inode number of a removed file to the next file that is made.
#[test]
fn a_file_is_not_torn_by_the_death_of_the_writer_of_a_removed_file_with_the_same_inode_number() {
    let root = std::env::temp_dir().join(format!("crossdock-inodes-{}", std::process::id()));
    let f = Fixture::at(root, Publish::Close, Keep::All);
    if !f.service().report().writers_known {
        return crossdock_os::testing::skip("known-writers");
    }
    for number in 0..5 {
        let script = format!("exec 3> {}; echo half >&3; kill -9 $$", f.stage(".scratch").display());
        Command::new("sh").args(["-c", &script]).stderr(Stdio::null()).status().unwrap();
        f.settle();
        fs::remove_file(f.stage(".scratch")).unwrap();
        // The service compares the time at which a file was made with the time at which a writer was killed. The time
        // at which a file was made may be wrong by a few milliseconds, so the test waits.
        std::thread::sleep(Duration::from_millis(50));
        let name = format!("whole-{number}");
        fs::write(f.stage(&name), "whole").unwrap();
        assert_eq!(f.wait(&name), FileWaitOutcome::Published);
    }
}

#[test]
fn files_that_are_not_published_cost_the_service_no_descriptors() {
    let f = Fixture::new(Publish::Marker(".done".into()));
    if !f.service().report().writers_known {
        return crossdock_os::testing::skip("known-writers");
    }
    // Each marker is written by a process of its own and is never published.
    let script = "for n in $(seq 300); do echo x > $n; sh -c \"echo > $n.done\"; cat $n > .hidden-$n; done";
    assert!(Command::new("sh").args(["-c", script]).current_dir(&f.layout.stage).status().unwrap().success());
    assert_eq!(f.wait("300"), FileWaitOutcome::Published);
    // The thread that learns which processes write files has a table of descriptors of its own.
    let mut of_threads = Vec::new();
    for thread in fs::read_dir("/proc/self/task").unwrap().flatten() {
        let Ok(open) = fs::read_dir(thread.path().join("fd")) else { continue };
        let links = open.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
        of_threads.push(links.filter(|link| link.to_string_lossy().contains("pidfd")).count());
    }
    assert!(of_threads.iter().all(|processes| *processes < 250), "descriptors of processes: {of_threads:?}");
}

#[test]
fn a_file_whose_writer_exits_in_one_of_its_threads_is_published() {
    let f = Fixture::new(Publish::Close);
    // The file stays open until the process ends. When another thread calls `_exit`, the kernel ends the process's first
    // thread by a signal. This must not count as a killed writer.
    let script = format!(
        "import os, threading, time\nfile = open('{}', 'w')\nfile.write('whole')\nfile.flush()\n\
         threading.Thread(target=lambda: os._exit(0)).start()\ntime.sleep(60)",
        f.stage("threads").display()
    );
    assert!(Command::new("python3").args(["-c", &script]).status().unwrap().success());
    assert_eq!(f.wait("threads"), FileWaitOutcome::Published);
    assert_eq!(f.service().report().torn, 0);
}

#[test]
fn subfolders_links_and_removals_are_seen_as_producers_make_them() {
    let f = Fixture::new(Publish::Close);
    fs::create_dir_all(f.stage("a/b/c")).unwrap();
    fs::write(f.stage("a/b/c/deep"), "1").unwrap();
    assert_eq!(f.wait("a/b/c/deep"), FileWaitOutcome::Published);
    fs::hard_link(f.stage("a/b/c/deep"), f.stage("again")).unwrap();
    assert_eq!(f.wait("again"), FileWaitOutcome::Published);
    fs::remove_file(f.stage("again")).unwrap();
    fs::write(f.stage(".hidden"), "1").unwrap();
    fs::rename(f.stage("a"), f.stage("z")).unwrap();
    assert_eq!(f.wait("z/b/c/deep"), FileWaitOutcome::Published);
    f.settle();
    assert!(!f.published("again").exists() && !f.published("a").exists() && !f.published(".hidden").exists());
    // A folder that is moved into `stage` with a file in it causes no close event for the file.
    fs::create_dir(f.root.join("outside")).unwrap();
    fs::write(f.root.join("outside/file"), "1").unwrap();
    fs::rename(f.root.join("outside"), f.stage("inside")).unwrap();
    assert_eq!(f.wait("inside/file"), FileWaitOutcome::Published);
}

#[test]
fn a_marker_or_the_producers_end_publishes_where_that_was_asked_for() {
    let f = Fixture::new(Publish::Marker(".done".into()));
    fs::write(f.stage("a"), "1").unwrap();
    f.settle_with_marker();
    assert!(!f.published("a").exists());
    fs::write(f.stage("a.done"), "").unwrap();
    assert_eq!(f.wait("a"), FileWaitOutcome::Published);
    assert!(!f.published("a.done").exists());

    let f = Fixture::new(Publish::End);
    fs::write(f.stage("a"), "1").unwrap();
    std::thread::sleep(Duration::from_millis(30));
    assert!(!f.published("a").exists());
    f.service().producers(Phase::Ended);
    assert!(f.published("a").exists());
}

impl Fixture {
    fn settle_with_marker(&self) {
        fs::write(self.stage("settled"), "x").unwrap();
        fs::write(self.stage("settled.done"), "").unwrap();
        assert_eq!(self.wait("settled"), FileWaitOutcome::Published);
    }
}

#[test]
fn a_wait_ends_by_its_deadline_or_by_the_producers_end_and_says_why() {
    let f = Fixture::new(Publish::Close);
    let path = f.published("never");
    let path = path.to_str().unwrap().as_bytes();
    f.service().producers(Phase::Producing);
    let FileWaitOutcome::TimedOut(story) = f.views(Duration::from_millis(50)).await_file(path) else { panic!() };
    let story = story.to_string();
    assert!(story.contains("not published within 0.") && story.contains("simulate still runs"), "{story}");
    fs::write(f.stage("one"), "1").unwrap();
    assert_eq!(f.wait("one"), FileWaitOutcome::Published);
    let views = f.views(Duration::from_secs(60));
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| views.await_file(path));
        std::thread::sleep(Duration::from_millis(20));
        f.service().producers(Phase::Failed);
        let FileWaitOutcome::Gone(story) = waiter.join().unwrap() else { panic!() };
        let story = story.to_string();
        assert!(story.contains("simulate failed") && story.contains("1 files were published"), "{story}");
    });
    assert_eq!(f.views(Duration::ZERO).await_file(b"/elsewhere/x"), FileWaitOutcome::Pass);
}

#[test]
fn a_service_that_comes_after_a_killed_one_goes_on_from_the_folders() {
    let mut f = Fixture::new(Publish::Close);
    fs::write(f.stage("one"), "1").unwrap();
    assert_eq!(f.wait("one"), FileWaitOutcome::Published);
    let open = File::create(f.stage("open")).unwrap();
    f.service = None;
    fs::write(f.stage("two"), "2").unwrap();
    fs::create_dir(f.stage("folder")).unwrap();
    fs::write(f.stage("folder/three"), "3").unwrap();
    fs::write(f.root.join("new/7"), "a link that a killed service left").unwrap();
    f.service =
        Some(Service::start(&f.root, &f.root.with_extension("notice"), "simulate", Publish::Close, Keep::All).unwrap());
    for name in ["one", "two", "folder/three"] {
        assert_eq!(f.wait(name), FileWaitOutcome::Published);
    }
    assert!(!f.published("open").exists() && !f.root.join("new/7").exists());
    drop(open);
    assert_eq!(f.wait("open"), FileWaitOutcome::Published);
}

#[test]
fn a_service_ends_at_any_moment_and_holds_up_no_open() {
    let mut f = Fixture::new(Publish::Close);
    for round in 0..200 {
        for number in 0..3 {
            fs::write(f.stage(&format!("{round}-{number}")), "1").unwrap();
        }
        f.service = None;
        fs::write(f.stage(&format!("{round}-late")), "1").unwrap();
        f.service = Some(
            Service::start(&f.root, &f.root.with_extension("notice"), "simulate", Publish::Close, Keep::All).unwrap(),
        );
    }
    assert_eq!(f.wait("199-late"), FileWaitOutcome::Published);
}

#[test]
fn only_the_newest_files_are_kept_where_that_was_asked_for() {
    let f = Fixture::keeping(Publish::Close, Keep::Newest(3));
    for number in 0..10 {
        fs::write(f.stage(&number.to_string()), "1").unwrap();
        let is_seen = |number: u64| f.layout.published.join(number.to_string()).exists();
        let until = Instant::now() + Duration::from_secs(10);
        while !is_seen(number) {
            assert!(Instant::now() < until, "{number} is not published");
        }
        assert!(number < 3 || !is_seen(number - 3), "a consumer that sees {number} does not see {}", number - 3);
        let until = Instant::now() + Duration::from_secs(10);
        while f.service().report().published <= number && Instant::now() < until {
            std::thread::yield_now();
        }
    }
    let names = |folder: &Path| {
        let mut names: Vec<_> = fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(names(&f.layout.published), ["7", "8", "9"]);
    assert_eq!(names(&f.layout.stage), ["7", "8", "9"]);
    assert_eq!((f.state("6"), f.state("7")), (Some(FileState::Dropped), Some(FileState::Published)));
}

#[test]
fn a_file_that_its_producer_removes_does_not_count_as_one_of_the_newest() {
    let f = Fixture::keeping(Publish::Close, Keep::Newest(3));
    let names = |wanted: &[&str]| {
        let until = Instant::now() + Duration::from_secs(10);
        loop {
            let mut names: Vec<_> =
                fs::read_dir(&f.layout.published).unwrap().map(|e| e.unwrap().file_name()).collect();
            names.sort();
            if names == wanted {
                return;
            }
            assert!(Instant::now() < until, "{names:?}, not {wanted:?}");
            std::thread::sleep(Duration::from_millis(2));
        }
    };
    fs::create_dir(f.stage("sub")).unwrap();
    for name in ["0", "1", "2"] {
        fs::write(f.stage(name), "1").unwrap();
        assert_eq!(f.wait(name), FileWaitOutcome::Published);
    }
    fs::remove_file(f.stage("2")).unwrap();
    names(&["0", "1", "sub"]);
    fs::write(f.stage("3"), "1").unwrap();
    assert_eq!(f.wait("3"), FileWaitOutcome::Published);
    names(&["0", "1", "3", "sub"]);
    // After its rename, the file counts as a new file, and so as the newest one.
    fs::rename(f.stage("0"), f.stage("4")).unwrap();
    assert_eq!(f.wait("4"), FileWaitOutcome::Published);
    names(&["1", "3", "4", "sub"]);
    fs::write(f.stage("5"), "1").unwrap();
    names(&["3", "4", "5", "sub"]);
    // If a producer removes a folder, consumers no longer see the folder and its files.
    fs::write(f.stage("sub/6"), "1").unwrap();
    assert_eq!(f.wait("sub/6"), FileWaitOutcome::Published);
    names(&["4", "5", "sub"]);
    fs::remove_dir_all(f.stage("sub")).unwrap();
    names(&["4", "5"]);
    fs::write(f.stage("7"), "1").unwrap();
    assert_eq!(f.wait("7"), FileWaitOutcome::Published);
    names(&["4", "5", "7"]);
    assert_eq!(f.service().report().dropped, 2);
}

#[test]
fn many_files_by_many_writers_are_each_published_once_and_whole() {
    let f = Fixture::new(Publish::Close);
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let f = &f;
            scope.spawn(move || {
                for number in 0..200 {
                    let mut file = File::create(f.stage(&format!("{writer}-{number}"))).unwrap();
                    for _ in 0..10 {
                        file.write_all(&[b'a' + writer; 1000]).unwrap();
                    }
                }
            });
        }
        for reader in 0..4u8 {
            let f = &f;
            scope.spawn(move || {
                for number in 0..200 {
                    let name = format!("{reader}-{number}");
                    assert_eq!(f.wait(&name), FileWaitOutcome::Published);
                    let bytes = fs::read(f.published(&name)).unwrap();
                    assert!(bytes.len() == 10_000 && bytes.iter().all(|b| *b == b'a' + reader), "{name}");
                }
            });
        }
    });
    let report = f.service().report();
    assert_eq!((report.published, report.torn, report.troubles.len()), (800, 0, 0), "{report:?}");
}

#[test]
fn a_file_that_each_consumer_has_read_goes_and_one_that_is_still_open_stays() {
    let f = Fixture::keeping(Publish::Close, Keep::Consumed { readers: vec![1, 2] });
    let layout = f.layout.clone();
    let (one, two) = (layout.for_consumer(0).to_owned(), layout.for_consumer(1).to_owned());
    for name in ["a", "b", "c"] {
        fs::write(f.stage(name), b"whole").unwrap();
        assert_eq!(f.wait(name), FileWaitOutcome::Published);
    }
    let read = |folder: &Path, name: &str| assert_eq!(fs::read(folder.join(name)).unwrap(), b"whole");
    read(&one, "a");
    read(&two, "a");
    let held = File::open(two.join("b")).unwrap();
    read(&two, "b");
    read(&two, "b");
    read(&one, "b");
    read(&two, "c");
    read(&two, "c");
    // `a` is not yet read by the second rank of the second consumer, `b` is still open, `c` is not yet read by the
    // first consumer.
    read(&two, "a");
    let places = [f.stage("a"), one.join("a"), two.join("a"), f.published("a")];
    until("the file that was read to go", || !places.iter().any(|place| place.exists()));
    assert!(one.join("b").exists() && one.join("c").exists());
    drop(held);
    until("the file that was closed to go", || !one.join("b").exists() && !f.stage("b").exists());
    assert!(one.join("c").exists());
    assert_eq!(f.service().report().dropped, 2);
    assert!(fs::read_to_string(&layout.events()[0]).unwrap().contains("dropped\ta\n"));
}

#[test]
fn a_marker_publishes_a_file_whose_name_is_no_text() {
    let f = Fixture::new(Publish::Marker(".done".into()));
    let name = |bytes| Path::new(OsStr::from_bytes(bytes)).to_owned();
    fs::write(f.layout.stage.join(name(b"\xe4")), "x").unwrap();
    fs::write(f.layout.stage.join(name(b"\xe4.done")), "").unwrap();
    until("the file", || f.layout.published.join(name(b"\xe4")).exists());
}

/// A producer can make very many folders in a moment. The program that runs the service asks it for reports meanwhile,
/// and must get each answer soon.
#[test]
fn a_service_answers_although_a_producer_makes_many_nested_folders() {
    let f = Fixture::new(Publish::Close);
    let ask = || {
        let began = Instant::now();
        let report = f.service().report();
        assert!(began.elapsed() < Duration::from_secs(3), "the answer took {:?}", began.elapsed());
        report
    };
    let mut deepest = PathBuf::new();
    for _ in 0..800 {
        deepest.push("a");
        fs::create_dir(f.layout.stage.join(&deepest)).unwrap();
    }
    deepest.push("f");
    fs::write(f.layout.stage.join(&deepest), "x").unwrap();
    until("the file in the last folder", || ask().published == 1);
    assert!(f.layout.published.join(&deepest).exists());
    fs::remove_dir_all(f.stage("a")).unwrap();
    until("the folders to go", || ask().troubles.is_empty() && !f.published("a").exists());
}

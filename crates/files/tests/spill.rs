//! Tests that published files move from a full memory to a disk, and that consumers do not notice.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossdock_files::{FileState, Keep, MovedFiles, Publish, Service, View, ViewCallbacks, ViewOptions, look};
use crossdock_layout::files::Phase;
use crossdock_os::testing::until;

const LONG: Duration = Duration::from_secs(60);
const SIZE: usize = 100_000;

struct Fixture {
    root: PathBuf,
    disk: PathBuf,
    service: Option<Service>,
    moved: MovedFiles,
}

impl Fixture {
    /// Makes a directory with memory for four files. The fourth file makes the oldest one move to the disk.
    fn new(keep: Keep) -> Self {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let root = PathBuf::from(format!("/dev/shm/crossdock-spill-{}-{number}", std::process::id()));
        let disk = std::env::temp_dir().join(root.file_name().unwrap());
        let mut service =
            Service::start(&root, &root.with_extension("notice"), "simulate", Publish::Close, keep).unwrap();
        service.producers(Phase::Producing);
        let moved = service.spill_to(&disk, 4 * SIZE as u64).unwrap();
        Self { root, disk, service: Some(service), moved }
    }

    fn service(&self) -> &Service {
        self.service.as_ref().unwrap()
    }

    fn write(&self, name: &str, byte: u8) {
        fs::write(self.root.join("stage").join(name), [byte].repeat(SIZE)).unwrap();
    }

    fn in_memory(&self, name: &str) -> bool {
        self.root.join("published").join(name).exists()
    }

    fn on_disk(&self, name: &str) -> bool {
        self.root.join("spilled").join(name).exists()
    }

    /// Writes files until the first one has moved to the disk.
    fn fill(&self) {
        for n in 0..4 {
            self.write(&n.to_string(), b'0' + n);
        }
        until("the oldest file is on the disk alone", || self.on_disk("0") && !self.in_memory("0"));
    }

    fn view(&self) -> Option<(View, PathBuf)> {
        if crossdock_os::child::user() != 0 || !Path::new("/dev/fuse").exists() {
            return None;
        }
        let layout = self.service().layout();
        let show = ViewOptions {
            faces: vec![layout.for_consumer(0).to_owned(), layout.spilled],
            seen_at: "/data/frames".into(),
            notice: self.root.with_extension("notice"),
            wait: LONG,
            awaits: Vec::new(),
            moved: self.moved.clone(),
        };
        let at = self.disk.with_extension("view");
        let callbacks = ViewCallbacks { read: Box::new(self.service().reads_by_view(0)), story: Box::new(|_, _| ()) };
        Some((View::mount(&at, show, callbacks).unwrap(), at))
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.service = None;
        fs::remove_dir_all(&self.root).unwrap();
        fs::remove_dir_all(&self.disk).unwrap();
        fs::remove_file(self.root.with_extension("notice")).unwrap();
    }
}

#[test]
fn the_oldest_files_move_until_half_of_the_memory_is_free_and_stay_whole() {
    let s = Fixture::new(Keep::All);
    s.fill();
    until("half of the memory is free", || !s.in_memory("1"));
    assert!(s.in_memory("2") && s.in_memory("3") && s.on_disk("1") && !s.on_disk("2"));
    for n in 0..2u8 {
        let copy = s.root.join("spilled").join(n.to_string());
        assert_eq!(fs::read(&copy).unwrap(), [b'0' + n].repeat(SIZE));
        assert_eq!(fs::metadata(copy).unwrap().mode() & 0o222, 0, "a published file is final");
    }
    until("both are counted", || s.service().report().spilled == 2);
    let seen = look(&s.root, &s.root.with_extension("notice"), "/f").unwrap();
    let states: Vec<FileState> = seen.lines.iter().map(|line| line.state).collect();
    assert_eq!(states, [FileState::Spilled, FileState::Spilled, FileState::Published, FileState::Published]);
}

#[test]
fn a_new_file_of_a_moved_name_takes_the_place_of_the_old_one() {
    let s = Fixture::new(Keep::All);
    s.fill();
    s.write("0", b'n');
    until("the new file is there", || s.in_memory("0") && !s.on_disk("0"));
    assert_eq!(fs::read(s.root.join("published/0")).unwrap()[0], b'n');
}

#[test]
fn the_newest_files_are_kept_across_memory_and_disk() {
    let s = Fixture::new(Keep::Newest(5));
    s.fill();
    for n in 4..7u8 {
        s.write(&n.to_string(), b'0' + n);
        until("it is published", || s.in_memory(&n.to_string()) || s.on_disk(&n.to_string()));
    }
    until("the older ones are dropped", || !s.on_disk("0") && !s.on_disk("1") && !s.in_memory("1"));
    until("the newest five are there", || (2..7).all(|n| s.in_memory(&n.to_string()) || s.on_disk(&n.to_string())));
}

#[test]
fn a_consumer_reads_the_same_file_before_during_and_after_the_move() {
    let s = Fixture::new(Keep::All);
    let Some((view, at)) = s.view() else { return crossdock_os::testing::skip("fuse") };
    s.write("0", b'0');
    let mut held = File::open(at.join("0")).unwrap();
    let before = held.metadata().unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // The reader must find the whole file each time.
        let reader = scope.spawn(|| {
            let mut times = 0;
            while !over.load(Ordering::Acquire) || times < 10 {
                let bytes = fs::read(at.join("0")).unwrap();
                assert!(bytes == [b'0'].repeat(SIZE), "{} bytes", bytes.len());
                times += 1;
            }
        });
        for n in 1..4 {
            s.write(&n.to_string(), b'0' + n);
        }
        until("the file is on the disk alone", || s.on_disk("0") && !s.in_memory("0"));
        over.store(true, Ordering::Release);
        reader.join().unwrap();
    });
    let after = fs::metadata(at.join("0")).unwrap();
    assert_eq!((after.ino(), after.len(), after.mtime_nsec()), (before.ino(), before.len(), before.mtime_nsec()));
    let mut bytes = Vec::new();
    held.read_to_end(&mut bytes).unwrap();
    assert!(bytes == [b'0'].repeat(SIZE), "what was open is read on");
    let mut names: Vec<_> = fs::read_dir(&at).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["0", "1", "2", "3"]);
    drop(view);
}

#[test]
fn files_that_all_have_read_are_dropped_from_memory_and_disk() {
    let s = Fixture::new(Keep::Consumed { readers: vec![1] });
    let Some((view, at)) = s.view() else { return crossdock_os::testing::skip("fuse") };
    s.fill();
    for n in 0..4u8 {
        assert_eq!(fs::read(at.join(n.to_string())).unwrap()[0], b'0' + n);
    }
    until("all are dropped", || (0..4).all(|n| !s.in_memory(&n.to_string()) && !s.on_disk(&n.to_string())));
    assert_eq!(s.service().report().dropped, 4);
    drop(view);
}

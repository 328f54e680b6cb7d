//! In these tests, each system call by which a file is published, withdrawn or moved to a disk fails one time, with
//! each error that the kernel may give. After the failure, the same step must succeed when it is repeated, and
//! consumers must never see a file that is not finished.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crossdock_os::fanotify::OpenWatch;
use crossdock_os::faults::each_call_fails;

use crate::rules::{Keep, Publish};
use crate::service::Service;
use crate::spill::Spill;
use crate::store::{PublishOutcome, Store};
use crate::view::MovedFiles;

const NAME: &str = "a/f";
const BYTES: &[u8] = &[7; 100_000];

/// The folder in memory for a store, and the folder on a disk to which its files are moved. Both are removed at the end
/// of the test.
struct Folders {
    memory: tempfile::TempDir,
    disk: tempfile::TempDir,
}

impl Folders {
    fn new() -> Self {
        Self { memory: tempfile::tempdir_in("/dev/shm").unwrap(), disk: tempfile::tempdir().unwrap() }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.memory.path().join("store").join(name)
    }

    fn open(&self, single: usize) -> std::io::Result<Store> {
        Store::open(&self.at(""), &self.memory.path().join("notice"), "simulate", single)
    }

    /// Makes a store in whose stage a producer has finished the file `a/f`. `single` is the number of consumers that
    /// have folders of their own.
    fn with_file(&self, single: usize) -> Store {
        let store = self.open(single).unwrap();
        std::fs::create_dir(self.at("stage/a")).unwrap();
        std::fs::write(self.at("stage/a/f"), BYTES).unwrap();
        std::fs::set_permissions(self.at("stage/a/f"), std::fs::Permissions::from_mode(0o640)).unwrap();
        store
    }
}

fn publish(store: &mut Store) -> std::io::Result<PublishOutcome> {
    store.publish(Path::new(NAME), false, &mut || Ok(false), &mut |_| {})
}

fn has(path: &Path) -> bool {
    match std::fs::read(path) {
        Ok(bytes) => {
            assert_eq!(bytes, BYTES, "{}", path.display());
            true
        }
        Err(_) => false,
    }
}

#[test]
fn a_store_is_made_after_each_failed_call() {
    let seen = each_call_fails(|attempt| {
        let folders = Folders::new();
        attempt.arm();
        drop(folders.open(1));
        let hit = attempt.disarm();
        folders.open(1).unwrap_or_else(|error| panic!("{hit:?}: {error}"));
    });
    assert!(["mkdir", "chmod", "open", "ftruncate", "mmap"].iter().all(|call| seen.contains(call)), "{seen:?}");
}

#[test]
fn a_file_is_published_after_each_failed_call_and_never_seen_half_finished() {
    for single in [0, 2] {
        let seen = each_call_fails(|attempt| {
            let folders = Folders::new();
            let mut store = folders.with_file(single);
            attempt.arm();
            let tried = publish(&mut store);
            let hit = attempt.disarm();
            let mode = || std::fs::metadata(folders.at("stage/a/f")).unwrap().permissions().mode() & 0o777;
            match tried {
                Ok(PublishOutcome::Done) => {}
                // No process writes the file, so `Written` would be wrong: the service would tell consumers that the
                // producers have ended, although a finished file is not published.
                Err(_) => {
                    assert!(!has(&folders.at("published/a/f")), "{hit:?}");
                    // A consumer that read the file now would read it a second time later, because its read would not
                    // count.
                    let is_shown = (0..single).any(|n| folders.at(&format!("for.{n}/a/f")).exists());
                    assert!(!is_shown, "{hit:?}: a consumer sees the file before the others");
                    // A consumer may have opened the file before it was taken back.
                    let was_shown = single > 0 && mode() == 0o444;
                    assert!(mode() == 0o640 || was_shown, "{hit:?} {:o}", mode());
                    match publish(&mut store) {
                        Ok(PublishOutcome::Done) => {}
                        other => panic!("{hit:?}: {other:?}"),
                    }
                }
                Ok(other) => panic!("{hit:?}: the service would not try again after {other:?}"),
            }
            assert!(has(&folders.at("published/a/f")), "{hit:?}");
            assert!((0..single).all(|n| has(&folders.at(&format!("for.{n}/a/f")))), "{hit:?}");
            assert_eq!(mode() & 0o222, 0, "{hit:?}: a producer can write a published file");
            let left = std::fs::read_dir(folders.at("new")).unwrap().count();
            assert!(left == 0 || hit.is_some_and(|(call, _)| call == "unlink"), "{hit:?}: {left} left in `new`");
        });
        assert!(
            ["stat", "link", "open", "chmod", "mkdir", "rename"].iter().all(|call| seen.contains(call)),
            "{seen:?}"
        );
    }
}

#[test]
fn a_file_is_not_published_while_it_is_not_known_how_it_was_closed() {
    let folders = Folders::new();
    let mut store = folders.with_file(1);
    let mut is_torn = || Err(std::io::Error::other("not known"));
    assert!(store.publish(Path::new(NAME), false, &mut is_torn, &mut |_| {}).is_err());
    assert!(!has(&folders.at("published/a/f")) && !has(&folders.at("for.0/a/f")));
    assert_eq!(std::fs::read_dir(folders.at("new")).unwrap().count(), 0);
    assert_eq!(publish(&mut store).unwrap(), PublishOutcome::Done);
}

#[test]
fn a_service_starts_or_gives_an_error_and_the_next_one_publishes() {
    let mut failed = 0;
    let mut are_known = None;
    let seen = each_call_fails(|attempt| {
        let folders = Folders::new();
        drop(folders.with_file(0));
        let start = || {
            let notice = folders.memory.path().join("notice");
            Service::start(&folders.at(""), &notice, "simulate", Publish::Close, Keep::All)
        };
        attempt.arm();
        let started = start();
        let hit = attempt.disarm();
        failed += u32::from(started.is_err());
        let service = started.or_else(|_| start()).unwrap_or_else(|error| panic!("{hit:?}: {error}"));
        let began = std::time::Instant::now();
        while !has(&folders.at("published/a/f")) {
            assert!(began.elapsed().as_secs() < 20, "{hit:?}: the service publishes nothing");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        // Producers can open files, and killed writers are noticed as after a start in which no call fails.
        let (sender, receiver) = std::sync::mpsc::channel();
        let (in_top, below) = (folders.at("stage/b"), folders.at("stage/a/b"));
        std::thread::spawn(move || sender.send([in_top, below].map(|path| std::fs::write(path, BYTES))));
        let written = receiver.recv_timeout(std::time::Duration::from_secs(20));
        assert!(matches!(&written, Ok([Ok(()), Ok(())])), "{hit:?}: {written:?}");
        let known = service.report().writers_known;
        assert_eq!(known, *are_known.get_or_insert_with(|| OpenWatch::new().is_ok()), "{hit:?}");
        drop(service);
    });
    assert!(
        ["eventfd", "inotify_init1", "epoll_create1", "epoll_ctl", "fanotify_init"]
            .iter()
            .all(|call| seen.contains(call)),
        "{seen:?}"
    );
    assert!(failed > 20, "{failed}");
}

#[test]
fn a_file_is_withdrawn_after_each_failed_call() {
    let seen = each_call_fails(|attempt| {
        let folders = Folders::new();
        let mut store = folders.with_file(1);
        assert_eq!(publish(&mut store).unwrap(), PublishOutcome::Done);
        attempt.arm();
        let tried = store.withdraw(Path::new(NAME));
        let hit = attempt.disarm();
        if tried.is_err() {
            store.withdraw(Path::new(NAME)).unwrap_or_else(|error| panic!("{hit:?}: {error}"));
        }
        assert!(!has(&folders.at("published/a/f")) && !has(&folders.at("for.0/a/f")), "{hit:?}");
    });
    assert!(seen.contains("stat") && seen.contains("unlink"), "{seen:?}");
}

#[test]
fn a_file_is_moved_to_the_disk_after_each_failed_call_and_is_always_in_one_of_both_places() {
    let seen = each_call_fails(|attempt| {
        let folders = Folders::new();
        let mut store = folders.with_file(0);
        assert_eq!(publish(&mut store).unwrap(), PublishOutcome::Done);
        let disk = folders.disk.path();
        attempt.arm();
        let mut hit = None;
        let mut spill = Spill::open(&store.layout, disk, 1000, MovedFiles::default()).unwrap_or_else(|_| {
            hit = attempt.disarm();
            Spill::open(&store.layout, disk, 1000, MovedFiles::default())
                .unwrap_or_else(|error| panic!("{hit:?}: {error}"))
        });
        for _ in 0..3 {
            let seen = || has(&folders.at("published/a/f")) || has(&disk.join("files/a/f"));
            assert!(seen(), "{hit:?}: the file is in neither place");
            let Some(copy) = spill.next(&store.layout, 1000) else { continue };
            let moved = copy.make().and_then(|()| spill.take(&store.layout, &copy));
            hit = hit.or_else(|| attempt.disarm());
            assert!(seen(), "{hit:?}: the file is in neither place");
            if moved.is_err() {
                copy.drop_file();
                spill.order.push_back(NAME.into());
            }
        }
        assert!(has(&disk.join("files/a/f")), "{hit:?}");
        assert!(!has(&folders.at("published/a/f")) && !has(&folders.at("stage/a/f")), "{hit:?}");
    });
    let wanted = ["mkdir", "link", "stat", "open", "copy_file_range", "chmod", "rename", "unlink"];
    assert!(wanted.iter().all(|call| seen.contains(call)), "{seen:?}");
}

//! Tests that a task whose memory cgroup is smaller than its data gets NO_SPACE, and that the kernel kills no process.
//! The tests need root, and a cgroup hierarchy of version 1 or 2 with the controller `memory`. Otherwise each test
//! reports that it was skipped.

mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crossdock_client::{ConnectOptions, ItemOptions, Mode, Session, Status};
use support::Daemon;

const LIMIT: u64 = 48 << 20;

/// A cgroup below that of this process. It is removed when this value is dropped.
struct Limited {
    folder: PathBuf,
    unified: bool,
}

impl Limited {
    fn make(name: &str) -> Option<Self> {
        let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        let path = |controller: &str| {
            own.lines()
                .find_map(|l| l.split_once(':')?.1.split_once(':').filter(|(c, _)| *c == controller))
                .map(|(_, p)| p)
        };
        let (folder, unified) = match path("memory") {
            Some(path) => (Path::new("/sys/fs/cgroup/memory").join(path.trim_start_matches('/')), false),
            None => (Path::new("/sys/fs/cgroup").join(path("")?.trim_start_matches('/')), true),
        };
        let folder = folder.join(format!("crossdock-{name}-{}", std::process::id()));
        std::fs::create_dir(&folder).ok()?;
        let made = Self { folder, unified };
        let file = if unified { "memory.max" } else { "memory.limit_in_bytes" };
        std::fs::write(made.folder.join(file), LIMIT.to_string()).ok()?;
        Some(made)
    }

    /// Returns the folder of the cgroup in which the task runs. In version 1 this is a new cgroup below the cgroup with
    /// the limit, and has no limit of its own; in version 2 it is the cgroup with the limit.
    fn below(&self) -> PathBuf {
        let folder = self.folder.join("below");
        if !self.unified {
            std::fs::create_dir_all(&folder).unwrap();
            return folder;
        }
        self.folder.clone()
    }

    fn failures(&self) -> String {
        let file = if self.unified { "memory.events" } else { "memory.oom_control" };
        let text = std::fs::read_to_string(self.folder.join(file)).unwrap_or_default();
        text.lines().find(|l| l.starts_with("oom_kill ")).unwrap_or("oom_kill 0").to_owned()
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        for folder in [self.folder.join("below"), self.folder.clone()] {
            // As long as a process of the cgroup is ending, the cgroup cannot be removed. So the removal is repeated.
            for _ in 0..200 {
                if !folder.exists() || std::fs::remove_dir(&folder).is_ok() {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
        }
    }
}

/// Runs `test` in another process, which is a task of `daemon` and runs in the memory cgroup at `folder`. If `blind` is
/// set, the task cannot see its own cgroup.
fn in_cgroup(test: &str, folder: &Path, daemon: &Daemon, blind: bool) -> Output {
    let program = std::env::current_exe().unwrap();
    // Without `/sys/fs/cgroup`, as in bubblewrap, a task does not see the limit of its memory. In this case the daemon
    // must respect the limit in place of the task.
    let hide = if blind { "mount -t tmpfs none /sys/fs/cgroup && " } else { "" };
    let script = format!(
        "echo $$ > {}/cgroup.procs && {hide}exec {} --exact {test} --nocapture",
        folder.display(),
        program.display()
    );
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", &script]).env("CROSSDOCK_TASK_OF", daemon.socket());
    command.output().unwrap()
}

fn session() -> Option<Session> {
    let socket = std::env::var_os("CROSSDOCK_TASK_OF")?;
    Some(Session::connect(&ConnectOptions { socket: Some(socket.into()), ..ConnectOptions::default() }).unwrap())
}

fn with_each(test: &str, task: impl Fn(&Session)) {
    if let Some(session) = session() {
        return task(&session);
    }
    for blind in [false, true] {
        let Some(limited) = Limited::make(test) else { return crossdock_os::testing::skip("memory-cgroup") };
        let daemon = Daemon::start();
        let ended = in_cgroup(test, &limited.below(), &daemon, blind);
        let said = |bytes| String::from_utf8_lossy(bytes).into_owned();
        let (out, err) = (said(&ended.stdout), said(&ended.stderr));
        assert!(ended.status.success(), "the task, blind {blind}: {}\n{out}\n{err}", ended.status);
        assert_eq!(limited.failures(), "oom_kill 0");
        daemon.stop();
    }
}

#[test]
fn an_item_larger_than_the_tasks_cgroup_is_no_space_and_a_smaller_one_works() {
    with_each("an_item_larger_than_the_tasks_cgroup_is_no_space_and_a_smaller_one_works", |session| {
        let error = session.create_item("large", &ItemOptions::bytes(64 << 20)).unwrap_err();
        assert_eq!(error.status, Status::NoSpace, "{error:?}");
        let mut small = session.create_item("small", &ItemOptions::bytes(16 << 20)).unwrap();
        small.bytes_mut().fill(7);
        let error = small.resize(64 << 20).unwrap_err();
        assert_eq!(error.status, Status::NoSpace, "{error:?}");
        assert!(small.bytes().iter().all(|byte| *byte == 7), "it is as it was");
        small.destroy().unwrap();
    });
}

#[test]
fn a_heap_that_outgrows_the_tasks_cgroup_is_no_space_and_goes_on_after_room_is_made() {
    with_each("a_heap_that_outgrows_the_tasks_cgroup_is_no_space_and_goes_on_after_room_is_made", |session| {
        let region = session.region("r", Mode::CreateOnly, 1 << 30, None).unwrap();
        let mut kept = Vec::new();
        let error = loop {
            match region.allocate(1 << 20, 64) {
                Ok(block) => kept.push(block),
                Err(error) => break error,
            }
            assert!(kept.len() < 64, "more than the cgroup has");
        };
        assert_eq!(error.status, Status::NoSpace, "{error:?}");
        assert!(kept.len() > 16, "{} of about 40 MiB", kept.len());
    });
}

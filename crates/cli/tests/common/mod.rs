//! Starts runs of the real `crossdock` command on small workflows, and checks that nothing is left of them.

#![allow(dead_code, reason = "each test binary uses its own part")]

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crossdock_launch::engine;
pub use crossdock_os::testing::until;
use tempfile::TempDir;

/// The longest time that a step of these tests may take. A step that takes longer counts as hanging.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A folder with a workflow file and a folder for its runs, and a mark by which the test's processes are found.
pub struct Place {
    pub folder: TempDir,
    /// A number of seconds that no other test gives to `sleep`. Processes with it in their command line belong to this
    /// test.
    pub mark: String,
    /// The processes that the test started. If the test fails, they are killed, so that no run is left behind.
    started: Mutex<Vec<u32>>,
}

impl Drop for Place {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let started = self.started.lock().map(|s| s.clone()).unwrap_or_default();
            for pid in started.into_iter().filter(|p| self.processes().contains(p)) {
                signal(pid, rustix::process::Signal::TERM);
            }
            std::thread::sleep(Duration::from_secs(2));
            self.processes().iter().for_each(|pid| signal(*pid, rustix::process::Signal::KILL));
        }
    }
}

/// Finds a free port below the range from which the kernel takes the ports of outgoing connections, so that no
/// connection takes this port a moment later.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = std::process::id() as u16;
    loop {
        let port = 12_000 + first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % 20_000;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

static MARKS: AtomicU32 = AtomicU32::new(0);

impl Place {
    /// Makes a folder with this workflow file, in which the word `MARK` is replaced by the mark.
    pub fn new(workflow: &str) -> Self {
        let folder = tempfile::Builder::new().prefix("cd").tempdir().unwrap();
        let mark = format!("9{:06}{:03}", std::process::id() % 1_000_000, MARKS.fetch_add(1, Ordering::Relaxed));
        fs::write(folder.path().join("workflow.yaml"), workflow.replace("MARK", &mark)).unwrap();
        Self { folder, mark, started: Mutex::default() }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        self.command_by(&[], arguments)
    }

    /// Gives the command `crossdock ARGUMENTS`, which the program `by` executes; an empty list means no such program.
    /// The command begins with the default action for each signal, whatever started these tests.
    pub fn command_by(&self, by: &[&str], arguments: &[&str]) -> Command {
        let words: Vec<&str> = [by, &[env!("CARGO_BIN_EXE_crossdock")], arguments].concat();
        let mut command = Command::new(words[0]);
        crossdock_os::spawn::default_signals(&mut command);
        command.args(&words[1..]).current_dir(self.path()).env("CROSSDOCK_RUNS", self.path().join("r"));
        command.env_remove("CROSSDOCK_SOCKET").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        fs::create_dir_all(self.path().join("r")).unwrap();
        command
    }

    /// Starts `crossdock run workflow.yaml --engine ENGINE …`.
    pub fn start(&self, engine: &str, more: &[&str]) -> Child {
        self.start_by(&[], engine, more)
    }

    /// Starts the same command as [`Self::start`] by the program `by`.
    pub fn start_by(&self, by: &[&str], engine: &str, more: &[&str]) -> Child {
        let mut arguments = vec!["run", "workflow.yaml", "--engine", engine];
        arguments.extend(more);
        let child = self.command_by(by, &arguments).spawn().unwrap();
        self.started.lock().unwrap().push(child.id());
        child
    }

    pub fn run(&self, engine: &str, more: &[&str]) -> Ended {
        finish(self.start(engine, more))
    }

    pub fn log(&self, task: &str) -> String {
        let path = self.path().join("crossdock-logs/w").join(format!("{task}.log"));
        fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    }

    /// Waits until a task has written `words` to its log.
    pub fn await_log(&self, task: &str, words: &str) {
        let path = self.path().join("crossdock-logs/w").join(format!("{task}.log"));
        until(&format!("`{words}` in {}", path.display()), || {
            fs::read_to_string(&path).is_ok_and(|t| t.contains(words))
        });
    }

    /// Lists the folders of runs that exist.
    pub fn runs(&self) -> Vec<PathBuf> {
        let folders = fs::read_dir(self.path().join("r/crossdock/runs")).into_iter().flatten().flatten();
        folders.map(|e| e.path()).collect()
    }

    /// Checks that no process, folder, mount or container of this test's runs is left.
    pub fn assert_nothing_left(&self, engine: &str) {
        let end = Instant::now() + Duration::from_secs(120);
        while !self.processes().is_empty() {
            let lines =
                || self.processes().into_iter().map(|pid| format!("{pid}: {}", line_of(pid))).collect::<Vec<_>>();
            assert!(Instant::now() < end, "{engine}: processes are left: {:#?}", lines());
            std::thread::sleep(Duration::from_millis(2));
        }
        let left: Vec<_> = fs::read_dir(self.path().join("r")).unwrap().flatten().map(|e| e.path()).collect();
        assert!(left.is_empty(), "folders are left: {left:?}");
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let own = self.path().display().to_string();
        assert!(!mounts.contains(&own), "mounts are left: {mounts}");
        if matches!(engine, "podman" | "docker") {
            let output =
                Command::new(engine).args(["ps", "--all", "--format", "{{.Names}} {{.Command}}"]).output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(!text.contains(&self.mark), "containers are left: {text}");
        }
    }

    /// Lists the processes whose command line has the mark or contains the path of this test's folder.
    pub fn processes(&self) -> Vec<u32> {
        let own = self.path().display().to_string();
        let ours = |pid: &u32| {
            let line = line_of(*pid);
            let folder = fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default();
            line.contains(&self.mark) || line.contains(&own) || folder == self.path()
        };
        let pids = fs::read_dir("/proc").unwrap().flatten().filter_map(|e| e.file_name().to_str()?.parse().ok());
        pids.filter(ours).collect()
    }

    /// Finds the supervisor that belongs to a front.
    pub fn supervisor(&self, front: &Child) -> u32 {
        let path = format!("/proc/{0}/task/{0}/children", front.id());
        let text = fs::read_to_string(path).unwrap();
        text.split_whitespace().next().expect("a front has its supervisor").parse().unwrap()
    }

    /// Kills both processes of a run at the same time, so that neither of them cleans up. Waits until both are dead.
    pub fn kill_front_and_supervisor(&self, mut front: Child) {
        let supervisor = self.supervisor(&front);
        // The pidfd tells when the supervisor has closed its files, and so has released the lock of the run's folder.
        let dying = crossdock_os::process::open_pidfd(supervisor as i32).unwrap();
        signal(front.id(), rustix::process::Signal::STOP);
        signal(supervisor, rustix::process::Signal::KILL);
        front.kill().unwrap();
        front.wait().unwrap();
        until("the supervisor to be dead", || dying.as_ref().is_none_or(crossdock_os::process::is_dead));
    }
}

/// Gives the command line of a process, with zero bytes between its words.
fn line_of(pid: u32) -> String {
    String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default()).into_owned()
}

/// The result of a command that has ended.
pub struct Ended {
    pub code: i32,
    pub out: String,
    pub err: String,
    pub took: Duration,
}

pub fn finish(mut child: Child) -> Ended {
    let begin = Instant::now();
    let pid = child.id();
    // Threads read the output, because a full pipe would stop the child.
    let (out, err) = (child.stdout.take(), child.stderr.take());
    fn read(pipe: Option<impl std::io::Read + Send + 'static>) -> std::thread::JoinHandle<String> {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            pipe.map(|mut p| p.read_to_end(&mut bytes));
            String::from_utf8_lossy(&bytes).into_owned()
        })
    }
    let (out, err) = (read(out), read(err));
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None if begin.elapsed() > PATIENCE => {
                let _ = child.kill();
                panic!("process {pid} did not end within {PATIENCE:?}");
            }
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    use std::os::unix::process::ExitStatusExt;
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    Ended { code, out: out.join().unwrap(), err: err.join().unwrap(), took: begin.elapsed() }
}

pub fn signal(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
    let _ = rustix::process::kill_process(pid, signal);
}

/// Lists the engines that work on this machine. With CROSSDOCK_ONLY=NAME, the list has only that engine. The engines in
/// CROSSDOCK_ENGINES must work (CI names all engines). If an engine that is not in CROSSDOCK_ENGINES does not work, the
/// test prints this and leaves the engine out.
pub fn engines() -> Vec<&'static str> {
    let required = std::env::var("CROSSDOCK_ENGINES").unwrap_or_default();
    let mut working = Vec::new();
    let only = std::env::var("CROSSDOCK_ONLY").unwrap_or_default();
    for engine in engine::all().into_iter().filter(|e| only.is_empty() || only == e.name()) {
        let trial = engine::trial(engine.as_ref());
        match trial.result {
            Ok(_) => working.push(trial.engine),
            Err(e) if required.split([' ', ',']).any(|r| r == trial.engine) => {
                panic!("{} is required and does not work: {e}", trial.engine)
            }
            Err(e) => println!("not tested here: {}: {e}", trial.engine),
        }
    }
    working
}

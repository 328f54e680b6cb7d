//! Runs the tests of the conformance list, one for each row. A test with several processes starts this program again
//! for each of them.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crossdock_client::{ConnectOptions, Error, Region, Session, Status};

/// The result of a test: success, or a text that says what was expected and what happened instead.
pub type Outcome = Result<(), String>;

/// The timeout of every wait for which a test gives no other timeout.
pub const LONG: Option<Duration> = Some(Duration::from_secs(10));
/// A timeout of zero: a call with it does not wait.
pub const POLL: Option<Duration> = Some(Duration::ZERO);
/// The size of every region for which a test gives no other size.
pub const REGION: u64 = 16 << 20;

/// One row of the conformance list.
#[derive(Clone)]
pub struct Row {
    pub id: &'static str,
    pub claim: &'static str,
    pub test: fn(&Context) -> Outcome,
    /// The function that the other processes of the row's test run. It gets the role and the arguments of the process.
    pub role: fn(&Context, &str, &[&str]) -> Outcome,
}

/// The role function of a test that has only one process.
pub fn alone(_: &Context, role: &str, _: &[&str]) -> Outcome {
    Err(format!("no role '{role}'"))
}

/// The data of a running test: its session and its names.
pub struct Context {
    pub session: Session,
    row: String,
    prefix: String,
}

impl Context {
    fn new(row: &str, prefix: &str, task: &str) -> Result<Self, String> {
        let options = ConnectOptions { task: Some(task.into()), private_daemon: false, ..ConnectOptions::default() };
        let session = Session::connect(&options).map_err(|error| format!("connect: {error}"))?;
        Ok(Self { session, row: row.into(), prefix: prefix.into() })
    }

    /// Makes a name for an object of the test: `rust-4711/r1`, or `rust-4711/r1b` for a second object.
    pub fn name(&self, suffix: &str) -> String {
        format!("{}/{}{suffix}", self.prefix, self.row.to_lowercase())
    }

    /// Opens the region of the test, or makes it.
    pub fn region(&self) -> Result<Region, String> {
        self.session.region(&self.name(""), crossdock_client::Mode::OpenOrCreate, REGION, None).map_err(text)
    }

    fn spawn(&self, role: &str, arguments: &[&str], output: Stdio) -> Child {
        let program = std::env::current_exe().expect("a running program has a path");
        let mut command = Command::new(program);
        command.arg(&self.row).arg(role).arg(&self.prefix).args(arguments).stdout(output);
        // If the suite runs across nodes, the other process of the test connects to the daemon of another node.
        if let Some(socket) = std::env::var_os("CROSSDOCK_PEER_SOCKET") {
            command.env("CROSSDOCK_SOCKET", socket);
        }
        command.spawn().expect("this program starts again")
    }

    /// Starts another process of this test.
    pub fn start(&self, role: &str, arguments: &[&str]) -> Peer {
        Peer(Some(self.spawn(role, arguments, Stdio::null())))
    }

    /// Starts another process of this test and waits until that process reports that it is ready.
    pub fn start_ready(&self, role: &str, arguments: &[&str]) -> Result<Peer, String> {
        use std::io::BufRead;
        let mut child = self.spawn(role, arguments, Stdio::piped());
        let output = child.stdout.take().expect("its output is a pipe");
        let peer = Peer(Some(child));
        let mut line = String::new();
        std::io::BufReader::new(output).read_line(&mut line).map_err(|error| error.to_string())?;
        if line == "ready\n" { Ok(peer) } else { Err("the other process ended before it was ready".into()) }
    }

    /// Starts another process of this test and waits for its end.
    pub fn run(&self, role: &str, arguments: &[&str]) -> Outcome {
        self.start(role, arguments).finish()
    }
}

/// Another process of a test. It is killed if the test ends before it.
pub struct Peer(Option<Child>);

impl Peer {
    /// Waits until the process ends, and checks that it succeeded.
    pub fn finish(mut self) -> Outcome {
        let mut child = self.0.take().expect("a peer is finished once");
        let status = wait(&mut child)?;
        if status.success() { Ok(()) } else { Err(format!("the other process ended with {status}")) }
    }

    /// Waits until the process ends, and checks that it killed itself.
    pub fn killed(mut self) -> Outcome {
        use std::os::unix::process::ExitStatusExt;
        let mut child = self.0.take().expect("a peer is finished once");
        let status = wait(&mut child)?;
        if status.signal() == Some(9) {
            Ok(())
        } else {
            Err(format!("the other process ended with {status}, not by SIGKILL"))
        }
    }
}

fn wait(child: &mut Child) -> Result<std::process::ExitStatus, String> {
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(30) {
        if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
            return Ok(status);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let _ = child.kill();
    let _ = child.wait();
    Err("the other process did not end within 30 s".into())
}

impl Drop for Peer {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Reports to the parent process that this process is ready.
pub fn say_ready() {
    println!("ready");
}

/// Kills this process with SIGKILL, to simulate a crash.
pub fn kill_self() -> ! {
    let pidfd =
        crossdock_os::process::open_pidfd(std::process::id() as i32).ok().flatten().expect("a pidfd of oneself");
    let _ = crossdock_os::process::send_signal(&pidfd, crossdock_os::process::Signal::KILL);
    loop {
        std::thread::park();
    }
}

/// Converts an error to the text that a test reports.
pub fn text(error: Error) -> String {
    format!("{}: {error}", error.status)
}

/// Checks that the call failed with this status. Returns the message of the error.
pub fn fails<T: std::fmt::Debug>(status: Status, result: crossdock_client::Result<T>) -> Result<String, String> {
    match result {
        Err(error) if error.status == status => Ok(error.to_string()),
        Err(error) => Err(format!("expected {status}, came {}", text(error))),
        Ok(value) => Err(format!("expected {status}, came {value:?}")),
    }
}

/// Checks that the message contains the word.
pub fn says(message: &str, word: &str) -> Outcome {
    if message.contains(word) { Ok(()) } else { Err(format!("the message does not say '{word}': {message}")) }
}

/// Checks that two values are equal.
pub fn equal<T: PartialEq + std::fmt::Debug>(what: &str, came: T, expected: T) -> Outcome {
    if came == expected { Ok(()) } else { Err(format!("{what}: expected {expected:?}, came {came:?}")) }
}

/// Checks that the time since `started` lies between the two limits.
pub fn took(started: Instant, at_least_ms: u64, at_most_ms: u64) -> Outcome {
    let ms = started.elapsed().as_millis() as u64;
    if (at_least_ms..=at_most_ms).contains(&ms) {
        Ok(())
    } else {
        Err(format!("took {ms} ms, expected {at_least_ms} to {at_most_ms} ms"))
    }
}

/// Runs the tests of all rows, or only that of the given row. Gives the exit status.
pub fn run_rows(rows: &[Row], only: Option<&str>) -> i32 {
    let prefix = format!("rust-{}", std::process::id());
    let (mut passed, mut failed) = (0, 0);
    for row in rows.iter().filter(|row| only.is_none_or(|only| row.id.eq_ignore_ascii_case(only))) {
        let outcome = Context::new(row.id, &prefix, "conformance").and_then(|context| {
            let outcome = (row.test)(&context);
            tidy(&context);
            outcome
        });
        match outcome {
            Ok(()) => {
                passed += 1;
                println!("ok {} {}", row.id, row.claim);
            }
            Err(why) => {
                failed += 1;
                println!("FAILED {} {}: {why}", row.id, row.claim);
            }
        }
    }
    println!("{passed} passed, {failed} failed");
    i32::from(failed > 0 || passed == 0)
}

/// Removes every region and port of the test, whether the test succeeded or failed.
fn tidy(context: &Context) {
    for segment in context.session.list().map(|listing| listing.segments).unwrap_or_default() {
        if segment.name.starts_with(&format!("{}/", context.prefix)) {
            let _ = match segment.kind {
                crossdock_client::SegmentKind::Region => context.session.remove_region(&segment.name),
                crossdock_client::SegmentKind::Port => context.session.remove_port(&segment.name),
                // Series are not removed here, because this process may still be their publisher. They disappear with
                // the suite's daemon.
                crossdock_client::SegmentKind::Series => Ok(()),
                crossdock_client::SegmentKind::Item => context.session.remove_item(&segment.name),
            };
        }
    }
}

/// Runs the role function of a test, as another process of this test. Gives the exit status.
pub fn run_role(rows: &[Row], row: &str, role: &str, prefix: &str, arguments: &[&str]) -> i32 {
    let Some(found) = rows.iter().find(|found| found.id == row) else {
        eprintln!("no row '{row}'");
        return 2;
    };
    match Context::new(row, prefix, "peer").and_then(|context| (found.role)(&context, role, arguments)) {
        Ok(()) => 0,
        Err(why) => {
            eprintln!("{row}, role {role}: {why}");
            1
        }
    }
}

//! Measures the rows P16 and P17: the time until a first call works, and the memory of an idle daemon.
//!
//! The command line is `start CROSSDOCK [PYTHON] [--json]`, with the crossdock command and a Python that has NumPy and
//! crossdock. The program starts daemons in a folder of its own and ends them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crossdock_bench::{Daemon, Record, print};
use crossdock_client::{Mode, Session};

const MEMBERS: usize = 100;
/// How many daemons are started to measure the memory of an idle daemon.
const DAEMONS: usize = 9;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--json").collect();
    let Some(command) = arguments.first().map(PathBuf::from) else {
        eprintln!("usage: start CROSSDOCK [PYTHON] [--json]");
        std::process::exit(2);
    };
    let mut records = vec![daemon_start(&command), attach(&command)];
    records.extend(memory(&command));
    if let Some(python) = arguments.get(1) {
        records.push(import(&command, Path::new(python)));
    }
    print(&records);
}

/// Gives the memory of the daemon's processes in bytes: their private pages plus their share of common pages, as the
/// kernel counts them.
fn memory_of(daemon: &Daemon) -> f64 {
    let own = daemon.pid();
    let children = std::fs::read_to_string(format!("/proc/{own}/task/{own}/children")).unwrap_or_default();
    let pids = children.split_ascii_whitespace().map(str::to_owned).chain([own.to_string()]);
    pids.map(|pid| proportional_bytes(&pid)).sum()
}

fn proportional_bytes(pid: &str) -> f64 {
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let kib = rollup
        .lines()
        .find_map(|line| line.strip_prefix("Pss:")?.trim().strip_suffix("kB")?.trim().parse::<f64>().ok());
    kib.unwrap_or(0.0) * 1024.0
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

fn daemon_start(command: &Path) -> Record {
    let run = |_| {
        let begun = Instant::now();
        let daemon = Daemon::start(command);
        let session = daemon.connect();
        let took = milliseconds(begun);
        drop(session);
        took
    };
    Record::below("P16", "daemon started, first member attached", "ms", (0..15).map(run).collect(), 5.0, "≤ 5 ms")
}

fn attach(command: &Path) -> Record {
    let daemon = Daemon::start(command);
    drop(daemon.connect());
    let run = |_| {
        let begun = Instant::now();
        let session = daemon.connect();
        let took = milliseconds(begun);
        drop(session);
        took
    };
    Record::below("P16", "attach", "ms", (0..200).map(run).collect(), 0.15, "≤ 0.15 ms")
}

/// Starts a daemon, connects one session to it and closes the session. Returns the daemon, and its memory in bytes.
fn idle(command: &Path) -> (Daemon, f64) {
    let daemon = Daemon::start(command);
    drop(daemon.connect());
    std::thread::sleep(Duration::from_millis(200));
    let bytes = memory_of(&daemon);
    (daemon, bytes)
}

/// Takes a file out of the page cache, except for pages that a process has mapped.
fn drop_from_cache(file: &Path) {
    let done = Command::new("sync").arg(file).status();
    assert!(done.expect("sync can be started").success(), "sync failed for {}", file.display());
    let done = Command::new("dd")
        .arg(format!("if={}", file.display()))
        .args(["iflag=nocache", "count=0", "status=none"])
        .status();
    assert!(done.expect("dd can be started").success(), "dd failed for {}", file.display());
}

fn memory(command: &Path) -> Vec<Record> {
    // The kernel maps pages of the program's file in pieces of 64 KiB around the pages that are used. The address of
    // the program differs from daemon to daemon, and with it the number of pages that are mapped. The number also
    // depends on how the file came into the page cache, so the file is read from the disk again, as after a start of
    // the machine.
    drop_from_cache(command);
    let idles = (0..DAEMONS).map(|_| idle(command).1 / 1024.0).collect();
    let kib = |bytes: f64| vec![bytes / 1024.0];

    // The first members make the broker use pages of its program for the first time, so the memory for later members is
    // measured separately.
    let (daemon, alone) = idle(command);
    let mut members: Vec<Session> = (0..MEMBERS).map(|_| daemon.connect()).collect();
    let with_first = memory_of(&daemon);
    let first = (with_first - alone).max(0.0) / MEMBERS as f64;
    members.extend((0..MEMBERS).map(|_| daemon.connect()));
    let before = memory_of(&daemon);
    let later = (before - with_first).max(0.0) / MEMBERS as f64;
    let names: Vec<String> = (0..MEMBERS).map(|n| format!("region-{n}")).collect();
    let open = |name: &String| members[0].region(name, Mode::CreateOnly, 64 << 20, None).expect("a region can be made");
    let regions: Vec<_> = names.iter().map(open).collect();
    let held: u64 = regions.iter().map(|region| region.statistics().reserved).sum();
    let region = (held as f64 + (memory_of(&daemon) - before).max(0.0)) / MEMBERS as f64;
    vec![
        Record::below("P17", "daemon, idle, both processes", "KiB", idles, 5.0 * 1024.0, "≤ 5 MB"),
        Record::below("P17", "each member", "KiB", kib(first), 4.0, "≤ 4 KB"),
        Record::below("P17", "each member after the first 100", "KiB", kib(later), 4.0, "≤ 4 KB"),
        Record::below("P17", "each empty region of 64 MiB", "KiB", kib(region), 16.0, "≤ 16 KB"),
    ]
}

/// Measures `import crossdock` and a first shared array, in a new interpreter that has imported NumPy already.
fn import(command: &Path, python: &Path) -> Record {
    const PROGRAM: &str = "
import numpy, time
begun = time.perf_counter()
import crossdock
with crossdock.connect() as session:
    region = session.region(f'first-{time.time_ns()}', size='16MiB')
    region.ndarray('x', (1000,), 'f8').array[:] = 1.0
    print((time.perf_counter() - begun) * 1e3)
";
    let daemon = Daemon::start(command);
    drop(daemon.connect());
    let run = |_| {
        let mut interpreter = Command::new(python);
        interpreter.args(["-c", PROGRAM]).env("CROSSDOCK_SOCKET", daemon.socket());
        let output = interpreter.output().expect("Python can be started");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().parse().expect("a number")
    };
    let runs = (0..9).map(run).collect();
    Record::below("P16", "import crossdock, attach, first array, beyond NumPy", "ms", runs, 10.0, "≤ 10 ms")
}

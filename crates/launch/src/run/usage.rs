//! The CPU time and memory of processes, read from `/proc`. The processes of a task are found by the variables that the
//! launcher puts into their environment. So they are found under every engine, and whatever their parent process is.

use std::collections::BTreeMap;
use std::fs;

use super::processes::MARK;

/// Clock ticks per second in `/proc`: the kernel's USER_HZ, which is 100 on every architecture.
const TICKS: f64 = 100.0;

/// The CPU time and memory of all processes of a rank together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Usage {
    /// The ids of the processes.
    pub processes: Vec<u32>,
    /// Seconds of CPU time that the processes have used.
    pub cpu_seconds: f64,
    /// Private memory of the processes, in bytes.
    pub memory: u64,
    /// Shared memory that the processes have touched, in bytes. Memory that several processes share counts for each of
    /// them.
    pub shared: u64,
}

/// The name of the run, the name of the task, and the number of the rank.
pub type RankKey = (String, String, u32);

/// Measures the processes of all runs that this user may inspect.
pub fn all() -> BTreeMap<RankKey, Usage> {
    let mut found: BTreeMap<RankKey, Usage> = BTreeMap::new();
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    for pid in pids.filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok()) {
        if let Some(of) = marks(pid) {
            found.entry(of).or_default().add(pid);
        }
    }
    found
}

/// Measures a single process.
pub fn of_process(pid: u32) -> Usage {
    let mut usage = Usage::default();
    usage.add(pid);
    usage
}

fn marks(pid: u32) -> Option<RankKey> {
    let text = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let value = |name: &str| {
        let of = |variable: &[u8]| Some(variable.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?.to_vec());
        String::from_utf8(text.split(|b| *b == 0).find_map(of)?).ok()
    };
    Some((value(MARK)?, value("CROSSDOCK_TASK")?, value("CROSSDOCK_RANK")?.parse().ok()?))
}

impl Usage {
    fn add(&mut self, pid: u32) {
        let Some(cpu) = cpu_seconds(pid) else { return };
        self.processes.push(pid);
        self.cpu_seconds += cpu;
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let kib = |name: &str| {
            let line = status.lines().find_map(|l| l.strip_prefix(name));
            line.and_then(|l| l.trim_start_matches(':').trim().split(' ').next()?.parse::<u64>().ok()).unwrap_or(0)
        };
        self.memory += (kib("RssAnon") + kib("RssFile")) << 10;
        self.shared += kib("RssShmem") << 10;
    }
}

fn cpu_seconds(pid: u32) -> Option<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in `stat` may contain any characters, so the fields are counted from the last parenthesis.
    let fields: Vec<&str> = text[text.rfind(')')? + 1..].split_whitespace().collect();
    let ticks = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some((ticks(11)? + ticks(12)?) as f64 / TICKS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use std::time::Duration;

    use crossdock_os::Deadline;

    #[test]
    fn a_process_is_found_by_its_marks_and_counted() {
        let run = format!("usage-test-{}", std::process::id());
        let mut child = Command::new("sleep")
            .arg("60")
            .envs([(MARK, run.as_str()), ("CROSSDOCK_TASK", "a"), ("CROSSDOCK_RANK", "3")])
            .spawn()
            .unwrap();
        // `spawn` returns during the exec, shortly before `/proc` shows the new environment, so the test looks several
        // times.
        let deadline = Deadline::after(Duration::from_secs(30));
        let found = loop {
            if let Some(found) = all().remove(&(run.clone(), "a".to_owned(), 3)) {
                break found;
            }
            assert!(!deadline.passed(), "no process with these marks");
        };
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(found.processes, [child.id()]);
        assert!(found.memory > 0, "{found:?}");
        assert!(of_process(std::process::id()).cpu_seconds > 0.0 || of_process(std::process::id()).memory > 0);
        assert_eq!(of_process(child.id()), Usage::default());
    }
}

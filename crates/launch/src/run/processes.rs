//! Finds the descendants of a process in `/proc`, and ends processes.

use std::collections::HashMap;
use std::fs;
use std::io::ErrorKind;
use std::thread;
use std::time::{Duration, Instant};

use crossdock_os::child;
use crossdock_os::process::Signal;

/// Identifies a process, so that a later process with the same id is not taken for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessIdentity {
    /// The process id.
    pub pid: i32,
    /// When the process was started, in the kernel's clock ticks since the start of the machine; `None` if this could
    /// not be read. With `None`, any process with this id is taken for the process.
    started: Option<u64>,
}

impl ProcessIdentity {
    /// Gives the identity of the process that has this id now.
    pub fn of(pid: i32) -> Self {
        Self { pid, started: stat(pid).map(|stat| stat.started) }
    }

    /// Tells whether the process has not ended.
    pub fn runs(self) -> bool {
        stat(self.pid)
            .is_some_and(|stat| self.started.is_none_or(|started| stat.started == started) && stat.state != 'Z')
    }

    /// Tells whether the process was reaped. Returns false if `/proc` cannot be read, for example because no descriptor
    /// is free.
    fn was_reaped(self) -> bool {
        match fs::read_to_string(format!("/proc/{}/stat", self.pid)) {
            Ok(text) => self.started.is_some_and(|started| parse(&text).is_some_and(|stat| stat.started != started)),
            Err(error) => error.kind() == ErrorKind::NotFound,
        }
    }

    /// Sends a signal to the process, unless it was reaped.
    pub fn signal(self, what: Signal) {
        if !self.was_reaped() {
            signal(self.pid, what);
        }
    }

    /// Sends a signal to the group that the process leads, unless the process was reaped.
    pub fn signal_group(self, what: Signal) {
        if !self.was_reaped() {
            signal_group(self.pid, what);
        }
    }
}

/// A descendant of a process: its id, how many levels it is below the process, and when it was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descendant {
    /// The process id.
    pub pid: i32,
    /// The level: 1 for a child, 2 for its children.
    pub depth: u32,
    /// Identifies the process for signals that are sent later.
    pub process: ProcessIdentity,
}

/// What the kernel says about a process.
#[derive(Clone, Copy, Debug)]
pub struct Stat {
    /// The id of the parent.
    pub parent: i32,
    /// The state; `Z` for a process that has ended and was not reaped.
    pub state: char,
    started: u64,
}

/// Reads what the kernel says about a process. The name in `/proc/PID/stat` may contain any characters, so the fields
/// are counted from the last parenthesis.
pub fn stat(pid: i32) -> Option<Stat> {
    parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn parse(text: &str) -> Option<Stat> {
    let mut fields = text[text.rfind(')')? + 1..].split_whitespace();
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    // The start time is field 22 of the line, and the parent is field 4.
    Some(Stat { parent, state, started: fields.nth(17)?.parse().ok()? })
}

/// Lists all descendants of `ancestor` that are not zombies, parents before children.
pub fn descendants(ancestor: i32) -> Vec<Descendant> {
    let mut children: HashMap<i32, Vec<(i32, Stat)>> = HashMap::new();
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    for pid in pids.filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok()) {
        if let Some(stat) = stat(pid) {
            children.entry(stat.parent).or_default().push((pid, stat));
        }
    }
    let mut found = Vec::new();
    let mut open = vec![(ancestor, 0)];
    while let Some((pid, depth)) = open.pop() {
        // A process id may be reused while `/proc` is read. Each id is visited once, so that no loop can arise.
        for (child, stat) in children.remove(&pid).unwrap_or_default() {
            if stat.state != 'Z' {
                let process = ProcessIdentity { pid: child, started: Some(stat.started) };
                found.push(Descendant { pid: child, depth: depth + 1, process });
            }
            open.push((child, depth + 1));
        }
    }
    found
}

/// Sends a signal to a process. It is no error if the process has ended.
pub fn signal(pid: i32, signal: Signal) {
    let _ = child::signal(pid, signal);
}

/// Sends a signal to a process group.
pub fn signal_group(group: i32, signal: Signal) {
    let _ = child::signal_group(group, signal);
}

/// Tells whether the process catches this signal, or blocks it in order to read it from a queue. To the first process
/// of a pid namespace, the kernel delivers only signals that this process catches or blocks.
pub fn catches(pid: u32, signal: Signal) -> bool {
    let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) else { return false };
    let has = |set: &str| {
        let set = status.lines().find_map(|l| l.strip_prefix(set)).and_then(|v| u64::from_str_radix(v.trim(), 16).ok());
        set.is_some_and(|set| set >> (signal.as_raw() - 1) & 1 == 1)
    };
    has("SigCgt:") || has("SigBlk:")
}

/// Kills all descendants of this process except `keep` and their descendants, until none is left or `patience` is over.
/// Returns true if none is left.
pub fn kill_descendants(keep: &[i32], patience: Duration) -> bool {
    let me = std::process::id() as i32;
    let end = Instant::now() + patience;
    loop {
        let kept: Vec<i32> = keep.iter().flat_map(|k| descendants(*k).into_iter().map(|d| d.pid).chain([*k])).collect();
        let left: Vec<_> = descendants(me).into_iter().filter(|d| !kept.contains(&d.pid)).collect();
        for process in &left {
            signal(process.pid, Signal::KILL);
        }
        if keep.is_empty() {
            // No other thread waits for children at this point, so all zombies are reaped here.
            child::reap_all();
        }
        if left.is_empty() {
            return true;
        }
        if Instant::now() > end {
            return false;
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// The environment variable that every process of a run inherits. Its value is the run's id.
pub const MARK: &str = "CROSSDOCK_RUN";

/// Kills the user's processes that have the run's id in their environment. Their parents do not matter.
pub fn kill_marked(run: &str) {
    let mark = format!("{MARK}={run}");
    let me = std::process::id() as i32;
    // The search is repeated, because a process may have forked while `/proc` was read.
    for _ in 0..3 {
        let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = pids.filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok()).filter(|p| *p != me);
        let marked = |pid: &i32| {
            let variables = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            variables.split(|b| *b == 0).any(|v| v == mark.as_bytes())
        };
        let found: Vec<i32> = pids.filter(marked).collect();
        if found.is_empty() {
            return;
        }
        found.iter().for_each(|pid| signal(*pid, Signal::KILL));
        thread::sleep(Duration::from_millis(5));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn children_and_their_children_are_found_with_their_depth() {
        let mut child = Command::new("sh").args(["-c", "sleep 20 & wait"]).spawn().unwrap();
        let end = Instant::now() + Duration::from_secs(5);
        let pid = child.id() as i32;
        let deep = loop {
            let all = descendants(pid);
            if let [only] = all[..] {
                break only;
            }
            assert!(Instant::now() < end, "no grandchild in time: {all:?}");
            thread::sleep(Duration::from_millis(5));
        };
        assert_eq!(deep.depth, 1);
        assert!(descendants(std::process::id() as i32).iter().any(|d| d.pid == deep.pid && d.depth == 2));
        signal(deep.pid, Signal::KILL);
        child.wait().unwrap();
        assert!(descendants(pid).is_empty());
    }

    #[test]
    fn a_later_process_with_the_same_number_gets_no_signal() {
        let mut child = Command::new("sleep").arg("20").spawn().unwrap();
        let now = ProcessIdentity::of(child.id() as i32);
        assert!(now.runs());
        let former = ProcessIdentity { started: now.started.map(|started| started - 1), ..now };
        assert!(!former.runs());
        former.signal(Signal::KILL);
        thread::sleep(Duration::from_millis(100));
        assert!(now.runs());
        now.signal(Signal::KILL);
        let end = Instant::now() + Duration::from_secs(5);
        while now.runs() {
            assert!(Instant::now() < end, "the signal does not arrive");
            thread::sleep(Duration::from_millis(5));
        }
        child.wait().unwrap();
        assert!(now.was_reaped() && former.was_reaped());
    }

    #[test]
    fn a_shell_with_a_trap_catches_and_sleep_does_not() {
        let mut sleep = Command::new("sleep").arg("20").spawn().unwrap();
        assert!(!catches(sleep.id(), Signal::TERM));
        sleep.kill().unwrap();
        sleep.wait().unwrap();
        let mut shell = Command::new("sh").args(["-c", "trap : TERM; sleep 20 & wait"]).spawn().unwrap();
        let end = Instant::now() + Duration::from_secs(5);
        while !catches(shell.id(), Signal::TERM) {
            assert!(Instant::now() < end, "the trap is never set");
            thread::sleep(Duration::from_millis(5));
        }
        for d in descendants(shell.id() as i32) {
            signal(d.pid, Signal::KILL);
        }
        shell.kill().unwrap();
        shell.wait().unwrap();
    }
}

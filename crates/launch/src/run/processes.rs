//! Finds the descendants of a process in `/proc`, and ends processes.

use std::collections::HashMap;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use crossdock_os::child;
use crossdock_os::process::Signal;

/// A descendant of a process: its id, and how many levels it is below the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descendant {
    /// The process id.
    pub pid: i32,
    /// The level: 1 for a child, 2 for its children.
    pub depth: u32,
}

/// Reads the parent and the state of a process. The name in `/proc/PID/stat` may contain any characters, so the fields
/// are counted from the last parenthesis.
pub fn stat(pid: i32) -> Option<(i32, char)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = text[text.rfind(')')? + 1..].split_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((fields.next()?.parse().ok()?, state))
}

/// Lists all descendants of `ancestor` that are not zombies, parents before children.
pub fn descendants(ancestor: i32) -> Vec<Descendant> {
    let mut children: HashMap<i32, Vec<(i32, char)>> = HashMap::new();
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    for pid in pids.filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok()) {
        if let Some((parent, state)) = stat(pid) {
            children.entry(parent).or_default().push((pid, state));
        }
    }
    let mut found = Vec::new();
    let mut open = vec![(ancestor, 0)];
    while let Some((pid, depth)) = open.pop() {
        // A process id may be reused while `/proc` is read. Each id is visited once, so that no loop can arise.
        for (child, state) in children.remove(&pid).unwrap_or_default() {
            if state != 'Z' {
                found.push(Descendant { pid: child, depth: depth + 1 });
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

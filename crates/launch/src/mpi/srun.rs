//! Slurm's `srun` as the launcher: its command line, the reports of its tasks, and its end.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crossdock_os::{Deadline, event, process, socket, spawn};
use crossdock_shim::detect::MpiInstallation;
use crossdock_shim::message::{End, Message, Rank, send};

use super::hosts::Host;
use super::{TASK, marks, task};
use crate::engine::tool;

/// How long a step may take to end after srun was asked to end it. Slurm first asks the step's processes to end, and
/// kills them some seconds later.
const ENDING: Duration = Duration::from_secs(15);
/// The most bytes that are read as one line. A rank may write any number of bytes without a line end.
const LINE_MAX: u64 = 64 << 10;
/// How long Slurm's own commands may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Gives the value of srun's option `--mpi` that fits this MPI.
pub fn pmi_of(found: &MpiInstallation) -> &'static str {
    if found.kind.is_open_mpi() { "pmix" } else { "pmi2" }
}

/// What srun must start, and how: the input of [`words`].
pub struct Plan<'a> {
    /// The PMI that srun offers: `pmi2` or `pmix`.
    pub pmi: &'a str,
    /// The number of ranks of the job.
    pub ranks: u32,
    /// The hosts that the user has named. With `None`, Slurm chooses hosts from its allocation.
    pub hosts: Option<&'a [Host]>,
    /// True if the other ranks may continue after a rank has ended badly.
    pub keep_going: bool,
    /// Additional arguments that the user gives to srun itself.
    pub arguments: &'a [String],
    /// The path of `crossdock` on the hosts.
    pub starter: &'a str,
}

/// Gives the whole command line of srun.
pub fn words(plan: &Plan<'_>) -> Vec<String> {
    let mut words = vec!["srun".to_owned(), format!("--mpi={}", plan.pmi), format!("--ntasks={}", plan.ranks)];
    // srun passes the whole environment to the task, and standard input to rank 0. Which variables the rank gets is
    // decided by the job's description.
    words.extend(["--export=ALL", "--chdir=/", "--input=0"].map(str::to_owned));
    words.push(format!("--kill-on-bad-exit={}", u8::from(!plan.keep_going)));
    if let Some(hosts) = plan.hosts {
        let list: Vec<String> =
            hosts.iter().flat_map(|h| std::iter::repeat_n(h.name.clone(), h.slots as usize)).collect();
        words.extend([
            format!("--nodes={}", hosts.len()),
            format!("--nodelist={}", list.join(",")),
            "--distribution=arbitrary".to_owned(),
        ]);
    }
    words.extend(plan.arguments.iter().cloned());
    words.extend([plan.starter.to_owned(), TASK.to_owned()]);
    words
}

/// The running process srun, which has started the tasks of the Slurm step.
pub struct Srun {
    /// A socket on which the tasks' reports and the end of srun arrive as messages.
    pub link: OwnedFd,
    srun: OwnedFd,
    step: Arc<Mutex<String>>,
    listener: Option<JoinHandle<End>>,
}

impl Srun {
    /// Starts srun. The calling thread must live as long as the job, because srun is asked to end when that thread
    /// ends.
    pub fn start(words: &[String], step: &task::Step) -> Result<Self, String> {
        let text = serde_json::to_string(step).map_err(|e| e.to_string())?;
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).env(task::VARIABLE, text).stderr(Stdio::piped());
        spawn::default_signals(&mut command);
        spawn::tell_at_parents_end(&mut command);
        let mut child = spawn::start(&mut command).map_err(|e| format!("cannot start `{}`: {e}", words[0]))?;
        let watched = process::open_pidfd(child.id() as i32).ok().flatten();
        let (Some(srun), Ok((link, theirs))) = (watched, socket::pair()) else {
            let _ = child.kill();
            let _ = child.wait();
            return Err("srun cannot be watched".into());
        };
        let name = Arc::new(Mutex::new(String::new()));
        let noted = name.clone();
        let listener = crossdock_os::thread::start(move || listen(child, &theirs, &noted)).map_err(|e| {
            let _ = process::send_signal(&srun, process::Signal::KILL);
            format!("srun cannot be watched: cannot start a thread: {e}")
        })?;
        Ok(Self { link, srun, step: name, listener: Some(listener) })
    }

    /// Asks the step to end, if the signal is one that ends the job. Other signals are not passed on: Slurm would send
    /// them to all processes of a step, and so also to the keepers, which hold the containers.
    pub fn signal(&self, signal: i32) {
        if matches!(signal, 1 | 2 | 3 | 15) {
            // If srun has ended already, it needs no signal, so an error of the call is ignored.
            let _ = process::send_signal(&self.srun, process::Signal::USR2);
        }
    }

    /// Waits until the step has ended. If srun does not end in time, kills srun and lets `scancel` end srun's tasks. If
    /// the step was killed, runs a second step that removes what the killed step left on the hosts.
    pub fn end(mut self, step: &task::Step) {
        let over = |within: Duration| event::wait_readable(&self.srun, Deadline::after(within)).unwrap_or(true);
        if !over(Duration::ZERO) {
            self.signal(15);
            if !over(ENDING) {
                let _ = process::send_signal(&self.srun, process::Signal::KILL);
            }
        }
        let end = self.listener.take().and_then(|l| l.join().ok());
        if end == Some(End { code: 0, signal: 0 }) {
            return;
        }
        let name = self.step.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if !name.is_empty() && end.is_none_or(|e| e.signal != 0) {
            // If srun was killed, its tasks are still running, so scancel asks these tasks to end.
            tool::run(&["scancel", &format!("--signal={}", task::END), &name], PATIENCE);
        }
        let text = serde_json::to_string(&task::Step { clean: true, ..step.clone() }).unwrap_or_default();
        let nodes = std::env::var("SLURM_JOB_NUM_NODES").unwrap_or_else(|_| "1".into());
        let variable = format!("{}={text}", task::VARIABLE);
        let (all, tasks) = (format!("--nodes={nodes}"), format!("--ntasks={nodes}"));
        let words = [
            "srun",
            "--quiet",
            "--overlap",
            "--mem=0",
            "--mpi=none",
            "--chdir=/",
            "--input=none",
            "--ntasks-per-node=1",
        ];
        let words = [&["env", &variable], &words[..], &[&all, &tasks, &step.job.starter, TASK]].concat();
        tool::run(&words, PATIENCE);
        if !name.is_empty() {
            tool::run(&["scancel", "--quiet", "--signal=KILL", &name], PATIENCE);
        }
    }
}

/// Reads what srun writes to standard error until srun ends. A mark, which is a line with the report of a task, becomes
/// a message to the front. All other text goes to the standard error of this process.
fn listen(mut child: Child, link: &OwnedFd, step: &Mutex<String>) -> End {
    let mut lines = BufReader::new(child.stderr.take().expect("piped at its start"));
    let mut line = Vec::new();
    let (mut killed, mut ending, mut reported) = (None, false, false);
    while matches!((&mut lines).take(LINE_MAX).read_until(b'\n', &mut line), Ok(1..)) {
        let text = String::from_utf8_lossy(&line);
        let (rest, message) = marks::find(&text);
        // If the standard error of this process is closed, srun's output must still be read, so an error of writing is
        // ignored.
        let _ = match &message {
            Some(_) => std::io::stderr().write_all(rest.as_bytes()),
            None => std::io::stderr().write_all(&line),
        };
        match message {
            Some(Message::Step(name)) => *step.lock().unwrap_or_else(PoisonError::into_inner) = name,
            // Slurm ends a step at its first failure. Reports that tasks send after this failure do not tell its cause,
            // so they are ignored.
            Some(_) if ending => {}
            Some(message) => {
                reported |= !matches!(message, Message::RankStarted(_));
                let _ = send(link, &message, &[]);
            }
            None if !ending => {
                killed = killed.or_else(|| killed_task(&text));
                ending = ends_step(&text);
            }
            None => {}
        }
        line.clear();
    }
    let end = match child.wait() {
        Ok(status) => End { code: status.code().unwrap_or(0), signal: status.signal().unwrap_or(0) },
        Err(_) => End { code: crossdock_shim::FAILED, signal: 0 },
    };
    // What srun says about a killed rank or a killed step counts only if no rank has reported a bad end of its own.
    if let Some(rank) = killed.filter(|_| end.code != 0) {
        let _ = send(link, &Message::RankLost(rank), &[]);
    } else if ending && !reported && end.code != 0 {
        let what =
            "Slurm has killed the step: a rank has called MPI_Abort, or the step was cancelled or ran out of time";
        let hint = "look at what the ranks wrote last, and at the job's limits";
        let _ = send(link, &Message::Failed(String::new(), what.into(), hint.into()), &[]);
    }
    let _ = send(link, &Message::Ended(0, end), &[]);
    end
}

/// Tells whether srun says in this line that Slurm is ending the step.
///
/// Three kinds of lines say so. If a rank calls MPI_Abort, srun may print any of the three first. The line with the
/// word CANCELLED comes from the node and may come late, even after the reports of ranks that Slurm has killed.
fn ends_step(line: &str) -> bool {
    line.starts_with("srun: Job step aborted: ")
        || line.starts_with("srun: ") && line.contains(": Terminating StepId=")
        || line.contains("*** STEP ") && line.contains(" CANCELLED ")
}

/// Reads a line such as `srun: error: n2: task 3: Killed`, by which srun reports a task that was killed before it could
/// report its own end.
fn killed_task(line: &str) -> Option<Rank> {
    let (host, rest) = line.strip_prefix("srun: error: ")?.split_once(": task")?;
    let (tasks, how) = rest.trim_start_matches('s').trim_start().split_once(": ")?;
    let first = tasks.split(['-', ',']).next()?.parse().ok()?;
    how.starts_with("Killed").then(|| Rank { rank: first, host: host.to_owned(), ..Rank::default() })
}

#[cfg(test)]
mod tests {
    use crossdock_shim::message::{ReceiveResult, receive};

    use super::*;

    #[test]
    fn named_hosts_become_an_arbitrary_distribution() {
        let hosts = [Host { name: "n1".into(), slots: 2 }, Host { name: "n2".into(), slots: 1 }];
        let plan = Plan {
            pmi: "pmix",
            ranks: 3,
            hosts: Some(&hosts),
            keep_going: false,
            arguments: &["--partition=p".to_owned()],
            starter: "/usr/bin/crossdock",
        };
        let line = words(&plan).join(" ");
        assert_eq!(
            line,
            "srun --mpi=pmix --ntasks=3 --export=ALL --chdir=/ --input=0 --kill-on-bad-exit=1 --nodes=2 --nodelist=n1,n1,n2 \
             --distribution=arbitrary --partition=p /usr/bin/crossdock mpi-task"
        );
    }

    #[test]
    fn a_killed_task_is_known_by_sruns_own_words() {
        let rank = killed_task("srun: error: n2: tasks 2-3: Killed\n").unwrap();
        assert_eq!((rank.host.as_str(), rank.rank), ("n2", 2));
        assert_eq!(killed_task("srun: error: n1: task 7: Killed\n").unwrap().rank, 7);
        assert!(killed_task("srun: error: n1: task 7: Exited with exit code 1\n").is_none());
        assert!(killed_task("srun: forcing job termination\n").is_none());
    }

    /// Gives the messages that the front gets if srun writes these lines and then ends with code 137.
    fn heard(lines: &[String]) -> Vec<Message> {
        let mut command = Command::new("sh");
        command.args(["-c", "cat >&2; exit 137"]).stdin(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(lines.concat().as_bytes()).unwrap();
        let (link, theirs) = socket::pair().unwrap();
        listen(child, &theirs, &Mutex::new(String::new()));
        drop(theirs);
        let mut messages = Vec::new();
        while let ReceiveResult::Message(message, _) = receive(&link) {
            messages.push(message);
        }
        messages
    }

    #[test]
    fn ranks_that_slurm_kills_after_an_abort_are_not_the_cause() {
        let rank = |rank: i32| Rank { rank, size: 4, pid: rank + 2, host: "n2".into(), ..Rank::default() };
        let mark = |message| marks::line(&message).unwrap();
        let aborted = "srun: Job step aborted: Waiting up to 7 seconds for job step to finish.\n".to_owned();
        let cancelled = "slurmstepd-n1: error: *** STEP 2.0 ON n1 CANCELLED AT 2026-11-23T12:39:46 ***\n".to_owned();
        let first = "srun: error: n2: task 3: Killed\n".to_owned();
        let terminated = "srun: launch/slurm: _step_signal: Terminating StepId=2.0\n".to_owned();
        // A rank calls MPI_Abort. The killed ranks report their ends before the line with CANCELLED arrives.
        let victims =
            [mark(Message::RankLost(rank(3))), mark(Message::RankEnded(rank(2), End { code: 0, signal: 9 }))].concat();
        let lines = [aborted.clone(), victims.clone(), cancelled.clone(), first.clone(), terminated.clone()];
        let messages = heard(&lines);
        assert!(
            matches!(&messages[..], [Message::Failed(_, what, _), Message::Ended(..)] if what.contains("MPI_Abort")),
            "{messages:?}"
        );
        // A rank ends by itself before Slurm ends the step.
        let own = Message::RankEnded(rank(1), End { code: 5, signal: 0 });
        let messages = heard(&[mark(own.clone()), aborted, victims.clone(), cancelled]);
        assert!(messages.len() == 2 && messages[0] == own, "{messages:?}");
        // A task is killed, so srun ends the step.
        let messages = heard(&[first, terminated, victims]);
        assert!(matches!(&messages[..], [Message::RankLost(r), Message::Ended(..)] if r.rank == 3), "{messages:?}");
    }
}

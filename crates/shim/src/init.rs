//! The shim's role as the container's first process.
//!
//! Init starts commands for the keeper, each in a process group of its own. It reaps every process that ends, also
//! orphans (daemons in the background), and reports when no process is left. Init lives until the keeper asks it to end
//! or is gone; then init kills the processes that still run. It accepts requests only over the connection that it
//! opened itself.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crossdock_os::child::{self, ExitStatus};
use crossdock_os::spawn::{self, Reaped};
use crossdock_os::{Deadline, event};

use crate::message::{End, Message, Order, ReceiveResult, connect, receive, send};
use crate::{FAILED, PLACE_VARIABLE, detect};

/// How long the keeper may take to answer when init first connects.
const PATIENCE: Duration = Duration::from_secs(10);

/// Runs the shim as `init PLACE [MPI]` and returns the exit code. PLACE is the path of the keeper's folder.
pub fn run(words: &[String]) -> i32 {
    let Some(place) = words.first() else { return 2 };
    let wanted = words.get(1).map_or("auto", String::as_str);
    match serve(std::path::Path::new(place), wanted) {
        Ok(()) => 0,
        Err(what) => {
            eprintln!("crossdock-shim init: {what}");
            FAILED
        }
    }
}

fn serve(place: &std::path::Path, wanted: &str) -> Result<(), String> {
    let text = |e: crossdock_os::OsError| e.to_string();
    child::adopt_orphans().map_err(text)?;
    spawn::raise_limits();
    let signals = event::signalfd(&[CHILD, 1, 2, 15]).map_err(text)?;
    let end = Instant::now() + PATIENCE;
    let keeper = loop {
        match connect(place) {
            Ok(keeper) => break keeper,
            Err(e) if Instant::now() > end => {
                return Err(format!("the keeper does not answer at {}: {e}", place.display()));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    send(&keeper, &Message::Init(detect::detect(wanted)), &[])?;
    let epoll = event::Epoll::new().map_err(text)?;
    epoll.add(&keeper, 0, false).map_err(text)?;
    epoll.add(&signals, 1, false).map_err(text)?;
    let mut init = Init { place: place.display().to_string(), keeper, commands: HashMap::new(), told_idle: true };
    loop {
        epoll.wait(Deadline::after(Duration::from_secs(3600))).map_err(text)?;
        while event::next_signal(&signals).is_some() {}
        loop {
            match receive(&init.keeper) {
                ReceiveResult::Message(Message::Start(order), descriptors) => init.start(order, descriptors),
                ReceiveResult::Message(Message::Signal(id, signal), _) => init.signal(id, signal),
                ReceiveResult::Message(Message::Stop, _) | ReceiveResult::End => {
                    kill_all();
                    return Ok(());
                }
                ReceiveResult::Message(..) => {}
                ReceiveResult::Nothing => break,
            }
        }
        init.reap();
    }
}

/// The number of the signal SIGCHLD.
const CHILD: i32 = 17;

struct Init {
    place: String,
    keeper: OwnedFd,
    /// Maps the id of each command's process to the number that the keeper uses for the command.
    commands: HashMap<i32, u32>,
    told_idle: bool,
}

impl Init {
    fn tell(&self, message: &Message) {
        // If the keeper is gone, the next read notices that, so an error of this send is ignored.
        let _ = send(&self.keeper, message, &[]);
    }

    fn start(&mut self, order: Order, descriptors: Vec<OwnedFd>) {
        let id = order.id;
        match self.try_start(order, descriptors) {
            Ok(pid) => {
                self.commands.insert(pid, id);
                self.told_idle = false;
            }
            Err(what) => {
                self.tell(&Message::Failed(
                    String::new(),
                    what,
                    "look at the command, its folder and the image".into(),
                ));
                self.tell(&Message::Ended(id, End { code: 127, signal: 0 }));
            }
        }
    }

    fn try_start(&self, order: Order, descriptors: Vec<OwnedFd>) -> Result<i32, String> {
        let mut command = match order.words.split_first() {
            Some((text, _)) if order.shell => {
                let mut command = Command::new("/bin/sh");
                command.arg("-c").arg(text);
                command
            }
            Some((program, rest)) => {
                let mut command = Command::new(program);
                command.args(rest);
                command
            }
            None => return Err("an empty command".into()),
        };
        command.envs(order.environment).env(PLACE_VARIABLE, &self.place).process_group(0);
        if !order.workdir.is_empty() {
            if !std::path::Path::new(&order.workdir).is_dir() {
                return Err(format!("the working directory {} is not in the container", order.workdir));
            }
            command.current_dir(&order.workdir);
        }
        let mut streams = descriptors.into_iter();
        command.stdin(streams.next().map_or_else(Stdio::null, Stdio::from));
        command.stdout(streams.next().map_or_else(Stdio::null, Stdio::from));
        command.stderr(streams.next().map_or_else(Stdio::null, Stdio::from));
        spawn::default_signals(&mut command);
        spawn::die_with_parent(&mut command);
        if let (Some(extra), 3..) = (streams.next(), order.descriptor) {
            spawn::inherit(&mut command, extra, order.descriptor);
        }
        let child = spawn::start(&mut command).map_err(|e| format!("cannot start `{}`: {e}", order.words.join(" ")))?;
        // `reap` waits for this child, as it does for all other processes. So this function does not wait for the
        // child.
        Ok(child.id() as i32)
    }

    fn signal(&self, id: u32, signal: i32) {
        for (pid, _) in self.commands.iter().filter(|(_, of)| **of == id) {
            spawn::signal_group(*pid, signal);
        }
    }

    fn reap(&mut self) {
        loop {
            match spawn::reap() {
                Ok(Reaped::Child(pid, ended)) => {
                    if let Some(id) = self.commands.remove(&pid) {
                        self.tell(&Message::Ended(id, as_end(ended)));
                    }
                }
                Ok(Reaped::None) => {
                    if !self.told_idle {
                        self.tell(&Message::Idle);
                        self.told_idle = true;
                    }
                    return;
                }
                Ok(Reaped::Running) | Err(_) => return,
            }
        }
    }
}

/// Converts a child's end into the form that messages have.
pub fn as_end(ended: ExitStatus) -> End {
    match ended {
        ExitStatus::Code(code) => End { code, signal: 0 },
        ExitStatus::Signal(signal) => End { code: 0, signal },
    }
}

/// Kills every descendant of this process. If this process has a process namespace of its own, the kernel kills them
/// all when this process ends. Without such a namespace, orphans become children of this process, so the kill is
/// repeated until no descendant is left.
pub(crate) fn kill_all() {
    let end = Instant::now() + Duration::from_secs(5);
    while Instant::now() < end {
        let mut left = false;
        while let Ok(reaped) = spawn::reap() {
            left = reaped == Reaped::Running;
            if !matches!(reaped, Reaped::Child(..)) {
                break;
            }
        }
        if !left {
            return;
        }
        for pid in descendants(std::process::id() as i32) {
            spawn::signal_process(pid, 9);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Lists all descendants of a process, as the process table shows them at this moment.
fn descendants(of: i32) -> Vec<i32> {
    let mut parents = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<i32>().ok()) else { continue };
        let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { continue };
        // The name in parentheses in `/proc/PID/stat` may contain any characters. The parent is the second field after
        // the name.
        let parent = stat.rfind(')').and_then(|at| stat[at + 1..].split_ascii_whitespace().nth(1)?.parse::<i32>().ok());
        parents.push((pid, parent.unwrap_or(0)));
    }
    let mut found = vec![of];
    let mut at = 0;
    while let Some(parent) = found.get(at).copied() {
        found.extend(parents.iter().filter(|(pid, of)| *of == parent && *pid != parent).map(|(pid, _)| *pid));
        at += 1;
    }
    found.split_off(1)
}

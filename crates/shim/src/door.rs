//! The door for static programs, by seccomp notification: `crossdock-shim door auto|notification|watch PRELOAD --
//! PROGRAM ARGUMENT…`. With `watch`, the kernel stops only opens for writing, and no call waits for a file. If an open
//! fails in a managed directory, the reason is written to the task's log. `watch` is for producers, and for consumers
//! that see a view.
//!
//! ```text
//! guard      the task's first process: passes signals on, and reports it if the server is killed
//!  └ server  answers stopped calls; as an ancestor of the program it may read file names in the program's memory
//!     └ program, with the filter (os/seccomp.rs), and all that it starts
//! ```
//!
//! Without `watch`, the kernel stops each of the program's system calls that looks up a file name, and asks the server,
//! which is the second process of the task. If the program opens a file for writing in a directory whose files it only
//! reads, the server answers with EROFS. If opens of this name need not wait, or the file exists, the server lets the
//! call continue. Otherwise a thread of the server waits for the file, and then lets the call continue or answers with
//! an errno. The server opens no file for the program.
//!
//! What happens if a process is killed? If the server is killed, the kernel kills the program; the guard (the task's
//! first process) then reports this and kills the remaining processes. If the guard is killed, the kernel kills the
//! server, and with it the program.

use std::collections::HashMap;
use std::ffi::{CString, c_long};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crossdock_core::files::{Deed, FileWaitOutcome, RenameTarget, Views, Watched, WriteRefusal, absolute, normalise};
use crossdock_os::child::{self, ExitStatus, Signal};
use crossdock_os::seccomp::{self, Listener, MemoryReader, StoppedCall, Stops};
use crossdock_os::socket::{self, Received};
use crossdock_os::spawn::{self, Reaped};
use crossdock_os::{Deadline, calls, event, file, process};

use crate::init;
use crate::program::{self, Door};

/// The exit code if the door itself fails, from `sysexits.h`.
const BROKEN: i32 = 71;
const NO_PROGRAM: i32 = 127;
const CHILD: i32 = 17;
/// The signals that the guard handles. It passes HUP, INT, QUIT, USR1, USR2 and TERM on. CHILD tells it that a child
/// has ended.
const SIGNALS: [i32; 7] = [1, 2, 3, 10, 12, 15, CHILD];
const ENOENT: i32 = 2;
const EROFS: i32 = 30;
const ETIMEDOUT: i32 = 110;
/// The most lines that the server writes to the task's log about files that did not appear or may not be written.
const LINES: u32 = 100;
/// A signal may interrupt a wait. If the same thread of the program asks for the same file again within this time, the
/// same wait continues: its time limit still counts from the first request.
const RESTARTED: Duration = Duration::from_secs(1);

/// Runs `door auto|notification|watch PRELOAD -- PROGRAM ARGUMENT…` and returns the exit code.
pub fn run(words: &[String]) -> i32 {
    let [which, preload, dashes, command @ ..] = words else { return usage() };
    let Some((first, _)) = command.split_first().filter(|_| dashes == "--") else { return usage() };
    let wanted = match which.as_str() {
        "watch" if seccomp::is_supported() => return guard(command, Stops::Writes),
        "watch" => return start(command, None),
        "notification" => Door::Notification,
        "auto" => {
            let folder = std::env::current_dir().unwrap_or_default();
            let path = std::env::var("PATH").unwrap_or_else(|_| "/usr/local/bin:/usr/bin:/bin".into());
            let seen = program::look(Path::new("/"), &folder.to_string_lossy(), &path, first);
            seen.ok().and_then(|s| s.door()).unwrap_or(Door::Preload)
        }
        _ => return usage(),
    };
    match wanted {
        Door::Notification if seccomp::is_supported() => guard(command, Stops::All),
        Door::Notification => {
            eprintln!("crossdock: this kernel has no seccomp notification; {first} does not wait for files");
            start(command, None)
        }
        Door::Preload => start(command, Some(preload)),
    }
}

fn usage() -> i32 {
    eprintln!("crossdock-shim door: auto|notification|watch PRELOAD -- PROGRAM ARGUMENT…");
    2
}

/// Replaces this process by the program.
fn start(command: &[String], preload: Option<&String>) -> i32 {
    let mut program = Command::new(&command[0]);
    program.args(&command[1..]);
    if let Some(library) = preload {
        let own = std::env::var("LD_PRELOAD").ok().filter(|own| !own.is_empty());
        program.env("LD_PRELOAD", own.map_or_else(|| library.clone(), |own| format!("{library}:{own}")));
    }
    not_started(&command[0], &program.exec())
}

fn not_started(program: &str, why: &std::io::Error) -> i32 {
    eprintln!("crossdock: cannot start `{program}`: {why}");
    if why.kind() == std::io::ErrorKind::PermissionDenied { 126 } else { NO_PROGRAM }
}

fn broken(what: &str, why: impl std::fmt::Display) -> i32 {
    eprintln!("crossdock: the door to managed directories cannot be opened: {what}: {why}");
    BROKEN
}

/// Runs the guard, the task's first process: it starts the server and passes signals on.
fn guard(command: &[String], stops: Stops) -> i32 {
    let signals = match event::signalfd(&SIGNALS) {
        Ok(signals) => signals,
        Err(error) => return broken("signals", error),
    };
    // If the kernel refuses to make this process adopt orphans, the launcher ends the orphans. So an error is ignored.
    let _ = child::adopt_orphans();
    let own = std::process::id() as i32;
    let server = match child::fork(|| serve(command, own, stops)) {
        Ok(server) => server,
        Err(error) => return broken("its second process", error),
    };
    let ended = watch(&signals, server);
    let code = match ended {
        ExitStatus::Code(code) => code,
        ExitStatus::Signal(signal) => {
            eprintln!(
                "crossdock: the process that answers this task's opens (process {server}) was killed by signal {signal}; \
                 the task cannot go on without it"
            );
            BROKEN
        }
    };
    init::kill_all();
    code
}

/// Passes signals on to the child with the id `of` until that child ends. Reaps other children that end meanwhile.
fn watch(signals: &OwnedFd, of: i32) -> ExitStatus {
    loop {
        let _ = event::wait_readable(signals, Deadline::after(Duration::from_secs(3600)));
        while let Some(signal) = event::next_signal(signals) {
            if signal != CHILD {
                spawn::signal_process(of, signal);
            }
        }
        while let Ok(Reaped::Child(pid, ended)) = spawn::reap() {
            if pid == of {
                return ended;
            }
        }
    }
}

/// Runs the server, the second process: it starts the program and answers its stopped calls. Returns the program's end
/// as an exit code.
fn serve(command: &[String], guard: i32, stops: Stops) -> i32 {
    let _ = process::set_parent_death_signal(Signal::KILL);
    if child::parent() != guard {
        return BROKEN;
    }
    // The server, and with it the program, leaves the task's process group. Only the guard, the server's parent, stays
    // in the group. So a signal to the group reaches only the guard, which passes the signal on. The program gets each
    // signal one time, and not a second time through the group.
    let _ = spawn::lead_group();
    let prepared = event::signalfd(&SIGNALS).and_then(|signals| Ok((signals, socket::pair()?)));
    let (signals, (ours, theirs)) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => return broken("signals and a socket", error),
    };
    let prepare = || {
        let mut program = Command::new(&command[0]);
        program.args(&command[1..]);
        spawn::die_with_parent(&mut program);
        spawn::default_signals(&mut program);
        program
    };
    let mut program = prepare();
    seccomp::stop_calls(&mut program, stops, theirs);
    let started = spawn::start(&mut program);
    let listener = match socket::receive(&ours, &mut [0; 16]) {
        Ok(Some(Received::Message(_, descriptors))) => descriptors.into_iter().next(),
        _ => None,
    };
    let program_pid = match &started {
        Ok(child) => child.id() as i32,
        // The filter could not be installed. With [`Stops::Writes`], the filter only serves to write reasons into the
        // task's log, so the program starts without the filter.
        Err(_) if listener.is_none() && stops == Stops::Writes => {
            return match spawn::start(&mut prepare()) {
                Ok(child) => end_of(&signals, child.id() as i32),
                Err(why) => not_started(&command[0], &why),
            };
        }
        Err(why) if listener.is_none() => return broken("a filter of this program's calls", why),
        Err(why) => return not_started(&command[0], why),
    };
    let Some(listener) = listener.and_then(|fd| Listener::new(fd).ok()) else {
        return broken("stopped calls", "the kernel gave no listener that this build knows");
    };
    let answers = std::thread::Builder::new().name("crossdock-door".into()).spawn(move || answer(listener));
    if let Err(error) = answers {
        return broken("its thread", error);
    }
    end_of(&signals, program_pid)
}

/// Passes signals on to the program until it ends. Returns its end as an exit code.
fn end_of(signals: &OwnedFd, program: i32) -> i32 {
    match watch(signals, program) {
        ExitStatus::Code(code) => code,
        ExitStatus::Signal(signal) => 128 + signal,
    }
}

/// Answers stopped calls until no process is left that could make such a call.
fn answer(listener: Listener) {
    if let Some(why) = Views::of_process().trouble() {
        eprintln!("crossdock: {why}");
    }
    let (views, watched) = (Views::of_process(), Watched::of_process());
    let server = Arc::new(Server { listener, views, watched, waits: Mutex::default() });
    let mut reader = MemoryReader::default();
    loop {
        let call = match server.listener.next() {
            Ok(Some(call)) => call,
            Ok(None) => return,
            // If the server went on without answering, every process of the task would hang. So the server ends. The
            // kernel then kills the program, because the program dies with its parent, and the guard kills the
            // remaining processes of the task.
            Err(error) => {
                eprintln!("crossdock: {error}");
                std::process::exit(BROKEN);
            }
        };
        match server.judge(&mut reader, &call) {
            None => server.listener.let_go(call.id),
            Some(CallDecision::Refuse(refusal)) => {
                server.waits().tell(&refusal);
                refusal.report();
                server.listener.refuse(call.id, EROFS);
            }
            Some(CallDecision::Explain(refusal)) => {
                server.waits().tell(&refusal);
                refusal.report();
                server.listener.let_go(call.id);
            }
            Some(CallDecision::Wait(path)) if server.waits().takes_over(&call, &path) => {}
            Some(CallDecision::Wait(path)) => {
                let for_thread = server.clone();
                let waits = move || for_thread.wait(call.thread, &path);
                if std::thread::Builder::new().stack_size(128 << 10).spawn(waits).is_err() {
                    // No thread could be started to wait for the file. So the call continues, and the program gets
                    // ENOENT, as it would without a door.
                    server.waits().of.remove(&call.thread);
                    server.listener.let_go(call.id);
                }
            }
        }
    }
}

/// What the server does with a stopped call that must wait, must fail, or needs a line in the log.
enum CallDecision {
    /// The call is for a file that does not exist yet and that tasks wait for. The field is the path.
    Wait(Vec<u8>),
    /// The call changes a file that the program may only read. The server lets it fail with EROFS.
    Refuse(WriteRefusal),
    /// The kernel itself will let the call fail, and the server writes the reason into the task's log.
    Explain(WriteRefusal),
}

/// Gives the path that the name at `address` stands for in the memory of the thread that made `call`.
fn path_of(reader: &mut MemoryReader, call: &StoppedCall, (folder, address): (i32, usize)) -> Option<Vec<u8>> {
    let path = reader.text(call.thread, address as u64)?;
    match path.first()? {
        b'/' => Some(normalise(&path)),
        _ => Some(absolute(&file::folder_of_process(call.thread, (folder >= 0).then_some(folder)).ok()?, &path)),
    }
}

impl Server {
    /// Decides about a stopped call. Returns `None` if the call may continue immediately and the log needs no line.
    fn judge(&self, reader: &mut MemoryReader, call: &StoppedCall) -> Option<CallDecision> {
        let [a, b, c, d] = [0, 1, 2, 3].map(|n| call.arguments[n] as c_long);
        if let Some((change, names)) = calls::changed_names(call.number, [a, b, c, d]) {
            return self.judge_change(reader, call, change, &names);
        }
        let written = calls::written_name(call.number, [a, b, c]);
        let name = written.map(|(folder, address, _)| (folder, address));
        let whole = path_of(reader, call, name.or_else(|| calls::name_of(call.number, [a, b, c]))?)?;
        let is_awaited = self.views.find(&whole).is_some();
        if !is_awaited && self.watched.is_empty() {
            return None;
        }
        let flags = match calls::flags_of(call.number, [a, b, c]) {
            Some(flags) => Some(reader.word(call.thread, flags)?),
            None => written.map(|(_, _, flags)| flags),
        };
        match flags.filter(|flags| !calls::only_reads(*flags)) {
            Some(flags) if is_awaited && is_written(&whole, flags) => {
                self.views.refuse(Deed::Write, &whole).map(CallDecision::Refuse)
            }
            // An open with O_CREAT and O_EXCL cannot write to a file of another process; at most it fails with EEXIST,
            // which needs no explanation.
            Some(flags) if !is_awaited && !calls::creates_only(flags) => {
                self.watched.refuse_writing(&whole).map(CallDecision::Explain)
            }
            None if is_awaited && self.views.is_missing(&whole) && !self.waits().is_target(call.thread, &whole) => {
                Some(CallDecision::Wait(whole))
            }
            _ => None,
        }
    }

    /// Decides about a call that changes names, or the length of a file, in a directory that the program only reads.
    fn judge_change(
        &self,
        reader: &mut MemoryReader,
        call: &StoppedCall,
        change: calls::Change,
        names: &[(i32, usize)],
    ) -> Option<CallDecision> {
        let whole = path_of(reader, call, *names.first()?)?;
        let to = names.get(1).and_then(|name| path_of(reader, call, *name));
        if let Some(to) = to.as_ref().filter(|to| self.views.find(to).is_some()) {
            self.waits().note_target(call.thread, to);
        }
        let (view, _) = match self.views.find(&whole) {
            Some(found) => found,
            None if change == calls::Change::Cut => {
                return self.watched.refuse_writing(&whole).map(CallDecision::Explain);
            }
            None => return None,
        };
        let seen = file::look(&CString::new(&whole[..]).ok()?).ok();
        let (deed, is_refused) = match change {
            calls::Change::Cut => (Deed::Write, seen.is_some_and(|seen| !seen.is_folder)),
            calls::Change::Make => (Deed::Make, seen.is_none() && has_folder(&whole)),
            calls::Change::Remove => (Deed::Remove, seen.is_some()),
            calls::Change::Rename => {
                // If the new name is outside of the directory, the kernel answers EXDEV by itself, and programs copy
                // the file after that.
                let is_inside = self.views.find(&to?).is_some_and(|(other, _)| other.path == view.path);
                (Deed::Rename, seen.is_some() && is_inside)
            }
        };
        if is_refused { self.views.refuse(deed, &whole).map(CallDecision::Refuse) } else { None }
    }
}

/// Tells whether an open with these flags, which allow writing, would find or make a file at this path. If the open
/// would not, the server does not answer with EROFS: the call continues, and the kernel's own errno (for example ENOENT
/// or EEXIST) tells the program more than EROFS.
fn is_written(path: &[u8], flags: u64) -> bool {
    match CString::new(path).ok().and_then(|path| file::look(&path).ok()) {
        Some(found) => !found.is_folder && !calls::creates_only(flags),
        None => calls::creates(flags) && has_folder(path),
    }
}

/// Tells whether the part of this path before the last slash is an existing folder.
fn has_folder(path: &[u8]) -> bool {
    let end = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    CString::new(&path[..end]).is_ok_and(|folder| file::look(&folder).is_ok_and(|found| found.is_folder))
}

/// The state that the threads of the server share. Each of these threads waits for a file in place of the program.
struct Server {
    listener: Listener,
    views: &'static Views,
    watched: &'static Watched,
    waits: Mutex<Waits>,
}

/// The waits, each under the id of the program's thread that makes the call. A thread makes one call at a time.
#[derive(Default)]
struct Waits {
    of: HashMap<i32, Wait>,
    /// For each thread: the name that its last rename was to give to a file, if this name is in a directory that the
    /// program only reads. Such a rename fails, and the program may look the name up after that (see
    /// [`Self::is_target`]).
    targets: HashMap<i32, RenameTarget>,
    lines: u32,
}

struct Wait {
    /// The id of the stopped call that must be answered. If a signal ends this call, most programs make the call again,
    /// and the new call has another id.
    id: u64,
    path: Vec<u8>,
    /// When the program's thread first asked for this path.
    begun: Instant,
    /// When the server's thread stopped waiting; `None` while it waits.
    left: Option<Instant>,
}

impl Waits {
    /// Notes a wait for the call `call`. Returns true if a thread of the server already waits for the same path in
    /// place of the same thread of the program; that thread then answers the new call.
    fn takes_over(&mut self, call: &StoppedCall, path: &[u8]) -> bool {
        let now = Instant::now();
        self.of.retain(|_, wait| wait.left.is_none_or(|left| now.duration_since(left) < RESTARTED));
        let former = self.of.remove(&call.thread).filter(|wait| wait.path == path);
        let begun = former.as_ref().map_or(now, |wait| wait.begun);
        self.of.insert(call.thread, Wait { id: call.id, path: path.to_owned(), begun, left: None });
        former.is_some_and(|wait| wait.left.is_none())
    }

    /// Notes that a thread has tried to rename a file to this name, in a directory that the program only reads.
    fn note_target(&mut self, thread: i32, path: &[u8]) {
        self.targets.retain(|_, target| target.is_recent());
        self.targets.entry(thread).or_default().note(path);
    }

    /// Tells whether a thread has tried to rename a file to this name a moment ago. After the rename has failed,
    /// programs look the name up, to find out whether it is a folder. So the lookup must not wait for a file.
    fn is_target(&self, thread: i32, path: &[u8]) -> bool {
        self.targets.get(&thread).is_some_and(|target| target.is(path))
    }

    /// Finds the noted wait of the program's thread `thread` for `path`. Gives `None` if that thread waits for another
    /// path, or if no thread of the server waits in its place any more.
    fn find(&mut self, thread: i32, path: &[u8]) -> Option<&mut Wait> {
        self.of.get_mut(&thread).filter(|wait| wait.path == path && wait.left.is_none())
    }
}

impl Server {
    fn waits(&self) -> MutexGuard<'_, Waits> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the file in place of the program's thread `thread`. Ends when the thread's call is answered, or when a
    /// signal has ended this call.
    fn wait(&self, thread: i32, path: &[u8]) {
        let is_wanted = || {
            let id = self.waits().find(thread, path).map(|wait| wait.id);
            id.is_some_and(|id| self.listener.is_waiting(id))
        };
        loop {
            let Some(begun) = self.waits().find(thread, path).map(|wait| wait.begun) else { return };
            let outcome = self.views.await_file_while(path, begun.elapsed(), &is_wanted);
            // The lock on the waits is held until the call is answered. So the noted call stays the newest call of the
            // program's thread until then, and the answer goes to the newest call.
            let mut waits = self.waits();
            let Some(wait) = waits.find(thread, path) else { return };
            let id = wait.id;
            if outcome == FileWaitOutcome::Interrupted {
                if self.listener.is_waiting(id) {
                    continue;
                }
                // A signal has ended the program's call. If the program repeats the call soon, the same wait continues.
                wait.left = Some(Instant::now());
                return;
            }
            waits.of.remove(&thread);
            match outcome {
                FileWaitOutcome::Gone(story) => {
                    waits.tell(&story);
                    self.listener.refuse(id, ENOENT);
                }
                FileWaitOutcome::TimedOut(story) => {
                    waits.tell(&story);
                    self.listener.refuse(id, ETIMEDOUT);
                }
                FileWaitOutcome::Pass | FileWaitOutcome::Published | FileWaitOutcome::Interrupted => {
                    self.listener.let_go(id)
                }
            }
            return;
        }
    }
}

impl Waits {
    fn tell(&mut self, story: &dyn std::fmt::Display) {
        self.lines += 1;
        if self.lines <= LINES {
            file::complain(&format!("crossdock: {story}\n"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(id: u64) -> StoppedCall {
        StoppedCall { id, thread: 7, number: 0, arguments: [0; 6] }
    }

    #[test]
    fn a_call_that_is_made_again_after_a_signal_goes_on_with_the_same_wait() {
        let mut waits = Waits::default();
        assert!(!waits.takes_over(&call(1), b"/f/a"));
        let begun = waits.find(7, b"/f/a").unwrap().begun;
        assert!(waits.takes_over(&call(2), b"/f/a"), "a thread waits for it already");
        let wait = waits.find(7, b"/f/a").unwrap();
        assert_eq!((wait.id, wait.begun), (2, begun));
        wait.left = Some(Instant::now());
        assert!(!waits.takes_over(&call(3), b"/f/a"), "no thread waits for it any more");
        assert_eq!(waits.find(7, b"/f/a").unwrap().begun, begun);
        assert!(!waits.takes_over(&call(4), b"/f/b"), "another path is another wait");
        assert!(waits.find(7, b"/f/a").is_none());
    }
}

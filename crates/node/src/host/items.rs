//! The files of items: made, proved by lease, opened anew, and copied beside all other work.
//!
//! This process has exactly one open file description of each file (the keeper's copies are the same one), so the
//! kernel's answer to the lease is about other processes. Copies run in threads of their own, so a long one delays no
//! client.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crossdock_layout::SegmentId;
use crossdock_os::lease::{self, Proof};
use crossdock_os::tmpfs::door::Tried;
use crossdock_os::tmpfs::{self, Folder};
use crossdock_os::{Access, Mapping, OsResult, event, file, memfd};

use super::Host;
use super::doors::{Doors, Party};
use crate::broker::{Event, Verdict};

/// How long, and how often, the last references of a process that has just died are waited for.
const DYING: Duration = Duration::from_millis(2);
const DYING_PAUSE: Duration = Duration::from_micros(50);
const DYING_EVERY: Duration = Duration::from_millis(50);
/// How often the log says that a process tries to get in.
const TOLD_EVERY: Duration = Duration::from_secs(1);
/// The number of bytes that are copied before the thread looks again whether the copy is still wanted.
const PART: usize = 256 << 10;
/// A copy up to this size is made at once. A thread would cost more than the copy, which delays no client.
const SMALL: u64 = 256 << 10;
/// The most copies at the same time. Others wait for one of these to end.
const COPIES: usize = 4;

/// What a host has for items.
pub(super) struct Files {
    pub(super) folder: Option<Folder>,
    doors: Doors,
    /// The files that a process had open that may have kept a way to open them again. Without doors such a file is not
    /// given to a next owner.
    reopenable: HashSet<u64>,
    /// The files that have a name in the folder.
    named: HashSet<u64>,
    /// The copies that have begun, by their target. Setting the flag ends a copy that is no longer wanted.
    running: HashMap<u64, Arc<AtomicBool>>,
    waiting: Vec<Job>,
    sender: Sender<Done>,
    receiver: Receiver<Done>,
    /// Readable when a copy has ended.
    pub(super) done: OwnedFd,
    patient_until: Option<Instant>,
    told_until: Option<Instant>,
    /// The files whose bytes other nodes pull, and the mappings from which they are served.
    pulled: Vec<(u64, Weak<Mapping>)>,
}

struct Job {
    item: SegmentId,
    to: SegmentId,
    size: u64,
    source: OwnedFd,
    target: OwnedFd,
    unwanted: Arc<AtomicBool>,
}

struct Done {
    item: SegmentId,
    to: SegmentId,
    outcome: Result<(), String>,
}

impl Files {
    /// `kept` are the files that a former broker made. It is not known which processes had them open.
    pub(super) fn new(
        folder: Option<Folder>,
        doors: BTreeMap<u64, Vec<OwnedFd>>,
        kept: impl Iterator<Item = u64>,
    ) -> OsResult<Self> {
        let (sender, receiver) = channel();
        let names = folder.as_ref().map(Folder::names).transpose()?.unwrap_or_default();
        let named = names.iter().filter_map(|n| n.strip_prefix(PREFIX)?.parse().ok()).collect();
        Ok(Self {
            folder,
            doors: Doors::new(doors),
            reopenable: kept.collect(),
            named,
            running: HashMap::new(),
            waiting: Vec::new(),
            sender,
            receiver,
            done: event::eventfd()?,
            patient_until: None,
            told_until: None,
            pulled: Vec::new(),
        })
    }

    /// Other nodes pull a file's bytes as long as there is this mapping.
    pub(super) fn note_pull(&mut self, file: u64, mapping: &Arc<Mapping>) {
        self.pulled.retain(|(_, known)| known.strong_count() > 0);
        self.pulled.push((file, Arc::downgrade(mapping)));
    }

    fn is_pulled(&self, file: u64) -> bool {
        self.pulled.iter().any(|(of, mapping)| *of == file && mapping.strong_count() > 0)
    }
}

/// The beginning of a file's name in `/proc/PID/maps`, by which `audit` finds it.
const PREFIX: &str = "crossdock-item-";

fn name(file: u64) -> String {
    format!("{PREFIX}{file}")
}

impl Host<'_> {
    /// Removes names without a descriptor, whose maker was killed before the keeper had it.
    pub(super) fn drop_nameless_files(&mut self) {
        let stray: Vec<_> = self.files.named.iter().filter(|n| !self.segments.contains_key(n)).copied().collect();
        for file in stray {
            self.forget_file(file);
        }
    }

    pub(super) fn make_item(&mut self, id: u64, size: u64) -> Result<(), String> {
        let Some(folder) = &self.files.folder else {
            return Err("the daemon has no memory file system for items; `crossdock doctor` says why".into());
        };
        let fd = folder.create(&name(id), size).map_err(|error| {
            let hint = super::doing::hint(&error);
            format!("no item of {size} bytes could be made: {error}; {hint}")
        })?;
        if folder.has_read_only_door() {
            self.files.named.insert(id);
        }
        self.keep(id, fd);
        Ok(())
    }

    /// Has any process the file open or mapped?
    pub(super) fn prove_item(&mut self, id: u64, dying: bool) -> Verdict {
        let mut verdict = self.ask(id);
        // A killed process drops its files one by one, and its connection may have been the first.
        let now = Instant::now();
        if dying && verdict == Verdict::Clinging && self.files.patient_until.is_none_or(|u| now >= u) {
            while verdict == Verdict::Clinging && now.elapsed() < DYING {
                std::thread::sleep(DYING_PAUSE);
                verdict = self.ask(id);
            }
            self.files.patient_until = Some(Instant::now() + DYING_EVERY);
        }
        if verdict == Verdict::Alone && self.files.doors.are_many(id) {
            // All of them are shut for good.
            self.files.doors.forget(id);
            self.told(self.post.drop_doors(id));
        }
        verdict
    }

    /// First all doors are shut. Then the kernel is asked whether a process has the file.
    fn ask(&mut self, id: u64) -> Verdict {
        let Some(fd) = self.segments.get(&id) else { return Verdict::Unknown("the daemon has lost it".into()) };
        let gate = self.files.folder.as_ref().and_then(Folder::gate);
        let shut = gate.map_or(Ok(true), |gate| self.files.doors.shut(gate, id));
        match shut.and_then(|shut| Ok(shut && lease::prove(fd, Proof::Alone)?)) {
            // The daemon's own mapping is of its own descriptor, so the kernel does not see it.
            Ok(true) if self.files.is_pulled(id) => Verdict::Pulled,
            Ok(true) if gate.is_none() && self.files.reopenable.contains(&id) => Verdict::Reopenable,
            Ok(true) => Verdict::Alone,
            Ok(false) => Verdict::Clinging,
            Err(error) => Verdict::Unknown(error.to_string()),
        }
    }

    /// A descriptor for a client: a new open file description.
    pub(super) fn open_item(&mut self, connection: u64, id: u64, writable: bool) -> OsResult<Option<OwnedFd>> {
        let Some(fd) = self.segments.get(&id) else { return Ok(None) };
        if !self.broker.is_confined(connection) {
            self.files.reopenable.insert(id);
        }
        // A former owner of the same user may have removed all rights to open the file.
        file::let_owner_open(fd)?;
        let opened = match &self.files.folder {
            Some(folder) if folder.gate().is_some() => {
                let party = if writable { Party::Connection(connection) } else { Party::Readers };
                let (door, new) = self.files.doors.open(folder, id, party)?;
                let told = if new { self.post.hold_door(id, door.as_fd()) } else { Ok(()) };
                let opened = door.file(&name(id));
                self.told(told);
                opened
            }
            Some(folder) if folder.has_read_only_door() && writable => folder.open_writer(&name(id)),
            Some(folder) if folder.has_read_only_door() => folder.open_reader(&name(id)),
            _ => tmpfs::open_anew(fd, if writable { Access::ReadWrite } else { Access::Read }),
        };
        opened.map(Some)
    }

    pub(super) fn copy_item(&mut self, item: SegmentId, from: SegmentId, to: SegmentId, size: u64) {
        let made = self.make_item(to.0, size).and_then(|()| {
            let copy = |id: u64| self.segments.get(&id).map(file::duplicate);
            match (copy(from.0), copy(to.0)) {
                (Some(Ok(source)), Some(Ok(target))) => Ok((source, target)),
                _ => Err("the daemon has no descriptor left".into()),
            }
        });
        match made {
            Ok((source, target)) => {
                let unwanted = Arc::new(AtomicBool::new(false));
                let job = Job { item, to, size, source, target, unwanted };
                if size <= SMALL {
                    return self.ended_copy(item, to, copy(job));
                }
                self.files.running.insert(to.0, job.unwanted.clone());
                self.files.waiting.push(job);
                self.start_copies();
            }
            Err(why) => self.ended_copy(item, to, Err(why)),
        }
    }

    /// Reports a copy that ended here as an event of its own, behind the effects of this one, like any other copy.
    fn ended_copy(&self, item: SegmentId, to: SegmentId, outcome: Result<(), String>) {
        let _ = self.files.sender.send(Done { item, to, outcome });
        event::signal(&self.files.done);
    }

    fn start_copies(&mut self) {
        while self.files.running.len() - self.files.waiting.len() < COPIES && !self.files.waiting.is_empty() {
            let job = self.files.waiting.remove(0);
            let (item, to, sender) = (job.item, job.to, self.files.sender.clone());
            let Ok(bell) = file::duplicate(&self.files.done) else {
                self.files.waiting.insert(0, job);
                return;
            };
            let run = move || {
                let outcome = copy(job);
                let _ = sender.send(Done { item, to, outcome });
                event::signal(&bell);
            };
            if let Err(error) = std::thread::Builder::new().name("copy".into()).stack_size(64 << 10).spawn(run) {
                self.ended_copy(item, to, Err(format!("the daemon can have no more threads: {error}")));
            }
        }
    }

    pub(super) fn copies_done(&mut self) {
        event::clear(&self.files.done);
        while let Ok(Done { item, to, outcome }) = self.files.receiver.try_recv() {
            self.files.running.remove(&to.0);
            self.feed(Event::Copied { item, to, outcome });
        }
        self.start_copies();
    }

    /// A former owner tries to reopen an item through a leftover descriptor, or a task reads an item by a call. Both
    /// are refused.
    pub(super) fn turn_away(&mut self) {
        let Some(gate) = self.files.folder.as_ref().and_then(Folder::gate) else { return };
        let tried = gate.turn_away();
        if self.files.told_until.is_some_and(|until| Instant::now() < until) {
            return;
        }
        if let Some(tried) = tried.last() {
            self.files.told_until = Some(Instant::now() + TOLD_EVERY);
            match tried {
                Tried::Open(process) => {
                    self.log
                        .event(format_args!("process {process} tried to open an item that it does not own any more"));
                }
                Tried::Read(process) => self.log.event(format_args!(
                    "process {process} tried to read, splice or send an item's file; items are reached by mapping only"
                )),
            }
        }
    }

    /// A file is given up: its name is removed, and a copy to it ends.
    pub(super) fn forget_file(&mut self, id: u64) {
        if let Some(unwanted) = self.files.running.get(&id) {
            unwanted.store(true, Ordering::Relaxed);
        }
        self.files.doors.forget(id);
        self.files.reopenable.remove(&id);
        if self.files.named.remove(&id) {
            if let Some(Err(error)) = self.files.folder.as_ref().map(|folder| folder.remove(&name(id))) {
                self.log.failure(error);
            }
        }
    }
}

/// Runs in a thread of its own. The former owner may write and truncate the file meanwhile. That changes only its own
/// last bytes, and missing bytes are zero.
fn copy(job: Job) -> Result<(), String> {
    memfd::reserve(&job.target, 0, job.size).map_err(|e| format!("the node has no memory left for it: {e}"))?;
    let mut buffer = vec![0; PART];
    let mut at = 0;
    while at < job.size {
        if job.unwanted.load(Ordering::Relaxed) {
            return Err("no task wants it any more".into());
        }
        let most = buffer.len().min((job.size - at) as usize);
        match file::copy_part(job.source.as_fd(), job.target.as_fd(), at, &mut buffer[..most]) {
            Ok(0) => break,
            Ok(length) => at += length as u64,
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(())
}

//! Makes the files of items, proves them by a lease, opens them for clients, and copies them.
//!
//! This process has exactly one open file description of each file, which the keeper's copies of the descriptor share.
//! So if the kernel refuses a lease on the file, another process has the file open or mapped. Large copies run in
//! threads of their own, so that no client waits for them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crossdock_layout::SegmentId;
use crossdock_os::lease::{self, Proof};
use crossdock_os::tmpfs::door::RefusedAccess;
use crossdock_os::tmpfs::{self, Folder};
use crossdock_os::{Access, Mapping, OsResult, event, file, memfd};

use super::Host;
use super::doors::{DoorUser, Doors};
use crate::broker::{Event, Verdict};

/// How long a proof waits if the last holder has just died, because the kernel may still be dropping the dead
/// process's references to the item's file.
const DYING: Duration = Duration::from_millis(2);
const DYING_PAUSE: Duration = Duration::from_micros(50);
const DYING_EVERY: Duration = Duration::from_millis(50);
/// How often the log may say that a process tries to open an item that it does not own.
const TOLD_EVERY: Duration = Duration::from_secs(1);
/// Each time that a thread has copied this many bytes, it checks whether the copy is still wanted.
const PART: usize = 256 << 10;
/// A copy of at most this size is made in the broker's thread, because starting another thread would take longer. The
/// copy is so short that it delays no client. If memory of a file of at most this size is missing, the memory is also
/// allocated in the broker's thread.
const SMALL: u64 = 256 << 10;
/// The maximum number of copies that run at the same time. Further copies wait.
const COPIES: usize = 4;

/// The part of the host's state that is about items' files.
pub(super) struct ItemFiles {
    pub(super) folder: Option<Folder>,
    doors: Doors,
    /// Items' files of which the keeper lost a door, because it had no descriptor left. This broker cannot shut the lost
    /// door. So it copies the file before the next owner gets the item.
    lost_doors: BTreeSet<u64>,
    /// Files that a process may be able to open again after it has closed them. If the system has no doors, such a file
    /// is copied before the next owner gets it.
    reopenable: HashSet<u64>,
    /// The items' files that have a name in `folder`.
    named: HashSet<u64>,
    /// The copies that run or wait. The key is the file that gets the bytes. Setting the flag ends a copy that is not
    /// wanted any more.
    running: HashMap<u64, Arc<AtomicBool>>,
    waiting: Vec<Job>,
    sender: Sender<Done>,
    receiver: Receiver<Done>,
    /// A descriptor that is readable when a copy has ended.
    pub(super) done: Arc<OwnedFd>,
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

impl ItemFiles {
    /// Makes the state for a new broker. `kept` are the files that a former broker made; processes may be able to open
    /// them again.
    pub(super) fn new(
        folder: Option<Folder>,
        doors: BTreeMap<u64, Vec<OwnedFd>>,
        lost_doors: BTreeSet<u64>,
        kept: impl Iterator<Item = u64>,
    ) -> OsResult<Self> {
        let (sender, receiver) = channel();
        let named = folder.as_ref().map(named_files).transpose()?.into_iter().flatten().collect();
        Ok(Self {
            folder,
            doors: Doors::new(doors),
            lost_doors,
            reopenable: kept.collect(),
            named,
            running: HashMap::new(),
            waiting: Vec::new(),
            sender,
            receiver,
            done: Arc::new(event::eventfd()?),
            patient_until: None,
            told_until: None,
            pulled: Vec::new(),
        })
    }

    /// Notes that another node pulls the file's bytes, for as long as this mapping exists.
    pub(super) fn note_pull(&mut self, file: u64, mapping: &Arc<Mapping>) {
        self.pulled.retain(|(_, known)| known.strong_count() > 0);
        self.pulled.push((file, Arc::downgrade(mapping)));
    }

    fn is_pulled(&self, file: u64) -> bool {
        self.pulled.iter().any(|(of, mapping)| *of == file && mapping.strong_count() > 0)
    }
}

/// The beginning of a file's name, which `/proc/PID/maps` shows. `crossdock audit` finds items by it.
const PREFIX: &str = "crossdock-item-";

fn name(file: u64) -> String {
    format!("{PREFIX}{file}")
}

/// Opens the items' files that have a name in the folder and that the keeper does not hold: the keeper had no descriptor
/// left for them, or the former broker was killed before it could send them. The former broker is dead, so each file has
/// exactly one open file description again.
///
/// # Errors
/// This process has no room for a descriptor at the moment.
pub(super) fn open_unheld(folder: &Folder, held: &BTreeMap<u64, OwnedFd>) -> OsResult<Vec<(u64, OwnedFd)>> {
    let mut found = Vec::new();
    for file in named_files(folder)?.filter(|file| !held.contains_key(file)) {
        match folder.open_writer(&name(file)) {
            Ok(opened) => found.push((file, opened)),
            Err(error) if error.is_out_of_room() => return Err(error),
            // Its former user has taken all rights from it, for example. Then it is lost.
            Err(error) => eprintln!("crossdock broker: {error}"),
        }
    }
    Ok(found)
}

/// Gives the numbers of the items' files that have a name in the folder.
fn named_files(folder: &Folder) -> OsResult<impl Iterator<Item = u64>> {
    Ok(folder.names()?.into_iter().filter_map(|name| name.strip_prefix(PREFIX)?.parse().ok()))
}

impl Host<'_> {
    /// Removes items' files that have a name in the folder, but no descriptor in this process.
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

    /// Finds out whether any process has the item's file open or mapped. If no process has, and `size` is given, sets the
    /// file to this size, because a former user may have changed the file's size, and allocates missing memory of a
    /// small file. `dying` says that the last holder has just died.
    pub(super) fn prove_item(&mut self, id: u64, size: Option<u64>, dying: bool) -> Verdict {
        let mut verdict = self.ask(id);
        if dying && verdict == Verdict::Clinging && self.files.patient_until.is_none_or(|u| Instant::now() >= u) {
            // The kernel closes the files of a killed process one after another, so the item's file may still be open
            // for a moment.
            let began = Instant::now();
            while verdict == Verdict::Clinging && began.elapsed() < DYING {
                std::thread::sleep(DYING_PAUSE);
                verdict = self.ask(id);
            }
            self.files.patient_until = Some(Instant::now() + DYING_EVERY);
        }
        if verdict == Verdict::Alone && self.files.doors.are_many(id) {
            // All doors to this file are shut now, and are not used any more.
            self.files.doors.forget(id);
            self.check_keeper(self.post.drop_doors(id));
        }
        if verdict != Verdict::Alone {
            return verdict;
        }
        let Some(size) = size else { return Verdict::Incomplete };
        match self.make_whole(id, size) {
            Ok(true) => Verdict::Alone,
            Ok(false) => Verdict::Incomplete,
            Err(error) => {
                Verdict::Unknown(format!("a former user cut it, and its memory could not be put back: {error}"))
            }
        }
    }

    /// Gives a file its size, and a small file also memory for each of its pages. A former user may have cut the file
    /// or punched holes into it. Tells whether the file has all of its memory now. This must be known because this
    /// process reads the file through a mapping when another node pulls it. If the node has no memory left, reading a
    /// missing page would end this process with a signal.
    fn make_whole(&self, id: u64, size: u64) -> Result<bool, String> {
        let Some(fd) = self.segments.get(&id) else { return Ok(true) };
        if size <= SMALL {
            return file::make_whole(fd, size).map(|()| true).map_err(|error| error.to_string());
        }
        // In a large file, even the search for the holes would delay the clients. So they are not filled here.
        file::restore_size(fd, size).map_err(|error| error.to_string())
    }

    /// Shuts all doors to the file. Then asks the kernel whether any other process has the file open or mapped.
    fn ask(&mut self, id: u64) -> Verdict {
        let Some(fd) = self.segments.get(&id) else { return Verdict::Unknown("the daemon has lost it".into()) };
        let gate = self.files.folder.as_ref().and_then(Folder::gate);
        let shut = gate.map_or(Ok(true), |gate| self.files.doors.shut(gate, id));
        match shut.and_then(|shut| Ok(shut && lease::prove(fd, Proof::Alone)?)) {
            // Another node's pull reads the file through a mapping of the daemon itself, and the kernel's answer does
            // not take this mapping into account.
            Ok(true) if self.files.is_pulled(id) => Verdict::Pulled,
            Ok(true) if self.files.lost_doors.contains(&id) => Verdict::Reopenable,
            Ok(true) if gate.is_none() && self.files.reopenable.contains(&id) => Verdict::Reopenable,
            Ok(true) => Verdict::Alone,
            Ok(false) => Verdict::Clinging,
            Err(error) => Verdict::Unknown(error.to_string()),
        }
    }

    /// Opens an item's file for a client, with an open file description of its own.
    pub(super) fn open_item(&mut self, connection: u64, id: u64, writable: bool) -> OsResult<Option<OwnedFd>> {
        let opened = self.open_file(connection, id, writable);
        if let (Err(error), Some(fd)) = (&opened, self.segments.get(&id))
            && error.is_forbidden()
        {
            // A former owner with the same user id may have changed the file's mode so that the file cannot be opened.
            // So the mode is corrected, and the file is opened again.
            file::let_owner_open(fd)?;
            return self.open_file(connection, id, writable);
        }
        opened
    }

    fn open_file(&mut self, connection: u64, id: u64, writable: bool) -> OsResult<Option<OwnedFd>> {
        let Some(fd) = self.segments.get(&id) else { return Ok(None) };
        if !self.broker.is_confined(connection) {
            self.files.reopenable.insert(id);
        }
        let opened = match &self.files.folder {
            Some(folder) if folder.gate().is_some() => {
                let party = match self.broker.member_at(connection).filter(|_| writable) {
                    Some(member) => DoorUser::Owner(member),
                    None => DoorUser::Readers,
                };
                let (door, new) = self.files.doors.open(folder, id, party)?;
                let sent = if new { self.post.hold_door(id, door.as_fd()) } else { Ok(()) };
                let opened = door.file(&name(id));
                self.check_keeper(sent);
                opened
            }
            Some(folder) if folder.has_read_only_door() && writable => folder.open_writer(&name(id)),
            Some(folder) if folder.has_read_only_door() => folder.open_reader(&name(id)),
            _ => tmpfs::open_anew(fd, if writable { Access::ReadWrite } else { Access::Read }),
        };
        opened.map(Some)
    }

    /// Cuts an item's file before the item grows.
    pub(super) fn cut_item(&self, id: u64, size: u64) {
        if let Some(Err(error)) = self.segments.get(&id).map(|fd| file::set_size(fd, size)) {
            self.log.failure(format_args!("an item's file could not be cut: {error}"));
        }
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

    /// Reports the end of a copy as an event. The event is handled after all effects of the present event, like the end
    /// of a copy in a thread.
    fn ended_copy(&self, item: SegmentId, to: SegmentId, outcome: Result<(), String>) {
        let _ = self.files.sender.send(Done { item, to, outcome });
        event::signal(&self.files.done);
    }

    fn start_copies(&mut self) {
        while self.files.running.len() - self.files.waiting.len() < COPIES && !self.files.waiting.is_empty() {
            let job = self.files.waiting.remove(0);
            let (item, to, sender) = (job.item, job.to, self.files.sender.clone());
            // The thread shares the descriptor `done` and needs no further one. So the start of a waiting copy never
            // fails for lack of descriptors.
            let bell = Arc::clone(&self.files.done);
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

    /// Refuses the accesses to items' files that the kernel reports: a former owner opens an item through a leftover
    /// descriptor, or a task reads an item with a system call.
    pub(super) fn refuse_waiting(&mut self) {
        let Some(gate) = self.files.folder.as_ref().and_then(Folder::gate) else { return };
        let tried = gate.refuse_waiting();
        if self.files.told_until.is_some_and(|until| Instant::now() < until) {
            return;
        }
        if let Some(tried) = tried.last() {
            self.files.told_until = Some(Instant::now() + TOLD_EVERY);
            match tried {
                RefusedAccess::Open(process) => {
                    self.log
                        .event(format_args!("process {process} tried to open an item that it does not own any more"));
                }
                RefusedAccess::Read(process) => self.log.event(format_args!(
                    "process {process} tried to read, splice or send an item's file; items are reached by mapping only"
                )),
            }
        }
    }

    /// Forgets an item's file that is not needed any more: removes the file's name, and ends a copy to the file.
    pub(super) fn forget_file(&mut self, id: u64) {
        if let Some(unwanted) = self.files.running.get(&id) {
            unwanted.store(true, Ordering::Relaxed);
        }
        self.files.doors.forget(id);
        self.files.reopenable.remove(&id);
        self.files.lost_doors.remove(&id);
        if self.files.named.remove(&id) {
            if let Some(Err(error)) = self.files.folder.as_ref().map(|folder| folder.remove(&name(id))) {
                self.log.failure(error);
            }
        }
    }
}

/// Copies an item's bytes, mostly in a thread of its own. Meanwhile the former owner may still write to its file or
/// truncate it. Then the copy has the bytes that the former owner wrote last, and zeros for bytes that are missing.
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

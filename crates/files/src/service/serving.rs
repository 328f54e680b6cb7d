//! Answers the services of other hosts: changes of the directory, and the bytes of published files.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crossdock_layout::Status;
use crossdock_link::{Buffer, Peer, Refusal, Serve, Source, SourceId};
use crossdock_os::fs::{self, File};
use crossdock_os::{Deadline, event};

use super::messages::{Answer, ChangeKind, FileMetadata, NEWS, Question};
use super::{Shared, State};
use crate::rules::Keep;
use crate::store::{ordinary, present};

/// The longest time that a request for changes waits. The asking host then asks again.
const WAIT: Duration = Duration::from_secs(5);
/// A request that waits is answered this long before its deadline, so that the answer reaches the asking host in time.
const TRAVEL: Duration = Duration::from_millis(500);

/// How many requests for changes may wait at the same time. Each request that waits takes one of the 64 threads that
/// the server has for each peer. Requests above this number are answered without a wait.
const WAITING_MOST: usize = 48;

/// The directories of this host that other hosts may ask for.
pub(super) struct ServedDirectories {
    pub directories: Vec<(String, Arc<Shared>)>,
    /// The number of requests that are being answered.
    pub asked: AtomicUsize,
}

/// One request that is being answered. The request counts while this value lives.
struct RequestGuard<'a>(&'a AtomicUsize);

impl<'a> RequestGuard<'a> {
    /// Counts a request. The second part of the result says whether the request may wait for changes.
    fn new(count: &'a AtomicUsize) -> (Self, bool) {
        let before = count.fetch_add(1, Ordering::Relaxed);
        (Self(count), before < WAITING_MOST)
    }
}

impl Drop for RequestGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Serve for ServedDirectories {
    fn answer(&self, peer: &Peer, service: u32, body: &[u8], by: Deadline) -> Result<Vec<u8>, Refusal> {
        if service != NEWS {
            return Err(Refusal::new(Status::NotFound, format!("there is no service {service} of files")));
        }
        let Some(question) = Question::read(body) else {
            return Err(Refusal::new(Status::Corrupt, "a question for news of files that cannot be read"));
        };
        let found = self.directories.iter().enumerate().find(|(_, (name, _))| *name == question.directory);
        let Some((number, (_, shared))) = found else {
            let text = format!("managed directory `{}` has no task on this host", question.directory);
            return Err(Refusal::new(Status::NotFound, text));
        };
        let (_asked, may_wait) = RequestGuard::new(&self.asked);
        let by = by.at_most(if may_wait { WAIT } else { Duration::ZERO });
        let answer = shared.news(&peer.node.name, &question, by)?;
        Ok(Answer { directory: address(answer.life, number), ..answer }.write())
    }

    fn open(&self, peer: &Peer, source_id: &SourceId) -> Result<Arc<dyn Source>, Refusal> {
        let number = usize::try_from(source_id.epoch & DIRECTORIES).ok();
        let Some((_, shared)) = number.and_then(|number| self.directories.get(number)) else {
            return Err(Refusal::new(Status::NotFound, "there is no managed directory of this number"));
        };
        shared.open(&peer.node.name, source_id)
    }
}

/// Other hosts name a directory by a number. These bits of the number are the directory's index on this host.
const DIRECTORIES: u64 = 0xffff;

/// Gives the number by which other hosts name a directory. It contains the directory's index and the number of this
/// start of the service. Without the number of the start, a number from an earlier start could mean another file now.
fn address(life: u64, number: usize) -> u64 {
    life & !DIRECTORIES | number as u64 & DIRECTORIES
}

impl Shared {
    /// Answers a request for changes. The call waits until there is a change, and at most until the deadline.
    fn news(&self, node: &str, asked: &Question, by: Deadline) -> Result<Answer, Refusal> {
        let mut state = self.state();
        let reader = state.reader(node)?;
        state.release();
        let is_same_life = asked.life == state.life;
        let since = if is_same_life { asked.since } else { 0 };
        if is_same_life {
            for rest in state.ledger.done(reader, asked.done) {
                state.has_fetched(reader, rest);
            }
            state.held.retain(|held| held.reader != reader || held.number > asked.done);
            event::signal(&self.nudge);
        }
        let by = by.at_most(by.left().saturating_sub(TRAVEL));
        loop {
            let producers = (state.own.unwrap_or(asked.phase), state.report.torn);
            let is_new = !is_same_life || state.ledger.is_beyond(since) || producers != (asked.phase, asked.torn);
            // When the exchange of this host has ended, the log of changes (`ledger`) has no readers any more. Readers
            // are the hosts that fetch from this host.
            if state.ledger.readers() == 0 {
                return Err(Refusal::new(Status::Closed, "the run ends"));
            }
            if is_new || by.passed() || state.is_over {
                let (entries, upto, is_complete) = state.ledger.beyond(since);
                let (phase, torn) = producers;
                return Ok(Answer { life: state.life, directory: 0, upto, is_complete, phase, torn, entries });
            }
            state = self.news.wait_timeout(state, by.left()).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Opens a file, so that another host can pull its bytes. The service keeps the file open until that host has the
    /// bytes, even if the file is removed, replaced or dropped meanwhile.
    fn open(&self, node: &str, source_id: &SourceId) -> Result<Arc<dyn Source>, Refusal> {
        let mut state = self.state();
        let reader = state.reader(node)?;
        let gone = || Refusal::new(Status::NotFound, "the file was removed, replaced or dropped meanwhile");
        if source_id.epoch & !DIRECTORIES != state.life & !DIRECTORIES {
            return Err(Refusal::new(Status::NotFound, "the service of the files was started anew meanwhile"));
        }
        let number = source_id.object;
        state.release();
        if let Some(held) = state.held.iter().find(|held| (held.reader, held.number) == (reader, number)) {
            return Ok(held.file.clone());
        }
        let (rest, wanted) = state.ledger.file(number).map(|(rest, meta)| (rest.to_owned(), *meta)).ok_or_else(gone)?;
        let layout = &state.store.layout;
        for folder in [layout.published.clone(), layout.spilled.clone()] {
            let path = folder.join(&rest);
            let system = |error: io::Error| Refusal::new(Status::System, format!("{}: {error}", rest.display()));
            let Some(file) = ordinary(&path).map_err(system)? else { continue };
            let meta = FileMetadata::of(&file.metadata().map_err(system)?);
            // If `fetched` does not contain the name, the name still belongs to the file that the change reports. The
            // file's time is then not compared, because a producer may have set it after the publication. If `fetched`
            // contains the name, the name may now belong to a file of another host, so the time must be the one in the
            // change log. This is also right for a file that was moved to a disk, because the copy on the disk has the
            // time of its original.
            let is_known = meta.modified == wanted.modified || !state.fetched.contains_key(&rest);
            if meta.size == wanted.size && is_known {
                let file = Arc::new(Bytes::of(file, meta.size));
                state.held.push(OpenFile { reader, number, file: file.clone() });
                return Ok(file);
            }
        }
        Err(gone())
    }
}

impl State {
    /// Gives the index of the host `node` among the hosts that fetch from this host. Refuses any other host.
    fn reader(&self, node: &str) -> Result<usize, Refusal> {
        let text = || format!("node '{node}' has no consumer of this managed directory");
        self.ledger.reader(node).ok_or_else(|| Refusal::new(Status::Denied, text()))
    }

    /// Closes files of which no host has asked for bytes in the last minute. A file whose bytes were all sent stays open
    /// until the other host reports that it has the file, because bytes may be lost on the way, and are then asked for
    /// again. So that such files do not take all descriptors, only the last [`SENT`] of them stay open for each host.
    fn release(&mut self) {
        self.held.retain(|held| held.file.requests().last.elapsed() <= HELD);
        self.held.sort_by_cached_key(|held| Reverse(held.file.requests().last));
        let mut sent: BTreeMap<usize, usize> = BTreeMap::new();
        self.held.retain(|held| {
            let is_sent = held.file.requests().sent >= held.file.length;
            let count = sent.entry(held.reader).or_default();
            *count += usize::from(is_sent);
            !is_sent || *count <= SENT
        });
    }

    /// Notes that another host has fetched a file or has given it up. The host counts as a consumer that has read the
    /// file.
    fn has_fetched(&mut self, reader: usize, rest: PathBuf) {
        if let Keep::Consumed { readers } = &self.keep {
            self.count_read(readers.len() + reader, rest);
        }
    }

    /// Tells other hosts of a file that was published here.
    pub(super) fn note_file(&mut self, rest: &Path) {
        if self.ledger.readers() == 0 {
            return;
        }
        if let Ok(meta) = fs::metadata(self.store.layout.published.join(rest)) {
            self.ledger.note(rest, ChangeKind::File(FileMetadata::of(&meta)));
        }
    }

    /// Tells other hosts of the files below `rest` that an earlier service has published.
    ///
    /// # Errors
    /// A call failed. If the list were short instead, the other hosts would never get the files that it lacks.
    pub(super) fn note_all(&mut self, rest: &Path) -> io::Result<()> {
        let layout = &self.store.layout;
        // A name can be on the disk and in memory for a moment. The file in memory counts.
        let mut found = BTreeMap::new();
        for folder in [layout.spilled.join(rest), layout.published.join(rest)] {
            for name in present(fs::names_in(&folder))?.unwrap_or_default() {
                if let Some(meta) = present(fs::symlink_metadata(folder.join(&name)))? {
                    found.insert(name, meta);
                }
            }
        }
        for (name, meta) in found {
            let below = rest.join(name);
            if meta.is_dir() {
                self.ledger.note(&below, ChangeKind::Folder);
                self.note_all(&below)?;
            } else if self.is_own(&below, &meta)? {
                self.ledger.note(&below, ChangeKind::File(FileMetadata::of(&meta)));
            }
        }
        Ok(())
    }

    /// Tells whether this published file was made on this host: producers of this host have it, or it was moved to the
    /// disk.
    fn is_own(&self, rest: &Path, meta: &fs::Metadata) -> io::Result<bool> {
        let layout = &self.store.layout;
        Ok(layout.is_staged(rest, meta)? || present(fs::symlink_metadata(layout.spilled.join(rest)))?.is_some())
    }
}

/// A file that another host is fetching.
#[derive(Debug)]
pub(super) struct OpenFile {
    reader: usize,
    /// The number of the change that published the file.
    number: u64,
    file: Arc<Bytes>,
}

/// How long this service keeps a file open after another host last asked for a part of the file.
const HELD: Duration = Duration::from_secs(60);

/// The most files whose bytes were all sent that stay open for one other host. A host fetches at most
/// [`super::backlog::LANES`] files of a directory at the same time.
const SENT: usize = 16;

/// The bytes of a published file. They are read and not mapped: if a file is shortened, which is against the rules, an
/// access to its mapping kills the process.
#[derive(Debug)]
struct Bytes {
    file: File,
    length: u64,
    requests: Mutex<Requests>,
}

/// What another host has asked for of a file.
#[derive(Clone, Copy, Debug)]
struct Requests {
    /// The number of bytes that were read to be sent. Bytes that were lost on the way count again.
    sent: u64,
    /// When the last bytes were read, or when the file was opened.
    last: Instant,
}

impl Bytes {
    fn of(file: File, length: u64) -> Self {
        Self { file, length, requests: Mutex::new(Requests { sent: 0, last: Instant::now() }) }
    }

    fn requests(&self) -> Requests {
        *self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Source for Bytes {
    fn length(&self) -> u64 {
        self.length
    }

    fn bytes<'a>(&'a self, offset: u64, length: u64, buffer: &'a mut Buffer) -> Result<&'a [u8], Refusal> {
        let bytes = buffer.room(length)?;
        self.file.read_exact_at(bytes, offset).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => Refusal::shorter(),
            // The cause may pass, so the other host tries again.
            _ => Refusal::new(Status::System, error.to_string()),
        })?;
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        *requests = Requests { sent: requests.sent.saturating_add(length), last: Instant::now() };
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use crossdock_layout::files::Phase;
    use crossdock_layout::wire::SegmentKind;
    use crossdock_os::testing::until;

    use super::super::{RemoteHosts, Service};
    use super::*;
    use crate::rules::Publish;

    #[test]
    fn a_file_that_cannot_be_read_now_does_not_look_like_a_shortened_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        std::fs::write(&path, [7; 10]).unwrap();
        let status_of = |options: &mut std::fs::OpenOptions| {
            let bytes = Bytes::of(options.open(&path).unwrap(), 20);
            bytes.bytes(0, 20, &mut Buffer::default()).unwrap_err().status
        };
        assert_eq!(status_of(std::fs::File::options().read(true)), Status::Corrupt);
        assert_eq!(status_of(std::fs::File::options().write(true)), Status::System);
    }

    /// The host `a`, which has published the files `0`, `1` and so on, of two bytes each. The host `b` fetches them.
    struct Producer {
        root: PathBuf,
        service: Option<Service>,
    }

    impl Producer {
        fn new(name: &str, keep: Keep) -> Self {
            let root = PathBuf::from(format!("/dev/shm/crossdock-serving-{name}-{}", std::process::id()));
            let notice = root.with_extension("notice");
            let service = Service::start(&root, &notice, "simulate", Publish::Close, keep).unwrap();
            let across = RemoteHosts { produces: true, readers: vec!["b".into()], ..RemoteHosts::default() };
            service.shared.share(&across, LIFE).unwrap();
            Self { root, service: Some(service) }
        }

        fn shared(&self) -> &Shared {
            &self.service.as_ref().unwrap().shared
        }

        /// Publishes a file. Gives the number of its change.
        fn publish(&self, name: &str) -> u64 {
            fs::write(self.root.join("stage").join(name), "xx").unwrap();
            let find = || {
                let (entries, ..) = self.shared().state().ledger.beyond(0);
                entries.iter().find(|entry| entry.rest == Path::new(name)).map(|entry| entry.number)
            };
            until("the publication", || find().is_some());
            find().unwrap()
        }

        fn open(&self, number: u64) -> Result<Arc<dyn Source>, Refusal> {
            self.shared().open("b", &SourceId { kind: SegmentKind::Item, object: number, epoch: LIFE })
        }

        /// Sends all bytes of a file, as if they were lost on the way.
        fn send(&self, number: u64) {
            let mut buffer = Buffer::default();
            assert_eq!(self.open(number).unwrap().bytes(0, 2, &mut buffer).unwrap(), b"xx");
        }

        /// Handles a request in which `b` reports that it has carried out all changes up to `done`.
        fn ask(&self, done: u64) {
            let (directory, phase) = (String::new(), Phase::Coming);
            let question = Question { directory, life: LIFE, since: 0, done, phase, torn: 0 };
            self.shared().news("b", &question, Deadline::after(Duration::ZERO)).unwrap();
        }

        fn held(&self) -> Vec<u64> {
            let mut held: Vec<u64> = self.shared().state().held.iter().map(|held| held.number).collect();
            held.sort();
            held
        }
    }

    impl Drop for Producer {
        fn drop(&mut self) {
            self.service = None;
            fs::remove_dir_all(&self.root).unwrap();
            fs::remove_file(self.root.with_extension("notice")).unwrap();
        }
    }

    const LIFE: u64 = 1 << 32;

    #[test]
    fn a_file_that_was_dropped_can_be_read_until_the_other_host_has_all_of_its_bytes() {
        let host = Producer::new("dropped", Keep::Newest(1));
        let first = host.publish("0");
        host.send(first);
        host.ask(first - 1);
        host.publish("1");
        until("the drop", || !host.root.join("published/0").exists());
        // The bytes were lost on the way, so `b` asks for them again.
        host.send(first);
        host.ask(first);
        assert!(host.held().is_empty());
        assert!(host.open(first).is_err(), "b has the file");
    }

    #[cfg(feature = "faults")]
    #[test]
    fn other_hosts_learn_of_all_published_files_or_the_exchange_does_not_start() {
        let host = Producer::new("told", Keep::All);
        fs::create_dir(host.root.join("stage/d")).unwrap();
        host.publish("d/f");
        let across = RemoteHosts { produces: true, readers: vec!["b".into()], ..RemoteHosts::default() };
        let mut failed = 0;
        let seen = crossdock_os::faults::each_call_fails(|attempt| {
            attempt.arm();
            let shared = host.shared().share(&across, LIFE);
            let hit = attempt.disarm();
            let (entries, ..) = host.shared().state().ledger.beyond(0);
            let names: Vec<&Path> = entries.iter().map(|entry| entry.rest.as_path()).collect();
            assert!(shared.is_err() || names == [Path::new("d"), Path::new("d/f")], "{hit:?}: {names:?}");
            failed += u32::from(shared.is_err());
        });
        assert!(["open", "getdents", "stat"].iter().all(|call| seen.contains(call)), "{seen:?}");
        assert!(failed > 5, "{failed}");
    }

    #[test]
    fn of_the_files_whose_bytes_were_sent_the_last_ones_stay_open() {
        let host = Producer::new("many", Keep::All);
        let numbers: Vec<u64> = (0..SENT + 3).map(|name| host.publish(&name.to_string())).collect();
        // Of this file, only a part was sent.
        let mut buffer = Buffer::default();
        host.open(numbers[0]).unwrap().bytes(0, 1, &mut buffer).unwrap();
        numbers[1..].iter().for_each(|number| host.send(*number));
        // The bytes of this file are sent again, so it is the last one.
        host.send(numbers[1]);
        host.ask(0);
        let mut expected = numbers.clone();
        expected.drain(2..4);
        assert_eq!(host.held(), expected);
        // A file that was closed is opened again.
        host.send(numbers[2]);
    }

    #[test]
    fn so_many_questions_wait_and_no_more_until_one_of_them_is_answered() {
        let count = AtomicUsize::new(0);
        let mut asked: Vec<RequestGuard<'_>> = Vec::new();
        for _ in 0..WAITING_MOST {
            let (one, may_wait) = RequestGuard::new(&count);
            assert!(may_wait);
            asked.push(one);
        }
        assert!(!RequestGuard::new(&count).1);
        asked.pop();
        assert!(RequestGuard::new(&count).1);
    }
}

//! The answer to `crossdock ls --files`: what is in the managed directories of a run, on this host and on the others.
//!
//! In a run on several hosts, the supervisor listens at a socket in the run's folder. For each connection, the
//! supervisor asks the run's parts on the other hosts to look into their directories, and sends their answers as JSON.
//! If a part does not answer, the supervisor's answer says what the part's host has announced in the catalog of the
//! run's site.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

use crossdock_files::{Announcement, DirectorySnapshot, Site, look};
use crossdock_layout::files::Phase;
use crossdock_os::Deadline;
use serde::{Deserialize, Serialize};

use super::files::{RunningDirectory, running_directories};
use super::hosts::node_name;

/// The name of the socket, in the run's folder, at which the supervisor answers `crossdock ls --files`.
const SOCKET: &str = "looks";
/// How long the parts may take to answer. After that time, the supervisor names the hosts that did not answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long `crossdock ls` waits for the supervisor's answer, and how long the supervisor waits until `crossdock ls`
/// has read the answer.
const LONGEST: Duration = Duration::from_secs(15);
/// How long the catalog may take to answer. For each host that did not answer, the supervisor asks the catalog which
/// files the host has announced.
const CATALOG: Duration = Duration::from_secs(2);
/// The most questions of `crossdock ls --files` that may wait for answers at the same time. If a process connects while
/// so many questions wait, its connection is closed at once.
const QUESTIONS: usize = 64;

/// A managed directory on one host at one moment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DirectoryAnswer {
    /// The name of the host; `None` for the host of the process that looked.
    pub host: Option<String>,
    /// What the run's description says about the directory.
    pub directory: RunningDirectory,
    /// The directory's files, with the tasks that write, read and await them.
    pub look: DirectorySnapshot,
}

/// The managed directories of a run that could be looked at, and the problems with the other directories.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct DirectoryReports {
    /// The managed directories that could be looked at, one entry for each directory on each host.
    pub seen: Vec<DirectoryAnswer>,
    /// For each directory or host that could not be looked at, the reason.
    pub troubles: Vec<String>,
}

impl DirectoryReports {
    fn add(&mut self, other: Self) {
        self.seen.extend(other.seen);
        self.troubles.extend(other.troubles);
    }
}

/// Looks into the managed directories that a run has on this host. `run` is the run's folder.
pub fn here(run: &Path) -> DirectoryReports {
    let mut looks = DirectoryReports::default();
    for directory in running_directories(run) {
        match look(&directory.store, &directory.notice, &directory.path) {
            Ok(look) => looks.seen.push(DirectoryAnswer { host: None, directory, look }),
            Err(why) => looks.troubles.push(format!("directory `{}`: {why}", directory.name)),
        }
    }
    looks
}

/// Asks the supervisor of a run about the managed directories on the other hosts. `run` is the run's folder. The answer
/// is empty for a run on one host.
pub fn elsewhere(run: &Path) -> DirectoryReports {
    let trouble = |why: String| DirectoryReports { seen: Vec::new(), troubles: vec![format!("other hosts: {why}")] };
    let mut socket = match UnixStream::connect(run.join(SOCKET)) {
        Ok(socket) => socket,
        Err(error) if error.kind() == ErrorKind::NotFound => return DirectoryReports::default(),
        Err(error) => return trouble(format!("the run's supervisor cannot be asked: {error}")),
    };
    let mut text = Vec::new();
    let read = socket.set_read_timeout(Some(LONGEST)).and_then(|()| socket.read_to_end(&mut text));
    match read.map_err(|error| error.to_string()).and_then(|_| serde_json::from_slice(&text).map_err(|e| e.to_string()))
    {
        Ok(looks) => looks,
        Err(why) => trouble(format!("no answer of the run's supervisor: {why}")),
    }
}

/// What the supervisor needs to answer `crossdock ls --files`: the socket, and the questions that are not answered yet.
pub struct Questions {
    listener: UnixListener,
    /// The run's site, in a run whose files go from host to host.
    site: Option<Site>,
    open: BTreeMap<u64, Question>,
    last: u64,
}

/// A question of one `crossdock ls --files`.
struct Question {
    asker: UnixStream,
    /// The hosts that have not answered this question so far.
    left: Vec<String>,
    found: DirectoryReports,
    until: Instant,
}

impl Questions {
    /// Makes the socket in the run's folder. `site` is the run's site, and is given if files go from host to host.
    pub fn make(run: &Path, site: Option<Site>) -> Result<Self, String> {
        let path = run.join(SOCKET);
        let listener = UnixListener::bind(&path).and_then(|listener| {
            listener.set_nonblocking(true)?;
            Ok(listener)
        });
        let listener = listener.map_err(|e| format!("cannot make the socket {}: {e}", path.display()))?;
        Ok(Self { listener, site, open: BTreeMap::new(), last: 0 })
    }

    /// Gives the descriptor that is readable while a question waits.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Takes the next question, and gives its number. The caller passes the question on to the parts on `hosts`.
    pub fn next(&mut self, hosts: &[String]) -> Option<u64> {
        let (asker, _) = self.listener.accept().ok()?;
        if self.open.len() >= QUESTIONS {
            return None;
        }
        self.last += 1;
        let question = Question {
            asker,
            left: hosts.to_vec(),
            found: DirectoryReports::default(),
            until: Instant::now() + PATIENCE,
        };
        self.open.insert(self.last, question);
        Some(self.last)
    }

    /// Notes the answer of the part on `host` to the question with this number.
    pub fn heard(&mut self, number: u64, host: &str, mut found: DirectoryReports) {
        let Some(question) = self.open.get_mut(&number) else { return };
        question.left.retain(|name| name != host);
        found.seen.iter_mut().for_each(|seen| seen.host = Some(host.to_owned()));
        found.troubles.iter_mut().for_each(|trouble| *trouble = format!("host {host}: {trouble}"));
        question.found.add(found);
    }

    /// Answers each question to which all hosts have answered, or for which the hosts' time to answer is over.
    pub fn answer(&mut self) {
        let now = Instant::now();
        let is_ready = |question: &Question| question.left.is_empty() || now > question.until;
        let ready: Vec<u64> = self.open.iter().filter(|(_, q)| is_ready(q)).map(|(number, _)| *number).collect();
        for question in ready.iter().filter_map(|number| self.open.remove(number)) {
            let Question { mut asker, left, mut found, .. } = question;
            found.seen.sort_by(|a, b| (&a.directory.name, &a.host).cmp(&(&b.directory.name, &b.host)));
            let site = self.site.clone();
            // A thread asks the catalog and sends the answer, because the catalog may be late, and the process that
            // asked may read slowly. If no thread can be started, that process reads the end of its connection.
            let _ = crossdock_os::thread::start(move || {
                let is_asked = site.filter(|_| !left.is_empty());
                let announced = is_asked.map(|site| site.announced(Deadline::after(CATALOG)));
                found.troubles.extend(silent(&left, announced.as_ref()));
                let text = serde_json::to_vec(&found).unwrap_or_default();
                let sent = asker.set_write_timeout(Some(LONGEST)).and_then(|()| asker.write_all(&text));
                let _ = sent.and_then(|()| asker.shutdown(Shutdown::Both));
            });
        }
    }
}

/// An entry of the catalog: the directory, the node, and what the node has announced.
type Entry = (String, String, Announcement);

/// Gives a line for each host that did not answer, with what the host has announced. `announced` has the answer of the
/// catalog; it is `None` if the run has no catalog.
fn silent<E: std::fmt::Display>(hosts: &[String], announced: Option<&Result<Vec<Entry>, E>>) -> Vec<String> {
    let line = |host: &String| {
        let known = match announced {
            None => String::new(),
            Some(Err(error)) => format!("; {error}"),
            Some(Ok(announced)) => {
                let of_host = announced.iter().filter(|(_, node, _)| *node == node_name(host));
                let lines: Vec<String> = of_host.map(|(directory, _, found)| words(directory, found)).collect();
                match lines.is_empty() {
                    true => {
                        "; the catalog has no entry of it, so it has not started yet, or its lease has ended".into()
                    }
                    false => format!("; in the catalog it has announced: {}", lines.join(", ")),
                }
            }
        };
        format!("host {host}: no answer within {PATIENCE:?}{known}")
    };
    hosts.iter().map(line).collect()
}

/// Says in words what a host has announced about a directory.
fn words(directory: &str, found: &Announcement) -> String {
    let Announcement { published, bytes, fetched, .. } = found;
    let phase = match found.phase {
        None => "",
        Some(Phase::Coming) => ", its producers have not started",
        Some(Phase::Producing) => ", its producers run",
        Some(Phase::Ended) => ", its producers have ended",
        Some(Phase::Failed) => ", its producers have failed",
    };
    format!("`{directory}` ({published} files published with {bytes} bytes, {fetched} files fetched{phase})")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    fn looks(name: &str) -> DirectoryReports {
        let look = DirectorySnapshot {
            producers: "a".into(),
            phase: Phase::Ended,
            published: 3,
            used: 0,
            is_full: false,
            lines: Vec::new(),
            more: 0,
            refused: Vec::new(),
        };
        let directory = RunningDirectory {
            name: name.into(),
            path: "/f".into(),
            produce: Vec::new(),
            consume: Vec::new(),
            publish: "close".into(),
            keep: "all".into(),
            quota: None,
            store: "/store".into(),
            notice: "/notice".into(),
        };
        DirectoryReports { seen: vec![DirectoryAnswer { host: None, directory, look }], troubles: vec!["x".into()] }
    }

    #[test]
    fn a_silent_host_is_named_with_what_it_has_announced_in_the_catalog() {
        let entry = |directory: &str, phase| {
            let value = Announcement {
                life: 7,
                role: crossdock_files::HostRole::Both,
                phase,
                published: 3,
                bytes: 4000,
                torn: 1,
                fetched: 2,
                address: "127.0.0.1:1".into(),
            };
            (directory.to_owned(), node_name("n2"), value)
        };
        let hosts = ["n2".to_owned(), "n3".to_owned()];
        let said = |announced: Result<Vec<Entry>, &str>| silent(&hosts, Some(&announced));
        let lines = said(Ok(vec![entry("f", Some(Phase::Producing)), entry("g", None)]));
        let wanted = [
            "host n2: no answer within 5s; in the catalog it has announced: `f` (3 files published with 4000 bytes, 2 files \
             fetched, its producers run), `g` (3 files published with 4000 bytes, 2 files fetched)",
            "host n3: no answer within 5s; the catalog has no entry of it, so it has not started yet, or its lease has ended",
        ];
        assert_eq!(lines, wanted);
        for (phase, words) in
            [(Phase::Coming, "have not started"), (Phase::Ended, "have ended"), (Phase::Failed, "have failed")]
        {
            let lines = said(Ok(vec![entry("f", Some(phase))]));
            assert!(lines[0].ends_with(&format!(", its producers {words})")), "{lines:?}");
        }
        assert_eq!(said(Err("the catalog is away"))[1], "host n3: no answer within 5s; the catalog is away");
        assert_eq!(silent::<String>(&hosts[..1], None), ["host n2: no answer within 5s"]);
        assert_eq!(silent::<String>(&[], None), Vec::<String>::new());
    }

    #[test]
    fn an_answer_has_what_all_hosts_have_said_and_names_the_silent_ones() {
        let folder = tempfile::tempdir().unwrap();
        assert!(elsewhere(folder.path()).seen.is_empty(), "a run on one host has no socket");
        let mut questions = Questions::make(folder.path(), None).unwrap();
        let hosts = ["n2".to_owned(), "n3".to_owned()];
        let ask = || {
            let path = folder.path().to_owned();
            thread::spawn(move || elsewhere(&path))
        };
        let accept = |questions: &mut Questions| loop {
            if let Some(number) = questions.next(&hosts) {
                return number;
            }
            thread::sleep(Duration::from_millis(1));
        };
        let asked = ask();
        let number = accept(&mut questions);
        questions.heard(number, "n3", looks("g"));
        questions.answer();
        questions.heard(number, "n2", looks("f"));
        questions.answer();
        let found = asked.join().unwrap();
        let names: Vec<_> = found.seen.iter().map(|s| (s.directory.name.as_str(), s.host.as_deref())).collect();
        assert_eq!(names, [("f", Some("n2")), ("g", Some("n3"))]);
        assert_eq!((found.seen[0].look.phase, found.seen[0].look.published), (Phase::Ended, 3));
        assert_eq!(found.troubles, ["host n3: x", "host n2: x"]);

        let asked = ask();
        let number = accept(&mut questions);
        questions.heard(number, "n2", looks("f"));
        questions.open.get_mut(&number).unwrap().until = Instant::now();
        thread::sleep(Duration::from_millis(1));
        questions.answer();
        let found = asked.join().unwrap();
        assert_eq!((found.seen.len(), found.troubles[1].as_str()), (1, "host n3: no answer within 5s"));

        let asked = ask();
        accept(&mut questions);
        drop(questions);
        assert!(asked.join().unwrap().troubles[0].contains("no answer of the run's supervisor"));
    }
}

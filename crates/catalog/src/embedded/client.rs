//! The client of a catalog that another daemon keeps. It connects again when a connection is lost.

use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crossdock_os::Deadline;

use super::frame::{Framed, Stream};
use super::keeper::HEARTBEAT;
use super::message::{Answer, Request, VERSION};
use crate::entry::{check_key, check_prefix};
use crate::{
    Catalog, CatalogError, CatalogResult, Commit, Committed, Entry, Event, IsOver, LeaseId, Listing, Revision, Watch,
};

/// The maximum number of connections that the client keeps open for later calls.
const KEPT: usize = 4;
/// A connection that was unused for this long is not used again, because the keeper may have closed it meanwhile.
const FRESH: Duration = Duration::from_secs(20);
/// A watch connects again if the keeper has sent nothing for this long.
const SILENCE: Duration = Duration::from_secs(5);
/// The pause between two attempts to connect to the keeper, or to send a request.
const PAUSE: Duration = Duration::from_millis(50);
/// The time limit of one attempt to connect. If a watch must connect while a call waits for its events, the call may
/// take this long, even beyond its deadline.
const CONNECT: Duration = Duration::from_secs(5);
/// How often a waiting call checks whether it must end early.
const SLICE: Duration = Duration::from_millis(100);
/// The maximum number of entries in one list, or of events in one report. A list or a report may take several messages.
const THINGS_MAX: usize = 1_000_000;

/// Makes connections to the keeper.
pub trait Dial: Send + Sync {
    /// Connects a new stream to the keeper. The attempt ends at the deadline.
    ///
    /// # Errors
    /// No connection could be made before the deadline.
    fn dial(&self, by: Deadline) -> io::Result<Box<dyn Stream>>;
}

/// Makes plain TCP connections to `host:port`.
pub struct TcpDial(pub String);

impl Dial for TcpDial {
    fn dial(&self, by: Deadline) -> io::Result<Box<dyn Stream>> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, format!("'{}' has no address", self.0));
        for address in self.0.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, by.left().max(Duration::from_millis(1))) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    return Ok(Box::new(stream));
                }
                Err(error) => last = io::Error::new(error.kind(), format!("{}: {error}", self.0)),
            }
        }
        Err(last)
    }
}

struct Connections {
    dial: Box<dyn Dial>,
    kept: Mutex<Vec<(Instant, Framed)>>,
}

/// The client of a catalog that another daemon keeps (see [`super`]).
pub struct Client {
    connections: Arc<Connections>,
}

impl Client {
    /// Makes a client that connects with its first call.
    pub fn new(dial: impl Dial + 'static) -> Self {
        Self { connections: Arc::new(Connections { dial: Box::new(dial), kept: Mutex::default() }) }
    }

    /// Sends the request, and sends it again each time that the connection is lost, until an answer comes. The request
    /// must do no harm if it is served twice.
    fn ask<T>(
        &self,
        request: &Request,
        by: Deadline,
        take: impl Fn(&mut Answers<'_>) -> KeeperAnswer<T>,
    ) -> CatalogResult<T> {
        self.ask_until(request, by, &|| false, take)
    }

    /// Like [`Self::ask`], but fails soon after `is_over` begins to return true.
    fn ask_until<T>(
        &self,
        request: &Request,
        by: Deadline,
        is_over: IsOver<'_>,
        take: impl Fn(&mut Answers<'_>) -> KeeperAnswer<T>,
    ) -> CatalogResult<T> {
        loop {
            let why = match self.connections.ask_once(request, by, is_over, &take) {
                Ok(outcome) => return outcome,
                Err(LostRequest::Before(why) | LostRequest::After(why)) => why,
            };
            if by.passed() || is_over() {
                return Err(CatalogError::Unreachable(why));
            }
            thread::sleep(PAUSE.min(by.left()));
        }
    }
}

/// A connection from which the keeper's answers are read, and the time until which they are read.
struct Answers<'a> {
    framed: &'a mut Framed,
    by: Deadline,
    is_over: IsOver<'a>,
}

impl Answers<'_> {
    /// Waits for the keeper's next answer, at most until the deadline.
    fn next(&mut self) -> Result<Answer, String> {
        loop {
            if (self.is_over)() {
                return Err("the call was ended early".into());
            }
            match self.framed.receive(self.by.at_most(SLICE)).map_err(|error| error.to_string())? {
                Some(bytes) => return Answer::decode(&bytes).map_err(|error| error.to_string()),
                None if self.by.passed() => return Err("no answer came in time".into()),
                None => {}
            }
        }
    }
}

/// The keeper's answer, which may be an error (the inner result). The outer `Err` says why the connection cannot be
/// used any more.
type KeeperAnswer<T> = Result<CatalogResult<T>, String>;

/// How far a request had come when its connection was lost.
enum LostRequest {
    /// The request was not sent, so the keeper has not served it.
    Before(String),
    /// The request was sent, at least in part, so the keeper may have served it.
    After(String),
}

impl Connections {
    fn connect(&self, by: Deadline, is_over: IsOver<'_>) -> Result<Framed, String> {
        // An attempt to connect cannot be ended early. So one attempt may take at most `CONNECT`, even if the deadline
        // of the call is later.
        let by = by.at_most(CONNECT);
        let stream = self.dial.dial(by).map_err(|error| error.to_string())?;
        let mut framed = Framed::new(stream);
        framed.send(&Request::Hello { version: VERSION }.encode()).map_err(|error| error.to_string())?;
        let hello = Answers { framed: &mut framed, by, is_over }.next()?;
        match hello {
            Answer::Done => Ok(framed),
            Answer::Failed(error) => Err(error.to_string()),
            other => Err(format!("a strange answer to the hello: {other:?}")),
        }
    }

    fn ask_once<T>(
        &self,
        request: &Request,
        by: Deadline,
        is_over: IsOver<'_>,
        take: &impl Fn(&mut Answers<'_>) -> KeeperAnswer<T>,
    ) -> Result<CatalogResult<T>, LostRequest> {
        let kept = {
            let mut kept = self.kept.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            kept.retain(|(since, _)| since.elapsed() < FRESH);
            kept.pop()
        };
        let mut framed = match kept {
            Some((_, framed)) => framed,
            None => self.connect(by, is_over).map_err(LostRequest::Before)?,
        };
        framed.send(&request.encode()).map_err(|error| LostRequest::After(error.to_string()))?;
        let mut answers = Answers { framed: &mut framed, by, is_over };
        let outcome = take(&mut answers).map_err(LostRequest::After)?;
        let mut kept = self.kept.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if kept.len() < KEPT {
            kept.push((Instant::now(), framed));
        }
        Ok(outcome)
    }
}

/// Makes a function that reads an answer of one message. `pick` takes the content out of the answer, if the answer is
/// of the expected kind.
fn one<T>(pick: impl Fn(Answer) -> Option<T>) -> impl Fn(&mut Answers<'_>) -> KeeperAnswer<T> {
    move |answers| match answers.next()? {
        Answer::Failed(error @ CatalogError::Broken(_)) => Err(error.to_string()),
        Answer::Failed(error) => Ok(Err(error)),
        answer => match pick(answer) {
            Some(found) => Ok(Ok(found)),
            None => Err("the keeper answered another question".into()),
        },
    }
}

fn page(answers: &mut Answers<'_>) -> KeeperAnswer<Listing> {
    let mut entries = Vec::new();
    loop {
        match answers.next()? {
            Answer::Page { revision, more, entries: some } => {
                entries.extend(some);
                if !more {
                    return Ok(Ok(Listing { revision, entries }));
                }
                if entries.len() > THINGS_MAX {
                    return Err("the keeper's list does not end".into());
                }
            }
            Answer::Failed(error) => return Ok(Err(error)),
            _ => return Err("the keeper answered another question".into()),
        }
    }
}

impl Catalog for Client {
    fn commit(&self, commit: &Commit, by: Deadline) -> CatalogResult<Committed> {
        commit.check()?;
        let request = Request::Commit(commit.clone());
        let take = one(Answer::committed);
        loop {
            match self.connections.ask_once(&request, by, &|| false, &take) {
                Ok(Ok(done)) if !done.done && done.found.len() != commit.expect.len() => {
                    return Err(CatalogError::Broken("an answer for another commit".into()));
                }
                Ok(outcome) => return outcome,
                Err(LostRequest::After(why)) => return Err(CatalogError::Unknown(why)),
                Err(LostRequest::Before(why)) if by.passed() => return Err(CatalogError::Unreachable(why)),
                Err(LostRequest::Before(_)) => thread::sleep(PAUSE.min(by.left())),
            }
        }
    }

    fn get(&self, key: &str, by: Deadline) -> CatalogResult<Option<Entry>> {
        check_key(key)?;
        self.ask(&Request::Get { key: key.to_owned() }, by, one(Answer::entry))
    }

    fn list(&self, prefix: &str, by: Deadline) -> CatalogResult<Listing> {
        self.list_until(prefix, by, &|| false)
    }

    fn list_until(&self, prefix: &str, by: Deadline, is_over: IsOver<'_>) -> CatalogResult<Listing> {
        check_prefix(prefix)?;
        self.ask_until(&Request::List { prefix: prefix.to_owned() }, by, is_over, page)
    }

    fn grant(&self, time: Duration, by: Deadline) -> CatalogResult<LeaseId> {
        let time_ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.ask(&Request::Grant { time_ms }, by, one(Answer::granted))
    }

    fn keep_alive(&self, lease: LeaseId, by: Deadline) -> CatalogResult<()> {
        self.ask(&Request::KeepAlive { lease }, by, one(Answer::done))
    }

    fn revoke(&self, lease: LeaseId, by: Deadline) -> CatalogResult<()> {
        self.ask(&Request::Revoke { lease }, by, one(Answer::done))
    }

    fn watch(&self, prefix: &str, from: Revision) -> CatalogResult<Box<dyn Watch>> {
        check_prefix(prefix)?;
        let connections = Arc::clone(&self.connections);
        Ok(Box::new(ClientWatch {
            connections,
            prefix: prefix.to_owned(),
            next: from,
            stream: None,
            events: Vec::new(),
        }))
    }
}

struct ClientWatch {
    connections: Arc<Connections>,
    prefix: String,
    next: Revision,
    stream: Option<(Framed, Instant)>,
    /// Part of a report: the events that have arrived so far, if the keeper sends the report in several messages.
    events: Vec<Event>,
}

impl ClientWatch {
    fn connect(&mut self, by: Deadline, is_over: IsOver<'_>) -> CatalogResult<()> {
        let connected = self.connections.connect(by, is_over).and_then(|mut framed| {
            let request = Request::Watch { prefix: self.prefix.clone(), from: self.next };
            framed.send(&request.encode()).map_err(|error| error.to_string())?;
            Ok(framed)
        });
        self.events.clear();
        let framed = connected.map_err(CatalogError::Unreachable)?;
        self.stream = Some((framed, Instant::now()));
        Ok(())
    }

    /// Drops the connection, which failed for the reason `why`. Before the deadline, this returns no error, and the
    /// caller connects again. After the deadline, `why` is returned as an error.
    fn lost(&mut self, why: String, by: Deadline) -> CatalogResult<()> {
        self.stream = None;
        if by.passed() {
            return Err(CatalogError::Unreachable(why));
        }
        thread::sleep(PAUSE.min(by.left()));
        Ok(())
    }
}

impl Watch for ClientWatch {
    fn next(&mut self, by: Deadline) -> CatalogResult<Vec<Event>> {
        self.next_until(by, &|| false)
    }

    fn next_until(&mut self, by: Deadline, is_over: IsOver<'_>) -> CatalogResult<Vec<Event>> {
        loop {
            let Some((framed, heard)) = &mut self.stream else {
                if let Err(error) = self.connect(Deadline::after(CONNECT), is_over) {
                    self.lost(error.to_string(), by)?;
                }
                continue;
            };
            let came = framed.receive(by.at_most(HEARTBEAT));
            let bytes = match came {
                Ok(Some(bytes)) => bytes,
                Ok(None) if heard.elapsed() > SILENCE => {
                    self.lost("the keeper is silent".into(), by)?;
                    continue;
                }
                Ok(None) if by.passed() => return Ok(Vec::new()),
                Ok(None) => continue,
                Err(error) => {
                    self.lost(error.to_string(), by)?;
                    continue;
                }
            };
            *heard = Instant::now();
            match Answer::decode(&bytes) {
                Ok(Answer::Events { upto, more, events }) => {
                    self.events.extend(events);
                    if self.events.len() > THINGS_MAX {
                        self.lost("the keeper's changes do not end".into(), by)?;
                        continue;
                    }
                    if !more {
                        self.next = self.next.max(upto.saturating_add(1));
                        let events = std::mem::take(&mut self.events);
                        if !events.is_empty() || by.passed() {
                            return Ok(events);
                        }
                    }
                }
                Ok(Answer::Failed(error @ (CatalogError::Compacted(_) | CatalogError::Invalid(_)))) => {
                    self.stream = None;
                    return Err(error);
                }
                Ok(other) => self.lost(format!("the keeper says {other:?}"), by)?,
                Err(error) => self.lost(error.to_string(), by)?,
            }
        }
    }
}

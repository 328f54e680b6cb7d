//! The keeper of an MPI job: one process for each host and job.
//!
//! The keeper makes the job's container and starts in it the commands that clients ask for. For the shim's agents,
//! which act as ssh, it connects to other hosts. It passes on the reports of the ranks. It ends when its last client
//! has disconnected, and then removes the container, the connections and the folder. If the keeper itself is killed,
//! the container's init and the ranks notice at once by their connections, and the client removes what is left.
//!
//! The keeper has two sockets. Processes of the container see only one of them. Programs of the job may send anything
//! through this socket, so the keeper accepts from each connection only the messages that the connection's role sends:
//!
//! | role | may send | may become |
//! |---|---|---|
//! | new | `Init`, if the container has no init yet | init |
//! | new | `RankStarted` | rank |
//! | new | `RankTrouble` | |
//! | new | `Remote` | asking |
//! | init | `Ended`, `Failed`, `Idle` | |
//! | rank | `RankTrouble`, `RankEnded` | done |
//! | asking, agent | `Signal` | agent |
//! | client (its own socket) | `Environment`, `Job`, `Run`, `Signal` | |
//!
//! Any other message ends the connection. The number of connections and the size of the variables have limits, so a
//! program of the job cannot make the keeper's memory grow without bound.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::net::{ToSocketAddrs, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use crossdock_os::{Deadline, child, event, process, socket, spawn};
use crossdock_shim::arguments::{self, Arguments};
use crossdock_shim::detect::MpiInstallation;
use crossdock_shim::message::{End, Message, Order, Rank, ReceiveResult, receive, send};
use crossdock_shim::wire::MESSAGE_MAX;

use super::container;
use super::job::Job;
use super::job_folder::JobFolder;
use super::remote::{EVENTS_MAX, Event, Events, Remote};
use crate::engine::tool;
use crate::ssh;

mod fuzz;

pub use fuzz::fuzz_keeper;

/// How long a new keeper waits for its first client.
const ALONE: Duration = Duration::from_secs(15);
/// How long containers and connections may take to end before they are killed.
const ENDING: Duration = Duration::from_secs(5);
/// The most messages that the keeper reads from one connection before it reads from the other connections.
const TURN: usize = 64;
/// The most bytes that the names and values of the job's variables may take.
const VARIABLES_MAX: usize = 4 * MESSAGE_MAX;
/// The number of connections that a keeper accepts in addition to two connections for each rank of the job. Of these
/// two, one is for the rank, and one is for its task or for an agent.
const SPARE: usize = 1024;

const LISTENER: u64 = 0;
const WAKE: u64 = 1;
const SIGNALS: u64 = 2;
const ENGINE: u64 = 3;
const CLIENTS: u64 = 4;
const FIRST: u64 = 16;

/// Runs the hidden command `mpi-keeper FOLDER`, which reads the job's description from standard input. Returns the exit
/// code.
pub fn keeper(folder: &Path) -> u8 {
    let mut text = String::new();
    if std::io::stdin().read_to_string(&mut text).is_err() {
        return 2;
    }
    let Some(job) = Job::read(&text) else {
        eprintln!("a job's description is expected on standard input; this command is a part of `crossdock mpirun`");
        return 2;
    };
    child::leave_session();
    spawn::raise_limits();
    let place = JobFolder { folder: folder.to_owned() };
    let lock = match place.lock() {
        Ok(Some(lock)) => lock,
        // Another keeper of this job, which another client started, holds the lock. So this keeper is not needed.
        Ok(None) => return 0,
        Err(what) => {
            eprintln!("{what}");
            return 71;
        }
    };
    let code = match Keeper::listen(job, place.clone()) {
        Ok(mut keeper) => {
            keeper.serve();
            keeper.finish();
            0
        }
        Err(what) => {
            eprintln!("{what}");
            71
        }
    };
    place.remove();
    drop(lock);
    code
}

enum Role {
    /// A process of the container that has connected and has not sent a message yet.
    New,
    Init,
    /// A process of the host: the front, a starter, or a task of a Slurm step.
    Client,
    /// An agent (the shim as ssh) whose request is being examined. The fields are the words of the agent's request, and
    /// the files for the output and the errors of the command that the request names.
    Asking(Vec<String>, Option<(File, File)>),
    Agent(u32),
    Rank(Rank),
    /// A rank that has reported its end. It may send nothing more.
    Done,
}

/// The means by which the keeper reaches other hosts. The fuzzer's keeper has a variant without a network.
trait Network {
    /// Finds out whether `name` means this host, whose own name is `mine`, and puts the answer for the agent into the
    /// queue.
    fn find(&self, agent: u64, name: String, mine: String, events: Events) -> std::io::Result<()>;

    /// An agent asked for a command on another host. Starts this command there. `streams` get the output and the errors
    /// of the command.
    fn connect(
        &self,
        job: &Job,
        id: u32,
        to: &Arguments,
        streams: (File, File),
        events: &Events,
    ) -> Result<Remote, String>;
}

/// Reaches other hosts by this host's ssh.
struct Ssh;

impl Network for Ssh {
    /// A thread looks up the host name, because the look-up may wait for a slow name server.
    fn find(&self, agent: u64, name: String, mine: String, events: Events) -> std::io::Result<()> {
        let thread = std::thread::Builder::new();
        thread.spawn(move || events.put(Event::Resolved(agent, is_here(&name, &mine)))).map(drop)
    }

    fn connect(
        &self,
        job: &Job,
        id: u32,
        to: &Arguments,
        streams: (File, File),
        events: &Events,
    ) -> Result<Remote, String> {
        Remote::start(job, id, to, streams, events)
    }
}

struct Connection {
    fd: OwnedFd,
    role: Role,
}

struct Keeper {
    job: Job,
    place: JobFolder,
    host: String,
    epoll: event::Epoll,
    /// The listening socket for the processes of the container.
    listener: OwnedFd,
    /// The listening socket for clients: the front, starters, and tasks of a Slurm step.
    clients: OwnedFd,
    signals: OwnedFd,
    events: Events,
    queue: Receiver<Event>,
    engine: Option<Engine>,
    connections: HashMap<u64, Connection>,
    init: Option<u64>,
    found: Option<MpiInstallation>,
    /// Commands that clients asked for before the container was ready.
    waiting: Vec<(Order, Vec<OwnedFd>)>,
    /// Maps the id of each command to the number of the connection of the client that asked for the command.
    commands: HashMap<u32, u64>,
    remotes: HashMap<u32, Remote>,
    network: Box<dyn Network>,
    numbers: u64,
    began: Instant,
    had_client: bool,
    over: bool,
}

struct Engine {
    child: Child,
    pidfd: OwnedFd,
    image: Option<String>,
    log: PathBuf,
}

impl Keeper {
    /// Makes the keeper of a job, whose sockets listen from this call on.
    fn listen(job: Job, place: JobFolder) -> Result<Self, String> {
        let text = |e: crossdock_os::OsError| e.to_string();
        let signals = event::signalfd(&[1, 2, 15, super::task::END]).map_err(text)?;
        place.put_shim(job.root.is_some() || job.image.is_some())?;
        let open = |path: PathBuf| {
            let _ = std::fs::remove_file(&path);
            socket::listen(&path).map_err(text)
        };
        let sockets = (open(place.socket())?, open(place.client_socket())?);
        Self::new(job, place, sockets, signals, Box::new(Ssh))
    }

    fn new(
        job: Job,
        place: JobFolder,
        (listener, clients): (OwnedFd, OwnedFd),
        signals: OwnedFd,
        network: Box<dyn Network>,
    ) -> Result<Self, String> {
        let text = |e: crossdock_os::OsError| e.to_string();
        let (sender, queue) = sync_channel(EVENTS_MAX);
        let events = Events { sender, wake: Arc::new(event::eventfd().map_err(text)?) };
        let epoll = event::Epoll::new().map_err(text)?;
        epoll.add(&listener, LISTENER, false).map_err(text)?;
        epoll.add(&clients, CLIENTS, false).map_err(text)?;
        epoll.add(&*events.wake, WAKE, false).map_err(text)?;
        epoll.add(&signals, SIGNALS, false).map_err(text)?;
        Ok(Self {
            host: spawn::host_name(),
            job,
            place,
            epoll,
            listener,
            clients,
            signals,
            events,
            queue,
            engine: None,
            connections: HashMap::new(),
            init: None,
            found: None,
            waiting: Vec::new(),
            commands: HashMap::new(),
            remotes: HashMap::new(),
            network,
            numbers: FIRST,
            began: Instant::now(),
            had_client: false,
            over: false,
        })
    }

    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    fn tell(&self, to: u64, message: &Message) {
        if let Some(connection) = self.connections.get(&to) {
            // If the connection is gone, the next read notices that, so an error of this send is ignored.
            let _ = send(&connection.fd, message, &[]);
        }
    }

    fn tell_clients(&self, message: &Message) {
        for (number, connection) in &self.connections {
            if matches!(connection.role, Role::Client) {
                self.tell(*number, message);
            }
        }
    }

    fn failed(&mut self, host: &str, what: &str, hint: &str) {
        self.tell_clients(&Message::Failed(host.to_owned(), what.to_owned(), hint.to_owned()));
    }

    /// Ends the keeper after a failure that prevents this host from running anything.
    fn give_up(&mut self, what: &str, hint: &str) {
        // The keeper is about to end because of the failure `what`. A client that started this keeper may not have
        // connected yet. The keeper waits for this client, so that the client learns of the failure.
        let host = self.host.clone();
        let deadline = Instant::now() + Duration::from_secs(2);
        while !self.had_client && Instant::now() < deadline {
            if !matches!(event::wait_readable(&self.clients, Deadline::after(Duration::from_millis(50))), Ok(false)) {
                self.accept(Role::Client);
            }
        }
        self.failed(&host, what, hint);
        self.over = true;
    }

    fn start_container(&mut self) {
        let hint = format!("see that `crossdock doctor` calls {} ok on {}", self.job.engine, self.host);
        let mut prepared = match container::prepare(&self.job, &self.place) {
            Ok(prepared) => prepared,
            Err(what) => return self.give_up(&what, &hint_for(&self.job, &hint)),
        };
        let log = self.place.folder.join("engine.log");
        let errors = File::create(&log).map_or_else(|_| Stdio::null(), Stdio::from);
        prepared.command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors);
        spawn::default_signals(&mut prepared.command);
        spawn::die_with_parent(&mut prepared.command);
        let child = match spawn::start(&mut prepared.command) {
            Ok(child) => child,
            Err(e) => {
                let program = prepared.command.get_program().to_string_lossy().into_owned();
                let what = format!("the engine {} cannot be started: `{program}`: {e}", self.job.engine);
                return self.give_up(&what, "install it there, or choose another one with --engine");
            }
        };
        match process::open_pidfd(child.id() as i32) {
            Ok(Some(pidfd)) => {
                let _ = self.epoll.add(&pidfd, ENGINE, false);
                self.engine = Some(Engine { child, pidfd, image: prepared.image, log });
            }
            _ => self.give_up("the container's process cannot be watched", "Linux 5.3 or newer is needed"),
        }
    }

    fn has_clients(&self) -> bool {
        self.connections.values().any(|c| matches!(c.role, Role::Client))
    }

    fn serve(&mut self) {
        self.start_container();
        while !self.over {
            if self.had_client && !self.has_clients() || !self.had_client && self.began.elapsed() > ALONE {
                return;
            }
            if self.is_late() {
                let patience = self.patience();
                let what = format!("its {} container did not come up within {} s", self.job.engine, patience.as_secs());
                self.give_up(&what, "look whether the host is overloaded; --patience gives it more time");
                return;
            }
            let pause = if self.init.is_none() { Duration::from_millis(200) } else { Duration::from_secs(5) };
            let Ok(ready) = self.epoll.wait(Deadline::after(pause)) else { return };
            for one in ready {
                match one.token {
                    LISTENER => self.accept(Role::New),
                    CLIENTS => self.accept(Role::Client),
                    WAKE => {
                        event::clear(&*self.events.wake);
                        self.take_events();
                    }
                    SIGNALS => {
                        while event::next_signal(&self.signals).is_some() {
                            self.over = true;
                        }
                    }
                    ENGINE => self.container_ended(),
                    number => self.read(number),
                }
            }
        }
    }

    /// How long the container may take to start.
    fn patience(&self) -> Duration {
        Duration::from_secs(self.job.patience_s.max(1))
    }

    /// Tells whether the container has not started in time. A container that has started and has died since is not
    /// late.
    fn is_late(&self) -> bool {
        self.found.is_none() && self.began.elapsed() > self.patience()
    }

    fn container_ended(&mut self) {
        let Some(engine) = &mut self.engine else { return };
        let _ = self.epoll.remove(&engine.pidfd);
        let status = engine.child.wait();
        let words = std::fs::read_to_string(&engine.log).unwrap_or_default();
        let why = match (tool::reason_in(&words), &status) {
            (Some(line), _) => line.to_owned(),
            (None, Ok(status)) => status.to_string(),
            (None, Err(error)) => error.to_string(),
        };
        let when = if self.found.is_some() { "has ended before the job" } else { "cannot be started" };
        let what = format!("its {} container {when}: {why}", self.job.engine);
        self.engine = None;
        if let Some(init) = self.init.take() {
            self.connections.remove(&init);
        }
        let hint = format!("see that `crossdock doctor` calls {} ok on {}", self.job.engine, self.host);
        self.give_up(&what, &hint);
    }

    /// Accepts all connections that wait at the socket for this role: the clients' socket for `Client`, and the
    /// container's socket for any other role.
    fn accept(&mut self, role: Role) {
        let is_client = matches!(role, Role::Client);
        while let Ok(Some(fd)) = socket::accept(if is_client { &self.clients } else { &self.listener }) {
            self.connected(fd, if is_client { Role::Client } else { Role::New });
        }
    }

    /// Adds a connection, unless there are too many.
    fn connected(&mut self, fd: OwnedFd, role: Role) {
        if self.connections.len() >= self.most_connections() {
            let (host, most) = (self.host.clone(), self.most_connections());
            let what = format!("more than {most} processes have connected to the job's keeper");
            return self.failed(&host, &what, "look there which program of the job connects again and again");
        }
        let number = self.number();
        if self.epoll.add(&fd, number, false).is_err() {
            return;
        }
        let is_client = matches!(role, Role::Client);
        self.had_client |= is_client;
        self.connections.insert(number, Connection { fd, role });
        if let Some(found) = self.found.as_ref().filter(|_| is_client) {
            self.tell(number, &Message::Ready(found.clone()));
        }
        // The process that connected may have sent its first message already, so this message is read at once.
        self.read(number);
    }

    fn most_connections(&self) -> usize {
        SPARE + 2 * self.job.ranks as usize
    }

    /// Reads messages of a connection. After `TURN` messages the rest waits for the next call, so that no process can
    /// keep the keeper from serving the others.
    fn read(&mut self, number: u64) {
        for _ in 0..TURN {
            let Some(connection) = self.connections.get(&number) else { return };
            match receive(&connection.fd) {
                ReceiveResult::Message(message, descriptors) => self.handle(number, message, descriptors),
                ReceiveResult::Nothing => return,
                ReceiveResult::End => return self.gone(number),
            }
        }
    }

    fn handle(&mut self, from: u64, message: Message, descriptors: Vec<OwnedFd>) {
        let Some(connection) = self.connections.get(&from) else { return };
        match (&connection.role, message) {
            (Role::New, Message::Init(found)) if self.found.is_none() && self.init.is_none() => {
                self.container_up(from, found);
            }
            (Role::New, Message::Remote(words)) => {
                let mut files = descriptors.into_iter().map(File::from);
                let streams = files.next().zip(files.next());
                self.ask(from, words, streams);
            }
            // Two ranks of one container never have the same process id. So a report with the process id of a rank that
            // is already known is false.
            (Role::New, Message::RankStarted(mut rank)) if !self.has_rank(rank.pid) => {
                rank.host.clone_from(&self.host);
                self.be(from, Role::Rank(rank.clone()));
                self.tell_clients(&Message::RankStarted(rank));
            }
            (Role::New, Message::RankTrouble(mut rank, what, hint)) => {
                rank.host.clone_from(&self.host);
                self.tell_clients(&Message::RankTrouble(rank, what, hint));
            }
            // The rank's number and host are those of its first report. A later message cannot change them.
            (Role::Rank(rank), Message::RankTrouble(_, what, hint)) => {
                self.tell_clients(&Message::RankTrouble(rank.clone(), what, hint));
            }
            (Role::Rank(rank), Message::RankEnded(_, end)) => {
                let message = Message::RankEnded(rank.clone(), end);
                self.be(from, Role::Done);
                self.tell_clients(&message);
            }
            (Role::Asking(..), Message::Signal(..)) => {}
            (Role::Agent(id), Message::Signal(_, signal)) => {
                if let Some(remote) = self.remotes.get(id) {
                    remote.say(&Message::Signal(0, signal));
                }
            }
            (Role::Init, Message::Ended(id, end)) => {
                if let Some(client) = self.commands.remove(&id) {
                    self.tell(client, &Message::Ended(0, end));
                }
            }
            (Role::Init, Message::Failed(_, what, hint)) => {
                let host = self.host.clone();
                self.failed(&host, &what, &hint);
            }
            (Role::Init, Message::Idle) => self.tell_clients(&Message::Idle),
            (Role::Client, Message::Environment(list)) => self.set_variables(from, list),
            (Role::Client, Message::Job(expected)) => self.job.expected = Some(expected).filter(|e| !e.is_empty()),
            (Role::Client, Message::Run(order)) => self.run(from, order, descriptors),
            (Role::Client, Message::Signal(_, signal)) => self.signal(from, signal),
            _ => self.gone(from),
        }
    }

    fn has_rank(&self, pid: i32) -> bool {
        self.connections.values().any(|c| matches!(&c.role, Role::Rank(rank) if rank.pid == pid))
    }

    fn set_variables(&mut self, from: u64, list: Vec<(String, String)>) {
        // The allowance of 16 bytes covers what each variable costs besides its name and value.
        let size = |(name, value): &(String, String)| name.len() + value.len() + 16;
        let total: usize = self.job.environment.iter().chain(&list).map(size).sum();
        if total > VARIABLES_MAX {
            let host = self.host.clone();
            let what = format!("the job's variables have {total} bytes, more than the {VARIABLES_MAX} that fit");
            self.failed(&host, &what, "unset large variables, or do not pass them on with --env");
            return self.gone(from);
        }
        for (name, value) in list {
            self.job.environment.retain(|(n, _)| *n != name);
            self.job.environment.push((name, value));
        }
    }

    fn run(&mut self, from: u64, mut order: Order, descriptors: Vec<OwnedFd>) {
        order.id = self.number() as u32;
        self.commands.insert(order.id, from);
        // Clients may have sent variables after the container was made, so each command gets the variables that the job
        // has now.
        let mut environment = self.job.environment.clone();
        environment.append(&mut order.environment);
        order.environment = environment;
        match self.init {
            Some(_) => self.order(order, descriptors),
            None => self.waiting.push((order, descriptors)),
        }
    }

    fn be(&mut self, number: u64, role: Role) {
        if let Some(connection) = self.connections.get_mut(&number) {
            connection.role = role;
        }
    }

    fn container_up(&mut self, from: u64, found: MpiInstallation) {
        self.be(from, Role::Init);
        self.init = Some(from);
        if let Some(expected) = self.job.expected.clone().filter(|e| *e != found.describe()) {
            let what = format!("its container has {}, that of the first host {expected}", found.describe());
            return self.give_up(&what, "give all hosts the same root folder or image");
        }
        self.tell_clients(&Message::Ready(found.clone()));
        self.found = Some(found);
        for (order, descriptors) in std::mem::take(&mut self.waiting) {
            self.order(order, descriptors);
        }
    }

    fn order(&mut self, order: Order, descriptors: Vec<OwnedFd>) {
        let Some(init) = self.init.and_then(|i| self.connections.get(&i)) else { return };
        let id = order.id;
        let borrowed: Vec<_> = descriptors.iter().map(|d| d.as_fd()).collect();
        if let Err(what) = send(&init.fd, &Message::Start(order), &borrowed) {
            let client = self.commands.remove(&id);
            let host = self.host.clone();
            self.failed(&host, &format!("the command cannot be handed to the container: {what}"), "shorten it");
            if let Some(client) = client {
                self.tell(client, &Message::Ended(0, End { code: 126, signal: 0 }));
            }
        }
    }

    /// Sends a signal to all commands of a client.
    fn signal(&mut self, from: u64, signal: i32) {
        let ids: Vec<u32> = self.commands.iter().filter(|(_, client)| **client == from).map(|(id, _)| *id).collect();
        for id in ids {
            if let Some(init) = self.init {
                self.tell(init, &Message::Signal(id, signal));
            }
        }
    }

    /// Handles an agent's request for a command on a host.
    fn ask(&mut self, from: u64, words: Vec<String>, streams: Option<(File, File)>) {
        let Ok(to) = arguments::parse(&words) else { return self.gone(from) };
        self.be(from, Role::Asking(words, streams));
        if self.network.find(from, to.host, self.host.clone(), self.events.clone()).is_err() {
            self.gone(from);
        }
    }

    fn take_events(&mut self) {
        while let Ok(event) = self.queue.try_recv() {
            match event {
                Event::Resolved(agent, here) => self.resolved(agent, here),
                Event::Said(id, message) => self.said(id, message),
                Event::Closed(id, greeted, status, words) => {
                    let Some(remote) = self.remotes.remove(&id) else { continue };
                    if remote.ended || remote.agent.is_none() {
                        continue;
                    }
                    let called = self.job.ssh.join(" ");
                    let program = (called.as_str(), self.job.starter.as_str());
                    let (what, hint) = ssh::explain(program, &remote.host, greeted, status, &words);
                    self.tell_clients(&Message::Failed(remote.host.clone(), what.clone(), hint.clone()));
                    if let Some(agent) = remote.agent {
                        self.tell(agent, &Message::Ended(0, End { code: crossdock_shim::FAILED, signal: 0 }));
                    }
                }
            }
        }
    }

    fn resolved(&mut self, agent: u64, here: bool) {
        let Some(connection) = self.connections.get_mut(&agent) else { return };
        let Role::Asking(words, streams) = &mut connection.role else { return };
        let (words, streams) = (std::mem::take(words), streams.take());
        if here {
            return self.tell(agent, &Message::Local);
        }
        let id = self.number() as u32;
        let started = match (arguments::parse(&words), streams) {
            (Ok(to), _) if self.remotes.len() >= self.most_connections() => {
                Err((to.host, format!("the job has {} connections to other hosts already", self.remotes.len())))
            }
            (Ok(to), Some(streams)) => {
                let host = to.host.clone();
                self.network.connect(&self.job, id, &to, streams, &self.events).map_err(|what| (host, what))
            }
            _ => Err((String::new(), "a request without output".to_owned())),
        };
        match started {
            Ok(mut remote) => {
                remote.agent = Some(agent);
                self.remotes.insert(id, remote);
                self.be(agent, Role::Agent(id));
            }
            Err((host, what)) => {
                let hint = "install ssh on this host, or give it and its options with --ssh, as in --ssh 'ssh -i key'";
                let message = Message::Failed(host, what, hint.into());
                self.tell_clients(&message);
                self.tell(agent, &message);
            }
        }
    }

    fn said(&mut self, id: u32, message: Message) {
        let Some(remote) = self.remotes.get_mut(&id) else { return };
        match message {
            Message::Ended(_, end) if !remote.ended => {
                remote.ended = true;
                if let Some(agent) = remote.agent {
                    self.tell(agent, &Message::Ended(0, end));
                }
            }
            Message::Failed(host, what, hint) => {
                // The user knows the host by the name that the launcher uses, so messages show this name.
                let host = if host.is_empty() || remote.agent.is_some() { remote.host.clone() } else { host };
                self.failed(&host, &what, &hint);
            }
            Message::RankStarted(_) | Message::RankEnded(..) | Message::RankLost(_) | Message::RankTrouble(..) => {
                self.tell_clients(&message);
            }
            _ => {}
        }
    }

    fn gone(&mut self, number: u64) {
        let Some(connection) = self.connections.remove(&number) else { return };
        let _ = self.epoll.remove(&connection.fd);
        match connection.role {
            Role::Init => {
                self.init = None;
                // Without init no command can be started. The engine's process ends together with init, and the code
                // that waits for the engine's process handles that end.
            }
            Role::Client => {
                let orphaned: Vec<u32> =
                    self.commands.iter().filter(|(_, c)| **c == number).map(|(id, _)| *id).collect();
                self.waiting.retain(|(order, _)| !orphaned.contains(&order.id));
                for id in orphaned {
                    self.commands.remove(&id);
                    if let Some(init) = self.init {
                        self.tell(init, &Message::Signal(id, 9));
                    }
                }
            }
            Role::Agent(id) => {
                // If the command on the other host has ended, the connection to this host stays open, because processes
                // that the command put into the background may still run there.
                if self.remotes.get(&id).is_some_and(|r| !r.ended) {
                    self.remotes.remove(&id);
                } else if let Some(remote) = self.remotes.get_mut(&id) {
                    remote.agent = None;
                }
            }
            // The rank's shim was killed before it reported the rank's end. The rank's program dies with its shim.
            Role::Rank(rank) => self.tell_clients(&Message::RankLost(rank)),
            Role::New | Role::Done | Role::Asking(..) => {}
        }
    }

    /// Ends all processes of the job on this host, and the connections to other hosts.
    fn finish(&mut self) {
        if let Some(init) = self.init {
            self.tell(init, &Message::Stop);
        }
        let kept: HashMap<u32, Remote> = std::mem::take(&mut self.remotes);
        let ssh: Vec<Remote> = kept.into_values().collect();
        self.connections.clear();
        let mut image = None;
        if let Some(mut engine) = self.engine.take() {
            image = engine.image.take();
            let gone = event::wait_readable(&engine.pidfd, Deadline::after(ENDING)).unwrap_or(true);
            if !gone {
                let _ = process::send_signal(&engine.pidfd, process::Signal::KILL);
            }
            let _ = engine.child.wait();
        }
        container::remove(&self.job, image.as_deref());
        self.close(ssh);
    }

    /// Closes the ssh connections in `ssh`, and kills those that do not end in time.
    fn close(&mut self, ssh: Vec<Remote>) {
        let mut open = ssh.len();
        let mut pidfds = Vec::new();
        for remote in ssh {
            pidfds.push(remote.into_handle());
        }
        let deadline = Instant::now() + ENDING;
        while open > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.queue.recv_timeout(left.max(Duration::from_millis(1))) {
                Ok(Event::Closed(..)) => open -= 1,
                Ok(_) => {}
                Err(_) => break,
            }
        }
        for pidfd in pidfds.into_iter().flatten() {
            let _ = process::send_signal(&pidfd, process::Signal::KILL);
        }
    }
}

fn hint_for(job: &Job, otherwise: &str) -> String {
    match &job.root {
        Some(root) if !root.is_dir() => "put it there under the same path, as on a shared file system".into(),
        _ => otherwise.to_owned(),
    }
}

/// Tells whether `name` is the name or an address of this host.
pub(crate) fn is_here(name: &str, mine: &str) -> bool {
    let short = |n: &str| n.split('.').next().unwrap_or_default().to_owned();
    if name == "localhost"
        || name == mine
        || (!name.contains('.') || !mine.contains('.'))
            && short(name) == short(mine)
            && name.parse::<std::net::IpAddr>().is_err()
    {
        return true;
    }
    // A socket can be bound to an address only if this host has the address. So if the bind succeeds, `name` is this
    // host.
    let addresses = (name, 0).to_socket_addrs().into_iter().flatten();
    addresses.into_iter().any(|address| UdpSocket::bind(address).is_ok())
}

#[cfg(test)]
mod tests {
    use super::is_here;

    #[test]
    fn a_host_knows_its_names_and_addresses() {
        assert!(is_here("localhost", "n1") && is_here("127.0.0.1", "n1") && is_here("n1", "n1"));
        assert!(is_here("n1", "n1.cluster") && is_here("n1.cluster", "n1"));
        assert!(!is_here("192.0.2.1", "n1") && !is_here("n2.invalid", "n1"));
        assert!(!is_here("n1.other", "n1.cluster"));
    }
}

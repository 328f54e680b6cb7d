//! The entry point for fuzzing the keeper's state machine. The fuzzer's input says what programs of the job and other
//! hosts send to the keeper, in any order.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use crossdock_os::{event, socket};
use crossdock_shim::arguments::Arguments;
use crossdock_shim::detect::MpiInstallation;
use crossdock_shim::message::{End, Message, Order, Rank, ReceiveResult, receive, send};

use super::{Connection, Event, Events, File, Job, JobFolder, Keeper, Network, Remote, Role, VARIABLES_MAX};
use crate::mpi::report::Report;

/// The number of ranks of the job.
const RANKS: u32 = 3;
/// The most processes that one fuzzer input may connect.
const PEERS_MAX: usize = 8;
/// The process id of the bystander, a rank that sends nothing.
const BYSTANDER: i32 = 77;

/// Reads bytes as a sequence of steps: processes of the container and clients connect, send messages with any content,
/// and disconnect; other hosts report and end. After each step the following holds:
///
/// - Only clients change the job's variables and start commands. Each command belongs to a client that is connected.
/// - The container has one init at most. Only init is told to start commands and to stop. A rank gets no message.
/// - The keeper reports at most one end of each command and of each request for another host, and reports the end only
///   to the process that asked for the command or request.
/// - Each message to the front about a rank of this host names this host. No message to the front says that a running
///   rank has ended, whatever the other processes of the container send. The front's report has no more ranks than the
///   job.
/// - The front and the bystander, a rank, send nothing and stay connected.
pub fn fuzz_keeper(bytes: &[u8]) {
    let mut fixture = Fixture::new();
    let mut rest = bytes;
    while let Some(step) = Step::read(&mut rest) {
        fixture.take(&step);
        fixture.check();
    }
}

/// The network of the fuzzer's keeper. The host name `here` means this host. A connection to the host `none` fails,
/// because there is no host of this name.
struct NoNetwork;

impl Network for NoNetwork {
    fn find(&self, agent: u64, name: String, _: String, events: Events) -> std::io::Result<()> {
        events.put(Event::Resolved(agent, name == "here"));
        Ok(())
    }

    fn connect(&self, _: &Job, _: u32, to: &Arguments, _: (File, File), _: &Events) -> Result<Remote, String> {
        if to.host == "none" { Err("there is no such host".into()) } else { Ok(Remote::without_ssh(&to.host).0) }
    }
}

/// One step that the fuzzer's input describes.
enum Step {
    Connect(Role),
    /// The process with this number sends these bytes. The last field says whether descriptors are sent with them.
    Send(u8, Vec<u8>, bool),
    Disconnect(u8),
    /// The other host with this number sends a message.
    Say(u8, Message),
    /// The connection to the other host with this number ends.
    Close(u8),
}

impl Step {
    fn read(rest: &mut &[u8]) -> Option<Self> {
        let (&[which, who], body) = rest.split_first_chunk::<2>()?;
        *rest = body;
        Some(match which % 8 {
            0 => Self::Connect(Role::New),
            1 => Self::Connect(Role::Client),
            2 | 3 => Self::Send(who, text(rest)?.to_vec(), which % 8 == 3),
            4 => Self::Disconnect(who),
            5 => Self::Say(who, Message::decode(text(rest)?)?),
            6 => Self::Close(who),
            _ => {
                let (&[kind, number], body) = rest.split_first_chunk::<2>()?;
                *rest = body;
                Self::Send(who, sample(kind, number.into()).encode(), true)
            }
        })
    }
}

/// Reads a length of two bytes and then that many bytes.
fn text<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, body) = rest.split_first_chunk::<2>()?;
    let (text, left) = body.split_at_checked(u16::from_le_bytes(*length).into())?;
    *rest = left;
    Some(text)
}

/// Makes a message of each kind, so that the fuzzer need not find out how messages are encoded.
fn sample(kind: u8, number: i32) -> Message {
    let rank = Rank { rank: number, size: 3, pid: number, host: "liar".into(), ..Rank::default() };
    let end = End { code: number, signal: 0 };
    let words = |host: &str| [host, "true"].map(str::to_owned).to_vec();
    match kind % 18 {
        0 => Message::Init(MpiInstallation::default()),
        1 => Message::Run(Order { words: words("true"), ..Order::default() }),
        2 => Message::Start(Order { id: number as u32, words: words("true"), ..Order::default() }),
        3 => Message::Remote(words("there")),
        4 => Message::Remote(words(["here", "none"][number as usize % 2])),
        5 => Message::Local,
        6 => Message::Signal(number as u32, 15),
        7 => Message::Ended(number as u32, end),
        8 => Message::Idle,
        9 => Message::RankStarted(rank),
        10 => Message::RankEnded(rank, end),
        11 => Message::RankLost(rank),
        12 => Message::RankTrouble(rank, "what".into(), "hint".into()),
        13 => Message::Ready(MpiInstallation::default()),
        14 => Message::Failed("liar".into(), "what".into(), "hint".into()),
        15 => Message::Job(String::new()),
        16 => Message::Environment(vec![(format!("N{number}"), "v".repeat(100))]),
        _ => Message::Stop,
    }
}

fn connect(keeper: &mut Keeper, role: Role) -> (OwnedFd, u64) {
    let (ours, theirs) = socket::pair().expect("a pair");
    keeper.connected(ours, role);
    (theirs, keeper.numbers)
}

/// The keeper, two connections that send nothing (a front, and a rank as the bystander), and the processes that the
/// fuzzer's input connects.
struct Fixture {
    keeper: Keeper,
    front: OwnedFd,
    _bystander: OwnedFd,
    /// The numbers of the connections of the front and of the bystander.
    quiet: [u64; 2],
    report: Report,
    peers: Vec<Peer>,
    /// The commands that the keeper told an init to start, each with the number of this init's connection.
    starts: BTreeMap<u32, u64>,
}

/// A process that the fuzzer's input has connected to the keeper.
struct Peer {
    number: u64,
    end: OwnedFd,
    /// The number of commands and requests that this process has sent, and whose end the keeper has not told this
    /// process yet.
    asked: usize,
}

impl Fixture {
    fn new() -> Self {
        let listener = || event::eventfd().expect("a descriptor");
        let job = Job::read(include_str!("job.json")).expect("a job");
        let sockets = (listener(), listener());
        let place = JobFolder { folder: "/nowhere".into() };
        let mut keeper = Keeper::new(job, place, sockets, listener(), Box::new(NoNetwork)).expect("a keeper");
        let (front, first) = connect(&mut keeper, Role::Client);
        let (bystander, second) = connect(&mut keeper, Role::New);
        let rank = Rank { rank: 0, pid: BYSTANDER, ..Rank::default() };
        send(&bystander, &Message::RankStarted(rank), &[]).expect("room");
        keeper.read(second);
        let (report, peers, starts) = (Report::new(RANKS), Vec::new(), BTreeMap::new());
        let mut fixture = Self { keeper, front, _bystander: bystander, quiet: [first, second], report, peers, starts };
        fixture.hear(true);
        assert_eq!(fixture.report.count(), 1);
        fixture
    }

    fn take(&mut self, step: &Step) {
        let mut is_here = true;
        match step {
            Step::Connect(role) if self.peers.len() < PEERS_MAX => {
                let role = if matches!(role, Role::Client) { Role::Client } else { Role::New };
                let (end, number) = connect(&mut self.keeper, role);
                self.peers.push(Peer { number, end, asked: 0 });
            }
            Step::Send(who, bytes, with) => self.send(*who, bytes, *with),
            Step::Disconnect(who) if !self.peers.is_empty() => {
                let peer = self.peers.remove(usize::from(*who) % self.peers.len());
                drop(peer.end);
                self.keeper.read(peer.number);
                assert!(!self.keeper.connections.contains_key(&peer.number));
            }
            Step::Say(who, message) => {
                if let Some(id) = self.other_host(*who) {
                    is_here = false;
                    self.keeper.events.put(Event::Said(id, message.clone()));
                }
            }
            Step::Close(who) => {
                if let Some(id) = self.other_host(*who) {
                    let status = ExitStatus::from_raw(0x100);
                    self.keeper.events.put(Event::Closed(id, *who % 2 == 0, status, "words".into()));
                }
            }
            Step::Connect(_) | Step::Disconnect(_) => {}
        }
        event::clear(&*self.keeper.events.wake);
        self.keeper.take_events();
        self.hear(is_here);
        self.listen();
    }

    /// Lets the process with the number `who` send bytes to the keeper; `with` says whether descriptors are sent too.
    fn send(&mut self, who: u8, bytes: &[u8], with: bool) {
        let count = self.peers.len().max(1);
        let Some(peer) = self.peers.get_mut(usize::from(who) % count) else { return };
        let keeper = &mut self.keeper;
        let is_client = keeper.connections.get(&peer.number).is_some_and(|c| matches!(c.role, Role::Client));
        let (commands, variables) = (keeper.commands.len(), keeper.job.environment.clone());
        let nothing: Vec<File> = (0..3).filter_map(|_| File::open("/dev/null").ok()).collect();
        let borrowed: Vec<_> = nothing.iter().map(std::os::fd::AsFd::as_fd).collect();
        let _ = socket::send(&peer.end, bytes, if with { &borrowed } else { &[] });
        keeper.read(peer.number);
        if is_client && keeper.commands.len() > commands {
            peer.asked += 1;
        }
        if keeper.connections.get(&peer.number).is_some_and(|c| matches!(c.role, Role::Asking(..))) {
            peer.asked = 1;
        }
        if !is_client {
            assert!(keeper.commands.len() <= commands, "only clients start commands");
            assert_eq!(keeper.job.environment, variables, "only clients set variables");
        }
    }

    fn other_host(&self, who: u8) -> Option<u32> {
        let mut ids: Vec<u32> = self.keeper.remotes.keys().copied().collect();
        ids.sort_unstable();
        ids.get(usize::from(who) % ids.len().max(1)).copied()
    }

    /// Reads what the keeper tells the front. `is_here` is true if no other host has said anything in this step.
    fn hear(&mut self, is_here: bool) {
        let own = self.keeper.host.clone();
        while let ReceiveResult::Message(message, _) = receive(&self.front) {
            if let Message::RankStarted(rank)
            | Message::RankEnded(rank, _)
            | Message::RankLost(rank)
            | Message::RankTrouble(rank, ..) = &message
            {
                assert!(!is_here || rank.host == own, "{message:?}");
                let is_end = matches!(message, Message::RankEnded(..) | Message::RankLost(_));
                assert!(!is_here || !is_end || rank.pid != BYSTANDER, "{message:?}");
            }
            assert!(!matches!(message, Message::Ended(..) | Message::Start(_) | Message::Stop), "{message:?}");
            self.report.hear(message);
        }
        assert!(self.report.count() <= RANKS as usize);
    }

    /// Reads what the keeper tells the processes of the input.
    fn listen(&mut self) {
        for peer in &mut self.peers {
            while let ReceiveResult::Message(message, _) = receive(&peer.end) {
                let role = self.keeper.connections.get(&peer.number).map(|c| &c.role);
                match (role, &message) {
                    (Some(Role::Client), Message::Ended(..)) | (Some(Role::Agent(_)), Message::Ended(..)) => {
                        peer.asked = peer.asked.checked_sub(1).expect("an end for each request");
                    }
                    (Some(Role::Client), Message::Start(_) | Message::Stop | Message::Local) => panic!("{message:?}"),
                    (Some(Role::Client), _) => {}
                    (Some(Role::Init), Message::Start(order)) => {
                        let before = self.starts.insert(order.id, peer.number);
                        assert!(before.is_none() && self.keeper.commands.contains_key(&order.id), "{order:?}");
                    }
                    (Some(Role::Init), Message::Signal(id, _)) => assert!(self.starts.contains_key(id), "{id}"),
                    (Some(Role::Asking(..)), Message::Local | Message::Failed(..)) => {}
                    // The keeper has closed the connection of this process. The process may have had any role before,
                    // so any message is right.
                    (None, _) => {}
                    _ => panic!("{message:?}"),
                }
            }
        }
    }

    fn check(&self) {
        let keeper = &self.keeper;
        let of = |number: &u64| keeper.connections.get(number).map(|Connection { role, .. }| role);
        let inits = keeper.connections.values().filter(|c| matches!(c.role, Role::Init)).count();
        assert_eq!(inits, usize::from(keeper.init.is_some()), "one init at most");
        assert!(keeper.init.iter().all(|init| matches!(of(init), Some(Role::Init))));
        assert!(
            keeper.commands.values().all(|client| matches!(of(client), Some(Role::Client))),
            "commands have clients"
        );
        let has_client = |id: &u32| keeper.commands.contains_key(id);
        assert!(keeper.waiting.iter().all(|(order, _)| has_client(&order.id)), "what waits has a client");
        for (id, remote) in &keeper.remotes {
            let agent = remote.agent.as_ref().and_then(of);
            assert_eq!(remote.agent.is_some(), matches!(agent, Some(Role::Agent(of)) if of == id), "{id}");
            assert!(remote.ended || remote.agent.is_some(), "a command without its agent has ended");
        }
        let size: usize = keeper.job.environment.iter().map(|(name, value)| name.len() + value.len() + 16).sum();
        assert!(size <= VARIABLES_MAX);
        assert!(matches!(of(&self.quiet[0]), Some(Role::Client)), "the front stays");
        assert!(matches!(of(&self.quiet[1]), Some(Role::Rank(rank)) if rank.pid == BYSTANDER), "the rank stays");
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use crossdock_os::{child, process};

    use super::super::Engine;
    use super::*;

    #[test]
    fn inputs_of_the_fuzzer_do_no_harm() {
        crossdock_os::testing::run_corpus("keeper", fuzz_keeper);
    }

    /// A program of the job that connects and sends nothing must not keep the container alive after the front is gone.
    #[test]
    fn only_clients_keep_the_keeper_and_only_their_commands_wait_for_the_container() {
        let mut fixture = Fixture::new();
        fixture.take(&Step::Connect(Role::Client));
        fixture.take(&Step::Send(0, sample(1, 0).encode(), true));
        assert_eq!((fixture.keeper.commands.len(), fixture.keeper.waiting.len()), (1, 1));
        fixture.take(&Step::Disconnect(0));
        assert_eq!((fixture.keeper.commands.len(), fixture.keeper.waiting.len()), (0, 0));
        fixture.check();
        let front = fixture.quiet[0];
        fixture.keeper.gone(front);
        assert!(fixture.keeper.had_client && !fixture.keeper.has_clients());
    }

    /// The connection of a container's init closes before the keeper can notice the end of the container's process. The
    /// keeper must still report that the container has ended before the job, and not that it came up too late.
    #[test]
    fn a_container_that_dies_after_it_came_up_has_ended_before_the_job() {
        let mut fixture = Fixture::new();
        fixture.keeper.job.patience_s = 1;
        fixture.keeper.began -= Duration::from_secs(60);
        assert!(fixture.keeper.is_late());
        fixture.take(&Step::Connect(Role::Init));
        fixture.take(&Step::Send(0, Message::Init(MpiInstallation::default()).encode(), false));
        assert!(fixture.keeper.init.is_some());
        fixture.take(&Step::Disconnect(0));
        assert!(fixture.keeper.init.is_none() && !fixture.keeper.is_late());
        let child = Command::new("false").spawn().unwrap();
        let pidfd = process::open_pidfd(child.id() as i32).unwrap().unwrap();
        fixture.keeper.engine = Some(Engine { child, pidfd, image: None, log: "/nowhere".into() });
        fixture.keeper.container_ended();
        fixture.hear(true);
        let fatal = fixture.report.fatal.unwrap();
        assert!(fatal.what.contains("has ended before the job"), "{fatal}");
    }

    #[test]
    fn variables_and_connections_have_limits() {
        let mut fixture = Fixture::new();
        fixture.take(&Step::Connect(Role::Client));
        for n in 0..10 {
            let list = vec![(format!("N{n}"), "v".repeat(100_000))];
            let message = Message::Environment(list).encode();
            fixture.take(&Step::Send(0, message, false));
            fixture.check();
        }
        let fatal = fixture.report.fatal.take().unwrap();
        assert!(fatal.host == fixture.keeper.host && fatal.what.contains("variables have"), "{fatal}");
        let most = fixture.keeper.most_connections();
        child::raise_descriptor_limit();
        let (ours, _theirs) = socket::pair().unwrap();
        for _ in 0..most + 5 {
            fixture.keeper.connected(ours.try_clone().unwrap(), Role::Done);
        }
        assert_eq!(fixture.keeper.connections.len(), most);
        fixture.hear(true);
        assert!(fixture.report.fatal.unwrap().what.contains("processes have connected"));
    }
}

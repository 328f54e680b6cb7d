//! The messages between keeper, init, agent, ranks and clients. Inside a host they go over a Unix socket that keeps
//! message boundaries, and between hosts as frames through ssh.

use std::path::Path;

use crossdock_os::socket::{self, Received};
use crossdock_os::{Deadline, event};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use crate::wire::{MESSAGE_MAX, Reader, Writer};

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// The exit code; valid only if no signal ended the command.
    pub code: i32,
    /// The signal that ended the command, or 0 if no signal did.
    pub signal: i32,
}

impl End {
    /// Gives the end as a shell reports it: the exit code, or 128 + the signal.
    pub fn as_code(self) -> i32 {
        if self.signal == 0 { self.code } else { 128 + self.signal }
    }
}

/// A request to start a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Order {
    /// The number by which keeper and init name the command.
    pub id: u32,
    /// The program and its arguments. With `shell` it is one word, the text for `sh -c`.
    pub words: Vec<String>,
    /// True if the command is a text for a shell.
    pub shell: bool,
    /// The folder in which the command starts.
    pub workdir: String,
    /// Variables that are added to the container's environment.
    pub environment: Vec<(String, String)>,
    /// The number that the message's fourth descriptor gets in the command; -1 if the message has only three
    /// descriptors.
    pub descriptor: i32,
}

/// What the keeper knows about one rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rank {
    /// The rank's number in the job; -1 if the launcher does not give it.
    pub rank: i32,
    /// The number of ranks in the job, as the launcher gives it.
    pub size: i32,
    /// The rank's process id, as its container counts it.
    pub pid: i32,
    /// The name of the rank's host, which the keeper sets.
    pub host: String,
    /// The rank's command.
    pub command: String,
    /// The CPUs that the rank may use.
    pub cpus: String,
}

/// A message between the processes of an MPI job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// The container's init has started. It sends which MPI it found.
    Init(crate::detect::MpiInstallation),
    /// A client asks to run a command in the container. Descriptors: the command's standard input, output and error,
    /// and optionally one more.
    Run(Order),
    /// The keeper asks init to run a command. Descriptors: those of the client's [`Message::Run`].
    Start(Order),
    /// An agent, which a launcher calls as ssh, asks to run a command on another host. Descriptors: standard output and
    /// error.
    Remote(Vec<String>),
    /// The host in a [`Message::Remote`] is this host, so the agent runs the command itself.
    Local,
    /// Asks the receiver to send a signal to a command's process group. The fields are the number of the command and
    /// the number of the signal. Only init uses the number of the command.
    Signal(u32, i32),
    /// A command has ended.
    Ended(u32, End),
    /// The container has no process any more except init.
    Idle,
    /// A rank has started.
    RankStarted(Rank),
    /// A rank has ended.
    RankEnded(Rank, End),
    /// The process that reports the end of this rank was killed before it could report, and the rank died with it.
    /// Launchers kill all ranks in this way after one rank has failed. So a [`Message::RankEnded`] of another rank
    /// tells more about the cause.
    RankLost(Rank),
    /// A rank has a fault that it does not report itself, such as an MPI library that does not fit the launcher. The
    /// texts say what the rank does, and give a hint.
    RankTrouble(Rank, String, String),
    /// Output of a command on another host: stream 1 is standard output, 2 is standard error.
    Output(u8, Vec<u8>),
    /// The container is ready. The field is the MPI that init found in it.
    Ready(crate::detect::MpiInstallation),
    /// Something failed. The texts are the name of the host, what failed, and a hint.
    Failed(String, String, String),
    /// The description of the job, for a starter.
    Job(String),
    /// Variables for all commands that start from now on, on this host and on other hosts.
    Environment(Vec<(String, String)>),
    /// Init must kill all processes and end.
    Stop,
    /// A step of a batch system has begun. The text is its name in the form `JOB.STEP`.
    Step(String),
}

impl Message {
    /// Writes the message as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        match self {
            Self::Init(found) => found.write(w.number(1)),
            Self::Run(order) => order.write(w.number(2)),
            Self::Start(order) => order.write(w.number(3)),
            Self::Remote(words) => w.number(4).list(words, |w, x| {
                w.text(x);
            }),
            Self::Local => w.number(5),
            Self::Signal(id, signal) => w.number(6).number((*id).into()).number((*signal).into()),
            Self::Ended(id, end) => end.write(w.number(7).number((*id).into())),
            Self::Idle => w.number(8),
            Self::RankStarted(rank) => rank.write(w.number(9)),
            Self::RankEnded(rank, end) => end.write(rank.write(w.number(10))),
            Self::RankTrouble(rank, what, hint) => rank.write(w.number(11)).text(what).text(hint),
            Self::Output(stream, bytes) => w.number(12).number((*stream).into()).bytes(bytes),
            Self::Ready(found) => found.write(w.number(13)),
            Self::Failed(host, what, hint) => w.number(14).text(host).text(what).text(hint),
            Self::Job(text) => w.number(15).text(text),
            Self::Environment(list) => variables(w.number(16), list),
            Self::Stop => w.number(17),
            Self::RankLost(rank) => rank.write(w.number(18)),
            Self::Step(name) => w.number(19).text(name),
        };
        w.0
    }

    /// Reads a message from bytes; `None` if the bytes are not a valid message. Each message has one encoding: a message
    /// that is decoded and encoded again has the same bytes.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut r = Reader(bytes);
        use crate::detect::MpiInstallation;
        let message = match r.number()? {
            1 => Self::Init(MpiInstallation::read(&mut r)?),
            2 => Self::Run(Order::read(&mut r)?),
            3 => Self::Start(Order::read(&mut r)?),
            4 => Self::Remote(r.list(Reader::text)?),
            5 => Self::Local,
            6 => Self::Signal(r.small()?, r.small()?),
            7 => Self::Ended(r.small()?, End::read(&mut r)?),
            8 => Self::Idle,
            9 => Self::RankStarted(Rank::read(&mut r)?),
            10 => Self::RankEnded(Rank::read(&mut r)?, End::read(&mut r)?),
            11 => Self::RankTrouble(Rank::read(&mut r)?, r.text()?, r.text()?),
            12 => Self::Output(r.small()?, r.bytes()?),
            13 => Self::Ready(MpiInstallation::read(&mut r)?),
            14 => Self::Failed(r.text()?, r.text()?, r.text()?),
            15 => Self::Job(r.text()?),
            16 => Self::Environment(read_variables(&mut r)?),
            17 => Self::Stop,
            18 => Self::RankLost(Rank::read(&mut r)?),
            19 => Self::Step(r.text()?),
            _ => return None,
        };
        r.0.is_empty().then_some(message)
    }

    /// Writes the message as a frame for a stream: its length, then the message.
    pub fn frame(&self) -> Vec<u8> {
        let body = self.encode();
        let mut frame = (body.len() as u32).to_le_bytes().to_vec();
        frame.extend(body);
        frame
    }

    /// Reads one frame. Returns `None` at the end of the stream, and for bytes that are not a frame.
    pub fn read_frame(stream: &mut impl std::io::Read) -> Option<Self> {
        // A job's description contains the job's whole environment, so a frame may be longer than a message over a
        // local socket.
        Self::read_frame_within(stream, 16 * MESSAGE_MAX)
    }

    /// Reads one frame of at most `most` bytes. Returns `None` at the end of the stream, and for bytes that are not such
    /// a frame.
    pub fn read_frame_within(stream: &mut impl std::io::Read, most: usize) -> Option<Self> {
        let mut length = [0; 4];
        stream.read_exact(&mut length).ok()?;
        let length = u32::from_le_bytes(length) as usize;
        if length > most {
            return None;
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).ok()?;
        Self::decode(&body)
    }
}

fn variables<'a>(w: &'a mut Writer, list: &[(String, String)]) -> &'a mut Writer {
    w.list(list, |w, (name, value)| {
        w.text(name).text(value);
    })
}

fn read_variables(r: &mut Reader<'_>) -> Option<Vec<(String, String)>> {
    r.list(|r| Some((r.text()?, r.text()?)))
}

impl End {
    fn write<'a>(&self, w: &'a mut Writer) -> &'a mut Writer {
        w.number(self.code.into()).number(self.signal.into())
    }

    fn read(r: &mut Reader<'_>) -> Option<Self> {
        Some(Self { code: r.small()?, signal: r.small()? })
    }
}

impl Order {
    fn write<'a>(&self, w: &'a mut Writer) -> &'a mut Writer {
        w.number(self.id.into()).list(&self.words, |w, x| {
            w.text(x);
        });
        w.number(self.shell.into()).text(&self.workdir);
        variables(w, &self.environment).number(self.descriptor.into())
    }

    fn read(r: &mut Reader<'_>) -> Option<Self> {
        let (id, words) = (r.small()?, r.list(Reader::text)?);
        let (shell, workdir) = (r.flag()?, r.text()?);
        let (environment, descriptor) = (read_variables(r)?, r.small()?);
        Some(Self { id, words, shell, workdir, environment, descriptor })
    }
}

impl Rank {
    fn write<'a>(&self, w: &'a mut Writer) -> &'a mut Writer {
        w.number(self.rank.into()).number(self.size.into()).number(self.pid.into());
        w.text(&self.host).text(&self.command).text(&self.cpus)
    }

    fn read(r: &mut Reader<'_>) -> Option<Self> {
        let (rank, size, pid) = (r.small()?, r.small()?, r.small()?);
        Some(Self { rank, size, pid, host: r.text()?, command: r.text()?, cpus: r.text()? })
    }
}

/// Connects to the socket in the keeper's folder `place`.
pub fn connect(place: &Path) -> Result<OwnedFd, String> {
    socket::connect(&place.join(crate::SOCKET)).map_err(|e| e.to_string())
}

/// Sends a whole message. If the socket has no room, waits up to ten seconds until the socket has room.
pub fn send(to: impl AsFd, message: &Message, descriptors: &[BorrowedFd<'_>]) -> Result<(), String> {
    let bytes = message.encode();
    if bytes.len() > MESSAGE_MAX {
        return Err(format!("a command line of {} bytes is longer than the {MESSAGE_MAX} that fit", bytes.len()));
    }
    let deadline = Deadline::after(Duration::from_secs(10));
    while !socket::send(&to, &bytes, descriptors).map_err(|e| e.to_string())? {
        if deadline.passed() {
            return Err("the other side does not read what it is sent".into());
        }
        let _ = event::wait_writable(&to, deadline);
    }
    Ok(())
}

/// What was received on a connection.
pub enum ReceiveResult {
    /// A message and its descriptors.
    Message(Message, Vec<OwnedFd>),
    /// There is no message now.
    Nothing,
    /// The other side has closed the connection, or has sent bytes that are not a message.
    End,
}

/// Receives the next message of a connection without waiting.
pub fn receive(from: impl AsFd) -> ReceiveResult {
    let mut buffer = vec![0; MESSAGE_MAX];
    match socket::receive(from, &mut buffer) {
        Ok(None) => ReceiveResult::Nothing,
        Ok(Some(Received::Message(length, descriptors))) => match Message::decode(&buffer[..length]) {
            Some(message) => ReceiveResult::Message(message, descriptors),
            None => ReceiveResult::End,
        },
        Ok(Some(_)) | Err(_) => ReceiveResult::End,
    }
}

//! The messages between a run's supervisor and its parts on other hosts. Each message is one line of JSON, because
//! `srun` passes output on line by line.

use std::io::{BufRead, Read};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::directory_reports::DirectoryReports;
use super::part::PartRefusal;
use super::rank::End;
use super::ranked::JobHosts;
use super::summary::Figures;

/// The line that a part writes before its first message. It marks where the messages begin, because a login shell may
/// write any text before it.
pub const GREETING: &[u8] = b"\ncrossdock-run 1\n";
/// The longest time between two messages of one side, in seconds. A side with nothing to say sends a pulse.
pub const PULSE_S: u64 = 1;
/// If one side gets no message for this many seconds, it counts the other side as lost.
pub const SILENCE_S: u64 = 15;
/// The largest length of a line, in bytes. A line above this limit is an error. The limit leaves ample room: the text
/// of a workflow, which a message may contain, has at most a few MiB.
const LINE_MAX: u64 = 64 << 20;

/// The messages that the supervisor sends to a part.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ToPart {
    /// The first message. It tells the process to be a part of a run.
    Part(Box<PartOrder>),
    /// The first message instead of `Part`. It tells the process to remove what a killed part has left. The field is
    /// the name of the part's folder.
    Sweep(String),
    /// Start a rank. Later messages name the rank by `index`.
    Start {
        /// The number of the rank in the run.
        index: usize,
        /// The name of the rank's task.
        task: String,
        /// The number of the rank in its task.
        rank: u32,
        /// The hosts of an MPI task that has ranks on several hosts.
        job: Option<Box<JobHosts>>,
    },
    /// The MPI task with this name, which has ranks on several hosts, has begun.
    JobBegan(String),
    /// The MPI task with this name, which has ranks on several hosts, has ended. The second field is false if the task
    /// failed.
    JobEnded(String, bool),
    /// Look into the managed directories of this host. The field is the number of the question.
    Look(u64),
    /// Ask every rank to end.
    Ask,
    /// Kill every rank.
    Kill,
    /// Report the figures, remove everything that the part made, and end.
    End,
    /// A pulse: the supervisor lives.
    Pulse,
}

/// The messages that a part sends to the supervisor.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum FromPart {
    /// The part is ready for its first task.
    Ready {
        /// The name of the engine that the part uses.
        engine: String,
        /// The version of this engine.
        version: String,
        /// What tasks share with their host, in words for the user; `None` if they share nothing.
        shared: Option<String>,
        /// The MPI tasks with ranks on several hosts, each with the folder of its endpoint on this host.
        endpoints: Vec<(String, PathBuf)>,
    },
    /// This host's part of the run cannot be prepared.
    Refused {
        /// The exit code of the run.
        code: u8,
        /// What is wrong.
        reason: String,
        /// What the user can do about the refusal's reason; empty if there is no hint.
        #[serde(default)]
        hint: String,
    },
    /// A note for the user.
    Note(String),
    /// A message that the user must see.
    Alarm(String),
    /// A rank was started.
    Begun {
        /// The number of the rank in the run, as in `Start`.
        index: usize,
        /// The id of the rank's process on its host.
        pid: u32,
        /// The rank's process and its processors, in words for the user.
        words: String,
        /// A note about the rank's task for the user.
        note: Option<String>,
    },
    /// A rank wrote these bytes. Each byte is sent as the character with the same number.
    Output {
        /// The number of the rank in the run, as in `Start`.
        index: usize,
        /// The bytes that the rank wrote.
        text: String,
    },
    /// A rank has ended.
    Ended {
        /// The number of the rank in the run, as in `Start`.
        index: usize,
        /// How the rank ended.
        end: End,
        /// The rank's wall time in seconds.
        seconds: f64,
    },
    /// The answer to `Look`.
    Looked {
        /// The number of the question, as in `Look`.
        number: u64,
        /// What is in the managed directories of this host.
        found: DirectoryReports,
    },
    /// The answer to `End`: the part has removed everything on its host.
    Left(Box<Figures>),
    /// A pulse: the part lives.
    Pulse,
}

impl From<PartRefusal> for FromPart {
    fn from(PartRefusal { code, reason, hint }: PartRefusal) -> Self {
        Self::Refused { code, reason, hint }
    }
}

/// What a process on another host needs to know to be a part of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PartOrder {
    /// The name of the part's folder on its host.
    pub id: String,
    /// The names of the run's hosts.
    pub hosts: Vec<String>,
    /// The number of the part's host among the hosts of the run.
    pub number: usize,
    /// The path of the workflow file. Error messages name it, and relative paths in the file begin at its folder.
    pub file: PathBuf,
    /// The text of the workflow file.
    pub text: String,
    /// The engine that the user asked for, or `auto`.
    pub engine: String,
    /// The variables from the environment of the user's `crossdock run`. The processes of the part get these variables.
    pub environment: Vec<(String, String)>,
    /// The run's site. It is given if the workflow needs daemons, or if files go from host to host.
    pub site: Option<SiteOrder>,
}

/// What a part needs to know to become a node of the run's site.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SiteOrder {
    /// The name of the site.
    pub name: String,
    /// The name that the part's host has as a node of the site.
    pub node: String,
    /// The node whose daemon or supervisor keeps the catalog.
    pub keeper: String,
    /// The address of the host on which the catalog is kept. With `None`, the part takes the address from which its
    /// connection came.
    pub address: Option<String>,
    /// The TCP port at which the catalog listens.
    pub port: u16,
    /// What protects this node's connections to the other nodes.
    pub protection: OrderedProtection,
    /// The choice of transports that carry bytes to and from the other nodes.
    #[serde(with = "super::transport")]
    pub transport: crossdock_link::Choice,
}

/// The protection of one node's connections in the run's site, as a message carries it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum OrderedProtection {
    /// Mutual TLS with these certificates protects the connections.
    Certificates {
        /// The certificate of the run's authority.
        authority: String,
        /// The certificate of this node.
        certificate: String,
        /// The private key of this node.
        key: String,
    },
    /// Nothing protects the connections: the user has allowed plain text with `--trusted-network`.
    TrustedNetwork,
}

/// Gives the answer to `Look`. If `found` is too long for a message, the answer says so.
pub fn looked(number: u64, found: DirectoryReports) -> FromPart {
    let answer = FromPart::Looked { number, found };
    if line(&answer).len() as u64 <= LINE_MAX {
        return answer;
    }
    let troubles = vec![format!("the list of files is longer than {} MiB", LINE_MAX >> 20)];
    FromPart::Looked { number, found: DirectoryReports { seen: Vec::new(), troubles } }
}

/// Writes one message as a line.
pub fn line(message: &impl Serialize) -> String {
    // Serialization cannot fail, because these types have no maps with keys of other types than text.
    let mut line = serde_json::to_string(message).unwrap_or_default();
    line.push('\n');
    line
}

/// Reads the next message. Returns `None` at the end of the stream, and for a line that is not a message.
pub fn next<T: for<'a> Deserialize<'a>>(stream: &mut impl BufRead) -> Option<T> {
    let mut line = Vec::new();
    stream.by_ref().take(LINE_MAX).read_until(b'\n', &mut line).ok()?;
    if line.last() != Some(&b'\n') {
        return None;
    }
    serde_json::from_slice(&line).ok()
}

/// Converts bytes to characters with the same numbers, because JSON has no bytes.
pub fn text_of(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}

/// Converts a text of [`text_of`] back to bytes.
pub fn bytes_of(text: &str) -> Vec<u8> {
    text.chars().map(|c| u8::try_from(u32::from(c)).unwrap_or(b'?')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_of_an_output_comes_back() {
        let bytes: Vec<u8> = (0..=255).chain(*b"\n\0 \xff\n").collect();
        let line = line(&FromPart::Output { index: 3, text: text_of(&bytes) });
        assert_eq!(line.matches('\n').count(), 1);
        let Some(FromPart::Output { index: 3, text }) = next(&mut line.as_bytes()) else { panic!("{line}") };
        assert_eq!(bytes_of(&text), bytes);
    }

    #[test]
    fn an_answer_that_is_too_long_is_a_trouble_of_its_question_and_a_message() {
        let long = DirectoryReports { seen: Vec::new(), troubles: vec!["x".repeat(LINE_MAX as usize)] };
        let line = line(&looked(7, long));
        let Some(FromPart::Looked { number: 7, found }) = next(&mut line.as_bytes()) else { panic!("no message") };
        assert_eq!(found.troubles, ["the list of files is longer than 64 MiB"]);
        let line = super::line(&looked(8, DirectoryReports { seen: Vec::new(), troubles: vec!["x".into()] }));
        assert!(matches!(next(&mut line.as_bytes()), Some(FromPart::Looked { found, .. }) if found.troubles == ["x"]));
    }

    #[test]
    fn half_a_line_and_other_lines_are_no_message() {
        assert!(next::<FromPart>(&mut b"\"Pulse\"".as_slice()).is_none());
        assert!(next::<FromPart>(&mut b"hello\n".as_slice()).is_none());
        assert!(matches!(next::<FromPart>(&mut b"\"Pulse\"\n".as_slice()), Some(FromPart::Pulse)));
    }
}

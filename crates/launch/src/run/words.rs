//! What a run's supervisor and its parts on other hosts say to each other: one line of JSON each. Lines, because `srun` hands
//! on output line by line.

use std::collections::BTreeMap;
use std::io::{BufRead, Read};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::rank::End;
use super::ranked::JobHosts;
use super::summary::Figures;

/// What a part writes first; a login shell may write anything before it.
pub const GREETING: &[u8] = b"\ncrossdock-run 1\n";
/// Each side says something at least this often.
pub const PULSE_S: u64 = 1;
/// A side that was silent for so long is lost.
pub const SILENCE_S: u64 = 15;
/// A longer line is a mistake: the text of a workflow has at most a few MiB.
const LINE_MAX: u64 = 64 << 20;

/// What the supervisor says.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Down {
    /// First: what the part is.
    Part(Box<PartOrder>),
    /// First, instead of `Part`: remove what a part that was killed has left. Its folder's name.
    Sweep(String),
    /// All hosts are ready: where files are fetched from, by node.
    Files(BTreeMap<String, String>),
    /// Start a rank; `index` names it from then on.
    Start {
        /// Its number in the run.
        index: usize,
        /// Its task.
        task: String,
        /// Which copy.
        rank: u32,
        /// The hosts of an MPI task that has ranks on several.
        job: Option<Box<JobHosts>>,
    },
    /// Ask every rank to end.
    Ask,
    /// Kill every rank.
    Kill,
    /// Report, take everything down, and end.
    End,
    /// The supervisor lives.
    Pulse,
}

/// What a part says.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Up {
    /// Everything is ready for the first task.
    Ready {
        /// The engine.
        engine: String,
        /// Its version.
        version: String,
        /// What tasks share with the host, if anything.
        shared: Option<String>,
        /// The MPI tasks with ranks on several hosts, and the folder of each task's endpoint on this host.
        endpoints: Vec<(String, PathBuf)>,
        /// Where other hosts fetch files from this one; empty if none does.
        #[serde(default)]
        files: String,
    },
    /// It cannot be made ready: the run's exit code, and why.
    Refused {
        /// The exit code.
        code: u8,
        /// What is wrong.
        reason: String,
    },
    /// Something for people.
    Note(String),
    /// Something that people must see.
    Alarm(String),
    /// A rank was started.
    Begun {
        /// Which.
        index: usize,
        /// Its process on that host.
        pid: u32,
        /// Where, for people.
        words: String,
        /// What people should know of its task.
        note: Option<String>,
    },
    /// A rank wrote this; bytes as characters of the same number.
    Output {
        /// Which.
        index: usize,
        /// What.
        text: String,
    },
    /// A rank has ended.
    Ended {
        /// Which.
        index: usize,
        /// How.
        end: End,
        /// Wall time.
        seconds: f64,
    },
    /// The answer to `End`: nothing is left on that host.
    Left(Box<Figures>),
    /// The part lives.
    Pulse,
}

/// What a part is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PartOrder {
    /// Its folder's name on its host.
    pub id: String,
    /// The names of the run's hosts.
    pub hosts: Vec<String>,
    /// Which of them it is.
    pub number: usize,
    /// The workflow file, for messages and for relative paths.
    pub file: PathBuf,
    /// Its text.
    pub text: String,
    /// The engine that is asked for.
    pub engine: String,
    /// Variables of the caller.
    pub environment: Vec<(String, String)>,
    /// The run's site, if the workflow needs daemons, or files go from host to host.
    pub site: Option<SiteOrder>,
}

/// A node of the run's site.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SiteOrder {
    /// The site.
    pub name: String,
    /// This node.
    pub node: String,
    /// The node whose daemon keeps the catalog.
    pub keeper: String,
    /// The host of that daemon; `None`: the one that the connection came from.
    pub address: Option<String>,
    /// Where it listens.
    pub port: u16,
    /// The certificate of the run's authority.
    pub authority: String,
    /// This node's certificate.
    pub certificate: String,
    /// Its key.
    pub key: String,
}

/// One message as a line.
pub fn line(message: &impl Serialize) -> String {
    // These types have no maps with odd keys and no failing parts.
    let mut line = serde_json::to_string(message).unwrap_or_default();
    line.push('\n');
    line
}

/// The next message; `None` at the end of the stream, and for what cannot be read.
pub fn next<T: for<'a> Deserialize<'a>>(stream: &mut impl BufRead) -> Option<T> {
    let mut line = Vec::new();
    stream.by_ref().take(LINE_MAX).read_until(b'\n', &mut line).ok()?;
    if line.last() != Some(&b'\n') {
        return None;
    }
    serde_json::from_slice(&line).ok()
}

/// Bytes as characters of the same number: JSON has no bytes.
pub fn text_of(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}

/// The bytes again.
pub fn bytes_of(text: &str) -> Vec<u8> {
    text.chars().map(|c| u8::try_from(u32::from(c)).unwrap_or(b'?')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_of_an_output_comes_back() {
        let bytes: Vec<u8> = (0..=255).chain(*b"\n\0 \xff\n").collect();
        let line = line(&Up::Output { index: 3, text: text_of(&bytes) });
        assert_eq!(line.matches('\n').count(), 1);
        let Some(Up::Output { index: 3, text }) = next(&mut line.as_bytes()) else { panic!("{line}") };
        assert_eq!(bytes_of(&text), bytes);
    }

    #[test]
    fn half_a_line_and_other_lines_are_no_message() {
        assert!(next::<Up>(&mut b"\"Pulse\"".as_slice()).is_none());
        assert!(next::<Up>(&mut b"hello\n".as_slice()).is_none());
        assert!(matches!(next::<Up>(&mut b"\"Pulse\"\n".as_slice()), Some(Up::Pulse)));
    }
}

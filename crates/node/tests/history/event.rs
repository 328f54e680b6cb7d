//! The events of a history. The log file of a process gets one line when an operation is called, and one line when it
//! is answered.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

/// An operation on an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Create,
    Access,
    /// Transfer the item to this task.
    Transfer(u64),
    Release,
    Destroy,
    /// Write this number into the item's bytes.
    Write(u64),
    Find,
}

impl Kind {
    /// Gives the operation as two fields of a log line: its name and its number (0 if it has no number).
    fn words(self) -> (&'static str, u64) {
        match self {
            Self::Create => ("create", 0),
            Self::Access => ("access", 0),
            Self::Transfer(to) => ("transfer", to),
            Self::Release => ("release", 0),
            Self::Destroy => ("destroy", 0),
            Self::Write(value) => ("write", value),
            Self::Find => ("find", 0),
        }
    }
}

/// How an operation was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// For an access: the number in the item's bytes. For a find: the item's owner.
    Saw(u64),
    Exists,
    NotFound,
    /// The item belongs to another task, or another process has it open.
    NotYet,
    /// The item's node or the catalog could not be asked, or the call's time was over while it waited for another node
    /// or for a copy. The call has changed nothing and says nothing about the item.
    Failed,
}

impl Outcome {
    pub fn is_success(self) -> bool {
        matches!(self, Self::Done | Self::Saw(_))
    }

    fn words(self) -> (&'static str, u64) {
        match self {
            Self::Done => ("done", 0),
            Self::Saw(value) => ("saw", value),
            Self::Exists => ("exists", 0),
            Self::NotFound => ("not-found", 0),
            Self::NotYet => ("not-yet", 0),
            Self::Failed => ("failed", 0),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The process that made the call: its task and its incarnation, as `id` combines them.
    pub who: u64,
    pub key: u64,
    pub kind: Kind,
    pub called: u64,
    pub returned: Option<u64>,
    pub outcome: Option<Outcome>,
    /// The time at which the process that made the call was killed.
    pub killed: u64,
}

impl Event {
    pub fn task(&self) -> u64 {
        self.who / 10_000
    }
}

/// Makes the number of a process from its task and its incarnation: how many processes of that task came before it.
pub fn id(task: u64, incarnation: u64) -> u64 {
    task * 10_000 + incarnation
}

/// Gives the time in nanoseconds, on a clock that all processes share.
pub fn now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Random numbers that depend on the seed alone.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }
}

/// Writes the operations of one process to a file. Each line is in the file when the call returns, so a kill of the
/// process loses no line.
pub struct Log {
    file: std::fs::File,
    who: u64,
    next: u64,
}

impl Log {
    pub fn new(path: &Path, who: u64) -> Self {
        Self { file: std::fs::File::options().append(true).open(path).unwrap(), who, next: 0 }
    }

    pub fn call(&mut self, key: u64, kind: Kind) -> u64 {
        self.next += 1;
        let (name, value) = kind.words();
        let line = format!("call {} {} {key} {name} {value} {}\n", self.next, self.who, now());
        self.file.write_all(line.as_bytes()).unwrap();
        self.next
    }

    pub fn answer(&mut self, call: u64, outcome: Outcome) {
        let (name, value) = outcome.words();
        let line = format!("answer {call} {} {name} {value} {} 0\n", self.who, now());
        self.file.write_all(line.as_bytes()).unwrap();
    }
}

/// Writes a whole history to a file, so that it can be checked again.
pub fn write(path: &Path, events: &[Event]) {
    let mut text = String::new();
    let mut calls: BTreeMap<u64, u64> = BTreeMap::new();
    for e in events {
        let call = calls.entry(e.who).or_insert(0);
        *call += 1;
        let (name, value) = e.kind.words();
        text += &format!("call {call} {} {} {name} {value} {}\n", e.who, e.key, e.called);
        if let (Some(at), Some(outcome)) = (e.returned, e.outcome) {
            let (name, value) = outcome.words();
            text += &format!("answer {call} {} {name} {value} {at} 0\n", e.who);
        }
        text += &format!("killed {call} {} {} 0 0 0\n", e.who, e.killed);
    }
    std::fs::write(path, text).unwrap();
}

pub fn read(path: &Path) -> Vec<Event> {
    let mut events: BTreeMap<(u64, u64), Event> = BTreeMap::new();
    for line in std::fs::read_to_string(path).unwrap().lines() {
        let words: Vec<&str> = line.split(' ').collect();
        // A kill may leave an incomplete line. Such a line is skipped. Its operation then counts as not called, or as
        // not answered.
        let [what, call, who, a, b, c, d] = words[..] else { continue };
        let number = |text: &str| text.parse::<u64>().unwrap_or(u64::MAX);
        let (call, who) = (number(call), number(who));
        match what {
            "call" => {
                let value = number(c);
                let kind = match b {
                    "create" => Kind::Create,
                    "access" => Kind::Access,
                    "transfer" => Kind::Transfer(value),
                    "release" => Kind::Release,
                    "destroy" => Kind::Destroy,
                    "write" => Kind::Write(value),
                    "find" => Kind::Find,
                    other => panic!("unknown operation {other}"),
                };
                let (key, called) = (number(a), number(d));
                let event = Event { who, key, kind, called, returned: None, outcome: None, killed: u64::MAX };
                events.insert((who, call), event);
            }
            "answer" => {
                let Some(event) = events.get_mut(&(who, call)) else { continue };
                event.returned = Some(number(c));
                event.outcome = Some(match a {
                    "done" => Outcome::Done,
                    "saw" => Outcome::Saw(number(b)),
                    "exists" => Outcome::Exists,
                    "not-found" => Outcome::NotFound,
                    "not-yet" => Outcome::NotYet,
                    "failed" => Outcome::Failed,
                    other => panic!("unknown outcome {other}"),
                });
            }
            "killed" => events.get_mut(&(who, call)).expect("a call before").killed = number(a),
            other => panic!("unknown line {other}"),
        }
    }
    events.into_values().collect()
}

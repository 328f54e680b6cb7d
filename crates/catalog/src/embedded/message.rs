//! The messages between clients and the keeper.
//!
//! | request | fields |
//! |---|---|
//! | 1 hello | text `crossdock-catalog`, u32 version |
//! | 2 commit | u32 count of conditions, each u8 (1 free, 2 at) key u64 revision; u32 count of operations, each u8 (1 put, 2 delete) key, for put: value, u64 lease |
//! | 3 get | key |
//! | 4 list | prefix |
//! | 5 grant | u64 milliseconds |
//! | 6 keep alive | u64 lease |
//! | 7 revoke | u64 lease |
//! | 8 watch | prefix, u64 revision |
//!
//! | answer | fields |
//! |---|---|
//! | 1 done | |
//! | 2 committed | u8 done, u64 revision, u32 count, each u8 (0 free, 1 there) and the entry |
//! | 3 entry | u8 (0 free, 1 there) and the entry |
//! | 4 page | u64 revision, u8 more, u32 count, entries |
//! | 5 granted | u64 lease |
//! | 6 events | u64 revision up to which all events are sent, u8 more, u32 count, events |
//! | 7 failed | u8 error, u64 number, text |
//!
//! A text, a key or a value is a u32 length, then as many bytes. An entry is key, value, u64 created, u64 modified, u64
//! lease (0 for none). An event is u8 1 and an entry, or u8 2, key and u64 revision.

use std::sync::Arc;

use crate::codec::{Reader, Writer};
use crate::store::Change;
use crate::{COMMIT_MAX, CatalogError, CatalogResult, Commit, Committed, Entry, Event, Expect, LeaseId, Revision};

pub(super) const VERSION: u32 = 1;
const NAME: &str = "crossdock-catalog";
/// The maximum number of entries or events in one message.
const PAGE_MAX: usize = 100_000;
/// From this number of bytes on, further entries or events go into the next message.
pub(super) const PAGE_BYTES: usize = 256 << 10;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Request {
    Hello { version: u32 },
    Commit(Commit),
    Get { key: String },
    List { prefix: String },
    Grant { time_ms: u64 },
    KeepAlive { lease: LeaseId },
    Revoke { lease: LeaseId },
    Watch { prefix: String, from: Revision },
}

impl Request {
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        match self {
            Self::Hello { version } => {
                w.u8(1);
                w.text(NAME);
                w.u32(*version);
            }
            Self::Commit(commit) => {
                w.u8(2);
                w.u32(commit.expect.len() as u32);
                for expect in &commit.expect {
                    let (kind, revision) = match expect {
                        Expect::Free(_) => (1, 0),
                        Expect::At(_, revision) => (2, *revision),
                    };
                    w.u8(kind);
                    w.text(expect.key());
                    w.u64(revision);
                }
                w.u32(commit.then.len() as u32);
                commit.then.iter().for_each(|operation| w.operation(operation));
            }
            Self::Get { key } => {
                w.u8(3);
                w.text(key);
            }
            Self::List { prefix } => {
                w.u8(4);
                w.text(prefix);
            }
            Self::Grant { time_ms } => {
                w.u8(5);
                w.u64(*time_ms);
            }
            Self::KeepAlive { lease } => {
                w.u8(6);
                w.u64(lease.0);
            }
            Self::Revoke { lease } => {
                w.u8(7);
                w.u64(lease.0);
            }
            Self::Watch { prefix, from } => {
                w.u8(8);
                w.text(prefix);
                w.u64(*from);
            }
        }
        w.0
    }

    pub fn decode(bytes: &[u8]) -> CatalogResult<Self> {
        let mut r = Reader(bytes);
        let request = match r.u8()? {
            1 => {
                let name = r.text(64)?;
                if name != NAME {
                    return Err(CatalogError::Broken(format!("it is no catalog's client; it says {name:?}")));
                }
                Self::Hello { version: r.u32()? }
            }
            2 => {
                let mut expect = Vec::new();
                for _ in 0..r.count(COMMIT_MAX)? {
                    expect.push(match r.u8()? {
                        1 => (Expect::Free(r.key()?), r.u64()?).0,
                        2 => Expect::At(r.key()?, r.u64()?),
                        other => return Err(CatalogError::Broken(format!("expectation {other}"))),
                    });
                }
                Self::Commit(Commit { expect, then: r.operations()? })
            }
            3 => Self::Get { key: r.key()? },
            4 => Self::List { prefix: r.prefix()? },
            5 => Self::Grant { time_ms: r.u64()? },
            6 => Self::KeepAlive { lease: LeaseId(r.u64()?) },
            7 => Self::Revoke { lease: LeaseId(r.u64()?) },
            8 => Self::Watch { prefix: r.prefix()?, from: r.u64()? },
            other => return Err(CatalogError::Broken(format!("request {other}"))),
        };
        r.end()?;
        Ok(request)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Done,
    Committed(Committed),
    Entry(Option<Entry>),
    Page { revision: Revision, more: bool, entries: Vec<Entry> },
    Granted(LeaseId),
    Events { upto: Revision, more: bool, events: Vec<Event> },
    Failed(CatalogError),
}

fn put_entry(w: &mut Writer, entry: Option<&Entry>) {
    w.u8(u8::from(entry.is_some()));
    if let Some(entry) = entry {
        w.entry(entry);
    }
}

fn take_entry(r: &mut Reader<'_>) -> CatalogResult<Option<Entry>> {
    if take_flag(r)? { Ok(Some(r.entry()?)) } else { Ok(None) }
}

fn take_flag(r: &mut Reader<'_>) -> CatalogResult<bool> {
    match r.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(CatalogError::Broken(format!("{other} where 0 or 1 belongs"))),
    }
}

fn begin_events(w: &mut Writer, upto: Revision, more: bool, count: usize) {
    w.u8(6);
    w.u64(upto);
    w.u8(u8::from(more));
    w.u32(count as u32);
}

/// Encodes the answer `Events` from changes that are encoded already.
pub(super) fn encode_changes(upto: Revision, more: bool, changes: &[Arc<Change>]) -> Vec<u8> {
    let mut w = Writer::default();
    begin_events(&mut w, upto, more, changes.len());
    changes.iter().for_each(|change| w.0.extend_from_slice(change.encoded()));
    w.0
}

/// The functions that take the content out of an answer, one function for each kind of answer. A function returns
/// `None` if the answer is of another kind.
impl Answer {
    pub fn done(self) -> Option<()> {
        matches!(self, Self::Done).then_some(())
    }

    pub fn committed(self) -> Option<Committed> {
        if let Self::Committed(done) = self { Some(done) } else { None }
    }

    pub fn entry(self) -> Option<Option<Entry>> {
        if let Self::Entry(entry) = self { Some(entry) } else { None }
    }

    pub fn granted(self) -> Option<LeaseId> {
        if let Self::Granted(lease) = self { Some(lease) } else { None }
    }
}

impl Answer {
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        match self {
            Self::Done => w.u8(1),
            Self::Committed(done) => {
                w.u8(2);
                w.u8(u8::from(done.done));
                w.u64(done.revision);
                w.u32(done.found.len() as u32);
                done.found.iter().for_each(|entry| put_entry(&mut w, entry.as_ref()));
            }
            Self::Entry(entry) => {
                w.u8(3);
                put_entry(&mut w, entry.as_ref());
            }
            Self::Page { revision, more, entries } => {
                w.u8(4);
                w.u64(*revision);
                w.u8(u8::from(*more));
                w.u32(entries.len() as u32);
                entries.iter().for_each(|entry| w.entry(entry));
            }
            Self::Granted(lease) => {
                w.u8(5);
                w.u64(lease.0);
            }
            Self::Events { upto, more, events } => {
                begin_events(&mut w, *upto, *more, events.len());
                events.iter().for_each(|event| w.event(event));
            }
            Self::Failed(error) => {
                let (code, number, text) = match error {
                    CatalogError::NoLease => (1, 0, ""),
                    CatalogError::Compacted(oldest) => (2, *oldest, ""),
                    CatalogError::Invalid(why) => (3, 0, why.as_str()),
                    CatalogError::Full(why) => (4, 0, why.as_str()),
                    CatalogError::Broken(why) => (5, 0, why.as_str()),
                    CatalogError::Unreachable(why) | CatalogError::Unknown(why) => (6, 0, why.as_str()),
                };
                w.u8(7);
                w.u8(code);
                w.u64(number);
                let end = text.char_indices().map(|(at, _)| at).take_while(|at| *at <= 1000).last().unwrap_or(0);
                w.text(if text.len() <= 1000 { text } else { &text[..end] });
            }
        }
        w.0
    }

    pub fn decode(bytes: &[u8]) -> CatalogResult<Self> {
        let mut r = Reader(bytes);
        let answer = match r.u8()? {
            1 => Self::Done,
            2 => {
                let (done, revision) = (take_flag(&mut r)?, r.u64()?);
                let found = (0..r.count(COMMIT_MAX)?).map(|_| take_entry(&mut r)).collect::<CatalogResult<_>>()?;
                Self::Committed(Committed { done, revision, found })
            }
            3 => Self::Entry(take_entry(&mut r)?),
            4 => {
                let (revision, more) = (r.u64()?, take_flag(&mut r)?);
                let entries = (0..r.count(PAGE_MAX)?).map(|_| r.entry()).collect::<CatalogResult<_>>()?;
                Self::Page { revision, more, entries }
            }
            5 => match r.u64()? {
                0 => return Err(CatalogError::Broken("lease 0".into())),
                lease => Self::Granted(LeaseId(lease)),
            },
            6 => {
                let (upto, more) = (r.u64()?, take_flag(&mut r)?);
                let events = (0..r.count(PAGE_MAX)?).map(|_| r.event()).collect::<CatalogResult<_>>()?;
                Self::Events { upto, more, events }
            }
            7 => {
                let (code, number, text) = (r.u8()?, r.u64()?, r.text(1000)?);
                Self::Failed(match code {
                    1 => CatalogError::NoLease,
                    2 => CatalogError::Compacted(number),
                    3 => CatalogError::Invalid(text),
                    4 => CatalogError::Full(text),
                    5 => CatalogError::Broken(text),
                    6 => CatalogError::Unknown(text),
                    other => return Err(CatalogError::Broken(format!("error {other}"))),
                })
            }
            other => return Err(CatalogError::Broken(format!("answer {other}"))),
        };
        r.end()?;
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Entry {
        Entry { key: "k".into(), value: vec![1, 2], created: 3, modified: 4, lease: Some(LeaseId(5)) }
    }

    fn requests() -> Vec<Request> {
        vec![
            Request::Hello { version: VERSION },
            Request::Commit(
                Commit::new().expect_free("a").expect_at("b", 7).put("a", b"v", Some(LeaseId(1))).delete("b"),
            ),
            Request::Get { key: "k".into() },
            Request::List { prefix: String::new() },
            Request::Grant { time_ms: 5 },
            Request::KeepAlive { lease: LeaseId(1) },
            Request::Revoke { lease: LeaseId(2) },
            Request::Watch { prefix: "p".into(), from: 9 },
        ]
    }

    fn answers() -> Vec<Answer> {
        vec![
            Answer::Done,
            Answer::Committed(Committed { done: false, revision: 8, found: vec![None, Some(entry())] }),
            Answer::Entry(Some(entry())),
            Answer::Page { revision: 9, more: true, entries: vec![entry()] },
            Answer::Granted(LeaseId(3)),
            Answer::Events {
                upto: 9,
                more: false,
                events: vec![Event::Put(entry()), Event::Deleted { key: "x".into(), revision: 9 }],
            },
            Answer::Failed(CatalogError::Compacted(7)),
            Answer::Failed(CatalogError::Full("no".into())),
        ]
    }

    #[test]
    fn messages_come_back_as_they_went() {
        for request in requests() {
            assert_eq!(Request::decode(&request.encode()), Ok(request));
        }
        for answer in answers() {
            assert_eq!(Answer::decode(&answer.encode()), Ok(answer));
        }
    }

    #[test]
    fn cut_long_and_bent_messages_are_errors_or_other_messages_and_never_a_panic() {
        fn bend(bytes: &[u8], is_error: impl Fn(&[u8]) -> bool) {
            assert!((0..bytes.len()).all(|cut| is_error(&bytes[..cut])));
            assert!(is_error(&[bytes, &[0]].concat()));
            for bit in 0..bytes.len() * 8 {
                let mut bent = bytes.to_vec();
                bent[bit / 8] ^= 1 << (bit % 8);
                is_error(&bent);
            }
        }
        requests().iter().for_each(|request| bend(&request.encode(), |bytes| Request::decode(bytes).is_err()));
        answers().iter().for_each(|answer| bend(&answer.encode(), |bytes| Answer::decode(bytes).is_err()));
    }

    #[test]
    fn a_long_reason_is_cut_at_a_character() {
        let answer = Answer::Failed(CatalogError::Full("é".repeat(900))).encode();
        assert!(matches!(Answer::decode(&answer), Ok(Answer::Failed(CatalogError::Full(text))) if text.len() <= 1000));
    }
}

//! The messages that the services of two hosts exchange about one directory. They are the bodies of requests to the
//! link's service number 50.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use crossdock_layout::files::Phase;
use crossdock_link::body::{Read, Reader, put, put_bytes, wrong};

use crate::rules::is_hidden;

/// The service number of the request for changes of a directory. The answering host waits until there is a change, and
/// then sends an [`Answer`].
pub const NEWS: u32 = 50;

/// The greatest length of a file's path and of a directory's name, in bytes.
const TEXT_MAX: usize = 4096;
/// The greatest number of entries in one answer.
const ENTRIES_MAX: usize = 4096;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    pub directory: String,
    /// The `life` in the last answer, which is the number of the answering service's start; 0 before the first answer.
    pub life: u64,
    /// The asking host knows all changes up to this number.
    pub since: u64,
    /// The asking host has carried out all changes up to this number: it has fetched their files or given them up.
    pub done: u64,
    /// Whether the answering host's producers have started, have ended or have failed, as far as the asking host knows.
    pub phase: Phase,
    pub torn: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The number of this start of the answering service. The numbers of changes are valid only until the service
    /// starts again.
    pub life: u64,
    /// The directory's number on the answering host, which the asking host names when it pulls bytes.
    pub directory: u64,
    /// The answer contains all changes up to this number that the asking host did not know.
    pub upto: u64,
    /// True if there is no change beyond `upto`. Only then are `phase` and `torn` valid.
    pub is_complete: bool,
    pub phase: Phase,
    pub torn: u64,
    pub entries: Vec<Entry>,
}

/// The newest change of one name, which belongs to a file or a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub number: u64,
    /// The path of the file, relative to the directory.
    pub rest: PathBuf,
    pub what: ChangeKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    File(FileMetadata),
    Folder,
    /// The name, and all names below it, were removed.
    Gone,
    /// The file was dropped, as the key `keep` of the workflow file says, before every host had fetched it.
    Dropped,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileMetadata {
    pub size: u64,
    pub mode: u32,
    /// Time of the last modification: seconds and nanoseconds.
    pub modified: (i64, u32),
}

/// Reads a path or a name.
fn text(from: &mut Reader<'_>) -> Read<Vec<u8>> {
    from.bytes().ok().filter(|text| text.len() <= TEXT_MAX).ok_or_else(wrong)
}

fn phase(from: &mut Reader<'_>) -> Read<Phase> {
    from.small().map(Phase::from_number)
}

/// Tells whether this name is one of those that a service publishes. Any other name could lead out of the store.
fn is_safe(rest: &Path) -> bool {
    let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_));
    !rest.as_os_str().is_empty()
        && rest.components().all(is_plain)
        && !rest.as_os_str().as_bytes().contains(&0)
        && !is_hidden(rest)
}

impl Question {
    pub fn write(&self) -> Vec<u8> {
        let mut to = Vec::new();
        put_bytes(&mut to, self.directory.as_bytes());
        for number in [self.life, self.since, self.done, u64::from(self.phase as u32), self.torn] {
            put(&mut to, number);
        }
        to
    }

    pub fn read(body: &[u8]) -> Option<Self> {
        Self::read_from(Reader::new(body)).ok()
    }

    fn read_from(mut from: Reader<'_>) -> Read<Self> {
        let question = Self {
            directory: String::from_utf8(text(&mut from)?).map_err(|_| wrong())?,
            life: from.number()?,
            since: from.number()?,
            done: from.number()?,
            phase: phase(&mut from)?,
            torn: from.number()?,
        };
        from.end(question)
    }
}

impl Answer {
    pub fn write(&self) -> Vec<u8> {
        let mut to = Vec::new();
        let phase = u64::from(self.phase as u32);
        for number in [self.life, self.directory, self.upto, u64::from(self.is_complete), phase, self.torn] {
            put(&mut to, number);
        }
        put(&mut to, self.entries.len() as u64);
        self.entries.iter().for_each(|entry| entry.write(&mut to));
        to
    }

    pub fn read(body: &[u8]) -> Option<Self> {
        Self::read_from(Reader::new(body)).ok()
    }

    fn read_from(mut from: Reader<'_>) -> Read<Self> {
        let answer = Self {
            life: from.number()?,
            directory: from.number()?,
            upto: from.number()?,
            is_complete: from.flag()?,
            phase: phase(&mut from)?,
            torn: from.number()?,
            entries: from.list(Entry::read)?,
        };
        if answer.entries.len() > ENTRIES_MAX {
            return Err(wrong());
        }
        let mut last = 0;
        for entry in &answer.entries {
            if entry.number <= last || entry.number > answer.upto {
                return Err(wrong());
            }
            last = entry.number;
        }
        from.end(answer)
    }
}

impl Entry {
    /// The number of bytes that this entry takes in an answer.
    pub fn length(&self) -> usize {
        8 * 7 + self.rest.as_os_str().len()
    }

    fn write(&self, to: &mut Vec<u8>) {
        put(to, self.number);
        put_bytes(to, self.rest.as_os_str().as_bytes());
        match self.what {
            ChangeKind::File(FileMetadata { size, mode, modified: (seconds, nanoseconds) }) => {
                for number in [1, size, mode.into(), u64::from_ne_bytes(seconds.to_ne_bytes()), nanoseconds.into()] {
                    put(to, number);
                }
            }
            ChangeKind::Folder => put(to, 2),
            ChangeKind::Gone => put(to, 3),
            ChangeKind::Dropped => put(to, 4),
        }
    }

    fn read(from: &mut Reader<'_>) -> Read<Self> {
        let number = from.number()?;
        let rest = PathBuf::from(OsStr::from_bytes(&text(from)?));
        let what = match from.number()? {
            1 => ChangeKind::File(FileMetadata {
                size: from.number()?,
                mode: from.small()?,
                modified: (i64::from_ne_bytes(from.number()?.to_ne_bytes()), from.small()?),
            }),
            2 => ChangeKind::Folder,
            3 => ChangeKind::Gone,
            4 => ChangeKind::Dropped,
            _ => return Err(wrong()),
        };
        if is_safe(&rest) { Ok(Self { number, rest, what }) } else { Err(wrong()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(names: &[&str]) -> Answer {
        let meta = FileMetadata { size: 7, mode: 0o444, modified: (-5, 999) };
        let whats = [ChangeKind::File(meta), ChangeKind::Folder, ChangeKind::Gone, ChangeKind::Dropped];
        let entry = |(n, name): (usize, &&str)| Entry { number: n as u64 + 1, rest: name.into(), what: whats[n % 4] };
        let entries: Vec<Entry> = names.iter().enumerate().map(entry).collect();
        Answer {
            life: 9,
            directory: 2,
            upto: entries.len() as u64,
            is_complete: true,
            phase: Phase::Ended,
            torn: 1,
            entries,
        }
    }

    #[test]
    fn what_is_written_is_read_and_nothing_shorter_or_longer() {
        let answer = answer(&["a", "b/c", "b/d", "e"]);
        let question =
            Question { directory: "frames".into(), life: 1, since: 2, done: 3, phase: Phase::Producing, torn: 4 };
        let (answered, asked) = (answer.write(), question.write());
        assert_eq!((Answer::read(&answered), Question::read(&asked)), (Some(answer), Some(question)));
        for length in 0..answered.len() {
            assert_eq!(Answer::read(&answered[..length]), None, "{length}");
        }
        for length in 0..asked.len() {
            assert_eq!(Question::read(&asked[..length]), None, "{length}");
        }
        assert_eq!(Answer::read(&[&answered[..], &[0]].concat()), None);
        assert_eq!(Question::read(&[&asked[..], &[0]].concat()), None);
    }

    #[test]
    fn names_that_lead_out_of_the_store_are_refused() {
        for bad in ["/etc/x", "../x", "a/../../x", "", ".hidden", "a/.b/c", "a\0b"] {
            assert_eq!(Answer::read(&answer(&[bad]).write()), None, "{bad:?}");
        }
    }

    #[test]
    fn numbers_out_of_order_and_counts_too_large_are_refused() {
        let mut wrong = answer(&["a", "b"]);
        wrong.entries[1].number = 1;
        assert_eq!(Answer::read(&wrong.write()), None);
        let mut wrong = answer(&["a", "b"]);
        wrong.upto = 1;
        assert_eq!(Answer::read(&wrong.write()), None);
        let mut bytes = answer(&[]).write();
        let count = bytes.len() - 8;
        bytes[count..].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(Answer::read(&bytes), None);
    }
}

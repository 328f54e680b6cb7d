//! The journal: what a broker finds after the former one was killed. It also makes sure that no id is used twice.
//!
//! A file of records, each with length and checksum, behind a header with magic and version. Room is reserved in
//! advance, so that a record of an accepted request always has its place. If there is no more room, the broker is told
//! and refuses requests that need room, while everything else continues. If a writer was killed in the middle of a
//! record, the record's checksum is wrong and the journal ends there. No client was told of that record yet.
//!
//! The journal protects against killed processes and not against killed machines (memory does not outlive the machine),
//! so there is no fsync.

mod codec;
mod crc;

use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use crossdock_os::file as files;

use crate::broker::{Lasting, Record};
pub use codec::{decode, encode};
use crc::crc32c;

const MAGIC: &[u8; 8] = b"xdockjnl";
const VERSION: u32 = 4;
const HEADER: u64 = 16;
/// Length and checksum in front of each record.
const FRAME: usize = 8;
/// The room that is reserved at a time, and that is kept for records that cannot be refused (deaths, ends).
const AHEAD: u64 = 256 << 10;
const LEAST: u64 = 64 << 10;
/// A journal shorter than this is not worth compacting.
const COMPACT_FROM: u64 = 1 << 20;
const LONGEST_RECORD: u32 = 1 << 20;

/// An open journal, positioned behind its last good record.
#[derive(Debug)]
pub struct Journal {
    file: File,
    path: PathBuf,
    end: u64,
    room: u64,
    compact_at: u64,
    /// Records that follow the end and are not in the file yet.
    noted: Vec<u8>,
}

impl Journal {
    /// Opens the journal at `path`, or makes an empty one.
    pub fn open(path: &Path) -> std::io::Result<File> {
        files::open_or_make(path, 0o600).map(File::from).map_err(|e| e.reason())
    }

    /// Reads a journal to its last good record.
    ///
    /// # Errors
    /// The file cannot be read, is a journal of another version, or is no journal.
    pub fn recover(file: File, path: &Path) -> std::io::Result<(Self, Lasting)> {
        let length = file.metadata()?.len();
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        files::read_all_at(&file, &mut bytes, 0).map_err(|e| e.reason())?;
        let mut journal = Self {
            file,
            path: path.to_owned(),
            end: HEADER,
            room: length,
            compact_at: COMPACT_FROM,
            noted: Vec::new(),
        };
        let mut lasting = Lasting::default();
        if bytes.len() < HEADER as usize || bytes[..HEADER as usize].iter().all(|b| *b == 0) {
            files::write_all_at(&journal.file, &header(), 0).map_err(|e| e.reason())?;
            return Ok((journal, lasting));
        }
        if bytes[..HEADER as usize] != header() {
            let why = format!("{} is no journal of this version; move it away", path.display());
            return Err(std::io::Error::new(ErrorKind::InvalidData, why));
        }
        let good = replay(&bytes[HEADER as usize..], |record| lasting.apply(&record));
        journal.end = HEADER + good as u64;
        // What a killed writer left behind the end must not be taken for a record once others precede it.
        if bytes[journal.end as usize..].iter().any(|b| *b != 0) {
            files::set_size(&journal.file, journal.end).map_err(|e| e.reason())?;
            journal.room = journal.end;
        }
        Ok((journal, lasting))
    }

    /// Forgets everything.
    ///
    /// # Errors
    /// The file cannot be cut or written.
    pub fn begin_anew(&mut self) -> std::io::Result<()> {
        files::set_size(&self.file, 0).map_err(|e| e.reason())?;
        (self.end, self.room) = (HEADER, HEADER);
        files::write_all_at(&self.file, &header(), 0).map_err(|e| e.reason())
    }

    /// Makes sure that there is room for whatever one event can write.
    ///
    /// # Errors
    /// The disk is full, in words for people.
    pub fn make_room(&mut self) -> Result<(), String> {
        if self.room >= self.end + LEAST {
            return Ok(());
        }
        let more = AHEAD;
        let taken = match extend(&self.file, self.room, more) {
            Ok(()) => Ok(()),
            Err(why) => Err(format!("{}: {why}", self.path.display())),
        };
        if taken.is_ok() {
            self.room += more;
        }
        taken
    }

    /// Notes a record, to be written with the next ones by [`Journal::flush`]: one call to the kernel for all of them.
    pub fn note(&mut self, record: &Record) {
        self.noted.extend(frame(record));
    }

    /// Writes what was noted. Nothing that follows from it may be told to any client before.
    ///
    /// # Errors
    /// The file cannot be written although room was taken.
    pub fn flush(&mut self) -> std::io::Result<()> {
        if !self.noted.is_empty() {
            files::write_reserved_at(&self.file, &self.noted, self.end).map_err(|e| e.reason())?;
            self.end += self.noted.len() as u64;
            self.room = self.room.max(self.end);
            self.noted.clear();
        }
        Ok(())
    }

    /// Appends a record.
    ///
    /// # Errors
    /// The file cannot be written although room was taken.
    pub fn append(&mut self, record: &Record) -> std::io::Result<()> {
        self.note(record);
        self.flush()
    }

    /// Whether most of the journal is history, or its name another file's: then a broker was killed between the two
    /// steps of taking a new one, and a reader that opens the journal by its name would find an old state.
    pub fn wants_compacting(&self) -> bool {
        self.end >= self.compact_at
    }

    /// Looks whether the journal has its name; if not, the next compacting gives it one.
    pub fn check_name(&mut self) {
        use std::os::unix::fs::MetadataExt;
        let inode = |found: std::io::Result<std::fs::Metadata>| found.map(|m| (m.dev(), m.ino())).ok();
        if inode(self.file.metadata()) != inode(std::fs::metadata(&self.path)) {
            self.compact_at = 0;
        }
    }

    /// Writes the state as a new journal and takes it instead; gives its descriptor for the keeper. The old journal
    /// stays good until `install` has put the new one in its place.
    ///
    /// # Errors
    /// No room for it; the old one goes on.
    pub fn compact(&mut self, lasting: &Lasting) -> std::io::Result<OwnedFd> {
        let beside = self.path.with_extension("new");
        let _ = std::fs::remove_file(&beside);
        let file = files::make(&beside, 0o600).map_err(|e| e.reason()).and_then(|file| {
            let file = File::from(file);
            let mut bytes = header().to_vec();
            lasting.snapshot().iter().for_each(|record| bytes.extend(frame(record)));
            let end = bytes.len() as u64;
            files::write_all_at(&file, &bytes, 0).map_err(|e| e.reason())?;
            extend(&file, end, AHEAD)?;
            // The keeper's copy comes first: without it this one must not have the name.
            let copy = files::duplicate(&file).map_err(|e| e.reason())?;
            files::rename(&beside, &self.path).map_err(|e| e.reason())?;
            Ok((file, copy, end))
        });
        // Whatever went wrong, the history may still grow: try again when it is twice as long.
        self.compact_at = self.end * 2;
        let (file, copy, end) = file.inspect_err(|_| drop(std::fs::remove_file(&beside)))?;
        (self.file, self.end, self.room) = (file, end, end + AHEAD);
        self.compact_at = COMPACT_FROM.max(end * 4);
        Ok(copy)
    }
}

fn header() -> [u8; HEADER as usize] {
    let mut header = [0; HEADER as usize];
    header[..8].copy_from_slice(MAGIC);
    header[8..12].copy_from_slice(&VERSION.to_le_bytes());
    header
}

/// A record as it stands in the journal: length, checksum, bytes.
pub fn frame(record: &Record) -> Vec<u8> {
    let body = encode(record);
    let mut frame = Vec::with_capacity(FRAME + body.len());
    frame.extend_from_slice(&(body.len() as u32).to_le_bytes());
    frame.extend_from_slice(&crc32c(&body).to_le_bytes());
    frame.extend_from_slice(&body);
    frame
}

/// Applies the good records at the front of `bytes`; how many bytes they are.
pub fn replay(bytes: &[u8], mut apply: impl FnMut(Record)) -> usize {
    let mut at = 0;
    loop {
        let Some((head, rest)) = bytes[at..].split_first_chunk::<FRAME>() else { return at };
        let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
        let sum = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
        if length == 0 || length > LONGEST_RECORD {
            return at;
        }
        let Some(body) = rest.get(..length as usize) else { return at };
        if crc32c(body) != sum {
            return at;
        }
        let Some(record) = decode(body) else { return at };
        apply(record);
        at += FRAME + length as usize;
    }
}

/// Takes room on the disk behind the end, filled with zeros.
fn extend(file: &File, from: u64, more: u64) -> std::io::Result<()> {
    let taken = match files::extend(file, from, more) {
        // A file system that cannot take room ahead is filled by hand.
        Err(error) if error.is_unsupported() => files::write_all_at(file, &vec![0; more as usize], from),
        other => other,
    };
    taken.map_err(|e| e.reason())
}

#[cfg(test)]
mod tests;

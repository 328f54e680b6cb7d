//! The journal: the file from which a broker restores its state after the former one was killed. The journal also
//! ensures that no id is used twice.
//!
//! The journal is a file of records, each with its length and a checksum, behind a header with a magic number, a
//! version and the file's generation. When a broker compacts the journal, the new file gets the next generation. A
//! broker that starts reads the file of the higher generation, the one that its keeper holds or the one that has the
//! journal's name. The two differ if the former broker was killed after it had given the name to a new file, before the
//! keeper had this file, or if the keeper had no descriptor left for it. The first broker of a keeper that has found a
//! file compacts the journal at once, because an earlier daemon may still write to the file that has the name, if its
//! other files were removed by hand. Disk space is reserved in advance, so that every accepted request can be recorded.
//! If no more space can be reserved, the host reports this to the broker. The broker then refuses requests that need a
//! record, and everything else continues. If a writer is killed in the middle of a record, this record's checksum is
//! wrong, and the journal ends before it. No client was told of the incomplete record yet.
//!
//! The journal survives killed processes, but need not survive a crash of the machine, because the memory that it
//! describes does not. So there is no fsync.

mod codec;

use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use crossdock_os::file as files;
use crossdock_os::fs::{self, File};
use twox_hash::XxHash64;

use crate::broker::{Lasting, Record};
use codec::encode_into;
pub use codec::{decode, encode};

const MAGIC: &[u8; 8] = b"xdockjnl";
const VERSION: u32 = 6;
const HEADER: u64 = 16;
/// The bytes of length and checksum in front of each record.
const FRAME: usize = 8;
/// How many bytes of disk space the journal reserves at once. `LEAST` is the space that is kept for records that cannot
/// be refused, such as the death of a member.
const AHEAD: u64 = 256 << 10;
const LEAST: u64 = 64 << 10;
/// A journal shorter than this is not compacted.
const COMPACT_FROM: u64 = 1 << 20;
const LONGEST_RECORD: u32 = 1 << 20;

/// An open journal. The next record is written behind its last good record.
#[derive(Debug)]
pub struct Journal {
    file: File,
    path: PathBuf,
    generation: u32,
    /// False if another file has the journal's name, or if no file has it.
    has_name: bool,
    end: u64,
    /// True if the file has bytes behind its last good record, because a writer was killed.
    has_tail: bool,
    room: u64,
    compact_at: u64,
    /// The bytes of records that are not written to the file yet.
    noted: Vec<u8>,
}

impl Journal {
    /// Opens the journal's file at `path`, or creates it.
    pub fn open(path: &Path) -> std::io::Result<File> {
        files::open_or_make(path, 0o600).map(File::from).map_err(|e| e.reason())
    }

    /// Creates the journal's file at `path`. `None` if the name is taken or no file can be made.
    pub fn make(path: &Path) -> Option<File> {
        files::make(path, 0o600).ok().map(File::from)
    }

    /// Chooses the file from which a broker starts: `held`, which its keeper holds, or the file at `path` if this one has a
    /// higher generation and a state for which `is_ours` is true. Returns true with the file if it is `held`.
    ///
    /// # Errors
    /// A file cannot be read because memory or another resource is short. Then nothing is known about its generation.
    pub fn latest(held: File, path: &Path, is_ours: impl Fn(&Lasting) -> bool) -> std::io::Result<(File, bool)> {
        let named = match files::open_to_change(path) {
            Err(error) if error.is_out_of_room() => return Err(error.reason()),
            Err(_) => return Ok((held, true)),
            Ok(named) => File::from(named),
        };
        if generation(&named)? <= generation(&held)? {
            return Ok((held, true));
        }
        let mut bytes = vec![0; usize::try_from(named.metadata()?.len()).unwrap_or(0)];
        files::read_all_at(&named, &mut bytes, 0).map_err(|e| e.reason())?;
        // After its files were removed by hand, another daemon may have begun at the same path.
        let is_held = !restore(&bytes, path).is_ok_and(|(_, _, lasting)| is_ours(&lasting));
        Ok((if is_held { held } else { named }, is_held))
    }

    /// Reads a journal up to its last good record. Returns the journal and the state that its records make. Before a
    /// record is written, the journal must be compacted, or [`Journal::cut_tail`] must be called.
    ///
    /// # Errors
    /// The file cannot be read, or has another version, or is not a journal.
    pub fn read(file: File, path: &Path) -> std::io::Result<(Self, Lasting)> {
        let length = file.metadata()?.len();
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        files::read_all_at(&file, &mut bytes, 0).map_err(|e| e.reason())?;
        let mut journal = Self {
            file,
            path: path.to_owned(),
            generation: 0,
            has_name: true,
            end: HEADER,
            has_tail: false,
            room: length,
            compact_at: COMPACT_FROM,
            noted: Vec::new(),
        };
        if is_empty(&bytes) {
            files::write_all_at(&journal.file, &header(0), 0).map_err(|e| e.reason())?;
            return Ok((journal, Lasting::default()));
        }
        let (generation, end, lasting) = restore(&bytes, path)?;
        (journal.generation, journal.end) = (generation, end as u64);
        journal.has_tail = bytes[journal.end as usize..].iter().any(|b| *b != 0);
        Ok((journal, lasting))
    }

    /// Cuts off the bytes behind the last good record. Otherwise they could be read as a record after other records have
    /// been written in front of them.
    ///
    /// # Errors
    /// The file cannot be truncated.
    pub fn cut_tail(&mut self) -> std::io::Result<()> {
        if std::mem::take(&mut self.has_tail) {
            files::set_size(&self.file, self.end).map_err(|e| e.reason())?;
            self.room = self.end;
        }
        Ok(())
    }

    /// Reads the state that the records of the journal at `path` make, and changes nothing.
    ///
    /// # Errors
    /// There is no such file, or it cannot be read, or has another version, or is not a journal.
    pub fn peek(path: &Path) -> std::io::Result<Lasting> {
        let bytes = fs::read(path)?;
        if is_empty(&bytes) { Ok(Lasting::default()) } else { Ok(restore(&bytes, path)?.2) }
    }

    /// Reserves disk space for everything that one event can write.
    ///
    /// # Errors
    /// The disk is full. The error says so in words for people.
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

    /// Notes a record. [`Journal::flush`] writes all noted records in one system call.
    pub fn note(&mut self, record: &Record) {
        add_frame(&mut self.noted, record);
    }

    /// Writes all noted records into the file. Until this is done, no client may be told the consequences of these
    /// records.
    ///
    /// # Errors
    /// The file cannot be written although disk space was reserved for the records.
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
    /// The file cannot be written although disk space was reserved for the record.
    pub fn append(&mut self, record: &Record) -> std::io::Result<()> {
        self.note(record);
        self.flush()
    }

    /// Tells whether the journal is to be compacted: most of its records are outdated, or its file does not have its name,
    /// for example because the name was removed by hand. A daemon that opens the journal by its name would then not find
    /// the state.
    pub fn wants_compacting(&self) -> bool {
        !self.has_name || self.end >= self.compact_at
    }

    /// Gives a copy of the file's descriptor, for the keeper.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn copy(&self) -> std::io::Result<OwnedFd> {
        files::duplicate(&self.file).map_err(|e| e.reason())
    }

    /// Checks that the journal's file still has its name. If not, the next compaction writes a new journal with that
    /// name.
    pub fn check_name(&mut self) {
        self.has_name = fs::has_name(&self.file, &self.path).unwrap_or(false);
    }

    /// Writes the state into a new journal, which replaces this one. Returns a copy of the new file's descriptor for
    /// the keeper.
    ///
    /// # Errors
    /// There is no disk space for the new journal. The old one stays in use.
    pub fn compact(&mut self, lasting: &Lasting) -> std::io::Result<OwnedFd> {
        let beside = self.path.with_extension("new");
        let generation = self.generation.saturating_add(1);
        let _ = fs::remove_file(&beside);
        let file = files::make(&beside, 0o600).map_err(|e| e.reason()).and_then(|file| {
            let file = File::from(file);
            let mut bytes = header(generation).to_vec();
            lasting.snapshot().iter().for_each(|record| bytes.extend(frame(record)));
            let end = bytes.len() as u64;
            files::write_all_at(&file, &bytes, 0).map_err(|e| e.reason())?;
            extend(&file, end, AHEAD)?;
            // The copy for the keeper is made before the rename. A journal that the keeper does not have must not get
            // the name.
            let copy = files::duplicate(&file).map_err(|e| e.reason())?;
            files::rename(&beside, &self.path).map_err(|e| e.reason())?;
            Ok((file, copy, end))
        });
        // If making the new journal failed, the old one stays in use. The next attempt is made when the old journal is
        // twice as long as now.
        self.compact_at = self.end * 2;
        let (file, copy, end) = file.inspect_err(|_| drop(fs::remove_file(&beside)))?;
        (self.file, self.end, self.room) = (file, end, end + AHEAD);
        (self.generation, self.has_name, self.has_tail) = (generation, true, false);
        self.compact_at = COMPACT_FROM.max(end * 4);
        Ok(copy)
    }
}

/// Tells whether no header was written yet: the file is new, or its writer was killed.
fn is_empty(journal: &[u8]) -> bool {
    journal.len() < HEADER as usize || journal[..HEADER as usize].iter().all(|byte| *byte == 0)
}

/// Applies the records of a journal. Returns the journal's generation, where the last good record ends, and the state.
fn restore(journal: &[u8], path: &Path) -> std::io::Result<(u32, usize, Lasting)> {
    let Some((generation, records)) =
        journal.split_first_chunk().and_then(|(head, rest)| Some((read_header(head)?, rest)))
    else {
        let why = format!("{} is no journal of this version; move it away", path.display());
        return Err(std::io::Error::new(ErrorKind::InvalidData, why));
    };
    let mut lasting = Lasting::default();
    let good = replay(records, |record| lasting.apply(&record));
    Ok((generation, HEADER as usize + good, lasting))
}

fn header(generation: u32) -> [u8; HEADER as usize] {
    let mut header = [0; HEADER as usize];
    header[..8].copy_from_slice(MAGIC);
    header[8..12].copy_from_slice(&VERSION.to_le_bytes());
    header[12..].copy_from_slice(&generation.to_le_bytes());
    header
}

/// Gives the generation that a header says; `None` for the header of another version, and if these bytes are no header.
fn read_header(bytes: &[u8; HEADER as usize]) -> Option<u32> {
    let generation = u32::from_le_bytes(*bytes.last_chunk().expect("a header has four bytes and more"));
    (*bytes == header(generation)).then_some(generation)
}

/// Gives the generation of the journal in this file; `None` if the file has no journal of this version.
fn generation(file: &File) -> std::io::Result<Option<u32>> {
    if file.metadata()?.len() < HEADER {
        return Ok(None);
    }
    let mut bytes = [0; HEADER as usize];
    files::read_all_at(file, &mut bytes, 0).map_err(|e| e.reason())?;
    Ok(read_header(&bytes))
}

/// Gives a record as it is in the journal: length, checksum, bytes.
pub fn frame(record: &Record) -> Vec<u8> {
    let mut frame = Vec::new();
    add_frame(&mut frame, record);
    frame
}

/// Appends a record as it is in the journal.
fn add_frame(bytes: &mut Vec<u8>, record: &Record) {
    let start = bytes.len();
    bytes.extend_from_slice(&[0; FRAME]);
    encode_into(bytes, record);
    let (head, body) = bytes[start..].split_at_mut(FRAME);
    head[..4].copy_from_slice(&(body.len() as u32).to_le_bytes());
    head[4..].copy_from_slice(&checksum(body).to_le_bytes());
}

/// Gives the checksum of a record's bytes: the lower half of their XXH64. It needs no special instruction. To ask a
/// virtual CPU for its instructions takes longer than to read a short journal.
fn checksum(body: &[u8]) -> u32 {
    XxHash64::oneshot(0, body) as u32
}

/// Passes the good records at the beginning of `bytes` to `apply`. Returns how many bytes they take.
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
        if checksum(body) != sum {
            return at;
        }
        let Some(record) = decode(body) else { return at };
        apply(record);
        at += FRAME + length as usize;
    }
}

/// Reserves `more` bytes on the disk from `from` on, filled with zeros.
fn extend(file: &File, from: u64, more: u64) -> std::io::Result<()> {
    let taken = match files::extend(file, from, more) {
        // The file system cannot reserve space without writing, so zeros are written.
        Err(error) if error.is_unsupported() => files::write_all_at(file, &vec![0; more as usize], from),
        other => other,
    };
    taken.map_err(|e| e.reason())
}

#[cfg(test)]
mod tests;

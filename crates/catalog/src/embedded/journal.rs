//! The keeper's journal: a file of records, each `u32 length, u32 crc, bytes`.
//!
//! A record is written and synced before the keeper answers the request for the change that the record describes. The
//! end of the file may hold a part of a record, if the keeper died while it wrote; that part is cut off. A wrong record
//! *before* the end is damage, and opening fails. A journal that is several times as long as its content needs is
//! compacted: the keeper writes a new file beside the old one, and renames the new file to the name of the old one. If
//! this fails, the new file is removed, so that the records that follow have its room on the disk.

use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use crossdock_os::fs::{self, File};
use crossdock_os::{OsResult, file as files};

use crate::codec::{Reader, Writer};
use crate::store::Record;
use crate::{CatalogError, CatalogResult, LeaseId};

const MAGIC: &[u8; 8] = b"XDCATLG1";
const HEAD: usize = 8;
const RECORD_MAX: usize = 1 << 20;
/// A journal below this size, in bytes, is not compacted.
const SMALL: u64 = 1 << 20;
/// How often the journal is opened again at most, because it was replaced before it was locked.
const OPENINGS: usize = 100;

pub(super) struct Journal {
    file: File,
    path: PathBuf,
    length: u64,
    /// The length in bytes at which the journal is compacted next.
    compact_at: u64,
    /// True if a part of a record was written and could not be cut off. The next append cuts the part off first.
    torn: bool,
    /// True if the journal's name may not be on the disk yet. The next append then syncs the folder first.
    is_unnamed: bool,
}

impl Journal {
    /// Opens the journal in this folder, or creates it, and returns its records.
    pub fn open(folder: &Path) -> io::Result<(Self, Vec<Record>)> {
        let path = folder.join("catalog.journal");
        let file = open_locked(&path, || files::open_or_make(&path, 0o666))?;
        // A keeper that died while it compacted the journal has left this file. If it cannot be removed, the next
        // compaction overwrites it.
        fs::remove_file(fresh_of(&path)).ok();
        let mut bytes = vec![0; usize::try_from(file.metadata()?.len()).unwrap_or(0)];
        files::read_all_at(&file, &mut bytes, 0).map_err(|e| e.reason())?;
        if bytes.len() < HEAD && MAGIC.starts_with(&bytes) {
            let begun = files::set_size(&file, 0).and_then(|()| files::write_all_at(&file, MAGIC, 0));
            begun.and_then(|()| files::sync(&file)).map_err(|e| e.reason())?;
            let length = HEAD as u64;
            return Ok((Self::new(file, path, length), Vec::new()));
        }
        let (records, length) = read(&bytes).map_err(|why| {
            let text = format!("{} is damaged: {why}; move it away to begin with an empty catalog", path.display());
            io::Error::new(ErrorKind::InvalidData, text)
        })?;
        files::set_size(&file, length).map_err(|e| e.reason())?;
        Ok((Self::new(file, path, length), records))
    }

    fn new(file: File, path: PathBuf, length: u64) -> Self {
        Self { file, path, length, compact_at: compact_at(length), torn: false, is_unnamed: true }
    }

    /// Appends a record. If this succeeds, the record is on the disk.
    pub fn append(&mut self, record: &Record) -> CatalogResult<()> {
        if self.torn {
            self.cut()?;
        }
        self.sync_name().map_err(|error| {
            let why = error.reason();
            CatalogError::Full(format!("the folder of {} cannot be synced: {why}", self.path.display()))
        })?;
        let bytes = frame(record);
        if let Err(error) = files::write_all_at(&self.file, &bytes, self.length).and_then(|()| files::sync(&self.file))
        {
            self.torn = true;
            self.cut().ok();
            let why = error.reason();
            return Err(CatalogError::Full(format!("{} cannot be written: {why}", self.path.display())));
        }
        self.length += bytes.len() as u64;
        Ok(())
    }

    fn cut(&mut self) -> CatalogResult<()> {
        files::set_size(&self.file, self.length).map_err(|error| {
            let why = error.reason();
            CatalogError::Full(format!("{} cannot be cut: {why}", self.path.display()))
        })?;
        self.torn = false;
        Ok(())
    }

    pub fn wants_compacting(&self) -> bool {
        self.length > self.compact_at
    }

    /// Replaces all records of the journal by `records`.
    ///
    /// # Errors
    /// The new file cannot be written, for example because the disk is full. The old file stays in use. The next attempt
    /// is made when the journal is twice as long as now.
    pub fn compact(&mut self, records: &[Record]) -> io::Result<()> {
        let fresh = fresh_of(&self.path);
        self.compact_at = self.length * 2;
        let (file, length) = self.replace(&fresh, records).inspect_err(|_| drop(fs::remove_file(&fresh)))?;
        // From here on the new file is the journal, even if the folder cannot be synced now: the old file has no name
        // any more, so records that were appended to the old file would be lost.
        *self = Self::new(file, std::mem::take(&mut self.path), length);
        self.sync_name().map_err(|e| e.reason())
    }

    /// Writes a new file with these records, locks it, and gives it the journal's name. Returns the file and its length.
    fn replace(&self, fresh: &Path, records: &[Record]) -> io::Result<(File, u64)> {
        let file = File::from(files::open_or_make(fresh, 0o666).map_err(|e| e.reason())?);
        let mut bytes = MAGIC.to_vec();
        records.iter().for_each(|record| bytes.extend(frame(record)));
        let written: OsResult<()> = (|| {
            files::set_size(&file, 0)?;
            files::write_all_at(&file, &bytes, 0)?;
            files::sync(&file)
        })();
        written.map_err(|e| e.reason())?;
        if !lock(&file)? {
            return Err(is_used(fresh));
        }
        files::rename(fresh, &self.path).map_err(|e| e.reason())?;
        Ok((file, bytes.len() as u64))
    }

    /// Syncs the folder, so that the journal's name is on the disk.
    fn sync_name(&mut self) -> OsResult<()> {
        if let Some(folder) = self.path.parent().filter(|_| self.is_unnamed) {
            files::sync_folder(folder)?;
            self.is_unnamed = false;
        }
        Ok(())
    }
}

/// The file that becomes the journal when the journal is compacted.
fn fresh_of(journal: &Path) -> PathBuf {
    journal.with_extension("fresh")
}

/// The length at which a journal is compacted that had this length when it was opened, or when it was last compacted.
fn compact_at(length: u64) -> u64 {
    SMALL.max(4 * length)
}

/// Opens the journal by calling `open`, and locks it. If another keeper compacted the journal and ended between these two
/// steps, the opened file has no name any more. The journal is then opened again.
fn open_locked(path: &Path, mut open: impl FnMut() -> OsResult<OwnedFd>) -> io::Result<File> {
    for _ in 0..OPENINGS {
        let file = File::from(open().map_err(|e| e.reason())?);
        if !lock(&file)? {
            return Err(is_used(path));
        }
        if fs::has_name(&file, path)? {
            return Ok(file);
        }
    }
    Err(io::Error::other(format!("{} is replaced faster than it can be locked", path.display())))
}

fn is_used(file: &Path) -> io::Error {
    io::Error::new(ErrorKind::WouldBlock, format!("another keeper uses {}; stop it first", file.display()))
}

fn lock(file: &File) -> io::Result<bool> {
    crossdock_os::file::try_lock(file).map_err(|error| io::Error::other(error.to_string()))
}

fn frame(record: &Record) -> Vec<u8> {
    let body = encode(record);
    let mut bytes = Vec::with_capacity(body.len() + 8);
    bytes.extend_from_slice(&(body.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&crc32fast::hash(&body).to_le_bytes());
    bytes.extend(body);
    bytes
}

/// Returns the records, and the length in bytes of the valid part of the file.
fn read(bytes: &[u8]) -> Result<(Vec<Record>, u64), String> {
    let mut rest = bytes.strip_prefix(MAGIC).ok_or("it does not begin as a catalog's journal")?;
    let mut records = Vec::new();
    loop {
        let at = bytes.len() - rest.len();
        // The valid part ends here. At most the beginning of a record follows, or zeros in blocks that the kernel never
        // filled.
        if rest.len() < 8 || rest.iter().all(|byte| *byte == 0) {
            return Ok((records, at as u64));
        }
        let length = u32::from_le_bytes(rest[..4].try_into().expect("four bytes")) as usize;
        let crc = u32::from_le_bytes(rest[4..8].try_into().expect("four bytes"));
        let Some(body) = rest.get(8..8usize.saturating_add(length)).filter(|_| length <= RECORD_MAX) else {
            // A record that reaches beyond the end of the file was cut off while it was written. A length that no
            // record can have is damage.
            if length > RECORD_MAX {
                return Err(format!("the record at byte {at} claims {length} bytes"));
            }
            return Ok((records, at as u64));
        };
        if crc32fast::hash(body) != crc {
            if 8 + length == rest.len() {
                return Ok((records, at as u64));
            }
            return Err(format!("the record at byte {at} has a wrong checksum, and others follow it"));
        }
        records.push(decode(body).map_err(|why| format!("the record at byte {at}: {why}"))?);
        rest = &rest[8 + length..];
    }
}

fn encode(record: &Record) -> Vec<u8> {
    let mut w = Writer::default();
    match record {
        Record::Start { revision, next_lease } => {
            w.u8(1);
            w.u64(*revision);
            w.u64(*next_lease);
        }
        Record::Changed { revision, operations } => {
            w.u8(2);
            w.u64(*revision);
            w.u32(operations.len() as u32);
            operations.iter().for_each(|operation| w.operation(operation));
        }
        Record::Granted { lease, time_ms } => {
            w.u8(3);
            w.u64(lease.0);
            w.u64(*time_ms);
        }
        Record::Ended { lease, revision } => {
            w.u8(4);
            w.u64(lease.0);
            w.u64(*revision);
        }
        Record::Entry(entry) => {
            w.u8(5);
            w.entry(entry);
        }
    }
    w.0
}

fn decode(bytes: &[u8]) -> CatalogResult<Record> {
    let mut r = Reader(bytes);
    let record = match r.u8()? {
        1 => Record::Start { revision: r.u64()?, next_lease: r.u64()? },
        2 => Record::Changed { revision: r.u64()?, operations: r.operations()? },
        3 => Record::Granted { lease: LeaseId(r.u64()?), time_ms: r.u64()? },
        4 => Record::Ended { lease: LeaseId(r.u64()?), revision: r.u64()? },
        5 => Record::Entry(r.entry()?),
        other => return Err(CatalogError::Broken(format!("record {other}"))),
    };
    r.end()?;
    Ok(record)
}

/// First reads the bytes as the content of a journal. Then decodes the same bytes as one record, adds a valid checksum,
/// and reads the result as a journal with this one record. This second test is needed because the fuzzer cannot find a
/// valid checksum itself.
pub(super) fn fuzz(bytes: &[u8]) {
    let whole = [MAGIC, bytes].concat();
    if let Ok((_, length)) = read(&whole) {
        assert!(length <= whole.len() as u64, "the valid part is longer than the file");
    }
    if let Ok(record) = decode(bytes) {
        assert_eq!(read(&[MAGIC.to_vec(), frame(&record)].concat()), Ok((vec![record], 16 + bytes.len() as u64)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Entry, Operation};

    fn records() -> Vec<Record> {
        let put = Operation::Put { key: "a".into(), value: b"1".to_vec(), lease: Some(LeaseId(2)) };
        vec![
            Record::Start { revision: 5, next_lease: 2 },
            Record::Granted { lease: LeaseId(2), time_ms: 1000 },
            Record::Entry(Entry { key: "z".into(), value: vec![], created: 1, modified: 2, lease: None }),
            Record::Changed { revision: 6, operations: vec![put, Operation::Delete { key: "b".into() }] },
            Record::Ended { lease: LeaseId(2), revision: 7 },
        ]
    }

    fn whole() -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        records().iter().for_each(|record| bytes.extend(frame(record)));
        bytes
    }

    #[test]
    fn a_journal_cut_anywhere_holds_the_records_that_are_whole() {
        let bytes = whole();
        for cut in HEAD..bytes.len() {
            let (found, length) = read(&bytes[..cut]).unwrap();
            assert_eq!(found, records()[..found.len()], "cut at {cut}");
            assert!(length <= cut as u64);
            // Zeros at the end, as in blocks that the kernel never filled, are no damage.
            let zeros = [&bytes[..length as usize], &[0; 100]].concat();
            assert_eq!(read(&zeros), Ok((found, length)));
        }
        assert_eq!(read(&bytes), Ok((records(), bytes.len() as u64)));
    }

    #[test]
    fn damage_before_the_end_is_an_error_and_never_a_panic() {
        let bytes = whole();
        let last = bytes.len() - frame(&records()[4]).len();
        for at in HEAD..bytes.len() {
            for bit in 0..8 {
                let mut bent = bytes.clone();
                bent[at] ^= 1 << bit;
                if let Ok((found, _)) = read(&bent) {
                    assert_eq!(found, records()[..found.len()]);
                    // The journal with one changed bit was accepted. That is right in two cases: the bit lies in the
                    // last record, or the change made a length greater, so that the record reaches beyond the end. Only
                    // in these cases does a record look as if it was cut off while it was written.
                    assert!(at >= last || bent[at] > bytes[at], "byte {at} bit {bit}");
                }
            }
        }
    }

    #[test]
    fn compacting_replaces_the_file_and_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let (mut journal, found) = Journal::open(folder.path()).unwrap();
        assert!(found.is_empty());
        journal.append(&records()[0]).unwrap();
        journal.compact(&records()[..2]).unwrap();
        journal.append(&records()[2]).unwrap();
        assert!(Journal::open(folder.path()).is_err(), "two keepers with one journal");
        drop(journal);
        assert_eq!(Journal::open(folder.path()).unwrap().1, records()[..3]);
    }

    #[test]
    fn what_a_compaction_left_is_removed_when_the_journal_is_opened() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("catalog.fresh"), "half").unwrap();
        let (_journal, found) = Journal::open(folder.path()).unwrap();
        assert!(found.is_empty());
        assert!(!folder.path().join("catalog.fresh").exists());
    }

    /// Another keeper compacts its journal and ends, after this one has opened the file and before it locks the file.
    #[test]
    fn a_journal_that_was_replaced_before_it_was_locked_is_opened_again() {
        let folder = tempfile::tempdir().unwrap();
        let (mut former, _) = Journal::open(folder.path()).unwrap();
        former.append(&records()[0]).unwrap();
        let path = former.path.clone();
        let mut former = Some(former);
        let file = open_locked(&path, || {
            let file = files::open_or_make(&path, 0o666);
            if let Some(mut former) = former.take() {
                former.compact(&records()[..3]).unwrap();
            }
            file
        });
        let mut bytes = vec![0; file.as_ref().unwrap().metadata().unwrap().len() as usize];
        files::read_all_at(file.unwrap(), &mut bytes, 0).unwrap();
        assert_eq!(read(&bytes).unwrap().0, records()[..3]);
    }

    #[test]
    fn a_compaction_into_a_file_that_another_process_has_locked_fails() {
        let folder = tempfile::tempdir().unwrap();
        let (mut journal, _) = Journal::open(folder.path()).unwrap();
        journal.append(&records()[0]).unwrap();
        let other = File::create(folder.path().join("catalog.fresh")).unwrap();
        assert!(lock(&other).unwrap());
        assert_eq!(journal.compact(&records()[..2]).unwrap_err().kind(), ErrorKind::WouldBlock);
        journal.append(&records()[2]).unwrap();
        drop(journal);
        assert_eq!(Journal::open(folder.path()).unwrap().1, [&records()[..1], &records()[2..3]].concat());
    }

    /// Makes each call of a compaction fail once with each of its errors.
    #[cfg(feature = "faults")]
    #[test]
    fn a_compaction_that_fails_leaves_no_file_and_is_not_repeated_at_once() {
        use crossdock_os::faults;
        let put = Operation::Put { key: "a".into(), value: vec![1; 600_000], lease: None };
        let long = Record::Changed { revision: 6, operations: vec![put] };
        let seen = faults::each_call_fails(|attempt| {
            let folder = tempfile::tempdir().unwrap();
            let (mut journal, _) = Journal::open(folder.path()).unwrap();
            journal.append(&long).unwrap();
            assert!(!journal.wants_compacting());
            journal.append(&long).unwrap();
            assert!(journal.wants_compacting());
            attempt.arm();
            let done = journal.compact(&records());
            let hit = attempt.disarm();
            assert!(!folder.path().join("catalog.fresh").exists(), "{hit:?}: {done:?}");
            journal.append(&records()[0]).unwrap();
            assert!(!journal.wants_compacting(), "{hit:?}: {done:?}");
        });
        assert!(["open", "pwrite", "fsync", "rename", "flock"].iter().all(|call| seen.contains(call)), "{seen:?}");
    }

    /// Makes each call of the journal fail once with each of its errors. After each failure, the journal must contain
    /// all acknowledged changes and no others.
    #[cfg(feature = "faults")]
    #[test]
    fn no_failed_call_loses_an_acknowledged_record() {
        use crossdock_os::faults;
        let mut errors = 0u32;
        let seen = faults::each_call_fails(|attempt| {
            let folder = tempfile::tempdir().unwrap();
            attempt.arm();
            let mut acknowledged = Vec::new();
            let opened = Journal::open(folder.path());
            if let Ok((mut journal, _)) = opened {
                for (turn, record) in records().into_iter().enumerate() {
                    match journal.append(&record) {
                        Ok(()) => acknowledged.push(record),
                        Err(_) => errors += 1,
                    }
                    if turn == 2 {
                        errors += u32::from(journal.compact(&acknowledged).is_err());
                    }
                }
            }
            let hit = attempt.disarm();
            let found = Journal::open(folder.path()).unwrap_or_else(|e| panic!("{hit:?}: {e}")).1;
            assert_eq!(found, acknowledged, "{hit:?}");
        });
        assert!(
            ["open", "pwrite", "fsync", "rename", "flock", "ftruncate"].iter().all(|c| seen.contains(c)),
            "{seen:?}"
        );
        assert!(errors > 10, "{errors}");
    }

    #[test]
    fn a_file_that_is_no_journal_is_refused_with_its_name() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("catalog.journal"), "something else").unwrap();
        let error = Journal::open(folder.path()).err().unwrap().to_string();
        assert!(error.contains("catalog.journal") && error.contains("damaged"), "{error}");
    }
}

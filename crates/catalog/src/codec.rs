//! Encodes and decodes the little-endian fields of the embedded catalog's messages and of its journal. The length of
//! each field is checked.

use crate::entry::{check_key, check_prefix};
use crate::{COMMIT_MAX, CatalogError, CatalogResult, Entry, Event, LeaseId, Operation, VALUE_MAX};

/// Appends encoded fields to a list of bytes.
#[derive(Default)]
pub(crate) struct Writer(pub Vec<u8>);

impl Writer {
    pub fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    pub fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub fn bytes(&mut self, bytes: &[u8]) {
        self.u32(bytes.len() as u32);
        self.0.extend_from_slice(bytes);
    }

    pub fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    pub fn lease(&mut self, lease: Option<LeaseId>) {
        self.u64(lease.map_or(0, |lease| lease.0));
    }

    pub fn entry(&mut self, entry: &Entry) {
        self.text(&entry.key);
        self.bytes(&entry.value);
        self.u64(entry.created);
        self.u64(entry.modified);
        self.lease(entry.lease);
    }

    pub fn event(&mut self, event: &Event) {
        match event {
            Event::Put(entry) => {
                self.u8(1);
                self.entry(entry);
            }
            Event::Deleted { key, revision } => {
                self.u8(2);
                self.text(key);
                self.u64(*revision);
            }
        }
    }

    pub fn operation(&mut self, operation: &Operation) {
        match operation {
            Operation::Put { key, value, lease } => {
                self.u8(1);
                self.text(key);
                self.bytes(value);
                self.lease(*lease);
            }
            Operation::Delete { key } => {
                self.u8(2);
                self.text(key);
            }
        }
    }
}

/// Takes fields from the front of the bytes. A field that is longer than allowed is an error.
pub(crate) struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> CatalogResult<&'a [u8]> {
        if length > self.0.len() {
            return Err(broken(format!("a field of {length} bytes in {} that are left", self.0.len())));
        }
        let (field, rest) = self.0.split_at(length);
        self.0 = rest;
        Ok(field)
    }

    pub fn u8(&mut self) -> CatalogResult<u8> {
        Ok(self.take(1)?[0])
    }

    pub fn u32(&mut self) -> CatalogResult<u32> {
        Ok(u32::from_le_bytes(self.take(4)?.try_into().expect("four bytes were taken")))
    }

    pub fn u64(&mut self) -> CatalogResult<u64> {
        Ok(u64::from_le_bytes(self.take(8)?.try_into().expect("eight bytes were taken")))
    }

    /// Reads the count of a list. Each element of the list takes at least one byte, so a count above the number of
    /// remaining bytes is an error.
    pub fn count(&mut self, most: usize) -> CatalogResult<usize> {
        let count = self.u32()? as usize;
        if count > most || count > self.0.len() {
            return Err(broken(format!("{count} things where at most {} can be", most.min(self.0.len()))));
        }
        Ok(count)
    }

    pub fn bytes(&mut self, most: usize) -> CatalogResult<&'a [u8]> {
        let length = self.u32()? as usize;
        if length > most {
            return Err(broken(format!("a field of {length} bytes, and {most} are allowed")));
        }
        self.take(length)
    }

    pub fn text(&mut self, most: usize) -> CatalogResult<String> {
        let text = std::str::from_utf8(self.bytes(most)?).map_err(|error| broken(error.to_string()))?;
        Ok(text.to_owned())
    }

    pub fn key(&mut self) -> CatalogResult<String> {
        let key = self.text(crate::KEY_MAX)?;
        check_key(&key).map_err(|error| broken(error.to_string()))?;
        Ok(key)
    }

    pub fn prefix(&mut self) -> CatalogResult<String> {
        let key = self.text(crate::KEY_MAX)?;
        check_prefix(&key).map_err(|error| broken(error.to_string()))?;
        Ok(key)
    }

    pub fn lease(&mut self) -> CatalogResult<Option<LeaseId>> {
        Ok(Some(self.u64()?).filter(|lease| *lease != 0).map(LeaseId))
    }

    pub fn entry(&mut self) -> CatalogResult<Entry> {
        let (key, value) = (self.key()?, self.bytes(VALUE_MAX)?.to_vec());
        let (created, modified) = (self.u64()?, self.u64()?);
        if created > modified {
            return Err(broken(format!("'{key}' was changed at {modified} and made at {created}")));
        }
        Ok(Entry { key, value, created, modified, lease: self.lease()? })
    }

    pub fn event(&mut self) -> CatalogResult<Event> {
        match self.u8()? {
            1 => Ok(Event::Put(self.entry()?)),
            2 => Ok(Event::Deleted { key: self.key()?, revision: self.u64()? }),
            other => Err(broken(format!("event {other}"))),
        }
    }

    pub fn operation(&mut self) -> CatalogResult<Operation> {
        match self.u8()? {
            1 => Ok(Operation::Put { key: self.key()?, value: self.bytes(VALUE_MAX)?.to_vec(), lease: self.lease()? }),
            2 => Ok(Operation::Delete { key: self.key()? }),
            other => Err(broken(format!("operation {other}"))),
        }
    }

    pub fn operations(&mut self) -> CatalogResult<Vec<Operation>> {
        (0..self.count(COMMIT_MAX)?).map(|_| self.operation()).collect()
    }

    /// Checks that all bytes were read.
    pub fn end(self) -> CatalogResult<()> {
        if self.0.is_empty() { Ok(()) } else { Err(broken(format!("{} bytes too many", self.0.len()))) }
    }
}

fn broken(why: String) -> CatalogError {
    CatalogError::Broken(why)
}

//! A pool as one process sees it: the mapping, and the positions of all parts in it.
//!
//! The publisher writes through this mapping. The mapping of an observer is read-only, and the values that an observer
//! loads are unchecked.

use crossdock_layout::series::{
    AtomicU64, AttributeEntry, ConstantEntry, Counts, Extent, Geometry, RecordHead, SERIES_FINGERPRINT, SERIES_MAGIC,
    SERIES_READY, SeriesHeader, StructSizes, ValueField, VariableEntry,
};
use crossdock_layout::{LAYOUT_VERSION, Status};
use crossdock_os::Mapping;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::value::{Kind, Value};
use crate::{Error, Result};

pub(super) struct Pool {
    mapping: Mapping,
    geometry: Geometry,
}

impl Pool {
    /// Makes the `Pool` of a publisher. The mapping is as long as this geometry needs.
    pub fn new(mapping: Mapping, geometry: Geometry) -> Self {
        assert!(mapping.length() as u64 >= geometry.size, "the mapping is made for the geometry");
        Self { mapping, geometry }
    }

    /// Makes the `Pool` of an observer. Checks the header in the memory that the observer was given.
    pub fn open(mapping: Mapping, size: u64) -> Result<Self> {
        let bad = |status, what: &str| Err(Error::new(status, what.to_owned()));
        if mapping.length() < size_of::<SeriesHeader>() || mapping.length() as u64 != size {
            return bad(Status::Corrupt, "its pool is too small for a header");
        }
        // SAFETY: the memory is at least as long as a header, page-aligned, and mapped for as long as `mapping`; all
        // fields of a header are atomics.
        let identity = unsafe { &mapping.start().cast::<SeriesHeader>().as_ref().identity };
        if identity.init.load(Acquire) != SERIES_READY || identity.magic.load(Relaxed) != SERIES_MAGIC {
            return bad(Status::Corrupt, "its pool has no series header");
        }
        let (version, print) = (identity.version.load(Relaxed), identity.fingerprint.load(Relaxed));
        if (version, print) != (LAYOUT_VERSION, SERIES_FINGERPRINT) {
            let text = format!(
                "published by a build with memory layout {version} ({print:08x}), this one has {LAYOUT_VERSION} \
                 ({SERIES_FINGERPRINT:08x}); use one version of crossdock in all tasks"
            );
            return bad(Status::Incompatible, &text);
        }
        match Counts::read(identity).and_then(Geometry::of).filter(|g| g.size <= size) {
            Some(geometry) => Ok(Self { mapping, geometry }),
            None => bad(Status::Corrupt, "its header describes a pool that does not fit into its memory"),
        }
    }

    pub fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The size of a chunk in bytes.
    pub fn chunk(&self) -> usize {
        self.geometry.counts.chunk as usize
    }

    fn part<T>(&self, offset: u64) -> &T {
        let address = self.mapping.at(offset, size_of::<T>() as u64).expect("the geometry lies within the mapping");
        let address = address.cast::<T>();
        assert!(address.is_aligned());
        // SAFETY: the address is aligned and within the mapping, which lasts as long as `self`. The callers, which
        // are private, use only types T that are made of atomics.
        unsafe { address.as_ref() }
    }

    pub fn header(&self) -> &SeriesHeader {
        self.part(0)
    }

    pub fn variable(&self, index: u32) -> &VariableEntry {
        debug_assert!(index < self.geometry.counts.variables);
        self.part(self.geometry.variables_at + u64::from(index) * StructSizes::VARIABLE)
    }

    pub fn attribute(&self, index: u32) -> &AttributeEntry {
        debug_assert!(index < self.geometry.counts.attributes);
        self.part(self.geometry.attributes_at + u64::from(index) * StructSizes::ATTRIBUTE)
    }

    pub fn constant(&self, index: u32) -> &ConstantEntry {
        debug_assert!(index < self.geometry.counts.constants);
        self.part(self.geometry.constants_at + u64::from(index) * StructSizes::CONSTANT)
    }

    pub fn record(&self, index: u32) -> &RecordHead {
        assert!(index < self.geometry.counts.records);
        self.part(self.geometry.record(index))
    }

    pub fn value(&self, record: u32, index: u32) -> &ValueField {
        debug_assert!(record < self.geometry.counts.records && index < self.geometry.counts.attributes);
        let at = self.geometry.record(record) + size_of::<RecordHead>() as u64;
        self.part(at + u64::from(index) * StructSizes::VALUE)
    }

    pub fn extent(&self, record: u32, variable: u32) -> &Extent {
        debug_assert!(record < self.geometry.counts.records && variable < self.geometry.counts.variables);
        self.part(self.geometry.record(record) + self.geometry.extents_at + u64::from(variable) * StructSizes::EXTENT)
    }

    /// Writes a record's slot table. Only the publisher calls this, for a record that no observer reads yet.
    pub fn write_table(&self, record: u32, table: &[u32]) {
        let at = self.geometry.record(record) + self.geometry.table_at;
        crate::shared_access::copy_in(&self.mapping, at, table).expect("the geometry lies within the mapping");
    }

    /// Copies a record's slot table out of the pool. The caller checks the slot numbers.
    pub fn read_table(&self, record: u32, table: &mut [u32]) {
        assert!(table.len() <= self.geometry.counts.chunks as usize);
        let at = self.geometry.record(record) + self.geometry.table_at;
        crate::shared_access::copy_out(&self.mapping, at, table).expect("the geometry lies within the mapping");
    }

    /// The address of a slot in this process.
    pub fn slot(&self, slot: u32) -> *mut u8 {
        assert!(slot < self.geometry.counts.slots);
        let chunk = u64::from(self.geometry.counts.chunk);
        let at = self.mapping.at(self.geometry.slot(slot), chunk).expect("the geometry lies within the mapping");
        at.as_ptr()
    }
}

/// Stores a text, shortened so that a zero byte fits behind it.
pub(super) fn store_text(words: &[AtomicU64], text: &str) {
    for (n, word) in words.iter().enumerate() {
        let mut bytes = [0; 8];
        let from = text.as_bytes().get(8 * n..).unwrap_or_default();
        let length = from.len().min(8);
        bytes[..length].copy_from_slice(&from[..length]);
        word.store(u64::from_le_bytes(bytes), Relaxed);
    }
}

/// Gives the bytes of a text field up to its first zero. They are unchecked.
pub(super) fn load_bytes(words: &[AtomicU64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.load(Relaxed).to_le_bytes()).take_while(|byte| *byte != 0).collect()
}

pub(super) fn store_value(field: &ValueField, value: &Value) {
    let length = if let Value::Text(text) = value { text.len() as u32 } else { 8 };
    match value {
        Value::I64(n) => field.words[0].store(*n as u64, Relaxed),
        Value::U64(n) => field.words[0].store(*n, Relaxed),
        Value::F64(n) => field.words[0].store(n.to_bits(), Relaxed),
        Value::Text(text) => store_text(&field.words, text),
    }
    field.length.store(length, Relaxed);
    field.kind.store(value.kind() as u32, Release);
}

/// Reads a value. Gives `None` if the field is empty or holds what no correct publisher writes.
pub(super) fn load_value(field: &ValueField) -> Option<Value> {
    let kind = Kind::from_number(field.kind.load(Acquire))?;
    let word = field.words[0].load(Relaxed);
    match kind {
        Kind::I64 => Some(Value::I64(word as i64)),
        Kind::U64 => Some(Value::U64(word)),
        Kind::F64 => Some(Value::F64(f64::from_bits(word))),
        Kind::Text => String::from_utf8(load_bytes(&field.words)).ok().map(Value::Text),
    }
}

//! An observer's copy of a version's record. The observer copies the record out of the pool once and checks the copy.
//! After that it reads only the copy.

use std::sync::atomic::Ordering::Relaxed;

use crossdock_layout::series::NO_SLOT;
use crossdock_layout::series::state::Latest;
use crossdock_layout::wild::{Wild, read_shape};

use super::attached::Attached;
use super::describe::read_attributes;
use super::plan::Span;
use super::pool::load_value;
use super::protocol;
use super::value::Value;
use crate::Result;

/// The checked contents of a version's record, as they were when the version was pinned.
#[derive(Clone)]
pub(super) struct Record {
    pub sequence: u64,
    pub index: u32,
    pub time: u64,
    pub copied: u32,
    pub method: u32,
    pub attributes: Vec<(String, Value)>,
    /// The shape and the number of bytes of each variable.
    pub extents: Vec<(Vec<u64>, u64)>,
    /// The slots of all chunks of all variables. For each chunk that exists in this version, the slot number was
    /// checked: it is below the pool's number of slots.
    pub table: Vec<u32>,
}

impl Record {
    /// The slots of the chunks that a variable has in this version.
    pub fn slots(&self, span: &Span, variable: usize, chunk: usize) -> &[u32] {
        let chunks = (self.extents[variable].1 as usize).div_ceil(chunk);
        &self.table[span.first as usize..span.first as usize + chunks]
    }
}

impl Attached {
    /// Tells whether the pinned version still exists; it does not if the publisher has taken it back. If it exists, all
    /// that was read before this call belongs to the version.
    pub fn exists_after_reads(&self, which: Latest) -> bool {
        protocol::exists_after_reads(self.state_of(u32::from(which.record())), which.sequence())
    }
}

/// Copies a record out of the pool and checks all of it.
pub(super) fn read(attached: &Attached, which: Latest) -> Result<Record> {
    let (pool, index) = (&attached.pool, u32::from(which.record()));
    let counts = pool.geometry().counts;
    let head = pool.record(index);
    let mut table = vec![NO_SLOT; counts.chunks as usize];
    pool.read_table(index, &mut table);
    let mut extents = Vec::with_capacity(attached.spans.len());
    for (variable, span) in (0..).zip(&attached.spans) {
        let extent = pool.extent(index, variable);
        let found = read_shape(&extent.shape, Wild::new(span.extents.rank), span.extents.element, span.extents.most);
        let Some((shape, size)) = found.filter(|(_, size)| extent.bytes.load(Relaxed).is(*size)) else {
            return Err(
                attached.corrupt(format!("its version {} has a variable of impossible shape", which.sequence()))
            );
        };
        let chunks = size.div_ceil(u64::from(counts.chunk)) as u32;
        let slots = &table[span.first as usize..(span.first + chunks) as usize];
        if slots.iter().any(|slot| Wild::new(*slot).below(counts.slots).is_none()) {
            return Err(attached.corrupt(format!("its version {} has a chunk outside the pool", which.sequence())));
        }
        extents.push((shape, size));
    }
    let known = read_attributes(pool, head.attributes.load(Relaxed).clamped(counts.attributes));
    let values = (0..)
        .zip(known)
        .filter_map(|(column, attribute)| load_value(pool.value(index, column)).map(|value| (attribute.name, value)));
    Ok(Record {
        sequence: which.sequence(),
        index,
        time: head.time.load(Relaxed),
        copied: head.copied.load(Relaxed),
        method: head.method.load(Relaxed),
        attributes: values.collect(),
        extents,
        table,
    })
}

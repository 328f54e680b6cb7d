//! A replica: the copy of another node's series on this node. It has the same versions under the same numbers.
//!
//! A version arrives from the other node as a [`VersionHead`] and some chunks, in [`ChunkRun`]s. Chunks that are the
//! same as in the replica's last version are not sent. [`Replica::prepare`] makes room for the chunks, the caller fills
//! them in, and [`Replica::publish`] makes the version visible. For its observers, a replica behaves like the original
//! series. The two nodes have different observers, so each node chooses slots and retires versions for itself.
//!
//! The functions here check everything that comes from another node. They return `CORRUPT` for a version that
//! contradicts the series' description.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crossdock_layout::series::state::MAX_SEQUENCE;
use crossdock_layout::series::{Counts, NO_SLOT};
use crossdock_layout::{SegmentId, Status};

use super::copy::FreshSlots;
use super::describe::Description;
use super::observer::Observer;
use super::publish::Stamp;
use super::publisher::{EndMark, Offer, Publisher};
use super::spec::{Detect, Identity, Pages, Spec, bytes};
use super::value::Value;
use super::version::{Version, diff};
use crate::{Host, Result};

/// What a replica has to know of the series that it copies.
#[derive(Clone, PartialEq, Debug)]
pub struct Original {
    /// The variables, attributes, constants, chunk size and policy of the series.
    pub description: Description,
    /// The number of versions that are kept besides the newest.
    pub keep: u32,
    /// The largest number of observers at the same time.
    pub observers: u32,
    /// The number of slots in the pool.
    pub slots: u32,
}

/// A version of another node, without the contents of its variables.
#[derive(Clone, PartialEq, Debug)]
pub struct VersionHead {
    /// The number of the version.
    pub sequence: u64,
    /// The time of publishing, in nanoseconds since 1970.
    pub time: u64,
    /// The number of chunks that the publisher copied for this version because they had changed.
    pub copied: u32,
    /// The method by which the version's changes were found, as the number of a [`super::Method`].
    pub method: u32,
    /// The attributes that the version carries.
    pub attributes: Vec<(String, Value)>,
    /// The shape of each variable in this version.
    pub shapes: Vec<Vec<u64>>,
    /// The number of versions that the publisher has withheld so far, because its pool had no room.
    pub withheld: u64,
}

/// Chunks of one variable that follow each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChunkRun {
    /// The index of the variable in the description.
    pub variable: u32,
    /// The index of the first chunk in the variable.
    pub first: u32,
    /// The number of chunks.
    pub count: u32,
}

impl ChunkRun {
    /// The range of the variable's bytes that this run of chunks covers, if the variable has `bytes` bytes. The
    /// variable's last chunk may be only partly filled.
    #[must_use]
    pub fn range(&self, chunk: u32, bytes: u64) -> Range<u64> {
        let (chunk, first) = (u64::from(chunk), u64::from(self.first));
        let end = (first + u64::from(self.count)) * chunk;
        (first * chunk).min(bytes)..end.min(bytes)
    }
}

impl VersionHead {
    /// Makes the head of a version: everything but the contents of the version's variables. The series is on this node,
    /// and the caller sends the head to another node.
    #[must_use]
    pub fn of(version: &Version, withheld: u64) -> Self {
        let variables = &version.description().variables;
        let shape = |index: usize| version.shape_of(index).to_vec();
        Self {
            sequence: version.sequence(),
            time: version.time(),
            copied: version.copied(),
            method: version.method().map_or(u32::MAX, |method| method as u32),
            attributes: version.attributes().to_vec(),
            shapes: (0..variables.len()).map(shape).collect(),
            withheld,
        }
    }
}

/// Finds the chunks of `version` that it does not share with `former`. The result is all chunks if there is no former
/// version, or if the publisher has taken the former version back.
///
/// # Errors
/// `NOT_FOUND` if `version` was taken back, `INVALID` if the two versions are not of the same observer.
pub fn pieces(former: Option<&Version>, version: &Version) -> Result<Vec<ChunkRun>> {
    let chunk = u64::from(version.description().chunk);
    let piece = |variable: usize, range: Range<u64>| {
        let first = range.start / chunk;
        let end = range.end.min(version.bytes_length(variable)).div_ceil(chunk);
        (end > first).then(|| ChunkRun { variable: variable as u32, first: first as u32, count: (end - first) as u32 })
    };
    let changed = match former.map(|former| diff(former, version)) {
        Some(Ok(changed)) => Some(changed),
        Some(Err(error)) if error.status != Status::NotFound => return Err(error),
        _ => None,
    };
    let Some(changed) = changed else {
        let all = 0..version.description().variables.len();
        return Ok(all.filter_map(|variable| piece(variable, 0..u64::MAX)).collect());
    };
    let mut found: Vec<ChunkRun> = Vec::new();
    for (name, range) in changed {
        let Some(next) = piece(version.index(&name)?, range) else { continue };
        match found.last_mut() {
            // This range begins in the last chunk of the piece before it, or in the chunk directly behind that one. So
            // the range and the piece become one piece.
            Some(last) if last.variable == next.variable && last.first + last.count >= next.first => {
                last.count = last.count.max(next.first + next.count - last.first);
            }
            _ => found.push(next),
        }
    }
    Ok(found)
}

impl Observer {
    /// Returns what another node has to know of this series to make a replica.
    #[must_use]
    pub fn original(&self) -> Original {
        let Counts { records, observers, slots, .. } = self.counts();
        let keep = records.saturating_sub(super::plan::records(0, observers));
        Original { description: self.description().clone(), keep, observers, slots }
    }
}

/// A version of a replica that is not visible yet, with fresh slots for the chunks that were sent.
#[must_use = "publish or abandon it, or its slots are lost"]
pub struct Fresh {
    head: VersionHead,
    columns: Vec<u32>,
    record: u32,
    /// The number of bytes of each variable.
    bytes: Vec<u64>,
    taken: Vec<FreshSlots>,
    pool: Arc<super::pool::Pool>,
}

/// The publisher of a replica. It publishes the versions of another node's series on this node, under the same numbers.
/// One thread at a time may use it.
pub struct Replica {
    publisher: Publisher,
}

impl Replica {
    /// Makes the replica's pool. The caller passes the offer to the node daemon, as for a [`Publisher`].
    ///
    /// # Errors
    /// `INVALID` if no series can have the given description, `NO_SPACE` if the quota or the node's memory does not
    /// suffice, `SYSTEM` if the kernel refuses the pool or a mapping.
    pub fn create(identity: Identity, original: &Original, host: Arc<dyn Host>) -> Result<(Self, Offer)> {
        let Original { description, keep, observers, slots } = original;
        let mut variables = description.variables.clone();
        for variable in &mut variables {
            // No version has arrived yet. So the variables are empty at first, and no chunk takes memory.
            variable.max_shape.clone_from(&variable.shape);
            variable.shape.fill(0);
        }
        let spec = Spec {
            variables,
            attributes: description.attributes.clone(),
            constants: description.constants.clone(),
            capacity: Some(u64::from(*slots) * u64::from(description.chunk)),
            chunk: Some(description.chunk),
            keep: *keep,
            max_observers: *observers,
            full: description.full,
            pages: Pages::Stay,
            detect: Detect::CopyAll,
        };
        let (publisher, offer) = Publisher::create(identity, &spec, host)?;
        publisher.pool.header().identity.created.store(description.created, Relaxed);
        Ok((Self { publisher }, offer))
    }

    /// Notes the id of the segment under which the node daemon has registered the replica.
    pub fn placed(&mut self, segment: SegmentId) {
        self.publisher.placed(segment);
    }

    /// The id of the replica's segment.
    #[must_use]
    pub fn id(&self) -> SegmentId {
        self.publisher.id()
    }

    /// The number of the newest version that the replica has published; 0 before the first one.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.publisher.sequence()
    }

    /// Returns a value that can end the series while another thread is using the replica.
    pub fn end_mark(&self) -> &Arc<EndMark> {
        self.publisher.end_mark()
    }

    /// Ends the replica's series. The caller does this after the publisher of the original has ended its series, but
    /// not if that publisher has died.
    ///
    /// # Errors
    /// The errors of [`Publisher::end`].
    pub fn end(&mut self) -> Result<()> {
        self.publisher.end_mut()
    }

    /// Makes room for a version and for those chunks of it that the other node sends (`pieces`). The caller then fills
    /// in the chunks.
    ///
    /// # Errors
    /// `CORRUPT` if the version cannot follow the newest one. `NO_SPACE` if there is no room at present, because
    /// observers of this node hold old versions and the pool cannot grow. After `NO_SPACE` nothing is lost, and the
    /// caller tries again later.
    pub fn prepare(&mut self, head: VersionHead, pieces: &[ChunkRun]) -> Result<Fresh> {
        let bytes = self.check(&head, pieces)?;
        let publisher = &mut self.publisher;
        let given: Vec<_> = head.attributes.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
        let needed = pieces.iter().map(|piece| piece.count).sum();
        let record = publisher.room_for_version(needed)?;
        let columns = publisher.columns(&given)?;
        let mut taken = Vec::new();
        for piece in pieces {
            let (mut chunk, mut left) = (piece.first, piece.count);
            while left > 0 {
                let run = publisher.slots.take(left, chunk).expect("room was made for all of them");
                taken.push(FreshSlots { field: piece.variable as usize, chunk, run });
                chunk += run.count;
                left -= run.count;
            }
        }
        Ok(Fresh { head, columns, record, bytes, taken, pool: publisher.pool.clone() })
    }

    /// Makes a version visible. The caller has filled in its chunks.
    pub fn publish(&mut self, fresh: Fresh) {
        let Fresh { head, columns, record, bytes, taken, pool } = fresh;
        let publisher = &mut self.publisher;
        let chunk = pool.chunk() as u64;
        for ((field, shape), bytes) in publisher.fields.iter_mut().zip(head.shapes).zip(bytes) {
            field.shape = shape;
            field.bytes = bytes;
            field.chunks = bytes.div_ceil(chunk) as u32;
            let (now, whole) = (field.table(), field.whole_table());
            publisher.current[now.end as usize..whole.end as usize].fill(NO_SLOT);
        }
        let mut fetched = 0;
        for FreshSlots { field, chunk, run } in taken {
            let first = (publisher.fields[field].span.first + chunk) as usize;
            (0..run.count).for_each(|n| publisher.current[first + n as usize] = run.first + n);
            fetched += run.count;
        }
        let stamp = Stamp { sequence: head.sequence, time: head.time, copied: head.copied, method: head.method };
        let values: Vec<_> = head.attributes.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
        publisher.finish(record, &stamp, &columns, &values);
        publisher.count_chunks(fetched);
        publisher.counts.withheld = head.withheld;
        publisher.retire(publisher.keep);
        publisher.show();
    }

    /// Gives up a version whose chunks did not arrive.
    pub fn abandon(&mut self, fresh: Fresh) {
        fresh.taken.iter().for_each(|taken| self.publisher.slots.put_back(taken.run));
    }

    /// Checks a version that the other node sent, and that is to follow the replica's newest version. Returns the
    /// number of bytes that each variable has in the checked version.
    fn check(&self, head: &VersionHead, pieces: &[ChunkRun]) -> Result<Vec<u64>> {
        let publisher = &self.publisher;
        let wrong = |what: &str| {
            let text = format!("version {} of the other node {what}", head.sequence);
            Err(publisher.error(Status::Corrupt, text))
        };
        publisher.check_use()?;
        if head.sequence <= publisher.sequence || head.sequence > MAX_SEQUENCE {
            return wrong("has no later number than the one before");
        }
        if head.shapes.len() != publisher.fields.len() {
            return wrong("has another number of variables");
        }
        let mut sizes = Vec::with_capacity(head.shapes.len());
        for (field, shape) in publisher.fields.iter().zip(&head.shapes) {
            let fits =
                shape.len() == field.max_shape.len() && shape.iter().zip(&field.max_shape).all(|(n, most)| n <= most);
            match bytes(field.span.extents.element, shape).filter(|_| fits) {
                Some(size) => sizes.push(size),
                None => return wrong("has a variable beyond its largest shape"),
            }
        }
        // The other node must send every chunk that the replica's newest version does not have. The pieces must be in
        // ascending order, so that no chunk is sent twice.
        let chunk = publisher.pool.chunk() as u64;
        let mut at = (0, 0);
        let mut came: Vec<Range<u32>> = Vec::new();
        for piece in pieces {
            let Some(size) = sizes.get(piece.variable as usize) else { return wrong("has a piece of no variable") };
            let end = u64::from(piece.first) + u64::from(piece.count);
            if end > size.div_ceil(chunk) || piece.count == 0 || (piece.variable, piece.first) < at {
                return wrong("has a piece out of place");
            }
            at = (piece.variable, end as u32);
            let first = publisher.fields[piece.variable as usize].span.first;
            came.push(first + piece.first..first + end as u32);
        }
        let mut came = came.into_iter().peekable();
        for (field, size) in publisher.fields.iter().zip(&sizes) {
            let first = field.span.first;
            for entry in first..first + size.div_ceil(chunk) as u32 {
                while came.next_if(|range| range.end <= entry).is_some() {}
                let comes = came.peek().is_some_and(|range| range.contains(&entry));
                if !comes && publisher.current[entry as usize] == NO_SLOT {
                    return wrong("lacks a chunk");
                }
            }
        }
        Ok(sizes)
    }
}

impl Fresh {
    /// The memory of the chunks that the other node sends, for the caller to fill. The parts are in the order of the
    /// pieces. One piece may be split into several parts, but all parts together have as many bytes as all pieces.
    pub fn parts(&mut self) -> Vec<&mut [u8]> {
        let chunk = self.pool.chunk();
        let part = |taken: &FreshSlots| {
            let piece = ChunkRun { variable: 0, first: taken.chunk, count: taken.run.count };
            let range = piece.range(chunk as u32, self.bytes[taken.field]);
            let start = self.pool.slot(taken.run.first);
            // SAFETY: the range consists of slots that follow each other and are mapped for as long as the pool, which
            // `self` keeps. The slots were taken for this value alone, so no version and no other part uses them.
            unsafe { std::slice::from_raw_parts_mut(start, (range.end - range.start) as usize) }
        };
        self.taken.iter().map(part).collect()
    }
}

impl std::fmt::Debug for Replica {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Replica").field(&self.publisher).finish()
    }
}

impl std::fmt::Debug for Fresh {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fresh").field("sequence", &self.head.sequence).finish_non_exhaustive()
    }
}

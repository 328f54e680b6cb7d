//! Plans a series: computes the chunk size, each variable's positions in the slot table, and the pool's size from the
//! declaration.

use crossdock_layout::series::{Counts, Geometry, MAX_CHUNK, MAX_CHUNKS, MAX_RECORDS, MAX_SLOTS, MIN_CHUNK, PAGE};

use super::spec::{Extents, Spec, invalid};
use crate::Result;

/// A series has room for at least this many attributes. So a publish can add attributes if fewer were declared when the
/// series was made.
const SPARE_ATTRIBUTES: u32 = 16;
/// The largest number of chunks of a version, if the program leaves the choice of the chunk size to the library. Each
/// chunk may become a mapping of its own, and a process may have 65530 mappings.
const MANY_CHUNKS: u64 = 16384;

/// The largest size, in bytes, of a pool for which the program gave no capacity. Each observer maps the whole pool, and
/// the addresses of a process are limited to 128 TiB.
const MOST_ADDRESSES: u64 = 1 << 42;

/// The range of entries in a slot table that belongs to one variable.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub first: u32,
    pub chunks: u32,
    pub extents: Extents,
}

pub(super) struct Plan {
    pub geometry: Geometry,
    pub spans: Vec<Span>,
}

/// Plans a series. The caller has checked the spec.
pub(super) fn plan(name: &str, spec: &Spec) -> Result<Plan> {
    let extents = spec.variables.iter().map(|v| Extents::of(name, v)).collect::<Result<Vec<_>>>()?;
    let most: u64 = extents.iter().map(|e| e.most).sum();
    let chunk = match spec.chunk {
        Some(chunk) if chunk.is_power_of_two() && (MIN_CHUNK..=MAX_CHUNK).contains(&chunk) => chunk,
        Some(chunk) => {
            let range = "a power of two from 4096 to 2097152";
            return Err(invalid(name, format!("a chunk of {chunk} bytes; it must be {range}")));
        }
        None => choose_chunk(most),
    };
    let mut spans = Vec::new();
    let mut first = 0u64;
    for extents in extents {
        let chunks = extents.most.div_ceil(u64::from(chunk));
        spans.push(Span { first: first as u32, chunks: chunks as u32, extents });
        first += chunks;
        if first > u64::from(MAX_CHUNKS) {
            let text = format!("more than {MAX_CHUNKS} chunks of {chunk} bytes; give it larger chunks");
            return Err(invalid(name, text));
        }
    }
    let chunks = first.max(1);
    let records = records(spec.keep, spec.max_observers);
    // The pool gets addresses for the worst case: no two versions share a chunk, and the version table is full.
    // Addresses cost nothing, and memory is taken only as it is used, up to the quota.
    let most_slots = chunks.saturating_mul(u64::from(records)).min(u64::from(MAX_SLOTS));
    let slots = match spec.capacity {
        None => most_slots.min((MOST_ADDRESSES / u64::from(chunk)).max(chunks)),
        Some(capacity) => (capacity / u64::from(chunk)).min(u64::from(MAX_SLOTS)),
    };
    let kept = u64::from(spec.keep).saturating_add(2);
    if spec.keep.saturating_add(3) > records || (spec.capacity.is_none() && chunks.saturating_mul(kept) > slots) {
        let most = (slots / chunks).min(u64::from(records)).saturating_sub(2);
        let text = format!("keep = {}; with chunks of {chunk} bytes at most {most} versions can be kept", spec.keep);
        return Err(invalid(name, format!("{text}, give it larger chunks or keep fewer")));
    }
    if slots < chunks {
        let least = chunks * u64::from(chunk);
        let text = format!("a capacity of {} bytes does not hold one version of {least}", spec.capacity.unwrap_or(0));
        return Err(invalid(name, format!("{text}; give it twice that or more")));
    }
    let counts = Counts {
        chunk,
        variables: spec.variables.len() as u32,
        attributes: (spec.attributes.len() as u32).max(SPARE_ATTRIBUTES),
        constants: (spec.constants.len() + spec.variables.iter().map(|v| v.constants.len()).sum::<usize>()) as u32,
        records,
        chunks: chunks as u32,
        slots: slots as u32,
        observers: spec.max_observers,
    };
    let geometry = Geometry::of(counts)
        .ok_or_else(|| invalid(name, format!("{} observers; 1 to 1024 are allowed", spec.max_observers)))?;
    Ok(Plan { geometry, spans })
}

/// The number of records in the version table.
pub(super) fn records(keep: u32, observers: u32) -> u32 {
    let held = observers.saturating_mul(2).saturating_add(16);
    keep.saturating_add(held).saturating_add(3).min(MAX_RECORDS)
}

/// Chooses the chunk size. Small data get small chunks. Large data get chunks that are just large enough to keep the
/// number of chunks within [`MANY_CHUNKS`].
fn choose_chunk(most: u64) -> u32 {
    match most {
        0..=0x1_0000 => MIN_CHUNK,
        0x1_0001..=0x10_0000 => 16384,
        _ => most.div_ceil(MANY_CHUNKS).next_power_of_two().clamp(65536, u64::from(MAX_CHUNK)) as u32,
    }
}

/// The number of bytes at the beginning of the pool that are reserved before the first slot: header, description and
/// records.
pub(super) fn metadata_bytes(geometry: &Geometry) -> u64 {
    geometry.record(geometry.counts.records).next_multiple_of(PAGE)
}

#[cfg(test)]
mod tests {
    use super::super::spec::Variable;
    use super::*;
    use crossdock_layout::Status;

    fn planned(bytes: u64) -> Plan {
        plan("s", &Spec::of(vec![Variable::new("u", "u8", &[bytes])])).unwrap()
    }

    #[test]
    fn chunks_grow_with_the_data_and_stay_few_enough_to_be_mapped() {
        for (bytes, chunk) in
            [(1, 4096), (1 << 16, 4096), (1 << 20, 16384), (1 << 26, 65536), (1 << 30, 65536), (1 << 34, 1 << 20)]
        {
            let counts = planned(bytes).geometry.counts;
            assert_eq!(counts.chunk, chunk, "{bytes}");
            assert!(counts.chunks <= 16384 && counts.slots == counts.records * counts.chunks);
        }
    }

    #[test]
    fn what_is_to_be_kept_fits_or_is_refused() {
        for keep in [0, 9, 500, 3000] {
            let spec = Spec { keep, ..Spec::of(vec![Variable::new("u", "u8", &[1 << 26])]) };
            let counts = plan("s", &spec).unwrap().geometry.counts;
            assert!(u64::from(counts.slots) >= u64::from(keep + 2) * u64::from(counts.chunks), "{keep}");
            assert!(counts.records > keep + 2);
        }
        for spec in [
            Spec { keep: 4096, ..Spec::of(vec![Variable::new("u", "u8", &[1])]) },
            Spec { keep: 3000, ..Spec::of(vec![Variable::new("u", "u8", &[1 << 30])]) },
        ] {
            let error = plan("s", &spec).err().unwrap();
            assert!(error.status == Status::Invalid && error.to_string().contains("can be kept"), "{error}");
        }
    }

    #[test]
    fn variables_begin_at_chunks_of_their_own() {
        let spec = Spec::of(vec![
            Variable::new("a", "f64", &[1000]),
            Variable::new("e", "f64", &[0]),
            Variable::new("b", "i8", &[3]),
        ]);
        let spans = plan("s", &spec).unwrap().spans;
        assert_eq!([spans[0].first, spans[1].first, spans[2].first], [0, 2, 2]);
        assert_eq!([spans[0].chunks, spans[1].chunks, spans[2].chunks], [2, 0, 1]);
    }

    #[test]
    fn a_capacity_below_one_version_is_refused() {
        let mut spec = Spec::of(vec![Variable::new("a", "f64", &[1000])]);
        spec.capacity = Some(4096);
        assert_eq!(plan("s", &spec).err().unwrap().status, Status::Invalid);
        spec.capacity = Some(8192);
        assert_eq!(plan("s", &spec).unwrap().geometry.counts.slots, 2);
    }
}

//! Fuzzes regions: one member overwrites parts of the shared memory, and another member then calls all functions of the
//! region.
//!
//! Whatever the overwritten bytes are, each call must end with a result or an error. No call may crash or touch memory
//! outside the region.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crossdock_layout::{Handle, MemberId, SegmentId};
use crossdock_os::memfd;

use crate::containers::Order;
use crate::directory::{ObjectMode, TypeRef};
use crate::host::StandaloneHost;
use crate::region::{Region, RegionParts};
use crate::{Error, Result};

const SIZE: u64 = 1 << 20;
const NAMES: [&str; 4] = ["plain", "vector", "nested", "array"];

/// The two members that use the region. Both count as alive, so a lock that names one of them is never taken over.
static MEMBERS: [MemberId; 2] = [MemberId::new(1, 1), MemberId::new(2, 2)];

/// Makes a region with a few objects of each kind, overwrites words in it as `data` says, and calls all functions of
/// the region's interface.
///
/// Each eight bytes of `data` say which word is overwritten, and with which value. The low 24 bits are the word's
/// position: within the tables, or anywhere in the region if bit 23 is set. The other bits are the value.
pub fn fuzz_entry(data: &[u8]) {
    // An error is ignored here, because a lack of memory is not a fault of the code.
    let _ = run(data);
}

fn run(data: &[u8]) -> Result<()> {
    let system = |e: crossdock_os::OsError| Error::new(crossdock_layout::Status::System, e.to_string());
    let segment = memfd::create("crossdock-fuzz", SIZE).map_err(system)?;
    let attach = |member| {
        let descriptor =
            segment.try_clone().map_err(|e| Error::new(crossdock_layout::Status::System, e.to_string()))?;
        Region::attach(RegionParts {
            name: "fuzz".into(),
            segment: SegmentId(1),
            descriptor: descriptor.into(),
            size: SIZE,
            writable: true,
            member,
            host: Arc::new(StandaloneHost::with(&MEMBERS)),
        })
    };
    let first = attach(MEMBERS[0])?;
    let blocks = fill(&first)?;
    scribble(&first, data);
    // The overwritten lock may name a living member, which never releases it. Each call would wait some seconds for
    // the lock. Such a wait is no fault of the code, so the lock is released here.
    let holder = &first.memory.header().lock.holder;
    if MEMBERS.iter().any(|member| member.0 == holder.load(Ordering::Relaxed)) {
        holder.store(0, Ordering::Relaxed);
    }
    let words: Vec<u64> = data.chunks_exact(8).map(word).collect();
    use_all(&first, &blocks, &words);
    if let Ok(second) = attach(MEMBERS[1]) {
        use_all(&second, &blocks, &words);
    }
    use_all(&first, &blocks, &words);
    Ok(())
}

fn word(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

fn types() -> Vec<TypeRef> {
    let names = ["f64[20]", "vector<f64>", "{i64,vector<vector<f32>>,string}", "ndarray<f64>"];
    names.iter().filter_map(|name| TypeRef::new(name).ok()).collect()
}

fn fill(region: &Arc<Region>) -> Result<Vec<u64>> {
    let mut blocks = Vec::new();
    for size in [32, 100, 100, 1000, 70_000] {
        blocks.push(region.allocate(size, 16)?);
    }
    for (name, ty) in NAMES.iter().zip(types()) {
        let claim = region.claim(name, &ty, ObjectMode::CreateOnly, Some(Duration::ZERO))?;
        match *name {
            "vector" => region.vector_resize(claim.offset, 8, 30)?,
            "nested" => region.vector_resize(claim.offset + 8, 32, 3)?,
            "array" => region.ndarray_reshape(claim.offset, 8, Order::C, &[3, 5])?,
            _ => {}
        }
        region.commit(claim.offset)?;
        blocks.push(claim.offset);
    }
    blocks.push(region.prepare(200, 64)?);
    Ok(blocks)
}

fn scribble(region: &Region, data: &[u8]) {
    let tables = region.memory.geometry().data_at;
    for chunk in data.chunks_exact(8) {
        let (place, value) = (word(&chunk[..3]), word(&chunk[3..]));
        let reach = if place >> 23 == 1 { SIZE } else { tables };
        let at = place % (reach - 8);
        // The five bytes of the value are used as they are if the value is even. If it is odd, the upper three bytes of
        // the word become 0xff.
        let value = if value & 1 == 0 { value } else { value | u64::MAX << 40 };
        // SAFETY: the word lies within the mapping, and no other thread of this process uses the mapping.
        unsafe { region.base().add(at as usize).cast::<u64>().write_unaligned(value) };
    }
}

fn use_all(region: &Arc<Region>, blocks: &[u64], words: &[u64]) {
    let _ = region.statistics();
    let _ = region.objects();
    for name in NAMES {
        let _ = region.find(name);
    }
    for &offset in blocks.iter().chain(words.iter().take(16)) {
        let _ = region.load(Handle { segment: 1, offset }, None);
        let _ = region.save(offset);
        let _ = region.block_size(offset);
    }
    let _ = region.heal();
    let mut taken = Vec::new();
    for size in [20, 64, 64, 500, 5000, 40_000, 100_000] {
        taken.extend(region.allocate(size, 16));
    }
    for (name, ty) in NAMES.iter().zip(types()) {
        if let Ok(claim) = region.claim(name, &ty, ObjectMode::OpenOrCreate, Some(Duration::ZERO)) {
            let _ = region.vector_resize(claim.offset, 8, 50);
            let _ = region.vector_resize(claim.offset + 8, 32, 5);
            let _ = region.ndarray_reshape(claim.offset, 8, Order::Fortran, &[4, 40]);
            if claim.created {
                let _ = region.commit(claim.offset);
            }
        }
    }
    for name in ["nested", "vector", "fresh"] {
        let _ = region.remove(name);
        let ty = TypeRef { name: "i64".into(), size: 8, align: 8 };
        if let Ok(claim) = region.claim(name, &ty, ObjectMode::CreateOnly, Some(Duration::ZERO)) {
            let _ = region.abandon(claim.offset);
        }
    }
    if let Ok(block) = region.prepare(300, 16) {
        let header = blocks.first().copied().unwrap_or(0);
        let _ = region.replace(header, &[1, 2, 3], block, blocks.get(1).copied().unwrap_or(0));
    }
    for &offset in blocks.iter().chain(&taken).chain(words.iter().take(16)) {
        let _ = region.deallocate(offset);
    }
    for _ in 0..100 {
        taken.extend(region.allocate(48, 16));
    }
    let _ = region.heal();
    let _ = region.statistics();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossdock_os::testing::Random;
    use std::time::Instant;

    #[test]
    fn scribbled_tables_give_errors_and_neither_crashes_nor_endless_loops() {
        let start = Instant::now();
        let mut random = Random(1);
        let mut rounds = 0;
        while rounds < 300 || (start.elapsed() < Duration::from_secs(3) && rounds < 2000) {
            let scribbles = random.below(200);
            let data: Vec<u8> = (0..scribbles).flat_map(|_| random.number().to_le_bytes()).collect();
            let begun = Instant::now();
            fuzz_entry(&data);
            assert!(begun.elapsed() < Duration::from_secs(5), "a call took {:?}", begun.elapsed());
            rounds += 1;
        }
    }

    #[test]
    fn every_word_of_the_header_may_be_anything() {
        for at in (0..256u64).step_by(8) {
            for value in [0, 1, 2, 0x7fff_ffff, 0xff_ffff_ffff] {
                let scribble = at | value << 24;
                fuzz_entry(&scribble.to_le_bytes());
            }
        }
    }
}

//! Makes room in the pool for the next version: uses free slots, retires versions, lets the pool grow, and at last
//! applies the policy for a full pool.
//!
//! The publisher tries four steps, one after the other, until enough slots are free. First it retires versions that no
//! observer holds, except the `keep` newest of them. Then it lets the pool grow, up to the capacity, the quota and the
//! limit of this process's cgroup. Then it also retires the kept versions that no observer holds. At last it applies
//! the policy. The publisher never waits for an observer.

use crossdock_layout::Status;
use crossdock_layout::series::HUGE;
use crossdock_layout::wire::SegmentKind;
use crossdock_os::{Access, cgroup, memfd};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use super::protocol;
use super::publisher::Publisher;
use super::spec::FullPolicy;
use crate::{Error, Result, fault_point};

/// How many slots a large pool takes as a reserve when it grows: at most one for every `SPARE` slots that it has.
const SPARE: u32 = 64;
/// How long the publisher waits before it tries again to grow the pool after a failure: this many times the duration of
/// the failed attempt. So a full quota, or a daemon that is away, costs at most two per cent of the publisher's time.
const REST: u32 = 50;
/// The longest time that the publisher waits before it tries again to grow the pool after a failure.
const LONGEST_REST: Duration = Duration::from_secs(5);

impl Publisher {
    /// Makes room for a version that needs this many fresh slots, and gives a free record for it.
    ///
    /// # Errors
    /// `NO_SPACE` if the pool cannot grow and the policy does not free slots. After any other error, this publisher
    /// can publish nothing any more.
    pub(super) fn room_for_version(&mut self, own: u32) -> Result<u32> {
        self.make_room(own)?;
        self.free_record()
    }

    /// Makes sure that this many slots are free.
    pub(super) fn make_room(&mut self, needed: u32) -> Result<()> {
        if let Some(broken) = &self.broken {
            return Err(broken.clone());
        }
        if self.slots.free_count() >= needed {
            return Ok(());
        }
        self.retire(self.keep);
        let Some(lacking) = self.lacking(needed) else { return Ok(()) };
        let Err(mut why) = self.grow_after_rest(lacking) else { return Ok(()) };
        self.retire(0);
        // Retiring may have freed some slots, so fewer slots are missing now. The pool may be able to grow by this
        // smaller number.
        if let Some(rest) = self.lacking(needed).filter(|rest| *rest < lacking) {
            match self.grow(rest) {
                Ok(()) => return Ok(()),
                Err(again) => why = again,
            }
        }
        while self.lacking(needed).is_some() {
            if self.full != FullPolicy::TakeBack || !self.take_back_oldest() {
                return Err(self.no_room(needed, why));
            }
        }
        Ok(())
    }

    fn lacking(&self, needed: u32) -> Option<u32> {
        let free = self.slots.free_count();
        (free < needed).then(|| needed - free)
    }

    /// Finds a free record for the next version, if necessary by retiring versions.
    fn free_record(&mut self) -> Result<u32> {
        for attempt in 0..3 {
            if let Some(free) = self.records.iter().position(|sequence| *sequence == 0) {
                return Ok(free as u32);
            }
            match attempt {
                0 => self.retire(self.keep),
                _ => self.retire(0),
            }
        }
        while self.full == FullPolicy::TakeBack && self.take_back_oldest() {
            if let Some(free) = self.records.iter().position(|sequence| *sequence == 0) {
                return Ok(free as u32);
            }
        }
        let why = format!("its table holds {} versions", self.records.len());
        Err(self.no_room(0, Error::new(Status::NoSpace, why)))
    }

    /// Grows the pool by `more` slots, unless an attempt to grow it failed a short time ago.
    fn grow_after_rest(&mut self, more: u32) -> Result<()> {
        if let Some((until, why)) = &self.growth
            && Instant::now() < *until
        {
            return Err(why.clone());
        }
        let started = Instant::now();
        let grown = self.grow(more);
        self.growth = grown.as_ref().err().map(|why| {
            let rest = (started.elapsed() * REST).min(LONGEST_REST);
            (Instant::now() + rest, why.clone())
        });
        grown
    }

    /// Reserves memory for `more` further slots, within the capacity, the quota and the cgroup's limit. If one of
    /// these limits is reached, the error says which.
    pub(super) fn grow(&mut self, more: u32) -> Result<()> {
        if more == 0 {
            return Ok(());
        }
        let geometry = *self.pool.geometry();
        let (committed, chunk) = (self.slots.committed(), u64::from(geometry.counts.chunk));
        let left = geometry.counts.slots - committed;
        if more > left {
            let capacity = u64::from(geometry.counts.slots) * chunk;
            return Err(Error::new(Status::NoSpace, format!("its capacity of {capacity} bytes is used up")));
        }
        // An observer maps a huge page with one page fault instead of 512. So a pool grows by whole huge pages if the
        // quota allows it, and a large pool also takes a few slots as a reserve. A pool that would fill less than half
        // of its first huge page grows only by the slots that it needs. So a pool never has more than twice the memory
        // that it needs.
        let per_huge = self.slots.per_huge();
        let whole = (committed + more + committed / SPARE).next_multiple_of(per_huge);
        let generous = whole.min(geometry.counts.slots) - committed;
        let fills_half = per_huge > 1 && u64::from(committed + more) * chunk >= HUGE / 2;
        if fills_half && generous > more && self.add_slots(generous).is_ok() {
            return Ok(());
        }
        self.add_slots(more)
    }

    /// Adds exactly `more` slots to the pool. The pool's capacity has room for them.
    fn add_slots(&mut self, more: u32) -> Result<()> {
        let geometry = *self.pool.geometry();
        let (at, length) = (geometry.slot(self.slots.committed()), u64::from(more) * u64::from(geometry.counts.chunk));
        // `host.reserve` counts the bytes against the quota. If the kernel then refuses the memory, the bytes stay
        // counted. The argument of `host.reserve` is the total and not the increase, so a later attempt does not count
        // the bytes twice.
        let total = self.counts.reserved + length;
        self.host.reserve(total)?;
        let mapping = self.pool.mapping();
        let full = |e| {
            let text = format!("no memory is left ({e}); end other tasks or remove objects");
            Error::new(Status::NoSpace, text)
        };
        let pool = self.descriptor.proved().map_err(|e| Error::os(&e))?;
        if length >= HUGE {
            mapping.take_huge_pages(pool, at, length);
        }
        memfd::reserve(pool, at, length).map_err(full)?;
        fault_point!("series.grow.reserved");
        let block = at / HUGE * HUGE;
        if block >= geometry.slot(0) && block < at && at + length >= block + HUGE && cgroup::check(HUGE).is_ok() {
            // The pool had a part of this huge page, in small pages, and has now got the rest.
            mapping.collapse(block, HUGE);
        }
        mapping.populate(at, length, Access::ReadWrite);
        self.slots.commit(more);
        self.counts.reserved = total;
        Ok(())
    }

    /// Retires versions that no observer holds, except the newest and the `keep` versions before it.
    pub(super) fn retire(&mut self, keep: u32) {
        if self.broken.is_some() {
            return;
        }
        self.free_kept_slots();
        let mut old: Vec<(u64, u32)> = (0..)
            .zip(&self.records)
            .filter(|(_, sequence)| **sequence != 0 && **sequence != self.sequence)
            .map(|(record, sequence)| (*sequence, record))
            .collect();
        if old.len() <= keep as usize {
            return;
        }
        old.sort_unstable();
        old.truncate(old.len() - keep as usize);
        // The lines below mark versions as ones that may be recycled. Before that, the pins are read, and the versions
        // that an observer holds are not marked at all. If such a version were marked, another observer that pins the
        // version at that moment would have to try again.
        if !self.pins.update(&*self.host) {
            // An observer may have pinned a version in a pin page that this publisher does not have. So nothing is
            // retired.
            return;
        }
        let pins = self.pins.held();
        old.retain(|(sequence, _)| pins.binary_search(sequence).is_err());
        if old.is_empty() || !self.note_children() {
            return;
        }
        for (sequence, record) in &old {
            protocol::mark(&self.pool.record(*record).state, *sequence);
        }
        fault_point!("series.retire.marked");
        protocol::retire_fence();
        // A new observer may have come after the publisher asked for the pin pages, and may have a page that the
        // publisher does not know. That observer may hold any of these versions. So if there is an unknown page, all of
        // these versions count as held.
        let known = self.pins.is_complete(&*self.host);
        let pins = self.pins.held();
        for (sequence, record) in old {
            let held = !known || pins.binary_search(&sequence).is_ok();
            protocol::settle(&self.pool.record(record).state, sequence, held);
            if !held {
                self.recycle(record);
            }
        }
        fault_point!("series.retire.freed");
        protocol::retire_fence();
    }

    /// Frees a record, and those of its slots that no other version uses and no forked child may have mapped. Only this
    /// process can write the record, so the slot numbers in it can be trusted.
    fn recycle(&mut self, record: u32) {
        let mut table = std::mem::take(&mut self.scratch);
        self.pool.read_table(record, &mut table);
        let committed = self.slots.committed();
        let of_version = table.iter().copied().filter(|slot| *slot < committed);
        self.children.keep(self.records[record as usize], of_version.clone(), &mut self.slots);
        of_version.for_each(|slot| self.slots.let_go(slot));
        self.scratch = table;
        self.records[record as usize] = 0;
    }

    /// Takes the oldest version back from the observers that hold it. Returns `false` if there is no version except the
    /// newest, or if the publisher cannot find out which slots forked children have mapped. Only the policy `TakeBack`
    /// uses this function. Under this policy observers read private copies. The observers learn that the version is
    /// gone when they next ask for its data.
    fn take_back_oldest(&mut self) -> bool {
        let oldest = (0..).zip(&self.records).filter(|(_, sequence)| **sequence != 0 && **sequence != self.sequence);
        let Some((record, sequence)) = oldest.min_by_key(|(_, sequence)| **sequence).map(|(r, s)| (r, *s)) else {
            return false;
        };
        if !self.note_children() {
            return false;
        }
        protocol::settle(&self.pool.record(record).state, sequence, false);
        protocol::retire_fence();
        fault_point!("series.retire.taken_back");
        self.recycle(record);
        self.counts.taken_back += 1;
        true
    }

    /// Makes the error that says why there is no room, and which observers hold old versions.
    #[cold]
    fn no_room(&self, needed: u32, why: Error) -> Error {
        let newest = self.sequence;
        let mut held: Vec<String> = Vec::new();
        for (index, pins) in self.pins.slots().enumerate() {
            let of_slot = pins.iter().map(|pin| pin.load(Relaxed));
            let mut own: Vec<u64> =
                of_slot.filter(|pin| *pin != newest && self.records.contains(pin) && *pin != 0).collect();
            own.sort_unstable();
            if let Some(oldest) = own.first() {
                held.push(format!("observer {index} holds {} old version(s), the oldest is {oldest}", own.len()));
            }
        }
        let who = match held.len() {
            0 => "no observer holds an old version".to_owned(),
            1..=3 => held.join("; "),
            more => format!("{}; and {} more", held[..3].join("; "), more - 3),
        };
        let who = match self.children.keep_slots() {
            true => format!("{who}; a forked child of this process may still read old versions"),
            false => who,
        };
        let bytes = u64::from(needed) * self.pool.chunk() as u64;
        let hint = "give it more capacity or quota, or let observers release versions";
        let error = why.during(format!("no room for {bytes} changed bytes")).with_status(Status::NoSpace);
        error.with_peer(format!("{who}; {hint}")).about(SegmentKind::Series, &self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Identity, Publisher, Spec, Variable};
    use super::HUGE;
    use crate::host::StandaloneHost;
    use std::sync::Arc;

    fn publisher(spec: &Spec) -> Publisher {
        Publisher::create(Identity::alone("s"), spec, Arc::new(StandaloneHost::default())).unwrap().0
    }

    /// The number of bytes that are mapped by huge pages in the mapping of shared memory to which the address belongs.
    fn in_huge_pages(address: usize) -> u64 {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let of_mapping = maps.lines().skip_while(|line| {
            let ends = line.split(' ').next().and_then(|range| range.split_once('-'));
            let [start, end] = [ends.map(|ends| ends.0), ends.map(|ends| ends.1)]
                .map(|end| end.and_then(|end| usize::from_str_radix(end, 16).ok()).unwrap_or(usize::MAX));
            !(start <= address && address < end)
        });
        let line = of_mapping.skip(1).find(|line| line.starts_with("ShmemPmdMapped:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
    }

    #[test]
    fn a_pool_that_has_grown_in_small_pages_gets_a_huge_page_and_keeps_its_bytes() {
        let memory = crossdock_os::memfd::create("crossdock-test", HUGE).unwrap();
        let mapping =
            crossdock_os::Mapping::for_huge_pages(&memory, HUGE as usize, crossdock_os::Access::ReadWrite).unwrap();
        mapping.take_huge_pages(&memory, 0, HUGE);
        if in_huge_pages(mapping.start().as_ptr() as usize) != HUGE {
            return crossdock_os::testing::skip("huge-pages");
        }
        let variable = Variable::new("u", "u64", &[1 << 15]);
        let mut publisher = publisher(&Spec { chunk: Some(65536), keep: 4, ..Spec::of(vec![variable]) });
        for step in 1..=5 {
            publisher.elements::<u64>("u").unwrap().fill(step);
            publisher.publish(&[]).unwrap();
        }
        let pool = &publisher.pool;
        assert_eq!(u64::from(publisher.slots.committed()) * pool.chunk() as u64, HUGE);
        assert_eq!(in_huge_pages(pool.slot(0) as usize), HUGE);
        let mut table = vec![0; pool.geometry().counts.chunks as usize];
        for (record, sequence) in publisher.records.iter().enumerate().filter(|(_, sequence)| **sequence != 0) {
            pool.read_table(record as u32, &mut table);
            for slot in &table {
                // SAFETY: the slot belongs to a version, so no code writes to it.
                let words = unsafe { std::slice::from_raw_parts(pool.slot(*slot).cast::<u64>(), pool.chunk() / 8) };
                assert!(words.iter().all(|word| word == sequence), "version {sequence}");
            }
        }
    }

    #[cfg(feature = "faults")]
    #[test]
    fn a_pool_whose_growth_by_whole_huge_pages_fails_gets_the_slots_that_it_needs() {
        let mut grown_by = Vec::new();
        crossdock_os::faults::each_call_fails(|attempt| {
            let mut publisher =
                publisher(&Spec { chunk: Some(65536), ..Spec::of(vec![Variable::new("u", "u64", &[3 << 17])]) });
            let before = publisher.slots.committed();
            attempt.arm();
            let grown = publisher.grow(3);
            let failed = attempt.disarm();
            if matches!(failed, Some(("fallocate", _))) {
                assert!(grown.is_ok(), "{failed:?}: {grown:?}");
                grown_by.push(publisher.slots.committed() - before);
            }
        });
        assert!(grown_by.contains(&3) && grown_by.contains(&32), "{grown_by:?}");
    }
}

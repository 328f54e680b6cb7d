//! Chooses the method that finds what changed since the last version. This module knows which methods this machine
//! allows and what each method costs.
//!
//! Copying everything always works, and so does comparing everything. While everything is copied, a few chunks are
//! compared with the last version to estimate how much changes; all other methods give the exact amount. The first
//! publish copies everything. For the step after it, the publisher always tries a method that tracks writes or compares
//! data. Otherwise the second version would be a full copy too, and even a program that changes little would need
//! memory for two whole versions.
//!
//! The cost of each method per step is estimated from the amount of changes and the measured costs. The estimate
//! includes the cost of the program's first writes to pages, although they happen outside of the publish. If another
//! method is clearly cheaper than the present method for several steps in a row, the publisher switches to that method.
//!
//! The method of private copies replaces the pages at the variables' addresses. It is chosen only if the program has
//! allowed that pages move.

use std::ops::Range;

use std::sync::Arc;

use crossdock_os::pagemap::{PageFilter, PageMap};
use crossdock_os::pinned::PinnedMemory;
use crossdock_os::userfault::WriteTracker;
use crossdock_os::{OsError, OsResult};

use super::costs::{Costs, learn};
use super::spec::{Detect, Method, Pages};

/// Below this number of bytes, copying everything costs less than the system calls that could avoid a copy.
const SMALL: u64 = 256 << 10;
const PAGE: f64 = 4096.0;
/// With private copies the data are in memory once, with the other methods twice. To save this memory, the publisher
/// accepts private copies that cost up to this many times as much as write protection, if they cost far less than
/// copying everything.
const WORTH_OF_MEMORY: f64 = 3.0;
const FAR_BELOW: f64 = 0.35;
/// Comparing everything saves memory for unchanged data, and observers need not map the unchanged data again. So the
/// publisher accepts comparing that costs up to this many times as much as copying everything.
const WORTH_OF_SHARING: f64 = 2.0;
/// If more than this fraction of the chunks changes, comparing is not worth its cost.
const MOST: f64 = 0.75;

/// The fraction of the data that changes in a step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Changing {
    /// The fraction of the chunks that changes.
    pub chunks: f64,
    /// The fraction of the pages that changes.
    pub pages: f64,
}

pub(super) struct ChangeDetector {
    detect: Detect,
    pages: Pages,
    pinned: Option<Arc<PinnedMemory>>,
    /// True if this process had memory that is pinned for a device at the last search for changes, or at a later time
    /// when pages were protected. A device can write to pinned memory unnoticed.
    blind: bool,
    map: Option<Arc<PageMap>>,
    notes: Option<WriteTracker>,
    /// The methods that this machine does not have, each with the reason.
    unavailable: Vec<(Method, String)>,
    pub method: Method,
    pub costs: Costs,
    pub changing: Option<Changing>,
    /// The number of successive steps in which another method would have been better.
    better: u32,
    tried: bool,
    /// True if the present method is only a trial, because it was not known yet how much the program changes. As soon
    /// as this is known from one step, the publisher chooses the method by the estimated costs.
    trial: bool,
    pub switches: u64,
}

impl ChangeDetector {
    pub fn new(detect: Detect, pages: Pages) -> Self {
        let mut unavailable = Vec::new();
        let wants_map = matches!(detect, Detect::Auto | Detect::PrivateCopies | Detect::WriteProtect);
        let map = wants_map.then(open_map).and_then(|opened| match opened {
            Ok(map) => Some(map),
            Err(why) => {
                unavailable.push((Method::PrivateCopies, why.clone()));
                unavailable.push((Method::WriteProtect, why));
                None
            }
        });
        let wants_notes = map.is_some() && matches!(detect, Detect::Auto | Detect::WriteProtect);
        let notes = wants_notes.then(WriteTracker::open).and_then(|opened| match opened {
            Ok(notes) => Some(notes),
            Err(error) => {
                unavailable.push((Method::WriteProtect, error.to_string()));
                None
            }
        });
        let method = match detect {
            Detect::Hints => Method::Hints,
            Detect::Compare => Method::Compare,
            _ => Method::CopyAll,
        };
        Self {
            detect,
            pages,
            pinned: PinnedMemory::shared().ok().filter(|_| notes.is_some()),
            blind: false,
            map,
            notes,
            unavailable,
            method,
            costs: Costs::default(),
            changing: None,
            better: 0,
            tried: false,
            trial: false,
            switches: 0,
        }
    }

    /// Tells whether this machine has what the method needs.
    pub fn has(&self, method: Method) -> bool {
        match method {
            Method::PrivateCopies => self.map.is_some(),
            Method::WriteProtect => self.map.is_some() && self.notes.is_some(),
            _ => true,
        }
    }

    /// Tells whether the method may be chosen. Private copies also need the program's permission to move pages.
    pub fn may_use(&self, method: Method) -> bool {
        self.has(method) && (method != Method::PrivateCopies || self.pages == Pages::MayMove)
    }

    /// Tells whether a device or the kernel may have written to this process's memory since the last search, in a way
    /// that write protection does not note. The publisher calls this function after each search by write protection.
    /// Such a search also protects the pages again.
    ///
    /// There are three cases. If memory is pinned now, a device may write to this memory unnoticed. If memory was
    /// pinned when its pages were last protected, and was unpinned since, a device may have written to this memory in
    /// between. If memory was pinned only after its pages were protected, and was unpinned since, no write is missed,
    /// because pinning a page counts as a write to the page.
    pub fn has_blind_writes(&mut self) -> bool {
        let before = std::mem::take(&mut self.blind);
        self.note_pins();
        self.blind || before
    }

    /// Notes whether the kernel has pinned memory of this process for a device ([`PinnedMemory::any`]). The publisher
    /// calls this function each time after it has protected pages.
    pub fn note_pins(&mut self) {
        self.blind |= self.pinned.as_ref().is_none_or(|pinned| pinned.any());
    }

    pub fn unavailable(&self) -> &[(Method, String)] {
        &self.unavailable
    }

    /// Tells whether the publisher uses the program's hints, if the program gives any.
    pub fn detect_allows_hints(&self) -> bool {
        matches!(self.detect, Detect::Auto | Detect::Hints)
    }

    /// Tells whether the publisher compares a few chunks with the last version even when it copies all chunks. In this
    /// way it learns how much of the data changes.
    pub fn wants_samples(&self) -> bool {
        self.detect == Detect::Auto
    }

    /// Excludes a method that failed when it was used, so that the publisher does not choose it again.
    pub fn give_up(&mut self, method: Method, why: impl Into<String>) {
        if self.has(method) {
            match method {
                Method::PrivateCopies => self.map = None,
                Method::WriteProtect => self.notes = None,
                _ => return,
            }
            self.unavailable.push((method, why.into()));
        }
    }

    pub fn notes(&self) -> Option<&WriteTracker> {
        self.notes.as_ref()
    }

    /// Finds the changed pages in a range of addresses, and lists them in ascending order. The time that this search
    /// takes updates the estimated cost of a search.
    pub fn scan(&mut self, addresses: Range<usize>, method: Method, found: &mut Vec<Range<usize>>) -> OsResult<()> {
        let Some(map) = &self.map else { return Err(OsError::last("PAGEMAP_SCAN", "a series")) };
        let pages = addresses.len() as f64 / PAGE;
        let started = std::time::Instant::now();
        let (looking, cost) = match method {
            Method::WriteProtect => (PageFilter::WrittenAndProtectAgain, &mut self.costs.scan_protect),
            _ => (PageFilter::PrivateCopies, &mut self.costs.scan_private),
        };
        map.scan(addresses, looking, found)?;
        if pages >= 256.0 {
            learn(cost, started.elapsed().as_nanos() as f64 / pages);
        }
        Ok(())
    }

    /// Records how much changed in a step. The choice of the method is based on these records.
    pub fn note(&mut self, seen: Changing) {
        let average = self.changing.get_or_insert(seen);
        average.chunks = (average.chunks + seen.chunks) / 2.0;
        average.pages = (average.pages + seen.pages) / 2.0;
    }

    /// Chooses the method for the coming steps; `None` keeps the present one. The publisher calls this function after
    /// each publish. `chunks` and `bytes` are the size of a version.
    pub fn choose(&mut self, chunks: u32, bytes: u64) -> Option<Method> {
        let wanted = match self.detect {
            Detect::Auto => self.choose_by_cost(chunks, bytes)?,
            Detect::Hints => Method::Hints,
            Detect::CopyAll => Method::CopyAll,
            Detect::Compare => Method::Compare,
            Detect::PrivateCopies if self.may_use(Method::PrivateCopies) => Method::PrivateCopies,
            Detect::WriteProtect if self.has(Method::WriteProtect) => Method::WriteProtect,
            Detect::PrivateCopies | Detect::WriteProtect => Method::CopyAll,
        };
        (wanted != self.method).then_some(wanted)
    }

    fn choose_by_cost(&mut self, chunks: u32, bytes: u64) -> Option<Method> {
        if bytes < SMALL {
            return Some(Method::CopyAll);
        }
        let Some(changing) = self.changing else {
            self.trial = true;
            // It is not known yet how much the program changes, so this method is only a trial. If both methods are
            // possible, write protection is tried and not private copies: the program may write all pages, and a first
            // write to a page costs less with write protection.
            let tracking = [Method::WriteProtect, Method::PrivateCopies].into_iter().find(|way| self.may_use(*way));
            return Some(tracking.unwrap_or(Method::Compare));
        };
        if !self.tried {
            self.tried = true;
            self.costs.try_faults(self.notes.as_ref());
        }
        if self.method == Method::CopyAll {
            self.costs.fade();
        }
        let best = self.best(changing, chunks, bytes);
        if std::mem::take(&mut self.trial) {
            return Some(best.0);
        }
        let now = self.estimate(self.method, changing, chunks, bytes);
        let gains = match (self.method, best.0) {
            (was, is) if was == is => false,
            // Private copies would save memory but no time, so changing to them is not worth the cost of the change.
            (Method::WriteProtect, Method::PrivateCopies) => false,
            // Comparing saves memory, so the publisher chooses it even if it costs somewhat more time than copying
            // everything.
            (Method::CopyAll, Method::Compare) => best.1 < now * WORTH_OF_SHARING,
            // `best` prefers copying everything to comparing if nearly everything changes, or if comparing costs too
            // much. In both cases the change to copying everything is worth its cost.
            (Method::Compare, Method::CopyAll) => true,
            _ => best.1 < 0.8 * now,
        };
        self.better = if gains { self.better + 1 } else { 0 };
        // A change from copying everything to another method is cheap, so it is made after two successive steps in
        // which the other method would be better. A change back needs a copy and fresh memory, so a change from any
        // other method needs four such steps.
        let patience = if self.method == Method::CopyAll { 1 } else { 3 };
        (self.better > patience).then(|| {
            self.better = 0;
            best.0
        })
    }

    /// Finds the best method for this amount of changes. Returns the method and its cost in nanoseconds.
    fn best(&self, changing: Changing, chunks: u32, bytes: u64) -> (Method, f64) {
        let cost = |method| self.estimate(method, changing, chunks, bytes);
        let all = cost(Method::CopyAll);
        let mut best = (Method::CopyAll, all);
        let compare = cost(Method::Compare);
        // Comparing is worth its cost only if part of the data stays unchanged, because memory is saved only for
        // unchanged chunks.
        if changing.chunks < MOST && compare <= all * WORTH_OF_SHARING {
            best = (Method::Compare, compare);
        }
        if self.may_use(Method::WriteProtect) {
            let protect = cost(Method::WriteProtect);
            if protect < best.1 || (best.0 == Method::CopyAll && protect < all) {
                best = (Method::WriteProtect, protect);
            }
        }
        if self.may_use(Method::PrivateCopies) {
            let private = cost(Method::PrivateCopies);
            let frugal = private <= FAR_BELOW * all && private <= best.1 * WORTH_OF_MEMORY;
            if frugal || private < best.1 {
                best = (Method::PrivateCopies, private);
            }
        }
        best
    }

    /// Estimates how many nanoseconds a method costs in one step: the publish itself, and the time by which the
    /// method slows down the program's first writes to pages.
    pub fn estimate(&self, method: Method, changing: Changing, chunks: u32, bytes: u64) -> f64 {
        let (bytes, chunks, c) = (bytes as f64, f64::from(chunks), &self.costs);
        let pages = bytes / PAGE;
        let copied = changing.chunks * bytes * c.copy_byte;
        // A chunk that changed is compared up to its first difference. The position of this difference is not known, so
        // the estimate assumes that half of the chunk is compared.
        let compared = (1.0 - changing.chunks / 2.0) * bytes * c.compare_byte;
        match method {
            Method::PrivateCopies => {
                pages * c.scan_private
                    + changing.pages * pages * c.fault_private
                    + copied
                    + changing.chunks * chunks * c.map_run
            }
            Method::WriteProtect => {
                let blind = if self.blind { compared } else { 0.0 };
                pages * c.scan_protect + changing.pages * pages * c.fault_protect + copied + blind
            }
            Method::Compare => compared + copied,
            Method::Hints => copied,
            Method::CopyAll => bytes * c.copy_byte,
            Method::InPlace => 0.0,
        }
    }
}

/// Opens the page map. Tries its system call on one page of this function's stack, to learn whether the kernel supports
/// the call.
fn open_map() -> Result<Arc<PageMap>, String> {
    let map = PageMap::shared().map_err(|e| e.to_string())?;
    let here = (&raw const map) as usize / 4096 * 4096;
    map.scan(here..here + 4096, PageFilter::PrivateCopies, &mut Vec::new()).map_err(|e| e.to_string())?;
    Ok(map)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    /// Returns the method that the detector chooses in the end, if a program changes this much in each step. Also
    /// checks that the detector then stays with this method.
    fn settled_in(mut detector: ChangeDetector, changing: Changing, from: Method) -> Method {
        detector.tried = true;
        detector.method = from;
        let mut changes = 0;
        for _ in 0..40 {
            detector.note(changing);
            if let Some(method) = detector.choose(16384, GIB) {
                detector.method = method;
                changes += 1;
            }
        }
        assert!(changes <= 2, "{changing:?}: {changes} changes");
        detector.method
    }

    fn settled(changing: Changing, from: Method) -> Method {
        settled_in(ChangeDetector::new(Detect::Auto, Pages::MayMove), changing, from)
    }

    const ALL: Changing = Changing { chunks: 1.0, pages: 1.0 };
    const LITTLE: Changing = Changing { chunks: 0.01, pages: 0.01 };

    #[test]
    fn the_way_follows_how_much_changes() {
        let detector = ChangeDetector::new(Detect::Auto, Pages::MayMove);
        if !detector.has(Method::WriteProtect) {
            return crossdock_os::testing::skip("write-protection");
        }
        for from in [Method::CopyAll, Method::PrivateCopies, Method::WriteProtect, Method::Compare] {
            assert_eq!(settled(ALL, from), Method::CopyAll, "{from:?}");
        }
        assert_eq!(settled(LITTLE, Method::CopyAll), Method::PrivateCopies);
        let some = Changing { chunks: 0.25, pages: 0.2 };
        assert_eq!(settled(some, Method::CopyAll), Method::WriteProtect);
        assert_eq!(settled(some, Method::PrivateCopies), Method::WriteProtect);
    }

    #[test]
    fn pages_stay_unless_the_program_says_that_they_may_move() {
        for changes in 0..=20 {
            let part = f64::from(changes) / 20.0;
            for from in [Method::CopyAll, Method::WriteProtect, Method::Compare] {
                let mut detector = ChangeDetector::new(Detect::Auto, Pages::Stay);
                assert_ne!(detector.choose(16384, GIB), Some(Method::PrivateCopies), "the trial");
                detector.trial = false;
                let way = settled_in(detector, Changing { chunks: part, pages: part }, from);
                assert_ne!(way, Method::PrivateCopies, "{part}");
            }
        }
    }

    #[test]
    fn without_write_protection_little_is_compared_and_everything_is_copied() {
        let without = || {
            let mut detector = ChangeDetector::new(Detect::Auto, Pages::Stay);
            detector.give_up(Method::WriteProtect, "forbidden");
            detector
        };
        assert_eq!(without().choose(16384, GIB), Some(Method::Compare), "the trial");
        assert_eq!(settled_in(without(), LITTLE, Method::CopyAll), Method::Compare);
        assert_eq!(settled_in(without(), ALL, Method::Compare), Method::CopyAll);
    }

    #[test]
    fn what_is_written_past_the_page_tables_is_not_left_to_write_protection() {
        let mut detector = ChangeDetector::new(Detect::Auto, Pages::Stay);
        detector.blind = true;
        let cost = |method| detector.estimate(method, LITTLE, 16384, GIB);
        assert!(cost(Method::Compare) < cost(Method::WriteProtect));
    }

    #[test]
    fn what_is_not_there_is_not_chosen() {
        let mut detector = ChangeDetector::new(Detect::Auto, Pages::MayMove);
        detector.give_up(Method::WriteProtect, "forbidden");
        detector.give_up(Method::PrivateCopies, "too old");
        detector.method = Method::Compare;
        for _ in 0..10 {
            detector.note(Changing { chunks: 0.0, pages: 0.0 });
            assert_eq!(detector.choose(16384, GIB), None);
        }
        let mut forced = ChangeDetector::new(Detect::WriteProtect, Pages::Stay);
        forced.give_up(Method::WriteProtect, "forbidden");
        assert_eq!(forced.choose(16384, GIB), None, "it stays with copying everything");
    }
}

//! The measured costs on this machine, from which the method for finding changes is chosen.

use std::time::Instant;

use crossdock_os::copy::StoreMode;
use crossdock_os::memfd;
use crossdock_os::reservation::Reservation;
use crossdock_os::userfault::WriteTracker;

const PAGE: usize = 4096;
/// The number of pages that a measurement writes.
const TRIAL: usize = 32;
/// A copy of fewer bytes than this always goes through the CPU's caches, so that observers find the data in the caches.
const LARGE: usize = 4 << 20;

/// The costs of single operations, in nanoseconds. Before the first measurement, they are typical values of a
/// present-day machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// The time, in nanoseconds, for copying one byte.
    pub copy_byte: f64,
    /// The time, in nanoseconds, for comparing one byte with the last version.
    pub compare_byte: f64,
    /// The time, in nanoseconds, for finding out whether one page is a private copy.
    pub scan_private: f64,
    /// The time, in nanoseconds, for finding out whether one protected page was written, and for protecting it again.
    pub scan_protect: f64,
    /// How long the program's first write to a privately mapped page of the pool takes, in nanoseconds.
    pub fault_private: f64,
    /// How long the program's first write to a write-protected page takes, in nanoseconds.
    pub fault_protect: f64,
    /// The time, in nanoseconds, for mapping one run of chunks again.
    pub map_run: f64,
}

impl Default for Costs {
    fn default() -> Self {
        Self {
            copy_byte: 0.09,
            compare_byte: 0.09,
            scan_private: 20.0,
            scan_protect: 16.0,
            fault_private: 1900.0,
            fault_protect: 750.0,
            // 8 µs is the time for mapping a chunk again if it has private copies, which the kernel has to free.
            // Without private copies the time is 2.5 µs.
            map_run: 8000.0,
        }
    }
}

impl Costs {
    /// Moves the costs a little towards their typical values. A method that is not in use is not measured, so without
    /// this correction a few bad measurements would rule out the method for ever.
    pub(super) fn fade(&mut self) {
        let usual = Self::default();
        for (cost, usual) in [
            (&mut self.scan_private, usual.scan_private),
            (&mut self.scan_protect, usual.scan_protect),
            (&mut self.map_run, usual.map_run),
            (&mut self.compare_byte, usual.compare_byte),
        ] {
            *cost += (usual - *cost) / 16.0;
        }
    }

    /// Measures what the first write to a page costs, in a short trial that takes well under a millisecond.
    pub fn try_faults(&mut self, tracker: Option<&WriteTracker>) {
        let least = |trial: &dyn Fn() -> Option<f64>| (0..3).filter_map(|_| trial()).min_by(f64::total_cmp);
        if let Some(cost) = least(&try_private) {
            self.fault_private = cost;
        }
        if let Some(cost) = tracker.and_then(|tracker| least(&|| try_protect(tracker))) {
            self.fault_protect = cost;
        }
    }
}

/// Updates a moving average of measured times. A measured time can be far too long, because a process loses its CPU now
/// and then. So this function limits how far a single long time moves the average.
pub(super) fn learn(average: &mut f64, seen: f64) {
    if seen.is_finite() && seen > 0.0 {
        *average = (*average + seen.min(2.0 * *average)) / 2.0;
    }
}

fn touch(reservation: &Reservation) -> f64 {
    let started = Instant::now();
    for page in 0..TRIAL {
        // SAFETY: the page lies within the reservation, and the callers have mapped memory there that no other code
        // uses.
        unsafe { reservation.start().as_ptr().add(page * PAGE).write_volatile(1) };
    }
    started.elapsed().as_nanos() as f64 / TRIAL as f64
}

fn try_private() -> Option<f64> {
    let length = TRIAL * PAGE;
    let fd = memfd::create("crossdock-trial", length as u64).ok()?;
    memfd::reserve(&fd, 0, length as u64).ok()?;
    let reservation = Reservation::reserve(length).ok()?;
    reservation.put_private(0, length, &fd, 0).ok()?;
    Some(touch(&reservation))
}

fn try_protect(tracker: &WriteTracker) -> Option<f64> {
    let length = TRIAL * PAGE;
    let reservation = Reservation::reserve(length).ok()?;
    reservation.put_memory(0, length).ok()?;
    touch(&reservation);
    let start = reservation.start().as_ptr() as usize;
    tracker.watch(start, length).ok()?;
    tracker.begin(start, length).ok()?;
    Some(touch(&reservation))
}

/// Learns whether ordinary (cached) or streaming stores are faster on this machine, from the time of each copy of
/// published data.
#[derive(Debug, Default)]
pub(super) struct CopyTuner {
    /// The nanoseconds per byte of a cached and of a streaming copy; 0 before the first measurement.
    seen: [f64; 2],
    turn: u32,
}

impl CopyTuner {
    /// Chooses between a cached and a streaming copy for this many bytes in total.
    pub fn choose(&mut self, bytes: usize) -> StoreMode {
        if bytes < LARGE || !crossdock_os::copy::can_stream() {
            return StoreMode::Cached;
        }
        self.turn += 1;
        let [cached, streaming] = self.seen;
        // Each way of copying is tried twice at the beginning. Later the slower one is tried again once in 64 copies.
        let probe = self.turn <= 4 || self.turn % 64 == 0;
        match (probe, streaming < cached) {
            (true, _) if self.turn <= 4 => [StoreMode::Streaming, StoreMode::Cached][self.turn as usize % 2],
            (true, true) | (false, false) => StoreMode::Cached,
            _ => StoreMode::Streaming,
        }
    }

    /// Records how many nanoseconds a copy of this many bytes took.
    pub fn learn(&mut self, mode: StoreMode, bytes: usize, nanoseconds: f64) {
        if bytes >= LARGE {
            let seen = &mut self.seen[usize::from(mode == StoreMode::Streaming)];
            let cost = nanoseconds / bytes as f64;
            *seen = if *seen == 0.0 { cost } else { seen.min(cost) * 0.75 + cost * 0.25 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_faster_way_is_found_and_kept() {
        if !crossdock_os::copy::can_stream() {
            return crossdock_os::testing::skip("streaming-stores");
        }
        let mut tuner = CopyTuner::default();
        let mut streamed = 0;
        for turn in 0..60 {
            let mode = tuner.choose(LARGE);
            streamed += u32::from(turn >= 4 && mode == StoreMode::Streaming);
            tuner.learn(mode, LARGE, if mode == StoreMode::Streaming { 1e6 } else { 2e6 });
        }
        assert_eq!(streamed, 56);
        assert_eq!(tuner.choose(1000), StoreMode::Cached);
    }

    #[test]
    fn a_figure_far_off_is_forgotten() {
        let mut costs = Costs::default();
        let usual = costs.scan_private;
        learn(&mut costs.scan_private, 1e6);
        assert!(costs.scan_private <= 1.5 * usual);
        (0..10).for_each(|_| learn(&mut costs.scan_private, 1e6));
        assert!(costs.scan_private > 10.0 * usual, "what stays is believed");
        (0..200).for_each(|_| costs.fade());
        assert!(costs.scan_private < 1.1 * usual);
    }

    #[test]
    fn first_writes_are_measured() {
        let mut costs = Costs { fault_private: 0.0, ..Costs::default() };
        costs.try_faults(WriteTracker::open().ok().as_ref());
        assert!(costs.fault_private > 0.0 && costs.fault_protect > 0.0);
    }
}

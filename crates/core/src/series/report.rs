//! Reads the state of a series, for the commands `inspect` and `watch`. This code only reads the pool: it pins no
//! version and delays no member.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::Duration;

use crossdock_layout::series::STATE_ENDED;
use crossdock_layout::series::state::{Latest, Phase, State};
use crossdock_layout::wire::SegmentKind;
use crossdock_os::{Access, Mapping, memfd};

use super::describe::{self, Description};
use super::pool::Pool;
use super::publisher::failed;
use super::spec::Method;
use crate::{Error, Result};

/// The contents of a pool's header, for people to read. The numbers are unchecked. The publisher may change some of
/// them during the call, so they need not belong to the same moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The variables, attributes and constants of the series.
    pub description: Description,
    /// The newest version's sequence number; 0 before the first version.
    pub newest: u64,
    /// True if the publisher has ended the series; `false` while it is alive, and if it died.
    pub ended: bool,
    /// The versions that exist: sequence number and time of publishing, in nanoseconds since 1970.
    pub versions: Vec<(u64, u64)>,
    /// The method by which the publisher finds changes at present.
    pub method: Option<Method>,
    /// The methods that the publisher's machine does not have.
    pub unavailable: Vec<Method>,
    /// The number of times that the publisher switched to another method of finding changes.
    pub switches: u64,
    /// The number of chunks that the publisher copied for all versions so far.
    pub copied: u64,
    /// The number of chunks that versions shared with the version before them, summed over all versions.
    pub shared: u64,
    /// How long the last call of `publish` took.
    pub last: Duration,
    /// How long the longest call of `publish` took.
    pub longest: Duration,
    /// Three numbers of slots: those that fit into the pool, those that have memory, and those that are in use.
    pub slots: (u32, u32, u32),
    /// The number of bytes of memory that are reserved for the pool.
    pub reserved: u64,
    /// How many times `publish` failed because the pool had no room. Withheld versions are not counted here.
    pub no_space: u64,
    /// How many versions the publisher has withheld: since the series began, and since the newest version.
    pub withheld: (u64, u32),
    /// The number of versions that the publisher took back from observers that held them.
    pub taken_back: u64,
}

impl Report {
    /// Reads the state of a series from its pool.
    ///
    /// # Errors
    /// `CORRUPT` or `INCOMPATIBLE` if the memory does not hold a series that this build understands, `SYSTEM` if the
    /// kernel refuses the mapping.
    pub fn read(name: &str, pool: impl AsFd, size: u64) -> Result<Self> {
        let system = |e: crossdock_os::OsError| failed(name, &e);
        let named = |e: Error| e.about(SegmentKind::Series, name);
        memfd::check(&pool, size).map_err(system)?;
        let mapping = Mapping::new(&pool, size as usize, Access::Read).map_err(system)?;
        let pool = Pool::open(mapping, size).map_err(named)?;
        let (description, _) = describe::read(&pool).map_err(named)?;
        let (version_words, report) = (&pool.header().version_words, &pool.header().report);
        let unavailable = report.unavailable.load(Relaxed);
        let named = |number: u32| Method::from_number(number).filter(|_| unavailable & 1 << number != 0);
        Ok(Self {
            description,
            newest: Latest(version_words.latest.load(Acquire)).sequence(),
            ended: version_words.state.load(Acquire) == STATE_ENDED,
            versions: versions(&pool),
            method: Method::from_number(report.method.load(Relaxed)),
            unavailable: (0..Method::ALL.len() as u32).filter_map(named).collect(),
            switches: report.switches.load(Relaxed),
            copied: report.copied.load(Relaxed),
            shared: report.shared.load(Relaxed),
            last: Duration::from_nanos(report.last_ns.load(Relaxed)),
            longest: Duration::from_nanos(report.longest_ns.load(Relaxed)),
            slots: (
                pool.geometry().counts.slots,
                report.committed.load(Relaxed).unchecked_for_display(),
                report.used.load(Relaxed),
            ),
            reserved: report.reserved.load(Relaxed),
            no_space: report.no_space.load(Relaxed),
            withheld: (report.withheld.load(Relaxed), report.withheld_now.load(Relaxed)),
            taken_back: report.taken_back.load(Relaxed),
        })
    }
}

/// The versions that exist, sorted by sequence number, each with its time of publishing. A version that its publisher
/// did not make visible before it died is not in the list.
pub(super) fn versions(pool: &Pool) -> Vec<(u64, u64)> {
    let time = |which: Latest| pool.record(u32::from(which.record())).time.load(Relaxed);
    let mut found: Vec<(u64, u64)> = visible(pool).map(|which| (which.sequence(), time(which))).collect();
    found.sort_unstable();
    found
}

/// The oldest version that exists and has a greater sequence number than `beyond`.
pub(super) fn oldest(pool: &Pool, beyond: u64) -> Option<Latest> {
    visible(pool).filter(|which| which.sequence() > beyond).min_by_key(|which| which.sequence())
}

/// The versions that exist, in the order of the version table.
fn visible(pool: &Pool) -> impl Iterator<Item = Latest> {
    let newest = Latest(pool.header().version_words.latest.load(Acquire)).sequence();
    (0..pool.geometry().counts.records).filter_map(move |record| {
        let state = State(pool.record(record).state.load(Acquire));
        let there = state.sequence() <= newest && matches!(state.phase(), Phase::Live | Phase::Retiring);
        there.then(|| Latest::new(state.sequence(), record as u16))
    })
}

//! The lasting state of a series besides its segment: its publisher, its pin pages, and its observers with their slots.
//!
//! A pin page is memory that observers write and the publisher reads. A process may keep the page mapped after it has
//! given up its slot. So a page always belongs to the observers of one endpoint, and a process that can still write to
//! the page can remove only pins of its own task. The daemon makes a new page when an observer comes and no page of its
//! endpoint has a free slot.

#![allow(missing_docs, reason = "plain fields, named as in the records and on the wire")]

use std::collections::{BTreeMap, BTreeSet};

use crossdock_layout::wire::{PIN_PAGE, PIN_SLOTS, SegmentKind, page_id, pin_id, series_ids};
use crossdock_layout::{MemberId, SegmentId};

use super::lasting::{Lasting, Outcome, Segment};
use super::record::{Cause, Record};

/// The state of a series besides its segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series {
    pub publisher: MemberId,
    /// The run of its workflow in which the series was published.
    pub run: u64,
    /// Whether the publisher said that it has ended the series.
    pub ended: bool,
    /// The maximum number of observers at the same time.
    pub observers: u32,
    /// For each pin page, the endpoint to which it belongs.
    pub pages: Vec<u64>,
    /// The observers. The key is the observer's number.
    pub pins: BTreeMap<u32, Pin>,
}

/// The slot of a pin page that an observer has, and the member that observes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pin {
    /// The number of the slot, counted over all pages of the series.
    pub slot: u32,
    pub holder: MemberId,
}

impl Series {
    /// Gives the free slots on this endpoint's pages, the lowest first.
    pub fn free_slots(&self, endpoint: u64) -> impl Iterator<Item = u32> {
        let pages = (0..).zip(&self.pages).filter(move |(_, of)| **of == endpoint);
        let slots = pages.flat_map(|(page, _)| page * PIN_SLOTS..(page + 1) * PIN_SLOTS);
        let taken = self.taken();
        slots.filter(move |slot| !taken.contains(slot))
    }

    fn taken(&self) -> BTreeSet<u32> {
        self.pins.values().map(|pin| pin.slot).collect()
    }

    /// Gives the observers whose slots are in a page.
    pub fn holders(&self, page: u32) -> impl Iterator<Item = MemberId> {
        self.pins.values().filter(move |pin| pin.slot / PIN_SLOTS == page).map(|pin| pin.holder)
    }

    /// Gives the lowest number that no observer has.
    pub fn free_number(&self) -> u32 {
        (0..).zip(self.pins.keys()).find(|(n, taken)| n != *taken).map_or(self.pins.len() as u32, |(n, _)| n)
    }

    /// Gives the free slots of a page, as ranges: the first slot, counted within the page, and the number of slots.
    pub fn free_ranges(&self, page: u32) -> Vec<(u32, u32)> {
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        let taken = self.taken();
        for slot in (0..PIN_SLOTS).filter(|slot| !taken.contains(&(page * PIN_SLOTS + slot))) {
            match ranges.last_mut() {
                Some((from, count)) if *from + *count == slot => *count += 1,
                _ => ranges.push((slot, 1)),
            }
        }
        ranges
    }

    /// Gives the number of bytes of all pin pages of the series.
    #[must_use]
    pub fn page_bytes(&self) -> u64 {
        self.pages.len() as u64 * PIN_PAGE
    }

    /// Adds to `records` the records from which a broker can make this series again.
    pub(super) fn snapshot(&self, segment: SegmentId, of: &Segment, records: &mut Vec<Record>) {
        let cause = |member| Cause { member, request: 0 };
        records.push(Record::Series {
            segment,
            workflow: of.workflow,
            run: self.run,
            name: of.name.clone(),
            size: of.size,
            reserved: of.reserved.saturating_sub(self.page_bytes()),
            attribute: of.attribute,
            observers: self.observers,
            since_ms: of.since_ms,
            cause: cause(self.publisher),
        });
        records.extend(self.pages.iter().map(|endpoint| Record::PinPage { segment, endpoint: *endpoint }));
        let taken =
            |(pin, of): (&u32, &Pin)| Record::PinTaken { segment, pin: *pin, slot: of.slot, cause: cause(of.holder) };
        records.extend(self.pins.iter().map(taken));
        if self.ended {
            records.push(Record::Unpublished { segment, cause: Cause::NONE });
        }
    }
}

impl Segment {
    /// Tells how many descriptors the keeper holds for the segment. The broker holds the same number.
    pub(super) fn descriptors(&self) -> u64 {
        1 + self.series.as_ref().map_or(0, |s| s.pages.len() as u64)
    }

    /// Tells how many ids the segment takes. A series takes more than one id, because its pin pages and its observers
    /// have ids of their own.
    pub(super) fn ids(&self) -> u64 {
        self.series.as_ref().map_or(1, |s| series_ids(s.observers))
    }
}

/// What an id in a series' range of ids stands for, except the first id, which is the id of the series itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The id of a pin page. The page need not exist yet.
    Page(u32),
    /// The id of an observer, with the observer's number.
    Pin(u32),
}

impl Lasting {
    pub(super) fn apply_series(&mut self, record: &Record) {
        match record {
            Record::Series { segment, workflow, run, name, size, reserved, attribute, observers, since_ms, cause } => {
                let series = Series {
                    publisher: cause.member,
                    run: *run,
                    ended: false,
                    observers: *observers,
                    pages: Vec::new(),
                    pins: BTreeMap::new(),
                };
                let fresh = Segment {
                    workflow: *workflow,
                    kind: SegmentKind::Series,
                    name: name.clone(),
                    size: *size,
                    reserved: *reserved,
                    attribute: *attribute,
                    creator: cause.member,
                    persistent: true,
                    since_ms: *since_ms,
                    removed: None,
                    moving: false,
                    handed_over: None,
                    series: Some(series),
                };
                self.add_segment(*segment, fresh, *cause);
            }
            Record::PinPage { segment, endpoint } => self.add_page(*segment, *endpoint),
            Record::PinTaken { segment, pin, slot, cause } => {
                let Some(series) = self.series_mut(*segment) else { return };
                series.pins.insert(*pin, Pin { slot: *slot, holder: cause.member });
                let made = pin_id(*segment, series.observers, *pin);
                self.remember(*cause, Outcome::Made(made));
            }
            Record::PinFreed { segment, pin } => {
                let Some(series) = self.series_mut(*segment) else { return };
                let (gone, id) = (series.pins.remove(pin), pin_id(*segment, series.observers, *pin));
                // The outcome of the request that gave this slot is forgotten. If the request is repeated, it must not
                // get the slot again, because another observer may have the slot by then.
                if let Some(holder) = gone.and_then(|gone| self.members.get_mut(&gone.holder)) {
                    holder.outcomes.retain(|_, outcome| *outcome != Outcome::Made(id));
                }
            }
            Record::Unpublished { segment, cause } => {
                if let Some(series) = self.series_mut(*segment) {
                    series.ended = true;
                }
                self.remember(*cause, Outcome::Done(0));
            }
            _ => {}
        }
    }

    fn add_page(&mut self, segment: SegmentId, endpoint: u64) {
        let Some(found) = self.segments.get_mut(&segment) else { return };
        let Some(series) = found.series.as_mut() else { return };
        series.pages.push(endpoint);
        found.reserved = found.reserved.saturating_add(PIN_PAGE);
        self.reserved = self.reserved.saturating_add(PIN_PAGE);
        if let Some(workflow) = self.workflows.get_mut(&found.workflow) {
            workflow.segments += 1;
            workflow.reserved = workflow.reserved.saturating_add(PIN_PAGE);
        }
    }

    fn series_mut(&mut self, segment: SegmentId) -> Option<&mut Series> {
        self.segments.get_mut(&segment)?.series.as_mut()
    }

    /// Gives the series of this segment.
    pub fn series(&self, segment: SegmentId) -> Option<&Series> {
        self.segments.get(&segment)?.series.as_ref()
    }

    /// Gives the observer ids of a member, one for each observed series that still has its name.
    pub(super) fn pins_of(&self, member: MemberId) -> Vec<SegmentId> {
        let named = self.segments.iter().filter(|(_, s)| s.removed.is_none());
        let series = named.filter_map(|(id, s)| Some((*id, s.series.as_ref()?)));
        let all =
            series.flat_map(|(id, series)| series.pins.iter().map(move |(number, pin)| (id, series, *number, pin)));
        let own = all.filter(|(.., pin)| pin.holder == member);
        own.map(|(id, series, number, _)| pin_id(id, series.observers, number)).collect()
    }

    /// Gives the series, and what the id stands for, if `id` is in the range of a series but is not its first id.
    pub fn part_of(&self, id: SegmentId) -> Option<(SegmentId, Part)> {
        let (series, found) = self.segments.range(..id).next_back()?;
        let observers = u64::from(found.series.as_ref()?.observers);
        let part = id.0 - series.0 - 1;
        if part < observers {
            return Some((*series, Part::Page(part as u32)));
        }
        (part < 2 * observers).then(|| (*series, Part::Pin((part - observers) as u32)))
    }

    /// Gives the series and the observer's number, if `id` is the id of an observer.
    pub fn pin_of(&self, id: SegmentId) -> Option<(SegmentId, u32)> {
        match self.part_of(id)? {
            (series, Part::Pin(pin)) => Some((series, pin)),
            (_, Part::Page(_)) => None,
        }
    }

    /// Gives the series and the page, if `id` is the id of an existing page or of an observer with a slot on the page.
    pub fn page_of(&self, id: SegmentId) -> Option<(SegmentId, u32)> {
        let (series, page) = match self.part_of(id)? {
            (series, Part::Page(page)) => (series, page),
            (series, Part::Pin(pin)) => (series, self.series(series)?.pins.get(&pin)?.slot / PIN_SLOTS),
        };
        ((page as usize) < self.series(series)?.pages.len()).then_some((series, page))
    }

    /// Gives the segment to which the descriptor with this id belongs. For a pin page, gives the page's series.
    pub(super) fn of(&self, id: SegmentId) -> Option<(SegmentId, &Segment)> {
        let segment = match self.part_of(id) {
            Some((series, Part::Page(page))) if (page as usize) < self.series(series)?.pages.len() => series,
            Some(_) => return None,
            None => id,
        };
        Some((segment, self.segments.get(&segment)?))
    }

    /// Gives the ids of all descriptors that belong to a segment.
    pub fn descriptors_of(&self, segment: SegmentId) -> Vec<SegmentId> {
        let pages = self.series(segment).map_or(0, |s| s.pages.len() as u32);
        std::iter::once(segment).chain((0..pages).map(|page| page_id(segment, page))).collect()
    }
}

//! What lasts of a series besides its segment: who publishes it, and who has which pin page.
//!
//! A pin page is memory that an observer writes and the publisher reads. A process may keep it mapped after it gave it
//! up, so a page that one endpoint's task had is given only to the same endpoint's tasks again: a process that could still
//! write it could unpin for itself only.

#![allow(missing_docs, reason = "plain fields, named as in the records and on the wire")]

use crossdock_layout::wire::SegmentKind;
use crossdock_layout::{MemberId, SegmentId};

use super::lasting::{Lasting, Outcome, Segment};
use super::record::{Cause, Record};

/// What a series has besides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series {
    pub publisher: MemberId,
    /// In which run of its workflow it was published.
    pub run: u64,
    /// Its publisher said that it publishes no longer.
    pub ended: bool,
    /// How many of the pin pages are there.
    pub adopted: u32,
    pub pins: Vec<Pin>,
}

/// A pin page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pin {
    /// The member that has it; 0 if it is free.
    pub holder: MemberId,
    /// By which endpoint all came who ever had it.
    pub endpoint: Option<u64>,
}

impl Series {
    /// Are all of its pin pages there?
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.adopted as usize == self.pins.len()
    }

    /// How many members' observers there are.
    #[must_use]
    pub fn observers(&self) -> usize {
        self.pins.iter().filter(|p| p.holder != MemberId::NOBODY).count()
    }

    /// The page that an observer who came by this endpoint gets: one that its task had before, else a fresh one.
    #[must_use]
    pub fn free_pin(&self, endpoint: u64) -> Option<u32> {
        let free = |of: Option<u64>| {
            let pin = self.pins.iter().position(|p| p.holder == MemberId::NOBODY && p.endpoint == of);
            pin.map(|pin| pin as u32)
        };
        free(Some(endpoint)).or_else(|| free(None))
    }

    /// The records that make this series again.
    pub(super) fn snapshot(&self, segment: SegmentId, of: &Segment, records: &mut Vec<Record>) {
        let cause = |member| Cause { member, request: 0 };
        records.push(Record::Series {
            segment,
            workflow: of.workflow,
            run: self.run,
            name: of.name.clone(),
            size: of.size,
            reserved: of.reserved,
            attribute: of.attribute,
            pins: self.pins.len() as u32,
            cause: cause(self.publisher),
        });
        if self.adopted > 0 {
            records.push(Record::Pins { segment, upto: self.adopted, cause: Cause::NONE });
        }
        for (pin, found) in (0..).zip(&self.pins) {
            let Some(endpoint) = found.endpoint else { continue };
            records.push(Record::PinTaken { segment, pin, endpoint, cause: cause(found.holder) });
        }
        if self.ended {
            records.push(Record::Unpublished { segment, cause: Cause::NONE });
        }
    }
}

impl Segment {
    /// How many descriptors it takes of keeper and broker.
    pub(super) fn descriptors(&self) -> u64 {
        1 + self.series.as_ref().map_or(0, |s| s.pins.len() as u64)
    }
}

/// The id of a pin page.
pub(super) fn pin_id(series: SegmentId, pin: u32) -> SegmentId {
    SegmentId(series.0.saturating_add(1 + u64::from(pin)))
}

impl Lasting {
    pub(super) fn apply_series(&mut self, record: &Record) {
        match record {
            Record::Series { segment, workflow, run, name, size, reserved, attribute, pins, cause } => {
                let pins = vec![Pin::default(); *pins as usize];
                let fresh = Segment {
                    workflow: *workflow,
                    kind: SegmentKind::Series,
                    name: name.clone(),
                    size: *size,
                    reserved: *reserved,
                    attribute: *attribute,
                    creator: cause.member,
                    persistent: true,
                    removed: None,
                    series: Some(Series { publisher: cause.member, run: *run, ended: false, adopted: 0, pins }),
                };
                self.add_segment(*segment, fresh, *cause);
            }
            Record::Pins { segment, upto, cause } => {
                if let Some(series) = self.series_mut(*segment) {
                    series.adopted = (*upto).min(series.pins.len() as u32);
                }
                self.remember(*cause, Outcome::Done(u64::from(*upto)));
            }
            Record::PinTaken { segment, pin, endpoint, cause } => {
                if let Some(found) = self.series_mut(*segment).and_then(|s| s.pins.get_mut(*pin as usize)) {
                    *found = Pin { holder: cause.member, endpoint: Some(*endpoint) };
                }
                self.remember(*cause, Outcome::Made(pin_id(*segment, *pin)));
            }
            Record::PinFreed { segment, pin } => {
                let Some(found) = self.series_mut(*segment).and_then(|s| s.pins.get_mut(*pin as usize)) else { return };
                let holder = std::mem::take(&mut found.holder);
                // The request that gave it is not to give it again: it may be another request's by then.
                if let Some(holder) = self.members.get_mut(&holder) {
                    let gave = Outcome::Made(pin_id(*segment, *pin));
                    holder.outcomes.retain(|_, outcome| *outcome != gave);
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

    fn series_mut(&mut self, segment: SegmentId) -> Option<&mut Series> {
        self.segments.get_mut(&segment)?.series.as_mut()
    }

    /// The series that this segment is.
    pub fn series(&self, segment: SegmentId) -> Option<&Series> {
        self.segments.get(&segment)?.series.as_ref()
    }

    /// The pin pages that a member has, of series that have their names.
    pub(super) fn pins_of(&self, member: MemberId) -> Vec<SegmentId> {
        let named = self.segments.iter().filter(|(_, s)| s.removed.is_none());
        let series = named.filter_map(|(id, s)| Some((*id, s.series.as_ref()?)));
        let pages = series.flat_map(|(id, series)| (0..).zip(&series.pins).map(move |(pin, found)| (id, pin, found)));
        pages.filter(|(_, _, found)| found.holder == member).map(|(id, pin, _)| pin_id(id, pin)).collect()
    }

    /// The series and the index, if this is a pin page's id.
    pub fn pin_of(&self, id: SegmentId) -> Option<(SegmentId, u32)> {
        let (series, found) = self.segments.range(..id).next_back()?;
        let pin = id.0 - series.0 - 1;
        (pin < found.series.as_ref()?.pins.len() as u64).then_some((*series, pin as u32))
    }

    /// The segment that a descriptor with this id belongs to: the segment itself, or the series of a pin page.
    pub(super) fn of(&self, id: SegmentId) -> Option<(SegmentId, &Segment)> {
        let segment = match self.pin_of(id) {
            Some((series, pin)) if pin < self.series(series)?.adopted => series,
            Some(_) => return None,
            None => id,
        };
        Some((segment, self.segments.get(&segment)?))
    }

    /// The ids of all descriptors that a segment has.
    pub fn descriptors_of(&self, segment: SegmentId) -> Vec<SegmentId> {
        let pins = self.series(segment).map_or(0, |s| s.adopted);
        std::iter::once(segment).chain((0..pins).map(|pin| pin_id(segment, pin))).collect()
    }
}

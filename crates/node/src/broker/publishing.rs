//! A publisher's requests: to begin a series, to hand its pin pages in, to end it.

use crossdock_layout::wire::{Answer, MAX_PINS, PIN_PAGE, Request, SegmentKind};
use crossdock_layout::{MemberId, Rights, SegmentId, Status};

use super::open::MAX_SIZE;
use super::series::pin_id;
use super::{Asker, Broker, Cause, Descriptor, Effect, Hold, Record, text};

impl Broker {
    pub(super) fn publish(&mut self, asker: Asker, request: Request, descriptors: &[Descriptor]) {
        let Request::Publish { size, reserved, attribute, pins, name } = request else { return };
        let Some((endpoint, workflow)) = self.place(asker) else { return };
        let rights = self.lasting.rights(endpoint, SegmentKind::Series, &name);
        if !rights.contains(Rights::PUBLISH) {
            let text = format!(
                "task '{}' may not publish series '{name}': its grant says {}; add `series: {{{name}: publish}}` to it in the workflow \
                 file",
                self.lasting.members[&asker.member].task,
                rights.words()
            );
            return self.fail(asker, Status::Denied, text);
        }
        let most = size.saturating_add(u64::from(pins) * PIN_PAGE);
        let number = match descriptors {
            [Descriptor::Pool { size: found, number }] if *found == size => Some(*number),
            _ => None,
        };
        let Some(number) = number.filter(|_| size > 0 && size <= MAX_SIZE && reserved <= most) else {
            let text = format!(
                "what came as the memory of series '{name}' is not {} sealed against shrinking, growing, new writers \
                 and unsealing",
                text::bytes(size)
            );
            return self.fail(asker, Status::Invalid, text);
        };
        if pins == 0 || pins > MAX_PINS {
            let text = format!("series '{name}' cannot have {pins} observers at once; at least 1, at most {MAX_PINS}");
            return self.fail(asker, Status::Invalid, text);
        }
        let former = self.lasting.names.get(&(workflow, SegmentKind::Series, name.clone())).copied();
        if let Some(publisher) = former.and_then(|f| self.living_publisher(f)) {
            let text = format!(
                "series '{name}' is being published by {}; a series has one publisher: end that one, or take another name",
                self.who(publisher)
            );
            return self.fail(asker, Status::Exists, text);
        }
        if !self.journal_works(asker) {
            return;
        }
        let what = format!("series '{name}'");
        // What a former publisher left goes with its name, unless observers still have it.
        let unused =
            former.filter(|f| self.holds.get(f).is_none_or(|h| h.is_empty()) && self.away(workflow).is_empty());
        let left = unused.and_then(|f| self.lasting.segments.get(&f));
        let (room, slots) = left.map_or((0, 0), |s| (s.reserved, s.descriptors()));
        let more = (u64::from(pins) + 1).saturating_sub(slots);
        let checked = self.room(workflow, reserved.saturating_sub(room), &what);
        if let Err(text) = checked.and_then(|()| self.descriptors(workflow, more, &what)) {
            return self.fail(asker, Status::NoSpace, text);
        }
        if let Some(former) = former {
            self.take_name(former, Cause::NONE);
        }
        let segment = SegmentId(self.lasting.next_segment);
        let cause = Cause { member: asker.member, request: asker.number };
        self.effects.push(Effect::Adopt { segment });
        let run = self.lasting.workflows.get(&workflow).map_or(0, |w| w.run);
        self.commit(Record::Numbers { segment, numbers: vec![number] });
        self.commit(Record::Series { segment, workflow, run, name, size, reserved, attribute, pins, cause });
        self.hold_once(asker.member, segment);
        self.answer(asker, &Answer::Done { value: segment.0 });
    }

    /// The same request again, its answer lost with the former broker.
    pub(super) fn published_again(&mut self, asker: Asker, segment: SegmentId) {
        if self.lasting.segments.get(&segment).is_none_or(|s| s.removed.is_some()) {
            let text = format!("{segment} was lost with the former daemon before it was complete; publish it again");
            return self.fail(asker, Status::NotFound, text);
        }
        self.hold_once(asker.member, segment);
        self.answer(asker, &Answer::Done { value: segment.0 });
    }

    fn hold_once(&mut self, member: MemberId, segment: SegmentId) {
        let hold = self.holds.entry(segment).or_default().entry(member);
        hold.or_insert(Hold { count: 1, assumed: false });
    }

    /// Pin pages that come in order, or again after the keeper's end.
    pub(super) fn pins(&mut self, asker: Asker, segment: SegmentId, from: u32, count: u32, descriptors: &[Descriptor]) {
        let named = self.lasting.segments.get(&segment).is_some_and(|s| s.removed.is_none());
        let found = self.lasting.series(segment).filter(|s| named && s.publisher == asker.member && !s.ended);
        let Some(series) = found else {
            return self.fail(asker, Status::NotFound, format!("{segment} is no series that this program publishes"));
        };
        let (adopted, all) = (series.adopted, series.pins.len() as u64);
        let page = |d: &Descriptor| match d {
            Descriptor::Memory { size: PIN_PAGE, number } => Some(*number),
            _ => None,
        };
        let numbers: Vec<_> = descriptors.iter().filter_map(page).collect();
        if u64::from(from) + u64::from(count) > all || numbers.len() != count as usize {
            let text = format!("what came for {segment} from pin page {from} is not sealed memory of {PIN_PAGE} bytes");
            return self.fail(asker, Status::Invalid, text);
        }
        let ids: Vec<_> = (from..from + count).map(|pin| pin_id(segment, pin)).collect();
        if ids.iter().all(|id| self.lost.contains(id)) {
            if !ids.iter().zip(&numbers).all(|(id, number)| self.is_memory_of(*id, *number)) {
                let text = format!("what came for {segment} from pin page {from} is not what its observers have");
                return self.fail(asker, Status::Denied, text);
            }
            self.take_back(segment, &ids);
        } else if from == adopted {
            if !self.journal_works(asker) {
                return;
            }
            self.effects.extend(ids.iter().map(|id| Effect::Adopt { segment: *id }));
            let cause = Cause { member: asker.member, request: asker.number };
            if let Some(first) = ids.first() {
                self.commit(Record::Numbers { segment: *first, numbers });
            }
            self.commit(Record::Pins { segment, upto: from + count, cause });
        } else if from + count > adopted {
            let text = format!("{segment} has {adopted} pin pages; the next ones are wanted, not those from {from}");
            return self.fail(asker, Status::Invalid, text);
        }
        let value = self.lasting.series(segment).map_or(0, |s| u64::from(s.adopted));
        self.answer(asker, &Answer::Done { value });
        if self.is_usable(segment) {
            self.wake_waiting(segment);
        }
    }

    /// Pages that the former keeper had; what dead members wrote into them while no keeper had them no longer counts.
    fn take_back(&mut self, segment: SegmentId, ids: &[SegmentId]) {
        for id in ids {
            self.lost.remove(id);
            self.effects.push(Effect::Adopt { segment: *id });
        }
        for id in ids {
            let holder = self.lasting.pin_of(*id).and_then(|(_, pin)| {
                let series = self.lasting.series(segment)?;
                series.pins.get(pin as usize).map(|p| p.holder)
            });
            if holder == Some(MemberId::NOBODY) {
                self.effects.push(Effect::ClearPin { pin: *id });
            }
        }
    }

    pub(super) fn unpublish(&mut self, asker: Asker, segment: SegmentId) {
        let series = self.lasting.series(segment).filter(|s| s.publisher == asker.member);
        let Some(series) = series else {
            return self.fail(asker, Status::NotFound, format!("{segment} is no series that this program publishes"));
        };
        let complete = series.is_complete();
        if !series.ended {
            let cause = Cause { member: asker.member, request: asker.number };
            self.commit(Record::Unpublished { segment, cause });
            if !complete {
                self.take_name(segment, Cause::NONE);
            }
        }
        self.answer(asker, &Answer::Done { value: 0 });
    }

    /// Who publishes this series and may go on with it.
    pub(super) fn living_publisher(&self, segment: SegmentId) -> Option<MemberId> {
        let series = self.lasting.series(segment).filter(|s| !s.ended)?;
        self.lasting.members.contains_key(&series.publisher).then_some(series.publisher)
    }

    /// Is any of its descriptors lost with the former keeper, and not offered again yet?
    pub(super) fn is_lost(&self, segment: SegmentId) -> bool {
        let pins = self.lasting.series(segment).map_or(0, |s| s.pins.len() as u64);
        self.lost.range(segment..=SegmentId(segment.0.saturating_add(pins))).next().is_some()
    }

    /// May it be given to observers?
    pub(super) fn is_usable(&self, segment: SegmentId) -> bool {
        self.lasting.series(segment).is_some_and(|s| s.is_complete()) && !self.is_lost(segment)
    }

    /// Who that is, for messages.
    pub(super) fn who(&self, member: MemberId) -> String {
        match self.entry(member) {
            Some(e) if e.task == super::hello::NAMELESS_TASK => {
                format!("a program outside of a run, process {}", e.pid)
            }
            Some(e) => format!("task '{}', rank {}, process {}", e.task, e.rank, e.pid),
            None => member.to_string(),
        }
    }
}

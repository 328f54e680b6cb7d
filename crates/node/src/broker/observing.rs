//! An observer's requests, and its pin page: one each, cleared before another observer can rely on it.

use std::collections::BTreeSet;

use crossdock_layout::wire::{Answer, Request, SegmentKind, SeriesEntry};
use crossdock_layout::{MemberId, Rights, SegmentId, Status};

use super::series::pin_id;
use super::{Asker, Attachment, Broker, Cause, Effect, Hold, Outcome, Record};

impl Broker {
    pub(super) fn observe(&mut self, asker: Asker, wait_ms: u64, former: bool, name: String) {
        let Some((endpoint, workflow)) = self.place(asker) else { return };
        let rights = self.lasting.rights(endpoint, SegmentKind::Series, &name);
        if rights.0 & Rights::OBSERVE.with(Rights::PUBLISH).0 == 0 {
            let text = format!(
                "task '{}' may not observe series '{name}': its grant says {}; add `series: {{{name}: observe}}` to it in the workflow \
                 file",
                self.lasting.members[&asker.member].task,
                rights.words()
            );
            return self.fail(asker, Status::Denied, text);
        }
        let key = (workflow, SegmentKind::Series, name);
        let found = self.lasting.names.get(&key).copied();
        match found.filter(|f| self.is_usable(*f) && (former || self.is_of_this_run(*f))) {
            Some(segment) => self.admit(asker, segment),
            None if wait_ms > 0 => self.park(asker, key, Rights::OBSERVE, wait_ms, None),
            None if found.is_some_and(|f| self.is_lost(f)) => {
                let text = self.why_lost(&key);
                self.fail(asker, Status::Busy, text);
            }
            None if found.is_some_and(|f| self.is_usable(f)) => {
                let text = format!(
                    "series '{}' is one of a former run; start its publisher, wait for it, or ask for the former run's",
                    key.2
                );
                self.fail(asker, Status::NotFound, text);
            }
            None => {
                let text = format!("there is no series '{}'; start its publisher, or wait for it", key.2);
                self.fail(asker, Status::NotFound, text);
            }
        }
    }

    /// Gives a pin page to the asker, and the series with it.
    pub(super) fn admit(&mut self, asker: Asker, segment: SegmentId) {
        let Some((endpoint, _)) = self.place(asker) else { return };
        let Some(series) = self.lasting.series(segment) else { return };
        let Some(pin) = series.free_pin(endpoint) else {
            let name = self.lasting.segments.get(&segment).map_or("", |s| &s.name);
            let text = format!(
                "series '{name}' has {} pin pages, {} of them in use by observers and the others kept for the tasks that \
                 had them; let observers end, or publish it for more of them (max_observers)",
                series.pins.len(),
                series.observers()
            );
            return self.fail(asker, Status::NoSpace, text);
        };
        if !self.journal_works(asker) {
            return;
        }
        let cause = Cause { member: asker.member, request: asker.number };
        self.commit(Record::PinTaken { segment, pin, endpoint, cause });
        self.give_pin(asker, pin_id(segment, pin));
    }

    /// The answer to an observer; also when the same request comes again.
    pub(super) fn give_pin(&mut self, asker: Asker, pin: SegmentId) {
        let Some((segment, found)) = self.lasting.of(pin) else { return };
        let Some(series) = &found.series else { return };
        if self.is_lost(segment) {
            let text = self.why_lost(&(found.workflow, SegmentKind::Series, found.name.clone()));
            return self.fail(asker, Status::Busy, text);
        }
        let answer = Answer::Series(SeriesEntry {
            segment,
            size: found.size,
            reserved: found.reserved,
            attribute: found.attribute,
            publisher: series.publisher,
            pin,
            name: found.name.clone(),
        });
        self.unsure.remove(&pin);
        let hold = self.holds.entry(segment).or_default().entry(asker.member);
        let hold = hold.or_insert(Hold { count: 0, assumed: false });
        hold.count = hold.count.saturating_add(1);
        let message = answer.encode(asker.opcode, asker.number);
        let with = Attachment::Series { pool: segment, pin };
        self.effects.push(Effect::Send { connection: asker.connection, message, with });
    }

    /// Was what a request came to given up meanwhile, so that it has to be done anew?
    pub(super) fn forgotten(&self, asker: Asker, request: &Request, outcome: Outcome) -> bool {
        let (Request::Observe { .. }, Outcome::Made(pin)) = (request, outcome) else { return false };
        let series = self.lasting.pin_of(pin).filter(|(series, _)| self.is_named(*series));
        series.is_none_or(|(series, pin)| self.holder(series, pin) != asker.member)
    }

    /// An observer ends.
    pub(super) fn let_go(&mut self, member: MemberId, series: SegmentId, pin: u32) {
        if self.holder(series, pin) == member {
            self.free_pin(series, pin);
        }
    }

    /// An observer that came back has its page still.
    pub(super) fn keep_pin(&mut self, member: MemberId, series: SegmentId, pin: u32) {
        if self.holder(series, pin) == member {
            self.unsure.remove(&pin_id(series, pin));
        }
    }

    /// A member that came back has named all that it has.
    pub(super) fn free_unsure(&mut self, member: MemberId) {
        for id in self.unsure.iter().copied().collect::<Vec<_>>() {
            if let Some((series, pin)) = self.lasting.pin_of(id).filter(|(s, p)| self.holder(*s, *p) == member) {
                self.free_pin(series, pin);
            }
        }
    }

    /// A member is gone: its pin pages are free, and what it was about to publish was never seen by any observer.
    pub(super) fn leave_series(&mut self, member: MemberId) {
        let series = self.lasting.segments.iter().filter_map(|(id, s)| Some((*id, s.series.as_ref()?)));
        let (mut pins, mut torsos) = (Vec::new(), Vec::new());
        for (id, series) in series {
            pins.extend((0..).zip(&series.pins).filter(|(_, p)| p.holder == member).map(|(pin, _)| (id, pin)));
            if series.publisher == member && !series.is_complete() && self.is_named(id) {
                torsos.push(id);
            }
        }
        pins.into_iter().for_each(|(series, pin)| self.free_pin(series, pin));
        torsos.into_iter().for_each(|series| self.take_name(series, Cause::NONE));
    }

    /// First cleared, then free: if the broker is killed in between, the next one clears it again.
    fn free_pin(&mut self, series: SegmentId, pin: u32) {
        let id = pin_id(series, pin);
        if self.is_named(series) && !self.lost.contains(&id) {
            self.effects.push(Effect::ClearPin { pin: id });
        }
        self.unsure.remove(&id);
        self.commit(Record::PinFreed { segment: series, pin });
    }

    fn holder(&self, series: SegmentId, pin: u32) -> MemberId {
        self.lasting.series(series).and_then(|s| s.pins.get(pin as usize)).map_or(MemberId::NOBODY, |p| p.holder)
    }

    pub(super) fn is_named(&self, series: SegmentId) -> bool {
        self.lasting.segments.get(&series).is_some_and(|s| s.removed.is_none())
    }

    /// After a start: pin pages of the dead are cleared, those of the living wait for what they say.
    pub(super) fn recover_series(&mut self, held: &BTreeSet<SegmentId>) {
        let series = self.lasting.segments.iter().filter(|(_, s)| s.removed.is_none() && s.series.is_some());
        for id in series.map(|(id, _)| *id).collect::<Vec<_>>() {
            let lost: Vec<_> = self.lasting.descriptors_of(id).into_iter().filter(|id| !held.contains(id)).collect();
            let Some(series) = self.lasting.series(id) else { continue };
            if !series.is_complete() && (!lost.is_empty() || self.living_publisher(id).is_none()) {
                self.lost.remove(&id);
                self.take_name(id, Cause::NONE);
                continue;
            }
            let pins: Vec<_> = (0..).zip(&series.pins).map(|(pin, p)| (pin, p.holder, p.endpoint)).collect();
            self.lost.extend(lost);
            for (pin, holder, endpoint) in pins {
                let page = pin_id(id, pin);
                if holder == MemberId::NOBODY && endpoint.is_some() && !self.lost.contains(&page) {
                    // A page that came back free is cleared after that is written down, and the former broker may have
                    // ended in between.
                    self.effects.push(Effect::ClearPin { pin: page });
                }
                if self.lasting.members.contains_key(&holder) {
                    self.unsure.insert(pin_id(id, pin));
                } else if holder != MemberId::NOBODY {
                    self.free_pin(id, pin);
                }
            }
        }
    }
}

//! Handles the requests of observers. Each observer has one slot of a pin page, and the slot is cleared before another
//! observer gets it.

use std::collections::BTreeSet;

use crossdock_layout::name::{OBSERVERS, mirrored};
use crossdock_layout::wire::{Answer, PIN_PAGE, PIN_SLOTS, Request, SegmentKind, SeriesEntry, page_id, pin_id};
use crossdock_layout::{MemberId, Rights, SegmentId, Status};

use super::pages::MakingPage;
use super::{Attachment, Broker, Cause, Effect, Outcome, Record, Requester};

impl Broker {
    pub(super) fn observe(&mut self, asker: Requester, wait_ms: u64, former: bool, name: String) {
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
        let is_for_other_node = self.lasting.members[&asker.member].task.starts_with(OBSERVERS);
        if let Some(node) = self.node_of_mirrored(workflow, SegmentKind::Series, &name).filter(|_| !is_for_other_node) {
            return self.open_series_mirror(asker, node, (wait_ms, former, name));
        }
        if let Some(text) = self.elsewhere(workflow, SegmentKind::Series, &name) {
            return self.fail(asker, Status::NotFound, text);
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
                let lost = self.departed_with(key.0, SegmentKind::Series, &key.2);
                let text = format!("there is no series '{}'; start its publisher, or wait for it{lost}", key.2);
                self.fail(asker, Status::NotFound, text);
            }
        }
    }

    /// Makes the asking member an observer: gives it a slot of a pin page, and the series.
    pub(super) fn admit(&mut self, asker: Requester, segment: SegmentId) {
        let Some((endpoint, workflow)) = self.place(asker) else { return };
        let Some(found) = self.lasting.segments.get(&segment) else { return };
        let Some(series) = &found.series else { return };
        let what = format!("series '{}'", found.name);
        if series.pins.len() >= series.observers as usize {
            let text = format!(
                "{what} has {} observers, as many as it was published for; let some end, or publish it for more of them \
                 (max_observers)",
                series.pins.len()
            );
            return self.fail(asker, Status::NoSpace, text);
        }
        let there = |slot: &u32| !self.pages.is_lost(page_id(segment, slot / PIN_SLOTS));
        let (free, number) = (series.free_slots(endpoint).find(there), series.free_number());
        if !self.journal_works(asker) {
            return;
        }
        if let Some(slot) = free {
            let cause = Cause { member: asker.member, request: asker.number };
            self.commit(Record::PinTaken { segment, pin: number, slot, cause });
            return self.give_pin(asker, segment, number);
        }
        let Some(series) = self.lasting.series(segment) else { return };
        let pages = series.pages.len() as u32;
        let room = if pages < series.observers {
            self.room(workflow, PIN_PAGE, &what).and_then(|()| self.descriptors(workflow, 1, &what))
        } else {
            // The series has reached its largest number of pin pages. It keeps every page, even if the task whose
            // observers use the page is gone, or if the page's descriptor is lost.
            Err(format!("{what} has had observers of {pages} tasks; publish it for more of them (max_observers)"))
        };
        if let Err(text) = room {
            return self.fail(asker, Status::NoSpace, text);
        }
        let of = self.lasting.workflows.get(&workflow).map_or("", |w| &w.name);
        let name = self.lasting.segments.get(&segment).map_or("", |s| &s.name);
        let (page, label) = (page_id(segment, pages), format!("crossdock:{of}:pin:{name}"));
        self.pages.make(MakingPage { asker, series: segment, endpoint, page });
        self.effects.push(Effect::MakePage { page, label });
    }

    /// Continues after the host has made a pin page for an observer. The broker announces the page to the publisher
    /// before any observer gets it.
    pub(super) fn page_made(&mut self, outcome: &Result<u64, String>) -> bool {
        let Some(MakingPage { asker, series, endpoint, page }) = self.pages.made() else { return false };
        match outcome {
            Ok(number) => {
                self.commit(Record::Numbers { segment: page, numbers: vec![*number] });
                self.commit(Record::PinPage { segment: series, endpoint });
                self.effects.push(Effect::TellOfPage { series });
                self.admit(asker, series);
            }
            Err(why) => self.fail(asker, Status::NoSpace, why),
        }
        true
    }

    /// Sends an observer the series and the observer's slot. The broker also calls this when the observer repeats its
    /// request.
    pub(super) fn give_pin(&mut self, asker: Requester, segment: SegmentId, number: u32) {
        let Some(found) = self.lasting.segments.get(&segment) else { return };
        let Some(series) = &found.series else { return };
        let Some(slot) = series.pins.get(&number).map(|pin| pin.slot) else { return };
        let (page, slot) = (page_id(segment, slot / PIN_SLOTS), slot % PIN_SLOTS);
        if self.is_lost(segment) || self.pages.is_lost(page) {
            let text = self.why_lost(&(found.workflow, SegmentKind::Series, found.name.clone()));
            return self.fail(asker, Status::Busy, text);
        }
        let pin = pin_id(segment, series.observers, number);
        let answer = Answer::Series(SeriesEntry {
            segment,
            size: found.size,
            reserved: found.reserved,
            attribute: found.attribute,
            publisher: series.publisher,
            pin,
            slot,
            name: mirrored(&found.name).to_owned(),
        });
        self.pages.be_sure(pin);
        self.open_segments.open(segment, asker.member);
        let message = answer.encode(asker.opcode, asker.number);
        let with = Attachment::Series { pool: segment, page, slot };
        self.effects.push(Effect::Send { connection: asker.connection, message, with });
    }

    /// Tells whether a repeated request must be served anew. This is so if the slot of a pin page that the first answer
    /// named does not belong to the asking member any more.
    pub(super) fn forgotten(&self, asker: Requester, request: &Request, outcome: Outcome) -> bool {
        let (Request::Observe { .. }, Outcome::Made(pin)) = (request, outcome) else { return false };
        let series = self.lasting.pin_of(pin).filter(|(series, _)| self.is_named(*series));
        series.is_none_or(|(series, pin)| self.holder(series, pin) != asker.member)
    }

    /// Ends the observation of a series by a member, and frees the member's slot of the pin page.
    pub(super) fn let_go(&mut self, member: MemberId, series: SegmentId, pin: u32) {
        if self.holder(series, pin) == member {
            self.free_pin(series, pin);
        }
    }

    /// Notes that an observer, which has connected again, still has its slot of the pin page.
    pub(super) fn keep_pin(&mut self, member: MemberId, series: SegmentId, pin: u32) {
        if self.holder(series, pin) == member {
            let observers = self.lasting.series(series).map_or(0, |s| s.observers);
            self.pages.be_sure(pin_id(series, observers, pin));
        }
    }

    /// Frees the slots that a member had before its connection was lost, and that it did not list after it connected
    /// again.
    pub(super) fn free_unsure(&mut self, member: MemberId) {
        for id in self.pages.unsure() {
            if let Some((series, pin)) = self.lasting.pin_of(id).filter(|(s, p)| self.holder(*s, *p) == member) {
                self.free_pin(series, pin);
            }
        }
    }

    /// Frees the slots of a member that is gone.
    pub(super) fn leave_series(&mut self, member: MemberId) {
        let series = self.lasting.segments.iter().filter_map(|(id, s)| Some((*id, s.series.as_ref()?)));
        let all = series.flat_map(|(id, series)| series.pins.iter().map(move |(pin, of)| (id, *pin, of.holder)));
        let own: Vec<_> = all.filter(|(.., holder)| *holder == member).collect();
        own.into_iter().for_each(|(series, pin, _)| self.free_pin(series, pin));
    }

    /// When a series is gone, forgets which of its slots are in doubt. A slot is in doubt as long as its observer has
    /// not said whether it still uses the slot.
    pub(super) fn forget_slots(&mut self, series: SegmentId) {
        let ids = self.lasting.segments.get(&series).map_or(1, super::Segment::ids);
        self.pages.forget(series, ids);
    }

    /// Clears an observer's slot and then frees it. If the broker is killed between these two steps, the next broker
    /// clears the slot again.
    fn free_pin(&mut self, series: SegmentId, pin: u32) {
        let Some(found) = self.lasting.series(series) else { return };
        let (observers, Some(slot)) = (found.observers, found.pins.get(&pin).map(|pin| pin.slot)) else { return };
        let page = page_id(series, slot / PIN_SLOTS);
        if self.is_named(series) && !self.pages.is_lost(page) {
            self.effects.push(Effect::ClearPins { page, from: slot % PIN_SLOTS, count: 1 });
        }
        self.pages.be_sure(pin_id(series, observers, pin));
        self.commit(Record::PinFreed { segment: series, pin });
    }

    fn holder(&self, series: SegmentId, pin: u32) -> MemberId {
        let pin = self.lasting.series(series).and_then(|s| s.pins.get(&pin));
        pin.map_or(MemberId::NONE, |pin| pin.holder)
    }

    pub(super) fn is_named(&self, series: SegmentId) -> bool {
        self.lasting.segments.get(&series).is_some_and(|s| s.removed.is_none())
    }

    /// After the broker's start: clears the slots of dead members. The slots of living members stay in doubt until
    /// these members list the slots that they still use.
    pub(super) fn recover_series(&mut self, held: &BTreeSet<SegmentId>) {
        let series = self.lasting.segments.iter().filter(|(_, s)| s.removed.is_none() && s.series.is_some());
        for id in series.map(|(id, _)| *id).collect::<Vec<_>>() {
            let Some(series) = self.lasting.series(id) else { continue };
            let (pages, observers) = (series.pages.len() as u32, series.observers);
            let pins: Vec<_> = series.pins.iter().map(|(pin, of)| (*pin, of.holder)).collect();
            if !held.contains(&id) {
                self.lost.insert(id);
            }
            let lost = (0..pages).map(|page| page_id(id, page)).filter(|page| !held.contains(page));
            lost.for_each(|page| self.pages.lose(page));
            for (pin, holder) in pins {
                if self.lasting.members.contains_key(&holder) {
                    self.pages.doubt([pin_id(id, observers, pin)]);
                } else {
                    self.free_pin(id, pin);
                }
            }
            // While the page's descriptor was lost, observers with slots in the page may have ended. A former broker
            // may have got the page back, and may have been killed before it cleared these slots. So all free slots are
            // cleared now.
            for page in (0..pages).filter(|page| !self.pages.is_lost(page_id(id, *page))).collect::<Vec<_>>() {
                self.clear_free(id, page);
            }
        }
    }
}

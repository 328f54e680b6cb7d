//! The requests of publishers: to begin a series, to get the pin pages of its observers, and to end it.

use crossdock_layout::name::MIRROR;
use crossdock_layout::wire::{Answer, MAX_PINS, PIN_PAGE, PageEntry, Request, SegmentKind, page_id};
use crossdock_layout::{MemberId, Rights, SegmentId, Status};

use super::mirrors::is_mirror;
use super::open::MAX_SIZE;
use super::{Attachment, Broker, Cause, Descriptor, Effect, Record, Requester, text};

impl Broker {
    pub(super) fn publish(&mut self, asker: Requester, request: Request, descriptors: &[Descriptor]) {
        let again = request.clone();
        let Request::Publish { size, reserved, attribute, observers, name } = request else { return };
        let Some((endpoint, workflow)) = self.place(asker) else { return };
        if is_mirror(&name) && !self.is_admin(asker.connection) {
            return self.fail(asker, Status::Denied, format!("names that begin with {MIRROR} are the daemon's own"));
        }
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
        let number = match descriptors {
            [Descriptor::Pool { size: found, number }] if *found == size => Some(*number),
            _ => None,
        };
        let Some(number) = number.filter(|_| size > 0 && size <= MAX_SIZE && reserved <= size) else {
            let text = format!(
                "what came as the memory of series '{name}' is not {} sealed against shrinking, growing, new writers \
                 and unsealing",
                text::bytes(size)
            );
            return self.fail(asker, Status::Invalid, text);
        };
        if observers == 0 || observers > MAX_PINS {
            let text =
                format!("series '{name}' cannot have {observers} observers at once; at least 1, at most {MAX_PINS}");
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
        if let Some(node) = self.owner_elsewhere(workflow, SegmentKind::Series, &name) {
            let Some(name) = self.site_name(workflow, SegmentKind::Series, &name) else { return };
            return self.ask_for_series_name(asker, again, name, node);
        }
        if !self.journal_works(asker) || !self.has_name(asker, workflow, SegmentKind::Series, &name, || again) {
            return;
        }
        self.keep_promise(workflow, &name);
        let what = format!("series '{name}'");
        // If no observer has the former publisher's series open, that series ends as soon as the new series takes its
        // name. So the memory and the descriptors of that series count as free in the next lines.
        let unused = former.filter(|f| !self.open_segments.is_open(*f) && self.away(workflow).is_empty());
        let left = unused.and_then(|f| self.lasting.segments.get(&f));
        let (room, slots) = left.map_or((0, 0), |s| (s.reserved, s.descriptors()));
        let more = 1_u64.saturating_sub(slots);
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
        let since_ms = self.calendar_ms();
        self.commit(Record::Series {
            segment,
            workflow,
            run,
            name,
            size,
            reserved,
            attribute,
            observers,
            since_ms,
            cause,
        });
        self.open_segments.open_once(segment, asker.member);
        self.answer(asker, &Answer::Done { value: segment.0 });
        self.wake_waiting(segment);
    }

    /// Answers a repeated request to publish, whose first answer was lost with the former broker. If the pool was lost
    /// with the keeper, no member offers the pool again, because the publisher never got the answer that the daemon had
    /// the pool.
    pub(super) fn published_again(&mut self, asker: Requester, segment: SegmentId) {
        if self.is_lost(segment) {
            self.take_name(segment, Cause::NONE);
        }
        if self.lasting.segments.get(&segment).is_none_or(|s| s.removed.is_some()) {
            let text =
                format!("{segment} was lost with the former daemon before its publisher knew of it; publish it again");
            return self.fail(asker, Status::NotFound, text);
        }
        self.open_segments.open_once(segment, asker.member);
        self.answer(asker, &Answer::Done { value: segment.0 });
    }

    /// Fails a request to publish that had to wait until this node had the series' name. The pool came with that
    /// request, and was dropped meanwhile. So the publisher must send its request once more, with the pool.
    pub(super) fn publish_again(&mut self, asker: Requester, name: &str) {
        let text = format!("the name of series '{name}' is this node's now; publish it again");
        self.fail(asker, Status::NotFound, text);
    }

    /// Sends a publisher the next pin page that it does not know yet.
    pub(super) fn pins(&mut self, asker: Requester, segment: SegmentId, from: u32) {
        let named = self.lasting.segments.get(&segment).is_some_and(|s| s.removed.is_none());
        let found = self.lasting.series(segment).filter(|s| named && s.publisher == asker.member && !s.ended);
        let Some(series) = found else {
            return self.fail(asker, Status::NotFound, format!("{segment} is no series that this program publishes"));
        };
        let pages = series.pages.len() as u32;
        for page in from..pages {
            let id = page_id(segment, page);
            if !self.pages.is_lost(id) {
                let answer = Answer::Pins(PageEntry { page: id, next: page + 1, left: pages - page - 1 });
                let message = answer.encode(asker.opcode, asker.number);
                let with = Attachment::Segment { segment: id, writable: false };
                return self.effects.push(Effect::Send { connection: asker.connection, message, with });
            }
            // The page was lost with the keeper. A living observer that has a slot of the page may offer the page
            // again. If there is no such observer, no living observer has a pin in the page.
            let holder = self.lasting.series(segment).and_then(|series| series.holders(page).next());
            if let Some(holder) = holder {
                let text = format!("a pin page of {segment} waits to be offered again by {}", self.who(holder));
                return self.fail(asker, Status::Busy, text);
            }
        }
        self.fail(asker, Status::NotYet, format!("{segment} has {pages} pin pages"));
    }

    /// Handles an offer of a lost pin page. The publisher or an observer, which has the page mapped, makes this offer.
    pub(super) fn take_page_back(
        &mut self,
        asker: Requester,
        series: SegmentId,
        page: u32,
        descriptors: &[Descriptor],
    ) {
        let id = page_id(series, page);
        if !self.pages.is_lost(id) {
            // Another member has offered this page before, so nothing remains to be done.
            return self.answer(asker, &Answer::Done { value: 0 });
        }
        let number = match descriptors {
            [Descriptor::Memory { size: PIN_PAGE, number }] => *number,
            _ => 0,
        };
        if !self.is_memory_of(id, number) {
            let line = format!("{} offered other memory as {id}; it was refused", self.who(asker.member));
            self.effects.push(Effect::Log { line });
            let text = format!("what was offered as {id} is other memory than it was");
            return self.fail(asker, Status::Denied, text);
        }
        self.pages.is_settled(id);
        self.effects.push(Effect::Adopt { segment: id });
        // Observers that died while the page's descriptor was lost may have left pins in their slots. So the slots that
        // no observer has now are cleared.
        self.clear_free(series, page);
        self.answer(asker, &Answer::Done { value: 1 });
    }

    /// Clears the slots of a page that belong to no observer.
    pub(super) fn clear_free(&mut self, series: SegmentId, page: u32) {
        let ranges = self.lasting.series(series).map(|s| s.free_ranges(page)).unwrap_or_default();
        let page = page_id(series, page);
        self.effects.extend(ranges.into_iter().map(|(from, count)| Effect::ClearPins { page, from, count }));
    }

    pub(super) fn unpublish(&mut self, asker: Requester, segment: SegmentId) {
        let series = self.lasting.series(segment).filter(|s| s.publisher == asker.member);
        let Some(series) = series else {
            return self.fail(asker, Status::NotFound, format!("{segment} is no series that this program publishes"));
        };
        if !series.ended {
            let cause = Cause { member: asker.member, request: asker.number };
            self.commit(Record::Unpublished { segment, cause });
        }
        self.answer(asker, &Answer::Done { value: 0 });
    }

    /// Gives the member that publishes this series, if it is alive and may continue.
    pub(super) fn living_publisher(&self, segment: SegmentId) -> Option<MemberId> {
        let series = self.lasting.series(segment).filter(|s| !s.ended)?;
        self.lasting.members.contains_key(&series.publisher).then_some(series.publisher)
    }

    /// Tells whether the series' pool was lost with the former keeper and has not been offered again.
    pub(super) fn is_lost(&self, segment: SegmentId) -> bool {
        self.lost.contains(segment)
    }

    /// Tells whether members can begin to observe the series.
    pub(super) fn is_usable(&self, segment: SegmentId) -> bool {
        self.lasting.series(segment).is_some() && !self.is_lost(segment)
    }

    /// Gives a description of a member, for messages.
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

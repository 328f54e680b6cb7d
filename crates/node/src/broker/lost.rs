//! Handles lost memory: segments whose descriptors were lost with the keeper, and which members may offer to the daemon
//! again. A lost segment's name stays taken until no member can have the segment's memory any more.
//!
//! An offer is accepted only if the offered memory is the lost memory. The kernel's number for the memory shows this:
//! the journal has the number, and the kernel gives it to no other memory. So any member with a right to the memory may
//! offer it, even a member that may only read the memory. Only the pool of a series must come from the publisher of the
//! series. The reason is the liveness table: a publisher that does not have the new daemon's liveness table yet does
//! not notice the pin pages of new observers, so no observer may begin before the publisher has this table. A publisher
//! that offers its pool has connected to the new daemon, and got the table with that. The name becomes free when each
//! member that may have the memory is dead, or has connected again without the memory.

use crossdock_layout::wire::{Answer, Request, SegmentKind};
use crossdock_layout::{MemberId, Rights, SegmentId, Status};

use super::waits::Key;
use super::{Broker, Cause, Connection, Descriptor, Effect, MAIN_ENDPOINT, Outcome, Record, Requester, text};

/// How long a request waits for lost memory before it fails with the name of the member that may have the memory.
const PATIENCE_MS: u64 = 2_000;

impl Broker {
    /// Handles a member's offer of lost memory that it has mapped.
    pub(super) fn offer(&mut self, asker: Requester, segment: SegmentId, descriptors: &[Descriptor]) {
        let Some((endpoint, workflow)) = self.place(asker) else { return };
        let whole = self.lasting.page_of(segment).map_or(segment, |(series, _)| series);
        let found = self.lasting.segments.get(&whole).filter(|s| {
            s.removed.is_none()
                && (s.workflow == workflow || endpoint == MAIN_ENDPOINT)
                && self.lasting.rights(endpoint, s.kind, &s.name) != Rights::NONE
        });
        if let Some((series, page)) = self.lasting.page_of(segment).filter(|_| found.is_some()) {
            return self.take_page_back(asker, series, page, descriptors);
        }
        let Some(found) = found else {
            return self.fail(asker, Status::NotFound, format!("{segment} is none that the daemon waits for"));
        };
        if !self.lost.contains(segment) {
            // Another member has offered this memory before, so nothing remains to be done.
            return self.answer(asker, &Answer::Done { value: 0 });
        }
        let number = match (descriptors, found.series.is_some()) {
            ([Descriptor::Memory { size, number }], false) if *size == found.size => Some(*number),
            ([Descriptor::Pool { size, number }], true) if *size == found.size => Some(*number),
            _ => None,
        };
        let Some(number) = number else {
            let text = format!("what was offered as {segment} is not sealed memory of {}", text::bytes(found.size));
            return self.fail(asker, Status::Invalid, text);
        };
        if !self.is_memory_of(segment, number) {
            let line = format!("{} offered other memory as {segment}; it was refused", self.who(asker.member));
            self.effects.push(Effect::Log { line });
            let text = format!("what was offered as {segment} is other memory than it was");
            return self.fail(asker, Status::Denied, text);
        }
        if found.series.as_ref().is_some_and(|series| series.publisher != asker.member) {
            return self.answer(asker, &Answer::Done { value: 0 });
        }
        self.lost.remove(segment);
        self.effects.push(Effect::Adopt { segment });
        self.answer(asker, &Answer::Done { value: 1 });
        if !self.is_lost(segment) {
            self.wake_waiting(segment);
        }
        if let Some(item) = self.lasting.items.files.get(&segment).copied() {
            self.serve_waiting(item);
        }
    }

    /// Tells whether the memory with the inode number `number` is the memory that belongs to the id `id`.
    pub(super) fn is_memory_of(&self, id: SegmentId, number: u64) -> bool {
        number != 0 && self.lasting.numbers.get(&id) == Some(&number)
    }

    /// Lets the request wait until the memory is offered, or until the name of the lost segment is free.
    pub(super) fn await_offer(&mut self, asker: Requester, segment: SegmentId, request: Request, wait_ms: u64) {
        let Some(found) = self.lasting.segments.get(&segment) else { return };
        let key = (found.workflow, found.kind, found.name.clone());
        self.park(asker, key, Rights::NONE, wait_ms.max(PATIENCE_MS), Some(request));
    }

    /// Serves the requests that no longer wait for lost memory, one after another. If a request makes a segment, the
    /// next request waits until the host has made it, because the next request may ask for the name of that segment.
    /// The requests also wait while the host proves an item: the result may begin a copy of the item, and the copy must
    /// get the next segment id. A request that is served earlier would take this id.
    pub(super) fn serve_again(&mut self) {
        let proves = |effect: &Effect| matches!(effect, Effect::ProveItem { .. });
        while !self.is_making() && !self.effects.iter().any(proves) {
            let Some((waits, member, request)) = self.again.pop_front() else { return };
            if self.has_member(waits.0, member) {
                self.ask_again(waits, member, request);
                // A request for an item may need a proof. If so, the effect that asks for the proof is added here, and
                // no further request is served now, because the host reports the proof before any other event.
                self.finish_items();
            }
        }
    }

    /// Serves a request anew, after it has waited.
    fn ask_again(&mut self, waits: (Connection, u64), member: MemberId, request: Request) {
        let asker = Requester { connection: waits.0, member, number: waits.1, opcode: request.number() };
        let outcome = self.lasting.members.get(&member).and_then(|m| m.outcomes.get(&waits.1)).copied();
        match (outcome, request) {
            // The observer still waits for the answer to this request. The series that the request found when it came
            // first may be gone by now, so the request is served anew.
            (_, Request::Observe { wait_ms, former, name }) => self.observe(asker, wait_ms, former, name),
            // The segment that the request made was lost with the keeper, and no member ever had it. So the request is
            // served anew.
            (Some(Outcome::Made(segment)), request @ Request::Open { .. }) if !self.is_named(segment) => {
                self.open(asker, request);
            }
            (Some(outcome), request) => self.repeat(asker, &request, outcome, &[]),
            (None, Request::Attach { segment, access }) => self.attach(asker, segment, access),
            (None, Request::Item(request)) => self.serve_item(asker, request),
            (None, Request::Publish { name, .. }) => self.publish_again(asker, &name),
            (None, Request::Adopt { order, named, segment, former }) => {
                self.adopt(asker, order, (segment, former), named);
            }
            (None, request) => self.open(asker, request),
        }
    }

    /// Frees the names of lost memory that no member can offer any more.
    pub(super) fn settle_lost(&mut self) {
        for (lost, former) in self.lost.take_unsettled() {
            if !self.lost.contains(lost) {
                continue;
            }
            // The search goes on where the last search for this segment ended. So all searches for one segment together
            // look at each member only a few times.
            if let Some(member) = self.may_have_from(lost, former) {
                self.lost.set_holder(lost, member);
                continue;
            }
            self.lost.remove(lost);
            if self.lasting.items.files.contains_key(&lost) {
                self.item_lost(lost);
                continue;
            }
            self.take_name(lost, Cause::NONE);
            self.forget_making(lost);
        }
    }

    /// Gives the first member from `start` on that may have the lost memory. The first of all members comes after the
    /// last one.
    fn may_have_from(&self, lost: SegmentId, start: MemberId) -> Option<MemberId> {
        let members = &self.lasting.members;
        let mut from = members.range(start..).chain(members.range(..start)).map(|(member, _)| *member);
        from.find(|member| self.may_have_it(lost, *member))
    }

    /// Checks that each settled lost segment has a member that may offer it.
    pub(super) fn check_lost(&self) {
        for (lost, member) in self.lost.settled() {
            assert!(self.may_have_it(lost, member), "{lost} waits for {member}, which cannot have it");
        }
    }

    /// Forgets the outcome of the request that made this segment or item, after its memory was lost for good. If the
    /// member repeats the request, it never got the memory, so the request is served anew.
    pub(super) fn forget_making(&mut self, made: SegmentId) {
        let is_outcome = |member: &super::Member| member.outcomes.values().any(|o| *o == Outcome::Made(made));
        if self.lasting.members.values().any(is_outcome) {
            self.commit(Record::Undone { made });
        }
    }

    /// Lets the requests that wait for lost memory of this name be served again, because the name is free.
    pub(super) fn end_waits_for_memory(&mut self, key: &Key) {
        for waits in self.waits.queue_for_memory(key) {
            let asked = self.unpark(waits).and_then(|parked| parked.asked_again(self.now));
            self.again.extend(asked.map(|(member, request)| (waits, member, request)));
        }
    }

    /// Gives the members that may have lost memory mapped and can still offer it.
    fn may_have(&self, lost: SegmentId) -> impl Iterator<Item = MemberId> {
        self.lasting.members.keys().copied().filter(move |member| self.may_have_it(lost, *member))
    }

    /// Tells whether this member may have lost memory mapped and can still offer it.
    fn may_have_it(&self, lost: SegmentId, member: MemberId) -> bool {
        let (found, known) = (self.lasting.segments.get(&lost), self.lasting.members.get(&member));
        found.zip(known).is_some_and(|(found, known)| {
            // A member that has listed what it has open may have offered the memory in vain, for example because the
            // broker had no descriptor left. It offers the memory again.
            let holds = !self.listed.contains(&member) || self.open_segments.has(lost, member);
            match &found.series {
                // Only the publisher of a series may offer the series' lost pool.
                Some(series) => series.publisher == member && holds,
                None => {
                    let near = known.workflow == found.workflow || known.endpoint == MAIN_ENDPOINT;
                    near && holds && self.lasting.rights(known.endpoint, found.kind, &found.name) != Rights::NONE
                }
            }
        })
    }

    /// Gives the error for an existing name whose memory is lost.
    pub(super) fn why_lost(&self, key: &(u64, SegmentKind, String)) -> String {
        let segment = match key.1 {
            SegmentKind::Item => {
                let item = self.lasting.items.of_key(key.0, &key.2);
                item.and_then(|item| self.lasting.items.all.get(&item)).map(|item| item.file)
            }
            _ => self.lasting.names.get(key).copied(),
        };
        let members: Vec<_> = segment.map(|segment| self.may_have(segment).collect()).unwrap_or_default();
        let who = match members.as_slice() {
            [] => "no living member; try again".to_owned(),
            [one] => self.who(*one),
            [one, others @ ..] => format!("{}, or one of {} others that may have it", self.who(*one), others.len()),
        };
        format!("{} '{}' waits to be offered again after the daemon's end by {who}", key.1.word(), key.2)
    }
}

#[cfg(test)]
mod tests {
    use crossdock_layout::wire::{InUse, ItemLevel, ItemRequest, OnDeath, OpenMode};

    use super::*;
    use crate::broker::bench::{Bench, status};
    use crate::broker::{Event, Limits};

    const POOL: Descriptor = Descriptor::Pool { size: 8192, number: 7 };
    const NAME: &str = "s";

    fn publish(bench: &mut Bench) -> SegmentId {
        let name = NAME.to_owned();
        let publish = Request::Publish { size: 8192, reserved: 8192, attribute: 0, observers: 4, name };
        let number = bench.say_with(1, &publish, &[POOL]);
        match bench.answer(1, number) {
            Some(Answer::Done { value }) => SegmentId(value),
            other => panic!("not published: {other:?}"),
        }
    }

    fn open(mode: OpenMode, wait_ms: u64) -> Request {
        let (kind, access) = (SegmentKind::Region, Rights::WRITE);
        let name = "r".to_owned();
        Request::Open { kind, mode, access, size: 8192, reserve: 0, attribute: 0, wait_ms, persistent: false, name }
    }

    /// Makes the next daemon, after the keeper's death.
    fn next_daemon(bench: &mut Bench) {
        bench.lose_all();
        bench.restart();
    }

    fn text_of(answer: Option<Answer>) -> String {
        match answer {
            Some(Answer::Failed { text, .. }) => text,
            other => panic!("no error, but {other:?}"),
        }
    }

    #[test]
    fn a_publisher_that_offered_its_pool_in_vain_keeps_the_name_and_offers_again() {
        let mut bench = Bench::new(Limits::default());
        let publisher = bench.join(1, MAIN_ENDPOINT, "p", 0).unwrap();
        let series = publish(&mut bench);
        next_daemon(&mut bench);
        bench.hello(101, MAIN_ENDPOINT, "p", 0, publisher);
        // The host has no descriptor left for the pool that the publisher offers, so the broker does not see the offer.
        bench.say(101, &Request::Hold { segment: series, count: 1 });
        bench.say(101, &Request::Hold { segment: SegmentId(0), count: 0 });
        assert!(bench.broker.is_named(series));
        let number = bench.say_with(101, &Request::Offer { segment: series }, &[POOL]);
        assert_eq!(bench.answer(101, number), Some(Answer::Done { value: 1 }));
        assert!(bench.broker.is_named(series) && !bench.broker.is_lost(series));
    }

    #[test]
    fn who_waits_for_a_lost_cooperative_item_gets_it_when_it_is_offered() {
        let mut bench = Bench::new(Limits::default());
        let owner = bench.join(1, MAIN_ENDPOINT, "a", 0).unwrap();
        let item = bench.create(1, "x", ItemLevel::Cooperative);
        let file = bench.broker.lasting().items.all[&item].file;
        next_daemon(&mut bench);
        bench.join(2, MAIN_ENDPOINT, "b", 0);
        let access = |wait_ms| ItemRequest::Access { read: false, wait_ms, keys: vec!["x".into()] };
        let refused = bench.ask_item(2, access(0));
        assert_eq!(status(refused.clone()), Some(Status::Busy));
        assert!(text_of(refused).contains("offered again"), "the error names the member that may have the item");
        let late = bench.say(2, &Request::Item(access(50)));
        bench.tick(50);
        assert_eq!(status(bench.answer(2, late)), Some(Status::Busy));
        let waiting = bench.say(2, &Request::Item(access(30_000)));
        assert_eq!(bench.answer(2, waiting), None);
        bench.hello(101, MAIN_ENDPOINT, "a", 0, owner);
        let size = bench.broker.lasting().segments[&file].size;
        let memory = Descriptor::Memory { size, number: 1 };
        bench.say_with(101, &Request::Offer { segment: file }, &[memory]);
        assert!(matches!(bench.answer(2, waiting), Some(Answer::Item(given)) if given.item == item));
    }

    #[test]
    fn errors_about_an_item_that_was_lost_with_the_daemon_say_so() {
        let mut bench = Bench::new(Limits::default());
        let owner = bench.join(1, MAIN_ENDPOINT, "a", 0).unwrap();
        let item = bench.create(1, "x", ItemLevel::Verified);
        next_daemon(&mut bench);
        bench.hello(101, MAIN_ENDPOINT, "a", 0, owner);
        bench.say(101, &Request::Hold { segment: SegmentId(0), count: 0 });
        bench.say(101, &Request::Item(ItemRequest::Hold { item: SegmentId(0) }));
        let access = ItemRequest::Access { read: false, wait_ms: 0, keys: vec!["x".into()] };
        for request in [access, ItemRequest::Reopen { item }] {
            let answer = bench.ask_item(101, request);
            assert_eq!(status(answer.clone()), Some(Status::NotFound));
            let text = text_of(answer);
            assert!(text.contains("lost with the former daemon"), "{text}");
        }
    }

    #[test]
    fn a_request_to_make_what_was_lost_before_its_answer_came_makes_it() {
        let region = open(OpenMode::CreateOnly, 0);
        let item = |level| {
            let (size, on_death, key) = (5000, OnDeath::Keep, "x".to_owned());
            Request::Item(ItemRequest::Create { size, level, on_death, key })
        };
        for request in [region, item(ItemLevel::Verified), item(ItemLevel::Cooperative)] {
            for restarts in [1, 2] {
                let mut bench = Bench::new(Limits::default());
                let member = bench.join(1, MAIN_ENDPOINT, "a", 0).unwrap();
                let number = bench.say(1, &request);
                bench.lose_all();
                let mut connection = 1;
                for _ in 0..restarts {
                    bench.restart();
                    connection += 100;
                    bench.hello(connection, MAIN_ENDPOINT, "a", 0, member);
                }
                // The member did not get the answer, so it lists nothing. Then it sends the request again.
                bench.say(connection, &Request::Hold { segment: SegmentId(0), count: 0 });
                bench.say(connection, &Request::Item(ItemRequest::Hold { item: SegmentId(0) }));
                let message = request.encode(number, 0);
                bench.event(Event::Message { connection, bytes: Some(&message), descriptors: &[] });
                match bench.answer(connection, number) {
                    Some(Answer::Segment { created: true, .. }) => {}
                    Some(Answer::Item(given)) if given.created => {}
                    other => panic!("{request:?} after {restarts} restarts: {other:?}"),
                }
            }
        }
    }

    #[test]
    fn an_event_that_closes_nothing_makes_the_broker_look_for_no_member() {
        let mut bench = Bench::new(Limits::default());
        let away = bench.join(1, MAIN_ENDPOINT, "a", 0).unwrap();
        let region = bench.ask(1, open(OpenMode::CreateOnly, 0));
        let Some(Answer::Segment { segment, .. }) = region else { panic!("it can be made") };
        next_daemon(&mut bench);
        let settled = |bench: &Bench| bench.broker.lost.settled().collect::<Vec<_>>();
        assert_eq!(settled(&bench), [(segment, away)]);
        let other = bench.join(2, MAIN_ENDPOINT, "b", 0).unwrap();
        bench.say(2, &Request::Hold { segment: SegmentId(0), count: 0 });
        bench.tick(10);
        assert_eq!((settled(&bench), bench.broker.lost.take_unsettled()), (vec![(segment, away)], vec![]));
        bench.event(Event::ProcessDied { member: other });
        assert_eq!(settled(&bench), [(segment, away)]);
        bench.event(Event::ProcessDied { member: away });
        assert!(bench.broker.lost.is_empty() && !bench.broker.is_named(segment));
    }

    #[test]
    fn only_a_member_that_has_asked_for_something_keeps_a_lost_name() {
        for asks in [false, true] {
            let mut bench = Bench::new(Limits::default());
            let maker = bench.join(1, MAIN_ENDPOINT, "a", 0).unwrap();
            let other = bench.join(2, MAIN_ENDPOINT, "b", 0).unwrap();
            let region = bench.ask(1, open(OpenMode::CreateOnly, 0));
            let Some(Answer::Segment { segment, .. }) = region else { panic!("it can be made") };
            bench.ask(2, Request::Describe { member: maker });
            // A member that has asked for nothing cannot have it open, whatever it says.
            bench.say(2, &Request::Hold { segment, count: 1 });
            if asks {
                bench.ask(2, open(OpenMode::OpenOnly, 0));
                bench.say(2, &Request::Detach { segment, count: 1 });
            }
            next_daemon(&mut bench);
            bench.event(Event::ProcessDied { member: maker });
            assert_eq!(bench.broker.is_named(segment), asks, "the other member may have it if it has asked for it");
            if asks {
                assert_eq!(bench.hello(102, MAIN_ENDPOINT, "b", 0, other), Some(other));
                bench.say(102, &Request::Hold { segment: SegmentId(0), count: 0 });
                assert!(!bench.broker.is_named(segment));
            }
        }
    }

    #[test]
    fn a_member_that_never_got_its_welcome_is_the_same_member_when_it_says_hello_again() {
        let mut bench = Bench::new(Limits::default());
        let member = bench.join(1, MAIN_ENDPOINT, "a", 0).unwrap();
        next_daemon(&mut bench);
        assert_eq!(bench.hello(101, MAIN_ENDPOINT, "a", 0, MemberId::NONE), Some(member));
        let region = bench.ask(101, open(OpenMode::CreateOnly, 0));
        let Some(Answer::Segment { segment, .. }) = region else { panic!("it can be made") };
        // The member's list is complete, so what it closes is closed at once.
        assert_eq!(bench.broker.open_segments.assumed_of(member), []);
        bench.say(101, &Request::Detach { segment, count: 1 });
        assert_eq!(bench.broker.open_segments.of_member(member), []);
    }

    #[test]
    fn an_observer_that_waits_for_a_lost_series_learns_who_may_have_it() {
        let mut bench = Bench::new(Limits::default());
        bench.join(1, MAIN_ENDPOINT, "p", 0);
        publish(&mut bench);
        next_daemon(&mut bench);
        bench.join(2, MAIN_ENDPOINT, "o", 0);
        let observe = Request::Observe { wait_ms: 100, former: false, name: NAME.into() };
        let number = bench.say(2, &observe);
        bench.tick(100);
        let answer = bench.answer(2, number);
        assert_eq!(status(answer.clone()), Some(Status::Busy));
        let text = text_of(answer);
        assert!(text.contains("task 'p'") && !text.contains("--former"), "{text}");
    }

    #[test]
    fn who_waits_for_lost_memory_is_served_as_soon_as_its_name_is_removed() {
        let mut bench = Bench::new(Limits::default());
        bench.join(1, MAIN_ENDPOINT, "a", 0);
        bench.ask(1, open(OpenMode::CreateOnly, 0));
        next_daemon(&mut bench);
        bench.join(2, MAIN_ENDPOINT, "b", 0);
        let waiting = bench.say(2, &open(OpenMode::OpenOrCreate, 10_000));
        assert_eq!(bench.answer(2, waiting), None);
        bench.join(3, MAIN_ENDPOINT, "c", 0);
        let name = "r".to_owned();
        let removed = bench.ask(3, Request::Remove { kind: SegmentKind::Region, in_use: InUse::Force, name });
        assert_eq!(status(removed), None);
        assert!(matches!(bench.answer(2, waiting), Some(Answer::Segment { .. })));
    }

    #[test]
    fn who_waited_for_lost_memory_waits_no_longer_than_it_asked_for() {
        let mut bench = Bench::new(Limits::default());
        let owner = bench.join(1, MAIN_ENDPOINT, "a", 0).unwrap();
        bench.ask(1, open(OpenMode::CreateOnly, 0));
        next_daemon(&mut bench);
        bench.join(2, MAIN_ENDPOINT, "b", 0);
        let waiting = bench.say(2, &open(OpenMode::OpenOnly, 10_000));
        bench.tick(9_000);
        bench.event(Event::ProcessDied { member: owner });
        assert_eq!(bench.answer(2, waiting), None, "the name is free, and the request waits for a new region");
        bench.tick(1_000);
        assert_eq!(status(bench.answer(2, waiting)), Some(Status::TimedOut));
    }
}

//! Checks that quota, memory and descriptors are left for new segments, and removes segments.

use crossdock_layout::wire::{Answer, InUse, SegmentKind};
use crossdock_layout::{MemberId, Rights, SegmentId, Status};

use super::{Broker, Cause, DEFAULT_WORKFLOW, Effect, NodeFailure, Record, Requester, Segment, Series, text};

impl Broker {
    /// Checks that this many bytes exceed neither the workflow's whole quota nor the daemon's limit.
    pub(super) fn fits(&self, workflow: u64, size: u64, what: &str) -> Result<(), String> {
        let Some(found) = self.lasting.workflows.get(&workflow) else { return Ok(()) };
        if found.quota != 0 && size > found.quota {
            return Err(format!(
                "{what} of {} is beyond the quota of workflow '{}', {}; make it smaller or raise the workflow's memory",
                text::bytes(size),
                found.name,
                text::bytes(found.quota)
            ));
        }
        if size > self.limits.memory {
            return Err(format!(
                "{what} of {} is more than this daemon may give out, {}; make it smaller, or start the daemon with a greater \
                 `crossdock serve --memory`",
                text::bytes(size),
                text::bytes(self.limits.memory)
            ));
        }
        Ok(())
    }

    /// Checks that the workflow can reserve this many more bytes now, within its quota, the daemon's limit and the free
    /// memory.
    pub(super) fn room(&self, workflow: u64, more: u64, what: &str) -> Result<(), String> {
        let Some(found) = self.lasting.workflows.get(&workflow) else { return Ok(()) };
        if found.quota != 0 && found.reserved.saturating_add(more) > found.quota {
            return Err(format!(
                "no room for {} more in {what}: workflow '{}' uses {} of its quota of {}; remove something or raise it",
                text::bytes(more),
                found.name,
                text::bytes(found.reserved),
                text::bytes(found.quota)
            ));
        }
        if self.lasting.reserved.saturating_add(more) > self.limits.memory {
            return Err(format!(
                "no room for {} more in {what}: all segments of this node use {} of {}",
                text::bytes(more),
                text::bytes(self.lasting.reserved),
                text::bytes(self.limits.memory)
            ));
        }
        if more > self.free {
            return Err(format!(
                "no room for {} more in {what}: the node, or the task's memory cgroup, has {} of memory left",
                text::bytes(more),
                text::bytes(self.free)
            ));
        }
        Ok(())
    }

    /// Checks that there are descriptors for `more` further segments. Each workflow except the default one may have at
    /// most half as many segments as the whole node.
    pub(super) fn descriptors(&self, workflow: u64, more: u64, what: &str) -> Result<(), String> {
        let Some(found) = self.lasting.workflows.get(&workflow) else { return Ok(()) };
        let share = if found.name == DEFAULT_WORKFLOW { self.limits.segments } else { self.limits.segments / 2 };
        let all: u64 = self.lasting.workflows.values().map(|w| w.segments).sum();
        if found.segments + more > share || all + more > self.limits.segments {
            return Err(format!(
                "no room for {what}: workflow '{}' has {} segments and the node {all}, of at most {share} and {}; \
                 remove some, or raise the daemon's descriptor limit (ulimit -n)",
                found.name, found.segments, self.limits.segments
            ));
        }
        Ok(())
    }

    pub(super) fn reserve(&mut self, asker: Requester, segment: SegmentId, upto: u64) {
        let holds = self.open_segments.has(segment, asker.member);
        let Some(found) = self.lasting.segments.get(&segment).filter(|_| holds) else {
            return self.fail(asker, Status::NotFound, format!("this program does not have {segment} open"));
        };
        let what = format!("{} '{}'", found.kind.word(), found.name);
        if upto > found.size {
            let text = format!("{what} has {}, {} were to be reserved", text::bytes(found.size), text::bytes(upto));
            return self.fail(asker, Status::Invalid, text);
        }
        // `upto` counts only the bytes of the publisher's pool. The bytes of the pin pages, which the daemon made, are
        // added here.
        let pages = found.series.as_ref().map_or(0, Series::page_bytes);
        let upto = upto.next_multiple_of(4096) + pages;
        let (workflow, more, has) = (found.workflow, upto.saturating_sub(found.reserved), found.reserved);
        let writes = self.place(asker).map(|(endpoint, _)| self.lasting.rights(endpoint, found.kind, &found.name));
        let writing = Rights::WRITE.with(Rights::PRODUCE).with(Rights::CONSUME).with(Rights::CREATE);
        let publishes = found.series.as_ref().map(|s| s.publisher == asker.member && !s.ended);
        if !publishes.unwrap_or_else(|| writes.is_some_and(|rights| rights.0 & writing.0 != 0)) {
            return self.fail(asker, Status::Denied, format!("this task may only read {what}"));
        }
        if more == 0 {
            return self.answer(asker, &Answer::Done { value: has - pages });
        }
        if !self.journal_works(asker) {
            return;
        }
        if let Err(text) = self.room(workflow, more, &what) {
            return self.fail(asker, Status::NoSpace, text);
        }
        self.free = self.free.saturating_sub(more);
        self.commit(Record::Reserved { segment, upto });
        self.answer(asker, &Answer::Done { value: upto - pages });
    }

    pub(super) fn remove(&mut self, asker: Requester, kind: SegmentKind, in_use: InUse, name: &str) {
        let Some((endpoint, workflow)) = self.place(asker) else { return };
        let rights = self.lasting.rights(endpoint, kind, name);
        if !rights.contains(Rights::REMOVE) {
            let text = format!("this task may not remove {} '{name}': its grant says {}", kind.word(), rights.words());
            return self.fail(asker, Status::Denied, text);
        }
        if kind == SegmentKind::Item {
            return self.remove_item(asker, workflow, in_use, name);
        }
        let here = self.lasting.names.contains_key(&(workflow, kind, name.to_owned()));
        if let Some(node) = self.owner_elsewhere(workflow, kind, name).filter(|_| !here) {
            let Some(name) = self.site_name(workflow, kind, name) else { return };
            return self.ask_to_remove(asker, name, in_use, node);
        }
        let cause = Cause { member: asker.member, request: asker.number };
        match self.remove_here(workflow, kind, in_use, name, cause) {
            Ok(()) => self.answer(asker, &Answer::Done { value: 0 }),
            Err(NodeFailure { status, text }) => self.fail(asker, status, text),
        }
    }

    /// Gives the members that have the segment open, as text for messages; `None` if there are none.
    pub(super) fn users(&self, segment: SegmentId) -> Option<String> {
        let holders = self.open_segments.of(segment);
        let count = holders.len();
        let names: Vec<_> = holders.take(3).map(|(member, _)| self.who(member)).collect();
        if names.is_empty() {
            return None;
        }
        let more = count.saturating_sub(names.len());
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        Some(format!("is open in {}{more}; let them end first, or use --force", names.join(", ")))
    }

    /// Removes a segment's name, so that the name is free immediately. The segment's memory counts against the quota
    /// until the last member has closed the segment.
    pub(super) fn take_name(&mut self, segment: SegmentId, cause: Cause) {
        let Some(found) = self.lasting.segments.get(&segment) else { return };
        let (workflow, key) = (found.workflow, (found.workflow, found.kind, found.name.clone()));
        let away = self.away(workflow);
        away.into_iter().for_each(|member| self.open_segments.assume(segment, member, 1));
        let holders = self.open_segments.of(segment).collect();
        let all = self.lasting.descriptors_of(segment);
        self.commit(Record::Removed { segment, holders, cause });
        self.unused.remove(&segment);
        for segment in all {
            self.lost.remove(segment);
            self.pages.is_settled(segment);
            self.effects.push(Effect::Forget { segment });
        }
        self.forget_slots(segment);
        self.release_if_unused(segment);
        self.end_waits_for_memory(&key);
    }

    /// Gives the members whose connections are lost, and which may have segments of this workflow open. When such a
    /// member connects again, it lists the segments that it has open. The member counts as away until its list is
    /// complete.
    pub(super) fn away(&self, workflow: u64) -> Vec<MemberId> {
        let away = self.lasting.members.iter().filter(|(id, m)| {
            !self.listed.contains(id) && (m.workflow == workflow || m.endpoint == super::MAIN_ENDPOINT)
        });
        away.map(|(id, _)| *id).collect()
    }

    /// Finds a member that may have this segment open: the member was there before this broker started, and has not yet
    /// listed what it has open. Gives a text about this member for messages; `None` if there is no such member.
    pub(super) fn possible_user(&self, segment: SegmentId) -> Option<String> {
        let found = self.lasting.segments.get(&segment)?;
        let member = self.unlisted.iter().find(|member| {
            let Some(known) = self.lasting.members.get(member) else { return false };
            let is_near = known.workflow == found.workflow || known.endpoint == super::MAIN_ENDPOINT;
            is_near && self.lasting.rights(known.endpoint, found.kind, &found.name) != Rights::NONE
        })?;
        let who = self.who(*member);
        Some(format!("may be open in {who}, which has not said yet what it has open; let it end first, or use --force"))
    }

    /// Releases a removed segment if no member has it open any more.
    pub(super) fn release_if_unused(&mut self, segment: SegmentId) {
        if self.open_segments.is_open(segment) {
            return;
        }
        if self.lasting.segments.get(&segment).is_some_and(|s| s.removed.is_some()) {
            self.commit(Record::Released { segment });
        }
    }

    pub(super) fn detach(&mut self, member: MemberId, segment: SegmentId, count: u32) {
        if let Some((series, pin)) = self.lasting.pin_of(segment) {
            return self.let_go(member, series, pin);
        }
        if self.open_segments.close(segment, member, count) {
            self.lost.doubt(segment, member);
            self.readers_left(segment);
            self.release_if_unused(segment);
        }
    }

    /// Handles one entry of the list that a returning member sends: a segment that the member has open, and how many
    /// times the member has opened it (`count`). The segment 0 ends the list.
    pub(super) fn hold(&mut self, member: MemberId, segment: SegmentId, count: u32) {
        if let Some((series, pin)) = self.lasting.pin_of(segment) {
            return self.keep_pin(member, series, pin);
        }
        if segment.0 == 0 {
            self.listed.insert(member);
            self.unlisted.remove(&member);
            self.free_unsure(member);
            self.lost.doubt_all_of(member);
            for segment in self.open_segments.assumed_of(member) {
                self.open_segments.remove(segment, member);
                self.readers_left(segment);
                self.release_if_unused(segment);
            }
            return;
        }
        let known = self.lasting.members.get(&member).filter(|m| m.may_hold);
        let Some(workflow) = known.map(|m| (m.endpoint, m.workflow)) else { return };
        let visible = |s: &Segment| {
            (s.workflow == workflow.1 || workflow.0 == super::MAIN_ENDPOINT)
                && self.lasting.rights(workflow.0, s.kind, &s.name) != Rights::NONE
        };
        if !self.lasting.segments.get(&segment).is_some_and(visible) {
            return;
        }
        self.open_segments.set(segment, member, count);
        self.lost.doubt(segment, member);
        self.readers_left(segment);
        self.release_if_unused(segment);
    }
}

#[cfg(test)]
mod tests {
    use crossdock_layout::wire::{ItemLevel, OpenMode, Request};

    use super::*;
    use crate::broker::bench::{Bench, status};
    use crate::broker::{Limits, MAIN_ENDPOINT};

    fn open() -> Request {
        Request::Open {
            kind: SegmentKind::Region,
            mode: OpenMode::OpenOrCreate,
            access: Rights::READ.with(Rights::WRITE),
            size: 4096,
            reserve: 0,
            attribute: 0,
            wait_ms: 0,
            persistent: true,
            name: "r".into(),
        }
    }

    /// Restarts the broker while one member has the region `r` and the cooperative item `x` open. Then another member
    /// connects. Returns the region and the first member.
    fn restarted(bench: &mut Bench) -> (SegmentId, MemberId) {
        let member = bench.join(1, MAIN_ENDPOINT, "a", 0).unwrap();
        let Some(Answer::Segment { segment, .. }) = bench.ask(1, open()) else { panic!("it can be made") };
        bench.create(1, "x", ItemLevel::Cooperative);
        bench.restart();
        bench.join(2, MAIN_ENDPOINT, "daemon", 0).unwrap();
        (segment, member)
    }

    #[test]
    fn a_region_is_not_frozen_before_a_member_that_came_back_has_listed_what_it_has_open() {
        let mut bench = Bench::new(Limits::default());
        let (segment, member) = restarted(&mut bench);
        bench.ask(2, open());
        bench.hello(101, MAIN_ENDPOINT, "a", 0, member);
        let freeze = || Request::Freeze { segment, moves: true };
        assert_eq!(status(bench.ask(2, freeze())), Some(Status::Busy));
        bench.say(101, &Request::Hold { segment, count: 1 });
        bench.say(101, &Request::Hold { segment: SegmentId(0), count: 0 });
        assert_eq!(status(bench.ask(2, freeze())), Some(Status::Busy));
        bench.say(101, &Request::Detach { segment, count: 1 });
        assert_eq!(status(bench.ask(2, freeze())), None);
    }

    #[test]
    fn what_a_member_that_has_not_come_back_may_have_open_is_not_removed() {
        let mut bench = Bench::new(Limits::default());
        let (_, member) = restarted(&mut bench);
        let removed = |bench: &mut Bench, expected| {
            for (kind, name) in [(SegmentKind::Region, "r"), (SegmentKind::Item, "x")] {
                let answer = bench.ask(2, Request::Remove { kind, in_use: InUse::Refuse, name: name.into() });
                assert_eq!(status(answer), expected, "{name}");
            }
        };
        removed(&mut bench, Some(Status::Busy));
        bench.hello(101, MAIN_ENDPOINT, "a", 0, member);
        removed(&mut bench, Some(Status::Busy));
        bench.say(101, &Request::Hold { segment: SegmentId(0), count: 0 });
        removed(&mut bench, None);
    }
}

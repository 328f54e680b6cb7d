//! Handles what happens when a member leaves or dies, when a connection ends, and when a deadline passes. Also
//! completes the state of the former broker when a new broker starts.

use std::collections::BTreeSet;

use crossdock_layout::wire::{Answer, MemberEntry, MemberState, SegmentKind};
use crossdock_layout::{MemberId, SegmentId, Status};

use super::{Broker, Cause, Connection, DEFAULT_WORKFLOW, Due, Effect, MAIN_ENDPOINT, REMEMBERED, Record, Requester};

impl Broker {
    /// Tells whether `member` is still the member of `connection`.
    pub(super) fn has_member(&self, connection: Connection, member: MemberId) -> bool {
        self.links.get(&connection).is_some_and(|link| link.member == Some(member))
    }

    /// After the broker's start: compares the state from the journal with the descriptors that the keeper has, and
    /// completes the changes that the former broker left unfinished.
    pub(super) fn recover(&mut self, base: u64, held: &BTreeSet<SegmentId>, listening: &BTreeSet<u64>) {
        let base = base.max(1);
        // The node's number is part of the ids that this broker gives out, so no other node of the site gives out the
        // same ids.
        let first = base | self.limits.site.as_ref().map_or(0, |site| site.number << super::NODE_SHIFT);
        let next = &self.lasting;
        if next.next_member == 0 {
            let counters = Record::Counters { member: base, segment: first, number: 1 };
            self.commit(counters);
        } else if next.next_segment >> super::NODE_SHIFT < first >> super::NODE_SHIFT {
            // The journal comes from an earlier start of the daemon, in which the daemon was not a node of a site. From
            // now on the daemon's ids contain its node's number.
            let counters = Record::Counters { member: next.next_member, segment: first, number: next.next_number };
            self.commit(counters);
        }
        let first = self.lasting.era.map_or(self.lasting.next_member, |era| era.first);
        let era = super::ProofScope { first, ..self.limits.era };
        if self.lasting.era != Some(era) {
            self.commit(Record::Era(era));
        }
        if !self.lasting.workflow_names.contains_key(DEFAULT_WORKFLOW) {
            let number = self.lasting.next_number;
            let name = DEFAULT_WORKFLOW.to_owned();
            self.commit(Record::Workflow { number, quota: 0, owner: MemberId::NONE, name, cause: Cause::NONE });
        }
        // If the keeper has a descriptor of a segment without a record, the segment belongs to a request that was never
        // answered. So the keeper drops the descriptor.
        for segment in held {
            if self.lasting.of(*segment).is_none_or(|(_, s)| s.removed.is_some()) {
                self.effects.push(Effect::Forget { segment: *segment });
            }
        }
        for endpoint in listening {
            if *endpoint != MAIN_ENDPOINT && !self.lasting.endpoints.contains_key(endpoint) {
                self.effects.push(Effect::Unlisten { endpoint: *endpoint });
            }
        }
        self.deaf = self.lasting.endpoints.keys().filter(|number| !listening.contains(number)).copied().collect();
        for (member, known) in &self.lasting.members {
            // A member that has never asked for anything has nothing to list.
            let has_list = if known.may_hold { &mut self.unlisted } else { &mut self.listed };
            has_list.insert(*member);
        }
        self.recover_items(held);
        let known: Vec<_> = self.lasting.segments.iter().map(|(id, s)| (*id, s.removed.clone())).collect();
        for (segment, removed) in known {
            match removed {
                Some(holders) => {
                    let holders = holders.into_iter().filter(|(m, _)| self.lasting.members.contains_key(m));
                    holders.for_each(|(member, count)| self.open_segments.assume(segment, member, count));
                    self.release_if_unused(segment);
                }
                None if !held.contains(&segment) => {
                    self.lost.insert(segment);
                }
                None => {}
            }
        }
        self.recover_series(held);
        self.recover_runs();
        self.heard.extend(self.lasting.members.keys().map(|member| (*member, self.now)));
        // A workflow's owner may have been recorded as dead just before the former broker ended. The workflow then
        // still has to be ended.
        let orphans = self
            .lasting
            .workflows
            .iter()
            .filter(|(_, w)| w.name != DEFAULT_WORKFLOW && !self.lasting.members.contains_key(&w.owner));
        for number in orphans.map(|(number, _)| *number).collect::<Vec<_>>() {
            self.finish_workflow(number, Cause::NONE);
        }
    }

    pub(super) fn disconnected(&mut self, connection: Connection) {
        let member = self.links.get(&connection).and_then(|l| l.member);
        self.forget_link(connection);
        // The end of a connection does not prove that its member is dead. The process may have run out of descriptors,
        // or may be about to connect again. So the host asks the kernel.
        if let Some(member) = member.filter(|m| self.connected.get(m) == Some(&connection)) {
            self.connected.remove(&member);
            self.goes_away(member);
        }
    }

    /// Notes that a member has no connection any more, but is not proved dead. The broker assumes that the member keeps
    /// its segments open, until the member connects again and lists them. A member that has never asked for anything has
    /// nothing open.
    pub(super) fn goes_away(&mut self, member: MemberId) {
        self.forget_listed_items(member);
        if self.lasting.holds_nothing(member) {
            return;
        }
        self.listed.remove(&member);
        self.open_segments.assume_all_of(member);
        self.pages.doubt(self.lasting.pins_of(member));
    }

    pub(super) fn bye(&mut self, asker: Requester) {
        self.connected.remove(&asker.member);
        if let Some(link) = self.links.get_mut(&asker.connection) {
            link.member = None;
        }
        self.gone(asker.member, MemberState::Left);
        // The end of the member may have ended its workflow, and with the workflow this connection.
        if self.links.contains_key(&asker.connection) {
            self.answer(asker, &Answer::Done { value: 0 });
            self.drop_link(asker.connection, "it left");
        }
    }

    /// Closes the connection of a client that broke the rules of the protocol, and ends the session of its member. No
    /// other client is affected. The member keeps its mappings until its process is dead.
    pub(super) fn expel(&mut self, connection: Connection, why: &str) {
        let member = self.links.get(&connection).and_then(|l| l.member);
        self.drop_link(connection, why);
        let Some(member) = member.filter(|m| self.connected.get(m) == Some(&connection)) else { return };
        self.connected.remove(&member);
        let Some(peer) = self.lasting.members.get(&member).map(|m| m.peer) else { return };
        self.leave_standing(member, MemberState::Left, Record::Ghost { member, peer });
    }

    /// Closes a connection to which no member belongs, and forgets it.
    pub(super) fn drop_link(&mut self, connection: Connection, why: &str) {
        self.forget_link(connection);
        self.close(connection, why);
    }

    pub(super) fn close(&mut self, connection: Connection, why: &str) {
        self.effects.push(Effect::Close { connection, why: why.to_owned() });
    }

    fn forget_link(&mut self, connection: Connection) {
        let Some(link) = self.links.remove(&connection) else { return };
        if let Some(silent) = self.silent.get_mut(&link.endpoint) {
            silent.remove(&connection);
        }
        self.waits.is_over(link.hello_due, Due::Hello(connection));
        for request in self.waits.of_connection(connection) {
            self.unpark(request);
        }
        self.forget_item_waits(connection);
    }

    /// Records that a member is proved dead. If the member still has a session, ends the session.
    pub(super) fn died(&mut self, member: MemberId) {
        if self.lasting.ghosts.contains_key(&member) {
            self.effects.push(Effect::Dead { member });
            self.commit(Record::MemberGone { member });
        } else {
            self.gone(member, MemberState::Dead);
        }
    }

    /// Removes a member that is proved dead, or that said that it leaves.
    fn gone(&mut self, member: MemberId, state: MemberState) {
        self.leave_standing(member, state, Record::MemberGone { member });
    }

    /// Notes a member's progress: `done` of `of` steps. If `of` is 0, the report is withdrawn.
    pub(super) fn progress(&mut self, member: MemberId, done: u64, of: u64) {
        match of {
            0 => self.progress.remove(&member),
            of => self.progress.insert(member, (done.min(of), of)),
        };
    }

    /// Ends a member's session. `record` says whether the member is dead or only its session is over.
    fn leave_standing(&mut self, member: MemberId, state: MemberState, record: Record) {
        let Some(entry) = self.entry(member) else { return };
        let of = self.lasting.members[&member].workflow;
        // The member's items are handled before its end is recorded. If the broker is killed between these two steps,
        // the next broker handles the member's end again.
        self.items_of_gone(member);
        if let Some(connection) = self.connected.remove(&member) {
            if let Some(link) = self.links.get_mut(&connection) {
                link.member = None;
            }
            self.drop_link(connection, "its process is dead");
        }
        let heard = self.heard.remove(&member).unwrap_or(self.now);
        self.dead.push_back((heard, MemberEntry { state, ..entry }));
        if self.dead.len() > REMEMBERED {
            self.dead.pop_front();
        }
        // The liveness table is marked before the record is written. If the broker is killed between these two steps,
        // the next broker does both again.
        if matches!(record, Record::MemberGone { .. }) {
            self.effects.push(Effect::Dead { member });
        }
        self.commit(record);
        self.listed.remove(&member);
        self.unlisted.remove(&member);
        self.progress.remove(&member);
        self.drop_holds(member);
        self.leave_series(member);
        let owned: Vec<_> = self.lasting.workflows.iter().filter(|(_, w)| w.owner == member).map(|(n, _)| *n).collect();
        for workflow in owned {
            self.finish_workflow(workflow, Cause::NONE);
        }
        self.end_run_of_the_last(of);
    }

    /// Notes that a member whose session has ended has no segments open any more.
    pub(super) fn drop_holds(&mut self, member: MemberId) {
        self.lost.doubt_all_of(member);
        for segment in self.open_segments.of_member(member) {
            self.open_segments.remove(segment, member);
            self.readers_left(segment);
            self.release_if_unused(segment);
        }
    }

    pub(super) fn run_due(&mut self) {
        while let Some(due) = self.waits.take_due(self.now) {
            match due {
                Due::Hello(connection) => self.drop_link(connection, "it said no hello in time"),
                Due::Parked(connection, number) => self.give_up(connection, number),
                Due::Item(connection, number) => self.give_up_item(connection, number),
                Due::AskOwner(connection, number) => self.ask_again_for_items((connection, number)),
                Due::Serve(item) => self.serve_waiting(item),
                Due::LookUp => self.look_up_again(),
                Due::Ahead => self.drop_old_parcels(),
                Due::Moves => self.ask_about_moves_again(),
                Due::Readers(item) => self.drop_silent_readers(item),
                Due::ReadAgain(item, sharing) => self.read_again(item, sharing),
            }
        }
    }

    fn give_up(&mut self, connection: Connection, number: u64) {
        let Some(parked) = self.unpark((connection, number)) else { return };
        if let Some((member, request)) = parked.again {
            let asker = Requester { connection, member, number, opcode: request.number() };
            let text = self.why_lost(&parked.key);
            return self.fail(asker, Status::Busy, text);
        }
        let (workflow, kind, name) = &parked.key;
        let opcode = if *kind == SegmentKind::Series { 42 } else { 2 };
        let asker = Requester { connection, member: MemberId::NONE, number, opcode };
        let found = self.lasting.names.get(&parked.key).copied();
        if found.is_some_and(|segment| self.is_lost(segment)) {
            let text = self.why_lost(&parked.key);
            return self.fail(asker, Status::Busy, text);
        }
        let lost = self.departed_with(*workflow, *kind, name);
        let workflow = self.lasting.workflows.get(workflow).map_or("", |w| &w.name);
        // The text does not say how long the caller waited: the caller may have waited in several requests, and only
        // the caller knows the whole time.
        let text = format!(
            "{} '{name}' of workflow '{workflow}' was not made before the deadline; is the task that makes it running?{lost}",
            kind.word()
        );
        let former = *kind == SegmentKind::Series && found.is_some();
        let text =
            if former { text + " (A former run's is there: ask for that one explicitly, `--former`)" } else { text };
        self.fail(asker, Status::TimedOut, text);
    }

    /// Gives the description of a living member, for listings and messages.
    pub(super) fn entry(&self, member: MemberId) -> Option<MemberEntry> {
        let known = self.lasting.members.get(&member)?;
        let connected = self.connected.contains_key(&member);
        let workflow = self.lasting.workflows.get(&known.workflow).map_or("", |w| &w.name);
        let (done, of) = self.progress.get(&member).copied().unwrap_or_default();
        let silent_ms = self.now - self.heard.get(&member).copied().unwrap_or(self.now);
        Some(MemberEntry {
            member,
            // If this member acts for a task of another node: the time since that node was last heard.
            silent_ms: self.heard_for(&known.task).unwrap_or(silent_ms),
            done,
            of,
            rank: known.rank,
            pid: known.peer.pid,
            uid: known.peer.uid,
            state: if connected { MemberState::Connected } else { MemberState::Away },
            workflow: workflow.to_owned(),
            task: known.task.clone(),
        })
    }
}

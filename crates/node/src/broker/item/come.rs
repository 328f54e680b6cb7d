//! An item that comes from another node: the catalog's entry arrives first. The item's bytes follow when a task of this
//! node wants them.

use crossdock_layout::wire::SegmentKind;
use crossdock_layout::{SegmentId, Status};

use super::queue::WaitPurpose;
use super::residence::{BytesSource, ItemSummary};
use super::{ItemRecord, Phase, memory_of};
use crate::broker::site::SiteItem;
use crate::broker::{Broker, Cause, Effect, NodeFailure, NodeOrder, Record, SiteOrder};

/// How long pulling an item's bytes may take, in addition to the time that the slowest link needs for them.
const PULL_MS: u64 = 30_000;
/// The speed, in bytes per millisecond, that the time limit of a pull assumes for the slowest link.
const SLOWEST: u64 = 1_000;

impl Broker {
    /// Handles an entry of the catalog by which an item belongs to this node. `file` has the item's bytes if they are
    /// on this node; otherwise it is 0.
    pub(super) fn item_came(&mut self, place: &SiteItem, file: SegmentId) {
        let SiteItem { item, epoch, .. } = *place;
        let about = ItemSummary::decode(&place.about);
        let workflow = about.as_ref().and_then(|about| self.lasting.workflow_names.get(&about.workflow)).copied();
        let why = match (&about, workflow) {
            (None, _) => Some("its entry in the catalog cannot be read".to_owned()),
            // The entry was written for a former daemon of this node, which may have changed the item's bytes since
            // then.
            _ if place.daemon != self.limits.incarnation => Some("it was in a former daemon of this node".to_owned()),
            // This daemon wrote the entry while it had the item and its bytes. The item has ended since, so the report
            // is outdated.
            (Some(about), _) if about.source.is_empty() => None,
            (Some(about), None) => Some(format!("workflow '{}' has ended on this node", about.workflow)),
            (Some(about), Some(_)) if Some(&*about.source) == self.own_node() && !self.is_file(file) => {
                Some("its bytes were lost with this daemon".to_owned())
            }
            (Some(about), Some(workflow)) => return self.begin_item(item, epoch, about, workflow, file),
        };
        if let Some(why) = why {
            let named = |about: ItemSummary| format!(" '{}' of workflow '{}'", about.key, about.workflow);
            let key = about.map_or_else(String::new, named);
            let line = format!("item {}{key} came to this node and is lost: {why}", item.0);
            self.effects.push(Effect::Log { line });
        }
        self.commit(Record::Item(ItemRecord::Ended { item, epoch }));
        self.drop_left_file(file);
        self.forget_entry(item);
    }

    fn is_file(&self, file: SegmentId) -> bool {
        self.lasting.segments.get(&file).is_some_and(|found| found.removed.is_none())
    }

    fn begin_item(&mut self, item: SegmentId, epoch: u64, about: &ItemSummary, workflow: u64, file: SegmentId) {
        let mut state = about.item(workflow);
        state.file = file;
        let away = about.source().filter(|_| file.0 == 0);
        let (source, left) = away.clone().map_or((String::new(), 0), |source| (source.node, source.left));
        let here = Record::Item(ItemRecord::Here { item, epoch, source, left });
        let made = Record::Item(ItemRecord::Made { item, state, cause: Cause::NONE });
        let former = self.lasting.items.of_key(workflow, &about.key);
        // The broker writes two records about the item here, and may be killed after the first one. If this node still
        // has a file with the item's bytes, the first record must already name that file, so that the next broker keeps
        // it.
        let (first, second) = if file.0 == 0 { (here, made) } else { (made, here) };
        self.commit(first);
        self.commit(second);
        self.items.handovers.begin(item, self.now);
        // This node had another item of the same key, and lost the key to another node while it was cut off. The former
        // item ends now, unless a member has it open.
        if let Some(former) = former {
            self.end_nameless(former);
        }
        // If the item's file stayed on this node when the item left, the item is in the phase `Open` now, and its file
        // is proved anew. The former proof is outdated, because other nodes may have begun to pull the bytes since.
        if away.is_some() {
            self.items.handovers.enter(item, Phase::Away);
        }
        if let Some(source) = about.source() {
            self.items.parcels.compare(item, &source, about.stamp);
        }
        if let Some(name) = self.site_name(workflow, SegmentKind::Item, &about.key) {
            if self.site.as_mut().is_some_and(|site| !site.take_name(&name)) {
                // The catalog had given the name to a former lease of this node. So the node claims the name again, for
                // its present lease.
                self.effects.push(Effect::Site(SiteOrder::Claim(name)));
            }
        }
        self.tell_bytes_are_here(item);
        self.serve_look_ups(workflow, &about.key);
        self.serve_waiting(item);
    }

    /// Gets the bytes of an item from another node, because a task of this node wants the item. Pulls the bytes, unless
    /// the other node has already sent them ahead of the catalog's report.
    pub(super) fn fetch_item(&mut self, item: SegmentId) {
        let Some(found) = self.lasting.items.all.get(&item).cloned() else { return };
        let Some(BytesSource { node, left }) = self.lasting.items.source(item).cloned() else { return };
        let what = format!("item '{}' from node {node}", found.key);
        let memory = memory_of(found.size);
        let room = self.fits(found.workflow, memory, &what).and_then(|()| self.room(found.workflow, memory, &what));
        let room = room.and_then(|()| self.descriptors(found.workflow, 1, &what));
        let room = room.and_then(|()| self.journal.clone().map_err(|why| format!("the journal is full ({why})")));
        if let Err(why) = room {
            return self.cannot_fetch(item, Status::NoSpace, &why);
        }
        let to = SegmentId(self.lasting.next_segment);
        self.file_record(to, found.workflow, &found.key, found.size, Cause::NONE);
        self.items.handovers.enter(item, Phase::Fetching { to });
        let id = self.node_order_id();
        self.items.pulls.insert(id, (item, to));
        let pull = match self.items.parcels.take(item, memory) {
            Some(bytes) => NodeOrder::Fill { id, into: to, bytes },
            None => NodeOrder::Pull {
                id,
                node,
                kind: SegmentKind::Item,
                object: item.0,
                epoch: left,
                into: to,
                size: memory,
                wait_ms: PULL_MS + memory / SLOWEST,
            },
        };
        self.effects.push(Effect::FetchItem { to, size: memory, pull });
    }

    /// Handles the end of a pull: the item's bytes have come, or the pull failed.
    pub(in crate::broker) fn item_pulled(&mut self, id: u64, outcome: Result<(), NodeFailure>) {
        if self.copy_pulled(id, &outcome) {
            return;
        }
        let Some((item, to)) = self.items.pulls.remove(&id) else { return };
        match self.items.handovers.phase(item) {
            Phase::Fetching { to: target } if *target == to => {}
            _ => return,
        }
        let Some(found) = self.lasting.items.all.get(&item) else { return };
        match outcome {
            Ok(()) => {
                let (size, epoch) = (found.size, self.lasting.items.epoch(item));
                self.commit(Record::Item(ItemRecord::Memory {
                    item,
                    file: to,
                    size,
                    clung: false,
                    cause: Cause::NONE,
                }));
                self.commit(Record::Item(ItemRecord::Here { item, epoch, source: String::new(), left: 0 }));
                self.items.handovers.enter(item, Phase::Proved);
                self.tell_bytes_are_here(item);
                self.serve_waiting(item);
            }
            Err(NodeFailure { status: Status::NotFound, text }) => {
                let why = format!("its bytes are lost: {text}");
                let line = format!("item '{}' is lost: {why}", found.key);
                self.effects.push(Effect::Log { line });
                self.end_item(item, &why, Cause::NONE);
            }
            Err(NodeFailure { status, text }) => {
                self.drop_file(to, None);
                let status = if status == Status::NoSpace { status } else { Status::Disconnected };
                self.cannot_fetch(item, status, &text);
            }
        }
    }

    /// Handles the failure to fetch an item's bytes from another node. The request that has waited longest for the item
    /// fails. The next request tries again after a pause.
    fn cannot_fetch(&mut self, item: SegmentId, status: Status, why: &str) {
        self.items.handovers.enter(item, Phase::Away);
        let Some(found) = self.lasting.items.all.get(&item) else { return };
        let text = format!("item '{}' is this node's, and its bytes did not come: {why}", found.key);
        if let Some(wait) = self.first_waiting(item, WaitPurpose::Owning).and_then(|id| self.unqueue(id)) {
            self.fail(wait.asker, status, text);
        }
        self.serve_later(item);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use crossdock_layout::Rights;
    use crossdock_layout::wire::{Answer, ItemLevel, ItemRequest, OnDeath, OpenMode, Party, Request};

    use super::super::give::AGAIN_MS;
    use super::super::ownership::{self, OWN, OwnershipRequest};
    use super::super::readers::{READ, ReadReply, ReadRequest};
    use super::*;
    use crate::broker::bench::{Bench, status};
    use crate::broker::stored::{decode, encode};
    use crate::broker::{
        Claimed, Event, Lasting, Limits, MAIN_ENDPOINT, NodeEvent, SiteEvent, SiteLimits, SiteName, SiteNode, Verdict,
    };

    const DAEMON: u64 = 7;

    /// Makes a broker of the node `here`, and reports an entry of the catalog to it. By this entry, an item that the
    /// broker does not know belongs to the node `here`. Returns the broker's effects.
    fn reported(source: &str, daemon: u64) -> Vec<Effect> {
        let site = SiteLimits { site: "s".into(), node: "here".into(), number: 1 };
        let limits = Limits { site: Some(site), incarnation: DAEMON, ..Limits::default() };
        let endpoints = BTreeSet::from([MAIN_ENDPOINT]);
        let mut broker = Broker::new(limits, Lasting::default(), 1, &BTreeSet::new(), &endpoints, 0).0;
        broker.handle(0, Event::Site(SiteEvent::Joined));
        let about = summary(source, 1);
        let place = SiteItem { item: SegmentId(5), epoch: 1, node: "here".into(), daemon, about: about.encode() };
        broker.handle(0, Event::Site(SiteEvent::Item(place)))
    }

    /// Makes the description of the item `x` of task `w`, whose bytes are on the node `source`.
    fn summary(source: &str, left: u64) -> ItemSummary {
        ItemSummary {
            version: ItemSummary::VERSION,
            workflow: "default".into(),
            key: "x".into(),
            size: 5000,
            level: ItemLevel::Verified,
            on_death: OnDeath::Keep,
            creator: Party::task("a"),
            owner: Party::task("w"),
            transfers: 1,
            copies: 0,
            source: source.into(),
            left,
            stamp: 0,
        }
    }

    fn is_told_as_lost(effects: &[Effect]) -> bool {
        effects.iter().any(|effect| matches!(effect, Effect::Log { line } if line.contains("is lost")))
    }

    #[test]
    fn a_late_report_of_an_item_that_ended_here_is_no_loss_and_its_entry_is_removed() {
        let effects = reported("", DAEMON);
        assert!(!is_told_as_lost(&effects), "{effects:?}");
        let forget = Effect::Site(SiteOrder::Forget { item: SegmentId(5), epoch: 1 });
        assert!(effects.contains(&forget), "{effects:?}");
    }

    #[test]
    fn an_item_of_a_former_daemon_and_one_whose_file_is_missing_are_lost() {
        for (source, daemon) in [("", DAEMON + 1), ("here", DAEMON)] {
            let effects = reported(source, daemon);
            assert!(is_told_as_lost(&effects), "{source}: {effects:?}");
        }
        assert!(!is_told_as_lost(&reported("there", DAEMON)));
    }

    /// Makes the broker of a node with the item `x`. The item's owner, rank 0 of task `w`, has shared the item and then
    /// closed it. The node `c` has asked to read the item. Then a task of the node `b` has asked to own the item, so
    /// the item is about to leave. Returns the item and the number of the sharing.
    fn about_to_leave() -> (Bench, SegmentId, u64) {
        let mut bench = Bench::in_site();
        bench.join(1, MAIN_ENDPOINT, "w", 0);
        let item = bench.create(1, "x", ItemLevel::Verified);
        bench.ask_item(1, ItemRequest::Share { item });
        bench.say(1, &Request::Item(ItemRequest::Release { item }));
        let (version, workflow, key) = (ownership::VERSION, "default".to_owned(), "x".to_owned());
        let read =
            ReadRequest { version, workflow: workflow.clone(), key: key.clone(), sharing: 0, readers: 1, stamp: 1 };
        let readable: ReadReply = decode(&asked(&mut bench, "c", READ, encode(&read))).unwrap();
        assert_ne!(readable.sharing, 0, "{readable:?}");
        let (task, numbers) = ("w".to_owned(), vec![]);
        let own = OwnershipRequest { version, workflow, key, task, rank: 0, numbers };
        asked(&mut bench, "b", OWN, encode(&own));
        assert!(bench.broker.lasting.items.is_leaving(item));
        (bench, item, readable.sharing)
    }

    /// Makes the broker of a node that has an item with the key `x`. While this node was cut off, the node `b` has made
    /// another item with the same key, and the catalog has given the name to the node `b`. Returns the id of this
    /// node's item.
    fn contested(level: ItemLevel) -> (Bench, SegmentId) {
        let mut bench = Bench::in_site();
        bench.join(1, MAIN_ENDPOINT, "w", 0);
        let item = bench.create(1, "x", level);
        let name = SiteName { workflow: "default".into(), kind: SegmentKind::Item, name: "x".into() };
        let node = SiteNode { node: "b".into(), number: 2, address: String::new() };
        bench.event(Event::Site(SiteEvent::Contested { name, node }));
        (bench, item)
    }

    /// Reports to the broker that an item that comes from the node `b` belongs to this node now. Returns the item's id.
    fn comes(bench: &mut Bench) -> SegmentId {
        let (item, about) = (SegmentId(5), summary("b", 1));
        let place = SiteItem { item, epoch: 1, node: "here".into(), daemon: 1, about: about.encode() };
        bench.event(Event::Site(SiteEvent::Item(place)));
        item
    }

    fn items(broker: &Broker) -> Vec<SegmentId> {
        broker.lasting.items.all.keys().copied().collect()
    }

    #[test]
    fn an_item_that_could_not_be_fetched_for_one_request_is_fetched_for_the_next_one() {
        let mut bench = Bench::in_site();
        for rank in 0..2 {
            bench.join(u64::from(rank) + 1, MAIN_ENDPOINT, "w", rank);
        }
        comes(&mut bench);
        let access = Request::Item(ItemRequest::Access { read: false, wait_ms: 60_000, keys: vec!["x".into()] });
        let (first, second) = (bench.say(1, &access), bench.say(2, &access));
        let pulls = |bench: &Bench| bench.broker.items.pulls.keys().copied().collect::<Vec<_>>();
        let outcome = Err(NodeFailure { status: Status::Disconnected, text: "it is cut off".into() });
        bench.event(Event::Nodes(NodeEvent::Pulled { id: pulls(&bench)[0], outcome }));
        assert_eq!(status(bench.answer(1, first)), Some(Status::Disconnected));
        assert_eq!(pulls(&bench), []);
        bench.tick(AGAIN_MS);
        let pull = *pulls(&bench).first().expect("the item is fetched again");
        bench.event(Event::Nodes(NodeEvent::Pulled { id: pull, outcome: Ok(()) }));
        assert!(matches!(bench.answer(2, second), Some(Answer::Item(_))));
    }

    #[test]
    fn an_item_that_is_fetched_again_while_a_segment_is_made_gets_another_id_than_the_segment() {
        let mut bench = Bench::in_site();
        for rank in 0..2 {
            bench.join(u64::from(rank) + 1, MAIN_ENDPOINT, "w", rank);
        }
        comes(&mut bench);
        let access = Request::Item(ItemRequest::Access { read: false, wait_ms: 60_000, keys: vec!["x".into()] });
        let (_, second) = (bench.say(1, &access), bench.say(2, &access));
        let pulls = |bench: &Bench| bench.broker.items.pulls.iter().map(|(id, (_, to))| (*id, *to)).collect::<Vec<_>>();
        let outcome = Err(NodeFailure { status: Status::Disconnected, text: "it is cut off".into() });
        bench.event(Event::Nodes(NodeEvent::Pulled { id: pulls(&bench)[0].0, outcome }));
        // The pause is over now. The next event is not a tick, but a request that makes a segment.
        bench.now += AGAIN_MS;
        let open = Request::Open {
            kind: SegmentKind::Port,
            mode: OpenMode::CreateOnly,
            access: Rights::PRODUCE,
            size: 4096,
            reserve: 0,
            attribute: 0,
            wait_ms: 0,
            persistent: false,
            name: ".mirror/q".into(),
        };
        let Some(Answer::Segment { segment, .. }) = bench.ask(1, open) else { panic!("no segment is made") };
        let (pull, file) = *pulls(&bench).first().expect("the item is fetched again");
        assert_ne!(segment, file);
        bench.event(Event::Nodes(NodeEvent::Pulled { id: pull, outcome: Ok(()) }));
        let Some(Answer::Item(given)) = bench.answer(2, second) else { panic!("the item is not given") };
        assert_eq!(given.file, file);
    }

    #[test]
    fn an_item_that_no_member_has_open_ends_when_another_item_comes_with_its_key() {
        let (mut bench, former) = contested(ItemLevel::Verified);
        bench.say(1, &Request::Item(ItemRequest::Release { item: former }));
        assert_eq!(items(&bench.broker), [former]);
        let mut lasting = bench.broker.lasting.clone();
        bench.effects.clear();
        let item = comes(&mut bench);
        assert_eq!(items(&bench.broker), [item]);
        // This broker may be killed before it has recorded the end of the former item. Then the next broker must end
        // the item.
        let records = bench.effects.iter().filter_map(|effect| match effect {
            Effect::Record(record) => Some(record.clone()),
            _ => None,
        });
        let is_end = |record: &Record| matches!(record, Record::Item(ItemRecord::Gone { .. }));
        records.take_while(|record| !is_end(record)).for_each(|record| lasting.apply(&record));
        assert_eq!(lasting.items.all.len(), 2);
        let held = lasting.segments.keys().copied().collect();
        let limits = Limits { site: bench.broker.limits.site.clone(), ..Limits::default() };
        let broker = Broker::new(limits, lasting, 1, &held, &BTreeSet::from([MAIN_ENDPOINT]), 0).0;
        assert_eq!(items(&broker), [item]);
    }

    #[test]
    fn an_item_whose_key_another_item_has_stays_until_its_owner_closes_it() {
        let (mut bench, former) = contested(ItemLevel::Verified);
        let item = comes(&mut bench);
        assert_eq!(items(&bench.broker), [item, former]);
        assert!(matches!(
            bench.ask_item(1, ItemRequest::Resize { item: former, size: 6000 }),
            Some(Answer::Item(given)) if given.item == former
        ));
        let transfer = ItemRequest::Transfer { item: former, to: Party::task("a") };
        assert_eq!(status(bench.ask_item(1, transfer)), Some(Status::Exists));
        let access = ItemRequest::Access { read: false, wait_ms: 1000, keys: vec!["x".into()] };
        let number = bench.say(1, &Request::Item(access));
        bench.say(1, &Request::Item(ItemRequest::Release { item: former }));
        assert_eq!(items(&bench.broker), [item]);
        assert_eq!(bench.answer(1, number), None, "it waits for the item that has the key");
    }

    #[test]
    fn a_request_that_waits_for_an_item_with_a_contested_key_gets_the_item_when_the_key_is_this_nodes_again() {
        let name = SiteName { workflow: "default".into(), kind: SegmentKind::Item, name: "x".into() };
        let announced = SiteEvent::Announced { name: name.clone() };
        for news in [announced, SiteEvent::Claimed { name, outcome: Claimed::Ours }] {
            let (mut bench, item) = contested(ItemLevel::Cooperative);
            bench.join(2, MAIN_ENDPOINT, "w", 1);
            let access = ItemRequest::Access { read: false, wait_ms: 60_000, keys: vec!["x".into()] };
            let number = bench.say(2, &Request::Item(access));
            assert_eq!(bench.answer(2, number), None);
            bench.event(Event::Site(news));
            let Some(Answer::Item(given)) = bench.answer(2, number) else { panic!("the request still waits") };
            assert_eq!(given.item, item);
        }
    }

    #[test]
    fn a_cooperative_item_whose_key_another_item_has_stays_until_all_members_have_closed_it() {
        for restarts in [false, true] {
            let (mut bench, former) = contested(ItemLevel::Cooperative);
            let item = comes(&mut bench);
            assert_eq!(items(&bench.broker), [item, former]);
            let mut connection = 1;
            if restarts {
                let member = *bench.broker.lasting.members.first_key_value().unwrap().0;
                bench.restart();
                assert_eq!(items(&bench.broker), [item, former], "a member may have the item open");
                connection = 101;
                bench.hello(connection, MAIN_ENDPOINT, "w", 0, member);
                bench.say(connection, &Request::Hold { segment: former, count: 1 });
                bench.say(connection, &Request::Hold { segment: SegmentId(0), count: 0 });
                assert_eq!(items(&bench.broker), [item, former]);
            }
            bench.say(connection, &Request::Detach { segment: former, count: 1 });
            assert_eq!(items(&bench.broker), [item]);
        }
    }

    #[test]
    fn a_cooperative_item_whose_key_another_item_has_ends_when_no_member_can_have_it_open_any_more() {
        let (mut bench, former) = contested(ItemLevel::Cooperative);
        let item = comes(&mut bench);
        let member = *bench.broker.lasting.members.first_key_value().unwrap().0;
        bench.restart();
        assert_eq!(items(&bench.broker), [item, former]);
        bench.event(Event::ProcessDied { member });
        assert_eq!(items(&bench.broker), [item]);
    }

    #[test]
    fn a_request_waits_on_for_another_nodes_item_when_this_nodes_item_of_the_same_key_ends() {
        let (mut bench, former) = contested(ItemLevel::Verified);
        bench.join(2, MAIN_ENDPOINT, "w", 1);
        let access = ItemRequest::Access { read: false, wait_ms: 1000, keys: vec!["x".into()] };
        let number = bench.say(2, &Request::Item(access));
        bench.ask_item(1, ItemRequest::Destroy { item: former });
        assert_eq!(items(&bench.broker), []);
        assert_eq!(bench.answer(2, number), None);
    }

    /// Lets another node ask a question. Returns the answer.
    fn asked(bench: &mut Bench, node: &str, service: u32, body: Vec<u8>) -> Vec<u8> {
        bench.effects.clear();
        bench.event(Event::Nodes(NodeEvent::Asked { id: 70, node: node.into(), service, body }));
        let answered = bench.effects.iter().find_map(|effect| match effect {
            Effect::Nodes(NodeOrder::Answer { id: 70, outcome }) => outcome.clone().ok(),
            _ => None,
        });
        answered.expect("the question is answered")
    }

    #[test]
    fn no_node_begins_to_read_an_item_that_is_about_to_leave() {
        let (mut bench, item, sharing) = about_to_leave();
        bench.effects.clear();
        let (node, kind) = ("c".to_owned(), SegmentKind::Item);
        bench.event(Event::Nodes(NodeEvent::Opening { id: 71, node, kind, object: item.0, epoch: sharing }));
        let opened = bench.effects.iter().find_map(|effect| match effect {
            Effect::Nodes(NodeOrder::Opened { id: 71, outcome }) => Some(outcome.clone()),
            _ => None,
        });
        let Some(Err(NodeFailure { status: Status::NotFound, .. })) = opened else { panic!("{opened:?}") };
    }

    #[test]
    fn a_file_that_lacks_memory_is_copied_before_its_item_goes_to_another_node() {
        let mut bench = Bench::in_site();
        bench.join(1, MAIN_ENDPOINT, "a", 0);
        let item = bench.create(1, "x", ItemLevel::Verified);
        bench.verdict = Verdict::Incomplete;
        bench.ask_item(1, ItemRequest::Transfer { item, to: Party::task("w") });
        let (workflow, key, task) = ("default".to_owned(), "x".to_owned(), "w".to_owned());
        let own = OwnershipRequest { version: ownership::VERSION, workflow, key, task, rank: 0, numbers: vec![] };
        asked(&mut bench, "b", OWN, encode(&own));
        assert!(!bench.broker.lasting.items.is_leaving(item), "the item goes with a file that lacks memory");
        let (item, to) = bench.copies.pop().expect("the item is copied");
        bench.event(Event::Copied { item, to, outcome: Ok(()) });
        assert!(bench.broker.lasting.items.is_leaving(item));
    }

    #[test]
    fn an_item_that_comes_back_to_its_bytes_is_proved_before_a_member_gets_it() {
        let (mut bench, item, _) = about_to_leave();
        bench.event(Event::Site(SiteEvent::Passed { item, epoch: 1, outcome: Ok(()) }));
        // By now this node has forgotten that the node `b` wanted the item.
        bench.tick(ownership::LASTS_MS);
        let about = summary("here", 1);
        let place = SiteItem { item, epoch: 2, node: "here".into(), daemon: 1, about: about.encode() };
        bench.event(Event::Site(SiteEvent::Item(place)));
        // A node may have pulled the bytes since the item left. So the test changes the kernel's answer to `Pulled`.
        bench.verdict = Verdict::Pulled;
        bench.effects.clear();
        let access = ItemRequest::Access { read: false, wait_ms: 1000, keys: vec!["x".into()] };
        assert_eq!(bench.ask_item(1, access), None, "the item is copied first");
        assert_eq!(bench.copies.len(), 1);
    }
}

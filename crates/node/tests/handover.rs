//! Tests of two requests that one session sends about one item at the same time. The test drives the broker directly,
//! and reports in place of the kernel that a former user has the file open.

use std::collections::BTreeSet;

use crossdock_layout::wire::{Answer, FINGERPRINT, ItemLevel, ItemRequest, OnDeath, PROTOCOL_VERSION, Party, Request};
use crossdock_layout::{LAYOUT_VERSION, MemberId, SegmentId, Status};
use crossdock_node::broker::{Broker, Effect, Event, Lasting, Limits, MAIN_ENDPOINT, Peer, Verdict};

struct World {
    broker: Broker,
    /// The answers that the broker sent: for each the connection, the request number and the answer.
    answers: Vec<(u64, u64, Answer)>,
    /// The copies that the broker has begun and that have not ended: for each the item and the target file.
    copies: Vec<(SegmentId, SegmentId)>,
}

impl World {
    fn new() -> Self {
        let (broker, _) = Broker::new(Limits::default(), Lasting::default(), 1, &BTreeSet::new(), &BTreeSet::new(), 0);
        Self { broker, answers: Vec::new(), copies: Vec::new() }
    }

    fn connect(&mut self, connection: u64, task: &str) {
        let peer = Peer { pid: 1000 + connection as u32, birth: 1, uid: 0 };
        self.event(Event::Connected { connection, endpoint: MAIN_ENDPOINT, peer });
        let hello = Request::Hello {
            protocol: PROTOCOL_VERSION,
            layout: LAYOUT_VERSION,
            fingerprint: FINGERPRINT,
            token: [connection as u8; 16],
            member: MemberId::NONE,
            rank: 0,
            task: Some(task.into()),
            workflow: None,
            visitor: false,
        };
        self.say(connection, 1, &hello);
    }

    fn say(&mut self, connection: u64, number: u64, request: &Request) {
        let bytes = request.encode(number, 0);
        self.event(Event::Message { connection, bytes: Some(&bytes), descriptors: &[] });
    }

    fn item(&mut self, connection: u64, number: u64, request: ItemRequest) {
        self.say(connection, number, &Request::Item(request));
    }

    fn event(&mut self, event: Event<'_>) {
        for effect in self.broker.handle(0, event) {
            match effect {
                Effect::MakeItem { .. } => self.event(Event::Made { outcome: Ok(0) }),
                Effect::ProveItem { item, file, .. } => {
                    self.event(Event::Proved { item, file, verdict: Verdict::Clinging });
                }
                Effect::CopyItem { item, to, .. } => self.copies.push((item, to)),
                Effect::Send { connection, message, with } => {
                    let (number, answer) = Answer::decode(&message, with.count()).expect("the broker's own words");
                    self.answers.push((connection, number, answer));
                }
                _ => {}
            }
        }
        self.broker.check();
    }

    fn answer(&self, connection: u64, number: u64) -> Option<&Answer> {
        self.answers.iter().find(|(c, n, _)| (*c, *n) == (connection, number)).map(|(_, _, answer)| answer)
    }

    fn status(&self, connection: u64, number: u64) -> Option<Status> {
        match self.answer(connection, number)? {
            Answer::Failed { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// Makes a world in which a member has made an item and asked to share it. The sharing waits for a copy.
    fn sharing() -> (Self, SegmentId) {
        let mut world = Self::new();
        world.connect(1, "a");
        world.connect(2, "b");
        let (level, on_death) = (ItemLevel::Verified, OnDeath::Keep);
        world.item(1, 2, ItemRequest::Create { size: 5000, level, on_death, key: "k".into() });
        let Some(Answer::Item(given)) = world.answer(1, 2) else { panic!("{:?}", world.answers) };
        let item = given.item;
        world.item(1, 3, ItemRequest::Share { item });
        assert_eq!(world.copies.len(), 1, "a copy is being made");
        (world, item)
    }

    fn finish_copies(&mut self) {
        for (item, to) in std::mem::take(&mut self.copies) {
            self.event(Event::Copied { item, to, outcome: Ok(()) });
        }
    }
}

#[test]
fn an_item_is_not_transferred_while_it_is_being_shared() {
    let (mut world, item) = World::sharing();
    world.item(1, 4, ItemRequest::Transfer { item, to: Party::rank("b", 0) });
    assert_eq!(world.status(1, 4), Some(Status::Busy));
    world.finish_copies();
    assert!(matches!(world.answer(1, 3), Some(Answer::Item(_))), "the share is answered");
    let found = &world.broker.lasting().items.all[&item];
    assert!(found.shared && found.owner == Party::rank("a", 0));
}

#[test]
fn an_item_is_not_resized_while_it_is_being_copied() {
    let (mut world, item) = World::sharing();
    world.item(1, 4, ItemRequest::Resize { item, size: 50_000 });
    assert_eq!(world.status(1, 4), Some(Status::Busy));
    world.finish_copies();
    assert_eq!(world.broker.lasting().items.all[&item].size, 5000);
}

#[test]
fn a_share_is_answered_if_its_item_is_closed_or_destroyed_before_it_is_ready() {
    for end in [false, true] {
        let (mut world, item) = World::sharing();
        match end {
            true => world.item(1, 4, ItemRequest::Destroy { item }),
            // The broker does not answer `Release`, so the request number is 0.
            false => world.item(1, 0, ItemRequest::Release { item }),
        }
        assert_eq!(world.status(1, 3), Some(Status::Denied));
        world.finish_copies();
        assert_eq!(world.broker.lasting().items.all.contains_key(&item), !end);
    }
}

//! The gateway's two threads: one keeps the lease alive and carries out requests, the other watches the catalog's
//! entries of all nodes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use crossdock_catalog::{Catalog, EntryChange, Follower, IsOver};
use crossdock_os::Deadline;

use crate::item_entries::ItemEntries;
use crate::item_location::PassOutcome;
use crate::keys::Key;
use crate::member::{CatalogFailure, Member, NodeLease};
use crate::{Claimed, GatewayEvent, GatewayRequest, ItemLocation, Mailbox, Name, NodeRecord, Nodes, keys};

/// How often threads check whether they must end.
const SLICE: Duration = Duration::from_millis(100);
/// The milliseconds between two attempts to join, or to keep a lease alive.
const PAUSE: u64 = 300;

enum State {
    In {
        joined: NodeLease,
        /// The time at which the lease must be renewed next, in milliseconds of the member's clock.
        due: u64,
    },
    /// The node has no lease. `again` is the time of the next attempt to join. `reported` is the reason that the
    /// gateway reported to the daemon last.
    Out { again: u64, reported: Option<String> },
}

pub(crate) struct Worker {
    member: Member,
    orders: Receiver<GatewayRequest>,
    mailbox: Arc<Mailbox>,
    stop: Arc<AtomicBool>,
    state: State,
    /// Names that this node must give up. If the name is listed with a node, the worker gives the name to that node;
    /// otherwise it makes the name free. The worker repeats this until the catalog answers.
    strays: VecDeque<(Name, Option<String>)>,
    /// Requests about items, the oldest first. Each is repeated until its outcome is certain.
    items: VecDeque<GatewayRequest>,
}

impl Worker {
    pub fn new(member: Member, orders: Receiver<GatewayRequest>, mailbox: Arc<Mailbox>, stop: Arc<AtomicBool>) -> Self {
        let state = State::Out { again: member.now(), reported: None };
        Self { member, orders, mailbox, stop, state, strays: VecDeque::new(), items: VecDeque::new() }
    }

    /// Works until the gateway ends. Returns the node's lease, if it has one.
    pub fn run(mut self) -> Option<(Member, NodeLease)> {
        while !self.stop.load(Ordering::Relaxed) {
            self.look_after_lease();
            match self.orders.recv_timeout(self.wait()) {
                Ok(order) => self.carry_out(order),
                Err(RecvTimeoutError::Timeout) => self.carry_on(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        match self.state {
            State::In { joined, .. } => Some((self.member, joined)),
            State::Out { .. } => None,
        }
    }

    /// Does all work that is due, without waiting.
    pub fn step(&mut self) {
        self.look_after_lease();
        while let Ok(order) = self.orders.try_recv() {
            self.carry_out(order);
        }
        self.carry_on();
    }

    pub fn is_in(&self) -> bool {
        matches!(self.state, State::In { .. })
    }

    /// Gives the time for which the thread may wait: until the lease must be renewed, or until the next attempt to
    /// join, but at most until the thread must check again whether it is to end.
    fn wait(&self) -> Duration {
        let (State::In { due, .. } | State::Out { again: due, .. }) = &self.state;
        Duration::from_millis(due.saturating_sub(self.member.now())).min(SLICE)
    }

    fn look_after_lease(&mut self) {
        let (now, time) = (self.member.now(), self.member.time);
        match &mut self.state {
            State::In { joined, due } if *due <= now => match self.member.keep_alive(joined) {
                Ok(()) => {
                    *due = joined.kept + time / 4;
                    self.mailbox.put(GatewayEvent::Synced);
                }
                Err(CatalogFailure::NoLease) => self.cut_off("the lease has ended".into()),
                // When the whole time of a lease is over, other nodes may take the names of the node that had the
                // lease. This node must stop using its names before that. So it counts as cut off already after four
                // fifths of the lease's time.
                Err(refused) if joined.kept + time * 4 / 5 <= self.member.now() => self.cut_off(reason(&refused)),
                Err(_) => *due = (now + PAUSE).min(joined.kept + time * 4 / 5),
            },
            State::Out { again, reported } if *again <= now => match self.member.join() {
                Ok(joined) => {
                    self.mailbox.put(GatewayEvent::Joined { number: joined.number });
                    self.state = State::In { joined, due: joined.kept + time / 4 };
                }
                Err(refused) => {
                    let why = reason(&refused);
                    if reported.as_ref() != Some(&why) {
                        self.mailbox.put(GatewayEvent::CutOff { why: why.clone() });
                    }
                    self.state = State::Out { again: self.member.now() + PAUSE, reported: Some(why) };
                }
            },
            _ => {}
        }
    }

    fn cut_off(&mut self, why: String) {
        self.mailbox.put(GatewayEvent::CutOff { why: why.clone() });
        self.state = State::Out { again: self.member.now(), reported: Some(why) };
    }

    fn carry_out(&mut self, order: GatewayRequest) {
        match order {
            GatewayRequest::Claim(name) => {
                let outcome = self.claim(&name, false);
                if matches!(outcome, Claimed::Failed(_)) {
                    // The claim may have succeeded although its answer was lost. So the name is released.
                    self.strays.push_back((name.clone(), None));
                }
                self.mailbox.put(GatewayEvent::Claimed { name, outcome });
            }
            GatewayRequest::Take { name, from } => {
                let outcome = self.claim_with(&name, |member, joined| member.take(joined, &name, &from));
                if matches!(outcome, Claimed::Failed(_)) {
                    // The taking of the name counts as failed. But perhaps the catalog has given the name to this node,
                    // and only the catalog's answer was lost. So the name is given back to the node `from`.
                    self.strays.push_back((name.clone(), Some(from)));
                }
                self.mailbox.put(GatewayEvent::Claimed { name, outcome });
            }
            GatewayRequest::Release(name) => self.strays.push_back((name, None)),
            GatewayRequest::GiveBack { name, to } => self.strays.push_back((name, Some(to))),
            GatewayRequest::Find(name) => {
                let outcome = match self.is_in() {
                    true => self.member.node_of(&name).map_err(|refused| reason(&refused)),
                    false => Err("this node has no lease of the site".into()),
                };
                self.mailbox.put(GatewayEvent::Found { name, outcome });
            }
            GatewayRequest::Announce(names) => self.announce(names),
            order => self.items.push_back(order),
        }
        self.carry_on();
    }

    /// Repeats each release, and each request about an item, that has failed so far because the catalog could not be
    /// reached.
    fn carry_on(&mut self) {
        self.release_strays();
        while let (Some(order), State::In { joined, .. }) = (self.items.front(), &self.state) {
            match self.about_item(joined, order) {
                Ok(news) => {
                    self.items.pop_front();
                    news.into_iter().for_each(|news| self.mailbox.put(news));
                    // Many requests take time, and the lease must be kept alive meanwhile.
                    self.look_after_lease();
                }
                Err(CatalogFailure::NoLease) => return self.cut_off("the lease has ended".into()),
                Err(_) => return,
            }
        }
    }

    /// Carries out a request about an item. If this fails, the caller must repeat the request.
    fn about_item(&self, joined: &NodeLease, order: &GatewayRequest) -> Result<Option<GatewayEvent>, CatalogFailure> {
        let look = |item| {
            let is = self.member.item_location(item)?;
            Ok::<_, CatalogFailure>(Some(is.map_or(GatewayEvent::NoItem { item }, GatewayEvent::Item)))
        };
        match order {
            GatewayRequest::Pass { name, to } => {
                let ItemLocation { item, epoch, .. } = *to;
                let outcome = match self.member.pass(joined, name, to)? {
                    PassOutcome::Done => Ok(()),
                    PassOutcome::Kept(why) => Err(why),
                };
                Ok(Some(GatewayEvent::Passed { item, epoch, outcome }))
            }
            GatewayRequest::Describe(is) => self.member.describe(is).map(|()| None),
            GatewayRequest::Forget { item, epoch } => {
                self.member.forget(*item, *epoch)?;
                look(*item)
            }
            GatewayRequest::Look { item } => look(*item),
            GatewayRequest::Claim(_)
            | GatewayRequest::Take { .. }
            | GatewayRequest::Release(_)
            | GatewayRequest::GiveBack { .. }
            | GatewayRequest::Announce(_)
            | GatewayRequest::Find(_) => Ok(None),
        }
    }

    fn claim(&mut self, name: &Name, given: bool) -> Claimed {
        self.claim_with(name, |member, joined| member.claim(joined, name, given))
    }

    /// Makes a name belong to this node by calling `claim`, and reports the outcome.
    fn claim_with(
        &mut self,
        name: &Name,
        claim: impl FnOnce(&Member, &NodeLease) -> Result<(), CatalogFailure>,
    ) -> Claimed {
        self.strays.retain(|(stray, _)| stray != name);
        let State::In { joined, .. } = &self.state else {
            return Claimed::Failed("this node has no lease of the site".into());
        };
        match claim(&self.member, joined) {
            Ok(()) => Claimed::Ours,
            Err(CatalogFailure::Taken(place)) => Claimed::Theirs(place),
            Err(CatalogFailure::NoLease) => {
                self.cut_off("the lease has ended".into());
                Claimed::Failed("the node's lease has ended".into())
            }
            Err(CatalogFailure::Failed(why)) => Claimed::Failed(why),
        }
    }

    fn announce(&mut self, names: Vec<Name>) {
        for name in &names {
            // Claiming many names takes time, and the lease must be kept alive meanwhile.
            self.look_after_lease();
            match self.claim(name, true) {
                Claimed::Ours => self.mailbox.put(GatewayEvent::Announced { name: name.clone() }),
                Claimed::Theirs(place) => self.mailbox.put(GatewayEvent::Contested { name: name.clone(), place }),
                Claimed::Failed(why) => return self.announce_again(why),
            }
        }
        // If the names cannot be released now, they are released with the next announcement, or when the lease ends.
        if let Err(refused) = self.member.release_all_but(&names) {
            self.announce_again(reason(&refused));
        }
    }

    /// Gives up the lease, because an announcement failed. The node joins again after a pause, and then announces all
    /// names again.
    fn announce_again(&mut self, why: String) {
        self.cut_off(why);
        if let State::Out { again, .. } = &mut self.state {
            *again += PAUSE;
        }
    }

    fn release_strays(&mut self) {
        while let (Some((name, to)), State::In { .. }) = (self.strays.front(), &self.state) {
            if self.member.release(name, to.as_deref()).is_err() {
                return;
            }
            self.strays.pop_front();
            // Many releases take time, and the lease must be kept alive meanwhile.
            self.look_after_lease();
        }
    }
}

fn reason(refused: &CatalogFailure) -> String {
    match refused {
        CatalogFailure::Taken(place) => {
            let NodeRecord { node, address, .. } = place;
            format!("another daemon, at {address}, is node '{node}' of this site; end that one, or take another --node")
        }
        CatalogFailure::NoLease => "the lease has ended".into(),
        CatalogFailure::Failed(why) => why.clone(),
    }
}

/// Reports the changes of the catalog's entries of all nodes, until `stop` is set. Runs in a thread of its own.
pub(crate) fn follow(
    catalog: &dyn Catalog,
    site: &str,
    mailbox: &Mailbox,
    (nodes, hints): (&Nodes, &ItemEntries),
    stop: &AtomicBool,
) {
    let mut follower = Follower::new(&keys::site(site));
    while !stop.load(Ordering::Relaxed) {
        // If the catalog cannot be reached, this thread does not report the failure, because the thread that keeps the
        // lease alive reports it.
        let until: (_, IsOver<'_>) = (Deadline::after(SLICE), &|| stop.load(Ordering::Relaxed));
        let answered = tell(&mut follower, catalog, site, hints, until, |news| {
            // The links learn a node's address before the daemon hears of the node, so that a request of the daemon
            // finds the address.
            if let GatewayEvent::Node(place) = &news {
                nodes.learn(place);
            }
            mailbox.put(news);
        });
        if !answered {
            thread::sleep(SLICE);
        }
    }
}

/// Notes the changes of the catalog in `hints`, and passes them to `put`. Returns false if the catalog gave no answer.
pub(crate) fn tell(
    follower: &mut Follower,
    catalog: &dyn Catalog,
    site: &str,
    hints: &ItemEntries,
    (by, is_over): (Deadline, IsOver<'_>),
    put: impl FnMut(GatewayEvent),
) -> bool {
    let Ok(changes) = follower.next_until(catalog, by, is_over) else { return false };
    changes.iter().for_each(|change| hints.note(change));
    changes.into_iter().filter_map(|change| news(site, change)).for_each(put);
    true
}

fn news(site: &str, change: EntryChange) -> Option<GatewayEvent> {
    match (keys::read(site, &change.entry().key), change) {
        (Key::Node(node), EntryChange::Put(entry)) => NodeRecord::read(&node, &entry.value).map(GatewayEvent::Node),
        (Key::Node(node), EntryChange::Gone(_)) => Some(GatewayEvent::NodeGone { node }),
        (Key::Name(name), EntryChange::Put(entry)) => {
            keys::read_owner(&entry.value).map(|node| GatewayEvent::Named { name, node })
        }
        (Key::Name(name), EntryChange::Gone(_)) => Some(GatewayEvent::Unnamed { name }),
        (Key::Item(item), EntryChange::Put(entry)) => ItemLocation::read(item, &entry.value).map(GatewayEvent::Item),
        (Key::Item(item), EntryChange::Gone(_)) => Some(GatewayEvent::NoItem { item }),
        (Key::Other, _) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use crossdock_catalog::embedded::{Client, Dial, Keeper, KeeperOptions, Stream, TcpDial};
    use crossdock_catalog::{CatalogError, CatalogResult, Commit, Committed, Entry, LeaseId, Listing, Memory, Watch};
    use crossdock_catalog::{Operation, Revision};
    use crossdock_layout::wire::SegmentKind;
    use crossdock_link::{Choice, Transports, Trust};
    use crossdock_os::event;

    use super::*;
    use crate::simulated::SimulatedGateway;
    use crate::{CatalogAddress, GatewayOptions};

    /// A catalog for tests. Its field `lost` is a number: this many of the next commits that delete an entry change
    /// nothing, and fail as if their answers were lost.
    struct LosesDeletes {
        memory: Memory,
        lost: AtomicU64,
    }

    impl Catalog for LosesDeletes {
        fn commit(&self, commit: &Commit, by: Deadline) -> CatalogResult<Committed> {
            let deletes = commit.then.iter().any(|operation| matches!(operation, Operation::Delete { .. }));
            let left = self.lost.load(Ordering::Relaxed);
            if deletes && left > 0 {
                self.lost.store(left - 1, Ordering::Relaxed);
                return Err(CatalogError::Unknown("the connection was lost".into()));
            }
            self.memory.commit(commit, by)
        }

        fn get(&self, key: &str, by: Deadline) -> CatalogResult<Option<Entry>> {
            self.memory.get(key, by)
        }

        fn list(&self, prefix: &str, by: Deadline) -> CatalogResult<Listing> {
            self.memory.list(prefix, by)
        }

        fn grant(&self, time: Duration, by: Deadline) -> CatalogResult<LeaseId> {
            self.memory.grant(time, by)
        }

        fn keep_alive(&self, lease: LeaseId, by: Deadline) -> CatalogResult<()> {
            self.memory.keep_alive(lease, by)
        }

        fn revoke(&self, lease: LeaseId, by: Deadline) -> CatalogResult<()> {
            self.memory.revoke(lease, by)
        }

        fn watch(&self, prefix: &str, from: Revision) -> CatalogResult<Box<dyn Watch>> {
            self.memory.watch(prefix, from)
        }
    }

    /// Lets a node that has the name `x` make a request. The catalog does not carry out the next `lost` deletions. The
    /// node makes the request again whenever it has joined again. Returns whether the name still has an owner after a
    /// second, and how often the node joined again.
    fn request(request: &dyn Fn(Name) -> GatewayRequest, lost: u64) -> (bool, u64) {
        let name = Name { workflow: "w".into(), kind: SegmentKind::Region, name: "x".into() };
        let catalog = Arc::new(LosesDeletes { memory: Memory::with_manual_clock(), lost: AtomicU64::new(0) });
        let now = Arc::new(AtomicU64::new(0));
        let (own, clock) = (Arc::clone(&catalog) as Arc<dyn Catalog>, Arc::clone(&now));
        let mut node = SimulatedGateway::new(&options(), own, move || clock.load(Ordering::Relaxed));
        node.step();
        node.order(GatewayRequest::Claim(name.clone()));
        node.step();
        assert!(node.news().iter().any(|news| matches!(news, GatewayEvent::Claimed { outcome: Claimed::Ours, .. })));
        catalog.lost.store(lost, Ordering::Relaxed);
        node.order(request(name.clone()));
        let mut joins = 0;
        for _ in 0..100 {
            node.step();
            for _ in node.news().iter().filter(|news| matches!(news, GatewayEvent::Joined { .. })) {
                joins += 1;
                node.order(request(name.clone()));
            }
            now.fetch_add(10, Ordering::Relaxed);
        }
        let key = keys::name("here", &name);
        (catalog.get(&key, Deadline::after(Duration::ZERO)).unwrap().is_some(), joins)
    }

    #[test]
    fn a_release_whose_outcome_is_unknown_is_repeated_until_the_name_is_free() {
        for lost in [1, 7] {
            assert_eq!(request(&GatewayRequest::Release, lost), (false, 0), "{lost} outcomes were unknown");
        }
        let announce = |_| GatewayRequest::Announce(Vec::new());
        assert_eq!(request(&announce, 1), (false, 0));
        assert_eq!(request(&announce, 7), (false, 2));
    }

    /// A catalog that takes a tenth of a second to read an entry.
    struct Slow {
        memory: Memory,
        now: Arc<AtomicU64>,
        /// True while every read of an entry fails, as if the connection were lost.
        is_away: AtomicBool,
        kept: AtomicU64,
        /// The longest time without a renewal of the lease.
        longest: AtomicU64,
    }

    impl Catalog for Slow {
        fn commit(&self, commit: &Commit, by: Deadline) -> CatalogResult<Committed> {
            self.memory.commit(commit, by)
        }

        fn get(&self, key: &str, by: Deadline) -> CatalogResult<Option<Entry>> {
            if self.is_away.load(Ordering::Relaxed) {
                return Err(CatalogError::Unknown("the connection was lost".into()));
            }
            let now = self.now.fetch_add(100, Ordering::Relaxed) + 100;
            self.longest.fetch_max(now - self.kept.load(Ordering::Relaxed), Ordering::Relaxed);
            self.memory.get(key, by)
        }

        fn list(&self, prefix: &str, by: Deadline) -> CatalogResult<Listing> {
            self.memory.list(prefix, by)
        }

        fn grant(&self, time: Duration, by: Deadline) -> CatalogResult<LeaseId> {
            self.memory.grant(time, by)
        }

        fn keep_alive(&self, lease: LeaseId, by: Deadline) -> CatalogResult<()> {
            self.kept.store(self.now.load(Ordering::Relaxed), Ordering::Relaxed);
            self.memory.keep_alive(lease, by)
        }

        fn revoke(&self, lease: LeaseId, by: Deadline) -> CatalogResult<()> {
            self.memory.revoke(lease, by)
        }

        fn watch(&self, prefix: &str, from: Revision) -> CatalogResult<Box<dyn Watch>> {
            self.memory.watch(prefix, from)
        }
    }

    #[test]
    fn the_lease_is_renewed_while_many_requests_that_waited_for_the_catalog_are_carried_out() {
        let name = |number| Name { workflow: "w".into(), kind: SegmentKind::Region, name: format!("x{number}") };
        let release = |number| GatewayRequest::Release(name(number));
        let look = |number| GatewayRequest::Look { item: number };
        for request in [&release as &dyn Fn(u64) -> GatewayRequest, &look] {
            let now = Arc::new(AtomicU64::new(0));
            let catalog = Arc::new(Slow {
                memory: Memory::with_manual_clock(),
                now: Arc::clone(&now),
                is_away: AtomicBool::new(false),
                kept: AtomicU64::new(0),
                longest: AtomicU64::new(0),
            });
            let (own, clock) = (Arc::clone(&catalog) as Arc<dyn Catalog>, Arc::clone(&now));
            let mut node = SimulatedGateway::new(&options(), own, move || clock.load(Ordering::Relaxed));
            node.step();
            assert!(node.is_in());
            catalog.is_away.store(true, Ordering::Relaxed);
            (0..100).for_each(|number| node.order(request(number)));
            node.step();
            catalog.is_away.store(false, Ordering::Relaxed);
            let began = now.load(Ordering::Relaxed);
            node.step();
            let (took, longest) = (now.load(Ordering::Relaxed) - began, catalog.longest.load(Ordering::Relaxed));
            assert!(took >= 10_000, "the requests took {took} ms");
            assert!(longest < 2_000, "the lease of 6 s was not renewed for {longest} ms");
        }
    }

    #[test]
    fn a_node_whose_announcements_fail_joins_again_only_after_a_pause() {
        let (is_taken, joins) = request(&|_| GatewayRequest::Announce(Vec::new()), u64::MAX);
        assert!(is_taken);
        assert_eq!(joins, 1000 / PAUSE);
    }

    /// Connects so slowly that one attempt takes longer than a watch waits for events.
    struct SlowDial(TcpDial);

    impl Dial for SlowDial {
        fn dial(&self, by: Deadline) -> std::io::Result<Box<dyn Stream>> {
            thread::sleep(by.at_most(SLICE + SLICE / 2).left());
            if by.passed() { Err(std::io::ErrorKind::TimedOut.into()) } else { self.0.dial(by) }
        }
    }

    #[test]
    fn a_node_that_connects_slowly_hears_of_the_other_nodes() {
        let folder = tempfile::tempdir().unwrap();
        let options = KeeperOptions { folder: folder.path().into(), grace: Duration::ZERO };
        let keeper = Keeper::open(&options).unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let dial = SlowDial(TcpDial(listener.local_addr().unwrap().to_string()));
        let _listening = keeper.listen(listener).unwrap();
        let catalog = Client::new(dial);
        let transports = Transports::new(&Trust::Loopback, Choice::Auto).unwrap();
        let nodes = Nodes::new(transports, crossdock_link::Node { name: "a".into(), incarnation: 1 }, None).unwrap();
        let hints = ItemEntries::new("here", "a");
        let mailbox = Mailbox { news: Default::default(), bell: event::eventfd().unwrap() };
        let stop = AtomicBool::new(false);
        let announce = |node: &str| {
            let place = NodeRecord { node: node.into(), number: 2, token: 1, address: "127.0.0.1:1".into() };
            let by = Deadline::after(Duration::from_secs(60));
            keeper.local().put(&keys::node("here", node), &place.value(), None, by).unwrap();
        };
        thread::scope(|scope| {
            scope.spawn(|| follow(&catalog, "here", &mailbox, (&nodes, &hints), &stop));
            // The first node's entry may be in the list that `follow` reads at its start. The second node's entry
            // comes later, so the watch must report it.
            let heard = ["b", "c"].map(|node| {
                announce(node);
                let by = Deadline::after(Duration::from_secs(20));
                let is_node = |news: &GatewayEvent| matches!(news, GatewayEvent::Node(place) if place.node == node);
                loop {
                    if mailbox.take().iter().any(is_node) {
                        return true;
                    }
                    if by.passed() {
                        return false;
                    }
                    event::wait_readable(&mailbox.bell, by).unwrap();
                }
            });
            stop.store(true, Ordering::Relaxed);
            assert_eq!(heard, [true, true]);
        });
    }

    fn options() -> GatewayOptions {
        let at = CatalogAddress::Keep("127.0.0.1:0".into());
        GatewayOptions {
            token: 1,
            lease: Duration::from_secs(6),
            ..GatewayOptions::new("here", "a", at, "/nowhere".into())
        }
    }
}

//! The gateway's two threads: one keeps the lease alive and carries out orders, the other follows what all nodes
//! announce.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use crossdock_catalog::{Catalog, EntryChange, Follower};
use crossdock_os::Deadline;

use crate::hints::Hints;
use crate::keys::Key;
use crate::member::{Joined, Member, Refused};
use crate::whereabouts::Passing;
use crate::{Claimed, Mailbox, Name, News, Nodes, Order, Place, Whereabouts, keys};

/// How often threads check whether they must end.
const SLICE: Duration = Duration::from_millis(100);
/// The milliseconds between two attempts to join, or to keep a lease alive.
const PAUSE: u64 = 300;

enum State {
    In {
        joined: Joined,
        /// When the lease must be kept alive next, in milliseconds of the member's clock.
        due: u64,
    },
    /// The node has no lease. `again` is the time of the next attempt to join. `told` is the reason that was reported
    /// last.
    Out { again: u64, told: Option<String> },
}

pub(crate) struct Worker {
    member: Member,
    orders: Receiver<Order>,
    mailbox: Arc<Mailbox>,
    stop: Arc<AtomicBool>,
    state: State,
    /// Names that are to be released as soon as the catalog answers.
    strays: VecDeque<Name>,
    /// Orders about items, the oldest first. Each is repeated until its outcome is certain.
    items: VecDeque<Order>,
}

impl Worker {
    pub fn new(member: Member, orders: Receiver<Order>, mailbox: Arc<Mailbox>, stop: Arc<AtomicBool>) -> Self {
        let state = State::Out { again: member.now(), told: None };
        Self { member, orders, mailbox, stop, state, strays: VecDeque::new(), items: VecDeque::new() }
    }

    pub fn run(mut self) {
        while !self.stop.load(Ordering::Relaxed) {
            self.look_after_lease();
            match self.orders.recv_timeout(self.wait()) {
                Ok(order) => self.carry_out(order),
                Err(RecvTimeoutError::Timeout) => self.carry_on(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        if let State::In { joined, .. } = &self.state {
            self.member.leave(joined);
        }
    }

    /// Does all that is due, without waiting.
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

    /// The time until the lease needs attention next, or until the thread must check whether it ends.
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
                    self.mailbox.put(News::Synced);
                }
                Err(Refused::NoLease) => self.cut_off("the lease has ended".into()),
                // When the whole time of a lease is over, other nodes may take the names of the node that had the
                // lease. So this node counts as cut off after four fifths of this time.
                Err(refused) if joined.kept + time * 4 / 5 <= self.member.now() => self.cut_off(reason(&refused)),
                Err(_) => *due = (now + PAUSE).min(joined.kept + time * 4 / 5),
            },
            State::Out { again, told } if *again <= now => match self.member.join() {
                Ok(joined) => {
                    self.mailbox.put(News::Joined { number: joined.number });
                    self.state = State::In { joined, due: joined.kept + time / 4 };
                }
                Err(refused) => {
                    let why = reason(&refused);
                    if told.as_ref() != Some(&why) {
                        self.mailbox.put(News::CutOff { why: why.clone() });
                    }
                    self.state = State::Out { again: self.member.now() + PAUSE, told: Some(why) };
                }
            },
            _ => {}
        }
    }

    fn cut_off(&mut self, why: String) {
        self.mailbox.put(News::CutOff { why: why.clone() });
        self.state = State::Out { again: self.member.now(), told: Some(why) };
    }

    fn carry_out(&mut self, order: Order) {
        match order {
            Order::Claim(name) => {
                let outcome = self.claim(&name, false);
                if matches!(outcome, Claimed::Failed(_)) {
                    // The claim may have succeeded although its answer was lost, so the name is released.
                    self.strays.push_back(name.clone());
                }
                self.mailbox.put(News::Claimed { name, outcome });
            }
            Order::Take { name, from } => {
                let outcome = self.claim_with(&name, |member, joined| member.take(joined, &name, &from));
                if matches!(outcome, Claimed::Failed(_)) {
                    // The name may belong to this node by now although the answer was lost, so the name is released.
                    // The other node then claims it again.
                    self.strays.push_back(name.clone());
                }
                self.mailbox.put(News::Claimed { name, outcome });
            }
            Order::Release(name) => self.strays.push_back(name),
            Order::Find(name) => {
                let outcome = match self.is_in() {
                    true => self.member.node_of(&name).map_err(|refused| reason(&refused)),
                    false => Err("this node has no lease of the site".into()),
                };
                self.mailbox.put(News::Found { name, outcome });
            }
            Order::Announce(names) => self.announce(names),
            order => self.items.push_back(order),
        }
        self.carry_on();
    }

    /// Continues with releases and orders that had to wait for the catalog.
    fn carry_on(&mut self) {
        self.release_strays();
        while let (Some(order), State::In { joined, .. }) = (self.items.front(), &self.state) {
            match self.about_item(joined, order) {
                Ok(news) => {
                    self.items.pop_front();
                    news.into_iter().for_each(|news| self.mailbox.put(news));
                }
                Err(Refused::NoLease) => return self.cut_off("the lease has ended".into()),
                Err(_) => return,
            }
        }
    }

    /// Carries out an order about an item. After an error the order must be repeated.
    fn about_item(&self, joined: &Joined, order: &Order) -> Result<Option<News>, Refused> {
        let look = |item| {
            let is = self.member.whereabouts(item)?;
            Ok::<_, Refused>(Some(is.map_or(News::NoItem { item }, News::Item)))
        };
        match order {
            Order::Pass { name, to } => {
                let Whereabouts { item, epoch, .. } = *to;
                let outcome = match self.member.pass(joined, name, to)? {
                    Passing::Done => Ok(()),
                    Passing::Kept(why) => Err(why),
                };
                Ok(Some(News::Passed { item, epoch, outcome }))
            }
            Order::Describe(is) => self.member.describe(is).map(|()| None),
            Order::Forget { item, epoch } => {
                self.member.forget(*item, *epoch)?;
                look(*item)
            }
            Order::Look { item } => look(*item),
            Order::Claim(_) | Order::Take { .. } | Order::Release(_) | Order::Announce(_) | Order::Find(_) => Ok(None),
        }
    }

    fn claim(&mut self, name: &Name, given: bool) -> Claimed {
        self.claim_with(name, |member, joined| member.claim(joined, name, given))
    }

    /// Makes a name belong to this node, by the call `claim`.
    fn claim_with(&mut self, name: &Name, claim: impl FnOnce(&Member, &Joined) -> Result<(), Refused>) -> Claimed {
        self.strays.retain(|stray| stray != name);
        let State::In { joined, .. } = &self.state else {
            return Claimed::Failed("this node has no lease of the site".into());
        };
        match claim(&self.member, joined) {
            Ok(()) => Claimed::Ours,
            Err(Refused::Taken(place)) => Claimed::Theirs(place),
            Err(Refused::NoLease) => {
                self.cut_off("the lease has ended".into());
                Claimed::Failed("the node's lease has ended".into())
            }
            Err(Refused::Failed(why)) => Claimed::Failed(why),
        }
    }

    fn announce(&mut self, names: Vec<Name>) {
        for name in &names {
            // Claiming many names takes time, and the lease must be kept alive meanwhile.
            self.look_after_lease();
            match self.claim(name, true) {
                Claimed::Ours => {}
                Claimed::Theirs(place) => self.mailbox.put(News::Contested { name: name.clone(), place }),
                Claimed::Failed(why) => {
                    // Give the lease up: after the next join the node announces all names again.
                    return self.cut_off(why);
                }
            }
        }
        // A name that cannot be released now is released with the next announcement, or when the lease ends.
        if let Err(refused) = self.member.release_all_but(&names) {
            self.cut_off(reason(&refused));
        }
    }

    fn release_strays(&mut self) {
        while let (Some(name), State::In { .. }) = (self.strays.front(), &self.state) {
            if self.member.release(name).is_err() {
                return;
            }
            self.strays.pop_front();
        }
    }
}

fn reason(refused: &Refused) -> String {
    match refused {
        Refused::Taken(place) => {
            let Place { node, address, .. } = place;
            format!("another daemon, at {address}, is node '{node}' of this site; end that one, or take another --node")
        }
        Refused::NoLease => "the lease has ended".into(),
        Refused::Failed(why) => why.clone(),
    }
}

/// Reports what the nodes of the site announce, until `stop` is set. Runs in a thread of its own.
pub(crate) fn follow(
    catalog: &dyn Catalog,
    site: &str,
    mailbox: &Mailbox,
    (nodes, hints): (&Nodes, &Hints),
    stop: &AtomicBool,
) {
    let mut follower = Follower::new(&keys::site(site));
    while !stop.load(Ordering::Relaxed) {
        // No report is needed if the catalog cannot be reached, because the thread that keeps the lease reports this.
        let told = tell(&mut follower, catalog, site, hints, Deadline::after(SLICE), |news| {
            // The links learn of a node before the daemon does, so that the daemon's questions find its address.
            if let News::Node(place) = &news {
                nodes.learn(place);
            }
            mailbox.put(news);
        });
        if !told {
            thread::sleep(SLICE);
        }
    }
}

/// Notes the changes of the catalog in `hints`, and passes them to `put`. Returns false if the catalog gave no answer.
pub(crate) fn tell(
    follower: &mut Follower,
    catalog: &dyn Catalog,
    site: &str,
    hints: &Hints,
    by: Deadline,
    put: impl FnMut(News),
) -> bool {
    let Ok(changes) = follower.next(catalog, by) else { return false };
    changes.iter().for_each(|change| hints.note(change));
    changes.into_iter().filter_map(|change| news(site, change)).for_each(put);
    true
}

fn news(site: &str, change: EntryChange) -> Option<News> {
    match (keys::read(site, &change.entry().key), change) {
        (Key::Node(node), EntryChange::Put(entry)) => Place::read(&node, &entry.value).map(News::Node),
        (Key::Node(node), EntryChange::Gone(_)) => Some(News::NodeGone { node }),
        (Key::Name(name), EntryChange::Put(entry)) => {
            keys::read_owner(&entry.value).map(|node| News::Named { name, node })
        }
        (Key::Name(name), EntryChange::Gone(_)) => Some(News::Unnamed { name }),
        (Key::Item(item), EntryChange::Put(entry)) => Whereabouts::read(item, &entry.value).map(News::Item),
        (Key::Item(item), EntryChange::Gone(_)) => Some(News::NoItem { item }),
        (Key::Other, _) => None,
    }
}

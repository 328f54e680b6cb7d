//! Which members are alive according to the kernel, and what the daemons' liveness tables say about them.
//!
//! A client has its lock on the roll from its first welcome until its process is dead, or until it has left properly.
//! The lock comes with the welcome, and is held while the welcome is still in flight. A member whose connection has
//! ended keeps its lock. Each member may still use the table of the daemon to which it was last connected, so all
//! tables are checked, even the oldest table.

use std::collections::BTreeMap;

use crossdock_layout::MemberId;
use crossdock_layout::liveness::{DEAD, is_proof};
use crossdock_node::broker::{Attachment, Event};

use crate::sabotage::Sabotage;
use crate::world::World;

/// The liveness table of one daemon: for each slot, the id of the member that has or had the slot, with the bit
/// [`DEAD`] if this member is dead.
pub type Table = BTreeMap<usize, u64>;

impl World {
    /// Tells whether this table proves a member's death. With the bug [`Sabotage::AbsenceIsDeath`], a member that is
    /// not in the table counts as dead. An earlier version of crossdock had this rule.
    fn says_dead(&self, table: &Table, member: MemberId) -> bool {
        let word = table.get(&member.slot()).copied().unwrap_or(0);
        if self.sabotage == Sabotage::AbsenceIsDeath { word != member.0 } else { is_proof(word, member) }
    }

    pub fn set_alive(&mut self, member: MemberId) {
        self.tables.last_mut().expect("a daemon's table").insert(member.slot(), member.0);
    }

    pub fn set_dead(&mut self, member: MemberId) {
        let table = self.tables.last_mut().expect("a daemon's table");
        let word = table.entry(member.slot()).or_insert(0);
        if !is_proof(*word, member) {
            *word = member.0 | DEAD;
        }
    }

    /// Sets up the table as a daemon does when a broker starts.
    pub fn begin_table(&mut self) {
        let Some(broker) = &self.broker else { return };
        let lasting = broker.lasting();
        let table = self.tables.last_mut().expect("a daemon's table");
        for slot in 0..64 {
            let word = table.entry(slot).or_insert(0);
            match lasting.slot_holder(slot) {
                Some(member) if !is_proof(*word, member) => *word = member.0,
                Some(_) => {}
                None if *word == 0 && lasting.next_member > 1 => {
                    *word = MemberId::new(lasting.next_member - 1, slot).0 | DEAD;
                }
                None => *word |= if *word == 0 { 0 } else { DEAD },
            }
        }
    }

    /// Tells whether this member's byte of the roll is locked.
    pub fn is_on_roll(&self, member: MemberId) -> bool {
        let lives = |number: usize| self.clients[number].alive && !self.clients[number].left;
        let in_hand = self.clients.iter().any(|c| c.member == member && c.alive && !c.left);
        let on_its_way = |p: &crate::world::Pipe| {
            let papers = |(_, with): &(Vec<u8>, Attachment)| *with == Attachment::Papers { member };
            !p.client_closed && lives(p.client) && p.to_client.iter().any(papers)
        };
        in_hand || self.pipes.values().any(on_its_way)
    }

    /// Reports deaths to the broker, as the kernel would show them: for watched members by pidfds, for members without
    /// a connection by the roll.
    pub fn notice_deaths(&mut self) {
        let Some(broker) = &self.broker else { return };
        let lasting = broker.lasting();
        let members = lasting.members.iter().map(|(id, m)| (*id, m.peer));
        let watched = members.chain(lasting.ghosts.iter().map(|(id, ghost)| (*id, ghost.peer)));
        let gone = |peer| !self.clients.iter().any(|c| c.alive && c.peer == peer);
        let by_pidfd = watched.filter(|(_, peer)| peer.birth != 0 && gone(*peer)).map(|(id, _)| id);
        let cut_off_is_dead = self.sabotage == Sabotage::BuryTheCutOff;
        let by_roll = broker.unproved().filter(|member| cut_off_is_dead || !self.is_on_roll(*member));
        let dead: Vec<_> = by_pidfd.chain(by_roll).collect();
        for member in dead {
            self.event(Event::ProcessDied { member });
        }
    }

    /// Ends a client's connection although the client still lives and keeps all of its mappings. This happens, for
    /// example, when the client has reached its limit of descriptors.
    pub fn cut_off(&mut self) {
        let ready: Vec<_> =
            (0..self.clients.len()).filter(|c| self.clients[*c].can_act() && self.clients[*c].welcome).collect();
        if ready.is_empty() {
            return;
        }
        let number = self.random.pick(&ready);
        let client = &mut self.clients[number];
        client.welcome = false;
        client.forget_deadlines();
        if let Some(pipe) = client.connection.take().and_then(|c| self.pipes.get_mut(&c)) {
            pipe.client_closed = true;
        }
    }

    /// Checks that no table marks a living member as dead, and that no two living members have the same slot.
    pub fn check_lives(&self) {
        let living: Vec<_> =
            self.clients.iter().map(|c| c.member).filter(|m| *m != MemberId::NONE && self.is_on_roll(*m)).collect();
        for member in &living {
            for (age, table) in self.tables.iter().rev().enumerate() {
                assert!(!self.says_dead(table, *member), "{member} lives, and is dead by table {age} before this one");
            }
        }
        let mut slots: Vec<_> = living.iter().map(|m| m.slot()).collect();
        slots.sort_unstable();
        assert!(slots.windows(2).all(|pair| pair[0] != pair[1]), "two who live have one slot: {living:?}");
    }

    /// Is called at the end, when all members are dead. Checks that the present table marks all of them as dead.
    pub fn check_all_dead(&self) {
        let table = self.tables.last().expect("a daemon's table");
        for member in &self.model.told_members {
            assert!(is_proof(table.get(&member.slot()).copied().unwrap_or(0), *member), "{member} is not marked dead");
        }
    }
}

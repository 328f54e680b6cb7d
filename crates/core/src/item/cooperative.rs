//! Cooperative items: the owner is a word in the item's first page. To hand an item over, a member needs a few stores
//! and a wake.
//!
//! The word `owner` names the party that owns the item. The word `holder` names the one member of that party that has
//! the item. Only the holder changes `owner`. It clears the word `holder` only after it has changed `owner`, so that no
//! member of the former party can take the item in between. A member of the owning party takes the item by a
//! compare-and-swap of `holder`, from none to its own id. The word `turn` counts changes. Waiting members sleep on
//! `turn` and on the daemon's count of deaths.
//!
//! The daemon writes `owner` and `holder` when it makes the item's memory, before any member can map it.
//!
//! What if a member dies during these steps? If the holder dies, at whatever store, `holder` still names it. A waiting
//! member that finds the holder dead stores its own id in `holder`. The word `held_for` shows for which party the dead
//! member had the item. If this party is the present owner, the waiting member does what `on_death` says. If that
//! waiting member dies as well, the next waiting member does the same. If a sleeping member dies, `sleepers` stays one
//! too high, which causes needless wakes and nothing else. The word `deaths` counts the dead holders. The item's next
//! holder may be a member that did not find the death itself. By this count it learns of the death, and heals its
//! regions before it uses the data that the dead member left.
//!
//! All tasks that may own the item can write these words, and they trust each other. The numbers are compared and never
//! used as addresses.

use std::sync::atomic::Ordering;

use crossdock_layout::item::OWNER_GONE;
use crossdock_layout::wire::OnDeath;
use crossdock_layout::{MemberId, Status};
use crossdock_os::Deadline;
use crossdock_os::futex::wait_either;

use super::ItemMemory;
use super::header::HeaderRef;
use crate::liveness::{LOOK, LivenessSource, count_shown, epoch_word};
use crate::region::heal_all;
use crate::{Error, Result, fault_point};

/// The numbers by which the word `owner` of an item can name one party.
pub type PartyNumbers = Vec<u32>;

/// A value that shows that this member has the item. Only one such value exists at a time, because `holder` is taken by
/// an exchange. Handing the item over consumes the value.
#[derive(Debug, PartialEq, Eq)]
pub struct HolderToken {
    /// The address at which this process has mapped the memory of the item to which this token belongs.
    of: usize,
}

/// The result of a wait for an item.
#[derive(Debug, PartialEq, Eq)]
pub enum ItemWaitOutcome {
    /// This member has the item now.
    Taken(HolderToken),
    /// The deadline passed. `owner` is the number of the party that owns the item.
    TimedOut {
        /// The number of the party that owns the item.
        owner: u32,
        /// The member that has the item, or [`MemberId::NONE`].
        holder: MemberId,
    },
    /// The item was destroyed.
    Gone,
}

impl ItemMemory {
    /// Gives the token of the new item to `me`, the member that made the item and therefore has it. The caller calls
    /// this once for each item. The result is `None` if `me` does not have the item, because another member found `me`
    /// dead.
    #[must_use]
    pub fn created_by(&self, me: MemberId) -> Option<HolderToken> {
        fault_point!("item.begin");
        self.is_held_by(me).then(|| self.held())
    }

    fn held(&self) -> HolderToken {
        HolderToken { of: self.base() as usize }
    }

    /// The item's data, which the caller may change. Only the member that has the item has a `HolderToken` for it. The
    /// slice is empty if `held` belongs to another item.
    #[must_use]
    pub fn bytes_held<'a>(&'a self, held: &'a mut HolderToken) -> &'a mut [u8] {
        if held.of != self.base() as usize || !self.writable() {
            return &mut [];
        }
        // SAFETY: the data lie within the mapping, which lives as long as `self`. This process has one `HolderToken` of
        // the item at a time, which is borrowed mutably here, and all tasks have agreed that only the member that has
        // the item touches its data.
        unsafe { std::slice::from_raw_parts_mut(self.base(), self.size() as usize) }
    }

    /// Sets what happens to the item when its holder dies.
    pub fn set_on_death(&self, on_death: OnDeath) {
        self.header().set_on_death(on_death);
    }

    /// Tells whether this member has the item.
    #[must_use]
    pub fn is_held_by(&self, me: MemberId) -> bool {
        self.header().holder() == me
    }

    /// The number of times that the item changed its owner.
    #[must_use]
    pub fn transfers(&self) -> u64 {
        self.header().transfers()
    }

    /// Waits until the item belongs to one of the parties in `own` and no other member of that party has it.
    pub fn take(&self, own: &[u32], me: MemberId, alive: &dyn LivenessSource, deadline: Deadline) -> ItemWaitOutcome {
        let outcome = self.wait_for(own, me, alive, deadline);
        self.note_deaths(alive);
        outcome
    }

    /// Takes the item if it belongs to one of the parties in `own` and no other member of that party has it. Gives
    /// `None` if the item cannot be taken now. Does not wait and does not ask the kernel: a holder of whose death the
    /// liveness table does not know counts as alive.
    pub fn take_at_once(&self, own: &[u32], me: MemberId, alive: &dyn LivenessSource) -> Option<ItemWaitOutcome> {
        let outcome = self.try_take(own, me, alive, false);
        self.note_deaths(alive);
        outcome
    }

    /// Heals the session's regions if a holder of the item has died since this process last healed them. The item's
    /// data may contain handles of objects in regions, and the dead holder may have left these objects half changed.
    #[inline]
    fn note_deaths(&self, alive: &dyn LivenessSource) {
        let deaths = self.header().deaths();
        if self.deaths_seen.load(Ordering::Acquire) != deaths {
            self.heal_after(deaths, alive);
        }
    }

    #[cold]
    fn heal_after(&self, deaths: u32, alive: &dyn LivenessSource) {
        // Another member may have found the death, so this process has not counted it. It is counted here. When the
        // program opens a heap in the item, this count causes the heap to be healed.
        count_shown();
        heal_all(alive);
        // The count is stored last, so that another thread that reads it can rely on the regions being healed.
        self.deaths_seen.store(deaths, Ordering::Release);
    }

    fn wait_for(&self, own: &[u32], me: MemberId, alive: &dyn LivenessSource, deadline: Deadline) -> ItemWaitOutcome {
        let header = self.header();
        // In most cases the holder is alive and about to hand the item over. So the first look at the item does not ask
        // the kernel about the holder. If the liveness table does not know of the holder's death, the death is found
        // after the first sleep, which lasts `LOOK` at most.
        let mut asks_kernel = deadline.passed();
        loop {
            let turn = header.turn().load(Ordering::Acquire);
            let deaths = alive.epoch();
            if let Some(claim) = self.try_take(own, me, alive, asks_kernel) {
                return claim;
            }
            if asks_kernel && deadline.passed() {
                return ItemWaitOutcome::TimedOut { holder: header.holder(), owner: header.owner() };
            }
            header.announce_sleep();
            fault_point!("item.sleep");
            // Another member may make a change before it can see that this member sleeps. The other member then does
            // not wake this member. But the change has also changed `turn`, so the wait ends immediately.
            wait_either((header.turn(), turn), (epoch_word(alive), deaths), deadline.at_most(LOOK));
            header.end_sleep();
            // In most cases this member can take the item now. So it looks before it reads the count of deaths, which
            // lies elsewhere in memory.
            if let Some(claim) = self.try_take(own, me, alive, false) {
                return claim;
            }
            asks_kernel = true;
        }
    }

    /// Takes the item if this is possible now. If `asks_kernel` is false, only the liveness table tells whether the
    /// holder is dead.
    fn try_take(
        &self,
        own: &[u32],
        me: MemberId,
        alive: &dyn LivenessSource,
        asks_kernel: bool,
    ) -> Option<ItemWaitOutcome> {
        let header = self.header();
        let owner = header.owner();
        if owner == OWNER_GONE {
            return Some(ItemWaitOutcome::Gone);
        }
        let holder = header.holder();
        if holder == MemberId::NONE {
            if !own.contains(&owner) {
                return None;
            }
            if !header.change_holder(MemberId::NONE, me) {
                return None;
            }
            fault_point!("item.taken");
            // After the first load of the owner, another member of the same party may have taken the item and handed it
            // over. So the owner is read again.
            let owner = header.owner();
            if own.contains(&owner) {
                header.hold_for(owner);
                fault_point!("item.held");
                return Some(ItemWaitOutcome::Taken(self.held()));
            }
            header.give_back();
            return None;
        }
        if holder != me && (asks_kernel || alive.table().says_dead(holder)) && alive.is_dead(holder) {
            Self::heal(header, holder, me);
            return self.try_take(own, me, alive, asks_kernel);
        }
        None
    }

    /// Takes the place of a holder that died: does what `on_death` says, and wakes all waiting members.
    #[cold]
    fn heal(header: HeaderRef<'_>, dead: MemberId, me: MemberId) {
        if !header.change_holder(dead, me) {
            return;
        }
        fault_point!("item.heal");
        header.count_death();
        fault_point!("item.counted");
        header.apply_death();
        header.give_back();
    }

    /// Hands the item to the party with this number.
    ///
    /// # Errors
    /// `DENIED` if this member does not have the item.
    pub fn hand_over(&self, to: u32, me: MemberId) -> Result<()> {
        self.check_holder(me)?;
        self.header().hand_to(to);
        fault_point!("item.handed-over");
        self.header().give_back();
        Ok(())
    }

    /// Gives the item up without changing its owner, so that another member of the owning party can take it.
    ///
    /// # Errors
    /// `DENIED` if this member does not have the item.
    pub fn let_go(&self, me: MemberId) -> Result<()> {
        self.check_holder(me)?;
        self.header().give_back();
        Ok(())
    }

    /// Ends the item, so that no member can take it again.
    ///
    /// # Errors
    /// `DENIED` if this member does not have the item.
    pub fn end(&self, me: MemberId) -> Result<()> {
        self.hand_over(OWNER_GONE, me)
    }

    fn check_holder(&self, me: MemberId) -> Result<()> {
        if self.is_held_by(me) {
            return Ok(());
        }
        let holder = self.header().holder();
        Err(Error::new(Status::Denied, format!("this member does not own the cooperative item; {holder} has it")))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Backing;
    use super::*;
    use crossdock_layout::item::new_cooperative_item;
    use crossdock_layout::liveness::LivenessTable;
    use crossdock_os::{file, memfd};
    use std::sync::Arc;
    use std::time::Duration;

    const A: MemberId = MemberId::new(1, 1);
    const B: MemberId = MemberId::new(2, 2);
    const C: MemberId = MemberId::new(3, 3);

    fn soon() -> Deadline {
        Deadline::after(Duration::from_millis(20))
    }

    fn table() -> Box<LivenessTable> {
        // SAFETY: the table consists of atomics and padding, for which zeros are valid values.
        let table: Box<LivenessTable> = unsafe { Box::new_zeroed().assume_init() };
        table.format();
        [A, B, C].iter().for_each(|m| table.set_alive(*m));
        table
    }

    fn item(on_death: OnDeath) -> ItemMemory {
        let fd = memfd::create("crossdock-test", 8192).unwrap();
        file::write_all_at(&fd, &new_cooperative_item(1, A, on_death), 0).unwrap();
        ItemMemory::open(&fd, 4096, Backing::Cooperative).unwrap()
    }

    #[test]
    fn only_the_holder_hands_it_over_and_only_the_owner_takes_it() {
        let (item, table) = (item(OnDeath::Keep), table());
        assert_eq!(item.take(&[2], B, &*table, soon()), ItemWaitOutcome::TimedOut { owner: 1, holder: A });
        assert_eq!(item.hand_over(2, B).unwrap_err().status, Status::Denied);
        item.hand_over(2, A).unwrap();
        assert_eq!(item.hand_over(2, A).unwrap_err().status, Status::Denied);
        assert_eq!(item.take(&[1], A, &*table, soon()), ItemWaitOutcome::TimedOut { owner: 2, holder: MemberId::NONE });
        assert_eq!(item.take(&[5, 2], B, &*table, soon()), ItemWaitOutcome::Taken(item.held()));
        assert_eq!(item.take(&[5, 2], C, &*table, soon()), ItemWaitOutcome::TimedOut { owner: 2, holder: B });
        item.let_go(B).unwrap();
        assert_eq!(item.take(&[5, 2], C, &*table, soon()), ItemWaitOutcome::Taken(item.held()));
        item.end(C).unwrap();
        assert_eq!(item.take(&[1], A, &*table, soon()), ItemWaitOutcome::Gone);
    }

    #[test]
    fn the_death_of_a_holder_whose_party_does_not_own_the_item_changes_no_owner() {
        for on_death in [OnDeath::Keep, OnDeath::Return, OnDeath::Destroy] {
            let (item, table) = (item(on_death), table());
            // The item belonged to B's party when B looked. Before B stores its id in `holder`, A hands the item to C's
            // party.
            item.hand_over(2, A).unwrap();
            assert!(item.header().change_holder(MemberId::NONE, B));
            table.set_dead(B);
            assert_eq!(item.take(&[2], C, &*table, soon()), ItemWaitOutcome::Taken(item.held()), "{on_death:?}");
        }
    }

    #[test]
    fn the_holders_death_does_what_the_policy_says() {
        for (on_death, expected) in [(OnDeath::Keep, [2, 3]), (OnDeath::Return, [1, 1]), (OnDeath::Destroy, [0, 0])] {
            let (item, table) = (item(on_death), table());
            item.hand_over(2, A).unwrap();
            assert_eq!(item.take(&[2], B, &*table, soon()), ItemWaitOutcome::Taken(item.held()));
            table.set_dead(B);
            for (party, member) in [(1, A), (2, C)] {
                let claim = item.take(&[party], member, &*table, soon());
                match claim {
                    ItemWaitOutcome::Taken(_) => assert!(expected.contains(&party), "{on_death:?}"),
                    ItemWaitOutcome::Gone => assert_eq!(expected, [0, 0]),
                    ItemWaitOutcome::TimedOut { .. } => {
                        assert!(!expected.contains(&party) || party == 3, "{on_death:?}")
                    }
                }
            }
        }
    }

    /// A source whose table knows of no death. The kernel says that `dead` is dead.
    struct OnlyKernelKnows {
        table: Box<LivenessTable>,
        dead: MemberId,
    }

    impl LivenessSource for OnlyKernelKnows {
        fn table(&self) -> &LivenessTable {
            &self.table
        }

        fn has_left(&self, member: MemberId) -> bool {
            member == self.dead
        }
    }

    #[test]
    fn a_dead_holder_that_only_the_kernel_knows_is_found_by_the_deadline_and_within_a_look() {
        for wait in [Duration::ZERO, Duration::from_millis(5), Duration::from_secs(60)] {
            let (item, alive) = (item(OnDeath::Keep), OnlyKernelKnows { table: table(), dead: A });
            let began = std::time::Instant::now();
            let taken = item.take(&[1], B, &alive, Deadline::after(wait));
            assert_eq!(taken, ItemWaitOutcome::Taken(item.held()), "a wait of {wait:?}");
            assert!(began.elapsed() < Duration::from_secs(30), "the wait has not ended at a look");
        }
    }

    #[test]
    fn a_death_wakes_the_members_that_wait() {
        let (item, table) = (Arc::new(item(OnDeath::Return)), Arc::<LivenessTable>::from(table()));
        item.hand_over(2, A).unwrap();
        assert_eq!(item.take(&[2], B, &*table, soon()), ItemWaitOutcome::Taken(item.held()));
        let waiter = std::thread::spawn({
            let (item, table) = (item.clone(), table.clone());
            move || item.take(&[1], A, &*table, Deadline::after(Duration::from_secs(10)))
        });
        std::thread::sleep(Duration::from_millis(20));
        table.set_dead(B);
        crossdock_os::futex::wake_all(&table.epoch);
        assert_eq!(waiter.join().unwrap(), ItemWaitOutcome::Taken(item.held()));
    }

    #[test]
    fn an_item_whose_maker_died_before_it_learned_of_the_item_goes_to_another_member() {
        for (on_death, expected) in [(OnDeath::Keep, true), (OnDeath::Return, true), (OnDeath::Destroy, false)] {
            let (item, table) = (item(on_death), table());
            assert!(matches!(item.take(&[1], C, &*table, soon()), ItemWaitOutcome::TimedOut { .. }), "A is alive");
            table.set_dead(A);
            let taken = item.take(&[1], C, &*table, soon());
            let what = if expected { ItemWaitOutcome::Taken(item.held()) } else { ItemWaitOutcome::Gone };
            assert_eq!(taken, what, "{on_death:?}");
            assert_eq!(item.created_by(A), None, "A was only cut off, and asks for its item");
        }
    }

    #[test]
    fn a_hundred_thousand_hand_overs_between_three_lose_nothing() {
        let (item, table) = (Arc::new(item(OnDeath::Keep)), Arc::<LivenessTable>::from(table()));
        let turns = 30_000u64;
        let threads = [(A, 1u32), (B, 2), (C, 3)].map(|(me, word)| {
            let (item, table) = (item.clone(), table.clone());
            std::thread::spawn(move || {
                for turn in 0..turns {
                    if !(turn == 0 && me == A) {
                        let claim = item.take(&[word], me, &*table, Deadline::after(Duration::from_secs(20)));
                        assert!(matches!(claim, ItemWaitOutcome::Taken(_)));
                    }
                    item.hand_over(word % 3 + 1, me).unwrap();
                }
            })
        });
        threads.into_iter().for_each(|t| t.join().unwrap());
        assert_eq!(item.transfers(), 3 * turns);
    }
}

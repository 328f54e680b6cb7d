//! Serves requests about items, except requests that wait.

use crossdock_layout::item::new_cooperative_item;
use crossdock_layout::wire::{Answer, InUse, ItemLevel, ItemRequest, OnDeath, Party, Request, SegmentKind};
use crossdock_layout::{MemberId, Rights, SegmentId, Status};

use super::change::Change;
use super::find::{self, Patience};
use super::handover::Purpose;
use super::keyed::by;
use super::queue::WaitPurpose;
use super::{Item, ItemRecord, Making, Phase, Refusal, Residence, memory_of};
use crate::broker::{Broker, Cause, Effect, NodeFailure, Record, Requester, text};

/// The largest size of an item in bytes. A larger item would not fit into any machine's address space.
pub(super) const MAX_SIZE: u64 = 1 << 46;
/// How many numbers one rank may register as parties (`NUMBERS`), and how many numbers all ranks of one task together
/// may register (`NUMBERS_OF_TASK`).
const NUMBERS: usize = 256;
const NUMBERS_OF_TASK: usize = 4096;
/// Limits for the parties that have a number for owner words: how many parties of one workflow may have such a number,
/// and how many parties may get one because of requests of one task.
const WORDS_OF_WORKFLOW: usize = 16_384;
const WORDS_OF_TASK: u64 = 4096;
/// The numbers of parties in owner words are below this limit, so that they fit into the 32 bits of an owner word, and
/// none is the word's largest value, which says that the item was destroyed.
const WORDS: u64 = 1 << 31;

impl Broker {
    pub(in crate::broker) fn serve_item(&mut self, asker: Requester, request: ItemRequest) {
        let place = self.place(asker).filter(|_| !find::keys(&request).is_empty());
        if place.is_some_and(|(_, workflow)| self.looks_up(asker, workflow, &request)) {
            return;
        }
        let served = match request {
            ItemRequest::Create { size, level, on_death, key } => self.create_item(asker, size, level, on_death, key),
            ItemRequest::Find { key } => self.find_item(asker, &key, Patience::new(self.now)),
            ItemRequest::Access { read, wait_ms, keys } => {
                self.access_item(asker, read, wait_ms, keys, Patience::new(self.now))
            }
            ItemRequest::Transfer { item, to } => self.transfer_item(asker, item, to),
            ItemRequest::Release { item } => return self.release_item(asker.member, item),
            ItemRequest::Hold { item } => return self.hold_item(asker.member, item),
            ItemRequest::Destroy { item } => self.destroy_item(asker, item),
            ItemRequest::Share { item } => self.share_item(asker, item),
            ItemRequest::Unshare { item, wait_ms } => self.unshare_item(asker, item, wait_ms),
            ItemRequest::Resize { item, size } => self.resize_item(asker, item, size),
            ItemRequest::Policy { item, on_death } => self.set_item_policy(asker, item, on_death),
            ItemRequest::Reopen { item } => self.reopen_item(asker, item),
            ItemRequest::Register { number } => self.register_number(asker, number),
            ItemRequest::Word { party } => self.find_word(asker, party),
        };
        if let Err((status, text)) = served {
            self.fail(asker, status, text);
        }
    }

    pub(super) fn journalled(&self) -> Result<(), Refusal> {
        self.check_journal().map_err(|NodeFailure { status, text }| (status, text))
    }

    fn create_item(
        &mut self,
        asker: Requester,
        size: u64,
        level: ItemLevel,
        on_death: OnDeath,
        key: String,
    ) -> Result<(), Refusal> {
        self.may_own(asker, &key)?;
        self.journalled()?;
        let Some((_, workflow)) = self.place(asker) else { return Ok(()) };
        if let Some(item) = self.lasting.items.of_key(workflow, &key) {
            let whose = self.whose(item, &self.lasting.items.all[&item]);
            return Err((Status::Exists, format!("there is an item '{key}' already: {whose}")));
        }
        if size == 0 || size > MAX_SIZE {
            return Err((Status::Invalid, format!("item '{key}' cannot have {}", text::bytes(size))));
        }
        let what = format!("item '{key}'");
        let memory = memory_of(size);
        let room = self.fits(workflow, memory, &what).and_then(|()| self.room(workflow, memory, &what));
        room.and_then(|()| self.descriptors(workflow, 1, &what)).map_err(|text| (Status::NoSpace, text))?;
        let mut first = Vec::new();
        if level == ItemLevel::Cooperative {
            // The item's memory and the answer contain the parties' numbers for owner words. If no number is left for
            // one of the parties, the item is not made.
            let Some(creator) = self.party(asker.member) else { return Ok(()) };
            let [own, ..] = self.owner_words(asker.member, workflow, &creator)?;
            // When the host makes the item's memory, it also writes into this memory which party owns the item and
            // which member is the holder. So if the member dies before it gets the answer to its request, the memory
            // names a dead holder, and other members can take the item.
            let own = u32::try_from(own).expect("the numbers in owner words have 32 bits");
            first = new_cooperative_item(own, asker.member, on_death);
        }
        let again = || Request::Item(ItemRequest::Create { size, level, on_death, key: key.clone() });
        if !self.has_name(asker, workflow, SegmentKind::Item, &key, again) {
            return Ok(());
        }
        let item = SegmentId(self.lasting.next_segment);
        let effect = if level == ItemLevel::Cooperative {
            let of = self.lasting.workflows.get(&workflow).map_or("", |w| &w.name);
            let label = format!("crossdock:{of}:item:{key}");
            Effect::Make { segment: item, size: memory, reserve: 0, label, first }
        } else {
            Effect::MakeItem { file: item, size: memory }
        };
        self.items.making = Some(Making { asker, item, workflow, key, size, level, on_death });
        self.effects.push(effect);
        Ok(())
    }

    /// Handles the host's report that it has made an item's memory, or could not make it. Returns `false` if no item
    /// was being made.
    pub(in crate::broker) fn item_made(&mut self, outcome: &Result<u64, String>) -> bool {
        let Some(Making { asker, item, workflow, key, size, level, on_death }) = self.items.making.take() else {
            return false;
        };
        let number = match outcome {
            Ok(number) => *number,
            Err(why) => {
                self.fail(asker, Status::NoSpace, why.clone());
                return true;
            }
        };
        let Some(party) = self.party(asker.member) else { return true };
        let cause = Cause { member: asker.member, request: asker.number };
        self.commit(Record::Numbers { segment: item, numbers: vec![number] });
        self.file_record(item, workflow, &key, size, cause);
        let holder = if level == ItemLevel::Cooperative { MemberId::NONE } else { asker.member };
        let state = Item {
            workflow,
            key,
            file: item,
            size,
            level,
            on_death,
            creator: party.clone(),
            owner: party,
            holder,
            shared: false,
            transfers: 0,
            copies: 0,
        };
        self.commit(Record::Item(ItemRecord::Made { item, state, cause }));
        self.items.handovers.begin(item, self.now);
        self.give_item(asker, item, true);
        self.serve_waiting(item);
        true
    }

    /// Records a new file that will hold an item's bytes.
    pub(super) fn file_record(&mut self, file: SegmentId, workflow: u64, key: &str, size: u64, cause: Cause) {
        let memory = memory_of(size);
        self.commit(Record::Segment {
            segment: file,
            workflow,
            kind: SegmentKind::Item,
            name: key.to_owned(),
            size: memory,
            reserved: memory,
            attribute: 0,
            persistent: true,
            since_ms: self.calendar_ms(),
            cause,
        });
    }

    fn transfer_item(&mut self, asker: Requester, item: SegmentId, to: Party) -> Result<(), Refusal> {
        let found = self.own_item(asker, item, "transfer")?;
        let (workflow, key, holder) = (found.workflow, found.key.clone(), found.holder);
        if found.level == ItemLevel::Cooperative {
            let text = format!("item '{key}' is cooperative: its owner word hands it over, not the daemon");
            return Err((Status::Invalid, text));
        }
        if found.shared {
            return Err((Status::Busy, format!("item '{key}' is shared; unshare it before you transfer it")));
        }
        if self.is_of(asker.member, workflow, &to) {
            return Err((Status::Invalid, format!("item '{key}' belongs to this task already ({to})")));
        }
        if !self.has_its_key(item) {
            let text = format!(
                "item '{key}' goes to no other owner: its name is another item's, which came from another node"
            );
            return Err((Status::Exists, text));
        }
        self.undisturbed(item)?;
        self.may_receive(workflow, &to, &key)?;
        self.journalled()?;
        let cause = Cause { member: asker.member, request: asker.number };
        if holder == asker.member {
            self.items.handovers.set_former(item, asker.member);
        }
        self.change_owner(item, Change::Transferred { to }, cause);
        match self.items.handovers.phase(item) {
            Phase::Open | Phase::Proved => {
                self.items.handovers.enter(item, Phase::Proving { purpose: Purpose::NextOwner });
            }
            // The item's bytes are not on this node, so nothing has to be proved: the next owner gets the item as soon
            // as it asks.
            Phase::Away | Phase::Fetching { .. } => self.serve_waiting(item),
            _ => {}
        }
        // The host proves the item first, and sends the answer to the transfer after that. As soon as the broker gets
        // the proof, it answers a request that waits for the item. So that request is answered before the transfer.
        let message = Answer::Done { value: 0 }.encode(asker.opcode, asker.number);
        self.items.after_proofs.push(Effect::Send {
            connection: asker.connection,
            message,
            with: crate::broker::Attachment::Nothing,
        });
        self.end_readiness(workflow, &key);
        Ok(())
    }

    /// Refuses a request to change an item while another change of the item is not finished. The other change may be a
    /// move to another node, or a share, unshare or copy that waits for a proof.
    fn undisturbed(&self, item: SegmentId) -> Result<(), Refusal> {
        if let Some(Residence::Leaving { to, .. }) = self.lasting.items.residences.get(&item) {
            let key = self.lasting.items.all.get(&item).map_or("", |i| &i.key);
            return Err((Status::Busy, format!("item '{key}' is being passed to node {to}; try again")));
        }
        if self.items.handovers.phase(item).pending().is_none() {
            return Ok(());
        }
        let key = self.lasting.items.all.get(&item).map_or("", |i| &i.key);
        Err((Status::Busy, format!("item '{key}' is being shared or unshared by another request; wait for its answer")))
    }

    /// Refuses a transfer to a task whose endpoints do not allow it to own the item, because such a task could never
    /// open the item.
    fn may_receive(&self, workflow: u64, to: &Party, key: &str) -> Result<(), Refusal> {
        let number = |n: &u64| self.lasting.items.numbers.get(&(workflow, *n));
        let Some(Party::Task { task, .. }) = (if let Party::Number(n) = to { number(n) } else { Some(to) }) else {
            return Ok(());
        };
        let mut of_task =
            self.lasting.endpoints.iter().filter(|(_, e)| e.workflow == workflow && e.task == *task).peekable();
        let known = of_task.peek().is_some();
        if known && !of_task.any(|(n, _)| self.lasting.rights(*n, SegmentKind::Item, key).contains(Rights::OWN)) {
            let text = format!(
                "task '{task}' may not own item '{key}', so it is not given to it; grant it `items: {{{key}: own}}`"
            );
            return Err((Status::Denied, text));
        }
        Ok(())
    }

    fn destroy_item(&mut self, asker: Requester, item: SegmentId) -> Result<(), Refusal> {
        self.own_item(asker, item, "destroy")?;
        if self.lasting.items.is_leaving(item) {
            self.undisturbed(item)?;
        }
        let by = self.party(asker.member).map_or_else(String::new, |p| p.to_string());
        let cause = Cause { member: asker.member, request: asker.number };
        self.end_item(item, &format!("it was destroyed by {by}"), cause);
        self.answer(asker, &Answer::Done { value: 0 });
        Ok(())
    }

    /// Removes an item, whichever task owns it. The asking member needs the right to remove items. Programs of the
    /// daemon's own user have this right; tasks do not have it.
    pub(in crate::broker) fn remove_item(&mut self, asker: Requester, workflow: u64, in_use: InUse, key: &str) {
        let Some(item) = self.lasting.items.of_key(workflow, key) else {
            return self.fail(asker, Status::NotFound, format!("there is no item '{key}' to remove"));
        };
        if in_use == InUse::Unused {
            return self.fail(asker, Status::Busy, format!("another member may have used item '{key}'"));
        }
        let holder = self.lasting.items.all.get(&item).map_or(MemberId::NONE, |found| found.holder);
        if in_use == InUse::Refuse && self.lasting.members.contains_key(&holder) {
            let text = format!("item '{key}' is held by {}; let it end first, or use --force", self.who(holder));
            return self.fail(asker, Status::Busy, text);
        }
        if let Some(users) = self.item_users(item).filter(|_| in_use == InUse::Refuse) {
            return self.fail(asker, Status::Busy, format!("item '{key}' {users}"));
        }
        if self.lasting.items.is_leaving(item) {
            let text = format!("item '{key}' is being passed to another node; remove it there");
            return self.fail(asker, Status::Busy, text);
        }
        let cause = Cause { member: asker.member, request: asker.number };
        self.end_item(item, "the daemon's user removed it", cause);
        self.answer(asker, &Answer::Done { value: 0 });
    }

    /// Gives the members that have a cooperative item open, or that read a shared item, as text for messages; `None` if
    /// there are none. The item's `holder` may be `NONE` although such members use the item, so this function looks for
    /// them in other places.
    pub(super) fn item_users(&self, item: SegmentId) -> Option<String> {
        let found = self.lasting.items.all.get(&item)?;
        let has_users = found.shared || found.level == ItemLevel::Cooperative;
        let possible = || self.possible_user(found.file).filter(|_| has_users);
        let elsewhere = match self.items.readers.of(item) {
            0 => None,
            readers => Some(format!("is read by {readers} members of other nodes; let them end first, or use --force")),
        };
        self.users(found.file).or(elsewhere).or_else(possible)
    }

    fn share_item(&mut self, asker: Requester, item: SegmentId) -> Result<(), Refusal> {
        let found = self.own_item(asker, item, "share")?;
        if found.level == ItemLevel::Cooperative || found.holder != asker.member {
            let text =
                format!("item '{}' is not open here, or is cooperative; only an open one can be shared", found.key);
            return Err((Status::Invalid, text));
        }
        if found.shared {
            return Err((Status::Busy, format!("item '{}' is shared already", found.key)));
        }
        self.journalled()?;
        self.undisturbed(item)?;
        self.items.handovers.set_former(item, asker.member);
        self.items.handovers.enter(item, Phase::Proving { purpose: Purpose::Share(asker) });
        Ok(())
    }

    fn unshare_item(&mut self, asker: Requester, item: SegmentId, wait_ms: u64) -> Result<(), Refusal> {
        let found = self.own_item(asker, item, "unshare")?;
        if !found.shared || found.holder != asker.member {
            let text = format!("item '{}' is not shared by this task", found.key);
            return Err((Status::Invalid, text));
        }
        self.journalled()?;
        let (file, key) = (found.file, found.key.clone());
        self.undisturbed(item)?;
        if self.is_read(item, file) && wait_ms > 0 {
            self.await_item(asker, WaitPurpose::Readers(item), wait_ms, vec![key])?;
            self.items.handovers.enter(item, Phase::Draining { asker });
        } else {
            self.items.handovers.enter(item, Phase::Proving { purpose: Purpose::Unshare(asker) });
        }
        Ok(())
    }

    fn resize_item(&mut self, asker: Requester, item: SegmentId, size: u64) -> Result<(), Refusal> {
        let found = self.own_item(asker, item, "resize")?;
        let (key, workflow, file) = (found.key.clone(), found.workflow, found.file);
        if found.level == ItemLevel::Cooperative || found.holder != asker.member {
            let text = format!("item '{key}' is not open here, or is cooperative; its size stays as it is");
            return Err((Status::Invalid, text));
        }
        if found.shared {
            return Err((Status::Busy, format!("item '{key}' is shared; unshare it before you resize it")));
        }
        self.undisturbed(item)?;
        if size == 0 || size > MAX_SIZE {
            return Err((Status::Invalid, format!("item '{key}' cannot have {}", text::bytes(size))));
        }
        let before = memory_of(found.size);
        let more = memory_of(size).saturating_sub(before);
        let what = format!("item '{key}'");
        let room = self.fits(workflow, memory_of(size), &what).and_then(|()| self.room(workflow, more, &what));
        room.map_err(|text| (Status::NoSpace, text))?;
        self.journalled()?;
        let cause = Cause { member: asker.member, request: asker.number };
        if more > 0 {
            // The added bytes must be zero.
            self.effects.push(Effect::CutItem { file, size: before });
        }
        self.commit(Record::Item(ItemRecord::Memory { item, file, size, clung: false, cause }));
        self.give_item(asker, item, false);
        Ok(())
    }

    fn set_item_policy(&mut self, asker: Requester, item: SegmentId, on_death: OnDeath) -> Result<(), Refusal> {
        self.own_item(asker, item, "change the policy of")?;
        if self.lasting.items.is_leaving(item) {
            self.undisturbed(item)?;
        }
        self.journalled()?;
        let cause = Cause { member: asker.member, request: asker.number };
        self.commit(Record::Item(ItemRecord::Policy { item, on_death, cause }));
        self.answer(asker, &Answer::Done { value: 0 });
        Ok(())
    }

    fn reopen_item(&mut self, asker: Requester, item: SegmentId) -> Result<(), Refusal> {
        let found = self.own_item(asker, item, "open")?;
        if found.holder != asker.member && found.level != ItemLevel::Cooperative {
            return Err((Status::Denied, format!("it is not open here: {}", self.whose(item, found))));
        }
        self.give_item(asker, item, false);
        Ok(())
    }

    fn register_number(&mut self, asker: Requester, number: u64) -> Result<(), Refusal> {
        let Some((endpoint, workflow)) = self.place(asker) else { return Ok(()) };
        let Some(party) = self.party(asker.member) else { return Ok(()) };
        if !self.lasting.may_have_items(endpoint) {
            let text = "this task may own no item, so it needs no number; the workflow file gives grants (items:)";
            return Err((Status::Denied, text.into()));
        }
        match self.lasting.items.numbers.get(&(workflow, number)) {
            Some(of) if *of == party => {}
            Some(of) => {
                let text = format!("number {number} is {of}'s already; take another one");
                return Err((Status::Exists, text));
            }
            None => {
                let task = &self.lasting.members[&asker.member].task;
                let is_of_task = |of: &&Party| matches!(of, Party::Task { task: other, .. } if other == task);
                let numbers = self.lasting.items.numbers.iter().filter(|((of, _), _)| *of == workflow);
                let of_task: Vec<_> = numbers.map(|(_, of)| of).filter(is_of_task).collect();
                if of_task.iter().filter(|of| ***of == party).count() >= NUMBERS {
                    return Err((Status::NoSpace, format!("{party} has {NUMBERS} numbers already")));
                }
                if of_task.len() >= NUMBERS_OF_TASK {
                    let text = format!("the ranks of task '{task}' have {NUMBERS_OF_TASK} numbers together already");
                    return Err((Status::NoSpace, text));
                }
                self.journalled()?;
                let cause = Cause { member: asker.member, request: asker.number };
                self.commit(Record::Item(ItemRecord::Number { workflow, number, party, cause }));
            }
        }
        self.answer(asker, &Answer::Done { value: 0 });
        let own = Party::Number(number);
        let items = self.lasting.items.all.iter().filter(|(_, i)| i.workflow == workflow && i.owner == own);
        for item in items.map(|(item, _)| *item).collect::<Vec<_>>() {
            self.serve_waiting(item);
        }
        Ok(())
    }

    fn find_word(&mut self, asker: Requester, party: Party) -> Result<(), Refusal> {
        let Some((endpoint, workflow)) = self.place(asker) else { return Ok(()) };
        if !self.lasting.may_have_items(endpoint) {
            let text = "this task may own no item, so it names no owner; the workflow file gives grants (items:)";
            return Err((Status::Denied, text.into()));
        }
        let word = self.word(asker.member, workflow, party)?;
        self.answer(asker, &Answer::Done { value: word });
        Ok(())
    }

    /// Gives the numbers that a member gets with a cooperative item: those of its rank, of its task and of the item's
    /// creator.
    pub(super) fn owner_words(
        &mut self,
        member: MemberId,
        workflow: u64,
        creator: &Party,
    ) -> Result<[u64; 3], Refusal> {
        let known = &self.lasting.members[&member];
        let (own, any) = (Party::rank(&known.task, known.rank), Party::task(&known.task));
        let mut words = [0; 3];
        for (word, party) in words.iter_mut().zip([own, any, creator.clone()]) {
            *word = self.word(member, workflow, party)?;
        }
        Ok(words)
    }

    /// Gives the number that stands for a party in owner words. If the party has no number yet, it gets a new one,
    /// because this member's task needs it.
    fn word(&mut self, member: MemberId, workflow: u64, party: Party) -> Result<u64, Refusal> {
        if let Some(word) = self.lasting.items.words.get(&(workflow, party.clone())) {
            return Ok(*word);
        }
        // A task may name any number of parties, even tasks that never start. So the number of parties that one task
        // may name is limited.
        let task = self.lasting.members.get(&member).map_or_else(String::new, |known| known.task.clone());
        let parties = self.lasting.items.named.get(by(&(workflow, &task))).map_or(0, |parties| *parties);
        if parties >= WORDS_OF_TASK {
            let text = format!("task '{task}' has named {WORDS_OF_TASK} owners of cooperative items already");
            return Err((Status::NoSpace, text));
        }
        let named = self.lasting.items.words.keys().filter(|(of, _)| *of == workflow).count();
        if named >= WORDS_OF_WORKFLOW {
            let text = format!("this workflow has named {WORDS_OF_WORKFLOW} owners of cooperative items already");
            return Err((Status::NoSpace, text));
        }
        self.journalled()?;
        let word = self.lasting.items.last_word + 1;
        if word >= WORDS {
            return Err((Status::NoSpace, "this daemon has named too many tasks in owner words; restart it".into()));
        }
        // If the broker is killed between these two records, the count is too large by one, but never too small.
        self.commit(Record::Item(ItemRecord::Named { workflow, task, parties: parties + 1 }));
        self.commit(Record::Item(ItemRecord::Word { workflow, party, word, cause: Cause::NONE }));
        Ok(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::bench::{Bench, status};
    use crate::broker::{DEFAULT_WORKFLOW, Limits, MAIN_ENDPOINT};

    fn access(key: &str, read: bool) -> ItemRequest {
        ItemRequest::Access { read, wait_ms: 0, keys: vec![key.into()] }
    }

    #[test]
    fn a_removal_that_refuses_items_in_use_sees_all_users() {
        let mut bench = Bench::new(Limits::default());
        for (connection, task) in [(1, "a"), (2, "b"), (3, "c")] {
            bench.join(connection, MAIN_ENDPOINT, task, 0);
        }
        let remove = |key: &str| Request::Remove { kind: SegmentKind::Item, in_use: InUse::Refuse, name: key.into() };
        // A cooperative item has no holder. It is in use only while a member has it open.
        let item = bench.create(1, "cooperative", ItemLevel::Cooperative);
        assert_eq!(status(bench.ask(3, remove("cooperative"))), Some(Status::Busy));
        bench.say(1, &Request::Detach { segment: item, count: 1 });
        assert_eq!(status(bench.ask(3, remove("cooperative"))), None);
        // The owner of a shared item has closed it, and a reader has it open.
        let item = bench.create(1, "shared", ItemLevel::Verified);
        bench.ask_item(1, ItemRequest::Share { item });
        let Some(Answer::Item(given)) = bench.ask_item(2, access("shared", true)) else { panic!("it can be read") };
        bench.say(1, &Request::Detach { segment: given.file, count: 1 });
        bench.say(1, &Request::Item(ItemRequest::Release { item }));
        assert_eq!(status(bench.ask(3, remove("shared"))), Some(Status::Busy));
        bench.say(2, &Request::Detach { segment: given.file, count: 1 });
        assert_eq!(status(bench.ask(3, remove("shared"))), None);
    }

    #[test]
    fn a_cooperative_item_of_a_task_that_has_named_many_owners_is_not_made() {
        let mut bench = Bench::new(Limits::default());
        bench.join(1, MAIN_ENDPOINT, "a", 0);
        bench.join(2, MAIN_ENDPOINT, "b", 0);
        for number in 0..WORDS_OF_TASK {
            assert_eq!(status(bench.ask_item(1, ItemRequest::Word { party: Party::Number(number) })), None);
        }
        let (level, on_death) = (ItemLevel::Cooperative, OnDeath::Keep);
        let create = ItemRequest::Create { size: 5000, level, on_death, key: "x".into() };
        assert_eq!(status(bench.ask_item(1, create)), Some(Status::NoSpace));
        assert_eq!(status(bench.ask_item(1, ItemRequest::Find { key: "x".into() })), Some(Status::NotFound));
        bench.create(2, "x", ItemLevel::Cooperative);
        assert_eq!(status(bench.ask_item(1, access("x", false))), Some(Status::NoSpace));
    }

    #[test]
    fn a_task_that_has_named_many_owners_names_no_others_after_the_broker_was_killed() {
        let mut bench = Bench::new(Limits::default());
        let members = [(1, "a"), (2, "b")].map(|(connection, task)| bench.join(connection, MAIN_ENDPOINT, task, 0));
        let word = |number: u64| ItemRequest::Word { party: Party::Number(number) };
        for number in 0..WORDS_OF_TASK {
            assert_eq!(status(bench.ask_item(1, word(number))), None);
        }
        bench.restart();
        for (connection, task, member) in [(101, "a", members[0]), (102, "b", members[1])] {
            bench.hello(connection, MAIN_ENDPOINT, task, 0, member.unwrap());
        }
        assert_eq!(status(bench.ask_item(101, word(0))), None, "it has this number already");
        assert_eq!(status(bench.ask_item(101, word(WORDS_OF_TASK))), Some(Status::NoSpace));
        assert_eq!(status(bench.ask_item(102, word(WORDS_OF_TASK))), None);
    }

    #[test]
    fn the_ranks_of_a_task_register_a_limited_amount_of_numbers_together() {
        let mut bench = Bench::new(Limits::default());
        bench.join(1, MAIN_ENDPOINT, "b", 0);
        let mut number = 0;
        let mut register = |bench: &mut Bench, connection| {
            number += 1;
            status(bench.ask_item(connection, ItemRequest::Register { number }))
        };
        let ranks = (NUMBERS_OF_TASK / NUMBERS) as u32;
        for rank in 0..=ranks {
            bench.join(2, MAIN_ENDPOINT, "a", rank);
            for _ in (0..NUMBERS).filter(|_| rank < ranks) {
                assert_eq!(register(&mut bench, 2), None);
            }
            assert_eq!(register(&mut bench, 2), Some(Status::NoSpace));
            bench.ask(2, Request::Bye);
        }
        assert_eq!(register(&mut bench, 1), None);
    }

    #[test]
    fn a_task_that_may_own_no_item_names_no_owners() {
        let mut bench = Bench::new(Limits::default());
        bench.join(1, MAIN_ENDPOINT, "launcher", 0);
        let (workflow, task) = (DEFAULT_WORKFLOW.to_owned(), "t".to_owned());
        let made = bench.ask(1, Request::MakeEndpoint { workflow, task, grants: vec![] });
        let Some(Answer::Done { value: endpoint }) = made else { panic!("{made:?}") };
        bench.join(2, endpoint, "t", 0);
        let word = || ItemRequest::Word { party: Party::Number(1) };
        assert_eq!(status(bench.ask_item(2, word())), Some(Status::Denied));
        assert_eq!(status(bench.ask_item(1, word())), None);
    }
}

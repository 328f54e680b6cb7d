//! Giving an item out: proof, copy if it fails, and the descriptor.

use crossdock_layout::wire::{Answer, ItemGiven, ItemLevel};
use crossdock_layout::{MemberId, SegmentId, Status};

use super::{For, ItemRecord, Verdict, memory_of};
use crate::broker::{Asker, Attachment, Broker, Cause, Effect, Hold, Record};

impl Broker {
    /// Whoever can have the item now gets it; the first by arrival.
    pub(super) fn serve_waiting(&mut self, item: SegmentId) {
        while let Some(id) = self.first_waiting(item, For::Reading) {
            if let Some(wait) = self.unqueue(id) {
                self.give_item(wait.asker, item, false);
            }
        }
        if self.desk.copying.contains_key(&item) {
            return;
        }
        while let Some(id) = self.first_waiting(item, For::Owning) {
            let cooperative = self.lasting.items.all[&item].level == ItemLevel::Cooperative;
            if cooperative {
                if let Some(wait) = self.unqueue(id) {
                    self.give_item(wait.asker, item, false);
                }
                continue;
            }
            if !self.desk.clean.contains(&item) {
                self.desk.to_prove.insert(item);
                return;
            }
            // Taken by this member until it gives it up.
            let Some(wait) = self.unqueue(id) else { return };
            let Some(party) = self.party(wait.asker.member) else { continue };
            let cause = Cause { member: wait.asker.member, request: wait.asker.number };
            self.set_owner(item, party, wait.asker.member, false, false, true, cause);
            self.give_item(wait.asker, item, false);
            return;
        }
    }

    /// Sends the item's memory to a member that may have it.
    pub(super) fn give_item(&mut self, asker: Asker, item: SegmentId, created: bool) {
        let Some(found) = self.lasting.items.all.get(&item).cloned() else { return };
        if self.lost.contains(&found.file) {
            let text = format!("item '{}' waits to be offered again after the daemon's end", found.key);
            return self.fail(asker, Status::Busy, text);
        }
        let cooperative = found.level == ItemLevel::Cooperative;
        let mut words = [0; 3];
        if cooperative {
            let known = &self.lasting.members[&asker.member];
            let any = crossdock_layout::wire::Party::task(&known.task);
            let own = self.party(asker.member).unwrap_or_else(|| any.clone());
            for (word, party) in words.iter_mut().zip([own, any, found.creator.clone()]) {
                match self.word(found.workflow, party) {
                    Ok(number) => *word = number,
                    Err((status, text)) => return self.fail(asker, status, text),
                }
            }
        }
        let writable = !found.shared;
        if cooperative || !writable {
            let hold = self.holds.entry(found.file).or_default().entry(asker.member);
            let hold = hold.or_insert(Hold { count: 0, assumed: false });
            hold.count = hold.count.saturating_add(1);
        }
        // Somebody may be in from now on.
        self.desk.clean.remove(&item);
        let given = ItemGiven {
            item,
            file: found.file,
            size: found.size,
            level: found.level,
            on_death: found.on_death,
            writable,
            created,
            words: [words[0], words[1]],
            creator: words[2],
            key: found.key,
        };
        let with = if cooperative {
            Attachment::Segment { segment: found.file, writable: true }
        } else {
            Attachment::Item { file: found.file, writable }
        };
        let message = Answer::Item(given).encode(asker.opcode, asker.number);
        self.effects.push(Effect::Send { connection: asker.connection, message, with });
    }

    /// What the kernel said of an item's file.
    pub(in crate::broker) fn proved(&mut self, item: SegmentId, file: SegmentId, verdict: &Verdict) {
        let Some(found) = self.lasting.items.all.get(&item).filter(|i| i.file == file) else { return };
        if self.desk.copying.contains_key(&item) {
            return;
        }
        // Somebody may have it: whoever asked for the proof has been answered otherwise meanwhile.
        let held = found.holder != MemberId::NOBODY;
        if held && !self.desk.sharing.contains_key(&item) && !self.desk.unsharing.contains_key(&item) {
            return;
        }
        match verdict {
            Verdict::Alone if found.level != ItemLevel::Strict => {
                self.desk.clean.insert(item);
                self.ready(item);
            }
            Verdict::Alone => self.start_copy(item, false),
            Verdict::Clinging => {
                let line = format!(
                    "item '{}' of workflow '{}': a former user clings to its memory; {} gets a copy",
                    found.key,
                    self.lasting.workflows.get(&found.workflow).map_or("", |w| &w.name),
                    found.owner
                );
                self.effects.push(Effect::Log { line });
                self.start_copy(item, true);
            }
            Verdict::Unknown(why) => self.cannot_give(item, &format!("its memory could not be checked: {why}")),
        }
    }

    /// The item is proved: whoever asked for it goes on.
    fn ready(&mut self, item: SegmentId) {
        let Some(found) = self.lasting.items.all.get(&item).cloned() else { return };
        if let Some(asker) = self.desk.sharing.remove(&item) {
            let cause = Cause { member: asker.member, request: asker.number };
            self.set_owner(item, found.owner, found.holder, true, false, true, cause);
            self.give_item(asker, item, false);
        } else if let Some(asker) = self.desk.unsharing.remove(&item) {
            let cause = Cause { member: asker.member, request: asker.number };
            self.set_owner(item, found.owner, found.holder, false, false, true, cause);
            self.give_item(asker, item, false);
        }
        self.serve_waiting(item);
    }

    fn start_copy(&mut self, item: SegmentId, clung: bool) {
        let Some(found) = self.lasting.items.all.get(&item).cloned() else { return };
        let what = format!("a copy of item '{}'", found.key);
        let memory = memory_of(found.size);
        let room = self.fits(found.workflow, memory, &what).and_then(|()| self.room(found.workflow, memory, &what));
        let room = room.and_then(|()| self.descriptors(found.workflow, 1, &what));
        let room = room.and_then(|()| self.journal.clone().map_err(|why| format!("the journal is full ({why})")));
        if let Err(why) = room {
            return self.cannot_give(item, &why);
        }
        let to = SegmentId(self.lasting.next_segment);
        self.file_record(to, found.workflow, &found.key, found.size, Cause::NONE);
        self.desk.copying.insert(item, (to, clung));
        self.effects.push(Effect::CopyItem { item, from: found.file, to, size: memory });
    }

    /// Whoever waits for it and could have it is told why not; the next one who asks tries again.
    fn cannot_give(&mut self, item: SegmentId, why: &str) {
        let Some(found) = self.lasting.items.all.get(&item) else { return };
        let text = format!("item '{}' cannot be opened anew: {why}", found.key);
        let asker = self.desk.sharing.remove(&item).or_else(|| self.desk.unsharing.remove(&item));
        let asker = asker.or_else(|| {
            let id = self.first_waiting(item, For::Owning)?;
            self.unqueue(id).map(|wait| wait.asker)
        });
        if let Some(asker) = asker {
            self.fail(asker, Status::NoSpace, text);
        }
    }

    /// A copy is done, or failed.
    pub(in crate::broker) fn copied(&mut self, item: SegmentId, to: SegmentId, outcome: Result<(), String>) {
        let Some((_, clung)) = self.desk.copying.get(&item).copied().filter(|(file, _)| *file == to) else { return };
        self.desk.copying.remove(&item);
        if let Err(why) = outcome {
            self.drop_file(to, None);
            return self.cannot_give(item, &why);
        }
        let Some(found) = self.lasting.items.all.get(&item) else { return };
        let (old, size) = (found.file, found.size);
        self.commit(Record::Item(ItemRecord::Memory { item, file: to, size, clung, cause: Cause::NONE }));
        // Whoever clings to it keeps it alive, and it counts until then: readers that are known, else who had it last.
        let read = self.holds.get(&old).is_some_and(|readers| !readers.is_empty());
        let former = self.desk.former.get(&item).copied().filter(|_| clung && !read);
        self.desk.clean.insert(item);
        self.ready(item);
        // Behind what somebody waits for. A broker that is killed in between drops files that no item lies in.
        self.drop_file(old, former);
    }

    /// Gives a file up. It counts for as long as members have it open, as far as that is known.
    pub(super) fn drop_file(&mut self, file: SegmentId, clings: Option<MemberId>) {
        if let Some(member) = clings.filter(|m| self.lasting.members.contains_key(m)) {
            self.holds.entry(file).or_default().entry(member).or_insert(Hold { count: 1, assumed: false });
        }
        let holders = self.holds.get(&file).into_iter().flatten();
        let holders: Vec<_> = holders.map(|(member, hold)| (*member, hold.count)).collect();
        self.lost.remove(&file);
        self.commit(Record::Removed { segment: file, holders, cause: Cause::NONE });
        self.effects.push(Effect::Forget { segment: file });
        self.release_if_unused(file);
    }
}

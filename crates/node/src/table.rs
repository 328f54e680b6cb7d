//! The daemon's side of the liveness table. The daemon is its only writer.

use std::mem::offset_of;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crossdock_layout::id::MAX_MEMBERS;
use crossdock_layout::liveness::{DEAD, LIVENESS_MAGIC, LivenessTable, PAGE_WORDS, is_proof, page_word};
use crossdock_layout::{LAYOUT_VERSION, MemberId, SegmentId};
use crossdock_os::{Mapping, OsResult, futex, memfd};

/// Makes a table that only this process and its children can write. The returned descriptor is for all members. In each
/// table the count of deaths begins with a different number, so that a member that compares the counts notices a new
/// table.
pub(crate) fn create(incarnation: u64) -> OsResult<(OwnedFd, Mapping)> {
    let (fd, words) = memfd::create_for_own_writing("crossdock:liveness", size_of::<LivenessTable>() as u64)?;
    word32(&words, offset_of!(LivenessTable, epoch)).store(incarnation as u32, Ordering::Release);
    for number in 0..PAGE_WORDS {
        // In each of these words the daemon counts new pin pages. The words of a new table begin with other values than
        // those of a former daemon's table. So every publisher notices a change, and asks for its pin pages again. No
        // word is 0 here, because a publisher uses 0 for "the daemon does not know the series yet".
        pages(&words, number).store(incarnation as u32 | 1, Ordering::Release);
    }
    word32(&words, offset_of!(LivenessTable, version)).store(LAYOUT_VERSION, Ordering::Release);
    word64(&words, offset_of!(LivenessTable, magic)).store(LIVENESS_MAGIC, Ordering::Release);
    Ok((fd, words))
}

fn word32(words: &Mapping, offset: usize) -> &AtomicU32 {
    words.word32(offset as u64).expect("the table's own fields lie within it")
}

fn word64(words: &Mapping, offset: usize) -> &AtomicU64 {
    words.word64(offset as u64).expect("the table's own fields lie within it")
}

fn pages(words: &Mapping, number: usize) -> &AtomicU32 {
    word32(words, offset_of!(LivenessTable, pages) + 4 * number)
}

/// Tells the publisher of this series that the series has one more pin page.
pub(crate) fn tell_of_page(words: &Mapping, series: SegmentId) {
    pages(words, page_word(series)).fetch_add(1, Ordering::AcqRel);
}

fn slot(words: &Mapping, slot: usize) -> &AtomicU64 {
    word64(words, offset_of!(LivenessTable, members) + 8 * slot)
}

/// Writes the member's id into its slot, which marks the member as alive. The former holder of the slot is dead.
pub(crate) fn set_alive(words: &Mapping, member: MemberId) {
    slot(words, member.slot()).store(member.0, Ordering::Release);
}

/// Tells whether the table marks this member as dead.
pub(crate) fn says_dead(words: &Mapping, member: MemberId) -> bool {
    is_proof(slot(words, member.slot()).load(Ordering::Acquire), member)
}

/// Marks a member as dead, and wakes all members that wait for a death.
pub(crate) fn set_dead(words: &Mapping, member: MemberId) {
    if says_dead(words, member) {
        return;
    }
    slot(words, member.slot()).store(member.0 | DEAD, Ordering::Release);
    count_deaths(words);
}

/// Changes the count of deaths, and wakes all members that wait for a death.
fn count_deaths(words: &Mapping) {
    let epoch = word32(words, offset_of!(LivenessTable, epoch));
    epoch.fetch_add(1, Ordering::AcqRel);
    futex::wake_all(epoch);
}

/// Sets up the table when a broker starts: all former holders of slots are dead, except the members that the journal
/// still has.
pub(crate) fn begin(words: &Mapping, next_member: u64, holder: impl Fn(usize) -> Option<MemberId>) {
    // The former broker may have recorded a pin page without telling the publisher, so the table tells all publishers
    // to ask for new pin pages.
    for number in 0..PAGE_WORDS {
        pages(words, number).fetch_add(1, Ordering::AcqRel);
    }
    for number in 0..MAX_MEMBERS {
        let word = slot(words, number).load(Ordering::Acquire);
        match holder(number) {
            Some(member) if !is_proof(word, member) => set_alive(words, member),
            Some(_) => {}
            // The table is new, so it does not say which member had this slot. That member had a smaller number than
            // the next new member will get. So the greatest number that it can have had is marked as dead. This mark
            // covers all smaller numbers of this slot.
            None if word == 0 && next_member > 1 => {
                let last = MemberId::new(next_member - 1, number);
                slot(words, number).store(last.0 | DEAD, Ordering::Release);
            }
            None => set_dead(words, MemberId(word & !DEAD)),
        }
    }
    // The former broker may have marked a member as dead without counting the death, and this function has marked slots
    // without counting. So the count of deaths is changed now, once for all of them.
    count_deaths(words);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_death_that_a_killed_broker_marked_and_did_not_count_is_counted_by_the_next_broker() {
        let (_fd, words) = create(5).unwrap();
        let member = MemberId::new(3, 7);
        set_alive(&words, member);
        // The broker is killed between the two steps of `set_dead`.
        slot(&words, member.slot()).store(member.0 | DEAD, Ordering::Release);
        let epoch = || word32(&words, offset_of!(LivenessTable, epoch)).load(Ordering::Acquire);
        let before = epoch();
        begin(&words, 4, |number| (number == member.slot()).then_some(member));
        assert_ne!(epoch(), before);
        assert!(says_dead(&words, member));
    }
}

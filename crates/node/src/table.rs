//! The daemon's side of the liveness table: the only writer.

use std::mem::offset_of;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crossdock_layout::id::MAX_MEMBERS;
use crossdock_layout::liveness::{LIVENESS_MAGIC, LivenessTable};
use crossdock_layout::{LAYOUT_VERSION, MemberId};
use crossdock_os::{Mapping, OsResult, futex, memfd};

/// Makes a table that only this process and its children can write. The descriptor is for everybody.
pub(crate) fn create() -> OsResult<(OwnedFd, Mapping)> {
    let (fd, words) = memfd::create_for_own_writing("crossdock:liveness", size_of::<LivenessTable>() as u64)?;
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

fn slot(words: &Mapping, slot: usize) -> &AtomicU64 {
    word64(words, offset_of!(LivenessTable, slots) + 8 * slot)
}

/// This member lives from now on.
pub(crate) fn set_alive(words: &Mapping, member: MemberId) {
    slot(words, member.slot()).store(member.0, Ordering::Release);
}

/// Is it in the table?
pub(crate) fn is_alive(words: &Mapping, member: MemberId) -> bool {
    slot(words, member.slot()).load(Ordering::Acquire) == member.0
}

/// This member is dead; everybody who waits for a death is woken.
pub(crate) fn set_dead(words: &Mapping, member: MemberId) {
    let cleared = slot(words, member.slot()).compare_exchange(member.0, 0, Ordering::AcqRel, Ordering::Acquire);
    if cleared.is_ok() {
        let epoch = word32(words, offset_of!(LivenessTable, epoch));
        epoch.fetch_add(1, Ordering::AcqRel);
        futex::wake_all(epoch);
    }
}

/// After a restart: whoever the journal does not know any more is dead.
pub(crate) fn bury_all_but(words: &Mapping, living: impl Fn(MemberId) -> bool) {
    for number in 0..MAX_MEMBERS {
        let member = MemberId(slot(words, number).load(Ordering::Acquire));
        if member != MemberId::NOBODY && !living(member) {
            set_dead(words, member);
        }
    }
}

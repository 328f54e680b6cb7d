//! Forked children of the publisher's process, which keep their private mappings of slots.
//!
//! While a chunk of the variables is a private mapping of its slot (`backing.rs`), a forked child inherits the mapping.
//! A page that the child does not write is the slot's own page. In its own process the publisher maps a chunk anew
//! before the chunk's old slot is overwritten, but it cannot do this in the child. So the slots of those versions that
//! a child may have mapped are not used again before the child has ended or runs another program.
//!
//! A pipe tells when this is the case. Children inherit its writing end, and the kernel closes this end when a child
//! ends or runs another program. When the publisher retires versions, it closes its own writing end and goes on with
//! another pipe. From then on, the reading end is at the end of the stream if no child has the pipe.
//!
//! A child that is forked between `begin` and `publish` shares the slots of the begun version, and may write them. So
//! these slots are treated like those of a published version, also if the begun version is given up.

use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;

use crossdock_os::{OsResult, pipe};

use super::backing::Backing;
use super::publisher::Publisher;
use super::slots::{SlotRun, Slots};

/// What the publisher knows about forked children.
#[derive(Default)]
pub(super) struct Children {
    /// The pipe that children inherit now; `None` while no slot is mapped at the variables' addresses.
    pipe: Option<ChildPipe>,
    forked: Vec<Forked>,
}

struct ChildPipe {
    read: OwnedFd,
    write: OwnedFd,
    /// The number of the newest version when the pipe was made.
    first: u64,
    /// The slots of begun versions that were given up while this pipe was in use. They are kept until it is known
    /// whether a child has the pipe.
    kept: Vec<u32>,
}

/// Children that were forked while one pipe was in use.
struct Forked {
    read: OwnedFd,
    /// The versions whose slots such a child may have mapped.
    versions: RangeInclusive<u64>,
    /// The slots that are kept for the children: those of these versions, once for each version, and those of begun
    /// versions that were given up.
    kept: Vec<u32>,
}

impl ChildPipe {
    fn new(first: u64) -> OsResult<Self> {
        let (read, write) = pipe::pipe()?;
        Ok(Self { read, write, first, kept: Vec::new() })
    }
}

impl Children {
    /// Tells whether slots are kept for a child.
    pub fn keep_slots(&self) -> bool {
        let given_up = self.pipe.iter().any(|pipe| !pipe.kept.is_empty());
        given_up || self.forked.iter().any(|forked| !forked.kept.is_empty())
    }

    /// Frees the slots that were kept for children that have ended or run another program.
    pub fn free_slots(&mut self, slots: &mut Slots) {
        self.forked.retain(|forked| {
            let gone = matches!(pipe::read(&forked.read, &mut [0]), Ok(Some(0)));
            if gone {
                forked.kept.iter().for_each(|slot| slots.let_go(*slot));
            }
            !gone
        });
    }

    /// Keeps a slot of a version that is recycled, if a child may have it mapped.
    pub fn keep(&mut self, version: u64, slot: u32, slots: &mut Slots) {
        for forked in self.forked.iter_mut().filter(|forked| forked.versions.contains(&version)) {
            slots.hold(slot);
            forked.kept.push(slot);
        }
    }

    /// Keeps a slot of a begun version that is given up, if a child may have it mapped. `version` is the number that
    /// the begun version would have had.
    fn keep_begun(&mut self, version: u64, slot: u32, slots: &mut Slots) {
        self.keep(version, slot, slots);
        if let Some(pipe) = &mut self.pipe {
            slots.hold(slot);
            pipe.kept.push(slot);
        }
    }
}

impl Publisher {
    /// Makes sure that children which are forked from now on are noticed. It is called before slots are mapped at the
    /// variables' addresses.
    pub(super) fn watch_children(&mut self) -> OsResult<()> {
        if self.children.pipe.is_none() {
            self.children.pipe = Some(ChildPipe::new(self.sequence)?);
        }
        Ok(())
    }

    /// Finds out whether children were forked since the last call. It is called before versions are recycled. If it
    /// gives `false`, it could not find out, and no version may be recycled.
    pub(super) fn note_children(&mut self) -> bool {
        if self.children.pipe.is_none() {
            return true;
        }
        let mapped = self.begun || self.backing.contains(&Backing::Slot);
        let Ok(next) = mapped.then(|| ChildPipe::new(self.sequence)).transpose() else { return false };
        if let Some(ChildPipe { read, write, first, kept }) = std::mem::replace(&mut self.children.pipe, next) {
            drop(write);
            // The begun version will have the next number, and the children have its slots mapped already.
            let last = self.sequence + u64::from(self.begun);
            self.children.forked.push(Forked { read, versions: first..=last, kept });
        }
        self.children.free_slots(&mut self.slots);
        true
    }

    /// Gives up slots of the begun version. [`Self::free_kept_slots`] then frees them, unless a child may have them
    /// mapped.
    pub(super) fn give_up_begun_run(&mut self, run: SlotRun) {
        for slot in run.first..run.first + run.count {
            self.slots.hold(slot);
            self.children.keep_begun(self.sequence + 1, slot, &mut self.slots);
            self.slots.let_go(slot);
        }
    }

    /// Frees the slots that were kept for children that are gone by now.
    pub(super) fn free_kept_slots(&mut self) {
        let given_up = self.children.pipe.as_ref().is_some_and(|pipe| !pipe.kept.is_empty());
        // If `note_children` can make no further pipe, the slots of the present pipe stay until a later call.
        if !given_up || !self.note_children() {
            self.children.free_slots(&mut self.slots);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Identity, Spec, Variable};
    use super::*;
    use crate::host::StandaloneHost;
    use std::sync::Arc;

    /// Begins a version, and gives its first slot and a second writing end of the pipe, which stands for a child that
    /// is forked now.
    fn begin(publisher: &mut Publisher) -> (u32, OwnedFd) {
        publisher.begin().unwrap();
        let child = publisher.children.pipe.as_ref().unwrap().write.try_clone().unwrap();
        (publisher.begun_slots[0].run.first, child)
    }

    #[test]
    fn the_slots_of_a_begun_version_are_kept_for_a_child_whether_it_is_published_or_given_up() {
        let spec = Spec::of(vec![Variable::new("u", "u64", &[20_000])]);
        let host = Arc::new(StandaloneHost::default());
        let mut publisher = Publisher::create(Identity::alone("s"), &spec, host).unwrap().0;
        publisher.publish(&[]).unwrap();
        let used = publisher.slots.used();
        for abandons in [true, false] {
            for notes in [true, false] {
                let (slot, child) = begin(&mut publisher);
                if notes {
                    assert!(publisher.note_children(), "as a publish does that has to retire versions first");
                }
                if abandons {
                    publisher.abandon().unwrap();
                } else {
                    publisher.publish(&[]).unwrap();
                }
                for step in 0..4 {
                    publisher.elements::<u64>("u").unwrap().fill(step);
                    publisher.publish(&[]).unwrap();
                    assert!(!publisher.current.contains(&slot), "step {step}: abandons: {abandons}, notes: {notes}");
                }
                assert!(publisher.slots.used() > used && publisher.children.keep_slots());
                drop(child);
                publisher.publish(&[]).unwrap();
                assert_eq!(publisher.slots.used(), used, "abandons: {abandons}, notes: {notes}");
                assert!(!publisher.children.keep_slots());
            }
        }
    }

    #[test]
    fn without_a_child_a_begun_version_that_is_given_up_leaves_nothing_behind() {
        let spec = Spec::of(vec![Variable::new("u", "u64", &[20_000])]);
        let host = Arc::new(StandaloneHost::default());
        let mut publisher = Publisher::create(Identity::alone("s"), &spec, host).unwrap().0;
        for _ in 0..3 {
            drop(begin(&mut publisher));
            publisher.abandon().unwrap();
            assert_eq!(publisher.slots.used(), 0);
            assert!(publisher.children.pipe.is_none() && publisher.children.forked.is_empty());
        }
    }
}

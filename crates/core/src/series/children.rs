//! Slots that forked children of the publisher's process may have mapped.
//!
//! While a chunk of the variables is a private mapping of its slot (`backing.rs`), a forked child inherits the mapping.
//! A page that the child has not written is the slot's own page, so the child would see it change if the publisher
//! wrote to the slot. In its own process the publisher maps the chunk to another slot before it overwrites the old
//! slot. The publisher cannot change the child's mapping. So it does not use the slots of the versions that a child may
//! have mapped until the child has ended or has started another program.
//!
//! A watch (`crossdock_os::fork_watch`) shows whether such a child exists. A child inherits the watch together with the
//! mappings, and loses the watch when it ends or starts another program. Before the publisher retires versions, it asks
//! whether a child has the watch. If no child has it, the publisher keeps the watch open. Otherwise the publisher
//! closes the watch, so that later children do not inherit it, and opens a new one for the later children.
//!
//! A child that is forked between `begin` and `publish` has the slots of the begun version mapped, and may write to
//! them. So these slots are kept for the child like those of a published version, even if the program gives up the
//! begun version.

use std::ops::{Range, RangeInclusive};

use crossdock_os::OsResult;
use crossdock_os::fork_watch::ForkWatch;

use super::backing::Backing;
use super::publisher::Publisher;
use super::slots::{SlotRun, Slots};

/// What the publisher knows about forked children.
#[derive(Default)]
pub(super) struct Children {
    /// The open watch; a child that is forked now inherits it. `None` while no slot is mapped at the variables'
    /// addresses.
    watch: Option<OpenWatch>,
    forked: Vec<Forked>,
    /// True while the publisher retires versions directly after it has mapped the newest version's slots over the slots
    /// of all older versions. Each mapping waits for a copy of the address space that another thread has begun. So a
    /// child that has an older version's slots mapped is complete, and has the watch.
    pub mapped_over: bool,
}

struct OpenWatch {
    watch: ForkWatch,
    /// The sequence number that the newest version had when the publisher last knew that no forked child had inherited
    /// this watch.
    first: u64,
    /// The slots of begun versions that were given up while this watch was open. A forked child may have inherited the
    /// watch, and with it the mappings of these slots. So the publisher keeps the slots until it has found out whether
    /// a child has the watch.
    kept: Vec<u32>,
}

/// The children that may have inherited a certain watch, because they were forked while this watch was open.
struct Forked {
    /// The watch, which is closed now.
    watch: ForkWatch,
    /// The versions whose slots one of these children may have mapped.
    versions: RangeInclusive<u64>,
    /// The slots that are kept for these children. They are slots of recycled versions in the range `versions`, and
    /// slots of begun versions that were given up. A slot that several of the recycled versions had is in the list once
    /// for each of these versions.
    kept: Vec<u32>,
}

impl OpenWatch {
    fn new(first: u64) -> OsResult<Self> {
        Ok(Self { watch: ForkWatch::new()?, first, kept: Vec::new() })
    }
}

impl Children {
    /// Tells whether slots are kept for a child.
    pub fn keep_slots(&self) -> bool {
        let given_up = self.watch.iter().any(|open| !open.kept.is_empty());
        given_up || self.forked.iter().any(|forked| !forked.kept.is_empty())
    }

    /// Frees the slots that were kept for children that have ended or run another program.
    pub fn free_slots(&mut self, slots: &mut Slots) {
        self.forked.retain(|forked| {
            let gone = forked.watch.is_over();
            if gone {
                forked.kept.iter().for_each(|slot| slots.let_go(*slot));
            }
            !gone
        });
    }

    /// The publisher recycles the version with the number `version`, which has these slots. If a child may have the
    /// slots mapped, keeps them, so that the publisher does not write to them.
    pub fn keep(&mut self, version: u64, of_version: impl Iterator<Item = u32> + Clone, slots: &mut Slots) {
        for forked in self.forked.iter_mut().filter(|forked| forked.versions.contains(&version)) {
            of_version.clone().for_each(|slot| slots.hold(slot));
            forked.kept.extend(of_version.clone());
        }
    }

    /// The publisher gives up a begun version, which has these slots. If a child may have the slots mapped, keeps them.
    /// `version` is the number that the begun version would have had.
    fn keep_begun(&mut self, version: u64, of_version: Range<u32>, slots: &mut Slots) {
        self.keep(version, of_version.clone(), slots);
        if let Some(open) = &mut self.watch {
            of_version.clone().for_each(|slot| slots.hold(slot));
            open.kept.extend(of_version);
        }
    }
}

impl Publisher {
    /// Makes sure that the publisher notices children that are forked from now on. The publisher calls this function
    /// before it maps slots at the variables' addresses.
    pub(super) fn watch_children(&mut self) -> OsResult<()> {
        if self.children.watch.is_none() {
            self.children.watch = Some(OpenWatch::new(self.sequence)?);
        }
        Ok(())
    }

    /// Finds out which slots children may have mapped. The publisher calls this function before it recycles versions.
    /// Returns `false` if it could not find out; the publisher must then recycle no version.
    pub(super) fn note_children(&mut self) -> bool {
        let Some(open) = &mut self.children.watch else { return true };
        let mapped = self.begun || self.backing.contains(&Backing::Slot);
        let watch = &open.watch;
        let alone = if self.children.mapped_over { watch.was_alone_at_last_mapping() } else { watch.is_alone() };
        if alone {
            // No child has the watch. A child that is forked from now on has no slot of an older version mapped, so
            // the range of versions for such a child begins here.
            open.first = self.sequence;
            open.kept.drain(..).for_each(|slot| self.slots.let_go(slot));
            if !mapped {
                self.children.watch = None;
            }
        } else {
            let Ok(next) = mapped.then(|| OpenWatch::new(self.sequence)).transpose() else { return false };
            if let Some(OpenWatch { mut watch, first, kept }) = std::mem::replace(&mut self.children.watch, next) {
                watch.close();
                // A begun version will have the number `sequence + 1`. The children have its slots mapped as well, so
                // the range includes that number.
                let last = self.sequence + u64::from(self.begun);
                self.children.forked.push(Forked { watch, versions: first..=last, kept });
            }
        }
        self.children.free_slots(&mut self.slots);
        true
    }

    /// Gives up slots of the begun version. [`Self::free_kept_slots`] then frees them, unless a child may have them
    /// mapped.
    pub(super) fn give_up_begun_run(&mut self, run: SlotRun) {
        let of_run = run.first..run.first + run.count;
        of_run.clone().for_each(|slot| self.slots.hold(slot));
        self.children.keep_begun(self.sequence + 1, of_run.clone(), &mut self.slots);
        of_run.for_each(|slot| self.slots.let_go(slot));
    }

    /// Frees the slots that were kept for children that are gone by now.
    pub(super) fn free_kept_slots(&mut self) {
        let given_up = self.children.watch.as_ref().is_some_and(|open| !open.kept.is_empty());
        // If `note_children` cannot open a new watch, the slots that belong to the open watch stay kept until a later
        // call.
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

    /// Begins a version. Gives the version's first slot, and the watch that a child would inherit if it were forked
    /// now. If `pipe` is true, the watch is a pipe.
    fn begin(publisher: &mut Publisher, pipe: bool) -> (u32, ForkWatch) {
        publisher.begin().unwrap();
        if pipe {
            publisher.children.watch.as_mut().unwrap().watch = ForkWatch::with_pipe().unwrap();
        }
        let child = publisher.children.watch.as_ref().unwrap().watch.inherited().unwrap();
        (publisher.begun_slots[0].run.first, child)
    }

    #[test]
    fn the_slots_of_a_begun_version_are_kept_for_a_child_whether_it_is_published_or_given_up() {
        let spec = Spec::of(vec![Variable::new("u", "u64", &[20_000])]);
        let host = Arc::new(StandaloneHost::default());
        let mut publisher = Publisher::create(Identity::alone("s"), &spec, host).unwrap().0;
        publisher.publish(&[]).unwrap();
        let used = publisher.slots.used();
        let cases = (0..8).map(|case| [1, 2, 4].map(|bit| case & bit != 0));
        for [abandons, notes, pipe] in cases {
            let (slot, child) = begin(&mut publisher, pipe);
            let case = format!("abandons: {abandons}, notes: {notes}, pipe: {pipe}");
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
                assert!(!publisher.current.contains(&slot), "step {step}: {case}");
            }
            assert!(publisher.slots.used() > used && publisher.children.keep_slots());
            drop(child);
            publisher.publish(&[]).unwrap();
            assert_eq!(publisher.slots.used(), used, "{case}");
            assert!(!publisher.children.keep_slots());
        }
    }

    #[test]
    fn without_a_child_a_begun_version_that_is_given_up_leaves_nothing_behind() {
        let spec = Spec::of(vec![Variable::new("u", "u64", &[20_000])]);
        let host = Arc::new(StandaloneHost::default());
        let mut publisher = Publisher::create(Identity::alone("s"), &spec, host).unwrap().0;
        for pipe in [false, true, false] {
            drop(begin(&mut publisher, pipe));
            publisher.abandon().unwrap();
            assert_eq!(publisher.slots.used(), 0);
            assert!(publisher.children.watch.is_none() && publisher.children.forked.is_empty());
        }
    }
}

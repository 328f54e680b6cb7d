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

use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;

use crossdock_os::{OsResult, pipe};

use super::backing::Backing;
use super::publisher::Publisher;
use super::slots::Slots;

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
}

/// Children that were forked while one pipe was in use.
struct Forked {
    read: OwnedFd,
    /// The versions whose slots such a child may have mapped.
    versions: RangeInclusive<u64>,
    /// The slots of these versions that are kept for the children. A slot is listed once for each version.
    kept: Vec<u32>,
}

impl ChildPipe {
    fn new(first: u64) -> OsResult<Self> {
        let (read, write) = pipe::pipe()?;
        Ok(Self { read, write, first })
    }
}

impl Children {
    /// Tells whether slots are kept for a child.
    pub fn keep_slots(&self) -> bool {
        self.forked.iter().any(|forked| !forked.kept.is_empty())
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
        if let Some(ChildPipe { read, write, first }) = std::mem::replace(&mut self.children.pipe, next) {
            drop(write);
            self.children.forked.push(Forked { read, versions: first..=self.sequence, kept: Vec::new() });
        }
        self.children.free_slots(&mut self.slots);
        true
    }
}

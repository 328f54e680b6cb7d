//! The only code that loads and stores the words of an item's first page. A former owner may have written anything into
//! this page, so the description is checked against the item's size before it is returned. The words that name the
//! owner and the holder of a cooperative item are compared and never used as addresses.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU32, fence};

use crossdock_layout::item::{
    CONTENTS_ARRAY, CONTENTS_BYTES, CONTENTS_HEAP, ITEM_MAGIC, ITEM_TYPE, ItemHeader, OWNER_GONE,
};
use crossdock_layout::type_name::MAX_TYPE_NAME;
use crossdock_layout::wild::read_shape;
use crossdock_layout::wire::OnDeath;
use crossdock_layout::{LAYOUT_VERSION, MemberId, Status};
use crossdock_os::futex;

use super::describe::Contents;
use crate::containers::Order;
use crate::{Error, Result, fault_point};

/// The header of an item that this process has mapped.
#[derive(Clone, Copy)]
pub(super) struct HeaderRef<'a>(&'a ItemHeader);

impl<'a> HeaderRef<'a> {
    pub(super) fn new(header: &'a ItemHeader) -> Self {
        Self(header)
    }

    /// Gives the words of the header themselves, for tests that damage them.
    #[cfg(test)]
    pub(super) fn raw(self) -> &'a ItemHeader {
        self.0
    }

    /// Replaces the description. The caller has checked that the contents fit into the item.
    pub(super) fn describe(self, contents: &Contents) {
        // If the member dies before the end of this function, the item counts as bytes without a description.
        self.0.contents.store(CONTENTS_BYTES, Release);
        self.0.version.store(LAYOUT_VERSION, Relaxed);
        self.0.magic.store(ITEM_MAGIC, Release);
        let number = match contents {
            Contents::Bytes => CONTENTS_BYTES,
            Contents::Heap => CONTENTS_HEAP,
            Contents::Array { ty, shape, order } => {
                self.write_type(ty);
                self.0.rank.store(shape.len() as u32, Relaxed);
                self.0.order.store(u32::from(*order == Order::Fortran), Relaxed);
                for (axis, place) in self.0.shape.iter().enumerate() {
                    place.store(shape.get(axis).copied().unwrap_or(0), Relaxed);
                }
                CONTENTS_ARRAY
            }
        };
        self.0.contents.store(number, Release);
    }

    /// Reads the description of an item with `size` bytes of data.
    ///
    /// # Errors
    /// `CORRUPT` or `INCOMPATIBLE` if a former owner left no valid description.
    pub(super) fn contents(self, size: u64) -> Result<Contents> {
        if self.0.magic.load(Acquire) != ITEM_MAGIC {
            return Ok(Contents::Bytes);
        }
        let version = self.0.version.load(Acquire);
        if version != LAYOUT_VERSION {
            let text =
                format!("the item was described by a build with layout {version}, this one has {LAYOUT_VERSION}");
            return Err(Error::new(Status::Incompatible, text));
        }
        let corrupt = |what: &str| Error::new(Status::Corrupt, format!("a former owner of the item left {what}"));
        let contents = match self.0.contents.load(Acquire) {
            CONTENTS_BYTES => Contents::Bytes,
            CONTENTS_HEAP => Contents::Heap,
            CONTENTS_ARRAY => {
                let ty = self.read_type().ok_or_else(|| corrupt("something that names no type"))?;
                // The call of `check` below compares the real size of the array with the item's size. So the element
                // size does not matter here, and is given as 1.
                let shape = read_shape(&self.0.shape, self.0.rank.load(Relaxed), 1, size);
                let (shape, _) = shape.ok_or_else(|| corrupt("an array with extents that do not fit"))?;
                let order = match self.0.order.load(Relaxed) {
                    0 => Order::C,
                    1 => Order::Fortran,
                    _ => return Err(corrupt("an array with an unknown order")),
                };
                Contents::Array { ty, shape, order }
            }
            _ => return Err(corrupt("an unknown description")),
        };
        contents.check(size).map_err(|e| corrupt(&format!("a description that is wrong: {e}")))?;
        Ok(contents)
    }

    fn write_type(self, ty: &str) {
        let mut field = [0; ITEM_TYPE];
        field[..ty.len()].copy_from_slice(ty.as_bytes());
        for (place, bytes) in self.0.type_name.iter().zip(field.chunks_exact(8)) {
            place.store(u64::from_le_bytes(bytes.try_into().expect("eight bytes")), Relaxed);
        }
    }

    fn read_type(self) -> Option<String> {
        let field: Vec<u8> = self.0.type_name.iter().flat_map(|w| w.load(Relaxed).to_le_bytes()).collect();
        let end = field.iter().position(|b| *b == 0).filter(|end| *end <= MAX_TYPE_NAME)?;
        std::str::from_utf8(&field[..end]).ok().map(str::to_owned)
    }

    /// The number of the party that owns the item, or [`OWNER_GONE`].
    pub(super) fn owner(self) -> u32 {
        self.0.owner.load(Acquire)
    }

    /// Makes this party the owner. Only the holder may do this.
    pub(super) fn hand_to(self, owner: u32) {
        self.0.transfers.fetch_add(1, Relaxed);
        self.0.owner.store(owner, Release);
    }

    /// The number of times that the item changed its owner.
    pub(super) fn transfers(self) -> u64 {
        self.0.transfers.load(Relaxed)
    }

    /// The member that has the item, or [`MemberId::NONE`].
    pub(super) fn holder(self) -> MemberId {
        MemberId(self.0.holder.load(Acquire))
    }

    /// Replaces the holder `from` by `to`, unless another member was faster. Gives `true` if the holder was replaced.
    pub(super) fn change_holder(self, from: MemberId, to: MemberId) -> bool {
        self.0.holder.compare_exchange(from.0, to.0, AcqRel, Acquire).is_ok()
    }

    /// Notes that the holder has the item on behalf of the party `owner`, which owns the item. Only the holder may do
    /// this.
    pub(super) fn hold_for(self, owner: u32) {
        self.0.held_for.store(owner, Release);
    }

    /// Sets what happens to the item when its holder dies.
    pub(super) fn set_on_death(self, on_death: OnDeath) {
        self.0.on_death.store(on_death as u32, Release);
    }

    /// Counts the death of a holder. The member that took the dead holder's place calls this before it changes any
    /// other word of the item. So a member that sees such a change, or takes the item, sees the count.
    pub(super) fn count_death(self) {
        self.0.deaths.fetch_add(1, Release);
    }

    /// The number of times that a member took the place of a dead holder.
    pub(super) fn deaths(self) -> u32 {
        self.0.deaths.load(Acquire)
    }

    /// Changes the owner word of an item whose holder is dead, as `on_death` says. The owner word stays as it is if
    /// `on_death` has an unknown number, or if the dead holder did not have the item on behalf of the party that owns
    /// the item now.
    pub(super) fn apply_death(self) {
        // The owner word stays as it is unless the dead holder had the item on behalf of the party that owns the item
        // now. There are two cases in which this is not so: the dead holder died right after it took `holder` and
        // before it stored `held_for`, or right after it made another party the owner.
        if self.0.held_for.load(Acquire) != self.owner() {
            return;
        }
        match OnDeath::from_number(self.0.on_death.load(Acquire)) {
            Some(OnDeath::Return) => self.0.owner.store(self.0.creator.load(Relaxed), Release),
            Some(OnDeath::Destroy) => self.0.owner.store(OWNER_GONE, Release),
            _ => {}
        }
    }

    /// The futex word that counts changes. Waiting members sleep on it.
    pub(super) fn turn(self) -> &'a AtomicU32 {
        &self.0.turn
    }

    /// Adds this member to the count `sleepers`, so that the member that makes the next change wakes it.
    pub(super) fn announce_sleep(self) {
        self.0.sleepers.fetch_add(1, SeqCst);
    }

    /// Removes this member from the count `sleepers`, because it does not sleep any more.
    pub(super) fn end_sleep(self) {
        self.0.sleepers.fetch_sub(1, SeqCst);
    }

    /// Clears the word `holder`, so that no member has the item, and wakes all members that wait for a change.
    pub(super) fn give_back(self) {
        self.0.held_for.store(0, Relaxed);
        self.0.holder.store(0, Release);
        fault_point!("item.given-back");
        self.0.turn.fetch_add(1, AcqRel);
        fence(SeqCst);
        if self.0.sleepers.load(SeqCst) > 0 {
            futex::wake_all(&self.0.turn);
        }
    }
}

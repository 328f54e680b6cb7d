//! What clients ask about items.

use super::super::cursor::{Malformed, Reader, Writer};
use super::{ItemLevel, OnDeath, Party, flag, item, level, on_death};
use crate::SegmentId;

/// Most keys of one request that waits for any of them.
pub const KEYS_PER_MESSAGE: usize = 24;

/// What a client may ask about items.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ItemRequest {
    /// Make an item and be its owner.
    Create {
        /// Bytes.
        size: u64,
        /// How ownership is proved.
        level: ItemLevel,
        /// What becomes of it when its owner is gone.
        on_death: OnDeath,
        /// Its name in the workflow.
        key: String,
    },
    /// What is known of an item.
    Find {
        /// Which.
        key: String,
    },
    /// Wait until one of these items is this task's, or is shared, and open it.
    Access {
        /// To read a shared one; else to own it.
        read: bool,
        /// How long to wait; 0 = not at all.
        wait_ms: u64,
        /// Which; the first that fits.
        keys: Vec<String>,
    },
    /// Give it to somebody else.
    Transfer {
        /// Which.
        item: SegmentId,
        /// To whom.
        to: Party,
    },
    /// The member has it open no longer; it stays its task's. No answer.
    Release {
        /// Which.
        item: SegmentId,
    },
    /// After coming back: this member has it open. Item 0 says that this was all. No answer.
    Hold {
        /// Which.
        item: SegmentId,
    },
    /// Take it away.
    Destroy {
        /// Which.
        item: SegmentId,
    },
    /// Let others read it; nobody writes it until it is unshared.
    Share {
        /// Which.
        item: SegmentId,
    },
    /// Be its only user again.
    Unshare {
        /// Which.
        item: SegmentId,
        /// How long readers may take to leave it; afterwards they keep the old bytes and the owner gets a copy.
        wait_ms: u64,
    },
    /// Give it another size. Bytes that are new are zero.
    Resize {
        /// Which.
        item: SegmentId,
        /// Bytes.
        size: u64,
    },
    /// Change what becomes of it when its owner is gone.
    Policy {
        /// Which.
        item: SegmentId,
        /// From now on.
        on_death: OnDeath,
    },
    /// Open it once more, as whoever has it open.
    Reopen {
        /// Which.
        item: SegmentId,
    },
    /// Be reached by this number, too.
    Register {
        /// The number.
        number: u64,
    },
    /// The number by which an owner word names a party.
    Word {
        /// Which party.
        party: Party,
    },
}

impl ItemRequest {
    /// The number that says which request this is: 50 to 69.
    #[must_use]
    pub const fn opcode(&self) -> u16 {
        match self {
            Self::Create { .. } => 50,
            Self::Find { .. } => 51,
            Self::Access { .. } => 52,
            Self::Transfer { .. } => 53,
            Self::Release { .. } => 54,
            Self::Hold { .. } => 55,
            Self::Destroy { .. } => 56,
            Self::Share { .. } => 57,
            Self::Unshare { .. } => 58,
            Self::Resize { .. } => 59,
            Self::Policy { .. } => 60,
            Self::Reopen { .. } => 61,
            Self::Register { .. } => 62,
            Self::Word { .. } => 63,
        }
    }

    /// Whether it is answered.
    #[must_use]
    pub const fn wants_answer(&self) -> bool {
        !matches!(self, Self::Release { .. } | Self::Hold { .. })
    }

    pub(in crate::wire) fn write(&self, w: &mut Writer) {
        match self {
            Self::Create { size, level, on_death, key } => {
                w.u64(*size).u32(*level as u32).u32(*on_death as u32).name(key);
            }
            Self::Find { key } => {
                w.name(key);
            }
            Self::Access { read, wait_ms, keys } => {
                w.u64(*wait_ms).u32(u32::from(*read)).u32(keys.len() as u32);
                for key in keys {
                    w.name(key);
                }
            }
            Self::Transfer { item, to } => to.write(w.u64(item.0)),
            Self::Release { item }
            | Self::Hold { item }
            | Self::Destroy { item }
            | Self::Share { item }
            | Self::Reopen { item } => {
                w.u64(item.0);
            }
            Self::Unshare { item, wait_ms } => {
                w.u64(item.0).u64(*wait_ms);
            }
            Self::Resize { item, size } => {
                w.u64(item.0).u64(*size);
            }
            Self::Policy { item, on_death } => {
                w.u64(item.0).u32(*on_death as u32).u32(0);
            }
            Self::Register { number } => {
                w.u64(*number);
            }
            Self::Word { party } => party.write(w),
        }
    }

    pub(in crate::wire) fn read(opcode: u16, r: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(match opcode {
            50 => {
                let size = r.u64()?;
                Self::Create { size, level: level(r)?, on_death: on_death(r)?, key: r.name()? }
            }
            51 => Self::Find { key: r.name()? },
            52 => {
                let wait_ms = r.u64()?;
                let read = flag(r, "read")?;
                let count = r.u32()? as usize;
                if count == 0 || count > KEYS_PER_MESSAGE {
                    return Err(Malformed::Value("count"));
                }
                Self::Access { read, wait_ms, keys: (0..count).map(|_| r.name()).collect::<Result<_, _>>()? }
            }
            53 => Self::Transfer { item: item(r)?, to: Party::read(r)? },
            54 => Self::Release { item: item(r)? },
            55 => Self::Hold { item: item(r)? },
            56 => Self::Destroy { item: item(r)? },
            57 => Self::Share { item: item(r)? },
            58 => Self::Unshare { item: item(r)?, wait_ms: r.u64()? },
            59 => Self::Resize { item: item(r)?, size: r.u64()? },
            60 => {
                let (item, on_death) = (item(r)?, on_death(r)?);
                r.reserved()?;
                Self::Policy { item, on_death }
            }
            61 => Self::Reopen { item: item(r)? },
            62 => Self::Register { number: r.u64()? },
            63 => Self::Word { party: Party::read(r)? },
            other => return Err(Malformed::Opcode(other)),
        })
    }
}

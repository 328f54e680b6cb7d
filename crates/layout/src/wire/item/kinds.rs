//! The small closed sets of items: how ownership is proved, what becomes of the orphaned, what goes on.

/// How sure a new owner can be that the former one has no way in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum ItemLevel {
    /// An owner word in shared memory: the tasks trust each other, and no daemon is asked.
    Cooperative = 1,
    /// The kernel proves that nobody else has the memory open or mapped; else the new owner gets a copy.
    Verified = 2,
    /// Always fresh pages: also against what the kernel's proof does not see.
    Strict = 3,
}

impl ItemLevel {
    /// The level with this number, if there is one.
    #[must_use]
    pub const fn from_u32(value: u32) -> Option<Self> {
        match value {
            1 => Some(Self::Cooperative),
            2 => Some(Self::Verified),
            3 => Some(Self::Strict),
            _ => None,
        }
    }

    /// The word used in messages to people.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Cooperative => "cooperative",
            Self::Verified => "verified",
            Self::Strict => "strict",
        }
    }
}

/// What becomes of an item whose owner is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum OnDeath {
    /// It stays the task's: who is this task again finds it.
    Keep = 1,
    /// It goes back to the task that made it.
    Return = 2,
    /// It is destroyed.
    Destroy = 3,
}

impl OnDeath {
    /// The policy with this number, if there is one.
    #[must_use]
    pub const fn from_u32(value: u32) -> Option<Self> {
        match value {
            1 => Some(Self::Keep),
            2 => Some(Self::Return),
            3 => Some(Self::Destroy),
            _ => None,
        }
    }

    /// The word used in messages to people.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::Return => "return",
            Self::Destroy => "destroy",
        }
    }
}

/// What is going on with an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ItemState {
    /// Its owner has it open.
    Held = 1,
    /// It belongs to somebody who has not opened it.
    Waiting = 2,
    /// It is shared for reading.
    Shared = 3,
    /// It is being copied, because a former owner clings to it or its level asks for fresh pages.
    Copying = 4,
}

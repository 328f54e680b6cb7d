//! What a task may do with the objects whose names match a grant's pattern.

use crate::set::{Member, Set};

/// A set of rights, as bits; the same numbers on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(transparent)]
pub struct Rights(pub u32);

macro_rules! rights {
    ($(#[doc = $doc:literal] $name:ident = $bit:literal $word:literal,)+) => {
        impl Rights {
            $(#[doc = $doc] pub const $name: Self = Self($bit);)+
            /// Nothing at all.
            pub const NONE: Self = Self(0);
            /// All of them.
            pub const ALL: Self = Self(0 $(| $bit)+);
            /// No right but a statement of the launcher, in a grant for items: every process behind this endpoint was
            /// started so that it cannot reopen a file that no path leads to (Landlock) and cannot splice or send pages
            /// of a file away by any call (seccomp). So what such a process had open need not be copied.
            pub const CONFINED: Self = Self(512);
            /// Every bit that has a meaning.
            pub const KNOWN: Self = Self::ALL.with(Self::CONFINED);

            /// The declaration, for generators.
            pub const SET: Set = Set {
                name: "Rights",
                doc: &[" What a task may do with objects; bits."],
                members: &[$(Member { name: stringify!($name), number: $bit, word: $word, doc: &[$doc] }),+],
            };
        }
    };
}

rights! {
    /// Map a region or a shared item to read it.
    READ = 1 "read",
    /// Map a region to read and write it.
    WRITE = 2 "write",
    /// Create a region.
    CREATE = 4 "create",
    /// Remove a region, a port or a series.
    REMOVE = 8 "remove",
    /// Act as a producer of a port.
    PRODUCE = 16 "produce",
    /// Act as a consumer of a port.
    CONSUME = 32 "consume",
    /// Publish a series, which includes observing it.
    PUBLISH = 64 "publish",
    /// Observe a series.
    OBSERVE = 128 "observe",
    /// Make items, own them, and hand them on.
    OWN = 256 "own",
}

impl Rights {
    /// Are all rights of `other` in this set?
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both sets in one.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The right with this word, if there is one.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::SET.members.iter().find(|right| right.word == word).map(|right| Self(right.number))
    }

    /// The words of the set, for messages: `read, write`.
    pub fn words(self) -> String {
        let words: Vec<_> =
            Self::SET.members.iter().filter(|r| self.contains(Self(r.number))).map(|r| r.word).collect();
        if words.is_empty() { "nothing".into() } else { words.join(", ") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_contains_its_parts_and_nothing_else() {
        let set = Rights::READ.with(Rights::CONSUME);
        assert!(set.contains(Rights::READ) && set.contains(Rights::CONSUME));
        assert!(!set.contains(Rights::READ.with(Rights::WRITE)));
        assert_eq!(set.words(), "read, consume");
        assert_eq!(Rights::NONE.words(), "nothing");
    }
}

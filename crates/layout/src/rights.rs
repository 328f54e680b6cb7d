//! The rights of a task on objects whose names match a grant's pattern.

use crate::set::{Set, SetMember};

/// A set of rights, as bits. Messages between clients and the daemon contain the same bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(transparent)]
pub struct Rights(pub u32);

macro_rules! rights {
    ($(#[doc = $doc:literal] $name:ident = $bit:literal $word:literal,)+) => {
        impl Rights {
            $(#[doc = $doc] pub const $name: Self = Self($bit);)+
            /// The empty set of rights.
            pub const NONE: Self = Self(0);
            /// The set of all rights.
            pub const ALL: Self = Self(0 $(| $bit)+);
            /// Not a right, but a statement of the launcher in a grant for items: every process behind this endpoint
            /// is confined. A confined process cannot reopen a file that has no path, because Landlock forbids it.
            /// After such a process has unmapped and closed a file, the kernel holds no reference to the file's pages
            /// for the process, because seccomp denies splice, sendfile, vmsplice, process_vm_readv,
            /// process_vm_writev, io_uring and direct I/O. So an item that such a process had open need not be copied.
            pub const CONFINED: Self = Self(512);
            /// All bits that have a meaning.
            pub const KNOWN: Self = Self::ALL.with(Self::CONFINED);

            /// The declaration of the rights, for the generators of tables and headers.
            pub const SET: Set = Set {
                name: "Rights",
                doc: &[" What a task may do with objects; bits."],
                members: &[$(SetMember { name: stringify!($name), number: $bit, word: $word, doc: &[$doc] }),+],
            };
        }
    };
}

rights! {
    /// Map a region for reading, or read a shared item.
    READ = 1 "read",
    /// Map a region for reading and writing.
    WRITE = 2 "write",
    /// Create a region, if it does not exist.
    CREATE = 4 "create",
    /// Remove a region, a port or a series.
    REMOVE = 8 "remove",
    /// Be a producer of a port.
    PRODUCE = 16 "produce",
    /// Be a consumer of a port.
    CONSUME = 32 "consume",
    /// Publish a series. This includes the right to observe it.
    PUBLISH = 64 "publish",
    /// Attach to a series as an observer.
    OBSERVE = 128 "observe",
    /// Make items, own them, and hand them over.
    OWN = 256 "own",
}

impl Rights {
    /// Tells whether all rights of `other` are in this set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Gives the union of both sets.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Gives the right that has this name, if there is one.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::SET.members.iter().find(|right| right.word == word).map(|right| Self(right.number))
    }

    /// The names of the rights in the set, for messages: `read, write`.
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

//! What a task may do with the objects whose names match a grant's pattern.

/// A set of rights, as bits; the same numbers on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(transparent)]
pub struct Rights(pub u32);

impl Rights {
    /// Nothing at all.
    pub const NONE: Self = Self(0);
    /// Map a region to read it.
    pub const READ: Self = Self(1);
    /// Map a region to read and write it.
    pub const WRITE: Self = Self(2);
    /// Create a region.
    pub const CREATE: Self = Self(4);
    /// Remove a region, a port or a series.
    pub const REMOVE: Self = Self(8);
    /// Act as a producer of a port.
    pub const PRODUCE: Self = Self(16);
    /// Act as a consumer of a port.
    pub const CONSUME: Self = Self(32);
    /// Publish a series.
    pub const PUBLISH: Self = Self(64);
    /// Observe a series; who may publish one may observe it, too.
    pub const OBSERVE: Self = Self(128);
    /// Make items, own them, and hand them on.
    pub const OWN: Self = Self(256);
    /// All of them.
    pub const ALL: Self = Self(511);

    /// Are all rights of `other` in this set?
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both sets in one.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The words of the set, for messages: `read, write`.
    pub fn words(self) -> String {
        const NAMES: [(Rights, &str); 9] = [
            (Rights::READ, "read"),
            (Rights::WRITE, "write"),
            (Rights::CREATE, "create"),
            (Rights::REMOVE, "remove"),
            (Rights::PRODUCE, "produce"),
            (Rights::CONSUME, "consume"),
            (Rights::PUBLISH, "publish"),
            (Rights::OBSERVE, "observe"),
            (Rights::OWN, "own"),
        ];
        let words: Vec<_> = NAMES.iter().filter(|(right, _)| self.contains(*right)).map(|(_, word)| *word).collect();
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

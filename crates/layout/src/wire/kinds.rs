//! The small closed sets of the protocol: what a segment is for, and how it is opened.

/// What a segment is for. Names of different kinds do not meet: a region and a port may share a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum SegmentKind {
    /// A heap with named objects.
    Region = 1,
    /// A bounded channel.
    Port = 2,
    /// A data set that one member publishes version by version. Its memory is its publisher's own making.
    Series = 3,
    /// The memory of an item.
    Item = 4,
}

impl SegmentKind {
    /// The kind with this number, if there is one.
    #[must_use]
    pub const fn from_u32(value: u32) -> Option<Self> {
        match value {
            1 => Some(Self::Region),
            2 => Some(Self::Port),
            3 => Some(Self::Series),
            4 => Some(Self::Item),
            _ => None,
        }
    }

    /// The word used in messages to people.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Region => "region",
            Self::Port => "port",
            Self::Series => "series",
            Self::Item => "item",
        }
    }
}

/// What to do about a name that is, or is not, there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum OpenMode {
    /// Make it; `EXISTS` if the name is taken.
    CreateOnly = 1,
    /// Open it; `NOT_FOUND` (or wait) if it is not there.
    OpenOnly = 2,
    /// Open it, or make it if it is not there.
    OpenOrCreate = 3,
    /// Take the name from whatever has it, and make a fresh segment.
    Recreate = 4,
}

impl OpenMode {
    /// The mode with this number, if there is one.
    #[must_use]
    pub const fn from_u32(value: u32) -> Option<Self> {
        match value {
            1 => Some(Self::CreateOnly),
            2 => Some(Self::OpenOnly),
            3 => Some(Self::OpenOrCreate),
            4 => Some(Self::Recreate),
            _ => None,
        }
    }
}

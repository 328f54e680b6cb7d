//! The one closed list of outcomes, with the same numbers in every language.

/// How a call ended. Every error carries one of these and a text that names object, reason and mend.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(i32)]
pub enum Status {
    /// It happened.
    Ok = 0,
    /// Not yet: a poll found nothing. Neither success nor failure; ask again or wait.
    NotYet = 1,
    /// The deadline passed before it happened.
    TimedOut = 2,
    /// The other end left in order and nothing is left to come.
    Closed = 3,
    /// The member waited for is dead.
    PeerDied = 4,
    /// There is no such object.
    NotFound = 5,
    /// There is one already, and a new one was asked for.
    Exists = 6,
    /// The object is of another type.
    WrongType = 7,
    /// An argument is outside what the call takes.
    Invalid = 8,
    /// The handle names nothing that is in use, or something of another segment.
    BadHandle = 9,
    /// The task was not granted this.
    Denied = 10,
    /// Region, quota or node has no room for it.
    NoSpace = 11,
    /// Somebody else holds it: a second producer, a view that is still in use.
    Busy = 12,
    /// Shared memory holds what no honest member writes there.
    Corrupt = 13,
    /// The node daemon cannot be reached.
    Disconnected = 14,
    /// The two sides were built with different layouts or protocols.
    Incompatible = 15,
    /// The kernel refused; the text has its words.
    System = 16,
}

impl Status {
    /// Every status, in order of its number.
    pub const ALL: [Self; 17] = [
        Self::Ok,
        Self::NotYet,
        Self::TimedOut,
        Self::Closed,
        Self::PeerDied,
        Self::NotFound,
        Self::Exists,
        Self::WrongType,
        Self::Invalid,
        Self::BadHandle,
        Self::Denied,
        Self::NoSpace,
        Self::Busy,
        Self::Corrupt,
        Self::Disconnected,
        Self::Incompatible,
        Self::System,
    ];

    /// The status of a number, if there is one of it.
    pub fn from_number(number: i32) -> Option<Self> {
        usize::try_from(number).ok().and_then(|n| Self::ALL.get(n)).copied()
    }

    /// Its name as the documentation writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::NotYet => "not yet",
            Self::TimedOut => "timed out",
            Self::Closed => "closed",
            Self::PeerDied => "peer died",
            Self::NotFound => "not found",
            Self::Exists => "exists",
            Self::WrongType => "wrong type",
            Self::Invalid => "invalid",
            Self::BadHandle => "bad handle",
            Self::Denied => "denied",
            Self::NoSpace => "no space",
            Self::Busy => "busy",
            Self::Corrupt => "corrupt",
            Self::Disconnected => "disconnected",
            Self::Incompatible => "incompatible",
            Self::System => "system",
        }
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_finds_its_status_and_no_other_does() {
        for (n, status) in Status::ALL.into_iter().enumerate() {
            assert_eq!(status as usize, n);
            assert_eq!(Status::from_number(n as i32), Some(status));
        }
        assert_eq!(Status::from_number(17), None);
        assert_eq!(Status::from_number(-1), None);
    }
}

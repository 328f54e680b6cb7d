//! The one closed list of outcomes, with the same numbers in every language.

use crate::closed_set;

closed_set! {
    /// How a call ended. Every error carries one of these and a text that names object, reason and hint.
    pub enum Status {
        /// It happened.
        Ok = 0 "ok",
        /// Not yet: a poll found nothing. Neither success nor failure; ask again or wait.
        NotYet = 1 "not yet",
        /// The deadline passed before it happened.
        TimedOut = 2 "timed out",
        /// The other end left in order and nothing is left to come.
        Closed = 3 "closed",
        /// The member waited for is dead.
        PeerDied = 4 "peer died",
        /// There is no such object.
        NotFound = 5 "not found",
        /// There is one already, and a new one was asked for.
        Exists = 6 "exists",
        /// The object is of another type.
        WrongType = 7 "wrong type",
        /// An argument is outside what the call takes.
        Invalid = 8 "invalid",
        /// The handle names nothing that is in use, or something of another segment.
        BadHandle = 9 "bad handle",
        /// The task was not granted this.
        Denied = 10 "denied",
        /// Region, quota or node has no room for it.
        NoSpace = 11 "no space",
        /// Somebody else holds it: a second producer, a view that is still in use.
        Busy = 12 "busy",
        /// Shared memory holds what no honest member writes there.
        Corrupt = 13 "corrupt",
        /// The node daemon cannot be reached.
        Disconnected = 14 "disconnected",
        /// The two sides were built with different layouts or protocols.
        Incompatible = 15 "incompatible",
        /// The kernel refused; the text has its words.
        System = 16 "system",
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.word())
    }
}

//! The one closed list of outcomes, with the same numbers in every language.

use crate::closed_set;

closed_set! {
    /// How a call ended. Every error carries one of these and a text that names object, reason and hint.
    pub enum Status {
        /// Done.
        Ok = 0 "ok",
        /// Nothing there now, asked not to wait; not a failure.
        NotYet = 1 "not yet",
        /// The deadline passed. The message says who was waited for and when last seen.
        TimedOut = 2 "timed out",
        /// The other end left in good order, and everything it sent was taken.
        Closed = 3 "closed",
        /// The other end died; everything it had sent was taken.
        PeerDied = 4 "peer died",
        /// No such region, port, item, series or object.
        NotFound = 5 "not found",
        /// There is one already, and a new one was asked for.
        Exists = 6 "exists",
        /// The object is of another type; the message prints both.
        WrongType = 7 "wrong type",
        /// An argument that can never be right.
        Invalid = 8 "invalid",
        /// The handle names nothing that is in use here.
        BadHandle = 9 "bad handle",
        /// This task has no such grant.
        Denied = 10 "denied",
        /// Region, quota or node is full. What exists goes on working.
        NoSpace = 11 "no space",
        /// Another member holds it: a second producer, a view that is still in use.
        Busy = 12 "busy",
        /// Shared memory holds what no honest member writes there.
        Corrupt = 13 "corrupt",
        /// No node daemon, or the session is closed.
        Disconnected = 14 "disconnected",
        /// The two sides were built with other layouts or protocols.
        Incompatible = 15 "incompatible",
        /// The system refused; the message has its reason.
        System = 16 "system",
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.word())
    }
}

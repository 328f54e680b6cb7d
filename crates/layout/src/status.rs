//! The one closed list of outcomes, with the same numbers in every language.

use crate::closed_set;

closed_set! {
    /// How a call ended. Every error carries one of these and a text that names object, reason and hint.
    pub enum Status {
        /// Done.
        Ok = 0 "ok",
        /// Nothing is there now, and the call was asked not to wait. This is no failure.
        NotYet = 1 "not yet",
        /// The deadline passed. The message names the peer that was waited for and says when it was last seen.
        TimedOut = 2 "timed out",
        /// The other end left in order, and everything that it sent was taken.
        Closed = 3 "closed",
        /// The other end died, and everything that it had sent was taken.
        PeerDied = 4 "peer died",
        /// No such region, port, item, series or object.
        NotFound = 5 "not found",
        /// The object exists already, and a new one was asked for.
        Exists = 6 "exists",
        /// The object is of another type; the message prints both.
        WrongType = 7 "wrong type",
        /// An argument that can never be right.
        Invalid = 8 "invalid",
        /// The handle names nothing that is in use here.
        BadHandle = 9 "bad handle",
        /// No grant of this task allows it.
        Denied = 10 "denied",
        /// The region, the quota or the node is full. Existing objects still work.
        NoSpace = 11 "no space",
        /// Another member has it: a second producer, or a view that is still in use.
        Busy = 12 "busy",
        /// Shared memory has contents that no correct member writes.
        Corrupt = 13 "corrupt",
        /// There is no node daemon, or the session is closed.
        Disconnected = 14 "disconnected",
        /// The two sides were built with different layouts or protocols.
        Incompatible = 15 "incompatible",
        /// The system refused the call; the message has its reason.
        System = 16 "system",
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.word())
    }
}

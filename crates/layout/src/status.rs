//! The closed list of outcomes of a call. Each outcome has the same number in every language.

use crate::closed_set;

closed_set! {
    /// The outcome of a call. Every error carries one of these outcomes, and a text that names the object, the reason
    /// and a hint.
    pub enum Status {
        /// The call succeeded.
        Ok = 0 "ok",
        /// There is no result yet, and the caller chose not to wait. This status does not mean a failure.
        NotYet = 1 "not yet",
        /// The deadline passed. The error message names the peer that the call waited for, and says when the peer was
        /// last seen.
        TimedOut = 2 "timed out",
        /// The other end was closed, and all that it had sent was received.
        Closed = 3 "closed",
        /// The member at the other end died, and all that it had sent was received.
        PeerDied = 4 "peer died",
        /// There is no such region, port, item, series or object.
        NotFound = 5 "not found",
        /// The object exists already, but the call asked for a new one.
        Exists = 6 "exists",
        /// The object has another type. The error message shows that type and the type that the call asked for.
        WrongType = 7 "wrong type",
        /// An argument has a value that is never allowed.
        Invalid = 8 "invalid",
        /// The handle names nothing that is in use in this region.
        BadHandle = 9 "bad handle",
        /// No grant of this task allows the call.
        Denied = 10 "denied",
        /// The region, the quota or the node is full. Existing objects can still be used.
        NoSpace = 11 "no space",
        /// Another member or request, or an array of this program, uses the object.
        Busy = 12 "busy",
        /// Shared memory has contents that no correct member writes.
        Corrupt = 13 "corrupt",
        /// There is no node daemon, or the session with it is closed.
        Disconnected = 14 "disconnected",
        /// The two sides were built with different layouts or protocols.
        Incompatible = 15 "incompatible",
        /// The operating system refused a call. The error message has the system's reason.
        System = 16 "system",
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.word())
    }
}

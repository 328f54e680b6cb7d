//! Plain data only: what lies in shared memory and the wire messages.

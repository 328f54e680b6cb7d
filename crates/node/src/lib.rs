//! The node daemon: keeper, broker, failure detector, journal.

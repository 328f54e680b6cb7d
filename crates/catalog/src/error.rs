//! The errors of a catalog's calls.

use std::fmt;

use crate::Revision;

/// Why a call to a catalog failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CatalogError {
    /// The catalog cannot be reached. The call certainly changed nothing.
    Unreachable(String),
    /// No answer arrived in time. A change may have been made.
    Unknown(String),
    /// The lease has ended, so all entries that belonged to it are deleted.
    NoLease,
    /// The catalog has forgotten the changes from the wanted revision on. The number is the oldest revision from which
    /// a watch can begin.
    Compacted(Revision),
    /// The call is wrong, for example because of a bad key, a value that is too long, or a key that occurs twice in one
    /// commit.
    Invalid(String),
    /// The catalog has reached one of its limits, or cannot write its journal.
    Full(String),
    /// The other side sent bytes that are not a valid message, or not the expected one.
    Broken(String),
}

impl fmt::Display for CatalogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(why) => write!(f, "the catalog cannot be reached: {why}"),
            Self::Unknown(why) => write!(f, "the catalog did not answer in time, the change may have happened: {why}"),
            Self::NoLease => write!(f, "the lease is gone; get a new one and announce everything again"),
            Self::Compacted(oldest) => write!(f, "changes before revision {oldest} are forgotten; list again"),
            Self::Invalid(why) => write!(f, "{why}"),
            Self::Full(why) => write!(f, "the catalog takes no more: {why}"),
            Self::Broken(why) => write!(f, "the catalog's answer makes no sense: {why}"),
        }
    }
}

impl std::error::Error for CatalogError {}

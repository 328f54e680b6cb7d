//! The errors of a catalog's calls.

use std::fmt;

use crate::Revision;

/// Why a call did not do what it was asked to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CatalogError {
    /// The call certainly did nothing: the catalog cannot be reached.
    Unreachable(String),
    /// No answer arrived in time, so a change may have been made.
    Unknown(String),
    /// The lease is gone, and so are all entries that hung on it.
    NoLease,
    /// The changes from the wanted revision on are forgotten. This revision is the oldest that can be watched.
    Compacted(Revision),
    /// The call makes no sense: a bad key, a value that is too long, a key twice in one commit.
    Invalid(String),
    /// The catalog has no room, or cannot write.
    Full(String),
    /// The other side sent something that makes no sense.
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

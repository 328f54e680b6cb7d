//! What calls of a catalog fail with.

use std::fmt;

use crate::Revision;

/// Why a call did not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CatalogError {
    /// It surely did not happen: the catalog cannot be reached.
    Unreachable(String),
    /// No answer arrived in time: a change may have happened.
    Unknown(String),
    /// The lease is gone, and all entries that hung on it.
    NoLease,
    /// The changes from the wanted revision on are forgotten; this revision is the oldest that can be watched.
    Compacted(Revision),
    /// The call makes no sense: a bad key, a value that is too long, a key twice in one commit.
    Invalid(String),
    /// The catalog has no room, or cannot write.
    Full(String),
    /// What the other side said makes no sense.
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

//! Named, typed objects of a region.
//!
//! The entries lie in a table. Two indexes, by name and by offset, are chains through the table. They are derived from
//! the entries, so they can be rebuilt when they may be wrong. A member that changes the directory takes the region's
//! lock. Readers usually take no lock: they compare the directory's version before and after they read.
//!
//! An entry goes through the states FREE → CONSTRUCTING → READY → REMOVING → FREE. An entry goes from CONSTRUCTING to
//! REMOVING if the constructor of its object abandons the object or dies. Each step is one store. `heal` repairs what a
//! member leaves if it dies at any point.

mod claim;
mod entry;
mod find;
mod heal;
mod index;
mod make;
mod owner;
mod remove;
mod types;
mod walk;

pub(crate) use owner::OwnerSearch;
pub use types::{Claim, Incarnation, Loaded, ObjectInfo, ObjectMode, Removed, TypeRef};
pub(crate) use walk::owns_memory;

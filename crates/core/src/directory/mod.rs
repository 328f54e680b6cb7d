//! Named, typed objects of a region.
//!
//! The entries lie in a table. Two indexes (by name and by offset) are chains through the table; they are derived from
//! the entries and are rebuilt when in doubt. A member that changes the directory takes the region's lock. Readers take
//! no lock: they compare the directory's version before and after their look.
//!
//! An entry goes FREE → CONSTRUCTING → READY → REMOVING → FREE, or from CONSTRUCTING to REMOVING when its constructor
//! abandons it or dies. Each step is one store. `heal` repairs what a death leaves at any point.

mod claim;
mod find;
mod heal;
mod index;
mod make;
mod remove;
mod types;
mod walk;

pub use types::{Claim, Incarnation, Loaded, ObjectInfo, ObjectMode, Removed, TypeRef};

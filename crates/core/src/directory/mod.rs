//! Named, typed objects of a region.
//!
//! Entries lie in a table; two indexes (by name, by offset) are chains through it, derived and rebuilt when in doubt.
//! Changes take the region's lock. Readers take none: they look at the directory's version before and after.
//!
//! An entry goes FREE → CONSTRUCTING → READY → REMOVING → FREE, or from CONSTRUCTING to REMOVING when it is abandoned or
//! its constructor dies. Each step is one store, and what a death at any point leaves is healed by `heal`.

mod claim;
mod find;
mod heal;
mod index;
mod make;
mod remove;
mod types;
mod walk;

pub use types::{Claim, Incarnation, Loaded, ObjectInfo, ObjectMode, Removed, TypeRef};

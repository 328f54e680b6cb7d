//! The layout of the data in shared memory, and of the messages between processes.
//!
//! The types in this crate only describe data and check values. Tests freeze all offsets and sizes, because programs in
//! other languages and of other builds read the same bytes.

pub mod files;
pub mod handle;
pub mod id;
pub mod item;
pub mod link;
pub mod liveness;
pub mod name;
pub mod queue;
pub mod refusal;
pub mod region;
pub mod rights;
pub mod series;
pub mod set;
pub mod status;
pub mod text;
pub mod type_name;
pub mod wild;
pub mod wire;

pub use handle::Handle;
pub use id::{MemberId, SegmentId};
pub use rights::Rights;
pub use status::Status;
pub use wild::{Wild, WildWord};

/// The version of the layout of shared memory. Builds with different versions refuse each other.
pub const LAYOUT_VERSION: u32 = 4;

/// The size of a huge page in bytes.
pub const HUGE: u64 = 2 << 20;

/// The size of a CPU's cache line in bytes. Fields that different parties write lie on different lines.
pub const CACHE_LINE: usize = 64;

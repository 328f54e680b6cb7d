//! The data that lie in shared memory, and the messages of the wire.
//!
//! Nothing here has any behaviour except checking itself. Tests freeze all offsets and sizes, because programs in other
//! languages and of other builds read the same bytes.

pub mod files;
pub mod handle;
pub mod id;
pub mod item;
pub mod link;
pub mod liveness;
pub mod name;
pub mod queue;
pub mod region;
pub mod rights;
pub mod series;
pub mod set;
pub mod status;
pub mod type_name;
pub mod wild;
pub mod wire;

pub use handle::Handle;
pub use id::{MemberId, SegmentId};
pub use rights::Rights;
pub use status::Status;
pub use wild::{Wild, WildWord};

/// The version of everything that lies in shared memory. Builds with different versions refuse each other.
pub const LAYOUT_VERSION: u32 = 4;

/// A huge page.
pub const HUGE: u64 = 2 << 20;

/// The size of a processor's cache line. Fields that different parties write lie on different lines.
pub const CACHE_LINE: usize = 64;

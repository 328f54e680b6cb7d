//! The position of a typed object in its region, and the errors about damaged objects.

use std::sync::Arc;

use crossdock_layout::Status;

use crate::Error;
use crate::region::Region;

/// The position of an object: its region, and its offset in the region.
#[derive(Clone, Debug)]
pub(super) struct ObjectLocation {
    pub region: Arc<Region>,
    pub offset: u64,
}

impl ObjectLocation {
    pub fn new(region: &Arc<Region>, offset: u64) -> Self {
        Self { region: region.clone(), offset }
    }

    pub fn corrupt(&self, why: &str) -> Error {
        let text = format!(
            "object at {:#x} of region '{}' is damaged: {why}; a member wrote over it, remove it and make it anew",
            self.offset,
            self.region.name()
        );
        Error::new(Status::Corrupt, text)
    }
}

/// Makes the error for an index beyond the end of a vector or array.
pub(super) fn out_of_range(location: &ObjectLocation, index: u64, length: u64) -> Error {
    let text = format!(
        "element {index} of the object at {:#x} of region '{}': it has {length}",
        location.offset,
        location.region.name()
    );
    Error::new(Status::Invalid, text)
}

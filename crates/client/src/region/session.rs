//! The session's calls for regions.

use std::time::Duration;

use crossdock_layout::Handle;

use super::{Mode, Region};
use crate::{Result, Session};

impl Session {
    /// Opens or makes a region. `size` counts when it has to be made: the capacity in bytes, virtual.
    ///
    /// `timeout`: how long `OpenOnly` waits for a region that is not there; `None` = not at all.
    pub fn region(&self, _name: &str, _mode: Mode, _size: u64, _timeout: Option<Duration>) -> Result<Region> {
        todo!()
    }

    /// Takes a region's name away. Who has it open keeps it; its memory goes with its last mapping.
    pub fn remove_region(&self, _name: &str) -> Result<()> {
        todo!()
    }

    /// The region that a handle points into, opened if need be.
    pub fn region_of(&self, _handle: Handle) -> Result<Region> {
        todo!()
    }
}

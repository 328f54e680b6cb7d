//! A string in a region: bytes, by custom UTF-8, with the header of a vector.

use std::sync::Arc;

use crossdock_layout::{Handle, Status};

use super::Vector;
use crate::region::Region;
use crate::{Error, Result};

/// A string that lies in a region. Keeps the region mapped.
#[derive(Clone, Debug)]
pub struct Text {
    bytes: Vector<u8>,
}

impl Text {
    pub(super) fn at(region: &Arc<Region>, offset: u64) -> Self {
        Self { bytes: Vector::at(region, offset) }
    }

    /// A copy of it.
    ///
    /// # Errors
    /// `INVALID` if its bytes are not UTF-8 (then [`Text::bytes`] has them), `CORRUPT`.
    pub fn get(&self) -> Result<String> {
        String::from_utf8(self.bytes.to_vec()?)
            .map_err(|bad| Error::new(Status::Invalid, format!("a shared string is not UTF-8: {}", bad.utf8_error())))
    }

    /// Makes it this text.
    ///
    /// # Errors
    /// `NO_SPACE`; it is then as it was.
    pub fn set(&self, text: &str) -> Result<()> {
        self.bytes.assign(text.as_bytes())
    }

    /// Its bytes, to read and write as a vector.
    #[must_use]
    pub fn bytes(&self) -> &Vector<u8> {
        &self.bytes
    }

    /// Its handle, to send to another task.
    ///
    /// # Errors
    /// `BAD_HANDLE` if it was removed.
    pub fn save(&self) -> Result<Handle> {
        self.bytes.save()
    }
}

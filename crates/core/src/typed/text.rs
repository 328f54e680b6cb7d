//! A string in a region: bytes that are UTF-8 by convention. Its header is that of a vector.

use std::sync::Arc;

use crossdock_layout::{Handle, Status};

use super::Vector;
use crate::region::Region;
use crate::{Error, Result};

/// A string in a region. The region stays mapped as long as this value exists.
#[derive(Clone, Debug)]
pub struct Text {
    bytes: Vector<u8>,
}

impl Text {
    pub(super) fn at(region: &Arc<Region>, offset: u64) -> Self {
        Self { bytes: Vector::at(region, offset) }
    }

    /// A copy of the string.
    ///
    /// # Errors
    /// `INVALID` if the string's bytes are not UTF-8 ([`Text::bytes`] reads them all the same), `CORRUPT` if its header
    /// is damaged.
    pub fn get(&self) -> Result<String> {
        String::from_utf8(self.bytes.to_vec()?)
            .map_err(|bad| Error::new(Status::Invalid, format!("a shared string is not UTF-8: {}", bad.utf8_error())))
    }

    /// Replaces the string by this text.
    ///
    /// # Errors
    /// `NO_SPACE` if the region cannot grow; the string is then unchanged.
    pub fn set(&self, text: &str) -> Result<()> {
        self.bytes.assign(text.as_bytes())
    }

    /// The string's bytes, to be read and written as a vector.
    #[must_use]
    pub fn bytes(&self) -> &Vector<u8> {
        &self.bytes
    }

    /// The string's handle, to be sent to another task.
    ///
    /// # Errors
    /// `BAD_HANDLE` if the string was removed.
    pub fn save(&self) -> Result<Handle> {
        self.bytes.save()
    }
}

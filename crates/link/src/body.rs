//! How the bodies of questions and answers are encoded. A number has 8 bytes, little-endian. Bytes and texts are
//! encoded as their length, which is a number, and then the bytes. A list is encoded as the number of its entries, and
//! then the entries.

use crossdock_layout::Status;

use crate::Refusal;

/// A value that was read from a body, or the refusal of the whole body.
pub type Read<T> = Result<T, Refusal>;

/// Makes the refusal of a body that does not fit the service.
#[must_use]
pub fn wrong() -> Refusal {
    Refusal::new(Status::Corrupt, "the body of the question is none of its service; run one version on all nodes")
}

/// Adds a number to a body.
pub fn put(to: &mut Vec<u8>, number: u64) {
    to.extend(number.to_le_bytes());
}

/// Adds bytes to a body: first their length, then the bytes.
pub fn put_bytes(to: &mut Vec<u8>, bytes: &[u8]) {
    put(to, bytes.len() as u64);
    to.extend(bytes);
}

/// Reads a body from front to back. If any part is wrong, the whole body is refused.
#[derive(Debug)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Makes a reader at the beginning of `body`.
    #[must_use]
    pub fn new(body: &'a [u8]) -> Self {
        Self(body)
    }

    fn take(&mut self, length: usize) -> Read<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or_else(wrong)?;
        self.0 = rest;
        Ok(taken)
    }

    /// Reads the next number.
    ///
    /// # Errors
    /// The body ends before the number.
    pub fn number(&mut self) -> Read<u64> {
        Ok(u64::from_le_bytes(self.take(8)?.try_into().map_err(|_| wrong())?))
    }

    /// Reads the next number, which must fit into 32 bits.
    ///
    /// # Errors
    /// The body ends before the number, or the number is larger.
    pub fn small(&mut self) -> Read<u32> {
        u32::try_from(self.number()?).map_err(|_| wrong())
    }

    /// Reads the next number as a truth value. It must be 0 or 1.
    ///
    /// # Errors
    /// The body ends before the number, or the number is neither 0 nor 1.
    pub fn flag(&mut self) -> Read<bool> {
        match self.number()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(wrong()),
        }
    }

    /// Reads the next bytes, whose length comes before them.
    ///
    /// # Errors
    /// The body ends before the bytes.
    pub fn bytes(&mut self) -> Read<Vec<u8>> {
        let length = usize::try_from(self.number()?).map_err(|_| wrong())?;
        Ok(self.take(length)?.to_vec())
    }

    /// Reads the next text.
    ///
    /// # Errors
    /// The body ends before the text, or the text is not UTF-8.
    pub fn text(&mut self) -> Read<String> {
        String::from_utf8(self.bytes()?).map_err(|_| wrong())
    }

    /// Reads the next list. The function `one` reads an entry of the list.
    ///
    /// # Errors
    /// The body is too short for so many entries, or `one` refuses an entry.
    pub fn list<T>(&mut self, mut one: impl FnMut(&mut Self) -> Read<T>) -> Read<Vec<T>> {
        let count = self.number()?;
        // Each entry takes at least eight bytes, so a larger count is wrong.
        if count > self.0.len() as u64 / 8 {
            return Err(wrong());
        }
        (0..count).map(|_| one(self)).collect()
    }

    /// Checks that the body ends here, and returns `value`.
    ///
    /// # Errors
    /// Bytes of the body are left over.
    pub fn end<T>(self, value: T) -> Read<T> {
        if self.0.is_empty() { Ok(value) } else { Err(wrong()) }
    }
}

//! How bodies of questions and answers spell numbers and texts: a number has 8 bytes, little-endian; a text is its length and
//! so many bytes; a list is a count and so many entries.

use crossdock_layout::Status;

use crate::Refusal;

/// What was read, or the refusal of the whole body.
pub type Read<T> = Result<T, Refusal>;

/// The refusal of a body that is none of its service.
#[must_use]
pub fn wrong() -> Refusal {
    Refusal::new(Status::Corrupt, "the body of the question is none of its service; run one version on all nodes")
}

/// Adds a number to a body.
pub fn put(to: &mut Vec<u8>, number: u64) {
    to.extend(number.to_le_bytes());
}

/// Adds bytes and their length to a body.
pub fn put_bytes(to: &mut Vec<u8>, bytes: &[u8]) {
    put(to, bytes.len() as u64);
    to.extend(bytes);
}

/// Reads a body from front to back; what does not fit is refused as a whole.
#[derive(Debug)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Nothing of the body is read yet.
    #[must_use]
    pub fn new(body: &'a [u8]) -> Self {
        Self(body)
    }

    fn take(&mut self, length: usize) -> Read<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or_else(wrong)?;
        self.0 = rest;
        Ok(taken)
    }

    /// The next number.
    ///
    /// # Errors
    /// The body ends before it.
    pub fn number(&mut self) -> Read<u64> {
        Ok(u64::from_le_bytes(self.take(8)?.try_into().map_err(|_| wrong())?))
    }

    /// The next number, which has 32 bits at most.
    ///
    /// # Errors
    /// The body ends before it, or it is larger.
    pub fn small(&mut self) -> Read<u32> {
        u32::try_from(self.number()?).map_err(|_| wrong())
    }

    /// The next number, which is 0 or 1.
    ///
    /// # Errors
    /// The body ends before it, or it is another one.
    pub fn flag(&mut self) -> Read<bool> {
        match self.number()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(wrong()),
        }
    }

    /// The next bytes that have their length in front.
    ///
    /// # Errors
    /// The body ends before them.
    pub fn bytes(&mut self) -> Read<Vec<u8>> {
        let length = usize::try_from(self.number()?).map_err(|_| wrong())?;
        Ok(self.take(length)?.to_vec())
    }

    /// The next text.
    ///
    /// # Errors
    /// The body ends before it, or it is not UTF-8.
    pub fn text(&mut self) -> Read<String> {
        String::from_utf8(self.bytes()?).map_err(|_| wrong())
    }

    /// The next list; `one` reads an entry.
    ///
    /// # Errors
    /// The body cannot have so many entries, or those of `one`.
    pub fn list<T>(&mut self, mut one: impl FnMut(&mut Self) -> Read<T>) -> Read<Vec<T>> {
        let count = self.number()?;
        // Each takes at least eight bytes.
        if count > self.0.len() as u64 / 8 {
            return Err(wrong());
        }
        (0..count).map(|_| one(self)).collect()
    }

    /// Gives the value, if the body ends here.
    ///
    /// # Errors
    /// Something is left over.
    pub fn end<T>(self, value: T) -> Read<T> {
        if self.0.is_empty() { Ok(value) } else { Err(wrong()) }
    }
}

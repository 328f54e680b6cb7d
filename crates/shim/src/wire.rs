//! Converts messages to bytes: a list of fields, each with its length before it. Received bytes are unchecked until the
//! `Reader` has read them.

/// The most bytes of one message. The command line of a launcher for ten thousand hosts fits into it.
pub const MESSAGE_MAX: usize = 160 << 10;

/// Writes fields one after the other.
#[derive(Default)]
pub struct Writer(pub Vec<u8>);

impl Writer {
    /// Writes bytes, with their length before them.
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.number(bytes.len() as i64);
        self.0.extend_from_slice(bytes);
        self
    }

    /// Writes a text.
    pub fn text(&mut self, text: &str) -> &mut Self {
        self.bytes(text.as_bytes())
    }

    /// Writes a number.
    pub fn number(&mut self, number: i64) -> &mut Self {
        self.0.extend_from_slice(&number.to_le_bytes());
        self
    }

    /// Writes the number of items, and then each item.
    pub fn list<T>(&mut self, list: &[T], each: impl Fn(&mut Self, &T)) -> &mut Self {
        self.number(list.len() as i64);
        for item in list {
            each(self, item);
        }
        self
    }
}

/// Reads fields one after the other. The functions of this type return `None` for bytes that no [`Writer`] could have
/// written.
pub struct Reader<'a>(pub &'a [u8]);

impl Reader<'_> {
    /// Reads a number.
    pub fn number(&mut self) -> Option<i64> {
        let (number, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(i64::from_le_bytes(*number))
    }

    /// Reads a number that must fit the type `T`.
    pub fn small<T: TryFrom<i64>>(&mut self) -> Option<T> {
        T::try_from(self.number()?).ok()
    }

    /// Reads a number that must be 0 or 1, as a truth value.
    pub fn flag(&mut self) -> Option<bool> {
        match self.number()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    /// Reads bytes with their length.
    pub fn bytes(&mut self) -> Option<Vec<u8>> {
        let length = usize::try_from(self.number()?).ok().filter(|n| *n <= self.0.len())?;
        let (bytes, rest) = self.0.split_at(length);
        self.0 = rest;
        Some(bytes.to_vec())
    }

    /// Reads a text.
    pub fn text(&mut self) -> Option<String> {
        String::from_utf8(self.bytes()?).ok()
    }

    /// Reads a list. Each item takes at least the eight bytes of a number, so a wrong count cannot make the loop long.
    pub fn list<T>(&mut self, each: impl Fn(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = usize::try_from(self.number()?).ok().filter(|n| *n <= self.0.len() / 8)?;
        (0..count).map(|_| each(self)).collect()
    }
}

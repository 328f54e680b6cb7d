//! How messages become bytes: a list of fields, each with its length before it. What is read is unchecked until it comes
//! out of here.

/// Most bytes of one message; a command line of a launcher with ten thousand hosts fits.
pub const MESSAGE_MAX: usize = 160 << 10;

/// Puts fields behind each other.
#[derive(Default)]
pub struct Writer(pub Vec<u8>);

impl Writer {
    /// Bytes with their length before them.
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.number(bytes.len() as i64);
        self.0.extend_from_slice(bytes);
        self
    }

    /// Text.
    pub fn text(&mut self, text: &str) -> &mut Self {
        self.bytes(text.as_bytes())
    }

    /// A number.
    pub fn number(&mut self, number: i64) -> &mut Self {
        self.0.extend_from_slice(&number.to_le_bytes());
        self
    }

    /// How many, and each.
    pub fn list<T>(&mut self, list: &[T], each: impl Fn(&mut Self, &T)) -> &mut Self {
        self.number(list.len() as i64);
        for item in list {
            each(self, item);
        }
        self
    }
}

/// Takes fields off again; `None` for bytes that no writer made.
pub struct Reader<'a>(pub &'a [u8]);

impl Reader<'_> {
    /// A number.
    pub fn number(&mut self) -> Option<i64> {
        let (number, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(i64::from_le_bytes(*number))
    }

    /// A number that fits.
    pub fn small<T: TryFrom<i64>>(&mut self) -> Option<T> {
        T::try_from(self.number()?).ok()
    }

    /// Bytes.
    pub fn bytes(&mut self) -> Option<Vec<u8>> {
        let length = usize::try_from(self.number()?).ok().filter(|n| *n <= self.0.len())?;
        let (bytes, rest) = self.0.split_at(length);
        self.0 = rest;
        Some(bytes.to_vec())
    }

    /// Text.
    pub fn text(&mut self) -> Option<String> {
        String::from_utf8(self.bytes()?).ok()
    }

    /// A list; each item takes at least one byte, so that a lying count ends soon.
    pub fn list<T>(&mut self, each: impl Fn(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = usize::try_from(self.number()?).ok().filter(|n| *n <= self.0.len())?;
        (0..count).map(|_| each(self)).collect()
    }
}

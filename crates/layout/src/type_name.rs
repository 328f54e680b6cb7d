//! The grammar of type names, which is the same for all languages. Each object's type is stored as such a name, so
//! opening an object with a wrong type gives a clear error.
//!
//! ```text
//! type    := scalar | type '[' n ']' | '{' type (',' type)* '}' | 'vector<' type '>' | 'string'
//! | 'ndarray<' scalar '>' | word ':' text
//! scalar  := bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 c64 c128
//! ```
//!
//! Structs have the natural alignment of C, so size and offsets follow from the name. A name such as `cpp:Name` (any
//! `word:text`) is opaque: only the language that made the object knows what is in it.

/// The largest number of bytes of a type name.
pub const MAX_TYPE_NAME: usize = 191;
/// The largest depth to which types may nest. The limit protects the parser; programs do not reach it.
const MAX_DEPTH: usize = 16;
/// The size in bytes of the header of a `vector` or `string`.
pub const VECTOR_SIZE: u64 = 32;
/// The size in bytes of the header of an `ndarray`.
pub const NDARRAY_SIZE: u64 = 128;

/// A parsed type name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Type {
    /// A number: its type's name and its size in bytes.
    Scalar(&'static str, u64),
    /// A fixed array, `T[n]`.
    Array(Box<Type>, u64),
    /// A struct, `{T,T,…}`.
    Struct(Vec<Type>),
    /// A vector, `vector<T>`.
    Vector(Box<Type>),
    /// A string, `string`.
    String,
    /// An n-dimensional array, `ndarray<T>`.
    Ndarray(Box<Type>),
    /// An opaque type, `word:text`. The language that made the object knows its size and alignment.
    Opaque(String),
}

const SCALARS: [(&str, u64, u32); 13] = [
    ("bool", 1, 1),
    ("i8", 1, 1),
    ("i16", 2, 2),
    ("i32", 4, 4),
    ("i64", 8, 8),
    ("u8", 1, 1),
    ("u16", 2, 2),
    ("u32", 4, 4),
    ("u64", 8, 8),
    ("f32", 4, 4),
    ("f64", 8, 8),
    ("c64", 8, 4),
    ("c128", 16, 8),
];

impl Type {
    /// Parses a type name. The error contains the position of the byte at which the text is no longer a type name.
    pub fn parse(name: &str) -> Result<Self, BadTypeName> {
        let bad = |at, why| BadTypeName { name: name.chars().take(MAX_TYPE_NAME).collect(), at, why };
        if name.len() > MAX_TYPE_NAME {
            return Err(bad(MAX_TYPE_NAME, "it is longer than 191 bytes"));
        }
        let mut parser = Parser { text: name, at: 0 };
        let parsed = parser.parse_type(0).map_err(|why| bad(parser.at, why))?;
        if parser.at != name.len() {
            return Err(bad(parser.at, "something follows the type"));
        }
        Ok(parsed)
    }

    /// The size and alignment in bytes; `None` for an opaque type, or if the size does not fit into 64 bits.
    pub fn size_and_align(&self) -> Option<(u64, u32)> {
        match self {
            Self::Scalar(name, size) => {
                let align = SCALARS.iter().find(|s| s.0 == *name)?.2;
                Some((*size, align))
            }
            Self::Array(of, n) => {
                let (size, align) = of.size_and_align()?;
                Some((size.checked_mul(*n)?, align))
            }
            Self::Struct(fields) => {
                let (mut size, mut align) = (0u64, 1u32);
                for field in fields {
                    let (s, a) = field.size_and_align()?;
                    size = size.checked_next_multiple_of(u64::from(a))?.checked_add(s)?;
                    align = align.max(a);
                }
                Some((size.checked_next_multiple_of(u64::from(align))?, align))
            }
            Self::Vector(_) | Self::String => Some((VECTOR_SIZE, 8)),
            Self::Ndarray(_) => Some((NDARRAY_SIZE, 8)),
            Self::Opaque(_) => None,
        }
    }

    /// The vector, string or ndarray whose header begins `offset` bytes from the start of a value of this type; `None`
    /// if none begins there.
    #[must_use]
    pub fn container_at(&self, offset: u64) -> Option<&Type> {
        match self {
            Self::Vector(_) | Self::String | Self::Ndarray(_) => (offset == 0).then_some(self),
            Self::Array(of, n) => {
                let (size, _) = of.size_and_align().filter(|layout| layout.0 > 0)?;
                (offset / size < *n).then(|| of.container_at(offset % size))?
            }
            Self::Struct(fields) => {
                let (start, field) = with_offsets(fields).take_while(|(start, _)| *start <= offset).last()?;
                field.container_at(offset - start)
            }
            Self::Scalar(..) | Self::Opaque(_) => None,
        }
    }

    /// The type of the elements in a container's block: `T` for `vector<T>` and `ndarray<T>`, `u8` for `string`.
    pub fn element(&self) -> Option<Type> {
        match self {
            Self::Vector(of) | Self::Ndarray(of) => Some((**of).clone()),
            Self::String => Some(Self::Scalar("u8", 1)),
            _ => None,
        }
    }
}

/// Gives the fields of a struct, each with its offset from the start of the struct, as a C compiler lays them out. The
/// list ends before the first field whose size does not follow from its type's name, or whose offset or size does not
/// fit into 64 bits.
pub fn with_offsets(fields: &[Type]) -> impl Iterator<Item = (u64, &Type)> {
    let mut end = 0u64;
    fields.iter().map_while(move |field| {
        let (size, align) = field.size_and_align()?;
        let start = end.checked_next_multiple_of(align.into())?;
        end = start.checked_add(size)?;
        Some((start, field))
    })
}

/// The error for a text that is not a type name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadTypeName {
    /// The text that was refused as a type name.
    pub name: String,
    /// The position of the byte at which the text is no longer a type name.
    pub at: usize,
    /// The reason why the text is not a type name.
    pub why: &'static str,
}

impl std::fmt::Display for BadTypeName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "'{}' is not a type name: at byte {}, {}", self.name, self.at, self.why)
    }
}

impl std::error::Error for BadTypeName {}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl Parser<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn take(&mut self, word: &str) -> bool {
        let found = self.rest().starts_with(word);
        if found {
            self.at += word.len();
        }
        found
    }

    fn parse_type(&mut self, depth: usize) -> Result<Type, &'static str> {
        if depth > MAX_DEPTH {
            return Err("it nests deeper than 16");
        }
        let mut parsed = self.parse_base(depth)?;
        while self.take("[") {
            let digits = self.rest().bytes().take_while(u8::is_ascii_digit).count();
            let n: u64 = self.rest()[..digits].parse().map_err(|_| "a length is expected")?;
            if n == 0 {
                return Err("a length of 0 makes no array");
            }
            self.at += digits;
            if !self.take("]") {
                return Err("']' is expected");
            }
            parsed = Type::Array(Box::new(parsed), n);
        }
        Ok(parsed)
    }

    fn parse_base(&mut self, depth: usize) -> Result<Type, &'static str> {
        if self.take("{") {
            let mut fields = vec![self.parse_type(depth + 1)?];
            while self.take(",") {
                fields.push(self.parse_type(depth + 1)?);
            }
            return if self.take("}") { Ok(Type::Struct(fields)) } else { Err("',' or '}' is expected") };
        }
        for (opening, is_vector) in [("vector<", true), ("ndarray<", false)] {
            if self.take(opening) {
                let of = Box::new(self.parse_type(depth + 1)?);
                if !self.take(">") {
                    return Err("'>' is expected");
                }
                return Ok(if is_vector { Type::Vector(of) } else { Type::Ndarray(of) });
            }
        }
        let word = self.rest().bytes().take_while(|b| b.is_ascii_alphanumeric() || *b == b'_').count();
        let (word, behind) = self.rest().split_at(word);
        if word == "string" {
            self.at += word.len();
            return Ok(Type::String);
        }
        if let Some((name, size, _)) = SCALARS.iter().find(|s| s.0 == word) {
            self.at += word.len();
            return Ok(Type::Scalar(name, *size));
        }
        // An opaque name (`word:text`) goes on to the end of the text. It may have any brackets, because only the
        // language that made the object understands it.
        if depth == 0 && !word.is_empty() && behind.starts_with(':') && behind.len() > 1 {
            let whole = self.rest().to_owned();
            if whole.bytes().any(|b| b < 0x20 || b == 0x7f) {
                return Err("an opaque name holds a control character");
            }
            self.at = self.text.len();
            return Ok(Type::Opaque(whole));
        }
        Err("a scalar (such as f64), '{', vector<…>, string, ndarray<…> or 'word:name' is expected")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(name: &str) -> Option<(u64, u32)> {
        Type::parse(name).unwrap().size_and_align()
    }

    #[test]
    fn sizes_follow_from_names() {
        assert_eq!(size("i32"), Some((4, 4)));
        assert_eq!(size("f32[512]"), Some((2048, 4)));
        assert_eq!(size("f32[4][8]"), Some((128, 4)));
        assert_eq!(size("{i32,i32,i32}"), Some((12, 4)));
        assert_eq!(size("{u8,f64,u8}"), Some((24, 8)));
        assert_eq!(size("vector<vector<f64>>"), Some((32, 8)));
        assert_eq!(size("string"), Some((32, 8)));
        assert_eq!(size("ndarray<f32>"), Some((128, 8)));
        assert_eq!(size("cpp:std::map<int, S>"), None);
        assert_eq!(size("f64[18446744073709551615]"), None, "what does not fit has no size");
    }

    #[test]
    fn what_is_no_type_is_refused_with_its_place() {
        for (name, at) in [
            ("", 0),
            ("f65", 0),
            ("f64[", 4),
            ("f64[0]", 4),
            ("{f64", 4),
            ("vector<f64", 10),
            ("f64 ", 3),
            (":x", 0),
            ("vector<cpp:x>", 7),
        ] {
            assert_eq!(Type::parse(name).unwrap_err().at, at, "{name}");
        }
        assert!(Type::parse(&"{".repeat(100)).unwrap_err().why.contains("deeper"));
        assert!(Type::parse(&"x".repeat(192)).unwrap_err().why.contains("191"));
    }

    #[test]
    fn containers_name_their_elements() {
        assert_eq!(Type::parse("vector<f64>").unwrap().element(), Some(Type::Scalar("f64", 8)));
        assert_eq!(Type::parse("string").unwrap().element(), Some(Type::Scalar("u8", 1)));
        assert_eq!(Type::parse("f64").unwrap().element(), None);
    }
}

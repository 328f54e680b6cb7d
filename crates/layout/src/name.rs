//! Names of workflows, tasks, regions, ports and objects. One rule applies to all of them.

/// The largest number of bytes of a name. A field for a name has [`MAX_NAME`] + 1 bytes, and the bytes behind the name
/// are zero.
pub const MAX_NAME: usize = 127;

/// The beginning of a mirror's name, `.mirror/ID/NAME`. A mirror stands for a port or series of another node. Only the
/// daemon makes mirrors.
pub const MIRROR: &str = ".mirror/";

/// The beginning of the name of a task that a daemon uses to observe series for another node.
pub const OBSERVERS: &str = "observers.on.";

/// Gives the name that is compared with the patterns of grants. For the name of a mirror, this is the name of the
/// original. For any other name, it is the name itself.
#[must_use]
pub fn mirrored(name: &str) -> &str {
    name.strip_prefix(MIRROR).and_then(|rest| rest.split_once('/')).map_or(name, |(_, mirrored)| mirrored)
}

/// The reason why a text cannot be a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BadName {
    /// The text has no characters.
    Empty,
    /// The text has more than [`MAX_NAME`] bytes; this is their number.
    TooLong(usize),
    /// The text has this character, which names may not have.
    Character(char),
    /// A part of the text between slashes is empty, `.` or `..`.
    Part,
}

impl std::fmt::Display for BadName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Empty => f.write_str("it is empty; give it 1 to 127 characters"),
            Self::TooLong(n) => write!(f, "it has {n} bytes; at most {MAX_NAME} are allowed"),
            Self::Character(c) => write!(f, "it holds {c:?}; names are made of A–Z a–z 0–9 _ . + - and /"),
            Self::Part => f.write_str("a part between its slashes is empty, '.' or '..'"),
        }
    }
}

impl std::error::Error for BadName {}

/// Checks a name. A name must have 1 to 127 characters of `A–Z a–z 0–9 _ . + -`, in parts that are separated by `/`.
pub fn check(name: &str) -> Result<(), BadName> {
    if name.is_empty() {
        return Err(BadName::Empty);
    }
    if name.len() > MAX_NAME {
        return Err(BadName::TooLong(name.len()));
    }
    if !name.bytes().all(|byte| ALLOWED[usize::from(byte)]) {
        let is_bad = |c: &char| u8::try_from(*c).map_or(true, |byte| !ALLOWED[usize::from(byte)]);
        return Err(name.chars().find(is_bad).map_or(BadName::Part, BadName::Character));
    }
    // Most names have one part, and are not searched for more.
    let has_parts = name.as_bytes().contains(&b'/');
    let is_bad = |part: &str| matches!(part, "" | "." | "..");
    if is_bad(name) || has_parts && name.split('/').any(is_bad) {
        return Err(BadName::Part);
    }
    Ok(())
}

/// For each byte, whether a name may have it.
const ALLOWED: [bool; 256] = {
    let mut allowed = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        let b = byte as u8;
        allowed[byte] = b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'+' | b'-' | b'/');
        byte += 1;
    }
    allowed
};

/// Reads a name from a field that another process wrote; `None` if the field does not contain a valid name.
pub fn from_field(field: &[u8]) -> Option<&str> {
    let end = field.iter().position(|b| *b == 0)?;
    // The bits of all bytes are combined without a branch, which the compiler does for many bytes at once.
    if field[end..].iter().fold(0, |all, b| all | b) != 0 {
        return None;
    }
    let name = std::str::from_utf8(&field[..end]).ok()?;
    check(name).ok().map(|()| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_names_pass() {
        for name in ["v", "field/3", "my_shm", "a.b+c-d", &"x".repeat(MAX_NAME)] {
            assert_eq!(check(name), Ok(()), "{name}");
        }
    }

    #[test]
    fn each_kind_of_bad_name_is_told_apart() {
        assert_eq!(check(""), Err(BadName::Empty));
        assert_eq!(check(&"x".repeat(128)), Err(BadName::TooLong(128)));
        assert_eq!(check("a b"), Err(BadName::Character(' ')));
        assert_eq!(check("naïve"), Err(BadName::Character('ï')));
        for name in ["/a", "a/", "a//b", "..", "a/../b", "a/./b"] {
            assert_eq!(check(name), Err(BadName::Part), "{name}");
        }
    }

    #[test]
    fn a_field_without_end_or_with_rubbish_behind_it_is_no_name() {
        assert_eq!(from_field(b"abc\0\0\0"), Some("abc"));
        assert_eq!(from_field(b"abc"), None);
        assert_eq!(from_field(b"abc\0x\0"), None);
        assert_eq!(from_field(b"\0\0"), None);
        assert_eq!(from_field(b"\xff\0"), None);
    }
}

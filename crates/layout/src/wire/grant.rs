//! Grants: what an endpoint's task may do with the names that a pattern fits.

use super::SegmentKind;
use super::cursor::{Malformed, Reader, Writer};
use crate::{Rights, name};

/// Rights on the names of one kind that a pattern fits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// A name, or a beginning of names followed by `*`.
    pub pattern: String,
    /// Regions or ports.
    pub kind: SegmentKind,
    /// What is allowed.
    pub rights: Rights,
}

/// Is this a name, or a beginning of names followed by `*`?
#[must_use]
pub fn is_pattern(text: &str) -> bool {
    match text.strip_suffix('*') {
        None => name::check(text).is_ok(),
        Some("") => true,
        Some(beginning) => name::check(beginning.strip_suffix('/').unwrap_or(beginning)).is_ok(),
    }
}

impl Grant {
    /// Bytes of a grant in a message.
    pub const SIZE: usize = 136;

    /// Does the pattern fit this name?
    #[must_use]
    pub fn fits(&self, kind: SegmentKind, name: &str) -> bool {
        self.kind == kind
            && match self.pattern.strip_suffix('*') {
                None => self.pattern == name,
                Some(beginning) => name.starts_with(beginning),
            }
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let kind = SegmentKind::from_u32(reader.u32()?).ok_or(Malformed::Value("kind"))?;
        let rights = rights(reader)?;
        Ok(Self { pattern: reader.pattern()?, kind, rights })
    }

    pub(super) fn write(&self, writer: &mut Writer) {
        writer.u32(self.kind as u32).u32(self.rights.0).name(&self.pattern);
    }
}

/// Rights with no unknown bit.
pub(super) fn rights(reader: &mut Reader<'_>) -> Result<Rights, Malformed> {
    let rights = Rights(reader.u32()?);
    if Rights::ALL.contains(rights) { Ok(rights) } else { Err(Malformed::Value("rights")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_fits_its_name_or_its_beginning_and_its_kind_only() {
        let exact = Grant { pattern: "frames".into(), kind: SegmentKind::Region, rights: Rights::READ };
        assert!(exact.fits(SegmentKind::Region, "frames"));
        assert!(!exact.fits(SegmentKind::Region, "frames2"));
        assert!(!exact.fits(SegmentKind::Port, "frames"));
        let many = Grant { pattern: "out/*".into(), ..exact };
        assert!(many.fits(SegmentKind::Region, "out/a"));
        assert!(!many.fits(SegmentKind::Region, "outer"));
    }

    #[test]
    fn a_star_stands_at_the_end_only() {
        for good in ["*", "a*", "a/*", "a/b"] {
            assert!(is_pattern(good), "{good}");
        }
        for bad in ["", "*a", "a*b", "../*", "a//*", "/*"] {
            assert!(!is_pattern(bad), "{bad}");
        }
    }
}

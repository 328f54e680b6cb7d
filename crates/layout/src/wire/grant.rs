//! Grants: the rights of an endpoint's task on names that match a pattern.

use super::{Pattern, SegmentKind, Wire};
use crate::{Rights, name, record};

record! {
    /// The rights of a task on objects of one kind whose names match a pattern.
    pub struct Grant as Wire {
        /// The kind of the objects on which the rights are granted.
        kind: SegmentKind,
        /// The rights that are granted. In a grant for items, bit 512 says that the processes behind the endpoint are
        /// confined.
        rights: Rights,
        /// The names to which the grant applies: one name, or the beginning of names followed by `*`.
        pattern: String as Pattern,
    }
}

/// Tells whether this is a name, or the beginning of a name followed by `*`.
#[must_use]
pub fn is_pattern(text: &str) -> bool {
    match text.strip_suffix('*') {
        None => name::check(text).is_ok(),
        Some("") => true,
        Some(beginning) => name::check(beginning.strip_suffix('/').unwrap_or(beginning)).is_ok(),
    }
}

impl Grant {
    /// Tells whether the name matches the pattern.
    #[must_use]
    pub fn fits(&self, kind: SegmentKind, name: &str) -> bool {
        self.kind == kind
            && match self.pattern.strip_suffix('*') {
                None => self.pattern == name,
                Some(beginning) => name.starts_with(beginning),
            }
    }
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

//! Closed sets: lists of choices, each with a number, a word and a meaning. Each set is declared once, in Rust.
//!
//! The test `generated` (`crates/layout/tests/generated`) writes the enums of the C header, the constants in Fortran, the
//! words in Python and C++, and the tables of the documentation from these declarations.

/// One value of a closed set.
#[derive(Clone, Copy, Debug)]
pub struct SetMember {
    /// The value's name in Rust.
    pub name: &'static str,
    /// The number that stands for the value in shared memory and in messages.
    pub number: u32,
    /// The word that stands for the value in texts that people write and read.
    pub word: &'static str,
    /// The lines of the comment that says what the value means.
    pub doc: &'static [&'static str],
}

/// The declaration of a closed set, for generators.
#[derive(Clone, Copy, Debug)]
pub struct Set {
    /// The set's name in Rust.
    pub name: &'static str,
    /// The lines of the comment that says what the set is.
    pub doc: &'static [&'static str],
    /// The set's values, in the order of their numbers.
    pub members: &'static [SetMember],
}

/// The trait of all closed sets, for code that works with any closed set.
pub trait ClosedSet: Copy + Sized + 'static {
    /// The declaration of the set, for generators.
    const SET: Set;
    /// Gives the value with this number, if there is one.
    fn from_number(number: u32) -> Option<Self>;
    /// Gives the value with this word, if there is one.
    fn from_word(word: &str) -> Option<Self>;
}

/// Declares a closed set: an enum each of whose values has a number and a word, and the conversions between value,
/// number and word.
#[macro_export]
macro_rules! closed_set {
    ($(#[doc = $about:literal])+ $visibility:vis enum $name:ident $(, default $default:ident)? {
        $($(#[doc = $doc:literal])+ $member:ident = $number:literal $word:literal,)+
    }) => {
        $(#[doc = $about])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u32)]
        $visibility enum $name {
            $($(#[doc = $doc])+ $member = $number,)+
        }

        impl $name {
            /// All values of this set, in the order of their numbers.
            pub const ALL: [Self; [$($number),+].len()] = [$(Self::$member),+];

            /// Gives the value with this number, if there is one.
            #[must_use]
            pub const fn from_number(number: u32) -> Option<Self> {
                match number {
                    $($number => Some(Self::$member),)+
                    _ => None,
                }
            }

            /// Gives the value with this word, if there is one.
            #[must_use]
            pub fn from_word(word: &str) -> Option<Self> {
                match word {
                    $($word => Some(Self::$member),)+
                    _ => None,
                }
            }

            /// The word that stands for the value in texts that people write and read.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self {
                    $(Self::$member => $word,)+
                }
            }

            /// All words of the set, for error messages that list the choices.
            pub const WORDS: &'static [&'static str] = &[$($word),+];
        }

        $(impl Default for $name {
            fn default() -> Self {
                Self::$default
            }
        })?

        impl $crate::set::ClosedSet for $name {
            const SET: $crate::set::Set = $crate::set::Set {
                name: stringify!($name),
                doc: &[$($about),+],
                members: &[$($crate::set::SetMember {
                    name: stringify!($member),
                    number: $number,
                    word: $word,
                    doc: &[$($doc),+],
                }),+],
            };
            fn from_number(number: u32) -> Option<Self> {
                $name::from_number(number)
            }
            fn from_word(word: &str) -> Option<Self> {
                $name::from_word(word)
            }
        }

        impl $crate::wire::Encoding<$name> for $crate::wire::Wire {
            const WHAT: &'static str = concat!(stringify!($name), ", u32");
            const SIZE: usize = 4;
            fn write(value: &$name, w: &mut $crate::wire::Writer) {
                w.u32(*value as u32);
            }
            fn read(r: &mut $crate::wire::Reader<'_>, field: &'static str) -> Result<$name, $crate::wire::Malformed> {
                $name::from_number(r.u32()?).ok_or($crate::wire::Malformed::Value(field))
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::ClosedSet;
    use crate::Status;

    #[test]
    fn numbers_and_words_find_their_members_and_others_find_none() {
        for member in Status::ALL {
            assert_eq!(Status::from_number(member as u32), Some(member));
            assert_eq!(Status::from_word(member.word()), Some(member));
        }
        assert_eq!(Status::from_number(17), None);
        assert_eq!(Status::from_word("fine"), None);
        assert_eq!(Status::SET.members[14].name, "Disconnected");
    }
}

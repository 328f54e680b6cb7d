//! Messages and records are declared once. Their codecs and the tables of `docs/wire-protocol.md` follow from the
//! declaration.
//!
//! A field is `name: Type` in the usual spelling of its type, or `name: Type as Spelling`. Fields have the order of
//! their bytes. `a + b: bool as Bits` are several fields in one word.

/// A field, for generators.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Its name, or names if several share a word.
    pub names: &'static [&'static str],
    /// Its type, as the protocol's tables say it.
    pub what: &'static str,
    /// Its bytes; 0 if that varies.
    pub size: usize,
    /// What it means, line by line.
    pub doc: &'static [&'static str],
}

/// A message or a record, for generators.
#[derive(Clone, Copy, Debug)]
pub struct Message {
    /// Its number.
    pub number: u32,
    /// Its name.
    pub name: &'static str,
    /// The name of the message that answers it, if there is one.
    pub answer: Option<&'static str>,
    /// The number of descriptors that come with the message, as the declaration says it; `None` means no descriptors.
    pub descriptors: Option<&'static str>,
    /// What it is, line by line.
    pub doc: &'static [&'static str],
    /// In order of their bytes.
    pub fields: &'static [Field],
    /// The record that makes up its whole body, if there is one.
    pub body: Option<&'static str>,
}

/// The spelling of a field: the usual one, unless another one is named.
#[doc(hidden)]
#[macro_export]
macro_rules! spelling {
    ($usual:ident) => {
        $usual
    };
    ($usual:ident, $named:ty) => {
        $named
    };
}

/// A field by reference, or several as a tuple.
#[doc(hidden)]
#[macro_export]
macro_rules! grouped {
    ($field:expr) => { $field };
    ($field:expr, $($more:expr),+) => { &(*$field, $(*$more),+) };
}

/// A field's variable, or those of several.
#[doc(hidden)]
#[macro_export]
macro_rules! grouped_pattern {
    ($field:ident) => { $field };
    ($field:ident, $($more:ident),+) => { ($field, $($more),+) };
}

/// The type of a field, or of several.
#[doc(hidden)]
#[macro_export]
macro_rules! grouped_type {
    ($type:ty) => {
        $type
    };
    ($type:ty, $a:ident) => {
        ($type, $type)
    };
    ($type:ty, $a:ident, $b:ident) => {
        ($type, $type, $type)
    };
}

/// Says what there is, if there is anything.
#[doc(hidden)]
#[macro_export]
macro_rules! optional {
    () => {
        None
    };
    ($value:expr) => {
        Some($value)
    };
}

/// Declares a struct that is part of messages.
#[macro_export]
macro_rules! record {
    ($(#[doc = $about:literal])+ $(#[derive($($derive:ident),+)])? $visibility:vis struct $name:ident as $usual:ident {
        $($(#[doc = $doc:literal])* $field:ident $(+ $(#[doc = $more_doc:literal])* $more:ident)*
            : $type:ty $(as $spelling:ty)?,)+
    } $(where $wrong:literal: |$it:ident| $right:expr)?) => {
        $(#[doc = $about])+
        #[derive(Clone, Debug, PartialEq, Eq)]
        $(#[derive($($derive),+)])?
        $visibility struct $name {
            $($(#[doc = $doc])* pub $field: $type, $($(#[doc = $more_doc])* pub $more: $type,)*)+
        }

        impl $name {
            /// Bytes in a message.
            pub const SIZE: usize = 0 $(+ <$crate::spelling!($usual $(, $spelling)?) as
                $crate::wire::Spells<$crate::grouped_type!($type $(, $more)*)>>::SIZE)+;

            /// The declaration, for generators.
            pub const DECLARED: $crate::wire::Message = $crate::wire::Message {
                number: 0,
                name: stringify!($name),
                answer: None,
                descriptors: None,
                doc: &[$($about),+],
                fields: &[$($crate::wire::Field {
                    names: &[stringify!($field) $(, stringify!($more))*],
                    what: <$crate::spelling!($usual $(, $spelling)?) as
                        $crate::wire::Spells<$crate::grouped_type!($type $(, $more)*)>>::WHAT,
                    size: <$crate::spelling!($usual $(, $spelling)?) as
                        $crate::wire::Spells<$crate::grouped_type!($type $(, $more)*)>>::SIZE,
                    doc: &[$($doc,)* $($($more_doc,)*)*],
                }),+],
                body: None,
            };
        }

        impl $crate::wire::Spells<$name> for $usual {
            const WHAT: &'static str = stringify!($name);
            const SIZE: usize = $name::SIZE;
            fn write(value: &$name, w: &mut $crate::wire::Writer) {
                $(<$crate::spelling!($usual $(, $spelling)?)>::write(
                    $crate::grouped!(&value.$field $(, &value.$more)*), w);)+
            }
            fn read(r: &mut $crate::wire::Reader<'_>, _field: &'static str) -> Result<$name, $crate::wire::Malformed> {
                $(let $crate::grouped_pattern!($field $(, $more)*) = <$crate::spelling!($usual $(, $spelling)?)>::read(r, stringify!($field))?;)+
                let value = $name { $($field $(, $more)*),+ };
                $(let right = |$it: &$name| $right;
                if !right(&value) {
                    return Err($crate::wire::Malformed::Value($wrong));
                })?
                Ok(value)
            }
        }
    };
}

/// Declares an enum of messages, each with its number and its body: fields, or one value. `-> Answer` names the message
/// that answers a request. `[n]` says how many descriptors come with a message, and `[by field]` names the field that
/// says so. `..Name(Enum) "about",` at the end is for messages that another enum declares.
#[macro_export]
macro_rules! messages {
    ($(#[doc = $about:literal])+ $visibility:vis enum $name:ident: $number_type:ident as $usual:ident {
        $($(#[doc = $doc:literal])* $number:literal $variant:ident $(-> $answer:ident)? $([$($descriptors:tt)+])?
            $({$($(#[doc = $field_doc:literal])* $field:ident $(+ $(#[doc = $more_doc:literal])* $more:ident)*
                : $type:ty $(as $spelling:ty)?,)+})?
            $(($body:ident: $body_type:ty $(as $body_spelling:ty)?))?,)+
        $(..$rest:ident($rest_type:ident) $rest_doc:literal,)?
    }) => {
        $(#[doc = $about])+
        #[derive(Clone, Debug, PartialEq, Eq)]
        $visibility enum $name {
            $($(#[doc = $doc])* $variant
                $({$($(#[doc = $field_doc])* $field: $type, $($(#[doc = $more_doc])* $more: $type,)*)+})?
                $(($body_type))?,)+
            $(#[doc = $rest_doc] $rest($rest_type),)?
        }

        impl $name {
            /// The declarations, for generators.
            pub const DECLARED: &'static [$crate::wire::Message] = &[$($crate::wire::Message {
                number: $number,
                name: stringify!($variant),
                answer: $crate::optional!($(stringify!($answer))?),
                descriptors: $crate::optional!($(stringify!($($descriptors)+))?),
                doc: &[$($doc),*],
                fields: &[$($($crate::wire::Field {
                    names: &[stringify!($field) $(, stringify!($more))*],
                    what: <$crate::spelling!($usual $(, $spelling)?) as
                        $crate::wire::Spells<$crate::grouped_type!($type $(, $more)*)>>::WHAT,
                    size: <$crate::spelling!($usual $(, $spelling)?) as
                        $crate::wire::Spells<$crate::grouped_type!($type $(, $more)*)>>::SIZE,
                    doc: &[$($field_doc,)* $($($more_doc,)*)*],
                }),+)?],
                body: $crate::optional!($(<$crate::spelling!($usual $(, $body_spelling)?) as
                    $crate::wire::Spells<$body_type>>::WHAT)?),
            }),+];

            /// The number that says which of these it is.
            #[must_use]
            pub const fn number(&self) -> $number_type {
                match self {
                    $(Self::$variant { .. } => $number,)+
                    $(Self::$rest(rest) => $rest_type::number(rest),)?
                }
            }

            pub(crate) fn write_body(&self, w: &mut $crate::wire::Writer) {
                use $crate::wire::Spells;
                match self {
                    $(Self::$variant $({$($field $(, $more)*),+})? $(($body))? => {
                        $($(<$crate::spelling!($usual $(, $spelling)?)>::write(
                            $crate::grouped!($field $(, $more)*), w);)+)?
                        $(<$crate::spelling!($usual $(, $body_spelling)?)>::write($body, w);)?
                    })+
                    $(Self::$rest(rest) => rest.write_body(w),)?
                }
            }

            pub(crate) fn read_body(
                number: $number_type,
                r: &mut $crate::wire::Reader<'_>,
            ) -> Result<Self, $crate::wire::Malformed> {
                use $crate::wire::Spells;
                Ok(match number {
                    $($number => {
                        $($(let $crate::grouped_pattern!($field $(, $more)*) =
                            <$crate::spelling!($usual $(, $spelling)?)>::read(r, stringify!($field))?;)+)?
                        $(let $body = <$crate::spelling!($usual $(, $body_spelling)?)>::read(r, stringify!($body))?;)?
                        Self::$variant $({$($field $(, $more)*),+})? $(($body))?
                    })+
                    other => $crate::otherwise!(other, r $(, $rest, $rest_type)?),
                })
            }
        }
    };
}

/// A number that is none of an enum's own.
#[doc(hidden)]
#[macro_export]
macro_rules! otherwise {
    ($number:ident, $r:ident) => {
        return Err($crate::wire::Malformed::Opcode($number as _))
    };
    ($number:ident, $r:ident, $rest:ident, $type:ident) => {
        Self::$rest($type::read_body($number, $r)?)
    };
}

/// How many descriptors come with each of these messages.
macro_rules! descriptors {
    ($(#[doc = $about:literal])+ pub enum $name:ident: u16 as Wire {
        $($(#[doc = $doc:literal])* $number:literal $variant:ident $(-> $answer:ident)?
            $([$descriptors:literal])? $({$($fields:tt)+})? $(($($body:tt)+))?,)+
        $(..$rest:ident($rest_type:ident) $rest_doc:literal,)?
    }) => {
        impl $name {
            /// How many descriptors come with it.
            #[must_use]
            pub const fn descriptors(&self) -> u16 {
                match self {
                    $($(Self::$variant { .. } => $descriptors,)?)+
                    _ => 0,
                }
            }
        }
    };
}

/// What answers each of these requests.
macro_rules! answered {
    ($(#[doc = $about:literal])+ pub enum $name:ident: u16 as Wire {
        $($(#[doc = $doc:literal])* $number:literal $variant:ident $(-> $answer:ident)?
            $([$($descriptors:tt)+])? $({$($fields:tt)+})? $(($($body:tt)+))?,)+
        $(..$rest:ident($rest_type:ident) $rest_doc:literal,)?
    }) => {
        impl $name {
            /// Whether it is answered.
            #[must_use]
            pub const fn wants_answer(&self) -> bool {
                Self::reply(self.number()).is_some()
            }

            pub(in $crate::wire) const fn reply(number: u16) -> Option<$crate::wire::answer::Reply> {
                match number {
                    $($number => $crate::optional!($($crate::wire::answer::Reply::$answer)?),)+
                    other => $crate::wire::declare::rest_reply!(other $(, $rest_type)?),
                }
            }
        }
    };
}

macro_rules! rest_reply {
    ($number:ident) => {{
        let _ = $number;
        None
    }};
    ($number:ident, $type:ident) => {
        $type::reply($number)
    };
}

macro_rules! requests {
    ($($declaration:tt)+) => {
        $crate::messages! { $($declaration)+ }
        $crate::wire::declare::descriptors! { $($declaration)+ }
        $crate::wire::declare::answered! { $($declaration)+ }
    };
}

macro_rules! answers {
    ($($declaration:tt)+) => {
        $crate::messages! { $($declaration)+ }
        $crate::wire::declare::descriptors! { $($declaration)+ }
    };
}

pub(in crate::wire) use {answered, answers, descriptors, requests, rest_reply};

//! The macros with which messages and records are declared. The encoders and decoders of the messages and the tables of
//! `docs/wire-protocol.md` are made from the declarations.
//!
//! `name: Type` declares a field with the usual encoding of its type, and `name: Type as Encoding` declares a field
//! with another encoding. Fields are declared in the order of their bytes. `a + b: bool as Bits` declares several
//! fields in one word.

/// The declaration of a field, for generators.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// The name of the field, or several names if the fields share a word.
    pub names: &'static [&'static str],
    /// The type of the field, as the tables of the protocol show it.
    pub what: &'static str,
    /// The number of bytes of the field; 0 if it varies.
    pub size: usize,
    /// The lines of the comment that says what the field means.
    pub doc: &'static [&'static str],
}

/// The declaration of a message or a record, for generators.
#[derive(Clone, Copy, Debug)]
pub struct Message {
    /// The number of the message in its enum. It is 0 for a record, which is only a part of messages and so has no
    /// number.
    pub number: u32,
    /// The name of the message or record.
    pub name: &'static str,
    /// The name of the message that answers this one, if there is one.
    pub answer: Option<&'static str>,
    /// The number of descriptors that come with the message, as text; `None` if there are none.
    pub descriptors: Option<&'static str>,
    /// The lines of the comment that says what the message is.
    pub doc: &'static [&'static str],
    /// The fields in the order of their bytes.
    pub fields: &'static [Field],
    /// The name of the record that is the message's whole body, if there is one.
    pub body: Option<&'static str>,
}

/// Gives the encoding of a field: the usual one, unless the declaration names another.
#[doc(hidden)]
#[macro_export]
macro_rules! encoding {
    ($usual:ident) => {
        $usual
    };
    ($usual:ident, $named:ty) => {
        $named
    };
}

/// Gives a reference to a field, or to several fields as a tuple.
#[doc(hidden)]
#[macro_export]
macro_rules! grouped {
    ($field:expr) => { $field };
    ($field:expr, $($more:expr),+) => { &(*$field, $(*$more),+) };
}

/// Gives the pattern that binds a field, or several fields as a tuple.
#[doc(hidden)]
#[macro_export]
macro_rules! grouped_pattern {
    ($field:ident) => { $field };
    ($field:ident, $($more:ident),+) => { ($field, $($more),+) };
}

/// Gives the type of a field, or the tuple type of several fields.
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

/// Gives `Some` of the macro's argument, or `None` without an argument.
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
            : $type:ty $(as $encoding:ty)?,)+
    } $(where $wrong:literal: |$it:ident| $right:expr)?) => {
        $(#[doc = $about])+
        #[derive(Clone, Debug, PartialEq, Eq)]
        $(#[derive($($derive),+)])?
        $visibility struct $name {
            $($(#[doc = $doc])* pub $field: $type, $($(#[doc = $more_doc])* pub $more: $type,)*)+
        }

        impl $name {
            /// The number of bytes of this record in a message.
            pub const SIZE: usize = 0 $(+ <$crate::encoding!($usual $(, $encoding)?) as
                $crate::wire::Encoding<$crate::grouped_type!($type $(, $more)*)>>::SIZE)+;

            /// The declaration of this record, for generators.
            pub const DECLARED: $crate::wire::Message = $crate::wire::Message {
                number: 0,
                name: stringify!($name),
                answer: None,
                descriptors: None,
                doc: &[$($about),+],
                fields: &[$($crate::wire::Field {
                    names: &[stringify!($field) $(, stringify!($more))*],
                    what: <$crate::encoding!($usual $(, $encoding)?) as
                        $crate::wire::Encoding<$crate::grouped_type!($type $(, $more)*)>>::WHAT,
                    size: <$crate::encoding!($usual $(, $encoding)?) as
                        $crate::wire::Encoding<$crate::grouped_type!($type $(, $more)*)>>::SIZE,
                    doc: &[$($doc,)* $($($more_doc,)*)*],
                }),+],
                body: None,
            };
        }

        impl $crate::wire::Encoding<$name> for $usual {
            const WHAT: &'static str = stringify!($name);
            const SIZE: usize = $name::SIZE;
            fn write(value: &$name, w: &mut $crate::wire::Writer) {
                $(<$crate::encoding!($usual $(, $encoding)?)>::write(
                    $crate::grouped!(&value.$field $(, &value.$more)*), w);)+
            }
            fn read(r: &mut $crate::wire::Reader<'_>, _field: &'static str) -> Result<$name, $crate::wire::Malformed> {
                $(let $crate::grouped_pattern!($field $(, $more)*) = <$crate::encoding!($usual $(, $encoding)?)>::read(r, stringify!($field))?;)+
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

/// Declares an enum of messages. Each message has a number and a body, which is a list of fields or one value. `->
/// Answer` names the message that answers a request. `[n]` says that `n` descriptors come with a message. `..Name(Enum)
/// "about",` at the end declares a variant `Name` for the messages of another enum `Enum`; "about" is the comment of
/// this variant.
#[macro_export]
macro_rules! messages {
    ($(#[doc = $about:literal])+ $visibility:vis enum $name:ident: $number_type:ident as $usual:ident {
        $($(#[doc = $doc:literal])* $number:literal $variant:ident $(-> $answer:ident)? $([$($descriptors:tt)+])?
            $({$($(#[doc = $field_doc:literal])* $field:ident $(+ $(#[doc = $more_doc:literal])* $more:ident)*
                : $type:ty $(as $encoding:ty)?,)+})?
            $(($body:ident: $body_type:ty $(as $body_encoding:ty)?))?,)+
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
            /// The declarations of all messages, for generators.
            pub const DECLARED: &'static [$crate::wire::Message] = &[$($crate::wire::Message {
                number: $number,
                name: stringify!($variant),
                answer: $crate::optional!($(stringify!($answer))?),
                descriptors: $crate::optional!($(stringify!($($descriptors)+))?),
                doc: &[$($doc),*],
                fields: &[$($($crate::wire::Field {
                    names: &[stringify!($field) $(, stringify!($more))*],
                    what: <$crate::encoding!($usual $(, $encoding)?) as
                        $crate::wire::Encoding<$crate::grouped_type!($type $(, $more)*)>>::WHAT,
                    size: <$crate::encoding!($usual $(, $encoding)?) as
                        $crate::wire::Encoding<$crate::grouped_type!($type $(, $more)*)>>::SIZE,
                    doc: &[$($field_doc,)* $($($more_doc,)*)*],
                }),+)?],
                body: $crate::optional!($(<$crate::encoding!($usual $(, $body_encoding)?) as
                    $crate::wire::Encoding<$body_type>>::WHAT)?),
            }),+];

            /// The number of this message in its enum.
            #[must_use]
            pub const fn number(&self) -> $number_type {
                match self {
                    $(Self::$variant { .. } => $number,)+
                    $(Self::$rest(rest) => $rest_type::number(rest),)?
                }
            }

            pub(crate) fn write_body(&self, w: &mut $crate::wire::Writer) {
                use $crate::wire::Encoding;
                match self {
                    $(Self::$variant $({$($field $(, $more)*),+})? $(($body))? => {
                        $($(<$crate::encoding!($usual $(, $encoding)?)>::write(
                            $crate::grouped!($field $(, $more)*), w);)+)?
                        $(<$crate::encoding!($usual $(, $body_encoding)?)>::write($body, w);)?
                    })+
                    $(Self::$rest(rest) => rest.write_body(w),)?
                }
            }

            pub(crate) fn read_body(
                number: $number_type,
                r: &mut $crate::wire::Reader<'_>,
            ) -> Result<Self, $crate::wire::Malformed> {
                use $crate::wire::Encoding;
                Ok(match number {
                    $($number => {
                        $($(let $crate::grouped_pattern!($field $(, $more)*) =
                            <$crate::encoding!($usual $(, $encoding)?)>::read(r, stringify!($field))?;)+)?
                        $(let $body = <$crate::encoding!($usual $(, $body_encoding)?)>::read(r, stringify!($body))?;)?
                        Self::$variant $({$($field $(, $more)*),+})? $(($body))?
                    })+
                    other => $crate::otherwise!(other, r $(, $rest, $rest_type)?),
                })
            }
        }
    };
}

/// Handles a message number that the enum does not declare. If the enum includes another enum, that enum handles the
/// number; otherwise the number is an error.
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

/// Makes the function that says how many descriptors come with a message.
macro_rules! descriptors {
    ($(#[doc = $about:literal])+ pub enum $name:ident: u16 as Wire {
        $($(#[doc = $doc:literal])* $number:literal $variant:ident $(-> $answer:ident)?
            $([$descriptors:literal])? $({$($fields:tt)+})? $(($($body:tt)+))?,)+
        $(..$rest:ident($rest_type:ident) $rest_doc:literal,)?
    }) => {
        impl $name {
            /// The number of descriptors that come with this message.
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

/// Makes the functions that say which answer belongs to a request.
macro_rules! answered {
    ($(#[doc = $about:literal])+ pub enum $name:ident: u16 as Wire {
        $($(#[doc = $doc:literal])* $number:literal $variant:ident $(-> $answer:ident)?
            $([$($descriptors:tt)+])? $({$($fields:tt)+})? $(($($body:tt)+))?,)+
        $(..$rest:ident($rest_type:ident) $rest_doc:literal,)?
    }) => {
        impl $name {
            /// Tells whether this request gets an answer.
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

//! The description of a series, and the description of a version in its record. In the fields for names and texts, the
//! bytes behind the text are zero.

use super::{AtomicU32, AtomicU64};
use crate::WildWord;

/// The value of `kind` in a `ValueField` that has no value.
pub const KIND_NONE: u32 = 0;
/// The largest number of bytes in a value that is a text.
pub const MAX_TEXT: usize = 63;

/// A value of an attribute or a constant.
#[repr(C)]
pub struct ValueField {
    /// The kind of the value: a [`super::ValueKind`], or [`KIND_NONE`].
    pub kind: AtomicU32,
    /// The number of bytes of the value, if the value is a text.
    pub length: WildWord<AtomicU32>,
    /// The value: a number in the first word, or a text.
    pub words: [AtomicU64; 8],
}

/// A variable as the publisher declared it. The publisher writes the entry before it sets the pool's `init` to
/// [`super::SERIES_READY`].
#[repr(C)]
pub struct VariableEntry {
    /// The variable's name.
    pub name: [AtomicU64; 16],
    /// The name of the element type, as the module `type_name` defines type names.
    pub ty: [AtomicU64; 24],
    /// The number of dimensions.
    pub rank: WildWord<AtomicU32>,
    /// The order of the elements, which says which index varies fastest: a [`crate::region::Order`].
    pub order: AtomicU32,
    /// The size of an element in bytes.
    pub element: WildWord<AtomicU64>,
    /// The largest lengths in each dimension; 0 in dimensions beyond the rank.
    pub max_shape: [WildWord<AtomicU64>; 8],
    /// The index of the variable's first chunk in slot tables.
    pub first: WildWord<AtomicU32>,
    /// The number of the variable's chunks at its largest shape.
    pub chunks: WildWord<AtomicU32>,
    /// A reserved field, which is zero.
    pub reserved: [AtomicU64; 13],
}

/// An attribute's name and kind.
#[repr(C)]
pub struct AttributeEntry {
    /// The attribute's name.
    pub name: [AtomicU64; 16],
    /// The kind of the attribute's values: a [`super::ValueKind`], or [`KIND_NONE`].
    pub kind: AtomicU32,
    /// A reserved field, which is zero.
    pub reserved: AtomicU32,
}

/// A constant of the series or of a variable.
#[repr(C)]
pub struct ConstantEntry {
    /// The constant's name.
    pub name: [AtomicU64; 16],
    /// The constant's value.
    pub value: ValueField,
    /// The index of the variable to which the constant belongs; `u32::MAX` for a constant of the whole series.
    pub variable: WildWord<AtomicU32>,
    /// A reserved field, which is zero.
    pub reserved: AtomicU32,
}

/// The shape and size of a variable in one version.
#[repr(C)]
pub struct Extent {
    /// The lengths in each dimension; 0 in dimensions beyond the rank.
    pub shape: [WildWord<AtomicU64>; 8],
    /// The number of bytes: the product of the lengths and the element's size.
    pub bytes: WildWord<AtomicU64>,
}

/// The sizes of the structs in this file, from which the geometry of a pool is computed.
pub struct StructSizes;

impl StructSizes {
    /// The size of a [`VariableEntry`] in bytes.
    pub const VARIABLE: u64 = size_of::<VariableEntry>() as u64;
    /// The size of an [`AttributeEntry`] in bytes.
    pub const ATTRIBUTE: u64 = size_of::<AttributeEntry>() as u64;
    /// The size of a [`ConstantEntry`] in bytes.
    pub const CONSTANT: u64 = size_of::<ConstantEntry>() as u64;
    /// The size of a [`ValueField`] in bytes.
    pub const VALUE: u64 = size_of::<ValueField>() as u64;
    /// The size of an [`Extent`] in bytes.
    pub const EXTENT: u64 = size_of::<Extent>() as u64;
}

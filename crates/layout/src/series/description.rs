//! A series' description of itself, and what a version says of itself. Names and texts are zero-filled fields.

use super::{AtomicU32, AtomicU64};
use crate::WildWord;

/// The `kind` of a field without a value.
pub const KIND_NONE: u32 = 0;
/// The longest text of a value, in bytes.
pub const MAX_TEXT: usize = 63;

/// A value of an attribute or a constant.
#[repr(C)]
pub struct ValueField {
    /// A [`super::ValueKind`], or [`KIND_NONE`].
    pub kind: AtomicU32,
    /// Bytes of a text.
    pub length: AtomicU32,
    /// The number in the first word, or the text.
    pub words: [AtomicU64; 8],
}

/// A variable, as declared. Written before `init` says ready.
#[repr(C)]
pub struct VariableEntry {
    /// Its name.
    pub name: [AtomicU64; 16],
    /// The name of its elements' type (`type_name`).
    pub ty: [AtomicU64; 24],
    /// Dimensions.
    pub rank: WildWord<AtomicU32>,
    /// Which index varies fastest: a [`crate::region::Order`].
    pub order: AtomicU32,
    /// Bytes of an element.
    pub element: AtomicU64,
    /// The largest lengths; 0 beyond the rank.
    pub max_shape: [WildWord<AtomicU64>; 8],
    /// The position of the variable's first chunk in slot tables.
    pub first: WildWord<AtomicU32>,
    /// The variable's number of chunks at its largest.
    pub chunks: WildWord<AtomicU32>,
    /// Zero.
    pub reserved: [AtomicU64; 13],
}

/// An attribute's name and kind.
#[repr(C)]
pub struct AttributeEntry {
    /// Its name.
    pub name: [AtomicU64; 16],
    /// A [`super::ValueKind`], or [`KIND_NONE`].
    pub kind: AtomicU32,
    /// Zero.
    pub reserved: AtomicU32,
}

/// A constant of the series or of a variable.
#[repr(C)]
pub struct ConstantEntry {
    /// Its name.
    pub name: [AtomicU64; 16],
    /// Its value.
    pub value: ValueField,
    /// The number of the variable that the constant belongs to; `u32::MAX` for a constant of the series.
    pub variable: WildWord<AtomicU32>,
    /// Zero.
    pub reserved: AtomicU32,
}

/// The size of a variable in one version.
#[repr(C)]
pub struct Extent {
    /// Lengths; 0 beyond the rank.
    pub shape: [WildWord<AtomicU64>; 8],
    /// Bytes: their product times the element.
    pub bytes: WildWord<AtomicU64>,
}

/// Sizes of the above, for the geometry.
pub struct Measured;

impl Measured {
    /// Bytes of a [`VariableEntry`].
    pub const VARIABLE: u64 = size_of::<VariableEntry>() as u64;
    /// Bytes of an [`AttributeEntry`].
    pub const ATTRIBUTE: u64 = size_of::<AttributeEntry>() as u64;
    /// Bytes of a [`ConstantEntry`].
    pub const CONSTANT: u64 = size_of::<ConstantEntry>() as u64;
    /// Bytes of a [`ValueField`].
    pub const VALUE: u64 = size_of::<ValueField>() as u64;
    /// Bytes of an [`Extent`].
    pub const EXTENT: u64 = size_of::<Extent>() as u64;
}

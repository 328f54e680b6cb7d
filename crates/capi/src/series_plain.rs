//! The C header's structs for series, field by field. `tests/layout.c` checks their layout.

use std::ffi::c_char;

pub(crate) const TEXT: usize = 64;
pub(crate) const NAME: usize = 128;
pub(crate) const TYPE_NAME: usize = 192;
pub(crate) const DIMENSIONS: usize = 8;

/// The C struct `crossdock_value`. It holds the bits of a number of any kind.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Value {
    pub kind: u32,
    pub reserved: u32,
    pub number: u64,
    pub text: [u8; TEXT],
}

/// The C struct `crossdock_attribute`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Attribute {
    pub name: *const c_char,
    pub value: Value,
}

/// The C struct `crossdock_variable`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Variable {
    pub name: *const c_char,
    pub type_name: *const c_char,
    pub dimensions: u32,
    pub order: u32,
    pub shape: [u64; DIMENSIONS],
    pub max_shape: [u64; DIMENSIONS],
    pub constants: *const Attribute,
    pub constant_count: usize,
}

/// The C struct `crossdock_series_options`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct SeriesOptions {
    pub capacity: u64,
    pub chunk: u32,
    pub keep: u32,
    pub max_observers: u32,
    pub full: u32,
    pub detect: u32,
    pub pages: u32,
}

/// The C struct `crossdock_publisher_statistics`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct PublisherStatistics {
    pub versions: u64,
    pub chunk: u64,
    pub withheld: u64,
    pub slots_used: u64,
    pub slots_reserved: u64,
    pub copied: u64,
    pub shared: u64,
    pub last_ns: u64,
    pub longest_ns: u64,
    pub no_space: u64,
    pub taken_back: u64,
    pub method: u64,
}

/// The C struct `crossdock_variable_info`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct VariableInfo {
    pub name: [u8; NAME],
    pub type_name: [u8; TYPE_NAME],
    pub dimensions: u32,
    pub order: u32,
    pub element_size: u64,
    pub max_shape: [u64; DIMENSIONS],
    pub constant_count: u32,
    pub reserved: u32,
}

/// The C struct `crossdock_change`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Change {
    pub variable: u32,
    pub reserved: u32,
    pub from: u64,
    pub bytes: u64,
}

const _: () = {
    assert!(size_of::<Value>() == 80 && size_of::<Attribute>() == 88 && size_of::<Variable>() == 168);
    assert!(size_of::<SeriesOptions>() == 32 && size_of::<PublisherStatistics>() == 96);
    assert!(size_of::<VariableInfo>() == 408 && size_of::<Change>() == 24);
};

//! The structs of the C header in Rust, field by field. The test in this file checks the sizes and offsets in Rust, and
//! `tests/layout.c` checks the same numbers in C.

use std::ffi::{c_char, c_void};

use crossdock_client::Handle;

/// The C struct `crossdock_connect_options`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ConnectOptions {
    pub socket: *const c_char,
    pub task: *const c_char,
    pub workflow: *const c_char,
    pub rank: i64,
    pub timeout_ms: i64,
    pub private_daemon: u32,
    pub reserved: u32,
}

/// The C struct `crossdock_type`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Type {
    pub name: *const c_char,
    pub size: u64,
    pub align: u32,
    pub reserved: u32,
}

/// The C struct `crossdock_region_statistics`.
#[repr(C)]
pub(crate) struct RegionStatistics {
    pub capacity: u64,
    pub reserved: u64,
    pub used: u64,
    pub blocks: u64,
    pub objects: u64,
    pub slots: u64,
    pub largest_free: u64,
    pub unused: u64,
}

/// The C struct `crossdock_heal_report`.
#[repr(C)]
pub(crate) struct HealReport {
    pub slots: u64,
    pub operations: u64,
    pub objects: u64,
}

/// The C struct `crossdock_object`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Object {
    pub address: *mut c_void,
    pub handle: Handle,
    pub size: u64,
    pub created: u32,
    pub reserved: u32,
}

/// The C struct `crossdock_object_info`.
#[repr(C)]
pub(crate) struct ObjectInfo {
    pub name: [u8; 128],
    pub type_name: [u8; 192],
    pub handle: Handle,
    pub size: u64,
    pub align: u32,
    pub reserved: u32,
}

/// The C structs `crossdock_vector` and `crossdock_string`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Vector {
    pub region: i64,
    pub data: i64,
    pub size: u64,
    pub capacity: u64,
}

/// The C struct `crossdock_ndarray`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Ndarray {
    pub region: i64,
    pub data: i64,
    pub capacity_bytes: u64,
    pub rank: u32,
    pub order: u32,
    pub shape: [u64; 8],
    pub reserved: [u8; 32],
}

/// The C struct `crossdock_port_options`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct PortOptions {
    pub pattern: u32,
    pub capacity: u32,
    pub persistent: u32,
}

/// The C struct `crossdock_message`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Message {
    pub handle: Handle,
    pub tag: u64,
    pub position: u64,
    pub inline_length: u32,
    pub reserved: u32,
    pub inline_bytes: [u8; 24],
}

/// The C struct `crossdock_port_statistics`.
#[repr(C)]
pub(crate) struct PortStatistics {
    pub messages: u64,
    pub received: u64,
    pub bytes_handed_over: u64,
    pub bytes_copied: u64,
    pub producer_wait_ns: u64,
    pub consumer_wait_ns: u64,
    pub sleeps: u64,
    pub wakes: u64,
    pub redelivered: u64,
    pub voided: u64,
    pub under_way: u64,
    pub unused: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{offset_of, size_of};

    macro_rules! frozen {
        ($ty:ident, $size:literal, $($field:ident: $offset:literal),*) => {
            assert_eq!(size_of::<$ty>(), $size, stringify!($ty));
            $(assert_eq!(offset_of!($ty, $field), $offset, concat!(stringify!($ty), ".", stringify!($field)));)*
        };
    }

    #[test]
    fn layout_is_that_of_tests_layout_c() {
        frozen!(ConnectOptions, 48, socket: 0, task: 8, workflow: 16, rank: 24, timeout_ms: 32, private_daemon: 40, reserved: 44);
        frozen!(Type, 24, name: 0, size: 8, align: 16, reserved: 20);
        frozen!(RegionStatistics, 64, capacity: 0, reserved: 8, used: 16, blocks: 24, objects: 32, slots: 40, largest_free: 48, unused: 56);
        frozen!(HealReport, 24, slots: 0, operations: 8, objects: 16);
        frozen!(Object, 40, address: 0, handle: 8, size: 24, created: 32, reserved: 36);
        frozen!(ObjectInfo, 352, name: 0, type_name: 128, handle: 320, size: 336, align: 344, reserved: 348);
        frozen!(Vector, 32, region: 0, data: 8, size: 16, capacity: 24);
        frozen!(Ndarray, 128, region: 0, data: 8, capacity_bytes: 16, rank: 24, order: 28, shape: 32, reserved: 96);
        frozen!(PortOptions, 12, pattern: 0, capacity: 4, persistent: 8);
        frozen!(Message, 64, handle: 0, tag: 16, position: 24, inline_length: 32, reserved: 36, inline_bytes: 40);
        frozen!(PortStatistics, 96, messages: 0, received: 8, bytes_handed_over: 16, bytes_copied: 24, producer_wait_ns: 32, consumer_wait_ns: 40, sleeps: 48, wakes: 56, redelivered: 64, voided: 72, under_way: 80, unused: 88);
    }
}

/// The C struct `crossdock_item_options`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ItemOptions {
    pub level: u32,
    pub on_death: u32,
}

/// The C struct `crossdock_item_info`.
#[repr(C)]
pub(crate) struct ItemInfo {
    pub key: [u8; 128],
    pub owner: [u8; 128],
    pub creator: [u8; 128],
    pub size: u64,
    pub since_ms: u64,
    pub transfers: u64,
    pub copies: u64,
    pub state: u32,
    pub level: u32,
    pub on_death: u32,
    pub readers: u32,
    pub waiting: u32,
    pub mine: u32,
}

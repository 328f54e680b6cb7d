//! These tests freeze the layout: a change of the layout needs a new `PORT_FINGERPRINT`.

use super::*;
use std::mem::{align_of, offset_of, size_of};

#[test]
fn port_header_is_frozen() {
    assert_eq!((size_of::<PortHeader>(), align_of::<PortHeader>()), (1024, 1024));
    assert_eq!(offset_of!(PortHeader, identity), 0);
    assert_eq!(offset_of!(PortHeader, sending), 64);
    assert_eq!(offset_of!(PortHeader, taking), 128);
    assert_eq!(offset_of!(PortHeader, data), 192);
    assert_eq!(offset_of!(PortHeader, space), 256);
    assert_eq!(offset_of!(PortHeader, members), 320);
    assert_eq!(offset_of!(PortHeader, counters), 448);
    assert_eq!(offset_of!(PortIdentity, version), 8);
    assert_eq!(offset_of!(PortIdentity, init), 16);
    assert_eq!(offset_of!(PortIdentity, pattern), 24);
    assert_eq!(offset_of!(PortIdentity, capacity), 28);
    assert_eq!(offset_of!(ProducerPositions, credit), 8);
    assert_eq!(offset_of!(SharedConsumerPositions, returned), 8);
    assert_eq!(offset_of!(SharedConsumerPositions, returned_seen), 16);
    assert_eq!(offset_of!(SideMembers, departed), 4);
    assert_eq!(offset_of!(SideMembers, last_member), 8);
    assert_eq!(offset_of!(SideMembers, last_seen), 16);
    assert_eq!(offset_of!(SideMembers, last_name), 24);
    assert_eq!(offset_of!(PortCounters, redelivered), 8);
    assert_eq!(offset_of!(PortCounters, voided), 16);
}

#[test]
fn end_slot_is_frozen() {
    assert_eq!((size_of::<EndSlot>(), align_of::<EndSlot>()), (128, 64));
    assert_eq!(offset_of!(EndSlot, counters), 64);
    assert_eq!(offset_of!(EndHolder, member), 8);
    assert_eq!(offset_of!(EndHolder, here), 16);
    assert_eq!(offset_of!(EndHolder, name), 24);
    assert_eq!(offset_of!(EndCounters, last_seen), 8);
    assert_eq!(offset_of!(EndCounters, messages), 16);
    assert_eq!(offset_of!(EndCounters, bytes), 24);
    assert_eq!(offset_of!(EndCounters, copied), 32);
    assert_eq!(offset_of!(EndCounters, wait_ns), 40);
    assert_eq!(offset_of!(EndCounters, sleeps), 48);
    assert_eq!(offset_of!(EndCounters, wakes), 52);
    assert_eq!(offset_of!(EndCounters, waiting), 56);
    assert_eq!(offset_of!(EndCounters, tenancy), 60);
}

#[test]
fn cell_is_one_cache_line() {
    assert_eq!((size_of::<Cell>(), align_of::<Cell>()), (64, 64));
    assert_eq!(offset_of!(Cell, pending), 8);
    assert_eq!(offset_of!(Cell, inline_len), 12);
    assert_eq!(offset_of!(Cell, handle), 16);
    assert_eq!(offset_of!(Cell, tag), 32);
    assert_eq!(offset_of!(Cell, inline), 40);
}

#[test]
fn a_port_of_eight_messages_takes_three_pages() {
    assert_eq!((ENDS_AT, CELLS_AT), (1024, 9216));
    assert_eq!(port_size(8), 9728);
    assert!(port_size(8) <= 3 * 4096);
}

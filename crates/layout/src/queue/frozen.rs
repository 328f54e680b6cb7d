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
    assert_eq!(offset_of!(PortHeader, company), 320);
    assert_eq!(offset_of!(PortHeader, ledger), 448);
    assert_eq!(offset_of!(Identity, version), 8);
    assert_eq!(offset_of!(Identity, init), 16);
    assert_eq!(offset_of!(Identity, pattern), 24);
    assert_eq!(offset_of!(Identity, capacity), 28);
    assert_eq!(offset_of!(Sending, credit), 8);
    assert_eq!(offset_of!(Taking, returned), 8);
    assert_eq!(offset_of!(Taking, returned_seen), 16);
    assert_eq!(offset_of!(Company, departed), 4);
    assert_eq!(offset_of!(Company, last_member), 8);
    assert_eq!(offset_of!(Company, last_seen), 16);
    assert_eq!(offset_of!(Company, last_name), 24);
    assert_eq!(offset_of!(Ledger, redelivered), 8);
    assert_eq!(offset_of!(Ledger, voided), 16);
}

#[test]
fn end_slot_is_frozen() {
    assert_eq!((size_of::<EndSlot>(), align_of::<EndSlot>()), (128, 64));
    assert_eq!(offset_of!(EndSlot, account), 64);
    assert_eq!(offset_of!(Tenure, member), 8);
    assert_eq!(offset_of!(Tenure, here), 16);
    assert_eq!(offset_of!(Tenure, name), 24);
    assert_eq!(offset_of!(Account, last_seen), 8);
    assert_eq!(offset_of!(Account, messages), 16);
    assert_eq!(offset_of!(Account, bytes), 24);
    assert_eq!(offset_of!(Account, copied), 32);
    assert_eq!(offset_of!(Account, wait_ns), 40);
    assert_eq!(offset_of!(Account, sleeps), 48);
    assert_eq!(offset_of!(Account, wakes), 52);
    assert_eq!(offset_of!(Account, waiting), 56);
    assert_eq!(offset_of!(Account, tenancy), 60);
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

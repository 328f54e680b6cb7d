//! These tests freeze the layout: a change of the layout needs a new `SERIES_FINGERPRINT`.

use super::*;
use std::mem::{align_of, offset_of, size_of};

#[test]
fn header_is_frozen() {
    assert_eq!((size_of::<SeriesHeader>(), align_of::<SeriesHeader>()), (4096, 4096));
    assert_eq!(offset_of!(SeriesHeader, version_words), 128);
    assert_eq!(offset_of!(SeriesHeader, report), 192);
    assert_eq!(size_of::<SeriesIdentity>(), 128);
    assert_eq!(offset_of!(SeriesIdentity, version), 8);
    assert_eq!(offset_of!(SeriesIdentity, init), 16);
    assert_eq!(offset_of!(SeriesIdentity, size), 24);
    assert_eq!(offset_of!(SeriesIdentity, publisher), 32);
    assert_eq!(offset_of!(SeriesIdentity, created), 40);
    assert_eq!(offset_of!(SeriesIdentity, chunk), 48);
    assert_eq!(offset_of!(SeriesIdentity, variables), 52);
    assert_eq!(offset_of!(SeriesIdentity, attributes), 56);
    assert_eq!(offset_of!(SeriesIdentity, constants), 60);
    assert_eq!(offset_of!(SeriesIdentity, records), 64);
    assert_eq!(offset_of!(SeriesIdentity, chunks), 68);
    assert_eq!(offset_of!(SeriesIdentity, slots), 72);
    assert_eq!(offset_of!(SeriesIdentity, observers), 76);
    assert_eq!(offset_of!(SeriesIdentity, full), 80);
    assert_eq!(offset_of!(VersionWords, published), 8);
    assert_eq!(offset_of!(VersionWords, state), 12);
    assert_eq!(size_of::<SeriesReport>(), 128);
    assert_eq!(offset_of!(SeriesReport, copied), 16);
    assert_eq!(offset_of!(SeriesReport, last_ns), 32);
    assert_eq!(offset_of!(SeriesReport, reserved), 72);
    assert_eq!(offset_of!(SeriesReport, attributes), 88);
    assert_eq!(offset_of!(SeriesReport, withheld_now), 92);
    assert_eq!(offset_of!(SeriesReport, withheld), 96);
}

#[test]
fn description_is_frozen() {
    assert_eq!(size_of::<ValueField>(), 72);
    assert_eq!(size_of::<VariableEntry>(), 512);
    assert_eq!(offset_of!(VariableEntry, ty), 128);
    assert_eq!(offset_of!(VariableEntry, rank), 320);
    assert_eq!(offset_of!(VariableEntry, element), 328);
    assert_eq!(offset_of!(VariableEntry, max_shape), 336);
    assert_eq!(offset_of!(VariableEntry, first), 400);
    assert_eq!(size_of::<AttributeEntry>(), 136);
    assert_eq!(size_of::<ConstantEntry>(), 208);
    assert_eq!(offset_of!(ConstantEntry, variable), 200);
}

#[test]
fn records_and_pins_are_frozen() {
    assert_eq!(size_of::<RecordHead>(), 64);
    assert_eq!(offset_of!(RecordHead, time), 16);
    assert_eq!(offset_of!(RecordHead, copied), 24);
    assert_eq!(offset_of!(RecordHead, attributes), 32);
    assert_eq!(size_of::<Extent>(), 72);
    assert_eq!((size_of::<PinSlot>(), offset_of!(PinSlot, count), offset_of!(PinSlot, pins)), (128, 0, 8));
    assert_eq!(offset_of!(PinSlot, sleeps_at), 4);
    assert_eq!((size_of::<PinPage>(), offset_of!(PinPage, slots)), (4096, 0));
}

//! Regions (heap-builder's file). Holds `impl Session { region, remove_region, region_of }`, over
//! `Session::{open_segment, attach_segment, reserve, remove_segment}` in session.rs.

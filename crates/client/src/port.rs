//! Ports (queue-builder's file). Holds `impl Session { port, remove_port }`, over
//! `Session::{open_segment, remove_segment, is_alive, death_epoch, describe_member}` in session.rs.

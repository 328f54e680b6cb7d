//! Texts that several answers use.

use crossdock_layout::LAYOUT_VERSION;
use crossdock_layout::wire::{FINGERPRINT, PROTOCOL_VERSION};

/// Gives the error for a client whose versions of the protocol or of the memory layout differ from this daemon's
/// versions. The error names the versions of both sides.
pub(super) fn incompatible((protocol, layout, fingerprint): (u32, u32, u64)) -> String {
    format!(
        "the node daemon speaks protocol {PROTOCOL_VERSION}, layout {LAYOUT_VERSION} ({FINGERPRINT:016x}), this program \
         protocol {protocol}, layout {layout} ({fingerprint:016x}); use the crossdock library that came with the daemon"
    )
}

/// Writes a size with its unit, as text.
pub(super) fn bytes(size: u64) -> String {
    const UNITS: [(u64, &str); 4] = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    for (unit, name) in UNITS {
        if size >= unit && size % unit == 0 {
            return format!("{} {name}", size / unit);
        }
        if size >= 10 * unit {
            return format!("{:.1} {name}", size as f64 / unit as f64);
        }
    }
    format!("{size} bytes")
}

#[cfg(test)]
mod tests {
    #[test]
    fn sizes_are_written_as_people_do() {
        assert_eq!(super::bytes(1 << 30), "1 GiB");
        assert_eq!(super::bytes(100), "100 bytes");
        assert_eq!(super::bytes((1 << 24) + 1), "16.0 MiB");
    }
}

//! The library: session, region, port.

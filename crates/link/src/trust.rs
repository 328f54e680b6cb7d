//! Which nodes a node talks to: those of its own host, all of a trusted network, or those whose certificates prove their names.

use crate::certificates::Certificates;
use std::sync::Arc;

/// What protects the connections between nodes.
#[derive(Clone, Debug, Default)]
pub enum Trust {
    /// Nothing: only loopback addresses are listened at and connected to.
    #[default]
    Loopback,
    /// Plain text to any address: all programs that reach the network can read and change everything (`--trusted-network`).
    Network,
    /// Mutual TLS 1.3: both sides prove their names.
    Certificates(Arc<Certificates>),
}

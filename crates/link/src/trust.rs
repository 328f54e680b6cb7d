//! Which peers a node accepts: nodes of its own host, any on a trusted network, or those whose certificates prove their
//! names.

use crate::certificates::Certificates;
use std::sync::Arc;

/// What protects the connections between nodes.
#[derive(Clone, Debug, Default)]
pub enum Trust {
    /// Nothing protects them, so only loopback addresses are used.
    #[default]
    Loopback,
    /// Plain text to any address. Every program that reaches the network can read and change everything
    /// (`--trusted-network`).
    Network,
    /// Mutual TLS 1.3: both sides prove their names.
    Certificates(Arc<Certificates>),
}

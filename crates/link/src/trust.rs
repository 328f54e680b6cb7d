//! Which peers a node accepts: nodes on its own host, any node on a trusted network, or nodes whose certificates prove
//! their names.

use crate::certificates::Certificates;
use std::sync::Arc;

/// What protects the connections between nodes.
#[derive(Clone, Debug, Default)]
pub enum Trust {
    /// There is no protection, so only loopback addresses are used.
    #[default]
    Loopback,
    /// Plain text to any address (`--trusted-network`). Every program that reaches the network can read and change the
    /// bytes.
    Network,
    /// Mutual TLS 1.3: both sides prove their names.
    Certificates(Arc<Certificates>),
}

impl Trust {
    /// Tells whether connections are inside TLS.
    pub(crate) const fn is_protected(&self) -> bool {
        matches!(self, Self::Certificates(_))
    }
}

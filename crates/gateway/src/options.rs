//! How a daemon takes part in a site.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crossdock_layout::name;
use crossdock_link::{Certificates, Papers, Trust, bad_node_name};

use crate::CatalogAt;

/// What a gateway is told.
#[derive(Clone, Debug)]
pub struct GatewayOptions {
    /// The site's name.
    pub site: String,
    /// This node's name in it.
    pub node: String,
    /// Where the catalog is.
    pub catalog: CatalogAt,
    /// Where this node listens to the others, `host:port`, and what they are told. `None`: a port that the kernel chooses, at
    /// the address that this node's connections to the catalog come from.
    pub listen: Option<String>,
    /// A folder with `authority.pem`, `node.pem` and `node.key`: all connections are inside mutual TLS.
    pub certificates: Option<PathBuf>,
    /// Without certificates: plain text is allowed on other addresses than loopback.
    pub trusted_network: bool,
    /// The number that the node had before, in another life of its catalog; 0 if none. It has to have the same again.
    pub number: u64,
    /// The same for all brokers of one daemon, and for no other daemon.
    pub token: u64,
    /// A folder for the journal, if this daemon keeps the catalog; it is made if it is not there.
    pub folder: PathBuf,
    /// How long the node's entries stay when it is not heard of.
    pub lease: Duration,
}

impl GatewayOptions {
    /// A lease of this length when nothing else is said.
    pub const LEASE: Duration = Duration::from_secs(10);

    pub(crate) fn check(&self) -> Result<(), String> {
        if let Some(why) = bad_site_name(&self.site) {
            return Err(format!("'{}' is no name of a site: {why}", self.site));
        }
        if let Some(why) = bad_node_name(&self.node) {
            return Err(format!("'{}' is no name of a node: {why}", self.node));
        }
        if self.trusted_network && self.certificates.is_some() {
            return Err(
                "--trusted-network asks for plain text, and --certificates for TLS; leave one of them out".into()
            );
        }
        Ok(())
    }

    pub(crate) fn trust(&self) -> Result<Trust, String> {
        let Some(folder) = &self.certificates else {
            return Ok(if self.trusted_network { Trust::Network } else { Trust::Loopback });
        };
        let papers = Papers::load(folder).map_err(|error| error.to_string())?;
        Ok(Trust::Certificates(Arc::new(Certificates::new(&papers).map_err(|error| error.to_string())?)))
    }
}

/// Why this is no site's name; `None` if it is one.
#[must_use]
pub fn bad_site_name(site: &str) -> Option<String> {
    match name::check(site) {
        Err(bad) => Some(bad.to_string()),
        Ok(()) if site.contains('/') => Some("it holds '/'".into()),
        Ok(()) if site.len() > 63 => Some(format!("it has {} bytes; at most 63 are allowed", site.len())),
        Ok(()) => None,
    }
}

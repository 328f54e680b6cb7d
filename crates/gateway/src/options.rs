//! The options of a daemon in a site.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crossdock_layout::name;
use crossdock_link::{Certificates, Choice, NodeCredentials, Trust, bad_node_name};

use crate::{CatalogAddress, CatalogOptions};

/// The options of a gateway.
#[derive(Clone, Debug)]
pub struct GatewayOptions {
    /// The site's name.
    pub site: String,
    /// The name of this node in the site.
    pub node: String,
    /// The address of the catalog.
    pub catalog: CatalogAddress,
    /// The number of a descriptor that this process inherited. It is a socket that listens at the address where this
    /// daemon keeps the catalog. With `None`, the daemon makes the socket.
    pub catalog_socket: Option<i32>,
    /// Where this node listens for other nodes, as `host:port`. The node announces this address. `None` stands for the
    /// address from which this node connects to the catalog, and a port that the kernel chooses.
    pub listen: Option<String>,
    /// A folder with `authority.pem`, `node.pem` and `node.key`. If it is given, all connections use mutual TLS.
    pub certificates: Option<PathBuf>,
    /// Whether connections without certificates may use plain text on addresses other than loopback.
    pub trusted_network: bool,
    /// The transports that this node may use.
    pub transport: Choice,
    /// The number that the node had before, or 0 if it had none. If the catalog was lost, the new catalog must give the
    /// node this number again.
    pub number: u64,
    /// A number that distinguishes this daemon from all others. All brokers of the daemon use it.
    pub token: u64,
    /// The folder for the catalog's journal, if this daemon keeps the catalog. It is made if it does not exist.
    pub folder: PathBuf,
    /// The length of the lease. If the lease is not renewed for this time, the catalog removes the node's entries.
    pub lease: Duration,
}

impl GatewayOptions {
    /// The default length of a lease.
    pub const LEASE: Duration = Duration::from_secs(10);

    /// Options of a node that had no number before. It listens at a port that the kernel chooses, and may use any
    /// transport. Plain text is allowed on loopback only.
    #[must_use]
    pub fn new(site: &str, node: &str, catalog: CatalogAddress, folder: PathBuf) -> Self {
        Self {
            site: site.into(),
            node: node.into(),
            catalog,
            catalog_socket: None,
            listen: None,
            certificates: None,
            trusted_network: false,
            transport: Choice::Auto,
            number: 0,
            token: 0,
            folder,
            lease: Self::LEASE,
        }
    }

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

    pub(crate) fn catalog_options(&self) -> CatalogOptions<'_> {
        CatalogOptions {
            at: &self.catalog,
            node: &self.node,
            certificates: self.certificates.as_deref(),
            trusted_network: self.trusted_network,
            folder: &self.folder,
            socket: None,
        }
    }

    pub(crate) fn trust(&self) -> Result<Trust, String> {
        let Some(folder) = &self.certificates else {
            return Ok(if self.trusted_network { Trust::Network } else { Trust::Loopback });
        };
        let credentials = NodeCredentials::load(folder).map_err(|error| error.to_string())?;
        Ok(Trust::Certificates(Arc::new(Certificates::new(&credentials).map_err(|error| error.to_string())?)))
    }
}

/// Returns the reason why this text cannot be the name of a site, or `None` if it is a valid name.
#[must_use]
pub fn bad_site_name(site: &str) -> Option<String> {
    match name::check(site) {
        Err(bad) => Some(bad.to_string()),
        Ok(()) if site.contains('/') => Some("it holds '/'".into()),
        Ok(()) if site.len() > 63 => Some(format!("it has {} bytes; at most 63 are allowed", site.len())),
        Ok(()) => None,
    }
}

//! The options of a daemon.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use crossdock_gateway::CatalogAddress;
use crossdock_link::Choice;

/// The options of a daemon that is a node of a site.
#[derive(Clone, Debug)]
pub struct SiteOptions {
    /// The site's name.
    pub site: String,
    /// The name of this node in the site.
    pub node: String,
    /// Where the catalog of the site is.
    pub catalog: CatalogAddress,
    /// The number of a descriptor that the daemon inherited: a socket that listens at the catalog's address. Every
    /// broker of the daemon uses it, so no other program can take the port between two brokers. `None`: each broker
    /// makes the socket.
    pub catalog_socket: Option<i32>,
    /// Where this node listens for other nodes, as `host:port`. `None`: at the address from which it would connect to
    /// the catalog, with any free port.
    pub listen: Option<String>,
    /// A folder with `authority.pem`, `node.pem` and `node.key`: the certificates for connections between nodes.
    pub certificates: Option<PathBuf>,
    /// Whether plain text is allowed on other addresses than loopback.
    pub trusted_network: bool,
    /// The transports that this node may use.
    pub transport: Choice,
    /// The length of the lease: how long the node's entries stay in the catalog when the catalog hears nothing from the
    /// node.
    pub lease: Duration,
}

/// Options of [`crate::serve`]; `crossdock serve` fills them from its command line.
#[derive(Debug)]
pub struct ServeOptions {
    /// The socket to listen on. `None`: `/run/crossdock/endpoint.sock` for root; for other users, one in the user's
    /// runtime folder or, without such a folder, `/tmp/crossdock-UID/endpoint.sock`. The socket's folder is made (mode
    /// 0700) if it does not exist.
    pub socket: Option<PathBuf>,
    /// Whether the daemon ends by itself when no member has been connected for the time `idle`. It then leaves no files
    /// behind.
    pub private: bool,
    /// How long a private daemon without members waits before it ends.
    pub idle: Duration,
    /// The maximum number of bytes that all segments together may reserve. If it is 0, the limit is the whole memory of
    /// the node.
    pub memory: u64,
    /// The maximum number of connections at the same time.
    pub connections: u32,
    /// The site to which this daemon belongs as a node, if any.
    pub site: Option<SiteOptions>,
    /// True if the daemon continues in the background, in a process of its own. If it does, [`crate::serve`] returns
    /// when the daemon serves clients.
    pub detach: bool,
    /// The daemon writes one byte to this descriptor when it serves clients, and then closes the descriptor.
    pub ready: Option<OwnedFd>,
}

impl Default for ServeOptions {
    fn default() -> Self {
        Self {
            socket: None,
            private: false,
            idle: Duration::from_secs(10),
            memory: 0,
            connections: 16_384,
            site: None,
            detach: false,
            ready: None,
        }
    }
}

/// Why a daemon could not start, or had to stop.
#[derive(Debug)]
pub struct ServeError(pub String);

impl std::fmt::Display for ServeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ServeError {}

/// Gives the socket of a daemon whose options do not name a socket. Root's daemon has a socket for the whole node. The
/// daemon of another user has its socket in the user's runtime folder, or in /tmp if there is no such folder.
#[must_use]
pub fn default_socket() -> PathBuf {
    let user = crossdock_os::child::user();
    if user == 0 {
        return PathBuf::from("/run/crossdock/endpoint.sock");
    }
    let folder = crossdock_os::file::runtime_folder()
        .map_or_else(|| PathBuf::from(format!("/tmp/crossdock-{user}")), |f| f.join("crossdock"));
    folder.join("endpoint.sock")
}

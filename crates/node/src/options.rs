//! How a daemon is to run.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use crossdock_gateway::CatalogAt;

/// How a daemon takes part in a site.
#[derive(Clone, Debug)]
pub struct SiteOptions {
    /// The site's name.
    pub site: String,
    /// This node's name in it.
    pub node: String,
    /// Where the catalog is.
    pub catalog: CatalogAt,
    /// Where this node listens to the others, `host:port`. `None`: any port at the address that leads to the catalog.
    pub listen: Option<String>,
    /// A folder with `authority.pem`, `node.pem` and `node.key`.
    pub certificates: Option<PathBuf>,
    /// Plain text is allowed on other addresses than loopback.
    pub trusted_network: bool,
    /// How long the node's entries stay when it is not heard of.
    pub lease: Duration,
}

/// Options of [`crate::serve`]; `crossdock serve` fills them from its command line.
#[derive(Debug)]
pub struct ServeOptions {
    /// The socket to listen on. `None`: `/run/crossdock/endpoint.sock` for root, else the user's runtime folder,
    /// else `/tmp/crossdock-UID/endpoint.sock`. Its folder is made (0700) if it is not there.
    pub socket: Option<PathBuf>,
    /// End by itself once no member has been connected for `idle`, leaving nothing.
    pub private: bool,
    /// How long a private daemon waits for company.
    pub idle: Duration,
    /// Most bytes that all segments may reserve together; 0 = what the node has free.
    pub memory: u64,
    /// Most connections at once.
    pub connections: u32,
    /// The site that this daemon is a node of.
    pub site: Option<SiteOptions>,
    /// Go on in a process of its own, in the background, and return when it serves.
    pub detach: bool,
    /// Written to (one byte) once the daemon listens; then closed.
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

/// Where a daemon listens that is not told: root's for the whole node, everybody else's in the user's runtime folder.
#[must_use]
pub fn default_socket() -> PathBuf {
    let user = crossdock_os::child::user();
    if user == 0 {
        return PathBuf::from("/run/crossdock/endpoint.sock");
    }
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|folder| folder.is_dir());
    let folder = runtime.map_or_else(|| PathBuf::from(format!("/tmp/crossdock-{user}")), |f| f.join("crossdock"));
    folder.join("endpoint.sock")
}

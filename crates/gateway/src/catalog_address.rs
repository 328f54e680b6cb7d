//! The address of a site's catalog, and the client through which this node uses the catalog.

use std::net::ToSocketAddrs;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use crossdock_catalog::Catalog;
use crossdock_catalog::embedded::{Client, Keeper, KeeperOptions, Listening};
use crossdock_link::Transports;

use crate::streams::{Dial, LinkStream};

/// The program that keeps the catalog of a site, and its address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CatalogAddress {
    /// This daemon keeps the catalog, and listens at this address for the other nodes.
    Keep(String),
    /// The daemon of the named node keeps the catalog, and listens at this address.
    Embedded {
        /// The name of the node whose daemon keeps the catalog. With TLS, that node's certificate must carry this name.
        /// Without TLS, the name is empty.
        node: String,
        /// The address, as `host:port`.
        address: String,
    },
    /// An etcd cluster keeps the catalog. The texts are the addresses of the servers of this cluster.
    Etcd(Vec<String>),
}

impl FromStr for CatalogAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let forms = "a catalog is keep:HOST:PORT (this daemon keeps it), embedded:[NODE@]HOST:PORT (that one does), or \
                     etcd:URL,URL,URL";
        let (kind, rest) = text.split_once(':').ok_or_else(|| format!("'{text}' names no catalog; {forms}"))?;
        let address = |address: &str| {
            let port = address.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse::<u16>().ok()?)));
            port.filter(|(host, _)| !host.is_empty())
                .map(|_| address.to_owned())
                .ok_or_else(|| format!("'{address}' is no address; {forms}"))
        };
        match kind {
            "keep" => Ok(Self::Keep(address(rest)?)),
            "embedded" => {
                let (node, rest) = rest.split_once('@').unwrap_or(("", rest));
                Ok(Self::Embedded { node: node.to_owned(), address: address(rest)? })
            }
            "etcd" => {
                let members: Vec<_> = rest.split(',').map(str::to_owned).collect();
                match members.iter().find(|url| !url.starts_with("http://") && !url.starts_with("https://")) {
                    Some(bad) => {
                        Err(format!("'{bad}' is no URL of an etcd member, as in http://10.0.0.1:2379; {forms}"))
                    }
                    None => Ok(Self::Etcd(members)),
                }
            }
            other => Err(format!("'{other}' is no kind of catalog; {forms}")),
        }
    }
}

/// After a restart, the keeper of the catalog adds this time to each lease.
const GRACE: Duration = Duration::from_secs(5);

/// Finds the address where this node listens if the options do not name one. It is the address from which this node
/// would connect to the catalog, with port 0, so that the kernel chooses a port.
pub(crate) fn own_address(catalog: &CatalogAddress) -> Result<String, String> {
    let host = match catalog {
        CatalogAddress::Keep(address) => {
            // This daemon keeps the catalog. The other nodes reach the catalog at the host in `address`, so they reach
            // this node's links at the same host. The kernel chooses the port.
            return Ok(format!("{}:0", address.rsplit_once(':').map_or("127.0.0.1", |(host, _)| host)));
        }
        CatalogAddress::Embedded { address, .. } => address.clone(),
        CatalogAddress::Etcd(members) => {
            let first = members.first().map_or("", String::as_str);
            first.trim_start_matches("https://").trim_start_matches("http://").trim_end_matches('/').to_owned()
        }
    };
    // No packet is sent. The kernel only chooses the route, and thereby this node's own address.
    let towards = |host: &str| -> std::io::Result<std::net::SocketAddr> {
        let to = host.to_socket_addrs()?.next().ok_or(std::io::ErrorKind::NotFound)?;
        let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = std::net::UdpSocket::bind(any)?;
        socket.connect(to)?;
        socket.local_addr()
    };
    let address = towards(&host).map_err(|error| {
        format!("no address of this node leads to the catalog at {host}: {error}; give one with --listen HOST:PORT")
    })?;
    Ok(std::net::SocketAddr::new(address.ip(), 0).to_string())
}

/// How a process reaches or keeps the catalog of a site.
#[derive(Clone, Copy, Debug)]
pub struct CatalogOptions<'a> {
    /// The program that keeps the catalog, and its address.
    pub at: &'a CatalogAddress,
    /// The name of this node.
    pub node: &'a str,
    /// A folder with `authority.pem`, `node.pem` and `node.key`. If it is given, all connections use mutual TLS.
    pub certificates: Option<&'a Path>,
    /// Whether connections without certificates may use plain text on addresses other than loopback.
    pub trusted_network: bool,
    /// The folder for the catalog's journal, if this process keeps the catalog. It is made if it does not exist.
    pub folder: &'a Path,
    /// A socket that already listens at the address where this process keeps the catalog. With `None`, this process
    /// makes the socket.
    pub socket: Option<BorrowedFd<'a>>,
}

/// A client of a site's catalog. If this process keeps the catalog, dropping this value ends the catalog.
pub struct SiteCatalog {
    client: Arc<dyn Catalog>,
    // Rust drops the fields in the order of their declaration. The listener must end before the keeper, so that no
    // connection is accepted while the keeper ends.
    _listening: Option<Listening>,
    _keeper: Option<Keeper>,
}

impl std::fmt::Debug for SiteCatalog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SiteCatalog").field("is_keeper", &self._keeper.is_some()).finish_non_exhaustive()
    }
}

impl SiteCatalog {
    /// Makes a client of the catalog. If this process keeps the catalog, the catalog's server is started first, and the
    /// client needs no connection to it. Otherwise the client connects with its first call.
    ///
    /// # Errors
    /// If the options contradict each other, or if the certificates, an address or the catalog's journal cannot be
    /// used.
    pub fn open(options: &CatalogOptions<'_>, transports: &Transports) -> Result<Self, String> {
        let (client, kept) = open(options, transports)?;
        let (keeper, listening) = kept.map_or((None, None), |(keeper, listening)| (Some(keeper), Some(listening)));
        Ok(Self { client, _listening: listening, _keeper: keeper })
    }

    /// The client. If this process keeps the catalog, the client's calls fail once this value is dropped.
    #[must_use]
    pub fn client(&self) -> Arc<dyn Catalog> {
        Arc::clone(&self.client)
    }
}

type Opened = (Arc<dyn Catalog>, Option<(Keeper, Listening)>);

fn open(options: &CatalogOptions<'_>, transports: &Transports) -> Result<Opened, String> {
    match options.at {
        CatalogAddress::Embedded { node, address } => {
            if options.certificates.is_some() && node.is_empty() {
                return Err(format!(
                    "with certificates, the name of the node that keeps the catalog is needed: \
                     --catalog embedded:NODE@{address}"
                ));
            }
            let transport = transports.best().clone();
            let dial = Dial { transport, node: node.to_owned(), address: address.to_owned() };
            Ok((Arc::new(Client::new(dial)), None))
        }
        CatalogAddress::Keep(address) => {
            let accept = match options.socket {
                Some(socket) => transports.listen_on(socket.try_clone_to_owned().map_err(|error| error.to_string())?),
                None => transports.listen(address),
            };
            let accept = accept.map_err(|error| error.to_string())?;
            std::fs::create_dir_all(options.folder)
                .map_err(|error| format!("{} cannot be made: {error}", options.folder.display()))?;
            let keeper = Keeper::open(&KeeperOptions { folder: options.folder.to_owned(), grace: GRACE })
                .map_err(|error| format!("the catalog: {error}"))?;
            let establish = move |by| {
                let Some(arriving) = accept.accept(by).map_err(std::io::Error::other)? else { return Ok(None) };
                let greet = move || {
                    let patience = Duration::from_secs(5);
                    let stream = arriving.establish(crossdock_os::Deadline::after(patience));
                    let stream = stream.map_err(std::io::Error::other)?;
                    Ok(Box::new(LinkStream { stream, timeout: patience })
                        as Box<dyn crossdock_catalog::embedded::Stream>)
                };
                Ok(Some(Box::new(greet) as crossdock_catalog::embedded::AcceptStream))
            };
            let listening = keeper.listen_to(establish).map_err(|error| format!("the catalog: {error}"))?;
            Ok((Arc::new(keeper.local()), Some((keeper, listening))))
        }
        CatalogAddress::Etcd(members) => etcd(options, members),
    }
}

#[cfg(feature = "etcd")]
fn etcd(options: &CatalogOptions<'_>, members: &[String]) -> Result<Opened, String> {
    use crossdock_catalog::etcd::{Etcd, EtcdOptions};
    let plain = members.iter().find(|url| url.starts_with("http://") && !url.starts_with("http://127."));
    if let Some(url) = plain.filter(|_| !options.trusted_network) {
        return Err(format!(
            "{url} is plain text on a network; use https:// with --certificates, or --trusted-network"
        ));
    }
    let mut etcd = EtcdOptions { members: members.to_vec(), name: options.node.to_owned(), ..EtcdOptions::default() };
    if let Some(folder) = options.certificates {
        let credentials = crossdock_link::NodeCredentials::load(folder).map_err(|error| error.to_string())?;
        etcd.authority = Some(credentials.authority.into_bytes());
        etcd.identity = Some((credentials.certificate.into_bytes(), credentials.key.into_bytes()));
    }
    let catalog = Etcd::new(&etcd).map_err(|error| error.to_string())?;
    Ok((Arc::new(catalog), None))
}

#[cfg(not(feature = "etcd"))]
fn etcd(_: &CatalogOptions<'_>, _: &[String]) -> Result<Opened, String> {
    Err("this crossdock was built without etcd; build it with `--features etcd`, or use an embedded catalog".into())
}

#[cfg(test)]
mod tests {
    use super::CatalogAddress;

    #[test]
    fn every_form_is_read_and_every_other_one_says_what_the_forms_are() {
        assert_eq!("keep:127.0.0.1:0".parse(), Ok(CatalogAddress::Keep("127.0.0.1:0".into())));
        let embedded =
            |node: &str, address: &str| CatalogAddress::Embedded { node: node.into(), address: address.into() };
        assert_eq!("embedded:n1:7700".parse(), Ok(embedded("", "n1:7700")));
        assert_eq!("embedded:n1@[::1]:7700".parse(), Ok(embedded("n1", "[::1]:7700")));
        let members = vec!["http://a:1".to_owned(), "https://b:2".to_owned()];
        assert_eq!("etcd:http://a:1,https://b:2".parse(), Ok(CatalogAddress::Etcd(members)));
        for bad in ["", "keep", "keep:", "keep:host", "keep:host:99999", "embedded:a@b", "etcd:a:1", "zookeeper:a:1"] {
            let error = bad.parse::<CatalogAddress>().unwrap_err();
            assert!(error.contains("keep:HOST:PORT"), "{bad}: {error}");
        }
    }
}

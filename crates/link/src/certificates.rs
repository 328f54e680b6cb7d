//! Certificates of nodes. A run makes certificates for its own nodes and trusts no others; a lasting site reads them
//! from files.
//!
//! An [`Authority`] signs one certificate per node, which carries the node's name as its DNS name. A node trusts
//! exactly one authority, and none of the authorities that the operating system trusts. A run drops its authority as
//! soon as all of its nodes have their [`NodeCredentials`], so no further certificate can be signed.

use crate::stream::bad_node_name;
use crate::{Error, Result};
use crossdock_layout::Status;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// The files of the folder that holds a node's [`NodeCredentials`].
const FILES: [&str; 3] = ["authority.pem", "node.pem", "node.key"];

/// A certificate is valid from this long before it is made, because the clocks of two nodes may differ.
const SKEW: Duration = Duration::from_secs(3600);

fn failed(tried: &str, reason: impl ToString) -> Error {
    Error::new(Status::Invalid, tried, reason.to_string())
}

/// Signs the certificates of nodes. The authority's own key is never written to a file.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
    until: SystemTime,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").field("until", &self.until).finish_non_exhaustive()
    }
}

fn params(name: &str, until: SystemTime) -> CertificateParams {
    let mut params = CertificateParams::default();
    let mut shown = DistinguishedName::new();
    shown.push(DnType::CommonName, name);
    params.distinguished_name = shown;
    params.not_before = (SystemTime::now() - SKEW).into();
    params.not_after = until.into();
    params
}

impl Authority {
    /// Makes an authority. None of its certificates is valid for longer than `lasting` from now.
    ///
    /// # Errors
    /// The system gives no random numbers.
    pub fn make(name: &str, lasting: Duration) -> Result<Self> {
        let tried = "make an authority";
        let until = SystemTime::now() + lasting;
        let mut params = params(name, until);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate().map_err(|error| failed(tried, error))?;
        let pem = params.self_signed(&key).map_err(|error| failed(tried, error))?.pem();
        Ok(Self { issuer: Issuer::new(params, key), pem, until })
    }

    /// Signs a new certificate for a node.
    ///
    /// # Errors
    /// The text cannot be the name of a node.
    pub fn issue(&self, node: &str) -> Result<NodeCredentials> {
        self.issue_until(node, self.until)
    }

    /// Signs a certificate as [`Self::issue`] does, but the certificate is valid until `until`, which may be in the
    /// past.
    ///
    /// # Errors
    /// The text cannot be the name of a node.
    pub fn issue_until(&self, node: &str, until: SystemTime) -> Result<NodeCredentials> {
        let tried = format!("sign a certificate for node '{node}'");
        if let Some(bad) = bad_node_name(node) {
            return Err(failed(&tried, bad));
        }
        let mut params = params(node, until);
        if until < SystemTime::now() {
            params.not_before = (until - SKEW).into();
        }
        let name = node.try_into().map_err(|error| failed(&tried, error))?;
        params.subject_alt_names = vec![rcgen::SanType::DnsName(name)];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().map_err(|error| failed(&tried, error))?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(|error| failed(&tried, error))?;
        Ok(NodeCredentials { authority: self.pem.clone(), certificate: certificate.pem(), key: key.serialize_pem() })
    }
}

/// The certificates and the key of one node, as PEM text. The key is private: keep it from logs, command lines and
/// other users.
#[derive(Clone)]
pub struct NodeCredentials {
    /// The certificate of the one authority that this node trusts.
    pub authority: String,
    /// The node's certificate. If there are certificates between it and the authority, they follow.
    pub certificate: String,
    /// The node's private key.
    pub key: String,
}

impl std::fmt::Debug for NodeCredentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Papers { .. }")
    }
}

impl NodeCredentials {
    /// Reads the files `authority.pem`, `node.pem` and `node.key` from a folder.
    ///
    /// # Errors
    /// A file is missing, or users other than the owner may read or change the key.
    pub fn load(folder: &Path) -> Result<Self> {
        let read = |file: &str| {
            let path = folder.join(file);
            let tried = format!("read {}", path.display());
            let text = std::fs::read_to_string(&path);
            text.map_err(|error| {
                failed(&tried, error).hint("the folder of --certificates holds authority.pem, node.pem and node.key")
            })
        };
        let key_path = folder.join(FILES[2]);
        let key = read(FILES[2])?;
        let tried = format!("read {}", key_path.display());
        let mode = std::fs::metadata(&key_path).map_err(|error| failed(&tried, error))?.permissions().mode();
        if mode & 0o077 != 0 {
            let reason = format!("others may read or change the private key (mode {:o})", mode & 0o777);
            return Err(Error::new(Status::Denied, tried, reason).hint("chmod 600 the key"));
        }
        Ok(Self { authority: read(FILES[0])?, certificate: read(FILES[1])?, key })
    }

    /// Writes the files `authority.pem`, `node.pem` and `node.key` into an existing folder. The files must not exist
    /// yet. Only this user can read the key.
    ///
    /// # Errors
    /// One of the files exists already, or cannot be written.
    pub fn save(&self, folder: &Path) -> Result<()> {
        for (file, text, mode) in
            [(FILES[0], &self.authority, 0o644), (FILES[1], &self.certificate, 0o644), (FILES[2], &self.key, 0o600)]
        {
            let path = folder.join(file);
            let mut options = std::fs::OpenOptions::new();
            options.write(true).create_new(true).mode(mode);
            let written = options.open(&path).and_then(|mut file| file.write_all(text.as_bytes()));
            written.map_err(|error| failed(&format!("write {}", path.display()), error))?;
        }
        Ok(())
    }
}

/// The name of HTTP/2 as an application protocol (ALPN) in the TLS handshake.
pub(crate) const HTTP2: &[u8] = b"h2";

/// A node's credentials, checked and ready to be used for connections.
pub struct Certificates {
    pub(crate) client: Arc<ClientConfig>,
    /// The same configuration as `client`, but for connections that carry HTTP/2.
    #[cfg(feature = "grpc")]
    pub(crate) client_of_http2: Arc<ClientConfig>,
    pub(crate) server: Arc<ServerConfig>,
}

impl std::fmt::Debug for Certificates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Certificates { .. }")
    }
}

impl Certificates {
    /// Checks the credentials, and prepares them for connections.
    ///
    /// # Errors
    /// A text is not PEM, or the key does not belong to the certificate, or the authority's certificate cannot serve as
    /// a trust anchor.
    pub fn new(credentials: &NodeCredentials) -> Result<Self> {
        let tried = "use certificates";
        let wrong = |what: &str, error: &dyn std::fmt::Display| failed(tried, format!("{what}: {error}"));
        let authority = CertificateDer::from_pem_slice(credentials.authority.as_bytes())
            .map_err(|error| wrong("the authority's certificate", &error))?;
        let chain: Vec<_> = CertificateDer::pem_slice_iter(credentials.certificate.as_bytes())
            .collect::<std::result::Result<_, _>>()
            .map_err(|error| wrong("the node's certificate", &error))?;
        let key = PrivateKeyDer::from_pem_slice(credentials.key.as_bytes())
            .map_err(|error| wrong("the node's private key", &error))?;
        let mut roots = RootCertStore::empty();
        roots.add(authority).map_err(|error| wrong("the authority's certificate", &error))?;
        let roots = Arc::new(roots);
        let provider = Arc::new(ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone())
            .build()
            .map_err(|error| wrong("the authority's certificate", &error))?;
        let mut server = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| failed(tried, error))?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain.clone(), key.clone_key())
            .map_err(|error| wrong("the node's certificate and key", &error))?;
        // TLS sessions are not resumed, so no secrets of former connections are kept. A full handshake takes only a
        // millisecond.
        server.send_tls13_tickets = 0;
        server.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
        let mut client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| failed(tried, error))?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)
            .map_err(|error| wrong("the node's certificate and key", &error))?;
        client.resumption = rustls::client::Resumption::disabled();
        // A client that carries HTTP/2 asks for it in the TLS handshake. All other clients ask for no protocol.
        server.alpn_protocols = vec![HTTP2.to_vec()];
        #[cfg(feature = "grpc")]
        let client_of_http2 = {
            let mut config = client.clone();
            config.alpn_protocols = vec![HTTP2.to_vec()];
            Arc::new(config)
        };
        Ok(Self {
            client: Arc::new(client),
            #[cfg(feature = "grpc")]
            client_of_http2,
            server: Arc::new(server),
        })
    }
}

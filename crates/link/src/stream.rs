//! The interface between the messages and the network: streams of bytes, and the transports that make them.

use crate::Result;
use crossdock_layout::name;
use crossdock_os::Deadline;
use std::sync::Arc;

/// Bytes in both directions, in order. One thread may read while another one writes. Two readers take turns, and so do
/// two writers.
///
/// After an error the stream is useless, also if a deadline passed in the middle of a write: close it.
pub trait Stream: Send + Sync + std::fmt::Debug {
    /// Reads at least one byte into `buffer`, which is not empty. 0 means that the peer ended the stream in order.
    ///
    /// # Errors
    /// `TimedOut` if the deadline passed first (then no byte was read, and the stream can still be used),
    /// `Disconnected` if the connection broke or ended without a farewell, `Corrupt` or `Denied` if TLS refuses the
    /// peer's bytes.
    fn read(&self, buffer: &mut [u8], deadline: Deadline) -> Result<usize>;

    /// Writes all of these parts in order.
    ///
    /// # Errors
    /// `TimedOut` if the deadline passed first, `Disconnected` if the connection broke.
    fn write(&self, parts: &[&[u8]], deadline: Deadline) -> Result<()>;

    /// Tells the peer that no more bytes follow, and ends the stream in both directions. Reads and writes of other
    /// threads end.
    fn close(&self);

    /// The peer's address, for error messages.
    fn address(&self) -> &str;

    /// Does the transport protect the bytes against changes on the way? Then checksums are not needed.
    fn is_protected(&self) -> bool;

    /// May the peer be the node of this name? Under TLS the peer's certificate must have that name. In plain text the
    /// answer is always yes.
    fn may_be(&self, node: &str) -> bool;

    /// Fills `buffer`.
    ///
    /// # Errors
    /// Reads until the buffer is full. The errors are those of [`Self::read`]; `Disconnected` also if the stream ends
    /// before.
    fn read_all(&self, buffer: &mut [u8], deadline: Deadline) -> Result<()> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.read(&mut buffer[filled..], deadline)? {
                0 => {
                    let reason = format!("the stream ended after {filled} of {} bytes", buffer.len());
                    return Err(
                        crate::Error::new(crossdock_layout::Status::Disconnected, "read", reason).at(self.address())
                    );
                }
                n => filled += n,
            }
        }
        Ok(())
    }
}

/// Makes streams between nodes.
pub trait Transport: Send + Sync {
    /// The transport's name in `crossdock ls --nodes`.
    fn name(&self) -> &'static str;

    /// Why no better transport carries the bytes, for `crossdock ls --nodes`.
    fn why_not_better(&self) -> &'static str;

    /// Connects to the node `node` at `address` (`host:port`).
    ///
    /// # Errors
    /// No program listens there, the peer is another node or does not trust this one, or the deadline passed.
    fn dial(&self, node: &str, address: &str, deadline: Deadline) -> Result<Arc<dyn Stream>>;

    /// Listens at `address` (`host:port`; port 0 takes a free one).
    ///
    /// # Errors
    /// The address is taken, or not of this machine; or it is not a loopback address, and connections would not be
    /// protected.
    fn listen(&self, address: &str) -> Result<Box<dyn Accept>>;
}

/// Accepts connections.
pub trait Accept: Send + Sync {
    /// The next connection that arrives before the deadline. The call does not greet the peer, so a slow peer does not
    /// delay it: another thread calls [`Arriving::establish`].
    ///
    /// # Errors
    /// The system refuses, for example because no descriptors are left. A later call may succeed.
    fn accept(&self, deadline: Deadline) -> Result<Option<Box<dyn Arriving>>>;

    /// The address for other nodes to connect to.
    fn address(&self) -> String;

    /// The transport's name.
    fn transport(&self) -> &'static str;
}

/// A connection whose peer has proved nothing yet.
pub trait Arriving: Send {
    /// The address that it comes from.
    fn address(&self) -> &str;

    /// Greets the peer. Under TLS each side proves its name to the other.
    ///
    /// # Errors
    /// The peer does not prove its name, speaks another protocol, or the deadline passed.
    fn establish(self: Box<Self>, deadline: Deadline) -> Result<Arc<dyn Stream>>;
}

/// Why this text cannot be the name of a node; `None` if it can. Certificates carry the name, so it is a host name of
/// up to 63 letters, digits, `-`, `_` and `.`.
#[must_use]
pub fn bad_node_name(node: &str) -> Option<String> {
    if let Err(bad) = name::check(node) {
        return Some(bad.to_string());
    }
    if node.len() > 63 {
        return Some(format!("it has {} bytes; at most 63 are allowed", node.len()));
    }
    let odd = node.chars().find(|c| matches!(c, '/' | '+'));
    let edge = node.starts_with(['-', '.']) || node.ends_with(['-', '.']) || node.contains("..");
    let numeric = node.rsplit('.').next().is_some_and(|last| last.bytes().all(|b| b.is_ascii_digit()));
    match odd {
        Some(c) => Some(format!("it holds {c:?}; a node's name is made of letters, digits, '-', '_' and '.'")),
        None if edge => Some("it begins or ends with '-' or '.', or has two dots in a row".to_owned()),
        None if numeric => {
            Some("its last part is a number, as in an address; certificates cannot carry that".to_owned())
        }
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::bad_node_name;
    use rustls::pki_types::ServerName;

    #[test]
    fn names_of_nodes_are_those_that_certificates_carry() {
        for good in ["a", "node-1", "n_1", "login.cluster", "N7", "1a"] {
            assert_eq!(bad_node_name(good), None, "{good}");
            assert!(matches!(ServerName::try_from(good), Ok(ServerName::DnsName(_))), "{good}");
        }
        let long = "a".repeat(64);
        for bad in ["", "a/b", "a+b", "7", "10.0.0.1", "-a", "a-", ".a", "a..b", "a b", "ä", &long] {
            assert!(bad_node_name(bad).is_some(), "{bad}");
        }
    }
}

//! The interface between the messages and the network: streams of bytes, and the transports that make them.

use crate::Result;
use crossdock_layout::name;
use crossdock_os::Deadline;
use std::sync::Arc;

/// Carries bytes in both directions, in the order in which they were written. One thread may read while another thread
/// writes. If two threads read, the second one waits until the first one has read. The same holds for two writers.
///
/// After an error the stream cannot be used any more: close it. A deadline that passes in the middle of a write is such
/// an error. The errors after which the stream can still be used are named at the functions.
pub trait Stream: Send + Sync + std::fmt::Debug {
    /// Reads at least one byte into `buffer`, which is not empty. 0 means that the peer ended the stream properly.
    ///
    /// # Errors
    /// `TimedOut` if the deadline passed first; then no byte was read, and the stream can still be used. `Disconnected`
    /// if the connection broke, or ended before the peer said that no more bytes follow. `Corrupt` or `Denied` if TLS
    /// refuses the peer's bytes.
    fn read(&self, buffer: &mut [u8], deadline: Deadline) -> Result<usize>;

    /// Writes all parts, one after another. No bytes of another writer come between them.
    ///
    /// # Errors
    /// `Busy` if other threads were still writing at the deadline; then no byte was written, and the stream can still
    /// be used. `TimedOut` if the deadline passed in the middle of the write, `Disconnected` if the connection broke.
    fn write(&self, parts: &[&[u8]], deadline: Deadline) -> Result<()>;

    /// Tells the peer that no more bytes follow, and ends the stream in both directions. If other threads wait in a
    /// read or a write of this stream, these calls return.
    fn close(&self);

    /// The peer's address, for error messages.
    fn address(&self) -> &str;

    /// The name of the transport that carries this stream.
    fn transport(&self) -> &'static str;

    /// Tells whether the transport protects the bytes against changes on the way. If it does, no checksums are needed.
    fn is_protected(&self) -> bool;

    /// Tells whether the peer may be the node of this name. Under TLS the peer's certificate must have this name. In
    /// plain text the answer is always yes.
    fn may_be(&self, node: &str) -> bool;

    /// Reads until `buffer` is full.
    ///
    /// # Errors
    /// The errors of [`Self::read`], and `Disconnected` if the stream ends before `buffer` is full.
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

    /// Tells why this node has no better transport than this one, for `crossdock ls --nodes`.
    fn why_not_better(&self) -> &'static str;

    /// Connects to the node `node`, which listens at `address` (`host:port`).
    ///
    /// # Errors
    /// No program listens at the address. The peer is another node, or does not trust this one. The deadline passed.
    fn dial(&self, node: &str, address: &str, deadline: Deadline) -> Result<Arc<dyn Stream>>;

    /// Listens at `address` (`host:port`; port 0 takes a free one).
    ///
    /// # Errors
    /// The address is in use, or does not belong to this machine. Without protection: it is not a loopback address.
    fn listen(&self, address: &str) -> Result<Box<dyn Accept>>;
}

/// Accepts connections.
pub trait Accept: Send + Sync {
    /// Waits for the next connection until the deadline. The call does not greet the peer, so a slow peer does not
    /// delay this call. Another thread calls [`Arriving::establish`].
    ///
    /// # Errors
    /// The system refuses, for example because no descriptors are left. A later call may succeed.
    fn accept(&self, deadline: Deadline) -> Result<Option<Box<dyn Arriving>>>;

    /// The address to which other nodes connect.
    fn address(&self) -> String;
}

/// A connection that has arrived, before its peer has proved its name.
pub trait Arriving: Send {
    /// The address that the connection comes from.
    fn address(&self) -> &str;

    /// Greets the peer. Under TLS each side proves its name to the other.
    ///
    /// # Errors
    /// The peer does not prove its name, or speaks another protocol, or the deadline passed.
    fn establish(self: Box<Self>, deadline: Deadline) -> Result<Arc<dyn Stream>>;
}

/// Tells why this text cannot be the name of a node; `None` if it can. A name must be a host name of up to 63 letters,
/// digits, `-`, `_` and `.`, because certificates carry it.
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

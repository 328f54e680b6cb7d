//! The seam between what is said and how it travels: streams of bytes, and what makes them.

use crate::Result;
use crossdock_layout::name;
use crossdock_os::Deadline;
use std::sync::Arc;

/// Bytes both ways, in order. One thread may read while another one writes; two readers take turns, and so do two writers.
///
/// Whatever fails, a passed deadline in the middle of a write included, leaves the stream useless: close it.
pub trait Stream: Send + Sync + std::fmt::Debug {
    /// Takes at least one byte into `buffer`, which is not empty; 0 says that the peer ended the stream in order.
    ///
    /// # Errors
    /// `TimedOut` when the deadline passes first (nothing was taken, the stream is fine), `Disconnected` when the connection
    /// broke or was cut short, `Corrupt` or `Denied` when TLS refuses what came.
    fn read(&self, buffer: &mut [u8], deadline: Deadline) -> Result<usize>;

    /// Writes all of these parts, one after the other.
    ///
    /// # Errors
    /// `TimedOut` when the deadline passes first, `Disconnected` when the connection broke.
    fn write(&self, parts: &[&[u8]], deadline: Deadline) -> Result<()>;

    /// Tells the peer that nothing follows, then ends the stream in both directions. Reads and writes of other threads end.
    fn close(&self);

    /// The peer's address, for messages.
    fn address(&self) -> &str;

    /// Are the bytes protected against changes on the way, so that checksums are a waste?
    fn is_protected(&self) -> bool;

    /// May the peer be the node of this name? Under TLS: does its certificate say so? In plain text: always.
    fn may_be(&self, node: &str) -> bool;

    /// Fills `buffer`.
    ///
    /// # Errors
    /// As [`Self::read`]; `Disconnected` also when the stream ends before the buffer is full.
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
    /// What `crossdock ls --nodes` calls it.
    fn name(&self) -> &'static str;

    /// Connects to the node `node` at `address` (`host:port`).
    ///
    /// # Errors
    /// It is not there, is not that node, does not trust this one, or the deadline passed.
    fn dial(&self, node: &str, address: &str, deadline: Deadline) -> Result<Arc<dyn Stream>>;

    /// Listens at `address` (`host:port`; port 0 takes a free one).
    ///
    /// # Errors
    /// The address is taken or not of this machine, or is not a loopback address and nothing protects the connections.
    fn listen(&self, address: &str) -> Result<Box<dyn Accept>>;
}

/// Takes the connections that arrive.
pub trait Accept: Send + Sync {
    /// The next one that arrives before the deadline. It costs the caller no wait: greeting the peer is
    /// [`Arriving::establish`], for another thread.
    ///
    /// # Errors
    /// The system refuses, for want of descriptors for example. A later call may succeed.
    fn accept(&self, deadline: Deadline) -> Result<Option<Box<dyn Arriving>>>;

    /// The address that others connect to.
    fn address(&self) -> String;

    /// The transport's name.
    fn transport(&self) -> &'static str;
}

/// A connection that arrived and has proved nothing yet.
pub trait Arriving: Send {
    /// Where it comes from.
    fn address(&self) -> &str;

    /// Greets the peer: under TLS, proves each to the other.
    ///
    /// # Errors
    /// The peer proves nothing, speaks something else, or the deadline passed.
    fn establish(self: Box<Self>, deadline: Deadline) -> Result<Arc<dyn Stream>>;
}

/// Why this is no node's name; `None` if it is one: a host name of up to 63 letters, digits, `-`, `_` and `.`, because
/// certificates carry it.
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

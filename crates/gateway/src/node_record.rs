//! [`NodeRecord`]: a node as its entry in the catalog describes it.

use crossdock_link::bad_node_name;

/// The highest number of a node. Segment ids have twelve bits for the node's number.
pub const NUMBERS: u64 = 4095;

/// A node of the site, with the address of its daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRecord {
    /// The node's name.
    pub node: String,
    /// The node's number.
    pub number: u64,
    /// A number that the daemon chose when it started. A restarted broker of the same daemon has the same token.
    pub token: u64,
    /// The address where the node's daemon listens; empty if it does not listen.
    pub address: String,
}

impl NodeRecord {
    /// Writes the value of the node's entry: `1 NUMBER TOKEN ADDRESS`. The first word is the version of this format.
    pub(crate) fn value(&self) -> Vec<u8> {
        format!("1 {} {:x} {}", self.number, self.token, self.address).into_bytes()
    }

    /// Reads the value of an entry that another node wrote.
    pub(crate) fn read(node: &str, value: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(value).ok()?;
        let mut words = text.splitn(4, ' ');
        if words.next()? != "1" || bad_node_name(node).is_some() {
            return None;
        }
        let number = words.next()?.parse().ok().filter(|number| (1..=NUMBERS).contains(number))?;
        let token = u64::from_str_radix(words.next()?, 16).ok()?;
        let address = words.next()?;
        let printable = address.len() <= 255 && address.chars().all(|c| c.is_ascii_graphic());
        printable.then(|| Self { node: node.to_owned(), number, token, address: address.to_owned() })
    }
}

impl std::fmt::Display for NodeRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.address.is_empty() { f.write_str(&self.node) } else { write!(f, "{} ({})", self.node, self.address) }
    }
}

#[cfg(test)]
mod tests {
    use super::NodeRecord;

    #[test]
    fn a_place_comes_back_as_it_was_written_and_other_bytes_are_none() {
        let place = NodeRecord { node: "n1".into(), number: 7, token: 0xfeed, address: "127.0.0.1:7".into() };
        assert_eq!(NodeRecord::read("n1", &place.value()), Some(place.clone()));
        let without = NodeRecord { address: String::new(), ..place };
        assert_eq!(NodeRecord::read("n1", &without.value()), Some(without));
        for bad in ["", "1", "1 0 1 a", "1 4096 1 a", "2 1 1 a", "1 1 x a", "1 1 1", "1 1 1 a b", "1 1 1 a\n"] {
            assert_eq!(NodeRecord::read("n1", bad.as_bytes()), None, "{bad:?}");
        }
        assert_eq!(NodeRecord::read("a/b", b"1 1 1 "), None);
        assert_eq!(NodeRecord::read("n1", &[0xff]), None);
    }
}

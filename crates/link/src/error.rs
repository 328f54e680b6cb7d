//! What a call about another node failed with: data until the edge prints it.

use crossdock_layout::Status;

/// A failed call: what was tried, with which node, at which address, why, and a hint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// Why, as a number.
    pub status: Status,
    /// What was tried: `pull 4096 bytes of item 7`.
    pub tried: String,
    /// The node's name, if one is known.
    pub node: Option<String>,
    /// Its address, if one is known.
    pub address: Option<String>,
    /// Why, for people.
    pub reason: String,
    /// What to do about it.
    pub hint: &'static str,
}

/// What the functions of this crate return.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error without a peer or a hint.
    pub fn new(status: Status, tried: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { status, tried: tried.into(), node: None, address: None, reason: reason.into(), hint: "" }
    }

    /// Names the peer, where the error does not name one yet.
    #[must_use]
    pub fn with(mut self, node: &str, address: &str) -> Self {
        self.node.get_or_insert_with(|| node.to_owned());
        self.address.get_or_insert_with(|| address.to_owned());
        self
    }

    /// Names the address, where the error does not name one yet.
    #[must_use]
    pub fn at(mut self, address: &str) -> Self {
        self.address.get_or_insert_with(|| address.to_owned());
        self
    }

    /// Says what to do about it.
    #[must_use]
    pub fn hint(mut self, hint: &'static str) -> Self {
        self.hint = hint;
        self
    }

    /// Says what was tried on the whole, in place of the part of it that failed.
    #[must_use]
    pub fn trying(mut self, tried: impl Into<String>) -> Self {
        self.tried = tried.into();
        self
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.tried)?;
        match (&self.node, &self.address) {
            (Some(node), Some(address)) => write!(f, ", node '{node}' at {address}")?,
            (Some(node), None) => write!(f, ", node '{node}'")?,
            (None, Some(address)) => write!(f, ", {address}")?,
            (None, None) => {}
        }
        write!(f, ": {}", self.reason)?;
        if self.hint.is_empty() { Ok(()) } else { write!(f, "; {}", self.hint) }
    }
}

impl std::error::Error for Error {}

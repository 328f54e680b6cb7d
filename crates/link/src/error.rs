//! The error of a call about another node. The error has fields, and becomes text only when a program prints it.

use crossdock_layout::Status;

/// A failed call: what the caller tried, with which node, at which address, why it failed, and a hint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The kind of failure.
    pub status: Status,
    /// What the caller tried: `pull 4096 bytes of item 7`.
    pub tried: String,
    /// The node's name, if it is known.
    pub node: Option<String>,
    /// The node's address, if it is known.
    pub address: Option<String>,
    /// The reason, as text for people.
    pub reason: String,
    /// What the user can do about it.
    pub hint: &'static str,
}

/// The result of the functions of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Makes an error without a peer or a hint.
    pub fn new(status: Status, tried: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { status, tried: tried.into(), node: None, address: None, reason: reason.into(), hint: "" }
    }

    /// Adds the peer's name and address, unless the error has them already.
    #[must_use]
    pub fn with(mut self, node: &str, address: &str) -> Self {
        self.node.get_or_insert_with(|| node.to_owned());
        self.address.get_or_insert_with(|| address.to_owned());
        self
    }

    /// Adds the peer's address, unless the error has one already.
    #[must_use]
    pub fn at(mut self, address: &str) -> Self {
        self.address.get_or_insert_with(|| address.to_owned());
        self
    }

    /// Adds what the user can do about the error.
    #[must_use]
    pub fn hint(mut self, hint: &'static str) -> Self {
        self.hint = hint;
        self
    }

    /// Replaces the text of what was tried. The new text names a larger step, which contains the step that failed.
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

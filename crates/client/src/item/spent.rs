//! Why an [`Item`](super::Item) has no item any more. The text is made only when a later call on the value fails,
//! because the next owner of a cooperative item waits while the former owner's call returns.

use crossdock_layout::Status;
use crossdock_layout::wire::Party;

use crate::Error;

#[derive(Debug)]
pub(super) enum SpentReason {
    /// The item was transferred to this party.
    Transferred(Party),
    Destroyed,
    /// The owner has shared the item.
    Shared,
    /// A call that gives the item another size is not complete.
    Resizing,
    /// The item could not be opened again after a request had failed.
    NotOpened(Error),
    /// The value was dropped.
    Closed,
}

impl SpentReason {
    /// The error of a later call on the value. `key` is the item's key.
    #[cold]
    pub(super) fn error(&self, key: &str) -> Error {
        let what = match self {
            Self::Transferred(to) => format!("was transferred to {to}"),
            Self::Destroyed => "was destroyed".to_owned(),
            Self::Shared => "is shared".to_owned(),
            Self::Resizing => "is being resized".to_owned(),
            Self::NotOpened(error) => format!("could not be opened again: {error}"),
            Self::Closed => "was closed".to_owned(),
        };
        Error::new(Status::Closed, format!("item '{key}' {what}"))
    }
}

//! Requests and answers about items. `docs/wire-protocol.md` has tables of them.

mod answer;
mod party;
mod request;
#[cfg(test)]
pub(super) mod tests;

pub use answer::{ItemEntry, ItemGiven};
pub use party::Party;
pub use request::{ItemRequest, KEYS_PER_MESSAGE};

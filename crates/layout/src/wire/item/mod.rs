//! Requests and answers about items; drawn in `docs/wire-protocol.md`.

mod answer;
mod kinds;
mod party;
mod request;
#[cfg(test)]
pub(super) mod tests;

use super::cursor::{Malformed, Reader};
use crate::SegmentId;

pub use answer::{ItemEntry, ItemGiven};
pub use kinds::{ItemLevel, ItemState, OnDeath};
pub use party::Party;
pub use request::{ItemRequest, KEYS_PER_MESSAGE};

fn item(r: &mut Reader<'_>) -> Result<SegmentId, Malformed> {
    r.u64().map(SegmentId)
}

fn level(r: &mut Reader<'_>) -> Result<ItemLevel, Malformed> {
    ItemLevel::from_u32(r.u32()?).ok_or(Malformed::Value("level"))
}

fn on_death(r: &mut Reader<'_>) -> Result<OnDeath, Malformed> {
    OnDeath::from_u32(r.u32()?).ok_or(Malformed::Value("on_death"))
}

fn flag(r: &mut Reader<'_>, field: &'static str) -> Result<bool, Malformed> {
    match r.u32()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Malformed::Value(field)),
    }
}

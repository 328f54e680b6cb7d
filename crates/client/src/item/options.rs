//! Options for making an item, the names of parties that can own an item, and the information about an item.

use crossdock_layout::wire::{ItemEntry, ItemLevel, ItemState, OnDeath, Party};
use crossdock_layout::{MemberId, SegmentId, Status, name};

use super::Contents;
use crate::{Error, Result};

/// Options for making an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemOptions {
    /// The number of bytes of data.
    pub size: u64,
    /// The level at which ownership of the item is proved.
    pub level: ItemLevel,
    /// What happens to the item when its owner dies or leaves.
    pub on_death: OnDeath,
    /// What the item's bytes contain.
    pub contents: Contents,
}

impl ItemOptions {
    /// Options for an item of this many plain bytes at level `verified`. If its owner dies, the item is kept until the
    /// owner is started again.
    #[must_use]
    pub const fn bytes(size: u64) -> Self {
        Self { size, level: ItemLevel::Verified, on_death: OnDeath::Keep, contents: Contents::Bytes }
    }
}

/// What the daemon tells about an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemInfo {
    /// The item's key in the workflow.
    pub key: String,
    /// The workflow that the item belongs to.
    pub workflow: String,
    /// The item's number, which no other item ever has.
    pub id: SegmentId,
    /// The number of the segment that holds the item now. The segment appears as `crossdock-item-NUMBER` in
    /// `/proc/PID/maps`.
    pub file: SegmentId,
    /// The number of bytes of data.
    pub size: u64,
    /// The owner. For a cooperative item, this is the task that made the item, because the daemon does not know the
    /// present owner.
    pub owner: Party,
    /// The task that made the item.
    pub creator: Party,
    /// The id of the member that has the item open as its owner. [`MemberId::NONE`] means that no member has the item
    /// open as its owner.
    pub holder: MemberId,
    /// The item's present state.
    pub state: ItemState,
    /// The level at which ownership of the item is proved.
    pub level: ItemLevel,
    /// What happens to the item when its owner dies or leaves.
    pub on_death: OnDeath,
    /// The milliseconds since the item got its present owner; if the daemon was restarted later, the milliseconds since
    /// the restart.
    pub since_ms: u64,
    /// The number of times that the item got another owner.
    pub transfers: u64,
    /// The number of times that the item was copied because a former user kept it open or mapped.
    pub copies: u64,
    /// The number of requests that wait for the item.
    pub waiting: u32,
    /// The number of members that read the item.
    pub readers: u32,
    /// True if the asking task owns the item.
    pub mine: bool,
}

impl From<ItemEntry> for ItemInfo {
    fn from(e: ItemEntry) -> Self {
        Self {
            key: e.key,
            workflow: e.workflow,
            id: e.item,
            file: e.file,
            size: e.size,
            owner: e.owner,
            creator: e.creator,
            holder: e.holder,
            state: e.state,
            level: e.level,
            on_death: e.on_death,
            since_ms: e.since_ms,
            transfers: e.transfers,
            copies: e.copies,
            waiting: e.waiting,
            readers: e.readers,
            mine: e.mine,
        }
    }
}

/// Parses the name of a party: `detect` (any rank of that task), `detect/3` (that rank), or `#7` (the task that
/// registers number 7).
///
/// # Errors
/// `INVALID` if the text has none of these forms.
pub fn party(text: &str) -> Result<Party> {
    if let Some(number) = text.strip_prefix('#') {
        let number = number.parse().map_err(|_| {
            Error::new(Status::Invalid, format!("'{text}' is no addressee of an item: behind # comes a number"))
        })?;
        return Ok(Party::Number(number));
    }
    name::check(text).map_err(|bad| {
        let text = format!("'{text}' is no addressee of an item: {bad}; write a task, a task/rank, or #number");
        Error::new(Status::Invalid, text)
    })?;
    if let Some((task, rank)) = text.rsplit_once('/') {
        let digits = rank.trim_start_matches(['-', '+']);
        if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) {
            return match rank.parse() {
                Ok(number) if digits.len() == rank.len() => Ok(Party::rank(task, number)),
                _ => {
                    let text = format!("'{text}' is no addressee of an item: a rank is a whole number from 0");
                    Err(Error::new(Status::Invalid, text))
                }
            };
        }
    }
    Ok(Party::task(text))
}

/// Writes a party in the form that [`party`] parses.
#[must_use]
pub fn address(party: &Party) -> String {
    match party {
        Party::Task { task, rank: None } => task.clone(),
        Party::Task { task, rank: Some(rank) } => format!("{task}/{rank}"),
        Party::Number(number) => format!("#{number}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_addressee_is_a_task_a_rank_or_a_number() {
        assert_eq!(party("detect").unwrap(), Party::task("detect"));
        assert_eq!(party("detect/3").unwrap(), Party::rank("detect", 3));
        assert_eq!(party("a/b").unwrap(), Party::task("a/b"));
        assert_eq!(party("#12").unwrap(), Party::Number(12));
        for same in ["detect", "detect/3", "a/b", "#12"] {
            assert_eq!(address(&party(same).unwrap()), same);
        }
        for bad in ["", "#", "#x", "a b", "a/", "#-1", "a/-1", "a/+1", "a/99999999999"] {
            assert_eq!(party(bad).unwrap_err().status, Status::Invalid, "{bad}");
        }
    }
}

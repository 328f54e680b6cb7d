//! Shows items for `ls`, `inspect` and `audit`.

use std::collections::BTreeMap;

use crossdock_client::{ItemInfo, ItemState, Listing, MemberId};
use crossdock_launch::file::units;
use serde_json::{Value, json};

use crate::table::columns;

/// The beginning of the name that an item's file has in `/proc`. The number of the file follows.
pub const MARK: &str = "/crossdock-item-";

fn state(item: &ItemInfo) -> &'static str {
    match item.state {
        ItemState::Held => "in use",
        ItemState::Waiting => "to be opened",
        ItemState::Shared => "shared",
        ItemState::Copying => "being copied",
    }
}

fn seconds(item: &ItemInfo) -> String {
    format!("{:.1} s", item.since_ms as f64 / 1000.0)
}

/// Writes the table of items for `ls`; `None` if there are no items.
pub fn table(l: &Listing) -> Option<String> {
    let row = |i: &ItemInfo| {
        vec![
            format!("{}/{}", i.workflow, i.key),
            units::show(i.size),
            i.level.word().to_owned(),
            i.owner.to_string(),
            seconds(i),
            state(i).to_owned(),
            i.transfers.to_string(),
            i.copies.to_string(),
            i.waiting.to_string(),
        ]
    };
    let rows: Vec<_> = l.items.iter().map(row).collect();
    let head = ["ITEM", "SIZE", "LEVEL", "OWNER", "SINCE", "STATE", "TRANSFERS", "COPIES", "WAITING"];
    (!rows.is_empty()).then(|| columns(&head, &rows))
}

/// Describes one item as JSON for programs.
pub fn json(i: &ItemInfo) -> Value {
    json!({
        "kind": "item", "workflow": i.workflow, "name": i.key, "id": i.id.0, "file": i.file.0, "size": i.size,
        "level": i.level.word(), "on_death": i.on_death.word(), "owner": i.owner.to_string(),
        "creator": i.creator.to_string(), "holder": i.holder.0, "state": state(i), "since_ms": i.since_ms,
        "transfers": i.transfers, "copies": i.copies, "waiting": i.waiting, "readers": i.readers,
    })
}

/// Describes one item as text for people.
pub fn text(i: &ItemInfo, l: &Listing) -> String {
    let holder = match l.members.iter().find(|m| m.id == i.holder) {
        Some(m) => format!("open in process {} (task {}, rank {})", m.pid, m.task, m.rank),
        None if i.holder == MemberId::NONE => "open nowhere".into(),
        None => i.holder.to_string(),
    };
    format!(
        "item {}/{} (number {}, file {}), {}, {}\n  belongs to {} since {}; {}, {holder}\n  made by {}; when its owner is gone: {}\n  \
         {} transfers, {} copies because a former user kept it open; {} requests wait for it, {} members read it",
        i.workflow,
        i.key,
        i.id.0,
        i.file.0,
        units::show(i.size),
        i.level.word(),
        i.owner,
        seconds(i),
        state(i),
        i.creator,
        i.on_death.word(),
        i.transfers,
        i.copies,
        i.waiting,
        i.readers,
    )
}

/// Maps the number of each item's file to the item's whole name.
pub fn by_file<'a>(listings: impl Iterator<Item = &'a Listing>) -> BTreeMap<u64, String> {
    listings.flat_map(|l| &l.items).map(|i| (i.file.0, format!("{}/{}", i.workflow, i.key))).collect()
}

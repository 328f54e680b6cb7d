//! Rights on items: who may own them, who may read shared ones.

use super::keys::ITEM_RIGHTS;
use super::problem::Position;
use super::reader::{Item, Notes, clip};
use super::sections::good_name;
use super::series::meet;
use super::suggest::nearest;
use super::task::words;
use super::workflow::Workflow;

/// A task's right on items whose keys fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemRight {
    /// A key, or a beginning that ends in `*`.
    pub name: String,
    /// May make it, own it and hand it on, and read it when another shares it.
    pub own: bool,
    /// May read it while its owner shares it.
    pub read: bool,
    /// For messages.
    pub position: Position,
}

pub(super) fn item_rights(item: &Item<'_>) -> Vec<ItemRight> {
    let mut rights = Vec::new();
    for (name, item) in item.entries() {
        let exact = name.strip_suffix('*').unwrap_or(&name);
        if !exact.is_empty() && !good_name(&item, exact.trim_end_matches('/')) {
            continue;
        }
        let words = words(&item, ITEM_RIGHTS);
        if !words.is_empty() {
            let (own, read) = (words.contains(&"own"), words.contains(&"read"));
            rights.push(ItemRight { name, own, read, position: item.position() });
        }
    }
    rights
}

/// Whoever reads needs somebody who owns.
pub(super) fn check(w: &Workflow, notes: &Notes) {
    let owned = || w.tasks.iter().flat_map(|t| &t.items).filter(|i| i.own).map(|i| i.name.as_str());
    for task in &w.tasks {
        for right in task.items.iter().filter(|i| i.read && !i.own) {
            if owned().any(|name| meet(name, &right.name)) {
                continue;
            }
            let mend = match nearest(&right.name, owned()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("give one task `items: {{{}: own}}`", right.name),
            };
            let key = format!("tasks.{}.items.{}", clip(&task.name), clip(&right.name));
            notes.add(right.position, &key, "nobody owns this item", mend);
        }
    }
}

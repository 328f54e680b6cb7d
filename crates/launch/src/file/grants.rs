//! Reads what a task may do with regions, ports, series and items (one parser for all four), and tells which grants
//! match.

use crossdock_layout::Rights;
use crossdock_layout::wire::{Grant, SegmentKind};

use super::problem::Position;
use super::reader::{Item, Notes, clip, list};
use super::sections::good_name;
use super::suggest::nearest;
use super::workflow::{Task, Workflow};

/// One grant of a task in the workflow file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskGrant {
    /// A name, or the beginning of a name followed by `*`.
    pub name: String,
    /// The rights that the grant's words name, and all rights that follow from them: `write` also gives the right to
    /// read.
    pub rights: Rights,
    /// The position of the grant in the file, for messages.
    pub position: Position,
}

impl TaskGrant {
    /// Tells whether the grant includes this right.
    pub fn may(&self, right: Rights) -> bool {
        self.rights.contains(right)
    }

    /// Tells whether the grant's name or pattern matches this name.
    pub fn fits(&self, name: &str) -> bool {
        match self.name.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => self.name == name,
        }
    }
}

/// The words that the workflow file may use for rights on one kind of objects, each with the rights that it gives.
pub(super) type Words = [(&'static str, Rights)];

/// The words for what a task may do with a region.
pub(super) const REGION_RIGHTS: &Words = &[
    ("create", Rights::READ.with(Rights::WRITE).with(Rights::CREATE).with(Rights::REMOVE)),
    ("write", Rights::READ.with(Rights::WRITE)),
    ("read", Rights::READ),
];
/// The words for what a task does with a port.
pub(super) const PORT_RIGHTS: &Words = &[("produce", Rights::PRODUCE), ("consume", Rights::CONSUME)];
/// The words for what a task does with a series.
pub(super) const SERIES_RIGHTS: &Words =
    &[("publish", Rights::PUBLISH.with(Rights::OBSERVE).with(Rights::REMOVE)), ("observe", Rights::OBSERVE)];
/// The words for what a task may do with an item.
pub(super) const ITEM_RIGHTS: &Words = &[("own", Rights::OWN.with(Rights::READ)), ("read", Rights::READ)];

/// Reads the grants for one kind of objects. Grants for ports have no patterns.
pub(super) fn grants(item: &Item<'_>, words: &'static Words) -> Vec<TaskGrant> {
    let mut grants = Vec::new();
    for (name, item) in item.entries() {
        // `frames/*` matches every name that begins with `frames/`, and `*` alone matches all names.
        let pattern = name.strip_suffix('*').filter(|_| !std::ptr::eq(words, PORT_RIGHTS));
        let exact = pattern.map_or(name.as_str(), |beginning| beginning.trim_end_matches('/'));
        if pattern != Some("") && !good_name(&item, exact) {
            continue;
        }
        let rights = rights(&item, words);
        if rights != Rights::NONE {
            grants.push(TaskGrant { name, rights, position: item.position() });
        }
    }
    grants
}

/// Reads the rights that one word or a list of words gives.
fn rights(item: &Item<'_>, words: &Words) -> Rights {
    let known: Vec<&'static str> = words.iter().map(|(word, _)| *word).collect();
    let given = |word: &str| words.iter().find(|(known, _)| *known == word).map_or(Rights::NONE, |(_, rights)| *rights);
    if !item.is_list() {
        return item.word(&known).map_or(Rights::NONE, given);
    }
    let items = item.list();
    if items.is_empty() {
        item.wrong("the list is empty", format!("one or more of: {}", list(known.iter().copied())));
    }
    items.iter().filter_map(|i| i.word(&known)).fold(Rights::NONE, |all, word| all.with(given(word)))
}

/// Gives the grants of a task in the form in which the daemon gets them.
pub fn of(task: &Task) -> Vec<Grant> {
    let kinds = [
        (SegmentKind::Region, &task.regions),
        (SegmentKind::Port, &task.ports),
        (SegmentKind::Series, &task.series),
        (SegmentKind::Item, &task.items),
    ];
    let one = |kind, grant: &TaskGrant| Grant { pattern: grant.name.clone(), kind, rights: grant.rights };
    kinds.into_iter().flat_map(|(kind, grants)| grants.iter().map(move |grant| one(kind, grant))).collect()
}

/// Tells whether there is a name that matches both patterns.
fn meet(one: &str, other: &str) -> bool {
    match (one.strip_suffix('*'), other.strip_suffix('*')) {
        (None, None) => one == other,
        (Some(beginning), None) => other.starts_with(beginning),
        (None, Some(beginning)) => one.starts_with(beginning),
        (Some(one), Some(other)) => one.starts_with(other) || other.starts_with(one),
    }
}

/// Checks that each series with an observer has a publisher, and that each item with a reader has an owner.
pub(super) fn check(w: &Workflow, notes: &Notes) {
    giver(w, notes, "series", |task| &task.series, (Rights::PUBLISH, "publish"), "no task publishes this series");
    giver(w, notes, "items", |task| &task.items, (Rights::OWN, "own"), "no task owns this item");
}

fn giver(
    w: &Workflow,
    notes: &Notes,
    noun: &str,
    of: impl Fn(&Task) -> &Vec<TaskGrant>,
    (needed, word): (Rights, &str),
    what: &str,
) {
    let all: Vec<_> = w.tasks.iter().flat_map(|task| of(task).iter().map(move |grant| (task, grant))).collect();
    let given = || all.iter().filter(|(_, grant)| grant.may(needed)).map(|(_, grant)| grant.name.as_str());
    for (task, grant) in all.iter().filter(|(_, grant)| !grant.may(needed)) {
        if given().any(|name| meet(name, &grant.name)) {
            continue;
        }
        let hint = match nearest(&grant.name, given()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("give one task `{noun}: {{{}: {word}}}`", grant.name),
        };
        let key = format!("tasks.{}.{noun}.{}", clip(&task.name), clip(&grant.name));
        notes.add(grant.position, &key, what, hint);
    }
}

#[cfg(test)]
mod tests {
    use super::meet;

    #[test]
    fn patterns_meet_when_a_name_could_fit_both() {
        assert!(meet("field/*", "field/3") && meet("field/3", "field/*") && meet("*", "field/*") && meet("a", "a"));
        assert!(!meet("field/*", "fields") && !meet("a*", "b*") && !meet("a", "b"));
    }
}

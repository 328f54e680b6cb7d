//! Rights on series: who publishes, who observes, and whether they fit together.

use super::keys::SERIES_RIGHTS;
use super::problem::Position;
use super::reader::{Item, Notes, clip};
use super::sections::good_name;
use super::suggest::nearest;
use super::task::words;
use super::workflow::Workflow;

/// A task's right on series whose names fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeriesRight {
    /// A name, or a beginning that ends in `*`.
    pub name: String,
    /// May publish it, and observe what was published before.
    pub publish: bool,
    /// May observe it.
    pub observe: bool,
    /// For messages.
    pub position: Position,
}

pub(super) fn series_rights(item: &Item<'_>) -> Vec<SeriesRight> {
    let mut rights = Vec::new();
    for (name, item) in item.entries() {
        let exact = name.strip_suffix('*').unwrap_or(&name);
        if !exact.is_empty() && !good_name(&item, exact.trim_end_matches('/')) {
            continue;
        }
        let words = words(&item, SERIES_RIGHTS);
        if !words.is_empty() {
            let (publish, observe) = (words.contains(&"publish"), words.contains(&"observe"));
            rights.push(SeriesRight { name, publish, observe, position: item.position() });
        }
    }
    rights
}

/// Could a name fit both patterns?
pub(super) fn meet(one: &str, other: &str) -> bool {
    match (one.strip_suffix('*'), other.strip_suffix('*')) {
        (None, None) => one == other,
        (Some(beginning), None) => other.starts_with(beginning),
        (None, Some(beginning)) => one.starts_with(beginning),
        (Some(one), Some(other)) => one.starts_with(other) || other.starts_with(one),
    }
}

/// Whoever observes needs somebody who publishes.
pub(super) fn check(w: &Workflow, notes: &Notes) {
    let published = || w.tasks.iter().flat_map(|t| &t.series).filter(|s| s.publish).map(|s| s.name.as_str());
    for task in &w.tasks {
        for right in task.series.iter().filter(|s| s.observe && !s.publish) {
            if published().any(|name| meet(name, &right.name)) {
                continue;
            }
            let mend = match nearest(&right.name, published()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("give one task `series: {{{}: publish}}`", right.name),
            };
            let key = format!("tasks.{}.series.{}", clip(&task.name), clip(&right.name));
            notes.add(right.position, &key, "nobody publishes this series", mend);
        }
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

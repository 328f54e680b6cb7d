//! Finds tasks and managed directories that would wait for each other for ever.
//!
//! A task with `after:` waits for the end of the named tasks. A consumer of a directory with `publish: end` waits for
//! the end of the producers. If a producer cannot end before its consumer has ended, the consumer never gets a file, so
//! such a workflow is an error. A cycle of directories that publish each file as soon as it is finished is allowed,
//! because two coupled codes that feed each other are usual. If a workflow has such a cycle, the user gets a note
//! before the run starts, because each task of the cycle may wait for a file of the next task.

use std::collections::{BTreeSet, HashMap, VecDeque};

use super::directories::Directory;
use super::reader::{Notes, clip};
use super::workflow::{Task, Workflow};

/// The value of the key `publish` for files that are published when the producers have ended.
const END: &str = "end";

pub(super) fn check(w: &Workflow, notes: &Notes) {
    for d in &w.directories {
        let pairs = d.consume.iter().flat_map(|c| d.produce.iter().map(move |p| (c, p)));
        for (consumer, producer) in pairs.filter(|(consumer, producer)| consumer != producer) {
            let Some(trail) = trail(w, d, producer, consumer) else { continue };
            let chain = trail.iter().map(|name| format!("`{}`", clip(name))).collect::<Vec<_>>().join(" → ");
            let what = format!(
                "a cycle: `{}` waits for files of `{}`, and each of these tasks for the end of the next: {chain}",
                clip(consumer),
                clip(producer)
            );
            let hint = "take a task out of `after:` or `consume:`, or replace `publish: end` by `publish: close`";
            notes.add(d.position, &format!("files.{}.consume", clip(&d.name)), what, hint);
        }
    }
}

/// Finds the cycles in which each task reads files that the next task writes, and describes each cycle in one line.
#[must_use]
pub fn circles(w: &Workflow) -> Vec<String> {
    let producers = |task: &Task| -> Vec<&str> {
        let read = w.directories.iter().filter(|d| d.consume.contains(&task.name));
        read.flat_map(|d| d.produce.iter().map(String::as_str)).collect()
    };
    let (mut known, mut lines) = (BTreeSet::new(), Vec::new());
    for d in &w.directories {
        let pairs = d.consume.iter().flat_map(|c| d.produce.iter().map(move |p| (c, p)));
        for (consumer, producer) in pairs.filter(|(consumer, producer)| consumer != producer) {
            let chain = chain(w, producer, consumer, |task| {
                let names = producers(task);
                w.tasks.iter().map(|t| t.name.as_str()).filter(|name| names.contains(name)).collect()
            });
            let Some(chain) = chain else { continue };
            if !known.insert(chain.iter().copied().collect::<BTreeSet<_>>()) {
                continue;
            }
            let names = [consumer.as_str()].into_iter().chain(chain).map(|name| format!("`{}`", clip(name)));
            let names = names.collect::<Vec<_>>().join(" → ");
            lines.push(format!(
                "note: managed directories form a cycle, in which each task reads files of the next one: {names}. If each \
                 of these tasks waits for a file of the next one, the waits end only after the time `wait` (line {})",
                d.position.line
            ));
        }
    }
    lines
}

/// Finds a chain of tasks from the producer to the consumer, in which each task waits for the end of the next task.
/// Gives `None` if there is no such chain.
fn trail<'w>(w: &'w Workflow, d: &Directory, producer: &'w str, consumer: &str) -> Option<Vec<&'w str>> {
    chain(w, producer, consumer, |task| {
        // Unless `publish` is `end`, the producer publishes files while it runs. So the consumer waits only for the
        // start of the producer, which is delayed only by the tasks in the producer's `after:`.
        let may_give = task.name == producer && d.publish != END;
        let ends = if may_give { Vec::new() } else { ends_of_producers(w, task) };
        task.after.iter().map(String::as_str).chain(ends).collect()
    })
}

/// Finds a shortest chain of tasks that begins with `from` and ends with `to`; `None` if there is no chain. `steps` gives
/// the tasks that may follow a task in the chain.
pub(super) fn chain<'w>(
    w: &'w Workflow,
    from: &'w str,
    to: &str,
    steps: impl Fn(&'w Task) -> Vec<&'w str>,
) -> Option<Vec<&'w str>> {
    let mut before: HashMap<&str, &str> = HashMap::new();
    let mut open = VecDeque::from([from]);
    while let Some(name) = open.pop_front() {
        let Some(task) = w.tasks.iter().find(|task| task.name == name) else { continue };
        for next in steps(task) {
            if next == to {
                let mut chain = vec![next, name];
                while let Some(name) = before.get(chain[chain.len() - 1]) {
                    chain.push(name);
                }
                chain.reverse();
                return Some(chain);
            }
            if next != from && !before.contains_key(next) {
                before.insert(next, name);
                open.push_back(next);
            }
        }
    }
    None
}

/// Gives the tasks for whose end this task waits as a consumer.
fn ends_of_producers<'w>(w: &'w Workflow, task: &Task) -> Vec<&'w str> {
    let waited = w.directories.iter().filter(|d| d.publish == END && d.consume.contains(&task.name));
    waited.flat_map(|d| d.produce.iter().map(String::as_str)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn circles_of(files: &str) -> Vec<String> {
        let tasks = ["a", "b", "c", "d"].map(|name| format!("  {name}: {{command: [x]}}\n")).concat();
        let text = format!("workflow: w\nfiles:\n{files}tasks:\n{tasks}");
        circles(&crate::file::parse(Path::new("w.yaml"), &text).unwrap())
    }

    #[test]
    fn tasks_that_read_each_others_directories_get_one_note_for_each_cycle() {
        let lines = circles_of("  f: {path: /f, produce: a, consume: b}\n  g: {path: /g, produce: b, consume: a}\n");
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].contains("each task reads files of the next one: `b` → `a` → `b`. If"), "{lines:?}");
        assert!(lines[0].ends_with("(line 3)"), "{lines:?}");
        let three = "  f: {path: /f, produce: a, consume: b}\n  g: {path: /g, produce: b, consume: [c, d]}\n  \
                     h: {path: /h, produce: c, consume: a}\n";
        let lines = circles_of(three);
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].contains(": `b` → `a` → `c` → `b`. If"), "{lines:?}");
    }

    #[test]
    fn a_chain_of_directories_and_a_directory_that_several_tasks_read_and_write_are_no_cycle() {
        let chain = "  f: {path: /f, produce: [a, b], consume: [c]}\n  g: {path: /g, produce: [a, c], consume: d}\n";
        assert_eq!(circles_of(chain), Vec::<String>::new());
    }
}

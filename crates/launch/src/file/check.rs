//! Checks that need the whole workflow: which task waits for which, and which tasks produce, consume and create the
//! shared objects.
//!
//! `after:` alone, and `after:` together with ports, must not form a cycle: the tasks of such a cycle would wait for
//! each other for ever. Ports alone may form a cycle, because two coupled codes that feed each other are usual.

use crossdock_layout::Rights;
use crossdock_layout::queue::{MAX_CONSUMERS, MAX_PRODUCERS, Pattern};
use std::collections::HashSet;

use crate::engine;

use super::cycles::chain;
use super::reader::{Notes, clip, list};
use super::suggest::nearest;
use super::workflow::{Files, Port, Processors, Task, Workflow};

/// The most producers that a port can have.
const PRODUCERS_MAX: u32 = MAX_PRODUCERS as u32;
const CONSUMERS_MAX: u32 = MAX_CONSUMERS as u32;

/// Checks the workflow and adds its problems to `notes`. Adds to `w.ports` each port that a task names and that has no
/// settings in the file.
pub fn check(w: &mut Workflow, notes: &Notes) {
    complete_ports(w);
    after(w, notes);
    ports(w, notes);
    regions(w, notes);
    super::grants::check(w, notes);
    super::placement::check(w, notes);
    super::directories::check(w, notes);
    super::cycles::check(w, notes);
    for task in &w.tasks {
        processors(task, notes);
        image_engine(w, task, notes);
    }
}

fn complete_ports(w: &mut Workflow) {
    for right in w.tasks.iter().flat_map(|t| &t.ports) {
        if !w.ports.iter().any(|p| p.name == right.name) {
            w.ports.push(Port { name: right.name.clone(), pattern: Pattern::OneToOne, capacity: 8, declared: None });
        }
    }
}

fn path(task: &Task, key: &str) -> String {
    format!("tasks.{}.{key}", clip(&task.name))
}

fn after(w: &Workflow, notes: &Notes) {
    let mut unknown = false;
    for task in &w.tasks {
        for name in &task.after {
            let key = path(task, "after");
            if *name == task.name {
                notes.add(task.position, &key, "the task waits for itself", "remove its own name");
                unknown = true;
            } else if !w.tasks.iter().any(|t| t.name == *name) {
                let names = || w.tasks.iter().map(|t| t.name.as_str());
                let hint = match nearest(name, names()) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("tasks of this file: {}", list(names())),
                };
                notes.add(task.position, &key, format!("there is no task `{}`", clip(name)), hint);
                unknown = true;
            }
        }
    }
    if unknown {
        return;
    }
    if let Some(cycle) = cycle(w) {
        let task = &w.tasks[cycle[0]];
        let mut names: Vec<&str> = cycle.iter().map(|i| w.tasks[*i].name.as_str()).collect();
        names.push(names[0]);
        let what = format!("a cycle: {} — each waits for the end of the next", names.join(" → "));
        notes.add(task.position, &path(task, "after"), what, "take one of them out of `after:`");
    }
}

/// Finds the first cycle of tasks that wait for each other by `after:`, as indexes of the tasks.
fn cycle(w: &Workflow) -> Option<Vec<usize>> {
    let index = |name: &str| w.tasks.iter().position(|t| t.name == name);
    let mut done = vec![false; w.tasks.len()];
    for start in 0..w.tasks.len() {
        // The search keeps a stack on the heap, because a chain of ten thousand tasks must not overflow the call stack.
        let mut trail: Vec<(usize, usize)> = vec![(start, 0)];
        let mut on_trail: HashSet<usize> = HashSet::from([start]);
        while let Some((task, next)) = trail.pop() {
            if done[task] {
                on_trail.remove(&task);
                continue;
            }
            match w.tasks[task].after.get(next).and_then(|n| index(n)) {
                Some(other) if on_trail.contains(&other) => {
                    let mut members: Vec<usize> = trail.iter().map(|(t, _)| *t).collect();
                    members.push(task);
                    let from = members.iter().position(|t| *t == other).unwrap_or(0);
                    return Some(members.split_off(from));
                }
                Some(other) => {
                    trail.push((task, next + 1));
                    trail.push((other, 0));
                    on_trail.insert(other);
                }
                None if next < w.tasks[task].after.len() => trail.push((task, next + 1)),
                None => {
                    done[task] = true;
                    on_trail.remove(&task);
                }
            }
        }
    }
    None
}

/// Gives the right that one end of a port needs: the right to produce if `produce` is true, otherwise the right to
/// consume.
fn end(produce: bool) -> Rights {
    if produce { Rights::PRODUCE } else { Rights::CONSUME }
}

fn ports(w: &Workflow, notes: &Notes) {
    for port in &w.ports {
        let ends = |produce: bool| -> Vec<&Task> {
            let has = |t: &&Task| t.ports.iter().any(|r| r.name == port.name && r.may(end(produce)));
            w.tasks.iter().filter(has).collect()
        };
        let (producers, consumers) = (ends(true), ends(false));
        let position = port
            .declared
            .or_else(|| w.tasks.iter().flat_map(|t| &t.ports).find(|r| r.name == port.name).map(|r| r.position));
        let position = position.unwrap_or_default();
        let key = match (port.declared, producers.first().or(consumers.first())) {
            (None, Some(task)) => path(task, &format!("ports.{}", clip(&port.name))),
            _ => format!("ports.{}", clip(&port.name)),
        };
        if producers.is_empty() && consumers.is_empty() {
            let used = w.tasks.iter().flat_map(|t| &t.ports).map(|r| r.name.as_str());
            let hint = match nearest(&port.name, used) {
                Some(near) => format!("did you mean `{near}`?"),
                None => "remove it, or give it to tasks: `ports: {NAME: produce}`".into(),
            };
            notes.add(position, &key, "no task produces or consumes this port", hint);
            continue;
        }
        if producers.is_empty() {
            let hint = twin(w, &port.name, true)
                .unwrap_or_else(|| format!("give one task `ports: {{{}: produce}}`", port.name));
            notes.add(position, &key, "the port has a consumer but no producer", hint);
        }
        if consumers.is_empty() {
            let hint = twin(w, &port.name, false)
                .unwrap_or_else(|| format!("give one task `ports: {{{}: consume}}`", port.name));
            notes.add(position, &key, "the port has a producer but no consumer", hint);
        }
        let crowd = |tasks: &[&Task]| tasks.iter().map(|t| t.ranks).sum::<u32>() > 1;
        let who = |tasks: &[&Task]| {
            list(
                tasks
                    .iter()
                    .map(|t| if t.ranks > 1 { format!("{} ({} ranks)", t.name, t.ranks) } else { t.name.clone() })
                    .collect::<Vec<_>>()
                    .iter()
                    .map(String::as_str),
            )
        };
        if !port.pattern.many_produce() && crowd(&producers) {
            let what = format!("the port is {} but has several producers: {}", port.pattern.word(), who(&producers));
            notes.add(
                position,
                &key,
                what,
                "set `pattern: fan-in` (or work-queue) under `ports:`, or keep one producer",
            );
        }
        if !port.pattern.many_consume() && crowd(&consumers) {
            let what = format!("the port is {} but has several consumers: {}", port.pattern.word(), who(&consumers));
            notes.add(position, &key, what, "set `pattern: fan-out` (each sees every message) or `work-queue` (each message goes to one) under `ports:`");
        }
        for (tasks, end, most) in [(&producers, "producers", PRODUCERS_MAX), (&consumers, "consumers", CONSUMERS_MAX)] {
            let count: u32 = tasks.iter().map(|t| t.ranks).sum();
            if count > most {
                let what = format!("{count} {end} (ranks count) are more than the {most} that a port takes");
                notes.add(position, &key, what, "use fewer ranks, or several ports");
            }
        }
        for consumer in &consumers {
            for producer in &producers {
                if waits_for(w, producer, consumer) {
                    let what = format!(
                        "a cycle: `{}` waits for messages of `{}`, which starts only after it has ended",
                        consumer.name, producer.name
                    );
                    notes.add(
                        position,
                        &key,
                        what,
                        format!("take `{}` out of `after:` of `{}`", consumer.name, producer.name),
                    );
                }
            }
        }
    }
}

/// Finds a name that is similar to `name`, for a hint. If `produce` is true, only ports that have a producer are
/// searched, otherwise only ports that have a consumer. A port without producers or without consumers usually has a
/// typing mistake in its name.
fn twin(w: &Workflow, name: &str, produce: bool) -> Option<String> {
    let others = w.tasks.iter().flat_map(|t| &t.ports).filter(|r| r.name != name && r.may(end(produce)));
    nearest(name, others.map(|r| r.name.as_str())).map(|near| format!("did you mean `{near}`?"))
}

/// Tells whether `task` starts only after `other` has ended: because of the `after:` of `task` itself, or because of a
/// chain of tasks with `after:`.
fn waits_for(w: &Workflow, task: &Task, other: &Task) -> bool {
    chain(w, &task.name, &other.name, |task| task.after.iter().map(String::as_str).collect()).is_some()
}

fn regions(w: &Workflow, notes: &Notes) {
    let fits = |pattern: &str, name: &str| match pattern.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => pattern == name,
    };
    let rights = || w.tasks.iter().flat_map(|t| t.regions.iter().map(move |r| (t, r)));
    for (task, right) in rights().filter(|(_, r)| !r.may(Rights::CREATE)) {
        let made = w.regions.iter().any(|r| r.size.is_some() && fits(&right.name, &r.name));
        // If the workflow file gives a region no size, a task must create the region, and `right` does not allow this.
        // A grant to create counts if it and `right` can mean the same region: one of the two names is a pattern that
        // matches the other name, or both names are the same.
        let created =
            rights().any(|(_, r)| r.may(Rights::CREATE) && (fits(&r.name, &right.name) || fits(&right.name, &r.name)));
        if !made && !created {
            let known = rights().filter(|(_, r)| r.may(Rights::CREATE)).map(|(_, r)| r.name.as_str());
            let hint = match nearest(&right.name, known.chain(w.regions.iter().map(|r| r.name.as_str()))) {
                Some(near) => format!("did you mean `{near}`?"),
                None => "give one task `create`, or give the region a `size:` under `regions:`".into(),
            };
            let key = path(task, &format!("regions.{}", clip(&right.name)));
            notes.add(right.position, &key, "no task creates this region", hint);
        }
    }
    for region in &w.regions {
        let key = format!("regions.{}", clip(&region.name));
        if !rights().any(|(_, r)| fits(&r.name, &region.name)) {
            let hint = match nearest(&region.name, rights().map(|(_, r)| r.name.as_str())) {
                Some(near) => format!("did you mean `{near}`?"),
                None => "remove it, or give it to tasks: `regions: {NAME: create}`".into(),
            };
            notes.add(region.position, &key, "no task uses this region", hint);
        }
        if let (Some(size), Some(memory)) = (region.size, w.memory) {
            if size > memory {
                let what = format!(
                    "its size {} is more than the workflow's memory {}",
                    super::units::show(size),
                    super::units::show(memory)
                );
                notes.add(region.position, &key, what, "raise `memory:` or lower `size:`");
            }
        }
    }
}

fn processors(task: &Task, notes: &Notes) {
    if let Processors::List(numbers) = &task.processors {
        let mut seen = HashSet::new();
        if let Some(twice) = numbers.iter().find(|n| !seen.insert(**n)) {
            notes.add(
                task.position,
                &path(task, "processors"),
                format!("processor {twice} is there twice"),
                "name each once",
            );
        }
    }
}

fn image_engine(w: &Workflow, task: &Task, notes: &Notes) {
    let engine = w.engine.filter(|_| matches!(task.files, Files::Image(_))).and_then(engine::by_name);
    if let Some(refused) = engine.and_then(|engine| engine.accepts(task).err()) {
        notes.add(task.position, &path(task, "image"), refused.why, refused.hint);
    }
}

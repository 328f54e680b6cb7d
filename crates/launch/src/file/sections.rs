//! Reads the top level of the file, its ports and its regions.

use crossdock_layout::queue::Pattern;
use std::path::{Path, PathBuf};

use crossdock_layout::name;

use super::directories::directories;
use super::keys::{ENGINES, PATTERNS, PORT, REGION, TOP};
use super::reader::{Item, clip};
use super::task::task;
use super::workflow::{Port, Region, Workflow};

/// Reads the whole file. Returns `None` only if not even the outline of the file could be read.
pub fn workflow(top: &Item<'_>, file: &Path) -> Option<Workflow> {
    let folder = folder_of(file);
    let section = top.section(TOP)?;
    let name = section.get("workflow").and_then(|item| checked_name(&item)).unwrap_or_default();
    let mut tasks = Vec::new();
    if let Some(item) = section.get("tasks") {
        for (name, item) in item.entries() {
            tasks.extend(task(name, &item, &folder));
        }
        if item.is_empty_map() {
            item.wrong("there is no task", "add one: `name: {command: [program, argument]}`");
        }
    }
    let ports = section.get("ports").map(|item| item.entries()).unwrap_or_default();
    let regions = section.get("regions").map(|item| item.entries()).unwrap_or_default();
    Some(Workflow {
        file: file.to_owned(),
        name,
        memory: section.get("memory").and_then(|i| i.size()),
        engine: section.get("engine").and_then(|i| i.word(ENGINES)),
        grace_s: section.get("grace").and_then(|i| i.count(0, 600)).unwrap_or(5),
        tasks,
        ports: ports.into_iter().filter_map(|(name, item)| port(name, &item)).collect(),
        regions: regions.into_iter().filter_map(|(name, item)| region(name, &item)).collect(),
        directories: section.get("files").map(|item| directories(&item, &folder)).unwrap_or_default(),
    })
}

/// Gives the folder of the file, to which paths in the file are relative.
pub fn folder_of(file: &Path) -> PathBuf {
    let parent = file.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::path::absolute(parent).unwrap_or_else(|_| parent.to_owned())
}

fn checked_name(item: &Item<'_>) -> Option<String> {
    let text = item.text()?;
    good_name(item, &text).then_some(text)
}

/// Tells whether a text is an allowed name. If it is not, a problem is added.
pub(super) fn good_name(item: &Item<'_>, text: &str) -> bool {
    match name::check(text) {
        Ok(()) => true,
        Err(e) => {
            item.wrong(format!("`{}` is not a name: {e}", clip(text)), "choose another name");
            false
        }
    }
}

fn port(name: String, item: &Item<'_>) -> Option<Port> {
    if !good_name(item, &name) {
        return None;
    }
    let declared = Some(item.position());
    let s = item.section(PORT)?;
    let pattern =
        s.get("pattern").and_then(|i| i.word(PATTERNS)).and_then(Pattern::from_word).unwrap_or(Pattern::OneToOne);
    let capacity = s.get("capacity").and_then(|i| {
        let n = i.count(1, 4096)?;
        if !n.is_power_of_two() {
            i.wrong(
                format!("{n} is not a power of two"),
                format!("write {} or {}", n.next_power_of_two() / 2, n.next_power_of_two()),
            );
        }
        Some(n)
    });
    Some(Port { name, pattern, capacity: capacity.unwrap_or(8), declared })
}

fn region(name: String, item: &Item<'_>) -> Option<Region> {
    if !good_name(item, &name) {
        return None;
    }
    let s = item.section(REGION)?;
    Some(Region { name, size: s.get("size").and_then(|i| i.size()), position: item.position() })
}

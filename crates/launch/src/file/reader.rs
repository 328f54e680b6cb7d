//! Typed access to the mappings of a parsed workflow file. A value that does not fit becomes a problem, and reading
//! continues.

use std::cell::RefCell;

use super::keys::Key;
use super::problem::{Position, Problem};
use super::suggest::nearest;
use super::tree::{Node, Value};
use super::units;

/// The list in which problems are collected.
#[derive(Default)]
pub struct Notes {
    list: RefCell<Vec<Problem>>,
    /// The names of the tasks that run on this host; `None` stands for all tasks.
    here: Option<Vec<String>>,
}

impl Notes {
    /// Makes an empty list of problems for a host that runs the tasks `here`; `None` stands for all tasks.
    pub fn on(here: Option<&[String]>) -> Self {
        Self { list: RefCell::default(), here: here.map(<[String]>::to_vec) }
    }

    /// Tells whether the task runs on this host, so that its folders must exist here.
    pub fn is_here(&self, task: &str) -> bool {
        self.here.as_ref().is_none_or(|here| here.iter().any(|name| name == task))
    }

    /// Adds a problem at this position.
    pub fn add(&self, position: Position, key: &str, what: impl Into<String>, hint: impl Into<String>) {
        self.list.borrow_mut().push(Problem { position, key: key.to_owned(), what: what.into(), hint: hint.into() });
    }

    /// Takes the problems that were added so far.
    pub fn take(&self) -> Vec<Problem> {
        std::mem::take(&mut self.list.borrow_mut())
    }
}

/// A value with its path in the file, which messages show.
#[derive(Clone)]
pub struct Item<'n> {
    pub(crate) node: Node,
    pub(crate) path: String,
    pub(crate) notes: &'n Notes,
}

/// A mapping, without the keys that are not in the table of its known keys.
pub struct Section<'n> {
    entries: Vec<(&'static str, Item<'n>)>,
}

impl<'n> Section<'n> {
    /// Gives the value of a key, if the mapping has the key.
    pub fn get(&self, name: &'static str) -> Option<Item<'n>> {
        self.entries.iter().find(|(n, _)| *n == name).map(|(_, item)| item.clone())
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

impl<'n> Item<'n> {
    /// The position of the value in the file.
    pub fn position(&self) -> Position {
        self.node.position
    }

    /// Adds a problem at the position of this value.
    pub fn wrong(&self, what: impl Into<String>, hint: impl Into<String>) {
        self.notes.add(self.node.position, &self.path, what, hint);
    }

    fn expected(&self, what: &str, hint: &str) {
        self.wrong(format!("{what} is expected, {} is there", self.node.kind()), hint);
    }

    fn child(&self, name: &str, node: &Node) -> Item<'n> {
        Item { node: node.clone(), path: join(&self.path, name), notes: self.notes }
    }

    /// Reads a mapping. `keys` is the table of the keys that the mapping may have. Notes a problem for each key that is
    /// not in this table (the hint names the nearest key of the table, or all keys), and for each required key that the
    /// mapping does not have.
    pub fn section(&self, keys: &'static [Key]) -> Option<Section<'n>> {
        let Value::Map(map) = &*self.node.value else {
            self.expected("a mapping", &format!("indent keys under it: {}", list(keys.iter().map(|k| k.name))));
            return None;
        };
        let mut entries = Vec::new();
        for (key, node) in map {
            match keys.iter().find(|k| k.name == key.name) {
                Some(known) => entries.push((known.name, self.child(known.name, node))),
                None => {
                    let hint = match nearest(&key.name, keys.iter().map(|k| k.name)) {
                        Some(near) => format!("did you mean `{near}`?"),
                        None => format!("known keys here: {}", list(keys.iter().map(|k| k.name))),
                    };
                    self.notes.add(key.position, &join(&self.path, &clip(&key.name)), "unknown key", hint);
                }
            }
        }
        for key in keys.iter().filter(|k| k.required && !entries.iter().any(|(n, _)| *n == k.name)) {
            let hint = format!("add `{}:` — {}", key.name, lower(key.doc));
            self.notes.add(self.node.position, &self.path, format!("`{}` is missing", key.name), hint);
        }
        Some(Section { entries })
    }

    /// Reads a mapping whose keys are names that the user chose.
    pub fn entries(&self) -> Vec<(String, Item<'n>)> {
        match &*self.node.value {
            Value::Map(map) => map
                .iter()
                .map(|(key, node)| {
                    let mut item = self.child(&clip(&key.name), node);
                    // An empty value has no useful position, so a problem with it gets the position of the entry's
                    // name.
                    if item.node.is_null() {
                        item.node.position = key.position;
                    }
                    (key.name.clone(), item)
                })
                .collect(),
            _ => {
                self.expected("a mapping", "write `name: value` lines under it");
                Vec::new()
            }
        }
    }

    /// Reads a list of values.
    pub fn list(&self) -> Vec<Item<'n>> {
        match &*self.node.value {
            Value::List(items) => items.iter().enumerate().map(|(i, n)| self.child(&i.to_string(), n)).collect(),
            _ => {
                self.expected("a list", "write `- item` lines under it, or `[a, b]`");
                Vec::new()
            }
        }
    }

    /// Tells whether the value is an empty mapping.
    pub fn is_empty_map(&self) -> bool {
        matches!(&*self.node.value, Value::Map(m) if m.is_empty())
    }

    /// Tells whether the value is a list.
    pub fn is_list(&self) -> bool {
        matches!(&*self.node.value, Value::List(_))
    }

    /// Reads a text. A number or boolean is read as the text that stands in the file.
    pub fn text(&self) -> Option<String> {
        match &*self.node.value {
            Value::Scalar { text, .. } if !self.node.is_null() => {
                if text.contains('\0') {
                    self.wrong("the text holds a zero byte", "remove it");
                    return None;
                }
                Some(text.clone())
            }
            _ => {
                self.expected("text", "write a word or a quoted text");
                None
            }
        }
    }

    /// Reads a size in bytes, which must be at least 1.
    pub fn size(&self) -> Option<u64> {
        let Value::Scalar { text, .. } = &*self.node.value else {
            self.expected("a size", "write a number and a unit: `512 MiB`, `1 GiB`");
            return None;
        };
        match units::size(text) {
            Ok(0) => {
                self.wrong("a size of 0", "leave the key out for no limit, or write how much");
                None
            }
            Ok(bytes) => Some(bytes),
            Err((what, hint)) => {
                self.wrong(clip(&what), hint);
                None
            }
        }
    }

    /// Reads a whole number from `low` to `high`.
    pub fn count(&self, low: u32, high: u32) -> Option<u32> {
        let number = match &*self.node.value {
            Value::Scalar { text, .. } => text.parse::<i64>().ok(),
            _ => None,
        };
        match number {
            Some(n) if n >= i64::from(low) && n <= i64::from(high) => u32::try_from(n).ok(),
            Some(n) => {
                self.wrong(
                    format!("{n} is not in {low} … {high}"),
                    format!("write a whole number from {low} to {high}"),
                );
                None
            }
            None => {
                self.expected("a whole number", &format!("write one from {low} to {high}"));
                None
            }
        }
    }

    /// Reads `true` or `false`.
    pub fn flag(&self) -> Option<bool> {
        match &*self.node.value {
            Value::Scalar { text, plain: true } if text == "true" => Some(true),
            Value::Scalar { text, plain: true } if text == "false" => Some(false),
            _ => {
                self.expected("true or false", "write `true` or `false`");
                None
            }
        }
    }

    /// Reads a text that must be one of the words `words`.
    pub fn word(&self, words: &[&'static str]) -> Option<&'static str> {
        let text = self.text()?;
        let found = words.iter().find(|w| **w == text).copied();
        if found.is_none() {
            let hint = match nearest(&text, words.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("one of: {}", list(words.iter().copied())),
            };
            self.wrong(format!("`{}` is not known here", clip(&text)), hint);
        }
        found
    }
}

/// Joins words with commas.
pub fn list<'a>(words: impl Iterator<Item = &'a str>) -> String {
    words.collect::<Vec<_>>().join(", ")
}

/// Gives the beginning of a long text without control characters, so that messages stay readable.
pub fn clip(text: &str) -> String {
    let mut clipped: String = text.chars().map(|c| if c.is_control() { '·' } else { c }).take(60).collect();
    if text.chars().count() > 60 {
        clipped.push('…');
    }
    clipped
}

fn lower(doc: &str) -> String {
    let mut chars = doc.trim_end_matches('.').chars();
    chars.next().map(|c| c.to_lowercase().chain(chars).collect()).unwrap_or_default()
}

//! Parses YAML text into a tree in which every value knows its line and column.
//!
//! The parser is saphyr, whose events have positions. This module bounds the depth, the number of values and the size
//! of the text, so a hostile file causes an error and does not fill the memory. Nested aliases cannot grow without
//! limit: an alias shares the value that it names, without a copy, and the readers of the tree go only to a fixed
//! depth.

use std::collections::HashMap;
use std::rc::Rc;

use saphyr_parser::{Event, Parser, ScalarStyle, Span};

use super::problem::{Position, Problem};

/// The largest text that is read, in bytes.
pub const TEXT_MAX: usize = 1 << 20;
/// The merge key. Its value is a mapping or a list of mappings. Their entries are added to the mapping that has this
/// key, unless that mapping already has an entry with the same name.
const MERGE: &str = "<<";
const DEPTH_MAX: usize = 32;
const VALUES_MAX: usize = 100_000;

/// A value with its position.
#[derive(Clone, Debug)]
pub struct Node {
    /// Where the value begins.
    pub position: Position,
    /// The value at this position.
    pub value: Rc<Value>,
}

/// A YAML value.
#[derive(Debug)]
pub enum Value {
    /// The text of the value. Escapes are replaced if the text was quoted. `plain` is true if the text had no quotes;
    /// only such a text can be read as a number, a boolean or null.
    Scalar {
        /// The text of the value, without quotes.
        text: String,
        /// True if the text has no quotes and no block style.
        plain: bool,
    },
    /// A list.
    List(Vec<Node>),
    /// A mapping in the order of the file; keys are text.
    Map(Vec<(Key, Node)>),
}

/// A key of a mapping.
#[derive(Clone, Debug)]
pub struct Key {
    /// The text of the key.
    pub name: String,
    /// The position of the key.
    pub position: Position,
}

impl Node {
    /// Tells whether the value is `null`, `~` or empty.
    pub fn is_null(&self) -> bool {
        matches!(&*self.value, Value::Scalar { text, plain: true } if matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL"))
    }

    /// Names the kind of this value for messages.
    pub fn kind(&self) -> &'static str {
        match &*self.value {
            _ if self.is_null() => "nothing",
            Value::List(_) => "a list",
            Value::Map(_) => "a mapping",
            Value::Scalar { text, plain: true } if matches!(text.as_str(), "true" | "false") => "true or false",
            Value::Scalar { text, plain: true } if text.parse::<f64>().is_ok() => "a number",
            Value::Scalar { .. } => "text",
        }
    }
}

fn place(span: Span) -> Position {
    Position { line: span.start.line(), column: span.start.col() + 1 }
}

fn problem(position: Position, what: impl Into<String>, hint: impl Into<String>) -> Problem {
    Problem { position, key: String::new(), what: what.into(), hint: hint.into() }
}

/// Parses a text that holds exactly one document.
pub fn parse(text: &str) -> Result<Node, Problem> {
    if text.len() > TEXT_MAX {
        let what = format!("the file has {} bytes, more than {TEXT_MAX}", text.len());
        return Err(problem(Position::default(), what, "is this a workflow file? put data elsewhere"));
    }
    let mut builder = Builder { parser: Parser::new_from_str(text), anchors: HashMap::new(), values: 0 };
    loop {
        let (event, span) = builder.next()?;
        match event {
            Event::StreamStart | Event::DocumentStart(_) | Event::Nothing => {}
            Event::StreamEnd | Event::DocumentEnd => {
                return Err(problem(
                    place(span),
                    "the file is empty",
                    "write `workflow:` and `tasks:`; docs/workflow-file.md has an example",
                ));
            }
            other => {
                let root = builder.build(other, span, 0)?;
                return builder.finish(root);
            }
        }
    }
}

struct Builder<'t> {
    parser: Parser<'t, saphyr_parser::StrInput<'t>>,
    anchors: HashMap<usize, Node>,
    values: usize,
}

impl<'t> Builder<'t> {
    fn next(&mut self) -> Result<(Event<'t>, Span), Problem> {
        match self.parser.next_event() {
            Some(Ok(pair)) => Ok(pair),
            Some(Err(e)) => {
                let at = Position { line: e.marker().line(), column: e.marker().col() + 1 };
                let hint = "check indentation, colons, quotes and brackets here and in the line above";
                Err(problem(at, format!("not YAML: {}", e.info()), hint))
            }
            None => Err(problem(Position::default(), "the file ends in the middle", "complete it")),
        }
    }

    fn finish(mut self, root: Node) -> Result<Node, Problem> {
        loop {
            match self.next()? {
                (Event::DocumentEnd | Event::Nothing, _) => {}
                (Event::StreamEnd, _) => return Ok(root),
                (_, span) => {
                    return Err(problem(
                        place(span),
                        "a second document begins",
                        "one file holds one workflow: remove `---` and what follows",
                    ));
                }
            }
        }
    }

    fn build(&mut self, event: Event<'t>, span: Span, depth: usize) -> Result<Node, Problem> {
        let position = place(span);
        self.values += 1;
        if depth > DEPTH_MAX || self.values > VALUES_MAX {
            return Err(problem(position, "nested too deeply or too long", "a workflow file needs neither"));
        }
        let (value, anchor) = match event {
            Event::Scalar(text, style, anchor, _) => {
                (Value::Scalar { text: text.into_owned(), plain: style == ScalarStyle::Plain }, anchor)
            }
            Event::SequenceStart(anchor, _) => (Value::List(self.list(depth)?), anchor),
            Event::MappingStart(anchor, _) => (Value::Map(self.map(depth)?), anchor),
            Event::Alias(id) => {
                return self.anchors.get(&id).map(|n| Node { position, value: n.value.clone() }).ok_or_else(|| {
                    problem(
                        position,
                        "an alias names something that is not complete here",
                        "define the anchor (`&name`) before its alias (`*name`)",
                    )
                });
            }
            other => return Err(problem(position, format!("unexpected {other:?}"), "check the indentation")),
        };
        let node = Node { position, value: Rc::new(value) };
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    /// Adds the entries of the mappings that `<<` names to `entries`. A key that `entries` already has keeps its value.
    /// If several merged mappings have the same key, the first of them counts.
    fn merge(&mut self, entries: &mut Vec<(Key, Node)>, merged: Vec<Node>) -> Result<(), Problem> {
        for from in merged {
            let maps = match &*from.value {
                Value::List(list) => list.clone(),
                _ => vec![from.clone()],
            };
            for map in maps {
                let Value::Map(more) = &*map.value else {
                    let what = format!("`<<` merges {}", map.kind());
                    return Err(problem(map.position, what, "name a mapping: `<<: *name`, or `<<: [*one, *other]`"));
                };
                self.values += more.len();
                if self.values > VALUES_MAX {
                    return Err(problem(
                        map.position,
                        "nested too deeply or too long",
                        "a workflow file needs neither",
                    ));
                }
                for (key, value) in more {
                    if entries.iter().all(|(own, _)| own.name != key.name) {
                        entries.push((key.clone(), value.clone()));
                    }
                }
            }
        }
        Ok(())
    }

    fn list(&mut self, depth: usize) -> Result<Vec<Node>, Problem> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(items),
                (event, span) => items.push(self.build(event, span, depth + 1)?),
            }
        }
    }

    fn map(&mut self, depth: usize) -> Result<Vec<(Key, Node)>, Problem> {
        let mut entries: Vec<(Key, Node)> = Vec::new();
        let mut seen: HashMap<String, Position> = HashMap::new();
        let mut merged = Vec::new();
        loop {
            let (event, span) = self.next()?;
            if matches!(event, Event::MappingEnd) {
                self.merge(&mut entries, merged)?;
                return Ok(entries);
            }
            let key_node = self.build(event, span, depth + 1)?;
            let Value::Scalar { text, .. } = &*key_node.value else {
                return Err(problem(key_node.position, format!("a key is {}", key_node.kind()), "keys are plain text"));
            };
            if let Some(first) = seen.insert(text.clone(), key_node.position) {
                let what = format!("`{text}` is there twice (first in line {})", first.line);
                return Err(problem(key_node.position, what, "keep one of the two"));
            }
            let key = Key { name: text.clone(), position: key_node.position };
            let (event, span) = self.next()?;
            let value = self.build(event, span, depth + 1)?;
            if key.name == MERGE {
                merged.push(value);
                continue;
            }
            entries.push((key, value));
        }
    }
}

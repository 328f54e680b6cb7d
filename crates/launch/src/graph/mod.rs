//! Tasks and what they share as a picture: a layered graph, written as SVG (nothing else is needed) or as Graphviz' DOT.

mod dot;
mod layers;
mod svg;
mod workflow;

pub use dot::dot;
pub use layers::{Layout, Placed, lay_out};
pub use svg::svg;
pub(crate) use workflow::flows;

/// What a node of the graph stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeKind {
    /// A task.
    Task,
    /// A port.
    Port,
    /// A series.
    Series,
    /// A region.
    Region,
    /// An item.
    Item,
    /// A managed directory.
    Files,
}

impl NodeKind {
    /// The word under the node's name, and its CSS class.
    pub fn word(self) -> &'static str {
        match self {
            Self::Task => "task",
            Self::Port => "port",
            Self::Series => "series",
            Self::Region => "region",
            Self::Item => "item",
            Self::Files => "files",
        }
    }
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// What it stands for.
    pub kind: NodeKind,
    /// Its name.
    pub name: String,
    /// The second line: the kind's word and what else is to say.
    pub detail: String,
}

/// Where data goes along an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// From the first node to the second.
    Forth,
    /// Both ways: a task that reads and writes.
    Both,
    /// No data: the second task starts when the first has ended.
    After,
}

/// An edge between two nodes, by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// Where it begins.
    pub from: usize,
    /// Where it ends.
    pub to: usize,
    /// What goes along it.
    pub flow: Flow,
}

/// A graph.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Graph {
    /// Its nodes.
    pub nodes: Vec<Node>,
    /// Its edges.
    pub edges: Vec<Edge>,
}

impl Graph {
    /// The number of the node of this kind and name; added if it is not there.
    pub fn node(&mut self, kind: NodeKind, name: &str, detail: &str) -> usize {
        if let Some(found) = self.nodes.iter().position(|n| n.kind == kind && n.name == name) {
            return found;
        }
        self.nodes.push(Node { kind, name: name.to_owned(), detail: detail.to_owned() });
        self.nodes.len() - 1
    }

    /// Adds an edge, once.
    pub fn edge(&mut self, from: usize, to: usize, flow: Flow) {
        let edge = Edge { from, to, flow };
        if !self.edges.contains(&edge) {
            self.edges.push(edge);
        }
    }

    /// What a task may do with an object, as an edge: what it makes or sends lies behind it, what it takes before it.
    pub fn link(&mut self, task: usize, object: usize, way: Way) {
        match way {
            Way::Out => self.edge(task, object, Flow::Forth),
            Way::Both => self.edge(object, task, Flow::Both),
            Way::In => self.edge(object, task, Flow::Forth),
        }
    }
}

/// Which way data goes between a task and an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From the task to the object.
    Out,
    /// From the object to the task.
    In,
    /// Both ways.
    Both,
}

/// Which way the layers follow each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// From left to right.
    #[default]
    Right,
    /// From top to bottom, for narrow screens.
    Down,
}

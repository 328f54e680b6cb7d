//! Draws tasks and the objects that they share as a layered graph, written as SVG (which needs no other program) or in
//! Graphviz' language DOT.

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
    /// The node is a task.
    Task,
    /// The node is a port.
    Port,
    /// The node is a series.
    Series,
    /// The node is a region.
    Region,
    /// The node is an item.
    Item,
    /// The node is a managed directory.
    Files,
}

impl NodeKind {
    /// The word that is printed under the node's name; it is also its CSS class.
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

/// A node of the graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// What the node stands for.
    pub kind: NodeKind,
    /// The name of the node.
    pub name: String,
    /// The text of the second line: the word of the node's kind, and details.
    pub detail: String,
}

/// The direction in which data flows along an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Data flows from the first node of the edge to the second.
    Forth,
    /// Data flows in both directions, because the task reads and writes.
    Both,
    /// No data flows. The edge means that the second task starts when the first task has ended.
    After,
}

/// An edge between two nodes, which are given by their numbers in [`Graph::nodes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The number of the node where the edge begins.
    pub from: usize,
    /// The number of the node where the edge ends.
    pub to: usize,
    /// The kind of flow along the edge.
    pub flow: Flow,
}

/// A graph of nodes and edges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Graph {
    /// The nodes of the graph.
    pub nodes: Vec<Node>,
    /// The edges of the graph.
    pub edges: Vec<Edge>,
}

impl Graph {
    /// Gives the number of the node of this kind and name. The node is added if it does not exist.
    pub fn node(&mut self, kind: NodeKind, name: &str, detail: &str) -> usize {
        if let Some(found) = self.nodes.iter().position(|n| n.kind == kind && n.name == name) {
            return found;
        }
        self.nodes.push(Node { kind, name: name.to_owned(), detail: detail.to_owned() });
        self.nodes.len() - 1
    }

    /// Adds an edge, unless the graph already has it.
    pub fn edge(&mut self, from: usize, to: usize, flow: Flow) {
        let edge = Edge { from, to, flow };
        if !self.edges.contains(&edge) {
            self.edges.push(edge);
        }
    }

    /// Adds the edge between a task and an object. `way` says in which direction data flows between the two.
    pub fn link(&mut self, task: usize, object: usize, way: Access) {
        match way {
            Access::Out => self.edge(task, object, Flow::Forth),
            Access::Both => self.edge(object, task, Flow::Both),
            Access::In => self.edge(object, task, Flow::Forth),
        }
    }
}

/// The direction in which data flows between a task and an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Data flows from the task to the object.
    Out,
    /// Data flows from the object to the task.
    In,
    /// Data flows in both directions.
    Both,
}

/// The direction in which the layers of the picture follow each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// The layers follow each other from left to right.
    #[default]
    Right,
    /// The layers follow each other from top to bottom, for narrow screens.
    Down,
}

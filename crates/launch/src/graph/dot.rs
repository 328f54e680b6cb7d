//! Writes the graph in the language of Graphviz, for users who want another layout.

use std::fmt::Write;

use super::{Flow, Graph, NodeKind};

/// Writes the graph as DOT.
pub fn dot(graph: &Graph, title: &str) -> String {
    let mut text = format!("digraph {} {{\n  rankdir=LR;\n  node [fontname=\"sans-serif\"];\n", quoted(title));
    for (number, node) in graph.nodes.iter().enumerate() {
        let shape = match node.kind {
            NodeKind::Task => "box, style=\"rounded,filled\", fillcolor=\"#dbe7ff\"",
            NodeKind::Port => "cds",
            NodeKind::Series => "box3d",
            NodeKind::Region => "cylinder",
            NodeKind::Item => "note",
            NodeKind::Files => "folder",
        };
        let label = quoted(&format!("{}\n{}", node.name, node.detail));
        let _ = writeln!(text, "  n{number} [label={label}, shape={shape}];");
    }
    for edge in &graph.edges {
        let more = match edge.flow {
            Flow::Forth => "",
            Flow::Both => " [dir=both]",
            Flow::After => " [style=dashed, label=\"after\"]",
        };
        let _ = writeln!(text, "  n{} -> n{}{more};", edge.from, edge.to);
    }
    text + "}\n"
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}

//! Writes the graph as one SVG that needs no other file. The SVG has light and dark colours; the settings of the
//! viewer's browser choose between them.

use std::fmt::Write;

use super::layers::NAME_MAX;
use super::{Flow, Graph, Layout, NodeKind};

const STYLE: &str = "\
svg{--ink:#1c2430;--soft:#5b6675;--line:#7c8798;--task:#dbe7ff;--task-line:#4a72c4;--thing:#f4f6f9;--thing-line:#9aa5b4;font-family:system-ui,sans-serif}\
@media (prefers-color-scheme:dark){svg{--ink:#e8edf4;--soft:#a5b0bf;--line:#8793a5;--task:#223a66;--task-line:#7ea2ec;--thing:#232a34;--thing-line:#66707e}}\
.name{font-size:14px;font-weight:600;fill:var(--ink)}.detail{font-size:11px;fill:var(--soft)}text{text-anchor:middle}\
.node>.shape{fill:var(--thing);stroke:var(--thing-line);stroke-width:1.4}.task>.shape{fill:var(--task);stroke:var(--task-line)}\
.edge{fill:none;stroke:var(--line);stroke-width:1.6}.after{stroke-dasharray:5 4}.head{fill:var(--line)}";

/// Writes the graph as SVG. Every node is a group with its kind as class and its number as `data-node`. Every edge is a
/// path with `data-edge`.
pub fn svg(graph: &Graph, layout: &Layout, title: &str) -> String {
    let (width, height) = (layout.width.ceil(), layout.height.ceil());
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" role=\"img\">\n\
         <title>{}</title>\n<style>{STYLE}</style>\n\
         <defs><marker id=\"head\" viewBox=\"0 0 10 10\" refX=\"9\" refY=\"5\" markerWidth=\"10\" markerHeight=\"10\" markerUnits=\"userSpaceOnUse\" orient=\"auto-start-reverse\">\
         <path class=\"head\" d=\"M0 0L10 5L0 10z\"/></marker></defs>\n",
        escaped(title)
    );
    for (number, (edge, points)) in graph.edges.iter().zip(&layout.edges).enumerate() {
        let (class, start) = match edge.flow {
            Flow::Forth => ("edge", ""),
            Flow::Both => ("edge both", " marker-start=\"url(#head)\""),
            Flow::After => ("edge after", ""),
        };
        let path = path(points, layout);
        let _ = writeln!(
            text,
            "<path class=\"{class}\" data-edge=\"{number}\" d=\"{path}\" marker-end=\"url(#head)\"{start}/>"
        );
    }
    for (number, (node, at)) in graph.nodes.iter().zip(&layout.nodes).enumerate() {
        let (left, top) = (at.x - at.width / 2.0, at.y - at.height / 2.0);
        let word = node.kind.word();
        let _ = writeln!(
            text,
            "<g class=\"node {word}\" data-node=\"{number}\"><title>{word} {}</title>{}\
             <text class=\"name\" x=\"{:.1}\" y=\"{:.1}\">{}</text><text class=\"detail\" x=\"{:.1}\" y=\"{:.1}\">{}</text></g>",
            escaped(&node.name),
            shape(node.kind, left, top, at.width, at.height),
            at.x,
            at.y - 2.0,
            escaped(&clipped(&node.name)),
            at.x,
            at.y + 14.0,
            escaped(&node.detail),
        );
    }
    text + "</svg>\n"
}

/// Writes a path through all points. The path leaves and enters nodes in the direction of the layers.
fn path(points: &[(f64, f64)], layout: &Layout) -> String {
    let mut text = format!("M{:.1} {:.1}", points[0].0, points[0].1);
    for pair in points.windows(2) {
        let ((x1, y1), (x2, y2)) = (pair[0], pair[1]);
        let (a, b) = match layout.direction {
            super::Direction::Right => (((x1 + x2) / 2.0, y1), ((x1 + x2) / 2.0, y2)),
            super::Direction::Down => ((x1, (y1 + y2) / 2.0), (x2, (y1 + y2) / 2.0)),
        };
        let _ = write!(text, "C{:.1} {:.1} {:.1} {:.1} {x2:.1} {y2:.1}", a.0, a.1, b.0, b.1);
    }
    text
}

fn shape(kind: NodeKind, x: f64, y: f64, w: f64, h: f64) -> String {
    let rect = |x: f64, y: f64, w: f64, h: f64, round: f64| {
        format!("<rect class=\"shape\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{w:.1}\" height=\"{h:.1}\" rx=\"{round}\"/>")
    };
    match kind {
        NodeKind::Task => rect(x, y, w, h, 8.0),
        NodeKind::Port => rect(x, y, w, h, h / 2.0),
        NodeKind::Series => rect(x + 5.0, y - 5.0, w, h, 3.0) + &rect(x, y, w, h, 3.0),
        NodeKind::Region => {
            let d = format!(
                "M{x:.1} {:.1}a{:.1} 7 0 0 1 {w:.1} 0v{:.1}a{:.1} 7 0 0 1 -{w:.1} 0z",
                y + 6.0,
                w / 2.0,
                h - 12.0,
                w / 2.0
            );
            format!("<path class=\"shape\" d=\"{d}\"/>")
        }
        NodeKind::Item | NodeKind::Files => {
            let d = format!("M{x:.1} {y:.1}h{:.1}l12 12v{:.1}h-{w:.1}z", w - 12.0, h - 12.0);
            format!("<path class=\"shape\" d=\"{d}\"/>")
        }
    }
}

fn clipped(name: &str) -> String {
    match name.chars().count() > NAME_MAX {
        true => name.chars().take(NAME_MAX - 1).chain(['…']).collect(),
        false => name.to_owned(),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

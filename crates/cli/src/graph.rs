//! `crossdock run FILE --graph PICTURE`: draws a workflow.

use std::path::Path;

use crossdock_launch::file::Workflow;
use crossdock_launch::graph::{Direction, Graph, dot, lay_out, svg};
use crossdock_launch::run::code;

use crate::table::{complain, say};

/// Draws the checked workflow. The ending of the picture's name, .svg or .dot, gives the format.
pub fn draw(workflow: &Workflow, picture: &Path) -> u8 {
    let graph = Graph::of(workflow);
    let text = match picture.extension().and_then(|e| e.to_str()) {
        Some("svg") => svg(&graph, &lay_out(&graph, Direction::Right), &workflow.name),
        Some("dot" | "gv") => dot(&graph, &workflow.name),
        _ => {
            complain(&format!("{}: end its name in .svg or .dot", picture.display()));
            return code::USAGE;
        }
    };
    if let Err(e) = std::fs::write(picture, text) {
        complain(&format!("cannot write {}: {e}", picture.display()));
        return code::SYSTEM;
    }
    let tasks = workflow.tasks.len();
    say(&format!("{}: {tasks} tasks and {} objects", picture.display(), graph.nodes.len() - tasks));
    code::OK
}

//! Makes the graph of a checked workflow file.

use crossdock_layout::Rights;

use super::{Access, Flow, Graph, NodeKind};
use crate::file::{Workflow, units};
use crate::run::state::{Link, links};

impl Graph {
    /// Makes a graph of the tasks, and of every port, series, region, item and managed directory that the file names.
    pub fn of(workflow: &Workflow) -> Self {
        let mut graph = Self::default();
        for task in &workflow.tasks {
            let detail = match task.ranks {
                1 => "task".to_owned(),
                n => format!("task, {n} ranks"),
            };
            graph.node(NodeKind::Task, &task.name, &detail);
        }
        for task in &workflow.tasks {
            for link in links(task) {
                let object = graph.node(link.kind(), &link.name, &detail(workflow, &link));
                let task = graph.node(NodeKind::Task, &task.name, "");
                graph.link(task, object, link.way());
            }
            for before in &task.after {
                let (from, to) = (graph.node(NodeKind::Task, before, ""), graph.node(NodeKind::Task, &task.name, ""));
                graph.edge(from, to, Flow::After);
            }
        }
        for directory in &workflow.directories {
            let files = graph.node(NodeKind::Files, &directory.path, "files");
            for (tasks, way) in [(&directory.produce, Access::Out), (&directory.consume, Access::In)] {
                for task in tasks {
                    let task = graph.node(NodeKind::Task, task, "");
                    graph.link(task, files, way);
                }
            }
        }
        graph
    }
}

fn detail(workflow: &Workflow, link: &Link) -> String {
    match link.kind() {
        NodeKind::Port => match workflow.ports.iter().find(|p| p.name == link.name) {
            Some(port) => format!("port, {}, {} cells", port.pattern.word(), port.capacity),
            None => "port".into(),
        },
        NodeKind::Region => match workflow.regions.iter().find(|r| r.name == link.name).and_then(|r| r.size) {
            Some(size) => format!("region, {}", units::show(size)),
            None => "region".into(),
        },
        kind => kind.word().into(),
    }
}

/// Tells whether a grant lets data flow out of the task, and whether it lets data flow into the task. The task that
/// makes a region, series or item may also read it, but that does not count as a flow into the task.
pub(crate) fn flows(rights: Rights) -> (bool, bool) {
    let any = |of: &[Rights]| of.iter().any(|right| rights.contains(*right));
    let makes = any(&[Rights::PUBLISH, Rights::OWN, Rights::CREATE]);
    let gives = makes || any(&[Rights::PRODUCE, Rights::WRITE]);
    (gives, any(&[Rights::CONSUME]) || (!makes && any(&[Rights::READ, Rights::OBSERVE])))
}

//! Draws a sample as a graph, with the links that the workflow file allows and the objects that exist.

use crossdock_launch::graph::{Flow, Graph, NodeKind};

use crate::sample::{Daemon, RunRow, Sample};

/// Makes the graph of a run or of a daemon. Returns `None` if the sample does not contain it.
pub fn graph(sample: &Sample, run: Option<&str>, place: Option<&str>) -> Option<Graph> {
    let run = run.and_then(|id| sample.runs.iter().find(|r| r.id == id));
    let place = place.map(str::to_owned).or_else(|| run?.place.clone());
    let daemon = place.and_then(|place| sample.daemons.iter().find(|d| d.place == place));
    if run.is_none() && daemon.is_none() {
        return None;
    }
    let mut graph = Graph::default();
    if let Some(run) = run {
        of_run(&mut graph, run, daemon);
    }
    if let Some(daemon) = daemon {
        of_daemon(&mut graph, daemon, run.map(|r| r.workflow.as_str()));
    }
    Some(graph)
}

/// The longest text that the page writes under a name. Nodes are wide enough for this text.
const ROOM: &str = "000.0 MiB/s · 000 wait";

fn of_run(graph: &mut Graph, run: &RunRow, daemon: Option<&Daemon>) {
    for rank in &run.ranks {
        graph.node(NodeKind::Task, &rank.task, ROOM);
    }
    for link in &run.links {
        // A pattern such as `frames*` gets no node of its own if the daemon is known: `of_daemon` draws the existing
        // objects whose names match the pattern.
        if link.name.ends_with('*') && daemon.is_some() {
            continue;
        }
        let (task, object) = (graph.node(NodeKind::Task, &link.task, ROOM), graph.node(link.kind(), &link.name, ROOM));
        graph.link(task, object, link.way());
    }
}

fn of_daemon(graph: &mut Graph, daemon: &Daemon, only: Option<&str>) {
    let wanted = |workflow: &str| only.is_none_or(|w| w == workflow);
    // Two workflows may have tasks of the same name. So names are written with the workflow, unless only one workflow
    // is drawn.
    let several = only.is_none() && daemon.workflows.len() > 1;
    let name = |workflow: &str, name: &str| if several { format!("{workflow}/{name}") } else { name.to_owned() };
    let mut add = |from: (NodeKind, String), to: (NodeKind, String)| {
        let (a, b) = (graph.node(from.0, &from.1, ROOM), graph.node(to.0, &to.1, ROOM));
        let known =
            graph.edges.iter().any(|e| (e.from, e.to) == (a, b) || ((e.to, e.from) == (a, b) && e.flow == Flow::Both));
        if !known {
            graph.edge(a, b, Flow::Forth);
        }
    };
    for port in daemon.ports.iter().filter(|p| wanted(&p.workflow)) {
        for end in port.ends.iter().filter(|e| e.alive) {
            let (task, port) =
                ((NodeKind::Task, name(&port.workflow, &end.task)), (NodeKind::Port, name(&port.workflow, &port.name)));
            if end.end == "producer" { add(task, port) } else { add(port, task) }
        }
    }
    for series in daemon.series.iter().filter(|s| wanted(&s.workflow) && s.state == "live" && !s.publisher.is_empty()) {
        let (task, object) = (name(&series.workflow, &series.publisher), name(&series.workflow, &series.name));
        add((NodeKind::Task, task), (NodeKind::Series, object));
    }
    // Objects without an edge are drawn as well.
    for series in daemon.series.iter().filter(|s| wanted(&s.workflow)) {
        graph.node(NodeKind::Series, &name(&series.workflow, &series.name), ROOM);
    }
    for port in daemon.ports.iter().filter(|p| wanted(&p.workflow)) {
        graph.node(NodeKind::Port, &name(&port.workflow, &port.name), ROOM);
    }
    for region in daemon.regions.iter().filter(|r| wanted(&r.workflow)) {
        graph.node(NodeKind::Region, &name(&region.workflow, &region.name), ROOM);
    }
    for item in daemon.items.iter().filter(|i| wanted(&i.workflow)).take(24) {
        graph.node(NodeKind::Item, &name(&item.workflow, &item.name), ROOM);
    }
}

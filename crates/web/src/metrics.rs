//! A sample in Prometheus' text format. The metrics' names are documented in docs/metrics.md and do not change.

use std::fmt::Write;

use crate::sample::Sample;

/// Name, kind and meaning of each metric. docs/metrics.md has the same table, and a test compares the two.
pub const METRICS: &[(&str, &str, &str)] = &[
    ("crossdock_up", "gauge", "1 if the daemon answered"),
    ("crossdock_members", "gauge", "Members of a workflow"),
    ("crossdock_progress_steps_done", "gauge", "Steps that a member says it has done"),
    ("crossdock_progress_steps", "gauge", "Steps that it says there are in all"),
    ("crossdock_workflow_memory_bytes", "gauge", "Shared memory that a workflow has reserved"),
    ("crossdock_workflow_quota_bytes", "gauge", "Most that it may reserve; 0: the node's limit"),
    ("crossdock_task_running", "gauge", "1 while a rank of a run's task runs"),
    ("crossdock_task_failed", "gauge", "1 if it ended with another exit code than 0"),
    ("crossdock_task_cpu_seconds_total", "counter", "CPU time of its processes"),
    ("crossdock_task_memory_bytes", "gauge", "Memory of its processes, shared memory not counted"),
    ("crossdock_port_messages_total", "counter", "Messages sent through a port"),
    ("crossdock_port_received_total", "counter", "Messages released by consumers"),
    ("crossdock_port_in_flight", "gauge", "Messages in the port"),
    ("crossdock_port_capacity", "gauge", "Messages that it can hold"),
    ("crossdock_port_handed_over_bytes_total", "counter", "Bytes that changed hands without a copy"),
    ("crossdock_port_copied_bytes_total", "counter", "Bytes that were copied at the ends"),
    ("crossdock_port_producer_wait_seconds_total", "counter", "Time that producers waited for room"),
    ("crossdock_port_consumer_wait_seconds_total", "counter", "Time that consumers waited for messages"),
    ("crossdock_port_dead_ends", "gauge", "Ends whose member is dead or gone"),
    ("crossdock_series_versions_total", "counter", "Versions published"),
    ("crossdock_series_live", "gauge", "1 while the publisher lives"),
    ("crossdock_series_observers", "gauge", "Observers"),
    ("crossdock_series_copied_bytes_total", "counter", "Bytes copied for versions: what changed"),
    ("crossdock_series_pool_bytes", "gauge", "Memory that the series has reserved"),
    ("crossdock_series_withheld_total", "counter", "Publishes that withheld their version for lack of room"),
    ("crossdock_series_taken_back_total", "counter", "Versions taken back from observers"),
    ("crossdock_series_last_publish_seconds", "gauge", "Time that the last publish took"),
    ("crossdock_region_memory_bytes", "gauge", "Memory that a region has reserved"),
    ("crossdock_item_bytes", "gauge", "Size of an item"),
    ("crossdock_item_transfers_total", "counter", "Times that it changed its owner"),
    ("crossdock_item_copies_total", "counter", "Times that it was copied because a former user clung to it"),
    ("crossdock_item_waiting", "gauge", "Requests that wait for it"),
];

/// Writes all metrics of a sample as text.
pub fn text(sample: &Sample) -> String {
    let mut lines: Vec<(&'static str, String, f64)> = Vec::new();
    collect(sample, &mut |name, labels, value| {
        let labels: Vec<String> = labels.iter().map(|(n, v)| format!("{n}=\"{}\"", escaped(v))).collect();
        lines.push((name, labels.join(","), value));
    });
    let mut text = String::new();
    for (name, kind, meaning) in METRICS {
        let mut of_name = lines.iter().filter(|(n, ..)| n == name).peekable();
        if of_name.peek().is_some() {
            let _ = writeln!(text, "# HELP {name} {meaning}\n# TYPE {name} {kind}");
        }
        for (_, labels, value) in of_name {
            let _ = writeln!(text, "{name}{{{labels}}} {value}");
        }
    }
    text
}

/// A function that takes a metric's name, its labels and its value.
type Add<'a> = dyn FnMut(&'static str, &[(&str, &str)], f64) + 'a;

fn collect(sample: &Sample, add: &mut Add<'_>) {
    for run in &sample.runs {
        for r in &run.ranks {
            let rank = r.rank.to_string();
            let of = [("run", run.id.as_str()), ("workflow", &run.workflow), ("task", &r.task), ("rank", &rank)];
            add("crossdock_task_running", &of, f64::from(u8::from(r.state == "runs")));
            add("crossdock_task_failed", &of, f64::from(u8::from(r.state == "failed")));
            add("crossdock_task_cpu_seconds_total", &of, r.cpu_seconds);
            add("crossdock_task_memory_bytes", &of, r.memory as f64);
        }
    }
    for d in &sample.daemons {
        let place = d.place.as_str();
        add("crossdock_up", &[("daemon", place)], f64::from(u8::from(d.trouble.is_none())));
        for w in &d.workflows {
            let of = [("daemon", place), ("workflow", w.name.as_str())];
            let members = d.members.iter().filter(|m| m.workflow == w.name).count();
            add("crossdock_members", &of, members as f64);
            add("crossdock_workflow_memory_bytes", &of, w.reserved as f64);
            add("crossdock_workflow_quota_bytes", &of, w.quota as f64);
        }
        for m in &d.members {
            let rank = m.rank.to_string();
            let of = [("daemon", place), ("workflow", m.workflow.as_str()), ("task", &m.task), ("rank", &rank)];
            if let Some((done, steps)) = m.progress {
                add("crossdock_progress_steps_done", &of, done as f64);
                add("crossdock_progress_steps", &of, steps as f64);
            }
        }
        for p in &d.ports {
            let of = [("daemon", place), ("workflow", p.workflow.as_str()), ("port", p.name.as_str())];
            add("crossdock_port_messages_total", &of, p.messages as f64);
            add("crossdock_port_received_total", &of, p.received as f64);
            add("crossdock_port_in_flight", &of, p.in_flight as f64);
            add("crossdock_port_capacity", &of, f64::from(p.capacity));
            add("crossdock_port_handed_over_bytes_total", &of, p.bytes_handed_over as f64);
            add("crossdock_port_copied_bytes_total", &of, p.bytes_copied as f64);
            add("crossdock_port_producer_wait_seconds_total", &of, p.producer_wait_seconds);
            add("crossdock_port_consumer_wait_seconds_total", &of, p.consumer_wait_seconds);
            add("crossdock_port_dead_ends", &of, p.ends.iter().filter(|e| !e.alive).count() as f64);
        }
        // The figures of an ended series no longer change, and a living series may have the same name. So the ended
        // series is left out.
        for s in d.series.iter().filter(|s| s.state != "former") {
            let of = [("daemon", place), ("workflow", s.workflow.as_str()), ("series", s.name.as_str())];
            add("crossdock_series_versions_total", &of, s.newest as f64);
            add("crossdock_series_live", &of, f64::from(u8::from(s.state == "live")));
            add("crossdock_series_observers", &of, f64::from(s.observers));
            add("crossdock_series_copied_bytes_total", &of, s.bytes_copied as f64);
            add("crossdock_series_pool_bytes", &of, s.reserved as f64);
            add("crossdock_series_withheld_total", &of, s.withheld as f64);
            add("crossdock_series_taken_back_total", &of, s.taken_back as f64);
            add("crossdock_series_last_publish_seconds", &of, s.last_publish_seconds);
        }
        for r in &d.regions {
            let of = [("daemon", place), ("workflow", r.workflow.as_str()), ("region", r.name.as_str())];
            add("crossdock_region_memory_bytes", &of, r.reserved as f64);
        }
        for i in &d.items {
            let of = [("daemon", place), ("workflow", i.workflow.as_str()), ("item", i.name.as_str())];
            add("crossdock_item_bytes", &of, i.size as f64);
            add("crossdock_item_transfers_total", &of, i.transfers as f64);
            add("crossdock_item_copies_total", &of, i.copies as f64);
            add("crossdock_item_waiting", &of, f64::from(i.waiting));
        }
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Daemon, PortRow};

    #[test]
    fn the_documented_metrics_are_those_that_are_given() {
        let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md")).unwrap();
        for (name, kind, meaning) in METRICS {
            let row = page
                .lines()
                .find(|l| l.starts_with(&format!("| `{name}` |")))
                .unwrap_or_else(|| panic!("no row for {name}"));
            assert!(row.contains(&format!("| {kind} |")) && row.contains(meaning), "{row}");
        }
        let rows = page.lines().filter(|l| l.starts_with("| `crossdock_")).count();
        assert_eq!(rows, METRICS.len());
        let board =
            std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/grafana/crossdock.json"));
        let board: serde_json::Value = serde_json::from_str(&board.unwrap()).unwrap();
        let mut asked = Vec::new();
        for panel in board["panels"].as_array().unwrap() {
            for target in panel["targets"].as_array().into_iter().flatten() {
                asked.push(target["expr"].as_str().unwrap().to_owned());
            }
        }
        assert!(asked.len() >= 8, "{asked:?}");
        for expression in asked {
            let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let names = expression.split(|c| !is_word(c)).filter(|w| w.starts_with("crossdock_"));
            for name in names {
                assert!(METRICS.iter().any(|(n, ..)| *n == name), "the board asks for {name}");
            }
        }
    }

    #[test]
    fn labels_are_escaped_and_each_name_has_its_help_once() {
        let port = |name: &str| PortRow { name: name.into(), workflow: "w".into(), messages: 3, ..PortRow::default() };
        let daemon = Daemon { place: "a\"b".into(), ports: vec![port("p"), port("q\\")], ..Daemon::default() };
        let text = text(&Sample { daemons: vec![daemon], ..Sample::default() });
        assert_eq!(text.matches("# TYPE crossdock_port_messages_total counter").count(), 1);
        assert!(text.contains(r#"crossdock_port_messages_total{daemon="a\"b",workflow="w",port="q\\"} 3"#), "{text}");
    }
}

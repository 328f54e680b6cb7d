//! `crossdock top`: shows rates, memory and waits, live.

use std::time::Duration;

use crossdock_launch::file::units;
use crossdock_web::{Daemon, RunRow, Sample, Sampler, Scope};

use crate::args::Top;
use crate::output::{age, progress};
use crate::table::columns;

/// The time between the first measurement and the first print, because rates need two measurements.
const FIRST: Duration = Duration::from_millis(500);

pub fn top(options: &Top) -> u8 {
    let mut sampler = Sampler::new(Scope { socket: options.socket.clone(), front: None });
    sampler.look();
    std::thread::sleep(FIRST);
    let mut output = options.output.clone();
    output.watch = true;
    output.show(|| {
        let sample = sampler.look();
        let text = as_text(&sample, output_is_wide(options));
        Ok((serde_json::to_value(&sample).unwrap_or_default(), text))
    })
}

fn output_is_wide(options: &Top) -> bool {
    options.output.wide()
}

fn rate(bytes: f64) -> String {
    format!("{}/s", units::show(bytes.max(0.0) as u64))
}

fn as_text(sample: &Sample, wide: bool) -> String {
    let mut parts: Vec<String> = sample.runs.iter().map(run).collect();
    for daemon in &sample.daemons {
        parts.extend(of_daemon(daemon, sample, wide));
    }
    if parts.is_empty() {
        return "no daemon and no run of yours lives".into();
    }
    let mut text = parts.join("\n\n");
    if let Some(last) = sample.events.last() {
        text += &format!("\n\n{} ago: {}", age((sample.time_ms.saturating_sub(last.time_ms)) as f64 / 1e3), last.text);
    }
    text
}

fn run(run: &RunRow) -> String {
    let rows: Vec<_> = run
        .ranks
        .iter()
        .map(|r| {
            let word = r.code.filter(|c| *c != 0).map_or_else(|| r.state.to_owned(), |c| format!("{} ({c})", r.state));
            vec![
                r.name.clone(),
                word,
                r.seconds.map_or_else(|| "-".into(), age),
                progress(r.progress),
                format!("{:.2}", r.cpus),
                units::show(r.memory),
                units::show(r.shared),
            ]
        })
        .collect();
    let why = run.stopping.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
    format!(
        "run {}{why}\n{}",
        run.id,
        columns(&["TASK", "STATE", "AGE", "PROGRESS", "CPUS", "MEMORY", "SHARED"], &rows)
    )
}

fn of_daemon(d: &Daemon, sample: &Sample, wide: bool) -> Option<String> {
    if let Some(trouble) = &d.trouble {
        return Some(format!("{}: {trouble}", d.place));
    }
    let mut tables = Vec::new();
    let members: Vec<_> = d
        .members
        .iter()
        .filter(|m| wide || sample.runs.iter().all(|r| r.place.as_ref() != Some(&d.place) || r.workflow != m.workflow))
        .map(|m| {
            let name = format!("{}/{}", m.workflow, m.task);
            vec![
                name,
                m.rank.to_string(),
                m.pid.to_string(),
                progress(m.progress),
                format!("{:.2}", m.cpus),
                units::show(m.memory),
            ]
        })
        .collect();
    if !members.is_empty() {
        tables.push(columns(&["MEMBER", "RANK", "PID", "PROGRESS", "CPUS", "MEMORY"], &members));
    }
    let ports: Vec<_> = d
        .ports
        .iter()
        .map(|p| {
            let named = |alive: bool| {
                let of = p.ends.iter().filter(|e| e.alive == alive && (!alive || e.waiting)).map(|e| e.task.as_str());
                let names: Vec<&str> = of.collect();
                if names.is_empty() { "-".to_owned() } else { names.join(",") }
            };
            vec![
                format!("{}/{}", p.workflow, p.name),
                format!("{:.1}/s", p.rate),
                rate(p.byte_rate),
                format!("{}/{}", p.in_flight, p.capacity),
                p.messages.to_string(),
                format!("{:.1} s", p.producer_wait_seconds),
                format!("{:.1} s", p.consumer_wait_seconds),
                named(true),
                named(false),
            ]
        })
        .collect();
    if !ports.is_empty() {
        let head =
            ["PORT", "RATE", "HANDED OVER", "IN IT", "SENT", "PRODUCERS WAITED", "CONSUMERS WAITED", "WAITING", "GONE"];
        tables.push(columns(&head, &ports));
    }
    let series: Vec<_> = d
        .series
        .iter()
        .filter(|s| wide || s.state != "former")
        .map(|s| {
            vec![
                format!("{}/{}", s.workflow, s.name),
                s.state.to_owned(),
                s.newest.to_string(),
                format!("{:.1}/s", s.rate),
                rate(s.byte_rate),
                units::show(s.used),
                units::show(s.reserved),
                s.observers.to_string(),
                s.withheld.to_string(),
                format!("{:.2} ms", s.last_publish_seconds * 1e3),
            ]
        })
        .collect();
    if !series.is_empty() {
        let head =
            ["SERIES", "STATE", "VERSION", "RATE", "COPIED", "IN USE", "MEMORY", "OBSERVERS", "WITHHELD", "PUBLISH"];
        tables.push(columns(&head, &series));
    }
    let items: Vec<_> = d
        .items
        .iter()
        .map(|i| {
            let name = format!("{}/{}", i.workflow, i.name);
            vec![
                name,
                format!("{:.1}/s", i.rate),
                units::show(i.size),
                i.owner.clone(),
                i.transfers.to_string(),
                i.copies.to_string(),
                i.waiting.to_string(),
            ]
        })
        .collect();
    if !items.is_empty() {
        tables.push(columns(&["ITEM", "RATE", "SIZE", "OWNER", "TRANSFERS", "COPIES", "WAITING"], &items));
    }
    let regions: Vec<_> = d
        .regions
        .iter()
        .map(|r| {
            vec![
                format!("{}/{}", r.workflow, r.name),
                units::show(r.reserved),
                units::show(r.size),
                r.members.to_string(),
            ]
        })
        .collect();
    if !regions.is_empty() {
        tables.push(columns(&["REGION", "MEMORY", "CAPACITY", "OPEN IN"], &regions));
    }
    let memory: u64 = d.workflows.iter().map(|w| w.reserved).sum();
    (!tables.is_empty()).then(|| format!("{}: shared memory {}\n{}", d.place, units::show(memory), tables.join("\n")))
}

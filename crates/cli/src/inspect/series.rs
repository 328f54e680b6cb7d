//! The part of `crossdock inspect` that shows a series.

use std::time::Duration;

use crossdock_client::{Method, SegmentInfo, SeriesReport, Session, Variable};
use crossdock_launch::file::units;
use serde_json::{Value, json};

use crate::table::columns;

pub fn look(inside: &Session, segment: &SegmentInfo) -> Result<(String, Value), String> {
    let report = inside.series_report(segment.id).map_err(|e| e.to_string())?;
    let observers = segment.observers().unwrap_or_default();
    let living = inside.list().map_err(|e| e.to_string())?.members.iter().any(|m| m.id == report.description.publisher);
    let state = match (report.ended, living) {
        (true, _) => "ended",
        (false, true) => "live",
        (false, false) => "died",
    };
    Ok((text(&report, observers, state), value(&report, observers, state)))
}

fn text(r: &SeriesReport, (observers, most): (u32, u32), state: &str) -> String {
    let (fit, reserved, used) = r.slots;
    let chunk = u64::from(r.description.chunk);
    let method = r.method.map_or("not known", Method::word);
    let missing: Vec<_> = r.unavailable.iter().map(|m| m.word()).collect();
    let missing =
        if missing.is_empty() { String::new() } else { format!(" (not to be had here: {})", missing.join(", ")) };
    let first = r.versions.first().map_or(0, |v| v.0);
    let mut lines = vec![
        format!("  {state}, version {}, {} versions there from {first} on", r.newest, r.versions.len()),
        format!("  {observers} observers, of at most {most}"),
        format!("  changes found by {method}{missing}, changed {} times", r.switches),
        format!(
            "  pool: {} in use, {} taken, of at most {}, in chunks of {}",
            units::show(u64::from(used) * chunk),
            units::show(u64::from(reserved) * chunk),
            units::show(u64::from(fit) * chunk),
            units::show(chunk)
        ),
        format!("  {} chunks copied, {} shared with the version before", r.copied, r.shared),
        format!("  last publish {}, longest {}", took(r.last), took(r.longest)),
    ];
    let (withheld, now) = r.withheld;
    if withheld > 0 {
        lines.push(format!("  {withheld} versions were withheld for lack of room, {now} of them since the newest"));
    }
    if r.no_space + r.taken_back > 0 {
        let (full, back) = (r.no_space, r.taken_back);
        lines.push(format!(
            "  {full} publishes failed for lack of room, {back} versions were taken back from observers"
        ));
    }
    let row = |v: &Variable| vec![format!("  {}", v.name), v.ty.clone(), shape(&v.shape), constants(v)];
    let rows: Vec<_> = r.description.variables.iter().map(row).collect();
    lines.push(columns(&["  VARIABLE", "TYPE", "SHAPE (LARGEST)", "CONSTANTS"], &rows));
    let names: Vec<_> = r.description.attributes.iter().map(|a| format!("{} ({})", a.name, a.ty.word())).collect();
    if !names.is_empty() {
        lines.push(format!("  attributes: {}", names.join(", ")));
    }
    lines.join("\n")
}

fn took(time: Duration) -> String {
    let us = time.as_secs_f64() * 1e6;
    if us < 1000.0 { format!("{us:.1} µs") } else { format!("{:.2} ms", us / 1000.0) }
}

fn shape(shape: &[u64]) -> String {
    let lengths: Vec<_> = shape.iter().map(u64::to_string).collect();
    format!("({})", lengths.join(", "))
}

fn constants(variable: &Variable) -> String {
    let all: Vec<_> = variable.constants.iter().map(|(name, value)| format!("{name} {value}")).collect();
    all.join(", ")
}

fn value(r: &SeriesReport, (observers, most): (u32, u32), state: &str) -> Value {
    let (fit, reserved, used) = r.slots;
    let variable = |v: &Variable| json!({ "name": v.name, "type": v.ty, "shape": v.shape });
    let versions: Vec<_> = r.versions.iter().map(|(n, time)| json!({ "sequence": n, "time_ns": time })).collect();
    json!({
        "state": state, "newest": r.newest, "versions": versions, "observers": observers, "max_observers": most,
        "method": r.method.map(Method::word), "unavailable": r.unavailable.iter().map(|m| m.word()).collect::<Vec<_>>(),
        "switches": r.switches, "chunk": r.description.chunk, "slots": fit, "slots_reserved": reserved, "slots_used": used,
        "copied": r.copied, "shared": r.shared, "last_ns": r.last.as_nanos() as u64, "longest_ns": r.longest.as_nanos() as u64,
        "withheld": r.withheld.0, "withheld_now": r.withheld.1, "no_space": r.no_space, "taken_back": r.taken_back,
        "full": r.description.full.word(),
        "variables": r.description.variables.iter().map(variable).collect::<Vec<_>>(),
        "attributes": r.description.attributes.iter().map(|a| a.name.clone()).collect::<Vec<_>>(),
    })
}

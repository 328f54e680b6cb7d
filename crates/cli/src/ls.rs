//! `crossdock ls`: lists members and objects.

use std::collections::BTreeMap;
use std::path::Path;

use crossdock_client::{Listing, SegmentInfo, SegmentKind, SeriesReport, Session, Variable, WorkflowInfo};
use crossdock_launch::file::units;
use crossdock_launch::run::code;
use crossdock_launch::run::state::now_ms;
use crossdock_web::find;
use serde_json::{Value, json};

use crate::args::Ls;
use crate::output::{age, progress};
use crate::table::{columns, complain};

/// A daemon's listing, and the reports of its series.
struct DaemonListing {
    place: String,
    listing: Listing,
    series: BTreeMap<u64, (SeriesReport, &'static str)>,
}

pub fn ls(options: &Ls) -> u8 {
    if options.files {
        return crate::directories::list(&options.output);
    }
    if options.nodes {
        return crate::nodes::list(options.socket.as_deref(), &options.output);
    }
    options.output.show(|| {
        let seen = look(options.socket.as_deref()).map_err(|e| (code::UNAVAILABLE, e))?;
        let daemons: Vec<Value> = seen.iter().map(as_json).collect();
        let text = match seen.is_empty() {
            true => "no daemon of yours is running: nothing to list (`crossdock run` and programs start one when they need it)".into(),
            false => seen.iter().map(|s| as_text(s, options.output.wide())).collect::<Vec<_>>().join("\n\n"),
        };
        Ok((json!({ "daemons": daemons }), text))
    })
}

fn look(socket: Option<&Path>) -> Result<Vec<DaemonListing>, String> {
    let mut seen = Vec::new();
    for daemon in find::daemons(socket)? {
        let listing = match daemon.session.list() {
            Ok(listing) => listing,
            Err(e) => {
                complain(&format!("{}: {e}", daemon.place));
                continue;
            }
        };
        let mut inside: BTreeMap<&str, Option<Session>> = BTreeMap::new();
        let mut series = BTreeMap::new();
        for segment in listing.segments.iter().filter(|s| s.kind == SegmentKind::Series && !s.removed) {
            let session =
                inside.entry(&segment.workflow).or_insert_with(|| daemon.inside(&segment.workflow, socket).ok());
            // If a series ends between the listing and this call, the daemon gives no report of the series, and the
            // report is left out.
            if let Some(report) = session.as_ref().and_then(|s| s.series_report(segment.id).ok()) {
                let state = crossdock_web::series_state(&report, segment, &listing);
                series.insert(segment.id.0, (report, state));
            }
        }
        drop(inside);
        seen.push(DaemonListing { place: daemon.place.clone(), listing, series });
    }
    Ok(seen)
}

/// The word for a kind of segment: `region`, `port`, `series` or `item`.
pub fn kind(kind: SegmentKind) -> &'static str {
    kind.word()
}

fn as_json(seen: &DaemonListing) -> Value {
    let l = &seen.listing;
    let workflows: Vec<Value> = l
        .workflows
        .iter()
        .map(|w| json!({ "name": w.name, "run": w.run, "quota": w.quota, "reserved": w.reserved }))
        .collect();
    let members: Vec<Value> = l
        .members
        .iter()
        .map(|m| json!({ "id": m.id.0, "workflow": m.workflow, "task": m.task, "rank": m.rank, "pid": m.pid, "uid": m.uid, "connected": m.connected, "progress": m.progress }))
        .collect();
    let segment = |s: &SegmentInfo| {
        let mut value = json!({
            "id": s.id.0, "kind": kind(s.kind), "workflow": s.workflow, "name": s.name, "size": s.size, "reserved": s.reserved,
            "creator": s.creator.0, "since_ms": s.since_ms, "members": s.members, "former": s.former, "removed": s.removed,
        });
        if let (Some((r, state)), Value::Object(into)) = (seen.series.get(&s.id.0), &mut value) {
            let variable = |v: &Variable| json!({ "name": v.name, "type": v.ty, "shape": v.shape });
            into.insert("state".into(), (*state).into());
            into.insert("newest".into(), r.newest.into());
            into.insert("observers".into(), s.observers().unwrap_or_default().0.into());
            into.insert("variables".into(), r.description.variables.iter().map(variable).collect());
        }
        value
    };
    let segments: Vec<Value> = l.segments.iter().map(segment).collect();
    let items: Vec<Value> = l.items.iter().map(crate::items::json).collect();
    json!({ "place": seen.place, "workflows": workflows, "members": members, "segments": segments, "items": items })
}

fn as_text(seen: &DaemonListing, wide: bool) -> String {
    let l = &seen.listing;
    let mut parts = vec![format!("{}:", seen.place)];
    let quota = |n: u64| if n == 0 { "the node's".to_owned() } else { units::show(n) };
    let row = |w: &WorkflowInfo| vec![w.name.clone(), w.run.to_string(), units::show(w.reserved), quota(w.quota)];
    let rows: Vec<_> = l.workflows.iter().map(row).collect();
    if !rows.is_empty() {
        parts.push(columns(&["WORKFLOW", "RUN", "MEMORY", "QUOTA"], &rows));
    }
    // Items have a table of their own. This table shows an item's file only if the file no longer belongs to the item,
    // but a former user still has the file mapped.
    let shown = |s: &&SegmentInfo| s.kind != SegmentKind::Item || s.removed;
    let rows: Vec<_> = l.segments.iter().filter(shown).map(|s| segment_row(seen, s, wide)).collect();
    if !rows.is_empty() {
        let mut head = vec!["SEGMENT", "NAME", "STATE", "AGE", "CAPACITY", "MEMORY", "OPEN IN", "MADE BY", "SHAPES"];
        if wide {
            head.insert(8, "ID");
        }
        parts.push(columns(&head, &rows));
    }
    parts.extend(crate::items::table(l));
    let rows: Vec<_> = l
        .members
        .iter()
        // The list leaves out the connection of this command itself, because the command is no task of a workflow.
        .filter(|m| m.pid != std::process::id())
        .map(|m| {
            let state = if m.connected { "connected" } else { "away" };
            let mut row = vec![
                format!("{}/{}", m.workflow, m.task),
                m.rank.to_string(),
                m.pid.to_string(),
                m.uid.to_string(),
                state.to_owned(),
                progress(m.progress),
            ];
            if wide {
                row.push(m.id.0.to_string());
            }
            row
        })
        .collect();
    if !rows.is_empty() {
        let mut head = vec!["TASK", "RANK", "PROCESS", "USER", "STATE", "PROGRESS"];
        if wide {
            head.push("ID");
        }
        parts.push(columns(&head, &rows));
    }
    parts.join("\n")
}

fn segment_row(seen: &DaemonListing, s: &SegmentInfo, wide: bool) -> Vec<String> {
    let maker = seen.listing.members.iter().find(|m| m.id == s.creator);
    let maker = match maker {
        Some(member) => member.task.clone(),
        None if wide => format!("has left ({})", s.creator.0),
        None => "has left".to_owned(),
    };
    let series = seen.series.get(&s.id.0);
    let state = match (series, s.removed) {
        (_, true) => "removed".to_owned(),
        (Some((r, state)), _) => format!("{state}, {}", r.newest),
        (None, _) if s.former => "former".to_owned(),
        (None, _) => "-".to_owned(),
    };
    let since = now_ms().saturating_sub(s.since_ms) as f64 / 1e3;
    let open = s.observers().map_or(s.members, |(observers, _)| observers);
    let shape = |v: &Variable| {
        let lengths: Vec<_> = v.shape.iter().map(u64::to_string).collect();
        format!("{} {}", v.name, lengths.join("×"))
    };
    let shapes = series.map(|(r, _)| r.description.variables.iter().map(shape).collect::<Vec<_>>().join(", "));
    let mut row = vec![
        kind(s.kind).to_owned(),
        format!("{}/{}", s.workflow, s.name),
        state,
        age(since),
        units::show(s.size),
        units::show(s.reserved),
        open.to_string(),
        maker,
        shapes.unwrap_or_else(|| "-".into()),
    ];
    if wide {
        row.insert(8, s.id.0.to_string());
    }
    row
}
